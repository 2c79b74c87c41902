"""What became of every message of a conversation, said lazily: ten thousand dropped messages are one range until somebody looks."""

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
        block: the block it stands in.
        chosen: positions that stay, oldest first.
        broken: what no valid conversation may hold.
        edits: shortened copies by position.
        written: of a summary in the place of what went: how many kept messages stand before it, and its
            tokens as it stands.
    """
    messages = timeline.messages
    parts: list[Decision | DecisionRange] = []

    def decide(position: int, action: Action, reason: str) -> Decision:
        before = timeline.measure.group([messages[position]])
        edited = edits.get(position)
        after = (
            0 if action == "trimmed" else timeline.measure.group([edited]) if edited is not None else before
        )
        name = timeline.codec.message_id(messages[position]) or f"{block}-{position}"
        return Decision(
            segment_id=name, block=block, action=action, reason=reason, before=before, after=after
        )

    def spread(positions: Sequence[int], action: Action, reason: str) -> DecisionRange:
        def expand() -> Iterator[Decision]:
            for i in positions:
                yield decide(
                    i, action, "pinned" if action == "kept" and timeline.role(i) in PINNED_ROLES else reason
                )

        return DecisionRange(block=block, action=action, reason=reason, size=len(positions), expand=expand)

    shortened = [i for i in chosen if i in edits] if edits else []
    whole = [i for i in chosen if i not in edits] if shortened else chosen
    if written is not None:
        ahead, tokens = written  # only pinned messages stand before a summary, and those are never shortened
        if ahead:
            parts.append(spread(whole[:ahead], "kept", "fits"))
            whole = whole[ahead:]
        parts.append(_summary(block, len(messages) - len(chosen), tokens))
    if whole:
        parts.append(spread(whole, "kept", "fits"))
    parts += [decide(i, "truncated", "message_cap") for i in shortened]
    parts += [decide(b.position, "trimmed", b.reason) for b in broken]
    gone = len(messages) - len(chosen) - len(broken)
    if gone > 0:
        parts.append(_gone(len(messages), chosen, broken, gone, block, decide))
    return parts


def _summary(block: str, replaced: int, tokens: int) -> Decision:
    detail = f"It stands for {replaced:,} message{'' if replaced == 1 else 's'} that went."
    return Decision(
        segment_id=f"{block}-summary",
        block=block,
        action="summarized",
        reason="summary_of_dropped",
        before=0,
        after=tokens,
        detail=detail,
    )


def _gone(
    size: int,
    chosen: list[int],
    broken: list[Broken],
    gone: int,
    block: str,
    decide: Callable[[int, Action, str], Decision],
) -> DecisionRange:
    def expand() -> Iterator[Decision]:
        rest = set(range(size)).difference(chosen, (b.position for b in broken))
        return (decide(i, "trimmed", "older_than_cut") for i in sorted(rest))

    return DecisionRange(block=block, action="trimmed", reason="older_than_cut", size=gone, expand=expand)
