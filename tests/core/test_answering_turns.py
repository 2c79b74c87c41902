"""An old turn that answers the question stays with `query`, however long it is, before newer ones that do not."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.testing import check_laws
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
SUBJECTS = "gardens ships music chess bread paint glass clouds trains bees wine roads maps shoes".split()
FACTS = (
    ("When was the lighthouse of Norderney finished?", "The lighthouse of Norderney was finished in 1874."),
    ("How much is the deposit for the hall?", "The deposit for the hall is 2,350 euros."),
    ("Who repaired the organ of the chapel?", "The organ of the chapel was repaired by Gesine Wolters."),
)
Chat = list[dict[str, Any]]


def _sentences(source: random.Random, subject: str, tokens: int) -> list[str]:
    found: list[str] = []
    while COUNTER.count(" ".join(found)) < tokens:
        season = source.choice(("spring", "autumn", "winter", "the north"))
        found.append(f"Guide {len(found)} says that {subject} need care in {season}.")
    return found


def _chat(source: random.Random, turns: int, at: int, size: int, says: str, called: bool, fact: str) -> Chat:
    """Returns turns about other things; in one of them a text of the size, said by one role, holds the fact."""
    chat: Chat = []
    for n in range(turns):
        subject = source.choice(SUBJECTS)
        long = _sentences(source, subject, size)
        long.insert(source.randint(0, len(long)), fact)
        texts = {"user": f"What should I know about {subject}?"}
        texts["assistant"] = " ".join(_sentences(source, subject, source.choice((10, 30, 60, 120))))
        texts["tool"] = " ".join(_sentences(source, subject, source.choice((10, 80, 300))))
        if n == at:
            texts[says] = " ".join(long)
        chat.append({"role": "user", "content": texts["user"]})
        if (n == at and says == "tool") or (called and source.random() < 0.4):
            function = {"name": "look", "arguments": json.dumps({"about": subject})}
            calls = [{"id": f"c{n}", "type": "function", "function": function}]
            chat.append({"role": "assistant", "content": None, "tool_calls": calls})
            chat.append({"role": "tool", "tool_call_id": f"c{n}", "content": texts["tool"]})
        chat.append({"role": "assistant", "content": texts["assistant"]})
    return chat


@draws()
@given(
    seed=st.integers(0, 10_000),
    turns=st.integers(5, 22),
    back=st.integers(1, 22),
    size=st.integers(10, 1500),
    says=st.sampled_from(("user", "assistant", "tool")),
    called=st.booleans(),
    asked=st.sampled_from(FACTS),
    limits=st.lists(st.integers(180, 2400), min_size=1, max_size=3),
)
def test_the_turn_that_answers_stays_whatever_its_size(
    seed: int,
    turns: int,
    back: int,
    size: int,
    says: str,
    called: bool,
    asked: tuple[str, str],
    limits: list[int],
) -> None:
    """In each room the fact is kept: the turn is shortened around it where it has no room whole."""
    query, fact = asked
    chat = _chat(random.Random(seed), turns, max(0, turns - back), size, says, called, fact)
    chat.append({"role": "user", "content": query})
    for limit in limits:
        kept = fit_messages(chat, max_tokens=limit, counter=COUNTER, query=query)
        check_laws(chat, kept.messages, limit=limit, counter=COUNTER)
        assert fact in str(kept.messages)


@pytest.mark.parametrize("limit", range(500, 1700, 100))
def test_a_long_answer_stays_beside_the_last_exchanges(limit: int) -> None:
    """The last exchanges and the question stay with it where half of the room is enough for them."""
    query, fact = FACTS[0]
    chat = _chat(random.Random(1), 12, 3, 600, "assistant", False, fact)
    for message in chat[-6:]:
        message["content"] = "Thanks, and what about bees?"
    chat.append({"role": "user", "content": query})
    kept = fit_messages(chat, max_tokens=limit, counter=COUNTER, query=query).messages
    assert fact in str(kept)
    assert kept[-5:] == chat[-5:]


def test_what_may_not_be_shortened_is_kept_whole_or_dropped() -> None:
    """With message_cap=None no text is cut, so that an answer without room whole is left out."""
    query, fact = FACTS[1]
    chat = _chat(random.Random(2), 8, 2, 600, "assistant", False, fact)
    chat.append({"role": "user", "content": query})
    kept = fit_messages(chat, max_tokens=400, counter=COUNTER, query=query, message_cap=None).messages
    assert all(message in chat for message in kept)
    assert fact not in str(kept)


@pytest.mark.parametrize("short", [1, 9, 400])
def test_what_fits_stays_of_more_turns_than_are_read(short: int) -> None:
    """Of a conversation of thousands of turns a query loses no more than does not fit."""
    chat = [
        {"role": ("user", "assistant")[n % 2], "content": f"Item {n // 2} is blue."} for n in range(2 * 2_600)
    ]
    chat.append({"role": "user", "content": "What colour is item 77?"})
    counter = counter_for("o200k_base")
    room = counter.count_messages(chat) - short
    by_age = fit_messages(chat, max_tokens=room, counter=counter).messages
    found = fit_messages(chat, max_tokens=room, counter=counter, query="What colour is item 77?").messages
    assert len(found) >= len(by_age) - 2
    assert any("Item 77 is" in message["content"] for message in found)
