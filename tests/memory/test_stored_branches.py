"""`StoredThreadMiddleware` and questions that are edited or asked again: each request has the path that the user is on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from langchain_budget import StoredThreadMiddleware
from langchain_budget._codec import CODEC
from langchain_budget.stored_history import NamedMessageHistory
from rankbudget.memory import HistoryStore
from rankbudget.testing import WordCounter
from rankbudget.testing.repairs import pairing_errors, repaired
from tests.drawing import draws

from .test_stored_threads import ANN, THREAD, Scripted, beginnings, calls, find, said_in


class Turn(NamedTuple):
    """What a user does: asks, edits a question, asks it again, or goes on from an older message; and how the run ends."""

    does: str
    place: int
    """Of the question, or of the message, among those of the path."""
    whole: bool
    """The client sends all of the path up to there, too."""
    amends: bool
    """It has edited a message of that."""
    steps: list[int]
    ends: str


TURNS = st.builds(
    Turn,
    does=st.sampled_from(["ask", "edit", "again", "go on"]),
    place=st.integers(0, 9),
    whole=st.booleans(),
    amends=st.booleans(),
    steps=st.lists(st.integers(1, 2), max_size=2),
    ends=st.sampled_from(["answers", "answers", "fails", "stops"]),
)


def tags(value: object) -> set[str]:
    return set(re.findall(r"(?:question|step|found|answer|amended) [\d.ab]+", repr(value)))


def summarized(text: str, most: int) -> str:
    return " ".join(sorted(tags(text)))


class Client:
    """A user's client: keeps the path in a list, and checks each request and what is stored against it."""

    def __init__(
        self, store: HistoryStore, *, limit: int = 10_000, asynchronous: bool = False, **options: Any
    ):
        self.history = NamedMessageHistory(store, "t", scope=ANN)
        self.path = self.history.messages
        self.ever = set(beginnings(self.path))
        self.model = Scripted(script=[], seen=[])
        self.fits, self.asynchronous = limit < 10_000, asynchronous
        stored = StoredThreadMiddleware(store, scope=ANN, max_tokens=limit, counter=WordCounter(), **options)
        self.agent = create_agent(self.model, [find], middleware=[stored])

    def take(self, number: int, turn: Turn) -> None:
        """Takes a turn; only a run that answers moves the path."""
        before, question = self._asked(number, turn)
        answers = [
            *(calls(number, n, count) for n, count in enumerate(turn.steps)),
            AIMessage(f"answer {number}"),
        ]
        self.model.script[:] = [*answers[:-1], OSError()] if turn.ends == "fails" else answers
        if turn.amends and turn.whole:
            before = amended(before, turn.place, number)
        known = [*before, question] if question.id in [m.id for m in self.path] else before
        if len(known) == len(self.path):  # nothing is left out behind what is edited
            self.path = known
            self.ever.update(beginnings(known))
        asked, said = beginnings(repaired([*before, question], CODEC)), said_in(number, answers)[1:]
        sent: Any = [*(before if turn.whole else before[-1:] if turn.does == "go on" else []), question]
        self.model.seen.clear()
        result = self._run({"messages": sent}, stops=turn.ends == "stops")
        for n, request in enumerate(self.model.seen):
            self._check(request, [*asked, *said[: n + sum(turn.steps[:n])]])
        if result is not None:
            self.path = [*before, *result[-(1 + len(said)) :]]
            self.ever.update(beginnings(self.path))
        assert [m.id for m in self.history.messages] == [m.id for m in self.path]
        assert beginnings(self.history.messages) == beginnings(self.path)
        assert self.ever <= set(beginnings([*self.path, *self.history.thread.replaced()]))

    def _asked(self, number: int, turn: Turn) -> tuple[list[BaseMessage], BaseMessage]:
        """Returns the path before the question, and the question."""
        new = HumanMessage(f"question {number}", id=f"q{number}")
        places = [n for n, m in enumerate(self.path) if turn.does == "go on" or m.type == "human"]
        if turn.does == "ask" or not places:
            return self.path, new
        place = places[turn.place % len(places)]
        if turn.does == "go on":
            return self.path[: place + 1], new
        old = self.path[place]
        return self.path[:place], old if turn.does == "again" else HumanMessage(new.content, id=old.id)

    def _check(self, request: Sequence[BaseMessage], expected: Sequence[str]) -> None:
        assert pairing_errors(request, CODEC) == []
        assert tags(request) <= set(expected)
        found = [text for text in beginnings(list(request)) if text in set(expected)]
        assert found == (list(expected) if not self.fits else expected_of(found, expected))
        assert found[-1] == expected[-1]

    def _run(self, asked: Any, *, stops: bool) -> list[BaseMessage] | None:
        """Returns what the run returns, None where it fails or its reader leaves after the first answer."""
        try:
            if self.asynchronous:
                return asyncio.run(self._arun(asked, stops=stops))
            if not stops:
                return list(self.agent.invoke(asked, THREAD)["messages"])
            for update in (run := self.agent.stream(asked, THREAD)):
                if "model" in update:
                    run.close()
        except OSError:
            pass
        return None

    async def _arun(self, asked: Any, *, stops: bool) -> list[BaseMessage] | None:
        if not stops:
            return list((await self.agent.ainvoke(asked, THREAD))["messages"])
        run: Any = self.agent.astream(asked, THREAD)
        async for update in run:
            if "model" in update:
                await run.aclose()
        return None


