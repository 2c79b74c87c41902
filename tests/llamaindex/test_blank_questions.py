"""Questions without a text in chat engines over a bounded model: the error is seen, it does not become an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    ContextChatEngine,
)
from llama_index.core.memory import ChatMemoryBuffer

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, budget_model
from llamaindex_budget._limits import RequestMessageError
from rankbudget.errors import MessageError
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM, exchanges, nodes

FOUND = FixedRetriever(nodes(3, 50))
ENGINES: dict[str, Callable[[Any, Any], Any]] = {
    "context": lambda llm, memory: ContextChatEngine.from_defaults(retriever=FOUND, llm=llm, memory=memory),
    "condense and context": lambda llm, memory: CondensePlusContextChatEngine.from_defaults(
        retriever=FOUND, llm=llm, memory=memory
    ),
}
MEMORIES: dict[str, Callable[[list[Any]], Any]] = {
    "buffer": lambda past: BudgetChatMemoryBuffer.from_defaults(token_limit=2000, chat_history=past),
    "blocks": lambda past: BudgetMemory.from_defaults(
        token_limit=2000, chat_history=past, chat_store=ListStore()
    ),
}
BLANK = st.text(" \n\t\u3000", max_size=3)


def _said(messages: Any) -> list[tuple[str, str]]:
    return [(m.role.value, m.content or "") for m in messages]


def _ask(engine: Any, question: str, way: str) -> str:
    if way == "async":
        return str(asyncio.run(engine.achat(question)))
    return str(engine.chat(question))


@given(
    engine=st.sampled_from(sorted(ENGINES)),
    kind=st.sampled_from(["stock", *MEMORIES]),
    question=BLANK,
    past=st.integers(0, 3),
    way=st.sampled_from(["blocking", "async"]),
)
def test_a_bounded_model_refuses_a_blank_question_aloud(
    engine: str, kind: str, question: str, past: int, way: str
) -> None:
    """The error passes the engine, nothing is stored as an answer, and the next question gets its answer."""
    make = {"stock": lambda p: ChatMemoryBuffer.from_defaults(token_limit=2000, chat_history=p), **MEMORIES}
    memory, llm = make[kind](exchanges(past, 5)), PlayLLM(requests=[])
    chat = ENGINES[engine](budget_model(llm), memory)
    with pytest.raises(MessageError, match="question must not be empty") as caught:
        _ask(chat, question, way)
    assert isinstance(caught.value, RequestMessageError)
    assert not isinstance(caught.value, ValueError)  # to which engines answer "Empty Response"
    roles = [m.role.value for m in memory.get_all()]
    assert roles.count("assistant") == past
    assert _ask(chat, "And tea?", way) == "done"
    sent = _said(llm.requests[-1][0])
    assert sent[-1] == ("user", "And tea?")
    assert len([role for role, _ in sent if role == "assistant"]) == past
