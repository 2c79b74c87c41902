"""Chats come from files and pipes in every state; what is wrong with one is said where it is wrong."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from rankbudget import BudgetConfigError
from rankbudget.cli.reading import read_chat


@pytest.mark.parametrize(
    "given",
    ['[{"role":"user","content":"é"}]'.encode(), b'\xef\xbb\xbf[{"role":"user","content":"\xc3\xa9"}]'],
)
def test_a_pipe_is_read_as_a_file_is(given: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal's encoding does not matter, nor a byte order mark."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given), encoding="ascii"))
    (tmp_path / "chat.json").write_bytes(given)
    assert (
        read_chat("-").messages
        == read_chat(tmp_path / "chat.json").messages
        == [{"role": "user", "content": "é"}]
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"role":"user","content":"a"}\n\n{"role":"user","content":"b"}\nxx\n', "line 4 of .* must be JSON"),
        ('{"messages":\n [1,}', r"not JSON \(Expecting value: line 2 column 5"),
        ("xx", r"not JSON \(Expecting value: line 1 column 1"),
    ],
)
def test_the_place_that_is_wrong_is_named(text: str, told: str, tmp_path: Path) -> None:
    """The error names the line of a file of lines, or the place in a file that is one whole."""
    (tmp_path / "chat.json").write_text(text)
    with pytest.raises(BudgetConfigError, match=told):
        read_chat(tmp_path / "chat.json")
