"""Every part of a message that is kept is in the prompt that a chat template makes, or the row has an error."""

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

HEAD = "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\n' }}"
END = "{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
TEXT = "{% if m.content is string %}{{ m.content }}{% else %}{% for b in m.content or [] if b.type == 'text' %}{{ b.text }}{% endfor %}{% endif %}"
SHOWN = {
    "additive": TEMPLATES["additive"],
    "reads_blocks": TEMPLATES["reads_blocks"],
    "calls_alone": HEAD + "{% if m.tool_calls %}" + CALLS + "{% else %}" + TEXT + "{% endif %}" + END,
    "no_answers": HEAD + "{% if m.role != 'assistant' %}" + TEXT + "{% endif %}" + CALLS + END,
    "typed_calls": HEAD
    + "{{ m.content or '' }}{% for c in m.tool_calls or [] if c.type == 'function' %}{{ c.function | tojson }}{% endfor %}"
    + END,
    "names_alone": HEAD + "{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}" + END,
    "blocks": HEAD + TEXT + CALLS + END,
    "known_roles": "{% for m in messages if m.role in ['user', 'assistant', 'tool'] %}{{ m.role ~ (m.content or '') }}" + CALLS + END,
}  # fmt: skip
CALL = {"name": "lookup", "arguments": json.dumps({"box": "BOXNAME"})}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "RESULT"}
THOUGHT = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "THOUGHT"}]}


def step(call: dict[str, Any], text: str | None = None) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, "tool_calls": [{"id": "c", **call}]}, RESULT]


def document(source: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "role": "user",
            "content": [{"type": "document", "source": source}, {"type": "text", "text": "Read it."}],
        }
    ]


FORMS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "document": (document({"type": "text", "data": "DOCUMENT"}), ["DOCUMENT"]),
    "document of blocks": (document({"type": "content", "content": [{"type": "text", "text": "DOCUMENT"}]}), ["DOCUMENT"]),
    "call": (step({"type": "function", "function": CALL}), ["BOXNAME", "RESULT"]),
    "call without a type": (step({"function": CALL}), ["BOXNAME", "RESULT"]),
    "call without a function": (step({"type": "function", **CALL}), ["BOXNAME", "RESULT"]),
    "flat call": (step(CALL), ["BOXNAME", "RESULT"]),
    "text beside a call": (step({"type": "function", "function": CALL}, "BESIDE"), ["BOXNAME"]),
    "reasoning": ([THOUGHT, {"role": "assistant", "content": "ANSWER"}], ["THOUGHT"]),
    "parts": ([{"role": "user", "parts": [{"text": "INPARTS"}]}], ["INPARTS"]),
    "result in a message": (
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "lookup", "input": {"box": "BOXNAME"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "RESULT"}]},
        ],
        ["BOXNAME", "RESULT"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("label", SHOWN)
def test_each_part_of_a_kept_message_is_rendered_or_named(label: str, form: str) -> None:
    """The error says what is left out and what to do; nothing else is refused."""
    counter = from_tokenizer(
        byte_level_tokenizer(), name=label, template=ChatTemplate(SHOWN[label], VARIABLES)
    )
    given, words = FORMS[form]
    history = [{"role": "user", "content": "Begin."}, *given, {"role": "assistant", "content": "FINAL"}]
    row = FitPrompt(9000, counter=counter).row({"history": history, "question": "And now?"})
    error = row["budget_error"]
    if error is None:
        assert len(row["kept"]) == len(history)
        rendered = counter.render(row["messages"])
        assert all(word in rendered for word in [*words, "FINAL"])
        return
    assert "must render the messages" in error
    assert "Give texts in 'content' and calls in 'tool_calls'" in error
    if "leaves out" in error:
        try:
            rendered = counter.render(history)
        except ValueError:
            return
        assert not all(word in rendered for word in [*words, "FINAL"])


@pytest.mark.parametrize("label", ["additive", "reads_blocks", "strips_thinking", "blocks"])
def test_thinking_that_a_template_leaves_out_is_no_error(label: str) -> None:
    """Templates leave the thoughts before a question out by design; what was said is shown."""
    template = ChatTemplate({**TEMPLATES, **SHOWN}[label], VARIABLES)
    counter = from_tokenizer(byte_level_tokenizer(), name=label, template=template)
    for answer in (
        {"content": "<think>\nhm\n</think>\n\nANSWER"},
        {"content": "ANSWER", "reasoning_content": "hm"},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "ANSWER"}]},
    ):
        history = [{"role": "user", "content": "Begin."}, {"role": "assistant", **answer}]
        row = FitPrompt(9000, counter=counter).row({"history": history, "question": "And now?"})
        assert row["budget_error"] is None
        assert "ANSWER" in counter.render(row["messages"])
