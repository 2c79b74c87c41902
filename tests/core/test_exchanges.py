"""Conversations in one text, fault lists and requests to recall: with what was asked for its answer stays."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents, fit_messages, fit_text
from rankbudget.compression.structured import compress_structured
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
TURNS = {
    "labels": "Agent: {q}\n\nCustomer: {a}\n\n",
    "tight labels": "Agent: {q}\nCustomer: {a}\n",
    "none": "{q}\n\n{a}\n\n",
    "letters": "Q: {q}\n\nA: {a}\n\n",
    "times": "[10:04] Lena Voss: {q}\n\n[10:04] Tom Reed: {a}\n\n",
    "lines of their own": "Agent\n{q}\n\nCustomer\n{a}\n\n",
    "behind thanks": "Agent: Thanks. {q}\n\nCustomer: {a}\n\n",
}
ASKED = {
    "Which size do you need?": ("Which shoe size does the customer need?", "size {}"),
    "What is your order number?": ("What is the order number of the customer?", "AB-{}"),
    "Where should we deliver it?": ("Where should it be delivered?", "Mill Lane {}"),
    "May I have your postcode?": ("What is the customer's postcode?", "{}"),
    "Which discount code do you have?": ("Which discount code was used?", "SPRING{}"),
    "What is the phone number for the courier?": ("Which phone number is for the courier?", "0157 {}"),
}
OTHERS = {
    "Can you hear me well?": "Yes",
    "Have you bought from us before?": "Once, years ago",
    "Did you find our website easily?": "More or less",
    "Should we wrap it as a present?": "No, a plain box",
    "How would you like to pay?": "By invoice",
    "Anything else I can do?": "That is all",
}


@draws()
@given(
    seed=st.integers(0, 10_000),
    form=st.sampled_from(sorted(TURNS)),
    share=st.sampled_from([0.2, 0.35, 0.5]),
    is_result=st.booleans(),
)
def test_the_answer_stays_below_the_question_of_a_conversation(
    seed: int, form: str, share: float, is_result: bool
) -> None:
    """A question is not kept for its words while the next turn, which answers it in few words, is dropped."""
    drawn = random.Random(seed)
    said = {q: a.format(n) for n, (q, (_, a)) in enumerate(ASKED.items(), drawn.randint(10_000, 90_000))}
    turns = [*said.items(), *OTHERS.items()]
    drawn.shuffle(turns)
    text = "".join(TURNS[form].format(q=q, a=a) for q, a in turns)
    question = drawn.choice(list(ASKED))
    limit, query = int(share * COUNTER.count(text)), ASKED[question][0]
    kept = fit_text(text, max_tokens=limit, query=query).text
    kept = compress_structured(text, limit, COUNTER, query) if is_result else kept
    assert question in kept
    assert kept.index(said[question]) > kept.index(question)


FAULTS = {
    "The door is not closed.": "Push it until it clicks.",
    "The pump is blocked.": "Take the object out.",
    "Water pressure is too low.": "Open the tap fully.",
    "The sensor has failed.": "Have the part replaced.",
    "The filter is dirty.": "Rinse it under running water.",
    "The drum is overloaded.": "Take half of the laundry out.",
    "The hose is bent.": "Lay it straight behind the machine.",
    "The motor is too hot.": "Wait for an hour.",
}
LISTS = (
    "{}\n    {}\n    {}\n",
    "{}\n  {} {}\n\n",
    "{}\n\t{}\n\t{}\n",
    "Error {}\n  - {}\n  - {}\n",
    "{}:\n  {}\n  {}\n",
)


@draws()
@given(seed=st.integers(0, 10_000), form=st.sampled_from(LISTS), share=st.sampled_from([0.25, 0.35, 0.5]))
def test_all_that_a_list_says_of_a_fault_stays(seed: int, form: str, share: float) -> None:
    """The remedy stays below its code before the causes of other codes, though it has no word of the question."""
    drawn = random.Random(seed)
    codes = [f"E{n}" for n in sorted(drawn.sample(range(10, 99), len(FAULTS)))]
    faults = drawn.sample(list(FAULTS), len(FAULTS))
    text = "FAULTS\n\n" + "".join(
        form.format(code, fault, FAULTS[fault]) for code, fault in zip(codes, faults, strict=True)
    )
    at = drawn.randrange(len(codes))
    query = drawn.choice(["What to do about {}?", "How do I fix {}?", "The machine shows {}. What do I do?"])
    room = int(share * COUNTER.count(text))
    kept = fit_text(text, max_tokens=room, query=query.format(codes[at])).text
    assert kept.index(codes[at]) < kept.index(faults[at]) < kept.index(FAULTS[faults[at]])


REQUESTS = (
    "What is my {}?",
    "Remind me of my {}.",
    "Please tell me again what my {} is.",
    "what was my {}",
    "Thanks. Repeat the {}, please.",
    "I forgot my {}.",
)


@draws()
@given(
    seed=st.integers(0, 10_000),
    request=st.sampled_from(REQUESTS),
    name=st.sampled_from(["locker code", "booking number", "insurance number"]),
    share=st.sampled_from([0.1, 0.2, 0.35]),
)
def test_an_answer_that_is_recalled_stays_beside_newer_steps(
    seed: int, request: str, name: str, share: float
) -> None:
    """A request to say something again is a question, with or without its mark."""
    drawn = random.Random(seed)
    chat = [
        {"role": "user", "content": f"Set it up and give me the {name}."},
        {"role": "assistant", "content": f"Done. Your {name} is 4711."},
    ]
    for n in range(12):
        rows = [{"id": k, "note": " ".join(["open", "busy", "near"] * 3)} for k in range(drawn.randint(2, 8))]
        function = {"name": "look", "arguments": json.dumps({"about": f"place {n}"})}
        calls = [{"id": f"c{n}", "type": "function", "function": function}]
        chat += [
            {"role": "user", "content": f"Look up place {n}."},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{n}", "content": json.dumps(rows)},
            {"role": "assistant", "content": f"Place {n} has {len(rows)} rows, ask for more."},
        ]
    query = request.format(name)
    chat.append({"role": "user", "content": query})
    room = int(share * COUNTER.count_messages(chat))
    assert "4711" in str(fit_messages(chat, max_tokens=room, counter=COUNTER, query=query).messages)


STAMPS: dict[str, Callable[[int, str], str]] = {
    "stamped": lambda n, who: f"{8 + n // 60}:{n % 60:02} {who}: ",
    "dated": lambda n, who: f"[2026-05-{n % 28 + 1:02}, 09:{n % 60:02}] {who}: ",
    "plain": lambda n, who: f"{who}: ",
    "angled": lambda n, who: f"<{who}> ",
}


@pytest.mark.parametrize("form", sorted(STAMPS))
def test_an_answer_follows_its_question_in_a_transcript_without_gaps(form: str) -> None:
    """Of a tool result with many questions in turn, the one that is asked again comes with its answer."""
    begin, ships = STAMPS[form], "Alvorada Mewa Karadeniz Sargo Lodos Kormoran Poyraz Orka Tern Heron".split()
    who = "Ines Zofia Deniz Marta Olek".split()
    for seed in range(30):
        source = random.Random(seed)
        numbers = source.sample(range(10_000, 99_999), len(ships))
        lines = []
        for n, (ship, number) in enumerate(zip(ships, numbers, strict=True)):
            lines.append(f"{begin(2 * n, who[n % 5])}Has anybody got the permit for the {ship}?")
            lines.append(f"{begin(2 * n + 1, who[n % 4])}Found it, number {number}, signed this morning.")
        asked = source.randrange(len(ships))
        question, text = f"Which permit does the {ships[asked]} have?", "\n".join(lines)
        limit = int(COUNTER.count(text) * source.uniform(0.4, 0.8))
        kept = compress_structured(text, limit, COUNTER, question)
        assert str(numbers[asked]) in kept, (seed, kept)


@pytest.mark.parametrize("rule", ["-" * n for n in (8, 10, 11, 12, 15)])
def test_no_rule_between_records_is_read_as_below_a_title(rule: str) -> None:
    """Each code stays below the name of its record; no line above a rule is exactly as long as it."""
    names = "Oak Elm Ash Fir Yew Pine Bay Fig".split()
    records = [
        f"{name}\nManager Lena Frost\nRooms {20 + i}\nDoor code {4001 + 7 * i}\nOpen 7:{10 + i}"
        for i, name in enumerate(names)
    ]
    text = f"\n{rule}\n".join(records)
    for asked, name in enumerate(names):
        for limit in (60, 90, 120):
            found = fit_documents([text], query=f"What is the door code of {name}?", max_tokens=limit)
            owner = ""
            for line in found.text.splitlines():
                owner = line if line in names else owner
                if line.startswith("Door code"):
                    assert owner == names[(int(line.split()[-1]) - 4001) // 7], (asked, limit, found.text)


@pytest.mark.parametrize("between", ["\t", ": ", " = "])
def test_fields_that_a_tab_indents_stay_below_their_record(between: str) -> None:
    """A line that begins with a tab is no row of three cells."""
    names = "Oak Elm Ash Fir Yew Pine Bay Fig".split()
    for seed in range(30):
        source = random.Random(seed)
        codes = source.sample(range(1000, 9999), len(names))
        fields = source.sample(["manager", "rooms", "breakfast"], 3)
        fields.insert(source.randint(0, 3), "door code")
        people, values = ("Anouk Weiss", "Jonas Roth", "Mira Kern"), iter(source.sample(range(10, 99), 24))
        text = ""
        for name, code in zip(names, codes, strict=True):
            said = {"door code": code, "manager": source.choice(people)}
            lines = [f"\t{field}{between}{said.get(field) or next(values)}\n" for field in fields]
            text += f"{name}\n{''.join(lines)}"
        asked = source.randrange(len(names))
        query = f"What is the door code of {names[asked]}?"
        kept = fit_documents([text], query=query, max_tokens=source.choice((50, 80, 120))).text
        owner = ""
        for line in kept.splitlines():
            owner = line if line in names else owner
            if "door" in line:
                assert owner == names[codes.index(int(line.split()[-1]))], kept
