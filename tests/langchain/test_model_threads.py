"""A bounded model reads the thread of the call, whichever way it is called, and streamed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models.fake_chat_models import FakeListChatModel, ParrotFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.runnables import RunnableLambda

from langchain_budget import budget_model
from rankbudget import BudgetSession
from rankbudget.testing import WordCounter
from tests.drawing import draws

pytestmark = pytest.mark.filterwarnings("ignore::langchain_core._api.beta_decorator.LangChainBetaWarning")
WORDS = WordCounter(framing=1, priming=0)


class Streaming(FakeListChatModel):
    """Streams its answer; keeps the requests and what came with them."""

    responses: list[str] = ["ok"]  # noqa: RUF012 - a pydantic field
    sent: Any = None

    def _note(self, messages: list[BaseMessage], options: dict[str, Any]) -> None:
        self.sent.append([m.text for m in messages])
        assert options.keys() <= {"stop", "run_manager", "temperature"}

    def _call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
        self._note(messages, kwargs)
        return super()._call(messages, *args, **kwargs)

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[Any]:
        self._note(messages, kwargs)
        return super()._stream(messages, stop, run_manager, **kwargs)

    async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self._note(messages, kwargs)
        async for part in super()._astream(messages, stop, run_manager, **kwargs):
            yield part


class Whole(ParrotFakeChatModel):
    """Does not stream; keeps the requests."""

    sent: Any = None

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        self.sent.append([m.text for m in messages])
        assert kwargs.keys() <= {"temperature"}
        return super()._generate(messages, stop, run_manager, **kwargs)


async def every(events: Any) -> list[Any]:
    return [event async for event in events]


async def events_3(model: Any, asked: Any, config: Any) -> Any:
    return await (await model.astream_events(asked, config, version="v3")).output


WAYS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "invoke": lambda model, asked, config: model.invoke(asked, config),
    "named": lambda model, asked, config: model.invoke(asked, config=config, temperature=0.5),
    "ainvoke": lambda model, asked, config: asyncio.run(model.ainvoke(asked, config)),
    "stream": lambda model, asked, config: list(model.stream(asked, config)),
    "astream": lambda model, asked, config: asyncio.run(every(model.astream(asked, config))),
    "batch": lambda model, asked, config: model.batch([asked], [config]),
    "abatch": lambda model, asked, config: asyncio.run(model.abatch([asked], config)),
    "as completed": lambda model, asked, config: list(model.batch_as_completed([asked], config)),
    "transform": lambda model, asked, config: list(model.transform(iter([asked]), config)),
    "events 2": lambda model, asked, config: asyncio.run(
        every(model.astream_events(asked, config, version="v2"))
    ),
    "events 3": lambda model, asked, config: model.stream_events(asked, config, version="v3").output,
    "async events 3": lambda model, asked, config: asyncio.run(events_3(model, asked, config)),
    "bind": lambda model, asked, config: model.bind(temperature=0.5).invoke(asked, config),
    "with_config": lambda model, asked, config: model.with_config(config).invoke(asked),
    "with_retry": lambda model, asked, config: model.with_retry().invoke(asked, config),
    "with_fallbacks": lambda model, asked, config: model.with_fallbacks([model]).invoke(asked, config),
}


def in_a_chain(model: Any, asked: Any, config: Any) -> Any:
    return RunnableLambda(model.invoke).invoke(asked, config)


def talk(
    kind: Any, turns: list[tuple[str, str]], beside: Callable[[list[Any]], list[Any]] | None = None
) -> tuple[list[Any], int, list[bool]]:
    """Returns the requests that were sent, how many summaries were written, and which users were known."""
    sent: list[Any] = []
    written: list[str] = []

    def summarize(text: str, most: int) -> str:
        written.append(text)
        return "They met."

    model = budget_model(kind(sent=sent), BudgetSession(200, counter=WORDS, summarizer=summarize))
    threads: dict[str, list[BaseMessage]] = {}
    for number, (way, user) in enumerate(turns):
        thread = threads.setdefault(user, [])
        thread.append(HumanMessage(f"{user} asks {number} about this and that and the other thing"))
        {**WAYS, "chain": in_a_chain}[way](model, thread, {"configurable": {"thread_id": user}})
        thread.append(AIMessage(f"{user} hears {number} all about this and that"))
        if beside is not None:
            model.invoke(beside(thread), {"configurable": {"thread_id": user}})
            sent.pop()
    return sent, len(written), [model.forget(user) for user in ("ann", "ben", "cal", None)]


@draws()
@given(turns=st.lists(st.tuples(st.sampled_from(sorted(WAYS)), st.sampled_from(["ann", "ben"])), max_size=24))
def test_a_direct_call_has_the_thread_of_its_config(turns: list[tuple[str, str]]) -> None:
    """The same requests, summaries and threads as when the model is called inside a chain."""
    assert talk(Streaming, turns) == talk(Streaming, [("chain", user) for _, user in turns])


@pytest.mark.parametrize(
    "beside",
    [
        lambda thread: [HumanMessage(f"A title for: {thread[-2].text}")],
        lambda thread: [SystemMessage("Which agent is next?"), *thread[-2:]],
    ],
    ids=["title", "route"],
)
def test_calls_beside_a_conversation_leave_its_cut_and_summary(beside: Any) -> None:
    """Calls for a title or a route with the thread_id of the conversation change none of its requests."""
    turns = [("invoke", user) for _ in range(15) for user in ("ann", "ben")]
    assert talk(Whole, turns, beside) == talk(Whole, turns)


@pytest.mark.parametrize(
    ("way", "kind"),
    [
        *((way, Streaming) for way in WAYS),
        *((way, Whole) for way in WAYS if "events 3" not in way),  # only models that stream have these
    ],
)
def test_every_way_to_call_names_its_thread(way: str, kind: Any) -> None:
    """Two users by turns: one summary a thread where it is due, not one for each change of the user."""
    turns = [(way, user) for _ in range(15) for user in ("ann", "ben")]
    sent, written, known = talk(kind, turns)
    assert (sent, written, known) == talk(kind, [("chain", user) for _, user in turns])
    assert written < len(turns) / 2
    assert known == [True, True, False, False]


def test_a_trace_does_not_show_how_the_thread_is_passed() -> None:
    """Callbacks see the arguments of the call alone."""
    seen: list[Any] = []

    class Trace(BaseCallbackHandler):
        def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
            seen.append({name: kwargs[name] for name in ("invocation_params", "options")})

    config: Any = {"callbacks": [Trace()]}
    for bounded in (False, True):
        model: Any = Streaming(sent=[])
        model = budget_model(model, max_tokens=60, counter=WORDS) if bounded else model
        for way in ("named", "stream", "events 3"):
            WAYS[way](model, "Hi", {**config, "configurable": {"thread_id": "ann"}})
    assert seen[:3] == seen[3:]
