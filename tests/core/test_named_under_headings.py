"""What a question names stays before what only stands under the same heading, in whatever text and order."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for, fit_documents, fit_messages
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
LANDS = (
    "Austria Belgium Bulgaria Croatia Cyprus Denmark Estonia Finland France Germany Greece Hungary Iceland "
    "Ireland Italy Latvia Malta Norway Poland Portugal Romania Spain Sweden"
).split()
ROWS: dict[str, Callable[[str, int], str]] = {
    "table": lambda land, price: f"| {land} | {price}.50 |",
    "csv": lambda land, price: f"{land},{price}.50",
    "html": lambda land, price: f"<tr><td>{land}</td><td>{price}.50</td></tr>",
    "list": lambda land, price: f"- {land}: {price}.50 euros",
}
HEADS = {
    "table": "| Country | 1 kg |\n|---|---|\n",
    "csv": "country,price\n",
    "html": "<table>\n",
    "list": "",
}
ASKED = {
    "Shipping rates": "What does shipping to {} cost?",
    "Office hours of branches": "When is the {} branch office open?",
    "Price list for members": "What price do members pay in {}?",
    "Rates": "How much is {}?",
}


@draws(cases=len(ROWS))
@pytest.mark.parametrize("kind", ROWS)
@given(
    title=st.sampled_from(sorted(ASKED)),
    form=st.sampled_from(("# {}\n\n", "**{}**\n\n", "## {}\n", "{}\n\n")),
    land=st.sampled_from(LANDS),
    limit=st.integers(90, 250),
)
def test_the_row_that_is_named_stays_whatever_its_heading_says(
    kind: str, title: str, form: str, land: str, limit: int
) -> None:
    """The heading may say more words of the question than the row."""
    rows = [ROWS[kind](one, 3 * i + 10) for i, one in enumerate(LANDS)]
    text = form.format(title) + HEADS[kind] + "\n".join(rows)
    shown = fit_documents([text], query=ASKED[title].format(land), max_tokens=limit, counter=COUNTER).text
    assert land in shown
    assert f"{3 * LANDS.index(land) + 10}.50" in shown


PLATE = "Switch off the mains before you begin. Remove the rear cover with a Torx T20. Keep the screws. "
PARTS = ("condenser", "fan motor", "control board", "door seal")


@draws()
@given(
    models=st.lists(st.integers(200, 999), min_size=5, max_size=30, unique=True),
    part=st.sampled_from(PARTS),
    data=st.data(),
    tells=st.sampled_from(("title", "score")),
    limit=st.integers(150, 600),
)
def test_of_equal_sections_that_of_the_best_document_is_first(
    models: list[int], part: str, data: Any, tells: str, limit: int
) -> None:
    """A title, or a score of the retriever, decides between sections that say the same words."""
    asked = data.draw(st.sampled_from(models))
    documents = []
    for model in models:
        sections = [
            f"## {i}. Replacing the {one}\n\n{PLATE}Tighten the bolts to {model + 1000 * i} Nm. Check for leaks."
            for i, one in enumerate(PARTS, start=3)
        ]
        for number, chunk in enumerate((sections[:2], sections[2:])):
            title = f"FX{model}" if tells == "title" else ""
            near = 0.9 if model == asked and (part in PARTS[:2]) == (number == 0) else 0.5
            score = None if tells == "title" else near
            text = "\n\n".join(chunk)
            documents.append(Segment(id=f"{model}-{number}", title=title, score=score, text=text))
    question = f"To what torque do I tighten the bolts of the {part} on the FX{asked}?"
    shown = fit_documents(documents, query=question, max_tokens=limit, counter=COUNTER)
    told = f"{asked + 1000 * (PARTS.index(part) + 3)} Nm"
    assert any(told in one.text for one in shown.segments if one.id.startswith(str(asked)))


RULES = ("---", "***", "=====", "- - -", "__________")


@draws()
@given(
    fields=st.lists(
        st.sampled_from(("Ticket", "Reporter", "Status", "kind", "name")), max_size=4, unique=True
    ),
    blank=st.booleans(),
    prose=st.sampled_from(
        ("The user reports that it happens. We restarted it.", "", "# Notes\nAll is well.")
    ),
    ends=st.lists(
        st.sampled_from(("Root cause: full disk", "Fix: rotated", "- done", "| a | b |")), max_size=2
    ),
    rule=st.sampled_from(RULES),
    count=st.integers(1, 40),
    limit=st.integers(12, 400),
)
def test_any_records_with_rules_between_them_can_be_fitted(
    fields: list[str], blank: bool, prose: str, ends: list[str], rule: str, count: int, limit: int
) -> None:
    """Fields, headings, prose and rows of tickets, mails and manifests: as a document, and as a message."""
    records = []
    for i in range(count):
        lines = [*(f"{field}: value {i}" for field in fields), *[""] * blank, prose, *ends]
        records.append("\n".join(lines) + "\n")
    text = f"\n{rule}\n".join(records)
    question = f"What was the root cause of value {count // 2}?"
    fit = fit_documents([text], query=question, max_tokens=limit, counter=COUNTER)
    assert COUNTER.count(fit.text) <= limit
    chat = [{"role": "user", "content": text}, {"role": "assistant", "content": "Noted."}]
    chat.append({"role": "user", "content": question})
    assert fit_messages(chat, max_tokens=limit + 60, counter=COUNTER).messages


THINGS = "kettle boiler lamp router fridge printer radio drill heater camera saddle mixer".split()


def looked_up(says: str) -> list[dict[str, Any]]:
    """Returns a conversation in which one thing after another was looked up."""
    chat: list[dict[str, Any]] = []
    for i, thing in enumerate(THINGS):
        asked = json.dumps({"item": thing})
        call = {"id": f"c{i}", "type": "function", "function": {"name": "find", "arguments": asked}}
        found = f"The {thing} came in spring. {'Its box is red and it weighs 4 kilos. ' * 6}"
        found += f"The warranty of the {thing} lasts {i + 11} months."
        chat.append({"role": "user", "content": says.format(thing)})
        chat.append({"role": "assistant", "content": None, "tool_calls": [call]})
        chat.append({"role": "tool", "tool_call_id": f"c{i}", "content": found})
        chat.append({"role": "assistant", "content": "Here is what I found."})
    return chat


@pytest.mark.parametrize("says", ["Look up the {}.", "Look this one up.", "And the {}?"])
@pytest.mark.parametrize("limit", [450, 750, 1000])
def test_the_result_that_answers_stays_whatever_its_turn_said(says: str, limit: int) -> None:
    """A short user turn that names the thing is not taken for the result that tells of it."""
    for i, thing in enumerate(THINGS):
        question = f"How many months does the warranty of the {thing} last?"
        chat = [*looked_up(says), {"role": "user", "content": question}]
        fitted = fit_messages(chat, max_tokens=limit, counter=COUNTER, query=question)
        assert f"the {thing} lasts {i + 11} months" in json.dumps(fitted.messages)


SUBSECTIONS: dict[str, Callable[[str, str], str]] = {
    "heading": lambda land, text: f"### {land}\n\n{text}",
    "bold": lambda land, text: f"**{land}**\n\n{text}",
    "bold line": lambda land, text: f"**{land}** - {text}",
    "bullet": lambda land, text: f"- {land}: {text}",
    "numbered": lambda land, text: f"Section {100 + LANDS.index(land)}: {land}\n\n{text}",
}
ABOUT = {
    "Shipping times and costs by country": "What are the shipping costs to {}?",
    "Error codes by country": "Which error code is used in {}?",
    "Phone numbers of the branches": "What is the phone number of the {} branch?",
}


@draws(cases=len(SUBSECTIONS))
@pytest.mark.parametrize("kind", SUBSECTIONS)
@given(title=st.sampled_from(sorted(ABOUT)), land=st.sampled_from(LANDS), limit=st.integers(100, 300))
def test_the_sub_section_that_is_named_stays_whole(kind: str, title: str, land: str, limit: int) -> None:
    """The heading above all of them says more words of the question than the one that names it."""
    parts = [
        SUBSECTIONS[kind](one, f"Ask for desk {3 * i + 110}. It is open until noon.")
        for i, one in enumerate(LANDS)
    ]
    text = f"# Handbook\n\nFor all members.\n\n## {title}\n\n" + "\n\n".join(parts)
    shown = fit_documents([text], query=ABOUT[title].format(land), max_tokens=limit, counter=COUNTER).text
    assert f"desk {3 * LANDS.index(land) + 110}" in shown


@draws()
@given(
    land=st.sampled_from(LANDS),
    mark=st.sampled_from((",", ";", "\t", " | ")),
    title=st.sampled_from(("", "# Offices\n\n", "# Phone numbers of people in the office\n\n")),
    asked=st.sampled_from(
        (
            "Who works in the {} office?",
            "Which employees work in the {} office?",
            "Name and phone of the person in {}",
            "phone office {}",
        )
    ),
    limit=st.integers(70, 300),
)
def test_the_row_that_is_named_stays_whatever_its_columns_are_called(
    land: str, mark: str, title: str, asked: str, limit: int
) -> None:
    """The title and the names of the columns may say more words of the question than the row."""
    rows = [["employee", "name", "office", "phone"]]
    rows += [[f"E{1000 + i}", f"Ann B{i}", one, f"+49 30 {1101 + i}"] for i, one in enumerate(LANDS)]
    text = title + "\n".join(mark.join(row) for row in rows)
    shown = fit_documents([text], query=asked.format(land), max_tokens=limit, counter=COUNTER).text
    assert f"+49 30 {1101 + LANDS.index(land)}" in shown


FIELDS = ("Subtotal", "VAT", "Total", "IBAN")


def _invoice(i: int, land: str) -> str:
    rows = "\n".join(f"{k}    {part}    {i + k}.5{k}" for k, part in enumerate(PARTS))
    fields = "\n".join(f"{field}: {i + 40 * n + 1000}.12" for n, field in enumerate(FIELDS))
    return f"INVOICE {4700 + i}\nCustomer: {land} Ltd\nDate: 2026-03-0{i % 9 + 1}\n\nPos  Article  Price\n{rows}\n\n{fields}\n"


def _order(i: int, land: str) -> dict[str, Any]:
    costs = {field: f"{i + 40 * n + 1000}.12" for n, field in enumerate(FIELDS)}
    parts = [{"part": part, "price": i + k} for k, part in enumerate(PARTS)]
    return {"id": 4700 + i, "customer": f"{land} Ltd", "items": parts, "costs": costs}


@draws()
@given(
    land=st.sampled_from(LANDS),
    field=st.sampled_from(FIELDS),
    form=st.sampled_from(("invoices", "json")),
    limit=st.integers(150, 900),
)
def test_a_field_of_the_named_record_stays_wherever_its_name_is(
    land: str, field: str, form: str, limit: int
) -> None:
    """The name may be in another paragraph of the record, or beside the object that has the field."""
    if form == "json":
        text = json.dumps([_order(i, one) for i, one in enumerate(LANDS)], indent=2)
    else:
        text = "\n".join(_invoice(i, one) for i, one in enumerate(LANDS))
    asked = f"What is the {field} of the invoice to {land} Ltd?"
    shown = fit_documents([text], query=asked, max_tokens=limit, counter=COUNTER).text
    assert f"{LANDS.index(land) + 40 * FIELDS.index(field) + 1000}.12" in shown


@draws()
@given(
    code=st.from_regex(r"[A-Z]{1,2}[0-9]{1,2}", fullmatch=True),
    asked=st.sampled_from(("What does error {} mean?", "The display shows {}", "{} on my dishwasher")),
    scored=st.booleans(),
    limit=st.integers(70, 300),
)
def test_a_short_code_is_found_beside_scores_of_a_retriever(
    code: str, asked: str, scored: bool, limit: int
) -> None:
    """The text that has it may be any of those that a retriever gave, and need not be the best one."""
    codes = [f"X{n}Z" for n in range(4)] + [code]
    entries = [f"{one} - Fault of part {i}. Tilt it by {45 + i} degrees." for i, one in enumerate(codes)]
    texts = [f"{' '.join(f'Note {i * 60 + k} is about terms.' for k in range(60))}" for i in range(4)]
    texts.insert(2, "\n\n".join(entries))
    documents = [
        Segment(id=str(i), text=text, score=0.85 - i / 80 if scored else None) for i, text in enumerate(texts)
    ]
    shown = fit_documents(documents, query=asked.format(code), max_tokens=limit, counter=COUNTER).text
    assert "49 degrees" in shown


@draws()
@given(
    number=st.integers(100, 140),
    asked=st.sampled_from(("When did employee {} start?", "start of employee {}", "salary of {}")),
    limit=st.integers(70, 300),
)
def test_a_number_behind_a_name_counts_nothing(number: int, asked: str, limit: int) -> None:
    """No starts are counted in "When did employee 128 start?"."""
    rows = [f"{n};Ann B{n};2{n}-03-15;{3000 + n}" for n in range(100, 141)]
    text = "\n".join(["id;name;start;salary", *rows])
    shown = fit_documents([text], query=asked.format(number), max_tokens=limit, counter=COUNTER).text
    assert f"2{number}-03-15;{3000 + number}" in shown


@draws()
@given(
    scores=st.permutations((0.74, 0.735, 0.73)),
    day=st.sampled_from(("Monday", "Tuesday", "Friday")),
    limit=st.integers(60, 200),
)
def test_nearly_equal_scores_leave_the_words_to_decide(scores: list[float], day: str, limit: int) -> None:
    """A retriever that gives two texts, as most do, says little by a difference in the third digit."""
    filler = " ".join(f"Paragraph {n} describes rule {n + 40} of the house." for n in range(30))
    texts = [filler, f"{filler} A gift card is valid for three years from the {day} of its sale.", filler]
    given = [
        Segment(id=str(i), text=text, score=score)
        for i, (text, score) in enumerate(zip(texts, scores, strict=True))
    ]
    asked = "How long are gift cards valid?"
    assert "three years" in fit_documents(given, query=asked, max_tokens=limit, counter=COUNTER).text
