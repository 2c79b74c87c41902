"""The same applications through the hosts' stock parts and another library, given the same exact counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prove_cases import Case, as_sent
from prove_hosts import to_langchain, to_llamaindex
from prove_ways import SYSTEM, Lab, Way, model
from prove_ways import _retriever as retriever

from rankbudget.messages.texts import content_text
from rankbudget.testing.server import request_tokens
from rankbudget.testing.server.request_tokens import text_tokens

PEERS: dict[str, Way] = {}
LONGEST = 300
"""Messages of the longest thread a slow peer is asked to fit."""


def peer(name: str) -> Callable[[Way], Way]:
    def register(function: Way) -> Way:
        PEERS[name] = function
        return function

    return register


def count_langchain(messages: list[Any]) -> int:
    """Counts LangChain messages exactly as the server will."""
    from langchain_openai.chat_models.base import _convert_message_to_dict

    return request_tokens([_convert_message_to_dict(m) for m in messages])


def tokenize(text: str) -> list[int]:
    """A LlamaIndex tokenizer with the server's count."""
    return [0] * text_tokens(text)


@peer("langchain trim_messages (last, include_system, start_on human)")
def stock_trim(case: Case, lab: Lab) -> None:
    from langchain_core.messages import trim_messages

    trimmed = trim_messages(
        to_langchain(case.messages),
        max_tokens=case.limit,
        token_counter=count_langchain,
        strategy="last",
        include_system=True,
        start_on="human",
    )
    lab.langchain(case).invoke(trimmed)


@peer("langchain trim_messages (last)")
def stock_trim_plain(case: Case, lab: Lab) -> None:
    from langchain_core.messages import trim_messages

    messages = to_langchain(case.messages)
    lab.langchain(case).invoke(
        trim_messages(messages, max_tokens=case.limit, token_counter=count_langchain, strategy="last")
    )


@peer("langchain ContextEditingMiddleware in an agent")
def stock_context_editing(case: Case, lab: Lab) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import ClearToolUsesEdit, ContextEditingMiddleware

    chat = lab.chat.model_copy(update={"model_name": model(case)})
    edit = ClearToolUsesEdit(trigger=case.limit, keep=1)
    agent = create_agent(chat, [], middleware=[ContextEditingMiddleware(edits=[edit])])
    agent.invoke({"messages": to_langchain(case.messages)})


@peer("llamaindex ChatMemoryBuffer.get")
def stock_buffer(case: Case, lab: Lab) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    memory = ChatMemoryBuffer.from_defaults(
        chat_history=to_llamaindex(case.messages[:-1]), token_limit=case.limit, tokenizer_fn=tokenize
    )
    memory.put(ChatMessage(role="user", content=case.question))
    lab.llamaindex(case).chat(memory.get())


@peer("llamaindex Memory.aget")
def stock_memory(case: Case, lab: Lab) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.memory import Memory

    async def read() -> list[Any]:
        memory = Memory.from_defaults(
            token_limit=case.limit, token_flush_size=max(1, case.limit // 10), tokenizer_fn=tokenize
        )
        await memory.aset(to_llamaindex(case.messages[:-1]))
        await memory.aput(ChatMessage(role="user", content=case.question))
        return list(await memory.aget())

    lab.llamaindex(case).chat(lab.wait(read()))


@peer("llamaindex ContextChatEngine, ChatMemoryBuffer")
def stock_engine(case: Case, lab: Lab) -> None:
    from llama_index.core.chat_engine import ContextChatEngine
    from llama_index.core.memory import ChatMemoryBuffer

    memory = ChatMemoryBuffer.from_defaults(
        chat_history=to_llamaindex(case.messages[:-1]), token_limit=case.limit, tokenizer_fn=tokenize
    )
    engine = ContextChatEngine.from_defaults(
        retriever=retriever(case), llm=lab.llamaindex(case), memory=memory, system_prompt=SYSTEM
    )
    engine.chat(case.question)


@peer("promptbudget pack_chat")
def promptbudget(case: Case, lab: Lab) -> None:
    from promptbudget import pack_chat  # absent unless installed: then the row is left out

    role = {"developer": "system"}  # it takes text and four roles: it is given those
    messages = [
        {**m, "role": role.get(m["role"], m["role"]), "content": content_text(m["content"])}
        for m in map(as_sent, case.messages)
    ]
    packed = pack_chat(messages, case.limit, tokenizer=text_tokens, tokens_per_message=4)
    lab.send(
        case, [m if isinstance(m, dict) else {"role": m.role, "content": m.content} for m in packed.messages]
    )
