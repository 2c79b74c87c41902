"""A shortened list of records shows no value under another record's name, whatever is asked."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from rankbudget import fit_messages

PLACES = "Kvitsoy Tavira Naxos Ohrid Skagen Hvar Zadar Elgin Kotka Rye Bodrum Ystad Vlore Split".split()
CLOSING = ("Our staff are glad to help you.", "The rule applies to all sites.", "A copy is at the desk.")
QUESTIONS = ("Give me a summary of the lights.", "Which is the tallest?", "Thanks! And the weather?")
LIMITS = (120, 160, 210, 270, 320)

Fields = dict[str, str]


def _fields(spread: str) -> Callable[[str, Fields], str]:
    return lambda name, fields: "\n".join([name, *(spread.format(*field) for field in fields.items())])


def _prose(name: str, fields: Fields) -> str:
    keeper, lamp, gauge, phone = fields.values()
    return f"The light at {name} is kept by {keeper} and has lamp {lamp}. The gauge is {gauge}. Its phone is {phone}."


def _mail(name: str, fields: Fields) -> str:
    keeper, lamp, gauge, phone = fields.values()
    head = f"From: {name}@lights.example\nSubject: Report"
    return f"{head}\n\nThe keeper is {keeper}, the lamp is {lamp}.\nGauge {gauge} is fine.\nCall {phone}."


FORMS: dict[str, tuple[Callable[[str, Fields], str], str]] = {
    "indented": (_fields("    {} {}"), "\n"),
    "indented words": (_fields("    {} Anna {}"), "\n"),
    "headings": (lambda name, fields: "## " + _fields("- {}: {}")(name, fields), "\n\n"),
    "yaml": (lambda name, fields: "- name: " + _fields("  {}: {}")(name, fields), "\n"),
    "labels": (lambda name, fields: "Name: " + _fields("{}: {}")(name, fields), "\n\n"),
    "prose": (_prose, "\n\n"),
    "mails": (_mail, "\n\n---\n\n"),
    "rows": (lambda name, fields: "| " + " | ".join([name, *fields.values()]) + " |", "\n"),
    "json lines": (lambda name, fields: json.dumps({"light": name, **fields}), "\n"),
    "json": (lambda name, fields: json.dumps({"light": name, "about": fields, "height": 9}), ", "),
}


@pytest.mark.parametrize("place", ["a new result", "an old result", "a paste"])
@pytest.mark.parametrize("form", FORMS)
def test_no_value_is_under_another_name(form: str, place: str) -> None:
    """The name that comes before a value is that of its record,."""
    rng = random.Random(f"{form}, {place}")
    for limit in LIMITS:
        for question in (*QUESTIONS, "What is the phone of {}?"):
            owners, text = _list_of(form, rng)
            asked = question.format(rng.choice(list(owners.values())))
            shown = _shown(text, place, asked, limit)
            where = sorted((m.start(), name) for name in PLACES for m in re.finditer(rf"\b{name}\b", shown))
            for value, owner in owners.items():
                for found in re.finditer(rf"\b{value}\b", shown):
                    before = [name for at, name in where if at < found.start()]
                    assert before[-1:] == [owner], (asked, limit, value, shown)


def _list_of(form: str, rng: random.Random) -> tuple[dict[str, str], str]:
    """Returns whose each value is, and a list of all records."""
    make, between = FORMS[form]
    values = iter(rng.sample(range(1000, 9999), 4 * len(PLACES)))
    owners, records = dict[str, str](), list[str]()
    for name in rng.sample(PLACES, rng.randint(8, len(PLACES))):
        fields = {"keeper": "K", "lamp": "L", "gauge": "TG-", "phone": "555-"}
        fields = {key: f"{sign}{next(values)}" for key, sign in fields.items()}
        owners.update(dict.fromkeys(fields.values(), name))
        records.append(f"{make(name, fields)}{'' if form != 'prose' else ' ' + rng.choice(CLOSING)}")
    text = between.join(records)
    return owners, f"[{text}]" if form == "json" else text


def _shown(text: str, place: str, asked: str, limit: int) -> str:
    """Returns what of the list is in a conversation that asks something."""
    call = {"id": "c1", "type": "function", "function": {"name": "book", "arguments": "{}"}}
    result = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]
    last = {"role": "user", "content": asked}
    chat: list[dict[str, Any]] = {
        "a new result": [last, *result],
        "an old result": [
            {"role": "user", "content": "Show me the book."},
            *result,
            {"role": "assistant", "content": "Here."},
            last,
        ],
        "a paste": [{"role": "user", "content": text}, {"role": "assistant", "content": "Thank you."}, last],
    }[place]
    fitted = fit_messages(chat, max_tokens=limit, counter="gpt-4o").messages
    return "\n".join(str(m["content"] or "") for m in fitted if m["content"] != asked)


@pytest.mark.parametrize("limit", range(80, 200, 12))
def test_a_line_of_which_nothing_is_asked_keeps_its_start(limit: int) -> None:
    """Half of one sentence and half of another would say what neither says."""
    rng = random.Random(limit)
    said = "the {} was built by monks|few liked the {}|a storm broke the {}|the {} held for years|ships passed the {}"
    lines = [
        " ".join(f"{one.format(rng.choice(PLACES)).capitalize()}." for one in rng.sample(said.split("|"), 4))
        for _ in range(8)
    ]
    shown = [
        line for line in _shown("\n\n".join(lines), "a new result", "Sum it up.", limit).split("\n") if line
    ]
    assert shown
    for line in shown:
        assert line.startswith("[...") or any(whole.startswith(line.removesuffix(" ...")) for whole in lines)
