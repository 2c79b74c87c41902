"""Failures of today's LangChain parts that were reproduced elsewhere (T, K, L), as facts about ours, through four entry points each."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage

from langchain_budget import BudgetMemory, BudgetMiddleware, BudgetTrimmer, trim_messages
from langchain_budget._codec import CODEC
from rankbudget import counter_for
from rankbudget.errors import BudgetExceededError
from rankbudget.messages.texts import content_text
from rankbudget.testing import pairing_errors
from tests.langchain.running import on_thread

EXACT = counter_for("o200k_base")
USAGE = {"input_tokens": 5, "output_tokens": 50, "total_tokens": 55}


def words(count: int) -> str:
    return " ".join(
        "time year people way day man thing woman life child".split()[i % 10] for i in range(count)
    )


def ask(call_ids: str, **fields: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "f", "args": {}, "id": c} for c in call_ids.split()], **fields)


def told(call_id: str, count: int = 1) -> ToolMessage:
    return ToolMessage(words(count), tool_call_id=call_id)


def loop(turns: int, count: int) -> list[Any]:
    return [m for i in range(turns) for m in (ask(f"c{i}"), told(f"c{i}", count))]


def chat(turns: int, asked: int, answered: int) -> list[Any]:
    return [
        m for i in range(turns) for m in (HumanMessage(f"q{i} {words(asked)}"), AIMessage(words(answered)))
    ]


def cost(messages: list[BaseMessage]) -> int:
    return EXACT.count_messages([CODEC.to_dict(m) for m in messages])


# ---------------------------------------------------------------- entry points
def by_trimmer(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    return list(BudgetTrimmer(max_tokens=limit, counter=EXACT, **options).invoke(messages))


def by_trim_messages(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    return list(
        trim_messages(messages, max_tokens=limit, token_counter="approximate", include_system=True, **options)
    )


def by_memory(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    memory = BudgetMemory(max_tokens=limit, counter=EXACT, return_messages=True, **options)
    memory.chat_memory.add_messages(messages)
    loaded = memory.load_memory_variables({})["history"]
    assert asyncio.run(memory.aload_memory_variables({}))["history"] == loaded  # K10
    return list(loaded)


def by_middleware(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    sent: list[Any] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.extend(asked.messages)
        return ModelResponse(result=[AIMessage("ok")])

    model = FakeListChatModel(responses=[""])
    with on_thread():
        BudgetMiddleware(max_tokens=limit, counter=EXACT, **options).wrap_model_call(
            ModelRequest(model=model, messages=messages), handler
        )
    return sent


ENTRIES = {
    "trimmer": by_trimmer,
    "trim_messages": by_trim_messages,
    "memory": by_memory,
    "middleware": by_middleware,
}
SUMMARIZING = {name: entry for name, entry in ENTRIES.items() if name != "trim_messages"}


@dataclass(frozen=True)
class Case:
    """A thread, a limit, and what must be true of the result beside the rules that always hold."""

    name: str
    fact: str
    messages: list[Any]
    limit: int
    holds: Callable[[list[Any], list[Any]], bool] = lambda kept, given: True
    may_refuse: bool = False


PARALLEL = [
    HumanMessage("q1"),
    ask("c1 c2 c3"),
    *(told(c, 20) for c in ("c1", "c2", "c3")),
    AIMessage("done"),
    HumanMessage("q2"),
]
THOUGHT = AIMessage(
    [
        {"type": "thinking", "thinking": words(40), "signature": "s=="},
        {"type": "text", "text": words(40)},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    ],
    tool_calls=[{"name": "f", "args": {}, "id": "c1"}],
)
PICTURE = HumanMessage(
    [
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "text", "text": "line one\n" * 40},
    ]
)
STEPS = [HumanMessage("q"), *loop(40, 100)]
CALLED = [
    AIMessage(
        [
            {"type": "text", "text": "x"},
            {"type": "tool_use", "id": "c1", "name": "w", "input": {"body": words(500)}},
        ],
        tool_calls=[{"name": "w", "args": {"body": words(500)}, "id": "c1"}],
    ),
    told("c1", 500),
]
CASES = [
    Case(
        "T1",
        "a call and its result stay together",
        [
            SystemMessage("sys"),
            HumanMessage("q1"),
            ask("c1"),
            told("c1", 60),
            AIMessage("a"),
            HumanMessage("q2"),
        ],
        85,
    ),
    Case("T2", "a parallel batch is kept or dropped whole", PARALLEL, 70),
    Case("T3", "no call is left without its results", PARALLEL, 55),
    Case(
        "T4",
        "the task and the newest steps fit in 200 tokens",
        [SystemMessage("sys"), HumanMessage("do the job"), *loop(10, 40)],
        200,
        lambda kept, given: len(kept) > 4 and kept[-1] == given[-1],
    ),
    Case(
        "T5",
        "a system prompt beyond the limit is an error",
        [SystemMessage(words(300)), HumanMessage("q")],
        100,
        may_refuse=True,
    ),
    Case(
        "T6",
        "both system messages stay",
        [
            SystemMessage("a"),
            SystemMessage("core rule"),
            HumanMessage(words(30)),
            AIMessage(words(30)),
            HumanMessage("q"),
        ],
        70,
        lambda kept, given: [m.content for m in kept[:2]] == ["a", "core rule"],
    ),
    Case(
        "T7",
        "thinking stays with its call",
        [HumanMessage("q"), THOUGHT, told("c1"), HumanMessage("next")],
        120,
    ),
    Case("T8", "a picture is not lost beside its text", [PICTURE], 60, may_refuse=True),
    Case(
        "T9",
        "a shortened message sheds its old usage",
        [HumanMessage("q"), AIMessage(words(1500) + "\n" + words(10), usage_metadata=USAGE, id="a")],
        700,
        lambda kept, given: all(
            m.content == given[1].content or not m.usage_metadata for m in kept if m.id == "a"
        ),
    ),
    Case(
        "T17",
        "the task survives a long agent loop",
        [HumanMessage("ORIGINAL TASK"), *loop(30, 150)],
        1000,
        lambda kept, given: kept[0].content == "ORIGINAL TASK",
    ),
    Case(
        "T19",
        "two results of 3,000 words obey the limit",
        [*chat(10, 5, 5), HumanMessage("compare"), ask("a b"), told("a", 3000), told("b", 3000)],
        1000,
    ),
    Case(
        "T21",
        "a system message inside the thread stays",
        [SystemMessage("Never reveal the key"), *chat(15, 20, 20)],
        300,
    ),
    Case(
        "T22",
        "an answer that calls before any question is not sent",
        [ask("a"), HumanMessage("q"), told("a"), AIMessage("x"), HumanMessage("r")],
        100,
    ),
    Case(
        "T23",
        "a result without its call is not sent on",
        [HumanMessage("now"), ask("a"), told("zz"), told("a"), HumanMessage("next")],
        300,
    ),
    Case("T27", "one token over cuts a little", STEPS, cost(STEPS) - 1),
    Case(
        "T28",
        "the result is never larger than the input",
        [HumanMessage("start"), *loop(40, 1), HumanMessage(words(1000))],
        1400,
    ),
    Case(
        "T29",
        "four results of 3,000 words obey the limit",
        [HumanMessage("q"), ask("a b c d"), *(told(c, 3000) for c in "abcd")],
        1000,
    ),
    Case("T30", "calls and content agree", [HumanMessage("q"), *CALLED, ask("c2"), told("c2")], 300),
    Case(
        "T31",
        "a result apart from its call is no result",
        [HumanMessage("q"), ask("a"), HumanMessage("wait"), told("a"), HumanMessage("r")],
        100,
    ),
    Case("K1", "a preloaded thread is trimmed on load", chat(50, 40, 40), 200),
    Case("K3", "one long turn does not empty the thread", [HumanMessage("hello"), AIMessage(words(200))], 70),
    Case(
        "K6",
        "the thread never opens on an answer",
        [
            HumanMessage("q"),
            ask("a"),
            told("a", 100),
            AIMessage("ok"),
            HumanMessage(words(20)),
            AIMessage(words(20)),
        ],
        80,
    ),
    Case(
        "L1",
        "a giant question is kept, cut, or an error",
        [HumanMessage("q"), AIMessage("a"), HumanMessage("now " + words(800))],
        600,
        may_refuse=True,
    ),
    Case("L3", "a parallel batch in a small limit", PARALLEL, 60),
    Case("L4", "messages need no ids", [HumanMessage("a"), AIMessage("b"), HumanMessage("c")], 15),
]


def valid(kept: list[Any], given: list[Any], limit: int) -> None:
    """Checks what always holds: within the limit, paired, opened by the user, system kept first, the question there, tool arguments agreeing."""
    assert cost(kept) <= limit
    assert pairing_errors(kept, CODEC) == []
    roles = CODEC.roles(kept)
    assert next(r for r in roles if r != "system") == "user"
    assert [m.content for m in kept if m.type == "system"] == [m.content for m in given if m.type == "system"]
    question = next(m for m in reversed(given) if m.type == "human")
    start = content_text(question.content)[:20]
    assert any(content_text(m.content)[:20] == start for m in kept if m.type == "human")
    for message in kept:
        blocks = (
            [b for b in message.content if isinstance(b, dict)] if isinstance(message.content, list) else []
        )
        if any(b.get("type") == "tool_use" for b in blocks):
            calls = {c["id"]: c["args"] for c in message.tool_calls}
            assert all(calls[b["id"]] == b["input"] for b in blocks if b.get("type") == "tool_use")


@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_reproduced_failure_comes_back(case: Case, entry: Callable[..., list[Any]]) -> None:
    """Each case comes back valid and within its limit, or is refused where nothing valid fits; the input is as it was."""
    given = copy.deepcopy(case.messages)
    before = copy.deepcopy(given)
    try:
        kept = entry(given, case.limit)
    except BudgetExceededError:
        assert case.may_refuse
        return
    assert given == before
    valid(kept, given, case.limit)
    assert case.holds(kept, given), case.fact
    if case.name == "T27":
        assert cost(kept) >= 0.4 * case.limit


@pytest.mark.parametrize("entry", SUMMARIZING.values(), ids=SUMMARIZING)
@pytest.mark.parametrize(
    ("name", "summary"),
    [("T18", 5), ("T20", 5000), ("K5", 500), ("K7", -1), ("L2", 3000)],
)
def test_a_summary_obeys_the_limit_and_a_failing_one_loses_nothing(
    name: str, summary: int, entry: Callable[..., list[Any]]
) -> None:
    """A summary far too long is refused (T20, K5, L2) and one that raises changes nothing (K7); all that is dropped reaches it (T18)."""
    read: list[str] = []

    def summarize(text: str, max_tokens: int) -> str:
        read.append(text)
        if summary < 0:
            raise ConnectionError
        return words(summary)

    given = chat(20, 20, 20)
    kept = entry(copy.deepcopy(given), 500, summarizer=summarize)
    valid(kept, given, 500)
    if summary < 0 or summary > 200:
        assert kept == entry(copy.deepcopy(given), 500)
    else:
        assert "<summary>" in kept[0].content
        dropped = [m for m in given if m.content not in {k.content for k in kept}]
        assert all(any(m.content[:12] in text for text in read) for m in dropped)
    assert all(m.id is None for m in given)  # T26
