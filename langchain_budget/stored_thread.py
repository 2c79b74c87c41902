"""A stored conversation for agents (needs the extra `agents`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

from langchain_core.messages import BaseMessage, RemoveMessage
from langchain_core.runnables import RunnableLambda, ensure_config
from typing_extensions import NotRequired, Unpack, override

from rankbudget import Scope, TokenBudget
from rankbudget.adapters import SUMMARY_START
from rankbudget.errors import BudgetConfigError
from rankbudget.memory import HistoryStore, ThreadMessages
from rankbudget.memory.reading import of_one_state

from ._codec import CODEC, EDITED, MARK
from ._convert import last_question
from ._options import LimitOptions, checked
from ._supported import require
from .agents import thread_id
from .memories import scope_of
from .message_history import BudgetMessageHistory, Store
from .stored_history import NamedMessageHistory, history_store

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
    """The state of a run, with what was loaded into it, and what it said, whatever is removed later.

    What is stored at the end behind the message `after`, else behind those `asked`, is replaced.
    """

    stored_ids: NotRequired[Annotated[list[str], PrivateStateAttr]]
    said: NotRequired[Annotated[list[BaseMessage], PrivateStateAttr]]
    after: NotRequired[Annotated[str, PrivateStateAttr]]
    asked: NotRequired[Annotated[list[str], PrivateStateAttr]]


class StoredThreadMiddleware(AgentMiddleware[ThreadState, Any, Any]):
    """Begins each run with what fits of a stored conversation, and stores what the run added.

    The run's `thread_id` names the conversation. It is for agents without a checkpointer, also of a graph
    around them, which would keep the same conversation a second time. A client may send messages again:
    what is stored under their ids is known, and what was edited replaces the stored one. A text that was
    only shortened for a prompt, with marks as `...` where it is cut, is no edit. A client without ids
    sends only what is new. The run goes on behind the last of them, as after an edited question, or one
    that is sent again for another answer: what is stored behind that is not sent, and is `replaced` when
    the run stores its result.
    Put this middleware first: it then stores what others remove from the state, and no summary that they
    write. A run that fails or is stopped stores nothing, but for edits of a conversation that is sent again
    to its end.

    Args:
        store: the `HistoryStore`.
        scope: whose conversations they are, or a function that says so of a run's `Runtime`; the run's config
            is in `ensure_config()` of langchain-core.
        budget: the limits of what is loaded.
        limits: model, max_tokens, context_window, counter, summarizer and summary_timeout, as in
            `BudgetTrimmer`.

    Raises:
        BudgetConfigError: an argument is wrong.

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
        self.store = history_store(store)
        self.scope = scope
        options: dict[str, Any] = {"budget": budget, **limits}
        self._fitted = BudgetMessageHistory.around(self._history, **options)

    def _history(self, scope: Scope, name: str) -> NamedMessageHistory:
        return NamedMessageHistory(self.store, name, scope=scope)

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
        return scope_of(self.scope, runtime, "Runtime"), str(name)

    @override
    def before_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        loaded, begun = self._begun(runtime, state)
        return _not_streamed(_with(loaded.messages, begun))

    @override
    async def abefore_agent(self, state: ThreadState, runtime: Any) -> dict[str, Any]:
        loaded, begun = await asyncio.to_thread(self._begun, runtime, state)
        return _not_streamed(_with(await loaded.aget_messages(), begun))

    @override
    def before_model(self, state: ThreadState, runtime: Any) -> dict[str, Any] | None:
        """Remembers what the run said so far, before other middleware removes some of it."""
        said = _said(state)
        return None if list(map(id, said)) == list(map(id, state.get("said", ()))) else {"said": said}

    @override
    def after_agent(self, state: ThreadState, runtime: Any) -> None:
        self._store_run(*self._of(runtime), state)

    @override
    async def aafter_agent(self, state: ThreadState, runtime: Any) -> None:
        await asyncio.to_thread(self._store_run, *self._of(runtime), state)

    def _store_run(self, scope: Scope, name: str, state: ThreadState) -> None:
        asked, after = state.get("asked", ()), state.get("after")
        self._history(scope, name).thread.append(_said(state), after=after, asked=asked)

    def _begun(self, runtime: Any, state: ThreadState) -> tuple[BudgetMessageHistory, dict[str, Any]]:
        return of_one_state(partial(self._begin, *self._of(runtime), state))

    def _begin(
        self, scope: Scope, name: str, state: ThreadState
    ) -> tuple[BudgetMessageHistory, dict[str, Any]]:
        """Returns what is loaded, and the state with what is asked.

        Asked is what is not stored, and a question that is asked again with what follows it. If the client
        goes on before the end, the store keeps all as it is until the run has a result; else edits are
        stored now.
        """
        thread, loaded = self._history(scope, name).thread, self._fitted(scope, name)
        thread._take_over()  # noqa: SLF001 - not public: each message of the state is found by its id
        edits = thread.changed([m for m in state["messages"] if not _is_shortened(m)])
        stored = thread.conversation()
        known = stored.places(_ids(state["messages"]))
        end = max(known.values(), default=len(stored) - 1) + 1
        start = min([known[i] for i in _ids(_newest_turn(state["messages"])) if i in known], default=end)
        new = {str(message.id): message for message in edits}
        asked = [new.get(message.id, message) for message in stored[start:end]]
        asked += [message for message in _said(state) if message.id not in known]
        list(map(thread.form.row, asked))  # what cannot be stored fails before the run rather than after it
        awaited = not asked or CODEC.role(asked[0]) == "tool"  # may be results of stored calls
        loaded.results_next = awaited
        loaded._question = last_question(asked) or (None if awaited else "")  # noqa: SLF001 - its own kind
        begun = {"messages": asked, "said": asked}
        if end < len(stored):
            begun = {"messages": asked, "said": [*edits, *asked], "after": stored[end - 1].id}
        elif edits:
            thread.edit(edits)
            stored = thread.conversation()
        if start < len(stored):
            loaded.history = _Before(stored.until(start, new))
        return loaded, begun


