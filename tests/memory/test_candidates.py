"""Which memories compete, and in which order: what alone has a rare word, and the same order at every budget."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankbudget import Scope
from rankbudget.memory import Memory, MemoryStore, terms
from rankbudget.memory.tables import memories, row_of
from rankbudget.memory.terms import add_terms
from rankbudget.relevance.words import content_terms
from tests.drawing import draws

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
ANN = Scope(user="ann")
THINGS = (
    "invoice customer parcel refund server budget travel meeting contract printer garden holiday dentist "
    "school train flight hotel kitchen window letter"
).split()
PEOPLE = ("Kim", "Bo", "Di", "Ed", "Lu")
KINDS = ("fact", "explicit", "experience", "core")
CUTS = (60, 100, 150, 300, 400, 600, 900, 1500, 2500)
LIMITS = (1, 3, 10, 50, 60, 120, 250)
_readers = itertools.count()
drawn = settings(
    max_examples=min(20, settings.default.max_examples),  # each stores hundreds of memories
    suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture],
)


def alike(draw: random.Random, number: int) -> list[str]:
    """Notes of one kind: the same words but for a number and a name."""
    first, second, third, fourth = draw.sample(THINGS, 4)
    return [
        f"The {first} {draw.randint(1000, 9999)} of the {second} is late, {draw.choice(PEOPLE)} promised "
        f"a {third} and a {fourth}."
        for _ in range(number)
    ]


def unlike(draw: random.Random, number: int) -> list[str]:
    """Notes of one to four sentences about anything."""
    return [
        " ".join(
            f"{draw.choice(PEOPLE)} saw the {draw.choice(THINGS)} and the {draw.choice(THINGS)} {i}."
            for _ in range(draw.choice((1, 1, 2, 4)))
        )
        for i in range(number)
    ]


def put_all(store: MemoryStore, found: Sequence[Memory]) -> None:
    """Stores memories in one transaction: hundreds of commits would wait for the disk."""
    with store.backend.database.write() as connection:
        for memory in found:
            stored = row_of(memory) | {"id": f"{next(_readers):032}"}
            row = connection.execute(memories().insert().values(stored).returning(memories().c.seq))
            add_terms(connection, row.scalar_one(), content_terms(memory.text))
    store.embed_missing()


def memory(text: str, scope: Scope, **fields: Any) -> Memory:
    return Memory(
        **{"text": text, "scope": scope, "created_at": NOW, "valid_from": NOW, "version": 1, **fields}
    )


@pytest.fixture(params=["meaning", "words", "postgres"])
def filled(request, open_store) -> MemoryStore:
    """A store in each kind of database that finds by meaning or by words, on a clock that stands still."""
    place = request.getfixturevalue("postgres") if request.param == "postgres" else ":memory:"
    return open_store(place, embed=False if request.param == "words" else None, clock=lambda: NOW)


@drawn
@given(
    seed=st.integers(0, 10**9),
    name=st.sampled_from(["Kowalski", "INV4711", "4711", "Zürich", "stapler"]),
    notes=st.integers(10, 120),
    where=st.sampled_from(["first", "between", "last"]),
    days=st.sampled_from([0, 400]),
)
def test_what_alone_has_the_rarest_word_is_kept(filled, seed, name, notes, where, days) -> None:
    """Among hundreds of others, however old it is and many notes share more of the question's words."""
    draw = random.Random(seed)
    ann = Scope(user=f"u{next(_readers)}")
    others = [*alike(draw, notes), *unlike(draw, 250 - notes)]
    draw.shuffle(others)
    answer = f"{name} moved to the third floor, next to the disk room."
    texts = list(dict.fromkeys(others))
    long_ago = NOW - timedelta(days=days)
    put_all(
        filled,
        [memory(answer, ann, created_at=long_ago, valid_from=long_ago), *[memory(t, ann) for t in texts]],
    )
    said = [f"{alike(draw, 1)[0]}", f"Again: {draw.choice(others)}"]
    said.insert({"first": 0, "between": 1, "last": 2}[where], f"And where is {name} now?")
    question = " ".join(said)
    assert answer in [found.text for found in filled.search(question, scope=ann, limit=10)]
    for room in (250, 900):
        assert answer in [kept.text for kept in filled.fit(question, scope=ann, max_tokens=room).segments]


