"""The limits of `budget_model`: whose window, whose tokenizer, what a completion model reads, and which options are refused."""

from __future__ import annotations

import pickle
from typing import Any

import hypothesis
import llama_index.core
import pydantic
import pytest
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai import OpenAI, OpenAIResponses

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_for,
    budget_model,
    summarizer,
)
from llamaindex_budget._counters import counter_for_llm
from rankbudget import BudgetConfigError, BudgetExceededError, BudgetSession, TokenBudget, counter_for
from tests.drawing import draws
from tests.llamaindex.models import PlayLLM, exchanges, nodes, say, strict_llm, words

WINDOW, REPLY = 1000, 200
LONG = [say("system", "RULE"), *exchanges(60), say("user", "and now?")]


class Answer(pydantic.BaseModel):
    text: str


TOOL = FunctionTool.from_defaults(lambda q: q, name="search", description=words(90, "archive"))


def _like(**fields: Any) -> Any:
    return strict_llm("http://127.0.0.1:9/v1", **fields)


# ---------------------------------------------------------------- completion models
async def test_a_completion_model_is_fitted_as_the_text_it_reads() -> None:
    """Messages are fitted as the text they become; a text alone is counted and refused."""
    llm = budget_model(MockLLM(), max_tokens=300)
    text = llm.chat(LONG).message.content or ""
    assert 200 < counter_for("cl100k_base").count(text) <= 300
    assert "and now?" in text
    assert (await llm.achat(LONG)).message.content == text
    assert llm.complete(words(200)).text == words(200)
    for _ in range(2):
        with pytest.raises(BudgetExceededError, match="300"):
            llm.complete(words(301))
    with pytest.raises(BudgetExceededError):
        await llm.acomplete(words(301))
    with pytest.raises(BudgetExceededError):
        llm.predict(PromptTemplate(words(301)))


def test_what_writes_a_prompt_around_is_counted() -> None:
    """A model's own `completion_to_prompt` and `messages_to_prompt` are part of the text."""
    llm = MockLLM(
        completion_to_prompt=lambda text: words(200) + text,
        messages_to_prompt=lambda m: words(290) + str(m[-1].content),
    )
    made = budget_model(llm, max_tokens=300)
    with pytest.raises(BudgetExceededError):
        made.complete(words(150))
    assert made.complete(words(150), formatted=True).text
    with pytest.raises(BudgetExceededError, match="at most 300 tokens"):
        made.chat([say("user", words(11))])


# ---------------------------------------------------------------- limits
@pytest.mark.parametrize(
    "bounded",
    [
        lambda llm: budget_model(llm, 900, counter=len),
        lambda llm: budget_model(llm, BudgetSession(900, counter=len)),
        lambda llm: budget_model(budget_model(llm, 900, counter=len), 800),
        lambda llm: budget_model(llm, 900, counter=len).as_structured_llm(Answer),
    ],
)
def test_a_helper_counts_as_the_bounded_llm_it_is_given(bounded: Any) -> None:
    """Counted otherwise, it would plan what the LLM's own limit then cuts, or leave room unused."""
    llm = bounded(_like())
    assert BudgetPromptHelper(500, 100)._counter_for(llm).count("four") == 4


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # the host's own
async def test_an_agent_counts_as_the_bounded_llm_it_is_given() -> None:
    """Its requests use the room that the LLM has, and no more."""
    llm = budget_model(_like(), 900, counter=len)
    found = await BudgetFunctionAgent(llm=llm).fit([ChatMessage("one " * 100) for _ in range(9)])
    assert 0 < sum(len(m.content or "") for m in found) <= 900


