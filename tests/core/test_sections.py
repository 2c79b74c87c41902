"""Pages of prose under headings, reports, questions with answers: a sentence stays below what it is of."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents, fit_text
from rankbudget.compression.structured import compress_structured
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
TITLES = "Laptops Badges Parking Phones Lockers Printers Projectors Bicycles".split()
OPENINGS = (
    "A request is sent to the vendor.",
    "The facility team is in charge.",
    "One is lent to each employee.",
    "Ask at the reception.",
    "New people have to sign a form.",
    "Only heads of department order more.",
    "Each office has some.",
    "Damage is reported by mail.",
)
VERBS = "answer need have call keep check send count".split()
HEADINGS = {
    "markdown": "## {title}\n",
    "markdown with a gap": "## {title}\n\n",
    "numbered": "{number}. {title}\n",
    "bold": "**{title}**\n",
    "title": "{title}\n\n",
    "wiki": "== {title} ==\n",
    "underlined": "{title}\n----------\n",
    "html": "<h2>{title}</h2>\n",
}


@pytest.mark.parametrize("style", HEADINGS)
@draws(cases=len(HEADINGS))
@given(seed=st.integers(0, 10_000), count=st.integers(4, 8), share=st.floats(0.3, 0.6))
def test_a_sentence_of_a_section_stands_below_its_own_heading(
    style: str, seed: int, count: int, share: float
) -> None:
    """Sections of prose have one sentence of the same form each, which says nothing without its heading."""
    drawn = random.Random(seed)
    titles = drawn.sample(TITLES, count)
    answers = {title: f"It takes {10 + i} days." for i, title in enumerate(titles)}
    parts = zip(titles, drawn.sample(OPENINGS, count), drawn.sample(VERBS, count), strict=True)
    said = {title: f"{opening} They {verb} what is left. {answers[title]}" for title, opening, verb in parts}
    text = "\n\n".join(
        HEADINGS[style].format(title=title, number=i) + said[title] for i, title in enumerate(titles, start=1)
    )
    title = drawn.choice(titles)
    limit = round(share * COUNTER.count(text))
    question = f"How many days does it take for {title.lower()}?"
    shown = fit_documents([text], max_tokens=limit, query=question, counter=COUNTER).text
    assert answers[title] in shown
    for one, answer in answers.items():
        if answer in shown:
            above = shown[: shown.index(answer)]
            assert max(titles, key=above.rfind) == one


@draws(cases=1)
@given(
    lead=st.sampled_from(("A: ", "")),
    asked=st.integers(0, 4),
    count=st.integers(1, 3),
    share=st.floats(0.2, 0.9),
)
def test_the_rest_of_an_answer_stays_behind_its_beginning(
    lead: str, asked: int, count: int, share: float
) -> None:
    """An answer goes on with what its first sentence says."""
    topics = "files messages invoices backups reports".split()
    beginnings = {
        topic: f"{lead}They stay for {20 + i} days with the owner." for i, topic in enumerate(topics)
    }
    rests = {
        topic: [
            f"After that {way} {30 + i}." for way in ("the rule is", "an admin sees", "the limit is")[:count]
        ]
        for i, topic in enumerate(topics)
    }
    text = "Help\n\n" + "\n\n".join(
        f"{'Q: ' if lead else ''}What happens to the {topic} of a member who leaves?\n"
        + " ".join([beginnings[topic], *rests[topic]])
        for topic in topics
    )
    question = f"A colleague has left, where are her {topics[asked]}, and what is after that?"
    limit = round(share * COUNTER.count(text))
    shown = fit_documents([text], max_tokens=limit, query=question, counter=COUNTER).text
    for topic in topics:
        if any(rest in shown for rest in rests[topic]):
            assert beginnings[topic] in shown


QUESTIONS = {
    "heading": "### {question}\n{answer}",
    "bold": "**{question}**\n{answer}",
    "bold with a gap": "**{question}**\n\n{answer}",
    "bold in the line": "**{question}** {answer}",
    "plain": "{question}\n{answer}",
    "plain with a gap": "{question}\n\n{answer}",
    "bold item": "<li><strong>{question}</strong> {answer}</li>",
    "item": "- **{question}**\n  {answer}",
    "tags": "<b>{question}</b>\n{answer}",
    "letters": "Q: {question}\nA: {answer}",
    "letters in the line": "Q: {question} A: {answer}",
}
ANSWERED = {
    "May I bring a dog into the breakfast room?": "Dogs are welcome in all rooms and in the bar.",
    "Can I cancel a sale booking for free?": "You can cancel all other bookings until the day before.",
    "Is the car park included in the price?": "It has 40 places and is open all night.",
    "Do you ship lost items abroad?": "Lost items are kept for six months at the desk.",
    "Can a minor check in alone?": "A minor of 16 years can check in with a letter of both parents.",
}
MORE = "It costs 12 euros a night.", "A friend can ask at the desk.", "The rule is from May 2024."


@pytest.mark.parametrize("form", QUESTIONS)
@draws()
@given(
    firsts=st.lists(st.sampled_from(("No.", "Not yet.", "Sorry, no.")), min_size=2, max_size=5),
    asked=st.integers(0, 4),
    more=st.integers(0, 3),
    limit=st.integers(10, 90),
    title=st.sampled_from(("", "# Guest help\n\n", "# Guest help\n\nAsk us.\n\n## Booking\n")),
    alone=st.booleans(),
)
def test_no_rest_of_an_answer_without_its_yes_or_no(
    form: str, firsts: list[str], asked: int, more: int, limit: int, title: str, alone: bool
) -> None:
    """Whatever the room and however questions are written: "No." stays before what goes on with it."""
    text = title + "\n\n".join(
        QUESTIONS[form].format(question=question, answer=" ".join([first, rest, *MORE[:more]]))
        for (question, rest), first in zip(ANSWERED.items(), firsts, strict=False)
    )
    options: dict[str, Any] = {"max_tokens": limit, "query": [*ANSWERED][asked], "counter": COUNTER}
    kept = (fit_text(text, **options) if alone else fit_documents([text], **options)).text
    for first, rest in zip(firsts, ANSWERED.values(), strict=False):
        before, rest_kept, _ = kept.partition(rest[:12])
        assert not rest_kept or before.rstrip().endswith(first)


RULES = {
    "dashes": "---\n",
    "dashes with gaps": "\n---\n\n",
    "equals": "=" * 30 + "\n",
    "stars": "* * *\n",
    "html": "<hr>\n",
    "blank line": "\n",
    "page": "\f",
}
REPORT_TITLES = (
    "Ticket {}\n",
    "Ticket: {}\n",
    "{}\n\n",
    "## Ticket {}\n",
    "## {}\n\n",
    "**Ticket {}**\n",
    "[{}] From the help desk\n",
    "<h2>{}</h2>\n",
)
PARTS = {
    "colon": "{}:\n",
    "colon with a gap": "\n{}:\n",
    "markdown": "### {}\n",
    "bold": "**{}**\n",
    "bold with a gap": "\n**{}:**\n",
    "plain with a gap": "\n{}\n",
    "html": "<h3>{}</h3>\n",
}
SAID = (
    "The {thing} fails after the update of last week.",
    "It was checked on two machines.",
    "An engineer replaced the cable of the {thing}.",
    "We rolled the firmware back to the older one.",
    "Users were told by mail.",
    "Support raised the limit for this {thing}.",
)


def _report(drawn: random.Random, title: str, part: str, name: str, number: int) -> str:
    """Returns a report whose lines end in its number, with other parts, fields and lines than the next one."""

    def said() -> str:
        sentences = [one.format(thing=drawn.choice(TITLES).lower()) for one in drawn.sample(SAID, 3)]
        lines = [f"{one[:-1]} [{number}]." for one in sentences[: drawn.randint(1, 3)]]
        form = drawn.choice(("{} ", "{}\n", "- {}\n"))
        return "".join(form.format(line) for line in lines).rstrip() + "\n"

    fields = [f"{key}: {drawn.choice(TITLES)} [{number}]\n" for key in ("Customer", "Floor")]
    names = [
        "Problem",
        *[one for one in ("Workaround", "Resolution", "Notes") if drawn.random() < 0.6],
    ]
    parts = [part.format(one) + said() for one in names]
    return "".join([title.format(name), *fields[: drawn.randint(0, 2)], *parts])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("door", ["documents", "result"])
@draws(cases=2 * len(RULES))
@given(
    part=st.sampled_from(sorted(PARTS)),
    seed=st.integers(0, 10_000),
    title=st.sampled_from(REPORT_TITLES),
    count=st.integers(6, 12),
    share=st.floats(0.1, 0.6),
    question=st.sampled_from(("{}: what was the resolution?", "What was the problem of {}?")),
)
def test_no_line_of_a_report_stands_below_the_title_of_another_one(
    door: str, rule: str, part: str, seed: int, title: str, count: int, share: float, question: str
) -> None:
    """Reports share only some of their headings: each heading and what is below it belongs to its title."""
    drawn = random.Random(seed)
    names = [f"TCK-{number}" for number in drawn.sample(range(1000, 9999), count)]
    text = RULES[rule].join(
        _report(drawn, title, PARTS[part], name, number) for number, name in enumerate(names)
    )
    limit, asked = round(share * COUNTER.count(text)), question.format(drawn.choice(names))
    if door == "result":
        shown = compress_structured(text, limit, COUNTER, asked)
    else:
        shown = fit_documents([text], max_tokens=limit, query=asked, counter=COUNTER).text
    for line in re.finditer(r"\[(\d+)\][.\n]", shown):
        above = shown[: line.start()]
        nearest = max(names, key=above.rfind)
        assert nearest not in above or nearest == names[int(line[1])]


NAMED_LINES = {
    "line": "{name}: {text}",
    "bold": "- **{name}**: {text}",
    "bold with the colon": "**{name}:** {text}",
    "marks": "--- Chat with {name} ---\n{text}",
    "stars": "***** {name} *****\n\n{text}\n",
}
PEOPLE = ("Karin Holm", "Tore Bakke", "Ada Moen", "Ines Dahl", "Per Lie", "Jonas Falk", "Hanna Ruud")
LIKES = ("Leads the hall.", "Buys malt.", "Is away on Fridays.", "Works at night.", "Drives the truck.")


@pytest.mark.parametrize("form", NAMED_LINES)
@draws(cases=len(NAMED_LINES))
@given(
    said=st.lists(st.lists(st.sampled_from(LIKES), max_size=3), min_size=3, max_size=7),
    asked=st.integers(0, 6),
    share=st.floats(0.1, 0.95),
)
def test_no_sentence_stands_behind_another_name(
    form: str, said: list[list[str]], asked: int, share: float
) -> None:
    """What is said of one person is read with the nearest name before it, and every line begins anew."""
    telling = [[*own, f"His phone is 44{n}{n}."] for n, own in enumerate(said)]
    lines = zip(PEOPLE, telling, strict=False)
    text = "\n".join([NAMED_LINES[form].format(name=name, text=" ".join(own)) for name, own in lines])
    limit = max(8, round(share * COUNTER.count(text)))
    question = f"What is the phone of {PEOPLE[asked]}?"
    shown = fit_documents([text], max_tokens=limit, query=question, counter=COUNTER).text
    for n, name in enumerate(PEOPLE[: len(said)]):
        before, phone, _ = shown.partition(f"phone is 44{n}{n}")
        assert not phone or max(PEOPLE, key=before.rfind) == name
        before, own, _ = shown.partition(name)
        assert not own or "." not in before.rpartition("\n")[2]
