"""Tool calls as each provider's client keeps them: their arguments are counted, whatever their name is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM

from llamaindex_budget import BudgetChatMemoryBuffer, budget_model
from rankbudget import BudgetReport, counter_for, fit_messages
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
FORMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "openai": lambda given: {"id": "c1", "function": {"name": "note", "arguments": json.dumps(given)}},
    "ollama": lambda given: {"id": "c1", "function": {"name": "note", "arguments": given}},
    "anthropic": lambda given: {"id": "c1", "type": "tool_use", "name": "note", "input": given},
    "langchain": lambda given: {"id": "c1", "name": "note", "args": given},
    "bedrock": lambda given: {"toolUseId": "c1", "name": "note", "input": given},
    "bedrock, nested": lambda given: {"toolUse": {"toolUseId": "c1", "name": "note", "input": given}},
    "parameters": lambda given: {"id": "c1", "function": {"name": "note", "parameters": given}},
}


def _core(call: dict[str, Any], limit: int) -> tuple[str, int]:
    messages = [
        {"role": "user", "content": "Write the note."},
        {"role": "assistant", "content": "I write.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "saved"},
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "What did you write?"},
    ]
    fitted = fit_messages(messages, max_tokens=limit, counter=COUNTER)
    return str(fitted.messages), fitted.report.total_tokens


def _chat(call: dict[str, Any]) -> list[ChatMessage]:
    return [
        ChatMessage("Write the note."),
        ChatMessage(role="assistant", content="I write.", additional_kwargs={"tool_calls": [call]}),
        ChatMessage("saved", role="tool", additional_kwargs={"tool_call_id": "c1"}),
        ChatMessage("Done.", role="assistant"),
    ]


def _memory(call: dict[str, Any], limit: int) -> tuple[str, int]:
    memory = BudgetChatMemoryBuffer.from_defaults(
        token_limit=limit, counter=COUNTER, chat_history=_chat(call)
    )
    fitted = memory.fit("What did you write?")
    return str([one.additional_kwargs for one in fitted.messages]), fitted.report.total_tokens


def _model(call: dict[str, Any], limit: int) -> tuple[str, int]:
    reports: list[BudgetReport] = []
    model = budget_model(
        MockLLM(is_chat_model=True), max_tokens=limit, counter=COUNTER, on_report=reports.append
    )
    said = model.chat([*_chat(call), ChatMessage("What did you write?")])
    return str(said.message.content), reports[-1].total_tokens


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("door", [_core, _memory, _model])
@draws(cases=3 * len(FORMS))
@given(words=st.integers(0, 400), limit=st.integers(100, 400))
def test_the_arguments_of_a_call_are_counted(
    door: Callable[[dict[str, Any], int], tuple[str, int]], form: str, words: int, limit: int
) -> None:
    """A call that is kept costs its arguments; one that is larger than the limit is not kept."""
    text = " ".join(f"insulin{n}" for n in range(words))
    shown, total = door(FORMS[form]({"text": text}), limit)
    assert total <= limit
    if COUNTER.count(text) > limit:
        assert text not in shown
    elif words and text in shown:
        assert total > COUNTER.count(text)