def test_the_counter_is_the_models() -> None:
    """A known model is counted with its own tokenizer and media table; a nameless one with LlamaIndex's."""
    assert counter_for_llm(OpenAI("gpt-4o", api_key="none")) is counter_for("gpt-4o")
    assert counter_for_llm(_like(model="gpt-4o-mini")) is counter_for("gpt-4o-mini")
    assert counter_for_llm(MockLLM()).name == "cl100k_base"
    picture = ChatMessage(
        role="user", blocks=[ImageBlock(url="http://127.0.0.1:9/x.png"), TextBlock(text="look")]
    )
    llm = budget_model(OpenAI("gpt-4o-mini", api_key="none"), max_tokens=20_000)
    with pytest.raises(BudgetExceededError):
        llm.chat([picture])


def test_a_tokenizer_counts_an_unknown_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model's `tokenizer` field goes first; the global tokenizer counts a model whose own is not known, never one whose own is."""

    class Letters:
        def encode(self, text: str) -> list[int]:
            return [ord(letter) for letter in text]

    assert counter_for_llm(_like(tokenizer=Letters())).count("four") == 4
    monkeypatch.setattr(llama_index.core, "global_tokenizer", list)
    assert counter_for_llm(_like()).count("four") == 4
    assert counter_for_llm(_like(model="gpt-4o")).count("four") == 1


def test_the_window_is_the_models_the_budgets_or_the_sessions() -> None:
    """Without limits the model's window and answer count; a budget, a session or a number replaces them, and the smaller of two wins."""
    llm = PlayLLM(requests=[], window=WINDOW, reply=REPLY)
    budget = TokenBudget(context_window=600, reserve=100, max_system_ratio=None)
    for given, limit in (
        ((), WINDOW - REPLY),
        ((budget,), 500),
        ((BudgetSession(budget, counter="cl100k_base"),), 500),
        ((BudgetSession(400),), 400),
        ((300,), 300),
    ):
        made = budget_model(llm, *given)
        made.chat(LONG)
        assert limit / 3 < made.sizes()[-1] <= limit
        if not any(
            isinstance(part, BudgetSession) for part in given
        ):  # else the parts plan, not the host's helper
            assert limit - 50 < made.metadata.context_window - REPLY <= max(limit, 1024)
    budget_model(llm, budget, max_tokens=250).chat(LONG)
    assert 80 < llm.sizes()[-1] <= 250


@draws()
@hypothesis.given(
    window=st.integers(300, 3000),
    reply=st.integers(30, 250),
    own=st.one_of(
        st.integers(20, 200_000),
        st.builds(TokenBudget, context_window=st.integers(300, 200_000), reserve=st.integers(2, 200)),
    ),
    calls=st.sampled_from([{}, {"max_tokens": 100}, {"max_completion_tokens": 100}]),
)
def test_prompt_and_answer_fit_the_models_own_window(
    window: int, reply: int, own: Any, calls: dict[str, int]
) -> None:
    """A number or a budget that is larger than the model's window, or leaves less than its answer, does not switch it off."""
    llm = budget_model(PlayLLM(requests=[], window=window, reply=reply), own)
    try:
        llm.chat(LONG, **calls)
    except BudgetExceededError as error:  # a budget may leave no room for the question
        least = [{"role": "system", "content": "RULE"}, {"role": "user", "content": "and now?"}]
        assert error.limit < llm.request_counter.count_messages(least)  # noqa: PT017 - depends on the draw
        return
    [sent] = llm.sizes()
    assert sent + max([reply, *calls.values()]) <= window
    assert sent <= (own if isinstance(own, int) else own.limit())
    assert llm.request_limit + reply <= window


def test_a_window_that_is_not_stated_shrinks_nothing() -> None:
    """LlamaIndex's default metadata says nothing; a model's name may."""
    for llm, limit in ((MockLLM(), 50_000), (_like(), 50_000), (_like(model="gpt-4"), 8192 - 2457)):
        assert budget_model(llm, 50_000, counter="cl100k_base").request_limit == limit
    budget = TokenBudget(context_window=20_000, reserve=1000)
    assert budget_model(MockLLM(), budget).request_limit == 19_000


