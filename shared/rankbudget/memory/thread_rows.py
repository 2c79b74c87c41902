"""The rows of one conversation inside a transaction: found, locked, put in, taken out, summed up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from typing import Any

from ..conversation.state import Summary
from ..counting.blocks import function_of
from ..errors import StoreConflictError, StoreError, shown
from ..messages.call_ids import with_clear_ids
from ..segment import Scope
from . import sqlalchemy_later as sa
from .block_calls import note_blocks
from .forms import DICTS, NUMBERED
from .history_tables import NO_SUM, PINNED_ROWS, keys, messages, threads
from .memory import is_storable
from .plain import added, digest_of_text, place_value, read, written
from .tables import owned_by

Same = Callable[[Any, "Mapping[str, Any]"], bool]
"""Says of a stored row and a new one whether they hold the same message."""
AT_ONCE = 1000
"""Rows written or read in one statement."""
_FEW_IDS = 20
"""Ids that a database looks for; of more, all rows with calls are read."""
_TRIES = 10
_DIGITS = 18
"""Digits of a row's number, at most: a BIGINT."""
_EMPTY = {
    "edits": 0,
    "version": 0,
    "summary": "",
    "summary_upto": 0,
    "summary_kept": "[]",
    "summary_seal": "",
}


@dataclass(slots=True)
class Head:
    """The row of a conversation."""

    seq: int
    size: int
    total: str
    edits: int
    version: int
    summary: Summary

    @classmethod
    def of(cls, row: Any) -> Head:
        """Returns it as it was read."""
        kept = tuple(json.loads(row.summary_kept))
        summary = Summary(row.summary, row.summary_upto, kept, 0, bytes.fromhex(row.summary_seal))
        return cls(row.seq, row.size, row.total, row.edits, row.version, summary)


def named(scope: Scope, name: str) -> sa.ColumnElement[bool]:
    """Returns which row is a conversation of exactly this scope."""
    table, owned = threads(), owned_by(scope)
    owner = (table.c.owner == owned["owner"]) & (table.c.project == owned["project"])
    return owner & (table.c.name == name)


def found(connection: sa.Connection, scope: Scope, name: str, *, lock: bool = False) -> Head | None:
    """Returns a conversation, which with `lock` nobody else changes; None where the scope has none."""
    wanted = threads().select().where(named(scope, name))
    row = connection.execute(wanted.with_for_update() if lock else wanted).first()
    return None if row is None else Head.of(row)


def locked(connection: sa.Connection, scope: Scope, name: str) -> Head:
    """Returns a conversation, made where it is missing, which nobody else changes in this transaction."""
    fresh = {"name": name, "size": 0, "total": NO_SUM, "created_at": time.time(), **_EMPTY}
    row = {**owned_by(scope), **fresh}
    columns, values = ", ".join(row), ", ".join(f":{column}" for column in row)
    insert = sa.text(
        f"INSERT INTO rankbudget_threads ({columns}) VALUES ({values})"  # noqa: S608 - columns
        " ON CONFLICT DO NOTHING"
    )
    for _ in range(_TRIES):
        head = found(connection, scope, name, lock=True)
        if head is not None:
            return head
        connection.execute(insert, row)
    msg = f"the thread {name!r} could not be made: others deleted it {_TRIES} times meanwhile. Try again."
    raise StoreError(msg)


def rows_between(connection: sa.Connection, head: Head, start: int, stop: int) -> list[Any]:
    """Returns the rows from one place to before another, in order."""
    table = messages()
    inside = (table.c.thread == head.seq) & (table.c.place >= start) & (table.c.place < stop)
    return list(connection.execute(table.select().where(inside).order_by(table.c.place)))


def pinned_rows(connection: sa.Connection, head: Head) -> list[Any]:
    """Returns the rows of system and developer messages, in order."""
    mine = f"thread = :thread AND place < :size AND {PINNED_ROWS}"
    table = _by_index(connection, "pinned")
    chosen = sa.text(f"SELECT * FROM {table} WHERE {mine} ORDER BY place")  # noqa: S608 - our own words
    return list(connection.execute(chosen, {"thread": head.seq, "size": head.size}))


