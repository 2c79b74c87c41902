"""The slots of a dict: what is counted is what is sent, whatever form a slot comes in."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder, PromptTemplate, format_document
from langchain_core.runnables import RunnablePassthrough

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError, MessageError
from rankbudget.testing import HOSTILE, Application, WordCounter, applications
from tests.drawing import draws

EXACT = counter_for("o200k_base")
HEADED = PromptTemplate.from_template("Source: {source}, {note}\n{page_content}")
QUESTION = "When is the refund?"


def long_documents(note: str, count: int = 1) -> list[Document]:
    return [
        Document(
            page_content=f"The refund of part {i} takes ten days. " + "Filler about cats. " * 100,
            metadata={"source": f"{i}.md", "note": note},
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("limit", [60, 120, 200, 400])
@pytest.mark.parametrize("note", ["short", "very long note " * 25])
def test_a_shortened_document_is_shortened_in_its_content(limit: int, note: str) -> None:
    """The document prompt heads what is left of the content, once; what it makes of the returned documents is within the limit."""
    trimmer = BudgetTrimmer(max_tokens=limit, counter=EXACT, document_prompt=HEADED)
    done = trimmer.fit({"documents": long_documents(note, 3), "question": QUESTION})
    shown = [format_document(d, HEADED) for d in done.value["documents"]]
    assert EXACT.count("\n".join(shown)) <= done.report.total_tokens <= limit
    assert all("Source:" not in d.page_content for d in done.value["documents"])
    # What else the default rendering holds: notice, framing and question 33, tags 12, the shortest start of a text 10.
    heading = EXACT.count(format_document(Document("", metadata=long_documents(note)[0].metadata), HEADED))
    assert shown or heading + 33 + 12 + 10 > limit


@pytest.mark.parametrize("limit", range(100, 200, 20))
def test_a_template_shows_a_shortened_document_once(limit: int) -> None:
    """Inside a prompt template the heading of each document is printed once, in front."""
    prompt = BudgetChatPromptTemplate.from_messages(
        [("system", "Use\n{documents}"), ("human", "{question}")],
        max_tokens=limit,
        counter=EXACT,
        document_prompt=HEADED,
    )
    text = prompt.format_messages(documents=long_documents("of the refund", 4), question=QUESTION)[0].text
    headings = re.findall(r"<document [^>]*>\nSource: \d.md, of the refund\n", text)
    assert len(headings) == text.count("Source:") == text.count("<document ") >= 1


async def test_sync_and_async_show_alike() -> None:
    """The async form counts documents as the sync form does."""
    given = {"documents": long_documents("short", 3), "question": QUESTION}
    trimmer = BudgetTrimmer(max_tokens=150, counter=EXACT, document_prompt=HEADED)
    assert (await trimmer.afit(given)).value == trimmer.fit(given).value


def test_the_text_of_a_tight_fit_is_what_was_counted() -> None:
    """A fit to the last token has a text; as tagged text the same prompt would be larger than the limit."""
    thread = [m for i in range(20) for m in (HumanMessage(f"question {i}"), AIMessage(f"answer {i}"))]
    for limit in range(60, 80):
        done = BudgetTrimmer(max_tokens=limit, counter=EXACT).fit({"history": thread, "question": "x"})
        assert done.text == "\n".join(m.text for m in done.messages)


def test_a_question_of_several_messages_is_never_sent_uncounted() -> None:
    """Without a prompt it is refused with a way out; a prompt that shows all of it has all of it counted."""
    several: dict[str, Any] = {
        "history": [HumanMessage("a"), AIMessage("b")],
        "question": [HumanMessage("long " * 50), HumanMessage("y")],
    }
    with pytest.raises(
        BudgetConfigError,
        match=r"question must be .*2 messages.*Put the earlier ones into history",
    ):
        BudgetTrimmer(budget=TokenBudget(context_window=500, reserve=100)).invoke(several)
    prompt = ChatPromptTemplate([MessagesPlaceholder("history"), MessagesPlaceholder("question")])
    done = BudgetTrimmer(max_tokens=400, counter=EXACT, prompt=prompt).fit(several)
    assert done.report.total_tokens > 50
    assert done.value["question"] == several["question"]
    assert BudgetTrimmer(max_tokens=400, counter=EXACT).invoke({"question": [("human", "hi")]}) == {
        "question": [("human", "hi")]
    }


@pytest.mark.parametrize("made", [iter, lambda held: filter(None, held), lambda held: (one for one in held)])
def test_what_is_read_once_is_kept_as_a_list_is(made: Any) -> None:
    """A prompt that is rendered to be measured has read the iterator before the documents are read."""
    prompt = ChatPromptTemplate(
        [("system", "Use\n{context}"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    shown = RunnablePassthrough.assign(
        context=lambda held: "\n".join(d.page_content for d in held["documents"])
    )
    given: dict[str, Any] = {
        "question": "What is E4?",
        "documents": [Document(f"Error E{i} means fault {i}.") for i in range(9)],
        "history": [HumanMessage("hi"), AIMessage("ho")],
    }
    for limit in (60, 5_000):
        trimmer = BudgetTrimmer(max_tokens=limit, counter=EXACT, prompt=shown | prompt)
        once = {**given, "documents": made(given["documents"]), "history": made(given["history"])}
        assert trimmer.fit(once).value == trimmer.fit(given).value


def test_documents_may_be_a_generator() -> None:
    """Whatever can be walked through is a slot's content, as for the history; it comes back as a list."""
    found = [Document(f"Fact {i}") for i in range(3)]
    out = BudgetTrimmer(max_tokens=400).invoke(
        {"documents": (d for d in found), "examples": iter([{"input": "a", "output": "b"}])}
    )
    assert out == {"documents": found, "examples": [{"input": "a", "output": "b"}]}
    assert BudgetTrimmer(max_tokens=400).invoke({"documents": found[0]})["documents"] == found[:1]


