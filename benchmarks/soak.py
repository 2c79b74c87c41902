"""Holds one long conversation through the core and both adapters: is memory bounded, is speed steady, is every turn valid?

    python benchmarks/soak.py            # 10,000 turns each, about four minutes
    python benchmarks/soak.py 2000 --rounds 1

Each part runs in fresh processes, as does its control, which only stores the same messages. Three clauses, and every read is valid:

1. Growth. The memory of the whole process (tokenizer, library, what it keeps) minus the control's grows by less than 10 % from a tenth of
   the turns to the end. Once with plain malloc, so that every free page is given back before measuring, and once with Python's own
   allocator, which may put what is kept into room that loading the tokenizer left over.
2. Bytes. Of what is allocated after the start, to the byte, at most 64 bytes beyond the control are kept for each message.
3. Time. A read at the end takes at most 1.5 times as long as at a tenth of the turns.

Ends with status 1 when one of these does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import commit
from soak_parts import PARTS

SIDE = Path(__file__).with_name("soak_side.py")
MOST_GROWTH = 0.10
MOST_BYTES = 64
MOST_SLOWER = 1.5
ALLOCATORS = {"malloc": "malloc", "pymalloc": "Python's allocator"}


class Row(NamedTuple):
    """One clause for one part; `held` is None for what is told and not bounded."""

    clause: str
    figure: str
    bound: str
    held: bool | None


def run(
    part: str, side: str, turns: int, *more: str, seed: int = 1, allocator: str = "pymalloc"
) -> dict[str, Any]:
    """Runs one side in a process of its own and returns what it measured."""
    command = [sys.executable, str(SIDE), part, side, str(turns), *more]
    given = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONMALLOC": allocator}
    done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)  # noqa: S603 - our own code
    if done.returncode:
        sys.exit(f"{part}, {side}: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    found["memory"] = list(found["memory"].values())
    return found


def spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    """Returns the median, and the range where there is one."""
    middle = show(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({show(min(values))} to {show(max(values))})"


def growth(how: str, pairs: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> Row:
    """Judges the memory of the whole process beyond the control's, measured several times."""
    clause = f"growth of the process beyond the control, {how}"
    if any(None in side["memory"] for pair in pairs for side in pair):
        return Row(
            clause,
            "not measured: this system does not tell a process' own memory",
            f"< {MOST_GROWTH:.0%}",
            None,
        )
    beyond = [[ours - plain for ours, plain in zip(o["memory"], c["memory"], strict=True)] for o, c in pairs]
    grown = [last / first - 1 for first, last in beyond]
    first, last = (f"{statistics.median(at) / 1e6:.1f}" for at in zip(*beyond, strict=True))
    figure = f"{spread(grown, '{:+.1%}'.format)}: {first} to {last} MB"
    return Row(clause, figure, f"< {MOST_GROWTH:.0%}", statistics.median(grown) < MOST_GROWTH)


def kept(ours: dict[str, Any], control: dict[str, Any]) -> list[Row]:
    """Judges what the conversation alone keeps beyond the control, to the byte, and whether what was read is right."""
    first, last = (o - c for o, c in zip(ours["memory"], control["memory"], strict=True))
    early, late = ours["stored"].values()
    each = (last - first) / (late - early)
    return [
        Row(
            "kept beyond the control, to the byte",
            f"{each:.1f} bytes a message",
            f"<= {MOST_BYTES}",
            each <= MOST_BYTES,
        ),
        Row(
            "the same, in all",
            f"{first / 1000:,.0f} to {last / 1000:,.0f} kB, {last / first:.1f} times; the control itself holds {control['memory'][1] / 1e6:.1f} MB",
            "none",
            None,
        ),
        Row(
            "reads invalid; tokens over the limit",
            f"{ours['invalid']}; {ours['over']}",
            "0; 0",
            not ours["invalid"] and not ours["over"],
        ),
    ]


def timed(runs: Sequence[dict[str, Any]]) -> Row:
    """Judges how much longer a read takes at the end."""
    slower = [r["late"] / r["early"] for r in runs]
    early, late = (statistics.median(r[at] for r in runs) * 1000 for at in ("early", "late"))
    figure = f"{spread(slower, '{:.2f}'.format)} times: {early:.2f} to {late:.2f} ms"
    return Row(
        "time of a read, at the end over early",
        figure,
        f"<= {MOST_SLOWER}",
        statistics.median(slower) <= MOST_SLOWER,
    )


def judge(part: str, turns: int, rounds: int) -> list[Row]:
    """Runs a part and its control as often as needed and returns a row for each clause."""
    rows, reads = [], []
    for allocator, told in ALLOCATORS.items():
        pairs = []
        for seed in range(1, rounds + 1):
            control = run(part, "control", turns, seed=seed, allocator=allocator)
            if control["loaded"]:
                sys.exit(f"the control of {part} is not without the library: it loaded {control['loaded']}")
            pairs.append((run(part, "ours", turns, seed=seed, allocator=allocator), control))
        rows.append(growth(told, pairs))
        reads = [ours for ours, _ in pairs]  # the last are those of Python as it comes
    rows += kept(run(part, "ours", turns, "--traced"), run(part, "control", turns, "--traced"))
    return [*rows, timed(reads)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("turns", nargs="?", type=int, default=10_000)
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often memory and time are measured; the median is judged"
    )
    given = parser.parse_args()
    if given.turns < 20 or given.rounds < 1:
        parser.error("at least 20 turns and one round")
    print(
        f"from turn {given.turns // 10:,} to turn {given.turns:,}, median of {given.rounds} (lowest to highest), "
        f"CPython {sys.version.split()[0]}, commit {commit()}\n"
    )
    print("| part | clause | measured | bound | |\n|---|---|---|---|---|")
    held = True
    for part in PARTS:
        for row in judge(part, given.turns, given.rounds):
            verdict = "" if row.held is None else "pass" if row.held else "**fail**"
            print(f"| {part} | {row.clause} | {row.figure} | {row.bound} | {verdict} |", flush=True)
            held = held and row.held is not False
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
