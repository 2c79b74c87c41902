"""What LlamaIndex's event handlers are told about a budget."""

from __future__ import annotations

from typing import Any

from llama_index.core.instrumentation.events.base import BaseEvent

__all__ = ["BudgetEvent"]


class BudgetEvent(BaseEvent):
    """Says what was kept, shortened and dropped, and why: the report of one fit as plain data."""

    report: dict[str, Any]

    @classmethod
    def class_name(cls) -> str:
        return "BudgetEvent"
