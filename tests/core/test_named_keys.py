"""A key of several parts that a question names literally: what says it comes before what shares its parts."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from rankbudget.relevance.words import keys_in, times_of_key
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
KINDS: dict[str, Callable[[int], str]] = {
    "date": lambda i: (date(2025, 1, 1) + timedelta(i)).isoformat(),
    "address": lambda i: f"10.0.{i // 16}.{i % 16 + 1}",
    "version": lambda i: f"{i // 25}.{i // 5 % 5}.{i % 5}",
    "section": lambda i: f"{i // 25 + 1}.{i // 5 % 5 + 1}.{i % 5 + 1}",
    "name": lambda i: (
        f"_{('format', 'parse', 'get')[i % 3]}_{('usage', 'args', 'help')[i // 3 % 3]}_{i // 9}"
    ),
    "id": lambda i: f"ord-{40000 + i}",
}
FORMS = {
    "log": ("", "{key} 10:12:07 INFO load={value} orders=31\n"),
    "late in a log": ("", "2026-01-02 10:12:07 INFO key={key} load={value}\n"),
    "list": ("", "- {key}: has the load {value} and some others\n"),
    "csv": ("key,load,orders\n", "{key},{value},31\n"),
    "markdown": ("| key | load | orders |\n|---|---|---|\n", "| {key} | {value} | 31 |\n"),
    "paragraphs": ("", "Under {key} the load is {value} units.\n\n"),
}


@pytest.mark.parametrize("form", [*FORMS, "documents"])
@given(kind=st.sampled_from([*KINDS]), data=st.data())
@draws(cases=len(FORMS) + 1)
def test_what_has_the_named_key_is_kept(form: str, kind: str, data: st.DataObject) -> None:
    """At any limit that holds it and its head twice, whatever else has the key's parts."""
    seed, count = data.draw(st.integers(0, 2**32)), data.draw(st.integers(100, 365))
    head, line = FORMS.get(form, ("", "Item {key} is here. Its load is {value} units."))
    dice = random.Random(seed)
    lines = [line.format(key=KINDS[kind](i), value=dice.randint(1000, 9999)) for i in range(count)]
    asked = data.draw(st.integers(0, count - 1))
    texts = lines if form == "documents" else [head + "".join(lines)]
    most = 2 * COUNTER.count(head + lines[asked]) + data.draw(st.sampled_from([0, 30, 100, 400]))
    question = f"What is the load of {KINDS[kind](asked)}?"
    result = fit_documents(texts, max_tokens=most, query=question, counter=COUNTER)
    assert any(lines[asked].strip() in segment.text for segment in result.segments)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Is v1.10.2 older?", ["1.10.2"]),
        ("Why does __init__ call self._sum()?", ["__init__", "self._sum"]),
        ("版本1.10.2增加了什么", ["1.10.2"]),
        ("ann@corp.com and K-10", ["ann@corp.com", "k-10"]),
        ("plain words, 12 ____ --", []),
    ],
)
def test_keys_of_a_question(text: str, keys: list[str]) -> None:
    """They are words or numbers that are joined, without the v before a version."""
    assert keys_in(text) == keys


@pytest.mark.parametrize(
    ("key", "text", "times"),
    [
        ("10.0.0.4", "10.0.0.4:80 and (10.0.0.4)", 2),
        ("10.0.0.4", "10.0.0.41 110.0.0.4 1.10.0.0.4 10.0.0.4.1", 0),
        ("1.10.2", "v1.10.2, 版本1.10.2增", 2),
        ("1.10.2", "1.10.2rc1 rev1.10.2", 0),
        ("2025-10-25", "2025-10-25T10:00 log_2025-10-25.txt", 2),
        ("10-25", "2025-10-25 10-25-2025", 0),
        ("_sum", "self._sum(x)", 1),
        ("sum_x", "_sum_x sum_xy sum_x_y my-sum_x", 0),
    ],
)
def test_a_key_is_found_as_a_whole(key: str, text: str, times: int) -> None:
    """A part of a longer number, word or key is another one."""
    assert times_of_key(key, text) == times
