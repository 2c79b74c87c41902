"""Results of calls that a provider stores, and conversations of which nothing is valid."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetExceededError, BudgetSession, TokenBudget, fit_messages
from rankbudget._drivers import drive
from rankbudget.adapters import PromptRequest, plain_budget, plan_steps
from rankbudget.errors import MessageError
from rankbudget.messages.codec import DictCodec
from rankbudget.testing import WordCounter
from tests.drawing import draws

COUNTER = WordCounter()


def result(call: int, size: int, *, item: bool) -> dict[str, Any]:
    """A tool's result as a chat message, or as an item of OpenAI's Responses API."""
    text = " ".join(["w"] * size)
    if item:
        return {"type": "function_call_output", "call_id": f"c{call}", "output": text}
    return {"role": "tool", "tool_call_id": f"c{call}", "content": text}


@draws()
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    items=st.booleans(),
    systems=st.integers(0, 2),
    after=st.integers(0, 6),
    limit=st.integers(10, 400),
    remembered=st.booleans(),
)
def test_results_of_stored_calls_stay_or_nothing_is_sent(
    sizes: list[int], items: bool, systems: int, after: int, limit: int, remembered: bool
) -> None:
    """They are first, whole and in order in whatever is sent, in a session's second turn, too; the system share is not theirs."""
    first = [{"role": "system", "content": "Be brief."}] * systems
    first += [result(i, size, item=items) for i, size in enumerate(sizes)]
    roles = ["user", "assistant"] * 3 + ["user"]
    thread = [*first, *({"role": role, "content": "w " * 20} for role in roles[: after + 1 - after % 2])]
    session = BudgetSession(limit, counter=COUNTER) if remembered else None
    for messages in (first, thread, [*thread, {"role": "user", "content": "more"}]):
        request = PromptRequest(
            budget=plain_budget(limit).replace(max_system_ratio=0.25),
            counter=COUNTER,
            codec=DictCodec(),
            history=messages,
            sources=frozenset({"history"}),
            sent=True,
            held=True,
        )
        try:
            plan = drive(plan_steps(request) if session is None else session.plan_steps(request))
        except BudgetExceededError:
            assert sum(sizes) + 40 + 10 * len(first) > limit / 2
            continue
        assert list(map(id, plan.messages[: len(first)])) == list(map(id, first))
        assert plan.report.total_tokens <= limit
        pinned = [d.segment_id for d in plan.report.decisions if d.reason == "pinned"]
        assert len(pinned) == len(first)


@pytest.mark.parametrize("item", [False, True])
def test_results_without_their_calls_are_refused(item: bool) -> None:
    """Where every message would be repaired away, the error says which they are and what to do."""
    alone = [{"role": "system", "content": "Be brief."}, result(0, 3, item=item)]
    with pytest.raises(MessageError, match=r"message 1: orphan_result.*previous_response_id"):
        fit_messages(alone, max_tokens=100, counter=COUNTER)
    request = PromptRequest(
        budget=TokenBudget(),
        counter=COUNTER,
        codec=DictCodec(),
        history=alone,
        sent=True,
    )
    with pytest.raises(MessageError, match="orphan_result"):
        drive(plan_steps(request))
    with pytest.raises(MessageError, match="orphan_result"):
        drive(BudgetSession(100, counter=COUNTER).plan_steps(request))
    assert fit_messages(alone[:1], max_tokens=100, counter=COUNTER).messages == alone[:1]
    assert fit_messages([], max_tokens=100, counter=COUNTER).messages == []
