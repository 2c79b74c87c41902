"""BudgetTrimmer is a Runnable like any other, over messages or over all slots of a prompt."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.load import dumps, loads
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, get_buffer_string
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate
from langchain_core.runnables import ConfigurableField, RunnableLambda, RunnablePassthrough
from langchain_core.tools import tool

from langchain_budget import BudgetTrimmer
from langchain_budget._codec import CODEC
from langchain_budget._convert import as_tools
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.testing import WordCounter

WORDS = WordCounter(framing=1, priming=0)  # a message costs its words and one
EXACT = counter_for("o200k_base")
PROMPT = ChatPromptTemplate(
    [
        ("system", "Answer from these documents.\n{context}"),
        MessagesPlaceholder("history"),
        ("human", "{question}"),
    ]
)


def chat(turns: int) -> list[Any]:
    return [
        m
        for i in range(turns)
        for m in (HumanMessage(f"question {i}", id=f"q{i}"), AIMessage(f"answer {i}", id=f"a{i}"))
    ]


def documents(count: int) -> list[Document]:
    subjects = ["tea", "rain", "cats", "bread", "trains"]
    return [
        Document(
            id=f"d{i}",
            page_content=f"Fact {i} about {subjects[i % 5]}: it is number {i}.",
            metadata={"source": f"{i}.md"},
        )
        for i in range(count)
    ]


def joined(values: dict[str, Any]) -> str:
    return "\n\n".join(d.page_content for d in values["documents"])


def rendered_tokens(messages: list[Any], tools: Any = None) -> int:
    return EXACT.count_messages([CODEC.to_dict(m) for m in messages], tools)


@tool
def look_up(name: str) -> str:
    """Looks a name up in the register of all names."""
    return name


# ---------------------------------------------------------------- a list of messages
def test_the_newest_messages_that_fit_come_back_as_the_same_objects() -> None:
    """Nine tokens hold three messages of three; the two that make a turn with its question stay whole."""
    thread = [*chat(3), HumanMessage("question 3")]
    kept = BudgetTrimmer(max_tokens=9, counter=WORDS).invoke(thread)
    assert [m.content for m in kept] == ["question 2", "answer 2", "question 3"]
    assert all(a is b for a, b in zip(kept, thread[-3:], strict=True))


@pytest.mark.parametrize(
    "given",
    [
        [("human", "one two"), ("ai", "three"), ("human", "four")],
        [
            {"role": "user", "content": "one two"},
            {"role": "assistant", "content": "three"},
            {"role": "user", "content": "four"},
        ],
        ChatPromptTemplate([("human", "one two"), ("ai", "three"), ("human", "four")]).invoke({}),
        ["one two", AIMessage("three"), "four"],
        (m for m in (HumanMessage("one two"), AIMessage("three"), HumanMessage("four"))),
    ],
    ids=["tuples", "dicts", "prompt value", "strings", "generator"],
)
def test_whatever_converts_to_messages_is_taken(given: Any) -> None:
    """Tuples, dicts, prompt values, strings and generators fit like messages."""
    assert [m.content for m in BudgetTrimmer(max_tokens=2, counter=WORDS).invoke(given)] == ["four"]


def test_it_is_a_step_of_a_chain_before_the_model() -> None:
    """Piped, batched and streamed, the model only ever sees what fits."""
    seen: list[int] = []

    def model(messages: list[Any]) -> str:
        seen.append(sum(WORDS.count_message(CODEC.to_dict(m)) for m in messages))
        return f"read {len(messages)}"

    chain = BudgetTrimmer(max_tokens=9, counter=WORDS) | RunnableLambda(model)
    thread = [*chat(5), HumanMessage("question 5")]
    assert chain.invoke(thread) == "read 3"
    assert chain.batch([thread, thread[:1]]) == ["read 3", "read 1"]
    assert list(chain.stream(thread)) == ["read 3"]
    assert max(seen) <= 9


async def test_it_is_a_step_of_an_async_chain() -> None:
    """The async forms give what the sync forms give."""
    trimmer = BudgetTrimmer(max_tokens=9, counter=WORDS)
    thread = [*chat(5), HumanMessage("question 5")]
    expected = trimmer.invoke(thread)
    assert await trimmer.ainvoke(thread) == expected
    assert await trimmer.abatch([thread]) == [expected]
    assert [part async for part in trimmer.astream(thread)] == [expected]
    assert (await trimmer.afit(thread)).value == expected


def test_a_model_gives_window_and_tokenizer() -> None:
    """A known name and a model's own profile both say how much fits."""
    assert BudgetTrimmer(model="gpt-4o").fit(chat(1)).report.limit == 128_000 - 16_384
    profiled = FakeListChatModel(responses=[""], profile={"max_input_tokens": 1000, "max_output_tokens": 100})
    assert BudgetTrimmer(model=profiled).fit(chat(1)).report.limit == 900


