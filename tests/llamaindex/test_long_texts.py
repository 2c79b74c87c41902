"""One long text of many records, as a variable of a template and as a memory block."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate

from llamaindex_budget import BudgetMemory, budget_model
from tests.drawing import draws

NAMES = "Alder Basil Cedar Dahlia Elm Fennel Ginger Hazel Iris Juniper Kale Laurel".split()
SAID = {
    "owner": "The owner has number {n}.",
    "port": "The port is {n}.",
    "budget": "The budget is {n} euro.",
    "deadline": "The deadline is day {n}.",
}
HEADINGS: list[Callable[[str], str]] = [
    "## {}\n\n".format,
    "## {}\n".format,
    "**{}**\n\n".format,
    "Project: {}\n\n".format,
    "<h2>{}</h2>\n\n".format,
    lambda name: f"{name}\n{'-' * len(name)}\n\n",
]
TITLED: Callable[[str], str] = "# Projects\n\n{}".format
FACTS = st.lists(st.integers(1000, 9999), min_size=48, max_size=48, unique=True)


def predicted(text: str, asked: str, limit: int, name: str = "query_str") -> str:
    template = PromptTemplate("Use this.\n{notes}\nQ: {" + name + "}\nA:")
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=limit, counter="gpt-4o")
    return str(llm.predict(template, notes=text, **{name: asked})).partition("\nQ: ")[0]


def remembered(text: str, asked: str, limit: int) -> str:
    notes = StaticMemoryBlock(name="notes", static_content=text, priority=1)
    memory = BudgetMemory.from_defaults(token_limit=limit, counter="gpt-4o", memory_blocks=[notes])
    memory.put(ChatMessage(role="user", content=asked))
    return "\n".join(str(message.content) for message in memory.get())


@pytest.mark.parametrize("show", [predicted, remembered])
@draws()
@given(
    data=st.data(),
    heading=st.sampled_from(HEADINGS),
    numbers=FACTS,
    limit=st.integers(130, 400),
    title=st.booleans(),
)
def test_what_is_kept_of_a_text_is_under_its_own_name(
    show: Any, data: Any, heading: Any, numbers: list[int], limit: int, title: bool
) -> None:
    """What answers the question is kept, and no line would be read as another record's."""
    facts = {(name, field): str(numbers.pop()) for name in NAMES for field in SAID}
    text = "\n\n".join(
        heading(name)
        + "\n\n".join(f"{said.format(n=facts[name, field])} It was agreed." for field, said in SAID.items())
        for name in NAMES
    )
    name, field = data.draw(st.sampled_from(sorted(facts)))
    kept = show(TITLED(text) if title else text, f"What is the {field} of {name}?", limit)
    above, found = "", set[tuple[str, str]]()
    for word in re.findall(r"[A-Z][a-z]+|\d{4}", kept.partition("What is the")[0]):
        above = word if word in NAMES else above
        found.update((above, word) for one in facts.values() if one == word)
    assert (name, facts[name, field]) in found
    assert found <= {(owner, number) for (owner, _), number in facts.items()}


@pytest.mark.parametrize("name", ["query_str", "question", "query"])
def test_the_question_is_found_by_its_variable(name: str) -> None:
    """Wherever in the template it is, and whatever the last message says."""
    rooms = "\n".join(f"Room {i} has {i + 1} windows. It is old." for i in range(99))
    messages = [
        ChatMessage(role="system", content="Rooms:\n{rooms}\nAsked: {" + name + "}"),
        ChatMessage(role="user", content="Answer what was asked, in one word."),
    ]
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=200, counter="gpt-4o")
    template = ChatPromptTemplate(message_templates=messages)
    told = str(llm.predict(template, rooms=rooms, **{name: "How many windows has room 58?"}))
    assert "Room 58 has 59 windows." in told


def test_paragraphs_without_headings_compete_by_themselves() -> None:
    """A paragraph that answers comes before the sentences of others that have one word of the question."""
    texts = [f"Town {i} has a museum. It opens at ten. Entry costs {i} euro." for i in range(60)]
    texts[40] = (
        "The ferry to Delos leaves at nine. Tickets for it are sold at the harbour. They cost 12 euro."
    )
    assert texts[40] in predicted("\n\n".join(texts), "What do tickets of the ferry to Delos cost?", 120)
