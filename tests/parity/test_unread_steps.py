"""A user who writes before the model has answered its tools: what they returned is treated as an answered turn's, or better."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession, fit_messages
from tests.drawing import draws
from tests.parity.test_running_turn import COUNTER, DOORS, Thread

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows
SYSTEM = {"role": "system", "content": "Be kind."}
NOW = {"role": "user", "content": "in German please"}
ANSWER = {"role": "assistant", "content": "yes"}
SHORT, LONGEST = 16, 20
"""What a result is shortened to before its step is dropped; the longest message of the talk."""
Turns = list[tuple[int, list[list[int]]]]
"""Words of a question, and of the results of each step."""
TALK = st.lists(st.integers(1, LONGEST - 1), max_size=6)
STEP = st.lists(st.integers(1, 400), min_size=1, max_size=12)
TURNS = st.lists(
    st.tuples(st.integers(1, 30), st.lists(STEP, min_size=1, max_size=3)), min_size=1, max_size=2
)


def step(name: str, sizes: list[int]) -> Thread:
    """A call of several tools and their results."""
    ids = [f"{name}-{i}" for i in range(len(sizes))]
    function = {"name": "read", "arguments": json.dumps({"n": 1})}
    calls = [{"id": call, "type": "function", "function": function} for call in ids]
    results = [
        {"role": "tool", "tool_call_id": call, "content": f"result-{call} " + "w " * size}
        for call, size in zip(ids, sizes, strict=True)
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


def talked(talk: list[int]) -> Thread:
    """A system message and old exchanges with so many words in their answers."""
    pairs = [(f"hello{n}", f"talk{n} " + "w " * size) for n, size in enumerate(talk)]
    said = [
        ({"role": "user", "content": asked}, {"role": "assistant", "content": told}) for asked, told in pairs
    ]
    return [SYSTEM, *(message for pair in said for message in pair)]


def unread(turns: Turns) -> list[list[Thread]]:
    """For each turn its question and its steps, which the model has not answered."""
    return [
        [
            [{"role": "user", "content": f"ask{n} " + "w " * asked}],
            *(step(f"c{n}-{k}", sizes) for k, sizes in enumerate(steps)),
        ]
        for n, (asked, steps) in enumerate(turns)
    ]


def flat(parts: list[Thread]) -> Thread:
    return [message for part in parts for message in part]


def cut(messages: Thread) -> Thread:
    """The messages with results of at most `SHORT` tokens."""
    return [
        {**m, "content": " ".join(m["content"].split()[:SHORT])} if m["role"] == "tool" else m
        for m in messages
    ]


def names(messages: Thread) -> set[str]:
    """What each message is, whole or shortened."""
    called = [f"call {call['id']}" for m in messages for call in m.get("tool_calls") or ()]
    said = [m.get("tool_call_id") or m["content"].split()[0] for m in messages if m["content"]]
    return {*called, *said}


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(talk=TALK, turns=TURNS, share=st.floats(0, 1))
def test_unread_results_are_shortened_before_they_are_dropped(
    door: str, talk: list[int], turns: Turns, share: float
) -> None:
    """From 16 tokens a result on they stay, with their questions; no less of the limit is used than with an answer."""
    before, parts = talked(talk), unread(turns)
    last = flat([part for turn in parts for part in (turn[0], turn[-1])])
    given = [*before, *flat(flat(parts)), NOW]
    exchange = [message for message in before[-2:] if len(turns) == 1 and talk]
    least = COUNTER.count_messages([SYSTEM, *exchange, *cut(last), NOW])
    limit = least + int(share * (COUNTER.count_messages(given) - least))
    kept = DOORS[door](given, limit)
    assert names(last) <= names(kept)
    assert COUNTER.count_messages(kept) <= limit
    if door != "fit_messages, stable":  # which leaves room free, more or less of it
        answered = [*before, *flat([[*flat(turn), ANSWER] for turn in parts]), NOW]
        with_answers = [m for m in DOORS[door](answered, limit) if m["content"] != ANSWER["content"]]
        rounded = len(last) + COUNTER.count_messages([NOW, {"role": "user", "content": "w " * LONGEST}])
        assert COUNTER.count_messages(kept) >= COUNTER.count_messages(with_answers) - rounded


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(talk=TALK, turns=TURNS, share=st.floats(0, 1))
def test_a_question_stays_without_its_results(door: str, talk: list[int], turns: Turns, share: float) -> None:
    """Where the results of the last turn have no room, however short, its question is there all the same."""
    before, parts = talked(talk), unread(turns)
    question, newest = parts[-1][0], parts[-1][-1]
    least, most = (COUNTER.count_messages([SYSTEM, *m, NOW]) for m in (question, [*question, *cut(newest)]))
    limit = least + int(share * (most - 1 - least))
    kept = DOORS[door]([*before, *flat(flat(parts)), NOW], limit)
    assert names([SYSTEM, *question, NOW]) <= names(kept)


@draws()
@given(talk=TALK, turns=TURNS, share=st.floats(0, 1), more=st.integers(1, 300))
def test_a_larger_limit_keeps_no_less_of_unread_turns(
    talk: list[int], turns: Turns, share: float, more: int
) -> None:
    """Where results begin to fit, where a turn before does, and everywhere between."""
    given = [*talked(talk), *flat(flat(unread(turns))), NOW]
    least = COUNTER.count_messages([SYSTEM, NOW])
    limit = least + int(share * (COUNTER.count_messages(given) - least))
    small, large = (names(DOORS["fit_messages"](given, size)) for size in (limit, limit + more))
    assert small <= large


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("results", "limit"), [(1, 60), (4, 200), (20, 1_000)])
def test_the_next_question_may_be_kept_apart(results: int, limit: int, *, apart: bool) -> None:
    """Whether the host keeps the next question among the messages or not, unread results stay with theirs."""
    given: list[Any] = [{"role": "user", "content": "Why?"}, *step("c", [400] * results)]
    session = BudgetSession(limit, counter=COUNTER)
    kept = session.fit(given, question="Now?") if apart else session.fit([*given, NOW])
    assert names(given) <= names(kept.messages)
    assert limit // 2 <= COUNTER.count_messages(kept.messages) <= limit


def test_a_turn_before_the_last_three_keeps_its_question_without_its_results() -> None:
    """Three bare messages behind it: results that do not fit, however short, go without their question."""
    asked = {"role": "user", "content": "Why?"}
    given = [asked, *step("c", [400] * 20), *({"role": "user", "content": f"Go on {n}."} for n in range(3))]
    kept = fit_messages(given, max_tokens=100, counter=COUNTER).messages
    assert kept == [asked, *given[-3:]]
