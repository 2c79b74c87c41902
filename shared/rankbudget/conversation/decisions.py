"""A decision for every message of a conversation, made lazily: ten thousand dropped messages are one range until somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..messages.codec import PINNED_ROLES
from ..segment import Action, Decision, DecisionRange
from .timeline import NO_EDITS, Broken, Timeline

__all__ = ["decisions_on"]


def decisions_on(
    timeline: Timeline,
    block: str,
    chosen: list[int],
    broken: list[Broken],
    edits: Mapping[int, Any] = NO_EDITS,
    *,
    written: tuple[int, int] | None = None,
) -> list[Decision | DecisionRange]:
    """Returns what was kept, shortened, repaired away and dropped, in this order.

    Args:
        timeline: the conversation.
        block: the block it is in.
        chosen: positions that stay, oldest first.
        broken: what no valid conversation may hold.
        edits: shortened copies by position.
        written: of the summary: how many kept messages come before it, and its tokens.
    """
    messages, measure = timeline.messages, timeline.measure
    size = len(messages)

    def decide(position: int, action: Action, reason: str) -> Decision:
        before = after = measure.group([messages[position]])
        if action == "trimmed":
            after = 0
        elif position in edits:
            after = measure.group([edits[position]])
        elif timeline.role(position) in PINNED_ROLES:
            reason = "pinned"
        name = timeline.codec.message_id(messages[position]) or f"{block}-{position}"
        return Decision(
            segment_id=name, block=block, action=action, reason=reason, before=before, after=after
        )

    def spread(
        count: int, positions: Callable[[], Sequence[int]], action: Action, reason: str
    ) -> DecisionRange:
        def expand() -> Iterator[Decision]:
            return (decide(i, action, reason) for i in positions())

        return DecisionRange(block=block, action=action, reason=reason, size=count, expand=expand)

    parts: list[Decision | DecisionRange] = []
    whole = [i for i in chosen if i not in edits] if edits else chosen
    if written is not None:
        ahead = whole[
            : written[0]
        ]  # only pinned messages come before a summary, and those are never shortened
        if ahead:
            parts.append(spread(len(ahead), lambda: ahead, "kept", "fits"))
            whole = whole[len(ahead) :]
        parts.append(_summary(block, size - len(chosen), written[1]))
    if whole:
        parts.append(spread(len(whole), lambda: whole, "kept", "fits"))
    if edits:
        parts += [decide(i, "truncated", "message_cap") for i in chosen if i in edits]
    parts += [decide(position, "trimmed", reason) for position, reason in broken]
    dropped = size - len(chosen) - len(broken)
    if dropped > 0:

        def rest() -> list[int]:
            return sorted(set(range(size)).difference(chosen, [position for position, _ in broken]))

        parts.append(spread(dropped, rest, "trimmed", "older_than_cut"))
    return parts


def _summary(block: str, replaced: int, tokens: int) -> Decision:
    return Decision(
        segment_id=f"{block}-summary",
        block=block,
        action="summarized",
        reason="summary_of_dropped",
        before=0,
        after=tokens,
        detail=f"It replaces {replaced:,} dropped message{'' if replaced == 1 else 's'}.",
    )
