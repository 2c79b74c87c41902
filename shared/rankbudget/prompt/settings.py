"""Settings written as plain data and read again; functions are found by name in modules loaded already."""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..budget.token_budget import TokenBudget
from ..counting.resolve import COUNTERS
from ..errors import BudgetConfigError
from ..messages.codec import Codec
from .session import BudgetSession


def function_name(function: Any) -> str | None:
    """Returns "module:name" where that finds the function again, else None.

    Example:
        >>> function_name(len), function_name(lambda: 0)
        ('builtins:len', None)
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name:
        return None
    written = f"{module}:{name}"
    return written if function_named(written) is function else None


def function_named(written: str) -> Any:
    """Returns the function with a name that `function_name` wrote; None when its module is not loaded."""
    module, _, name = written.partition(":")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def write_counter(counter: Any) -> str | None:
    """Returns a counter as plain data: its own name or its function's; one without a name is noted as lost.

    Example:
        >>> write_counter("gpt-4o"), write_counter(len), write_counter(lambda text: len(text))
        ('name:gpt-4o', 'function:builtins:len', 'lost:<lambda>')
    """
    if counter is None or isinstance(counter, str):
        return None if counter is None else f"name:{counter}"
    function = function_name(counter) if callable(counter) else None
    if function is not None:
        return f"function:{function}"
    name = getattr(counter, "name", None)
    if isinstance(name, str) and COUNTERS.get(name) is counter:
        return f"name:{name}"
    return f"lost:{name or getattr(counter, '__name__', type(counter).__name__)}"


def read_counter(written: str | None) -> Any:
    """Returns the counter that `write_counter` wrote.

    Raises:
        BudgetConfigError: it is not found in this process, so that no other one counts in its place.
    """
    if written is None:
        return None
    kind, _, name = written.partition(":")
    found = name if kind == "name" else function_named(name) if kind == "function" else None
    if found is None:
        msg = f"counter {name!r} cannot be found here. Import its module before loading, or pass counter=."
        raise BudgetConfigError(msg)
    return found


def write_session(session: BudgetSession) -> dict[str, Any]:
    """Returns the settings of a session as plain data."""
    budget = session.budget.to_dict() if isinstance(session.budget, TokenBudget) else session.budget
    return {
        "budget": budget,
        "counter": write_counter(session.counter),
        "tools": list(session.tools) if session.tools else None,
        "sources": sorted(session.sources),
        "host_tokens": session.host_tokens,
    }


def read_session(
    data: Mapping[str, Any], *, codec: Codec | None = None, counter: Any = None, summarizer: Any = None
) -> BudgetSession:
    """Returns a session with the settings that `write_session` wrote; it starts without a conversation."""
    budget = data["budget"] if isinstance(data["budget"], int) else TokenBudget.from_dict(data["budget"])
    return BudgetSession(
        budget,
        counter=read_counter(data.get("counter")) if counter is None else counter,
        codec=codec,
        tools=data.get("tools"),
        summarizer=summarizer,
        sources=data.get("sources") or (),
        host_tokens=data.get("host_tokens", 0),
    )


def summarizer_or_warning(summarizer: Any, *, pickled: bool) -> Any:
    """Returns a summarizer that can be written, else None with a warning; plain data cannot hold one."""
    if summarizer is None:
        return None
    with suppress(Exception):  # a foreign object may refuse in any way
        if pickled and pickle.dumps(summarizer):
            return summarizer
    warnings.warn(
        "the summarizer is not picklable or cannot be plain data; pass summarizer= where this is loaded",
        UserWarning,
        stacklevel=3,
    )
    return None
