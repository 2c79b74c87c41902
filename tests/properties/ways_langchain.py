"""LangChain's stateful entry points, opened alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

import langchain_budget as lb
from rankbudget import BudgetSession
from tests.parity import doors_langchain as lc
from tests.properties.ways import COUNTER, PerUser, Rows, Thread


class Store(BaseChatMessageHistory):
    """A store that somebody else edits, too."""

    def __init__(self) -> None:
        self.messages: list[BaseMessage] = []

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self.messages = [*self.messages, *messages]

    def clear(self) -> None:
        self.messages = []


class Recorder(BaseChatModel):
    """Answers "ok" and keeps what it was asked, by the last message."""

    seen: dict[str, Any] = Field(default_factory=dict)

    @property
    def _llm_type(self) -> str:
        return "recorder"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.seen[str(messages[-1].text)] = messages
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])


def rows(found: Sequence[BaseMessage]) -> Rows:
    return [row[:2] for row in lc.rows(found)]


class _Stored(PerUser):
    """A way whose messages are in a store for each user."""

    def empty(self) -> None:
        for made in self.users.values():
            store = getattr(made, "chat_memory", None) or getattr(made, "history", None) or made
            store.clear()


class Trimmer(PerUser):
    def make(self, user: str) -> Any:
        session = BudgetSession(self.limit, counter=COUNTER)
        return lb.BudgetTrimmer(max_tokens=self.limit, counter=COUNTER, session=session, **self.options)

    def read(self, user: str, thread: Thread) -> Rows:
        return rows(self.of(user).invoke(lc.messages(thread)))


class Memory(_Stored):
    def make(self, user: str) -> Any:
        return lb.BudgetMemory(
            max_tokens=self.limit,
            counter=COUNTER,
            return_messages=True,
            chat_memory=Store(),
            **self.options,
        )

    def read(self, user: str, thread: Thread) -> Rows:
        made = self.of(user)
        made.chat_memory.messages = lc.messages(thread)
        return rows(made.load_memory_variables({})["history"])


class History(_Stored):
    def make(self, user: str) -> Any:
        return lb.BudgetMessageHistory(Store(), max_tokens=self.limit, counter=COUNTER, **self.options)

    def read(self, user: str, thread: Thread) -> Rows:
        made = self.of(user)
        made.history.messages = lc.messages(thread)
        return rows(made.messages)


class HistoryAround(_Stored):
    """One factory for all users, each with a store of its own."""

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.factory = lb.BudgetMessageHistory.around(
            self.of, max_tokens=limit, counter=COUNTER, **self.options
        )

    def make(self, user: str) -> Any:
        return Store()

    def read(self, user: str, thread: Thread) -> Rows:
        self.of(user).messages = lc.messages(thread)
        return rows(self.factory(user).messages)


class Agent(PerUser):
    """One agent with the middleware for all users."""

    named = True

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.model = Recorder()
        self.middleware = lb.BudgetMiddleware(max_tokens=limit, counter=COUNTER, **self.options)
        self.agent = create_agent(self.model, middleware=[self.middleware])

    def config(self, user: str) -> Any:
        return {"configurable": {"thread_id": user}} if self.named else {}

    def read(self, user: str, thread: Thread) -> Rows:
        self.agent.invoke({"messages": lc.messages(thread)}, self.config(user))
        return rows(self.model.seen[thread[-1]["content"]])

    async def aread(self, user: str, thread: Thread) -> Rows:
        await self.agent.ainvoke({"messages": lc.messages(thread)}, self.config(user))
        return rows(self.model.seen[thread[-1]["content"]])

    def empty(self) -> None:
        self.model.seen.clear()


class AgentUnnamed(Agent):
    """The same without a thread id; the users' messages have the same ids."""

    named = False


class Hook(PerUser):
    """One hook for all users."""

    named = True

    def __init__(self, limit: int, summarizer: Any) -> None:
        super().__init__(limit, summarizer)
        self.hook = lb.pre_model_hook(max_tokens=limit, counter=COUNTER, **self.options)

    def read(self, user: str, thread: Thread) -> Rows:
        config: Any = {"configurable": {"thread_id": user}} if self.named else {}
        return rows(self.hook.invoke({"messages": lc.messages(thread)}, config)["llm_input_messages"])


class HookUnnamed(Hook):
    """The same without a thread id."""

    named = False
