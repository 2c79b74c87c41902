"""The budget as an edit: `ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=8000)])`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from rankbudget import fit_messages
from rankbudget.adapters import ListMeasure

from ._codec import CODEC
from ._counters import HostCounter, host_counter
from ._limits import check_number

__all__ = ["BudgetContextEdit"]


@dataclass(slots=True)
class BudgetContextEdit:
    """Fits the messages in place when they exceed `trigger` tokens.

    Args:
        trigger: most tokens of the messages.
        counter: counts instead of the middleware's own counter, which estimates unless it asks a model.
        cut: "stable" moves the start of what is kept rarely, for prompt caches; "fill" keeps as much as fits.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> messages = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> BudgetContextEdit(trigger=2).apply(messages, count_tokens=len)
        >>> [m.content for m in messages]
        ['three']
    """

    trigger: int = 100_000
    counter: Any = None
    cut: Literal["fill", "stable"] = "stable"

    def __post_init__(self) -> None:
        check_number("trigger", self.trigger, "give the most tokens the messages may have")

    def apply(self, messages: list[Any], *, count_tokens: Callable[[Sequence[BaseMessage]], int]) -> None:
        """Replaces the list's contents by what fits; what is broken is repaired even when it fits."""
        if self.counter is not None:
            host = host_counter(self.counter)
        else:
            text = host_counter(count_tokens, prefer="messages").counter
            host = HostCounter(text, ListMeasure(count_tokens))
        if not messages:
            return
        result = fit_messages(
            messages,
            max_tokens=self.trigger,
            counter=host.counter,
            codec=CODEC,
            measure=host.measure,
            cut=self.cut,
        )
        messages[:] = result.messages
