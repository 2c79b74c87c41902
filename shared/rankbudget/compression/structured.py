"""Shorter tool output of the same form: JSON stays JSON, logs and result lists keep whole lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial
from itertools import takewhile

from ..counting.protocol import TokenCounter
from ..relevance.corpus import BoundedCache
from ..relevance.sentences import split_sentences
from ..relevance.words import content_words
from .json_shrink import Words, by_importance, dump, names_in, parse, saying, shrink, shrink_lines, troubles
from .truncate import cut_from, truncate_text

_OUTSIDE_STRINGS = re.compile(r'("(?:[^"\\]|\\.)*")|\s+')
_ATTEMPTS = 6
_FULL = 0.9
_SHORT = 64

_ONE_OF_MANY = re.compile(
    r"\W{0,3}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d"  # a log
    r"|\[?(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|TRACE)\b|\d+\.\d+\.\d+\.\d+)"
    r"|\s*(?:[\w./\\-]+:\d+[:-]|https?://|\d+[.)] |[-*•] |#{1,6} |[-dl][rwx-]{9}|[+-]{1,3} ?)"  # results
    r"|[^|\t]*[|\t].*[|\t]|[^,]+(?:,[^,]*){2,}$"  # a table
)
_FEWEST_LINES = 6
_RECORD = 3
"""Lines behind one that says what was asked, and one before it, that are kept with it: a record has a few."""
_LONGEST_SHARE = 4
_MARKER = 24


_CUTS: BoundedCache[tuple[str, int, str | None, int], tuple[TokenCounter, str]] = BoundedCache(
    max_size=4_000_000, size=lambda key: len(key[0]) + len(key[2] or "")
)
"""Texts that were shortened lately: an agent asks for the same ones at every step."""


def remembered_cut(text: str, max_tokens: int, counter: TokenCounter, *, question: str | None) -> str:
    """Returns what `compress_structured` does, or without a question the start and the end of a text."""
    key = (text, max_tokens, question, id(counter))
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
    if value is not None and text.lstrip()[:1] in ("{", "["):
        same = value == parse(text)
        return "its JSON without white space" if same else "its JSON with fewer items or shorter strings"
    if found := re.search(r"^\[\.\.\. \d+ (lines|parts) \.\.\.\]$", cut, re.MULTILINE):
        return f"its first and last {found[1]}, and those that the question names or that tell of errors"
    end = cut.rpartition("...")[2].strip()
    return "its start and its end" if end and text.rstrip().endswith(end) else "its start"


def compress_structured(text: str, max_tokens: int, counter: TokenCounter, question: str = "") -> str:
    """Returns `text` in at most `max_tokens`, by structure; `text` itself when it fits, "" when nothing does.

    JSON (also one value a line) first loses white space; then middle items of arrays, replaced by a marker
    that counts them, and the middles of long strings. Items that `question` names, ids, numbers and errors
    stay longest. Logs, search results and tables keep their first and last lines, errors, and lines that the
    question names. Everything else keeps its start and its end, and lines or sentences that it names.
    """
    if max_tokens <= 0 or not text:
        return ""
    start = counter.truncate(text, max_tokens)
    if len(start) == len(text):
        return text
    size, value, asked = len(start), parse(text), _words_of(question)
    if value is not None:
        dense = _OUTSIDE_STRINGS.sub(lambda m: m.group(1) or "", text)
        # The dense form is counted only where it could fit.
        if len(dense) <= 2 * size + _SHORT and counter.count(dense) <= max_tokens:
            return dense
        least = "[]" if isinstance(value, list) else "{}"
        return _longest(lambda target: dump(shrink(value, target, asked)), size, max_tokens, counter, least)
    lines = [line for line in text.splitlines() if line.strip()]
    values = list(takewhile(lambda value: value is not None, map(parse, lines)))
    if values and len(values) == len(lines):
        return _longest(lambda target: shrink_lines(values, target, asked), size, max_tokens, counter, "{}")
    make = _chooser(text, lines, asked)
    kept = "" if make is None else _longest(make, size, max_tokens, counter)
    return kept or cut_from(text, start, max_tokens, counter, "...", "both")


@lru_cache(maxsize=64)
def _words_of(question: str) -> Words:
    return frozenset([*content_words(question), *names_in(question)])


def _chooser(text: str, lines: list[str], asked: Words) -> Callable[[int], str] | None:
    """Returns what picks lines of a list; of other text where lines say what was asked or tell of errors."""
    of_lines = len(lines) >= _FEWEST_LINES
    pieces = text.splitlines(keepends=True) if of_lines else list(split_sentences(text)) if asked else []
    is_list = of_lines and sum(map(bool, map(_ONE_OF_MANY.match, lines))) >= len(lines) / 2
    if len(pieces) < _FEWEST_LINES:
        return None
    if not is_list and not saying(pieces[1:-1], asked) and not (of_lines and troubles(pieces)):
        return None
    order = by_importance(pieces, asked, ends_first=2, around=_RECORD if of_lines else 0)
    return lambda target: _pick(pieces, order, target, "lines" if of_lines else "parts")


def _longest(
    make: Callable[[int], str], size: int, max_tokens: int, counter: TokenCounter, least: str = ""
) -> str:
    """Returns the longest form that fits; characters are estimated from earlier attempts. Else `least`."""
    target, best, most = size, "", 0
    for _ in range(_ATTEMPTS):
        try:
            made = make(target)
        except RecursionError:  # nested deeper than Python's stack
            break
        used = max(counter.count(made), 1)
        if most < used <= max_tokens:
            best, most = made, used
        if used <= max_tokens and (used >= _FULL * max_tokens or target > 2 * size):
            break
        # Markers and ids do not shrink with the target, so the estimate aims a little under the limit.
        guess = int(target * max_tokens * 0.97 / used)
        if guess <= 0 or guess == target:
            break
        target = guess
    return best or (least if counter.count(least) <= max_tokens else "")


def _pick(pieces: list[str], order: list[int], target: int, kind: str) -> str:
    """Returns whole pieces in about `target` characters, with a counted marker in each gap."""
    longest = max(target // _LONGEST_SHARE, 80)
    room = target
    kept: dict[int, str] = {}
    for i in order:
        piece = pieces[i]
        if len(piece) > longest and kind == "lines":  # half a sentence may say what is false
            piece = f"{piece[: longest * 2 // 3]} ... {piece[-(longest // 4) :]}"
        # A piece among dropped ones also costs a marker; neighbours share one.
        beside = i - 1 in kept or i + 1 in kept or i in (0, len(pieces) - 1)
        cost = len(piece) + (0 if beside else _MARKER)
        if cost <= room:
            kept[i] = piece
            room -= cost
    out, last = [""], -1
    for i in [*sorted(kept), len(pieces)]:
        if i - last > 1:
            out[-1] = out[-1].rstrip()
            out.append(f"\n[... {i - last - 1} {kind} ...]\n")
        out.append(kept.get(i, ""))
        last = i
    return "".join(out).strip("\n")
