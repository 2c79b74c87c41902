"""Results of tools are shortened like other texts, in whatever shape a provider writes them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.errors import BudgetExceededError
from rankbudget.messages.codec import DictCodec
from rankbudget.messages.texts import content_text, replace_text, texts_of
from rankbudget.testing import WordCounter, check_laws, check_refusal, pairing_errors
from rankbudget.testing.shapes import SHAPES
from tests.drawing import draws

WORDS = counter_for("gpt-4o")
COUNTER = WordCounter()
FACT = "The code of order 4711 is ZX81."
LEAST = 150
"""Tokens of the room of a shortened result: as much as its call, the question and some lines of it need."""


def thread(name: str, fillers: list[int], at: int, *, answered: bool) -> list[Any]:
    """Writes tool steps after one question; the fact is inside the longest, which is the last."""
    shape = SHAPES[name]()
    shape.ask("What is the code of order 4711?")
    for n, size in enumerate(fillers):
        lines = [f"line {i} of page {n} has nothing to say." for i in range(size)]
        if n == len(fillers) - 1:
            lines.insert(at % (size + 1), FACT)
        shape.call([("find", {"page": n})], "I look.")
        shape.results([("find", "\n".join(lines))])
    if answered:
        shape.answer("It is in the last page.")
        shape.ask("So what is the code of order 4711?")
    return list(shape.messages)


@pytest.mark.parametrize("name", SHAPES)
def test_a_long_result_is_shortened_to_what_was_asked(name: str) -> None:
    """The newest result that does not fit leaves the line that was asked for, in every provider's shape."""

    @draws(cases=len(SHAPES))
    @given(
        st.lists(st.integers(1, 20), max_size=2),
        st.integers(80, 200),
        st.integers(0, 200),
        st.integers(LEAST, 700),
        st.booleans(),
    )
    def law(fillers: list[int], size: int, at: int, limit: int, answered: bool) -> None:
        messages = thread(name, [*fillers, size], at, answered=answered)
        made = fit_messages(messages, max_tokens=limit, counter=WORDS)
        assert WORDS.count_messages([DictCodec().to_dict(m) for m in made.messages]) <= limit
        assert pairing_errors(made.messages) == []
        said = "\n".join(content_text(DictCodec().to_dict(m).get("content")) for m in made.messages)
        assert FACT in said, "the line that was asked for is gone"
        shortened = [d for d in made.report.decisions if d.action == "truncated"]
        assert shortened, "nothing is said to be shortened"

    law()


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "tool_result", "tool_use_id": "a", "content": "one"}],
        [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "one"}]}],
        [{"functionResponse": {"name": "f", "response": {"result": "one", "count": 3}}}],
        [{"function_response": {"name": "f", "response": {"result": "one"}}}],
        [{"type": "image", "source": {}}, {"type": "tool_result", "tool_use_id": "a", "content": "one"}],
        [{"type": "function_call_output", "call_id": "a", "output": "one"}],
    ],
)
def test_the_text_of_a_result_is_replaced_in_its_place(content: list[Any]) -> None:
    """A shortened result has the form of the whole one, and what was given stays as it was."""
    before = repr(content)
    made = replace_text(content, ["1"])
    assert texts_of(content) == ["one"]
    assert texts_of(made) == ["1"]
    assert repr(made) == before.replace("one", "1")
    assert repr(content) == before


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "web_search_tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]}],
        [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image", "source": {}}]}],
        [{"functionResponse": {"name": "f", "response": {"result": {"deep": "x"}}}}],
        [{"type": "tool_result", "tool_use_id": "a"}],
    ],
)
def test_what_is_no_text_of_a_result_stays(content: list[Any]) -> None:
    """Results of a provider's own tools, images and nested objects are not changed."""
    assert texts_of(content) == []
    assert replace_text(content, []) == content


TEXTS = st.lists(
    st.lists(
        st.sampled_from(["The valve opens.", "Pump 7 stops... at noon.", "[... 3 lines ...]"]), max_size=9
    ).map(" ".join),
    min_size=2,
    max_size=6,
)


@draws()
@given(TEXTS, st.integers(1, 60), st.sampled_from(["", "And then? ", "And then? " * 4]))
def test_no_text_of_a_message_moves_into_another(texts: list[str], share: int, said: str) -> None:
    """However little room results and what the user says with them have, each keeps only what was its own.

    What the user says, if short, stays whole.
    """
    calls = [{"type": "tool_use", "id": f"c{n}", "name": "read", "input": {}} for n in range(len(texts) - 1)]
    results = [
        {"type": "tool_result", "tool_use_id": call["id"], "content": text}
        for call, text in zip(calls, texts, strict=False)
    ]
    messages = [
        {"role": "user", "content": "When does pump 7 stop?"},
        {"role": "assistant", "content": calls},
        {"role": "user", "content": [*results, {"type": "text", "text": said or f"And then? {texts[-1]}"}]},
    ]
    whole = COUNTER.count_messages(messages)
    limit = whole - sum(map(COUNTER.count, texts)) * share // 60
    try:
        found = fit_messages(messages, max_tokens=limit, counter=COUNTER)
    except BudgetExceededError as error:
        check_refusal(messages, error, limit=limit, counter=COUNTER)
        return
    check_laws(messages, found.messages, limit=limit, counter=COUNTER)
    assert found.messages[-1]["content"][-1]["text"].startswith(said or "And then?")


@draws()
@given(st.lists(st.integers(0, 60), min_size=1, max_size=4), st.integers(20, 260), st.booleans())
def test_text_blocks_of_a_host_are_shortened(sizes: list[int], limit: int, answered: bool) -> None:
    """A message of several text blocks, which LlamaIndex shows as one text, is cut like any other."""
    pytest.importorskip("llama_index.core")
    from llama_index.core.llms import ChatMessage, TextBlock

    from llamaindex_budget._codec import CODEC

    blocks = [TextBlock(text=f"Note {n}. {'The pump is fine. ' * size}") for n, size in enumerate(sizes)]
    chat = [ChatMessage(role="user", blocks=blocks)]
    if answered:
        chat += [ChatMessage("Good. " * sum(sizes), role="assistant"), ChatMessage("Go on.", role="user")]
    try:
        found = fit_messages(chat, max_tokens=limit, counter=COUNTER, codec=CODEC)
    except BudgetExceededError as error:
        check_refusal(chat, error, limit=limit, counter=COUNTER, codec=CODEC)
        return
    check_laws(chat, found.messages, limit=limit, counter=COUNTER, codec=CODEC)
