"""Whatever an LLM's client sends beside messages, under whatever name and from whatever place, is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.openai_like import OpenAILike
from pydantic import Field, create_model

from llamaindex_budget import budget_model
from rankbudget.errors import BudgetExceededError
from rankbudget.testing.server import Reply, StrictModelServer
from tests.drawing import draws
from tests.llamaindex.models import say

WORD = "fern"


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(default=Reply(text='{"a": "yes"}'), context_window=100_000) as running:
        yield running


def _format(text: str) -> dict[str, Any]:
    held = {"a": {"type": "string", "description": text}}
    return {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": {"type": "object", "properties": held}},
    }


CASES: dict[str, Callable[[str], dict[str, Any]]] = {
    "response_format": lambda t: {"response_format": _format(t)},
    "prediction": lambda t: {"prediction": {"type": "content", "content": t}},
    "guided_json": lambda t: {"extra_body": {"guided_json": _format(t)}},
    "documents": lambda t: {"extra_body": {"documents": [{"text": t}]}},
    "of no known name": lambda t: {"extra_body": {"x_notes": t.split()}},
}


def _answer(text: str) -> Any:
    return create_model("Answer", a=(str, Field(description=text)))


@draws()
@given(
    case=st.sampled_from([*CASES, "output class", "system prompt"]),
    words=st.integers(20, 400),
    limit=st.integers(60, 900),
    called=st.booleans(),
)
def test_what_is_on_the_wire_is_counted(
    server: StrictModelServer, case: str, words: int, limit: int, called: bool
) -> None:
    """The real client: of a call, of `additional_kwargs`, an output class, a system prompt; too much is not sent."""
    text, fields = f"{WORD} " * words, dict[str, Any]()
    given = CASES[case](text) if case in CASES else {}
    if case == "system prompt":
        fields = {"system_prompt": text}
    elif not called:
        fields = {"additional_kwargs": given}
    server.forget()
    reports: list[Any] = []
    plain = OpenAILike(
        model="gpt-4o", api_base=server.base_url, api_key="none", is_chat_model=True, max_retries=0, max_tokens=10, **fields
    )  # fmt: skip
    llm = budget_model(plain, max_tokens=limit, counter="gpt-4o", on_report=reports.append)
    try:
        if case == "output class":
            llm.as_structured_llm(_answer(text)).chat([say("user", "Hi")])
        elif case == "system prompt":
            llm.predict(PromptTemplate("Hi"))
        else:
            llm.chat([say("user", "Hi")], **(given if called else {}))
    except BudgetExceededError:
        assert server.requests == []
        assert words * 5 + 200 > limit
    else:
        [sent] = [json.dumps(request.body).count(WORD) for request in server.requests]
        assert words <= sent <= reports[-1].total_tokens <= limit


def test_settings_are_not_counted(server: StrictModelServer) -> None:
    """What is no part of the prompt costs nothing, in a call or in `additional_kwargs`."""
    settings = {
        "stop": ["the end of it all"],
        "user": "a long name",
        "stream_options": {"include_usage": True},
    }
    reports: list[Any] = []
    for fields, asked in (({}, {}), ({"additional_kwargs": settings}, {}), ({}, settings)):
        plain: Any = OpenAILike(
            model="gpt-4o", api_base=server.base_url, api_key="none", is_chat_model=True, **fields
        )
        llm = budget_model(plain, max_tokens=90, counter="gpt-4o", on_report=reports.append)
        llm.chat([say("user", "Hi")], **asked)
    assert len({report.total_tokens for report in reports}) == 1
