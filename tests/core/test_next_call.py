"""What a thread with tools keeps for the next call: likely values, covered once each, in a conversation that stays valid."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import fit_messages
from rankbudget.conversation.coverage import NEWEST, cover
from rankbudget.conversation.next_call import Value, likely, values_of
from rankbudget.errors import BudgetError
from rankbudget.testing import (
    Application,
    WordCounter,
    applications,
    check_laws,
    check_refusal,
    check_same,
    snapshot,
)
from tests.drawing import draws

COUNTER = WordCounter()
Case = tuple[list[int], list[list[int]], list[float], list[int], list[int], int]


@st.composite
def shelves(draw: st.DrawFn) -> Case:
    """Draws prices, values, worths, openers, what is kept (the last piece that opens, if any) and the room."""
    size = draw(st.integers(1, 8))
    worth = draw(st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=1, max_size=5))
    prices = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    some = st.lists(st.integers(0, len(worth) - 1), unique=True, max_size=4)
    holds = draw(st.lists(some, min_size=size, max_size=size))
    asked = [0, *[n for n in range(1, size) if draw(st.booleans())]]
    opens = [max(q for q in asked if q <= n) for n in range(size)]
    kept = asked[-1:] if draw(st.booleans()) else []
    return prices, holds, worth, opens, kept, draw(st.integers(0, 40))


@given(shelves())
def test_cover_is_within_its_room_and_opens_as_it_should(case: Case) -> None:
    """Never over the room, nothing twice, the oldest piece may open, and nothing that would still fit is left out."""
    prices, holds, worth, opens, kept, room = case
    chosen = cover(prices, holds, worth, opens, kept, room)
    everything = sorted([*kept, *chosen])
    assert len(set(everything)) == len(everything)
    used = sum(prices[n] for n in chosen)
    assert used <= room
    if everything:
        assert opens[everything[0]] == everything[0]
    oldest = min((n for n in everything if opens[n] == n), default=len(prices))
    for n in set(range(len(prices))) - set(everything):
        alone = opens[n] == n or oldest < n
        assert used + prices[n] + (0 if alone else prices[opens[n]]) > room


@given(shelves())
def test_cover_finds_most_of_what_could_be_found(case: Case) -> None:
    """It finds at least two fifths of what the best of all choices is worth, by values and newness."""
    prices, holds, worth, _, _, room = case
    size = len(prices)

    def total(chosen: Any) -> float:
        newness = sum(NEWEST / (size - n) for n in chosen)
        return newness + sum(worth[v] for v in {v for n in chosen for v in holds[n]})

    possible = [
        c for k in range(size + 1) for c in combinations(range(size), k) if sum(prices[n] for n in c) <= room
    ]
    best = max(total(c) for c in possible)
    assert total(cover(prices, holds, worth, list(range(size)), [], room)) >= 0.4 * best - 1e-9


def test_each_value_counts_once() -> None:
    """Three pieces that say the same are worth one; the room goes to the other value."""
    assert sorted(cover([3, 3, 3, 5], [[0], [0], [0], [1]], [1.0, 0.4], [0, 1, 2, 3], [], 8)) == [2, 3]


def test_an_older_question_frees_what_follows_it() -> None:
    """A piece too dear with its question fits once an older question opens the conversation."""
    prices, opens = [1, 9, 4, 2], [0, 1, 1, 3]
    assert cover(prices, [[], [], [0], []], [1.0], opens, [3], 6) == [0, 2]
    assert sorted(cover(prices, [[1], [], [0], []], [1.0, 1.0], opens, [3], 5)) == [0, 2]


def test_signs_of_a_value_needed_again() -> None:
    """Calls, the newest attempt, what the user said and what the answer announces are told apart."""
    attempt = json.dumps({"user_id": "mia_li_3668", "flight": "HAT136", "cabin": "economy"})
    found = values_of(
        [
            ("I am mia_li_3668, see HAT136 and HAT039, in economy", [], [], True),
            ("", [attempt], ['{"error": "no seats", "left": "HAT777"}'], False),
            ("HAT039 has seats for $255. Shall I?", [], [], False),
            ("Yes", [], [], True),
        ]
    )
    assert found["economy"] == Value({0, 1}, called=True, attempt=True, asked=True)
    assert found["HAT039"] == Value({0, 2}, asked=True, announced=True)
    assert found["HAT777"] == Value({1})
    ranked = sorted(
        ("mia_li_3668", "HAT136", "HAT039", "HAT777", "$255"), key=lambda name: -likely(name, found[name])
    )
    assert ranked[:2] == ["mia_li_3668", "HAT136"]
    assert ranked[2:] == ["HAT039", "HAT777", "$255"]


def test_an_answer_announces_what_is_new_and_reports_what_was_called() -> None:
    """A name the newest answer says is likelier for it, unless it was an argument before: then it reports what is done."""
    assert likely("HAT136", Value({3}, announced=True)) > 2 * likely("HAT136", Value({3}))
    done = Value({3}, called=True, announced=True)
    assert likely("HAT136", done) == likely("HAT136", Value({3}, called=True))


def test_capitals_alone_are_no_name() -> None:
    """A city's code or a shouted word is less likely than a word that was as much an argument, a code with digits likelier."""
    called = Value({1}, called=True)
    assert likely("JFK", called) < likely("economy", called) / 5 < likely("HAT136", called) / 5