def _by_index(connection: sa.Connection, name: str) -> str:
    """Returns the table, read by an index, or by the numbers of its rows where `name` is empty.

    Left to itself, SQLite walks through all messages of a thread by their places.
    """
    by = f"INDEXED BY rankbudget_messages_{name}" if name else "NOT INDEXED"
    return f"rankbudget_messages {by}" if connection.dialect.name == "sqlite" else "rankbudget_messages"


def all_rows(connection: sa.Connection, head: Head) -> Iterator[Any]:
    """Yields all rows in order, some at a time."""
    for start in range(0, head.size, AT_ONCE):
        yield from rows_between(connection, head, start, min(head.size, start + AT_ONCE))


def add(connection: sa.Connection, head: Head, rows: Sequence[dict[str, Any]]) -> None:
    """Adds rows at the end; in their neutral form each call and its result have an id of their own."""
    now = time.time()
    _clear_ids(connection, head, rows)
    note_blocks(connection, head.seq, [(row["form"], row["neutral"]) for row in rows])
    for row in rows:
        head.total = added(head.total, place_value(head.size, row["digest"]))
        row.update(thread=head.seq, place=head.size, total=head.total, created_at=now)
        head.size += 1
    if rows:
        connection.execute(messages().insert(), rows)


def _clear_ids(connection: sa.Connection, head: Head, rows: Sequence[dict[str, Any]]) -> None:
    """Gives ids to calls whose host left them without, named them by their function or gave an id again.

    The digest stays that of the message, which the host gets back as it was.
    """
    given = list(map(_calls_in, rows))
    if not any(map(_may_need_id, given)):
        return
    before, most = list[Any](), 0
    while _is_result((*before, *given)[0]) and most < min(head.size, AT_ONCE):
        most = min(head.size, 8 * (most or 1))
        before = [read(row.neutral) for row in rows_between(connection, head, head.size - most, head.size)]
    said, first = [*before, *given], head.size - len(before)
    calls = [call for message in said for call in message.get("tool_calls") or ()]
    names = [str(function_of(call).get("name")) for call in calls]
    own = [reference for message in given for reference in DICTS.codec.call_ids(message) if reference]
    used = _ids_before(connection, head, first, own) if own else []
    clear = with_clear_ids(DICTS.codec, said, first=first, taken=[*names, *used])
    for row, old, new in zip(rows, given, clear[len(before) :], strict=True):
        if new is not old:  # what was counted had its own ids
            row.update(neutral=written(new), host=row["host"] or row["neutral"], counts="{}")


def _ids_before(connection: sa.Connection, head: Head, place: int, wanted: Sequence[str]) -> list[str]:
    """Returns which ids calls have in the rows before a place, of those that are wanted.

    It looks at as many rows as a prompt may have beside it.
    """
    table = messages()
    near = (table.c.place >= place - AT_ONCE) & (table.c.place < place) & (table.c.role == "assistant")
    parts = list(map(written, wanted)) if len(wanted) <= _FEW_IDS else ['"tool_calls"']
    has = sa.or_(*[table.c.neutral.contains(part, autoescape=True) for part in parts])
    said = connection.execute(
        sa.select(table.c.neutral).where(near & (table.c.thread == head.seq) & has)
    ).scalars()
    found = chain.from_iterable(DICTS.codec.call_ids(read(text)) for text in said)
    return list({*found}.intersection(wanted))


def _calls_in(row: Mapping[str, Any]) -> Any:
    """Returns the neutral form of a row that may hold calls or a result, of others their role."""
    asks = row["role"] == "tool" or (row["role"] == "assistant" and '"tool_calls"' in row["neutral"])
    return read(row["neutral"]) if asks else {"role": row["role"]}


def _may_need_id(message: Mapping[str, Any]) -> bool:
    return bool(message.get("tool_calls")) or _is_result(message)


def _is_result(message: Mapping[str, Any]) -> bool:
    return DICTS.codec.role(message) == "tool"


