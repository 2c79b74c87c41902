"""When what must stay does not fit: shorten its long texts, largest first.

Only plain text is cut. System messages, tool arguments, thinking and media stay as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..compression.truncate import truncate_text
from ..counting.protocol import TokenCounter
from ..messages.codec import content_text
from .timeline import Timeline, Unit

__all__ = ["LEAST_TOKENS", "VERY_LEAST", "cap_units", "least_cost", "shortened"]

LEAST_TOKENS = 200
"""No text of an exchange that could be dropped is cut below this."""
VERY_LEAST = 16
"""No text at all is cut below this."""
_ROUNDS = 4


def cap_units(
    timeline: Timeline,
    units: Sequence[Unit],
    room: int,
    *,
    counter: TokenCounter,
    cuttable: Collection[int],
    floor: int,
) -> Mapping[int, int] | None:
    """Returns how many tokens each long text may keep, by position; None when `units` cannot fit.

    Args:
        timeline: the conversation.
        units: what has to stay.
        room: tokens for all of them.
        counter: counts and cuts the texts.
        cuttable: positions of the texts that may be cut.
        floor: tokens that every text keeps at the least.
    """
    sizes = {position: counter.count(_text(timeline, position)) for position in cuttable}
    sizes = {position: size for position, size in sizes.items() if size > floor}
    if not sizes:
        return None
    allowed = room - timeline.cost(units) + sum(sizes.values())
    for attempt in range(_ROUNDS + 1):
        level = floor if attempt == _ROUNDS else max(floor, _level(list(sizes.values()), allowed))
        caps = {position: level for position, size in sizes.items() if size > level}
        over = timeline.cost(units, shortened(timeline, caps, counter)) - room
        if over <= 0:
            return caps
        if level == floor:
            return None
        allowed -= over
    return None


def least_cost(
    timeline: Timeline, units: Sequence[Unit], *, counter: TokenCounter, cuttable: Collection[int]
) -> int:
    """Returns what units cost with each text at the positions `cuttable` as short as it may be."""
    long = [position for position in cuttable if counter.count(_text(timeline, position)) > VERY_LEAST]
    return timeline.cost(units, shortened(timeline, dict.fromkeys(long, VERY_LEAST), counter))


def shortened(timeline: Timeline, caps: Mapping[int, int], counter: TokenCounter) -> dict[int, Any]:
    """Returns copies of the messages at the positions of `caps` with at most so many tokens of text."""
    from ..compression.structured import compress_structured  # loaded only where a result is shortened

    made = {}
    for position, tokens in caps.items():
        text = _text(timeline, position)
        if timeline.role(position) == "tool":
            text = compress_structured(text, tokens, counter)
        else:
            text = truncate_text(text, tokens, counter, keep="both")
        made[position] = timeline.codec.with_text(timeline.messages[position], text)
    return made


def _level(sizes: list[int], allowed: int) -> int:
    """Returns the highest level at which texts of `sizes`, cut to it, add up to at most `allowed`."""
    left, count = allowed, len(sizes)
    for size in sorted(sizes):
        share = left // count
        if size > share:
            return share
        left -= size
        count -= 1
    return max(sizes)


def _text(timeline: Timeline, position: int) -> str:
    return content_text(timeline.codec.to_dict(timeline.messages[position]).get("content"))
