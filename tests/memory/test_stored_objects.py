"""What JSON cannot hold of a message: no run is lost by what no model reads, and a warning says what is left out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock

from langchain_budget import StoredMessageHistory, StoredThreadMiddleware
from langchain_budget.stored_history import FORM as LANGCHAIN
from llamaindex_budget._stored import FORM as LLAMAINDEX
from rankbudget.errors import MessageError
from rankbudget.memory import HistoryStore, HostForm
from rankbudget.testing import WordCounter
from tests.drawing import draws

from .test_stored_threads import ANN, THREAD, Scripted


class Frame:
    """An object of a tool."""


RING: list[Any] = []
RING.append(RING)
MOMENT = datetime(2026, 1, 2, 3, tzinfo=timezone.utc)
TEXTS = [date(2026, 1, 2), MOMENT, time(4, 5), timedelta(6), Decimal("1.50"), UUID(int=7)]
OBJECTS = [Frame(), {1, 2}, object, {(1, 2): 3}]


def nested(leaves: list[Any]) -> st.SearchStrategy[Any]:
    """Draws one of these, bare or inside of what JSON can hold."""
    return st.builds(
        lambda leaf, wrap: wrap(leaf),
        st.sampled_from(leaves),
        st.sampled_from([lambda x: x, lambda x: [1, x], lambda x: {"at": x}, lambda x: [{"a": [x]}]]),
    )


def langchain(place: str, value: Any) -> list[Any]:
    arguments = {"when": value} if place == "arguments" else {}
    extra: dict[str, Any] = {place: {"odd": value, "kept": 1}} if place in EXTRAS else {}
    artifact = {"artifact": value} if place == "artifact" else {}
    call = {"name": "look", "args": arguments, "id": "c"}
    return [
        HumanMessage("Look.", id="1"),
        AIMessage("", id="2", tool_calls=[call], **extra),
        ToolMessage("seen", id="3", tool_call_id="c", name="look", **artifact),
    ]


def llamaindex(place: str, value: Any) -> list[Any]:
    arguments = {"when": value} if place == "arguments" else {}
    odd = {"odd": value, "kept": 1} if place in EXTRAS else {}
    call = ToolCallBlock(tool_call_id="c", tool_name="look", tool_kwargs=arguments)
    return [
        ChatMessage("Look.", additional_kwargs={"id": "1"}),
        ChatMessage(
            role="assistant", blocks=[TextBlock(text=""), call], additional_kwargs={"id": "2", **odd}
        ),
        ChatMessage("seen", role="tool", additional_kwargs={"id": "3", "tool_call_id": "c", "name": "look"}),
    ]


EXTRAS = ("additional_kwargs", "response_metadata")
BESIDE = [
    ("langchain", "artifact"),
    *[("langchain", extra) for extra in EXTRAS],
    ("llamaindex", "additional_kwargs"),
]
MAKERS: dict[str, tuple[HostForm, Callable[[str, Any], list[Any]]]] = {
    "langchain": (LANGCHAIN, langchain),
    "llamaindex": (LLAMAINDEX, llamaindex),
}


def stored(host: str, place: str, value: Any) -> tuple[list[Any], list[Any], list[str]]:
    """Returns what this host and a reader of dicts get back, and the warnings; sent again, all is the same."""
    form, make = MAKERS[host]
    store, given = HistoryStore(":memory:"), make(place, value)
    thread = store.thread("t", scope=ANN, form=form)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert thread.append(given) == 3
        told = [str(one.message) for one in caught if "is not stored" in str(one.message)]
        assert thread.append(given) == thread.append(thread.messages()) == 0
    assert thread.replaced() == []
    found = thread.messages(), store.thread("t", scope=ANN).messages(), told
    store.close()
    return found


@draws()
@given(
    value=nested(TEXTS),
    where=st.sampled_from([*BESIDE, ("langchain", "arguments"), ("llamaindex", "arguments")]),
)
def test_dates_and_decimals_are_texts(value: Any, where: tuple[str, str]) -> None:
    """Wherever a message has them, they are stored as texts, as a request has them, without a warning."""
    own, plain, told = stored(*where, value)
    leaf = next(one for one in TEXTS if repr(one) in repr(value))
    assert repr(str(leaf)) in repr([message.__dict__ for message in own])
    called = plain[1]["tool_calls"][0]["function"]["arguments"]
    assert (str(leaf) in called, told) == (where[1] == "arguments", [])


@draws()
@given(
    st.tuples(st.sampled_from(BESIDE), nested(OBJECTS))
    | st.tuples(st.just(("langchain", "artifact")), nested([RING]))
)
def test_objects_that_no_model_reads_are_left_out(case: tuple[tuple[str, str], Any]) -> None:
    """What the model reads is stored; a warning names what is not; the rest of its field stays."""
    (host, place), value = case
    own, plain, told = stored(host, place, value)
    assert [message["content"] for message in plain][::2] == ["Look.", "seen"]
    assert plain[1]["tool_calls"][0]["function"]["name"] == "look"
    assert len(told) == 1
    if place == "artifact":
        assert (own[2].artifact, told[0].startswith("artifact of the tool 'look' is not")) == (None, True)
    else:
        held = getattr(own[1], place)
        assert (held["kept"], "odd" in held, f"{place}['odd']" in told[0]) == (1, False, True)


# ---- in a run --------------------------------------------------------------------------------------------
@tool(response_format="content_and_artifact")
def leases(name: str) -> tuple[str, Any]:
    """Finds leases."""
    return f"The lease of {name} ends in May.", [Document("lease", metadata={"created": MOMENT})]


@tool(response_format="content_and_artifact")
def frames(name: str) -> tuple[str, Any]:
    """Finds frames."""
    return f"The frame of {name} has 3 rows.", Frame()


@pytest.mark.parametrize(("used", "told"), [(leases, 0), (frames, 1)])
def test_a_run_is_stored_whatever_its_tools_return(used: Any, told: int) -> None:
    """A tool's object does not lose the run: all messages are stored, and the next run goes on behind them."""
    store = HistoryStore(":memory:")
    call = {"name": used.name, "args": {"name": "ann"}, "id": "c"}
    model = Scripted(script=[AIMessage("", tool_calls=[call]), AIMessage("May."), AIMessage("Yes.")])
    middleware = StoredThreadMiddleware(store, scope=ANN, max_tokens=99, counter=WordCounter())
    agent = create_agent(model, [used], middleware=[middleware])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for asked in ("When?", "Sure?"):
            agent.invoke({"messages": [HumanMessage(asked)]}, THREAD)
    found = StoredMessageHistory(store, "t", scope=ANN).messages
    assert [message.type for message in found] == ["human", "ai", "tool", "ai", "human", "ai"]
    assert [message.content for message in model.seen[-1]][-2:] == ["May.", "Sure?"]
    assert sum("is not stored" in str(one.message) for one in caught) == told
    store.close()


def test_a_question_that_cannot_be_stored_fails_before_the_run() -> None:
    """What a model would read and JSON cannot hold is an error before any model is called."""
    store, model = HistoryStore(":memory:"), Scripted(script=[AIMessage("Fine.")])
    middleware = StoredThreadMiddleware(store, scope=ANN, max_tokens=99, counter=WordCounter())
    agent = create_agent(model, [], middleware=[middleware])
    question: list[BaseMessage] = [HumanMessage([{"type": "text", "text": "Look.", "of": Frame()}])]
    with pytest.raises(MessageError, match="must hold only what JSON can hold"):
        agent.invoke({"messages": question}, THREAD)
    assert (model.seen, store.threads(scope=ANN)) == ([], [])
    store.close()
