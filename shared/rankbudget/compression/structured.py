"""Shorter tool output of the same form: JSON stays JSON, logs and result lists keep whole lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from typing import Any

from ..counting.protocol import TokenCounter
from ..relevance.corpus import BoundedCache
from .embedded import Part, all_parts, parts_with_data
from .excerpts import excerpt_of
from .importance import words_of
from .json_shrink import Asked, shrink, shrink_lines
from .json_values import dump, parse
from .truncate import cut_from, truncate_text

_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_ATTEMPTS = 8
_FULL = 0.9
_SHORT = 64
_LEAST_PART = 40
"""Tokens that a part of a text has at least where prose and data are shortened apart."""

_CUTS: BoundedCache[tuple[bytes, int, int], tuple[TokenCounter, str]] = BoundedCache(
    max_size=4_000_000, size=lambda _: 256, value_size=lambda known: len(known[1])
)
"""What texts were shortened to lately: an agent asks for the same ones at every step.

The long texts are known by their digests, so that all results of a long run have room.
"""


def remembered_cut(text: str, max_tokens: int, counter: TokenCounter, *, question: str | None) -> str:
    """Returns what `compress_structured` does, or without a question the start and the end of a text."""
    digest = blake2b(repr((len(text), question)).encode(), digest_size=16)
    digest.update(text.encode("utf-8", "surrogatepass"))
    key = (digest.digest(), max_tokens, id(counter))
    known = _CUTS.find(key)
    if known is None or known[0] is not counter:
        structured = partial(compress_structured, question=question or "")
        cut = partial(truncate_text, keep="both") if question is None else structured
        known = counter, cut(text, max_tokens, counter)
        _CUTS.keep(key, known)
    return known[1]


def what_is_left(text: str, cut: str) -> str:
    """Returns in words what `remembered_cut` left of a text."""
    value = parse(cut) or parse(cut.partition("\n")[0])
    if value is not None and parse(text) is not None:
        same = value == parse(text)
        return "its JSON without white space" if same else "its JSON with fewer items or shorter strings"
    data, kept = _values(parts_with_data(text)), _values(all_parts(cut))
    if data and kept:
        left = "without white space" if data == kept else "with fewer items or shorter strings"
        return f"its prose, and its JSON {left}"
    if found := re.search(r"^\[\.\.\. [\d,]+ (line|part)s? \.\.\.\]$", cut, re.MULTILINE):
        return f"its first and last {found[1]}s, and those that the question names or that tell of errors"
    if cut.startswith("...") and not text.startswith("..."):
        return "what is around the words that the question names"
    end = cut.rpartition("...")[2].strip()
    return "its start and its end" if end and text.rstrip().endswith(end) else "its start"


def _values(parts: Sequence[Part]) -> list[Any]:
    return [value for is_data, part in parts if is_data and (value := parse(part)) is not None]


def compress_structured(text: str, max_tokens: int, counter: TokenCounter, question: str = "") -> str:
    """Returns `text` in at most `max_tokens`, by structure; `text` itself when it fits, "" when nothing does.

    JSON (also one value a line) first loses white space; then middle items of arrays, replaced by a marker
    that counts them, and the middles of long strings. Items that `question` names, ids, numbers and errors
    stay longest. Texts of several lines keep the first and last ones, errors, and those that the question
    names, each with the line that says whose it is. Everything else keeps its start, or the sentences that
    the question names, which are cut around these words where they are too long.
    """
    if max_tokens <= 0 or not text:
        return ""
    start = counter.truncate(text, max_tokens)
    if len(start) == len(text):
        return text
    size, value, asked = len(start), parse(text), words_of(question)
    if value is not None:
        dense = _OUTSIDE_STRINGS.sub(lambda m: m.group(1) or "", text)
        # The dense form is counted only where it could fit.
        if len(dense) <= 2 * size + _SHORT and counter.count(dense) <= max_tokens:
            return dense
        least, about = "[]" if isinstance(value, list) else "{}", Asked(asked)
        return _longest(lambda target: dump(shrink(value, target, about)), size, max_tokens, counter, least)
    lines = [line for line in text.splitlines() if line.strip()]
    values = list(takewhile(lambda value: value is not None, map(parse, lines)))
    if values and len(values) == len(lines):
        about = Asked(asked)
        return _longest(lambda target: shrink_lines(values, target, about), size, max_tokens, counter, "{}")
    if made := _by_parts(text, max_tokens, counter, question):
        return made
    make = excerpt_of(text, asked, question)
    kept = "" if make is None else _longest(make, size, max_tokens, counter)
    return kept or _cut(text, start, max_tokens, counter, question)


def _cut(text: str, start: str, max_tokens: int, counter: TokenCounter, question: str) -> str:
    """Returns the start of a text, and the end of one that asks: that of others may be of another record."""
    if any(line and line in text for line in map(str.strip, question.splitlines())):
        return cut_from(text, start, max_tokens, counter, "...", "both")
    return cut_from(text, start, max_tokens, counter, " ...", "start")


def _by_parts(text: str, max_tokens: int, counter: TokenCounter, question: str) -> str:
    """Returns a text whose prose and data are shortened apart; "" where that leaves too little of each."""
    parts = [part for _, part in parts_with_data(text)]
    sizes = counter.count_many(parts)
    order = sorted(range(len(parts)), key=sizes.__getitem__)
    room = max_tokens
    for _ in range(_ATTEMPTS if parts else 0):
        made, left = list(parts), room
        for n, i in enumerate(order):
            share = left // (len(order) - n)
            if sizes[i] > share:
                if share < _LEAST_PART:
                    return ""
                cut = compress_structured(parts[i].strip("\n"), share - 1, counter, question)
                made[i] = f"{cut}\n" if parts[i].endswith("\n") else cut
            left -= counter.count(made[i])
        joined = "".join(made)
        over = counter.count(joined) - max_tokens
        if over <= 0:
            return joined
        room -= over
    return ""


def _longest(
    make: Callable[[int], str], size: int, max_tokens: int, counter: TokenCounter, least: str = ""
) -> str:
    """Returns the longest form that fits; characters are estimated from earlier attempts. Else `least`."""
    target, best, most = size, "", 0
    fits, exceeds, last = 0, 4 * size + 4 * _SHORT, 0
    for _ in range(_ATTEMPTS):
        try:
            made = make(target)
        except RecursionError:  # nested deeper than Python's stack
            break
        used = max(counter.count(made), 1)
        if most < used <= max_tokens and made:
            best, most = made, used
        if used <= max_tokens and (used >= _FULL * max_tokens or target > 2 * size):
            break
        fits, exceeds = (target, exceeds) if used <= max_tokens else (fits, target)
        # Markers and ids do not shrink with the target, so the estimate aims a little under the limit.
        guess = int(target * max_tokens * 0.97 / used)
        if used == last > max_tokens or not fits < guess < exceeds:
            guess = (fits + exceeds) // 2  # whole pieces: what was tried last changed nothing
        if guess in (0, fits, target):
            break
        target, last = guess, used
    return best or (least if counter.count(least) <= max_tokens else "")
