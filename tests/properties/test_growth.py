"""Ten times as many pieces, from a thousand up, cost at most fourteen times the time, whatever the way in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode

import langchain_budget as lc
import llamaindex_budget as li
from rankbudget import (
    Assembler,
    BlockAssembler,
    BudgetSession,
    ContextAnalyzer,
    FewShotSelector,
    PromptCompressor,
    Segment,
    TokenBudget,
    build_constrained_prompt,
    fit_documents,
    fit_messages,
    fit_text,
)
from rankbudget.testing import WordCounter
from tests.growth import growth

WORDS = "tea boat harbour refund invoice kettle river lantern oak copper".split()
QUESTION = "How many coins for the kettle?"
COUNTER = WordCounter()
ROOM = 3_000
CALLS = count()


def texts(size: int) -> list[str]:
    """Texts that were never counted before, so that no cache makes one size look cheaper than another."""
    call = next(CALLS)
    return [
        f"note {i} of call {call}: the {WORDS[i % 10]} near {WORDS[i // 10 % 10]} costs {i} coins."
        for i in range(size)
    ]


def segments(count: int) -> list[Segment]:
    return [Segment(id=str(i), text=text) for i, text in enumerate(texts(count))]


def dicts(count: int) -> list[dict[str, str]]:
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts(count))]
    return [*said, {"role": "user", "content": QUESTION}]


def messages(count: int) -> list[Any]:
    kinds = (HumanMessage, AIMessage)
    return [*(kinds[i % 2](text) for i, text in enumerate(texts(count))), HumanMessage(QUESTION)]


def chat(count: int) -> list[ChatMessage]:
    return [ChatMessage(role=m["role"], content=m["content"]) for m in dicts(count)]


def examples(count: int) -> list[dict[str, str]]:
    return [{"input": text, "output": WORDS[i % 10]} for i, text in enumerate(texts(count))]


def slots(count: int) -> dict[str, Any]:
    documents = [Document(page_content=text) for text in texts(count)]
    return {"history": messages(100), "documents": documents, "question": QUESTION}


def last_turns(said: list[Any]) -> None:
    session = BudgetSession(ROOM)
    for size in range(len(said) - 20, len(said)):
        session.fit(said[:size])


def buffer(count: int) -> Any:
    memory = li.BudgetChatMemoryBuffer.from_defaults(token_limit=ROOM)
    memory.set(chat(count))
    return memory


PROMPT = ChatPromptTemplate(
    [("system", "Use {documents}"), MessagesPlaceholder("history"), ("human", "{question}")]
)
FIVE = TokenBudget.five_blocks("gpt-4")
LLM = li.budget_model(MockLLM(is_chat_model=True), max_tokens=ROOM)
WAYS: dict[str, tuple[Callable[[Any], Any], Callable[[int], Any]]] = {
    "fit_messages": (lambda m: fit_messages(m, max_tokens=ROOM), dicts),
    "fit_messages, half": (lambda m: fit_messages(m, max_tokens=len(m) * 8, counter=COUNTER), dicts),
    "fit_messages, stable": (lambda m: fit_messages(m, max_tokens=ROOM, cut="stable"), dicts),
    "fit_messages, query": (lambda m: fit_messages(m, max_tokens=ROOM, query=QUESTION), dicts),
    "fit_messages, one long message": (
        lambda m: fit_messages(m, max_tokens=ROOM),
        lambda n: [
            {"role": "user", "content": " ".join(t.capitalize() for t in texts(n))},
            {"role": "assistant", "content": "Noted."},
            {"role": "user", "content": QUESTION},
        ],
    ),
    "decisions": (lambda m: list(fit_messages(m, max_tokens=ROOM).report.decisions), dicts),
    "session": (last_turns, dicts),
    "fit_documents": (lambda s: fit_documents(s, max_tokens=ROOM, query=QUESTION), segments),
    "fit_documents, half": (
        lambda s: fit_documents(s, max_tokens=len(s) * 6, query=QUESTION, counter=COUNTER),
        segments,
    ),
    "fit_text": (lambda s: fit_text("\n".join(t.text for t in s), max_tokens=500, query=QUESTION), segments),
    "Assembler": (
        lambda s: Assembler(ROOM).assemble({"knowledge": s, "history": dicts(100)}, query=QUESTION),
        segments,
    ),
    "BlockAssembler": (lambda s: BlockAssembler(FIVE).assemble("a", "b", "c", dicts(50), s), segments),
    "BlockAssembler, history": (lambda m: BlockAssembler(FIVE).assemble("a", "b", "c", m), dicts),
    "build_constrained_prompt": (
        lambda s: build_constrained_prompt("a", QUESTION, dicts(50), [t.text for t in s], 6_000),
        segments,
    ),
    "FewShotSelector": (lambda e: FewShotSelector().select(QUESTION, e, max_tokens=500), examples),
    "ContextAnalyzer": (
        lambda s: ContextAnalyzer().analyze({"document": "\n\n".join(t.text for t in s)}, QUESTION),
        segments,
    ),
    "PromptCompressor": (
        lambda s: PromptCompressor().compress(" ".join(t.text for t in s), 1_000, query=QUESTION),
        segments,
    ),
    "BudgetTrimmer": (lambda m: lc.BudgetTrimmer(max_tokens=ROOM).invoke(m), messages),
    "BudgetTrimmer, slots": (lambda s: lc.BudgetTrimmer(max_tokens=ROOM, prompt=PROMPT).invoke(s), slots),
    "trim_messages": (lambda m: lc.trim_messages(m, max_tokens=ROOM, token_counter=COUNTER), messages),
    "BudgetDocumentCompressor": (
        lambda s: lc.BudgetDocumentCompressor(max_tokens=ROOM).compress_documents(s["documents"], QUESTION),
        slots,
    ),
    "BudgetMessageHistory": (
        lambda h: lc.BudgetMessageHistory(h, max_tokens=ROOM).messages,
        lambda n: InMemoryChatMessageHistory(messages=messages(n)),
    ),
    "BudgetChatMemoryBuffer": (lambda memory: memory.get(), buffer),
    "BudgetNodePostprocessor": (
        lambda nodes: li.BudgetNodePostprocessor(max_tokens=ROOM).postprocess_nodes(
            nodes, query_str=QUESTION
        ),
        lambda n: [NodeWithScore(node=TextNode(text=text), score=0.5) for text in texts(n)],
    ),
    "budget_model": (LLM.chat, chat),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_time_grows_with_the_number_of_pieces(way: str) -> None:
    """Messages, documents, nodes and examples, ten thousand against a thousand."""
    work, make = WAYS[way]
    found = growth(work, make, short=1_000, times=10, most=14)
    assert found.linear, found
