"""`rankbudget demo`: one budget, one conversation and one folder of documents, through both frameworks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ..budget.token_budget import TokenBudget
from ..counting import counter_for
from ..errors import BudgetConfigError, BudgetExceededError, CounterUnavailableError, counted
from ..messages.texts import content_text
from ..relevance.index import EmbeddingIndex
from ..report.report import BudgetReport
from ..segment import Segment
from .reading import read_chat, read_passages

QUESTION = "What happens when the last three exchanges of a conversation do not fit?"
_LINE = "-" * 20
CONTEXT = f"Use the context information below to assist the user.\n{_LINE}\n{{context}}\n{_LINE}\n"
"""The context template of LlamaIndex's chat engine, for the chain to have the same fixed text."""

_HALVES = {"LangChain": "langchain_budget.demo", "LlamaIndex": "llamaindex_budget.demo"}
_INSTALL = 'pip install "rankbudget[langchain,classic,llamaindex,faiss,embed]"'
_DATA = Path(__file__).parents[1] / "data"
_RETRIEVED = 20
_RESERVE = 600
_ENCODING = "o200k_base"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What both frameworks are given.

    Args:
        history: the conversation before the question, as OpenAI-style dicts.
        index: the documents, to be searched.
    """

    budget: TokenBudget
    system: str
    history: Sequence[Mapping[str, Any]]
    question: str
    index: EmbeddingIndex

    def search(self, query: str) -> list[Segment]:
        """Returns the passages nearest to a query, with their scores."""
        return self.index.search(query, k=_RETRIEVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What one framework made of the task.

    Args:
        prompt: the messages that went to the model, in neutral form.
        passages: the text of each passage in it, by its name.
        report: of the whole prompt.
    """

    prompt: Sequence[Mapping[str, Any]]
    passages: Mapping[str, str]
    report: BudgetReport


def run_demo(
    *,
    chat: str | None = None,
    docs: str | None = None,
    question: str | None = None,
    window: int = 4096,
) -> int:
    """Runs both halves, prints a report of each and what differs; returns 0, or 1 where something does.

    Raises:
        BudgetError: a file cannot be read, or the budget cannot work.
        ImportError: a framework is not installed; the error names the extra.
    """
    _say("loading LangChain and LlamaIndex")
    halves = {name: _half(module) for name, module in _HALVES.items()}
    system, history = read_chat(chat or _DATA / "conversation.json").split()
    passages = read_passages(docs or _documentation())
    _say(f"indexing {counted(len(passages), 'passage')}")
    index = EmbeddingIndex(backend="faiss")
    index.add(passages)
    reserve = _RESERVE if window > 2 * _RESERVE else max(2, window // 4)
    task = Task(
        budget=TokenBudget(context_window=window, reserve=reserve, model=_ENCODING),
        system="\n\n".join(content_text(m.get("content")) for m in system) or "You are a helpful assistant.",
        history=history,
        question=question or QUESTION,
        index=index,
    )
    done: dict[str, Half] = {}
    for name, run in halves.items():
        _say(f"running {name}")
        done[name] = half = run(task)
        print(f"\n== {name} ==\n{half.report.table()}")
        sent = _tokens_sent(half, task)
        print(f"counted again on what was sent: {sent:,} tokens, {len(half.prompt)} messages")
    same = _compare(done)
    print(f"\n{task.question}")
    for answer, names in _answers(done, task).items():
        print(f"{' and '.join(names)}: {answer}")
    return 0 if same else 1


def _half(module: str) -> Any:
    try:
        return import_module(module).run
    except ImportError as error:
        msg = f"the demonstration runs LangChain and LlamaIndex, and one is missing ({error}): {_INSTALL}"
        raise CounterUnavailableError(msg) from error


def _documentation() -> Path:
    """Returns the project's own pages: beside the package in a wheel, at the top of a checkout."""
    for folder in (_DATA / "docs", Path(__file__).parents[3] / "docs"):
        if folder.is_dir() and any(folder.glob("*.md")):
            return folder
    msg = "the documentation is not installed beside the package; pass --docs DIR, a folder of texts"
    raise BudgetConfigError(msg)


def _tokens_sent(half: Half, task: Task) -> int:
    counter = counter_for(task.budget.model)
    tokens, limit = counter.count_messages(half.prompt), task.budget.limit(band=counter.band)
    if tokens > limit:
        msg = f"the prompt has {tokens:,} tokens, the limit is {limit:,}"
        raise BudgetExceededError(msg, limit=limit, needed=tokens)
    return tokens


def _compare(done: Mapping[str, Half]) -> bool:
    """Prints which pieces both prompts have and which differ, and returns whether none does."""
    (one, first), (two, second) = ((name, _pieces(half)) for name, half in done.items())
    print(f"\n== {one} and {two}, piece by piece ==")
    names = dict.fromkeys([*first, *second])
    differ = [name for name in names if first.get(name) != second.get(name)]
    print(f"the same text in both: {len(names) - len(differ)} of {counted(len(names), 'piece')}")
    for name in differ:
        print(f"{name}: {one} {_shown(first.get(name))}, {two} {_shown(second.get(name))}")
    return not differ


def _pieces(half: Half) -> dict[str, str]:
    """Returns the passages, and the messages between system prompt and question, the newest first."""
    turns = [f"{m['role']}: {content_text(m.get('content'))}" for m in reversed(half.prompt[1:-1])]
    return {**half.passages, **{f"message {i} before the question": t for i, t in enumerate(turns, start=1)}}


def _shown(text: str | None) -> str:
    return "leaves it out" if text is None else f"keeps {len(text):,} characters, {text[:40]!r}"


def _answers(done: Mapping[str, Half], task: Task) -> dict[str, list[str]]:
    """Returns the kept passage that is rated highest, with those who kept it."""
    found = [passage.id for passage in task.search(task.question)]
    answers: dict[str, list[str]] = {}
    for name, half in done.items():
        best = next((passage for passage in found if passage in half.passages), "")
        quoted = f"{half.passages[best]}\n  ({best})" if best else "no passage was kept"
        answers.setdefault(quoted, []).append(name)
    return answers


def _say(step: str) -> None:
    print(f"{step} ...", file=sys.stderr)
