"""Truncate: keep a block's segments in order and cut inside the one that stands at the edge."""

from __future__ import annotations

from collections.abc import Sequence

from .cut import Keep, truncate_text
from ..counting.protocol import TokenCounter
from ..errors import BudgetExceededError
from ..segment import Decision, Rendition, Segment
from ..fitting.protocol import Cost, Fit, Piece, plain_cost

__all__ = ["Keep", "Truncate", "truncate_text"]


class Truncate:
    """Keeps segments in order until the room ends and cuts the one at the edge; for the project and task blocks.

    Pinned segments are placed first. A segment of a group of several is never cut, because groups live or die together.

    Args:
        ellipsis: the marker that stands for what is cut.
        keep: which part of a cut segment stays.
    """

    def __init__(self, *, ellipsis: str = "...", keep: Keep = "start") -> None:
        self._ellipsis = ellipsis
        self._keep: Keep = keep

    def fit(
        self,
        segments: Sequence[Segment],
        *,
        limit: int,
        counter: TokenCounter,
        block: str,
        query: str = "",
        cost: Cost | None = None,
    ) -> Fit:
        """Returns the leading segments that cost at most `limit`, the last one cut."""
        del query  # the order given is the order of importance
        price = cost or plain_cost(counter)
        costs = [price(segment, segment.text) for segment in segments]
        groups = _groups(segments)
        pinned = {key for key, members in groups.items() if any(segments[i].pinned for i in members)}
        needed = sum(costs[i] for key in pinned for i in groups[key])
        if needed > limit:
            msg = (
                f"pinned segments of block {block!r} need {needed} tokens, allowed: {limit}; "
                f"give the block {needed - limit} more or unpin {[s.id for s in segments if s.pinned]!r}"
            )
            raise BudgetExceededError(msg, limit=limit, needed=needed, blocks={block: needed})
        kept: dict[int, Piece] = {i: _whole(segments[i], costs[i]) for key in pinned for i in groups[key]}
        room = limit - needed
        for key, members in groups.items():
            if key in pinned:
                continue
            wanted = sum(costs[i] for i in members)
            if wanted <= room:
                kept.update({i: _whole(segments[i], costs[i]) for i in members})
                room -= wanted
                continue
            piece = self._cut(segments[members[0]], room, counter, price) if len(members) == 1 else None
            if piece:
                kept[members[0]] = piece
            break
        pieces = tuple(kept[i] for i in sorted(kept))
        decisions = tuple(
            _decision(segment, kept.get(i), costs[i], block) for i, segment in enumerate(segments)
        )
        return Fit(pieces=pieces, tokens=sum(p.rendition.tokens for p in pieces), decisions=decisions)

    def _cut(self, segment: Segment, room: int, counter: TokenCounter, price: Cost) -> Piece | None:
        limit = room - price(segment, "")
        while limit > 0:
            text = truncate_text(segment.text, limit, counter, ellipsis=self._ellipsis, keep=self._keep)
            if not text or text == self._ellipsis:
                return None
            tokens = price(segment, text)
            if tokens <= room:
                return Piece(segment, Rendition(kind="truncated", text=text, tokens=tokens))
            limit -= max(tokens - room, 1)
        return None


def _groups(segments: Sequence[Segment]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for i, segment in enumerate(segments):
        groups.setdefault(f"group {segment.group}" if segment.group else f"segment {i}", []).append(i)
    return groups


def _whole(segment: Segment, tokens: int) -> Piece:
    return Piece(segment, Rendition(kind="whole", text=segment.text, tokens=tokens))


def _decision(segment: Segment, piece: Piece | None, before: int, block: str) -> Decision:
    if piece is None:
        return Decision(
            segment_id=segment.id, block=block, action="trimmed", reason="no_room", before=before, after=0
        )
    if piece.whole:
        reason = "pinned" if segment.pinned else "fits"
        return Decision(
            segment_id=segment.id, block=block, action="kept", reason=reason, before=before, after=before
        )
    after = piece.rendition.tokens
    detail = f"Cut from {before} to {after} tokens at the edge of the room."
    return Decision(
        segment_id=segment.id,
        block=block,
        action="truncated",
        reason="no_room",
        before=before,
        after=after,
        detail=detail,
    )
