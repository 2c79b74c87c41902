"""What belongs together in one text: of a record that the question names its value stays, and no other's is read as its own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for, fit_documents, fit_messages
from rankbudget.relevance.records import record_of
from rankbudget.relevance.sentences import split_sentences
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
FIRST = ("Anna", "Bert", "Carla", "Dirk", "Eva", "Finn", "Gina", "Hugo", "Ines", "Jan")
LAST = ("Kowalski", "Meyer", "Novak", "Rossi", "Silva", "Weber", "Yilmaz", "Olsen")
Record = tuple[str, str, str]
FORMS: dict[str, Callable[[Record], str]] = {
    "prose": lambda r: f"{r[0]} works in {r[1]}. The phone number is {r[2]}. ",
    "block": lambda r: f"Name: {r[0]}\nDepartment: {r[1]}\nPhone: {r[2]}\n\n",
    "answer": lambda r: f"Q: What is the phone of {r[0]}?\nA: It is {r[2]}.\n\n",
    "yaml": lambda r: f"- name: {r[0]}\n  dept: {r[1]}\n  phone: {r[2]}\n",
    "json": lambda r: f' {{\n  "name": "{r[0]}",\n  "dept": "{r[1]}",\n  "phone": "{r[2]}"\n }},\n',
    "section": lambda r: f"## {r[0]}\n\nDepartment: {r[1]}\n\nPhone: {r[2]}\n\n",
    "line": lambda r: f"{r[0]} | {r[1]} | {r[2]}\n",
}


def a_document(text: str, question: str, limit: int) -> str:
    found = fit_documents([Segment(id="d", text=text)], max_tokens=limit, query=question, counter=COUNTER)
    return found.segments[0].text if found.segments else ""


def a_result(text: str, question: str, limit: int) -> str:
    call = {"id": "1", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    thread = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": text},
    ]
    return str(fit_messages(thread, max_tokens=limit + 60, counter=COUNTER).messages[-1]["content"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(FORMS))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(30, 60),
    place=st.integers(0, 29),
    limit=st.integers(100, 400),
)
def test_a_record_that_the_question_names_keeps_its_value(
    form: str, door: Callable[[str, str, int], str], seed: int, count: int, place: int, limit: int
) -> None:
    """Its value stays and is the first one behind its name; first names and surnames are shared by others."""
    drawn = random.Random(seed)
    names = [f"{first} {last}" for first in FIRST for last in LAST]
    drawn.shuffle(names)
    records = [
        (
            name,
            drawn.choice(("sales", "support")),
            f"+49 {drawn.randint(100, 999)} {drawn.randint(10_000, 99_999)}",
        )
        for name in names[:count]
    ]
    name, _, phone = records[place]
    shown = door("".join(map(FORMS[form], records)), f"What is the phone number of {name}?", limit)
    first = re.search(r"\+49 \d+ \d+", shown[max(0, shown.find(name)) :])
    assert first is not None
    assert first.group() == phone


@draws()
@given(
    text=st.text(alphabet=" \n#-ab.", min_size=1, max_size=200),
    number=st.integers(0, 1000),
)
def test_a_record_holds_its_own_piece_and_pieces_of_the_text(text: str, number: int) -> None:
    """Whatever the text, a record starts with the piece itself, names each piece once, and is short."""
    for pieces in (split_sentences(text), tuple(text.splitlines(keepends=True))):
        own = number % len(pieces)
        record = record_of(pieces, own)
        assert record[0] == own
        assert len(set(record)) == len(record) <= 16
        assert set(record) <= set(range(len(pieces)))


TABLES = {
    "csv": ("id,name,qty,price\n", "{j},item{j},{q},{p}\n"),
    "tabs": ("id\tname\tqty\tprice\n", "{j}\titem{j}\t{q}\t{p}\n"),
    "markdown": ("| id | name | qty | price |\n|---|---|---|---|\n", "| {j} | item{j} | {q} | {p} |\n"),
    "semicolons": ("id;name;qty;price\n", "{j};item{j};{q};{p}\n"),
}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(TABLES))
@given(
    count=st.integers(30, 300),
    place=st.integers(0, 29),
    limit=st.integers(120, 600),
    before=st.sampled_from(["", "Our stock, by item.\n\n", "# Stock\nOf all items, as of May:\n"]),
)
def test_a_row_of_a_table_keeps_the_head_of_its_columns(
    form: str, door: Callable[[str, str, int], str], count: int, place: int, limit: int, before: str
) -> None:
    """Whatever is before the table and however few rows stay."""
    head, row = TABLES[form]
    text = before + head + "".join(row.format(j=j, q=j * 7, p=j * 3) for j in range(count))
    kept = door(text, f"What does item{place} cost?", limit)
    assert head in kept
    assert row.format(j=place, q=place * 7, p=place * 3).strip() in kept
