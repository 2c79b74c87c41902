"""A long text that the user has just pasted stays, shortened, whatever the question says of it."""

from __future__ import annotations

import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.batch import FitPrompt
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
NAMES = "harvest river committee bridge winter market council teacher railway museum valley bakery".split()
QUESTIONS = (
    "Please sum it up in German.",
    "Translate this.",
    "What do you think?",
    "Where does the spare key hang?",
)


def _turn(drawn: random.Random, number: int, *, steps: bool) -> list[dict[str, Any]]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    step = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": _said(drawn)},
    ]
    return [
        {"role": "user", "content": _said(drawn)},
        *(step if steps else ()),
        {"role": "assistant", "content": _said(drawn)},
    ]


def _said(drawn: random.Random) -> str:
    one, other, buyer = drawn.sample(NAMES, 3)
    return f"The {one} near the {other} was sold by the {buyer} {drawn.randint(2, 99)} days ago."


@draws()
@given(
    seed=st.integers(0, 10_000),
    steps=st.booleans(),
    turns=st.integers(1, 12),
    sentences=st.integers(150, 600),
    limit=st.integers(1500, 2500),
    tail=st.booleans(),
    question=st.sampled_from(QUESTIONS),
)
def test_a_pasted_text_stays_before_the_question_about_it(
    seed: int, steps: bool, turns: int, sentences: int, limit: int, tail: bool, question: str
) -> None:
    """It is too long and has no word of the question: it is shortened into the room, not dropped."""
    drawn = random.Random(seed)
    chat = [message for n in range(turns) for message in _turn(drawn, n, steps=steps)]
    chat.append({"role": "user", "content": "News:\n" + " ".join(_said(drawn) for _ in range(sentences))})
    if tail:
        chat.append({"role": "assistant", "content": "Got it."})
    asked = [*chat, {"role": "user", "content": question}]
    fitted = fit_messages(asked, max_tokens=limit, query=question, counter=COUNTER)
    row = FitPrompt(limit, counter=COUNTER, by_question=True).row({"history": chat, "question": question})
    for messages, total in (
        (fitted.messages, fitted.report.total_tokens),
        (row["messages"], row["prompt_tokens"]),
    ):
        texts = [str(message["content"]) for message in messages]
        assert any(text.startswith("News:") and len(text) > 1000 for text in texts)
        assert total <= limit


@draws()
@given(
    seed=st.integers(0, 10_000),
    sentences=st.integers(40, 120),
    limit=st.integers(40, 250),
    between=st.sampled_from([" ", "\n", "\n\n"]),
    same=st.booleans(),
    question=st.sampled_from([*QUESTIONS, "Which one first?", "Thanks a lot in advance!"]),
)
def test_a_shortened_question_keeps_what_it_asks(
    seed: int, sentences: int, limit: int, between: str, same: bool, question: str
) -> None:
    """Its last sentence asks, in one line or several, whatever is told before it."""
    drawn = random.Random(seed)
    told = [_said(drawn)] * sentences if same else [_said(drawn) for _ in range(sentences)]
    chat = [{"role": "user", "content": between.join(["Please help me.", *told, question])}]
    fitted = fit_messages(chat, max_tokens=limit, counter=COUNTER, shorten_question=True)
    assert question in fitted.messages[-1]["content"]
