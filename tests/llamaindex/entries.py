"""Every way into the library that takes a thread and gives messages, opened alike, and LlamaIndex's messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.tools import FunctionTool, ToolMetadata

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetFunctionAgent, BudgetMemory
from llamaindex_budget._codec import defused
from rankbudget import BudgetSession, TokenBudget
from rankbudget.testing import Application
from tests.entry_points import EntryPoint, Opened, drawn_summarizer
from tests.llamaindex.models import ListStore, PlayLLM

LLM = PlayLLM(window=10**9)  # its own window counts as well


def to_host(messages: Sequence[dict[str, Any]]) -> list[ChatMessage]:
    """Returns OpenAI-style dicts as LlamaIndex messages, every one an object of its own; some calls where older versions keep them."""
    made = []
    for number, message in enumerate(messages):
        extra: dict[str, Any] = {"id": f"m{number}"} | {
            key: message[key] for key in ("tool_call_id", "name") if message.get(key)
        }
        blocks = _blocks(message)
        if number % 4 == 0 and message.get("tool_calls"):
            extra["tool_calls"] = message["tool_calls"]
            blocks = [b for b in blocks if not isinstance(b, ToolCallBlock)]
        made.append(ChatMessage(role=message["role"], blocks=blocks, additional_kwargs=extra))
    return made


def _blocks(message: dict[str, Any]) -> list[Any]:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    blocks: list[Any] = [TextBlock(text=content)] if isinstance(content, str) else []
    blocks += [
        b for part in (content if isinstance(content, list) else ()) if (b := _block(part)) is not None
    ]
    for call in calls:
        function = call["function"]
        blocks.append(
            ToolCallBlock(
                tool_call_id=call["id"],
                tool_name=function["name"],
                tool_kwargs=json.loads(function["arguments"]),
            )
        )
    return blocks


def _block(part: dict[str, Any]) -> Any:
    kind = part["type"]
    if kind == "text":
        return TextBlock(text=part["text"])
    if kind == "image_url":
        return ImageBlock(url=part["image_url"]["url"])
    if kind == "input_audio":
        return AudioBlock(audio=part["input_audio"]["data"].encode(), format=part["input_audio"]["format"])
    if kind == "file":
        data = part["file"]["file_data"].partition("base64,")[2].encode()
        return DocumentBlock(data=data, title=part["file"]["filename"], document_mimetype="application/pdf")
    if kind == "thinking":
        return ThinkingBlock(
            content=part["thinking"], additional_information={"signature": part["signature"]}
        )
    if kind == "redacted_thinking":
        return ThinkingBlock(content=None, additional_information={"signature": part["data"]})
    return None  # a tool_use beside its own tool call: the host keeps it once


def check_unshared(given: Sequence[ChatMessage], found: Sequence[ChatMessage]) -> None:
    """A kept message is the caller's object or shares nothing with it that can be changed; a copy with less text says so."""
    sources = {message.additional_kwargs["id"]: message for message in given}
    for message in found:
        source = sources.get(message.additional_kwargs.get("id"))
        if source is None:
            assert message.additional_kwargs["rankbudget"] == "summary"
            continue
        if message is not source:
            assert message.additional_kwargs is not source.additional_kwargs
            assert not {id(b) for b in message.blocks} & {
                id(b) for b in source.blocks if isinstance(b, TextBlock)
            }
        if (
            message.content not in (source.content, source.content and defused(source.content))
            and "tool_calls" not in source.additional_kwargs
        ):  # beside older calls every extra key is sent
            assert message.additional_kwargs["rankbudget"]


def _buffer(app: Application, limit: int, counter: Any) -> Opened:
    return _memory(BudgetChatMemoryBuffer.from_defaults(token_limit=limit, counter=counter))


def _summarizing(app: Application, limit: int, counter: Any) -> Opened:
    return _memory(
        BudgetChatMemoryBuffer.from_defaults(
            token_limit=limit, counter=counter, summarizer=drawn_summarizer(app)
        )
    )


def _session(app: Application, limit: int, counter: Any) -> Opened:
    """A memory on a session with tools, under a budget whose history has all of the room."""
    shared = BudgetSession(_budget(limit), counter=counter, tools=list(app.tools))
    return _memory(BudgetChatMemoryBuffer.from_defaults(session=shared))


def _budget(limit: int) -> TokenBudget:
    return TokenBudget(context_window=limit, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)


def _memory(made: Any) -> Opened:
    async def arun(messages: list[Any]) -> Any:
        await made.aput_messages(messages[len(await made.aget_all()) :])
        return await made.aget()

    def run(messages: list[Any]) -> Any:
        made.put_messages(messages[len(made.get_all()) :])
        return made.get()

    return Opened(run, arun, made.get_all)


def _blocks_memory(app: Application, limit: int, counter: Any) -> Opened:
    made = BudgetMemory.from_defaults(token_limit=limit, counter=counter, chat_store=ListStore())

    async def arun(messages: list[Any]) -> Any:
        await made.aput_messages(messages[len(await made.aget_all()) :])
        return await made.aget()

    return Opened(_blocking(arun), arun, lambda: asyncio_run(made.aget_all()))


def _blocking(arun: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Runs an async-only form on the loop of the test, as LlamaIndex's own blocking calls do."""
    return lambda messages: asyncio_run(arun(messages))


def _agent(app: Application, limit: int, counter: Any) -> Opened:
    made = BudgetFunctionAgent(llm=LLM, tools=[], budget=_budget(limit), counter=counter)
    tools = [_Tool(schema) for schema in app.tools]

    async def arun(messages: list[Any]) -> Any:
        return await made.fit(messages, tools)

    return Opened(_blocking(arun), arun)


class _Tool(FunctionTool):
    """A tool whose schema is the drawn one."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(fn=lambda: "", metadata=_Metadata(schema))


class _Metadata(ToolMetadata):
    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(description="", name=schema["function"]["name"])
        self.schema = schema

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
        return self.schema


ENTRIES = [
    EntryPoint(name="buffer", open=_buffer, identity=False, tools=False, stored=True, remembers=True),
    EntryPoint(name="session", open=_session, identity=False, stored=True, remembers=True),
    EntryPoint(
        name="memory with blocks",
        open=_blocks_memory,
        identity=False,
        tools=False,
        superset=False,
        stored=True,
        remembers=True,
    ),
    EntryPoint(
        name="summarizing buffer",
        open=_summarizing,
        identity=False,
        tools=False,
        superset=False,
        stored=True,
        remembers=True,
        inserts=True,
    ),
    EntryPoint(name="agent", open=_agent, superset=False, sent=True),
]
