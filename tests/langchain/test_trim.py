"""trim_messages keeps the step of an agent that nobody has read yet, whole or not at all: dropped silently it is asked for again for ever."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from langchain_budget import trim_messages
from rankbudget.errors import BudgetExceededError


def step(argument: str, result: str) -> list[Any]:
    return [AIMessage("", tool_calls=[{"name": "write", "args": {"text": argument}, "id": "c1"}]), ToolMessage(result, tool_call_id="c1")]


@pytest.mark.parametrize("allow_partial", [False, True])
@pytest.mark.parametrize("large", [("word " * 3000, "written"), ("draft", "word " * 3000)], ids=["arguments", "result"])
def test_a_newest_step_that_cannot_fit_is_an_error(large: tuple[str, str], allow_partial: bool) -> None:
    """Neither a call with long arguments nor one with a long result is dropped while it is the newest; a cut question does not save it."""
    thread = [HumanMessage("look at this\nand write it down"), *step(*large)]
    with pytest.raises(BudgetExceededError, match="newest tool call with its results"):
        trim_messages(thread, max_tokens=1000, token_counter="approximate", allow_partial=allow_partial)
    later = trim_messages(
        [*thread, AIMessage("Done."), HumanMessage("thanks")], max_tokens=1000, token_counter="approximate", allow_partial=allow_partial
    )
    assert [m.type for m in later][-1] == "human"
    assert all(m.type != "tool" for m in later)


def test_the_question_is_cut_before_the_newest_step_goes() -> None:
    """With allow_partial a giant question gives up its beginning, the step stays whole."""
    thread = [HumanMessage("one two three\n" * 800 + "now write"), *step("draft", "written " * 30)]
    kept = trim_messages(thread, max_tokens=1000, token_counter="approximate", allow_partial=True)
    assert kept[0].content.endswith("now write")
    assert kept[1:] == thread[1:]
