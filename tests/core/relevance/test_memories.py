"""The memory ranking formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone

import pytest

from rankbudget import Segment
from rankbudget.errors import BudgetConfigError
from rankbudget.relevance.memories import MemoryScorer, MemoryWeights
from rankbudget.relevance.protocol import Scorer

DAY = datetime(2025, 6, 1, tzinfo=timezone.utc)


class ByNumber:
    """Similarity that is written in the memory's text."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        return [float(segment.text) for segment in segments]


def memory(name: str, near: float, **fields: object) -> Segment:
    return Segment(id=name, text=str(near), **fields)  # type: ignore[arg-type]


def test_the_formula() -> None:
    """0.4 similarity + 0.3 priority + 0.2 recency + 0.1 kind, each from 0 to 1."""
    memories = [
        memory("a", 0.9, priority=100, kind="core", created_at=DAY),
        memory("b", 0.1, priority=0, kind="experience", created_at=DAY - timedelta(days=30)),
        memory("c", 0.5, priority=50, kind="fact", created_at=DAY - timedelta(days=60)),
    ]
    scores = MemoryScorer(similarity=ByNumber()).score("q", memories)
    assert scores == pytest.approx([1.0, 0.2 * 0.5 + 0.07, 0.4 * 0.5 + 0.15 + 0.2 * 0.25 + 0.08])


def ranked(*memories: Segment, similarity: Scorer | None = None) -> list[str]:
    scores = MemoryScorer(similarity=similarity).score("Which tea does she like?", memories)
    return [memories[i].id for i in sorted(range(len(memories)), key=lambda i: -scores[i])]


def test_similarity_decides_however_small_its_range() -> None:
    """Raw cosines within a tenth still use their whole share of the score."""
    memories = [memory("a", 0.71, kind="core"), memory("b", 0.75, kind="experience")]
    assert ranked(*memories, similarity=ByNumber()) == ["b", "a"]


def test_kinds_rank_as_specified() -> None:
    """All else equal, core stands before explicit, fact, project and experience."""
    expected = ["core", "explicit", "fact", "project", "experience"]
    memories = [memory(kind, 0, kind=kind) for kind in reversed(expected)]
    assert ranked(*memories, similarity=ByNumber()) == expected


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_score_that_is_no_number_ranks_as_best_or_worst(bad: float) -> None:
    """Infinity is the best finite score; what is no number, and minus infinity, the worst."""
    scores = MemoryScorer(similarity=ByNumber()).score("q", [memory(str(n), n) for n in (bad, 1, 2)])
    assert scores == pytest.approx([0.4 * (bad > 0) + 0.42, 0.42, 0.82])


def test_weights_are_configuration() -> None:
    """With all weight on recency, the newest is first; half-life and kinds can be set."""
    memories = [memory("old", 9, created_at=DAY - timedelta(days=2)), memory("new", 0, created_at=DAY)]
    weights = MemoryWeights(similarity=0, priority=0, recency=1, kind=0, half_life_days=2)
    scores = MemoryScorer(weights, similarity=ByNumber()).score("q", memories)
    assert scores == pytest.approx([0.5, 1.0])
    assert MemoryScorer(
        MemoryWeights(similarity=0, priority=0, recency=0, kind=1, kinds={"mine": 40}), similarity=ByNumber()
    ).score("q", [memory("m", 0, kind="mine")]) == pytest.approx([0.4])


def test_recency_counts_from_now_when_now_is_given() -> None:
    """With a moment given, the newest memory itself has an age; naive times are read as UTC."""
    weights = MemoryWeights(similarity=0, priority=0, recency=1, kind=0, half_life_days=10)
    scorer = MemoryScorer(weights, similarity=ByNumber(), now=DAY + timedelta(days=10))
    assert scorer.score("q", [memory("a", 0, created_at=DAY.replace(tzinfo=None))]) == pytest.approx([0.5])


def test_a_memory_without_a_date_counts_as_old_as_the_oldest() -> None:
    """Not knowing when is no reason to go first."""
    weights = MemoryWeights(similarity=0, priority=0, recency=1, kind=0)
    scores = MemoryScorer(weights, similarity=ByNumber()).score(
        "q",
        [memory("a", 0), memory("b", 0, created_at=DAY), memory("c", 0, created_at=DAY - timedelta(days=30))],
    )
    assert scores == pytest.approx([0.5, 1.0, 0.5])


def test_bad_weights_are_listed_together() -> None:
    """All wrong weights are named in one error."""
    with pytest.raises(BudgetConfigError, match=r"similarity must be.*-1(.|\n)*half_life_days must be.*0"):
        MemoryWeights(similarity=-1, half_life_days=0)


def test_the_default_similarity_reads_the_text() -> None:
    """Without a similarity of one's own, words and meaning decide."""
    memories = [
        Segment(id="tea", text="Ann drinks green tea"),
        Segment(id="car", text="Ann drives a red car"),
    ]
    assert ranked(*memories)[0] == "tea"
