"""The figures of a report, as metadata of LangSmith's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langsmith.run_helpers import get_current_run_tree

from rankbudget.adapters import report_figures

if TYPE_CHECKING:
    from rankbudget import BudgetReport


def add_run_metadata(report: BudgetReport) -> None:
    """Adds a prompt's figures to the LangSmith run of the chain, agent or graph node that asks the model.

    Given as `on_report`. The names are those of `rankbudget.trace_reports`; no text and no id is among them.
    Nothing happens where no run is traced, as for a model that is called outside a chain.

    Args:
        report: what `on_report` is called with.

    Example:
        >>> from langchain_core.language_models import ParrotFakeChatModel
        >>> from langchain_budget import budget_model
        >>> model = budget_model(
        ...     ParrotFakeChatModel(), max_tokens=50, counter="gpt-4o", on_report=add_run_metadata
        ... )
        >>> model.invoke("Hi").content
        'Hi'
    """
    run = get_current_run_tree()
    if run is not None:
        run.add_metadata(report_figures(report))
