"""What stays of one text for a question: sentences, rows and whole records, none under another one's name."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_text
from rankbudget.fitting.one_text import answering
from rankbudget.testing import WordCounter
from tests.drawing import draws

EXACT = counter_for("o200k_base")
PROSE = (
    "The harbour was built in 1872.",
    "It never froze, not even in 1929.",
    "Fish was sold until noon.",
    "The lamp of the lighthouse cost 4,250.75 crowns.",
)
WHOLE = (
    'The captain said "Dr. Smith is aboard. Wait for him." twice.',
    "See https://example.org/a.b?c=1 for the plans.",
    "The total is 4,250.75 crowns in 1929.",
)
WORDS = WordCounter()


def test_the_query_decides():
    """The sentence that answers stays, in its own words."""
    text = " ".join(PROSE)
    for query, kept in {
        "What did the lighthouse lamp cost?": PROSE[3],
        "When was the harbour built?": PROSE[0],
    }.items():
        assert fit_text(text, max_tokens=EXACT.count(kept) + 1, query=query).text.strip() == kept


def test_a_sentence_is_rated_in_its_paragraph():
    """Of two equal sentences the one in the paragraph about the question wins, wherever that is."""
    right = "The Vega telescope stands in Chile. It was opened in 2009. Its mirror has eight metres."
    wrong = "The bakery is in Bonn. It was opened in 1950. It sells rye bread."
    for text in (f"{wrong}\n\n{right}", f"{right}\n\n{wrong}"):
        assert answering(text, "When was the Vega telescope opened?", 5, WORDS) == "It was opened in 2009."


@given(
    pieces=st.lists(st.sampled_from((*PROSE, *WHOLE)), min_size=2, max_size=14),
    limit=st.integers(12, 160),
    query=st.sampled_from(["When was the harbour built?", "What did the lamp cost?"]),
)
def test_no_link_or_number_is_torn(pieces, limit, query):
    """The result fits, and each link and number in it is one of the text, whole."""
    text = " ".join(pieces)
    kept = answering(text, query, limit, EXACT)
    assert EXACT.count(kept) <= limit
    atoms = re.compile(r"https://\S*|\d[\d.,]*\d")
    assert set(atoms.findall(kept)) <= set(atoms.findall(text))


ASKED = "Which shipment is held at customs in Rotterdam?"
ANSWER = "shipment held at customs in Rotterdam, papers missing"
FORMS = {
    "list of objects": lambda notes: json.dumps([{"id": i, "note": note} for i, note in enumerate(notes)]),
    "indented": lambda notes: json.dumps([{"id": i, "note": note} for i, note in enumerate(notes)], indent=2),
    "list of texts": json.dumps,
    "object": lambda notes: json.dumps({f"k{i}": note for i, note in enumerate(notes)}),
    "wrapped": lambda notes: json.dumps({"rows": [{"note": note} for note in notes]}),
    "table": lambda notes: (
        "| id | note |\n|---|---|\n" + "\n".join(f"| {i} | {n} |" for i, n in enumerate(notes))
    ),
    "tabs": lambda notes: "id\tnote\n" + "\n".join(f"{i}\t{note}" for i, note in enumerate(notes)),
    "fenced JSON": lambda notes: f"```json\n{json.dumps(notes, indent=1)}\n```",
    "fenced code": lambda notes: (
        "```python\n" + "\n".join(f"x{i} = f({n!r})" for i, n in enumerate(notes)) + "\n```"
    ),
    "indented code": lambda notes: "\n" + "\n".join(f"    x{i} = f({n!r})" for i, n in enumerate(notes)),
}


@pytest.mark.parametrize("form", FORMS)
@draws(cases=len(FORMS))
@given(
    count=st.integers(20, 120),
    place=st.integers(0, 19),
    before=st.lists(st.sampled_from((*PROSE, "Every shipment has a number.")), max_size=12),
    after=st.sampled_from(["", "Regards", "Ask the customs office."]),
    times=st.sampled_from([1, 20]),
    share=st.floats(0, 1),
)
def test_the_record_that_answers_stays_in_a_block(form, count, place, before, after, times, share):
    """Whatever the form of the records, the prose around them and the limit, from 120 tokens on the answer is there."""
    notes = [f"shipment {i} left the depot on day {i % 28}" for i in range(count)]
    notes[place] = ANSWER
    prose = " ".join(f"{said[:-1]} on {n}." for n in range(times) for said in before)
    text = "\n\n".join(filter(None, [prose, FORMS[form](notes), after]))
    limit = 120 + int(share * (EXACT.count(text) - 120))
    kept = answering(text, ASKED, limit, EXACT)
    assert EXACT.count(kept) <= limit
    assert ANSWER in kept


SERVICES = {
    "yaml": "  svc-{0}:\n    image: registry.example/svc-{0}\n    status: {1}\n",
    "yaml list": "- name: svc-{0}\n  image: registry.example/svc-{0}\n  status: {1}\n",
    "log": "[09:{0:02d}] deploy of svc-{0} to eu-west\nimage: registry.example\nstatus: {1}\n\n",
    "rules": "name: svc-{0}\nimage: registry.example\nstatus: {1}\n---\n",
    "xml": "<service><name>svc-{0}</name>\n<image>registry</image>\n<status>{1}</status></service>\n",
    "json lines": '{{"name": "svc-{0}",\n "image": "registry",\n "status": "{1}"}}\n',
}


@pytest.mark.parametrize("form", SERVICES)
@draws(cases=len(SERVICES))
@given(count=st.integers(12, 80), place=st.integers(2, 9), room=st.integers(80, 400))
def test_a_record_keeps_its_own_values(form, count, place, room):
    """The value that is asked for is behind its name, although all others have equal lines, and no other value comes first."""
    rows = [SERVICES[form].format(i, "running") for i in range(count)]
    rows[place] = SERVICES[form].format(place, "failed at 7:15")
    kept = fit_text("".join(rows), max_tokens=room, query=f"What is the status of svc-{place}?").text
    behind = kept.partition(f"svc-{place}")[2]
    assert "failed at 7:15" in behind
    assert "running" not in behind.partition("failed at 7:15")[0]
