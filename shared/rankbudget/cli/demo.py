"""`rankbudget demo`: one conversation, one folder of documents, one question, one budget, through a LangChain chain and a LlamaIndex engine.

This file knows no framework. Each adapter has a `demo.py` of its own that runs its framework's half of the same `Task`; they are found by name,
because nothing in the core may stand on an adapter.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..budget.token_budget import TokenBudget
from ..messages.codec import content_text
from ..errors import BudgetConfigError, BudgetError, CounterUnavailableError
from .progress import step
from .reading import Chat, read_chat, read_passages

if TYPE_CHECKING:
    from ..relevance.index import EmbeddingIndex
    from ..report.report import BudgetReport
    from ..segment import Segment

__all__ = ["Half", "Task", "model_errors", "quoted", "run_demo"]

QUESTION = "What happens when the last three exchanges of a conversation do not fit?"
RETRIEVED = 20
_RESERVE = 600
_ENCODING = "o200k_base"
_HALVES = {"LangChain chain": "langchain_budget.demo", "LlamaIndex engine": "llamaindex_budget.demo"}
_WIDE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What both frameworks are given.

    Args:
        budget: the limits.
        counter: name of the tokenizer.
        system: the system prompt.
        history: the conversation before the question, as OpenAI-style dicts.
        question: what is asked now.
        index: the documents, to be searched.
        model: the model that answers; None quotes.
        base_url: its OpenAI-compatible server; None is the client's default.
    """

    budget: TokenBudget
    counter: str
    system: str
    history: Sequence[Mapping[str, Any]]
    question: str
    index: EmbeddingIndex
    model: str | None = None
    base_url: str | None = None

    def search(self, query: str) -> list[Segment]:
        """Returns the passages nearest to a query; ranking them for the prompt is the budget's work, so they carry no score."""
        import dataclasses

        return [dataclasses.replace(segment, score=None) for segment in self.index.search(query, k=RETRIEVED)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """What one framework made of the task.

    Args:
        prompt: the messages that went to the model, in neutral form.
        history: the conversation in it: role and text of each message.
        documents: the passages in it: id and text of each.
        reports: the adapters' reports.
        answer: the model's answer, or the quoted passage.
    """

    prompt: Sequence[Mapping[str, Any]]
    history: Sequence[tuple[str, str]]
    documents: Sequence[tuple[str, str]]
    reports: Sequence[BudgetReport]
    answer: str = field(default="")


def run_demo(
    *,
    chat: str | None = None,
    docs: str | None = None,
    question: str | None = None,
    window: int = 4096,
    model: str | None = None,
    base_url: str | None = None,
) -> int:
    """Runs both halves, prints what each did and whether they kept the same; returns 0, or 1 when they differ.

    Raises:
        BudgetError: files that cannot be read, a budget that cannot work, a model that does not answer.
        ImportError: a framework that is not installed; it names the extra.
    """
    with step("loading LangChain and LlamaIndex"):
        halves = {name: _half(name, module) for name, module in _HALVES.items()}
    given = read_chat(chat or _shipped("conversation.json"))
    folder = docs or _documentation()
    passages = read_passages(folder)
    with step(f"indexing {len(passages):,} passages"):
        index = _index(passages)
    task = _task(given, index, question, window, model, base_url)
    counter = _counter(task.counter)
    limit = task.budget.limit(band=counter.band)
    print(
        f"{len(task.history):,} messages, {len(passages):,} passages indexed with {'FAISS' if index.uses_faiss else 'numpy'}, question: {task.question}"
    )
    done: dict[str, Half] = {}
    for name, run in halves.items():
        with step(f"running the {name}"):
            done[name] = run(task)
        size = counter.count_messages(done[name].prompt)
        print(f"\n== {name} ==")
        for report in done[name].reports:
            print(report.table())
        print(
            f"final prompt: {size:,} tokens of {limit:,} ({len(done[name].history)} messages, {len(done[name].documents)} passages)"
        )
        if size > limit:
            msg = f"the prompt of the {name} has {size:,} tokens, the limit is {limit:,}"
            raise BudgetError(msg)
    same = _compare(done)
    print(f"\n{task.question}\n{_answers(done, task)}")
    return 0 if same else 1


@contextmanager
def model_errors(model: str | None) -> Iterator[None]:
    """Turns whatever a model's client raises into one line that names the model."""
    try:
        yield
    except Exception as error:
        if model is None or isinstance(error, BudgetError):
            raise
        msg = f"model {model!r} did not answer: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        raise BudgetError(msg) from error


def quoted(documents: Sequence[tuple[str, str]], question: str) -> str:
    """Returns the passage that fits the question best, for want of a model."""
    if not documents:
        return "(no passage was kept, so there is nothing to quote)"
    from ..relevance.fusion import FusionScorer
    from ..segment import Segment

    segments = [Segment(id=name, text=text) for name, text in documents]
    scores = FusionScorer().score(question, segments)
    best = max(range(len(segments)), key=lambda i: (scores[i], -i))
    return f"{segments[best].text}\n  ({segments[best].id})"


def _half(name: str, module: str) -> Any:
    try:
        return importlib.import_module(module).run
    except ImportError as error:
        extra = "langchain,classic" if "LangChain" in name else "llamaindex"
        msg = f'the demonstration runs LangChain and LlamaIndex, and one is missing ({error}): pip install "rankbudget[{extra},faiss,embed]"'
        raise CounterUnavailableError(msg) from error


def _shipped(name: str) -> Path:
    return Path(__file__).parents[1] / "data" / name


def _documentation() -> Path:
    """Returns the folder of the project's own pages: beside the package in a wheel, at the top of a checkout."""
    for folder in (Path(__file__).parents[1] / "data" / "docs", Path(__file__).parents[3] / "docs"):
        if folder.is_dir() and any(folder.glob("*.md")):
            return folder
    msg = "the documentation is not installed beside the package; give a folder of texts with --docs DIR"
    raise BudgetConfigError(msg)


def _index(passages: list[Segment]) -> EmbeddingIndex:
    from ..relevance.index import EmbeddingIndex

    index = EmbeddingIndex(backend="faiss")
    index.add(passages)
    return index


def _task(
    chat: Chat,
    index: EmbeddingIndex,
    question: str | None,
    window: int,
    model: str | None,
    base_url: str | None,
) -> Task:
    leading, history = chat.split()
    reserve = _RESERVE if window > 2 * _RESERVE else max(2, window // 4)
    return Task(
        budget=TokenBudget(context_window=window, reserve=reserve, model=model or _ENCODING),
        counter=model or _ENCODING,
        system="\n\n".join(content_text(message.get("content")) for message in leading)
        or "You are a helpful assistant.",
        history=history,
        question=question or QUESTION,
        index=index,
        model=model,
        base_url=base_url,
    )


def _counter(name: str) -> Any:
    from ..counting import counter_for

    return counter_for(name)


def _compare(done: Mapping[str, Half]) -> bool:
    """Prints whether both kept the same pieces, and what differs."""
    (one, first), (two, second) = done.items()
    same = True
    for what, left, right in (
        ("messages", first.history, second.history),
        ("passages", first.documents, second.documents),
    ):
        if list(left) == list(right):
            print(f"\nboth kept the same {len(left)} {what}, text for text", end="")
            continue
        same = False
        for name, mine, theirs in ((one, left, right), (two, right, left)):
            only = [f"{key}: {text[:40]!r}" for key, text in mine if (key, text) not in theirs]
            if not only:
                continue
            print(f"\nonly the {name} kept {len(only)} {what}: {'; '.join(only[:5])}"[: _WIDE * 3], end="")
    print()
    return same


def _answers(done: Mapping[str, Half], task: Task) -> str:
    answers = {name: half.answer for name, half in done.items()}
    if task.model is not None:
        return "\n".join(f"{task.model} through the {name}: {answer}" for name, answer in answers.items())
    told = "no model was given (--model NAME), so this is the best matching kept passage:"
    return "\n".join([told, *dict.fromkeys(answers.values())])