@drawn
@given(
    seed=st.integers(0, 10**9),
    name=st.sampled_from(["Kowalski", "INV4711", "4711", "Zürich", "stapler"]),
    notes=st.integers(4, 90),
    holders=st.integers(1, 3),
    foreign=st.sampled_from([0, 3, 60]),
)
def test_the_few_that_have_a_rare_word_come_third_at_least(
    filled, seed, name, notes, holders, foreign
) -> None:
    """However few memories there are and old these are, and however many of another user's have the same word."""
    draw = random.Random(seed)
    ann, bob = (Scope(user=f"{user}{next(_readers)}") for user in ("ann", "bob"))
    wanted = [f"{name} {verb} a lamp." for verb in ("bought", "sold", "broke")[:holders]]
    late = [f"Late parcel, wet box and refund {i} for {draw.choice(PEOPLE)}." for i in range(notes)]
    mixed = draw.sample([*wanted, *late], holders + notes)
    old = NOW - timedelta(days=90)
    theirs = [memory(f"{name} sent {i} letters.", bob) for i in range(foreign)]
    put_all(
        filled, [*theirs, *[memory(text, ann, created_at=old if text in wanted else NOW) for text in mixed]]
    )
    question = f"What of the late parcel, the wet box, the refund and {name}?"
    found = filled.search(question, scope=ann, limit=holders + 2)
    assert {one.text for one in found}.issuperset(wanted)
    kept = filled.fit(question, scope=ann, max_tokens=60 * (holders + 2))
    assert {one.text for one in kept.segments}.issuperset(wanted)


@drawn
@given(
    seed=st.integers(0, 10**9),
    notes=st.integers(4, 90),
    holders=st.integers(1, 3),
    name=st.sampled_from(["4711", "INV4711", "50010"]),
    kind=st.sampled_from(["fact", "core"]),
)
def test_the_few_that_have_a_number_of_the_question_come_before_all_others(
    filled, seed, notes, holders, name, kind
) -> None:
    """However old they are, and however much newer or more important those about other numbers."""
    draw = random.Random(seed)
    ann = Scope(user=f"ann{next(_readers)}")
    wanted = [
        f"Order {name} of the {thing} was sent to Rome." for thing in ("lamp", "door", "bike")[:holders]
    ]
    others = [f"Order {60_000 + i} of the lamp was sent to {draw.choice(PEOPLE)}." for i in range(notes)]
    old = NOW - timedelta(days=300)
    mixed = [memory(text, ann, created_at=old) for text in wanted]
    mixed += [memory(text, ann, created_at=NOW, kind=kind, priority=90) for text in others]
    draw.shuffle(mixed)
    put_all(filled, mixed)
    question = f"Where was order {name} sent to?"
    for limit in (1, holders, holders + 2):
        found = [one.text for one in filled.search(question, scope=ann, limit=limit)]
        assert set(found[:holders]) <= set(wanted)
    kept = filled.fit(question, scope=ann, max_tokens=60).segments
    assert not {one.text for one in kept}.isdisjoint(wanted)


@drawn
@given(seed=st.integers(0, 10**9), others=st.integers(30, 250), lasting=st.integers(1, 10))
def test_what_always_matters_is_kept_where_there_is_room(filled, seed, others, lasting) -> None:
    """Near the question or not, it is among fifty found, and in a prompt with room for half as many."""
    draw = random.Random(seed)
    ann = Scope(user=f"u{next(_readers)}")
    kinds: list[dict[str, Any]] = [{"kind": "core"}, {"kind": "preference"}, {"static": True}]
    always = [memory(f"Prefers {i} sorts of cheese.", ann, **draw.choice(kinds)) for i in range(lasting)]
    put_all(filled, [*always, *[memory(text, ann) for text in dict.fromkeys(alike(draw, others))]])
    question = alike(draw, 1)[0]
    expected = {one.text for one in always}
    assert expected.issubset([one.text for one in filled.search(question, scope=ann, limit=50)])
    assert expected.issubset([s.text for s in filled.fit(question, scope=ann, max_tokens=2500).segments])


