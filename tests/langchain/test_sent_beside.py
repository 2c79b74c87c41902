"""Whatever a client sends beside messages, under whatever name and from whatever place, is counted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_model_call
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

from langchain_budget import BudgetMiddleware, BudgetTrimmer, budget_model
from langchain_budget.agents import AgentBudget
from rankbudget.errors import BudgetExceededError
from rankbudget.testing.server import StrictModelServer
from tests.drawing import draws
from tests.langchain.test_stored_by_the_provider import ANSWER

pytestmark = pytest.mark.filterwarnings(
    r"ignore:(.|\n)*(default parameter|explicitly):UserWarning"
)  # a host's
WORD = "fern"
NAMES = st.one_of(
    st.sampled_from(["instructions", "prediction", "documents", "guided_json", "response_format", "system"]),
    st.from_regex(r"x_[a-z]{1,9}", fullmatch=True),
)


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(context_window=100_000) as running:
        yield running


def _schema(text: str) -> dict[str, Any]:
    held = {"a": {"type": "string", "description": text}}
    return {"type": "object", "title": "Out", "properties": held, "required": ["a"]}


def _format(text: str) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": _schema(text)}}


FORMS: list[Callable[[str], Any]] = [
    str,
    str.split,
    _schema,
    _format,
    lambda text: [{"type": "text", "text": text}],
    lambda text: {"type": "content", "content": text},
    lambda text: {word + str(n): word for n, word in enumerate(text.split())},
]


def _input_example(text: str) -> dict[str, Any]:
    return {"name": "f", "input_schema": _schema("x"), "input_examples": [{"a": text}]}


@tool(extras={"input_examples": [{"a": "fern " * 300}]})
def with_examples(a: str) -> str:
    """Has examples of its input, which Anthropic's client sends."""
    return a


class Clients:
    """Makes real clients, and knows what they sent."""

    def __init__(self, server: StrictModelServer) -> None:
        self.server, self.seen = server, list[str]()
        server.forget()

    def chat(self, **options: Any) -> Any:
        return ChatOpenAI(
            model="gpt-4o", base_url=self.server.base_url, api_key="none", max_retries=0, **options
        )

    def responses(self, **options: Any) -> Any:
        def answer(request: httpx.Request) -> httpx.Response:
            self.seen.append(request.content.decode())
            return httpx.Response(200, json=ANSWER)

        client = httpx.Client(transport=httpx.MockTransport(answer))
        return ChatOpenAI(
            model="gpt-4o", api_key="none", use_responses_api=True, http_client=client, **options
        )

    def anthropic(self, **options: Any) -> Any:
        return ChatAnthropic(
            model="claude-haiku-4-5", base_url=self.server.root_url, api_key="none", max_retries=0, **options
        )

    def gemini(self, **options: Any) -> Any:
        return ChatGoogleGenerativeAI(
            model="gemini-2.5-flash",
            base_url=self.server.root_url,
            api_key="none",
            max_retries=1,
            response_mime_type="application/json",
            **options,
        )

    def ollama(self, **options: Any) -> Any:
        return ChatOllama(model="llama3.2", base_url=self.server.root_url, **options)

    def sent(self) -> list[int]:
        """Returns how often each request has the word."""
        return [
            text.count(WORD) for text in (*self.seen, *(json.dumps(r.body) for r in self.server.requests))
        ]


CASES: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "instructions": ("responses", "instructions", str),
    "text format": ("responses", "text", lambda t: {"format": {**_format(t)["json_schema"], "type": "json_schema"}}),
    "prediction": ("chat", "prediction", lambda t: {"type": "content", "content": t}),
    "response_format": ("chat", "response_format", _format),
    "extra_body": ("chat", "extra_body", lambda t: {"response_format": _format(t)}),
    "guided_json": ("chat", "extra_body", lambda t: {"guided_json": _schema(t)}),
    "documents": ("chat", "extra_body", lambda t: {"documents": [{"text": t}]}),
    "claude's system": ("anthropic", "system", str),
    "claude's system blocks": ("anthropic", "system", lambda t: [{"type": "text", "text": t}]),
    "claude's output_config": (
        *("anthropic", "output_config"),
        lambda t: {"format": {"type": "json_schema", "schema": _schema(t)}},
    ),
    "claude's examples": ("anthropic", "tools", lambda t: [_input_example(t)]),
    "gemini's schema": ("gemini", "response_schema", _schema),
    "gemini's config": ("gemini", "generation_config", lambda t: {"response_schema": _schema(t)}),
    "ollama's format": ("ollama", "format", _schema),
}  # fmt: skip


def _asked(model: Any, limit: int, reports: list[Any]) -> None:
    budget_model(model, max_tokens=limit, counter="gpt-4o", on_report=reports.append).invoke("Hi")


