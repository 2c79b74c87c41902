"""What a memory or postprocessor takes along when it is copied, pickled or written as plain data: its counter, its session, its summarizer.

What cannot come along is never replaced in silence: a counter by an error, a summarizer by a warning.
"""

from __future__ import annotations

import pickle
import warnings
from typing import Any

from llama_index.core.async_utils import asyncio_run
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore
from llama_index.core.storage.chat_store.sql import SQLAlchemyChatStore

from rankbudget import BudgetSession, TokenBudget
from rankbudget.counting.resolve import named
from rankbudget.errors import BudgetConfigError

from ._convert import CODEC
from ._store import name_of_tokenizer, tokenizer_named

__all__ = [
    "counter_read",
    "counter_written",
    "session_read",
    "session_written",
    "store_read",
    "store_written",
    "summarizer_or_warning",
]


def counter_written(counter: Any) -> str | None:
    """Returns a counter as plain data: by its own name, or by its function's; one that has neither is named as lost.

    Example:
        >>> counter_written("gpt-4o"), counter_written(len), counter_written(lambda text: len(text))
        ('name:gpt-4o', 'function:builtins:len', 'lost:<lambda>')
    """
    if counter is None or isinstance(counter, str):
        return None if counter is None else f"name:{counter}"
    function = name_of_tokenizer(counter) if callable(counter) else None
    if function is not None:
        return f"function:{function}"
    if _has_its_name(counter):
        return f"name:{counter.name}"
    return f"lost:{getattr(counter, 'name', None) or getattr(counter, '__name__', type(counter).__name__)}"


def counter_read(written: str | None) -> Any:
    """Returns the counter that `counter_written` wrote.

    Raises:
        BudgetConfigError: when it is not to be found here, so that no other one counts in its place.
    """
    if written is None:
        return None
    kind, _, name = written.partition(":")
    if kind == "name":
        return name
    if kind == "function":
        return tokenizer_named(name)
    msg = f"the counter {name!r} has no name it could be found by; pass counter= (or session=) where this is loaded, or give counter= a name"
    raise BudgetConfigError(msg)


def session_written(session: BudgetSession) -> dict[str, Any]:
    """Returns the budget, counter and tools of a session as plain data."""
    budget = session.budget.to_dict() if isinstance(session.budget, TokenBudget) else session.budget
    return {
        "budget": budget,
        "counter": counter_written(session.counter),
        "tools": list(session.tools) if session.tools else None,
    }


def session_read(data: dict[str, Any], *, counter: Any = None, summarizer: Any = None) -> BudgetSession:
    """Returns a session like the one `session_written` was given, with another counter if there is one."""
    budget = data["budget"] if isinstance(data["budget"], int) else TokenBudget.from_dict(data["budget"])
    found = counter if counter is not None else counter_read(data.get("counter"))
    return BudgetSession(budget, counter=found, codec=CODEC, tools=data.get("tools"), summarizer=summarizer)


def summarizer_or_warning(summarizer: Any, *, travels: bool) -> Any:
    """Returns a summarizer that can be taken along, else None and says so."""
    if summarizer is None or (travels and _travels(summarizer)):
        return summarizer
    warnings.warn(
        "the summarizer does not travel with the memory; give it again where the memory is loaded",
        UserWarning,
        stacklevel=3,
    )
    return None


def store_written(store: AsyncDBChatStore, session_id: str) -> dict[str, Any]:
    """Returns how to find a store again; one that lives in this process alone comes with the messages of its conversation."""
    if not isinstance(store, SQLAlchemyChatStore):
        return {"store": store}
    engine = store._async_engine  # noqa: SLF001 - an engine that was given is kept nowhere else
    place = {
        "table_name": store.table_name,
        "async_database_uri": store.async_database_uri,
        "db_schema": store.db_schema,
    }
    if engine is not None and engine.url.database not in (None, "", ":memory:"):
        place["async_database_uri"] = engine.url.render_as_string(hide_password=False)
    if not SQLAlchemyChatStore._is_in_memory_uri(place["async_database_uri"]):  # noqa: SLF001 - what the store itself asks
        return {"place": place}
    return {"place": place, "messages": asyncio_run(store.get_messages(session_id, status=None))}


def store_read(data: dict[str, Any], session_id: str) -> AsyncDBChatStore:
    """Returns the store that `store_written` wrote."""
    if "store" in data:
        found: AsyncDBChatStore = data["store"]
        return found
    store = SQLAlchemyChatStore(**data["place"])
    messages: list[ChatMessage] = data.get("messages") or []
    if messages:
        asyncio_run(store.set_messages(session_id, messages))
    return store


def _has_its_name(counter: Any) -> bool:
    """Says whether a counter is the one that its own name finds."""
    name = getattr(counter, "name", None)
    return isinstance(name, str) and named(name) is counter


def _travels(thing: Any) -> bool:
    """Says whether something can be pickled; what cannot be found on the other side, as a lambda, cannot be written either."""
    try:
        pickle.dumps(thing)
    except Exception:  # noqa: BLE001 - a foreign object may refuse in any way
        return False
    return True
