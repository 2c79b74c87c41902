"""A retriever's scores are one signal: the question's own words are another."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from tests.drawing import draws

WORDS = "crew valve lunch note pressure oil rust paint bolt hose belt filter switch lamp cable weather week mild".split()


def found(seed: int, count: int) -> list[Segment]:
    """Passages with scores between 0.2 and 0.8; the one that answers is somewhere in the better half."""
    draw = random.Random(seed)
    made = []
    for n in range(count):
        lines = [" ".join(draw.choices(WORDS, k=14)).capitalize() + "." for _ in range(draw.randint(4, 12))]
        if n == 0:
            lines.insert(draw.randrange(len(lines)), f"The access code of the mill is B{seed}.")
        score = draw.uniform(0.5, 0.8) if n == 0 else draw.uniform(0.2, 0.8)
        made.append(Segment(id=f"d{n}", text=" ".join(lines), score=score))
    return sorted(made, key=lambda segment: -(segment.score or 0))


@draws()
@given(seed=st.integers(0, 10**6), count=st.integers(8, 30))
def test_the_passage_that_answers_outweighs_better_scores_of_others(seed: int, count: int) -> None:
    """With room for a tenth of the passages, the sentence that has the question's words is there."""
    segments = found(seed, count)
    room = sum(len(segment.text) for segment in segments) // 40
    made = fit_documents(segments, max_tokens=max(60, room), query="What is the access code of the mill?")
    assert f"B{seed}." in " ".join(segment.text for segment in made.segments)


@pytest.mark.parametrize("query", ["", "   "])
def test_without_a_question_the_scores_decide(query: str) -> None:
    """The passages with the best scores are kept whole, in order."""
    segments = [Segment(id=str(n), text=f"Text {n} has some words.", score=float(n % 7)) for n in range(14)]
    made = fit_documents(segments, max_tokens=32, query=query)
    best = sorted(segments, key=lambda segment: -(segment.score or 0))[: len(made.segments) - 1]
    assert {segment.id for segment in best} <= {segment.id for segment in made.segments}


@draws()
@given(scores=st.lists(st.integers(0, 100), min_size=6, max_size=12, unique=True))
def test_scores_decide_between_texts_that_say_the_same_of_the_question(scores: list[int]) -> None:
    """Passages that differ in a number alone are kept by their scores."""
    segments = [Segment(id=f"d{n}", text=f"The mill has {n} doors.", score=s) for n, s in enumerate(scores)]
    made = fit_documents(segments, max_tokens=30, query="How many doors has the mill?")
    kept = {segment.id for segment in made.segments}
    ranked = sorted(segments, key=lambda segment: -(segment.score or 0))
    assert kept == {segment.id for segment in ranked[: len(kept)]}
