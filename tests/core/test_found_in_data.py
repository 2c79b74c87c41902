"""Of data in one line, of numbers in a question and of stack traces, what was asked for stays."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.relevance.records import records_of
from rankbudget.relevance.sentences import split_sentences
from tests.core.test_records import COUNTER, a_document, a_result
from tests.drawing import draws

Door = Callable[[str, str, int], str]
Rows = list[dict[str, object]]


def rows_of(count: int, drawn: random.Random) -> Rows:
    """Rows with sentences, dates, decimal numbers and what is only Python's."""
    return [
        {
            "id": 1000 + i,
            "name": f"Depot {i}",
            "note": f"It opened late. Ask for Mr. O'Hara. Its yard has {drawn.randint(100, 999)} cars.",
            "since": dt.date(2020, 1 + i % 12, 1 + i % 28),
            "cost": decimal.Decimal(f"{drawn.randint(100, 999)}.5"),
            "open": bool(i % 2),
            "extra": None,
            "manager": f"Person{i}q",
        }
        for i in range(count)
    ]


def markup(rows: Rows, form: str) -> str:
    return "<html><body>" + "".join(form.format(**row) for row in rows) + "</body></html>"


LINES: dict[str, Callable[[Rows], str]] = {
    "list": str,
    "dict": lambda rows: str({row["name"]: row for row in rows}),
    "tuples": lambda rows: str([tuple(row.values()) for row in rows]),
    "nested": lambda rows: str({"count": len(rows), "rows": rows}),
    "said": lambda rows: f"Result of the call: {rows}",
    "json": lambda rows: json.dumps(rows, default=str),
    "part": lambda rows: str(rows)[3:],  # as a splitter of texts leaves it
    "sections": lambda rows: markup(rows, "<h2>{name}</h2><p>{note} It rains.</p><p>Manager: {manager}</p>"),
    "items": lambda rows: markup(rows, "<ul><li>{name}</li><li>{note}</li><li>Manager: {manager}</li></ul>"),
    "cells": lambda rows: markup(rows, "<tr><td>{name}</td><td>{note}</td><td>{manager}</td></tr>"),
    "xml": lambda rows: markup(
        rows, "<depot><name>{name}</name><note>{note}</note><by>{manager}</by></depot>"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", LINES)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(LINES))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(30, 90),
    place=st.integers(0, 29),
    limit=st.integers(350, 900),
    by_value=st.booleans(),
)
def test_a_record_in_one_line_stays_together(
    form: str, door: Door, seed: int, count: int, place: int, limit: int, by_value: bool
) -> None:
    """Whether its name or its value is asked for, both stay, and no other name is between them."""
    rows = rows_of(count, random.Random(seed))
    question = f"Which depot has Person{place}q?" if by_value else f"Who is the manager of Depot {place}?"
    shown = door(LINES[form](rows), question, limit)
    value = shown.find(f"Person{place}q")
    assert value >= 0
    names = list(re.finditer(r"Depot \d+\b", shown[:value]))
    assert names
    assert names[-1].group() == f"Depot {place}"


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("dump", [json.dumps, lambda value, **_: str(value)])
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=8)
@given(
    count=st.integers(16, 90), place=st.integers(0, 15), limit=st.integers(250, 600), by_value=st.booleans()
)
def test_a_row_of_columns_stays(
    door: Door,
    dump: Callable[..., str],
    indent: int | None,
    count: int,
    place: int,
    limit: int,
    by_value: bool,
) -> None:
    """A table in columns, as pandas writes it: the cell that was asked for, and the others of its row."""
    names, salaries = [f"Anna{i}x Bell" for i in range(count)], [40_000 + 137 * i for i in range(count)]
    text = dump({"name": names, "team": ["sales"] * count, "salary": salaries}, indent=indent)
    question = f"Who earns {salaries[place]}?" if by_value else f"What does {names[place]} earn?"
    shown = door(text, question, limit)
    assert f"Anna{place}x Bell" in shown
    assert str(salaries[place]) in shown


NUMBERED = {
    "prose": "Department {k} has {n} people. It is in {city}.",
    "fields": "department: {k}, people: {n}, city: {city}",
    "lines": '{{"department":{k},"people":{n},"city":"{city}"}}',
}


@pytest.mark.parametrize("form", NUMBERED)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(NUMBERED))
@given(
    seed=st.integers(0, 10_000),
    asked=st.sampled_from(["How many people work in department {}?", "How many people has department #{}?"]),
    limit=st.integers(200, 600),
)
def test_a_number_belongs_to_the_word_before_it(
    form: str, door: Door, seed: int, asked: str, limit: int
) -> None:
    """Departments with 88 people do not hide department 88."""
    drawn = random.Random(seed)
    k = drawn.randint(10, 119)
    people = [drawn.randint(10, 400) for _ in range(120)]
    for i in drawn.sample(range(120), 5):
        people[i] = k
    people[k] = 500 + k
    lines = [
        NUMBERED[form].format(k=i, n=n, city=drawn.choice(("Rome", "Oslo"))) for i, n in enumerate(people)
    ]
    assert lines[k] in door("\n".join(lines), asked.format(k), limit)


SAID = [
    "I have tried {n} times now. How is the ladder folded?",
    "It is {t} and I am late. How is the ladder folded?",
    "How is the ladder folded? I am {n} years old and have {m} brothers.",
    "Ich habe es {n} mal versucht. How is the ladder folded?",
]
PADDING = ["Keep it dry.", "The blue part is the lid.", "Parts are sold apart.", "It weighs little."]
COUNTS = [
    "Press the knob {n} times.",
    "Our desk opens at {t}.",
    "It takes {n} minutes.",
    "It has {m} wheels.",
]


