"""What belongs together in one text: of a record that the question names its value stays, and no other's is read as its own."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for, fit_documents, fit_messages
from rankbudget.relevance.records import records_of
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
    "yaml map": lambda r: f"{r[0]}:\n  dept: {r[1]}\n  phone: {r[2]}\n",
    "nested": lambda r: f"- person:\n    name: {r[0]}\n    info:\n      dept: {r[1]}\n      phone: {r[2]}\n",
    "xml": lambda r: f"<p>\n  <name>{r[0]}</name>\n  <dept>{r[1]}</dept>\n  <phone>{r[2]}</phone>\n</p>\n",
    "rules": lambda r: f"---\nname: {r[0]}\ndept: {r[1]}\nphone: {r[2]}\n",
    "psql": lambda r: f"-[ RECORD ]\nname  | {r[0]}\ndept  | {r[1]}\nphone | {r[2]}\n",
    "line": lambda r: f"{r[0]} | {r[1]} | {r[2]}\n",
    "ticket": lambda r: f"Ticket: new\nReporter: {r[0]}\n\nThe pump makes noise.\nPhone: {r[2]}\n\n",
    "mail": lambda r: f"From: {r[0]}\nTo: {r[1]}\nDate: today\n\nHello, please call.\nPhone: {r[2]}\n\n",
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


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(FORMS))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(30, 60),
    place=st.integers(0, 29),
    limit=st.integers(100, 400),
    by_value=st.booleans(),
)
def test_a_record_that_the_question_names_keeps_its_value(
    form: str,
    door: Callable[[str, str, int], str],
    seed: int,
    count: int,
    place: int,
    limit: int,
    by_value: bool,
) -> None:
    """Its value stays and is the first one behind its name; first names and surnames are shared by others.

    A question that names the value gets the name, and no other name is between them.
    """
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
    text = "".join(map(FORMS[form], records))
    if by_value and form != "prose":  # a sentence alone has no mark of where its record begins
        shown = door(text, f"Who has the phone number {phone}?", limit)
        before = shown[: shown.find(phone)]
        assert phone in shown
        assert max(names[:count], key=before.rfind) == name
        return
    shown = door(text, f"What is the phone number of {name}?", limit)
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
        record = records_of(pieces)(own)
        assert record[0] == own
        assert len(set(record)) == len(record) <= 90
        assert set(record) <= set(range(len(pieces)))


TABLES = {
    "csv": ("id,name,qty,price\n", "{j},item{j},{q},{p}\n"),
    "tabs": ("id\tname\tqty\tprice\n", "{j}\titem{j}\t{q}\t{p}\n"),
    "markdown": ("| id | name | qty | price |\n|---|---|---|---|\n", "| {j} | item{j} | {q} | {p} |\n"),
    "semicolons": ("id;name;qty;price\n", "{j};item{j};{q};{p}\n"),
    "underlined": ("ID   NAME       QTY   PRICE\n" + "-" * 27 + "\n", "{j:<5}item{j:<7}{q:<6}{p}\n"),
    "to the right": ("NAME       QTY   PRICE\n" + "=" * 22 + "\n", "item{j:<4}{q:>6}{p:>8}\n"),
    "one blank": ("ID NAME QTY PRICE\n=================\n", "{j} item{j} {q} {p}\n"),
    "underlined csv": ("id,name,qty,price\n-----------------\n", "{j},item{j},{q},{p}\n"),
}


@pytest.mark.parametrize("form", TABLES)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(TABLES))
@given(
    count=st.integers(30, 300),
    place=st.integers(0, 29),
    limit=st.integers(120, 600),
    before=st.sampled_from(["", "Our stock, by item.\n\n", "# Stock\nOf all items, as of May:\n"]),
    asked=st.sampled_from(["What does item{} cost?", "Which price has item{}?"]),
)
def test_a_row_of_a_table_keeps_the_head_of_its_columns(
    form: str,
    door: Callable[[str, str, int], str],
    count: int,
    place: int,
    limit: int,
    before: str,
    asked: str,
) -> None:
    """Whatever is before the table, however few rows stay, and where the question names the column, too."""
    head, row = TABLES[form]
    text = before + head + "".join(row.format(j=j, q=j * 7, p=j * 3) for j in range(count))
    kept = door(text, asked.format(place), limit)
    assert head in kept
    assert row.format(j=place, q=place * 7, p=place * 3).strip() in kept


TOPICS = [
    f"{kind} of {thing}"
    for kind in ("Cost", "Care", "Return", "Sale")
    for thing in ("tools", "boats", "wells")
]
SECTIONS: dict[str, str] = {
    "#": "# {topic}\n{body}",
    "###": "### {topic}\n\n{body}",
    "html": "<h2>{topic}</h2>\n{body}",
    "bold": "**{topic}**\n\n{body}",
    "bold colon": "**{topic}:**\n{body}",
    "double underline": "{topic}\n==========\n\n{body}",
    "underline": "{topic}\n----------\n{body}",
    "clause": "{n}. {topic}\n\n{n}.1 {body}",
    "article": "Article {n} - {topic}\n\n{body}",
    "paragraph": "§ {n} {topic}\n{body}",
    "colon": "{topic}:\n\n{body}",
    "title": "{topic}\n\n{body}",
    "capitals": "{caps}\n\n{body}",
    "title of steps": "{topic}\n\n1. Begin with part {n}.\n2. {body}",
    "release": "## [{n}.0] - {topic}\n\n### Changed\n\n- {body}\n- cleaner code",
    "commit": "commit {n:040x}\nAuthor: {topic} <a@b.org>\nDate:   Mon {n} 2026\n\n    {body}",
    "mail": "From: desk@b.org\nSubject: {topic}\n\nHello,\n\n{body}\n\nYours, the desk",
    "ticket": "#{n}\nTitle: {topic}\nState: open\n\n{body}\n\n---",
}


@pytest.mark.slow
@pytest.mark.parametrize("style", SECTIONS)
@pytest.mark.parametrize("door", [a_document, a_result])
@draws(cases=2 * len(SECTIONS))
@given(
    topics=st.permutations(TOPICS),
    place=st.integers(0, len(TOPICS) - 1),
    spare=st.integers(0, 500),
    by_topic=st.booleans(),
    more=st.integers(0, 3),
    line_break=st.sampled_from(["\n", "\r\n"]),
)
def test_a_text_and_the_heading_above_it_stay_together(
    style: str,
    door: Callable[[str, str, int], str],
    topics: list[str],
    place: int,
    spare: int,
    by_topic: bool,
    more: int,
    line_break: str,
) -> None:
    """A question that names either gets both, and no other heading is between them, however headings are written."""
    bodies = [f"Group {n + 20} settles it by fax." for n in range(len(topics))]
    bodies[place] = "Zebra and heron settle it by fax."
    tail = "\n\nAll others wait for a letter from the board, which comes in May." * more
    sections = [
        SECTIONS[style].format(
            topic=topic, caps=topic.upper(), n=n + 3, body=body + ("" if n == place else tail)
        )
        for n, (topic, body) in enumerate(zip(topics, bodies, strict=True))
    ]
    text = "\n\n".join(sections).replace("\n", line_break)
    topic = topics[place]
    question = f"Who settles the {topic.lower()}?" if by_topic else "What do zebra and heron settle?"
    shown = door(text, question, 130 + spare).casefold()
    above = shown[: shown.find("zebra and heron")]
    assert "zebra and heron" in shown
    assert max(topics, key=lambda one: above.rfind(one.casefold())) == topic
    assert topic.casefold() in above
