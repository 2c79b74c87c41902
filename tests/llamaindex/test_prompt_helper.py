"""The prompt helper: one call with the best chunks, exactly counted, where the stock one makes more calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.indices.document_summary.base import DEFAULT_SUMMARY_QUERY
from llama_index.core.indices.prompt_helper import PromptHelper
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.settings import Settings
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_for,
    budget_model,
)
from rankbudget import (
    BudgetConfigError,
    BudgetExceededError,
    BudgetReport,
    BudgetSession,
    TokenBudget,
    counter_for,
)
from tests.drawing import draws
from tests.llamaindex.models import FixedRetriever, PlayLLM, exchanges, nodes, strict_llm, tokens, words

COUNTER = counter_for("cl100k_base")
CHUNKS = [n.text for n in nodes(20)]
NEVER_ASK = (ResponseMode.NO_TEXT, ResponseMode.CONTEXT_ONLY)
FILTERING = (ResponseMode.REFINE, ResponseMode.COMPACT)
CHAT = ChatPromptTemplate.from_messages([("system", "Use {context_str} only."), ("user", "{query_str}")])


def _llm(**fields: Any) -> PlayLLM:
    return PlayLLM(**{"requests": [], "steps": [], "window": 2000, "reply": 300, **fields})


def test_twenty_large_chunks_become_one_that_fits() -> None:
    """What the stock helper packs into several calls is one call's best."""
    helper = BudgetPromptHelper(context_window=2000, num_output=300)
    prompt = CHAT.partial_format(query_str="What does item 305 weigh?")
    [text] = helper.repack(prompt, CHUNKS)
    sent = tokens(prompt.format_messages(context_str=text))
    assert 0.8 * 1700 < sent <= 1700
    assert "item 305 weighs" in text
    assert len(PromptHelper(context_window=2000, num_output=300).repack(prompt, CHUNKS)) > 3


def test_what_fits_is_what_the_stock_helper_makes() -> None:
    """When everything fits, the chunk is the same text."""
    helper, stock = BudgetPromptHelper(8000, 300), PromptHelper(8000, 300)
    assert helper.repack(CHAT, CHUNKS[:3]) == stock.repack(CHAT, CHUNKS[:3])


def test_nothing_to_pack_is_nothing() -> None:
    """No chunks give no chunk; blank ones give an empty one, as from the stock helper, so that the question is still asked."""
    helper = BudgetPromptHelper()
    assert helper.repack(CHAT, []) == helper.truncate(CHAT, []) == []
    assert helper.repack(CHAT, [" ", ""]) == PromptHelper().repack(CHAT, [" ", ""]) == [""]


def test_a_tokenizer_of_ones_own_counts_chat_templates_too() -> None:
    """A tokenizer that counts characters is used for the messages, where the stock helper falls back to its global one."""
    helper = BudgetPromptHelper(context_window=400, num_output=100, tokenizer=list)
    [text] = helper.repack(CHAT, CHUNKS)
    assert len(text) <= 400 - 100 - len("Use  only.")


JAVA = (
    "getUserAccountManagerFactoryBean().setApplicationContextInitializerClassName(registryPostProcessor);\n"
)


@draws()
@given(
    name=st.sampled_from(["gpt-4o", "gpt-4", "gpt-4o-mini", "claude-3-opus", "llama-3-8b"]),
    texts=st.lists(st.sampled_from([JAVA * 9, JAVA * 3, words(40), "Grüße aus Łódź. " * 20]), min_size=1),
    way=st.sampled_from(["metadata", "llm", "both", "bounded"]),
)
def test_the_models_own_tokenizer_decides(name: str, texts: list[str], way: str) -> None:
    """Every way to name the model counts with its tokenizer, and leaves the band of an estimate free: packing, cutting and splitting."""
    llm = strict_llm("http://127.0.0.1:9/v1", model=name, context_window=2000, max_tokens=300)
    if way == "bounded":
        llm = budget_model(llm)
    helper = (
        BudgetPromptHelper(2000, 300) if way == "llm" else BudgetPromptHelper.from_llm_metadata(llm.metadata)
    )
    asked: dict[str, Any] = {} if way == "metadata" else {"llm": llm}
    counter = counter_for(name)
    most = 1700 / (1 + counter.band)
    prompt, index = PromptTemplate("{context_str} {query_str}"), PromptTemplate("List: {context_str}")
    [packed] = helper.repack(prompt, texts, **asked)
    splitter = helper.get_text_splitter_given_prompt(prompt, **asked)
    for text in [
        packed,
        "\n\n".join(helper.truncate(prompt, texts, **asked)),
        *helper.repack(index, texts, **asked),
        *splitter.split_text("\n".join(texts)),
    ]:
        assert counter.count(text) <= most


