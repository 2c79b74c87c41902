"""Documents of small records alike: the one that is asked for stays, and no value under another one's name."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
FIELDS = ("port", "quota", "ticket", "depth")
ONE = "falcon heron osprey condor marten wolverine foxglove beacon lynx otter badger weasel ferret".split()
PARTS = ("billing", "ledger", "search", "auth", "mail"), ("api", "worker", "sync"), ("north", "south")
NAMES = {
    "one part": ONE,
    "two parts": [f"{a}-{b}" for a in PARTS[0] for b in PARTS[1]],
    "two words": [f"{a.title()} {b.title()}" for a in PARTS[0] for b in PARTS[1]],
    "three words": [
        f"{a.title()} {b.title()} {c.title()}" for a in PARTS[0][:3] for b in PARTS[1] for c in PARTS[2]
    ],
    "three parts": [f"{a}-{b}-{c}" for a in PARTS[0][:3] for b in PARTS[1] for c in PARTS[2]],
}
Values = Sequence[tuple[str, int]]


def form(head: str, field: str, tail: str = "", before: str = "") -> tuple[str, Callable[[str, Values], str]]:
    """Returns what is before all records, and what makes one of its name and fields."""
    return (
        before,
        lambda name, values: (
            head.format(name[0].upper() + name[1:] if "May." in head else name)
            + "".join(field.format(key=key, value=value) for key, value in values)
            + tail
        ),
    )


FORMS = {
    "yaml": form("  {}:\n", "    {key}: {value}\n", before="services:\n"),
    "yaml list": form("  - name: {}\n", "    {key}: {value}\n", before="services:\n"),
    "yaml map": form("{}:\n", "  {key}: {value}\n"),
    "nested": form("- place:\n    name: {}\n    facts:\n", "      {key}: {value}\n"),
    "ini": form("[{}]\n", "{key} = {value}\n", "\n"),
    "tight ini": form("[{}]\n", "{key} = {value}\n"),
    "sections": form("## {}\n\n", "- {key}: {value}\n", "\n", "# Services\n\n"),
    "sections of text": form("## {}\n", "The {key} is {value}. ", "\n\n", "# Services\n\n"),
    "bullets": form("- {}\n", "  - {key}: {value}\n", before="Services:\n"),
    "named text": form("{}:\n", "The {key} is {value}.\n"),
    "blocks": form("Service: {}\n", "{key}: {value}\n", "\n"),
    "tight blocks": form("Service: {}\n", "{key}: {value}\n"),
    "paragraphs": form("{} began in May.", " The {key} is {value}.", "\n\n"),
    "lines of text": form("{} began in May.", " The {key} is {value}.", "\n"),
    "text": form("{} began in May.", " The {key} is {value}.", " "),
    "items of text": form("- {} began in May.", " The {key} is {value}.", "\n", "Our services:\n"),
    "rules": form("---\nname: {}\n", "{key}: {value}\n"),
    "json": form(' {{\n  "name": "{}",\n', '  "{key}": "{value}",\n', '  "on": true\n },\n', "[\n"),
    "xml": form("<place>\n  <name>{}</name>\n", "  <{key}>{value}</{key}>\n", "</place>\n"),
    "html": form("<h3>{}</h3>\n<ul>\n", "<li>{key}: {value}</li>\n", "</ul>\n"),
    "page": form("<h3>{}</h3><ul>", "<li>{key}: {value}</li>", "</ul>"),
    "wrapped text": form("{} began in May. It is\nin use.", " The {key}\nis {value}.", "\n\n"),
    "parts": form("{}:\n", "  {key}: {value}\n  facts:\n    {key}: high\n"),
}
FLAT = "tight ini", "named text", "text"
"""Forms without a mark of where a record begins: there a name of three words is seen as a field of two."""


@pytest.mark.parametrize(
    ("kind", "names"),
    [(kind, names) for kind in FORMS for names in NAMES if kind not in FLAT or names != "three words"],
)
@draws(cases=len(FORMS) * len(NAMES))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(3, 13),
    asked=st.sampled_from(FIELDS),
    question=st.sampled_from(
        ["Which {key} does {name} have?", "What is the {key} of the {name} service?", "{name} {key}"]
    ),
    share=st.floats(0, 1),
    missing=st.sampled_from([0, 0, 0.2]),
)
def test_the_record_asked_for_stays_and_no_value_stands_under_another_name(
    kind: str, names: str, seed: int, count: int, asked: str, question: str, share: float, missing: float
) -> None:
    """From the room of the record itself to that of all, whatever fields others lack."""
    drawn = random.Random(seed)
    before, made = FORMS[kind]
    chosen = drawn.sample(NAMES[names], count)
    name = drawn.choice(chosen)
    numbers = iter(drawn.sample(range(10_000, 99_999), count * len(FIELDS)))
    values = {one: [next(numbers) for _ in FIELDS] for one in chosen}
    records = {
        one: made(
            one,
            [
                (key, value)
                for key, value in zip(FIELDS, values[one], strict=True)
                if one == name or drawn.random() >= missing
            ],
        )
        for one in chosen
    }
    text = before + "".join(records.values())
    least, most = COUNTER.count(before + records[name]) + 3, COUNTER.count(text)
    limit = max(least, round(least + share * (most - least)))
    query = question.format(key=asked, name=name)
    shown = fit_documents([text], max_tokens=limit, query=query, counter=COUNTER).text
    assert str(values[name][FIELDS.index(asked)]) in shown
    owners = {value: one for one, all_values in values.items() for value in all_values}
    for number in re.finditer(r"\d{5}", shown):
        above = shown[: number.start()].casefold()
        assert max(chosen, key=lambda one: above.rfind(one.casefold())) == owners[int(number.group())]
