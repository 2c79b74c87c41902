"""A template never loses in silence what it was given under a key that it does not show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.prompts import MessagesPlaceholder

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget.errors import BudgetConfigError, BudgetError
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
