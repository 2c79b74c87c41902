"""A host's own prompt: each piece of a block has the price of what is around it there, as a long source or a date."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document

from langchain_budget import BudgetChatPromptTemplate
from rankbudget import Assembler, TokenBudget, counter_for
from tests.drawing import draws

COUNT = counter_for("gpt-4o").count
PIECES = re.compile(r"<(document|memory)\b.*?</\1>\n?", re.DOTALL)
QUESTION = "When was the Zephyrine coupling replaced?"
FORMS: dict[str, Any] = {
    "f-string": [("system", "{memory}"), ("system", "{documents}"), ("human", "{question}")],
    "jinja2": [("system", "{{ memory }}\n{{ documents }}"), ("human", "{{ question }}")],
}
ABOUT = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(["a.md", "crm/tickets/2024/31/mail-7919@corp.example", "b" * 90]),
        "created_at": st.just("2025-02-03"),
        "confidence": st.sampled_from([0.5, 0.8]),
    },
)
TEXTS = st.sampled_from(
    ["Likes tea.", "Is <document> kind.", "The pump was checked in 1990, as said before."]
)
ITEMS = st.lists(st.tuples(TEXTS, ABOUT), max_size=25)


@draws()
@given(ITEMS, ITEMS, st.integers(120, 1_200), st.sampled_from(sorted(FORMS)))
def test_every_piece_has_the_tokens_it_has_in_the_prompt(
    memories: list[Any], found: list[Any], limit: int, form: str
) -> None:
    """But for a token or two at its joints; and no piece is dropped beside room for it."""
    held = {
        "memory": [Document(text, metadata=about) for text, about in memories],
        "documents": [Document(text, metadata=about) for text, about in found],
    }
    template = BudgetChatPromptTemplate.from_messages(
        FORMS[form], template_format=form, max_tokens=limit, model="gpt-4o"
    )
    made = template.fit(**held, question=QUESTION)
    shown = [COUNT(piece.group()) for m in made.messages for piece in PIECES.finditer(str(m.content))]
    told = [d for d in made.report.decisions if d.block in ("memory", "knowledge") and d.after]
    assert len(shown) == len(told)
    assert all(abs(d.after - tokens) <= 2 for d, tokens in zip(told, shown, strict=True))
    dropped = [d.before for d in made.report.decisions if d.action == "trimmed"]
    assert made.report.total_tokens <= limit
    if dropped and shown:
        frame = 30  # of a block that has nothing else
        assert limit - made.report.total_tokens < max(dropped) + frame + 2 * len(shown)


@pytest.mark.parametrize("limit", [400, 1_000, 2_000])
@pytest.mark.parametrize("form", sorted(FORMS))
def test_memories_with_long_sources_leave_documents_their_part(form: str, limit: int) -> None:
    """Three short memories without a source do not set the price of sixty that have one."""
    about = {"source": "crm/tickets/2024/31/mail-7919@corp.example", "created_at": "2025-02-03"}
    memories = [Document(text) for text in ("Likes tea.", "Is kind.", "Has a cat.")]
    memories += [Document(f"Customer asked about pump {n}.", metadata=about) for n in range(60)]
    found = [Document(f"The pump {n} was checked in {1990 + n % 30}.") for n in range(40)]
    found.append(Document("The Zephyrine coupling was replaced in 2017."))
    template = BudgetChatPromptTemplate.from_messages(
        FORMS[form], template_format=form, max_tokens=limit, model="gpt-4o"
    )
    made = template.fit(memory=memories, documents=found, question=QUESTION)
    kept = [d.block for d in made.report.decisions if d.action != "trimmed"]
    assert "replaced in 2017" in str(made.messages)
    blocks = {"memory": [d.page_content for d in memories], "knowledge": [d.page_content for d in found]}
    budget = TokenBudget(context_window=limit, reserve=0, safety=0)
    core = Assembler(budget, counter="gpt-4o").assemble(blocks, query=QUESTION).report
    assert kept.count("knowledge") >= 0.9 * sum(
        d.block == "knowledge" and d.action != "trimmed" for d in core.decisions
    )
