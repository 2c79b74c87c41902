"""LlamaIndex's entry points as doors, and LlamaIndex's messages and nodes of a drawn case."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import CompactAndRefine
from llama_index.core.schema import NodeWithScore, TextNode

import llamaindex_budget as ib
from llamaindex_budget import use_session
from llamaindex_budget._codec import CODEC
from rankbudget import BudgetSession, TokenBudget, counter_for
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM
from tests.parity.doors_core import Row, example_rows, examples_room, summarize
from tests.parity.doors_langchain import CONTEXT, QUERY
from tests.parity.draws import Case

_REFINE = (
    "{context_msg}\n{existing_answer}"  # shorter than what the other host is given, so that it never binds
)
_BEYOND = 8_000
"""How much larger the model's window is than the budget, so that the host's own limits never bind."""


def messages(given: Sequence[dict[str, Any]]) -> list[ChatMessage]:
    """Returns OpenAI-style dicts as LlamaIndex messages."""
    made = []
    for m in given:
        blocks: list[Any] = [TextBlock(text=m["content"])] if m["content"] else []
        for call in m.get("tool_calls") or ():
            function = call["function"]
            blocks.append(
                ToolCallBlock(
                    tool_call_id=call["id"],
                    tool_name=function["name"],
                    tool_kwargs=json.loads(function["arguments"]),
                )
            )
        extra = {"tool_call_id": m["tool_call_id"]} if "tool_call_id" in m else {}
        made.append(ChatMessage(role=m["role"], blocks=blocks, additional_kwargs=extra))
    return made


def rows(found: Sequence[ChatMessage]) -> list[Row]:
    """Returns messages as role, text and the ids of their calls or of the call they answer."""
    made = []
    for m in found:
        calls = [b.tool_call_id or "" for b in m.blocks if isinstance(b, ToolCallBlock)]
        calls += [m.additional_kwargs["tool_call_id"]] if "tool_call_id" in m.additional_kwargs else []
        made.append((m.role.value, m.content or "", tuple(calls)))
    return made


def nodes(case: Case) -> list[NodeWithScore]:
    """Returns the drawn documents as nodes with their retriever's scores."""
    return [NodeWithScore(node=TextNode(id_=d.id, text=d.text), score=d.score) for d in case.documents]


def node_rows(found: Sequence[NodeWithScore]) -> list[tuple[str, str]]:
    """Returns nodes as id and text; one that an engine keeps without a text says nothing."""
    return [(n.node.node_id, n.node.get_content()) for n in found if n.node.get_content()]


def _llm(case: Case) -> PlayLLM:
    budget = case.budget
    window, reply = (
        (budget.context_window, budget.reserve_tokens()) if isinstance(budget, TokenBudget) else (budget, 64)
    )
    return PlayLLM(window=window + _BEYOND, reply=max(2, reply), requests=[], steps=[])


def _limits(case: Case) -> dict[str, Any]:
    return {"token_limit" if case.bare else "budget": case.budget, "counter": case.counter}


def _shared(case: Case) -> BudgetSession:
    return BudgetSession(case.budget, counter=case.counter)


# ---- a stored thread ---------------------------------------------------------------------------------------
def _reading(case: Case, ask: Any, made: Any, *, asked: bool) -> Iterator[dict[str, Any]]:
    stored = 0
    for turn, question in enumerate(case.questions):
        thread = messages(case.thread(turn, asked=asked))
        if stored < len(thread):
            ask(made, "put_messages", thread[stored:])
        stored = len(thread)
        yield {"history": rows(ask(made, "get", None if asked else question))}


