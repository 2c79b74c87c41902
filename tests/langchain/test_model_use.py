"""budget_model in use: late additions, fallbacks, schemas, streaming, threads and copies; a strict server judges the requests."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware, dynamic_prompt
from langchain.chat_models import init_chat_model
from langchain_classic.chains import ConversationChain
from langchain_core.caches import InMemoryCache
from langchain_core.language_models.fake import FakeListLLM
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel, Field

from langchain_budget import (
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    budget_model,
    pre_model_hook,
)
from rankbudget import BudgetSession, TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, BudgetError, BudgetExceededError
from rankbudget.testing.server import Reply, StrictModelServer

from .entries import Noting

WINDOW = 1000
LATE = "Mind this rule as well. " * 120  # about 720 tokens


class Verdict(BaseModel):
    """What was decided."""

    reason: str = Field(description="why it was decided so, in all detail, " * 20)


@tool
def look(name: str) -> str:
    """Looks something up."""
    return f"{name}: " + "found in the archive of last year " * 10


@pytest.fixture
def server() -> Iterator[StrictModelServer]:
    """A strict server on this machine."""
    with StrictModelServer() as running:
        yield running


def client(server: StrictModelServer, window: int = WINDOW, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=f"openai@{window}", base_url=server.base_url, api_key="none", max_retries=0, **options
    )


def bounded(server: StrictModelServer, **options: Any) -> Any:
    return budget_model(client(server, **options), max_tokens=WINDOW, counter="o200k_base")


def chat(turns: int) -> list[BaseMessage]:
    talk = "a few words about the matter at hand and some more of them"
    return [m for i in range(turns) for m in (HumanMessage(f"{i}: {talk}?"), AIMessage(f"{i}: {talk}."))]


ASKED = [*chat(40), HumanMessage("And now?")]


# ---------------------------------------------------------------- what is added after an earlier door planned
@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
@pytest.mark.parametrize("late", ["prompt", "todo"])
def test_an_agents_late_prompt_is_fitted_at_the_last_door(
    server: StrictModelServer, late: str, asynchronous: bool
) -> None:
    """A prompt or a todo list made after BudgetMiddleware: nothing over, nothing invalid, one call for each step of the run."""
    server.script(Reply(text="", tool_calls=[("look", {"name": "a"}), ("look", {"name": "b"})]), "Done.")
    added: Any = dynamic_prompt(lambda request: LATE) if late == "prompt" else TodoListMiddleware()
    ours = BudgetMiddleware(max_tokens=3000, counter="o200k_base")
    agent = create_agent(
        budget_model(client(server, 3200), max_tokens=3200, counter="o200k_base"),
        [look],
        middleware=[ours, added],
    )
    state = (
        asyncio.run(agent.ainvoke({"messages": ASKED})) if asynchronous else agent.invoke({"messages": ASKED})
    )
    assert state["messages"][-1].content == "Done."
    assert [r.problems for r in server.refused] == []
    assert len(server.requests) == 2
    assert [m["role"] for m in server.requests[1].messages][-3:] == ["assistant", "tool", "tool"]


@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
def test_the_middleware_alone_fits_a_late_prompt(server: StrictModelServer, asynchronous: bool) -> None:
    """Nothing a later middleware adds takes a request over the limit; without the middleware the run is refused."""
    late = dynamic_prompt(lambda request: LATE)
    config: Any = {"configurable": {"thread_id": "t"}}
    with pytest.raises(Exception, match="maximum context length"):
        create_agent(client(server), [look], middleware=[late]).invoke({"messages": ASKED})
    ours = BudgetMiddleware(max_tokens=WINDOW, counter="o200k_base")
    agent = create_agent(client(server), [look], middleware=[ours, late])
    run = agent.ainvoke({"messages": ASKED}, config) if asynchronous else None
    state = agent.invoke({"messages": ASKED}, config) if run is None else asyncio.run(run)
    assert state["messages"][-1].content == "ok"
    (refused, sent) = server.requests
    assert refused.problems
    assert not sent.problems
    assert sent.messages[0]["content"] == LATE


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_graphs_late_prompt_is_fitted(server: StrictModelServer) -> None:
    """A hook that does not know the agent's prompt, and a prompt that is long."""
    hook = pre_model_hook(max_tokens=WINDOW, counter="o200k_base", tools=[look])
    agent = create_react_agent(bounded(server), [look], prompt=LATE, pre_model_hook=hook)
    assert agent.invoke({"messages": ASKED})["messages"][-1].content == "ok"
    (only,) = server.requests
    assert not only.problems
    assert only.messages[0]["content"] == LATE


