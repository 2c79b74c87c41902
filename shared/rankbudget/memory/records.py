"""The figures of turns, stored and read again: what each block used over time, without a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from ..report.report import BudgetReport
from ..segment import Scope
from .database import Database
from .history_tables import reports
from .tables import owned_by, seconds

_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFigures:
    """What `HistoryStore.record` stored of one turn.

    Args:
        at: when it was stored.
        scope: whose turn it was.
        thread_id: the conversation it belongs to, "" for none.
        report: totals, blocks and limits; it has no decisions and no warnings.
    """

    at: datetime
    scope: Scope
    thread_id: str
    report: BudgetReport


def record(database: Database, report: BudgetReport, scope: Scope, thread_id: str) -> None:
    """Stores the figures of a report; decisions and warnings, which may name texts, stay out."""
    figures = {**report.to_dict(decisions=False), "warnings": []}
    row = {
        **owned_by(scope),
        "thread": thread_id,
        "at": seconds(datetime.now(timezone.utc)),
        "figures": json.dumps(figures),
    }
    with database.write() as connection:
        connection.execute(reports().insert(), row)


def recorded(
    database: Database, scope: Scope, thread_id: str | None, since: datetime | None
) -> Iterator[TurnFigures]:
    """Yields what was stored for a scope, the oldest first, some at a time."""
    table, owned = reports(), owned_by(scope)
    wanted = (table.c.owner == owned["owner"]) & (table.c.project == owned["project"])
    if thread_id is not None:
        wanted &= table.c.thread == thread_id
    if since is not None:
        wanted &= table.c.at >= seconds(since)
    last = 0
    while True:
        part = table.select().where(wanted & (table.c.seq > last)).order_by(table.c.seq).limit(_AT_ONCE)
        with database.read() as connection:
            rows = connection.execute(part).all()
        for row in rows:
            at, figures = datetime.fromtimestamp(row.at, timezone.utc), json.loads(row.figures)
            report = BudgetReport.from_dict(figures)
            yield TurnFigures(at=at, scope=scope, thread_id=row.thread, report=report)
        if len(rows) < _AT_ONCE:
            return
        last = rows[-1].seq
