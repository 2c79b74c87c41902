"""FitPrompt in Ray Data: the same rows, on two cores, through a killed actor, and before a model's stage. `make batch-test` runs it."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from typing import ClassVar

import pytest

from rankbudget import TokenBudget
from rankbudget.batch import FitPrompt
from tests.batch.rows import BUDGET, TOOLS, check_promise, columns, fit_prompt, plain, rows, write_jsonl

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]
ACTORS = {"num_cpus": 0.5, "batch_size": 100, "fn_constructor_kwargs": {"budget": BUDGET, "strict": True}}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", _node_ip_address="127.0.0.1")
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def fitted():
    return plain(fit_prompt()(columns(rows())))


def two_actors():
    return ray.data.ActorPoolStrategy(size=2)


def in_order(made):
    return sorted(made, key=lambda row: row["id"])


@pytest.mark.parametrize("batch_format", ["pyarrow", "numpy", "pandas"])
def test_two_actors_give_what_a_loop_gives(batch_format, tmp_path, fitted):
    """A file read by Ray and fitted by two actors on two cores gives all rows once, as one call does, in every form of batch."""
    source = write_jsonl(tmp_path / "in.jsonl", rows())
    data = ray.data.read_json(str(source), lines=True)
    made = in_order(
        data.map_batches(FitPrompt, compute=two_actors(), batch_format=batch_format, **ACTORS).take_all()
    )
    check_promise(rows(), made)
    assert plain(made) == fitted


def test_a_killed_actor_loses_nothing(tmp_path, fitted):
    """An actor that is killed with kill -9 at its second batch is started again, and every row is there once."""
    marker = tmp_path / "killed"

    class KilledOnce(FitPrompt):
        def __call__(self, batch):
            made = super().__call__(batch)
            if 250 in batch["id"] and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return made

    data = ray.data.from_items(rows(), override_num_blocks=10)
    made = in_order(
        data.map_batches(KilledOnce, compute=two_actors(), batch_format="numpy", **ACTORS).take_all()
    )
    assert marker.exists()
    check_promise(rows(), made)
    assert plain(made) == fitted


class _Server(http.server.BaseHTTPRequestHandler):
    requests: ClassVar[list[dict]] = []

    def do_POST(self):
        self.requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"answer": "yes"}')

    def log_message(self, *arguments):
        pass


def test_a_row_prepares_a_models_request():
    """`FitPrompt.row` in `preprocess=` of Ray's processor: the server gets the fitted messages and the room for the answer."""
    llm = pytest.importorskip("ray.data.llm")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fit = FitPrompt(TokenBudget(context_window=500, reserve=150))

    def request(row):
        made = fit.row(row)
        return {"payload": {"messages": made["messages"], "max_tokens": made["max_completion_tokens"]}}

    given = [row for row in rows(19) if row["id"] != 7]
    try:
        processor = llm.build_processor(
            llm.HttpRequestProcessorConfig(url=f"http://127.0.0.1:{server.server_port}", concurrency=1),
            preprocess=request,
            preprocess_map_kwargs={"num_cpus": 0.5},
            postprocess=lambda row: {"id": row["id"], "answer": row["http_response"]["answer"]},
        )
        answers = processor(ray.data.from_items(given)).take_all()
    finally:
        server.shutdown()
        server.server_close()
    assert [row["answer"] for row in in_order(answers)] == ["yes"] * 18
    sent = sorted(_Server.requests, key=lambda r: r["messages"][-1]["content"])
    expected = [fit.row(row) for row in sorted(given, key=lambda row: row["question"])]
    assert [r["messages"] for r in sent] == [made["messages"] for made in expected]
    assert [r["max_tokens"] for r in sent] == [made["max_completion_tokens"] for made in expected]
    assert any(row["tools"] == TOOLS for row in given)


def test_half_a_core_for_each_actor_leaves_one_to_read(tmp_path):
    """Two actors of half a core on two cores finish a file within two minutes; at a whole core each nothing is left for the task that reads, and Ray waits without end."""
    source = write_jsonl(tmp_path / "in.jsonl", rows(40))
    program = f"""
import ray
from rankbudget.batch import FitPrompt
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", _node_ip_address="127.0.0.1")
data = ray.data.read_json({str(source)!r}, lines=True)
actors = ray.data.ActorPoolStrategy(size=2)
made = data.map_batches(FitPrompt, fn_constructor_kwargs={{"budget": 350}}, compute=actors, num_cpus=0.5)
print("rows:", len(made.take_all()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    assert "rows: 40" in done.stdout
