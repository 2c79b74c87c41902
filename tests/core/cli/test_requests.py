"""A request body of a provider is a chat: all that its model reads is counted, kept, and handed back where it was."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, counter_for
from rankbudget.batch import FitPrompt
from rankbudget.cli.main import main
from rankbudget.cli.reading import read_chat
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
TEXT = st.sampled_from(["You are a mechanic.", "Never say a price. " * 9])
BLOCK = st.builds(
    lambda text, more: {"type": "text", "text": text, **more},
    TEXT,
    st.sampled_from([{}, {"cache_control": {"type": "ephemeral"}}]),
)
SCHEMA = {"type": "object", "properties": {"part": {"type": "string", "description": "Its number."}}}
TOOL = {"name": "look_up", "description": "Looks up a part.", "parameters": SCHEMA}
BESIDE = st.fixed_dictionaries(
    {},
    optional={
        "system": st.one_of(TEXT, st.lists(BLOCK, min_size=1, max_size=3)),
        "tools": st.sampled_from(
            [[], [{"type": "function", "function": TOOL}], [{"name": "f", "input_schema": SCHEMA}]]
        ),
        "functions": st.just([TOOL]),
        "response_format": st.sampled_from(
            [
                {"type": "json_object"},
                {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}},
            ]
        ),
        "temperature": st.just(0.5),
    },
)


def printed(*command):
    """What a command prints; it must succeed."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([str(part) for part in command]) == 0
    return out.getvalue()


@draws()
@given(beside=BESIDE, rules=st.booleans(), turns=st.integers(1, 30))
def test_all_of_a_request_is_counted_and_handed_back(beside, rules, turns):
    """System prompt, tools, functions and the schema of the answer count; the system prompt comes back in its form."""
    said = [{"role": "user", "content": f"Is part {n} fine? " * 3} for n in range(turns)]
    said = [m for user in said for m in (user, {"role": "assistant", "content": "It is."})][:-1]
    body = {**beside, "messages": [{"role": "system", "content": "Rules."}] * rules + said}
    answer = beside.get("response_format", {})
    schemas = [
        *beside.get("tools", []),
        *beside.get("functions", []),
        *([answer] if "json_schema" in answer else []),
    ]
    system = [{"role": "system", "content": beside["system"]}] if "system" in beside else []
    with TemporaryDirectory() as folder:
        path = Path(folder, "chat.json")
        path.write_text(json.dumps(body))
        total = printed("count", path).splitlines()[1].split()[1]
        made = json.loads(printed("fit", path, "--window", 1_200, "--json"))
        listed = printed("count", path, "--each").splitlines()
    assert total == f"{COUNTER.count_messages([*system, *body['messages']], schemas or None):,}"
    assert made.get("system") == beside.get("system")
    kept = [*system, *made["messages"]]
    assert (
        COUNTER.count_messages(kept, schemas or None)
        == made["report"]["total_tokens"]
        <= made["report"]["limit"]
    )
    assert made["messages"][-1] == said[-1]
    assert [line.split()[1] for line in listed if line.split()[1:2] == ["system:"]] == ["system:"] * bool(
        system
    )


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({"system": 5}, "'system' of .* must be a text or a list of content blocks"),
        ({"functions": {"name": "f"}}, "'functions' of .* must be a list of tool schemas"),
        ({"response_format": [TOOL]}, "'response_format' of .* must be an object"),
        ({"toolConfig": {"tools": []}}, r"must have its prompt in .* \(got 'toolConfig'\)"),
        ({"instructions": "Be short."}, r"\(got 'instructions'\)"),
    ],
)
def test_what_would_not_be_counted_is_refused(beside, told, tmp_path):
    """A part of the prompt in a place or a form that is not read is an error: the figures would be too low."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "Hi."}], **beside}))
    with pytest.raises(BudgetConfigError, match=told):
        read_chat(path)


def test_a_file_of_chats_is_for_batch(tmp_path):
    """Lines that are chats of their own are no messages; the error names the command that takes them."""
    path = tmp_path / "chats.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi."}]}\n' * 2)
    with pytest.raises(BudgetConfigError, match=r"must hold one chat \(got 2\).*rankbudget batch"):
        read_chat(path)


def test_a_message_keeps_its_number_beside_a_system_prompt(tmp_path):
    """`explain 1` means the first message of the file, also where a system prompt stands before it."""
    path = tmp_path / "chat.json"
    path.write_text(json.dumps({"system": "Be short.", "messages": [{"role": "user", "content": "Hi."}]}))
    assert printed("explain", 1, path, "--window", 500).startswith("history-0 (history)")


@given(st.lists(BLOCK, min_size=1, max_size=3))
def test_a_row_takes_the_system_prompt_of_a_request(blocks):
    """The blocks of a system prompt, or their JSON, are one system message of a batch's row."""
    row = {"history": [{"role": "user", "content": "Hi."}], "system": blocks}
    made = FitPrompt(400).row(row)
    assert FitPrompt(400).row({**row, "system": json.dumps(blocks)}) == made
    assert made["messages"][0] == {"role": "system", "content": blocks}
    assert COUNTER.count_messages(made["messages"]) == made["prompt_tokens"]
