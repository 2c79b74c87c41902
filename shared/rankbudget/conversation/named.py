"""What a session's cut left out though the current question names it by a code or a rare word."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..compression.importance import words_of
from ..messages.texts import texts_of
from ..relevance.words import fold
from .capping import LEAST_TOKENS, asked_now, shortened, text_asked
from .selection import Selection, left_by_running
from .timeline import Timeline
from .units import Unit

_SHORTEST = 3
"""Characters of a code: a shorter number is likely a count."""
_QUESTIONS = 4
"""How many questions one text is shortened for; then the oldest no longer counts."""
_DIGIT = re.compile(r"\d")


def with_named(timeline: Timeline, room: int, found: Selection) -> Selection:
    """Returns what is kept, with what the question names in the place of other rows of shortened results.

    A text keeps its most tokens, or gets `LEAST_TOKENS` where these fit, so the prompt changes only from the
    first such text on. A code counts where the shortened text lacks it, another word where all texts do.
    """
    question = _question(timeline)
    if not question or not found.caps:
        return found
    words, everything = words_of(question), _text(timeline, found)
    rare = [w for w in sorted(words) if " " not in w and not _DIGIT.search(w) and w not in everything]
    units = {position: unit for unit in found.units for position in unit.positions()}
    for position in sorted(found.caps, reverse=True):
        cut = found.edits.get(position)
        if cut is None or position not in units or asked_now(timeline) == (position,):
            continue
        whole, said = fold(timeline.text(position)), _text_of(timeline, cut)
        wanted = [word for word in (*_codes(words), *rare) if _holds(whole, word) and not _holds(said, word)]
        if wanted:
            found = _recut(timeline, room, found, position, units[position], wanted)
    return found


def _recut(
    timeline: Timeline, room: int, found: Selection, position: int, unit: Unit, wanted: Sequence[str]
) -> Selection:
    """Returns what is kept with one text shortened for the current question, too, if that brings a word."""
    asked = (*found.asked.get(position, ()), *asked_now(timeline))[-_QUESTIONS:]
    most = found.caps[position]
    for tokens in dict.fromkeys([max(most, LEAST_TOKENS), most]):
        made = shortened(timeline, {position: tokens}, {position: asked})
        text = _text_of(timeline, made.get(position, timeline.messages[position]))
        if not any(_holds(text, word) for word in wanted):
            continue
        edits = {**{i: copy for i, copy in found.edits.items() if i != position}, **made}
        used = found.tokens + timeline.cost([unit], edits) - timeline.cost([unit], found.edits)
        if used <= room:
            caps = {**found.caps, position: tokens}
            return replace(found, edits=edits, caps=caps, asked={**found.asked, position: asked}, tokens=used)
    return found


def or_anew(
    timeline: Timeline, room: int, found: Selection, fill: Callable[[int], Selection | None]
) -> Selection:
    """Returns what is kept, or what `fill` keeps of more room where only that holds a code of the question.

    A quarter of the room stays free where that is enough, and while a turn runs: it will need it.
    """
    question = _question(timeline)
    if found.complete or not question or timeline.thread.summarizer is not None:
        return found
    codes = list(_codes(words_of(question)))
    kept = _text(timeline, found) if codes else ""
    held = sum([_holds(kept, code) for code in codes])
    left = left_by_running(timeline, room)
    rooms = [3 * room // 4, room] if left is None else [room - left // 4] if left >= 0 else []
    for more in rooms if held < len(codes) else ():
        anew = fill(more)
        text = "" if anew is None else _text(timeline, anew)
        if anew is not None and sum([_holds(text, code) for code in codes]) > held:
            return anew
    return found


def asked_hash(timeline: Timeline) -> int:
    """Returns the hash of the current question, wherever it stands; another one may name other things."""
    return hash((asked_now(timeline), _question(timeline)))


def _question(timeline: Timeline) -> str:
    return "\n".join([text_asked(timeline, position) for position in asked_now(timeline)])


def _codes(words: Iterable[str]) -> list[str]:
    """Returns the words that may name one thing, as O1061 does, in a fixed order."""
    return sorted(
        [word for word in words if len(word) >= _SHORTEST and _DIGIT.search(word) and " " not in word]
    )


def _holds(text: str, word: str) -> bool:
    """Returns whether a folded text has a word; a code on its own, not as a part of another."""
    if word not in text:
        return False
    return not _DIGIT.search(word) or bool(re.search(rf"(?<![a-z\d]){re.escape(word)}(?![a-z\d])", text))


def _text(timeline: Timeline, found: Selection) -> str:
    """Returns the folded text of all that is kept but the current question."""
    now = asked_now(timeline)
    kept = [i for i in found.positions(timeline.pinned) if i not in now]
    return "\n".join([_text_of(timeline, found.edits.get(i, timeline.messages[i])) for i in kept])


def _text_of(timeline: Timeline, message: object) -> str:
    return fold("\n".join(texts_of(timeline.codec.to_dict(message).get("content"))))
