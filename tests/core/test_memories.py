"""The memory block: kept by nearness, importance, recency and kind together, and as evidence where memories state none of these."""

from __future__ import annotations

import dataclasses
import math
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, Block, Segment
from rankbudget.fitting.block import strategy_for
from rankbudget.fitting.evidence import Evidence, Memories
from rankbudget.relevance.embedding import EmbeddingScorer
from rankbudget.relevance.memories import OVER_RETRIEVE, MemoryScorer, MemoryWeights
from rankbudget.testing import FitStrategyConformance, WordCounter
from rankbudget.testing.conformance.fit_strategy import segments as drawn_segments

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
QUESTION = "Which tea did Ann try in London?"
WORDS = WordCounter()
FACTS = (
    "Ann tried green tea in London.", "Ann drives a red car to work. She likes it.", "Ann was in Munich for a day.",
    "Tea is what Ann likes best. She never drinks coffee.", "The office of Ann is in London. It has a garden. Roses grow there.",
)  # fmt: skip


class TestMemoriesStrategy(FitStrategyConformance):
    """`Memories` keeps every rule of a fitting strategy."""

    def make(self):
        return Memories(dedup=False)

    @pytest.mark.slow
    def test_rule_1_with_kinds_priorities_and_dates(self):
        """Never over the limit where memories are ranked by more than nearness."""

        @self._for_all(drawn_segments(), st.integers(0, 60))
        def check(drawn, limit):
            stated = [
                dataclasses.replace(
                    s, score=None, pinned=False, kind="core" if i % 2 else None, priority=i * 20.0
                )
                for i, s in enumerate(drawn)
            ]
            fit = self._fit(stated, limit)
            assert fit is not None
            assert fit.tokens == sum(WORDS.count(p.rendition.text + "\n") for p in fit.pieces) <= limit
            assert all(p.segment in stated for p in fit.pieces)


class ByNumber:
    """Nearness that is written in a memory's title."""

    def score(self, query, segments):
        return [float(segment.title or 0) for segment in segments]


def memories(*texts: str, **stated: Any) -> list[Segment]:
    return [Segment(id=f"m{i}", text=text, **stated) for i, text in enumerate(texts)]


def kept(strategy, given_memories, limit, query=QUESTION):
    fit = strategy.fit(given_memories, limit=limit, counter=WORDS, block="memory", query=query)
    return [(piece.segment.id, piece.rendition.text) for piece in fit.pieces]


def pair(**options: Any) -> list[Segment]:
    return [
        Segment(
            id="exp", text="Ann once tried tea in London and it was very fine that day.", kind="experience", priority=0,
            created_at=NOW - timedelta(days=1000), **options,
        ),
        Segment(
            id="core", text="Ann once tried tea in Munich and it was very fine that day.", kind="core", priority=100, created_at=NOW, **options
        ),
    ]  # fmt: skip


def in_block(given_memories, **block):
    made = Assembler(76).assemble([Block(name="memory", segments=given_memories, **block)], query=QUESTION)
    return [d.segment_id for d in made.report.decisions if d.block == "memory" and d.action == "kept"]


def test_the_memory_block_ranks_by_the_formula():
    """0.3 + 0.2 + 0.1 outweigh 0.4 + 0.07: the important memory stays though the other is nearer."""
    assert in_block(pair()) == ["core"]
    assert in_block(pair(), strategy="evidence") == ["exp"]


def test_other_blocks_can_name_it_and_do_not_get_it_unasked():
    """Only "memory" ranks so by itself."""
    assert isinstance(strategy_for("memory"), Memories)
    assert not isinstance(strategy_for("knowledge"), Memories)
    assert isinstance(strategy_for("notes", "memories"), Memories)


@given(
    texts=st.lists(st.sampled_from(FACTS), min_size=1, max_size=8, unique=False),
    limit=st.integers(0, 60),
    roles=st.booleans(),
    stated=st.sampled_from([{}, {"kind": "fact"}, {"priority": 30.0, "created_at": NOW}]),
)
def test_where_no_memory_differs_all_is_as_with_evidence(texts, limit, roles, stated):
    """Memories that state nothing, or all the same, are kept to the letter as evidence is: documents and turns, whole and by sentence."""
    given_memories = memories(*texts, role="user" if roles else None, **stated)
    assert kept(Memories(), given_memories, limit) == kept(Evidence(), given_memories, limit)


