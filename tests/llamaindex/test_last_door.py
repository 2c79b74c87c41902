"""What engines and agents ask past their own limits: fitted at the last door with the question whole, or a typed error that engines let pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import TreeIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.indices.document_summary import DocumentSummaryIndex
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.settings import Settings
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context
from pydantic import BaseModel, Field
from sqlalchemy.ext.asyncio import create_async_engine

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_for,
    budget_model,
)
from llamaindex_budget._convert import to_segments
from rankbudget import BudgetError, BudgetSession, TokenBudget, counter_for
from tests.llamaindex.models import (
    FixedRetriever,
    ListStore,
    PlayLLM,
    calls,
    exchanges,
    nodes,
    result,
    say,
    tokens,
    words,
)

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
QUESTION = "What does item 305 weigh in the archive?"


class Answer(BaseModel):
    """What was found."""

    facts: list[str] = Field(default_factory=list)


def _llm(window: int = 1000, reply: int = 200, **fields: Any) -> PlayLLM:
    return PlayLLM(**{"requests": [], "window": window, "reply": reply, **fields})


def _engine(llm: Any, mode: ResponseMode, **options: Any) -> RetrieverQueryEngine:
    synthesizer = get_response_synthesizer(llm=llm, response_mode=mode)
    return RetrieverQueryEngine(FixedRetriever(nodes(5)), response_synthesizer=synthesizer, **options)


# ---------------------------------------------------------------- structured answers of agents
@pytest.mark.parametrize("in_workflow", [False, True])
@given(past=st.integers(0, 40), size=st.integers(1, 60), steps=st.integers(0, 3))
async def test_a_structured_answer_is_asked_for_with_the_question_whole(
    in_workflow: bool, past: int, size: int, steps: int
) -> None:
    """The flattened conversation is fitted by messages: within the window, question and answer in it, tools in pairs."""
    wanted = ChatMessage(
        role="assistant",
        blocks=[ToolCallBlock(tool_call_id="s", tool_name="Answer", tool_kwargs={"facts": ["tea"]})],
    )
    asked = [calls(f"c{i}") for i in range(steps)]
    base = _llm(steps=[*asked, say("assistant", "the last answer"), wanted])
    tool = FunctionTool.from_defaults(lambda q: f"{q} {words(80)}", name="search", description="Searches.")
    agent = FunctionAgent(
        name="finder",
        description="Finds.",
        tools=[tool],
        llm=budget_model(base),
        system_prompt="Find it.",
        streaming=False,
        output_cls=None if in_workflow else Answer,
    )
    run: Any = AgentWorkflow(agents=[agent], root_agent="finder", output_cls=Answer) if in_workflow else agent
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=50_000, chat_history=exchanges(past, size))
    answer = await run.run(QUESTION, memory=memory)
    assert answer.structured_response == {"facts": ["tea"]}
    sent = "".join(str(m.content) for m in base.requests[-1][0])
    assert max(base.sizes()) <= 800
    assert QUESTION in sent
    assert "the last answer" in sent
    assert sent.count("<tool>") <= steps


# ---------------------------------------------------------------- engines
@pytest.mark.parametrize("mode", [ResponseMode.COMPACT, ResponseMode.REFINE, ResponseMode.ACCUMULATE])
@pytest.mark.parametrize("shared", [False, True])
def test_what_cannot_fit_is_an_error_no_empty_response(mode: ResponseMode, shared: bool) -> None:
    """LlamaIndex answers "Empty Response" where a ValueError is raised; the error of the last door reaches the user."""
    base = _llm(system_prompt=words(2000))
    llm = budget_model(base, BudgetSession(budget_for(base)) if shared else None)
    with pytest.raises((BudgetError, ValueError), match=r"what must stay|not non-negative"):
        _engine(llm, mode).query(QUESTION)
    assert base.requests == []


@given(
    window=st.integers(350, 1500),
    mode=st.sampled_from(
        [
            ResponseMode.COMPACT,
            ResponseMode.REFINE,
            ResponseMode.ACCUMULATE,
            ResponseMode.TREE_SUMMARIZE,
            ResponseMode.SIMPLE_SUMMARIZE,
        ]
    ),
)
def test_small_windows_answer_with_stock_engines(window: int, mode: ResponseMode) -> None:
    """Where the stock helper would find no room for a chunk, the engine asks within the window, the question whole."""
    llm = budget_model(_llm(window, 150))
    _engine(llm, mode).query(QUESTION)
    assert max(llm.sizes()) <= window - 150
    assert all(QUESTION in str(messages[-1].content) for messages, _ in llm.requests)


@pytest.mark.parametrize("mode", [ResponseMode.REFINE, ResponseMode.ACCUMULATE])
def test_nodes_that_are_asked_about_alone_have_a_prompt_each(mode: ResponseMode) -> None:
    """With `each_alone` a node that fits a prompt of its own comes back whole; together they would share one."""
    kept = {}
    for alone in (False, True):
        llm = budget_model(_llm(1500, 200))
        post = BudgetNodePostprocessor(llm=llm, each_alone=alone)
        response = _engine(llm, mode, node_postprocessors=[post]).query(QUESTION)
        kept[alone] = [n.text for n in response.source_nodes]
        assert max(llm.sizes()) <= 1300
    assert kept[True] == [n.text for n in nodes(5)] != kept[False]


@pytest.mark.parametrize("kind", [TreeIndex, DocumentSummaryIndex])
def test_an_index_is_built_from_all_of_its_text(kind: Any) -> None:
    """As `Settings.prompt_helper` the helper leaves nothing out of what an index is built from."""
    before = (Settings._llm, Settings._prompt_helper, Settings._embed_model)
    llm = _llm(2000, 300)
    Settings.llm, Settings.embed_model = llm, MockEmbedding(embed_dim=3)
    Settings.prompt_helper = BudgetPromptHelper(2000, 300)
    try:
        found = [n.node for n in nodes(12)]
        options = {"num_children": 3} if kind is TreeIndex else {}
        for node in found:
            node.relationships = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id="book")}
        kind(nodes=found, **options)
    finally:
        Settings._llm, Settings._prompt_helper, Settings._embed_model = before
    sent = "".join(str(m.content) for messages, _ in llm.requests for m in messages)
    facts = [s for node in found for s in node.get_content().split(". ")]
    assert sum(fact in sent for fact in facts) > 0.95 * len(facts)


# ---------------------------------------------------------------- summarizers at every door
def test_a_sessions_summarizer_is_used_at_the_last_door() -> None:
    """A request over the limit gets a summary of what was dropped, as a memory on the session does."""
    for door in ("model", "buffer", "memory"):
        taken: list[str] = []

        def summarize(text: str, _: int, taken: list[str] = taken) -> str:
            taken.append(text)
            return "They spoke of tea."

        base = _llm()
        session = BudgetSession(budget_for(base), counter="cl100k_base", summarizer=summarize)
        past = [say("system", "RULE"), *exchanges(60), say("user", "and now?")]
        if door == "model":
            budget_model(base, session).chat(past)
            found = base.requests[0][0]
        else:
            kind: Any = BudgetChatMemoryBuffer if door == "buffer" else BudgetMemory
            store = {} if kind is BudgetChatMemoryBuffer else {"chat_store": ListStore()}
            found = kind.from_defaults(session=session, chat_history=past, **store).get()
        assert taken
        assert any("They spoke of tea." in str(m.content) for m in found)
        assert tokens(found) <= 800


def test_a_session_may_name_a_llamaindex_model_as_summarizer() -> None:
    """An LLM given to a session is wrapped, as one given to a memory is."""
    writer: Any = _llm(4096, 256, answer="They spoke of tea.")
    session = BudgetSession(400, summarizer=writer)
    kept = BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=exchanges(60)).get()
    assert any("They spoke of tea." in str(m.content) for m in kept)


# ---------------------------------------------------------------- leaving the process
@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
def test_a_tokenizer_object_is_found_again_by_its_name(kind: Any) -> None:
    """A memory that counts with a tiktoken `Encoding` comes back from plain data, on a session too."""
    encoding = tiktoken.get_encoding("o200k_base")
    for options in (
        {"counter": encoding, "token_limit": 300},
        {"session": BudgetSession(300, counter=encoding)},
    ):
        store = {} if kind is BudgetChatMemoryBuffer else {"chat_store": ListStore()}
        made = kind.from_dict(json.loads(json.dumps(kind.from_defaults(**options, **store).to_dict())))
        assert made.session.counter is counter_for("o200k_base")


@pytest.mark.parametrize("given_engine", [False, True])
async def test_a_context_keeps_the_memorys_database(given_engine: bool, tmp_path: Path) -> None:
    """After a round trip of an agent's context the memory reads and writes the database it had."""
    place = f"sqlite+aiosqlite:///{tmp_path}/chat.db"
    engine = create_async_engine(place)
    options: dict[str, Any] = {"async_engine": engine} if given_engine else {"async_database_uri": place}
    agent = FunctionAgent(tools=[], llm=_llm())
    context = Context(agent)
    await context.store.set("memory", BudgetMemory.from_defaults(session_id="ann", **options))
    again = await Context.from_dict(agent, json.loads(json.dumps(context.to_dict()))).store.get("memory")
    assert (again.session_id, again.sql_store.async_database_uri) == ("ann", place)
    await engine.dispose()


