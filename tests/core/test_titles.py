"""Texts of several records, each with its title in whatever form: no line is read as another record's."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from rankbudget.compression.structured import compress_structured
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
NAMES = "Holmen Lindos Arvika Bremsund Tolvane Kestrel Marlow Quinby Ostrava Pellworm".split()
SAYS = {
    "night": ("A night costs {} euros.", "You pay {} euros for a night.", "Rooms go for {} euros a night."),
    "beach": ("The beach is {} metres away.", "It is {} metres to the beach."),
    "deposit": ("A deposit of {} euros is due.", "The deposit is {} euros.", "Guests leave a deposit of {}."),
    "door code": ("The door code is {}.", "Enter with the door code {}."),
}
LEADS = ("", "", "In summer", "As a rule", "With a card", "So far", "On request", "By now", "For families")
ABOUT = (
    "Open all year",
    "A house by the lake",
    "The oldest inn of the valley",
    "Mill Street 12",
    "Four stars",
)
RECORDS = {
    "above": "{name}\n{text}\n\n",
    "above, without gaps": "{name}\n{text}\n",
    "above lines": "{name}\n{lines}\n",
    "above paragraphs": "{name}\n{first}\n\n{rest}\n\n",
    "firm": "Berg and {name} Inc.\n\n{text}\n\n",
    "short form": "{name} s.r.o.\n\n{first}\n\n{rest}\n\n",
    "above more": "{name}\n{about}\n\n{text}\n\n",
    "above more, without gaps": "{name}\n{about}\n{text}\n",
    "dash": "{name} - {about}\n{text}\n",
    "clauses": "{name}\n\n{clauses}\n\n",
    "clauses, without gaps": "{name}\n{clauses}\n",
    "clauses of a supplier": "SUPPLIER: {name}\n\n{clauses}\n\n",
    "named clauses": "Contract with {name}\n{named}\n",
    "number": "{number}. {name}\n{text}\n",
    "bars": "| {name} |\n{text}\n\n",
    "bars with a gap": "| {name} |\n\n{text}\n\n",
    "subject": "Re: {name}\n{text}\n",
    "hash": "#47{number} {name}\n{text}\n",
    "sign": "\N{HOTEL} {name}\n{text}\n",
    "tag": '<stay guest="{name}">\n{lines}\n</stay>\n',
}


def _record(drawn: random.Random, form: str, name: str, number: int, said: list[str]) -> str:
    """Returns a record of one form with all that may be said in one."""
    half = len(said) // 2
    clauses = list(zip("Rooms Place Payment Arrival".split(), said, strict=True))
    return RECORDS[form].format(
        name=name,
        number=number,
        about=drawn.choice(ABOUT),
        text=" ".join(said),
        lines="\n".join(said),
        first=" ".join(said[:half]),
        rest=" ".join(said[half:]),
        clauses="\n".join(f"{n}. {title}\n{n}.1 {one}" for n, (title, one) in enumerate(clauses, 1)),
        named="\n".join(f"{n}. {title}: {one}" for n, (title, one) in enumerate(clauses, 1)),
    )


@pytest.mark.parametrize("form", RECORDS)
@draws(cases=len(RECORDS))
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(3, 9),
    asked=st.sampled_from(sorted(SAYS)),
    share=st.floats(0, 0.6),
)
def test_what_is_kept_of_a_record_comes_below_its_title(
    form: str, seed: int, count: int, asked: str, share: float
) -> None:
    """The record that is asked for stays, and whatever else there is room for comes below its own title."""
    drawn = random.Random(seed)
    names, numbers = drawn.sample(NAMES, count), iter(drawn.sample(range(1000, 9999), 4 * count))
    owner, records, answers = dict[str, str](), dict[str, str](), dict[str, str]()
    for n, name in enumerate(names, 1):
        said = []
        for key, forms in SAYS.items():
            value, lead = str(next(numbers)), drawn.choice(LEADS)
            sentence = drawn.choice(forms).format(value)
            said.append(f"{lead} {sentence[0].lower()}{sentence[1:]}" if lead else sentence)
            owner[value] = name
            answers[name] = value if key == asked else answers.get(name, "")
        records[name] = _record(drawn, form, name, n, said)
    text, name = "".join(records.values()), drawn.choice(names)
    least, most = COUNTER.count(records[name]) + 8, COUNTER.count(text)
    limit, question = round(least + share * (most - least)), f"What is the {asked} of {name}?"
    document = fit_documents([text], max_tokens=limit, query=question, counter=COUNTER).text
    assert answers[name] in document
    for shown in (document, compress_structured(text, limit, COUNTER, question)):
        for value in re.finditer(r"\b\d{4}\b", shown):
            above = shown[: value.start()]
            assert max(names, key=above.rfind) == owner[value.group()]