def test_a_slot_that_cannot_be_read_is_named_as_the_user_named_it() -> None:
    """The error has the key of the input beside what is allowed."""
    with pytest.raises(
        MessageError, match=r"the input's 'context' cannot be read: knowledge must be a Document.*int"
    ):
        BudgetTrimmer(max_tokens=400, documents_key="context").invoke({"context": [3]})


@pytest.mark.parametrize("key", ["memory", "documents"])
@pytest.mark.parametrize("limit", [60, 150, 300])
def test_dicts_are_kept_or_dropped_whole(key: str, limit: int) -> None:
    """A dict comes back as the same object, so it is never counted as less: what comes back is within the limit."""
    given = [
        {"text": "user likes tea. " * 40},
        {"text": "user lives in Rome. " * 40},
        {"text": "user has a refund open"},
    ]
    done = BudgetTrimmer(max_tokens=limit, counter=EXACT).fit({key: given, "question": "refund tea?"})
    assert all(any(item is g for g in given) for item in done.value[key])
    assert sum(EXACT.count(item["text"]) for item in done.value[key]) <= done.report.total_tokens <= limit
    assert done.value[key]


def test_the_law_of_documents_behind_a_prompt_of_their_own() -> None:
    """Any texts, any limit: what the document prompt makes of the returned documents is within it, every word its document's."""

    @draws()
    @given(applications(broken=False), st.integers(10, 200))
    def check(app: Application, limit: int) -> None:
        words = WordCounter(framing=1, priming=0)
        shown = PromptTemplate.from_template("From {place}:\n{page_content}")
        texts = [*app.documents, *HOSTILE[:3]]
        found = [
            Document(id=f"d{i}", page_content=text, metadata={"place": f"shelf {i}"})
            for i, text in enumerate(texts)
        ]
        before = [d.model_copy(deep=True) for d in found]
        trimmer = BudgetTrimmer(max_tokens=limit + 20, counter=words, document_prompt=shown)
        done = trimmer.fit({"documents": found, "question": "ok"})
        kept = done.value["documents"]
        assert (
            sum(words.count(format_document(d, shown)) for d in kept)
            <= done.report.total_tokens
            <= limit + 20
        )
        assert found == before
        for document in kept:
            source = next(d for d in found if d.id == document.id)
            assert document is source or set(document.page_content.split()) <= set(
                source.page_content.split()
            )

    check()


@pytest.mark.parametrize("key", ["messages", "docs", "retrieved", "turns"])
def test_what_no_slot_reads_is_warned_of_once(key: str) -> None:
    """Documents and messages under other keys pass uncounted: the report names the option; each warning is given once."""
    held: list[Any] = [Document("Fact.")] if key in {"docs", "retrieved"} else [HumanMessage("said")]
    option = "documents_key" if key in {"docs", "retrieved"} else "history_key"
    slots = {
        "history": [HumanMessage("one " * 80), AIMessage("two")],
        "memory": long_documents("m"),
        key: held,
        "question": QUESTION,
    }
    report = BudgetTrimmer(max_tokens=100).fit(slots).report
    assert [w for w in report.warnings if repr(key) in w and f"{option}={key!r}" in w]
    assert len(report.warnings) == len(set(report.warnings)) > 1


