"""A retriever's scores are one signal: the question's own words are another."""

from __future__ import annotations

import random
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Scope, Segment, fit_documents
from rankbudget.memory import MemoryStore
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


FORMS = {
    "What is the phone number of tenant {}?": "Tenant {}\nPhone: 030 {}\nCity: {}\nHouse: {}",
    "Why was order {} closed?": "Order {}\nState: closed\nOwner: {} of {}\nReason: waits for {}",
    "Which port does pump-{} listen on?": "pump-{}:\n  image: img:{}\n  zone: {}\n  port: {}",
    "How many pizzas were ordered at workshop {}?": (
        "The workshop {} was held on Monday. About {} people came. The room was cold. They left at {}:30. "
        "They ordered {} pizzas."
    ),
}


def notes(seed: int, count: int, form: str) -> tuple[str, list[str]]:
    """The number that is asked for, and short notes of all forms; the first has that number in this form."""
    draw = random.Random(seed)
    numbers = draw.sample(range(1000, 9999), count)
    forms = [form, *draw.choices(list(FORMS.values()), k=count - 1)]
    made = [one.format(n, *draw.sample(range(10, 999), 3)) for n, one in zip(numbers, forms, strict=True)]
    return str(numbers[0]), made


@draws()
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(8, 30),
    form=st.sampled_from(list(FORMS.items())),
    limit=st.integers(60, 400),
    stored=st.booleans(),
)
def test_a_short_note_that_is_named_stays_with_what_is_asked(
    seed: int, count: int, form: tuple[str, str], limit: int, stored: bool
) -> None:
    """With one of the best scores, or in a store, the note stays whole, not its name alone."""
    question, written = form
    named, texts = notes(seed, count, written)
    draw, place = random.Random(seed), seed % count
    if stored:
        with closing(MemoryStore(":memory:")) as store:
            for text in [*texts[1 : place + 1], texts[0], *texts[place + 1 :]]:
                store.put(text, scope=Scope(user="ann"))
            kept = store.fit(question.format(named), scope=Scope(user="ann"), max_tokens=limit).text
    else:
        scores = sorted([draw.uniform(0.7, 0.8) for _ in texts], reverse=True)
        own = scores.pop(draw.randrange(4))
        given_segments = [Segment(id="0", text=texts[0], score=own)] + [
            Segment(id=str(n), text=text, score=score)
            for n, (text, score) in enumerate(zip(texts[1:], scores, strict=True), 1)
        ]
        made = fit_documents(given_segments, max_tokens=limit, query=question.format(named))
        kept = "\n".join(segment.text for segment in made.segments)
    assert texts[0] in kept


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


RECORDS = {
    "Ticket #{}: {}\nStatus: closed\n\n{}": "Resolution: {}.",
    "This case {} is about {}. {}": "As a resolution we chose this: {}.",
    "id: {}\nsubject: {}\nopened: 2026-11-02\n{}": "resolution: {}",
}
"""Records with what one is about first, and the line of each that is asked for."""
ISSUES = (
    "printer offline,search empty,login loop,disk full,camera black,VPN slow on mobile,mail bounce".split(",")
)
LOGGED = (
    "[{0}:0{1}] agent{1}: asked the user to send logs. The user replied that nothing changed on build {2}.",
    "Note {2}: the caller was told to wait for step {0}, and the case went to team {1}.",
    "Thank you for contacting us. Please rate our service.",
)


def record(draw: random.Random, form: str, number: int, issue: str, fix: str) -> str:
    """A record of that form with three to fourteen lines around the one that says what helped."""
    lines = [
        draw.choice(LOGGED).format(draw.randint(1, 20), draw.randint(0, 9), draw.randint(1000, 9999))
        for _ in range(draw.randint(3, 14))
    ]
    lines.insert(draw.randrange(len(lines) + 1), RECORDS[form].format(fix))
    return form.format(number, issue, "\n".join(lines))


@draws()
@given(
    seed=st.integers(0, 10**6),
    form=st.sampled_from(list(RECORDS)),
    count=st.integers(4, 16),
    step=st.sampled_from([0.001, 0.004, 0.02]),
    limit=st.integers(300, 700),
)
def test_a_record_that_says_all_words_keeps_its_answer_at_any_rank(
    seed: int, form: str, count: int, step: float, limit: int
) -> None:
    """The sharper its first line matches, the sooner its other lines were dropped for texts that say nothing."""
    draw = random.Random(seed)
    own, fix = draw.randrange(count), f"install driver {seed % 90 + 10}.{seed % 7}"
    texts = [record(draw, form, 4100 + n, draw.choice(ISSUES), "restart the device") for n in range(count)]
    texts[own] = record(draw, form, 4100 + own, "VPN drops after sleep", fix)
    segments = [Segment(id=str(n), text=text, score=0.84 - step * n) for n, text in enumerate(texts)]
    for query in (
        "VPN drops after sleep resolution",
        "What was the resolution when the VPN drops after sleep?",
    ):
        assert RECORDS[form].format(fix) in fit_documents(segments, max_tokens=limit, query=query).text
