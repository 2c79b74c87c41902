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