@pytest.mark.parametrize("role", [None, "user"])
@pytest.mark.parametrize("at", range(len(FACTS)))
def test_importance_lifts_what_is_less_near(at, role):
    """Whichever memory is the important, new, core one is among the kept, whole texts or sentences."""
    given_memories = memories(
        *FACTS, role=role, kind="experience", priority=0, created_at=NOW - timedelta(days=400)
    )
    given_memories[at] = dataclasses.replace(given_memories[at], kind="core", priority=100, created_at=NOW)
    for limit in (12, 30):
        assert f"m{at}" in dict(kept(Memories(), given_memories, limit))


@given(
    stated=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 100), st.integers(0, 400), st.sampled_from(["core", "fact", "experience", None])),
        min_size=2, max_size=8,
    ),
    role=st.sampled_from([None, "user"]),
)  # fmt: skip
def test_shifts_rank_as_the_formula(stated, role):
    """Nearness and shift together order memories as the scores do, on any scale of nearness."""
    given_memories = [
        Segment(
            id=str(i),
            text="x",
            role=role,
            title=str(near),
            priority=priority,
            created_at=NOW - timedelta(days=age),
            kind=kind,
        )
        for i, (near, priority, age, kind) in enumerate(stated)
    ]
    scorer = MemoryScorer(similarity=ByNumber())
    near = [3 * score - 20 for score in ByNumber().score("q", given_memories)]
    sums = [a + b for a, b in zip(near, scorer.shifts(near, given_memories), strict=True)]
    scores = scorer.score("q", given_memories)
    for i in range(len(scores)):
        for j in range(len(scores)):
            if scores[i] > scores[j] + 1e-9:
                assert sums[i] > sums[j] - 1e-9


def test_a_scorer_of_ones_own_is_the_similarity():
    """What the assembler is given rates nearness; a `MemoryScorer` brings its weights along."""
    near = [
        dataclasses.replace(memory, title=title) for memory, title in zip(pair(), ("1", "0"), strict=True)
    ]
    assert [name for name, _ in kept(strategy_for("memory", scorer=ByNumber()), near, 14)] == ["core"]
    only_near = MemoryScorer(MemoryWeights(priority=0, recency=0, kind=0), similarity=ByNumber())
    assert [name for name, _ in kept(strategy_for("memory", scorer=only_near), near, 14)] == ["exp"]
    only_new = MemoryScorer(MemoryWeights(similarity=0, priority=0, recency=1, kind=0), similarity=ByNumber())
    assert [name for name, _ in kept(strategy_for("memory", scorer=only_new), near, 14)] == ["core"]


def test_nothing_is_embedded_twice():
    """The ranking costs no vector more than evidence does."""

    def asked(strategy: type[Evidence], limit: int) -> list[str]:
        texts: list[str] = []

        def embed(many):
            texts.extend(many)
            return [[float(len(text)), 1.0] for text in many]

        given_memories = [dataclasses.replace(m, priority=i * 10) for i, m in enumerate(memories(*FACTS))]
        kept(strategy(scorer=EmbeddingScorer(embed)), given_memories, limit)
        return texts

    for limit in (10, 30):
        assert sorted(asked(Memories, limit)) == sorted(asked(Evidence, limit))


def crowd(count: int, **last: Any) -> list[Segment]:
    """Near memories of no importance, and one far and important memory at the end."""
    near = [
        Segment(
            id=f"m{i}", text=f"note{i} one two three", title=str(count - i), kind="experience", priority=0
        )
        for i in range(count)
    ]
    return [*near, Segment(id="far", text="far one two three", title="0", priority=100, **last)]


def test_of_many_memories_the_nearest_fifty_compete_and_core_ones_always():
    """An important memory far from the question does not push out near ones, unless it is of kind core; room left goes to the rest."""
    strategy = Memories(scorer=ByNumber(), compress=False, dedup=False)
    few, many = OVER_RETRIEVE - 1, OVER_RETRIEVE + 10
    assert "far" in dict(kept(strategy, crowd(few, kind="explicit"), 100))
    assert "far" not in dict(kept(strategy, crowd(many, kind="explicit"), 100))
    assert "far" in dict(kept(strategy, crowd(many, kind="core"), 100))
    assert len(kept(strategy, crowd(many, kind="explicit"), 4 * (OVER_RETRIEVE + 5))) == OVER_RETRIEVE + 5


@pytest.mark.parametrize("score", [0.5, math.inf, math.nan])
def test_the_formula_ranks_memories_that_bring_scores(score: float) -> None:
    """A retriever's score is the similarity, no way around priority, date and kind; infinity breaks nothing."""
    scored = [
        dataclasses.replace(memory, score=near) for memory, near in zip(pair(), (score, 0.4), strict=True)
    ]
    assert in_block(scored) == ["core"]
