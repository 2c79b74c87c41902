"""A template never loses in silence what it was given under a key that it does not show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget.errors import BudgetConfigError, BudgetError, MessageError
from tests.drawing import draws

TALK = [HumanMessage("Ann lives in Rome.")]
SLOTS = ("history", "documents", "examples", "memory", "question")


def template(**options: Any) -> BudgetChatPromptTemplate:
    placeholders = [MessagesPlaceholder(name, optional=True) for name in SLOTS[:-1]]
    messages = [("system", "Be brief."), *placeholders, ("human", "{question}")]
    return BudgetChatPromptTemplate.from_messages(messages, max_tokens=300, **options)


def swapped(name: str, place: int) -> str:
    """Returns a name with two neighbouring letters in the other order."""
    at = place % (len(name) - 1)
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


WAYS: dict[str, Callable[[Any, dict[str, Any]], Any]] = {
    "fit": lambda prompt, values: prompt.fit(**values),
    "format": lambda prompt, values: prompt.format_messages(**values),
    "invoke": lambda prompt, values: prompt.invoke(values),
}


@draws()
@given(name=st.sampled_from(SLOTS[:-1]), place=st.integers(0, 8), way=st.sampled_from(sorted(WAYS)))
def test_a_misspelt_slot_raises_as_in_a_trimmer(name: str, place: int, way: str) -> None:
    """The same error with the name that was meant, whichever letters are swapped; the right name is shown."""
    wrong = swapped(name, place)
    values = {wrong: TALK, "question": "Where?"}
    if wrong == name:
        assert "Rome" in template().fit(**values).text
        return
    with pytest.raises(BudgetConfigError) as of_trimmer:
        BudgetTrimmer(max_tokens=300).invoke(values)
    with pytest.raises(BudgetConfigError) as of_template:
        WAYS[way](template(), values)
    assert str(of_template.value) == str(of_trimmer.value)
    assert repr(name) in str(of_template.value)


async def test_a_misspelt_slot_raises_in_async_calls() -> None:
    """As in the others."""
    for ask in (template().afit, template().aformat_messages, lambda **values: template().ainvoke(values)):
        with pytest.raises(BudgetConfigError, match=r"'histroy'.*'history'"):
            await ask(histroy=TALK, question="Where?")


@pytest.mark.parametrize("key", ["chat_history", "sources", "context"])
@pytest.mark.parametrize("held", [TALK, [Document("Ann lives in Rome.")]])
def test_what_is_not_shown_is_warned_about(key: str, held: list[Any]) -> None:
    """Documents and messages under a key that the template does not have; other values are the chain's own."""
    report = template().fit(question="Where?", **{key: held}).report
    assert any(repr(key) in w and "neither counted nor fitted" in w for w in report.warnings)
    assert template().fit(question="Where?", **{key: "Rome", "user": 3}).report.warnings == ()


LONG = [HumanMessage(f"Is part {n} ok?") for n in range(30)]
INPUTS: dict[str, list[Any]] = {
    "history": LONG,
    "documents": [Document("Part 7 is red. " * 20, id="d")],
    "examples": [HumanMessage("Is part 1 red? No. " * 9)],
    "memory": ["Ann likes tea. " * 20],
}
HIDDEN = {name: st.sampled_from([INPUTS[name], "Some text. " * 60]) for name in INPUTS}


