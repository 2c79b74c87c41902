"""A model's own window counts at every door of both frameworks, however large the limit is that is given beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llama_index.llms.ollama import Ollama

import langchain_budget as lc
import llamaindex_budget as li
from llamaindex_budget.model import _BudgetLLM
from rankbudget import BudgetConfigError, BudgetSession, TokenBudget
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.llamaindex.models import PlayLLM, nodes, say

COUNTER = WordCounter()
LONGEST = 2700


class _Model(GenericFakeChatModel):
    """Keeps the last request; its profile states a window."""

    messages: Any = iter(())
    sent: list[Any] = []  # noqa: RUF012 - a field of pydantic, which copies it

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> Any:
        self.sent[:] = messages
        self.messages = iter([AIMessage("fine")])
        return super()._generate(messages, *args, **options)


def _model(window: int) -> _Model:
    return _Model(profile={"max_input_tokens": window}, sent=[])


def _thread() -> list[BaseMessage]:
    return [(HumanMessage if n % 2 == 0 else AIMessage)("w " * 9) for n in range(LONGEST // 9 + 1)]


def _chat() -> list[Any]:
    return [say("assistant" if n % 2 else "user", "w " * 9) for n in range(LONGEST // 9)]


def _tokens(messages: Sequence[Any]) -> int:
    return sum(COUNTER.count(str(m.content)) for m in messages)


def _lc_model(window: int, **given: Any) -> int:
    budget = given.pop("budget", None)
    model = _model(window)
    lc.budget_model(model, budget, counter=COUNTER, **given).invoke(_thread())
    return _tokens(model.sent)


def _lc_fallback(window: int, **given: Any) -> int:
    small = _model(window)
    first = _Model(profile={"max_input_tokens": LONGEST * 9}).with_fallbacks([small])
    made: Any = lc.budget_model(first, given.pop("budget", None), counter=COUNTER, **given)
    made.fallbacks[0].invoke(_thread())
    return _tokens(small.sent)


def _lc_trimmer(window: int, **given: Any) -> int:
    return _tokens(lc.BudgetTrimmer(model=_model(window), counter=COUNTER, **given).invoke(_thread()))


def _lc_hook(window: int, **given: Any) -> int:
    hook: Runnable[Any, Any] = lc.pre_model_hook(model=_model(window), counter=COUNTER, **given)
    return _tokens(hook.invoke({"messages": _thread()})["llm_input_messages"])


def _lc_agent(window: int, **given: Any) -> int:
    model = _model(window)
    middleware: Any = lc.BudgetMiddleware(counter=COUNTER, **given)
    create_agent(model, [], middleware=[middleware]).invoke({"messages": _thread()})
    return _tokens(model.sent)


def _li_model(window: int, *, budget: Any = None, **given: Any) -> int:
    llm = PlayLLM(requests=[], window=window)
    li.budget_model(llm, budget, counter=COUNTER, **given).chat([*_chat(), say("user", "w")])
    return _tokens(llm.requests[-1][0])


def _li_memory(window: int, **given: Any) -> int:
    llm = PlayLLM(requests=[], window=window)
    memory = li.BudgetChatMemoryBuffer(llm=llm, tokenizer_fn=str.split, **given)
    memory.set(_chat())
    return _tokens(memory.get("w"))


def _li_nodes(window: int, **given: Any) -> int:
    llm = PlayLLM(requests=[], window=window)
    part = li.BudgetNodePostprocessor(llm=llm, counter=COUNTER, **given)
    return sum(COUNTER.count(n.node.get_content()) for n in part.postprocess_nodes(nodes(200), query_str="w"))


DOORS: dict[str, Callable[..., int]] = {
    "langchain budget_model": _lc_model,
    "a fallback of it": _lc_fallback,
    "langchain BudgetTrimmer": _lc_trimmer,
    "langchain pre_model_hook": _lc_hook,
    "langchain BudgetMiddleware": _lc_agent,
    "llamaindex budget_model": _li_model,
    "llamaindex BudgetChatMemoryBuffer": _li_memory,
    "llamaindex BudgetNodePostprocessor": _li_nodes,
}
_INSTEAD = [name for name in DOORS if "budget_model" in name or "fallback" in name]
"""They take a session in the place of a budget; others beside it, or none."""
_NO_SESSION = ("langchain pre_model_hook", "langchain BudgetMiddleware")


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(
    window=st.integers(700, 1500),
    larger=st.integers(1, 9 * LONGEST),
    reserve=st.integers(300, 600),
    form=st.sampled_from(["budget", "session", "context_window"]),
)
def test_no_larger_limit_switches_it_off(
    door: str, window: int, larger: int, reserve: int, form: str
) -> None:
    """What is sent fits the model's window beside the reserve, as a budget, a session or a window is larger."""
    budget = TokenBudget(context_window=window + larger, reserve=reserve)
    given: dict[str, Any] = {"budget": budget}
    if form == "session" and door not in _NO_SESSION:
        session = BudgetSession(budget, counter=COUNTER)
        given = {"budget" if door in _INSTEAD else "session": session}
    if form == "context_window" and "langchain" in door:
        given, reserve = {"context_window": window + larger}, 0
    sent = DOORS[door](window, **given)
    assert 0 < sent <= window - reserve