def test_a_chosen_counter_stays_and_the_smaller_window_wins() -> None:
    """A counter or tokenizer that was given counts beside any model; a model's own smaller window bounds the helper's."""
    llm = strict_llm("http://127.0.0.1:9/v1", model="gpt-4o", context_window=600, max_tokens=100)
    for options in ({"counter": len}, {"tokenizer": list}):
        helper = BudgetPromptHelper.from_llm_metadata(llm.metadata, **options)
        assert len(helper.repack(CHAT, CHUNKS, llm=llm)[0]) <= 500
    ollama = Ollama("llama3", context_window=131_072, additional_kwargs={"num_ctx": 2000})
    helper = BudgetPromptHelper.from_llm_metadata(ollama.metadata, counter="cl100k_base")
    assert COUNTER.count(helper.repack(CHAT, CHUNKS, llm=ollama)[0]) <= 2000 - 256


def test_truncating_spends_what_is_there() -> None:
    """One long and nine short chunks use the room together, instead of a tenth each; their number stays."""
    helper = BudgetPromptHelper(context_window=1000, num_output=100)
    chunks = [CHUNKS[0] * 3, *(f"Short fact number {i}." for i in range(9))]
    cut = helper.truncate(CHAT, chunks)
    assert len(cut) == 10
    assert 450 < COUNTER.count("\n\n".join(cut)) <= 900


def test_tools_system_prompt_and_answer_are_counted() -> None:
    """Each of them leaves less for the chunks."""
    helper = BudgetPromptHelper(context_window=2000, num_output=300)
    tool = FunctionTool.from_defaults(lambda q: q, name="search", description=words(100))
    sizes = [
        helper._get_available_chunk_size(CHAT),
        helper._get_available_chunk_size(CHAT, tools=[tool]),
        helper._get_available_chunk_size(CHAT, llm=_llm(system_prompt=words(400))),
        BudgetPromptHelper(context_window=2000, num_output=1000)._get_available_chunk_size(CHAT),
    ]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] - sizes[3] == 700


def test_no_room_is_a_typed_error_with_the_numbers() -> None:
    """A template larger than the window is refused; the message says what is how large."""
    with pytest.raises(BudgetExceededError, match="window 200, answer 100"):
        BudgetPromptHelper(context_window=200, num_output=100).repack(
            PromptTemplate(words(300) + "{context_str}"), CHUNKS
        )


def test_limits_come_from_a_model_a_budget_or_a_session() -> None:
    """Window, answer, safety and counter are those of what was given."""
    model = BudgetPromptHelper.from_llm_metadata(LLMMetadata(context_window=1000, num_output=-1))
    assert (model.context_window, model.num_output) == (1000, 256)
    budget = TokenBudget(context_window=3000, reserve=500, safety=100)
    for helper in (
        BudgetPromptHelper(budget=budget),
        BudgetPromptHelper(session=BudgetSession(budget, counter="o200k_base")),
    ):
        sent = tokens(CHAT.format_messages(context_str=helper.repack(CHAT, CHUNKS)[0], query_str=""))
        assert 2000 < sent <= 2400
    assert BudgetPromptHelper(budget=budget).class_name() == "BudgetPromptHelper"