def splice(connection: sa.Connection, head: Head, start: int, stop: int, rows: Sequence[Any]) -> None:
    """Puts rows in the place of those from one place to before another, which stay without a place.

    Rows that were among them are put back.
    """
    table, size = messages(), head.size
    mine = table.c.thread == head.seq
    if start < stop:
        out = table.update().where(mine & (table.c.place >= start) & (table.c.place < stop))
        connection.execute(out.values(place=None))
    shift = len(rows) - (stop - start)
    if shift and stop < size:  # by way of negative places: two rows never have one
        late = table.update().where(mine & (table.c.place >= stop))
        connection.execute(late.values(place=-1 - (table.c.place + shift)))
        connection.execute(table.update().where(mine & (table.c.place < 0)).values(place=-1 - table.c.place))
    head.edits += 1
    head.size, head.total = start, _sum_before(connection, head, start)
    for is_new, run in groupby(rows, key=lambda row: isinstance(row, dict)):
        (add if is_new else _put_back)(connection, head, list(run))
    resum(connection, head, size + shift)
    if not holds(connection, head, head.summary):
        head.summary = Summary()
    save(connection, head)


def _put_back(connection: sa.Connection, head: Head, rows: Sequence[Any]) -> None:
    """Puts rows without a place at the end."""
    update = messages().update().where(messages().c.seq == sa.bindparam("row"))
    connection.execute(
        update.values(place=sa.bindparam("to"), total=sa.bindparam("sum")), _at_the_end(head, rows)
    )


