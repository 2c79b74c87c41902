"""The line that a question names stays whole in a shortened result; no cut splits a number or a word."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for
from rankbudget.compression.structured import compress_structured

from ...drawing import draws

COUNTER = counter_for("o200k_base")
LIMITS = (120, 200, 300, 500, 800, 1200, 2000, 4000)
FIRST = "Anna Ben Carla Dirk Emma Felix Greta Hans Ines Jan".split()
LAST = "Huber Olsen Meyer Rossi Novak Silva Kovac Dubois".split()
ROWS = {
    "html": "<tr><td>{id}</td><td>{name}</td><td>{city}</td><td>pro</td><td>{sum}</td><td>+49 {id} {id}</td></tr>",
    "markdown": "| {id} | {name} | {city} | pro | {sum} | +49 {id} {id} | see /var/log/billing/{id}.log |",
    "csv": "{id},{name},{city},pro,{sum},+49 {id} {id},2025-03-11 10:00:11,invoice and payment by bank transfer",
    "log": "2025-03-11T10:20:11Z INFO billing.service customer={name} id={id} plan=pro city={city} balance={sum} "
    "currency=EUR trace=00-{id}{id}-01 phone=+49{id} took=12ms",
    "late": "2025-03-11T10:20:11Z INFO billing.service customer={name} id={id} city={city} trace=00-{id}{id}-01 "
    "phone=+49{id} took=12ms retries=3 region=eu-west-1 host=node-{id}.example.com balance={sum} currency=EUR",
    "prose": "- Customer {id} is {name} from {city} on plan pro, whose balance of {sum} euro is due in {id} hours",
}
TABLES = {  # the head of a table, and a row
    "html": (
        "<table><tr><th>order</th><th>customer</th><th>amount</th></tr>",
        "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
    ),
    "markdown": ("| order | customer | amount |\n|---|---|---|", "| {} | {} | {} |"),
    "csv": ("order,customer,amount", "{},{},{}"),
    "tabs": ("order\tcustomer\tamount", "{}\t{}\t{}"),
    "json": ("", '{{"order":{},"customer":"{}","amount":{}}}'),
}
WHOLE = re.compile(r"\w+(?:[.:]\w+|(?<=\d),\d+)*")


def result(style: str, seed: int) -> tuple[str, str, str]:
    """Returns the lines of a tool result, the one that the question names, and the value asked for."""
    draw = Random(seed)

    def row(name: str) -> tuple[str, str]:
        value = f"{draw.randint(100, 899)}.{draw.randint(10, 99)}"
        city = draw.choice(["Bonn", "Leeds", "Lyon"])
        return ROWS[style].format(id=draw.randint(10_000, 99_999), name=name, city=city, sum=value), value

    rows = [row(f"{draw.choice(FIRST)} {draw.choice(LAST)}")[0] for _ in range(draw.choice([30, 60, 120]))]
    place = draw.randrange(len(rows))
    rows[place], value = row("Olga Zwolinski")
    return "\n".join(rows), rows[place], value


@pytest.mark.parametrize("style", ROWS)
@draws(cases=6)
@given(
    st.integers(0, 10**6),
    st.sampled_from(["What is the balance of {}?", "balance {}", "Look up {}, please."]),
)
def test_the_named_line_stays_whole_while_it_fits(style: str, seed: int, question: str) -> None:
    """At every limit with room for the line and its markers it is there, to the last character."""
    text, line, _ = result(style, seed)
    for limit in LIMITS:
        if limit >= COUNTER.count(line) + 30:
            assert line in compress_structured(text, limit, COUNTER, question.format("Olga Zwolinski")), limit


@pytest.mark.parametrize("style", TABLES)
@draws(cases=6)
@given(
    st.integers(0, 10**6),
    st.sampled_from(
        ["How much was order {}?", "What amount did customer {1} pay?", "order {}: customer, amount?"]
    ),
    st.booleans(),
)
def test_the_named_row_of_a_table_stays(style: str, seed: int, question: str, announced: bool) -> None:
    """From the tokens of head, row and markers on, though the head has more words of the question."""
    draw, (head, form) = Random(seed), TABLES[style]
    names = draw.sample([f"{first}{last.lower()}" for first in FIRST for last in LAST], 40)
    rows = [(10_000 + 97 * n, name, draw.randint(100, 999) + 0.25) for n, name in enumerate(names)]
    asked = draw.choice(rows)
    lines = [*filter(None, [head]), *(form.format(*row) for row in rows)]
    announced = announced and style != "json"
    text = "\n".join(
        ["Orders of this month, by customer:", "", *lines, "", "40 rows"] if announced else lines
    )
    row = form.format(*asked)
    least = COUNTER.count(f"{head}\n{row}") + 30
    for limit in {least, least + 5, least + 20, *(limit for limit in LIMITS if limit >= least)}:
        assert row in compress_structured(text, limit, COUNTER, question.format(*asked)), limit


@pytest.mark.parametrize("style", ROWS)
@draws(cases=6)
@given(st.integers(0, 10**6), st.integers(20, 400))
def test_no_number_and_no_word_is_split(style: str, seed: int, limit: int) -> None:
    """Every word and number of a shortened result is one of the whole result, or counts a gap."""
    text, _, _ = result(style, seed)
    cut = compress_structured(text, limit, COUNTER, "What is the balance of Olga Zwolinski?")
    said = re.sub(r"\[\.\.\. [\d,]+ \w+ \.\.\.\]", "", cut)
    assert set(WHOLE.findall(said)) <= set(WHOLE.findall(text))


@draws(cases=6)
@given(st.integers(0, 10**6))
def test_a_long_named_line_keeps_the_field_that_is_asked_for(seed: int) -> None:
    """Of a named line that is too long, what is around the asked words stays: a name and a field behind it."""
    draw = Random(seed)
    fields = [f"field{n}={draw.randint(1000, 9999)}" for n in range(60)]
    fields[draw.randrange(5, 25)] = "customer=Zwolinski"
    fields[draw.randrange(30, 55)] = "balance=578.29"
    lines = [f"2025-03-11 INFO id={n} {' '.join(f'field{n}={n * 17}' for n in range(40))}" for n in range(20)]
    lines[draw.randrange(20)] = f"2025-03-11 INFO {' '.join(fields)}"
    for limit in (60, 80, 120, 200):
        cut = compress_structured("\n".join(lines), limit, COUNTER, "What is the balance of Zwolinski?")
        assert "customer=Zwolinski" in cut, limit
        assert "balance=578.29" in cut, limit


FACT = "The gearbox of tug 12 was replaced in 1962."
ASKED = "When was the gearbox of tug 12 replaced?"
NOISE = "engine motor valve river boat crew harbour rope sail anchor deck captain storm cargo port".split()
MARKER = re.compile(r"\[\.\.\. [\d,]+ (?:line|part)s? \.\.\.\]")


@st.composite
def noise(draw: st.DrawFn, stops: tuple[str, ...] = (". ", ".\n")) -> tuple[str, str]:
    """Returns what is before and behind the fact: sentences or lines of equal length."""
    random, words, stop = (
        draw(st.randoms(use_true_random=False)),
        draw(st.integers(8, 80)),
        draw(st.sampled_from(stops)),
    )
    parts = [" ".join(random.choices(NOISE, k=words)).capitalize() for _ in range(160 // words + 4)]
    place = draw(st.integers(1, len(parts) - 1))
    return stop.join([*parts[:place], ""]), stop.join(["", *parts[place:], ""]).removeprefix(".")


@draws(cases=3)
@given(noise())
def test_the_named_sentence_stays_at_every_limit_that_holds_it(around: tuple[str, str]) -> None:
    """With room for it and a short mark on both sides it is there, whole, however long the others are."""
    text, least = FACT.join(around), COUNTER.count(FACT) + 6
    for limit in range(least, COUNTER.count(text) + 1):
        assert FACT in compress_structured(text, limit, COUNTER, ASKED), limit


@draws(cases=3)
@given(noise((", ", " ", " 3. ")))
def test_a_part_that_does_not_fit_is_cut_around_the_named_words(around: tuple[str, str]) -> None:
    """Where no sentence ends near the fact, what is around it stays, not the start and the end of its part."""
    text = f" {FACT[:-1]} ".join(around)
    for limit in range(40, COUNTER.count(text), 7):
        cut = compress_structured(text, limit, COUNTER, ASKED)
        assert FACT[4:-1] in cut, (limit, cut)


@draws(cases=3)
@given(noise(), st.booleans())
def test_something_stays_beside_a_marker(around: tuple[str, str], named: bool) -> None:
    """A shortened result is words of the result, or nothing: never the counts of gaps alone."""
    text = FACT.join(around)
    for limit in range(1, 60):
        cut = compress_structured(text, limit, COUNTER, ASKED if named else "Who won?")
        assert not cut or re.search(r"\w", MARKER.sub("", cut)) or limit < 8, (limit, cut)


TOPICS = "Parking Canteen Visitors Bicycles Laptops Gifts Training Pets Keys Garden".split()
BODIES = {
    "alike": "Owner: {word}. Start on {n} June. Make a backup first, and tell the users.",
    "unlike": "{word} {noise}.",
}
BEHIND = {
    "nothing": "",
    "table": "\n| table | rows |\n|---|---|\n" + "".join(f"| t_{n} | {n}7 |\n" for n in range(9)),
    "code": "\n```sh\n" + "".join(f"run --job {n}\n" for n in range(9)) + "```\n",
    "links": "\n## Links\n\n" + "".join(f"- https://wiki.test/{n}\n" for n in range(9)),
    "section": "\n## Tables\n\n| table | rows |\n|---|---|\n"
    + "".join(f"| t_{n} | {n}7 |\n" for n in range(9)),
}


@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("end", BEHIND)
@draws(cases=len(BODIES) * len(BEHIND))
@given(
    random=st.randoms(use_true_random=False),
    asked=st.integers(0, 9),
    room=st.integers(20, 200),
    question=st.sampled_from(
        ["What does the staff handbook say about {}?", "In the staff handbook, who owns {}?", "Who owns {}?"]
    ),
)
def test_a_named_section_stays_before_those_under_the_same_title(
    kind: str, end: str, random: Random, asked: int, room: int, question: str
) -> None:
    """A question that also names the title above all of them keeps the body of the section that it names."""
    bodies = [
        BODIES[kind].format(
            word=f"Q{n}{random.randint(100, 999)}", n=n, noise=" ".join(random.sample(NOISE, 4))
        )
        for n in range(len(TOPICS))
    ]
    sections = [f"\n## {topic}\n\n{body}\n" for topic, body in zip(TOPICS, bodies, strict=True)]
    text = "# Staff handbook\n" + "".join(sections) + BEHIND[end]
    limit = COUNTER.count(f"# Staff handbook\n{sections[asked]}") + 60 + room
    cut = compress_structured(text, limit, COUNTER, question.format(TOPICS[asked]))
    assert bodies[asked] in cut
    assert f"## {TOPICS[asked]}\n" in cut
