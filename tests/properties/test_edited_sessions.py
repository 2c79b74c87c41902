"""A session over a conversation that people edit: messages are appended, edited, deleted, and turns are asked again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession
from rankbudget.errors import BudgetError
from rankbudget.testing import Application, WordCounter, applications, check_laws, check_refusal, check_same
from tests.drawing import draws

COUNTER = WordCounter()
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "edit", "blank", "delete", "back"]), st.integers(0, 40)),
    min_size=2,
    max_size=12,
)


def _told(text: str, max_tokens: int) -> str:
    """A summary of the numbers it was told."""
    return " ".join(sorted(set(re.findall(r"mark\d+", text)), key=text.index)[: max(1, max_tokens // 2)])


def _changed(thread: list[Any], rest: list[Any], step: tuple[str, int], mark: int) -> list[Any]:
    """The conversation after one step; an edited message says a word that nothing else says."""
    action, number = step
    at = number % len(thread) if thread else 0
    if action == "append" or not thread:
        return thread + [rest.pop(0) for _ in range(min(1 + number % 4, len(rest)))]
    if action == "delete":
        return thread[:at] + thread[at + 1 :]
    if action == "back":
        return thread[: max(1, at)]
    message = thread[at]
    said = " " if action == "blank" else f"mark{mark} edited"
    edited = {**message, "content": said} if isinstance(message.get("content"), str) else message
    return [*thread[:at], edited, *thread[at + 1 :]]


@pytest.mark.parametrize("summarizer", [None, _told])
@draws()
@given(applications(max_turns=8, user_results=True), STEPS, st.integers(20, 200))
def test_an_edited_conversation_keeps_the_laws(
    summarizer: Any, application: Application, steps: list[tuple[str, int]], limit: int
) -> None:
    """After any edit the result is valid, within the limit, and says nothing that the conversation does not say now."""
    rest = application.fresh()
    thread: list[Any] = []
    session = BudgetSession(limit, counter=COUNTER, summarizer=summarizer)
    for mark, step in enumerate(steps):
        thread = _changed(thread, rest, step, mark)
        try:
            found = session.fit(thread)
        except BudgetError as error:
            check_refusal(thread, error, limit=limit, counter=COUNTER)
            continue
        check_laws(
            thread,
            found.messages,
            limit=limit,
            counter=COUNTER,
            inserts=summarizer is not None,
            remembers=True,
            reported=found.report.total_tokens,
        )
        assert set(re.findall(r"mark\d+", str(found.messages))) <= set(re.findall(r"mark\d+", str(thread)))


def _prompts(mine: list[Any], theirs: list[Any], others: list[str]) -> Iterator[tuple[str, list[Any]]]:
    """Yields two growing conversations by turns, and after each pair what a host asks about the first."""
    for size in range(1, max(len(mine), len(theirs)) + 1):
        yield "mine", mine[:size]
        yield "theirs", theirs[:size]
        for other in others:
            asked = {"role": "user", "content": f"A title for the first {size} messages"}
            yield "other", [asked] if other == "title" else [{"role": "system", "content": "Route."}, asked]


@pytest.mark.parametrize("summarizer", [None, _told])
@draws()
@given(
    applications(max_turns=6, user_results=True),
    applications(max_turns=4),
    st.lists(st.sampled_from(["title", "route"]), max_size=1),
    st.integers(20, 120),
)
def test_conversations_of_one_thread_leave_each_other_alone(
    summarizer: Any, mine: Application, theirs: Application, others: list[str], limit: int
) -> None:
    """An agent, its sub-agent and calls for a title may share a thread: each is read as in a session of its own."""
    # Different system prompts: of two conversations that begin alike the session may go on with either.
    made = [BudgetSession(limit, counter=COUNTER, summarizer=summarizer) for _ in range(4)]
    shared, own = made[0], dict(zip(("mine", "theirs", "other"), made[1:], strict=True))
    agents = [
        [{"role": "system", "content": f"Agent {n}"}, *app.fresh()] for n, app in enumerate((mine, theirs))
    ]
    for name, thread in _prompts(*agents, others):
        try:
            expected = own[name].fit(thread)
        except BudgetError as error:
            with pytest.raises(type(error)):
                shared.fit(thread)
            continue
        check_same(expected.messages, shared.fit(thread).messages, what="a shared session's result")
