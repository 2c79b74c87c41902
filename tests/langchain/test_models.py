"""What a model object says about its requests is believed: tools bound to it are counted, the answer it asks for is reserved."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from langchain_budget import (
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetTrimmer,
    pre_model_hook,
)
from langchain_budget._codec import CODEC
from langchain_budget._convert import as_tools
from langchain_budget._limits import bound_tools, limits_for
from langchain_budget.models import as_summarizer, facts_of
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, SummaryError
from rankbudget.messages.measure import CodecMeasure
from tests.langchain.running import on_thread

THREAD: list[Any] = [m for i in range(60) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]


@tool
def look(subject: str) -> str:
    """Looks a subject up in the large encyclopedia that stands in the reading room, volume by volume and page by page."""
    return subject


def gpt(name: str = "gpt-4o", **options: Any) -> ChatOpenAI:
    return ChatOpenAI(model=name, api_key="none", **options)


class Predicting(FakeListChatModel):
    """A model whose integration calls the longest answer `num_predict`, with a default of its own."""

    num_predict: int | None = 512


def cost(messages: list[Any], tools: list[Any] | None) -> int:
    return CodecMeasure(CODEC, counter_for("gpt-4o"), as_tools(tools)).total(messages)


# ---------------------------------------------------------------- bound tools
@pytest.mark.parametrize(
    "bind",
    [
        lambda m: m.bind_tools([look]),
        lambda m: m.bind_tools([look]).bind(stop=["."]),
        lambda m: m.bind_tools([look]).with_config(tags=["a"]).with_retry(),
        lambda m: m.bind_tools([look]).with_fallbacks([m]),
    ],
    ids=["bind_tools", "bind", "retry", "fallbacks"],
)
def test_tools_bound_to_the_model_are_counted(bind: Any) -> None:
    """Whatever wraps it, a model with bound tools leaves that much less for the messages, and the report says so."""
    limit = cost(THREAD[-6:], [look])
    made = BudgetTrimmer(model=bind(gpt()), max_tokens=limit).fit(THREAD)
    assert made.report.total_tokens == cost(made.messages, [look]) <= limit
    assert len(made.messages) == 6


def test_a_history_and_a_hook_count_them_too() -> None:
    """Where the thread is read and in a graph the same tools cost the same."""
    limit = cost(THREAD[-20:], [look])
    model = gpt().bind_tools([look])
    history = BudgetMessageHistory(model=model, max_tokens=limit)
    history.add_messages(THREAD)
    assert history.report.total_tokens == cost(history.messages, [look])
    given = [*THREAD, HumanMessage("now")]
    sent = pre_model_hook(model=model, max_tokens=limit).invoke({"messages": given})["llm_input_messages"]
    assert cost(sent, [look]) <= limit


def test_tools_that_are_named_go_before_bound_ones() -> None:
    """`tools=` says what is sent; an empty list says that nothing is."""
    model = gpt().bind_tools([look])
    for tools in ([], [look, look]):
        history = BudgetMessageHistory(model=model, max_tokens=4000, tools=tools)
        history.add_messages(THREAD[:2])
        assert history.report.total_tokens == cost(THREAD[:2], tools)


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_bound_tools_are_written_with_a_trimmer() -> None:
    """What was bound counts after loading, too; an empty list of tools still says that there are none."""
    bound = BudgetTrimmer(model=gpt().bind_tools([look]), max_tokens=4000)
    none = BudgetTrimmer(model=gpt().bind_tools([look]), max_tokens=4000, tools=[])
    arrived = loads(dumps(bound), allowed_objects=[BudgetTrimmer], valid_namespaces=["langchain_budget"])
    total = cost(THREAD[:2], [look])
    assert [part.fit(THREAD[:2]).report.total_tokens for part in (bound, arrived)] == [total, total]
    assert none.fit(THREAD[:2]).report.total_tokens == cost(THREAD[:2], [])


def test_tools_in_a_providers_own_form_are_counted_as_they_print() -> None:
    """An integration may bind objects that no other code can read; they are not free."""

    class Proto:
        def __str__(self) -> str:
            return "name: look"

    assert bound_tools(gpt().bind(tools=[Proto()])) == [
        {"type": "function", "function": {"name": "Proto", "parameters": {"text": "name: look"}}}
    ]
    assert bound_tools(gpt().bind(functions=[{"name": "f"}])) == [
        {"type": "function", "function": {"name": "f"}}
    ]
    assert bound_tools(gpt().bind(stop=["."])) is None


# ---------------------------------------------------------------- summaries
ANSWER = "They counted."


def writer(**options: Any) -> FakeListChatModel:
    return FakeListChatModel(responses=[ANSWER], **options)


@pytest.mark.parametrize(
    ("chain", "seen"),
    [
        (lambda m: m, "[system, human: said]"),
        (lambda m: m.bind(stop=["."]), "[system, human: said]"),
        (lambda m: m | StrOutputParser(), "[system, human: said]"),
        (lambda m: ChatPromptTemplate([("human", "{max_tokens} {words} {text}")]) | m, "[human: 40 30 said]"),
        (
            lambda m: ChatPromptTemplate([("human", "about {talk}")]) | m | StrOutputParser(),
            "[human: about said]",
        ),
        (lambda m: (ChatPromptTemplate([("human", "{text}")]) | m).with_retry(), "[human: said]"),
        (lambda m: RunnableLambda(lambda text: [HumanMessage(f"so: {text}")]) | m, "[human: so: said]"),
    ],
    ids=["model", "bound", "parsed", "prompt", "one variable", "retry", "function"],
)
async def test_a_chain_writes_summaries(chain: Any, seen: str) -> None:
    """Whatever ends in a model is a summarizer; its prompt gets the text, and the length where it names it."""
    sent: list[str] = []

    class Model(FakeListChatModel):
        def _call(self, messages: Any, *args: Any, **kwargs: Any) -> str:
            sent.append(
                f"[{', '.join(m.type if m.type == 'system' else f'{m.type}: {m.content}' for m in messages)}]"
            )
            return super()._call(messages, *args, **kwargs)

    write: Any = as_summarizer(chain(Model(responses=[ANSWER])))
    assert (write("said", 40), await write.acall("said", 40)) == (ANSWER, ANSWER)
    assert sent == [seen, seen]


def test_a_memory_and_an_agent_take_a_chain() -> None:
    """A chain is taken wherever a model is, and what it wrote is in the prompt."""
    chain = ChatPromptTemplate([("human", "{text}")]) | writer() | StrOutputParser()
    memory = BudgetMemory(max_tokens=120, summarizer=chain, return_messages=True)
    memory.chat_memory.add_messages(THREAD)
    assert ANSWER in memory.buffer[0].content
    sent: list[Any] = []

    def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent.extend(asked.messages)
        return ModelResponse(result=[AIMessage("ok")])

    asked = ModelRequest(model=gpt(), messages=[*THREAD, HumanMessage("now")])
    with on_thread():
        BudgetMiddleware(max_tokens=120, summarizer=chain).wrap_model_call(asked, handler)
    assert ANSWER in sent[0].content


def test_a_chain_that_cannot_summarize_is_refused() -> None:
    """Unfilled variables, a prompt without the text, and an answer that is no text each say what to change."""
    for text, message in (
        ("{a} {b}", r"one variable for the text.*got a, b"),
        ("{text} {style}", "bind the others"),
        ("{words}", r"one variable for the text.*got words"),
    ):
        with pytest.raises(BudgetConfigError, match=message):
            BudgetMemory(max_tokens=100, summarizer=ChatPromptTemplate([("human", text)]) | writer())
    with pytest.raises(BudgetConfigError, match=r"summarizer must be .*int"):
        as_summarizer(3)
    parts: Any = as_summarizer(writer() | RunnableLambda(lambda m: {"summary": m}))
    with pytest.raises(SummaryError, match="got a dict"):
        parts("said", 40)


def test_a_chain_reads_what_its_smallest_model_reads() -> None:
    """The longest prompt is known through bindings and sequences."""
    chain = ChatPromptTemplate([("human", "{text}")]) | writer(profile={"max_input_tokens": 977}).bind(
        stop=["."]
    )
    assert 0 < as_summarizer(chain).input_window < 977  # type: ignore[operator]  # it is known
    assert as_summarizer(writer()).input_window is None


# ---------------------------------------------------------------- the answer
def budget_for(model: Any) -> TokenBudget:
    return limits_for(model=model).budget


@pytest.mark.parametrize(
    ("model", "available"),
    [
        ("gpt-4", 8192 - 2457),
        (gpt("gpt-4", max_tokens=4000), 8192 - 4000),
        (gpt("gpt-4", max_completion_tokens=4000), 8192 - 4000),
        (gpt("gpt-4", model_kwargs={"max_output_tokens": 4000}), 8192 - 4000),
        (gpt("gpt-4", max_tokens=100).bind(max_tokens=4000).with_retry(), 8192 - 4000),
        (gpt("gpt-4", max_tokens=7000), 8192 - 7000),
        (gpt("gpt-4", max_tokens=100), 8192 - 2457),
        (
            gpt("gpt-4", max_tokens=4000).configurable_fields(temperature=ConfigurableField(id="t")),
            8192 - 4000,
        ),
        (gpt("gpt-4o").model_copy(update={"model_name": "gpt-4"}), 8192 - 2457),
        (Predicting(responses=[""], profile={"max_input_tokens": 1200}), 1200 - 512),
        (Predicting(responses=[""], num_predict=-1, profile={"max_input_tokens": 1200}), 1200 - 360),
    ],
)
def test_the_answer_the_model_asks_for_is_reserved(model: Any, available: int) -> None:
    """Prompt and answer share the window: a model that asks for 4,000 of 8,192 tokens leaves 4,192; a small answer leaves the reserve."""
    assert budget_for(model).available == available


def test_a_long_system_prompt_does_not_eat_the_answer() -> None:
    """A reserve that is a share shrinks with the system prompt; never below what the model asks for."""
    budget = budget_for(gpt("gpt-4", max_tokens=2400))
    assert budget.limit(system_tokens=2000) + 2400 <= 8192
    assert budget_for("gpt-4").limit(system_tokens=2000) + 2400 > 8192


def test_a_budget_does_not_promise_away_the_models_own_answer() -> None:
    """Prompt and answer share the model's window: the longer of reserve and answer is kept free."""
    own = TokenBudget(context_window=8192, reserve=100)
    for model, free in ((gpt("gpt-4", max_tokens=4000), 4000), (gpt("gpt-4", max_tokens=50), 100)):
        assert BudgetTrimmer(budget=own, model=model).fit(THREAD[:1]).report.limit == 8192 - free