def test_a_chains_late_template_is_fitted(server: StrictModelServer) -> None:
    """A message history with the whole window, and a template around it."""
    history = BudgetMessageHistory(max_tokens=WINDOW, counter="o200k_base")
    history.add_messages(chat(40))
    prompt = ChatPromptTemplate([("system", LATE), MessagesPlaceholder("history"), ("human", "{input}")])
    chain = RunnableWithMessageHistory(
        prompt | bounded(server),
        lambda: history,
        input_messages_key="input",
        history_messages_key="history",
        history_factory_config=[],
    )
    assert chain.invoke({"input": "And now?"}).content == "ok"
    (only,) = server.requests
    assert not only.problems
    assert only.messages[-1]["content"] == "And now?"


def test_a_text_that_is_too_long_is_refused_before_it_is_sent(server: StrictModelServer) -> None:
    """A conversation chain writes everything into one message; where cutting its text cannot help: a typed error, and no request."""
    memory = BudgetMemory(max_tokens=100, counter="o200k_base")
    memory.chat_memory.add_messages(chat(40))
    model = budget_model(client(server), max_tokens=150, counter="o200k_base")
    prompt = PromptTemplate.from_template(LATE + "{history} {input}")
    with pytest.raises(BudgetExceededError) as raised:
        ConversationChain(llm=model, memory=memory, prompt=prompt).invoke({"input": "And now?"})
    assert raised.value.limit == 150
    assert raised.value.needed > 720
    assert server.requests == []


# ---------------------------------------------------------------- fallbacks, bindings, schemas
def test_a_fallback_keeps_to_its_own_smaller_window(server: StrictModelServer) -> None:
    """The first model fails after its request fitted; the second has half the window."""
    server.script(Reply(fault="server_error"), "Done.")
    profile: Any = {"max_input_tokens": 600, "max_output_tokens": 60}
    both = client(server, 1200).with_fallbacks([client(server, 600, profile=profile)])
    model: Any = budget_model(both, TokenBudget(context_window=1200, reserve=100), counter="o200k_base")
    assert type(model) is type(both)
    assert model.invoke(ASKED).content == "Done."
    first, second = server.requests
    assert first.problems == second.problems == ()
    assert second.prompt_tokens <= 600 - 60
    assert first.messages[-len(second.messages) :] == second.messages


def test_what_wraps_a_model_stays_around_it(server: StrictModelServer) -> None:
    """Tools, arguments, retries and configurable fields keep their shape; each model inside is bounded."""
    plain = client(server)
    for wrapped in (plain.bind_tools([look]), plain.bind(stop=["."]), plain.with_retry()):
        made = budget_model(wrapped, max_tokens=WINDOW, counter="o200k_base")
        assert type(made) is type(wrapped)
        assert made.kwargs == wrapped.kwargs
        assert made.invoke(ASKED).content == "ok"
    field = budget_model(
        plain.configurable_fields(temperature=ConfigurableField(id="t")),
        max_tokens=WINDOW,
        counter="o200k_base",
    )
    assert field.invoke(ASKED, {"configurable": {"t": 0.5}}).content == "ok"
    made = init_chat_model(
        plain.model_name, model_provider="openai", base_url=server.base_url, api_key="none"
    )
    other = budget_model(
        made.configurable_alternatives(ConfigurableField(id="m"), small=client(server, 500)),
        max_tokens=500,
        counter="o200k_base",
    )
    assert other.invoke(ASKED, {"configurable": {"m": "small"}}).content == "ok"
    assert server.refused == []
    assert server.requests[3].body["temperature"] == 0.5


