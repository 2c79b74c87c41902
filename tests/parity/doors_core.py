"""The core's entry points as doors: OpenAI-style dicts in, rows of role, text and calls out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rankbudget import (
    Assembler,
    Block,
    BudgetSession,
    FewShotSelector,
    Segment,
    afit_messages,
    counter_for,
    fit_documents,
    fit_messages,
)
from tests.parity.draws import Case, Piece

Row = tuple[str, str, tuple[str, ...]]
_MARKER = re.compile(r"\b[masqde]\d+x\d+\b")


class _FitMessages:
    """The two functions as an object with a method and its async twin."""

    fit = staticmethod(fit_messages)
    afit = staticmethod(afit_messages)


def rows(messages: Sequence[dict[str, Any]]) -> list[Row]:
    """Returns messages as role, text and the ids of their calls or of the call they answer."""
    found = []
    for m in messages:
        calls = [c["id"] for c in m.get("tool_calls") or ()]
        calls += [m["tool_call_id"]] if m.get("tool_call_id") else []
        found.append((m["role"], m.get("content") or "", tuple(calls)))
    return found


def summarize(text: str, max_tokens: int) -> str:
    """Writes the markers of what it is given, as many as fit: it shows which messages a summary covers."""
    markers = list(dict.fromkeys(_MARKER.findall(text)))
    return " ".join(markers[: max(1, max_tokens // 8)])


def segments(documents: Sequence[Piece]) -> list[Segment]:
    """Returns the drawn documents as segments with their retriever's scores."""
    return [Segment(id=d.id, text=d.text, score=d.score) for d in documents]


def example_rows(case: Case, kept: Sequence[Any]) -> list[tuple[str]]:
    """Returns which examples are kept, by their markers, in the order in which they are shown."""
    text = "\n".join(map(str, kept))
    return [(m,) for m in dict.fromkeys(_MARKER.findall(text)) if m.startswith("e")]


# ---- a thread ----------------------------------------------------------------------------------------------
def _fit_thread(case: Case, ask: Any, **options: Any) -> Iterator[dict[str, Any]]:
    for turn in range(len(case.questions)):
        thread = case.thread(turn, asked=True)
        found = ask(_FitMessages, "fit", thread, max_tokens=case.budget, counter=case.counter, **options)
        yield {"history": rows(found.messages), "total": found.report.total_tokens}


def fit_thread(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _fit_thread(case, ask)


def fit_thread_stable(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _fit_thread(case, ask, cut="stable")


def fit_thread_one_exchange(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _fit_thread(case, ask, min_exchanges=1, message_cap=None)


def fit_with_session(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _fit_thread(case, ask, session=BudgetSession(case.budget, counter=case.counter))


def _assemble_thread(case: Case, ask: Any, **options: Any) -> Iterator[dict[str, Any]]:
    made = Assembler(case.budget, counter=case.counter, **options)
    for turn in range(len(case.questions)):
        found = ask(made, "assemble", {"history": case.thread(turn, asked=True)})
        yield {"history": rows(found.messages), "total": found.report.total_tokens}


def assemble_thread(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble_thread(case, ask)


def assemble_thread_stable(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble_thread(case, ask, cut="stable")


def _session(case: Case, ask: Any, *, asked: bool, **options: Any) -> Iterator[dict[str, Any]]:
    made = BudgetSession(case.budget, counter=case.counter, **options)
    for turn, question in enumerate(case.questions):
        pending = {} if asked else {"question": question}
        found = ask(made, "fit", case.thread(turn, asked=asked), **pending)
        yield {"history": rows(found.messages)}


def session(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _session(case, ask, asked=True)


def session_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _session(case, ask, asked=False)


def session_summarizing(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _session(case, ask, asked=True, summarizer=summarize)


# ---- blocks ------------------------------------------------------------------------------------------------
def _assemble(case: Case, ask: Any, slots: Sequence[str], *, remembers: bool) -> Iterator[dict[str, Any]]:
    remembered = BudgetSession(case.budget, counter=case.counter) if remembers else None
    made = Assembler(case.budget, counter=case.counter, session=remembered)
    for turn, question in enumerate(case.questions):
        given = {
            "history": Block(name="history", messages=case.thread(turn)),
            "knowledge": Block(name="knowledge", segments=tuple(segments(case.documents))),
            "examples": Block.of("examples", *(_example_text(e) for e in case.examples)),
        }
        found = ask(made, "assemble", [given[name] for name in slots], query=question)
        kept: dict[str, Any] = {}
        if "history" in slots:
            kept["history"] = rows(found.history)
        if "knowledge" in slots:
            kept["documents"] = _pieces(found, "knowledge")
        if "examples" in slots:
            kept["examples"] = example_rows(case, [text for _, text in _pieces(found, "examples")])
        yield kept


def _pieces(assembly: Any, block: str) -> list[tuple[str, str]]:
    fit = assembly.kept.get(block)
    return [(p.segment.id, p.rendition.text) for p in fit.pieces] if fit is not None else []


def _example_text(example: dict[str, str]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in example.items())


def assemble_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble(case, ask, ["history"], remembers=True)


def assemble_parts(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble(case, ask, ["history", "knowledge"], remembers=True)


def assemble_slots(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble(case, ask, ["history", "knowledge", "examples"], remembers=False)


def assemble_documents(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _assemble(case, ask, ["knowledge"], remembers=False)


# ---- one slot alone ----------------------------------------------------------------------------------------
def fit_documents_alone(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    for question in case.questions:
        found = fit_documents(
            segments(case.documents), max_tokens=case.budget, query=question, counter=case.counter
        )
        yield {"documents": [(s.id, s.text) for s in found.segments]}


def few_shot(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = FewShotSelector()
    for question in case.questions:
        found = made.select(
            question,
            list(case.examples),
            case.k,
            max_tokens=examples_room(case),
            counter=counter_for(case.counter),
        )
        yield {"examples": example_rows(case, found)}


def examples_room(case: Case) -> int:
    """Returns the tokens that examples may have: few enough for some of them to fall out."""
    assert isinstance(case.budget, int)
    return max(10, case.budget // 4)
