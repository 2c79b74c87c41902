"""Engines whose history holds what the host's prompt helper counts higher than the model does: pictures, files, tool calls."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.memory import ChatMemoryBuffer

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, BudgetNodePostprocessor, budget_model
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM, nodes, say

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x40\x00\x00\x00\x40\x08\x02\x00\x00\x00"  # 64 x 64, head only
ENGINES = [ContextChatEngine, CondensePlusContextChatEngine]


def _picture(text: str) -> ChatMessage:
    return ChatMessage(role="user", blocks=[ImageBlock(image=PNG, detail="low"), TextBlock(text=text)])


def _post(memory: Any) -> BudgetNodePostprocessor:
    return BudgetNodePostprocessor(memory=memory)


def _llm(**fields: Any) -> Any:
    return budget_model(PlayLLM(requests=[], **fields))


def _engine(kind: Any, memory: Any, llm: PlayLLM, **fields: Any) -> Any:
    own = [] if type(memory) is ChatMemoryBuffer else [_post(memory)]
    options = {"node_postprocessors": own, **fields}
    return kind.from_defaults(retriever=FixedRetriever(nodes(5)), llm=llm, memory=memory, **options)


def _answered(llm: PlayLLM) -> list[Any]:
    return [
        messages for messages, _ in llm.requests if messages[0].role.value == "system"
    ]  # the others rewrite the question


@pytest.mark.parametrize("kind", ENGINES)
def test_pictures_in_the_history_do_not_stop_a_default_engine(kind: Any) -> None:
    """Three small pictures, at which a stock memory lets the engine raise, stay in a window of 4,096 tokens, and nodes beside them."""
    thread = [m for i in range(3) for m in (_picture(f"look {i}"), say("assistant", f"seen {i}"))]
    with pytest.raises(ValueError, match="not non-negative"):
        _engine(
            kind,
            ChatMemoryBuffer.from_defaults(chat_history=thread),
            PlayLLM(requests=[]),
            node_postprocessors=[],
        ).chat("and now?")
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=thread)
    response = _engine(kind, memory, llm).chat("and now?")
    [sent] = _answered(llm)
    assert sum(isinstance(b, ImageBlock) for m in sent for b in m.blocks) == 3
    assert [b.image for m in sent for b in m.blocks if isinstance(b, ImageBlock)] == [
        thread[0].blocks[0].image
    ] * 3
    assert response.source_nodes
    assert max(llm.sizes()) <= 4096 - 256


@pytest.mark.parametrize("kind", ENGINES)
async def test_the_async_engine_does_the_same(kind: Any) -> None:
    """A memory with blocks, read by an async engine, hands on its pictures too."""
    llm = _llm()
    memory = BudgetMemory.from_defaults(llm=llm, token_limit=3000, chat_store=ListStore())
    await memory.aset([m for i in range(3) for m in (_picture(f"look {i}"), say("assistant", f"seen {i}"))])
    await _engine(kind, memory, llm).achat("and now?")
    [sent] = _answered(llm)
    assert sum(isinstance(b, ImageBlock) for m in sent for b in m.blocks) == 3


def test_blocks_of_every_kind_pass_through_an_engine_as_they_are() -> None:
    """Files, citable texts with a template's slot, and calls arrive unchanged; what is stored is untouched and of the host's own types."""
    call = ToolCallBlock(
        tool_call_id="c1", tool_name="search", tool_kwargs={"query": "{context_str}", "rows": list(range(30))}
    )
    thread = [
        ChatMessage(
            role="user",
            blocks=[
                DocumentBlock(data=b"%PDF-1", title="a.pdf"),
                CitableBlock(title="t", source="s", content="{query_str}"),
            ],
        ),
        ChatMessage(role="assistant", blocks=[call]),
        ChatMessage(role="tool", content="found", additional_kwargs={"tool_call_id": "c1"}),
        say("assistant", "done"),
    ]
    llm = _llm(window=32_000)
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=thread)
    _engine(ContextChatEngine, memory, llm).chat("and now?")
    sent = llm.requests[0][0][1:5]
    assert [[b.model_dump() for b in m.blocks] for m in sent] == [
        [b.model_dump() for b in m.blocks] for m in thread
    ]
    assert memory.get_all()[:4] == thread
    assert pickle.loads(pickle.dumps(sent)) == sent


@pytest.mark.parametrize("kind", ENGINES)
def test_where_no_node_fits_the_question_is_still_asked(kind: Any) -> None:
    """The engine would answer "Empty Response" without nodes; it gets the best one without its text, and the model is asked."""
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(
        llm=llm, chat_history=[say("user", "hi"), say("assistant", "hello")]
    )
    response = _engine(kind, memory, llm, node_postprocessors=[BudgetNodePostprocessor(max_tokens=1)]).chat(
        "and now?"
    )
    assert str(response) == "done"
    assert _answered(llm)[0][-1].content == "and now?"
    assert [(n.node_id, n.score, n.text) for n in response.source_nodes] == [("n0", 1.0, "")]
