"""What can be given as `on_report`: spans of OpenTelemetry, a log of one JSON line a prompt. No content."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BudgetConfigError, shown
from .rows import rows_of, wanted_by

if TYPE_CHECKING:
    from .report import BudgetReport

OnReport = Callable[["BudgetReport"], None]
SPAN, DOCUMENTS_SPAN = "compact_messages", "rank_documents"
_DOCUMENTS = "knowledge"


def trace_reports(tracer_provider: Any = None) -> OnReport:
    """Returns an `on_report` that makes a span of OpenTelemetry for each prompt: figures, no texts, no ids.

    The span `compact_messages` is a child of the span that is current when the report arrives, and has no
    duration of its own. Documents have a span `rank_documents` below it, of OpenInference's kind RERANKER.
    Without a tracer provider of the SDK nothing is recorded.

    Args:
        tracer_provider: what makes tracers; None takes the global one.

    Raises:
        BudgetConfigError: `tracer_provider` makes no tracers, as the address of a collector.
        ImportError: OpenTelemetry is missing; the extra `otel` has it.

    Example:
        >>> from rankbudget import fit_messages
        >>> trace = trace_reports()
        >>> trace(fit_messages([{"role": "user", "content": "Hi"}], max_tokens=50).report)

    Source: OpenTelemetry's semantic conventions for generative AI, and OpenInference's, as of 2026-11.
    """
    if tracer_provider is not None and not hasattr(tracer_provider, "get_tracer"):
        msg = (
            f"tracer_provider must be a TracerProvider or None (got {shown(tracer_provider)}). "
            "Give the address of a collector to the exporter of the provider."
        )
        raise BudgetConfigError(msg)
    try:
        from opentelemetry import trace
    except ImportError as error:
        msg = 'opentelemetry-api is not installed: pip install "rankbudget[otel]"'
        raise ImportError(msg) from error
    tracer = trace.get_tracer("rankbudget", tracer_provider=tracer_provider)

    def on_report(report: BudgetReport) -> None:
        with tracer.start_as_current_span(SPAN) as span:
            if not span.is_recording():
                return
            span.set_attributes(report_figures(report))
            found = next((block for block in report.blocks if block.name == _DOCUMENTS and block.size), None)
            if found is not None:
                with tracer.start_as_current_span(DOCUMENTS_SPAN) as documents:
                    documents.set_attribute("openinference.span.kind", "RERANKER")
                    documents.set_attribute("reranker.top_k", found.kept + found.shortened)
                    documents.set_attribute("rankbudget.documents.before", found.size)
                    documents.set_attribute("rankbudget.documents.after", found.kept + found.shortened)

    return on_report


def log_reports(path: str | os.PathLike[str], *, decisions: bool = False) -> OnReport:
    """Returns an `on_report` that appends one JSON line to a file for each prompt; figures, no texts.

    Threads and processes may share the file: a line is written at once. `rankbudget stats` adds it up.

    Args:
        path: the file, made where it is missing.
        decisions: also what became of each piece, with its id.

    Raises:
        BudgetConfigError: the file's folder does not exist, or `path` is no path or a folder itself.

    Example:
        >>> import tempfile
        >>> from rankbudget import fit_messages
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     log = log_reports(f"{folder}/reports.jsonl")
        ...     log(fit_messages([{"role": "user", "content": "Hi"}], max_tokens=50).report)
        ...     len(Path(folder, "reports.jsonl").read_text().splitlines())
        1
    """
    given: object = path  # callers without type checks give None
    target = Path(given) if isinstance(given, (str, os.PathLike)) else None
    if target is None or target.is_dir() or not target.parent.is_dir():
        msg = f"path must be the path of a file, in a folder that exists (got {shown(path)})."
        raise BudgetConfigError(msg)

    def on_report(report: BudgetReport) -> None:
        moment = datetime.now(timezone.utc).isoformat()
        line = json.dumps({"time": moment, **report.to_dict(decisions=decisions)}) + "\n"
        place = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(place, line.encode("ascii"))
        finally:
            os.close(place)

    return on_report


def report_figures(report: BudgetReport) -> dict[str, str | int | float | bool]:
    """Returns name and value of all that a span says of a report: no text, no id."""
    return dict(_figures(report))


def _figures(report: BudgetReport) -> Iterator[tuple[str, str | int | float | bool]]:
    blocks = report.blocks
    window = report.window or report.limit
    yield "compaction.strategy", "rankbudget"
    history = next((block for block in blocks if block.name == "history"), None)
    if history is not None:
        yield "compaction.messages_before", history.size
        yield "compaction.messages_after", history.kept + history.shortened
    yield "compaction.tokens_before", wanted_by(rows_of(report))
    yield "compaction.tokens_after", report.total_tokens
    yield "gen_ai.conversation.compacted", any(block.shortened or block.dropped for block in blocks)
    yield "gen_ai.context.window_size", window
    yield "gen_ai.context.utilization", report.total_tokens / window if window else 0.0
    for block in blocks:
        name = f"rankbudget.block.{block.name}"
        yield f"{name}.used", block.used
        if block.granted is not None:
            yield f"{name}.granted", block.granted
        yield f"{name}.kept", block.kept
        yield f"{name}.shortened", block.shortened
        yield f"{name}.dropped", block.dropped