def test_a_number_of_something_is_no_amount() -> None:
    """Prices, counts and times are unlikely arguments; an order number of eight digits is likely."""
    assert likely("20260517", Value({0})) > 5 * max(
        likely(name, Value({0})) for name in ("$1,255.00", "340", "10:30", "7.5%")
    )


@draws()
@given(applications(), st.sampled_from(("When do we sail?", "Book HAT136 for user_3 on 2024-05-20.")))
def test_a_query_breaks_no_law(application: Application, query: str) -> None:
    """With a query, too: valid, never over, the question kept, what fits untouched, the same answer twice."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    before = snapshot(messages)
    options: dict[str, Any] = {"counter": COUNTER, "tools": application.tools or None}
    try:
        found = fit_messages(messages, max_tokens=limit, query=query, **options)
    except BudgetError as error:
        check_refusal(messages, error, limit=limit, **options)
        return
    check_laws(
        messages, found.messages, limit=limit, before=before, reported=found.report.total_tokens, **options
    )
    check_same(found.messages, fit_messages(messages, max_tokens=limit, query=query, **options).messages)
    check_same(
        found.messages,
        fit_messages(found.messages, max_tokens=limit, query=query, **options).messages,
        what="fitting twice",
    )


def test_an_answer_never_opens_though_questions_go() -> None:
    """The call with the code is kept, an older question opens, and the long question between them goes."""
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "Hello, I am mia_li_3668."},
        {"role": "assistant", "content": "Hello " + "there " * 40},
        {"role": "user", "content": "I would like to " + "really " * 60 + "fly."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "book", "arguments": '{"flight": "HAT136", "a": "x_1", "b": "y_2"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "booked HAT136"},
        {"role": "assistant", "content": "Done. " + "Anything " * 40},
        {"role": "user", "content": "Change it."},
    ]
    kept = fit_messages(chat, max_tokens=60, query="Change it.", counter=COUNTER).messages
    assert [chat.index(message) for message in kept] == [0, 3, 4, 6]


@pytest.mark.parametrize("limit", range(120, 240, 20))
def test_a_small_newest_result_is_never_lost(limit: int) -> None:
    """Where the newest call and its result take at most a quarter of the room they stay, however many values older results hold."""

    def step(number: int, arguments: str, result: str) -> list[dict[str, Any]]:
        called = {
            "id": f"c{number}",
            "type": "function",
            "function": {"name": "look", "arguments": arguments},
        }
        return [
            {"role": "assistant", "content": "", "tool_calls": [called]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]

    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "There is " + "much to tell " * 40},
        {"role": "user", "content": "Book it."},
    ]
    for n in range(12):
        chat += step(
            n,
            f'{{"user_id": "mia_li_{n}", "flight": "HAT{100 + n}", "day": "2024-05-{10 + n}"}}',
            f"found HAT{200 + n} card_{n}",
        )
    chat += step(99, "{}", "nothing more to do")
    kept = fit_messages(chat, max_tokens=limit, query="Book it.", counter=COUNTER).messages
    assert kept[-2:] == chat[-2:]
    assert len(kept) < len(chat) - 2


def test_only_pieces_that_come_to_the_top_are_looked_at() -> None:
    """Of thousands of pieces each is weighed a few times, not once for every choice."""
    looks = 0

    class Watched(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal looks
            looks += 1
            return super().__iter__()

    size = 4000
    holds = [Watched((n * 7 + k * 13) % 3000 for k in range(20)) for n in range(size)]
    chosen = cover([20 + n % 31 for n in range(size)], holds, [0.1] * 3000, list(range(size)), [], 40_000)
    assert len(chosen) > 1000
    assert looks < 10 * size