@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
def test_a_changed_token_limit_takes_effect(kind: Any) -> None:
    """Raised or lowered later, beside a budget or alone, `token_limit` holds at the next read."""
    store = {} if kind is BudgetChatMemoryBuffer else {"chat_store": ListStore()}
    for options in ({"token_limit": 60}, {"budget": TokenBudget(context_window=3000, reserve=100)}):
        memory = kind.from_defaults(chat_history=exchanges(6), **options, **store)
        for limit in (60, 5000, 100):
            memory.token_limit = limit
            kept = memory.get()
            assert tokens(kept) <= limit
            assert (len(kept) == 12) == (limit == 5000)


def test_shortened_nodes_keep_their_metadata_lines() -> None:
    """Of a node that is cut the model still reads the file's name and the page, whole, within the limit."""
    found = nodes(3, 400)
    for number, node in enumerate(found):
        node.node.metadata = {"file_name": "weights of all items.pdf", "page_label": str(number)}
    for limit in range(60, 400, 20):
        kept = BudgetNodePostprocessor(max_tokens=limit).postprocess_nodes(found, query_str=QUESTION)
        seen = [n.node.get_content(MetadataMode.LLM) for n in kept if n.text]
        for text, node in zip(seen, kept, strict=False):
            lines = text.split("\n\n")[0].splitlines()
            page = f"page_label: {node.metadata['page_label']}"
            assert sorted(lines) == ["file_name: weights of all items.pdf", page]
        assert counter_for("cl100k_base").count("\n\n".join(seen)) <= limit


