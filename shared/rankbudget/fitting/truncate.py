"""Truncate: keep a block's segments in order and cut inside the one that stands at the edge."""

from __future__ import annotations

from collections.abc import Sequence

from ..compression.truncate import truncate_text
from ..counting.protocol import TokenCounter
from ..segment import Rendition, Segment
from .protocol import Cost, Fit, Group, Piece, plain_cost, whole

MOST_TRIES = 64
"""Limits that are tried for the shortest start of a text."""
NEAR = 8
"""Tokens above the best limit of a cut that are tried, too: as tokens merge, a longer cut may cost less."""
_ELLIPSIS = "..."


class Truncate:
    """Keeps segments in order until the room ends and cuts the one at the edge."""

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
                piece = _cut(segment, room, counter, price)
                pieces += [piece] if piece else []
                break
            pieces.append(whole(segment, tokens))
            room -= tokens
        kept = len(pieces)
        return Fit(
            pieces=tuple(pieces),
            tokens=sum([piece.rendition.tokens for piece in pieces]),
            # A short segment behind the edge might fit, so room is not what it lacks.
            reasons={segment.id: ("no_room", "") for segment in segments[kept:]},
            needed=lambda: _needed(segments, kept, counter, price),
        )


def _needed(segments: Sequence[Segment], kept: int, counter: TokenCounter, price: Cost) -> dict[str, int]:
    """Returns the smallest limit that keeps the start of each segment behind the first `kept`."""
    found: dict[str, int] = {}
    used = 0
    for i, segment in enumerate(segments):
        tokens = price(segment, segment.text)
        if i >= kept:
            first = price(segment, "") + 1
            tries = range(first, min(tokens, first + MOST_TRIES))
            shortest = (room for room in tries if _cut(segment, room, counter, price))
            found[segment.id] = used + next(shortest, tokens)
        used += tokens
    return found


def _cut(segment: Segment, room: int, counter: TokenCounter, price: Cost) -> Piece | None:
    """Returns the longest start of a segment that costs at most `room`."""

    def start(most: int) -> Piece | None:
        text = truncate_text(segment.text, most, counter, ellipsis=_ELLIPSIS)
        tokens = price(segment, text)
        if not text or text == _ELLIPSIS or tokens > room:
            return None
        return Piece(segment, Rendition(kind="truncated", text=text, tokens=tokens))

    most = room - price(segment, "")
    if isinstance(segment, Group) or most <= 0:
        return None
    low, high = 0, most + 1  # an escaped text may cost several times what its words count
    piece = start(most)
    while piece is None and high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if start(middle) else (low, middle)
    for tokens in range(min(most, low + NEAR), max(0, low - 1), -1):
        piece = piece or start(tokens)
    return piece
