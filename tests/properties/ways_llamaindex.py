"""LlamaIndex's stateful entry points, opened alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.storage.chat_store import SimpleChatStore

import llamaindex_budget as ib
from llamaindex_budget import use_session
from llamaindex_budget.blocks import BudgetMemoryBlock
from rankbudget import BudgetSession, TokenBudget
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM
from tests.parity import doors_llamaindex as li
from tests.properties.ways import COUNTER, PerUser, Rows, Thread, run_until_done


def rows(found: Sequence[ChatMessage]) -> Rows:
    return [row[:2] for row in li.rows(found)]


class Buffer(PerUser):
    """One chat store for all users, a memory with a key of its own for each."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.store = SimpleChatStore()

    def make(self, user: str) -> Any:
        return ib.BudgetChatMemoryBuffer.from_defaults(
            token_limit=self.limit,
            counter=COUNTER,
            chat_store=self.store,
            chat_store_key=user,
            **self.options,
        )

    def read(self, user: str, thread: Thread) -> Rows:
        self.store.set_messages(user, li.messages(thread))
        return rows(self.of(user).get())

    def empty(self) -> None:
        self.store.store.clear()


class BlockMemory(PerUser):
    """A memory with a block for each user, over one store."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.store = ListStore()

    def make(self, user: str) -> Any:
        return ib.BudgetMemory.from_defaults(
            token_limit=self.limit,
            counter=COUNTER,
            session_id=user,
            chat_store=self.store,
            memory_blocks=[BudgetMemoryBlock(name="house", text="The door is red.")],
        )

    async def aread(self, user: str, thread: Thread) -> Rows:
        await self.store.set_messages(user, li.messages(thread))
        return rows(await self.of(user).aget())

    def read(self, user: str, thread: Thread) -> Rows:
        return run_until_done(self.aread(user, thread))

    def empty(self) -> None:
        run_until_done(self.store.delete_messages("ann"))


class FunctionAgent(PerUser):
    """One agent for all users, each with a memory of their own."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.llm = PlayLLM(requests=[], steps=[], window=limit + 64, reply=64)
        budget = TokenBudget(context_window=limit, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)
        self.agent = ib.BudgetFunctionAgent(
            llm=self.llm, tools=[], budget=budget, counter=COUNTER, streaming=False, **self.options
        )

    def make(self, user: str) -> Any:
        return ib.BudgetChatMemoryBuffer.from_defaults(token_limit=10**6, counter=COUNTER)

    async def aread(self, user: str, thread: Thread) -> Rows:
        memory = self.of(user)
        await memory.aset(li.messages(thread[:-1]))
        await self.agent.run(thread[-1]["content"], memory=memory)
        return rows(_asked(self.llm, thread[-1]["content"]))

    def read(self, user: str, thread: Thread) -> Rows:
        return run_until_done(self.aread(user, thread))

    def empty(self) -> None:
        self.llm.requests.clear()
        for memory in self.users.values():
            memory.chat_store.store.clear()


class Engine(PerUser):
    """One context engine's parts for all users, a session for each call."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.llm = PlayLLM(requests=[], steps=[], window=10**7, reply=64)
        self.post = ib.BudgetNodePostprocessor(counter=COUNTER)

    def make(self, user: str) -> Any:
        session = BudgetSession(self.limit, counter=COUNTER, **self.options)
        memory = ib.BudgetChatMemoryBuffer.from_defaults(session=session)
        engine = ContextChatEngine.from_defaults(
            retriever=FixedRetriever([NodeWithScore(node=TextNode(text="Tea is hot."), score=0.5)]),
            llm=self.llm,
            memory=memory,
            node_postprocessors=[self.post],
            context_template="{context_str}",
            context_refine_template="{context_msg}{existing_answer}",
        )
        return session, memory, engine

    def read(self, user: str, thread: Thread) -> Rows:
        return run_until_done(self.aread(user, thread))

    async def aread(self, user: str, thread: Thread) -> Rows:
        session, memory, engine = self.of(user)
        await memory.aset(li.messages(thread[:-1]))
        with use_session(session):
            await engine.achat(thread[-1]["content"])
        return rows(_asked(self.llm, thread[-1]["content"]))

    def empty(self) -> None:
        self.llm.requests.clear()
        for _, memory, _ in self.users.values():
            memory.chat_store.store.clear()


def _asked(llm: PlayLLM, question: str) -> list[ChatMessage]:
    return next(found for found, _ in reversed(llm.requests) if found[-1].content == question)