@pytest.mark.parametrize(
    "node",
    [
        TextNode(text=""),
        TextNode(text="", metadata={"file_name": "a.txt"}),
        TextNode(text="The tea is {green}. " * 20, metadata={"a": "{b}"}),
        TextNode(text="x", metadata={"x": "x"}),
        TextNode(
            text="Tea is green. " * 20, metadata={"f": "x"}, text_template="{content}\n--\n{metadata_str}"
        ),
        TextNode(text="Tea is green. " * 20, metadata={"f": words(30)}, text_template="{metadata_str}"),
    ],
)
def test_metadata_lines_are_seen_once(node: TextNode) -> None:
    """Whatever a node's template makes of its text and metadata, a shortened copy shows each of them once."""
    post = BudgetNodePostprocessor(max_tokens=30)
    [kept] = post.postprocess_nodes([NodeWithScore(node=node, score=1.0)], query_str="tea")
    seen = kept.node.get_content(MetadataMode.LLM)
    assert counter_for("cl100k_base").count(seen) <= 30
    assert all(seen.count(f"{key}: {value}") <= 1 for key, value in node.metadata.items())


def test_a_nodes_metadata_is_read() -> None:
    """Priority, date, confidence and a reranker's score in the metadata of a node are those of its segment."""
    metadata = {"priority": 90, "created_at": "2026-01-02", "confidence": 0.4, "relevance_score": 0.7}
    [segment] = to_segments([NodeWithScore(node=TextNode(text="tea", metadata=metadata))], [("", "tea", "")])
    assert (segment.priority, segment.score) == (90, 0.7)
    assert segment.created_at is not None
    assert segment.provenance is not None
    assert segment.provenance.confidence == 0.4


def test_pairs_of_a_flattened_conversation_stay_together() -> None:
    """A tool's result does not stay without the step that asked for it."""
    from llama_index.core.agent.utils import messages_to_xml_format

    past = [
        *exchanges(30),
        say("user", QUESTION),
        calls("c1"),
        result("c1", words(50)),
        say("assistant", "6 grams"),
    ]
    base = _llm()
    budget_model(base).chat(messages_to_xml_format(past))
    sent = str(base.requests[0][0][-1].content)
    assert QUESTION in sent
    assert sent.index("<tool>") > sent.index(QUESTION)
    assert base.sizes()[0] <= 800


@pytest.mark.parametrize("answered", [0, 1])
def test_a_call_that_waits_is_not_sent(answered: int) -> None:
    """Providers refuse a request that ends in a call without all its results: it is dropped and reported."""
    reports: list[Any] = []
    play = _llm()
    llm = budget_model(play, on_report=reports.append)
    asked, call = say("user", QUESTION), calls("c1", "c2")
    results = [result("c1", "42")][:answered]
    llm.chat([asked, call, *results])
    assert [m.content for m in play.requests[-1][0]] == [QUESTION]
    reasons = {d.reason for d in reports[-1].decisions if d.action == "trimmed"}
    assert reasons == {"unanswered_call"}
