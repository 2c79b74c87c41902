"""When what must stay does not fit: shorten its long plain texts, largest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Any

from .timeline import NO_EDITS, Timeline
from .units import Unit

LEAST_TOKENS = 200
"""No text of an exchange that could be dropped is cut below this."""
VERY_LEAST = 16
"""No text at all is cut below this."""
_ROUNDS = 4
_ESCAPED = 1.02
"""A text that costs so many times its tokens is counted inside JSON."""


def cuttable(timeline: Timeline, units: Sequence[Unit], *, last: bool) -> list[list[int]]:
    """Returns positions of the texts that may be shortened; the first choice spares the current question."""
    asked = None if timeline.ended else timeline.asked
    positions = [] if timeline.thread.message_cap is None else [i for unit in units for i in unit.positions()]
    others = [i for i in positions if i != asked]
    if last and asked is not None and timeline.thread.shorten_question:
        return [others, [asked, *others]]
    return [others]


def cap_units(
    timeline: Timeline, units: Sequence[Unit], room: int, *, at: Mapping[int, int]
) -> Mapping[int, int] | None:
    """Returns how many tokens each long text may keep, by position; None when `units` cannot fit the room.

    Only texts `at` these positions are cut, none of them below the tokens that are given for it.
    """
    long = {i: sizes for i in at if max(sizes := timeline.sizes(i), default=0) > at[i]}
    if not long:
        return None
    floor = min([at[position] for position in long])
    allowed = _allowed(timeline, units, room, long)
    attempt = 0
    while True:
        level = floor if attempt == _ROUNDS else max(floor, _level(long, at, allowed))
        levels = {position: max(level, at[position]) for position in long}
        caps = {position: level for position, level in levels.items() if max(long[position]) > level}
        over = timeline.cost(units, shortened(timeline, caps)) - room
        if over <= 0:
            return caps
        if level == floor:
            return None
        allowed -= over
        attempt += 1


def _level(long: Mapping[int, Sequence[int]], at: Mapping[int, int], allowed: int) -> int:
    """Returns the fair level of the texts that may be cut to it, beside those that may not."""
    level = fair_level(list(chain(*long.values())), allowed)
    held = [min(size, at[i]) for i, sizes in long.items() for size in sizes if at[i] > level]
    free = [size for i, sizes in long.items() for size in sizes if at[i] <= level]
    return fair_level(free, allowed - sum(held)) if held and free else level


def _allowed(timeline: Timeline, units: Sequence[Unit], room: int, long: Mapping[int, Sequence[int]]) -> int:
    """Returns how many tokens the texts of these sizes may have together beside all else in the room."""
    whole, texts = timeline.cost(units), sum(chain(*long.values()))
    emptied = {i: timeline.codec.with_text(timeline.messages[i], "") for i in long}
    rest = timeline.cost(units, emptied)
    if whole - rest <= _ESCAPED * texts:
        return room - whole + texts
    return int((room - rest) * texts / (whole - rest))  # inside JSON, line breaks and quotes cost more


def shortened(
    timeline: Timeline, caps: Mapping[int, int], asked_at: Mapping[int, tuple[int, ...]] = NO_EDITS
) -> dict[int, Any]:
    """Returns copies of the messages at the positions of `caps` with at most so many tokens in each part.

    Results of one step that are capped alike share their room: what the question names has what it needs.
    A text is shortened for the questions that are `asked_at` other positions, by its own position; where
    that says nothing, for the current one. One that has room for all is the message itself.
    """
    from ..compression.structured import remembered_cut  # loaded only where a text is shortened

    made, counter, now = {}, timeline.thread.counter, asked_now(timeline)
    for group in _steps(timeline, caps):
        parts = [(i, part) for i in group for part in timeline.parts(i)]
        sizes = [size for i in group for size in timeline.sizes(i)]
        asked = {i: _asked_about(timeline, i, timeline.text(i), asked_at.get(i, now)) for i in group}
        rooms = _rooms([part for _, part in parts], sizes, caps[group[0]], asked[group[0]] or "")
        texts, changed = dict[int, list[str]]({i: [] for i in group}), set[int]()
        for (i, part), size, room in zip(parts, sizes, rooms, strict=True):
            held = counter.count_many(part)
            levels = _levels(part, held, room, asked[i] or "") if size > room else held
            # Each block is cut by itself: a caption stays beside its image.
            cut = partial(remembered_cut, counter=counter, question=asked[i])
            cuts = [t if n <= most else cut(t, most) for t, n, most in zip(part, held, levels, strict=True)]
            texts[i] += cuts
            changed.update([i] if cuts != list(part) else [])
        made.update({i: timeline.codec.with_text(timeline.messages[i], texts[i]) for i in changed})
        made.update({i: timeline.messages[i] for i in group if i not in changed})
    return made


def _steps(timeline: Timeline, caps: Mapping[int, int]) -> Iterable[list[int]]:
    """Returns where texts are too long, those of the results of one step together if capped alike."""
    # A session's question may be another one than the one that it shortened.
    long = [i for i in sorted(caps) if timeline.is_longer(i, caps[i])]
    found: dict[tuple[int, int], list[int]] = {}
    start = -1
    for before, i in pairwise([-1, *long]):
        if before < 0 or any(timeline.role(k) != "tool" for k in range(before, i + 1)):
            start = i
        found.setdefault((start, caps[i]), []).append(i)
    return found.values()


def _rooms(parts: Sequence[Sequence[str]], sizes: Sequence[int], tokens: int, asked: str) -> list[int]:
    """Returns how many tokens each of several parts may have, so many on average.

    What the question names has what it needs, the others as many as each other.
    """
    rest = [n for n, size in enumerate(sizes) if size > tokens]
    if len(rest) < 2 or not asked:  # noqa: PLR2004
        return [tokens] * len(parts)
    from ..compression.importance import saying, words_of

    rooms, left = [tokens] * len(parts), tokens * len(rest)
    for n in [rest[k] for k in saying(["\n".join(parts[n]) for n in rest], words_of(asked))]:
        most = left - VERY_LEAST * (len(rest) - 1)
        if most > tokens and len(rest) > 1:
            rooms[n] = min(sizes[n], most)
            left -= rooms[n]
            rest.remove(n)
    level = fair_level([sizes[n] for n in rest], left)
    return [level if n in rest else room for n, room in enumerate(rooms)]


def _levels(texts: Sequence[str], sizes: Sequence[int], tokens: int, asked: str) -> list[int]:
    """Returns how many of so many tokens each text of a part may have.

    Each has as many, if that says something; else those that matter most have what they need.
    """
    level = tokens if len(texts) == 1 else fair_level(list(sizes), tokens)
    if len(texts) == 1 or level >= VERY_LEAST:
        return [level] * len(texts)
    from ..compression.importance import by_importance, words_of

    levels, left = [0] * len(texts), tokens
    for i in by_importance(texts, words_of(asked), ends_first=2):
        levels[i] = min(sizes[i], left)
        left -= levels[i]
    return levels


def asked_now(timeline: Timeline) -> tuple[int, ...]:
    """Returns where the current question is or will be stored; nothing where it does not count."""
    thread, asked = timeline.thread, timeline.asked
    if not thread.for_question:
        return ()
    if thread.question and (asked is None or timeline.text(asked) != thread.question):
        return (len(timeline.messages),)
    return () if asked is None else (asked,)


def text_asked(timeline: Timeline, position: int) -> str:
    """Returns a question by its position, "" where none is there."""
    size = len(timeline.messages)
    if position >= size:
        return timeline.thread.question if position == size else ""
    return timeline.text(position) if timeline.role(position) == "user" else ""


def _asked_about(timeline: Timeline, position: int, text: str, also: Sequence[int]) -> str | None:
    """Returns what is asked about a text; None where nothing is.

    Of a result or an answer that is the question of its turn; of a question its first and last sentence, the
    last that ends in a question mark, and the next question. The questions at the positions `also` count as
    well: the current one, or in a session the one that was current when the text was shortened.
    """
    is_question = timeline.role(position) == "user"
    asked = {timeline.question_after(position) if is_question else timeline.question_before(position)}
    found = [text_asked(timeline, i) for i in sorted(asked.union(also).difference((-1, position)))]
    found = list(filter(None, found))
    if is_question:
        from ..relevance.asking import own_questions  # loaded only where a long question is shortened

        found += own_questions(text)
    return "\n".join(found) if found or timeline.role(position) == "tool" else None


def fair_level(sizes: list[int], allowed: int) -> int:
    """Returns the highest level at which texts of `sizes`, cut to it, add up to at most `allowed`."""
    left, count = allowed, len(sizes)
    for size in sorted(sizes):
        share = left // count
        if size > share:
            return share
        left -= size
        count -= 1
    return max(sizes)
