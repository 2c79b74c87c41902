"""Fits the weights of `rankbudget/conversation/next_call.py` again, and asks each task with weights fitted to the others.

Prints the weights fitted to all tasks beside those of the library, then the evidence kept, through `fit_messages` as `make quality` calls it: with the
library's weights, with those fitted here, and with one task left out, all tasks in turn. Weights fitted to all but one task see nothing of that
one; the signs, the search and the settings of the fit were chosen on all tasks.

`QUALITY_DIR=folder python benchmarks/fit_next_call.py`; the data and its judge are not part of this project; without them one line says so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from fit_next_call_parts import Array, Case, Conversation, fit
from quality import Item, judged_data, select

from rankbudget.conversation import relevant as relevant_history
from rankbudget.conversation.next_call import WEIGHTS, Value, likely

SET = "tau_airline"
BUDGETS = {0.05: 1.0, 0.07: 1.0, 0.1: 1.5, 0.14: 1.0, 0.2: 1.0, 0.3: 0.7}
"""Shares of all tokens the weights are fitted at, and how much each counts."""
Asked = tuple[Mapping[str, Any], Sequence[Item]]


@contextmanager
def weighing(weights: Mapping[str, float]) -> Iterator[None]:
    """Lets the library weigh like this."""
    before = dict(WEIGHTS)
    WEIGHTS.update(weights)
    try:
        yield
    finally:
        WEIGHTS.update(before)


@contextmanager
def overheard(*names: str) -> Iterator[dict[str, tuple[tuple[Any, ...], Any]]]:
    """Tells what the library's functions of these names were given last, and what they returned."""
    heard: dict[str, tuple[tuple[Any, ...], Any]] = {}
    before = {name: getattr(relevant_history, name) for name in names}

    def listening(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            heard[name] = given, function(*given)
            return heard[name][1]

        return call

    try:
        for name, function in before.items():
            setattr(relevant_history, name, listening(name, function))
        yield heard
    finally:
        for name, function in before.items():
            setattr(relevant_history, name, function)


def task_of(question: Mapping[str, Any]) -> str:
    """Returns the task a conversation is about: several trials of one task are conversations of their own."""
    return str(question["doc_id"].split("-")[1])


def signs_of(values: Mapping[str, Value], size: int) -> Array:
    """Returns a row of signs for each value: the odds the library gives where one sign alone weighs 1."""
    columns = []
    for sign in WEIGHTS:
        with weighing({name: float(name == sign) for name in WEIGHTS}):
            share = np.array([likely(name, value, size) for name, value in values.items()])
        columns.append(np.log(share / (1 - share)))
    return np.stack(columns, axis=1)


def read(asked: Sequence[Asked]) -> list[Conversation]:
    """Returns each conversation as the library reads it, with what there is to choose from at each budget."""
    found = []
    for question, items in asked:
        wanted = sorted({gold["val"] for gold in question["gold"]})
        pieces = _pieces(items)
        cases, values = [], {}
        for share, counts in BUDGETS.items():
            with overheard("values_of", "cover") as heard:
                select(question["query"], items, int(share * sum([item["n"] for item in items])))
            if "cover" in heard:
                prices, holds, _, opens, kept, room = heard["cover"][0]
                values = heard["values_of"][1]
                assert len(prices) == len(pieces)
                cases.append(Case(prices, holds, opens, kept, room, counts))
        evidence = np.array([[value in piece for value in wanted] for piece in pieces])
        needed = np.array([float(any(value in name for value in wanted)) for name in values])
        found.append(Conversation(task_of(question), signs_of(values, len(pieces)), needed, evidence, cases))
    return found


def _pieces(items: Sequence[Item]) -> list[str]:
    """Returns the texts of what is kept or dropped as one: a call with its results, any other message alone."""
    pieces: list[str] = []
    for item in items:
        if item.get("role") == "tool" and pieces:
            pieces[-1] += "\n" + item["text"]
        else:
            pieces.append(item["text"])
    return pieces


def kept(judge: ModuleType, asked: Sequence[Asked], weights: Mapping[str, float]) -> Array:
    """Returns the share of evidence the library keeps with these weights: a row for each question, a column for each budget."""
    rows = []
    with weighing(weights):
        for question, items in asked:
            rooms = [int(share * sum([item["n"] for item in items])) for share in judge.fracs(SET)]
            rows.append(
                [
                    judge.score_one(SET, question, items, select(question["query"], items, room), room)["ev"]
                    for room in rooms
                ]
            )
    return np.array(rows)


def held_out(
    judge: ModuleType, asked: Sequence[Asked], conversations: Sequence[Conversation]
) -> tuple[Array, list[dict[str, float]]]:
    """Returns what is kept of each task's evidence with weights fitted to the other tasks, and those weights."""
    rows, weights = [], []
    for task in dict.fromkeys(conversation.task for conversation in conversations):
        others = [conversation for conversation in conversations if conversation.task != task]
        weights.append(dict(zip(WEIGHTS, fit(others), strict=True)))
        rows.append(kept(judge, [one for one in asked if task_of(one[0]) == task], weights[-1]))
        print(f"  without task {task:>3}: {len(rows[-1]):2} questions {columns(rows[-1])}", flush=True)
    return np.concatenate(rows), weights


def columns(rows: Array) -> str:
    """Returns the mean of each budget, to four digits: the tables of `make quality` are rounded from those."""
    return " ".join([f"{share:.4f}" for share in rows.mean(axis=0)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-fit", action="store_true", help="only what the library's own weights keep")
    given = parser.parse_args()
    found = judged_data()
    if found is None:
        return 0
    judge, folder = found
    begin = time.monotonic()
    asked: list[Asked] = judge.load("dev", SET, None, True, str(folder))
    print(f"{SET}: {len({task_of(question) for question, _ in asked})} tasks, {len(asked)} questions")
    shares = " ".join([f"{share:6.0%}" for share in judge.fracs(SET)])
    print(f"budget, of all tokens:            {shares}")
    print(f"in-sample, the library's weights: {columns(kept(judge, asked, WEIGHTS))}", flush=True)
    if given.no_fit:
        return 0
    conversations = read(asked)
    fitted = dict(zip(WEIGHTS, fit(conversations), strict=True))
    print(f"in-sample, fitted here:           {columns(kept(judge, asked, fitted))}", flush=True)
    rows, folds = held_out(judge, asked, conversations)
    print(f"held out, each task in turn:      {columns(rows)}\n")
    print(f"{'sign':10} library  fitted here  with one task left out")
    for sign in WEIGHTS:
        spread = [weights[sign] for weights in folds]
        print(f"{sign:10} {WEIGHTS[sign]:7.2f} {fitted[sign]:12.2f}  {min(spread):6.2f} to {max(spread):.2f}")
    print(f"\n{time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
