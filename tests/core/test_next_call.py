"""What a thread with tools keeps for the next call: likely values, covered once each, in a conversation that stays valid."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.conversation.coverage import NEWEST, Piece, cover
from rankbudget.conversation.next_call import Said, Value, likely, values_of
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
Case = tuple[list[Piece], list[float], int]


@st.composite
def histories(draw: st.DrawFn) -> Case:
    """Draws pieces, what values are worth, and the room; a piece may need an older one."""
    size = draw(st.integers(1, 8))
    worth = draw(st.lists(st.sampled_from((0.0, 0.1, 0.5, 1.0)), min_size=1, max_size=5))
    some = st.lists(st.integers(0, len(worth) - 1), unique=True, max_size=4)
    pieces = [
        Piece(
            draw(st.integers(0, 9)),
            draw(some),
            size - 1 - n,
            draw(st.sampled_from((None, *range(n)))),
        )
        for n in range(size)
    ]
    return pieces, worth, draw(st.integers(0, 40))


@given(histories())
def test_cover_is_within_its_room_and_keeps_what_is_needed(case: Case) -> None:
    """Never over the room, nothing twice, no piece without what it needs, nothing left out that would fit."""
    pieces, worth, room = case
    chosen = cover(pieces, worth, [], room)
    assert len(set(chosen)) == len(chosen)
    used = sum(pieces[n].price for n in chosen)
    assert used <= room
    for n in chosen:
        assert pieces[n].needs is None or pieces[n].needs in chosen
    for n in set(range(len(pieces))) - set(chosen):
        needed, at = [], n
        while at is not None and at not in chosen:
            needed.append(at)
            at = pieces[at].needs
        assert used + sum(pieces[m].price for m in needed) > room


@given(histories())
def test_cover_finds_most_of_what_could_be_found(case: Case) -> None:
    """It finds at least two fifths of what the best of all choices is worth, by values and newness."""
    pieces = [dataclasses.replace(piece, needs=None) for piece in case[0]]
    _, worth, room = case

    def total(chosen: Any) -> float:
        newness = sum(NEWEST / (1 + pieces[n].age) for n in chosen)
        return newness + sum(worth[v] for v in {v for n in chosen for v in pieces[n].values})

    possible = [
        c
        for k in range(len(pieces) + 1)
        for c in combinations(range(len(pieces)), k)
        if sum(pieces[n].price for n in c) <= room
    ]
    best = max(total(c) for c in possible)
    assert total(cover(pieces, worth, [], room)) >= 0.4 * best - 1e-9


def test_each_value_counts_once() -> None:
    """Three pieces that say the same are worth one; the room goes to the other value."""
    pieces = [Piece(3, [0], 3), Piece(3, [0], 2), Piece(3, [0], 1), Piece(5, [1], 0)]
    assert sorted(cover(pieces, [1.0, 0.4], [], 8)) == [2, 3]


def test_signs_of_a_value_needed_again() -> None:
    """The newest attempt, digits and amounts are told apart; an argument counts in every unit that says it."""
    attempt = json.dumps({"user_id": "mia_li_3668", "flight": "HAT136", "cabin": "economy"})
    found = values_of(
        [
            Said("I am mia_li_3668, see HAT136 and HAT039, in economy"),
            Said('{"error": "no seats", "left": "HAT777"}', [attempt]),
            Said("HAT039 has seats for $255. Shall I?"),
            Said("Yes"),
        ]
    )
    assert found["economy"] == Value({0, 1}, attempt=True)
    assert found["HAT039"] == Value({0, 2})
    assert found["HAT777"] == Value({1})
    ranked = sorted(("mia_li_3668", "economy", "HAT039", "$255"), key=lambda name: -likely(name, found[name]))
    assert ranked == ["mia_li_3668", "economy", "HAT039", "$255"]


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


def _step(name: str, arguments: str, result: str) -> list[dict[str, Any]]:
    called = {"id": name, "type": "function", "function": {"name": "look", "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [called]},
        {"role": "tool", "tool_call_id": name, "content": result},
    ]


def _booking(question: str) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": "Hello, I am mia_li_3668."},
        {"role": "assistant", "content": "Hello " + "there " * 40},
        {"role": "user", "content": question},
        *_step("c1", '{"flight": "HAT136", "a": "x_1", "b": "y_2"}', "booked HAT136"),
        {"role": "assistant", "content": "Done. " + "Anything " * 40},
        {"role": "user", "content": "Change it."},
    ]


def test_a_step_brings_the_question_of_its_turn() -> None:
    """The call with the code is kept with its question, and the long answers around it go."""
    chat = _booking("I would like to fly.")
    kept = fit_messages(chat, max_tokens=60, query="Change it.", counter=COUNTER).messages
    assert [chat.index(message) for message in kept] == [0, 2, 3, 4, 6]


def test_an_old_long_result_is_shortened_and_said_so() -> None:
    """A call whose result is too long stays with the start of the result; without a cap it goes."""
    chat = _booking("I would like to fly.")
    chat[4] = {**chat[4], "content": "HAT136 " + "seat " * 300 + "booked"}
    result = fit_messages(chat, max_tokens=100, query="Change it.", counter=COUNTER)
    cut = next(message for message in result.messages if message["role"] == "tool")
    assert cut["content"].startswith("HAT136 seat")
    assert cut["content"].endswith("seat ...")
    assert result.report.total_tokens > 95, "what no other step needs is given to the result"
    assert [d.action for d in result.report.decisions if d.segment_id == "history-4"] == ["truncated"]
    whole = fit_messages(chat, max_tokens=100, query="Change it.", counter=COUNTER, message_cap=None).messages
    assert all(message["role"] != "tool" for message in whole)


def test_an_old_result_comes_back_whole_where_there_is_room() -> None:
    """Values that only the whole result holds bring it back before the room is left empty."""
    chat = _booking("I would like to fly.")
    chat[4] = {**chat[4], "content": "seat " * 50 + "HAT777 " + "seat " * 50}
    chat[1] = {"role": "assistant", "content": "there " * 400}
    kept = fit_messages(chat, max_tokens=260, query="Change it.", counter=COUNTER).messages
    assert chat[4] in kept


@pytest.mark.parametrize("limit", range(120, 240, 20))
def test_a_small_newest_result_is_never_lost(limit: int) -> None:
    """Where the newest call and its result take at most a quarter of the room they stay, however many values older results hold."""
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "There is " + "much to tell " * 40},
        {"role": "user", "content": "Book it."},
    ]
    for n in range(12):
        chat += _step(
            f"c{n}",
            f'{{"user_id": "mia_li_{n}", "flight": "HAT{100 + n}", "day": "2024-05-{10 + n}"}}',
            f"found HAT{200 + n} card_{n}",
        )
    chat += _step("c99", "{}", "nothing more to do")
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
    pieces = [Piece(20 + n % 31, holds[n], size - 1 - n) for n in range(size)]
    chosen = cover(pieces, [0.1] * 3000, [], 40_000)
    assert len(chosen) > 1000
    assert looks < 10 * size


@draws()
@given(seed=st.integers(0, 10_000), asked=st.integers(0, 9), share=st.floats(0.4, 0.95), called=st.booleans())
def test_a_step_with_the_number_of_the_query_stays(seed: int, asked: int, share: float, called: bool) -> None:
    """Among lists full of other numbers the row of the one that is asked for stays, at less than half of the tokens too."""
    source = random.Random(seed)
    number = iter(source.sample(range(10_000, 99_999), 1_000))
    said: list[dict[str, Any]] = []
    for step in range(12):
        rows = [f"X{next(number)},RF-{next(number)},open" for _ in range(source.randint(14, 49))]
        key = f"X{next(number)}"
        if step == asked:
            rows.insert(source.randrange(len(rows)), f"{key},RF-777-ABCD,sent")
            question = f"What is the refund code of order {key}?"
        named = key if called and step == asked else rows[0].split(",")[0]
        arguments = json.dumps({"order": named})
        call = {"id": f"c{step}", "type": "function", "function": {"name": "look_up", "arguments": arguments}}
        said += [
            {"role": "user", "content": "Look at the next list."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{step}", "content": "order,code,state\n" + "\n".join(rows)},
            {"role": "assistant", "content": "I have looked at it."},
        ]
    said.append({"role": "user", "content": question})
    counter = counter_for("o200k_base")
    room = int(share * counter.count_messages(said))
    kept = fit_messages(said, max_tokens=room, counter=counter, query=question).messages
    assert "RF-777-ABCD" in str(kept)


@draws()
@given(
    st.integers(1, 600),
    st.lists(st.tuples(st.integers(0, 200), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(60, 600),
)
def test_a_named_step_brings_its_question_however_long_that_is(
    long: int, steps: list[tuple[int, bool]], later: int, limit: int
) -> None:
    """What a question names by its number is kept with the user's message before it, or not at all."""
    messages: list[dict[str, object]] = [{"role": "user", "content": "word " * long}]
    for n, (size, named) in enumerate(steps):
        function = {"name": "look", "arguments": "{}"}
        calls = [{"id": f"c{n}", "type": "function", "function": function}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        said = "Part ZX-8544 was replaced." if named else "Nothing."
        messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"{said} {'filler ' * size}"})
    messages.append({"role": "assistant", "content": "Done."})
    for n in range(later):
        messages += [{"role": "user", "content": f"Next {n}"}, {"role": "assistant", "content": "Yes."}]
    query = "When was part ZX-8544 replaced?"
    messages.append({"role": "user", "content": query})
    found = fit_messages(messages, max_tokens=limit, counter=COUNTER, query=query)
    check_laws(messages, found.messages, limit=limit, counter=COUNTER)
