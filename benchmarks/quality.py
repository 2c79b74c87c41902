"""`make quality`: does what survives a budget still hold what answers the question?

Public question sets, judged without a model, through the public functions with their defaults: `fit_documents` for documents and for chats
without tools (these are memories), `fit_messages` for histories with tools, `FewShotSelector` for labelled examples. The split `dev` is what
weights were chosen on; `wide` has sets of other domains. A last table shows the chats of `dev` through `fit_messages`: the price of continuity.

`make quality FULL=1 QUALITY_DIR=folder` asks every question. The data and its judge (score.py) are not part of this project; without them one
line says so.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from harness import commit

from rankbudget import (
    BudgetExceededError,
    FewShotSelector,
    Segment,
    counter_for,
    fit_documents,
    fit_messages,
)

Item = Mapping[str, Any]
FOLDER = "../shared/quality"
PAGE = Path(__file__).parents[1] / "docs" / "quality.md"
CHATS = ("locomo", "qmsum", "bfcl_memory")
SPLITS = ("dev", "wide")
"""What the weights were chosen on, and sets of other domains."""
BEGIN, END = "<!-- tables: written by `make quality T=--write` -->", "<!-- end of tables -->"


def select(query: str, items: Sequence[Item], budget_tokens: int) -> list[str] | dict[str, str | None]:
    """Returns the ids of the items that are kept, or the kept texts where some are shortened."""
    if any("label" in item for item in items):
        return _examples(query, items, budget_tokens)
    if any("tool_calls" in item for item in items):
        return _messages(query, items, budget_tokens)
    return _documents(query, items, budget_tokens)


def select_as_chat(query: str, items: Sequence[Item], budget_tokens: int) -> list[str]:
    """Returns what `fit_messages` keeps of the same items."""
    kept = _messages(query, items, budget_tokens)
    if any(kept.values()):
        texts = {item["id"]: item["text"] for item in items}
        return [text or texts[name] for name, text in kept.items()]
    return list(kept)


def _documents(query: str, items: Sequence[Item], budget_tokens: int) -> list[str]:
    segments: list[Segment] = _once(items, _segments)
    result = fit_documents(segments, max_tokens=budget_tokens, query=query)
    whole = {id(segment) for segment in segments}
    if all(id(segment) in whole for segment in result.segments):
        return [segment.id for segment in result.segments]
    return [segment.text for segment in result.segments]


def _examples(query: str, items: Sequence[Item], budget_tokens: int) -> list[str]:
    examples: list[dict[str, Any]] = _once(items, _labelled)
    chosen = FewShotSelector().select(
        query, examples, max_examples=None, max_tokens=budget_tokens, cost=_tokens
    )
    return [example["id"] for example in chosen]


def _messages(query: str, items: Sequence[Item], budget_tokens: int) -> dict[str, str | None]:
    """Returns the ids of the messages that are kept, and the texts of those that are shortened."""
    if budget_tokens < 1:
        return {}
    messages: list[dict[str, Any]] = _once(items, _chat)
    try:
        result = fit_messages(messages, max_tokens=budget_tokens, query=query, measure=_Lines())
    except BudgetExceededError:  # a refusal keeps nothing
        return {}
    return {
        message["item"]["id"]: None if message["content"] == message["item"]["text"] else message["content"]
        for message in result.messages
    }


class _Lines:
    """Counts messages as the judge does: the tokens of their text, a line each, no framing."""

    additive = True
    overhead = 0

    def group(self, messages: Sequence[Any]) -> int:
        return sum([_line_tokens(message) for message in messages])

    def total(self, messages: Sequence[Any]) -> int:
        return self.group(messages)


def _line_tokens(message: Mapping[str, Any]) -> int:
    item: Item = message["item"]
    if message["content"] == item["text"]:
        return int(item["n"])
    return counter_for("o200k_base").count(f"{message['content']}\n")


def _segments(items: Sequence[Item]) -> list[Segment]:
    return [
        Segment(
            id=item["id"],
            text=item["text"],
            title=item.get("title"),
            role=item.get("role") or ("user" if "name" in item else None),
            created_at=datetime.fromisoformat(item["ts"]) if item.get("ts") else None,
            metadata={name: item[name] for name in ("name", "session") if name in item},
        )
        for item in items
    ]


def _labelled(items: Sequence[Item]) -> list[dict[str, Any]]:
    found = []
    for item in items:
        question, _, answer = item["text"].partition("\nA:")
        found.append(
            {
                "id": item["id"],
                "n": item["n"],
                "input": question.removeprefix("Q:").strip(),
                "output": answer.strip(),
            }
        )
    return found


def _chat(items: Sequence[Item]) -> list[dict[str, Any]]:
    found = []
    for item in items:
        message: dict[str, Any] = {"role": item.get("role", "user"), "content": item["text"], "item": item}
        if item.get("tool_calls"):
            calls = [
                {
                    "id": c["id"],
                    "type": "function",
                    "function": {"name": c["name"], "arguments": c["arguments"]},
                }
                for c in item["tool_calls"]
            ]
            message["tool_calls"] = calls
        if item.get("tool_call_id"):
            message["tool_call_id"] = item["tool_call_id"]
        found.append(message)
    return found


def _tokens(example: Mapping[str, Any]) -> int:
    return int(example["n"])


_LAST: dict[Any, tuple[Sequence[Item], Any]] = {}


def _once(items: Sequence[Item], make: Any) -> Any:
    """Returns what `make` makes of a list of items; the judge passes the same list for every question about it."""
    known = _LAST.get(make)
    if known is None or known[0] is not items:
        known = _LAST[make] = (items, make(items))
    return known[1]


def judged_data() -> tuple[ModuleType, Path] | None:
    """Returns the judge and the folder of its data; says so and returns None where there is none."""
    folder = Path(os.environ.get("QUALITY_DIR") or FOLDER)
    path = folder / "score.py"
    if not path.is_file() or not (folder / "dev").is_dir():
        print(
            f"no quality data in {str(folder)!r}: set QUALITY_DIR to the folder that holds score.py and dev/"
        )
        return None
    sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("quality_judge", path)
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    return judge, folder


def _run(
    judge: ModuleType, choose: Any, split: str, sets: Sequence[str], *, full: bool, folder: Path
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in sets:
        found.update(judge.evaluate(choose, split, [name], None, full, str(folder)))
        result = found[name]
        print(f"{name:12} {result['ev']}  {result['nq']} questions, {result['sec']} s", flush=True)
    return found


def _tables(
    judge: ModuleType, only: Sequence[str], *, chats: bool, full: bool, folder: Path
) -> tuple[str, dict[str, Any]]:
    """Returns the page's tables, and the figures of all sets."""
    saved = folder / "baselines.json"
    baselines = json.loads(saved.read_text()) if saved.is_file() else {}
    asked = "every question" if full else "a sample of the questions of dev, every question of wide"
    text = f"Commit `{commit()}`, {asked}.\n"
    found: dict[str, Any] = {}
    for split, known in zip(SPLITS, (judge.DATASETS, getattr(judge, "WIDE", ())), strict=True):
        sets = [name for name in known if not only or name in only]
        if sets:
            results = _run(judge, select, split, sets, full=full, folder=folder)
            found.update(results)
            table = _table(results, baselines.get(split, {}), judge)
            text += f"\n`{split}`, through the function a user would call:\n\n{table}\n"
    talks = [name for name in CHATS if name in found]
    if talks and chats:
        print("\nthe chats through fit_messages:")
        results = _run(judge, select_as_chat, "dev", talks, full=full, folder=folder)
        table = _table(results, baselines.get("dev", {}), judge)
        text += f"\nThe chats of `dev` through `fit_messages`:\n\n{table}\n"
    return text, found