@draws()
@given(
    shown=st.sets(st.sampled_from(SLOTS[:-1])),
    unseen=st.fixed_dictionaries({}, optional=HIDDEN),
    door=st.sampled_from(["template", "trimmer", "chain"]),
)
def test_what_the_prompt_does_not_show_takes_no_room(shown: Any, unseen: dict[str, Any], door: str) -> None:
    """As if it had not been given, with a warning for each: all else keeps its grants and its pieces."""
    prompt = ChatPromptTemplate(
        [("system", "Be brief."), *map(MessagesPlaceholder, sorted(shown)), ("human", "{question}")]
    )
    seen = {"question": "Where?", **dict.fromkeys(shown, LONG)}
    unseen = {name: held for name, held in unseen.items() if name not in shown}

    def fit(values: dict[str, Any]) -> Any:
        if door == "template":
            return BudgetChatPromptTemplate(prompt, max_tokens=200, counter="gpt-4o").fit(**values)
        made: Any = prompt if door == "trimmer" else RunnableLambda(lambda v: v) | prompt
        return BudgetTrimmer(max_tokens=200, counter="gpt-4o", prompt=made).fit(values)

    alone, with_unseen = fit(seen), fit({**seen, **unseen})
    assert list(with_unseen.messages) == list(alone.messages)
    assert with_unseen.report.blocks == alone.report.blocks
    assert with_unseen.report.decisions == alone.report.decisions
    assert with_unseen.value == {**alone.value, **unseen}
    for name in INPUTS:
        found = [w for w in with_unseen.report.warnings if f"{name!r} is neither counted nor fitted" in w]
        assert len(found) == (name in unseen)


def test_a_question_that_the_prompt_does_not_show_only_ranks() -> None:
    """It is no row of the report, and the history's own last question stays."""
    own = BudgetChatPromptTemplate.from_messages(
        [("system", "{documents}"), MessagesPlaceholder("history")], max_tokens=250, counter="gpt-4o"
    )
    documents = [f"Part {n} was replaced in {1990 + n}." for n in range(20)]
    made = own.fit(documents=documents, history=LONG, question="When was part 7 replaced?")
    assert "Part 7 was" in made.text
    assert made.messages[-1] == LONG[-1]
    assert "query" not in [block.name for block in made.report.blocks]
    assert any("'question' is neither counted" in w for w in made.report.warnings)


@pytest.mark.parametrize("question", ["", " \n"])
def test_a_prompt_that_ends_in_an_empty_question_is_refused(question: str) -> None:
    """Providers refuse it; with a text around it, it is none."""
    values = {"history": TALK, "question": question}
    trimmer = BudgetTrimmer(max_tokens=300, prompt=template().template)
    for ask in (template().invoke, trimmer.invoke):
        with pytest.raises(MessageError, match="question must not be empty"):
            ask(values)
    around = BudgetChatPromptTemplate.from_messages([("human", "Go on. {question}")], max_tokens=300)
    assert around.fit(question=question).text.startswith("Go on.")


@pytest.mark.parametrize("entry", ["trimmer", "template"])
def test_a_key_beside_the_right_one_is_the_users_own(entry: str) -> None:
    """Only where the right name is missing is a near one a misspelling; so is no variable of a template."""
    values: dict[str, Any] = {"history": TALK, "histroy": "mine", "question": "Where?"}
    own = BudgetChatPromptTemplate.from_messages([("human", "{quetsion} {question}")], max_tokens=300)
    assert own.fit(quetsion="So", question="where?").text == "So where?"
    if entry == "template":
        assert "Rome" in template().fit(**values).text
    else:
        prompt = template().template
        assert BudgetTrimmer(max_tokens=300, prompt=prompt).invoke(values) == values


def test_a_missing_variable_is_still_named() -> None:
    """A required one, whose name is no misspelling of a key that was given."""
    with pytest.raises(BudgetError, match="question"):
        template().fit(history=TALK)


OWN = st.from_regex(r"[a-z]{3,9}", fullmatch=True).filter(
    lambda name: name not in {*SLOTS, "context", "chat_history", "input"}
)
HELD: dict[str, tuple[str, Any]] = {
    "documents": ("documents_key", [Document("Ann lives in Rome.")]),
    "a tuple": ("documents_key", (Document("Ann lives in Rome."),)),
    "one document": ("documents_key", Document("Ann lives in Rome.")),
    "messages": ("history_key", TALK),
}