def test_a_ceiling_beside_a_budget_wins_when_it_is_smaller() -> None:
    """`max_tokens` beside a budget is a ceiling, never a raise."""
    budget = TokenBudget(context_window=1000, reserve=200)
    assert BudgetTrimmer(budget=budget, max_tokens=300).fit(chat(1)).report.limit == 300
    assert BudgetTrimmer(budget=budget, max_tokens=3000).fit(chat(1)).report.limit == 800


def test_tools_and_prompt_are_counted_exactly() -> None:
    """What the chain adds later is in the total: prompt rendered, tools as bound, to the token."""
    prompt = ChatPromptTemplate([("system", "You are terse."), MessagesPlaceholder("messages")])
    result = BudgetTrimmer(max_tokens=200, counter=EXACT, prompt=prompt, tools=[look_up]).fit(chat(40))
    sent = prompt.invoke({"messages": result.value}).to_messages()
    assert result.report.total_tokens == rendered_tokens(sent, as_tools([look_up])) <= 200
    assert len(result.value) < 80
    more = BudgetTrimmer(max_tokens=200, counter=EXACT).fit(chat(40))
    assert len(more.value) > len(result.value)


def test_a_text_prompt_is_counted_as_it_reads() -> None:
    """A prompt that turns the conversation into text is rendered and counted, not guessed."""
    prompt = RunnableLambda(get_buffer_string) | PromptTemplate.from_template(
        "Conversation:\n{text}\nAnswer:"
    )
    result = BudgetTrimmer(max_tokens=60, counter=EXACT, prompt=prompt).fit(chat(40))
    assert result.report.total_tokens == rendered_tokens(prompt.invoke(result.value).to_messages()) <= 60
    assert len(result.value) >= 4


def test_an_oversized_system_prompt_is_an_error_before_anything_is_sent() -> None:
    """Over a quarter of a budget's window is refused; a bare number has no such rule."""
    thread = [SystemMessage("rule " * 30), HumanMessage("hi")]
    with pytest.raises(BudgetExceededError, match="system prompt"):
        BudgetTrimmer(budget=TokenBudget(context_window=100, reserve=10), counter=WORDS).invoke(thread)
    assert len(BudgetTrimmer(max_tokens=50, counter=WORDS).invoke(thread)) == 2


def test_a_summary_of_what_was_dropped_is_marked_and_counted() -> None:
    """With a summarizer the thread opens on a marked summary, within the limit, sync and async."""
    model = FakeListChatModel(responses=["They spoke of numbers."])
    trimmer = BudgetTrimmer(max_tokens=120, counter=EXACT, summarizer=model)
    for value in (trimmer.invoke(chat(40)), asyncio.run(trimmer.ainvoke(chat(40)))):
        assert value[0].additional_kwargs["lc_source"] == "summary"
        assert "They spoke of numbers." in value[0].content
        assert rendered_tokens(value) <= 120


# ---------------------------------------------------------------- slots together
def test_history_documents_and_question_share_one_budget() -> None:
    """The fitted dict renders to exactly what the report says, within the limit; other keys pass untouched."""
    later = RunnablePassthrough.assign(context=joined) | PROMPT
    trimmer = BudgetTrimmer(
        budget=TokenBudget(context_window=700, reserve=200), counter=EXACT, prompt=later, report_key="report"
    )
    given = {"history": chat(60), "documents": documents(40), "question": "What about cats?", "user": "ann"}
    out = trimmer.invoke(given)
    sent = later.invoke(out).to_messages()
    assert out["report"].total_tokens == rendered_tokens(sent) <= 500
    assert out["user"] == "ann"
    assert out["question"] == "What about cats?"
    assert 0 < len(out["documents"]) < 40
    assert 0 < len(out["history"]) < 120
    assert all(
        any(d is g for g in given["documents"]) for d in out["documents"] if d.page_content.endswith(".")
    )
    assert len(given["history"]) == 120


