"""The same application through LangChain and through LlamaIndex: the same pieces, the same texts, the same totals."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")
from langchain_core.documents import Document
from langchain_core.messages import convert_to_messages
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.schema import NodeWithScore, TextNode

from langchain_budget import BudgetDocumentCompressor, BudgetMessageHistory, BudgetTrimmer
from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, BudgetNodePostprocessor
from rankbudget import counter_for, fit_messages
from rankbudget.errors import BudgetError
from rankbudget.testing import Application, applications, draws
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
            "input_audio": lambda b: AudioBlock(audio=b"c291bmQ=", format="wav"),
            "file": lambda b: DocumentBlock(
                data=b"JVBERi0x", title="a.pdf", document_mimetype="application/pdf"
            ),
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
def test_the_same_messages_are_kept(application: Application) -> None:
    """A thread keeps the same messages with the same texts and total in the core, in LangChain and in LlamaIndex."""
    messages = [{**m, "content": m["content"] or ""} for m in application.fresh()]
    limit = application.limit(counter_for(COUNTER))

    def through_core() -> Any:
        fitted = fit_messages(messages, max_tokens=limit, counter=COUNTER)
        return _places(messages, fitted.messages), fitted.report.total_tokens

    def through_langchain() -> Any:
        fitted = BudgetTrimmer(max_tokens=limit, counter=COUNTER).fit(langchain(messages))
        return [int(m.id[1:]) for m in fitted.value], fitted.report.total_tokens

    core, host = outcome(through_core), outcome(through_langchain)
    assert core == host


def _places(messages: list[Any], kept: Any) -> list[int]:
    """Returns where each kept message stood; a shortened copy stands after what was kept before it."""
    places: list[int] = []
    for message in kept:
        after = places[-1] + 1 if places else 0
        whole = [i for i in range(after, len(messages)) if messages[i] is message]
        places.append(
            whole[0] if whole else next(i for i in range(after, len(messages)) if _cut(messages[i], message))
        )
    return places


def _cut(source: dict[str, Any], message: dict[str, Any]) -> bool:
    return (
        source["role"] == message["role"]
        and bool(message["content"])
        and str(source["content"])[:10] == str(message["content"])[:10]
    )


@draws()
@given(applications(media=False))
def test_the_same_history_is_read(application: Application) -> None:
    """A stored thread read through LangChain's history and LlamaIndex's memory shows the same messages, texts and calls."""
    messages = [{**m, "content": m["content"] or ""} for m in application.fresh()]
    limit = application.limit(counter_for(COUNTER))

    def through_langchain() -> Any:
        history = BudgetMessageHistory(max_tokens=limit, counter=COUNTER)
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

    assert _plain(outcome(through_langchain)) == _plain(outcome(through_llamaindex))


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
    """LlamaIndex escapes template slots, which its engines would fill; the zero-width mark is not part of the text."""
    return (
        found
        if isinstance(found, str)
        else [(role, "".join(c for c in text if c.isprintable()), calls) for role, text, calls in found]
    )


@draws()
@given(applications(max_turns=1), st.integers(20, 600))
def test_the_same_documents_are_kept(application: Application, limit: int) -> None:
    """The same retrieved texts keep the same pieces as LangChain documents and as LlamaIndex nodes."""
    question = application.question or "What did we decide?"
    texts = list(application.documents)
    compressor = BudgetDocumentCompressor(max_tokens=limit, counter=COUNTER)
    documents = [
        d.page_content for d in compressor.compress_documents([Document(t) for t in texts], question)
    ]
    post = BudgetNodePostprocessor(max_tokens=limit, counter=COUNTER)
    nodes = post.postprocess_nodes([NodeWithScore(node=TextNode(text=t)) for t in texts], query_str=question)
    assert documents == [n.node.get_content() for n in nodes]