def test_a_default_that_would_eat_the_window_is_no_silent_reserve() -> None:
    """An integration's own default of more than half the window changes nothing but warns; the user's own is kept, or is an error."""
    huge = Predicting(responses=[""], profile={"max_input_tokens": 600})
    with pytest.warns(UserWarning, match="answers of up to 512 tokens, its window has 600; 180 are reserved"):
        assert budget_for(huge).available == 420
    with pytest.warns(UserWarning, match="Set a smaller answer"):
        assert (
            budget_for(gpt("gpt-4", max_tokens=8192)).available == 8192 - 2457
        )  # the most its profile allows: any default says so
    assert (
        budget_for(Predicting(responses=[""], num_predict=500, profile={"max_input_tokens": 600})).available
        == 100
    )
    with pytest.raises(BudgetConfigError, match=r"less than its window of 8,192 tokens \(got 9,000\)"):
        budget_for(gpt("gpt-4", max_tokens=9000))


def test_answers_are_found_by_what_integrations_call_them() -> None:
    """What is bound goes before fields; 0 and -1 mean no limit; a name has none."""
    found = [
        facts_of(model)
        for model in (
            gpt(max_tokens=5).bind(max_tokens=7),
            Predicting(responses=[""]),
            Predicting(responses=[""], num_predict=0),
            "gpt-4o",
        )
    ]
    assert [(f.answer, f.answer_chosen) for f in found] == [
        (7, True),
        (512, False),
        (None, False),
        (None, False),
    ]


def test_an_agents_settings_for_one_call_count() -> None:
    """A longer answer that a request asks for is reserved in that request, and in no other."""
    reports: list[Any] = []
    middleware = BudgetMiddleware(on_report=reports.append)
    for settings in ({}, {"max_tokens": 4000}, {}):
        asked = ModelRequest(model=gpt("gpt-4"), messages=THREAD[:1], model_settings=settings)
        middleware.wrap_model_call(asked, lambda _: ModelResponse(result=[AIMessage("ok")]))
    assert [r.limit for r in reports] == [8192 - 2457, 8192 - 4000, 8192 - 2457]
