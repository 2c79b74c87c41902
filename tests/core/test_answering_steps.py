"""The tool result that answers the question keeps the record that it names, before others stay whole."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.conversation.answering import answering
from rankbudget.testing import check_laws
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
FIRST, LAST = ("Mia", "Petra", "Amir", "Greta", "Tomas"), ("Holm", "Berg", "Sauer", "Ivanov")
QUESTIONS = {
    "log": "Why did the payment gateway fail for customer Lund?",
    "lines": "What happened to the payment gateway of Lund?",
    "orders": "How much did Petra Lund pay?",
}
ANSWERS = {"log": "certificate had expired", "lines": "certificate had expired", "orders": "481.37"}


def _record(source: random.Random, kind: str, *, hit: bool, extra: int) -> Any:
    """Returns one record of a result: that which the question names, or another one."""
    answer = ANSWERS[kind] if hit else str(source.randint(500, 90_000) / 100)
    more = {f"field_{n}": source.randint(100, 999) for n in range(extra)}
    if kind == "lines":
        said = "payment gateway of Lund failed:" if hit else f"request of {source.choice(LAST)} served in"
        return f"2026-01-14T03:{source.randint(10, 59)} INFO {said} {answer} {' '.join(more)}"
    if kind == "orders":
        name = "Petra Lund" if hit else f"{source.choice(FIRST)} {source.choice(LAST)}"
        return {"order": source.randint(10_000, 99_999), "customer": name, **more, "total": answer}
    message = "payment gateway failed for customer Lund" if hit else "request of a customer served"
    return {"level": "INFO", "msg": message, **more, "cause": answer}


def _step(n: int, arguments: Any, result: str) -> list[dict[str, Any]]:
    """Returns a tool call with its result."""
    function = {"name": "read", "arguments": json.dumps(arguments)}
    calls = [{"id": f"c{n}", "type": "function", "function": function}]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    return [called, {"role": "tool", "tool_call_id": f"c{n}", "content": result}]


def _kept(door: str, chat: list[dict[str, Any]], question: str, limit: int) -> list[Any]:
    """Returns what one door keeps of a chat that ends in a question."""
    if door == "FitPrompt":
        return list(FitPrompt(limit, counter=COUNTER, by_question=True).row({"history": chat})["messages"])
    kept = fit_messages(chat, max_tokens=limit, counter=COUNTER, query=question).messages
    check_laws(chat, kept, limit=limit, counter=COUNTER)
    return list(kept)


def _chat(
    source: random.Random, kind: str, steps: int, at: int, extra: int, *, running: bool
) -> list[dict[str, Any]]:
    """Returns steps with long results, in one turn that goes on or in finished ones; one has the record."""
    question = {"role": "user", "content": QUESTIONS[kind]}
    chat = [question] if running else []
    for n in range(steps):
        rows = [_record(source, kind, hit=(n, k) == (at, 20), extra=extra) for k in range(40)]
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        step = _step(n, {"page": n}, json.dumps(rows) if kind == "orders" else "\n".join(lines))
        asked, said = f"Please look at page {n}.", f"I looked at page {n}."
        around = [{"role": "user", "content": asked}], [{"role": "assistant", "content": said}]
        chat += step if running else [*around[0], *step, *around[1]]
    return chat if running else [*chat, question]


@draws()
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(sorted(QUESTIONS)),
    steps=st.integers(6, 14),
    back=st.integers(2, 14),
    extra=st.integers(0, 8),
    running=st.booleans(),
    share=st.floats(0.3, 0.9),
    door=st.sampled_from(("fit_messages", "FitPrompt")),
)
def test_the_record_that_answers_stays_in_its_result(
    seed: int, kind: str, steps: int, back: int, extra: int, running: bool, share: float, door: str
) -> None:
    """Its step has room before results that say nothing of what is asked stay whole."""
    chat = _chat(random.Random(seed), kind, steps, max(0, steps - back), extra, running=running)
    limit = int(share * COUNTER.count_messages(chat))
    kept = _kept(door, chat, QUESTIONS[kind], limit)
    results = [message["content"] for message in kept if message["role"] == "tool"]
    assert any(ANSWERS[kind] in text for text in results)


@pytest.mark.parametrize(("copies", "found"), [(1, 1), (3, 3), (4, 0)])
def test_a_step_stands_out_where_few_say_as_much(copies: int, found: int) -> None:
    """Of many steps with the words of the question none is preferred; all are chosen as without them."""
    steps = [["Berg was served"]] * 9 + [["Lund was not served: no stock"]] * copies
    assert len(answering("Why was Lund not served?", steps)) == found


def test_the_words_of_one_record_count_where_all_steps_have_them() -> None:
    """Other steps have the name in one line and what happened in another one."""
    others = ["payment failed for customer Berg\nrequest of customer Lund served"] * 9
    steps = [[text] for text in [*others, f"{others[0]}\npayment failed for customer Lund"]]
    assert answering("Why did the payment of customer Lund fail?", steps) == [9]


PLACES = tuple(
    f"{a} {b}"
    for a in ("Aurora", "Kestrel", "Maple", "Saffron", "Juniper", "Cobalt")
    for b in ("Hotel", "Bakery", "Clinic", "Winery", "Museum")
)
SAYS = {
    "question": ("Please look at {}.", "Here it is. Anything else?"),
    "answer": ("And the next one, please.", "I looked at {} for you."),
    "call": ("And the next one, please.", "Done."),
}


@draws(cases=4)
@given(
    seed=st.integers(0, 10_000),
    says=st.sampled_from(sorted(SAYS)),
    at=st.integers(0, len(PLACES) - 4),
    limit=st.integers(600, 1200),
    door=st.sampled_from(("fit_messages", "FitPrompt")),
)
def test_the_result_stays_with_the_words_that_name_it(
    seed: int, says: str, at: int, limit: int, door: str
) -> None:
    """A short message of its turn names what is asked about; what was found is in the tool result alone."""
    source, chat, codes = random.Random(seed), [], list[str]()
    for n, place in enumerate(PLACES):
        codes.append(f"T{source.randint(10**5, 10**6)}")
        lines = [f"{k}:00 {source.choice(LAST)} was here" for k in range(24)]
        told = "\n".join([*lines[:12], f"code {codes[-1]}", *lines[12:]])
        step = _step(n, {"place": place if says == "call" else n}, told)
        asked, answer = (text.format(place) for text in SAYS[says])
        chat += [{"role": "user", "content": asked}, *step, {"role": "assistant", "content": answer}]
    question = f"Which code has {PLACES[at]}?"
    whole = [*chat, {"role": "user", "content": question}]
    assert codes[at] in json.dumps(_kept(door, whole, question, limit))


TALK = (
    ("Is the red kettle in stock?", "Yes, {} of them are in the main store, and a parcel takes three days."),
    ("The app signs me out each time.", "That is mostly an old cookie. Version 7.{} also repairs it."),
    (
        "Can I change the delivery date?",
        "Yes, under Orders, until the parcel has left the store at {} o'clock.",
    ),
    ("Thanks!", "You are welcome. Is there anything else, or shall I close request {}?"),
)
FACT = ("Why was my last bill so high?", "It has a joining fee of 261.50 euros, which comes once.")


@draws(cases=4)
@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 8),
    size=st.integers(1, 20),
    share=st.floats(0.25, 0.9),
    asked=st.sampled_from(
        ("How much was the joining fee on my bill?", "What did joining cost on that old bill?")
    ),
    door=st.sampled_from(("fit_messages", "FitPrompt")),
)
def test_a_tool_call_elsewhere_leaves_the_exchange_that_answers(
    seed: int, steps: int, size: int, share: float, asked: str, door: str
) -> None:
    """Of a chat with some tool calls the question finds the same exchange as of one without them."""
    source = random.Random(seed)
    exchanges = [(a, b.format(source.randint(2, 99))) for a, b in source.choices(TALK, k=30)]
    exchanges.insert(source.randint(0, 25), FACT)
    chat: list[dict[str, Any]] = []
    looked_up = set(source.sample(range(31), k=steps))
    for n, (said, answer) in enumerate(exchanges):
        if n in looked_up:
            rows = [{"order": source.randint(1_000, 9_999), "state": "sent"} for _ in range(size)]
            looked = [{"role": "user", "content": f"Which orders are on page {n}?"}]
            told = [{"role": "assistant", "content": f"Page {n} has {size} orders."}]
            chat += [*looked, *_step(n, {"page": n}, json.dumps(rows)), *told]
        chat += [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
    whole = [*chat, {"role": "user", "content": asked}]
    limit = int(share * COUNTER.count_messages(whole))
    assert "261.50" in json.dumps(_kept(door, whole, asked, limit))


WARDS = {
    "ja": (
        "{0}病棟の扉",
        "{0}病棟の責任者は田中です。{0}病棟の食事は{1}番のワゴンで運びます。{0}病棟の扉は青いです。",
    ),
    "th": ("ประตูของหอผู้ป่วย{0}", "หอผู้ป่วย{0}มีหัวหน้า อาหารของหอผู้ป่วย{0}ส่งด้วยรถเข็นหมายเลข {1} ประตูเป็นสีฟ้า"),
    "ko": ("{0} 병동의 문", "{0} 병동의 책임자는 김 씨입니다. {0} 병동의 식사는 {1}번 카트로 운반합니다."),
    "el": (
        "Η πόρτα της πτέρυγας {0}",
        "Τα γεύματα της πτέρυγας {0} έρχονται με το καρότσι {1}. Η πόρτα είναι μπλε.",
    ),
    "de": ("Die Tür der Station {0}", "Das Essen der Station {0} kommt mit Wagen {1}. Die Tür ist blau."),
}
ASKED = {
    "{0}病棟の食事は何番のワゴンですか。": "ja",
    "{0}病棟の食事のワゴンの番号を教えてください。": "ja",
    "อาหารของหอผู้ป่วย{0}ส่งด้วยรถเข็นหมายเลขอะไร": "th",
    "{0} 병동의 식사 카트 번호를 알려 주세요.": "ko",
    "Με ποιο καρότσι έρχονται τα γεύματα της πτέρυγας {0};": "el",
    "mit welchem wagen kommt das essen der station {0}": "de",
}
NAMES = {
    "ja": "松風 竹林 梅園 桜川 杉山 楓橋 藤波 菊水",
    "th": "มะลิวัลย์ กุหลาบแดง บัวหลวง ชบาทอง พุดซ้อน ลีลาวดี กล้วยไม้ ดาวเรือง",
}
NAMES |= {
    "ko": "소나무 대나무 매화 벚꽃 단풍 국화 연꽃 오동",
    "el": "Ελιά Κέδρος Ροδιά Συκιά Ιτιά Κερασιά Μουριά Θυμάρι",
}
NAMES |= {"de": "Aurora Kestrel Ahorn Safran Linde Falke Zeder Tulpe"}


@draws()
@given(seed=st.integers(0, 10_000), asked=st.sampled_from(sorted(ASKED)), share=st.floats(0.35, 0.6))
def test_a_question_without_a_question_mark_keeps_its_result(seed: int, asked: str, share: float) -> None:
    """Many languages ask without a mark that ends the sentence; the step that says it stays all the same."""
    source, language, chat = random.Random(seed), ASKED[asked], list[dict[str, Any]]()
    names, (before, record) = NAMES[language].split(), WARDS[language]
    source.shuffle(names)
    for n, name in enumerate(names):
        step = _step(n, {"ward": name}, record.format(name, 4100 + n))
        chat += [
            {"role": "user", "content": before.format(name)},
            *step,
            {"role": "assistant", "content": "OK."},
        ]
    at = source.randrange(3)
    whole = [*chat, {"role": "user", "content": asked.format(names[at])}]
    limit = int(share * COUNTER.count_messages(whole))
    assert str(4100 + at) in json.dumps(_kept("fit_messages", whole, asked.format(names[at]), limit))
