"""`python benchmarks/curves.py`: does a larger budget ever keep less of the evidence?

Each question is asked with 20 budgets up to half of all tokens (labelled examples: up to a twentieth), through the
functions that `quality.py` judges. A step down of the mean of a set counts, and a single step of one question does.
Examples and histories with tools are promised no curve: theirs are printed beside the others.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

from harness import commit
from quality import SPLITS, judged_data, select

STEPS = 20
SAME = 1e-9
"""Sums of shares differ by so much without a step."""


def curve(judge: ModuleType, name: str, question: Any, items: Sequence[Any]) -> list[float]:
    """Returns the evidence kept at each of the budgets, from the smallest to the largest."""
    whole, most = sum([item["n"] for item in items]), judge.fracs(name)[-1]
    texts = {} if "label" in items[0] else {item["id"]: item["text"] for item in items}
    found = []
    for room in [int(whole * most * step / STEPS) for step in range(1, STEPS + 1)]:
        kept = select(question["query"], items, room)
        if not isinstance(kept, dict):  # ids are judged by other rules than texts: a curve needs one kind
            kept = [texts.get(text, text) for text in kept]
        found.append(judge.score_one(name, question, items, kept, room)["ev"])
    return found


def steps_down(curve: Sequence[float]) -> list[float]:
    """Returns how far a curve falls at each step that falls.

    Example:
        >>> steps_down([0.2, 0.5, 0.25, 0.5])
        [0.25]
    """
    falls = [now - then for now, then in itertools.pairwise(curve)]
    return [fall for fall in falls if fall > SAME]


def _row(judge: ModuleType, folder: Path, split: str, name: str, questions: int) -> None:
    asked: list[Any] = judge.load(split, name, None, False, str(folder))
    asked = asked[:: max(1, len(asked) // questions)][:questions]
    curves = [curve(judge, name, question, items) for question, items in asked]
    mean = steps_down([fmean(column) for column in zip(*curves, strict=True)])
    single = [fall for one in curves for fall in steps_down(one)]
    steps = len(curves) * (STEPS - 1)
    falls = [f"{max(found):.4f}" if found else "-" for found in (mean, single)]
    print(
        f"| {name} | {len(curves)} | {len(mean)} | {falls[0]} | {len(single)} of {steps} | {falls[1]} |",
        flush=True,
    )


def main() -> int:
    """Prints a row for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=int, default=12, help="questions of each set")
    parser.add_argument("--only", help="these sets, comma between")
    given = parser.parse_args()
    data = judged_data()
    if data is None:
        return 0
    judge, folder = data
    print(f"Commit `{commit()}`, {STEPS} budgets, {given.questions} questions of each set.\n")
    print(
        "| set | questions | mean falls | most | a question's steps fall | most |\n|---|---|---|---|---|---|"
    )
    for split, names in zip(SPLITS, (judge.DATASETS, judge.WIDE), strict=True):
        for name in names:
            if not given.only or name in given.only.split(","):
                _row(judge, folder, split, name, given.questions)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