@pytest.mark.parametrize(
    "mode",
    [
        ResponseMode.COMPACT,
        ResponseMode.TREE_SUMMARIZE,
        ResponseMode.SIMPLE_SUMMARIZE,
        ResponseMode.COMPACT_ACCUMULATE,
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_every_compacting_synthesizer_makes_one_call(mode: ResponseMode, is_async: bool) -> None:
    """Given the helper, a query over 20 nodes of 300 tokens in a window of 2,000 is one request that fits."""
    llm = _llm()
    synthesizer = get_response_synthesizer(
        llm=llm, response_mode=mode, prompt_helper=BudgetPromptHelper(2000, 300)
    )
    engine = RetrieverQueryEngine(FixedRetriever(nodes(20)), response_synthesizer=synthesizer)
    await engine.aquery("What does item 305 weigh?") if is_async else engine.query(
        "What does item 305 weigh?"
    )
    assert len(llm.requests) == 1
    assert llm.sizes()[0] <= 1700


@draws()
@given(
    mode=st.sampled_from([mode for mode in ResponseMode if mode not in NEVER_ASK]),
    limit=st.integers(60, 300),
    texts=st.lists(st.integers(1, 30), min_size=1, max_size=5),
    asks=st.sampled_from([None, PromptTemplate("{context_str}\n{query_str}"), CHAT]),
    size=st.sampled_from([1, 20]),
    query=st.sampled_from(["Which is it?", "Which is it? " * 12]),
    refines=st.sampled_from([None, PromptTemplate("{existing_answer}, {context_msg}: {query_str}")]),
    filtered=st.booleans(),
)
def test_whichever_template_is_sent_fits(
    size: int, query: str, mode: Any, limit: int, texts: list[int], asks: Any, refines: Any, filtered: bool
) -> None:
    """Near the size of its templates, stock or one's own, each request fits, or nothing is asked; where there is room, it is."""
    llm = _llm(window=limit + 20, reply=20, answer="It is so. " * size)
    synthesizer = get_response_synthesizer(
        llm=llm,
        response_mode=mode,
        prompt_helper=BudgetPromptHelper(limit + 20, 20),
        text_qa_template=asks,
        refine_template=refines,
        structured_answer_filtering=filtered and mode in FILTERING,
    )
    found = FixedRetriever([NodeWithScore(node=TextNode(text="It is so. " * n)) for n in texts])
    try:
        RetrieverQueryEngine(found, response_synthesizer=synthesizer).query(query)
    except BudgetExceededError:
        assert limit < 230 + 90 * filtered or (size > 1 and mode == ResponseMode.REFINE)
    assert max(llm.sizes(), default=0) <= limit


class _Toolless(PlayLLM):
    """Is told a schema in its prompt."""

    @property
    def metadata(self) -> LLMMetadata:
        return super().metadata.model_copy(update={"is_function_calling_model": False})


def _asked(
    kind: type[PlayLLM],
    limit: int,
    text: str,
    query: str,
    *,
    bounded: bool,
    filtered: bool,
    is_async: bool,
    **options: Any,
) -> PlayLLM:
    """Returns the model that was asked about one node."""
    llm = kind(window=limit + 20, reply=20)
    synthesizer = get_response_synthesizer(
        llm=budget_model(llm) if bounded else llm,
        prompt_helper=BudgetPromptHelper(limit + 20, 20),
        structured_answer_filtering=filtered,
        **options,
    )
    found = [NodeWithScore(node=TextNode(text=text))]
    if is_async:
        asyncio.run(synthesizer.asynthesize(query, found))
    else:
        synthesizer.synthesize(query, found)
    return llm


@pytest.mark.parametrize("mode", [mode for mode in ResponseMode if mode not in (*NEVER_ASK, "generation")])
@draws(cases=7)
@given(
    lines=st.integers(20, 90),
    query=st.integers(1, 60),
    asks=st.sampled_from([None, PromptTemplate("{context_str}\n{query_str}"), CHAT]),
    beside=st.integers(-100, 300),
    filtered=st.booleans(),
    kind=st.sampled_from([PlayLLM, _Toolless]),
    how=st.fixed_dictionaries({"bounded": st.booleans(), "is_async": st.booleans()}),
)
def test_a_node_that_fits_is_sent_whole(
    mode: Any, lines: int, query: int, asks: Any, beside: int, filtered: bool, kind: Any, how: dict[str, bool]
) -> None:
    """Beside any question, template and filter a node stays whole where it fits; no request is larger than the limit."""
    text = "\n".join(f"Ticket {i} was closed in week {i % 50}." for i in range(lines))
    options: dict[str, Any] = {"response_mode": mode, "text_qa_template": asks, **how}
    options["filtered"] = filtered and mode in FILTERING
    whole = _asked(kind, 100_000, text, words(query), **options)
    [needed] = whole.sizes()
    limit = needed + beside
    asked = _asked(kind, limit, text, words(query), **options)
    assert len(asked.requests) == 1
    assert asked.sizes()[0] <= limit
    if beside >= 8:
        assert asked.requests == whole.requests


@pytest.mark.parametrize("mode", FILTERING)
def test_a_summary_reads_all_of_a_long_text(mode: ResponseMode) -> None:
    """What a document summary asks leaves nothing out, also where the host shows its template without the question."""
    llm, [long] = _llm(), nodes(1, 4000)
    helper = BudgetPromptHelper(2000, 300)
    synthesizer = get_response_synthesizer(llm=llm, response_mode=mode, prompt_helper=helper)
    synthesizer.synthesize(DEFAULT_SUMMARY_QUERY, [long])
    sent = "".join(str(m.content) for messages, _ in llm.requests for m in messages)
    facts = long.text.split(". ")
    assert sum(fact in sent for fact in facts) > 0.95 * len(facts)
    assert max(llm.sizes()) <= 1700


@pytest.fixture
def as_default() -> Iterator[BudgetPromptHelper]:
    """Makes a helper the one of `Settings`, which context engines take."""
    before = Settings._prompt_helper
    helper = BudgetPromptHelper(2000, 300)
    Settings.prompt_helper = helper
    yield helper
    Settings._prompt_helper = before


def test_as_a_setting_it_reaches_context_engines(as_default: BudgetPromptHelper) -> None:
    """With memory, postprocessor and helper together no token is kept free for a second call, and nothing overflows."""
    llm = _llm()
    session = BudgetSession(budget_for(llm), host_tokens=60)
    memory = BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=exchanges(60))
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        system_prompt="SYS",
        node_postprocessors=[BudgetNodePostprocessor(session=session)],
    )
    for turn in range(4):
        engine.chat(f"question {turn}")
    assert len(llm.requests) == 4
    assert 0.85 * 1700 < max(llm.sizes()) <= as_default.context_window - as_default.num_output


