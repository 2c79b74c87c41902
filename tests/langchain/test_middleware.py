"""BudgetMiddleware fits every model call of an agent; the requests are judged by a strict server, not by us."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import ModelRequest, ModelResponse, TodoListMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from langchain_budget import BudgetMiddleware
from langchain_budget._codec import CODEC
from langchain_budget._convert import as_tools
from rankbudget import TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.testing import WordCounter
from rankbudget.testing.server import Reply, StrictModelServer
from tests.drawing import draws
from tests.growth import growth

WORDS = WordCounter(framing=1, priming=0)
THREAD: Any = {"configurable": {"thread_id": "t"}}
PARALLEL = 10
SUBJECTS = "time year people way day man thing woman life child world school state family".split()


@tool
def read_file(name: str) -> str:
    """Reads a file of about 3,000 tokens."""
    return f"{name}: " + " ".join(SUBJECTS[i % len(SUBJECTS)] for i in range(3000))


@tool
def look(name: str) -> str:
    """Looks something up."""
    return f"{name} is fine"


@pytest.fixture
def server() -> Iterator[StrictModelServer]:
    """A strict server on this machine."""
    with StrictModelServer() as running:
        yield running


def model(server: StrictModelServer, window: int = 8192, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model=f"openai@{window}", base_url=server.base_url, api_key="none", max_retries=0, **options
    )


def request(messages: list[Any], **fields: Any) -> ModelRequest[Any]:
    return ModelRequest(model=FakeListChatModel(responses=[""]), messages=messages, **fields)


def answer(text: str = "ok", **fields: Any) -> ModelResponse[Any]:
    return ModelResponse(result=[AIMessage(text, **fields)])


def chat(turns: int) -> list[Any]:
    return [
        m
        for i in range(turns)
        for m in (HumanMessage(f"question {i}", id=f"q{i}"), AIMessage(f"answer {i}", id=f"a{i}"))
    ]


# ---------------------------------------------------------------- against the strict server
@pytest.mark.slow
@pytest.mark.parametrize("asynchronous", [False, True], ids=["invoke", "ainvoke"])
def test_an_agent_of_forty_turns_with_ten_parallel_calls_always_fits(
    server: StrictModelServer, asynchronous: bool
) -> None:
    """Forty turns of ten 3,000-token results in a window of 8,192: every request the server receives fits and is valid."""
    turns = 40 if not asynchronous else 6
    calls = tuple(("read_file", {"name": f"file {i}"}) for i in range(PARALLEL))
    server.script(*(Reply(text="", tool_calls=calls) for _ in range(turns)), Reply(text="All read."))
    agent = create_agent(
        model(server),
        [read_file],
        system_prompt="You read files.",
        middleware=[BudgetMiddleware(max_tokens=8000, counter="o200k_base")],
    )
    given = {"messages": [HumanMessage("Read all files and compare them.")]}
    config: Any = {"recursion_limit": 500}
    state = asyncio.run(agent.ainvoke(given, config)) if asynchronous else agent.invoke(given, config)
    assert state["messages"][-1].content == "All read."
    assert len(state["messages"]) == 2 + turns * (PARALLEL + 1)
    assert len(server.requests) == turns + 1
    assert [r.problems for r in server.refused] == []
    assert all(r.messages[1]["content"] == "Read all files and compare them." for r in server.requests)
    assert all(sum(m["role"] == "tool" for m in r.messages) >= PARALLEL for r in server.requests[1:])


def test_a_long_conversation_is_served_from_a_checkpoint(server: StrictModelServer) -> None:
    """A thread that outgrows its window goes on; the state keeps everything, the prompt only what fits."""
    agent = create_agent(
        model(server, 400),
        [look],
        system_prompt="Be brief.",
        middleware=[BudgetMiddleware(max_tokens=380, counter="o200k_base")],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    for i in range(30):
        state = agent.invoke(
            {"messages": [HumanMessage(f"This is what I want to say in turn number {i}.")]}, config
        )
    assert [r.problems for r in server.refused] == []
    assert len(state["messages"]) == 60
    assert len(server.requests[-1].messages) < 61


def test_the_kept_prefix_moves_rarely(server: StrictModelServer) -> None:
    """Between two cuts, each request starts with the whole request before it: a provider's cache reads it again."""
    agent = create_agent(
        model(server),
        [],
        middleware=[BudgetMiddleware(max_tokens=400, counter="o200k_base")],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    for i in range(40):
        agent.invoke({"messages": [HumanMessage(f"This is what I want to say in turn number {i}.")]}, config)
    moved = sum(
        later.messages[: len(earlier.messages)] != earlier.messages
        for earlier, later in zip(server.requests, server.requests[1:], strict=False)
    )
    assert 1 <= moved <= 5


def test_an_overflow_is_tried_once_more_with_less(server: StrictModelServer) -> None:
    """When the window is smaller than believed, the provider's refusal is answered by a tighter prompt."""
    agent = create_agent(
        model(server, 300), [], middleware=[BudgetMiddleware(max_tokens=380, counter="o200k_base")]
    )
    state = agent.invoke({"messages": [*(m for m in chat(60)), HumanMessage("and now?")]}, THREAD)
    assert state["messages"][-1].content == "ok"
    assert [bool(r.problems) for r in server.requests] == [True, False]
    once = create_agent(
        model(server, 300),
        [],
        middleware=[BudgetMiddleware(max_tokens=380, counter="o200k_base", retry=False)],
    )
    with pytest.raises(ContextOverflowError):
        once.invoke({"messages": [*(m for m in chat(60)), HumanMessage("and now?")]}, THREAD)


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_the_second_try_is_smaller_than_the_first_was(asynchronous: bool) -> None:
    """A prompt far below the limit that is refused is sent with three quarters of its own tokens, not of the limit it never reached."""
    sizes: list[int] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sizes.append(sum(WORDS.count_message(CODEC.to_dict(m)) for m in asked.messages))
        if sizes[-1] > 60:
            raise ContextOverflowError
        return answer()

    async def ahandler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        return handler(asked)

    asked = request([*chat(12), HumanMessage("and now")])
    middleware = BudgetMiddleware(max_tokens=1000, counter=WORDS)
    if asynchronous:
        await middleware.awrap_model_call(asked, ahandler)
    else:
        middleware.wrap_model_call(asked, handler)
    assert sizes[0] == 12 * 6 + 3
    assert len(sizes) == 2
    assert 3 < sizes[1] <= sizes[0] * 0.75


@given(
    system=st.sampled_from([None, "You are kind."]),
    turns=st.integers(0, 9),
    late=st.sampled_from([[], [TodoListMiddleware()]]),
    limit=st.sampled_from([930, 10_000]),
)
@draws()
def test_the_figures_count_the_system_message(
    system: str | None, turns: int, late: list[Any], limit: int
) -> None:
    """`kept` is what was sent and `given` what might have been, the system message with both."""
    sent: list[int] = []

    class Noting(FakeListChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

        def _call(self, messages: Any, *args: Any, **options: Any) -> str:
            sent.append(len(messages))
            return "fine"

    ours = BudgetMiddleware(max_tokens=limit, counter=WORDS)
    agent = create_agent(Noting(responses=[""]), middleware=[ours, *late], system_prompt=system)
    thread = [*chat(turns), HumanMessage("and now")]
    (part,) = agent.stream({"messages": thread}, stream_mode="custom")
    figures = part["context_budget"]
    assert figures["kept"] == sent[0]
    if limit == 10_000 and not late:
        assert figures["given"] == figures["kept"] == len(thread) + (system is not None)


def test_a_cut_is_written_to_the_state_in_linear_time() -> None:
    """Ten times the messages take about ten times as long to remove."""
    middleware = BudgetMiddleware(max_tokens=50, counter=WORDS, persist=True)
    answer = ModelResponse(result=[AIMessage("fine")])

    def persisted(asked: ModelRequest[Any]) -> None:
        updated: Any = middleware.wrap_model_call(asked, lambda _: answer)
        assert len(updated.command.update["messages"]) > len(asked.messages) - 50

    def long(turns: int) -> ModelRequest[Any]:
        return request([*chat(turns), HumanMessage("and now", id="now")])

    assert growth(persisted, long, 400, 10, 25).linear


def test_streaming_carries_the_figures(server: StrictModelServer) -> None:
    """The custom stream holds one report for each model call, and the tokens stream as before."""
    server.script(Reply(text="", tool_calls=[("look", {"name": "x"})]), Reply(text="It is fine."))
    agent = create_agent(
        model(server, streaming=True),
        [look],
        middleware=[BudgetMiddleware(max_tokens=500, counter="o200k_base")],
    )
    figures, texts = [], []
    for mode, part in agent.stream(
        {"messages": [HumanMessage("look at x")]}, stream_mode=["custom", "messages"]
    ):
        if mode == "custom":
            figures.append(part["context_budget"])
        elif isinstance(part[0].content, str):
            texts.append(part[0].content)
    assert [f["kept"] for f in figures] == [1, 3]
    assert all(f["total_tokens"] <= f["limit"] == 500 for f in figures)
    assert "It is fine." in "".join(texts)
    assert all(
        r.prompt_tokens <= f["total_tokens"] <= r.prompt_tokens + 4
        for r, f in zip(server.requests, figures, strict=True)
    )


# ---------------------------------------------------------------- one call at a time
def test_system_prompt_tools_and_messages_share_the_limit() -> None:
    """What the model is sent is counted with system prompt and tools; the system prompt is passed on as it was."""
    seen: list[ModelRequest[Any]] = []
    reports: list[Any] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        seen.append(asked)
        return answer()

    middleware = BudgetMiddleware(max_tokens=60, counter=WORDS, on_report=reports.append)
    system, given = SystemMessage("Be kind."), chat(2)
    middleware.wrap_model_call(request(given, system_message=system, tools=[look]), handler)
    middleware.wrap_model_call(request(given, system_message=system), handler)
    middleware.wrap_model_call(request(given), handler)
    assert seen[0].system_message is system
    assert [r.total_tokens for r in reports[1:]] == [4 * 3 + 3, 4 * 3]
    assert reports[0].total_tokens == reports[1].total_tokens + WORDS.overhead(as_tools([look]))
    middleware.wrap_model_call(
        request([*chat(40), HumanMessage("now")], system_message=system, tools=[look]), handler
    )
    assert reports[-1].total_tokens <= 60
    assert seen[-1].messages[-1].content == "now"


def test_the_models_own_profile_is_the_limit() -> None:
    """Without a budget the profile of the model that is called decides, for each model its own."""
    reports: list[Any] = []
    middleware = BudgetMiddleware(on_report=reports.append)
    for window in (1000, 2000):
        fake = FakeListChatModel(
            responses=[""], profile={"max_input_tokens": window, "max_output_tokens": 100}
        )
        middleware.wrap_model_call(ModelRequest(model=fake, messages=chat(2)), lambda _: answer())
    assert [r.limit for r in reports] == [900, 1900]
    with pytest.raises(BudgetConfigError, match="neither a profile nor a name"):
        middleware.wrap_model_call(request(chat(1)), lambda _: answer())


def test_persist_writes_the_cut_to_the_state() -> None:
    """With persist=True what was dropped is gone from the state, and the model's reply is still there."""
    agent = create_agent(
        FakeListChatModel(responses=["fine"]),
        [],
        middleware=[BudgetMiddleware(max_tokens=40, counter=WORDS, persist=True)],
    )
    state = agent.invoke({"messages": [*chat(40), HumanMessage("now", id="now")]})
    assert [m.content for m in state["messages"][-2:]] == ["now", "fine"]
    assert len(state["messages"]) < 20
    plain = create_agent(
        FakeListChatModel(responses=["fine"]), [], middleware=[BudgetMiddleware(max_tokens=40, counter=WORDS)]
    )
    assert len(plain.invoke({"messages": [*chat(40), HumanMessage("now", id="now")]})["messages"]) == 82


def test_persist_puts_a_summary_first() -> None:
    """A persisted summary opens the state, the reply closes it, and the next call goes on from there."""
    agent = create_agent(
        FakeListChatModel(responses=["fine"]),
        [],
        middleware=[
            BudgetMiddleware(
                max_tokens=60, counter=WORDS, persist=True, summarizer=lambda text, most: "They counted."
            )
        ],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "t"}}
    state = agent.invoke({"messages": [*chat(40), HumanMessage("now", id="now")]}, config)
    assert "They counted." in state["messages"][0].content
    assert state["messages"][-1].content == "fine"
    again = agent.invoke({"messages": [HumanMessage("more", id="more")]}, config)
    assert [m.content for m in again["messages"][-2:]] == ["more", "fine"]


async def test_the_async_form_sends_what_the_sync_form_sends() -> None:
    """Both forms call the handler with the same messages."""
    sent: list[list[Any]] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.append(asked.messages)
        return answer()

    async def ahandler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        return handler(asked)

    given = [*chat(40), HumanMessage("now")]
    BudgetMiddleware(max_tokens=60, counter=WORDS).wrap_model_call(request(given), handler)
    await BudgetMiddleware(max_tokens=60, counter=WORDS).awrap_model_call(request(given), ahandler)
    assert sent[0] == sent[1]
    assert len(sent[0]) < len(given)


def test_what_cannot_fit_is_an_error_before_the_model_is_called() -> None:
    """A system prompt beyond the limit raises; the handler is never asked."""

    def never(_: Any) -> Any:
        raise AssertionError

    with pytest.raises(BudgetExceededError):
        BudgetMiddleware(max_tokens=20, counter=WORDS).wrap_model_call(
            request(chat(2), system_message=SystemMessage("rule " * 50)), never
        )
    with pytest.raises(BudgetExceededError, match="system prompt"):
        BudgetMiddleware(TokenBudget(context_window=100, reserve=10), counter=WORDS).wrap_model_call(
            request(chat(2), system_message=SystemMessage("rule " * 50)), never
        )


@pytest.mark.filterwarnings("ignore:Direct attribute assignment:DeprecationWarning")
def test_threads_do_not_share_their_cuts() -> None:
    """One middleware serves many conversations at once; each gets its own messages back.

    LangChain silences a warning about itself while it makes a request, in a way that holds for one thread only.
    """
    middleware = BudgetMiddleware(max_tokens=40, counter=WORDS)
    failures: list[Any] = []

    def work(name: str) -> None:
        thread = [HumanMessage(f"{name} question", id=f"{name}-0")]
        for i in range(1, 60):
            sent: list[Any] = []

            def handler(asked: ModelRequest[Any], sent: list[Any] = sent) -> ModelResponse[Any]:
                sent += asked.messages
                return answer()

            middleware.wrap_model_call(request(list(thread)), handler)
            if not all(m.content.startswith(name) for m in sent) or sent[-1] is not thread[-1]:
                failures.append((name, i))
            thread += [
                AIMessage(f"{name} answer {i}", id=f"{name}-a{i}"),
                HumanMessage(f"{name} question {i}", id=f"{name}-q{i}"),
            ]

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "cid", "dan")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# ---------------------------------------------------------------- the stock middleware, and graphs
