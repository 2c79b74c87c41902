"""What is shortened in any case takes no room from other blocks, and what no block can use is not left empty."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, BudgetExceededError, MessageError, TokenBudget
from rankbudget.batch import FitPrompt
from rankbudget.testing import WordCounter
from tests.drawing import draws

COUNTER = WordCounter()


@draws()
@given(
    limit=st.integers(150, 2000),
    beyond=st.integers(1, 3000),
    facts=st.integers(1, 60),
    share=st.integers(1, 9),
    who=st.sampled_from(["user", "assistant", "tool"]),
)
def test_a_text_that_is_shortened_leaves_other_blocks_their_share(
    limit: int, beyond: int, facts: int, share: int, who: str
) -> None:
    """Documents have what they want, up to their share, whatever is pasted into the last exchange; nothing stays free."""
    said = {role: "w " * (limit + beyond if role == who else 3) for role in ("user", "assistant", "tool")}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": said["user"]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": said["tool"]},
        {"role": "assistant", "content": said["assistant"]},
    ]
    documents = [f"Parcel {i} leaves at {i} o'clock." for i in range(facts)]
    budget = TokenBudget(
        context_window=limit + 10, reserve=10, ratios={"history": 1 - share / 10, "knowledge": share / 10}
    )
    made = Assembler(budget, counter=COUNTER).assemble(
        {"history": history, "knowledge": documents}, query="When does parcel 1 leave?"
    )
    tokens = {block.name: block for block in made.report.blocks}
    fixed = made.report.total_tokens - tokens["history"].used - tokens["knowledge"].used
    own = (made.report.limit - fixed) * share // 10
    wanted = Assembler(100_000, counter=COUNTER).assemble({"knowledge": documents}, query="?").report
    needed = next(block.used for block in wanted.blocks if block.name == "knowledge")
    assert tokens["knowledge"].granted >= min(own, needed) - 8
    if tokens["knowledge"].dropped == 0 and who != "tool":  # tool output is cut by its structure
        assert made.report.total_tokens >= made.report.limit - 8


def test_a_blank_question_is_refused_at_every_door() -> None:
    """No provider takes a message of white space: an assembler and a batch say so as `fit_messages` does."""
    with pytest.raises(MessageError, match="question must not be empty"):
        Assembler(200, counter=COUNTER).assemble({"system": "s"}, query=" \n ")
    made = FitPrompt(200).row({"system": "s", "question": "  "})
    assert "must not be empty" in made["budget_error"]
    with pytest.raises(BudgetExceededError):
        Assembler(8, counter=COUNTER).assemble({"system": "s"}, query="w " * 20)
