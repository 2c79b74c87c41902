"""A prompt that is counted by a model's own chat template is one that this template renders."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import from_tokenizer
from rankbudget.counting.profiles import RenderingProfile
from tests.drawing import draws

from .templates import TEMPLATES, VARIABLES
from .test_templates import counter, rendering, tokenizer, truth

QUESTION = "When was part 7 replaced?"


def _history(turns: int, *, ends: bool) -> list[dict[str, Any]]:
    made = [{"role": ("user", "assistant")[i % 2], "content": f"Turn {i} is fine."} for i in range(2 * turns)]
    return [*made, {"role": "user", "content": "And then?"}] if ends else made


@pytest.mark.slow
@pytest.mark.parametrize("label", TEMPLATES)
@draws(cases=len(TEMPLATES))
@given(
    turns=st.integers(0, 12),
    count=st.integers(0, 20),
    ends=st.booleans(),
    system=st.sampled_from(["", "Be brief."]),
    limit=st.integers(300, 1500),
)
def test_what_is_fitted_is_rendered(
    label: str, turns: int, count: int, ends: bool, system: str, limit: int
) -> None:
    """Whatever parts there are: all of them, in as many tokens as the report says, without naming a profile."""
    own, documents = counter(label), [f"Part {i} was replaced in {1990 + i}." for i in range(count)]
    history = _history(turns, ends=ends)
    blocks = {"system": system, "history": history, "knowledge": documents}
    made = Assembler(limit, counter=own).assemble({k: v for k, v in blocks.items() if v}, query=QUESTION)
    assert truth(label, list(made.messages)) == made.report.total_tokens <= limit
    assert system in rendering(label, list(made.messages))
    row = {"system": system, "history": history, "documents": documents, "question": QUESTION}
    fitted = FitPrompt(limit, counter=own).row(row)
    assert truth(label, fitted["messages"]) == fitted["prompt_tokens"] <= limit
    late = [*history, {"role": "system", "content": "Be polite."}, {"role": "user", "content": QUESTION}]
    messages = fit_messages(late, max_tokens=limit, counter=own)
    assert truth(label, list(messages.messages)) == messages.report.total_tokens <= limit
    assert "Be polite." in rendering(label, list(messages.messages))


def test_a_profile_that_demands_nothing_leaves_messages_as_they_are() -> None:
    """It is the way to say that another program renders."""
    given = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
    own = counter("refuses_system")
    assert fit_messages(given, max_tokens=300, counter=own, profile=RenderingProfile()).messages == given
    assert [m["role"] for m in fit_messages(given, max_tokens=300, counter=own).messages] == ["user"]


@pytest.mark.parametrize("label", TEMPLATES)
@pytest.mark.parametrize("with_tools", [False, True])
def test_a_row_that_the_template_refuses_has_an_error(label: str, with_tools: bool) -> None:
    """An engine would stop at it, so a row has either messages that are rendered or an error that says why."""
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    steps = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "dry"},
    ]
    history = [{"role": "user", "content": QUESTION}, *(steps if with_tools else ())]
    history += [{"role": "assistant", "content": "It is dry."}, {"role": "user", "content": "And now?"}]
    template = TEMPLATES[label]
    if with_tools:
        template = (
            "{% for m in messages if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endfor %}"
            + template
        )
    own = from_tokenizer(tokenizer("byte_level"), name=label, template=ChatTemplate(template, VARIABLES))
    made = FitPrompt(900, counter=own).row({"history": history})
    assert (made["messages"] is None) == with_tools
    assert ("no tools" in (made["budget_error"] or "")) == with_tools


@pytest.mark.slow
@pytest.mark.parametrize("label", TEMPLATES)
@draws(cases=len(TEMPLATES))
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    window=st.integers(500, 2000),
    others=st.integers(0, 2),
)
def test_a_short_answer_stays_beside_a_longer_history(
    label: str, sizes: list[int], window: int, others: int
) -> None:
    """What joining messages adds shortens the history that filled the window, instead of dropping a document."""
    history = [{"role": "user", "content": "Tell me about pumps. " * 200}]
    history += [{"role": "assistant", "content": "Pumps move water. " * 300}]
    for size in sizes:
        history += [{"role": "user", "content": "And valves? " * size}]
        history += [{"role": "assistant", "content": "Valves are made of brass. " * size}]
    documents = ["Part 7 was replaced in 1997.", *["Valves are made of brass and steel. " * 8] * others]
    made = FitPrompt(window, counter=counter(label)).row(
        {"history": history, "question": QUESTION, "documents": documents}
    )
    assert made["budget_error"] is None
    assert made["prompt_tokens"] <= window
    assert "documents-0" in made["kept"]
    assert "replaced in 1997" in str(made["messages"])


@pytest.mark.slow
@pytest.mark.parametrize("label", ["reads_blocks", "first_block_of_system"])
@draws(cases=2)
@given(
    rules=st.integers(1, 3), turns=st.integers(0, 4), count=st.integers(0, 20), limit=st.integers(300, 900)
)
def test_blocks_that_are_kept_are_shown(label: str, rules: int, turns: int, count: int, limit: int) -> None:
    """A template may show only the first block of a message: rules and documents are in the prompt all the same."""
    own, documents = counter(label), [f"Part {i} was replaced in {1990 + i}." for i in range(count)]
    system = [{"type": "text", "text": f"Rule {n} holds."} for n in range(rules)]
    history = [
        {**message, "content": [{"type": "text", "text": message["content"]}]}
        for message in _history(turns, ends=False)
    ]
    row = {"system": system, "history": history, "documents": documents, "question": QUESTION}
    fitted = FitPrompt(limit, counter=own).row(row)
    shown = rendering(label, fitted["messages"])
    assert truth(label, fitted["messages"]) == fitted["prompt_tokens"] <= limit
    assert all(block["text"] in shown for block in system)
    whole = [name for name in fitted["kept"] if name not in fitted["shortened"]]
    kept = [name.rpartition("-")[2] for name in whole if name.startswith("documents")]
    assert all(documents[int(number)] in shown for number in kept)


@pytest.mark.parametrize("form", ["{{ c.function.arguments }}", "{{ c.function.arguments | tojson }}"])
@draws(cases=2)
@given(
    arguments=st.dictionaries(
        st.text(max_size=8), st.integers() | st.text(max_size=12) | st.lists(st.integers())
    ),
    compact=st.booleans(),
)
def test_arguments_cost_what_an_engine_may_make_of_them(
    form: str, arguments: dict[str, Any], compact: bool
) -> None:
    """Some engines read JSON texts of arguments as objects before they render, others do not."""
    inside = (
        "{% if c.function.arguments is string %}"
        + form
        + "{% else %}{{ c.function.arguments | tojson }}{% endif %}"
    )
    template = ChatTemplate(
        TEMPLATES["additive"].replace("{{ '<tool_call>' + (c.function | tojson) + '</tool_call>' }}", inside),
        VARIABLES,
    )
    own = from_tokenizer(tokenizer("byte_level"), name=form, template=template)

    def chat(given: Any) -> list[dict[str, Any]]:
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": given}}
        return [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": "", "tool_calls": [call]},
        ]

    text = json.dumps(arguments, separators=(",", ":") if compact else None)
    costs = [
        len(tokenizer("byte_level").encode(template(chat(form), None), add_special_tokens=False))
        for form in (text, arguments)
    ]
    assert own.count_messages(chat(text)) == max(costs)
    assert own.count_messages(chat(arguments)) == costs[1]


def test_a_row_of_parts_is_no_row_of_a_template() -> None:
    """Gemini's messages have their texts where no template of another model looks."""
    history = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [{"text": "Hello."}]}]
    made = FitPrompt(900, counter=counter("reads_blocks")).row({"history": history, "question": QUESTION})
    assert "'parts'" in made["budget_error"]
