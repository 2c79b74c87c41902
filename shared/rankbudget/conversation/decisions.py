"""A decision for every message of a conversation; those on dropped ones are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ..messages.codec import PINNED_ROLES
from ..segment import Action, Decision, DecisionRange
from .timeline import Broken, Timeline

__all__ = ["decisions_on"]


def decisions_on(
    timeline: Timeline,
    block: str,
    chosen: list[int],
    broken: list[Broken],
    edits: Mapping[int, Any],
    written: tuple[int, int] | None,
) -> list[Decision | DecisionRange]:
    """Returns what was kept, shortened, repaired away and dropped, in this order.

    Args:
        timeline: the conversation.
        block: the block it is in.
        chosen: positions that stay, oldest first.
        broken: what no valid conversation may hold.
        edits: shortened copies by position.
        written: of a summary: how many kept messages come before it, and its tokens.
    """

    def decide(position: int, action: Action, reason: str) -> Decision:
        return _decision(timeline, block, edits, position, action, reason)

    def spread(size: int, find: Callable[[], Sequence[int]], action: Action, reason: str) -> DecisionRange:
        def expand() -> Iterator[Decision]:
            return (decide(i, action, reason) for i in find())

        return DecisionRange(block=block, action=action, reason=reason, size=size, expand=expand)

    def dropped(start: int, stop: int) -> list[int]:
        return sorted(set(range(start, stop)).difference(chosen, [position for position, _ in broken]))

    size = len(timeline.messages)
    parts: list[Decision | DecisionRange] = []
    whole = [i for i in chosen if i not in edits] if edits else chosen
    if written is not None:
        ahead = whole[: written[0]]  # only pinned messages come before a summary
        if ahead:
            parts.append(spread(len(ahead), lambda: ahead, "kept", "fits"))
            whole = whole[len(ahead) :]
        parts.append(_summary(block, size - len(chosen), written[1]))
    if whole:
        parts.append(spread(len(whole), lambda: whole, "kept", "fits"))
    parts += [decide(i, "truncated", "message_cap") for i in chosen if i in edits] if edits else []
    parts += [decide(position, "trimmed", reason) for position, reason in broken]
    roles = timeline.role
    first = next((i for i in chosen if roles(i) not in PINNED_ROLES), size)
    for start, stop, reason in ((0, first, "older_than_cut"), (first, size, "no_room")):
        held = sum([start <= i < stop for i in (*chosen, *(position for position, _ in broken))])
        if stop - start > held:
            found = partial(dropped, start, stop)
            parts.append(spread(stop - start - held, found, "trimmed", reason))
    return parts


def _decision(
    timeline: Timeline, block: str, edits: Mapping[int, Any], position: int, action: Action, reason: str
) -> Decision:
    message, measure = timeline.messages[position], timeline.measure
    before = after = measure.group([message])
    if action == "trimmed":
        after = 0
    elif position in edits:
        after = measure.group([edits[position]])
    elif timeline.role(position) in PINNED_ROLES:
        reason = "pinned"
    name = timeline.codec.message_id(message) or f"{block}-{position}"
    return Decision(segment_id=name, block=block, action=action, reason=reason, before=before, after=after)


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
