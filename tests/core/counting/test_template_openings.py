"""What a template writes only with a system message, or only without one, is counted where it is written."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import from_tokenizer
from tests.drawing import draws

from .templates import GENERATION, ONE_TURN, TEMPLATES, VARIABLES
from .test_template_forms import FORMS, QUESTION, TOOLS, chat_of
from .test_templates import tokenizer

LOOP = "{% for m in messages %}" + ONE_TURN + "{% endfor %}" + GENERATION
SHOWN = {
    **TEMPLATES,
    # Tools only behind a system message.
    "tools_behind_system": "{% if tools and messages[0]['role'] == 'system' %}{{ '<|im_start|>tools\n' + (tools | tojson) + '<|im_end|>\n' }}"
    "{% endif %}" + LOOP,
    # A long text where there is no system message.
    "long_default": "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    + "You are a careful assistant. " * 30
    + "<|im_end|>\n' }}{% endif %}"
    + LOOP,
}
SYSTEM = "Answer in French."


@cache
def own_counter(label: str) -> Any:
    return from_tokenizer(tokenizer("byte_level"), name=label, template=ChatTemplate(SHOWN[label], VARIABLES))


@pytest.mark.slow
@pytest.mark.parametrize("label", SHOWN)
@draws(cases=len(SHOWN))
@given(
    place=st.sampled_from(["column", "history"]),
    tools=st.sampled_from([None, TOOLS, TOOLS * 3]),
    documents=st.integers(0, 12),
    turns=st.integers(0, 12),
    more=st.integers(0, 600),
)
def test_what_must_stay_fits_where_it_fits(
    label: str, place: str, tools: Any, documents: int, turns: int, more: int
) -> None:
    """The least room is what the system text, the tools and the question cost as the template writes them."""
    own, opening = own_counter(label), {"role": "system", "content": SYSTEM}
    fixed: dict[str, Any] = {"system": SYSTEM, "question": QUESTION, "tools": tools}
    least = FitPrompt(9_000, counter=own).row(fixed)["prompt_tokens"]
    chat = chat_of(turns, FORMS["text"])
    row = {**fixed, "history": chat, "documents": [f"Part {n} was replaced. " * 4 for n in range(documents)]}
    if place == "history":
        row |= {"system": None, "history": [opening, *chat]}
    made = FitPrompt(least + more, counter=own).row(row)
    assert made["budget_error"] is None
    assert made["prompt_tokens"] <= least + more
    assert FitPrompt(least - 1, counter=own).row(row)["messages"] is None
    whole = [opening, *chat, {"role": "user", "content": QUESTION}]
    fitted = fit_messages(whole, max_tokens=least + more, counter=own, tools=tools)
    assert fitted.report.total_tokens == own.count_messages(fitted.messages, tools) <= least + more
