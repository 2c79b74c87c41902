"""The units of a text that are most worth keeping, in order, to an exact number of tokens."""

from __future__ import annotations

from collections.abc import Sequence

from ..counting.protocol import TokenCounter
from .structured import compress_structured
from .truncate import truncate_text
from .units import Unit

__all__ = ["pick_units"]


def pick_units(units: Sequence[Unit], order: Sequence[int], max_tokens: int, counter: TokenCounter) -> str:
    """Returns as many units as fit, joined in text order; where not even one fits, the first of `order`, cut.

    `order` holds positions, most worth keeping first; a repeated unit is dropped.
    """
    counts = counter.count_many([unit.text for unit in units])
    chosen = _packed(units, counts, order, max_tokens)
    while chosen:
        kept = _joined(units, sorted(chosen))
        excess = counter.count(kept) - max_tokens
        if excess <= 0:
            return kept
        # Joined units can count a token more than apart: the least worth keeping that pays for it goes.
        chosen.remove(next((i for i in reversed(chosen) if counts[i] >= excess), chosen[-1]))
    if not order:
        return ""
    best = units[order[0]]
    cut = compress_structured if best.kind == "json" else truncate_text
    return cut(best.text.strip(), max_tokens, counter)


def _packed(units: Sequence[Unit], counts: Sequence[int], order: Sequence[int], room: int) -> list[int]:
    chosen: list[int] = []
    seen: set[str] = set()
    for i in order:
        if counts[i] > room:
            continue
        text = units[i].text.strip()
        if text in seen:
            continue
        seen.add(text)
        chosen.append(i)
        room -= counts[i]
    return chosen


def _joined(units: Sequence[Unit], chosen: Sequence[int]) -> str:
    parts: list[str] = []
    last = -1
    for i in chosen:
        piece = units[i].text
        if parts and last != i - 1:
            if units[last].paragraph != units[i].paragraph:
                if not parts[-1].endswith("\n"):
                    parts.append("\n")
                piece = piece.lstrip(" ")
            elif not parts[-1][-1:].isspace() and not piece[:1].isspace() and piece[:1].isascii():
                parts.append(" ")
        parts.append(piece)
        last = i
    return "".join(parts).strip()
