"""Conversations that outlive a process: whole where they are stored, read only as far as a prompt reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, named_options, refuse, shown
from ..report.report import BudgetReport
from ..segment import Scope
from .database import WAIT, Database
from .forgetting import forget
from .forms import DICTS, Counts, HostForm
from .history_tables import ARCHIVED, create_histories, create_keys, create_reports
from .history_thread import StoredThread
from .memory import check_scope, check_storable
from .protocol import Receipt
from .reading import existing
from .records import TurnFigures, record, recorded


class HistoryStore:
    """Keeps conversations of users and projects in a database, shared by threads and processes.

    Every operation names a scope: whose conversation it is. A thread of another scope is not found.

    Args:
        place: path of a SQLite file, a database URL, or a SQLAlchemy engine; memories may share it.
        counters: counters by a name of yours, by which each new message is counted at once. Other counters
            count when a message is first read; the tokens of a counter without a name are not stored.
        wait: seconds that a write waits for other writers, above 0.

    Raises:
        StoreError: the database cannot be opened, is damaged, or was written by a newer version.
        CounterUnavailableError: SQLAlchemy or the database's driver is not installed.

    Example:
        >>> store = HistoryStore(":memory:")
        >>> thread = store.thread("t1", scope=Scope(user="ann"))
        >>> asked = {"role": "user", "content": "Where do ferns grow?"}
        >>> _ = thread.append([asked, {"role": "assistant", "content": "In the shade."}])
        >>> len(thread), thread.fit(max_tokens=100).messages[0], len(store.thread("t1", scope=Scope()))
        (2, {'role': 'user', 'content': 'Where do ferns grow?'}, 0)
    """

    @named_options
    def __init__(
        self, place: Any, *, counters: Mapping[str, TokenCounter] | None = None, wait: float = WAIT
    ) -> None:
        self.database = Database(place, wait=wait)
        self.database.migrate("histories", (create_histories,))
        self.database.migrate("reports", (create_reports,))
        self.database.migrate("keys", (create_keys,))
        self.counts = Counts(dict(counters or {}))

    @named_options
    def thread(self, thread_id: str, *, scope: Scope, form: HostForm = DICTS) -> StoredThread:
        """Returns a conversation; it is made by its first message.

        Args:
            thread_id: its name, which one conversation of the scope has.
            scope: whose it is.
            form: the host whose messages are written and read; None of them is lost on another one.

        Raises:
            BudgetConfigError: an argument is wrong.
        """
        problems: list[str] = []
        check_scope(scope, problems)
        name: Any = thread_id
        if not isinstance(name, str) or not name:
            problems.append(f"thread_id must be a text with something in it (got {shown(thread_id)})")
        elif name.endswith(ARCHIVED):
            problems.append(
                f"thread_id must not end in {ARCHIVED!r} (got {shown(name)}). Use messages(archived=True)"
            )
        else:
            check_storable("thread_id", name, problems)
        refuse(problems)
        return StoredThread(self, thread_id, scope, form)

    @named_options
    def threads(self, *, scope: Scope) -> list[str]:
        """Returns the names of the conversations of exactly this scope, the oldest first."""
        _check(scope)
        return existing(self.database, scope)

    @named_options
    def record(self, report: BudgetReport, *, scope: Scope, thread_id: str = "") -> None:
        """Stores the figures of a turn: totals, blocks and limits, no text.

        Args:
            report: of the turn.
            scope: whose it is.
            thread_id: the conversation it belongs to.
        """
        _check(scope, report=(report, BudgetReport, "a BudgetReport, as the .report of a result"))
        record(self.database, report, scope, thread_id)

    @named_options
    def reports(
        self, *, scope: Scope, thread_id: str | None = None, since: datetime | None = None
    ) -> Iterator[TurnFigures]:
        """Yields what `record` stored for exactly this scope, the oldest first.

        Args:
            scope: whose turns.
            thread_id: only those of one conversation.
            since: only those from a moment on.
        """
        _check(scope, since=(since, datetime | None, "a datetime, or None"))
        return recorded(self.database, scope, thread_id, since)

    @named_options
    def forget(self, subject: Scope) -> Receipt:
        """Removes conversations, summaries, figures and memories of a user or project in this database.

        Args:
            subject: `Scope(user="ann")`, or a project, or one user's part of one.

        Raises:
            BudgetConfigError: `subject` names nobody.
        """
        _check(subject)
        if subject == Scope():
            msg = "subject must name a user or a project (got Scope()). Clear everybody's threads by name."
            raise BudgetConfigError(msg)
        return forget(self.database, subject)[0]

    def close(self) -> None:
        """Closes its connections; the next use opens new ones."""
        self.database.close()


def _check(scope: object, **given: tuple[object, Any, str]) -> None:
    """Raises BudgetConfigError where a scope is none, or a value of another kind than it must be."""
    problems: list[str] = []
    check_scope(scope, problems)
    for name, (value, kind, words) in given.items():
        if not isinstance(value, kind):
            problems.append(f"{name} must be {words} (got {shown(value)})")
    refuse(problems)