@draws()
@given(limit=st.integers(80, 500))
def test_langchains_own_names_are_slots(limit: int) -> None:
    """`chat_history`, `context` and `input` are fitted exactly as `history`, `documents` and `question` are."""
    thread, found = [HumanMessage("one " * 50), AIMessage("two " * 50)], long_documents("n", 2)
    usual = {"history": thread, "documents": found, "question": QUESTION}
    theirs = {"chat_history": thread, "context": found, "input": QUESTION}
    trimmer = BudgetTrimmer(max_tokens=limit)
    one, other = trimmer.fit(usual), trimmer.fit(theirs)
    assert list(one.value.values()) == list(other.value.values())
    assert one.report.total_tokens == other.report.total_tokens <= limit


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("histroy", "history"),
        ("documnets", "documents"),
        ("quetsion", "question"),
        ("chat_histroy", "chat_history"),
    ],
)
def test_a_misspelt_slot_raises_with_the_name_that_was_meant(wrong: str, right: str) -> None:
    """Its content would be neither counted nor fitted; a key beside the right one, or of the prompt, is the user's own."""
    slots: dict[str, Any] = {"question": QUESTION, wrong: [("human", "hi")]}
    if right == "question":
        slots = {"history": [HumanMessage("hi")], wrong: QUESTION}
    with pytest.raises(BudgetConfigError, match=f"{wrong!r}.*{right!r}"):
        BudgetTrimmer(max_tokens=100).invoke(slots)
    own = ChatPromptTemplate([("human", f"{{question}} {{{wrong}}}")])
    given_values = {"question": QUESTION, wrong: "mine"}
    assert BudgetTrimmer(max_tokens=100, prompt=own).invoke(given_values) == given_values
    asked = ("human", "{question}")
    for mine in (
        ChatPromptTemplate([asked, MessagesPlaceholder(wrong, optional=True)]),
        ChatPromptTemplate([asked, ("human", f"{{{wrong}}}")]).partial(**{wrong: "bound"}),
    ):
        given_values = {"question": QUESTION, wrong: [HumanMessage("mine")]}
        assert BudgetTrimmer(max_tokens=100, prompt=mine).invoke(given_values) == given_values
    for key in ("content", "user", "histories", "document_ids", "session", "questions", "language", "inputs"):
        assert BudgetTrimmer(max_tokens=100).invoke({"question": QUESTION, key: 1})[key] == 1


@pytest.mark.parametrize("signal", [{"priority": 100}, {"created_at": "2026-01-01"}])
@pytest.mark.parametrize("place", range(1, 6))
def test_priority_and_date_rank_memories_and_not_documents(place: int, signal: dict[str, Any]) -> None:
    """As the documentation says."""
    facts = [
        "Ann likes green tea in the morning.",
        "Bob moved to Paris last spring.",
        "The garden needs water twice a week.",
        "Carl works at the harbour office.",
        "Dina plays violin on Sundays.",
        "Erik bakes rye bread at home.",
    ]
    least = {"priority": 1, "created_at": "2020-01-01"}
    found = [Document(text, metadata=least) for text in facts]
    marked = [Document(text, metadata=signal if i == place else least) for i, text in enumerate(facts)]
    trimmer = BudgetTrimmer(max_tokens=75, counter=EXACT)
    asked = {"question": "What about it?"}
    dated = BudgetTrimmer(max_tokens=95, counter=EXACT)  # a memory shows its date
    assert facts[place] in [d.page_content for d in dated.invoke({**asked, "memory": marked})["memory"]]
    kept = [
        [d.page_content for d in trimmer.invoke({**asked, "documents": given})["documents"]]
        for given in (found, marked)
    ]
    assert kept[0] == kept[1]
    assert len(kept[0]) < len(facts)


def test_a_document_has_one_name_in_the_prompt_and_in_the_report() -> None:
    """What a model cites as a source is what the report calls the document, whichever documents stay."""
    documents = [Document(f"Note {i}: parcels leave at {i} o'clock. " * 6) for i in range(20)]
    for template_format, text in (("f-string", "{documents}"), ("jinja2", "{{ documents }}")):
        template = BudgetChatPromptTemplate.from_messages(
            [("system", text), ("human", "When does note 13 leave?")],
            template_format=template_format,  # type: ignore[arg-type]
            max_tokens=200,
            counter="gpt-4o",
        )
        made = template.fit(documents=documents)
        cited = re.findall(r'source="([^"]+)">\nNote (\d+)', str(made.messages[0].content))
        assert cited
        assert [int(name.removeprefix("knowledge-")) for name, _ in cited] == [int(n) for _, n in cited]
        kept = [
            d.segment_id for d in made.report.decisions if d.block == "knowledge" and d.action != "trimmed"
        ]
        assert [name for name, _ in cited] == kept


