"""`python benchmarks/sensitivity.py`: what two typos, a polite frame, a pasted log and shuffled documents cost.

Samples of six question sets are asked through the functions that `quality.py` judges. Chats are not shuffled:
their order is what they say; and nothing is pasted beside what someone says to be classified.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from quality import Item, judged_data, select

SETS = {
    "locomo": "dev",
    "covidqa": "dev",
    "hotpotqa": "dev",
    "clinc150": "dev",
    "chroma_docs": "wide",
    "molweni": "wide",
}
CHATS, LABELLED = ("locomo", "molweni"), ("clinc150",)
POLITE = (
    "Hello! Could you please tell me: {} Thank you very much in advance!",
    "Hi there, I was wondering whether you could help me with this. {} Thanks a lot!",
    "Sorry to bother you, but I would really like to know: {}",
)
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LONG = 4
"""Letters of a word from which it is misspelt."""


def misspelt(query: str, source: random.Random) -> str:
    """Returns a question with a letter lost, doubled, swapped or wrong in two of its longer words."""
    words = query.split(" ")
    long = [n for n, word in enumerate(words) if len(word) >= LONG and word.isalpha()]
    for n in source.sample(long, min(2, len(long))):
        word, at = words[n], source.randrange(1, len(words[n]) - 1)
        kind = source.choice(("lost", "doubled", "swapped", "wrong"))
        middle = {
            "lost": "",
            "doubled": 2 * word[at],
            "swapped": word[at + 1] + word[at],
            "wrong": source.choice(LETTERS),
        }[kind]
        words[n] = word[:at] + middle + word[at + 1 + (kind == "swapped") :]
    return " ".join(words)


def polite(query: str, source: random.Random) -> str:
    """Returns a question in a polite frame."""
    return source.choice(POLITE).format(query)


def pasted(query: str, source: random.Random) -> str:
    """Returns a question below a log of another matter."""
    number = source.randrange
    lines = [
        f"2026-03-1{number(10)} 10:{10 + number(50)} {source.choice(('INFO', 'WARN', 'ERROR'))} worker-{number(9)}: "
        f"job {1000 + number(9000)} {source.choice(('done', 'failed', 'queued'))} in {number(900)} ms"
        for _ in range(12)
    ]
    return "\n".join([*lines, "", query])


def _evidence(
    judge: ModuleType,
    name: str,
    asked: Sequence[tuple[Item, Sequence[Item]]],
    change: Callable[[str, random.Random], str] | None = None,
    *,
    shuffle: bool = False,
) -> float:
    """Returns the mean evidence kept over questions and budgets."""
    found = []
    for question, items in asked:
        source = random.Random(question["id"])
        query = change(question["query"], source) if change else question["query"]
        shown = source.sample(list(items), len(items)) if shuffle else items
        for share in judge.fracs(name):
            room = int(share * sum([item["n"] for item in items]))
            found.append(judge.score_one(name, question, items, select(query, shown, room), room)["ev"])
    return sum(found) / len(found)


def main() -> int:
    """Prints a row for each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=40, help="questions of each set")
    given = parser.parse_args()
    data = judged_data()
    if data is None:
        return 0
    print("| set | as asked | two typos | polite | pasted | shuffled |\n|---|---|---|---|---|---|")
    rows = [_row(*data, name, split, given.questions) for name, split in SETS.items()]
    means = [sum(column) / len(column) for column in zip(*[row[1:4] for row in rows], strict=True)]
    print(f"| **mean** | | {means[0]:+.1f} | {means[1]:+.1f} | {means[2]:+.1f} | |")
    return 0


def _row(judge: ModuleType, folder: Path, name: str, split: str, questions: int) -> list[float]:
    asked: list[Any] = judge.load(split, name, None, False, str(folder))
    asked = asked[:: max(1, len(asked) // questions)]
    base = _evidence(judge, name, asked)
    changes = (misspelt, polite) if name in LABELLED else (misspelt, polite, pasted)
    changed = [*[_evidence(judge, name, asked, change) - base for change in changes], 0.0][:3]
    shuffled = 0.0 if name in CHATS else _evidence(judge, name, asked, shuffle=True) - base
    points = [100 * value for value in (*changed, shuffled)]
    print(f"| {name} | {base:.3f} | {' | '.join([f'{value:+.1f}' for value in points])} |", flush=True)
    return [base, *points]


if __name__ == "__main__":
    raise SystemExit(main())
