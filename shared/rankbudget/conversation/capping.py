"""When not even the last exchanges fit: shorten their long texts, largest first, before giving up an exchange.

Only plain text is cut. Pinned messages, tool arguments, thinking and media stay as they are; the current question only when it cannot stay whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..budget.validation import LEAST_MESSAGE_CAP
from ..messages.codec import content_text
from ..counting.protocol import TokenCounter
from .timeline import Timeline, Unit

__all__ = ["LEAST_TOKENS", "cap_units"]

LEAST_TOKENS = LEAST_MESSAGE_CAP
"""No text is capped below this; budgets and calls refuse a smaller `message_cap`."""
_ROUNDS = 4


@dataclass(slots=True)
class _Text:
    position: int
    text: str
    tokens: int
    structured: bool


def cap_units(
    timeline: Timeline,
    units: Sequence[Unit],
    room: int,
    *,
    counter: TokenCounter,
    message_cap: int,
    spared: int | None,
) -> dict[int, Any] | None:
    """Returns shortened copies by position so that `units` cost at most `room` tokens; None when that cannot be.

    Args:
        timeline: where the units stand.
        units: what has to stay.
        room: tokens for all of them.
        counter: counts and cuts the texts.
        message_cap: most tokens a text keeps once capping is needed.
        spared: position of a message that is not to be cut: the current question, while it can stay whole.
    """
    texts = [t for t in _long_texts(timeline, units, counter) if t.position != spared]
    return _cap(timeline, units, texts, room, counter, message_cap)


def _cap(
    timeline: Timeline,
    units: Sequence[Unit],
    texts: list[_Text],
    room: int,
    counter: TokenCounter,
    message_cap: int,
) -> dict[int, Any] | None:
    if not texts:
        return None
    price = sum(timeline.tokens_of(u) for u in units)
    fixed = price - sum(t.tokens for t in texts)
    slack = 0
    for _ in range(_ROUNDS):
        level = _level([t.tokens for t in texts], room - fixed - slack, message_cap)
        if level is None:
            return None
        edits = {
            t.position: timeline.codec.with_text(timeline.messages[t.position], _shorten(t, level, counter))
            for t in texts
            if t.tokens > level
        }
        over = _price(timeline, units, edits) - room
        if over <= 0:
            return edits
        slack += over
    return None


def _level(sizes: list[int], allowed: int, message_cap: int) -> int | None:
    """Returns the highest water level at which `sizes` add up to at most `allowed`."""
    left, count = allowed, len(sizes)
    for size in sorted(sizes):
        share = left // count
        if size > share:
            return min(share, message_cap) if share >= LEAST_TOKENS else None
        left -= size
        count -= 1
    return message_cap


def _price(timeline: Timeline, units: Sequence[Unit], edits: dict[int, Any]) -> int:
    before = timeline.edits
    timeline.edits = {**before, **edits}
    try:
        return sum(timeline.measure.group(timeline.read(unit)) for unit in units)
    finally:
        timeline.edits = before


def _long_texts(timeline: Timeline, units: Sequence[Unit], counter: TokenCounter) -> list[_Text]:
    found = []
    for unit in units:
        for position in unit.positions():
            message = timeline.edits.get(position, timeline.messages[position])
            text = content_text(timeline.codec.to_dict(message).get("content"))
            tokens = counter.count(text)
            if tokens > LEAST_TOKENS:
                found.append(_Text(position, text, tokens, timeline.role(position) == "tool"))
    return found


def _shorten(text: _Text, max_tokens: int, counter: TokenCounter) -> str:
    from ..compression.structured import compress_structured
    from ..compression.truncate import truncate_text

    if text.structured:
        return compress_structured(text.text, max_tokens, counter)
    return truncate_text(text.text, max_tokens, counter, keep="both")