@draws()
@given(
    seed=st.integers(0, 10_000),
    said=st.sampled_from(SAID),
    limit=st.integers(300, 800),
    in_lines=st.sampled_from(["nodes", "document", "result"]),
)
def test_a_number_by_the_way_does_not_hide_the_answer(
    seed: int, said: str, limit: int, in_lines: str
) -> None:
    """Rare as it is, a number that only counts something is worth no more than the words of the question."""
    drawn = random.Random(seed)
    n, m, t = drawn.randint(3, 9), drawn.randint(2, 9), drawn.choice(("9:30", "10:15"))
    texts = []
    for i in range(40):
        padding = [drawn.choice(PADDING) for _ in range(drawn.randint(3, 7))]
        held = (n, m, t) if i % 13 == 5 else (drawn.randint(11, 30), drawn.randint(11, 30), "8:20")
        told = drawn.choice(COUNTS).format(n=held[0], m=held[1], t=held[2])
        texts.append(" ".join([*padding, told]))
    answer = "The ladder is folded by pressing both catches."
    texts[drawn.randrange(40)] = f"{answer} It stands by itself."
    question = said.format(n=n, m=m, t=t)
    if in_lines == "nodes":
        given_ = [Segment(id=str(i), text=text) for i, text in enumerate(texts)]
        fitted = fit_documents(given_, max_tokens=limit, query=question, counter=COUNTER)
        shown = "\n".join(segment.text for segment in fitted.segments)
    else:
        shown = (a_document if in_lines == "document" else a_result)("\n".join(texts), question, limit)
    assert answer in shown


def frames(form: str, count: int, first: int = 0) -> str:
    return "".join(form.format(i=i, n=3 * i + 1) for i in range(first, first + count))


PYTHON = '  File "/srv/app/mod{i}.py", line {n}, in step{i}\n    return call_{i}(x, error)\n'
JAVA = "\tat com.acme.ErrorHandler{i}.step{i}(Mod{i}.java:{n})\n"
TRACES: dict[str, tuple[str, Callable[[int], str]]] = {
    "python": (
        "KeyError: 'tenant'\n",
        lambda n: "Traceback (most recent call last):\n" + frames(PYTHON, n) + "KeyError: 'tenant'\n",
    ),
    "python, own": (
        "app.NoTenant: acme\n",
        lambda n: "Traceback (most recent call last):\n" + frames(PYTHON, n) + "app.NoTenant: acme\n",
    ),
    "java": (
        "java.lang.IllegalStateException: queue closed\n",
        lambda n: "java.lang.IllegalStateException: queue closed\n" + frames(JAVA, n),
    ),
    "java, caused": (
        "Caused by: com.acme.Refused: db7\n",
        lambda n: (
            "java.lang.RuntimeException: job\n"
            + frames(JAVA, n)
            + "Caused by: com.acme.Refused: db7\n"
            + frames(JAVA, n, n)
            + "\t... 12 more\n"
        ),
    ),
    "go": (
        "panic: runtime error: index out of range [7]\n",
        lambda n: (
            "panic: runtime error: index out of range [7]\n\ngoroutine 1 [running]:\n"
            + frames("main.step{i}(0xc000{i})\n\t/srv/app/mod{i}.go:{n} +0x1\n", n)
        ),
    ),
    "rust": (
        "index out of bounds: the len is 3\n",
        lambda n: (
            "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3\nstack backtrace:\n"
            + frames("  {i}: app::mod{i}::step{i}\n             at ./src/mod{i}.rs:{n}:5\n", n)
        ),
    ),
    "js": (
        "NoTenant: acme\n",
        lambda n: "NoTenant: acme\n" + frames("    at step{i} (/srv/app/mod{i}.js:{n}:17)\n", n),
    ),
}


@pytest.mark.parametrize("form", TRACES)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(TRACES))
@given(
    count=st.integers(20, 200),
    lines=st.integers(20, 400),
    place=st.integers(0, 400),
    limit=st.integers(200, 2_000),
    question=st.sampled_from(["Why does the job crash?", "What went wrong?", "What did worker 3 raise?"]),
)
def test_the_exception_of_a_stack_trace_stays(
    form: str, door: Door, count: int, lines: int, place: int, limit: int, question: str
) -> None:
    """However many frames it has, wherever it is in the log, and whether it is before or behind them."""
    exception, trace = TRACES[form]
    log = [f"10:{i // 60:02}:{i % 60:02} INFO worker {i % 7} stored item {i}\n" for i in range(lines)]
    log.insert(min(place, lines), trace(count))
    assert exception.strip() in door("".join(log), question, limit)


@draws()
@given(
    text=st.lists(
        st.sampled_from(
            [*"[]{}(),:'\"\\ ", "<p>", "</p>", "<h2>", "</h2>", '"a": [', "'b': 1", "x. Y", "\n", "1, "]
        ),
        max_size=400,
    ),
    times=st.integers(1, 60),
)
def test_pieces_of_any_brackets_are_the_text(text: list[str], times: int) -> None:
    """Whatever is opened and never closed, no character is lost, and each piece has a record."""
    whole = "".join(text) * times
    pieces = split_sentences(whole)
    assert "".join(pieces) == whole
    record = records_of(pieces)
    for i in range(0, len(pieces), 1 + len(pieces) // 20):
        assert record(i)[0] == i
