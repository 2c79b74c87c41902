"""The answer that a model asks for has room beside the prompt, at the doors of both frameworks, whatever its own window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI
from llama_index.core.bridge.pydantic import Field
from llama_index.llms.openai import OpenAI, OpenAIResponses

import langchain_budget as lc
import llamaindex_budget as li
from llamaindex_budget._codec import CODEC
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError
from tests.drawing import draws
from tests.llamaindex.models import PlayLLM, exchanges, nodes, say

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows
COUNTER = counter_for("cl100k_base")
CHAT = [*exchanges(40), say("user", "and now?")]
THREAD = [(HumanMessage, AIMessage)[i % 2](message.content or "") for i, message in enumerate(CHAT)]
Reports = list[Any]


class Asking(FakeListChatModel):
    """A model of an unknown window, with what its integration calls the longest answer."""

    responses: list[str] = Field(default_factory=lambda: ["ok"])
    max_tokens: int | None = None


class Predicting(PlayLLM):
    """The same of LlamaIndex: Ollama's, whose metadata never say how long its answers may be."""

    additional_kwargs: dict[str, Any] = Field(default_factory=dict)


def playing(answer: int) -> Any:
    return PlayLLM(window=3900, reply=answer)  # LlamaIndex's default window says nothing


def predicting(answer: int) -> Any:
    return Predicting(window=3900, additional_kwargs={"num_predict": answer})


def lc_model(model: Any, limits: Any, reports: Reports) -> None:
    lc.budget_model(model, limits, counter=COUNTER, on_report=reports.append).invoke(THREAD)


def lc_trimmer(model: Any, limits: Any, reports: Reports) -> None:
    reports.append(lc.BudgetTrimmer(model=model, budget=limits, counter=COUNTER).fit(THREAD).report)


def lc_middleware(model: Any, limits: Any, reports: Reports) -> None:
    fitting = lc.BudgetMiddleware(limits, counter=COUNTER, on_report=reports.append)
    create_agent(model, middleware=[fitting]).invoke({"messages": THREAD})


def li_model(llm: Any, limits: Any, reports: Reports) -> None:
    li.budget_model(llm, limits, counter=COUNTER, on_report=reports.append).chat(CHAT)


def li_memory(llm: Any, limits: Any, reports: Reports) -> None:
    memory = li.BudgetChatMemoryBuffer.from_defaults(CHAT[:-1], llm=llm, budget=limits, counter=COUNTER)
    reports.append(memory.fit("and now?").report)


def li_agent(llm: Any, limits: Any, reports: Reports) -> None:
    agent = li.BudgetFunctionAgent(llm=llm, budget=limits, counter=COUNTER)
    kept = [CODEC.to_dict(message) for message in asyncio.run(agent.fit(CHAT))]
    reports.append(SimpleNamespace(total_tokens=COUNTER.count_messages(kept), warnings=()))


def li_nodes(llm: Any, limits: Any, reports: Reports) -> None:
    part = li.BudgetNodePostprocessor(llm=llm, budget=limits, counter=COUNTER)
    kept = part.postprocess_nodes(nodes(30), query_str="What does item 305 weigh?")
    reports.append(SimpleNamespace(total_tokens=sum(COUNTER.count(n.text) for n in kept), warnings=()))


DOORS: dict[str, tuple[Callable[..., None], Callable[[int], Any]]] = {
    "LC budget_model": (lc_model, lambda answer: Asking(max_tokens=answer)),
    "LC budget_model, bound": (lc_model, lambda answer: Asking().bind(max_tokens=answer)),
    "LC BudgetTrimmer": (lc_trimmer, lambda answer: Asking(max_tokens=answer)),
    "LC BudgetMiddleware": (lc_middleware, lambda answer: Asking(max_tokens=answer)),
    "LI budget_model": (li_model, playing),
    "LI budget_model, num_predict": (li_model, predicting),
    "LI BudgetChatMemoryBuffer": (li_memory, playing),
    "LI BudgetFunctionAgent": (li_agent, playing),
    "LI BudgetFunctionAgent, num_predict": (li_agent, predicting),
    "LI BudgetNodePostprocessor": (li_nodes, playing),
}
WARNING = "asks for answers of up to"


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@hypothesis.given(data=st.data())
def test_the_default_reserve_holds_the_answer(door: str, data: st.DataObject) -> None:
    """Prompt and answer fit the window that a budget gives a model, with any shares and sizes of blocks; no report warns."""
    run, make = DOORS[door]
    window = data.draw(st.integers(800, 3000))
    answer = data.draw(
        st.integers(2, window - 400).filter(lambda tokens: tokens != 256)
    )  # a default of the host
    fields = data.draw(
        st.sampled_from([{}, {"max_system_ratio": None}, {"ratios": {"history": 0.7}, "sizes": {"task": 50}}])
    )
    reports: Reports = []
    run(make(answer), TokenBudget(context_window=window, **fields), reports)
    assert reports[-1].total_tokens + answer <= window
    assert not [text for report in reports for text in report.warnings if WARNING in text]


