"""A line that opens something is worth what is inside it, and a line inside says what is said above it, too."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from rankbudget.compression.structured import compress_structured
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
Door = Callable[[Sequence[str], str, int], str]
MARKERS = 40
"""Tokens of the markers around what is kept of a tool result."""


def as_documents(texts: Sequence[str], question: str, limit: int) -> str:
    """Returns what is kept of documents."""
    return fit_documents(list(texts), query=question, max_tokens=limit, counter=COUNTER).text


def as_result(texts: Sequence[str], question: str, limit: int) -> str:
    """Returns what is kept of one tool result."""
    return compress_structured("".join(texts), limit + MARKERS, COUNTER, question)


DOORS = pytest.mark.parametrize("door", [as_documents, as_result])
CHAPTERS = {
    "Safety": "Read all of it before first use. Keep children away from it. It must be earthed.",
    "Installation": "Put it on a level floor. Leave {n} cm to the wall. Two people carry it.",
    "Cleaning the filter": "Rinse it with {n} liters of warm water. Do not use soap. Let it dry.",
    "Changing the battery": "Press the latch for {n} seconds. Take the lid off. Mind the poles.",
    "Storage": "Empty the tank. Dry it with a cloth. Store it at {n} degrees at least.",
    "Warranty": "It lasts {n} months. Keep the receipt. Wear is not covered.",
}
ABOUT = {
    "Cleaning the filter": ("How do I clean the filter of the {}?", "clean filter {}"),
    "Changing the battery": ("How is the battery of the {} changed?", "battery change of the {}"),
    "Storage": ("How is the storage of the {} done?", "{} storage"),
    "Warranty": ("What is the warranty of the {}?", "{} warranty"),
}


@DOORS
@draws(cases=2)
@given(
    product=st.sampled_from(("AquaClean 300", "Vento", "Mower FX20")),
    title=st.sampled_from(
        ("# {} user manual\n\n", "# {}\n\n", "# Manual of the {}\n\nThe {} is a machine.\n\n")
    ),
    chapter=st.sampled_from(sorted(ABOUT)),
    way=st.integers(0, 1),
    numbers=st.lists(st.integers(100, 999), min_size=6, max_size=6, unique=True),
    spare=st.integers(20, 120),
)
def test_the_chapter_that_answers_stays_wherever_the_title_is(
    door: Door, product: str, title: str, chapter: str, way: int, numbers: Sequence[int], spare: int
) -> None:
    """The title names the product, and is in the first chunk of two; a later one has the chapter."""
    parts = [
        f"## {name}\n\n{text.format(n=n)}\n\n"
        for n, (name, text) in zip(numbers, CHAPTERS.items(), strict=True)
    ]
    chunks = [title.replace("{}", product) + "".join(parts[:2]), "".join(parts[2:])]
    place = list(CHAPTERS).index(chapter)
    limit = COUNTER.count(title.replace("{}", product) + parts[place]) + spare
    assert str(numbers[place]) in door(chunks, ABOUT[chapter][way].format(product), limit)


SERVICES = "web cache queue search mailer billing".split()


@DOORS
@draws(cases=2)
@given(
    asked=st.sampled_from(SERVICES),
    numbers=st.lists(st.integers(1000, 9999), min_size=12, max_size=12, unique=True),
    order=st.permutations(("image", "ports", "environment")),
    question=st.sampled_from(("Which ports does {} publish?", "ports of {}", "What are the {} ports?")),
    spare=st.integers(20, 120),
)
def test_a_key_stays_with_what_is_below_it(
    door: Door, asked: str, numbers: Sequence[int], order: Sequence[str], question: str, spare: int
) -> None:
    """Other services have a port among their settings; "ports:" without its items says nothing."""

    def part(n: int, name: str) -> dict[str, str]:
        ports = f'    ports:\n      - "{numbers[2 * n]}:80"\n      - "{numbers[2 * n + 1]}:443"\n'
        return {
            "image": f"    image: {name}:1.{n}\n",
            "ports": ports,
            "environment": f"    environment:\n      port: {n + 70}\n      level: info\n",
        }

    made = [f"  {name}:\n" + "".join(part(n, name)[key] for key in order) for n, name in enumerate(SERVICES)]
    place = SERVICES.index(asked)
    text = "services:\n" + "".join(made)
    shown = door([text], question.format(asked), COUNTER.count(made[place]) + spare)
    for number in numbers[2 * place : 2 * place + 2]:
        above = shown[: shown.find(str(number))]
        assert str(number) in shown
        assert max(SERVICES, key=lambda name: above.rfind(f"  {name}:")) == asked


TOPICS = "parking lockers badges laptops visitors bicycles printers phones".split()
OPENERS = {
    "heading": "## Who is in charge of {}?\n\n{}\n\n",
    "question": "Who is in charge of {}?\n\n{}\n\n",
    "tight question": "Who is in charge of {}?\n{}\n\n",
    "bold": "**Rules for {}**\n\n{}\n\n",
    "title": "# Rules for {}\n{}\n\n",
}


@DOORS
@pytest.mark.parametrize("form", OPENERS)
@draws(cases=2 * len(OPENERS))
@given(asked=st.sampled_from(TOPICS), seed=st.integers(0, 10_000), spare=st.integers(15, 120))
def test_what_is_below_a_named_question_or_heading_stays(
    door: Door, form: str, asked: str, seed: int, spare: int
) -> None:
    """The answer has no word of the question, and other answers have some."""
    drawn = random.Random(seed)
    rooms = dict(zip(TOPICS, drawn.sample(range(100, 999), len(TOPICS)), strict=True))
    said = [OPENERS[form].format(one, f"Go to room {rooms[one]}. It is open at noon.") for one in TOPICS]
    text = "".join(drawn.sample(said, len(said)))
    limit = max(map(COUNTER.count, said)) + spare
    shown = door([text], f"Who is in charge of the {asked}, and what are the rules?", limit)
    assert f"room {rooms[asked]}." in shown


CITIES = "Berlin Hamburg Milan Lyon Dublin Lisbon Prague Oslo Madrid Vienna".split()
ROWS: dict[str, Callable[[Sequence[object]], str]] = {
    "markdown": lambda row: f"| {' | '.join(map(str, row))} |\n",
    "csv": lambda row: f"{','.join(map(str, row))}\n",
    "tabs": lambda row: "\t".join(map(str, row)) + "\n",
}


@DOORS
@pytest.mark.parametrize("form", ROWS)
@draws(cases=2 * len(ROWS))
@given(
    seed=st.integers(0, 10_000),
    city=st.sampled_from(CITIES),
    column=st.sampled_from(("rent", "staff")),
    question=st.sampled_from(("What is the {column} of {city}?", "{city} {column}", "{column} in {city}")),
    spare=st.integers(10, 100),
)
def test_of_several_tables_the_named_row_and_its_head_stay(
    door: Door, form: str, seed: int, city: str, column: str, question: str, spare: int
) -> None:
    """Two tables have the same names, and a list has the name of the column in other lines."""
    drawn = random.Random(seed)
    row, rule = ROWS[form], "|---|---|---|\n" if form == "markdown" else ""
    values = drawn.sample(range(1000, 9999), 4 * len(CITIES))
    tables = []
    for n, columns in enumerate((("city", "rent", "area"), ("city", "staff", "desks"))):
        of_city = {one: row([one, *values[4 * k + 2 * n :][:2]]) for k, one in enumerate(CITIES)}
        tables.append((columns, of_city))
    stock = "".join(f"- {3 + n} boxes of paper for {one}\n" for n, one in enumerate(drawn.sample(CITIES, 5)))
    stock += "- rent for the van is paid\n- staff lockers came\n"
    parts = [row(columns) + rule + "".join(rows.values()) for columns, rows in tables]
    text = f"{parts[0]}\n{parts[1]}\nStock list\n\n{stock}"
    columns, rows = tables[column == "staff"]
    limit = COUNTER.count(row(columns) + rule + rows[city]) + spare
    shown = door([text], question.format(city=city, column=column), limit)
    assert rows[city].strip() in shown
    assert row(columns).strip() in shown


DATES = ("3 March", "14 April", "12 May", "26 May", "9 June", "23 June")
TITLES = ("Minutes of {}\n\n", "## Minutes of {}\n\n", "# Meeting, {}\n\n", "**Minutes of {}**\n\n")


@DOORS
@draws(cases=2)
@given(
    title=st.sampled_from(TITLES),
    asked=st.integers(1, 5),
    seed=st.integers(0, 10_000),
    question=st.sampled_from(
        ("What was decided on {}?", "Decisions of {}", "What did the minutes of {} say was decided?")
    ),
    spare=st.integers(10, 100),
)
def test_the_minutes_of_a_date_come_before_those_that_mention_it(
    door: Door, title: str, asked: int, seed: int, question: str, spare: int
) -> None:
    """Each of the minutes names the date of the next meeting."""
    drawn = random.Random(seed)
    votes = drawn.sample(range(100, 999), len(DATES))
    following = [*DATES[1:], "7 July"]
    said = [
        f"{title.format(date)}Present were {drawn.randint(4, 9)} people. It was decided with {n} votes. "
        f"The next meeting is on {later}.\n\n"
        for date, n, later in zip(DATES, votes, following, strict=True)
    ]
    limit = COUNTER.count(said[asked]) + spare
    assert f"with {votes[asked]} votes" in door(["".join(said)], question.format(DATES[asked]), limit)
