"""Errors name the options that the user typed, whichever command and whatever value."""

from __future__ import annotations

import json
import re

import pytest

from rankbudget.cli.commands import COMMANDS
from tests.core.cli.conftest import run

VALUES = ("", "0", "-1", "nan", "5000", "estimat", "x=y", "history=nope", "kept=messages")
PYTHONS = "context_window|columns|outputs|counter|reserve|model|max_tokens|shard_rows|workers|port"


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"demo", "models", "stats"}))
def test_errors_name_the_options_that_were_typed(command, tmp_path, monkeypatch, capsys):
    """No error about a typed value has the name of Python's parameter, or asks for one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.json").write_text('[{"role": "user", "content": "Is tea hot?"}]')
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "Is tea hot?", "messages": 1}))
    given = {
        "explain": ["1", "c.json"], "config": [], "batch": ["in.jsonl", "out.jsonl"], "compare": ["c.json", "4k"],
        "check": ["c.json", "--golden", "g"], "compress": ["c.json", "--max-tokens", "9"],
    }.get(command, ["c.json"])  # fmt: skip
    flags = [
        (names.split()[-1], how)
        for names, how in COMMANDS[command][1].items()
        if names.startswith("-") and how.get("action") != "store_true"
    ]
    told = 0
    for flag, _ in flags:
        for value in VALUES:
            beside = ["--window", "4k"] if "--window" in dict(flags) and flag != "--window" else []
            try:
                status = run(command, *given, *beside, f"{flag}={value}")
            except SystemExit:  # argparse names its options
                continue
            error = next((e for e in capsys.readouterr().err.splitlines() if ": error: " in e), "")
            if status != 2 or not error:
                continue
            told += 1
            assert not re.search(rf"(: |; )({PYTHONS})(:| must)", error), error
            assert not re.search(r"\b[a-z_]+=(\s|\.|$)", error), error
    assert told


def test_an_unknown_tokenizer_is_said_once(tmp_path, monkeypatch, capfd):
    """However many processes count."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"question": "Is tea hot?"}\n' * 3)
    options = ["--window", "4k", "--model", "some-unknown-llm", "--workers", "2", "--shard-rows", "1"]
    assert run("batch", "in.jsonl", "out.jsonl", *options) == 0
    assert capfd.readouterr().err.count("is not known here") == 1


@pytest.mark.parametrize("name", ["documents", "memory", "examples"])
def test_a_text_for_a_list_is_told_what_the_list_holds(name, tmp_path, monkeypatch, capsys):
    """One text in place of a list is no broken JSON."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "Is tea hot?", name: "some text"}))
    options = ["--window", "4k", "--workers", "1", "--column", f"{name}={name}"]
    assert run("batch", "in.jsonl", "out.jsonl", *options) == 3
    assert f"{name} must be a list of texts or of objects (got 'some text'" in capsys.readouterr().err
