"""What an engine makes of messages before it renders them is counted: blocks, roles, thinking and named templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.counting.chat_template import ChatTemplate
from rankbudget.counting.huggingface import from_tokenizer, read_files
from rankbudget.counting.tokenizer_counter import TemplateRefusedError
from rankbudget.errors import CounterUnavailableError
from tests.drawing import draws

from .templates import CALLS, TEMPLATES, VARIABLES
from .test_templates import counter, rendering, tokenizer, truth

QUESTION = "When was part 7 replaced?"
THINKS = TEMPLATES["additive"].replace(
    "{{ '<|im_end|>\n' }}", "{{ m.reasoning_content or '' }}{{ '<|im_end|>\n' }}"
)
PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}}
PART = {"name": "part", "description": "Looks up a part. " * 6, "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": PART}]


def tokens(text: str) -> int:
    return len(tokenizer("byte_level").encode(text, add_special_tokens=False))


def chat_of(turns: int, form: Any) -> list[dict[str, Any]]:
    """Returns exchanges whose texts are in a form: themselves, or blocks."""
    made = []
    for n in range(turns):
        made += [{"role": "user", "content": form(f"Is part {n} fine?")}]
        made += [{"role": "assistant", "content": form("It is fine. " * 5)}]
    return made


FORMS = {
    "text": lambda text: text,
    "a block": lambda text: [{"type": "text", "text": text}],
    "two blocks": lambda text: [{"type": "text", "text": half} for half in (text[:5], text[5:])],
}


@pytest.mark.slow
@pytest.mark.parametrize("label", TEMPLATES)
@draws(cases=len(TEMPLATES))
@given(
    form=st.sampled_from(sorted(FORMS)),
    opening=st.sampled_from(["system", "developer"]),
    turns=st.integers(0, 30),
    limit=st.integers(200, 900),
    alone=st.booleans(),
)
def test_messages_are_made_as_they_are_counted(
    label: str, form: str, opening: str, turns: int, limit: int, alone: bool
) -> None:
    """Whatever the form of the texts and the name of the first role: all that is kept is rendered, as counted."""
    own, made = counter(label), FORMS[form]
    rules = {"role": opening, "content": made("Answer in French.")}
    history = [rules, *chat_of(turns, made)]
    question = {"role": "user", "content": made(QUESTION)}
    if alone:
        fitted = fit_messages([*history, question], max_tokens=limit, counter=own)
        messages, total = list(fitted.messages), fitted.report.total_tokens
    else:
        row = FitPrompt(limit, counter=own).row({"history": history, "question": question})
        messages, total = row["messages"], row["prompt_tokens"]
    shown = rendering(label, messages)
    assert truth(label, messages) == total <= limit
    assert own.render(messages) == shown
    for said in (rules, question):
        texts = [said["content"]] if form == "text" else [block["text"] for block in said["content"]]
        assert all(text in shown for text in texts)


LOOPS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' }}{% if m['content'] is string %}{{ m['content'] }}"
    "{% else %}{% for b in m['content'] %}{{ b['text'] }}{% if m['role'] == 'tool' %}{{ '\n' }}{% endif %}{% endfor %}"
    "{% endif %}{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
SKIPS = TEMPLATES["additive"].replace(
    "{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}"
)
LAST = (
    "{% for m in messages if m.role != 'system' %}{{ '<|im_start|>' + m['role'] + '\n' }}"
    "{% if loop.last and m.role == 'user' and messages[0].role == 'system' %}{{ messages[0].content + '\n\n' }}{% endif %}"
    "{{ m['content'] or '' }}" + CALLS + "{{ '<|im_end|>\n' }}{% endfor %}{{ '<|im_start|>assistant\n' }}"
)


def steps_of(count: int, *, null: bool) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for n in range(count):
        call = {"id": f"c{n}", "type": "function", "function": {"name": "part", "arguments": "{}"}}
        made.append({"role": "user", "content": f"Is part {n} worn?"})
        made.append({"role": "assistant", "content": None if null else "", "tool_calls": [call]})
        made.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"Part {n} is worn."})
        made.append({"role": "assistant", "content": "Yes."})
    return made


@draws()
@given(count=st.integers(1, 40), null=st.booleans(), limit=st.integers(150, 800))
def test_texts_cost_what_an_engine_may_make_of_them(count: int, null: bool, limit: int) -> None:
    """For a template that loops over blocks some engines make one of each text, and none of null."""
    template = ChatTemplate(LOOPS, VARIABLES)
    own = from_tokenizer(tokenizer("byte_level"), name="loops", template=template)
    row = FitPrompt(limit, counter=own).row({"history": steps_of(count, null=null), "question": QUESTION})
    assert row["budget_error"] is None
    blocks = [
        {**m, "content": [{"type": "text", "text": m["content"]}] if m["content"] else []}
        for m in row["messages"]
    ]
    assert tokens(template(blocks)) <= row["prompt_tokens"] <= limit
    assert tokens(own.render(row["messages"])) <= row["prompt_tokens"]


@draws()
@given(
    lacking=st.lists(st.sets(st.sampled_from(["description", "parameters"])), min_size=1, max_size=9),
    limit=st.integers(700, 1500),
)
def test_tools_cost_what_an_engine_may_make_of_them(lacking: list[set[str]], limit: int) -> None:
    """An engine that has read a tool may write null for the fields that it lacks."""
    own, label = counter("tools_first"), "tools_first"
    tools, dumped = [], []
    for n, fields in enumerate(lacking):
        given = {key: value for key, value in PART.items() if key not in fields}
        tools.append({"type": "function", "function": {**given, "name": f"f{n}"}})
        dumped.append({"type": "function", "function": {**PART, **dict.fromkeys(fields), "name": f"f{n}"}})
    row = FitPrompt(limit, counter=own).row(
        {"history": chat_of(40, FORMS["text"]), "question": QUESTION, "tools": tools}
    )
    if row["messages"] is not None:
        assert truth(label, row["messages"], dumped) <= row["prompt_tokens"] <= limit


def test_what_is_kept_is_shown_or_the_row_has_an_error() -> None:
    """A template may leave a message out without a word: results of tools, or rules before results."""
    skips = from_tokenizer(tokenizer("byte_level"), name="skips", template=ChatTemplate(SKIPS, VARIABLES))
    steps = steps_of(3, null=False)
    row = FitPrompt(900, counter=skips).row({"history": steps, "question": QUESTION})
    assert "leaves out message 2, of role 'tool'" in row["budget_error"]
    last = from_tokenizer(tokenizer("byte_level"), name="last", template=ChatTemplate(LAST, VARIABLES))
    given = {"system": "Answer in German.", "documents": ["Part 7 was replaced in 1997."]}
    for history in (steps[:3], steps):
        row = FitPrompt(900, counter=last).row({**given, "history": history})
        assert row["budget_error"] is None
        shown = ChatTemplate(LAST, VARIABLES)(row["messages"])
        assert "Answer in German." in shown
        assert "replaced in 1997" in shown
        assert tokens(shown) == row["prompt_tokens"]


@draws()
@given(
    name=st.sampled_from(["reasoning_content", "reasoning", "thinking"]),
    steps=st.integers(1, 10),
    limit=st.integers(300, 700),
)
def test_thinking_counts_under_each_of_its_names(name: str, steps: int, limit: int) -> None:
    """Engines show it to a template that knows another name."""
    own = from_tokenizer(tokenizer("byte_level"), name="thinks", template=ChatTemplate(THINKS, VARIABLES))
    history: list[dict[str, Any]] = [{"role": "user", "content": "Check all parts."}]
    for n in range(steps):
        function = {"name": "part", "arguments": json.dumps({"n": n})}
        call = {"id": f"c{n}", "type": "function", "function": function}
        thought = f"Part {n} may be worn. " * 6
        history.append({"role": "assistant", "content": "", name: thought, "tool_calls": [call]})
        history.append({"role": "tool", "tool_call_id": f"c{n}", "content": "worn"})
    row = FitPrompt(limit, counter=own).row({"history": history})
    if row["messages"] is None:
        return  # the last step alone is over the limit
    known = [{**m, "reasoning_content": m[name]} if name in m else m for m in row["messages"]]
    assert tokens(ChatTemplate(THINKS, VARIABLES)(known)) <= row["prompt_tokens"] <= limit
    assert "may be worn" in own.render(row["messages"])


@draws()
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 20), st.integers(1, 30)), min_size=2, max_size=14
    ),
    named=st.integers(0, 13),
    limit=st.integers(150, 800),
)
def test_no_question_follows_results_where_templates_refuse_it(
    turns: list[tuple[int, int, int]], named: int, limit: int
) -> None:
    """Of an older exchange the step that serves the query may stay without its answer, unless that is refused."""
    own, history, number = counter("alternates_without_tools"), list[dict[str, Any]](), 0
    for n, (steps, size, length) in enumerate(turns):
        history.append({"role": "user", "content": f"Turn {n}: look. " * size})
        for _ in range(steps):
            number += 1
            call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            history.append({"role": "assistant", "content": "", "tool_calls": [call]})
            said = f"Valve {n} was replaced. " + "It is dry. " * length
            history.append({"role": "tool", "tool_call_id": f"c{number}", "content": said})
        history.append({"role": "assistant", "content": "All is fine. " * size})
    asked = f"When was valve {named} replaced?"
    chat = [*history, {"role": "user", "content": asked}]
    rendering("alternates_without_tools", chat)
    fitted = fit_messages(chat, max_tokens=limit, counter=own, query=asked)
    messages = list(fitted.messages)
    assert truth("alternates_without_tools", messages) == fitted.report.total_tokens <= limit
    row = FitPrompt(limit, counter=own, by_question=True).row({"history": history, "question": asked})
    assert row["budget_error"] is None
    assert truth("alternates_without_tools", row["messages"]) == row["prompt_tokens"] <= limit


@pytest.mark.parametrize("place", ["a list", "files"])
def test_tools_are_counted_with_the_template_for_them(tmp_path: Path, place: str) -> None:
    """Some models have two; engines take the second as soon as there are tools."""
    both = {"default": TEMPLATES["additive"], "tool_use": TEMPLATES["tools_in_first_user"]}
    tokenizer("byte_level").save(str(tmp_path / "tokenizer.json"))
    config: dict[str, Any] = dict(VARIABLES)
    if place == "a list":
        config["chat_template"] = [{"name": name, "template": source} for name, source in both.items()]
    else:
        (tmp_path / "chat_template.jinja").write_text(both["default"])
        (tmp_path / "additional_chat_templates").mkdir()
        (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(both["tool_use"])
        assert tmp_path / "additional_chat_templates" / "tool_use.jinja" in read_files(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    own = counter_for(str(tmp_path))
    for label, tools in (("additive", None), ("tools_in_first_user", TOOLS)):
        row = FitPrompt(400, counter=own).row(
            {"history": chat_of(30, FORMS["text"]), "question": QUESTION, "tools": tools}
        )
        shown = rendering(label, row["messages"], tools)
        assert own.render(row["messages"], tools) == shown  # type: ignore[attr-defined]
        assert tokens(shown) == row["prompt_tokens"] <= 400


def test_a_prompt_is_rendered_or_an_error_says_why() -> None:
    """Without a template there is nothing to render with, and a template may refuse."""
    bare = from_tokenizer(tokenizer("byte_level"), name="bare")
    with pytest.raises(CounterUnavailableError, match="must be there to render with"):
        bare.render([{"role": "user", "content": "Hi"}])
    with pytest.raises(TemplateRefusedError, match="alternate"):
        counter("demands_alternation").render([{"role": "user", "content": "Hi"}] * 2)
