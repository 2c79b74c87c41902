"""Entry points that read a thread beside a question which is not stored yet, so that the room varies from turn to turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from llama_index.core.storage.chat_store import SimpleChatStore

import langchain_budget as lb
import llamaindex_budget as ib
from rankbudget import Assembler, BudgetSession, TokenBudget
from tests.llamaindex.models import ListStore
from tests.parity import doors_langchain as lc
from tests.parity import doors_llamaindex as li
from tests.properties import ways_langchain as wl
from tests.properties.stateful import core_rows
from tests.properties.ways import COUNTER, Rows, plain, run_until_done

Ask = Callable[[list[Any], str], Rows]
"""Reads a thread beside a question that is not stored yet."""
ROOM = 5000
WHOLE = TokenBudget(context_window=ROOM, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)


def session_way() -> Ask:
    session = BudgetSession(ROOM, counter=COUNTER)
    return lambda thread, question: core_rows(session.fit(plain(thread), question=question).messages)


def assembler_way() -> Ask:
    made = Assembler(WHOLE, counter=COUNTER, session=BudgetSession(ROOM, counter=COUNTER))
    return lambda thread, question: core_rows(
        made.assemble({"history": plain(thread)}, query=question).history
    )


def trimmer_way() -> Ask:
    made = lb.BudgetTrimmer(budget=WHOLE, counter=COUNTER, session=BudgetSession(ROOM, counter=COUNTER))

    def ask(thread: list[Any], question: str) -> Rows:
        found = made.invoke({"history": lc.messages(thread), "question": question})
        return [row[:2] for row in lc.rows(found["history"])]

    return ask


def memory_way() -> Ask:
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), ("human", "{input}")])
    limits: dict[str, Any] = {"max_tokens": ROOM, "counter": COUNTER, "prompt": prompt}
    made = lb.BudgetMemory(**limits, return_messages=True, chat_memory=wl.Store(), input_key="input")

    def ask(thread: list[Any], question: str) -> Rows:
        made.chat_memory.messages = lc.messages(thread)
        return [row[:2] for row in lc.rows(made.load_memory_variables({"input": question})["history"])]

    return ask


def middleware_way() -> Ask:
    """The room that varies is that of a tool's schema, which another middleware sends along."""
    model, described = wl.Recorder(), [""]

    @wrap_model_call
    def with_tool(request: Any, handler: Any) -> Any:
        function = {"name": "look", "description": described[0], "parameters": {}}
        return handler(request.override(tools=[{"type": "function", "function": function}]))

    budget = lb.BudgetMiddleware(max_tokens=ROOM, counter=COUNTER)
    agent: Any = create_agent(model, middleware=[with_tool, budget])

    def ask(thread: list[Any], question: str) -> Rows:
        described[0] = question
        agent.invoke({"messages": [*lc.messages(thread), HumanMessage("go on", id="last")]})
        return [row[:2] for row in lc.rows(model.seen["go on"][:-1])]

    return ask


def buffer_way() -> Ask:
    store = SimpleChatStore()
    made = ib.BudgetChatMemoryBuffer.from_defaults(token_limit=ROOM, counter=COUNTER, chat_store=store)

    def ask(thread: list[Any], question: str) -> Rows:
        store.set_messages(made.chat_store_key, li.messages(thread))
        return [row[:2] for row in li.rows(made.get(question))]

    return ask


def block_memory_way() -> Ask:
    store = ListStore()
    made = ib.BudgetMemory.from_defaults(
        token_limit=ROOM, counter=COUNTER, session_id="ann", chat_store=store
    )

    async def read(thread: list[Any], question: str) -> Rows:
        await store.set_messages("ann", li.messages(thread))
        return [row[:2] for row in li.rows(await made.aget(question))]

    return lambda thread, question: run_until_done(read(thread, question))


ASKING = [
    session_way,
    assembler_way,
    trimmer_way,
    memory_way,
    middleware_way,
    buffer_way,
    block_memory_way,
]
