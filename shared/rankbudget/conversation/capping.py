"""When what must stay does not fit: shorten its long plain texts, largest first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from ..compression.truncate import truncate_text
from .selection import Selection
from .timeline import Timeline, Unit

LEAST_TOKENS = 200
"""No text of an exchange that could be dropped is cut below this."""
VERY_LEAST = 16
"""No text at all is cut below this."""
_ROUNDS = 4
_MARKER = "..."


def with_rest(timeline: Timeline, found: Selection, room: int) -> Selection:
    """Returns a selection with the step of the last exchanges that came next, shortened to what is left.

    Where there is a summarizer, the step goes into the summary.
    """
    if timeline.thread.message_cap is None or timeline.thread.summarizer is not None:
        return found
    left, texts = room - found.tokens, [i for unit in found.rest for i in unit.positions()]
    caps = cap_units(timeline, found.rest, left, cuttable=texts, floor=LEAST_TOKENS)
    if caps is None:
        return found
    edits = shortened(timeline, caps)
    tokens = found.tokens + timeline.cost(found.rest, edits)
    return Selection([*found.units, *found.rest], tokens, edits=edits, caps=caps)


def cap_units(
    timeline: Timeline,
    units: Sequence[Unit],
    room: int,
    *,
    cuttable: Collection[int],
    floor: int,
) -> Mapping[int, int] | None:
    """Returns how many tokens each long text may keep, by position; None when `units` cannot fit the room.

    Only texts at the positions `cuttable` are cut, none of them below `floor` tokens.
    """
    sizes = {position: timeline.thread.counter.count(timeline.text(position)) for position in cuttable}
    sizes = {position: size for position, size in sizes.items() if size > floor}
    if not sizes:
        return None
    allowed = room - timeline.cost(units) + sum(sizes.values())
    attempt = 0
    while True:
        level = floor if attempt == _ROUNDS else max(floor, _level(list(sizes.values()), allowed))
        caps = {position: level for position, size in sizes.items() if size > level}
        over = timeline.cost(units, shortened(timeline, caps)) - room
        if over <= 0:
            return caps
        if level == floor:
            return None
        allowed -= over
        attempt += 1


def shortened(timeline: Timeline, caps: Mapping[int, int]) -> dict[int, Any]:
    """Returns copies of the messages at the positions of `caps` with at most so many tokens of text."""
    from ..compression.structured import compress_structured  # loaded only where a result is shortened

    made, counter = {}, timeline.thread.counter
    for position, tokens in caps.items():
        is_result = timeline.role(position) == "tool"
        cut: Callable[..., str] = compress_structured if is_result else partial(truncate_text, keep="both")
        texts = timeline.texts(position)
        text = "\n".join(texts)
        if counter.count(text) <= tokens:
            continue  # a session's question may be another one than the one that it shortened
        sizes = counter.count_many(texts)
        level = _level(sizes, tokens)
        # Each long block is cut by itself, so that a caption stays beside its image.
        if len(texts) > 1 and level >= VERY_LEAST:
            parts: Any = [
                t if n <= level else cut(t, level, counter) for t, n in zip(texts, sizes, strict=True)
            ]
        else:
            parts = _cut_once(timeline, (position, tokens, len(text)), text, cut)
        made[position] = timeline.codec.with_text(timeline.messages[position], parts)
    return made


def _cut_once(timeline: Timeline, key: tuple[int, int, int], text: str, cut: Callable[..., str]) -> str:
    """Returns a text cut to the tokens of its key; a session does not look for the same two ends again."""
    if key in timeline.ends:
        head, tail = timeline.ends[key]
        return text[:head] + _MARKER + text[len(text) - tail :]
    made = cut(text, key[1], timeline.thread.counter)
    head = made.find(_MARKER)
    while head >= 0 and text.startswith(made[:head]):
        rest = made[head + len(_MARKER) :]
        if text.endswith(rest):
            timeline.ends[key] = (head, len(rest))
            break
        head = made.find(_MARKER, head + 1)
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
