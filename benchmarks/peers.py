"""LangChain's `trim_messages` as people call it, to be timed beside ours: three exact counters, and threads of LangChain messages.

by the model    `token_counter=ChatOpenAI(...)`, the first way its documentation shows
as the guide    OpenAI's formula over text, the way LangChain's guide to trimming writes a counter of one's own: the encoding is asked for by
                name for each text, special tokens are looked for, roles are told by class
the leanest     the same formula with nothing in it that can be left out: the least an exact counter can do
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

from harness import chat

__all__ = ["COUNTERS", "langchain_thread"]


def by_the_model() -> Any:
    """Returns a model that counts, and is never called."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o", api_key="none")


def as_the_guide() -> Callable[[Sequence[Any]], int]:
    """Returns a counter that looks up and checks for each text what stays the same."""
    import tiktoken
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    classes = {HumanMessage: "user", AIMessage: "assistant", ToolMessage: "tool", SystemMessage: "system"}

    def tokens(text: str) -> int:
        return len(tiktoken.get_encoding("o200k_base").encode(text))

    def count(messages: Sequence[Any]) -> int:
        total = 3
        for message in messages:
            role = next(role for kind, role in classes.items() if isinstance(message, kind))
            total += 3 + tokens(role) + tokens(message.content)
            if message.name:
                total += 1 + tokens(message.name)
        return total

    return count


def leanest() -> Callable[[Sequence[Any]], int]:
    """Returns a counter that does no more than it must for plain text."""
    import tiktoken

    encode = tiktoken.get_encoding("o200k_base").encode_ordinary

    def count(messages: Sequence[Any]) -> int:
        return 3 + sum([4 + len(encode(message.content)) for message in messages])  # a role is one token

    return count


COUNTERS: dict[str, Callable[[], Any]] = {"as the guide": as_the_guide, "the leanest": leanest}
"""What makes each counter, by its name."""
if find_spec("langchain_openai") is not None:
    COUNTERS = {"by the model": by_the_model, **COUNTERS}


def langchain_thread(size: int, seed: str) -> list[Any]:
    """Returns the conversation of that seed as LangChain messages with ids; it ends on a question."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
    thread = [kinds[m["role"]](m["content"], id=f"{seed}-{i}") for i, m in enumerate(chat(size, seed))]
    return (
        thread if thread[-1].type == "human" else [*thread, HumanMessage(f"And {seed}?", id=f"{seed}-last")]
    )
