"""A model that asks its provider for counts is asked a few times, and about requests that the provider takes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_google_genai import ChatGoogleGenerativeAI

from langchain_budget import BudgetContextEdit, BudgetMessageHistory, BudgetTrimmer, trim_messages
from tests.drawing import draws

MOST_CALLS = 12


class Counting(BaseHTTPRequestHandler):
    """Answers as both providers' endpoints for counts do: a token for four characters."""

    asked: ClassVar[list[list[Any]]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages = body.get("messages", body.get("contents"))
        self.asked.append(messages)
        tokens = len(json.dumps(messages)) // 4
        text = json.dumps({"input_tokens": tokens, "totalTokens": tokens}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Counting)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _models(url: str) -> list[Any]:
    return [
        ChatAnthropic(model="claude-sonnet-4-6", base_url=url, api_key="none", max_retries=0),
        ChatGoogleGenerativeAI(model="gemini-2.5-flash", base_url=url, api_key="none", max_retries=1),
    ]


def _edited(thread: list[BaseMessage], limit: int, counter: Any) -> list[BaseMessage]:
    kept = list(thread)
    BudgetContextEdit(trigger=limit, counter=counter).apply(kept, count_tokens=len)
    return kept


def _read(thread: list[BaseMessage], limit: int, counter: Any) -> list[BaseMessage]:
    history = BudgetMessageHistory(max_tokens=limit, counter=counter)
    history.add_messages(thread)
    return history.messages


def _trimmed(**options: Any) -> Any:
    return lambda thread, limit, counter: trim_messages(
        thread, max_tokens=limit, token_counter=counter, **options
    )


WAYS: dict[str, Any] = {
    "trimmer": lambda thread, limit, counter: BudgetTrimmer(max_tokens=limit, counter=counter).invoke(thread),
    "async trimmer": lambda thread, limit, counter: asyncio.run(
        BudgetTrimmer(max_tokens=limit, counter=counter).ainvoke(thread)
    ),
    "trim_messages": _trimmed(include_system=True),
    "trim_messages, partial": _trimmed(include_system=True, allow_partial=True),
    "trim_messages, first": _trimmed(strategy="first"),
    "edit": _edited,
    "history": _read,
}


@draws(asynchronous=True)
@given(data=st.data())
def test_a_provider_is_asked_a_few_times_about_valid_requests(url: str, data: st.DataObject) -> None:
    """Never about a list that is empty or that an answer opens, however long the conversation is."""
    model = data.draw(st.sampled_from(_models(url)))
    way = data.draw(st.sampled_from(sorted(WAYS)))
    sizes = data.draw(st.lists(st.integers(1, 60), min_size=1, max_size=120))
    thread: list[BaseMessage] = [SystemMessage("Be brief.")]
    thread += [(AIMessage if i % 2 else HumanMessage)(f"{i} " + "word " * n) for i, n in enumerate(sizes)]
    if isinstance(thread[-1], AIMessage):
        thread.append(HumanMessage("And now?"))
    Counting.asked.clear()
    kept = WAYS[way](thread, data.draw(st.integers(300, 3000)), model)
    assert kept
    assert 1 <= len(Counting.asked) <= MOST_CALLS
    firsts = [(asked or [{"role": "nothing"}])[0] for asked in Counting.asked]
    assert {first["role"] for first in firsts} == {"user"}