def test_what_fits_comes_back_untouched() -> None:
    """A dict that fits whole holds the same objects afterwards."""
    given = {"history": chat(2), "documents": documents(2), "question": "What about tea?"}
    out = BudgetTrimmer(max_tokens=4000).invoke(given)
    assert all(a is b for a, b in zip(out["history"], given["history"], strict=True))
    assert {id(d) for d in out["documents"]} == {id(d) for d in given["documents"]}


def test_every_slot_comes_back_in_the_form_it_came() -> None:
    """Texts stay texts, examples dicts, memories a list; a missing slot stays missing."""
    given = {
        "history": [("human", "hello"), ("ai", "hi")],
        "examples": [{"input": "2+2", "output": "4"}],
        "memory": "Ann likes tea.",
        "question": "What is 3+3?",
    }
    out = BudgetTrimmer(max_tokens=2000).invoke(given)
    assert [m.content for m in out["history"]] == ["hello", "hi"]
    assert out["examples"] == given["examples"]
    assert out["memory"] == "Ann likes tea."
    assert "documents" not in out


def test_the_keys_have_the_users_names() -> None:
    """Slots may be called anything; two slots of one name are refused."""
    trimmer = BudgetTrimmer(
        max_tokens=2000, history_key="chat_history", documents_key="context", question_key="input"
    )
    out = trimmer.invoke({"chat_history": chat(1), "context": documents(1), "input": "hi"})
    assert (len(out["chat_history"]), len(out["context"])) == (2, 1)
    with pytest.raises(BudgetConfigError, match="key of its own"):
        BudgetTrimmer(max_tokens=10, history_key="x", documents_key="x")
    with pytest.raises(BudgetConfigError, match="history, documents, examples, memory, question"):
        BudgetTrimmer(max_tokens=10).invoke({"messages": chat(1)})


def test_the_keys_of_the_hosts_own_chains_are_known() -> None:
    """`chat_history`, `context` and `input` are read where the usual keys are not there; what no slot reads is reported."""
    given = {"chat_history": chat(1), "context": documents(9), "input": "hi", "more": documents(1)}
    done = BudgetTrimmer(max_tokens=60, counter=WORDS).fit(given)
    assert len(done.value["context"]) < 9
    assert [w for w in done.report.warnings if "'more'" in w]
    usual = BudgetTrimmer(max_tokens=2000, counter=WORDS).fit({**given, "history": chat(2)})
    assert [w for w in usual.report.warnings if "'chat_history'" in w]


def test_a_missing_prompt_variable_is_named() -> None:
    """A prompt that cannot be rendered says which variable it lacks."""
    with pytest.raises(BudgetConfigError, match="language"):
        BudgetTrimmer(
            max_tokens=100, prompt=ChatPromptTemplate([("human", "{question} in {language}")])
        ).invoke({"question": "hi"})


async def test_a_rag_chain_streams_with_the_trimmer_inside() -> None:
    """An LCEL chain over all slots answers in every mode, with a prompt within the limit each time."""
    sizes: list[int] = []

    def note(value: Any) -> Any:
        sizes.append(rendered_tokens(value.to_messages()))
        return value

    later = RunnablePassthrough.assign(context=joined) | PROMPT
    trimmer = BudgetTrimmer(max_tokens=300, counter=EXACT, prompt=later)
    chain = trimmer | later | RunnableLambda(note) | FakeListChatModel(responses=["yes"]) | StrOutputParser()
    given = {"history": chat(60), "documents": documents(40), "question": "What about cats?"}
    assert chain.invoke(given) == await chain.ainvoke(given) == "yes"
    assert "".join(chain.stream(given)) == "yes"
    assert "".join([part async for part in chain.astream(given)]) == "yes"
    assert chain.batch([given, given]) == ["yes", "yes"]
    assert len(sizes) == 6
    assert max(sizes) <= 300


