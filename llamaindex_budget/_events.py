"""What LlamaIndex's event handlers are told about a budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from llama_index.core.bridge.pydantic import ConfigDict, PlainSerializer
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.instrumentation.events import BaseEvent

from rankbudget import BudgetReport, adapters

dispatcher = get_dispatcher(__name__)


class BudgetEvent(BaseEvent):
    """Says what was kept, shortened and dropped, and why.

    Args:
        report: the report of one fit; written out as plain data when the event is.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    report: Annotated[BudgetReport, PlainSerializer(lambda report: report.to_dict())]

    @classmethod
    def class_name(cls) -> str:
        return "BudgetEvent"


def send_report(report: BudgetReport, on_report: Callable[[BudgetReport], Any] | None = None) -> None:
    """Tells LlamaIndex's event handlers and the user's callback about a fit."""
    dispatcher.event(BudgetEvent(report=report))
    adapters.send_report(on_report, report)
