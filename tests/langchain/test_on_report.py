"""A callback for reports never costs an answer."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import HumanMessage

from langchain_budget import BudgetMiddleware, budget_model
from rankbudget.errors import BudgetConfigError


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
