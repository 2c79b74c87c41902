"""The laws through the document entry points."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.fitting.evidence import BestFirst, Evidence
from rankbudget.fitting.protocol import FitStrategy
from rankbudget.testing import Application, FitStrategyConformance, WordCounter, applications
from tests.drawing import draws

COUNTER = WordCounter()


def fit(application: Application, limit: int, **options: Any) -> Any:
    query = application.question or "What did we decide?"
    return fit_documents(
        list(application.documents), max_tokens=limit, query=query, counter=COUNTER, **options
    )


@draws()
@given(applications(max_turns=1), st.one_of(st.integers(1, 60), st.integers(40, 2000)), st.booleans())
def test_fit_documents(application: Application, limit: int, compress: bool) -> None:
    """What comes back is within the limit, in order, invents nothing, changes nothing, is reported, and is the same every time."""
    documents = list(application.documents)
    result = fit(application, limit, compress=compress)  # documents are never pinned: nothing to refuse
    total = sum(COUNTER.count(s.text + "\n") for s in result.segments)
    assert total <= limit, f"law 1 (limit): {total} > {limit}"
    assert result.report.total_tokens <= limit
    assert list(application.documents) == documents, "law 5 (order): inputs were changed"
    places = [int(s.text.split()[1].rstrip(":")) for s in result.segments if s.text.startswith("Document ")]
    assert places == sorted(set(places)), "law 5 (order): order changed, or one twice"
    words = {word for text in documents for word in text.split()} | {"…", "[…]", "..."}
    for segment in result.segments:
        strange = [
            w
            for w in segment.text.split()
            if w not in words and not any(w.strip("….[]") in known for known in words)
        ]
        assert not strange, f"law 8 (nothing invented): {strange[:3]}"
    decided = [d.segment_id for d in result.report.decisions]
    assert len(decided) == len(documents)
    assert len(set(decided)) == len(documents), "one decision for each document"
    again = fit(application, limit, compress=compress)
    assert [s.text for s in again.segments] == [s.text for s in result.segments], "law 7 (repeatable)"


@draws()
@given(applications(max_turns=1))
def test_documents_that_fit_come_back_untouched(application: Application) -> None:
    """With room for all, different documents come back whole, as the same objects."""
    segments = [Segment(id=f"d{i}", text=text) for i, text in enumerate(application.documents)]
    result = fit_documents(segments, max_tokens=1_000_000, query="release", counter=COUNTER, dedup=False)
    assert [s.id for s in result.segments] == [s.id for s in segments]
    assert all(a is b for a, b in zip(result.segments, segments, strict=True))


class TestBestFirst(FitStrategyConformance):
    """`BestFirst` keeps the rules of a fitting strategy."""

    examples = 60

    def make(self) -> FitStrategy:
        return BestFirst()


class TestEvidence(FitStrategyConformance):
    """`Evidence` keeps the rules of a fitting strategy."""

    examples = 60

    def make(self) -> FitStrategy:
        return Evidence(dedup=False)
