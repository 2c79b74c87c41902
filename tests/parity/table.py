"""How often each pair of doors agrees, by kind and by what differs first."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.parity.doors import KINDS, Ask, Door, difference, outcome
from tests.parity.draws import Case, cases

__all__ = ["Agreement", "agreement", "async_agreement", "main", "model_calls", "told"]


@dataclass(frozen=True)
class Agreement:
    """How two doors agree: in how many of how many cases, and every case in which they do not."""

    compared: int
    differences: list[tuple[str, Case]]

    @property
    def agreed(self) -> int:
        return self.compared - len(self.differences)

    def causes(self) -> Counter[str]:
        """Returns what differs first, most frequent first."""
        return Counter(found for found, _ in self.differences)

    def tags(self, every: Sequence[Case]) -> list[str]:
        """Returns the properties of a case under which the doors differ at least half as often again as over all."""
        if not self.differences:
            return []
        total = Counter(tag for case in every for tag in case.tags())
        bad = Counter(tag for _, case in self.differences for tag in case.tags())
        share = len(self.differences) / max(1, len(every))
        found = [
            (n / total[tag], f"{tag} {n}/{total[tag]}")
            for tag, n in bad.items()
            if n / total[tag] > 1.5 * share
        ]
        return [text for _, text in sorted(found, reverse=True)[:4]]

    def smallest(self) -> tuple[str, Case]:
        """Returns the difference that is easiest to read."""
        return min(self.differences, key=lambda found: found[1].size())


@cache
def _outcomes(kind: str, name: str, count: int) -> list[Any]:
    """Returns the outcome of a door for every drawn case; None where the door does not take its budget."""
    door = next(d for d in KINDS[kind] if d.name == name)
    return [_guarded(door, case) if door.takes(case) else None for case in cases(count)]


def _guarded(door: Door, case: Case, ask: Ask | None = None) -> list[dict[str, Any]]:
    """Returns an outcome; an error that is no refusal is one, too, and agrees with nothing."""
    try:
        return outcome(door, case, ask)
    except Exception as error:  # noqa: BLE001 - whatever a door raises is what it shows
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.name}"
        return [{"crashed": f"{door.name}: {type(error).__name__} in {place}"}]


def agreement(kind: str, first: Door, second: Door, count: int) -> Agreement:
    """Returns how two doors agree over `count` drawn cases."""
    found: list[tuple[str, Case]] = []
    compared = 0
    rows = zip(
        cases(count), _outcomes(kind, first.name, count), _outcomes(kind, second.name, count), strict=True
    )
    for case, ours, theirs in rows:
        if ours is None or theirs is None:
            continue
        compared += 1
        what = _crash(ours) or _crash(theirs) or difference(ours, theirs)
        if what:
            found.append((what, case))
    return Agreement(compared, found)


def _crash(found: list[dict[str, Any]]) -> str:
    return next((turn["crashed"] for turn in found if "crashed" in turn), "")


def model_calls(kind: str, door: Door, count: int) -> tuple[int, int]:
    """Returns in how many turns with documents an engine asked its model once, and how many such turns there were."""
    turns = [t for found in _outcomes(kind, door.name, count) if found for t in found if t.get("_documents")]
    return sum(t["_calls"] == 1 for t in turns), len(turns)


def async_agreement(kind: str, door: Door, count: int, loop: asyncio.AbstractEventLoop) -> Agreement:
    """Returns how a door's async form agrees with its blocking one."""
    found: list[tuple[str, Case]] = []
    compared = 0
    for case, expected in zip(cases(count), _outcomes(kind, door.name, count), strict=True):
        if expected is None:
            continue
        compared += 1
        ours = _guarded(door, case, Ask(loop))
        what = _crash(ours) or difference(ours, expected)
        if what:
            found.append((what, case))
    return Agreement(compared, found)


def told(kind: str, first: Door, second: Door, found: Agreement) -> str:
    """Returns an agreement in words: how often two doors agree, what differs, and the smallest difference."""
    text = f"{found.agreed} of {found.compared} agree: {first.name} and {second.name} ({kind})"
    for cause, n in found.causes().most_common(5):
        text += f"\n{n:5d}  {cause}"
    if not found.differences:
        return text
    what, case = found.smallest()
    text += f"\nsmallest ({what}):\n  {short(case)}"
    return text + "".join(f"\n  {door.name}: {short(_guarded(door, case))}" for door in (first, second))


def short(value: Any) -> str:
    """Returns a value as text with each drawn text as its marker and the number of its words."""
    return _TEXT.sub(lambda m: f"{m[1]}+{m[0].count(' ')}", repr(value))


_TEXT = re.compile(r"([a-z]\d+x\d+)[ .][^'\"]*")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="How often each pair of doors keeps the same pieces.")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--kind", default="", help="only the kinds whose name contains this")
    parser.add_argument("--show", action="store_true", help="prints the smallest differing case of each pair")
    given = parser.parse_args()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    for kind, doors in KINDS.items():
        if given.kind not in kind:
            continue
        began = time.process_time()
        lines = [_line(kind, a, b, given) for a, b in combinations(doors, 2)]
        print(f"\n## {kind} ({time.process_time() - began:.1f} s)", *lines, sep="\n")  # noqa: T201 - a table for a terminal
        for door in doors:
            once, turns = model_calls(kind, door, given.draws)
            if turns:
                print(f"  one model call: {once} of {turns} turns of {door.name}")  # noqa: T201 - the same
    loop.close()


def _line(kind: str, first: Door, second: Door, given: argparse.Namespace) -> str:
    found = agreement(kind, first, second, given.draws)
    if given.show:
        return told(kind, first, second, found)
    causes = [f"{n} {cause}" for cause, n in found.causes().most_common(5)]
    tags = found.tags([case for case in cases(given.draws) if first.takes(case) and second.takes(case)])
    text = f"{found.agreed:5d} of {found.compared:4d}  {first.name} = {second.name}"
    text += f"\n{'':16}{'; '.join(causes)}" if causes else ""
    return text + (f"\n{'':16}most with: {'; '.join(tags)}" if tags else "")
