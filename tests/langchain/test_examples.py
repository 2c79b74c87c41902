"""Few-shot examples cost what their prompt makes of them: text, or messages with their roles."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import (
    ChatPromptTemplate,
    FewShotChatMessagePromptTemplate,
    HumanMessagePromptTemplate,
    PromptTemplate,
)

from langchain_budget import BudgetExampleSelector
from langchain_budget._codec import CODEC
from rankbudget import counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import WordCounter

EXACT = counter_for("o200k_base")
CHAT = ChatPromptTemplate([("human", "{input}"), ("ai", "{output}")])
EXAMPLES = [{"input": f"q{i}", "output": f"a{i}"} for i in range(50)]


@pytest.mark.parametrize("limit", [1, 12, 100, 300])
@pytest.mark.parametrize(
    "shown",
    [CHAT, HumanMessagePromptTemplate.from_template("{input} is {output}")],
    ids=["turns", "one message"],
)
def test_examples_in_a_chat_prompt_are_within_their_tokens(limit: int, shown: Any) -> None:
    """The messages of the few-shot prompt, roles and framing included, have at most the tokens given, and use them."""
    selector = BudgetExampleSelector(EXAMPLES, max_tokens=limit, example_prompt=shown, counter=EXACT)
    few = FewShotChatMessagePromptTemplate(
        example_selector=selector, example_prompt=shown, input_variables=["input"]
    )
    messages = few.format_messages(input="q7")
    total = EXACT.count_messages([CODEC.to_dict(m) for m in messages]) if messages else 0
    assert total <= limit
    assert total > limit - 20 or limit < 20


def test_a_callable_counter_counts_the_messages_of_an_example() -> None:
    """A counter of messages sees messages, not their joined texts."""
    selector = BudgetExampleSelector(
        EXAMPLES, max_tokens=8, example_prompt=CHAT, counter=WordCounter(framing=1, priming=0)
    )
    assert len(selector.select_examples({"input": "q7"})) == 2


@pytest.mark.parametrize(
    "shown", [CHAT, PromptTemplate.from_template("{input} {output}")], ids=["chat", "text"]
)
def test_an_example_without_a_field_of_its_prompt_says_which(shown: Any) -> None:
    """What is missing is named, as a setting that cannot work."""
    with pytest.raises(BudgetConfigError, match=r"each example must have 'output' .*got input"):
        BudgetExampleSelector([{"input": "a"}], max_tokens=50, example_prompt=shown).select_examples(
            {"input": "a"}
        )


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))], ids=["deepcopy", "pickle"]
)
def test_a_selector_can_be_copied(copied: Any) -> None:
    """A copy selects alike and grows by itself; embeddings go with it."""
    for embeddings in (None, DeterministicFakeEmbedding(size=8)):
        selector = BudgetExampleSelector(EXAMPLES[:5], k=2, max_tokens=50, embeddings=embeddings)
        again = copied(selector)
        assert again.select_examples({"input": "q3"}) == selector.select_examples({"input": "q3"})
        again.add_example({"input": "q9", "output": "a9"})
        assert (len(again.examples), len(selector.examples)) == (6, 5)


@pytest.mark.parametrize(
    "shown", [CHAT, PromptTemplate.from_template("{input} {output}"), None], ids=["chat", "text", "fields"]
)
@pytest.mark.parametrize("added", [{"input": "a"}, {}, {"inputs": "a", "output": "b"}, "a", None])
def test_an_example_that_cannot_be_shown_is_not_added(shown: Any, added: Any) -> None:
    """It raises where it is added, and later selections work."""
    selector = BudgetExampleSelector(EXAMPLES[:2], max_tokens=50, example_prompt=shown)
    with pytest.raises(BudgetConfigError, match="example"):
        selector.add_example(added)
    assert selector.examples == EXAMPLES[:2]
    selector.add_example({"input": "q9", "output": "a9"})
    assert selector.select_examples({"input": "q9"})[0]["output"] == "a9"
    selector = BudgetExampleSelector(example_prompt=shown)
    selector.add_example({"input": "q", "output": "a", "note": ""})
    selector.add_example({"input": "r", "output": "b", "note": "", "more": ""})


@pytest.mark.parametrize(
    "beside",
    [
        {"history": [HumanMessage("q1 q2 q3 q4"), AIMessage("a3")]},
        {"history": [("human", "q1 q2 q3 q4")]},
        {"history": [{"role": "user", "content": "q1 q2 q3 q4"}]},
        {"history": []},
        {"context": [Document("q1 q2 q3 q4")]},
        {"context": Document("q1 q2 q3 q4")},
    ],
)
def test_messages_and_documents_are_no_question(beside: dict[str, Any]) -> None:
    """A chat prompt hands over all its variables: the examples are those that the question alone gives."""
    selector = BudgetExampleSelector(EXAMPLES, k=3, example_prompt=CHAT)
    alone = selector.select_examples({"question": "q33"})
    assert selector.select_examples({**beside, "question": "q33"}) == alone
    few = FewShotChatMessagePromptTemplate(
        example_selector=selector, example_prompt=CHAT, input_variables=["question"]
    )
    made = few.format_messages(**beside, question="q33")
    assert [m.text for m in made[::2]] == [example["input"] for example in alone]
