"""A session over a conversation that people edit: messages are appended, edited, deleted, and turns are asked again."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession
from rankbudget.errors import BudgetError
from rankbudget.testing import Application, WordCounter, applications, check_laws, check_refusal
from tests.drawing import draws

COUNTER = WordCounter()
STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "append", "edit", "delete", "back"]), st.integers(0, 40)),
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
    edited = (
        {**message, "content": f"mark{mark} edited"} if isinstance(message.get("content"), str) else message
    )
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