WEATHER = [
    HumanMessage("Weather?"),
    AIMessage("", tool_calls=[{"name": "w", "args": {}, "id": "t", "type": "tool_call"}]),
]
RESULTS = [
    ToolMessage("Sun.", tool_call_id="t"),
    HumanMessage([{"type": "tool_result", "tool_use_id": "t", "content": "Sun."}]),
]


@pytest.mark.parametrize("result", RESULTS, ids=["tool", "user"])
def test_results_are_no_question(result: BaseMessage) -> None:
    """A result in the slot of the question would be sent without its call; with it, in one slot, it is."""
    prompt = BudgetChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), MessagesPlaceholder("question")], max_tokens=300, counter=EXACT
    )
    for door in (prompt.invoke, BudgetTrimmer(max_tokens=300, counter=EXACT).fit):
        with pytest.raises(MessageError, match="at the end of history"):
            door({"history": WEATHER, "question": [result]})
    whole = [*WEATHER, result]
    assert prompt.format_messages(history=[], question=whole) == whole


ASKED = "What is the code of Unit 44?"
UNITS = [Document(f"Unit {i} code Z{i * 7}. " + "Filler words about upkeep. " * 10) for i in range(60)]
ANSWERED = [HumanMessage("Hello"), AIMessage("Hi.")]


@pytest.mark.parametrize("key", ["question", "input", "query", "user_input", "message"])
@pytest.mark.parametrize("human", ["{%s}", "From {documents}, answer: {%s}"])
def test_the_last_user_message_asks_whatever_its_variable_is_called(key: str, human: str) -> None:
    """Documents are ranked by it in a template and in a trimmer that knows its prompt, or a chain that ends in it."""
    system = ("system", "Answer." + "{documents}" * ("documents" not in human))
    prompt = ChatPromptTemplate([system, MessagesPlaceholder("history"), ("human", human % key)])
    value = {"history": ANSWERED, "documents": UNITS, key: ASKED}
    made = BudgetChatPromptTemplate(prompt, max_tokens=600, counter=EXACT).fit(**value)
    assert any("Z308." in message.text for message in made.messages)
    for shown in (prompt, RunnablePassthrough() | prompt):
        fitted = BudgetTrimmer(max_tokens=600, counter=EXACT, prompt=shown).fit(value)
        assert any("Z308." in document.page_content for document in fitted.value["documents"])
        assert not any("question_key=" in warning for warning in fitted.report.warnings)


@pytest.mark.parametrize(
    ("value", "warned"),
    [
        ({"documents": UNITS, "query": ASKED}, True),
        ({"documents": UNITS, "history": ANSWERED, "query": ASKED}, True),
        ({"documents": UNITS, "question": ASKED}, False),
        ({"documents": UNITS, "history": [*ANSWERED, HumanMessage(ASKED)]}, False),
        ({"history": ANSWERED, "query": ASKED}, False),
    ],
)
def test_documents_without_a_known_question_are_reported(value: dict[str, Any], warned: bool) -> None:
    """Where no question is known, the report names the option that names its key."""
    made = BudgetTrimmer(max_tokens=600, counter=EXACT).fit(value)
    assert any("question_key=" in warning for warning in made.report.warnings) == warned


@pytest.mark.parametrize(
    ("value", "covers"),
    [
        (ANSWERED, "history"),
        ({"history": ANSWERED}, "history"),
        ({"documents": UNITS}, "documents"),
        ({"documents": UNITS, "question": ASKED}, "documents"),
        ({"examples": [{"input": "a", "output": "b"}]}, "examples"),
        ({"history": ANSWERED, "documents": UNITS}, "blocks"),
        ({"memory": ["She likes tea."]}, "blocks"),
    ],
)
def test_a_trimmer_without_a_prompt_reports_what_it_sees(value: Any, covers: str) -> None:
    """It counts neither the system text nor other variables of the prompt, so it covers less than the prompt."""
    assert BudgetTrimmer(max_tokens=600, counter=EXACT).fit(value).report.covers == covers


def test_what_sees_the_prompt_reports_that_it_covers_it() -> None:
    """A template, and a trimmer that knows the prompt, count all that is sent."""
    prompt = ChatPromptTemplate(
        [("system", "{documents}"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    value = {"history": ANSWERED, "documents": UNITS, "question": ASKED}
    assert BudgetTrimmer(max_tokens=600, counter=EXACT, prompt=prompt).fit(value).report.covers == "prompt"
    assert (
        BudgetChatPromptTemplate(prompt, max_tokens=600, counter=EXACT).fit(**value).report.covers == "prompt"
    )
