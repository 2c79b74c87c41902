"""trim_messages keeps the step of an agent that the model has not read yet: dropped silently it would be asked for without end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import trim_messages as trim_as_langchain

from langchain_budget import trim_messages
from rankbudget.errors import BudgetExceededError
from tests.drawing import draws


def step(argument: str, result: str) -> list[Any]:
    return [
        AIMessage("", tool_calls=[{"name": "write", "args": {"text": argument}, "id": "c1"}]),
        ToolMessage(result, tool_call_id="c1"),
    ]


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_newest_call_that_cannot_fit_is_an_error(allow_partial: bool) -> None:
    """A call with long arguments is not dropped while it is the newest; a cut question does not save it."""
    thread = [HumanMessage("look at this\nand write it down"), *step("word " * 3000, "written")]
    with pytest.raises(BudgetExceededError, match="newest tool call with its results"):
        trim_messages(thread, max_tokens=1000, token_counter="approximate", allow_partial=allow_partial)
    later = trim_messages(
        [*thread, AIMessage("Done."), HumanMessage("thanks")],
        max_tokens=1000,
        token_counter="approximate",
        allow_partial=allow_partial,
    )
    assert [m.type for m in later][-1] == "human"
    assert all(m.type != "tool" for m in later)


@pytest.mark.parametrize("allow_partial", [False, True])
def test_a_newest_result_that_cannot_stay_whole_is_shortened(allow_partial: bool) -> None:
    """The question and the call are the same objects; the result is a copy of what fits, and goes whole once it was answered."""
    thread = [HumanMessage("look at this\nand write it down"), *step("draft", "word " * 3000)]
    kept = trim_messages(thread, max_tokens=1000, token_counter="approximate", allow_partial=allow_partial)
    assert kept[0] is thread[0]
    assert kept[1] is thread[1]
    assert kept[2].tool_call_id == "c1"
    assert 100 < len(kept[2].content) < len(thread[2].content) == 15_000
    later = trim_messages(
        [*thread, AIMessage("Done."), HumanMessage("thanks")], max_tokens=1000, token_counter="approximate"
    )
    assert all(m.type != "tool" for m in later)


def test_the_question_is_cut_before_the_newest_step_goes() -> None:
    """With allow_partial a giant question gives up its beginning, the step stays whole."""
    thread = [HumanMessage("one two three\n" * 800 + "now write"), *step("draft", "written " * 30)]
    kept = trim_messages(thread, max_tokens=1000, token_counter="approximate", allow_partial=True)
    assert kept[0].content.endswith("now write")
    assert kept[1:] == thread[1:]


@pytest.mark.parametrize("strategy", ["last", "first"])
def test_an_end_on_the_models_message_is_no_unanswered_call(strategy: str) -> None:
    """With end_on="ai" the results that follow a call are dropped, and so is the call."""
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
    thread = [HumanMessage("one"), AIMessage("two"), HumanMessage("three"), call]
    for more in ([], [ToolMessage("found", tool_call_id="c1")]):
        kept = trim_messages(
            [*thread, *more], max_tokens=9, token_counter=len, strategy=strategy, end_on="ai"
        )
        assert [m.content for m in kept] == ["one", "two"]


def turn(size: int) -> list[Any]:
    """A question, sometimes with a step or an answer, the longer the larger `size` is."""
    answer = [AIMessage("word " * size)] if size % 3 else []
    return [HumanMessage("Which one?"), *(step("draft", "written " * size) if size % 2 else []), *answer]


KINDS = st.sampled_from([None, "ai", "human", ("human", "tool"), (AIMessage, ToolMessage)])


@draws(cases=2)
@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=4),
    share=st.floats(0, 1),
    end_on=KINDS,
    start_on=KINDS,
    systems=st.booleans(),
    partial=st.booleans(),
)
@pytest.mark.parametrize("strategy", ["last", "first"])
def test_the_result_starts_and_ends_on_the_wanted_types_or_is_empty(
    strategy: Any, sizes: list[int], share: float, end_on: Any, start_on: Any, systems: bool, partial: bool
) -> None:
    """At any limit langchain-core's own function, given all the room, has nothing to take away at either end."""
    newest = {"start_on": start_on, "include_system": systems} if strategy == "last" else {}
    options: Any = {"strategy": strategy, "end_on": end_on, "token_counter": "approximate"}
    thread = [SystemMessage("Be kind."), *(m for size in sizes for m in turn(size))]
    limit = 20 + int(share * max(sizes))  # around what one answer needs
    try:
        kept = trim_messages(thread, max_tokens=limit, allow_partial=partial, **options, **newest)
    except BudgetExceededError:
        return  # nothing is sent
    said = [message for message in kept if not isinstance(message, SystemMessage)]
    newest.pop("include_system", None)
    assert trim_as_langchain(said, max_tokens=10**6, **options, **newest) == said