@draws()
@given(case=st.sampled_from([*CASES]), words=st.integers(5, 400), limit=st.integers(50, 900), data=st.data())
def test_what_is_on_the_wire_is_counted(
    server: StrictModelServer, case: str, words: int, limit: int, data: st.DataObject
) -> None:
    """Real clients: bound, in `model_kwargs`, as a field, or a middleware's setting, counts; too much is not sent."""
    client, name, form = CASES[case]
    clients, reports, value = Clients(server), list[Any](), form(f"{WORD} " * words)
    make = getattr(clients, client)
    place = data.draw(
        st.sampled_from(["bind", "middleware first", "middleware last", "field", "model_kwargs"])
    )
    try:
        if place == "bind":
            bounded = budget_model(make(), max_tokens=limit, counter="gpt-4o", on_report=reports.append)
            bounded.bind(**{name: value}).invoke("Hi")
        elif place.startswith("middleware"):
            ours = BudgetMiddleware(max_tokens=limit, counter="gpt-4o", on_report=reports.append)
            setting = wrap_model_call(lambda request, go: go(request.override(model_settings={name: value})))
            both = [setting, ours] if place.endswith("first") else [ours, setting]
            create_agent(make(), middleware=both).invoke({"messages": ["Hi"]})
        else:
            _asked(
                make(**({name: value} if place == "field" else {"model_kwargs": {name: value}})),
                limit,
                reports,
            )
    except BudgetExceededError:
        assert clients.sent() == [], "nothing is sent"
        assert words * 2 + 120 > limit, "it counts about what it is"
    except (ValueError, TypeError):  # the client refuses the name in this place
        assert clients.sent() == []
    else:
        [sent] = clients.sent()
        assert sent <= reports[-1].total_tokens <= limit
        ignored = place == "model_kwargs" and client in ("gemini", "ollama")  # they leave it out
        assert sent >= words or ignored or case == "gemini's config", "else this test shows nothing"


@draws()
@given(name=NAMES, form=st.sampled_from(FORMS), words=st.integers(20, 400), bound=st.booleans())
def test_any_name_in_an_extra_body_is_counted(
    server: StrictModelServer, name: str, form: Any, words: int, bound: bool
) -> None:
    """A server of one's own may read a text under any name, whole, in parts or in a schema."""
    clients, reports = Clients(server), list[Any]()
    body = {"extra_body": {name: form(f"{WORD} " * words)}}
    model = clients.chat(**({} if bound else body))
    limit = 300
    try:
        bounded = budget_model(model, max_tokens=limit, counter="gpt-4o", on_report=reports.append)
        bounded.bind(**body if bound else {}).invoke("Hi")
    except BudgetExceededError:
        assert clients.sent() == []
        assert words * 9 + 100 > limit
    else:
        assert words <= clients.sent()[0] <= reports[0].total_tokens <= limit


def test_examples_of_a_tools_input_are_counted(server: StrictModelServer) -> None:
    """As extras of a tool, which an agent binds, and in a planning door whose tools are chosen."""
    clients = Clients(server)
    agent = create_agent(
        clients.anthropic(), [with_examples], middleware=[BudgetMiddleware(max_tokens=300, counter="gpt-4o")]
    )
    with pytest.raises(BudgetExceededError):
        agent.invoke({"messages": ["Hi"]})
    plain = clients.anthropic(model_kwargs={"system": f"{WORD} " * 300})
    for model, tools in ((plain, [_input_example("x")]), (clients.anthropic(), [with_examples])):
        with pytest.raises(BudgetExceededError):
            BudgetTrimmer(model=model, tools=tools, max_tokens=300, counter="gpt-4o").invoke("Hi")
    assert clients.sent() == []


SETTINGS: list[dict[str, Any]] = [
    {"stop": ["\n\nHuman:", "the end of it all"]},
    {"user": "a user with a long name of their own"},
    {"safety_identifier": "a user with spaces, and no text of ours"},
    {"extra_headers": {"X-Note": "for the accounting department only"}},
    {"logit_bias": {str(n): -1 for n in range(99)}},
    {"stream_options": {"include_usage": True}},
    {"service_tier": "flex", "temperature": 0.5, "seed": 1, "reasoning_effort": "low"},
    {"tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"response_format": {"type": "json_object"}},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: next(iter(s)))
def test_settings_are_not_counted(server: StrictModelServer, settings: dict[str, Any]) -> None:
    """What is no part of the prompt costs nothing, bound or in the model's own arguments."""
    clients, reports = Clients(server), list[Any]()
    bounded = budget_model(clients.chat(), counter="gpt-4o", on_report=reports.append)
    bounded.invoke("Hi")
    bounded.bind(**settings).invoke("Hi")
    budget_model(clients.chat(extra_body=settings), counter="gpt-4o", on_report=reports.append).invoke("Hi")
    assert len({report.total_tokens for report in reports}) == 1


def test_an_agents_request_with_texts_beside_it_is_planned_once(
    server: StrictModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's plan counts what the model itself sends, so its last door need not plan again."""
    planned = list[Any]()
    plan = AgentBudget.plan
    monkeypatch.setattr(
        AgentBudget, "plan", lambda self, *given, **more: planned.append(given) or plan(self, *given, **more)
    )
    made = Clients(server).anthropic(model_kwargs={"system": f"{WORD} " * 30})
    create_agent(made, [with_examples], middleware=[BudgetMiddleware(max_tokens=2000)]).invoke(
        {"messages": ["Hi"]}
    )
    assert len(planned) == 1
