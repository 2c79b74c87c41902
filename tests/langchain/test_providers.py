"""What the real clients of Anthropic, Gemini and Ollama send after fitting is what these providers accept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI

from langchain_budget import BudgetChatPromptTemplate, BudgetMiddleware, BudgetTrimmer, budget_model
from rankbudget import BudgetReport
from rankbudget.errors import BudgetExceededError, MessageError
from rankbudget.testing import Application, WordCounter, applications
from rankbudget.testing.repairs import says_nothing, waiting_from
from rankbudget.testing.server import StrictModelServer
from tests.drawing import draws
from tests.langchain.entries import to_host

WINDOW = 100_000
"""The server's window: large, because the limit under test is the budget's."""


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(context_window=WINDOW) as running:
        yield running


def _anthropic(url: str) -> BaseChatModel:
    return ChatAnthropic(
        model="claude-haiku-4-5", base_url=url, api_key="none", max_retries=0, max_tokens=100
    )


def _gemini(url: str) -> BaseChatModel:
    return ChatGoogleGenerativeAI(model="gemini-2.5-flash", base_url=url, api_key="none", max_retries=1)


def _ollama(url: str) -> BaseChatModel:
    return ChatOllama(model="llama3.2", base_url=url)


SYSTEMS = ("system", "developer")
CLIENTS = {"anthropic": _anthropic, "gemini": _gemini, "ollama": _ollama}
WAYS: dict[str, Callable[..., Any]] = {
    "trimmer": lambda model, limit, counter: BudgetTrimmer(max_tokens=limit, counter=counter) | model,
    "model": lambda model, limit, counter: budget_model(model, max_tokens=limit, counter=counter),
}


def _asked(app: Application, *, waits: bool) -> list[dict[str, Any]]:
    """Returns the conversation as far as a model can be asked: it ends in a question or in the results of a call.

    With `waits` a call behind it that has not all its results stays: the model's own door drops it.
    """
    every = said = [m for m in app.messages if m["role"] not in SYSTEMS]
    while said and (
        waiting_from(said) < len(said) or said[-1]["role"] not in ("user", "tool") or says_nothing(said[-1])
    ):
        said = said[:-1]
    behind = next(
        (i for i in range(len(said), len(every)) if every[i]["role"] != "tool" and i > len(said)), len(every)
    )
    if waits and waiting_from(every[:behind]) == len(said):
        said = every[:behind]
    return said if any(m["role"] == "user" and not says_nothing(m) for m in said) else []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("way", WAYS)
@draws(asynchronous=True)
@given(app=applications(media=False, systems=False))
def test_no_request_is_refused(server: StrictModelServer, client: str, way: str, app: Application) -> None:
    """Drawn conversations with tools, broken ones among them: each request is valid, or a typed error is raised before one is sent."""
    counter = WordCounter()
    chain = WAYS[way](CLIENTS[client](server.root_url), app.limit(counter), counter)
    server.forget()
    given = to_host(_asked(app, waits=way == "model"))
    if not given:
        return
    try:
        chain.invoke(given)
    except BudgetExceededError:
        assert server.requests == []
        return
    assert [(sent.problems, sent.body) for sent in server.refused] == []
    assert len(server.requests) == 1


def test_late_system_messages_go_to_the_front_where_the_provider_wants_them_there(
    server: StrictModelServer,
) -> None:
    """Anthropic's client refuses system messages between others, so the model's own door moves them; a middleware has that door."""
    late = [("system", "one"), ("user", "q"), ("assistant", "a"), ("system", "two"), ("user", "z")]
    agent = create_agent(_anthropic(server.root_url), middleware=[BudgetMiddleware()])
    asks: list[Callable[[], Any]] = [
        lambda: budget_model(_anthropic(server.root_url)).invoke(late),
        lambda: agent.invoke({"messages": late}),
    ]
    for ask in asks:
        server.forget()
        ask()
        assert [block["text"] for block in server.requests[0].body["system"]] == ["one", "two"]
        assert [m["content"] for m in server.requests[0].body["messages"]] == ["q", "a", "z"]
        assert server.refused == []


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("led", [True, False])
@pytest.mark.parametrize("door", ["template", "model", "trimmer"])
def test_system_messages_behind_others_are_sent(
    server: StrictModelServer, client: str, led: bool, door: str
) -> None:
    """Of a prompt with documents behind the history: a trimmer, whose prompt is rendered later, warns where they are not."""
    model = CLIENTS[client](server.root_url)
    parts: list[Any] = [MessagesPlaceholder("history"), ("system", "{documents}"), ("human", "{question}")]
    parts = [("system", "Be brief."), *parts] if led else parts
    values = {
        "history": [HumanMessage("Hi"), AIMessage("Hello")],
        "documents": ["Part 7."],
        "question": "When?",
    }
    if door == "trimmer":
        report = (
            BudgetTrimmer(model=model, prompt=ChatPromptTemplate(parts), max_tokens=2000).fit(values).report
        )
        warned = any("system messages behind others" in one for one in report.warnings)
        assert warned == (client == "anthropic" or (client == "gemini" and not led))
        return
    prompt = BudgetChatPromptTemplate.from_messages(parts, model=model, max_tokens=2000)
    server.forget()
    (prompt | (model if door == "template" else budget_model(model))).invoke(values)
    assert prompt.fit(**values).report.warnings == ()
    assert server.refused == []
    assert "Part 7." in str(server.requests[0].body)
    assert ("Be brief." in str(server.requests[0].body)) == led


@pytest.mark.parametrize("client", CLIENTS)
def test_system_texts_alone_are_no_request_where_they_go_beside_it(
    server: StrictModelServer, client: str
) -> None:
    """Anthropic and Google get them beside the messages, of which there are none then: the error is that of an empty list."""
    server.forget()
    model = budget_model(CLIENTS[client](server.root_url))
    alone = [SystemMessage("Be brief."), SystemMessage("Be kind.")]
    if client == "ollama":
        model.invoke(alone)
    else:
        with pytest.raises(MessageError, match="No model answers an empty request"):
            model.invoke(alone)
    assert len(server.requests) == (client == "ollama")


@pytest.mark.parametrize("ask", ["field", "bind", "bind before", "call", "none"])
def test_ollama_is_sent_what_it_runs_the_model_with(server: StrictModelServer, ask: str) -> None:
    """What a request asks for comes before the model's field, and both before what the model could read."""
    reports: list[Any] = []
    size = 4096 if ask == "none" else 1024
    own = ChatOllama(model="llama3.2", base_url=server.root_url, num_ctx=1024 if ask == "field" else None)
    options = {"options": {"num_ctx": 1024}}
    model: Any = own.bind(**options) if ask == "bind before" else own
    model = budget_model(model, on_report=reports.append)
    model = model.bind(**options) if ask == "bind" else model
    server.forget()
    thread = [("user", f"question {i}") if i % 2 == 0 else ("assistant", f"answer {i}") for i in range(2001)]
    model.invoke(thread, **(options if ask == "call" else {}))
    assert size // 4 < reports[0].total_tokens <= reports[0].limit <= size
    assert len(server.requests[0].body["messages"]) < len(thread)
    assert server.refused == []