def _at_the_end(head: Head, rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns place and sum of rows that come behind the last one, which the last of them is then."""
    placed: list[dict[str, Any]] = []
    for row in rows:
        head.total = added(head.total, place_value(head.size, row.digest))
        placed.append({"row": row.seq, "to": head.size, "sum": head.total})
        head.size += 1
    return placed


def with_own_names(rows: Sequence[dict[str, Any]], taken: set[str | None]) -> Sequence[dict[str, Any]]:
    """Returns new rows, without a name where it is taken: of two messages with one id the first keeps it."""
    for row in rows:
        row["name"] = None if row["name"] in taken else row["name"]
        taken.add(row["name"])
    return rows


def move(connection: sa.Connection, rows: Sequence[Any], head: Head) -> None:
    """Puts rows that have no place any more at the end of another conversation."""
    table, taken = messages(), rows_named(connection, head, [row.name for row in rows if row.name])
    named = with_own_names([{"name": row.name} for row in rows], {*taken})
    moved = [{**at, "named": one["name"]} for at, one in zip(_at_the_end(head, rows), named, strict=True)]
    values: dict[str, Any] = {
        "place": sa.bindparam("to"),
        "total": sa.bindparam("sum"),
        "name": sa.bindparam("named"),
    }
    update = table.update().where(table.c.seq == sa.bindparam("row")).values(thread=head.seq, **values)
    connection.execute(update, moved)
    note_blocks(connection, head.seq, [(row.form, row.neutral) for row in rows])
    save(connection, head)


def end_at(connection: sa.Connection, head: Head, name: str | None, asked: Sequence[str]) -> None:
    """Makes the message of this id the last one, without an id the last of those `asked` that is there.

    Those behind it stay without a place.
    """
    found = rows_named(connection, head, asked if name is None else [name])
    if name is not None and not found:
        msg = f"the conversation has no message {shown(name)}, or no longer, to go on after. Read it again."
        raise StoreConflictError(msg)
    end = 1 + max([row.place for row in found.values()], default=head.size - 1)
    if end < head.size:
        splice(connection, head, end, head.size, [])


def sent_by(connection: sa.Connection, head: Head, key: str | None) -> int | None:
    """Returns how many messages a call of this key gave before, wherever they are now; None for no call."""
    if key is None:
        return None
    table = keys()
    mine = (table.c.thread == head.seq) & (table.c.key == digest_of_text(str(key)))
    return connection.execute(sa.select(table.c.sent).where(mine)).scalar()


def note_sent(connection: sa.Connection, head: Head, key: str, sent: int) -> None:
    """Notes how many messages the call of a key gave, until the conversation is cleared."""
    table, of = keys(), digest_of_text(str(key))
    connection.execute(table.delete().where((table.c.thread == head.seq) & (table.c.key == of)))
    connection.execute(table.insert(), {"thread": head.seq, "key": of, "sent": sent})


def resum(connection: sa.Connection, head: Head, size: int) -> None:
    """Sums up the rows after the head's last one, up to a new size."""
    table = messages()
    update = table.update().where(table.c.seq == sa.bindparam("row")).values(total=sa.bindparam("sum"))
    while head.size < size:
        rows = rows_between(connection, head, head.size, min(size, head.size + AT_ONCE))
        connection.execute(update, [{"row": at["row"], "sum": at["sum"]} for at in _at_the_end(head, rows)])


def save(connection: sa.Connection, head: Head) -> None:
    """Writes the row of a conversation."""
    summary = head.summary
    row = {
        "size": head.size,
        "total": head.total,
        "edits": head.edits,
        "version": head.version,
        "summary": summary.text,
        "summary_upto": summary.summarized,
        "summary_kept": json.dumps(summary.kept_before),
        "summary_seal": summary.digest.hex(),
    }
    connection.execute(threads().update().where(threads().c.seq == head.seq).values(row))


def seal(connection: sa.Connection, head: Head, before: int, kept: Sequence[int]) -> bytes:
    """Returns a hash of the messages before a place, apart from `kept`; reads only the rows of these."""
    table, mine = messages(), messages().c.thread == head.seq
    total = _sum_before(connection, head, before)
    left = iter(sorted(set(kept)))
    while part := list(islice(left, AT_ONCE // 2)):
        wanted = mine & table.c.place.in_(part)
        for row in connection.execute(table.select().where(wanted)):
            total = added(total, -place_value(row.place, row.digest))
    return bytes.fromhex(total)


def holds(connection: sa.Connection, head: Head, summary: Summary) -> bool:
    """Returns whether nothing that a summary covers has changed."""
    if not summary.text:
        return True
    inside = summary.summarized <= head.size
    return inside and seal(connection, head, summary.summarized, summary.kept_before) == summary.digest


def unstored(
    connection: sa.Connection, head: Head, rows: Sequence[dict[str, Any]], same: Same
) -> Iterator[dict[str, Any]]:
    """Yields the rows that are new; one whose id is stored, and not the `same`, takes that one's place."""
    known = rows_named(connection, head, [row["name"] for row in rows if row["name"]])
    new: dict[str, dict[str, Any]] = {}
    edits: dict[int, dict[str, Any]] = {}
    for row in rows:
        stored = known.get(row["name"])
        if stored is not None:
            if not same(stored, row):
                edits[stored.place] = row
        elif row["name"] in new:
            new[row["name"]].update(row)
        else:
            if row["name"]:
                new[row["name"]] = row
            yield row
    left = sorted(edits, reverse=True)
    while left:  # each splice sums up all that is behind: one for those that are near each other
        start = stop = left[-1]
        while left and left[-1] < stop + AT_ONCE:
            stop = left.pop()
        between = rows_between(connection, head, start, stop + 1)
        splice(connection, head, start, stop + 1, [edits.get(row.place, row) for row in between])


def rows_named(connection: sa.Connection, head: Head, names: Sequence[str]) -> dict[str, Any]:
    """Returns the rows that have one of these names; of those without one, by their numbers."""
    known = dict[str, Any]()
    given = [name.removeprefix(NUMBERED) for name in names if name.startswith(NUMBERED)]
    numbers = [int(number) for number in given if number.isdecimal() and len(number) <= _DIGITS]
    for wanted, index, key in (
        (list[Any](filter(is_storable, names)), "name", "name IN :wanted"),
        (numbers, "", "seq IN :wanted AND name IS NULL"),
    ):
        table, mine = _by_index(connection, index), f"thread = :thread AND {key} AND place IS NOT NULL"
        chosen = sa.text(f"SELECT * FROM {table} WHERE {mine}")  # noqa: S608 - our own words
        chosen = chosen.bindparams(sa.bindparam("wanted", expanding=True))
        for start in range(0, len(wanted), AT_ONCE // 2):
            part = {"thread": head.seq, "wanted": wanted[start : start + AT_ONCE // 2]}
            known |= {row.name or f"{NUMBERED}{row.seq}": row for row in connection.execute(chosen, part)}
    return known


def _sum_before(connection: sa.Connection, head: Head, place: int) -> str:
    if place <= 0:
        return NO_SUM
    table = messages()
    at = (table.c.thread == head.seq) & (table.c.place == place - 1)
    return str(connection.execute(sa.select(table.c.total).where(at)).scalar() or NO_SUM)
