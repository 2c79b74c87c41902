"""Results that share one message are shortened like results in messages of their own."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_budget._codec import codec_for
from rankbudget import counter_for, fit_messages
from rankbudget.messages.codec import DictCodec
from rankbudget.messages.texts import content_text
from rankbudget.testing.shapes import SHAPES
from tests.drawing import draws

COUNTER = counter_for("o200k_base")
WORDS = ("alder", "birch", "cedar", "hazel", "larch", "maple", "rowan", "thorn")
NAMES = (
    "Mia Holm",
    "Omar Berg",
    "Ruth Lund",
    "Saul Reyes",
    "Vera Stein",
    "Ivan Sauer",
    "Lena Okoro",
    "Nora Ivers",
)


def _lines(source: random.Random, count: int) -> str:
    """Returns short lines of a key and a value."""
    return "\n".join(f"{source.choice(WORDS)} {n}: {source.choice(WORDS)}" for n in range(count))


def _sheets(source: random.Random, count: int) -> list[str]:
    """Returns short records, a field in each line."""
    return [f"name: {WORDS[n]} {n * 7}\n{_lines(source, 6)}\nseat: row {n}" for n in range(count)]


def _history(shape: Any, source: random.Random, records: int, pages: int, page: int) -> list[Any]:
    """Returns a step with many short results, then steps with one long page each, and a question."""
    for texts in [_sheets(source, records), *([_lines(source, page)] for _ in range(pages))]:
        shape.ask("Please read on.")
        shape.call([(f"read_{n}", {"part": n}) for n in range(len(texts))], "I read.")
        shape.results([(f"read_{n}", text) for n, text in enumerate(texts)])
        shape.answer("I have read it.")
    shape.ask("Who sits where, and what else is said of them?")
    return list(shape.messages)


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini", "langchain"])
def test_short_results_stay_whole_where_long_pages_can_be_shortened(name: str) -> None:
    """Every short record keeps all lines in any provider's form, as pages beside it have lines to spare."""
    messages_of = pytest.importorskip("langchain_core.messages")

    @draws(cases=4)
    @given(st.integers(0, 10_000), st.integers(7, 8), st.integers(1, 2), st.integers(150, 300))
    def law(seed: int, records: int, pages: int, page: int) -> None:
        def wrote(size: int) -> list[Any]:
            shape = SHAPES["anthropic" if name == "langchain" else name]()
            return _history(shape, random.Random(seed), records, pages, size)

        given, codec = wrote(page), None
        limit = COUNTER.count_messages([DictCodec().to_dict(m) for m in wrote(45)])
        if name == "langchain":
            kinds = {"user": messages_of.HumanMessage, "assistant": messages_of.AIMessage}
            given, codec = [kinds[m["role"]](m["content"]) for m in given], codec_for(None)
        made = fit_messages(given, max_tokens=limit, counter=COUNTER, codec=codec)
        read = codec or DictCodec()
        kept = "\n".join(content_text(read.to_dict(m).get("content")) for m in made.messages)
        lost = [text for text in _sheets(random.Random(seed), records) if text not in kept]
        assert not lost, "records were cut beside pages that have more to give"

    law()


@pytest.mark.parametrize("by", ["code", "day"])
def test_a_record_that_the_question_names_has_up_to_half_of_the_room(by: str) -> None:
    """A long list keeps the record by its code or its day, before unrelated results stay whole."""

    @draws(cases=2)
    @given(st.integers(0, 10_000), st.integers(4, 9), st.floats(0.08, 0.3))
    def law(seed: int, steps: int, share: float) -> None:
        source = random.Random(seed)
        number, day = f"7731-{source.choice('ABCDE')}", f"2025-04-{source.randint(10, 28)}"
        rows = [
            {"order": f"{n}-F", "day": f"2026-01-{n % 18 + 10}", "sum": f"{n}.25"} for n in range(100, 160)
        ]
        rows[source.randrange(60)] = {"order": number, "day": day, "sum": "4816.37"}
        texts = [" ".join(source.choices(WORDS, k=200)) + "." for _ in range(steps)]
        texts[source.randrange(steps - 1)] = json.dumps({"count": 60, "orders": rows})
        shape, asked = (
            SHAPES["openai"](),
            f"What is the sum of {number if by == 'code' else f'the order of {day}'}?",
        )
        for n, text in enumerate(texts):
            shape.ask(f"Please look at page {n}.")
            shape.call([("read", {"page": n})], "I look.")
            shape.results([("read", text)])
            shape.answer("I looked.")
        shape.ask(asked)
        limit = max(600, int(share * COUNTER.count_messages(shape.messages)))
        made = fit_messages(shape.messages, max_tokens=limit, counter=COUNTER, query=asked)
        assert any("4816.37" in str(m["content"]) for m in made.messages if m["role"] == "tool")

    law()


@draws()
@given(st.integers(0, 10_000), st.integers(8, 16), st.integers(8, 40), st.integers(1, 8))
def test_a_shortened_text_of_lines_joins_no_two_lines(
    seed: int, count: int, tokens: int, fields: int
) -> None:
    """What is kept of a line stands alone, or beside a mark; it never runs into another line."""
    from rankbudget.compression.structured import compress_structured

    source = random.Random(seed)
    rows = [f"{source.choice(WORDS)} {n}-{seed} of {n}" for n in range(count * fields)]
    text = "\n".join(", ".join(rows[n::count]) for n in range(count))
    made = compress_structured(text, tokens, COUNTER, question=source.choice(["", f"What is 3-{seed}?"]))
    for line in made.splitlines():
        parts = [part.strip() for part in line.split("...") if part.strip()]
        is_mark = line.startswith("[... ")
        assert is_mark or any(all(part in one for part in parts) for one in text.splitlines())


@pytest.mark.parametrize("name", ["openai", "anthropic", "gemini"])
@pytest.mark.parametrize("query", [True, False])
def test_the_result_that_the_question_names_is_whole_before_the_others_of_its_step(
    name: str, query: bool
) -> None:
    """The question has other words than the line that answers it, so only the whole record will do."""

    @draws(cases=6)
    @given(st.integers(0, 10_000), st.integers(4, 8), st.integers(0, 3), st.booleans())
    def law(seed: int, records: int, asked: int, running: bool) -> None:
        def wrote(sizes: Callable[[int], int]) -> list[Any]:
            source, shape = random.Random(seed), SHAPES[name]()
            texts = []
            for n in range(records):
                lines = _lines(source, 14).splitlines()
                lines.insert(source.randint(4, 10), f"seat: row {n}-{seed}")
                texts.append("\n".join([f"name: {NAMES[n]}", *lines][: sizes(n)]))
            question = f"Where does {NAMES[asked]} sit?"
            shape.ask(question if running else "Please read the files.")
            shape.call([(f"read_{n}", {"part": n}) for n in range(records)], "I read.")
            shape.results([(f"read_{n}", text) for n, text in enumerate(texts)])
            if not running:
                shape.answer("I have read it.")
                shape.ask(question)
            return list(shape.messages)

        read = DictCodec()
        limit = COUNTER.count_messages(
            [read.to_dict(message) for message in wrote(lambda n: 16 if n == asked else 5)]
        )
        question = f"Where does {NAMES[asked]} sit?" if query else None
        made = fit_messages(wrote(lambda _: 16), max_tokens=limit, counter=COUNTER, query=question)
        kept = "\n".join(content_text(read.to_dict(message).get("content")) for message in made.messages)
        assert f"row {asked}-{seed}" in kept

    law()