class _Before(Store):
    """What is stored before the message with which a run goes on."""

    def __init__(self, stored: ThreadMessages) -> None:
        super().__init__()
        self._stored = stored

    def conversation(self, tokens: int) -> ThreadMessages:  # noqa: ARG002 - as of a stored history
        return self._stored


def _with(loaded: Sequence[BaseMessage], begun: dict[str, Any]) -> dict[str, Any]:
    """Returns the state `begun` with the loaded messages first."""
    for number, message in enumerate(loaded):
        message.id = message.id or f"{_LOADED}{number}"
    asked = begun["messages"]
    messages = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *loaded, *asked]
    ids = {"stored_ids": [str(message.id) for message in loaded], "asked": [str(m.id) for m in asked]}
    return {**begun, **ids, "messages": messages}


def _not_streamed(begun: dict[str, Any]) -> dict[str, Any]:
    """Returns the state `begun`, whose messages `stream_mode="messages"` takes for old ones.

    It emits what a node of the graph adds, but for messages that the node was given; so a node of its name
    is given them.
    """
    name = ensure_config().get("metadata", {}).get("langgraph_node")
    if name is not None:
        RunnableLambda[Any, None](lambda given: None, name=name).invoke(begun)
    return begun


def _ids(messages: Sequence[BaseMessage]) -> set[str]:
    return {str(message.id) for message in messages}


def _is_shortened(message: BaseMessage) -> bool:
    return message.additional_kwargs.get(MARK) == EDITED


def _is_summary(message: BaseMessage) -> bool:
    """Returns whether a message is a summary, also where a client sends only its text again."""
    return message.additional_kwargs.get(MARK) in _SUMMARIES or message.text.startswith(SUMMARY_START)


def _newest_turn(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """Returns the newest question with what follows it."""
    asked = [number for number, message in enumerate(messages) if CODEC.role(message) == "user"]
    return messages[asked[-1] :] if asked else []


def _said(state: ThreadState) -> list[BaseMessage]:
    """Returns what was said and not loaded, as it was last said: no summary, and nothing cut for a prompt."""
    loaded, said = set(state.get("stored_ids", ())), {m.id: m for m in state.get("said", ())}
    for message in state["messages"]:
        if message.id in loaded or _is_summary(message) or (_is_shortened(message) and message.id in said):
            continue
        said[message.id] = message
    return list(said.values())