@drawn
@given(seed=st.integers(0, 10**9), notes=st.integers(0, 120), others=st.integers(1, 200))
def test_a_larger_budget_keeps_no_less(filled, seed, notes, others) -> None:
    """What is kept at some tokens is kept, or more of it, at more; a longer search begins with a shorter one."""
    draw = random.Random(seed)
    ann = Scope(user=f"u{next(_readers)}")
    texts = dict.fromkeys([*alike(draw, notes), *unlike(draw, others)])
    found = [
        memory(
            text,
            ann,
            kind=draw.choice(KINDS) if draw.random() < 0.3 else "fact",
            priority=draw.choice((None, None, 20, 90)),
            created_at=NOW - timedelta(days=draw.randint(0, 90)),
        )
        for text in texts
    ]
    put_all(filled, found)
    question = f"{draw.choice(list(texts))} What of the {' and the '.join(draw.sample(THINGS, 2))} of Kim?"
    before: dict[str, int] = {}
    for tokens in CUTS:
        kept = {s.id: len(s.text) for s in filled.fit(question, scope=ann, max_tokens=tokens).segments}
        assert {name: size for name, size in before.items() if kept.get(name, 0) < size} == {}
        before = kept
    searches = [[m.id for m in filled.search(question, scope=ann, limit=limit)] for limit in LIMITS]
    for shorter, longer in itertools.pairwise(searches):
        assert longer[: len(shorter)] == shorter


def test_a_report_tells_what_brings_a_farther_memory_back(filled) -> None:
    """The number of tokens that it says keeps the memory, and one token less does not, in every shell."""
    draw = random.Random(5)
    ann = Scope(user="ann")
    put_all(filled, [memory(text, ann) for text in dict.fromkeys([*alike(draw, 60), *unlike(draw, 90)])])

    def fitted(tokens: int) -> Any:
        return filled.fit("Is the parcel for Kim late again?", scope=ann, max_tokens=tokens)

    report = fitted(2200).report
    dropped = [decision.segment_id for decision in report.decisions if decision.action == "trimmed"]
    assert len(report.decisions) > 100
    for name in dropped[::9]:
        more = re.search(r"([\d,]+) more tokens? for the prompt would", report.explain(name))
        assert more is not None
        enough = 2200 + int(more[1].replace(",", ""))
        assert name in {s.id for s in fitted(enough).segments}
        assert name not in {s.id for s in fitted(enough - 1).segments}


OWN = st.lists(
    st.lists(st.sampled_from("tea sail moon desk fern".split()), min_size=1, max_size=4), min_size=1
)


@draws(cases=2)
@given(own=OWN, others=OWN, limit=st.integers(1, 6))
@pytest.mark.parametrize("sample", [3, 2000])
def test_what_others_store_changes_no_order(sample, own, others, limit) -> None:
    """By words, candidates and their order are the same, whatever other users store, in few rows or in many."""
    store, asked = MemoryStore(":memory:", embed=False), "Which tea, sail, desk or fern?"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "_SAMPLE", sample)
        for number, words in enumerate(own):
            store.put(f"{number} {' '.join(words)}", scope=ANN)

        def found() -> list[list[str]]:
            ways = (
                store.backend.near(asked, ANN, limit, store._now()),
                store.search(asked, scope=ANN, limit=limit),
            )
            fitted = store.fit(asked, scope=ANN, max_tokens=40).segments
            return [[one.text for one in way] for way in (*ways, fitted)]

        before = found()
        for number, words in enumerate(others):
            for copy in range(5):
                store.put(f"{number}.{copy} {' '.join(words)}", scope=Scope(user="bob"))
        assert found() == before
    store.close()
