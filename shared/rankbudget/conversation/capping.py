"""When not even the last exchanges fit: shorten their long texts, largest first, before giving up an exchange.

Only plain text is cut. System messages, tool arguments, thinking and media stay as they are; the current
question is cut only when it cannot stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..counting.protocol import TokenCounter
from ..messages.codec import content_text
from .timeline import Timeline, Unit

__all__ = ["LEAST_TOKENS", "cap_units", "shortened"]

LEAST_TOKENS = 200
"""No text of an exchange that could be dropped is cut below this; budgets and calls refuse a smaller `message_cap`."""
_VERY_LEAST = 16
"""No text at all is cut below this."""
_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class _Text:
    position: int
    text: str
    tokens: int


def cap_units(
    timeline: Timeline,
    units: Sequence[Unit],
    room: int,
    *,
    counter: TokenCounter,
    spared: int | None,
    last: bool = False,
) -> Mapping[int, int] | None:
    """Returns how many tokens each long text may keep, by position, so that `units` cost at most `room`; None when impossible.

    Args:
        timeline: the conversation.
        units: what has to stay.
        room: tokens for all of them.
        counter: counts and cuts the texts.
        spared: position of a message that is not to be cut: the current question, while it can stay whole.
        last: nothing less than `units` can be kept, so texts may become shorter than `LEAST_TOKENS`.
    """
    floor = _VERY_LEAST if last else LEAST_TOKENS
    texts = [t for t in _texts(timeline, units, counter) if t.position != spared and t.tokens > floor]
    if not texts:
        return None
    fixed = timeline.cost(units) - sum(t.tokens for t in texts)
    slack = 0
    for _ in range(_ROUNDS):
        level = _level([t.tokens for t in texts], room - fixed - slack, floor)
        if level is None:
            return None
        caps = {t.position: level for t in texts if t.tokens > level}
        over = timeline.cost(units, shortened(timeline, caps, counter)) - room
        if over <= 0:
            return caps
        slack += over
    return None


def shortened(timeline: Timeline, caps: Mapping[int, int], counter: TokenCounter) -> dict[int, Any]:
    """Returns copies of the messages at the positions of `caps` with at most so many tokens of text."""
    return {
        position: timeline.codec.with_text(
            timeline.messages[position], _shorten(timeline, position, tokens, counter)
        )
        for position, tokens in caps.items()
    }


def _level(sizes: list[int], allowed: int, floor: int) -> int | None:
    """Returns the highest level at which texts of `sizes`, cut to it, add up to at most `allowed`; None when it is below `floor`."""
    left, count = allowed, len(sizes)
    for size in sorted(sizes):
        share = left // count
        if size > share:
            return share if share >= floor else None
        left -= size
        count -= 1
    return max(sizes)


def _texts(timeline: Timeline, units: Sequence[Unit], counter: TokenCounter) -> list[_Text]:
    found = []
    for unit in units:
        for position in unit.positions():
            text = _text(timeline, position)
            found.append(_Text(position, text, counter.count(text)))
    return found


def _text(timeline: Timeline, position: int) -> str:
    return content_text(timeline.codec.to_dict(timeline.messages[position]).get("content"))


def _shorten(timeline: Timeline, position: int, max_tokens: int, counter: TokenCounter) -> str:
    from ..compression.structured import compress_structured
    from ..compression.truncate import truncate_text

    text = _text(timeline, position)
    if timeline.role(position) == "tool":
        return compress_structured(text, max_tokens, counter)
    return truncate_text(text, max_tokens, counter, keep="both")
