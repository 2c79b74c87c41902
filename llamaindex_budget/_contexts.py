"""What an agent's context does with a memory: the next run has the live one, or the one it is given.

LlamaIndex's workflows write and read all of a context between two runs, copy it for `edit_state`, and use
what it held before although a run is given another memory. Only the calling functions tell which it is.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

T = TypeVar("T")
_LIVE: WeakValueDictionary[str, Any] = WeakValueDictionary()
_HERE = uuid4().hex  # nobody outside of this process can guess it
_OWN = ("to_dict", "_with_settings", "__deepcopy__")


def live_data(memory: Any) -> dict[str, Any] | None:
    """Returns what finds the memory again where its context goes on in this process; None elsewhere."""
    if "_workflow_run" not in workflow_callers():
        return None
    key = f"{_HERE}-{id(memory)}"
    _LIVE[key] = memory
    return {"live": key}


def live_memory(_: type[T], data: Any) -> T | None:
    """Returns the memory that `live_data` wrote; None for other data."""
    return _LIVE.get(data["live"]) if isinstance(data, dict) and "live" in data else None


def workflow_callers() -> list[str]:
    """Returns the functions of LlamaIndex's workflows that write or copy a memory, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the caller
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("workflows."):
            found.append(frame.f_code.co_name)
        elif found or (module not in {__name__, "copy"} and frame.f_code.co_name not in _OWN):
            break
        frame = frame.f_back
    return found


def given_memory() -> Any:
    """Returns the memory that a run is given, where the run asks whether its context has one; else None."""
    asking = sys._getframe(2)  # noqa: SLF001 - the caller of `__bool__`
    started = asking.f_locals.get("ev") if asking.f_code.co_name == "_init_context" else None
    return getattr(started, "memory", None)
