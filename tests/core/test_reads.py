"""Reading counted: a conversation that loads its messages one by one is read only as far as it is needed."""

from __future__ import annotations

from collections import Counter, UserList, deque
from collections.abc import Callable, Sequence
from typing import Any, overload

import pytest

from rankbudget import Assembler, Block, BudgetSession, TokenBudget, fit_documents, fit_messages
from rankbudget.testing import WordCounter

COUNTER = WordCounter()
CHAT = [{"role": ("user", "assistant")[i % 2], "content": f"m {i} " + "word " * 9} for i in range(4_001)]
LIMIT, BLOCK = 400, 128


class Loaded(Sequence[Any]):
    """Loads an item when it is asked for, and counts how often."""

    def __init__(self, items: Sequence[Any]) -> None:
        self.items, self.loads = items, Counter[int]()

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, at: int) -> Any: ...
    @overload
    def __getitem__(self, at: slice) -> list[Any]: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return [self[i] for i in range(*at.indices(len(self)))]
        position = range(len(self))[at]
        self.loads[position] += 1
        return self.items[position]


@pytest.mark.parametrize("options", [{}, {"cut": "stable"}, {"query": "m 5"}, {"last_turns": 3}], ids=str)
def test_one_call_reads_each_message_once(options: dict[str, Any]) -> None:
    """Each role is looked at, because a system message may be anywhere; the report reads nothing again."""
    thread = Loaded(CHAT)
    made = fit_messages(thread, max_tokens=LIMIT, counter=COUNTER, **options)
    assert made.messages == fit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER, **options).messages
    assert len(made.report.decisions) == len(CHAT)
    assert set(thread.loads.values()) == {1}


def by_session(session: BudgetSession, thread: Any) -> Any:
    return session.fit(thread).messages


def by_fit_messages(session: BudgetSession, thread: Any) -> Any:
    return fit_messages(thread, max_tokens=LIMIT, session=session).messages


def by_assembler(session: BudgetSession, thread: Any) -> Any:
    return Assembler(LIMIT, session=session).assemble([Block(name="history", messages=thread)]).messages


@pytest.mark.parametrize("last_turns", [None, 2, 5])
@pytest.mark.parametrize("fit", [by_session, by_fit_messages, by_assembler], ids=lambda fit: fit.__name__)
def test_a_session_reads_what_is_new_and_what_it_keeps(
    fit: Callable[[BudgetSession, Any], Any], last_turns: int | None
) -> None:
    """Turn by turn, and once more when it moves its cut, at most one block of older roles is read beside these."""
    budget = TokenBudget(context_window=LIMIT, reserve=0, ratios={"history": 1}, last_turns=last_turns)
    session = BudgetSession(budget, counter=COUNTER)
    fit(session, CHAT[:3_901])
    kept = 0
    for size in range(3_903, len(CHAT) + 1, 2):
        thread = Loaded(CHAT[:size])
        made = fit(session, thread)
        new, kept_before, kept = 2, kept, len(made)
        assert set(thread.loads.values()) == {1}
        assert sum(thread.loads.values()) <= max(kept, kept_before) + new + BLOCK


def test_documents_are_read_once() -> None:
    """Each text is rated, so each is read, and none twice."""
    texts = Loaded([m["content"] for m in CHAT[:200]])
    assert fit_documents(texts, max_tokens=99, query="m 5", counter=COUNTER).segments
    assert set(texts.loads.values()) == {1}


@pytest.mark.parametrize("kind", [list, UserList, deque], ids=lambda kind: kind.__name__)
def test_a_report_does_not_see_what_becomes_of_a_list(kind: Callable[[Any], Any]) -> None:
    """What may change is copied: a report that is read later says what was dropped then."""
    session = BudgetSession(LIMIT, counter=COUNTER)
    session.fit(CHAT[:401])
    thread = kind(CHAT[:403])
    report = session.fit(thread).report
    thread.clear()
    assert len(report.decisions) == 403
