"""The conversation of the soak and what holds it: each part under its budget, and beside it a control that only stores the same messages.

Nothing of the library is imported before a part is started, so that a control's process is without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LIMIT = 4_000
COUNTER = "o200k_base"
WORDS = "time year people way day man thing woman life child world school state family".split()


@dataclass(frozen=True)
class Thread:
    """One conversation: `add` stores a turn and returns how many messages that is, `read` returns what the model may see, `dicts` makes it plain."""

    add: Callable[[int], int]
    read: Callable[[], Sequence[Any]] | None = None
    dicts: Callable[[Sequence[Any]], list[dict[str, Any]]] = list


def turn(number: int) -> tuple[str, list[tuple[str, str]], str]:
    """Returns the question, the tool calls with their results, and the answer of a turn, all different."""
    text = " ".join(WORDS[(number + i) % len(WORDS)] for i in range(10 + number % 50))
    calls = [
        (f"call_{number}_{i}", f"result {number} {text}") for i in range(number % 4 if number % 5 == 0 else 0)
    ]
    return f"question {number}: {text}?", calls, f"answer {number}: {text}."


# ---- the core -------------------------------------------------------------------------------------------------------------------
def core_control() -> Thread:
    return _core([])


def core() -> Thread:
    from rankbudget import BudgetSession

    chat: list[dict[str, Any]] = []
    session = BudgetSession(LIMIT, counter=COUNTER)
    return _core(chat, lambda: session.fit(chat).messages)


def _core(chat: list[dict[str, Any]], read: Callable[[], Sequence[Any]] | None = None) -> Thread:
    def add(number: int) -> int:
        question, calls, answer = turn(number)
        made: list[dict[str, Any]] = [{"role": "user", "content": question}]
        if calls:
            asked = {"name": "search", "arguments": json.dumps({"n": number})}
            made.append(
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [{"id": i, "type": "function", "function": asked} for i, _ in calls],
                }
            )
            made += [{"role": "tool", "tool_call_id": i, "content": text} for i, text in calls]
        made.append({"role": "assistant", "content": answer})
        chat.extend(made)
        return len(made)

    return Thread(add, read)


# ---- LangChain ------------------------------------------------------------------------------------------------------------------
def langchain_control() -> Thread:
    from langchain_core.chat_history import InMemoryChatMessageHistory

    return _langchain(InMemoryChatMessageHistory())


def langchain() -> Thread:
    from langchain_core.chat_history import InMemoryChatMessageHistory

    from langchain_budget import BudgetMessageHistory

    history = BudgetMessageHistory(InMemoryChatMessageHistory(), max_tokens=LIMIT, counter=COUNTER)
    return _langchain(history, lambda: history.messages)


def _langchain(store: Any, read: Callable[[], Sequence[Any]] | None = None) -> Thread:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, convert_to_openai_messages

    def add(number: int) -> int:
        question, calls, answer = turn(number)
        made: list[Any] = [HumanMessage(question)]
        if calls:
            made.append(
                AIMessage(
                    "", tool_calls=[{"name": "search", "args": {"n": number}, "id": i} for i, _ in calls]
                )
            )
            made += [ToolMessage(text, tool_call_id=i) for i, text in calls]
        store.add_messages([*made, AIMessage(answer)])
        return len(made) + 1

    return Thread(add, read, lambda messages: convert_to_openai_messages(list(messages)))


# ---- LlamaIndex -----------------------------------------------------------------------------------------------------------------
def llamaindex_control() -> Thread:
    from llama_index.core.storage.chat_store import SimpleChatStore

    store = SimpleChatStore()
    return _llamaindex(lambda message: store.add_message("chat_history", message))


def llamaindex() -> Thread:
    from llamaindex_budget import BudgetChatMemoryBuffer

    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=LIMIT, counter=COUNTER)
    return _llamaindex(memory.put, memory.get)


def _llamaindex(put: Callable[[Any], None], read: Callable[[], Sequence[Any]] | None = None) -> Thread:
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock

    def add(number: int) -> int:
        question, calls, answer = turn(number)
        made = [ChatMessage(role="user", content=question)]
        if calls:
            blocks = [
                ToolCallBlock(tool_call_id=i, tool_name="search", tool_kwargs={"n": number}) for i, _ in calls
            ]
            made.append(ChatMessage(role="assistant", blocks=blocks))
            made += [
                ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": i})
                for i, text in calls
            ]
        for message in [*made, ChatMessage(role="assistant", content=answer)]:
            put(message)
        return len(made) + 1

    return Thread(add, read, _llamaindex_dicts)


def _llamaindex_dicts(messages: Sequence[Any]) -> list[dict[str, Any]]:
    from llamaindex_budget._codec import CODEC

    return [dict(CODEC.to_dict(m)) for m in messages]


PARTS: dict[str, tuple[Callable[[], Thread], Callable[[], Thread]]] = {
    "BudgetSession": (core, core_control),
    "LangChain BudgetMessageHistory": (langchain, langchain_control),
    "LlamaIndex BudgetChatMemoryBuffer": (llamaindex, llamaindex_control),
}
"""Each part of the library with its control."""
