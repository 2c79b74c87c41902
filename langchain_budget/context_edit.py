"""The budget as an edit: `ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=8000)])`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from langchain_core.messages import BaseMessage

from rankbudget import Block
from rankbudget.adapters import ListMeasure, PromptRequest, drive, plain_budget, plan_steps

from ._codec import CODEC
from ._counters import HostCounter, host_counter
from ._options import checked

__all__ = ["BudgetContextEdit"]


class BudgetContextEdit:
    """Fits the messages in place when they exceed `trigger` tokens.

    Args:
        trigger: most tokens of the messages, from 1.
        counter: counts instead of the middleware's own counter, which estimates unless it asks a model.
        cut: "stable" moves the start of what is kept rarely, for prompt caches; "fill" keeps as much as fits.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> messages = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> BudgetContextEdit(trigger=2).apply(messages, count_tokens=len)
        >>> [m.content for m in messages]
        ['three']
    """

    @checked
    def __init__(
        self, trigger: int = 100_000, counter: Any = None, cut: Literal["fill", "stable"] = "stable"
    ) -> None:
        self.trigger = trigger
        self.counter = counter
        self.cut = cut
        self._own = None if counter is None else host_counter(counter)

    def apply(self, messages: list[Any], *, count_tokens: Callable[[Sequence[BaseMessage]], int]) -> None:
        """Replaces the list's contents by what fits; what is broken is repaired even when it fits."""
        if not messages:
            return
        host = self._own
        if host is None:
            text = host_counter(count_tokens, prefer="messages").counter
            host = HostCounter(text, ListMeasure(count_tokens))
        request = PromptRequest(
            budget=plain_budget(self.trigger),
            counter=host.counter,
            codec=CODEC,
            measure=host.measure,
            history=Block(name="history", messages=messages),
            sources=frozenset({"history"}),
            cut=self.cut,
            sent=True,
        )
        messages[:] = drive(plan_steps(request)).history
