"""One stored conversation: read as far as a prompt reaches, and changed by many at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..compression.pieces import is_cut
from ..counting import counter_for
from ..errors import BudgetConfigError, MessageError, check_count, check_list, check_place, refuse, shown
from ..messages.texts import texts_of
from ..prompt.fit_messages import fit_messages
from ..report.report import FitResult
from ..segment import Scope
from . import sqlalchemy_later as sa
from .block_calls import forget_blocks, has_blocks, seen_by
from .forms import NUMBERED, HostForm
from .history_tables import ARCHIVED, messages, threads
from .matching import matched
from .newest import newest_of
from .reading import ThreadMessages
from .sameness import is_known, is_same, said_by
from .thread_rows import (
    AT_ONCE,
    Head,
    add,
    all_rows,
    end_at,
    found,
    locked,
    move,
    note_sent,
    rows_between,
    rows_named,
    save,
    sent_by,
    splice,
    unstored,
    with_own_names,
)

if TYPE_CHECKING:
    from .histories import HistoryStore


class StoredThread:
    """One conversation in a `HistoryStore`; objects of the same name and scope are the same conversation."""

    def __init__(self, store: HistoryStore, name: str, scope: Scope, form: HostForm) -> None:
        self.store, self.name, self.scope, self.form = store, name, scope, form

    # ---- read ------------------------------------------------------------------------------------
    def __len__(self) -> int:
        return self.size()

    def size(self, *, archived: bool = False) -> int:
        """Returns how many messages there are, with `archived` those of its archive, too."""
        with self.store.database.read() as connection:
            heads = self._heads(connection, archived=archived)
            if not any(has_blocks(connection, head.seq, self.form.name) for head in heads):
                return sum(head.size for head in heads)
        return len(self._rows(archived=archived))

    def _archive(self) -> StoredThread:
        """Returns what `take_oldest` archived, as a conversation of its own."""
        return StoredThread(self.store, self.name + ARCHIVED, self.scope, self.form)

    def conversation(self, tokens: int = 0) -> ThreadMessages:
        """Returns the messages as they are now, each read when it is asked for; fits take it as a list.

        Args:
            tokens: the newest messages of about so many are read at once.
        """
        of = self.store.database, self.scope, self.name, self.form, self.store.counts
        return ThreadMessages(*of, tokens=tokens)

    def messages(self, *, archived: bool = False) -> list[Any]:
        """Returns all messages, oldest first, as the host that wrote them gave them.

        Args:
            archived: whether those of its archive come before them.
        """
        return list(map(self.form.message, self._rows(archived=archived)))

    def _rows(self, *, archived: bool = False) -> Sequence[Any]:
        with self.store.database.read() as connection:
            heads = self._heads(connection, archived=archived)
            rows = [row for head in heads for row in all_rows(connection, head)]
            noted = any(has_blocks(connection, head.seq, self.form.name) for head in heads)
        return seen_by(self.form.name, rows) if noted else rows

    def _made(self, rows: Sequence[Any]) -> list[Any]:
        """Returns the messages of rows that follow each other."""
        return list(map(self.form.message, seen_by(self.form.name, rows)))

    def ids(self) -> list[str]:
        """Returns the id of each message, made up for those that have none; for `after=` and `sources`."""
        rows = self._rows()
        first = {str(row.seq): row.name for row in rows}
        named = [str(row.seq).partition(".")[0] for row in rows]  # of all that one stored message says
        return [first[seq] or f"{NUMBERED}{seq}" for seq in named]

    def stored(self, ids: Iterable[str]) -> set[str]:
        """Returns which of these `ids` a message has, as `ids` returns them."""
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            return set() if head is None else set(rows_named(connection, head, list(ids)))

    def changed(self, given: Iterable[Any]) -> list[Any]:
        """Returns the messages of `given` whose id is stored with other content; reads only their rows.

        What a prompt showed of a stored message, shortened, is that message, as is one that leaves out what
        is stored beside its role, content and calls.
        """
        named = {name: message for message in given if (name := self.form.codec.message_id(message))}
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            known = {} if head is None else rows_named(connection, head, list(named))
        return [
            message
            for name, message in named.items()
            if name in known
            and not is_known(known[name], self.form.row(message), self.form)
            and not self._is_cut(message, self.form.message(known[name]))
        ]

    def _is_cut(self, message: Any, stored: Any) -> bool:
        mine, theirs = self.form.codec.to_dict(message), self.form.codec.to_dict(stored)
        same = all(mine.get(key) == theirs.get(key) for key in ("role", "tool_calls", "tool_call_id"))
        return same and is_cut(texts_of(mine.get("content")), texts_of(theirs.get("content")))

    def newest(self, max_tokens: int, counter: Any = "o200k_base") -> Iterator[Any]:
        """Yields messages from the newest on while they fit.

        Older exchanges come whole or not at all, as do, in the newest one, calls with their results.

        Args:
            max_tokens: most tokens of all that is yielded.
            counter: a model or encoding name, or anything `counter_for` takes.
        """
        problems: list[str] = []
        left = check_count("max_tokens", max_tokens, problems)
        refuse(problems)
        return newest_of(self.conversation(), self.form, left, counter_for(counter))

    def fit(self, max_tokens: int, counter: Any = "o200k_base", **options: Any) -> FitResult:
        """Returns the newest part that fits, with a report; takes the other options of `fit_messages`."""
        codec = self.form.reader or self.form.codec
        return fit_messages(
            self.conversation(), max_tokens=max_tokens, counter=counter, **{"codec": codec, **options}
        )

    # ---- written ---------------------------------------------------------------------------------
    def append(
        self,
        given: Iterable[Any],
        *,
        key: str | None = None,
        after: str | None = None,
        asked: Iterable[str] = (),
    ) -> int:
        """Adds messages at the end, all of them or none, and returns how many were new.

        A message whose id is in the conversation is not added again; its new content replaces the old. What
        is only left out beside role, content and calls, as thinking and usage, is no new content. One
        that was taken out comes in again: only a `key` tells that the same call is sent again.

        Args:
            given: messages, oldest first; an iterator may yield millions.
            key: names this call, until `clear`: sent again it does nothing, whatever became of its messages
                since. Only messages that it has more than before are added.
            after: id of a stored message; what is behind it is `replaced` by what is given.
            asked: ids of the question that is answered, without `after`: where others stored it meanwhile,
                what is behind the last of its messages is `replaced`, so that it has one answer.

        Raises:
            StoreConflictError: the message `after` is not in the conversation, or no longer.
        """
        given_key: Any = key
        if not isinstance(given_key, str | None):
            msg = f"key must be a text, or None (got {shown(key)})"
            raise BudgetConfigError(msg)
        check_list("asked", asked, "ids")
        parts = self._in_parts(given)
        first, new, read = next(parts, None), 0, 0
        if first is None and after is None:
            return 0
        with self.store.database.write() as connection:
            head = locked(connection, self.scope, self.name)
            sent = sent_by(connection, head, key)
            if sent is None:
                end_at(connection, head, None if after is None else str(after), list(asked))
            while first is not None:
                fresh = first[max(0, (sent or 0) - read) :]
                if has_blocks(connection, head.seq, self.form.name) and rows_named(
                    connection, head, [row["name"] for row in fresh if row["name"]]
                ):
                    self._own(connection, head)
                rows = list(unstored(connection, head, fresh, partial(is_known, form=self.form)))
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
            self._replace(connection, head, list(all_rows(connection, head)), rows)

    def _replace(
        self, connection: sa.Connection, head: Head, stored: Sequence[Any], rows: list[dict[str, Any]]
    ) -> None:
        start, most = 0, min(len(stored), len(rows))
        while start < most and is_same(stored[start], rows[start], self.form):
            start += 1
        if start == len(stored) == len(rows):
            return
        end = 0
        while end < most - start and is_same(stored[-1 - end], rows[-1 - end], self.form):
            end += 1
        old, new = stored[start : len(stored) - end], rows[start : len(rows) - end]
        stay = matched([said_by(row, self.form) for row in old], [(r["digest"], r["host"]) for r in new])
        kept = {n: old[o] for n, o in stay.items()}
        taken = {row.name for row in (*stored[:start], *stored[len(stored) - end :], *kept.values())}
        with_own_names([row for n, row in enumerate(new) if n not in kept], taken)
        splice(connection, head, start, len(stored) - end, [kept.get(n, row) for n, row in enumerate(new)])

    def _take_over(self) -> None:
        with self.store.database.read() as connection:
            head = found(connection, self.scope, self.name)
            if head is None or not has_blocks(connection, head.seq, self.form.name):
                return
        with self.store.database.write() as connection:
            self._own(connection, locked(connection, self.scope, self.name))

    def _own(self, connection: sa.Connection, head: Head) -> None:
        """Makes each message that this host reads one row, as it edits them by their places and ids.

        Other hosts' calls and results in content blocks are written anew for that, in this host's form.
        """
        if has_blocks(connection, head.seq, self.form.name):
            stored = list(all_rows(connection, head))
            rows = [row for part in self._in_parts(self._made(stored)) for row in part]
            self._replace(connection, head, stored, rows)
            forget_blocks(connection, head.seq, self.form.name)

    def insert(self, place: int, given: Iterable[Any]) -> None:
        """Puts messages before the one at a place, which is found as `list.insert` finds it."""
        check_place(place)
        rows = [row for part in self._in_parts(given) for row in part]
        with self.store.database.write() as connection:
            head = locked(connection, self.scope, self.name)
            self._own(connection, head)
            at = slice(place, None).indices(head.size)[0]
            taken = rows_named(connection, head, [row["name"] for row in rows if row["name"]])
            splice(connection, head, at, at, with_own_names(rows, {*taken}))

    def edit(self, given: Iterable[Any], *, archived: bool = False) -> int:
        """Replaces messages by those of the same id, and returns how many of these are stored.

        The old texts stay stored as `replaced`; to redact a message, call `forget_replaced` as well.

        Args:
            given: messages with ids; what is not stored, or no longer, is left out.
            archived: whether messages of its archive are replaced, too.

        Raises:
            MessageError: a message has no id.
        """
        rows = [row for part in self._in_parts(given) for row in part]
        if not all(row["name"] for row in rows):
            msg = "a message to edit must have the id of a stored one (got none). `ids()` lists them."
            raise MessageError(msg)
        count = 0
        with self.store.database.write() as connection:
            for head in self._heads(connection, archived=archived, lock=True):
                self._own(connection, head)
                new = unstored(connection, head, rows, partial(is_same, form=self.form))
                count += len({row["name"] for row in rows}) - len(list(new))
        return count

    def take_oldest(self, count: int, *, archive: bool = False) -> list[Any]:
        """Takes the oldest messages out of the conversation, at most `count`, and returns them.

        Args:
            count: how many, 0 or more.
            archive: whether they go to the end of its archive; else they are `replaced`.
        """
        problems: list[str] = []
        check_count("count", count, problems)
        refuse(problems)
        with self.store.database.write() as connection:
            head = found(connection, self.scope, self.name, lock=True)
            if head is not None:
                self._own(connection, head)
            rows = [] if head is None else rows_between(connection, head, 0, count)
            if head is not None and rows:
                splice(connection, head, 0, len(rows), [])
                if archive:
                    move(connection, rows, locked(connection, self.scope, self.name + ARCHIVED))
        return list(map(self.form.message, rows))

    def delete(self, place: int) -> Any:
        """Removes one message and returns it; None where there is none. What it replaced stays `replaced`."""
        check_place(place)
        with self.store.database.write() as connection:
            head = found(connection, self.scope, self.name, lock=True)
            if head is None:
                return None
            self._own(connection, head)
            places = range(head.size)
            if not -head.size <= place < head.size:
                return None
            at = places[place]
            row = rows_between(connection, head, at, at + 1)[0]
            splice(connection, head, at, at + 1, [])
            connection.execute(messages().delete().where(messages().c.seq == row.seq))
        return self.form.message(row)

    def replaced(self) -> list[Any]:
        """Returns the messages that others have replaced, those of its archive first, each as written."""
        rows: list[Any] = []
        with self.store.database.read() as connection:
            for head in self._heads(connection, archived=True):
                old = messages().select().where(_without_place(head)).order_by(messages().c.seq)
                rows += connection.execute(old)
        return self._made(rows)

    def forget_replaced(self) -> int:
        """Removes what was `replaced`, in its archive too, and returns how many messages there were."""
        with self.store.database.write() as connection:
            heads = self._heads(connection, archived=True, lock=True)
            deletes = [messages().delete().where(_without_place(head)) for head in heads]
            return sum([int(connection.execute(delete).rowcount) for delete in deletes])

    def clear(self, *, archived: bool = True) -> None:
        """Removes the conversation with its summary.

        Args:
            archived: whether its archived messages go, too.
        """
        with self.store.database.write() as connection:
            self._clear(connection, archived=archived)

    def remove(self) -> list[Any]:
        """Removes the conversation with its archive, and returns its messages."""
        with self.store.database.write() as connection:
            heads = self._heads(connection, archived=False, lock=True)
            rows = [row for head in heads for row in all_rows(connection, head)]
            self._clear(connection, archived=True)
        return self._made(rows)

    def _clear(self, connection: sa.Connection, *, archived: bool) -> None:
        for head in reversed(self._heads(connection, archived=archived, lock=True)):
            connection.execute(messages().delete().where(messages().c.thread == head.seq))
            connection.execute(threads().delete().where(threads().c.seq == head.seq))

    def _heads(self, connection: sa.Connection, *, archived: bool, lock: bool = False) -> list[Head]:
        """Returns the rows of the conversation that exist, the one of its archive first."""
        names = (self.name, self.name + ARCHIVED)[: 1 + archived]
        heads = [found(connection, self.scope, name, lock=lock) for name in names]
        return [head for head in reversed(heads) if head is not None]

    def _in_parts(self, given: Iterable[Any]) -> Iterator[list[dict[str, Any]]]:
        """Yields rows of messages, some at a time, with what is counted at once."""
        check_list("given", given, "messages")
        source, read = iter(given), 0
        while part := list(islice(source, AT_ONCE)):
            rows = [self.form.row(message, read + place) for place, message in enumerate(part)]
            read += len(part)
            for row, tokens in zip(rows, self.store.counts.of(self.form, part), strict=True):
                row["counts"] = json.dumps(tokens)
            yield rows


def _without_place(head: Head) -> sa.ColumnElement[bool]:
    """Returns which messages of a conversation others have replaced."""
    return (messages().c.thread == head.seq) & messages().c.place.is_(None)