def amended(path: Sequence[BaseMessage], place: int, number: int) -> list[BaseMessage]:
    """Returns a path of which a question or an answer is edited."""
    places = [
        n for n, m in enumerate(path) if m.type in ("human", "ai") and not getattr(m, "tool_calls", None)
    ]
    at = places[place % len(places)] if places else -1
    return [
        m.model_copy(update={"content": f"amended {number}"}) if n == at else m for n, m in enumerate(path)
    ]


def expected_of(found: Sequence[str], expected: Sequence[str]) -> list[str]:
    """Returns those of the expected texts that were found, each once and in their order."""
    return [text for text in expected if text in found]


CALL = {"id": "ca", "type": "function", "function": {"name": "find", "arguments": "{}"}}
BEGUN: list[dict[str, Any]] = [
    {"role": "user", "content": "question a"},
    {"role": "assistant", "content": "answer a"},
    {"role": "user", "content": "question b"},
    {"role": "assistant", "content": "step b", "tool_calls": [CALL]},
    {"role": "tool", "content": "found b", "tool_call_id": "ca"},
]
"""What another host stored, whose messages have no ids."""


@draws(asynchronous=True)
@given(
    turns=st.lists(TURNS, min_size=2, max_size=7),
    begun=st.integers(0, len(BEGUN)),
    limit=st.sampled_from([60, 10_000]),
    summarizes=st.booleans(),
    asynchronous=st.booleans(),
)
def test_each_request_has_the_path_that_the_user_is_on(
    turns: list[Turn], begun: int, limit: int, summarizes: bool, asynchronous: bool
) -> None:
    """Any turns, edits, repeated questions, forks and broken runs: nothing abandoned is sent, all of it stays readable."""
    options: dict[str, Any] = {"summarizer": summarized} if summarizes else {}
    store = HistoryStore(":memory:")
    store.thread("t", scope=ANN).append(BEGUN[:begun])
    client = Client(store, limit=limit, asynchronous=asynchronous, **options)
    for number, turn in enumerate(turns):
        client.take(number, turn)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_in_each_database_two_edits_in_a_row_and_a_run_that_fails(
    histories: HistoryStore, asynchronous: bool
) -> None:
    """Calls in what is abandoned, the same question asked again, an edit that fails: files and PostgreSQL do the same."""
    client = Client(histories, asynchronous=asynchronous)
    series = [
        ("ask", [2], "answers"),
        ("ask", [], "answers"),
        ("edit", [1], "fails"),
        ("ask", [], "answers"),
        ("edit", [2, 1], "answers"),
        ("edit", [], "answers"),
        ("again", [1], "answers"),
        ("again", [], "stops"),
        ("ask", [], "answers"),
    ]
    for number, (does, steps, ends) in enumerate(series):
        client.take(number, Turn(does, 0, whole=False, amends=False, steps=steps, ends=ends))
    assert beginnings(client.path) == [
        "question 5",
        *said_in(6, [calls(6, 0, 1)])[1:],
        "answer 6",
        "question 8",
        "answer 8",
    ]
    assert len(client.history.thread.replaced()) == 17
