"""A stored conversation for agents (needs the extra `agents`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Annotated, Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.runnables import ensure_config
from typing_extensions import NotRequired, Unpack, override

from rankbudget import Scope, TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import HistoryStore

from ._codec import CODEC, EDITED, MARK
from ._options import LimitOptions, checked
from ._supported import require
from .agents import thread_id
from .message_history import BudgetMessageHistory, Store
from .stored_history import NamedMessageHistory

require("langchain.agents.middleware", needed_by="StoredThreadMiddleware")
from langchain.agents.middleware import AgentMiddleware, AgentState  # noqa: E402 - as above
from langchain.agents.middleware.types import PrivateStateAttr  # noqa: E402 - the same
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # noqa: E402 - comes with langchain

_LOADED = "rankbudget-stored-"
_CHECKPOINTER = "__pregel_checkpointer"
"""Where LangGraph holds the checkpointer of a run."""
_SUMMARIES = ("summary", "summarization")
"""How our summaries and those of LangChain's middleware are marked."""


class ThreadState(AgentState[Any]):
    """The state of a run, with what was loaded into it, and what it said, whatever is removed later."""

    stored_ids: NotRequired[Annotated[list[str], PrivateStateAttr]]
    said: NotRequired[Annotated[list[BaseMessage], PrivateStateAttr]]


class StoredThreadMiddleware(AgentMiddleware[ThreadState, Any, Any]):
    """Begins each run with what fits of a stored conversation, and stores what the run added.

    The run's `thread_id` names the conversation. It is for agents without a checkpointer, also of a graph
    around them, which would keep the same conversation a second time. A client may send messages again:
    what is stored under their ids is known, what was edited replaces the stored one, and what is stored
    behind the last of them is not sent.
    Put this middleware first: it then stores what others remove from the state, and no summary that they
    write. A run that fails stores nothing.

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

    def _history(self, scope: Scope, name: str, gone: frozenset[str] = frozenset()) -> BaseChatMessageHistory:
        stored = NamedMessageHistory(self.store, name, scope=scope)
        if not gone:
            return stored
        branch = Store()
        branch.messages = [message for message in stored.messages if message.id not in gone]
        return branch

    def _of(self, runtime: Any) -> tuple[Scope, str]:
        """Returns whose conversation runs, and its name."""
        name = thread_id()
        if name is None:
            msg = (
                'a run must have a thread_id (got none). Pass config={"configurable": {"thread_id": ...}} to '
                "invoke."
            )
            raise BudgetConfigError(msg)
        if ensure_config().get("configurable", {}).get(_CHECKPOINTER) is not None:
            msg = (
                "StoredThreadMiddleware must run without a checkpointer (got one): both keep the "
                "conversation, and an edit in one would not be in the other. Leave out either of them."
            )
            raise BudgetConfigError(msg)
        return (self.scope(runtime) if callable(self.scope) else self.scope), str(name)

    @override
    def before_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        scope, name = self._of(runtime)
        asked, gone = self._compared(scope, name, state)
        return _begun(self._fitted(scope, name, gone).messages, asked)

    @override
    async def abefore_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        scope, name = self._of(runtime)
        asked, gone = await asyncio.to_thread(self._compared, scope, name, state)
        branch = await asyncio.to_thread(self._fitted, scope, name, gone)
        return _begun(await branch.aget_messages(), asked)

    @override
    def before_model(self, state: ThreadState, runtime: Any) -> dict[str, Any] | None:
        """Remembers what the run said so far, before other middleware removes some of it."""
        said = _said(state)
        return None if list(map(id, said)) == list(map(id, state.get("said", ()))) else {"said": said}

    @override
    def after_agent(self, state: ThreadState, runtime: Any) -> None:
        self._history(*self._of(runtime)).add_messages(_said(state))

    @override
    async def aafter_agent(self, state: ThreadState, runtime: Any) -> None:
        await asyncio.to_thread(self._history(*self._of(runtime)).add_messages, _said(state))

    def _compared(
        self, scope: Scope, name: str, state: ThreadState
    ) -> tuple[list[BaseMessage], frozenset[str]]:
        """Returns what is asked, and which stored messages are not loaded; stores what the client has edited.

        Asked is what is not stored, and a question that is asked again with what follows it. What is stored
        behind the last message that is sent again is not loaded: the client goes on before it.
        """
        thread = NamedMessageHistory(self.store, name, scope=scope).thread
        if edited := thread.changed([m for m in state["messages"] if not _is_shortened(m)]):
            thread.append(edited)
        here = {str(message.id) for message in state["messages"]}
        known = thread.stored(here)
        gone: set[str] = set()
        for message in reversed(thread.conversation()):
            if not known or message.id in known:
                break
            gone.add(message.id)
        again = known & {str(message.id) for message in _newest_turn(state["messages"])}
        asked = [message for message in thread.conversation() if message.id in again] if again else []
        asked += [message for message in _said(state) if message.id not in known]
        return asked, frozenset(gone | again)


def _begun(stored: Sequence[BaseMessage], asked: Sequence[BaseMessage]) -> dict[str, Any]:
    """Returns a state with the stored messages first."""
    for number, message in enumerate(stored):
        message.id = message.id or f"{_LOADED}{number}"
    messages = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *stored, *asked]
    return {"messages": messages, "stored_ids": [str(message.id) for message in stored], "said": [*asked]}


def _is_shortened(message: BaseMessage) -> bool:
    return message.additional_kwargs.get(MARK) == EDITED


def _newest_turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Returns the newest question with what follows it."""
    asked = [number for number, message in enumerate(messages) if CODEC.role(message) == "user"]
    return messages[asked[-1] :] if asked else []


def _said(state: ThreadState) -> list[BaseMessage]:
    """Returns what was said and not loaded, as it was last said: no summary, and nothing cut for a prompt."""
    loaded, said = set(state.get("stored_ids", ())), {m.id: m for m in state.get("said", ())}
    for message in state["messages"]:
        is_summary = message.additional_kwargs.get(MARK) in _SUMMARIES
        if message.id in loaded or is_summary or (_is_shortened(message) and message.id in said):
            continue
        said[message.id] = message
    return list(said.values())
