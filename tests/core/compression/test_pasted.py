"""What a person pastes, a tool finds or a model answers: the record that is asked for stays whole."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.compression.embedded import all_parts
from rankbudget.compression.structured import compress_structured, what_is_left

from ...drawing import draws

COUNTER = counter_for("gpt-4o")
NOTES = (
    "It came late.",
    "Two people saw it.",
    "The old flag is gone.",
    "It was slow for large files, " * 14 + "too.",
)


class Record(NamedTuple):
    """The name of a record, what is first in it, and the value that is asked for."""

    name: str
    key: str
    value: str
    note: str


def joined(form: str, between: str) -> Callable[[Sequence[Record]], str]:
    return lambda records: between.join(form.format(**record._asdict()) for record in records)


def items(records: Sequence[Record]) -> list[dict[str, Any]]:
    return [
        {"kind": "box", "meta": {"name": record.name, "key": record.key}, "limits": {"size": record.value}}
        for record in records
    ]


SHAPES: dict[str, Callable[[Sequence[Record]], str]] = {
    "git log": joined(
        "commit {key}\nAuthor: Ann <a@x.com>\nDate:   Mon May 6 2024\n\n    Fix it for {name}\n\n"
        "    {note} The size is {value}.\n",
        "\n",
    ),
    "mails": joined(
        "From: {key}@x.com\nDate: 6 May 2024\nSubject: About {name}\n\nHello,\n\nthe size is {value}.\n{note}\n",
        "\n",
    ),
    "tickets": joined("## {key}: {name}\n\nStatus: open\n\n{note}\n\nThe size is {value}.\n", "\n"),
    "yaml": joined("- key: {key}\n  name: {name}\n  limits:\n    size: {value}\n    note: {note}\n", ""),
    "json": lambda records: json.dumps(items(records), indent=2) + "\n",
    "nested json": lambda records: json.dumps({"items": items(records)}, indent=1) + "\n",
    "json lines": lambda records: "".join(f"{json.dumps(item)}\n" for item in items(records)),
}
AROUND = {
    "alone": ("", ""),
    "lead-in": ("Here is our file:\n\n", ""),
    "line before": ("Look at this\n", ""),
    "both ends": ("Here is our file:\n\n", "\nI hope that it helps.\n"),
    "fenced": ("Here is our file:\n\n```\n", "```\n\nI hope that it helps.\n"),
}
LATER = [
    {"role": "user", "content": "Tell me about rivers."},
    {"role": "assistant", "content": "Rivers flow to the sea. " * 8},
]
CALL = {"id": "1", "type": "function", "function": {"name": "read", "arguments": "{}"}}


def chat(place: str, text: str, question: str) -> list[dict[str, Any]]:
    asked = {"role": "user", "content": question}
    if place == "user":
        return [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "Thanks."},
            *LATER,
            asked,
        ]
    if place == "assistant":
        return [
            {"role": "user", "content": "Show it."},
            {"role": "assistant", "content": text},
            *LATER,
            asked,
        ]
    calling = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [asked, calling, {"role": "tool", "tool_call_id": "1", "content": text}]


def drawn_records(seed: int, count: int) -> list[Record]:
    drawn = random.Random(seed)
    numbers = drawn.sample(range(10_000, 99_999), 2 * count)
    return [
        Record(f"T-{300 + i}", f"e{numbers[i]}c", str(numbers[count + i]), drawn.choice(NOTES))
        for i in range(count)
    ]


@pytest.mark.parametrize("place", ["user", "tool", "assistant"])
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("shape", SHAPES)
@draws(cases=len(SHAPES))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(20, 60),
    at=st.integers(0, 19),
    room=st.integers(500, 1_400),
    question=st.sampled_from(["What is the size of {}?", "What was done for {}?", "{}: which size?"]),
)
def test_the_record_that_is_asked_for_stays_under_its_name(
    shape: str, around: str, place: str, seed: int, count: int, at: int, room: int, question: str
) -> None:
    """Its name, its first line and its value are there, and no value stands under another record's line."""
    records = drawn_records(seed, count)
    before, behind = AROUND[around]
    # A header right below a line of prose is not seen as one: that record is not known to start there.
    at = max(at, int(around == "line before"))
    text = before + SHAPES[shape](records) + behind
    fitted = fit_messages(
        chat(place, text, question.format(records[at].name)), max_tokens=room, counter=COUNTER
    )
    shown = "\n".join(str(m["content"]) for m in fitted.messages if m["content"] and len(m["content"]) > 250)
    assert records[at].key in shown
    assert records[at].name in shown
    assert records[at].value in shown
    assert "json" in shape or len(records[at].note) > 100 or records[at].note in shown
    assert before.strip("`\n") in shown
    keys = {record.value: record.key for record in records}
    last = ""
    for found in re.finditer(r"\be\d{5}c\b|\b\d{5}\b", shown):
        if found.group() not in keys:
            last = found.group()
        else:
            is_glued = around == "line before" and found.group() == records[0].value
            assert last == keys[found.group()] or is_glued, shown


@draws()
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(20, 60),
    room=st.integers(120, 700),
    around=st.sampled_from(["lead-in", "line before", "both ends", "fenced"]),
    shape=st.sampled_from(["json", "nested json", "json lines"]),
)
def test_json_among_prose_stays_json(seed: int, count: int, room: int, around: str, shape: str) -> None:
    """The prose stays, the JSON is shortened as JSON, and the limit holds."""
    before, behind = AROUND[around]
    text = before + SHAPES[shape](drawn_records(seed, count)) + behind
    made = compress_structured(text, room, COUNTER, "What is the size of T-305?")
    assert COUNTER.count(made) <= room
    assert made.startswith(before)
    assert made.rstrip().endswith(behind.strip())
    data = "".join(part for is_data, part in all_parts(made) if is_data)
    values = [json.loads(line) for line in (data.splitlines() if shape == "json lines" else [data])]
    assert "T-305" in json.dumps(values)
    if shape != "json lines":
        assert what_is_left(text, made).startswith("its prose, and its JSON")


@draws()
@given(
    st.lists(
        st.sampled_from(["```\n", "~~~\n", "{\n", "}\n", '{"a": 1}\n', "[\n", "]\n", "x\n", "\n", "  y"])
    )
)
def test_the_parts_of_a_text_are_the_text(lines: list[str]) -> None:
    """Whatever is opened and never closed, joined parts are the text."""
    text = "".join(lines)
    assert "".join(part for _, part in all_parts(text)) == text