def buffer(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _reading(case, ask, ib.BudgetChatMemoryBuffer.from_defaults(**_limits(case)), asked=True)


def buffer_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _reading(case, ask, ib.BudgetChatMemoryBuffer.from_defaults(**_limits(case)), asked=False)


def buffer_summarizing(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = ib.BudgetChatMemoryBuffer.from_defaults(**_limits(case), summarizer=summarize)
    return _reading(case, ask, made, asked=True)


def _blocks(case: Case, **options: Any) -> ib.BudgetMemory:
    return ib.BudgetMemory.from_defaults(chat_store=ListStore(), **options)


def buffer_asked_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = ib.BudgetChatMemoryBuffer.from_defaults(**_limits(case), prompt=case.system)
    return _reading(case, ask, made, asked=False)


def block_memory(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _reading(case, ask, _blocks(case, **_limits(case)), asked=True)


def block_memory_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _reading(case, ask, _blocks(case, **_limits(case)), asked=False)


def agent(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    budget = case.budget
    if not isinstance(budget, TokenBudget):
        budget = TokenBudget(context_window=budget, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)
    made = ib.BudgetFunctionAgent(llm=_llm(case), tools=[], budget=budget, counter=case.counter)
    for turn in range(len(case.questions)):
        yield {"history": rows(ask.wait(made.fit(messages(case.thread(turn, asked=True)))))}


# ---- parts by hand -----------------------------------------------------------------------------------------
def _by_hand(case: Case, ask: Any, memory: Any, post: Any) -> Iterator[dict[str, Any]]:
    stored = 0
    for turn, question in enumerate(case.questions):
        thread = messages(case.thread(turn))
        if stored < len(thread):
            ask(memory, "put_messages", thread[stored:])
        stored = len(thread)
        kept = ask(post, "postprocess_nodes", nodes(case), query_str=question)
        yield {"history": rows(ask(memory, "get", question)), "documents": node_rows(kept)}


def parts_by_hand(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    shared = _shared(case)
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=shared)
    return _by_hand(case, ask, memory, ib.BudgetNodePostprocessor(session=shared))


def parts_by_hand_blocks(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    memory = _blocks(case, **_limits(case))
    return _by_hand(case, ask, memory, ib.BudgetNodePostprocessor(memory=memory, counter=case.counter))


# ---- engines -----------------------------------------------------------------------------------------------
def _chatting(
    case: Case, ask: Any, memory: Any, make: Callable[[PlayLLM], Any], *, using: BudgetSession | None = None
) -> Iterator[dict[str, Any]]:
    """Chats turn by turn: history and documents are read from what the model was asked and from the response."""
    memory.set(messages(case.thread(0)))
    llm = _llm(case)
    engine = make(llm)
    for question, answer in zip(case.questions, case.answers, strict=True):
        llm.answer = answer
        llm.requests.clear()
        with use_session(using) if using is not None else contextlib.nullcontext():
            response = ask(engine, "chat", question)
        kept: dict[str, Any] = {"_calls": len(llm.requests), "_documents": len(case.documents)}
        if llm.requests:
            kept["history"] = rows(llm.requests[0][0][1:-1])
            kept["total"] = _tokens_sent(case, llm)
            kept["documents"] = node_rows(response.source_nodes)
        yield kept


def _prompt(case: Case) -> ChatPromptTemplate:
    """Returns what the context engines send around history and question."""
    return ChatPromptTemplate(
        [
            ChatMessage(role="system", content=CONTEXT + case.system),
            ChatMessage(role="user", content="{query_str}"),
        ]
    )


def _tokens_sent(case: Case, llm: PlayLLM) -> int:
    """Returns the tokens of the request that the model was sent."""
    return counter_for(case.counter).count_messages([CODEC.to_dict(m) for m in llm.requests[0][0]])


def context_engine(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    shared, prompt = _shared(case), _prompt(case)
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=shared, prompt=prompt)
    post = ib.BudgetNodePostprocessor(session=shared, prompt=prompt)
    return _chatting(case, ask, memory, lambda llm: _context(case, llm, memory, post))


def context_engine_use_session(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    shared, prompt = _shared(case), _prompt(case)
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=shared, prompt=prompt)
    post = ib.BudgetNodePostprocessor(counter=case.counter, prompt=prompt)
    return _chatting(case, ask, memory, lambda llm: _context(case, llm, memory, post), using=shared)


def _context(case: Case, llm: PlayLLM, memory: Any, post: Any) -> Any:
    return ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(case)),
        llm=llm,
        memory=memory,
        node_postprocessors=[post],
        system_prompt=case.system,
        context_template=CONTEXT,
        context_refine_template=_REFINE,
    )


def condense_engine(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    shared, prompt = _shared(case), _prompt(case)
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=shared, prompt=prompt)

    def make(llm: PlayLLM) -> Any:
        return CondensePlusContextChatEngine.from_defaults(
            retriever=FixedRetriever(nodes(case)),
            llm=llm,
            memory=memory,
            node_postprocessors=[ib.BudgetNodePostprocessor(session=shared, prompt=prompt)],
            system_prompt=case.system,
            context_prompt=CONTEXT,
            context_refine_prompt=_REFINE,
            skip_condense=True,
        )

    return _chatting(case, ask, memory, make)


def simple_engine(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=_shared(case), prompt=case.system)
    memory.set(messages(case.thread(0)))
    llm = _llm(case)
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt=case.system)
    for question, answer in zip(case.questions, case.answers, strict=True):
        llm.answer = answer
        llm.requests.clear()
        ask(engine, "chat", question)
        kept = {"history": rows(llm.requests[0][0][1:]), "total": _tokens_sent(case, llm)}
        yield {**kept, "_calls": len(llm.requests), "_documents": 0}


def query_engine(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    memory = ib.BudgetChatMemoryBuffer.from_defaults(session=_shared(case))
    llm = _llm(case)
    engine = RetrieverQueryEngine(
        retriever=FixedRetriever(nodes(case)),
        node_postprocessors=[ib.BudgetNodePostprocessor(memory=memory, prompt=PromptTemplate(QUERY))],
        response_synthesizer=CompactAndRefine(
            llm=llm, text_qa_template=PromptTemplate(QUERY), refine_template=PromptTemplate(_REFINE)
        ),
    )
    stored = 0
    for turn, question in enumerate(case.questions):
        thread = messages(case.thread(turn))
        memory.put_messages(thread[stored:])
        stored = len(thread)
        llm.requests.clear()
        response = ask(engine, "query", question)
        kept = node_rows(response.source_nodes)
        yield {"documents": kept, "_calls": len(llm.requests), "_documents": len(kept)}


# ---- one slot alone ----------------------------------------------------------------------------------------
def postprocessor(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    limits: dict[str, Any] = {"max_tokens" if case.bare else "budget": case.budget}
    return _postprocess(case, ask, ib.BudgetNodePostprocessor(**limits, counter=case.counter))


def postprocessor_session(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _postprocess(case, ask, ib.BudgetNodePostprocessor(session=_shared(case)))


def _postprocess(case: Case, ask: Any, made: Any) -> Iterator[dict[str, Any]]:
    for question in case.questions:
        yield {"documents": node_rows(ask(made, "postprocess_nodes", nodes(case), query_str=question))}


def few_shot(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = ib.few_shot_function(
        list(case.examples),
        max_tokens=examples_room(case),
        max_examples=case.k,
        counter=case.counter,
    )
    for question in case.questions:
        yield {"examples": example_rows(case, [made(query_str=question)])}