def _table(results: Mapping[str, Any], baselines: Mapping[str, Any], judge: ModuleType) -> str:
    lines = [
        "| set | questions | 1 | 2 | 3 | 4 | best baseline of each column | over |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        best = [
            max(
                (b[name]["ev"][k] for m, b in baselines.items() if m != "oracle" and name in b),
                default=float("nan"),
            )
            for k in range(4)
        ]
        row = " | ".join([f"{share:.3f}" for share in result["ev"]])
        pair = f", valid {result['pair'][0]:.2f}" if "pair" in result else ""
        lines.append(
            f"| {name} | {result['nq']} | {row} | {' '.join([f'{b:.2f}' for b in best])} | {sum(result['over']):.2f}{pair} |"
        )
    macro = [judge.macro(results, k) for k in range(4)]
    lines += [
        f"| **{family}** | | {' | '.join([f'{column[family]:.3f}' for column in macro])} | | |"
        for family in macro[0]
    ]
    return "\n".join(lines)


def main() -> int:
    """Runs the sets and prints the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full",
        action="store_true",
        default=bool(os.environ.get("FULL")),
        help="every question instead of a sample",
    )
    parser.add_argument("--only", help="these sets, comma between")
    parser.add_argument("--no-chat", action="store_true", help="without the last table")
    parser.add_argument("--write", action="store_true", help="puts the tables into docs/quality.md")
    parser.add_argument("--json", type=Path, help="writes the figures to a file")
    given = parser.parse_args()
    found = judged_data()
    if found is None:
        return 0
    judge, folder = found
    sets = given.only.split(",") if given.only else []
    begin = time.monotonic()
    text, results = _tables(judge, sets, chats=not given.no_chat, full=given.full, folder=folder)
    print(f"\n{text}\n{time.monotonic() - begin:.0f} s")
    if given.json:
        given.json.write_text(json.dumps(results, indent=1))
    if given.write:
        page = PAGE.read_text()
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n\n{text}\n{END}{rest.split(END)[1]}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
