"""What LangSmith gets of a report: the real client writes to a server that speaks its protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tracers.langchain import LangChainTracer
from langsmith import Client

from langchain_budget import BudgetMiddleware, add_run_metadata, budget_model

LIMITS = {
    "use_multipart_endpoint": False,
    "size_limit": 100,
    "scale_up_qsize_trigger": 1000,
    "scale_up_nthreads_limit": 4,
    "scale_down_nempty_trigger": 4,
}
SECRET = "the parcel is under the blue stone"


class LangSmith(BaseHTTPRequestHandler):
    """Keeps every run that is sent."""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        """Answers what a client asks first."""
        self.answer({"version": "0.10", "batch_ingest_config": LIMITS})

    def do_POST(self) -> None:
        """Keeps runs that begin and runs that end."""
        sent = json.loads(self.rfile.read(int(self.headers["content-length"])))
        for run in [*sent.get("post", []), *sent.get("patch", [])]:
            self.server.runs.setdefault(run["id"], {}).update(run)  # type: ignore[attr-defined] # a server of this test
        self.answer({})

    def answer(self, body: dict[str, Any]) -> None:
        """Sends JSON."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A LangSmith of this test alone."""
    with ThreadingHTTPServer(("127.0.0.1", 0), LangSmith) as made:
        made.runs = {}  # type: ignore[attr-defined] # a server of this test
        Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()


def figures(server: Any, ask: Any) -> list[tuple[str, dict[str, Any]]]:
    """The name and the budget's figures of every run that has them."""
    client = Client(api_url=f"http://127.0.0.1:{server.server_port}", api_key="none")
    ask({"callbacks": [LangChainTracer(client=client)]})
    client.flush()
    client.cleanup()
    said = [(run.get("name", ""), run["extra"]["metadata"]) for run in server.runs.values()]
    return [(name, found) for name, found in said if "compaction.tokens_after" in found]


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "stream"])
def test_a_chain_has_the_figures_of_its_prompt(server: Any, way: str) -> None:
    """They are in the metadata of the chain's run, without a text; a model without a chain has no such run."""
    model = budget_model(
        FakeListChatModel(responses=["Yes."]), max_tokens=60, counter="gpt-4o", on_report=add_run_metadata
    )
    template = ChatPromptTemplate.from_messages([("placeholder", "{history}"), ("human", "{question}")])
    asked = {"history": [("human", SECRET * 20), ("ai", "Noted.")] * 3, "question": "Where is it?"}

    def ask(config: Any) -> None:
        chain = template | model
        if way == "ainvoke":
            asyncio.run(chain.ainvoke(asked, config=config))
        else:
            list(chain.stream(asked, config=config)) if way == "stream" else chain.invoke(
                asked, config=config
            )
        model.invoke("Where is it?", config=config)

    ((name, found),) = figures(server, ask)
    assert name == "RunnableSequence"
    assert found["gen_ai.conversation.compacted"] is True
    assert 0 < found["compaction.tokens_after"] <= 60
    assert found["rankbudget.block.history.dropped"] + found["rankbudget.block.history.shortened"] > 0
    assert "blue stone" not in str(found)


def test_an_agent_has_them_at_its_model_call(server: Any) -> None:
    """Each call of the model has one run with them: that of its node, or of the middleware in it."""
    model = FakeListChatModel(responses=["Here."])
    edit = BudgetMiddleware(max_tokens=60, counter="gpt-4o", on_report=add_run_metadata)
    agent = create_agent(model, [], middleware=[edit])
    asked = {"messages": [("human", "Where?")]}
    ((name, found),) = figures(server, lambda config: agent.invoke(asked, config=config))
    assert "model" in name
    assert 0 < found["compaction.tokens_after"] <= 60