@draws()
@given(name=OWN, kind=st.sampled_from(sorted(HELD)), way=st.sampled_from(sorted(WAYS)))
def test_documents_under_a_name_of_the_templates_own_raise(name: str, kind: str, way: str) -> None:
    """A prompt never shows documents or messages as Python writes them: the error names the option, which works."""
    option, held = HELD[kind]
    messages = [("system", "Read {" + name + "}"), ("human", "{question}")]
    values = {name: held, "question": "Where?"}
    with pytest.raises(BudgetConfigError) as found:
        WAYS[way](BudgetChatPromptTemplate.from_messages(messages, max_tokens=300), values)
    assert f"{option}={name!r}" in str(found.value)
    named = BudgetChatPromptTemplate.from_messages(messages, max_tokens=300, **{option: name})
    if kind != "one document":
        text = named.fit(**values).text
        assert "Rome" in text
        assert "page_content=" not in text
        assert "HumanMessage(" not in text
    told = BudgetChatPromptTemplate.from_messages(messages, max_tokens=300).fit(**{**values, name: "Rome."})
    assert "Read Rome." in told.text


def test_messages_may_have_a_placeholder_of_their_own() -> None:
    """Messages in a placeholder that is no slot stay as they are; documents there are an error."""
    prompt = BudgetChatPromptTemplate.from_messages(
        [("placeholder", "{scratch}"), ("human", "{question}")], max_tokens=300
    )
    assert prompt.format_messages(scratch=TALK, question="Where?")[0] is TALK[0]
    with pytest.raises(BudgetConfigError, match="documents_key='scratch'"):
        prompt.fit(scratch=[Document("Rome.")], question="Where?")


@pytest.mark.parametrize("wrong", ["histroy", "hsitory"])
def test_a_misspelt_placeholder_of_messages_raises(wrong: str) -> None:
    """A conversation under a name that is surely a misspelt slot is never pinned in silence."""
    prompt = BudgetChatPromptTemplate.from_messages(
        [("placeholder", "{" + wrong + "}"), ("human", "{question}")], max_tokens=300
    )
    with pytest.raises(BudgetConfigError, match="Did you mean 'history'"):
        prompt.fit(**{wrong: TALK, "question": "Where?"})


def test_documents_that_only_the_prompt_reads_are_reported() -> None:
    """A template that loops over its own variable, or a trimmer's prompt, may mean it; the report warns."""
    looped = BudgetChatPromptTemplate.from_messages(
        [("human", "{% for d in found %}{{ d.page_content }}{% endfor %} {{ question }}")],
        template_format="jinja2",
        max_tokens=300,
    )
    prompt = ChatPromptTemplate([("system", "{found}"), ("human", "{question}")])
    for fitting in (looped.fit, lambda **given_: BudgetTrimmer(max_tokens=300, prompt=prompt).fit(given_)):
        done = fitting(found=[Document("Rome.")], question="Where?")
        [warning] = done.report.warnings
        assert "documents_key='found'" in warning
        assert "Rome." in done.text


@draws()
@given(name=st.sampled_from(["history", "documents", "question"]), place=st.integers(0, 8))
def test_a_misspelt_slot_that_the_prompt_requires_raises_the_same(name: str, place: int) -> None:
    """The name that was meant is said, although LangChain asks for it first."""
    messages = [("system", "Read {documents}"), MessagesPlaceholder("history"), ("human", "{question}")]
    prompt: Any = BudgetChatPromptTemplate.from_messages(messages, max_tokens=300)
    values = {"history": TALK, "documents": [Document("Ann lives in Rome.")], "question": "Where?"}
    wrong = swapped(name, place)
    given_values = {wrong if key == name else key: value for key, value in values.items()}
    if wrong == name:
        assert "Rome" in prompt.invoke(given_values).to_string()
        return
    for ask in (prompt.invoke, lambda given: asyncio.run(prompt.ainvoke(given))):
        with pytest.raises(BudgetConfigError, match=f"'{wrong}'.*'{name}'"):
            ask(given_values)
    with pytest.raises(KeyError, match="missing variables"):
        prompt.invoke({key: value for key, value in values.items() if key != name})
