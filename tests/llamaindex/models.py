"""Offline models for the tests: an LLM that plays a script and keeps what it was sent, an embedding that counts letters, a fixed retriever."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    ToolCallBlock,
)
from llama_index.core.bridge.pydantic import Field, PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus
from llama_index.core.tools import ToolSelection
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import BudgetEvent
from llamaindex_budget._codec import CODEC
from rankbudget import counter_for

CL100K = counter_for("cl100k_base")


class PlayLLM(FunctionCallingLLM):
    """Plays `steps`, then answers `answer`; keeps a copy of every request with its tools; `fail` makes every call raise."""

    steps: list[Any] = Field(default_factory=list)
    requests: list[Any] = Field(default_factory=list)
    answer: str = "done"
    window: int = 4096
    reply: int = 256
    fail: bool = False

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(
            context_window=self.window,
            num_output=self.reply,
            is_chat_model=True,
            is_function_calling_model=True,
        )

    def _play(self, messages: Sequence[ChatMessage], tools: Sequence[Any] = ()) -> ChatResponse:
        schemas = [tool.metadata.to_openai_tool() for tool in tools or ()]
        self.requests.append(([m.model_copy(deep=True) for m in messages], schemas))
        if self.fail:
            msg = "the model is down"
            raise TimeoutError(msg)
        return ChatResponse(
            message=self.steps.pop(0) if self.steps else ChatMessage(role="assistant", content=self.answer)
        )

    def chat(self, messages: Sequence[ChatMessage], tools: Any = (), **_: Any) -> ChatResponse:
        return self._play(messages, tools)

    async def achat(self, messages: Sequence[ChatMessage], **_: Any) -> ChatResponse:
        return self._play(messages)

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return CompletionResponse(
            text=self._play([ChatMessage(role="user", content=prompt)]).message.content or ""
        )

    async def acomplete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        return self.complete(prompt)

    def stream_chat(self, messages: Sequence[ChatMessage], tools: Any = (), **_: Any) -> Any:
        answer = self._play(messages, tools).message
        yield ChatResponse(message=answer, delta=answer.content)

    async def astream_chat(self, messages: Sequence[ChatMessage], **_: Any) -> Any:
        return self._stream(self._play(messages))

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        yield self.complete(prompt)

    async def astream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        return self._stream(self.complete(prompt))

    @staticmethod
    async def _stream(response: Any) -> Any:
        response.delta = getattr(getattr(response, "message", response), "content", None) or ""
        yield response

    def _prepare_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any
    ) -> dict[str, Any]:
        return {"messages": chat_history or [], "tools": tools}

    async def achat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any
    ) -> ChatResponse:
        return self._play(chat_history, tools)

    async def astream_chat_with_tools(
        self, tools: Any, user_msg: Any = None, chat_history: Any = None, **_: Any
    ) -> Any:
        return self._stream(self._play(chat_history, tools))

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **_: Any
    ) -> list[ToolSelection]:
        return [
            ToolSelection(
                tool_id=b.tool_call_id or "",
                tool_name=b.tool_name,
                tool_kwargs=b.tool_kwargs if isinstance(b.tool_kwargs, dict) else {},
            )
            for b in response.message.blocks
            if isinstance(b, ToolCallBlock)
        ]

    def sizes(self) -> list[int]:
        """Returns the tokens of every request so far."""
        return [tokens(messages, tools) for messages, tools in self.requests]


def strict_llm(base_url: str, **fields: Any) -> OpenAILike:
    """Returns a real client of a server on this machine; no connection outlives the event loop that opened it."""
    fresh = httpx.Limits(max_keepalive_connections=0)
    return OpenAILike(**{
        "model": "strict", "api_base": base_url, "api_key": "none", "is_chat_model": True, "is_function_calling_model": True,
        "max_retries": 0, "http_client": httpx.Client(verify=False, limits=fresh),
        "async_http_client": httpx.AsyncClient(verify=False, limits=fresh), **fields,
    })  # fmt: skip


class LetterEmbedding(BaseEmbedding):
    """Counts letters, so that texts about the same letters are near each other on every machine."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [text.lower().count(chr(97 + i)) + 1e-3 for i in range(26)]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    _get_query_embedding = _get_text_embedding


class FixedRetriever(BaseRetriever):
    """Returns the same nodes to every query."""

    def __init__(self, nodes: Sequence[NodeWithScore]) -> None:
        self.nodes = list(nodes)
        super().__init__()

    def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:
        return list(self.nodes)


class ListStore(AsyncDBChatStore):
    """A chat store of plain lists, by key and status: any store will do, and this one leaves no database open."""

    _rows: dict[str, list[tuple[ChatMessage, MessageStatus]]] = PrivateAttr(default_factory=dict)

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        found = [m.model_copy(deep=True) for m, s in self._rows.get(key, []) if status in (None, s)]
        return found[offset or 0 :][:limit]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        return len(await self.get_messages(key, status))

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        self._rows.setdefault(key, []).extend((m.model_copy(deep=True), status) for m in messages)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        self._rows[key] = []
        await self.add_messages(key, messages, status)

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self._rows[key].pop(idx)[0]

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        self._rows[key] = [row for row in self._rows.get(key, []) if status not in (None, row[1])]

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        gone, self._rows[key] = self._rows[key][:n], self._rows[key][n:]
        return [m for m, _ in gone]

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        rows = self._rows[key]
        self._rows[key] = [(m, MessageStatus.ARCHIVED if i < n else s) for i, (m, s) in enumerate(rows)]
        return [m for m, _ in rows[:n]]

    async def get_keys(self) -> list[str]:
        return list(self._rows)


def tokens(messages: Sequence[ChatMessage], tools: Sequence[Any] | None = None) -> int:
    """Returns what a request counts, tools and reply priming included."""
    return CL100K.count_messages([CODEC.to_dict(m) for m in messages], list(tools or ()) or None)


def say(role: str, text: str, **extra: Any) -> ChatMessage:
    return ChatMessage(role=role, content=text, additional_kwargs=extra)


def words(n: int, word: str = "word") -> str:
    return " ".join([word] * n)


def calls(*ids: str, **arguments: Any) -> ChatMessage:
    blocks = [
        ToolCallBlock(tool_call_id=i, tool_name="search", tool_kwargs=arguments or {"q": "x"}) for i in ids
    ]
    return ChatMessage(role="assistant", blocks=blocks)


def result(call_id: str, text: str) -> ChatMessage:
    return say("tool", text, tool_call_id=call_id)


def exchanges(n: int, size: int = 40) -> list[ChatMessage]:
    return [say(role, f"{role[0]}{i} {words(size)}") for i in range(n) for role in ("user", "assistant")]


def nodes(n: int, size: int = 300) -> list[NodeWithScore]:
    """Returns n nodes of about `size` tokens with different texts, best first."""
    found = []
    for i in range(n):
        sentences = [
            f"Node {i} fact {j} tells that item {i * 100 + j} weighs {j + 1} grams."
            for j in range(max(1, size // 16))
        ]
        found.append(NodeWithScore(node=TextNode(id_=f"n{i}", text=" ".join(sentences)), score=1.0 - i / 100))
    return found


class Heard(BaseEventHandler):
    """Notes every report that LlamaIndex's event handlers are told."""

    reports: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, BudgetEvent):
            self.reports.append(event.report)