@pytest.mark.parametrize("method", ["function_calling", "json_schema"])
def test_the_schema_of_structured_output_is_counted(server: StrictModelServer, method: Any) -> None:
    """A long schema takes its tokens from the conversation, as a tool and as a response format."""
    seen: list[int] = []
    model = budget_model(
        client(server), max_tokens=WINDOW, counter="o200k_base", on_report=lambda r: seen.append(r.overhead)
    )
    answer = '{"reason": "so"}'
    call = Reply(text="", tool_calls=[("Verdict", {"reason": "so"})])
    server.script(call if method == "function_calling" else answer, "ok")
    assert model.with_structured_output(Verdict, method=method).invoke(ASKED) == Verdict(reason="so")
    model.invoke(ASKED)
    schema, none = seen
    assert schema - none > 150
    assert server.refused == []


# ---------------------------------------------------------------- every way to ask
WAYS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda model: model.invoke(ASKED),
    "ainvoke": lambda model: asyncio.run(model.ainvoke(ASKED)),
    "batch": lambda model: model.batch([ASKED, ASKED]),
    "abatch": lambda model: asyncio.run(model.abatch([ASKED, ASKED])),
    "generate": lambda model: model.generate([ASKED]),
    "stream": lambda model: list(model.stream(ASKED)),
    "astream": lambda model: asyncio.run(_all(model.astream(ASKED))),
    "events 2": lambda model: asyncio.run(_all(model.astream_events(ASKED, version="v2"))),
    "events 3": lambda model: list(model.stream_events(ASKED, version="v3")),
    "transform": lambda model: list(model.transform(iter([ASKED]))),
}


async def _all(events: Any) -> list[Any]:
    return [event async for event in events]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_ask_is_fitted_once(server: StrictModelServer, way: str) -> None:
    """Invoked, streamed, in batches or as events: each request is fitted, and counted once."""
    reports: list[Any] = []
    model = budget_model(client(server), max_tokens=WINDOW, counter="o200k_base", on_report=reports.append)
    WAYS[way](model)
    assert server.requests
    assert server.refused == []
    assert len(reports) == len(server.requests)
    assert all(r.total_tokens <= WINDOW for r in reports)


def test_what_fits_is_sent_as_the_very_same_messages() -> None:
    """The objects that were given, in order; an earlier door's plan is not touched."""
    sent: list[Any] = []
    given = [SystemMessage("Be brief."), *chat(3), HumanMessage("And now?")]
    budget_model(Noting(sent=sent), max_tokens=WINDOW, counter="o200k_base").invoke(given)
    assert all(a is b for a, b in zip(sent, given, strict=True))


# ---------------------------------------------------------------- limits
def test_limits_come_from_the_model_a_budget_a_session_or_a_number() -> None:
    """The smallest wins; the answer that one call asks for is kept free."""
    sent: list[Any] = []
    count = counter_for("o200k_base")
    plain = Noting(sent=sent, profile={"max_input_tokens": 800, "max_output_tokens": 100})

    def used(model: Any, **options: Any) -> int:
        model.invoke(ASKED, **options)
        return count.count_messages([{"role": "user", "content": m.content} for m in sent])

    assert 350 < used(budget_model(plain, counter=count)) <= 700
    assert used(budget_model(plain, counter=count), max_tokens=500) <= 300
    assert used(budget_model(plain, TokenBudget(context_window=500, reserve=100), counter=count)) <= 400
    assert used(budget_model(plain, BudgetSession(TokenBudget(context_window=500, reserve=100)))) <= 400
    assert used(budget_model(plain, BudgetSession(300))) <= 300
    assert used(budget_model(plain, BudgetSession(300), max_tokens=200)) <= 200
    assert used(budget_model(plain, {"context_window": 500, "reserve": 100}, counter=count)) <= 400


@pytest.mark.parametrize(
    "budget",
    [
        TokenBudget(context_window=WINDOW, reserve=100),
        TokenBudget.of_blocks(system=50, history=500, response=100, context_window=WINDOW),
    ],
)
def test_a_system_message_that_holds_documents_is_no_configuration_error(
    budget: TokenBudget, server: StrictModelServer
) -> None:
    """What a budget allows its system prompt, a share or a size, is the earlier doors' to check: here it is rendered, documents and all."""
    model = budget_model(client(server), budget, counter="o200k_base")
    assert model.invoke([SystemMessage(LATE), HumanMessage("And now?")]).content == "ok"


