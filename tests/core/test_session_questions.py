"""What a question names by its code comes with it in a session, too; other questions leave the prompt as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession, counter_for, fit_messages

COUNTER = counter_for("gpt-4o")
TOWNS = ("Bonn", "Graz", "Basel")


def orders(customer: str, rows: int) -> list[str]:
    return [
        f"Order {customer}{1000 + i}: {i * 7 % 90} euro, shipped to {TOWNS[i % 3]} in week {i % 52}."
        for i in range(rows)
    ]


def loaded(customer: str, rows: int = 120) -> list[dict[str, Any]]:
    call = {"id": customer, "type": "function", "function": {"name": "orders", "arguments": "{}"}}
    return [
        {"role": "user", "content": f"Please load the orders of {customer}"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": customer, "content": "\n".join(orders(customer, rows))},
        {"role": "assistant", "content": "I have it."},
    ]


def asking(code: str) -> dict[str, str]:
    return {"role": "user", "content": f"Where was order {code} shipped to?"}


def text(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(message["content"]) for message in messages)


def test_the_first_fit_of_a_session_keeps_the_row_that_the_question_names() -> None:
    """No prompt is cached yet, so a session cuts as `fit_messages` does."""
    talk = [*loaded("O"), *loaded("B"), asking("O1061")]
    assert orders("O", 120)[61] in text(fit_messages(talk, max_tokens=3000, counter=COUNTER).messages)
    assert orders("O", 120)[61] in text(BudgetSession(3000, counter=COUNTER).fit(talk).messages)


@given(
    rows=st.integers(60, 140),
    row=st.integers(0, 59),
    customer=st.sampled_from("OB"),
    limit=st.integers(1500, 5000),
    before=st.integers(0, 2),
)
def test_a_row_that_a_later_question_names_comes_back(
    rows: int, row: int, customer: str, limit: int, before: int
) -> None:
    """Wherever the session cut before: what the same limit keeps without a session is there with one."""
    session = BudgetSession(limit, counter=COUNTER)
    talk: list[dict[str, Any]] = []
    for name in "OB":
        for message in loaded(name, rows):
            talk.append(message)
            if message["role"] in {"user", "tool"}:
                session.fit(talk)
    for number in range(before):
        talk.append({"role": "user", "content": f"How is the weather in town {number}?"})
        session.fit(talk)
        talk.append({"role": "assistant", "content": "It is fine there."})
    talk.append(asking(f"{customer}{1000 + row}"))
    named = orders(customer, rows)[row]
    alone = text(fit_messages(talk, max_tokens=limit, counter=COUNTER).messages)
    found = session.fit(talk)
    assert found.report.total_tokens <= limit
    assert named in text(found.messages) or named not in alone
    assert session.fit(talk).messages == found.messages


def with_room(limit: int) -> tuple[BudgetSession, list[dict[str, Any]]]:
    """Returns a session that has just cut down to half of its room, and its conversation."""
    session, talk = BudgetSession(limit, counter=COUNTER), [*loaded("O"), *loaded("B")]
    for number in range(99):
        talk.append(
            {"role": "user", "content": f"How is the weather in town {number}? {'I ask again. ' * 9}"}
        )
        if number and session.fit(talk).report.total_tokens < 0.7 * limit:
            return session, talk
        talk.append({"role": "assistant", "content": "It is fine there."})
    raise AssertionError


def test_the_prompt_changes_from_the_named_result_on_and_only_for_its_question() -> None:
    """What is before that result stays in the cache, and all of the new prompt for what is asked next."""
    session, talk = with_room(4000)
    first = session.fit(talk).messages
    talk += [{"role": "assistant", "content": "Well."}, {"role": "user", "content": "And your sister?"}]
    plain = session.fit(talk).messages
    assert plain[: len(first)] == first
    assert any(message.get("tool_call_id") == "O" for message in plain)
    talk += [{"role": "assistant", "content": "Well, too."}, asking("O1061")]
    named = session.fit(talk).messages
    changed = [n for n, (one, other) in enumerate(zip(plain, named, strict=False)) if one != other]
    assert [named[n].get("tool_call_id") for n in changed] == ["O"]
    assert orders("O", 120)[61] in named[changed[0]]["content"]
    call = {"id": "w", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    talk += [{"role": "assistant", "content": "", "tool_calls": [call]}]
    talk += [{"role": "tool", "tool_call_id": "w", "content": "It is nine."}]
    assert session.fit(talk).messages[: len(named)] == named
    talk += [{"role": "assistant", "content": "To Graz."}, {"role": "user", "content": "Thank you. And you?"}]
    assert session.fit(talk).messages[: len(named)] == named


def test_a_dropped_result_comes_back_for_a_question_that_names_a_row_of_it() -> None:
    """A cut leaves half of the room free; a question about what it dropped takes some of that."""
    session = BudgetSession(3000, counter=COUNTER)
    talk = loaded("O", 60)
    for n in range(40):
        talk.append({"role": "user", "content": f"Tell me about the town of Graz. {'It is nice. ' * 15}"})
        kept = text(session.fit(talk).messages)
        if n and orders("O", 60)[30] not in kept:
            break
        talk.append({"role": "assistant", "content": "It is a town on a river."})
    talk[-1] = asking("O1030")
    assert orders("O", 60)[30] in text(fit_messages(talk, max_tokens=3000, counter=COUNTER).messages)
    assert orders("O", 60)[30] in text(session.fit(talk).messages)


@pytest.mark.parametrize("stored", [True, False])
def test_a_question_given_apart_counts_as_well(*, stored: bool) -> None:
    """What it brought stays when the question is stored behind the conversation."""
    session, talk = with_room(4000)
    talk.append({"role": "assistant", "content": "Well."})
    question = asking("O1061")["content"]
    found = session.fit(talk, question=question).messages
    assert orders("O", 120)[61] in text(found)
    if stored:
        talk += [asking("O1061"), {"role": "assistant", "content": "To Graz."}]
    again = session.fit(talk, question="Thank you. And you?" if stored else question).messages
    assert again[: len(found)] == found