def test_the_report_says_whose_window_counts() -> None:
    """A window that was given and does not count is in the warnings, in both frameworks."""
    seen: list[Any] = []
    budget = TokenBudget(context_window=9000, reserve=100)
    lc.budget_model(_model(900), budget, counter=COUNTER, on_report=seen.append).invoke(_thread())
    llm = li.budget_model(PlayLLM(requests=[], window=900), budget, counter=COUNTER, on_report=seen.append)
    llm.chat([*_chat(), say("user", "w")])
    for report, name in zip(seen, ("_Model", "PlayLLM"), strict=True):
        assert f"the given window of 9,000 tokens is larger than that of the {name}: 900 count" in str(
            report.warnings
        )
    with pytest.raises(BudgetConfigError, match="budget must fit the window of the _Model, 900 tokens"):
        lc.budget_model(_model(900), TokenBudget(context_window=9000, reserve=901))


def test_a_window_that_is_only_assumed_gives_way_and_one_that_is_asked_for_does_not() -> None:
    """`num_ctx` is a fact in both frameworks; Ollama's default is taken only where nothing else is given."""
    wide = TokenBudget(context_window=8192, reserve=1000)
    exact: Any = {"counter": COUNTER}

    def most(num_ctx: int | None, **given: Any) -> int:
        model = ChatOllama(model="unheard-of", num_ctx=num_ctx, base_url="http://127.0.0.1:9")
        return lc.BudgetTrimmer(model=model, **exact, **given)._limits.most

    assert most(None, budget=wide) == 7192
    assert most(None, context_window=10_000) == 7000
    assert most(None) == most(None, max_tokens=9000) == 4096 - 1228
    assert most(2048, budget=wide) == 1048
    assert most(2048, context_window=10_000) == most(2048) == 2048 - 614
    llm: Any = li.budget_model(
        Ollama("unheard-of", context_window=131_072, additional_kwargs={"num_ctx": 2048}), wide, **exact
    )
    assert isinstance(llm, _BudgetLLM)
    assert llm.request_limit == 1048


def test_a_window_known_from_a_name_can_be_corrected() -> None:
    """The table of names may be out of date: `context_window=` or the model's own profile comes before it."""
    name, far = "gpt-4", TokenBudget(context_window=32_000, reserve=1000)
    assert lc.BudgetTrimmer(model=name, budget=far)._limits.most == 7192
    assert lc.BudgetTrimmer(model=name, context_window=32_000)._limits.most == 32_000 - 8192
    corrected = ChatOpenAI(model=name, api_key="none", profile={"max_input_tokens": 32_000})  # type: ignore[arg-type]
    assert lc.BudgetTrimmer(model=corrected, budget=far)._limits.most == 31_000
