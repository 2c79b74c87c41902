"""Whatever a LangChain user counts with is understood, and what LangChain miscounts is not."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from langchain_core.language_models import BaseLanguageModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable
from langchain_openai import ChatOpenAI

from langchain_budget import BudgetTrimmer, trim_messages
from langchain_budget._codec import CODEC
from langchain_budget._counters import counter_kind, host_counter
from langchain_budget._limits import limits_for
from langchain_budget.models import as_summarizer
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, CounterUnavailableError
from rankbudget.testing import WordCounter

EXACT = counter_for("o200k_base")


def one(message: BaseMessage) -> int:
    """Counts one message; with this file's imports the annotation is a string."""
    return len(message.content)


def listed(messages: list[BaseMessage]) -> int:
    return sum(len(m.content) for m in messages)


def text(given: str) -> int:
    return len(given)


class Calls:
    """A callable object."""

    def __call__(self, messages: list[BaseMessage]) -> int:
        return listed(messages)


@pytest.mark.parametrize(
    ("counter", "kind"),
    [
        (one, "message"),
        (listed, "messages"),
        (text, "text"),
        (Calls(), "messages"),
        (len, "messages"),
        (lambda messages: sum(len(m.content) for m in messages), "messages"),
        (lambda message: len(message.content), "message"),
        (lambda given: len(given.split()), "text"),
        (lambda given: len(given) // 4, "text"),
    ],
)
def test_a_callable_is_read_by_its_annotation_or_tried(counter: Any, kind: str) -> None:
    """An annotation decides, written as a string or not (T10); without one a short trial does."""
    assert counter_kind(counter) == kind


def test_a_counter_over_one_message_is_called_with_one_message() -> None:
    """A per-message counter in a module with postponed annotations works through every entry point (T10)."""
    thread = [HumanMessage("aaaa"), AIMessage("bb"), HumanMessage("cc")]
    assert [m.content for m in BudgetTrimmer(max_tokens=3, counter=one).invoke(thread)] == ["cc"]
    assert [m.content for m in trim_messages(thread, max_tokens=3, token_counter=one)] == ["cc"]


@pytest.mark.parametrize(
    "counter",
    [
        lambda m: 5 + len(m.content),
        lambda message: 5 + len(message.content.split()),
        lambda messages: sum(5 + len(m.content) for m in messages),
        lambda messages: 5 * len(messages),
    ],
)
def test_an_unannotated_counter_takes_what_it_can(counter: Any) -> None:
    """`trim_messages` gives a callable a list where it takes one, as LangChain does, else one message."""
    thread = [HumanMessage("one"), AIMessage("two"), HumanMessage("three four")]
    assert trim_messages(thread, max_tokens=100, token_counter=counter) == thread
    assert trim_messages(thread, max_tokens=16, token_counter=counter)[-1] == thread[-1]


def test_an_async_counter_is_refused_by_name() -> None:
    """A coroutine function cannot count inside a sync call; the error says what to give (T12)."""

    async def slow(messages: list[BaseMessage]) -> int:
        return len(messages)

    with pytest.raises(BudgetConfigError, match=r"a blocking callable .*'slow'"):
        BudgetTrimmer(max_tokens=5, counter=slow)


def test_a_callable_that_counts_nothing_is_refused() -> None:
    """A function that takes none of the three forms is named, with what to annotate."""
    with pytest.raises(BudgetConfigError, match="counter must take a list of messages"):
        host_counter(lambda: 3)


def test_arguments_beside_block_content_count() -> None:
    """Tool arguments count when the content is a list, and so do invalid calls and reasoning kept beside it (T14)."""
    body = "word " * 2600
    beside = AIMessage(
        [{"type": "text", "text": "hi"}], tool_calls=[{"name": "write", "args": {"c": body}, "id": "c1"}]
    )
    invalid = AIMessage("hi", invalid_tool_calls=[{"name": "write", "args": body, "id": "c1", "error": "x"}])
    reasoned = AIMessage("hi", additional_kwargs={"reasoning_content": body})
    for message in (beside, invalid, reasoned):
        assert 2600 <= EXACT.count_message(CODEC.to_dict(message)) <= 2800
    assert count_tokens_approximately([beside]) < 20


def test_media_do_not_count_as_text() -> None:
    """A file or a clip of 400 KB in base64 counts as the file it is, never by its characters (T15); an image never counts 3 (K9)."""
    data = base64.b64encode(b"%PDF-1.4 " + b"0" * 300_000).decode()
    pdf = HumanMessage([{"type": "file", "base64": data, "mime_type": "application/pdf"}])
    clip = HumanMessage([{"type": "audio", "base64": data, "mime_type": "audio/wav"}])
    image = HumanMessage(
        [
            {"type": "text", "text": "what is it?"},
            {"type": "image_url", "image_url": {"url": "https://x.org/y.png"}},
        ]
    )
    assert EXACT.count_message(CODEC.to_dict(pdf)) < 50_000
    assert EXACT.count_message(CODEC.to_dict(clip)) < 50_000
    assert EXACT.count_message(CODEC.to_dict(image)) > 85


@pytest.mark.parametrize(
    "sample", ["汉字" * 60, "🙂" * 60, "8f14e45f-ceea-467f-9575-2f1d3c7a1b0e " * 10, "안녕하세요 " * 30]
)
def test_approximate_counts_exactly_here(sample: str) -> None:
    """What "approximate" underestimates up to six times is counted exactly by our trim_messages (T16)."""
    thread = [m for i in range(30) for m in (HumanMessage(f"{i} {sample}"), AIMessage(sample))]
    kept = trim_messages(thread, max_tokens=1000, token_counter="approximate")
    assert EXACT.count_messages([CODEC.to_dict(m) for m in kept]) <= 1000


def test_langchains_own_counter_is_used_when_it_is_asked_for() -> None:
    """count_tokens_approximately as a function counts as it counts."""
    thread = [HumanMessage("word " * 20), AIMessage("word " * 20), HumanMessage("now")]
    kept = trim_messages(
        thread, max_tokens=count_tokens_approximately(thread) - 1, token_counter=count_tokens_approximately
    )
    assert [m.content for m in kept] == ["now"]


def test_a_model_counts_as_it_says() -> None:
    """A model with a tokenizer of its own is asked; one without is counted by its name, or by the default, offline (K8)."""

    class Own(FakeListChatModel):
        def get_num_tokens(self, text: str) -> int:
            return len(text)

        def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
            return sum(len(m.content) for m in messages)

    own = host_counter(Own(responses=[""]))
    assert own.measure is not None
    assert own.measure.total([HumanMessage("four")]) == 4
    plain = host_counter(FakeListChatModel(responses=[""]))
    assert plain.measure is None
    assert plain.counter.count("hello world") == 2
    named = limits_for(model=ChatOpenAI(model="gpt-4o", api_key="none"))
    assert (named.counter.exact, named.budget and named.budget.context_window) == (True, 128_000)


def test_a_bound_model_counts_too() -> None:
    """A model with bound arguments still counts for trim_messages."""

    class Own(FakeListChatModel):
        def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
            return len(messages)

    bound: Runnable[Any, Any] = Own(responses=[""]).bind(stop=["x"])
    assert not isinstance(bound, BaseLanguageModel)
    thread = [HumanMessage("a"), AIMessage("b"), HumanMessage("c")]
    assert [m.content for m in trim_messages(thread, max_tokens=2, token_counter=bound)] == ["c"]


def test_a_strict_counter_only_sees_valid_lists() -> None:
    """A counter that refuses orphans, reversed order or openings without a user never has to (T11, I15)."""
    seen: list[list[str]] = []

    def strict(messages: list[BaseMessage]) -> int:
        kinds = [m.type for m in messages]
        seen.append(kinds)
        for i, kind in enumerate(kinds):
            if kind == "tool" and (i == 0 or kinds[i - 1] not in {"ai", "tool"}):
                raise ConnectionError
        return sum(4 + len(str(m.content).split()) for m in messages)

    call = AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": "c1"}])
    thread = [
        HumanMessage("q"),
        call,
        ToolMessage("word " * 50, tool_call_id="c1"),
        AIMessage("x"),
        HumanMessage("q2"),
    ]
    for limit in range(6, 80, 3):
        kept = trim_messages(thread, max_tokens=limit, token_counter=strict)
        assert strict(kept) <= limit
    assert seen


def test_tools_count_beside_a_callable() -> None:
    """A callable over messages cannot see the tools; their schemas are added to what it counts."""
    tool = {
        "type": "function",
        "function": {
            "name": "look",
            "description": "Looks.",
            "parameters": {"type": "object", "properties": {}},
        },
    }
    thread = [HumanMessage("a b"), AIMessage("c"), HumanMessage("d")]
    plain = BudgetTrimmer(max_tokens=500, counter=len).fit(thread).report.total_tokens
    tooled = BudgetTrimmer(max_tokens=500, counter=len, tools=[tool]).fit(thread).report.total_tokens
    assert (plain, tooled > plain) == (3, True)


def test_budgets_come_from_models() -> None:
    """A profile gives window and largest answer; a name the core's table; what is unknown is an error that says what to give."""
    profiled = FakeListChatModel(
        responses=[""], profile={"max_input_tokens": 5000, "max_output_tokens": 1000}
    )
    assert limits_for(model=profiled).budget == TokenBudget(context_window=5000, max_output=1000)
    for unknown in ("no-such-model-anywhere", FakeListChatModel(responses=[""])):
        with pytest.raises((CounterUnavailableError, BudgetConfigError)):
            limits_for(model=unknown)
        assert limits_for(model=unknown, context_window=9000).budget.context_window == 9000
        assert limits_for(model=unknown, max_tokens=500).most <= 500


def test_the_smallest_window_counts() -> None:
    """A fallback may be asked any time; a server's own window is what it was started with."""
    small = FakeListChatModel(responses=[""], profile={"max_input_tokens": 1000})
    large = FakeListChatModel(responses=[""], profile={"max_input_tokens": 5000})
    assert limits_for(model=large.with_fallbacks([small])).budget.context_window == 1000

    class Served(FakeListChatModel):
        num_ctx: int = 2000

    served = Served(responses=[""], profile={"max_input_tokens": 131_072})
    assert limits_for(model=served).budget.context_window == 2000


async def test_a_model_summarizes() -> None:
    """A chat model is a summarizer, blocking and awaitable, and says how much it reads."""
    write = as_summarizer(FakeListChatModel(responses=["short"], profile={"max_input_tokens": 977}))
    assert (write("long text", 20), await write.acall("long text", 20)) == ("short", "short")
    assert 0 < write.input_window < 977  # type: ignore[operator]  # it is known


def test_a_counter_of_ours_passes_through() -> None:
    """A TokenCounter is used as it is."""
    words = WordCounter()
    assert host_counter(words).counter is words


def test_a_model_that_cannot_count_itself_is_counted_by_its_name() -> None:
    """An integration knows no tokenizer for a deployment's name: its errors are not the user's."""

    class Deployed(FakeListChatModel):
        model_name: str = "my-deployment"

        def get_num_tokens_from_messages(self, messages: Any, tools: Any = None) -> int:
            raise NotImplementedError

    host = host_counter(Deployed(responses=[""]))
    assert (host.measure, host.counter.name, host.counter.exact) == (None, "my-deployment", False)
