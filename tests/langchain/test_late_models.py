"""The model that a later middleware chooses gets a request that fits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from pydantic import Field

from langchain_budget import BudgetMiddleware, budget_model
from langchain_budget._codec import CODEC
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetExceededError
from tests.drawing import draws
from tests.langchain.running import on_thread

THREAD = [kind("word of a tale, " * 12) for _ in range(60) for kind in (HumanMessage, AIMessage)]
QUESTION = HumanMessage("And now?")


class Model(FakeListChatModel):
    """Has a tokenizer and a window, and notes the tokens of each request in that tokenizer."""

    responses: list[str] = Field(default_factory=lambda: ["fine"])
    model_name: str = "gpt-4o"
    refuses: int = 1 << 30
    requests: list[int] = Field(default_factory=list)

    def _call(self, messages: list[BaseMessage], *args: Any, **options: Any) -> str:
        counter = counter_for(self.model_name)
        self.requests.append(counter.count_messages([CODEC.to_dict(m) for m in messages]))
        if self.requests[-1] > self.refuses:
            raise ContextOverflowError(str(self.requests[-1]))
        return "fine"


def made(window: int, name: str = "gpt-4o") -> Model:
    return Model(model_name=name, profile={"max_input_tokens": window}, requests=[])


def most(model: Model) -> int:
    """Returns the tokens that a request of the model may have."""
    assert model.profile is not None
    return TokenBudget.for_model(model.model_name, context_window=model.profile["max_input_tokens"]).limit()


class Late(AgentMiddleware[Any, Any, Any]):
    """Changes each request by a function, as later middleware does."""

    def __init__(self, number: int, change: Callable[[Any], Any]) -> None:
        super().__init__()
        self.number, self.change = number, change

    @property
    def name(self) -> str:
        return f"late {self.number}"

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self.change(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self.change(request))


def assigned(model: Any) -> Callable[[Any], Any]:
    def change(request: Any) -> Any:
        with pytest.warns(DeprecationWarning, match="override"):
            request.model = model
        return request

    return change


def changes(small: Model) -> dict[str, Callable[[Any], Any]]:
    """What later middleware does; the model that is called in the end is `small` where one is chosen."""
    return {
        "a model": lambda request: request.override(model=small),
        "an assigned model": assigned(small),
        "a bounded model": lambda request: request.override(model=budget_model(small, max_tokens=100_000)),
        "the same model": lambda request: request.override(model=request.model),
        "a prompt": lambda request: request.override(
            system_message=SystemMessage("Answer in one line. " * 9)
        ),
        "messages": lambda request: request.override(messages=[*THREAD[:20], *request.messages]),
    }


@draws()
@given(
    windows=st.tuples(st.integers(600, 6000), st.integers(600, 6000)),
    name=st.sampled_from(["gpt-4o", "gpt-4", "gpt-3.5-turbo"]),
    late=st.lists(st.sampled_from(sorted(changes(made(1)))), max_size=4),
    budgets=st.integers(1, 2),
    options=st.sampled_from(
        [{}, {"max_tokens": 900}, {"context_window": 50_000}, {"budget": TokenBudget(context_window=50_000)}]
    ),
    asynchronous=st.booleans(),
)
def test_whatever_later_middleware_does_the_request_fits_the_model_that_is_called(
    windows: tuple[int, int],
    name: str,
    late: list[str],
    budgets: int,
    options: dict[str, Any],
    asynchronous: bool,
) -> None:
    """It is within that model's window in its tokenizer, once, and the last report has its tokens."""
    first, small = made(windows[0]), made(windows[1], name)
    reports: list[Any] = []
    ours = [Named(n, on_report=reports.append, **options) for n in range(budgets)]
    changed = [Late(n, changes(small)[which]) for n, which in enumerate(late)]
    agent = create_agent(first, [], system_prompt="Be kind.", middleware=[*ours, *changed])
    asked: Any = {"messages": [*THREAD, QUESTION]}
    answer = asyncio.run(agent.ainvoke(asked)) if asynchronous else agent.invoke(asked)
    assert answer["messages"][-1].content == "fine"
    chosen = any(which.endswith("model") and which != "the same model" for which in late)
    called, other = (small, first) if chosen else (first, small)
    assert other.requests == []
    assert len(called.requests) == 1
    stated = most(called) if called is small or not options.keys() & {"context_window", "budget"} else 50_000
    assert called.requests[0] <= min(stated, options.get("max_tokens", stated))
    assert called.requests[0] == reports[0].total_tokens


class Named(BudgetMiddleware):
    """An agent takes each middleware once, by name."""

    def __init__(self, number: int, **options: Any) -> None:
        super().__init__(**options)
        self.number = number

    @property
    def name(self) -> str:
        return f"budget {self.number}"


def test_a_fallback_in_the_chosen_model_keeps_to_its_own_window() -> None:
    """Each model of a chosen one with fallbacks gets what fits it."""

    class Failing(Model):
        def _call(self, messages: list[BaseMessage], *args: Any, **options: Any) -> str:
            super()._call(messages, *args, **options)
            raise OSError

    failing = Failing(profile={"max_input_tokens": 3000}, requests=[])
    small = made(1000, "gpt-4")
    chosen = failing.with_fallbacks([small])
    agent = create_agent(
        made(9000),
        [],
        middleware=[BudgetMiddleware(), Late(0, lambda request: request.override(model=chosen))],
    )
    with on_thread():
        agent.invoke({"messages": [*THREAD, QUESTION]})
    assert failing.requests[0] <= most(failing)
    assert small.requests[0] <= most(small)


def test_a_refusal_by_a_chosen_model_is_retried_with_three_quarters_of_what_it_got() -> None:
    """The retry goes by the request that was sent, not by the larger one that was planned."""
    small = made(2000)
    small.refuses = 1000
    agent = create_agent(
        made(9000),
        [],
        middleware=[BudgetMiddleware(), Late(0, lambda request: request.override(model=small))],
    )
    agent.invoke({"messages": [*THREAD, QUESTION]})
    assert len(small.requests) == 2
    assert small.requests[1] <= small.requests[0] * 3 // 4


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_refusal_that_no_smaller_request_answers_is_raised(asynchronous: bool) -> None:
    """Where three quarters do not hold the system prompt, the provider's own error comes, and says whose limit it was not."""
    model = made(4000).model_copy(update={"refuses": 10})
    agent = create_agent(model, system_prompt="Be exact. " * 30, middleware=[BudgetMiddleware()])
    asked: Any = {"messages": [QUESTION]}
    with pytest.raises(ContextOverflowError) as raised:
        asyncio.run(agent.ainvoke(asked)) if asynchronous else agent.invoke(asked)
    assert str(raised.value) == str(model.requests[0])
    assert isinstance(raised.value.__cause__, BudgetExceededError)
    assert len(model.requests) == 1
