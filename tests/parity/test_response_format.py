"""The form that an answer must have is counted at no less than what is sent, by both frameworks."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, StructuredOutputError
from langchain_openai import ChatOpenAI
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field, create_model

import langchain_budget
import llamaindex_budget
from langchain_budget import BudgetMiddleware
from rankbudget import counter_for
from rankbudget.errors import BudgetExceededError
from rankbudget.testing.server import StrictModelServer
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
TALK = [(role, f"We spoke of tea and of shop {i}.") for i in range(40) for role in ("user", "assistant")]


class Unit(Enum):
    """How it is packed."""

    PIECE = "piece"
    BOX = "box"


class Address(BaseModel):
    """Where it goes."""

    street: str
    code: str = Field(pattern=r"^\d{5}$")


TYPES: list[Any] = [
    *(str, int, Unit, Address, list[Address], dict[str, str], Address | None, Literal["EUR", "USD"]),
]
FIELD = st.builds(
    lambda kind, text: (kind, Field(description=text) if text else ...),
    st.sampled_from(TYPES),
    st.sampled_from(["", "As it is printed on the invoice."]),
)


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(context_window=100_000) as running:
        yield running


@functools.cache
def _client(kind: Any, place: str, url: str, **options: Any) -> Any:
    return kind(model="gpt-4o", api_key="none", max_retries=0, **{place: url}, **options)


def _structured(url: str, answer: Any, limits: Any) -> None:
    model = langchain_budget.budget_model(_client(ChatOpenAI, "base_url", url), **limits)
    model.with_structured_output(answer, method="json_schema").invoke(TALK)


def _agent(url: str, answer: Any, limits: Any) -> None:
    ours, form = BudgetMiddleware(**limits), ProviderStrategy(answer)
    agent = create_agent(_client(ChatOpenAI, "base_url", url), middleware=[ours], response_format=form)
    agent.invoke({"messages": TALK})


def _llamaindex(url: str, answer: Any, limits: Any) -> None:
    _read(_client(OpenAI, "api_base", url), answer, limits)


def _like(url: str, answer: Any, limits: Any) -> None:
    options = {"should_use_structured_outputs": True, "is_chat_model": True}
    _read(_client(OpenAILike, "api_base", url, **options), answer, limits)


def _read(client: Any, answer: Any, limits: Any) -> None:
    messages = [ChatMessage(text, role=role) for role, text in TALK]
    llamaindex_budget.budget_model(client, **limits).as_structured_llm(answer).chat(messages)


@pytest.mark.parametrize("ask", [_structured, _agent, _llamaindex, _like])
@draws()
@given(fields=st.lists(FIELD, min_size=1, max_size=9), limit=st.integers(250, 800))
def test_messages_and_the_form_of_the_answer_are_within_the_limit(
    server: StrictModelServer, ask: Any, fields: list[Any], limit: int
) -> None:
    """Real clients: however a class is nested, its compact JSON and the messages that are sent have room."""
    answer = create_model("Answer", **{f"field_{i}": field for i, field in enumerate(fields)})
    server.forget()
    try:
        ask(server.base_url, answer, {"max_tokens": limit, "counter": "gpt-4o"})
    except BudgetExceededError:
        assert server.requests == []
        assert limit < 150 + 60 * len(fields), "it counts about what it is"
        return
    except (ValueError, StructuredOutputError):
        pass  # what the server answers is no JSON
    [request] = server.requests
    form = json.dumps(request.body["response_format"], separators=(",", ":"))
    needed = COUNTER.count_messages(request.body["messages"]) + COUNTER.count(form)
    assert needed <= limit