@draws()
@given(
    fields=st.fixed_dictionaries(
        {}, optional={"num_ctx": st.integers(512, 16_000), "num_predict": st.integers(1, 200)}
    ),
    options=st.fixed_dictionaries(
        {},
        optional={
            "temperature": st.just(0.5),
            "num_ctx": st.integers(512, 16_000),
            "num_predict": st.integers(1, 200),
        },
    ),
    way=st.sampled_from(["bind", "bind before", "bind twice", "call", "middleware"]),
    other=st.booleans(),
)
def test_the_options_of_a_request_to_ollama_replace_the_fields_of_the_object(
    server: StrictModelServer, fields: dict[str, Any], options: dict[str, Any], way: str, other: bool
) -> None:
    """The client sends them alone: a window that only the object states is none that the server runs."""
    reports: list[BudgetReport] = []
    own = ChatOllama(model="llama3.2", base_url=server.root_url, **fields)
    model: Any = own.bind(options=options) if way in {"bind before", "middleware"} else own
    if way == "middleware":
        agent = create_agent(model, [], middleware=[BudgetMiddleware(on_report=reports.append)])
    else:
        model = budget_model(model, on_report=reports.append)
    if way == "bind twice":
        model = model.bind(options={"num_ctx": 60_000})
    if way.startswith("bind") and way != "bind before":
        model = model.bind(options=options)
    server.forget()
    thread = [HumanMessage("Is it warm?"), AIMessage("Yes, it is."), HumanMessage("Why?")]
    more: dict[str, Any] = {"options": options} if way == "call" else {}
    if way == "middleware":
        agent.invoke({"messages": thread})
    else:
        model.invoke(thread, **more, **({"model": "llama3.1"} if other else {}))
    sent = server.requests[0].body["options"]
    assert sent == options
    window, answer = sent.get("num_ctx", 4096), sent.get("num_predict", 0)
    assert window // 4 < reports[0].limit <= window - answer


def test_the_fields_of_a_model_count_where_a_request_names_another_model(server: StrictModelServer) -> None:
    """Ollama runs that one with the object's window, and OpenAI's client asks for answers as long as before."""
    reports: list[BudgetReport] = []
    ollama = ChatOllama(model="llama3.2", base_url=server.root_url, num_ctx=2000)
    budget_model(ollama, on_report=reports.append).invoke("Why?", model="llama3.1")
    openai = ChatOpenAI(model="gpt-4o", base_url=f"{server.root_url}/v1", api_key="none", max_tokens=3000)
    budget_model(openai, on_report=reports.append).invoke("Why?", model="gpt-4")
    assert reports[0].limit <= 2000
    assert reports[1].limit == 8192 - 3000


@pytest.mark.parametrize("client", ["anthropic", "openai", "ollama"])
def test_reasoning_counts_where_the_client_sends_it(server: StrictModelServer, client: str) -> None:
    """What Ollama's model thought drops no message from a request of another client, and is counted in its own."""
    makers = {
        **CLIENTS,
        "openai": lambda url: ChatOpenAI(model="gpt-4o", base_url=f"{url}/v1", api_key="none"),
    }
    thought = {"reasoning_content": "first I think about the rooms and then about the guests " * 20}
    said: list[Any] = [
        HumanMessage("My booking code is HX-4471."),
        AIMessage("Noted.", additional_kwargs=thought),
    ]
    for number in range(8):
        said += [HumanMessage(f"Is room {number} free?"), AIMessage("Yes, it is.", additional_kwargs=thought)]
    reports: list[BudgetReport] = []
    model = budget_model(
        makers[client](server.root_url), max_tokens=600, counter="o200k_base", on_report=reports.append
    )
    model.invoke([*said, HumanMessage("What is my booking code?")])
    dropped = [d.segment_id for d in reports[-1].decisions if not d.after]
    assert bool(dropped) == (client == "ollama")
