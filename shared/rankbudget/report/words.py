"""What a report says in words: why a piece is in the prompt or not, and what looks wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..segment import Decision

if TYPE_CHECKING:
    from .report import BlockTotal

__all__ = ["HOLDS_AT_ANY_SIZE", "explained", "warnings_for", "warnings_of"]

HOLDS_AT_ANY_SIZE = frozenset(
    {"orphan_result", "unanswered_call", "leading_assistant", "out_of_scope", "discarded"}
)
"""Reasons to drop a piece that more room does not change."""
_SHORT_HISTORY = 100
_NEAR_LIMIT = 0.80
_STALE_TURNS = 10


def explained(decision: Decision, *, granted: int, used: int, more: int | None) -> str:
    """Returns one decision as a sentence.

    Args:
        decision: what became of a piece.
        granted: tokens its block may have.
        used: tokens it has.
        more: tokens more that bring the piece back; 0 if none do, None if unknown.
    """
    name, reason = f"{decision.segment_id} ({decision.block})", decision.reason
    detail = f" {decision.detail}" if decision.detail else ""
    if decision.action == "kept":
        return f"{name} was kept whole: {reason}, {decision.after:,} tokens.{detail}"
    if decision.action != "trimmed":
        sizes = f"from {decision.before:,} to {decision.after:,} tokens"
        return f"{name} was {decision.action}: {reason}, {sizes}.{detail}"
    dropped = f"{name} was dropped: {reason}. It has {decision.before:,} tokens"
    if reason in HOLDS_AT_ANY_SIZE:
        return f"{dropped}; no budget would bring it back.{detail}"
    dropped = f"{dropped}; the block was granted {granted:,} and uses {used:,}"
    if more is None:
        return f"{dropped}.{detail}"
    if not more:
        return f"{dropped}; no budget would bring it back.{detail}"
    return f"{dropped}. {more:,} more tokens for the prompt would bring it back.{detail}"


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
    """Yields what the figures show: dropped segments, a history of which little is left, empty knowledge."""
    short = [block for block in blocks if block.dropped]
    if short:
        dropped, total = sum(block.dropped for block in short), sum(block.size for block in blocks)
        each = ", ".join(f"{block.name} {block.dropped:,} of {block.size:,}" for block in short)
        yield f"dropped {dropped:,} of {total:,} segments: {each}"
    for block in blocks:
        if block.name == "history" and block.dropped and block.used < _SHORT_HISTORY:
            yield f"history has only {block.used} tokens left: context may be lost"
        elif block.name == "knowledge" and block.used == 0 and block.size:
            granted = f"{block.granted or 0:,} tokens it was granted"
            yield f"knowledge is empty: none of {block.size:,} segments fits the {granted}"
        elif block.name == "knowledge" and block.used == 0:
            yield "knowledge is empty: retrieval may have failed"