@pytest.mark.parametrize("door", [name for name in DOORS if "model" in name or "LC" in name])
def test_a_chosen_reserve_stays_and_the_report_warns(door: str) -> None:
    """The user's reserve is not changed where the model's window is unknown; one warning says that the answer is longer."""
    run, make = DOORS[door]
    for reserve, answer in ((500, 1500), (500, 400), (0.5, 1500)):
        reports: Reports = []
        run(make(answer), TokenBudget(context_window=2000, reserve=reserve), reports)
        kept = 2000 - (reserve if reserve > 1 else 1000)
        assert kept - 200 < reports[-1].total_tokens <= kept
        warned = [text for text in reports[-1].warnings if WARNING in text]
        assert len(warned) == (kept + answer > 2000)
        assert all(f"up to {answer:,} tokens" in text and "of the window of 2,000" in text for text in warned)


@pytest.mark.parametrize("door", DOORS)
def test_an_answer_as_long_as_the_window_is_refused(door: str) -> None:
    """No prompt fits beside it, which is an error before anything is sent."""
    run, make = DOORS[door]
    with pytest.raises(BudgetConfigError, match=r"less than its window of 1,000 tokens \(got 1,000\)"):
        run(make(1000), TokenBudget(context_window=1000), [])


@draws()
@hypothesis.given(
    name=st.sampled_from(["gpt-4", "gpt-4o", "gpt-4.1-mini", "o3-mini", "o1"]),
    most=st.none() | st.integers(100, 300_000),
    kind=st.sampled_from([OpenAI, OpenAIResponses]),
)
def test_a_model_without_an_answer_leaves_the_same_room_for_one(
    name: str, most: int | None, kind: Any
) -> None:
    """Of the window 30 % stay free, at most the model's largest answer: at each door, also beside a limit."""
    model = ChatOpenAI(model=name, api_key="none")  # type: ignore[arg-type]  # a plain text
    limit = lc.BudgetTrimmer(model=model, max_tokens=most, counter=COUNTER).fit(THREAD[:1]).report.limit
    llm = kind(model=name, api_key="none")
    assert li.budget_model(llm, most, counter=COUNTER).request_limit == limit
    if most is None:
        assert li.budget_for(llm).limit() == limit == li.budget_for(li.budget_model(llm)).limit()
        assert li.BudgetChatMemoryBuffer.from_defaults(llm=llm).token_limit == limit
        assert limit <= TokenBudget.for_model(name).limit()


def test_a_set_answer_is_the_reserve() -> None:
    """Also one as long as LlamaIndex's default, which only its own field tells from that."""
    for answer in (255, 256, 257):
        llm = OpenAI(model="gpt-4", api_key="none", max_tokens=answer)
        assert li.budget_model(llm).request_limit == 8192 - answer


@draws()
@hypothesis.given(
    window=st.integers(300, 50_000),
    reserve=st.sampled_from([0.3, 200]),
    most=st.none() | st.integers(100, 9000),
)
def test_a_bounded_llm_keeps_its_answer_free_once(window: int, reserve: float, most: int | None) -> None:
    """A part with a budget and a bounded LLM has the smaller of both limits, not less."""
    llm = li.budget_model(OpenAI(model="gpt-4", api_key="none"), most)
    budget = TokenBudget(context_window=window, reserve=reserve)
    memory = li.BudgetChatMemoryBuffer.from_defaults(llm=llm, budget=budget)
    assert memory.token_limit == min(budget.limit(), llm.request_limit)
