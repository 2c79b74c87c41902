"""A stored conversation for agents without a checkpointer (needs the extra `agents`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain_core.messages import BaseMessage, RemoveMessage
from typing_extensions import NotRequired, Unpack, override

from rankbudget import Scope, TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import HistoryStore

from ._options import LimitOptions, checked
from ._supported import require
from .agents import thread_id
from .message_history import BudgetMessageHistory
from .stored_history import StoredMessageHistory

require("langchain.agents.middleware", needed_by="StoredThreadMiddleware")
from langchain.agents.middleware import AgentMiddleware, AgentState  # noqa: E402 - as above
from langchain.agents.middleware.types import PrivateStateAttr  # noqa: E402 - the same
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # noqa: E402 - comes with langchain

_LOADED = "rankbudget-stored-"


class ThreadState(AgentState[Any]):
    """The state of a run, with the ids of the messages that were loaded into it."""

    stored_ids: NotRequired[Annotated[list[str], PrivateStateAttr]]


class StoredThreadMiddleware(AgentMiddleware[ThreadState, Any, Any]):
    """Begins each run with what fits of a stored conversation, and stores what the run added.

    The run's `thread_id` names the conversation; no checkpointer is needed. A run that fails stores nothing.

    Args:
        store: the `HistoryStore`.
        scope: whose conversations they are, or a function that says so of a run's `Runtime`.
        budget: the limits of what is loaded.
        limits: model, max_tokens, context_window, counter, summarizer and summary_timeout, as in
            `BudgetTrimmer`.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models.fake_chat_models import FakeListChatModel
        >>> store, ann = HistoryStore(":memory:"), Scope(user="ann")
        >>> stored = StoredThreadMiddleware(store, scope=ann, max_tokens=1000)
        >>> agent = create_agent(FakeListChatModel(responses=["fine"]), middleware=[stored])
        >>> for _ in range(2):
        ...     _ = agent.invoke({"messages": [("human", "hi")]}, {"configurable": {"thread_id": "t"}})
        >>> len(store.thread("t", scope=ann))
        4
    """

    state_schema = ThreadState

    @checked
    def __init__(
        self,
        store: HistoryStore,
        *,
        scope: Scope | Callable[[Any], Scope],
        budget: TokenBudget | None = None,
        **limits: Unpack[LimitOptions],
    ) -> None:
        super().__init__()
        self.tools = []
        self.store = store
        self.scope = scope
        options: dict[str, Any] = {"budget": budget, **limits}
        self._fitted = BudgetMessageHistory.around(self._history, **options)

    def _history(self, scope: Scope, name: str) -> StoredMessageHistory:
        return StoredMessageHistory(self.store, name, scope=scope)

    def _of(self, runtime: Any) -> tuple[Scope, str]:
        """Returns whose conversation runs, and its name."""
        name = thread_id()
        if name is None:
            msg = (
                'a run must have a thread_id (got none). Pass config={"configurable": {"thread_id": ...}} to '
                "invoke."
            )
            raise BudgetConfigError(msg)
        return (self.scope(runtime) if callable(self.scope) else self.scope), str(name)

    @override
    def before_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        return _loaded(self._fitted(*self._of(runtime)).messages, state)

    @override
    async def abefore_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        return _loaded(await self._fitted(*self._of(runtime)).aget_messages(), state)

    @override
    def after_agent(self, state: ThreadState, runtime: Any) -> None:
        self._history(*self._of(runtime)).add_messages(_new(state))

    @override
    async def aafter_agent(self, state: ThreadState, runtime: Any) -> None:
        history = self._history(*self._of(runtime))
        await asyncio.to_thread(history.add_messages, _new(state))


def _loaded(stored: Sequence[BaseMessage], state: ThreadState) -> dict[str, Any]:
    """Returns the state with the stored messages first; what is sent again is taken from the store."""
    for number, message in enumerate(stored):
        message.id = message.id or f"{_LOADED}{number}"
    ids = [str(message.id) for message in stored]
    asked = [message for message in state["messages"] if message.id not in ids]
    messages = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *stored, *asked]
    return {"messages": messages, "stored_ids": ids}


def _new(state: ThreadState) -> list[BaseMessage]:
    loaded = set(state.get("stored_ids", ()))
    return [message for message in state["messages"] if message.id not in loaded]