def test_wrong_options_are_named() -> None:
    """What is no model, and a model whose window is unknown."""
    with pytest.raises(BudgetConfigError, match=r"model must be .*RunnableLambda"):
        budget_model(RunnableLambda(lambda x: x), max_tokens=100)
    anew = init_chat_model("gpt-4o", model_provider="openai", configurable_fields="any", api_key="none")
    for each in (anew, anew.bind_tools([look]), init_chat_model()):
        with pytest.raises(BudgetConfigError, match=r"_ConfigurableModel.*configurable_alternatives"):
            budget_model(each, max_tokens=100)
    with pytest.raises(BudgetError, match="window"):
        budget_model(FakeListChatModel(responses=["ok"]))
    with pytest.raises(BudgetConfigError, match="max_tokens"):
        budget_model(FakeListChatModel(responses=["ok"]), max_tokens=0)


def test_a_completion_model_is_counted() -> None:
    """A text has no parts to drop: what fits passes, the rest raises, streamed or not."""
    model = budget_model(FakeListLLM(responses=["fine"]), max_tokens=10, counter="o200k_base")
    assert isinstance(model, FakeListLLM)
    assert model.invoke("Short.") == "fine"
    for ask in (
        model.invoke,
        lambda text: list(model.stream(text)),
        lambda text: asyncio.run(model.ainvoke(text)),
    ):
        with pytest.raises(BudgetExceededError) as raised:
            ask("too long " * 20)
        assert (raised.value.limit, raised.value.needed) == (10, 40 + 1)


# ---------------------------------------------------------------- threads
def test_a_thread_keeps_its_cut_and_no_thread_keeps_nothing(server: StrictModelServer) -> None:
    """Where the host names the thread the first kept message stays for many turns; elsewhere equal requests are cut alike."""
    agent = create_agent(bounded(server), [look], system_prompt="Be brief.", checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "t"}}
    for i in range(100):
        agent.invoke({"messages": [HumanMessage(f"Turn {i}: a few words about the matter at hand.")]}, config)
    starts = [r.messages[1]["content"] for r in server.requests]
    assert server.refused == []
    assert 1 < len(set(starts)) <= 5
    server.forget()
    model = bounded(server)
    for thread in (ASKED, chat(30)[1:], ASKED):
        model.invoke(thread)
    assert server.requests[0].messages == server.requests[2].messages


def test_two_conversations_in_one_thread_do_not_mix(server: StrictModelServer) -> None:
    """A subagent or a summarizer calls the same model under the same thread: each request holds only its own messages."""
    model = bounded(server)
    other = [HumanMessage(f"other {i} " * 20) for i in range(40)]
    step = RunnableLambda(model.invoke)
    for i in range(1, 41, 3):
        for given in (ASKED[: 2 * i + 1], other[:i]):
            step.invoke(given, {"configurable": {"thread_id": "t"}})
            texts = {m.content for m in given}
            assert {m["content"] for m in server.requests[-1].messages} <= texts
            assert server.requests[-1].messages[-1]["content"] == given[-1].content
    assert server.refused == []


# ---------------------------------------------------------------- copies
def test_copies_keep_the_limit() -> None:
    """Pickled, copied, or made again with other fields as configurable models are: the guarantee goes along."""
    model = budget_model(FakeListChatModel(responses=["ok"]), max_tokens=50, counter="o200k_base")
    changed = model.model_copy(update={"responses": ["other"]})
    again = type(model)(**{**model.__dict__, "responses": ["other"]})
    twice = budget_model(model, max_tokens=60, counter="o200k_base")
    for made in (
        pickle.loads(pickle.dumps(model)),
        copy.copy(model),
        copy.deepcopy(model),
        changed,
        again,
        twice,
    ):
        assert type(made) is type(model)
        assert made.invoke("hi").content in {"ok", "other"}
        with pytest.raises(BudgetExceededError):
            made.invoke("too long " * 50)


def test_an_answer_is_cached_under_the_request_that_was_sent() -> None:
    """Two limits, one cache: the longer request is not answered with what the shorter one got."""
    cache = InMemoryCache()
    sent: list[Any] = []
    small, large, same = (
        budget_model(Noting(sent=sent, cache=cache), max_tokens=n, counter="o200k_base")
        for n in (100, 5000, 100)
    )
    lengths = []
    for model in (small, large, same):
        sent.clear()
        model.invoke(ASKED)
        lengths.append(len(sent))
    assert 0 < lengths[0] < lengths[1] == len(ASKED)
    assert lengths[2] == 0
