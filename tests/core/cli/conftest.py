"""What the tests of the command line share: a chat, a folder of documents, and how to run a command."""

from __future__ import annotations

import json

import pytest

from rankbudget.cli.main import main


def thread(size):
    return [{"role": "system", "content": "Be brief."}] + [
        message
        for i in range(size)
        for message in (
            {"role": "user", "content": f"Question {i}: " + "word " * 20},
            {"role": "assistant", "content": f"Answer {i}."},
        )
    ]


@pytest.fixture
def chat(tmp_path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(thread(100)))
    return path


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    (folder / "tea.md").write_text(
        "# Tea\n\nTea is best at 80 degrees.\n\n## Storing tea\n\nKeep tea dry and dark.\n"
    )
    (folder / "deep" / "ice.txt").write_text("Ice melts at zero degrees.")
    (folder / ".hidden" / "no.md").write_text("Secret.")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    return folder


def run(*arguments):
    return main([str(argument) for argument in arguments])


def failed(capsys, *arguments):
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("rankbudget: error: ")
    assert err.count("\n") == 1
    return err
