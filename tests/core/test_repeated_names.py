"""Lines that repeat one word of the question, as logs and calls do, leave its place to what says all of it."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from tests.drawing import draws

CUSTOMERS = "Halvorsen Okafor Lindqvist Marchetti Tanaka Brandt Novak Oduya Petrov Szabo".split()

FORMS = {
    "prose": lambda name, fee: (
        f"This agreement, which the supplier and the customer {name} have made and which replaces all earlier ones, "
        f"obliges the customer to pay for the services of annex one an annual fee of {fee} EUR in January."
    ),
    "JSON": lambda name, fee: json.dumps(
        {"customer": name, "kind": "retail", "contract": {"annual_fee": fee}}
    ),
    "JSON in lines": lambda name, fee: json.dumps(
        {"customer": name, "kind": "retail", "contract": {"annual_fee": fee, "days": 30}}, indent=2
    ),
    "a page": lambda name, fee: (
        f"# Customer {name}\n\nSupplied since 2019 in all seasons.\n\nThe annual fee is {fee} EUR.\n"
    ),
    "Markdown": lambda name, fee: (
        f"| field | value |\n|---|---|\n| customer | {name} |\n| annual fee | {fee} |"
    ),
}
REPEATED = {
    "calls": lambda name, n: f"2026-03-{n % 28 + 1:02d} call with {name}, {n} min\n",
    "news": lambda name, n: f"{name} opened shop {n}. ",
    "log": lambda name, n: f"2026-03-01T08:{n % 60:02d}:00Z INFO {name} request {n} served\n",
}


@draws()
@given(
    form=st.sampled_from(sorted(FORMS)),
    noise=st.sampled_from(sorted(REPEATED)),
    lines=st.integers(1, 60),
    logs=st.integers(1, 3),
    asked=st.integers(0, 9),
    room=st.sampled_from([160, 400, 900]),
)
def test_what_says_all_of_the_question_stays_beside_lines_that_repeat_one_word(
    form: str, noise: str, lines: int, logs: int, asked: int, room: int
) -> None:
    """However often logs name the customer, the one record that also says the fee comes first."""
    records = [FORMS[form](name, 100_000 + n) for n, name in enumerate(CUSTOMERS)]
    name = CUSTOMERS[asked]
    made = ["".join(REPEATED[noise](name, lines * k + n) for n in range(lines)) for k in range(logs)]
    query = f"What is the annual fee of the customer {name}?"
    found = fit_documents([*records, *made], max_tokens=room, query=query, counter="o200k_base")
    assert str(100_000 + asked) in found.text


FIRST = "Anna Paul Maria Robert Julia Thomas Daniel Petra".split()
LAST = "Koch Lange Schulz Richter Brandt Wolf Krause Vogt".split()
ROWS = {
    "CSV": lambda person, n: f"{person[0]},{person[1]},sales,{n}\n",
    "prose": lambda person, n: f"The extension of {person[0]} {person[1]} is {n}. ",
    "JSON": lambda person, n: json.dumps({"first": person[0], "last": person[1], "extension": n}) + "\n",
    "Markdown": lambda person, n: f"| {person[0]} | {person[1]} | sales | {n} |\n",
}


@draws()
@given(
    form=st.sampled_from(sorted(ROWS)),
    asked=st.integers(0, 63),
    size=st.sampled_from([8, 16]),
    room=st.sampled_from([120, 300, 600]),
    scores=st.none() | st.lists(st.floats(0.1, 0.9), min_size=8, max_size=8),
)
def test_a_row_that_two_common_words_name_together_stays(
    form: str, asked: int, size: int, room: int, scores: list[float] | None
) -> None:
    """Every chunk has an Anna and a Koch, one row has both; a host's scores of chunks do not hide it."""
    people = [(first, last) for first in FIRST for last in LAST]
    random.Random(asked).shuffle(people)
    rows = [ROWS[form](person, 10_000 + n) for n, person in enumerate(people)]
    head = "first,last,department,extension\n" if form == "CSV" else ""
    texts = ["".join(rows[at : at + size]) for at in range(0, len(rows), size)]
    texts[0] = head + texts[0]
    given_scores = scores or [None] * len(texts)
    segments = [
        Segment(id=str(n), text=text, score=score)
        for n, (text, score) in enumerate(zip(texts, given_scores, strict=False))
    ]
    query = f"What is the extension of {' '.join(people[asked])}?"
    found = fit_documents(segments, max_tokens=room, query=query, counter="o200k_base")
    assert str(10_000 + asked) in found.text
