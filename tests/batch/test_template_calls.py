"""Calls and results, in every form of OpenAI's, are in the prompt that a chat template makes, or the row has an error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rankbudget.batch import FitPrompt
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import from_tokenizer
from tests.core.counting.templates import CALLS, TEMPLATES, VARIABLES, byte_level_tokenizer

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")

KNOWN = "{% if m.role in ['system', 'user', 'assistant', 'tool'] %}"
TURN = "{{ '<|im_start|>' ~ m.role ~ '\n' ~ (m.content or '') }}"
END = "{{ '<|im_end|>\n' }}{% endif %}{% endfor %}{{ '<|im_start|>assistant\n' }}"
SHOWING = {
    "additive": TEMPLATES["additive"],
    "default_system": TEMPLATES["default_system"],
    "skips_unknown": "{% for m in messages %}" + KNOWN + TURN + CALLS + END,
}
HIDING = {
    "content_only": "{% for m in messages %}" + KNOWN + TURN + END,
    "no_tools": "{% for m in messages %}" + KNOWN.replace(", 'tool'", "") + TURN + CALLS + END,
}


def step(form: str, n: int) -> list[dict[str, Any]]:
    call = {"name": "lookup", "arguments": json.dumps({"box": f"B{n}"})}
    text = f"Box {n} has seal D{n}0331 on it."
    if form == "responses":
        item = {"type": "function_call", "call_id": f"c{n}", **call}
        return [item, {"type": "function_call_output", "call_id": f"c{n}", "output": text}]
    if form == "functions":
        asked = {"role": "assistant", "content": None, "function_call": call}
        return [asked, {"role": "function", "name": "lookup", "content": text}]
    calls = [{"id": f"c{n}", "type": "function", "function": call}]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    return [asked, {"role": "tool", "tool_call_id": f"c{n}", "content": text}]


@pytest.mark.parametrize("form", ["responses", "functions", "tools"])
@pytest.mark.parametrize("label", [*SHOWING, *HIDING])
def test_kept_calls_and_results_are_rendered_or_the_row_has_an_error(label: str, form: str) -> None:
    """Each call and each result that is kept is in the rendered prompt, or the row says what is not."""
    template = ChatTemplate({**SHOWING, **HIDING}[label], VARIABLES)
    counter = from_tokenizer(byte_level_tokenizer(), name=label, template=template)
    for steps in (1, 3):
        # The name of the function is in the question, too: that does not show the call.
        history: list[dict[str, Any]] = [{"role": "user", "content": "Use lookup: which seals?"}]
        history += [message for n in range(steps) for message in step(form, n)]
        row = FitPrompt(1500, counter=counter).row({"history": history})
        if label in HIDING:
            assert "leaves out message" in row["budget_error"]
            continue
        assert row["budget_error"] is None
        shown = counter.render(row["messages"])
        assert len(row["kept"]) == len(history)
        assert all(f"D{n}0331" in shown and f"B{n}" in shown for n in range(steps))
        assert counter.count(shown) <= row["prompt_tokens"]
