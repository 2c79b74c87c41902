"""Conversations as hosts really store them, with content blocks and broken turns: each framework reads them as the core does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")
from langchain_core.messages import convert_to_messages
from llama_index.core.base.llms.types import (
    ChatMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from langchain_budget import BudgetMessageHistory
from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory
from llamaindex_budget._codec import defused
from rankbudget import BudgetSession, counter_for
from rankbudget.adapters import content_text, drive
from rankbudget.errors import BudgetError
from rankbudget.testing import Application, applications
from tests.drawing import draws
from tests.llamaindex.models import ListStore

COUNTER = "o200k_base"


def langchain(messages: Any) -> list[Any]:
    made = convert_to_messages(
        [{k: v for k, v in m.items() if v is not None or k == "content"} for m in messages]
    )
    for i, message in enumerate(made):
        message.id = f"m{i}"
    return made


def llamaindex(messages: Any) -> list[ChatMessage]:
    made = []
    for i, message in enumerate(messages):
        extra = {key: message[key] for key in ("tool_call_id", "name") if message.get(key)}
        made.append(
            ChatMessage(
                role=message["role"], blocks=list(_blocks(message)), additional_kwargs={**extra, "number": i}
            )
        )
    return made


def _blocks(message: dict[str, Any]) -> Any:
    content = message.get("content")
    if isinstance(content, str):
        yield TextBlock(text=content)
    for block in content if isinstance(content, list) else ():
        made = {
            "text": lambda b: TextBlock(text=b["text"]),
            "image_url": lambda b: ImageBlock(url="https://example.org/x.png"),
            "thinking": lambda b: ThinkingBlock(
                content=b["thinking"], additional_information={"signature": b["signature"]}
            ),
        }.get(block["type"])
        if made is not None:
            yield made(block)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield ToolCallBlock(
            tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=json.loads(function["arguments"])
        )


def outcome(call: Any) -> Any:
    try:
        return call()
    except BudgetError as error:
        return type(error).__name__


@draws()
@given(applications(media=False))
def test_the_same_history_is_read(application: Application) -> None:
    """A stored thread read by the core, LangChain's history and LlamaIndex's memory shows the same messages, texts and calls."""
    messages = [{**m, "content": m["content"] or ""} for m in application.fresh()]
    limit = application.limit(counter_for(COUNTER))

    def through_core() -> Any:
        session = BudgetSession(limit, counter=COUNTER)
        found = drive(session.read_steps(session.request(messages))).history
        return [
            (_role(m["role"]), content_text(m["content"]), [c["id"] for c in m.get("tool_calls") or ()])
            for m in found
        ]

    def through_langchain() -> Any:
        history = BudgetMessageHistory(max_tokens=limit, counter=COUNTER, results_next=True)
        history.add_messages(langchain(messages))
        return [
            (_role(m.type), m.text, [c["id"] for c in getattr(m, "tool_calls", None) or ()])
            for m in history.messages
        ]

    def through_llamaindex() -> Any:
        memory = BudgetChatMemoryBuffer.from_defaults(
            chat_history=llamaindex(messages), token_limit=limit, counter=COUNTER
        )
        found = memory.get()
        assert [m.content for m in asyncio.run(memory.aget())] == [m.content for m in found]
        return [
            (
                _role(m.role.value),
                m.content or "",
                [b.tool_call_id for b in m.blocks if isinstance(b, ToolCallBlock)],
            )
            for m in found
        ]

    expected = _plain(outcome(through_core))
    assert _plain(outcome(through_langchain)) == expected
    assert _plain(outcome(through_llamaindex)) == expected


READERS = {
    "LangChain": lambda thread: _history(thread).messages,
    "LangChain async": lambda thread: asyncio.run(_history(thread).aget_messages()),
    "LlamaIndex": lambda thread: _memory(thread).get(),
    "LlamaIndex async": lambda thread: asyncio.run(_memory(thread).aget()),
    "LlamaIndex blocks": lambda thread: _blocks_memory(thread).get(),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_finished_thread_waits_for_a_question_that_stands_elsewhere(reader: str) -> None:
    """Where the last question does not fit, a finished thread is read as its system messages; one that still asks is refused."""
    picture = [
        {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}}
    ]  # cannot be shortened
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": picture}]
    done = [*asked, {"role": "assistant", "content": "A cat."}]
    assert [m.content for m in READERS[reader](done)] == ["Be brief."]
    assert outcome(lambda: READERS[reader](asked)) == "BudgetExceededError"


def _history(thread: Any) -> BudgetMessageHistory:
    history = BudgetMessageHistory(max_tokens=40, counter=COUNTER)
    history.add_messages(langchain(thread))
    return history


def _memory(thread: Any) -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(
        chat_history=llamaindex(thread), token_limit=40, counter=COUNTER
    )


def _blocks_memory(thread: Any) -> BudgetMemory:
    memory = BudgetMemory.from_defaults(token_limit=40, counter=COUNTER, chat_store=ListStore())
    asyncio.run(memory.aset(llamaindex(thread)))
    return memory


def _role(name: str) -> str:
    return {"human": "user", "ai": "assistant", "developer": "system"}.get(name, name)


def _plain(found: Any) -> Any:
    """LlamaIndex's memory sets a space into template slots, which its engines would fill: so do we with all."""
    if isinstance(found, str):
        return found
    return [(role, defused(text), calls) for role, text, calls in found]
