"""What a report says as plain text: totals, why a piece is in the prompt or not, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import counted
from ..segment import Decision

if TYPE_CHECKING:
    from .report import BudgetReport
    from .totals import BlockTotal

HEAD = ("block", "rank", "granted", "used", "usage", "kept", "shortened", "dropped")
HOLDS_AT_ANY_SIZE = frozenset(
    {
        *("orphan_result", "unanswered_call", "leading_assistant", "empty_message"),
        *("out_of_scope", "discarded", "older_than_last_turns"),
    }
)
"""Reasons to drop a piece that more room does not change."""
_SHORT_HISTORY = 100
_NEAR_LIMIT = 0.80
_STALE_TURNS = 10


# ---- totals --------------------------------------------------------------------------------------
def table(report: Mapping[str, Any]) -> str:
    """Returns one line for each block, then overhead, total and what else is known of plain data."""
    rows = [HEAD, *map(cells, report["blocks"])]
    if report["overhead"]:
        rows.append(("overhead", "", "", f"{report['overhead']:,}", "", "", "", ""))
    limit, used = report["limit"], report["total_tokens"]
    sums = {name: sum(block[name] for block in report["blocks"]) for name in HEAD[-3:]}
    usage = used / limit if limit > 0 else None
    rows.append(
        cells({"name": "total", "rank": "", "granted": limit, "used": used, "utilization": usage, **sums})
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *numbers in rows:
        right = [number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *right]).rstrip())
    return "\n".join([*lines, *facts(report), *(f"warning: {warning}" for warning in report["warnings"])])


def cells(block: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns one block as the columns of `HEAD`."""
    granted = "" if block["granted"] is None else f"{block['granted']:,}"
    usage = "" if block["utilization"] is None else f"{block['utilization']:.0%}"
    counts = [f"{block[name]:,}" for name in HEAD[-3:]]
    return (block["name"], str(block["rank"]), granted, f"{block['used']:,}", usage, *counts)


def facts(report: Mapping[str, Any]) -> list[str]:
    """Returns what the window is made of, what counted, and what the report covers, where they are known."""
    found = []
    if report["window"] is not None:
        rest = f"{report['reserve']:,} reserve + {report['safety']:,} safety"
        if report["capped"]:
            rest += f" + {report['capped']:,} that a smaller limit leaves free, as max_tokens"
        found.append(f"window {report['window']:,} = {report['limit']:,} for the prompt + {rest}")
    if report["counter"]:
        found.append(f"counted with {report['counter']}" + ("" if report["exact"] else " (estimated)"))
    covers = report["covers"]
    found.append("covers the whole prompt" if covers == "prompt" else f"covers the {covers} only")
    return found


def facts_of(report: BudgetReport) -> list[str]:
    """Returns the `facts` of a report; expands nothing."""
    names = ("window", "limit", "reserve", "safety", "capped", "counter", "exact", "covers")
    return facts({name: getattr(report, name) for name in names})


# ---- one decision --------------------------------------------------------------------------------
def explained(decision: Decision, *, block: BlockTotal, more: int | None) -> str:
    """Returns one decision as a sentence, with the figures of its block.

    `more` tokens bring the piece back; 0 if none do, None if unknown.
    """
    action, reason = decision.action, decision.reason
    if action == "kept":
        said = f"kept whole: {reason}, {counted(decision.after, 'token')}"
    elif action != "trimmed":
        said = f"{action}: {reason}, from {decision.before:,} to {counted(decision.after, 'token')}"
    else:
        said = f"dropped: {reason}. It has {counted(decision.before, 'token')}"
        holds = reason in HOLDS_AT_ANY_SIZE
        if not holds:
            tags = f" ({block.frame:,} of them for its tags)" if block.frame else ""
            if block.granted is not None and block.frame > block.granted:
                tags = f", its tags need {block.frame:,}"
            said += f"; the block was granted {block.granted:,}{tags} and uses {block.used:,}"
        if holds or more == 0:
            said += "; no budget would bring it back"
        elif more:
            said += f". {counted(more, 'more token')} for the prompt would bring it back"
    detail = f" {decision.detail}" if decision.detail else ""
    return f"{decision.segment_id} ({decision.block}) was {said}.{detail}"


# ---- warnings ------------------------------------------------------------------------------------
def warnings_for(
    *, window: int | None, system_tokens: int, system_limit: int | None, task_turns: int
) -> list[str]:
    """Returns what the decisions do not show: a system prompt near its limit, a stale task."""
    found = []
    if system_limit and system_tokens >= _NEAR_LIMIT * system_limit:
        of_window = f" of a window of {window:,}" if window else ""
        found.append(
            f"system has {system_tokens:,} of at most {system_limit:,} tokens{of_window}: near its limit"
        )
    if task_turns >= _STALE_TURNS:
        found.append(f"task has not changed for {task_turns} turns: it may be stale")
    return found


def warnings_of(blocks: Sequence[BlockTotal]) -> Iterator[str]:
    """Yields what the figures show: dropped segments, a history cut to a little, empty knowledge."""
    short = [block for block in blocks if block.dropped]
    if short:
        dropped, total = sum(block.dropped for block in short), sum(block.size for block in blocks)
        each = ", ".join(f"{block.name} {block.dropped:,} of {block.size:,}" for block in short)
        yield f"dropped {dropped:,} of {counted(total, 'segment')}: {each}"
    for block in blocks:
        if block.name == "history" and block.dropped_for_room and block.used < _SHORT_HISTORY:
            yield f"history was cut to {counted(block.used, 'token')}: context may be lost"
        elif block.name == "knowledge" and block.used == 0 and block.size:
            granted = (
                f"{counted(block.granted or 0, 'token')} it was granted, {block.frame:,} of them for its tags"
            )
            yield f"knowledge is empty: none of {counted(block.size, 'segment')} fits the {granted}"
        elif block.name == "knowledge" and block.used == 0:
            yield "knowledge is empty: retrieval may have failed"
