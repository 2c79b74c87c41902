"""Spans and logs of reports: figures as the report has them, no content, safe with threads and processes."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    BudgetConfigError,
    BudgetReport,
    TokenBudget,
    fit_messages,
    log_reports,
    trace_reports,
)
from rankbudget.cli.main import main
from rankbudget.report.rows import rows_of, wanted_by

pytest.importorskip("opentelemetry.sdk")
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

CHAT = [{"role": "user", "content": f"secret{n} " * 9, "id": f"id-secret{n}"} for n in range(60)]
LARGE = 1_000_000


@pytest.fixture
def traced() -> tuple[Any, Any, InMemorySpanExporter]:
    """A provider of the real SDK, a tracer of the application, and what was exported."""
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return provider, provider.get_tracer("application"), exported


def assembled(limit: int = 700) -> BudgetReport:
    blocks = {"system": "Be brief.", "history": CHAT, "knowledge": ["secret fact " * 40, "a secret " * 60]}
    budget = TokenBudget(context_window=limit, reserve=100, model="gpt-4o")
    return Assembler(budget).assemble(blocks, query="What is secret?").report


def test_a_span_has_the_figures_of_the_report(traced: Any) -> None:
    """Every attribute is a number of the report, and the child of documents is of the kind that OpenInference names."""
    provider, _, exported = traced
    report = assembled()
    trace_reports(provider)(report)
    documents, span = exported.get_finished_spans()
    assert (span.name, documents.name, documents.parent.span_id) == (
        "compact_messages",
        "rank_documents",
        span.context.span_id,
    )
    history, knowledge = report.block("history"), report.block("knowledge")
    assert span.attributes["compaction.messages_before"] == 60
    assert span.attributes["compaction.messages_after"] == history.kept + history.shortened
    assert span.attributes["compaction.tokens_before"] == wanted_by(rows_of(report))
    assert span.attributes["compaction.tokens_after"] == report.total_tokens
    assert span.attributes["gen_ai.conversation.compacted"] is True
    assert span.attributes["gen_ai.context.window_size"] == 700
    assert span.attributes["gen_ai.context.utilization"] == report.total_tokens / 700
    used = [
        v for k, v in span.attributes.items() if k.startswith("rankbudget.block.") and k.endswith(".used")
    ]
    assert sum(used) + report.overhead == report.total_tokens
    assert documents.attributes["openinference.span.kind"] == "RERANKER"
    assert documents.attributes["reranker.top_k"] == knowledge.kept + knowledge.shortened
    assert documents.attributes["rankbudget.documents.before"] == 2


def test_a_span_is_the_child_of_the_calls_span(traced: Any) -> None:
    """With the callback given to a session's model or called by hand, the span that is current is the parent."""
    provider, tracer, exported = traced
    trace = trace_reports(provider)
    with tracer.start_as_current_span("call") as call:
        trace(fit_messages(CHAT, max_tokens=200).report)
    made = {span.name: span for span in exported.get_finished_spans()}
    assert made["compact_messages"].parent.span_id == call.get_span_context().span_id
    assert set(made) == {"call", "compact_messages"}


def test_what_fits_is_not_compacted(traced: Any) -> None:
    """The same number of messages and tokens before and after."""
    provider, _, exported = traced
    trace_reports(provider)(fit_messages(CHAT, max_tokens=LARGE).report)
    (span,) = exported.get_finished_spans()
    said = span.attributes
    assert said["gen_ai.conversation.compacted"] is False
    assert said["compaction.messages_before"] == said["compaction.messages_after"] == 60
    assert said["compaction.tokens_before"] == said["compaction.tokens_after"]


def test_no_content_leaves(traced: Any, tmp_path: Path) -> None:
    """Neither texts nor ids are in a span, nor in the log unless decisions are asked for; texts never are."""
    provider, _, exported = traced
    report = assembled()
    trace_reports(provider)(report)
    said = "".join(span.to_json() for span in exported.get_finished_spans())
    assert "secret" not in said
    log_reports(tmp_path / "a.jsonl")(report)
    log_reports(tmp_path / "b.jsonl", decisions=True)(report)
    assert "secret" not in (tmp_path / "a.jsonl").read_text()
    assert "id-secret0" in (tmp_path / "b.jsonl").read_text()
    assert "secret0 secret0" not in (tmp_path / "b.jsonl").read_text()


def test_without_a_provider_nothing_is_read() -> None:
    """A report whose parts cannot be read shows that they are not: nothing is recorded."""

    def fail() -> Any:
        pytest.fail("read")

    trace_reports()(BudgetReport(limit=10, total_tokens=1, later=fail))


def test_a_missing_library_names_its_extra() -> None:
    """The ImportError says what to install."""
    program = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from rankbudget import trace_reports\n"
        "try: trace_reports()\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 'pip install "rankbudget[otel]"' in done.stdout


@pytest.mark.slow
def test_many_threads_and_processes_share_a_log(tmp_path: Path) -> None:
    """Eight threads and two more processes: every line is whole, and the command adds them up."""
    path = tmp_path / "r.jsonl"
    report = assembled()
    program = (
        "import sys; from rankbudget import fit_messages, log_reports; log = log_reports(sys.argv[1])\n"
        "report = fit_messages([{'role': 'user', 'content': 'Hi'}], max_tokens=50).report\n"
        "for _ in range(50): log(report)"
    )
    others = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for _ in range(2)]
    log = log_reports(path, decisions=True)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(log, [report] * 100))
    assert [other.wait() for other in others] == [0, 0]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 200
    assert all(line["time"] < "3000" for line in lines)
    assert main(["stats", str(path)]) == 0


def test_a_logged_report_is_read_again_with_its_counts(tmp_path: Path) -> None:
    """Without the decisions the blocks keep how many pieces they had."""
    report = assembled()
    log_reports(tmp_path / "r.jsonl")(report)
    again = BudgetReport.from_dict(json.loads((tmp_path / "r.jsonl").read_text()))
    assert again.blocks == report.blocks
    assert again.table() == report.table()


def test_a_log_in_no_folder_is_refused_at_once(tmp_path: Path) -> None:
    """Not at the first prompt, where a callback's error is only logged."""
    with pytest.raises(BudgetConfigError, match="folder that exists"):
        log_reports(tmp_path / "no" / "r.jsonl")
