"""What the trimmer and the prompt template share as Runnables: how they travel, and the event that carries their report."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    CallbackManagerForChainRun,
    adispatch_custom_event,
    dispatch_custom_event,
)

from ._limits import Limits
from ._slots import Trimmed
from .models import model_name

__all__ = ["asend_report", "plain_fields", "send_report", "travels"]

EVENT = "context_budget"
"""The name of the custom event that carries the report to `astream_events` and callback handlers."""
_CALLABLES = ("counter", "summarizer", "scorer")


def plain_fields(part: Any, limits: Limits) -> dict[str, Any]:
    """Returns the fields that are plain data on the wire: a budget's own, a model's window and name, tools as the model sees them."""
    plain: dict[str, Any] = {}
    if limits.budget is not None and (part.budget is not None or part.model is not None):
        plain["budget"] = limits.budget.to_dict()
    if part.model is not None:
        plain["model"] = model_name(part.model)
    if limits.tools:
        plain["tools"] = list(limits.tools)
    return plain


def travels(part: Any) -> bool:
    """Says whether a part can be sent: one with a callable of the user's would count or rate otherwise on the other side."""
    given = [getattr(part, name) for name in _CALLABLES]
    return not any(callable(value) and not hasattr(value, "to_json") for value in given)


def send_report(done: Trimmed, run_manager: CallbackManagerForChainRun | None) -> None:
    """Sends the report as a custom event where somebody listens."""
    if run_manager is not None and run_manager.handlers:
        dispatch_custom_event(EVENT, done.event(), config={"callbacks": run_manager.get_child()})


async def asend_report(done: Trimmed, run_manager: AsyncCallbackManagerForChainRun | None) -> None:
    """Sends what `send_report` sends."""
    if run_manager is not None and run_manager.handlers:
        await adispatch_custom_event(EVENT, done.event(), config={"callbacks": run_manager.get_child()})
