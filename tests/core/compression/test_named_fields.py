"""Of a shortened tool result, the field that is asked for stays, with the name of its record."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.compression.structured import compress_structured

from ...drawing import draws

COUNTER = counter_for("o200k_base")
MARKERS = 40
"""Tokens of the markers around four lines."""
NAMES = (
    "Nordwind Hafen Kraftwerk Molkerei Stadtwerke Papier Brauerei Werft Glas Seil Ziegel Spinnerei".split()
)
PLACES = "Aachen Holm Ulm Neuss Lang Kiel Jena Bonn Emden Gera Husum Celle".split()
GOODS = "Hex bolt M8,Gasket 40mm,Ball valve DN25,Pressure gauge,Hose clamp,Check valve".split(",")
Fields = dict[str, str]
FIELDS: dict[str, str] = {"total": "Total", "payment terms": "Payment terms", "IBAN": "IBAN"}


def fields_of(random: Random, number: int) -> Fields:
    """Returns the fields of a record, whose values no other record has."""
    return {
        "Date": f"2026-03-{number + 1:02d}",
        "VAT": f"{random.randint(100, 999)}.{number:02d} EUR",
        "Total": f"{random.randint(1000, 9999)}.{number:02d} EUR",
        "Payment terms": f"{number + 14} days net",
        "IBAN": f"DE{random.randint(10**9, 10**10 - 1)}{number:02d}",
    }


def invoice(random: Random, number: int, name: str, fields: Fields) -> str:
    """Returns a record with a table in it, one of whose columns is called as a field is."""
    rows = "".join(
        f"{n}    {good:<20} {random.randint(1, 40):<5} {random.randint(100, 990)}.00\n"
        for n, good in enumerate(GOODS, 1)
    )
    below = "".join(f"{key}: {value}\n" for key, value in fields.items() if key != "Date")
    head = f"INVOICE {4700 + number}\nCustomer: {name}\nDate: {fields['Date']}\n\n"
    return f"{head}Pos  Article              Qty   Total\n{rows}\n{below}\n"


def lines_of(fields: Fields, form: str = "{}: {}") -> str:
    """Returns a line for each field."""
    return "".join(f"{form.format(key, value)}\n" for key, value in fields.items())


RECORDS: dict[str, Callable[[Random, int, str, Fields], str]] = {
    "invoice": invoice,
    "keys": lambda random, number, name, fields: f"Customer: {name}\n{lines_of(fields)}\n",
    "indented": lambda random, number, name, fields: f"{name}:\n{lines_of(fields, '  {}: {}')}",
    "markdown": lambda random, number, name, fields: f"## {name}\n\n{lines_of(fields, '- **{}**: {}')}\n",
    "numbered": lambda random, number, name, fields: f"{number + 1}. {name}\n{lines_of(fields)}\n",
    "json": lambda random, number, name, fields: json.dumps({"customer": name, **fields}),
}


def kept_of(text: str, question: str, room: int) -> str:
    """Returns what is left of a tool result in so many tokens."""
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": ""},
    ]
    limit = COUNTER.count_messages(messages) + room
    messages[-1]["content"] = text
    return str(fit_messages(messages, max_tokens=limit, counter=COUNTER).messages[-1]["content"])


@pytest.mark.parametrize("kind", RECORDS)
@draws(cases=len(RECORDS))
@given(
    random=st.randoms(use_true_random=False),
    count=st.integers(6, 12),
    asked=st.integers(0, 5),
    field=st.sampled_from(sorted(FIELDS)),
    question=st.sampled_from(["What is the {1} of {0}?", "Which {1} has {0}?", "{0}: {1}?"]),
)
def test_the_asked_field_of_the_named_record_stays(
    kind: str, random: Random, count: int, asked: int, field: str, question: str
) -> None:
    """With room for the record, and with room for twice its name and the field and for markers."""
    names = [
        f"{one} {other}"
        for one, other in zip(random.sample(NAMES, count), random.sample(PLACES, count), strict=True)
    ]
    fields = [fields_of(random, n) for n in range(count)]
    records = [RECORDS[kind](random, n, names[n], fields[n]) for n in range(count)]
    text = f"[{','.join(records)}]" if kind == "json" else "".join(records)
    key, name = FIELDS[field], names[asked]
    value = fields[asked][key]
    said = COUNTER.count(f"INVOICE 4700\nCustomer: {name}\n{key}: {value}\n")
    for room in (2 * said + MARKERS, COUNTER.count(records[asked]) + MARKERS):
        kept = kept_of(text, question.format(name, field), room)
        assert value in kept, (room, kept)
        assert name in kept, (room, kept)


TOPICS = "Budget On-call Hiring Office Parking Canteen Laptops Training".split()
SPEECH = (
    "{0} presented the numbers of {1}.",
    "The estimate is a saving of {1} euro a month.",
    "{0} was against it because the team is too small.",
    "Facilities offered the old archive for {1} days.",
    "Until then {0} covers the weekends.",
)


@pytest.mark.parametrize(
    "form", ["## {1}\n{2}\n", "## {0}. {1}\n{2}\n", "{0}. {1}\n{2}\n\n", "**{1}**\n\n{2}\n\n"]
)
@draws(cases=4)
@given(
    random=st.randoms(use_true_random=False),
    asked=st.integers(0, len(TOPICS) - 1),
    room=st.integers(20, 120),
    question=st.sampled_from(
        [
            "What was decided about {}?",
            "What did the team decide on the topic {}?",
            "Summarize the section {}.",
        ]
    ),
)
def test_the_section_under_a_named_heading_stays_first(
    form: str, random: Random, asked: int, room: int, question: str
) -> None:
    """Another section has a word of the question that this one does not have."""

    def speech(number: int) -> str:
        said = [line.format("Priya", 100 * number + n) for n, line in enumerate(random.sample(SPEECH, 3))]
        return " ".join(said)

    bodies = [f"{speech(n)} Approved with {700 + n} votes." for n in range(len(TOPICS))]
    other = random.choice([n for n in range(len(TOPICS)) if n != asked])
    bodies[other] = f"{bodies[other]} It was decided to wait, and the team decided so in March."
    sections = [form.format(n + 1, *pair) for n, pair in enumerate(zip(TOPICS, bodies, strict=True))]
    text = "Minutes of the weekly meeting\n\n" + "".join(sections)
    kept = kept_of(text, question.format(TOPICS[asked]), COUNTER.count(sections[asked]) + MARKERS + room)
    assert bodies[asked] in kept
    assert TOPICS[asked] in kept


def change(path: str, before: Sequence[str], after: Sequence[str]) -> str:
    """Returns a commit that changes a few lines of a file."""
    lines = [*(f"-{line}\n" for line in before), *(f"+{line}\n" for line in after)]
    return (
        f"commit {hash_of(path)}\nAuthor: Dana <dana@example.com>\nDate: Mon Mar 2 2026\n\n"
        f"    Change the {path}\n\ndiff --git a/{path}.py b/{path}.py\n--- a/{path}.py\n+++ b/{path}.py\n"
        f"@@ -3,4 +3,4 @@\n {path}_first = 1\n{''.join(lines)} {path}_last = 2\n\n"
    )


def hash_of(path: str) -> str:
    """Returns seven hexadecimal digits."""
    return f"{sum(ord(sign) * 31**n for n, sign in enumerate(path)) % 16**7:07x}"


@draws()
@given(
    asked=st.integers(0, 5),
    values=st.lists(st.integers(1000, 9999), min_size=12, max_size=12, unique=True),
    size=st.integers(1, 2),
)
def test_a_removed_line_never_stays_without_the_one_added_instead(
    asked: int, values: list[int], size: int
) -> None:
    """At every limit: what a diff removes would be read as what holds now."""
    paths = ["avatars", "hooks", "settings", "mailer", "exports", "backups"]
    sides = [
        (
            [f"{path.upper()}_{k} = {values[n]}{k}" for k in range(size)],
            [f"{path.upper()}_{k} = {values[-1 - n]}{k}" for k in range(size)],
        )
        for n, path in enumerate(paths)
    ]
    text = "".join(change(path, *pair) for path, pair in zip(paths, sides, strict=True))
    for limit in range(20, COUNTER.count(text), 10):
        kept = compress_structured(
            text, limit, COUNTER, f"What is the {paths[asked].upper()}_0 now?"
        ).splitlines()
        for before, after in sides:
            for old, new in zip(before, after, strict=True):
                assert f"-{old}" not in kept or f"+{new}" in kept, (limit, kept)
