"""What a long text keeps of objects in one line, and of lines that tell of an error."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents, fit_messages
from rankbudget.relevance import troubles
from rankbudget.relevance.sentences import split_sentences
from tests.drawing import draws

TOLD = [
    'Traceback (most recent call last):\n  File "/srv/job.py", line 88, in run\nZeroDivisionError: division by zero',
    "KeyError: 'tenant'",
    "requests.exceptions.Timeout: no reply of db7 in 30 s",
    "java.lang.IllegalStateException: queue closed",
    "npm ERR! could not resolve left-pad",
    "Segmentation fault (core dumped)",
    "Killed process 812 (job) total-vm:8123kB, out of memory",
    "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 7",
    "E       assert 3 == 4",
]


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":"), (",", ": ")])
def test_the_named_member_of_an_object_stays(separators: tuple[str, str]) -> None:
    """An object in one line, written with blanks or without, as most servers write it."""

    @draws(cases=3)
    @given(st.integers(100, 400), st.integers(0, 99), st.integers(200, 2_000), st.booleans())
    def law(size: int, at: int, limit: int, nested: bool) -> None:
        members: list[tuple[str, object]] = [(f"Person{i}", f"555-{i:04}") for i in range(size)]
        value = {"mobile": "999-1234", "office": 7} if nested else "999-1234"
        members.insert(at, ("Anna Bell", value))
        text = json.dumps(dict(members), separators=separators)
        made = fit_documents(
            [Segment(id="a", text=text)], max_tokens=limit, query="What is the number of Anna Bell?"
        )
        assert "999-1234" in made.segments[0].text

    law()


@draws()
@given(
    told=st.sampled_from(TOLD),
    lines=st.integers(100, 900),
    limit=st.integers(300, 3_000),
    question=st.sampled_from(["Why does the job crash?", "What went wrong?", "What now?"]),
)
def test_the_line_that_tells_of_an_error_stays(told: str, lines: int, limit: int, question: str) -> None:
    """Among hundreds of ordinary lines of a tool's result the error's own line is kept, whatever wrote it."""
    log = [f"stored item {i} in table {i % 7}" for i in range(lines)]
    log[lines // 2] = told
    call = {"id": "1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "\n".join(log)},
    ]
    assert told.splitlines()[-1] in fit_messages(chat, max_tokens=limit).messages[-1]["content"]


@given(st.from_regex(troubles._TROUBLE, fullmatch=True))
def test_each_text_of_the_pattern_tells_of_an_error(told: str) -> None:
    """The quick look for signs passes over no text that the pattern finds."""
    assert troubles.tells_trouble(told)


def test_ordinary_lines_are_no_errors() -> None:
    """Words that only resemble one do not make a line special."""
    from rankbudget.compression.importance import tells_trouble

    assert not any(
        map(tells_trouble, ["the terrors of Rome", "a mirror", "invalidated", "He said: E = mc2", "berry"])
    )


FORMS = {
    "number": (
        ["12,500", "12500", "12.500,00", "12500.00", "12'500.0"],
        "INV-{n} {x} EUR",
        "Which invoice is of {x}?",
    ),
    "identifier": (
        ["computeRefund", "compute_refund", "compute refund", "ComputeRefund"],
        "def {x}(order): return order.total - {n}",
        "What does {x} give back?",
    ),
    "inflected": (
        ["retried", "retries", "retrying", "retry"],
        "job {n} is slow, {x} it",
        "Which job is {x}?",
    ),
}


@pytest.mark.parametrize("form", FORMS)
@draws(cases=len(FORMS))
@given(data=st.data(), lines=st.integers(60, 400), at=st.integers(0, 59), limit=st.integers(250, 1_500))
def test_a_line_is_found_in_whatever_form_it_is_named(
    form: str, data: st.DataObject, lines: int, at: int, limit: int
) -> None:
    """A number with other marks, an identifier in another style, and an inflected word are the same to a reader."""
    written, line, question = FORMS[form]
    there, asked = data.draw(st.sampled_from(written)), data.draw(st.sampled_from(written))
    log = [f"entry {i} of ledger {i % 7} is {i * 13} long" for i in range(lines)]
    log[at] = line.format(n=4711, x=there)
    call = {"id": "1", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    chat = [
        {"role": "user", "content": question.format(x=asked)},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "\n".join(log)},
    ]
    assert log[at] in str(fit_messages(chat, max_tokens=limit, counter="gpt-4o").messages[-1]["content"])


SPOKEN = (
    "so then we went over the plan for the garden and i said that it would be fine if they could bring chairs because"
    " last year people stood around and everyone had a good time"
).split()


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_answer_in_text_without_sentences_stays(seed: int, stops: bool) -> None:
    """Captions without any full stop, and chats that start sentences without a capital."""
    rng = random.Random(seed)
    texts = []
    for number in range(6):
        words = rng.choices(SPOKEN, k=rng.randrange(150, 230))
        for i in range(9, len(words) if stops else 0, 10):
            words[i] += "."
        at = 10 * rng.randrange(len(words) // 10)
        said = f"the wifi password is bluebird77{'.' * stops}".split() if number == 3 else []
        texts.append(" ".join(words[:at] + said + words[at:]))
    for limit in (60, 100, 200, 400):
        kept = fit_documents(texts, max_tokens=limit, query="What is the wifi password?").segments
        assert any("bluebird77" in segment.text for segment in kept)


def test_a_long_sentence_stays_whole() -> None:
    """A long sentence that ends in a full stop, and one with abbreviations, is not parted."""
    long = "The tenant pays " + "the rent of the flat and the garden " * 12 + "by May."
    known = "It costs approx. five and incl. tax est. nine, " + "which is much " * 20 + "for that."
    for text in (long, known):
        assert split_sentences(text) == (text,)
