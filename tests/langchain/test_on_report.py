"""A callback for reports never costs an answer."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import dynamic_prompt, wrap_model_call
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from pydantic import Field

from langchain_budget import BudgetMiddleware, budget_model
from rankbudget import BudgetReport
from rankbudget.errors import BudgetConfigError
from tests.drawing import draws


class Failing(FakeListChatModel):
    """A model whose provider refuses each request."""

    responses: list[str] = Field(default_factory=lambda: ["fine"])
    error: type[Exception] = ValueError

    def _call(self, *_: Any, **__: Any) -> str:
        raise self.error(self.responses[0])


async def later(report: Any) -> None:
    """Does nothing."""


class Later:
    """An object whose call is async."""

    async def __call__(self, report: Any) -> None:
        """Does nothing."""


def broken(report: Any) -> None:
    """Fails, as a metrics client whose server is away."""
    raise ConnectionError(report)


def _model(on_report: Any) -> Any:
    return budget_model(FakeListChatModel(responses=["fine"]), max_tokens=100, on_report=on_report)


def _agent(on_report: Any) -> Any:
    ours = BudgetMiddleware(max_tokens=100, on_report=on_report)
    return create_agent(FakeListChatModel(responses=["fine"]), middleware=[ours])


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("error", [ValueError, ContextOverflowError])
@pytest.mark.parametrize("retry", [False, True])
async def test_a_call_that_fails_is_reported_too(
    retry: bool, error: type[Exception], asynchronous: bool
) -> None:
    """A request was sent, whatever became of it: one report says what was in it, as for `budget_model`."""
    reports: list[BudgetReport] = []
    ours = BudgetMiddleware(max_tokens=100, retry=retry, on_report=reports.append)
    agent = create_agent(Failing(error=error), middleware=[ours])
    asked: Any = {"messages": [HumanMessage("How are you?")]}
    with pytest.raises(error, match="fine"):
        _ = await agent.ainvoke(asked) if asynchronous else agent.invoke(asked)
    assert [report.blocks[0].kept for report in reports] == [1]


@pytest.mark.parametrize("make", [_model, _agent])
@pytest.mark.parametrize("given", [later, Later(), functools.partial(later), Later().__call__])
def test_an_async_callback_is_refused(make: Any, given: Any) -> None:
    """It would never be awaited."""
    with pytest.raises(BudgetConfigError, match="on_report must be a blocking callable"):
        make(given)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("make", [_model, _agent])
def test_a_callback_that_fails_is_logged_and_the_answer_returned(
    make: Any, asynchronous: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer was paid for."""
    runnable = make(broken)
    asked: Any = [HumanMessage("hi")] if make is _model else {"messages": [HumanMessage("hi")]}
    with caplog.at_level(logging.ERROR, logger="rankbudget"):
        answer = asyncio.run(runnable.ainvoke(asked)) if asynchronous else runnable.invoke(asked)
    assert (answer if make is _model else answer["messages"][-1]).content == "fine"
    assert [(r.name, r.exc_info[0]) for r in caplog.records if r.exc_info] == [
        ("rankbudget", ConnectionError)
    ]


@wrap_model_call
def reminder(request: Any, handler: Any) -> Any:
    """Adds a message before the newest one."""
    note = HumanMessage("Be kind. " * 20, id="note")
    return handler(request.override(messages=[*request.messages[:-1], note, request.messages[-1]]))


@dynamic_prompt
def prompt(_: Any) -> str:
    """Replaces the system prompt."""
    return "Answer in one line. " * 20


@draws()
@given(
    sizes=st.lists(st.integers(1, 60), min_size=1, max_size=12),
    behind=st.lists(st.sampled_from([reminder, prompt]), max_size=2, unique=True),
    limit=st.integers(250, 900),
)
def test_every_message_is_in_the_report_of_a_request_fitted_twice(
    sizes: list[int], behind: list[Any], limit: int
) -> None:
    """What the first plan left out is said beside what a later middleware made of the rest, once, with all tokens it had."""
    said: list[BudgetReport] = []
    chat = [
        message
        for n, size in enumerate(sizes)
        for message in (
            HumanMessage(f"Question {n}?", id=f"q{n}"),
            AIMessage("It is so. " * size, id=f"a{n}"),
        )
    ]
    alone, asked = [*chat, HumanMessage("And now?", id="asked")], list[BudgetReport]()
    for middleware, reports in ((behind, said), ([], asked)):
        ours = BudgetMiddleware(max_tokens=limit, counter="o200k_base", on_report=reports.append)
        made = create_agent(
            FakeListChatModel(responses=["fine"]), system_prompt="Be brief.", middleware=[ours, *middleware]
        )
        made.invoke({"messages": alone})
    (report,), (first,) = said, asked
    tokens = {one.segment_id: one.before for one in first.decisions}
    found = [
        one.segment_id for one in report.decisions if one.segment_id in tokens or one.segment_id == "note"
    ]
    assert sorted(found) == sorted(
        [
            *{m.id for m in alone},
            *(["note"] if reminder in behind else []),
            *(set(tokens) - {m.id for m in alone}),
        ]
    )
    assert all(
        one.before == tokens[one.segment_id]
        for one in report.decisions
        if one.segment_id in {m.id for m in chat}
    )
    assert sum(one.after for one in report.decisions) + report.overhead == report.total_tokens
    assert report.blocks[0].dropped == sum(one.action == "trimmed" for one in report.decisions)
