"""Conversations that outlive a process: whole where they are stored, read only as far as a prompt reaches."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

from ..conversation.stored import AGAIN
from ..conversation.timeline import Timeline
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, StoreConflictError, check_count, check_list, named_options, shown
from ..prompt.fit_messages import fit_messages
from ..report.report import BudgetReport, FitResult
from ..segment import Scope
from .database import WAIT, Database
from .forgetting import forget
from .forms import DICTS, NUMBERED, Counts, HostForm
from .history_tables import ARCHIVED, create_histories, create_keys, create_reports, messages, threads
from .memory import check_scope, check_storable
from .protocol import Receipt
from .reading import ThreadMessages, existing
from .records import TurnFigures, record, recorded
from .thread_rows import (
    AT_ONCE,
    add,
    all_rows,
    end_at,
    found,
    is_same,
    locked,
    named,
    note_sent,
    rows_between,
    rows_named,
    save,
    sent_by,
    splice,
    unstored,
)


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
        else:
            check_storable("thread_id", name, problems)
        if problems:
            raise BudgetConfigError.of(problems)
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
        _check(scope)
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
        _check(scope)
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


class StoredThread:
    """One conversation in a `HistoryStore`; objects of the same name and scope are the same conversation."""

    def __init__(self, store: HistoryStore, name: str, scope: Scope, form: HostForm) -> None:
        self.store, self.name, self.scope, self.form = store, name, scope, form

    # ---- read ------------------------------------------------------------------------------------
    def __len__(self) -> int:
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
        return 0 if head is None else head.size

    def conversation(self, tokens: int = 0) -> ThreadMessages:
        """Returns the messages as they are now, each read when it is asked for; fits take it as a list.

        Args:
            tokens: the newest messages of about so many are read at once.
        """
        of = self.store.database, self.scope, self.name, self.form, self.store.counts
        return ThreadMessages(*of, tokens=tokens)

    def messages(self) -> list[Any]:
        """Returns all messages, oldest first, as the host that wrote them gave them."""
        return list(self.conversation(sys.maxsize))

    def ids(self) -> list[str]:
        """Returns the id of each message, made up for those that have none; for `after=` and `sources`."""
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            rows = [] if head is None else list(all_rows(connection, head))
        return [row.name or f"{NUMBERED}{row.seq}" for row in rows]

    def stored(self, ids: Iterable[str]) -> set[str]:
        """Returns which of these `ids` a message has, as `ids` returns them."""
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            return set() if head is None else set(rows_named(connection, head, list(ids)))

    def changed(self, given: Iterable[Any]) -> list[Any]:
        """Returns the messages of `given` whose id is stored with other content; reads only their rows."""
        named = {name: message for message in given if (name := self.form.codec.message_id(message))}
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            known = {} if head is None else rows_named(connection, head, list(named))
        return [
            message
            for name, message in named.items()
            if name in known and not is_same(known[name], self.form.row(message), self.form)
        ]

    def newest(self, max_tokens: int, counter: Any = "o200k_base") -> Iterator[Any]:
        """Yields messages from the newest on while they fit.

        Older exchanges come whole or not at all, as do, in the newest one, calls with their results.

        Args:
            max_tokens: most tokens of all that is yielded.
            counter: a model or encoding name, or anything `counter_for` takes.
        """
        problems: list[str] = []
        left = check_count("max_tokens", max_tokens, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        return self._newest(left, counter_for(counter))

    def _newest(self, left: int, counter: TokenCounter) -> Iterator[Any]:
        stored = self.conversation()
        for more in reversed(range(AGAIN)):
            shown = False
            try:
                for message in self._fitting(stored, left, counter):
                    shown = True
                    yield message
            except StoreConflictError:
                if shown or not more:
                    raise
                stored = stored.again()
            else:
                return

    def _fitting(self, stored: ThreadMessages, left: int, counter: TokenCounter) -> Iterator[Any]:
        codec = self.form.reader or self.form.codec
        measure = stored.measured(self.form.measure(counter), counter)
        timeline = Timeline(stored, codec, measure)
        for turn in timeline.turns():
            whole = [turn.units] if turn is not timeline.newest else [[unit] for unit in turn.units]
            for units in reversed(whole):
                left -= timeline.cost(units)
                if left < 0:
                    return
                for unit in reversed(units):
                    yield from reversed(timeline.read(unit))

    def fit(self, max_tokens: int, counter: Any = "o200k_base", **options: Any) -> FitResult:
        """Returns the newest part that fits, with a report; takes the other options of `fit_messages`."""
        codec = self.form.reader or self.form.codec
        return fit_messages(
            self.conversation(), max_tokens=max_tokens, counter=counter, **{"codec": codec, **options}
        )

    # ---- written ---------------------------------------------------------------------------------
    def append(self, given: Iterable[Any], *, key: str | None = None, after: str | None = None) -> int:
        """Adds messages at the end, all of them or none, and returns how many were new.

        A message whose id is in the conversation is not added again; its new content replaces the old. One
        that was taken out comes in again: only a `key` tells that the same call is sent again.

        Args:
            given: messages, oldest first; an iterator may yield millions.
            key: names this call, until `clear`: sent again it does nothing, whatever became of its messages
                since. Only messages that it has more than before are added.
            after: id of a stored message; what is behind it is `replaced` by what is given.

        Raises:
            StoreConflictError: the message `after` is not in the conversation, or no longer.
        """
        parts = self._in_parts(given)
        first, new, read = next(parts, None), 0, 0
        if first is None and after is None:
            return 0
        with self.store.database.write() as connection:
            head = locked(connection, self.scope, self.name)
            sent = sent_by(connection, head, key)
            if after is not None and sent is None:
                end_at(connection, head, str(after))
            while first is not None:
                fresh = first[max(0, (sent or 0) - read) :]
                rows = list(unstored(connection, head, fresh, self.form))
                add(connection, head, rows)
                new += len(rows)
                read += len(first)
                first = next(parts, None)
            if key is not None:
                note_sent(connection, head, key, max(read, sent or 0))
            save(connection, head)
        return new

    def replace(self, given: Iterable[Any]) -> None:
        """Makes the conversation consist of these messages; those that stay keep their rows.

        What is replaced has no place in the conversation any more, but stays stored (`replaced`) until
        `clear`.
        """
        rows = [row for part in self._in_parts(given) for row in part]
        with self.store.database.write() as connection:
            head = locked(connection, self.scope, self.name)
            stored = list(all_rows(connection, head))
            start, most = 0, min(len(stored), len(rows))
            while start < most and is_same(stored[start], rows[start], self.form):
                start += 1
            end = 0
            while end < most - start and is_same(stored[-1 - end], rows[-1 - end], self.form):
                end += 1
            if start == len(stored) == len(rows):
                return
            new = rows[start : len(rows) - end]
            taken = {row.name for row in (*stored[:start], *stored[len(stored) - end :])}
            for row in new:  # of two messages with one id the first keeps it
                row["name"] = None if row["name"] in taken else row["name"]
                taken.add(row["name"])
            splice(connection, head, start, len(stored) - end, new)

    def delete(self, place: int) -> Any:
        """Takes one message out of the conversation and returns it; None where there is none."""
        with self.store.database.write() as connection:
            head = locked(connection, self.scope, self.name)
            places = range(head.size)
            if not -head.size <= place < head.size:
                return None
            at = places[place]
            row = rows_between(connection, head, at, at + 1)[0]
            splice(connection, head, at, at + 1, [])
        return self.form.message(row)

    def replaced(self) -> list[Any]:
        """Returns the messages that others have replaced, in the order in which they were written."""
        table = messages()
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            if head is None:
                return []
            wanted = (table.c.thread == head.seq) & table.c.place.is_(None)
            rows = list(connection.execute(table.select().where(wanted).order_by(table.c.seq)))
        return [self.form.message(row) for row in rows]

    def clear(self, *, archived: bool = True) -> None:
        """Removes the conversation with its summary.

        Args:
            archived: whether its archived messages go, too.
        """
        with self.store.database.write() as connection:
            for name in (self.name, self.name + ARCHIVED)[: 1 + archived]:
                head = found(connection, self.scope, name, lock=True)
                if head is not None:
                    connection.execute(messages().delete().where(messages().c.thread == head.seq))
                    connection.execute(threads().delete().where(named(self.scope, name)))

    def _in_parts(self, given: Iterable[Any]) -> Iterator[list[dict[str, Any]]]:
        """Yields rows of messages, some at a time, with what is counted at once."""
        check_list("given", given, "messages")
        source = iter(given)
        while part := list(islice(source, AT_ONCE)):
            rows = list(map(self.form.row, part))
            for row, tokens in zip(rows, self.store.counts.of(self.form, part), strict=True):
                row["counts"] = json.dumps(tokens)
            yield rows


def _check(scope: object) -> None:
    problems: list[str] = []
    check_scope(scope, problems)
    if problems:
        raise BudgetConfigError.of(problems)
