"""With `by_question` a trimmer and a prompt choose older messages by what the question asks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, convert_to_openai_messages
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

from langchain_budget import BudgetChatPromptTemplate, BudgetTrimmer
from rankbudget import BudgetSession, fit_messages
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import check_laws
from tests.drawing import draws
from tests.langchain.test_trimmer import EXACT

QUESTION = "When was the lighthouse of Norderney finished?"
FACT = "The lighthouse of Norderney was finished in 1874."
PROMPT = ChatPromptTemplate(
    [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")]
)


def _chat(turns: int, at: int, size: int, says: str) -> list[BaseMessage]:
    chat: list[BaseMessage] = []
    for n in range(turns):
        other = [f"Guide {n} says {i} times that bees need care in winter." for i in range(size)]
        long = " ".join([*other[: size // 2], FACT, *other[size // 2 :]])
        held = says if n == at else ""
        chat.append(HumanMessage(long if held == "user" else f"What about guide {n}?"))
        chat.append(AIMessage(long if held == "assistant" else f"Guide {n} writes about bees and wine. " * 3))
    return chat


@draws()
@given(
    turns=st.integers(5, 20),
    back=st.integers(1, 20),
    size=st.integers(0, 90),
    says=st.sampled_from(("user", "assistant")),
    limit=st.integers(200, 1500),
)
def test_the_turn_that_answers_stays(turns: int, back: int, size: int, says: str, limit: int) -> None:
    """In a list, in a dict beside the question, and in a prompt; the list is what `fit_messages` returns."""
    chat = _chat(turns, max(0, turns - back), size, says)
    trimmer = BudgetTrimmer(max_tokens=limit, counter=EXACT, by_question=True)
    whole = [*chat, HumanMessage(QUESTION)]
    slots: dict[str, Any] = {"history": chat, "question": QUESTION}
    template: Any = BudgetChatPromptTemplate(PROMPT, max_tokens=limit, counter=EXACT, by_question=True)
    listed = trimmer.invoke(whole)
    for kept in (listed, trimmer.invoke(slots)["history"], template.format_messages(**slots)):
        assert FACT in str(kept)
    dicts: Any = convert_to_openai_messages(whole)
    same = fit_messages(dicts, max_tokens=limit, counter=EXACT, query=QUESTION).messages
    assert convert_to_openai_messages(listed) == same
    check_laws(dicts, same, limit=limit, counter=EXACT)


def test_by_age_it_is_lost() -> None:
    """The option is off by default."""
    whole = [*_chat(12, 1, 0, "assistant"), HumanMessage(QUESTION)]
    assert FACT not in str(BudgetTrimmer(max_tokens=250, counter=EXACT).invoke(whole))
    assert FACT in str(BudgetTrimmer(max_tokens=250, counter=EXACT, by_question=True).invoke(whole))


@pytest.mark.parametrize("other", [{"cut": "stable"}, {"session": BudgetSession(400)}])
def test_what_cuts_by_age_refuses_it(other: dict[str, Any]) -> None:
    """A stable cut and a session would ignore the question."""
    with pytest.raises(BudgetConfigError, match="by_question must be False with a session or"):
        BudgetTrimmer(max_tokens=400, by_question=True, **other)