# ---------------------------------------------------------------- configuration, schemas, the wire, events
def test_the_budget_can_change_with_each_call() -> None:
    """A configurable field sets the limit of one call and leaves the trimmer as it was."""
    trimmer = BudgetTrimmer(max_tokens=9, counter=WORDS).configurable_fields(
        max_tokens=ConfigurableField(id="max_tokens")
    )
    thread = [*chat(5), HumanMessage("question 5")]
    assert len(trimmer.invoke(thread, config={"configurable": {"max_tokens": 21}})) == 7
    assert len(trimmer.invoke(thread)) == 3


def test_the_schemas_say_what_goes_in_and_out() -> None:
    """Input and output schemas name a list of messages or a dict."""
    trimmer = BudgetTrimmer(max_tokens=9)
    for schema in (trimmer.get_input_jsonschema(), trimmer.get_output_jsonschema()):
        assert {part["type"] for part in schema["anyOf"]} == {"array", "object"}


@pytest.mark.filterwarnings("ignore:The function `loads` is in beta")
def test_a_round_trip_over_the_wire_keeps_every_setting() -> None:
    """A budget is written as plain data, a model by its name, a prompt as itself; the copy trims alike."""
    given = {"history": chat(60), "documents": documents(10), "question": "What about cats?", "context": ""}
    trimmer = BudgetTrimmer(
        budget=TokenBudget(context_window=500, reserve=100, ranks={"knowledge": 2}),
        model="gpt-4o",
        prompt=PROMPT,
        tools=[look_up],
        cut="stable",
    )
    text = dumps(trimmer)
    assert "not_implemented" not in text
    again = loads(
        text,
        allowed_objects=[BudgetTrimmer, ChatPromptTemplate, *_PROMPT_PARTS],
        valid_namespaces=["langchain_budget"],
    )
    assert isinstance(again, BudgetTrimmer)
    assert again.budget == trimmer.budget
    assert [m.id for m in again.invoke(given)["history"]] == [m.id for m in trimmer.invoke(given)["history"]]


_PROMPT_PARTS = [type(part) for part in PROMPT.messages] + [type(PROMPT.messages[0].prompt)]


def test_a_callable_counter_is_not_serialized() -> None:
    """A trimmer that would count otherwise when it is loaded says that it cannot be sent."""
    assert '"not_implemented"' in dumps(BudgetTrimmer(max_tokens=9, counter=len))


async def test_events_carry_the_report() -> None:
    """Tracing sees one custom event with the figures and the report."""
    trimmer = BudgetTrimmer(max_tokens=9, counter=WORDS)
    events = [
        e
        async for e in trimmer.astream_events([*chat(5), HumanMessage("question 5")], version="v2")
        if e["event"] == "on_custom_event"
    ]
    assert [e["name"] for e in events] == ["context_budget"]
    assert events[0]["data"]["total_tokens"] == 9
    assert events[0]["data"]["report"].limit == 9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tokens": 0}, r"max_tokens must be .*got 0"),
        ({"max_tokens": -5}, r"max_tokens must be .*got -5"),
        ({"prompt": "text"}, "prompt must be .*str"),
        ({"summarizer": 3, "max_tokens": 5}, "summarizer must be .*int"),
        ({"model": FakeListChatModel(responses=[""])}, "neither a profile nor a name"),
    ],
)
def test_a_setting_that_cannot_work_says_what_is_allowed(options: dict[str, Any], message: str) -> None:
    """Bad settings are refused when the trimmer is made, with what was seen and what is allowed."""
    with pytest.raises(ValueError, match=message):
        BudgetTrimmer(**options)


@pytest.mark.parametrize("shorten", [False, True])
def test_a_question_that_does_not_fit(shorten: bool) -> None:
    """As the last message it is cut where the budget says so; one under a key of its own is shown as it is, so it raises."""
    budget = TokenBudget(context_window=300, reserve=100, shorten_question=shorten)
    trimmer, asked = BudgetTrimmer(budget=budget, counter=WORDS), "why " * 400
    if shorten:
        kept = trimmer.invoke([*chat(2), HumanMessage(asked)])
        assert 190 < WORDS.count_messages([CODEC.to_dict(m) for m in kept]) <= 200
    else:
        with pytest.raises(BudgetExceededError, match="shorten_question=True"):
            trimmer.invoke([*chat(2), HumanMessage(asked)])
    with pytest.raises(BudgetExceededError, match="question"):
        trimmer.invoke({"history": chat(2), "question": asked})
