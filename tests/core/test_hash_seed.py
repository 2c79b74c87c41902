"""The same input gives the same prompt in every process, whatever the order in which Python keeps its sets."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from rankbudget import (
    Assembler,
    ContextAnalyzer,
    FewShotSelector,
    PromptCompressor,
    Segment,
    TokenBudget,
    TokenOptimizer,
    fit_documents,
    fit_messages,
)
from rankbudget.relevance.evidence import word_shares
from rankbudget.relevance.lexical import Bm25Scorer, GramScorer, KeywordScorer, TfidfScorer

WORDS = (
    "tea boat harbour refund invoice kettle river lantern oak copper amber falcon meadow signal ticket "
    "anchor barrel candle desert engine forest garden hammer island jacket ladder marble needle orchard"
).split()
CASES = 30
TIED = 200
"""Draws of each way, and of those whose lines share as many rare words."""
SEEDS = ("0", "1", "2", "77")


def words(drawn: random.Random, count: int) -> str:
    """Words drawn so that some are rare and many are tied."""
    return " ".join(drawn.choice(WORDS[: drawn.choice((3, 8, len(WORDS)))]) for _ in range(count))


def sentences(drawn: random.Random, count: int, end: str) -> str:
    return end.join(f"{words(drawn, 7).capitalize()} {drawn.randint(1, 40)}." for _ in range(count))


def tied(drawn: random.Random) -> list[str]:
    """Lines of which a few share the words of a question, each word of which three or six lines have."""
    lines = [[f"x{i}", f"y{i}"] for i in range(60)]
    for word in WORDS[:8]:
        for line in drawn.sample(lines[20:28], drawn.choice((3, 6))):
            line.insert(drawn.randint(0, len(line)), word)
    return [" ".join(line).capitalize() + "." for line in lines]


def rows(drawn: random.Random) -> str:
    return json.dumps([{"name": line, "n": drawn.randint(1, 9)} for line in tied(drawn)])


def segments(drawn: random.Random) -> list[Segment]:
    return [
        Segment(id=str(i), text=sentences(drawn, 5, drawn.choice((" ", "\n"))), title=words(drawn, 2))
        for i in range(12)
    ]


def documents(drawn: random.Random) -> Any:
    text = drawn.choice((" ", "\n")).join(tied(drawn))
    given = drawn.choice((segments(drawn), [Segment(id="a", text=text)]))
    made = fit_documents(given, max_tokens=drawn.randint(60, 300), query=" ".join(WORDS[:8]))
    return [s.text for s in made.segments]


def of_one_number(drawn: random.Random) -> tuple[str, list[str]]:
    """A question that names several things with one number, and lines about these and others."""
    number, named = drawn.randint(1, 12), drawn.sample(WORDS, 9)
    asked = " or ".join(f"{name} {number}" for name in named[:3])
    lines = [f"{drawn.choice(named)} {drawn.randint(1, 12)} is {words(drawn, 4)}" for _ in range(30)]
    lines += [f"{name} {number} is {words(drawn, 4)}" for name in named[:3]]
    return f"What is {asked}?", drawn.sample(lines, len(lines))


def numbered(drawn: random.Random) -> Any:
    asked, lines = of_one_number(drawn)
    given = [Segment(id=str(i), text="\n".join(lines[i::3])) for i in range(3)]
    shown = fit_documents(given, max_tokens=drawn.randint(40, 200), query=asked)
    return [[s.text for s in shown.segments], told(asked, "\n".join(lines), drawn)]


def result(drawn: random.Random) -> Any:
    return told(" ".join(WORDS[:8]), drawn.choice((rows(drawn), "\n".join(tied(drawn)))), drawn)


def told(asked: str, text: str, drawn: random.Random) -> Any:
    """Returns what stays of a conversation in which a tool told a text."""
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    thread = [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]
    return fit_messages(thread, max_tokens=drawn.randint(150, 500)).messages


def chat(drawn: random.Random) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": sentences(drawn, 2, " ")} for i in range(30)]
    return [*said, {"role": "user", "content": words(drawn, 9)}]


def history(drawn: random.Random) -> Any:
    return fit_messages(chat(drawn), max_tokens=drawn.randint(150, 500), query=words(drawn, 9)).messages


def prompt(drawn: random.Random) -> Any:
    blocks = {"memory": segments(drawn), "knowledge": segments(drawn), "examples": segments(drawn)}
    budget = TokenBudget(context_window=drawn.randint(900, 2_000), reserve=100)
    made = Assembler(budget).assemble({**blocks, "history": chat(drawn)}, query=words(drawn, 9))
    return [made.messages, dict(made.report.to_dict(), elapsed=None)]


def examples(drawn: random.Random) -> Any:
    given = [{"input": words(drawn, 9), "output": words(drawn, 1)} for _ in range(40)]
    return FewShotSelector().select(words(drawn, 9), given, max_tokens=120)


def optimizer(drawn: random.Random) -> Any:
    texts = [f"<document>{sentences(drawn, 6, ' ')}</document>" for _ in range(8)]
    return TokenOptimizer().optimize("\n".join([*texts, words(drawn, 9)]), "Be brief.", history=chat(drawn))


def analysis(drawn: random.Random) -> Any:
    found = ContextAnalyzer().analyze({"document": sentences(drawn, 40, "\n\n")}, words(drawn, 9))
    return repr(found)


def compressor(drawn: random.Random) -> Any:
    return repr(PromptCompressor().compress(sentences(drawn, 40, " "), 120, query=words(drawn, 9)))


def scores(drawn: random.Random) -> Any:
    given, asked = segments(drawn), words(drawn, 15)
    scorers = (Bm25Scorer(), GramScorer(), KeywordScorer(), TfidfScorer())
    return [*(s.score(asked, given) for s in scorers), word_shares(asked, tuple(s.text for s in given))]


WAYS: tuple[Callable[[random.Random], Any], ...] = (
    documents,
    result,
    numbered,
    history,
    prompt,
    examples,
    optimizer,
    analysis,
    compressor,
    scores,
)


def outputs(seed: str) -> dict[str, str]:
    """Returns what each way makes of the same drawn inputs in a process with this seed for hashes."""
    env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, __file__],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def test_no_result_depends_on_the_order_of_a_set() -> None:
    """Documents, tool results, histories, prompts, examples and scores are the same under every hash seed."""
    first, *others = map(outputs, SEEDS)
    for other in others:
        assert [name for name in first if first[name] != other[name]] == []


if __name__ == "__main__":
    made = {
        f"{way.__name__} {case}": repr(way(random.Random(case)))
        for way in WAYS
        for case in range(TIED if way in (documents, result, numbered) else CASES)
    }
    sys.stdout.write(json.dumps(made))