def test_alone_it_saves_an_engine_with_stock_nodes(as_default: BudgetPromptHelper) -> None:
    """Even when nothing trims the nodes, the helper makes one request that fits."""
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=exchanges(60)),
    )
    engine.chat("hi")
    [messages] = [m for m, _ in llm.requests]
    assert tokens(messages) <= as_default.context_window - as_default.num_output
    assert isinstance(messages[0], ChatMessage)


@pytest.mark.parametrize("chat", [True, False])
def test_a_bounded_model_drops_old_messages_before_chunks(chat: bool) -> None:
    """Of a full chat nodes keep half of the room; a model that takes one text, where nothing else can go, has what is left."""
    reports: list[BudgetReport] = []
    llm = budget_model(MockLLM(is_chat_model=chat), max_tokens=400, counter=COUNTER, on_report=reports.append)
    older = [(str(m.role.value), str(m.content)) for m in exchanges(3)]
    prompt = ChatPromptTemplate.from_messages(
        [("system", "Use {context_str}"), *older, ("user", "{query_str}")]
    )
    asked = prompt.partial_format(query_str="What does item 305 weigh?")
    helper = BudgetPromptHelper.from_llm_metadata(llm.metadata)
    [text] = helper.repack(asked, CHUNKS[3:5], padding=500, llm=llm)
    assert "trimmed" in [d.action for d in reports[-1].decisions]
    assert "item 305 weighs" in text
    assert COUNTER.count(text) > 150 if chat else COUNTER.count(text) < 120
    assert text in llm.predict(asked, context_str=text)


@pytest.mark.parametrize(("window", "answer"), [(100, 101), (100, 100), (100, 5000), (100, -1)])
def test_an_answer_that_leaves_no_prompt_is_refused_at_construction(window: int, answer: int) -> None:
    """Nothing could ever be asked with it, and a negative one would let prompts exceed the window."""
    match = rf"num_output must be .* below context_window={window} \(got {answer}\)"
    with pytest.raises(BudgetConfigError, match=match):
        BudgetPromptHelper(context_window=window, num_output=answer)
    with pytest.raises(BudgetConfigError, match=match):
        BudgetPromptHelper(window, answer)
    if answer > 0:  # of a model -1 says that its answer is unknown
        with pytest.raises(BudgetConfigError, match=match):
            BudgetPromptHelper.from_llm_metadata(LLMMetadata(context_window=window, num_output=answer))


def test_the_largest_answer_leaves_one_token() -> None:
    """And no answer at all is for prompts that are only counted."""
    assert BudgetPromptHelper(context_window=100, num_output=99).num_output == 99
    assert BudgetPromptHelper(context_window=100, num_output=0).num_output == 0
