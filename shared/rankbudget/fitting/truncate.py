"""Truncate: keep a block's segments in order and cut inside the one that stands at the edge."""

from __future__ import annotations

from collections.abc import Sequence

from ..compression.truncate import Keep, truncate_text
from ..counting.protocol import TokenCounter
from ..segment import Rendition, Segment
from .protocol import Cost, Fit, Group, Piece, plain_cost, whole

__all__ = ["Truncate"]


class Truncate:
    """Keeps segments in order until the room ends and cuts the one at the edge.

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
        del block, query  # the order given is the rank
        price = cost or plain_cost(counter)
        pieces: list[Piece] = []
        room = limit
        for segment in segments:
            tokens = price(segment, segment.text)
            if tokens > room:
                piece = None if isinstance(segment, Group) else self._cut(segment, room, counter, price)
                pieces += [piece] if piece else []
                break
            pieces.append(whole(segment, tokens))
            room -= tokens
        # A short segment behind the edge might fit, so room is not what it lacks.
        reasons = {segment.id: ("no_room", "") for segment in segments[len(pieces) :]}
        used = sum([piece.rendition.tokens for piece in pieces])
        return Fit(pieces=tuple(pieces), tokens=used, reasons=reasons)

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
