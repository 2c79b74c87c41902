"""A question beside something pasted: the paste, which has many more words, does not drown it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Scope, fit_documents
from rankbudget.memory import MemoryStore
from rankbudget.relevance.asking import queries_of
from tests.drawing import draws

ANN = Scope(user="ann")
ASKED = {
    "What is my alarm pin?": "The alarm pin is 7714.",
    "Where does the blue pump stand?": "The blue pump stands in hall nine.",
    "Wie hoch ist die Kaution für das Büro?": "Die Kaution für das Büro beträgt 4000 Euro.",
    "門の暗証番号は何番ですか？": "門の暗証番号は5521番です。",
    "Find the warehouse of part ZX-88.": "Part ZX-88 is in the warehouse of Kiel.",
    "please tell me the alarm pin": "The alarm pin is 7714.",
}
PASTES = {
    "log": "2026-01-0{0} 10:{0}1 INFO worker-{0}: job 41{0} failed in 3{0} ms",
    "json": '{{"id": 5{0}13, "name": "item{0}", "tags": ["a", "b"], "nested": {{"v": {0}}}}}',
    "orders": "订单862{0}已于7月发货，请客户确认收货地址。",
    "mail": "Dear team, parcel {0} has not reached our customer in Hamburg yet. Please check with the carrier.",
    "trace": '  File "/srv/app/worker_{0}.py", line 2{0}, in handle_job',
}
NOTES = [
    text.format(i)
    for i in range(8)
    for text in (
        "Note {0}: the carrier confirmed order {0} for our customer.",
        "worker-{0} failed twice, item{0} has two tags.",
        "订单{0}的客户已经收货。",
        "The customer in Hamburg likes parcel {0}.",
    )
]


def asked_beside(question: str, paste: str, lines: int, *, first: bool) -> str:
    pasted = "\n".join(PASTES[paste].format(i) for i in range(lines))
    return f"{question}\n\n{pasted}" if first else f"{pasted}\n\n{question}"


@draws()
@given(
    question=st.sampled_from(sorted(ASKED)),
    paste=st.sampled_from(sorted(PASTES)),
    lines=st.integers(4, 40),
    first=st.booleans(),
)
def test_a_paste_does_not_drown_the_question_beside_it(
    question: str, paste: str, lines: int, first: bool
) -> None:
    """What answers the question stays among texts that say what the paste says, in a fifth of the room."""
    query = asked_beside(question, paste, lines, first=first)
    texts = [*NOTES, ASKED[question]]
    kept = fit_documents(texts, max_tokens=100, query=query).segments
    assert ASKED[question] in [segment.text for segment in kept]


@pytest.mark.parametrize("embed", [None, False])
@draws(cases=2)
@given(question=st.sampled_from(sorted(ASKED)), paste=st.sampled_from(sorted(PASTES)), first=st.booleans())
def test_a_paste_does_not_drown_the_question_to_a_store(
    embed: Any, question: str, paste: str, first: bool
) -> None:
    """The memory that answers is among the first ten that are found, and in the prompt."""
    store = MemoryStore(":memory:", embed=embed)
    for text in [ASKED[question], *NOTES]:
        store.put(text, scope=ANN)
    query = asked_beside(question, paste, 30, first=first)
    assert ASKED[question] in [memory.text for memory in store.search(query, scope=ANN, limit=10)]
    fitted = store.fit(query, scope=ANN, max_tokens=300).segments
    assert ASKED[question] in [segment.text for segment in fitted]
    store.close()


def test_what_nothing_is_pasted_beside_is_one_question() -> None:
    """A short question, one that is most of the text, and one that says nothing by itself are read as they are."""
    log = "\n".join(PASTES["log"].format(i) for i in range(9))
    mail = (
        "Dear team,\nthe parcel has not reached our customer yet, who waits for it every day.\n" * 3 + "Ida"
    )
    for query in ("Where is it?", "Where is it? " * 30, f"What does this mean?\n{log}", log, "", mail):
        assert queries_of(query) == (query,)
    assert queries_of(f"{log}\nWhere is the blue pump?")[0] == "Where is the blue pump?"


@pytest.mark.parametrize("lines", [50, 2_000, 30_000])
def test_the_question_behind_a_paste_is_found_however_long_that_is(lines: int) -> None:
    """It is looked for at the end of the text, not in a piece of many sentences."""
    paste = "".join(f"Order {n} was refused by a bank in hall {n}. " for n in range(lines))
    assert queries_of(f"{paste}Which bank refused order 17?")[0] == "Which bank refused order 17?"