@pytest.mark.parametrize("context_window", [131_072, 8192])
def test_ollama_is_asked_for_what_it_is_sent(context_window: int) -> None:
    """`num_ctx` and `num_predict` in `additional_kwargs` are what Ollama runs with, whatever the model could read."""
    sent = {"num_ctx": 8192, "num_predict": 2000}
    llm = Ollama("llama3", context_window=context_window, additional_kwargs=sent)
    assert {**llm._model_kwargs, **sent} == llm._model_kwargs
    exact = {"counter": "cl100k_base"}
    for made in (budget_model(llm, **exact), budget_model(llm, 100_000, **exact)):
        assert made.request_limit == budget_for(llm).limit() == 6192
    assert TokenBudget.for_model(llm).context_window == 8192
    assert summarizer(llm).input_window < 8192
    memory = BudgetChatMemoryBuffer.from_defaults(exchanges(4000), llm=llm, **exact)
    assert memory.fit("and now?").report.total_tokens <= 6192
    kept = BudgetNodePostprocessor(llm=llm, **exact).postprocess_nodes(nodes(99), query_str="and now?")
    assert sum(counter_for("cl100k_base").count(node.text) for node in kept) <= 6192


def test_a_longer_answer_asked_for_in_the_call_is_kept_free() -> None:
    """`max_tokens` of one call takes its room from the prompt of that call."""
    llm = budget_model(PlayLLM(requests=[], window=WINDOW, reply=REPLY))
    llm.chat(LONG, max_tokens=600)
    assert llm.sizes()[-1] <= WINDOW - 600


def test_what_the_model_adds_itself_is_counted() -> None:
    """Tools and formats in a model's `additional_kwargs`, instructions and built-in tools of `OpenAIResponses`."""
    tools = [TOOL.metadata.to_openai_tool()]
    for llm in (
        OpenAI("gpt-4o", api_key="none", additional_kwargs={"tools": tools}),
        OpenAIResponses("gpt-4o", api_key="none", instructions=words(200)),
        OpenAIResponses("gpt-4o", api_key="none", built_in_tools=tools),
    ):
        with pytest.raises(BudgetExceededError):
            budget_model(llm, max_tokens=90).chat([say("user", "hi")])


def test_a_budget_made_for_the_model_is_within_its_limit() -> None:
    """`budget_for` of the bounded model takes its limit, not the model's window."""
    assert 450 < budget_for(budget_model(PlayLLM(requests=[]), max_tokens=500)).limit() <= 500


@pytest.mark.parametrize(
    ("given", "options", "match"),
    [
        ("gpt-4o", {}, "budget_or_session must be .*'gpt-4o'"),
        (None, {"max_tokens": 0}, r"max_tokens must be .*got 0"),
        (None, {"max_tokens": "9"}, r"max_tokens must be .*got '9'"),
    ],
)
def test_wrong_options_are_named(given: Any, options: Any, match: str) -> None:
    """The error names the option and the value."""
    with pytest.raises(BudgetConfigError, match=match):
        budget_model(MockLLM(), given, **options)


def test_only_an_llm_is_taken() -> None:
    """Anything else is refused with its class."""
    with pytest.raises(BudgetConfigError, match="got a FunctionTool"):
        budget_model(TOOL)  # type: ignore[type-var]


class _Counted(MockLLM):
    """Counts how often its metadata are read."""

    reads: list[int] = []  # noqa: RUF012 - a field of pydantic, which copies it

    @property
    def metadata(self) -> Any:
        """Counts first."""
        self.reads.append(1)
        return super().metadata


def test_a_limit_is_computed_once() -> None:
    """Engines ask for the metadata often: the limit is not planned again while the LLM stays as it is."""
    plain = _Counted()
    for llm in (budget_model(plain), budget_model(budget_model(plain, 3000), max_tokens=2000)):
        first = llm.metadata
        plain.reads.clear()
        assert [llm.metadata for _ in range(10)] == [first] * 10
        assert len(plain.reads) <= 20


