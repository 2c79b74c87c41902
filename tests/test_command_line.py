"""The page of the command line: every command on it runs and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from rankbudget.cli.commands import COMMANDS
from rankbudget.cli.main import main

PAGE = (Path(__file__).parents[1] / "docs" / "command-line.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    """In order, in one folder, after the block that writes the chat."""
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(program, "command-line.md", "exec"), {})
    shown = "".join(re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL))
    commands = re.findall(r"^\$ rankbudget (.*)\n((?:(?!\$ ).*\n)*)", shown, re.MULTILINE)
    assert len(commands) == shown.count("$ ")
    for command, output in commands:
        assert main(shlex.split(command)) == 0
        assert capsys.readouterr().out == output, command


def test_every_command_is_in_the_table():
    """The table has all commands of the parser, and no other."""
    assert re.findall(r"^\| `(\w+)", PAGE, re.MULTILINE) == list(COMMANDS)
