"""The sentence that says what is asked stays before what other documents say, in every style of text."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.relevance.lexical import Bm25Scorer

from ...drawing import draws

LIMITS = (60, 100, 200, 400, 800, 1600, 3200)
TITLES = [*"Shipping Refunds Invoices Returns Payment Accounts Vouchers Batteries".split(), "Opening hours"]
OWN = [None, "{item} drill", "Warranty", "Handbook {item}", "Power tools"]
NAMED = ["{title} {are} handled by the office in Bonn.", "For more see {title}.", "Ask for {title} there."]
GERMAN = {
    "Versand": "Der Versand ist frei.",
    "Rechnung": "Die Rechnung kommt danach.",
    "Umtausch": "Ein Umtausch geht.",
}
FIRST = "Anna Ben Carla Dirk Emma Felix Greta Hans Ines Jan".split()
LAST = "Huber Olsen Meyer Rossi Novak Silva Kovac Dubois".split()
ROWS = {
    "html": "<tr><td>{id}</td><td>{name}</td><td>{city}</td><td>{plan}</td></tr>",
    "classes": '<tr class="row odd"><td class="cell id">{id}</td><td class="cell">{name}</td>'
    '<td class="cell">{city}</td><td class="cell">{plan}</td></tr>',
    "markdown": "| {id} | {name} | {city} | {plan} |",
    "csv": "{id},{name},{city},{plan}",
    "log": "2025-03-11T10:00:11Z INFO customer={name} id={id} city={city} level={plan}",
    "prose": "Customer {id} from {city} is {name}, who has {plan}.",
}
COMMON = {
    "yaml": "- id: {id}\n  name: {name}\n  plan: {plan}\n  balance: {id}\n",
    "prose": "The {plan} plan has {id} seats. A plan can be changed in month {id}.\n",
    "log": "2025-03-14 INFO plan changed for {name} to {plan}\n",
}
QUESTIONS = [
    "Please look up {name} and tell me the plan.",
    "Which plan does {name} have?",
    "{name}: plan?",
    "I need the plan of {name}, thanks!",
]


def kept_at(documents: list[Segment], question: str, value: str) -> list[bool]:
    """Returns at which of the limits the value is kept."""
    results = [fit_documents(documents, max_tokens=limit, query=question) for limit in LIMITS]
    return [any(value in segment.text for segment in result.segments) for result in results]


def shuffled(draw: Random, texts: list[tuple[str | None, str]]) -> list[Segment]:
    """Returns the texts as documents in some order, with their titles."""
    draw.shuffle(texts)
    return [Segment(id=str(i), text=text, title=title) for i, (title, text) in enumerate(texts)]


@draws(cases=2)
@given(st.integers(0, 10**6), st.sampled_from(OWN), st.booleans())
def test_the_answer_stays_beside_titles_that_are_named(seed: int, own: str | None, titled: bool) -> None:
    """A page's sentence with the question's words is kept at every limit, whatever titles stand beside it."""
    draw = Random(seed)
    item, months = f"{draw.choice('XKT')}{draw.randint(100, 999)}", f"{draw.randint(20, 90)} months"
    others = draw.sample(TITLES, 6)
    body = [f"The warranty of the {item} drill is {months}."]
    body += [draw.choice(NAMED).format(title=title, are="are") for title in draw.sample(others, 3)]
    draw.shuffle(body)
    pages = [
        (
            title if titled else None,
            "\n".join(
                f"{title} rule {k}: ask in room {k * 3}, before day {k} of the month." for k in range(12)
            ),
        )
        for title in others
    ]
    pages.append((own and own.format(item=item), " ".join(body)))
    question = draw.choice(
        [
            f"How long is the warranty of the {item} drill?",
            f"warranty {item} drill",
            f"What warranty has the {item}?",
        ]
    )
    assert all(kept_at(shuffled(draw, pages), question, months))


def test_nouns_with_capitals_are_named_after_the_answer() -> None:
    """German titles are written in sentences as names are; the sentence that answers still comes first."""
    body = f"{' '.join(GERMAN.values())} Die Garantie des Bohrers X200 ist 31 Monate."
    pages = [
        (title, "\n".join(f"{title} Regel {k}: Bitte fragen Sie in Raum {k} nach." for k in range(12)))
        for title in GERMAN
    ]
    documents = shuffled(Random(1), [*pages, ("Bohrer X200", body)])
    assert all(kept_at(documents, "Wie lang ist die Garantie des Bohrers X200?", "31 Monate"))


@pytest.mark.parametrize("common", COMMON)
@pytest.mark.parametrize("style", ROWS)
@draws(cases=18)
@given(st.integers(0, 10**6), st.sampled_from(QUESTIONS), st.booleans())
def test_the_one_row_with_a_name_stays(
    style: str, common: str, seed: int, question: str, titled: bool
) -> None:
    """The only row with the asked name is kept at every limit beside a text that repeats a common word."""
    draw = Random(seed)

    def fields(name: str | None = None) -> dict[str, object]:
        return {
            "id": draw.randint(10_000, 99_999),
            "name": name or f"{draw.choice(FIRST)} {draw.choice(LAST)}",
            "city": draw.choice(["Bonn", "Leeds", "Lyon"]),
            "plan": draw.choice(["basic", "pro"]),
        }

    rows = [ROWS[style].format(**fields()) for _ in range(draw.choice([20, 80, 150]))]
    rows[draw.randrange(len(rows))] = wanted = ROWS[style].format(**fields("Greta Zwolinski"))
    texts = [
        ("\n".join(rows), "Customers"),
        ("".join(COMMON[common].format(**fields()) for _ in range(80)), "Plans"),
    ]
    documents = shuffled(draw, [(title if titled else None, text) for text, title in texts])
    assert all(kept_at(documents, question.format(name="Greta Zwolinski"), wanted))


def test_a_page_is_still_found_through_the_page_that_names_it() -> None:
    """A title that a matching page names, as a name is written, brings its page before others."""
    documents = [
        Segment(id="film", text="The film Red Lake was directed by Mira Stone in 1990.", title="Red Lake"),
        Segment(
            id="woman",
            text="She was born in Oslo and died in Rome. Her brother was a painter.",
            title="Mira Stone",
        ),
        *[
            Segment(
                id=str(i), text=f"Director number {i} was born in a town of some country.", title=f"Town {i}"
            )
            for i in range(20)
        ],
    ]
    kept = fit_documents(documents, max_tokens=40, query="Where was the director of the film Red Lake born?")
    assert {"film", "woman"} <= {segment.id for segment in kept.segments}


def test_markup_is_no_length() -> None:
    """A text in tags with attributes is as near to a question as the same text without them."""
    plain = [f"Customer {n} lives in Bonn since {n} years." for n in range(8)]
    tagged = [f'<tr class="row odd"><td class="cell wide">{text}</td></tr>' for text in plain]
    texts = [plain[0], tagged[0], *plain[1:], *tagged[1:]]
    scores = Bm25Scorer().score(
        "Who lives in Bonn?", [Segment(id=str(i), text=t) for i, t in enumerate(texts)]
    )
    assert scores[0] == scores[1] > 0


HEADED = {
    "html": (
        "<h1>Orders</h1>\n<table><tr><th>id</th><th>name</th><th>phone</th></tr>",
        "<tr><td>{id}</td><td>{name}</td><td>{phone}</td></tr>",
    ),
    "markdown": ("# Orders\n\n| id | name | phone |\n|---|---|---|", "| {id} | {name} | {phone} |"),
    "csv": ("Orders\n\nid,name,phone", "{id},{name},{phone}"),
    "list": ("# Orders\n", "- id {id}, name {name}, phone {phone}"),
}
ASKED = ["Which phone number is on order {id}?", "What is the phone number for order {id}?", "phone of {id}"]


@pytest.mark.parametrize("style", HEADED)
@draws()
@given(
    seed=st.integers(0, 10_000),
    parts=st.integers(2, 6),
    question=st.sampled_from(ASKED),
    form=st.sampled_from(["A-{n}", "INC{n:07d}", "{n}"]),
)
def test_an_id_in_one_chunk_beats_the_heading_in_another(
    style: str, seed: int, parts: int, question: str, form: str
) -> None:
    """A table cut into chunks keeps the row of the id that is asked for, whatever the first chunk's heading says."""
    draw = Random(seed)
    head, row = HEADED[style]
    rows = [
        {"id": form.format(n=10_000 + i * 37), "name": draw.choice(LAST), "phone": f"+44 70{i:04d}"}
        for i in range(90)
    ]
    asked = draw.choice(rows)
    lines = [*head.split("\n"), *(row.format(**one) for one in rows)]
    size = -(-len(lines) // parts)
    texts = [(None, "\n".join(lines[i : i + size])) for i in range(0, len(lines), size)]
    documents = shuffled(draw, texts)
    found = fit_documents(documents, max_tokens=200, query=question.format(**asked))
    assert asked["phone"] in found.text