CHANGES: list[Any] = [
    lambda llm, n: setattr(llm, "context_window", n),
    lambda llm, n: setattr(llm, "max_tokens", n // 9),
    lambda llm, n: setattr(llm, "model", "gpt-4" if n % 2 else "unknown-model"),
    lambda llm, n: llm.additional_kwargs.update(num_ctx=n),
    lambda llm, n: llm.additional_kwargs.update(max_completion_tokens=n // 9),
    lambda llm, n: llm.additional_kwargs.clear(),
]


@hypothesis.given(st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(2000, 9000)), max_size=4))
@draws()
def test_a_changed_llm_has_another_limit(changes: Any) -> None:
    """Whatever changes, in place too, the limit is that of an LLM that is bounded afterwards; so are copies'."""
    plain = _like(additional_kwargs={})
    llm = budget_model(plain)
    for change, n in changes:
        change(llm, n)
        plain.__dict__.update(llm.__dict__)
        assert llm.request_limit == budget_model(plain).request_limit
        assert llm.metadata == budget_model(plain).metadata
        assert pickle.loads(pickle.dumps(llm)).request_limit == llm.request_limit


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("name", ["max_tokens", "num_predict"])
async def test_an_error_names_the_answer_that_leaves_no_room(chat: bool, name: str) -> None:
    """Where an answer longer than the window is asked for, the error names that argument, its value and the limit without it."""
    llm = budget_model(
        MockLLM(is_chat_model=chat), TokenBudget(context_window=1400, reserve=128), counter="gpt-4o"
    )
    told = rf"{name}=5000 .*the limit is 1272"
    with pytest.raises(BudgetExceededError, match=told):
        llm.chat([ChatMessage("hi")], **{name: 5000})
    with pytest.raises(BudgetExceededError, match=told):
        await llm.acomplete("hi", **{name: 5000})
    with pytest.raises(BudgetExceededError) as short:
        llm.chat([ChatMessage("hi " * 2000)], **{name: 50})
    assert name not in str(short.value)


@hypothesis.given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "ratios": st.sampled_from([{}, {"history": 0.6}, {"knowledge": 0.5, "history": 0.4}]),
            "ranks": st.sampled_from([{}, {"history": 7, "knowledge": 3}]),
            "surplus": st.sampled_from(["waterfall", "borrow", "keep"]),
            "preset": st.sampled_from([None, "rag"]),
            "min_exchanges": st.integers(0, 5),
            "last_turns": st.sampled_from([None, 2]),
            "message_cap": st.sampled_from([None, 300]),
            "shorten_question": st.booleans(),
        },
    ),
    limits=st.fixed_dictionaries(
        {"context_window": st.sampled_from([600, 8192]), "reserve": st.sampled_from([0.3, 100])},
        optional={
            "safety": st.sampled_from([0.05, 20]),
            "keep_band": st.booleans(),
            "model": st.sampled_from([None, "gpt-4o"]),
            "max_output": st.sampled_from([None, 100]),
            "max_system_ratio": st.sampled_from([None, 0.2]),
            "sizes": st.sampled_from([{"examples": 100}, {"system": 200, "memory": 100}, {"tools": 300}]),
        },
    ),
    most=st.sampled_from([None, 80, 400]),
)
def test_the_budget_of_a_bounded_llm_keeps_its_rules(
    fields: dict[str, Any], limits: dict[str, Any], most: int | None
) -> None:
    """Its limit is the LLM's, and how a prompt is fitted is what was given, also where it is bounded twice."""
    try:
        budget = TokenBudget(**limits, **fields)
        llm = budget_model(MockLLM(is_chat_model=True), budget, max_tokens=most)
    except BudgetConfigError:
        hypothesis.assume(False)
    for one in (llm, budget_model(llm, max_tokens=50)):
        found = budget_for(one)
        assert found.limit() == one.request_limit
        assert {name: getattr(found, name) for name in fields} == {n: getattr(budget, n) for n in fields}
