"""Truncate: keep a block's segments in order and cut inside the one that stands at the edge."""

from __future__ import annotations

from collections.abc import Sequence

from ..compression.truncate import Keep, truncate_text
from ..counting.protocol import TokenCounter
from ..segment import Rendition, Segment
from .protocol import Cost, Fit, Group, Piece, plain_cost, whole

__all__ = ["Truncate"]

MOST_TRIES = 64
"""Limits that are tried for the shortest start of a text."""
NEAR = 8
"""Tokens above the best limit of a cut that are tried, too: as tokens merge, a longer cut may cost less."""


class Truncate:
    """Keeps segments in order until the room ends and cuts the one at the edge.

    Args:
        ellipsis: the marker that replaces what is cut.
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
                piece = self._cut(segment, room, counter, price)
                pieces += [piece] if piece else []
                break
            pieces.append(whole(segment, tokens))
            room -= tokens
        rest = segments[len(pieces) :]
        used = sum([piece.rendition.tokens for piece in pieces])
        return Fit(
            pieces=tuple(pieces),
            tokens=used,
            # A short segment behind the edge might fit, so room is not what it lacks.
            reasons={segment.id: ("no_room", "") for segment in rest},
            needed=lambda: self._needed(segments, len(pieces), counter, price),
        )

    def _needed(
        self, segments: Sequence[Segment], kept: int, counter: TokenCounter, price: Cost
    ) -> dict[str, int]:
        """Returns the smallest limit that keeps the start of each segment behind the first `kept`."""
        found: dict[str, int] = {}
        used = 0
        for i, segment in enumerate(segments):
            tokens = price(segment, segment.text)
            if i >= kept:
                first = price(segment, "") + 1
                tries = range(first, min(tokens, first + MOST_TRIES))
                shortest = (room for room in tries if self._cut(segment, room, counter, price))
                found[segment.id] = used + next(shortest, tokens)
            used += tokens
        return found

    def _cut(self, segment: Segment, room: int, counter: TokenCounter, price: Cost) -> Piece | None:
        """Returns the longest start of a segment that costs at most `room`."""
        most = room - price(segment, "")
        if isinstance(segment, Group) or most <= 0:
            return None
        low, high = 0, most + 1  # an escaped text may cost several times what its words count
        piece = self._start(segment, most, room, counter, price)
        while piece is None and high - low > 1:
            middle = (low + high) // 2
            if self._start(segment, middle, room, counter, price):
                low = middle
            else:
                high = middle
        for tokens in range(min(most, low + NEAR), max(0, low - 1), -1):
            piece = piece or self._start(segment, tokens, room, counter, price)
        return piece

    def _start(
        self, segment: Segment, most: int, room: int, counter: TokenCounter, price: Cost
    ) -> Piece | None:
        text = truncate_text(segment.text, most, counter, ellipsis=self._ellipsis, keep=self._keep)
        if not text or text == self._ellipsis:
            return None
        tokens = price(segment, text)
        if tokens > room:
            return None
        return Piece(segment, Rendition(kind="truncated", text=text, tokens=tokens))
