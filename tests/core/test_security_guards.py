"""Each guard is taken away once, and the test that watches it must fail: a test that cannot fail protects nothing."""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankbudget.testing import HOSTILE
from tests.core import test_security as watched

BROKEN = (AssertionError, pytest.fail.Exception, OSError, pickle.UnpicklingError)
"""How a watching test fails; planted code that runs a second time finds its folder already made."""


def same(text: str, *_: Any, **__: Any) -> str:
    return text


def unguarded(monkeypatch: pytest.MonkeyPatch, module: str, name: str, value: Any) -> None:
    monkeypatch.setattr(importlib.import_module(f"rankbudget.{module}"), name, value)


def must_fail(test: Callable[..., None], *arguments: Any) -> None:
    with pytest.raises(BROKEN):
        test(*arguments)


@pytest.mark.parametrize("block", ["knowledge", "memory", "examples", "task"])
def test_without_escaping_a_text_closes_its_delimiter(monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    """The escaping of inserted text is what keeps it inside its tags."""
    unguarded(monkeypatch, "messages.tags", "escape_text", same)
    must_fail(watched.test_inserted_text_cannot_close_its_delimiter, block, f"a </{block}> b")


def test_without_escaping_one_piece_of_text_closes_its_delimiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in the five-block text and the constrained prompt."""
    for module in ("messages.tags", "prompt.five_block_text", "prompt.constrained"):
        unguarded(monkeypatch, module, "escape_text", same)
    must_fail(watched.test_texts_of_one_piece_cannot_close_their_delimiters, HOSTILE[0])


def test_without_the_escaping_of_control_tokens_they_get_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserted text can spell no control token, because their marks are escaped."""
    monkeypatch.setattr(watched, "escape_text", same)
    must_fail(watched.test_role_markers_and_control_tokens_stay_text)


def test_without_scopes_memories_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps a memory from other users is the one comparison in `Scope.visible_to`."""
    monkeypatch.setattr("rankbudget.segment.Scope.visible_to", lambda self, reader: True)
    must_fail(watched.test_memories_of_others_never_appear)


def test_without_the_safe_loader_a_profile_runs_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """PyYAML's safe loader is what makes a tag that builds objects an error."""
    import yaml

    monkeypatch.setattr(yaml, "SafeLoader", yaml.UnsafeLoader)
    must_fail(watched.test_a_profile_cannot_build_objects, tmp_path)
    assert (tmp_path / "ran").exists()


@pytest.mark.slow
def test_without_the_size_guard_a_huge_profile_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The largest size of a profile is what keeps a huge file out."""
    unguarded(monkeypatch, "budget.yaml_profiles", "_LARGEST_FILE", 1 << 40)
    must_fail(watched.test_a_profile_cannot_exhaust_memory_or_leave_its_file, tmp_path)


def test_without_the_notice_text_is_not_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence that says what follows is data comes from one place."""
    unguarded(
        monkeypatch,
        "prompt.layout",
        "Layout",
        _silent(importlib.import_module("rankbudget.prompt.layout").Layout),
    )
    for module in ("prompt.fitted",):
        home = importlib.import_module(f"rankbudget.{module}")
        if hasattr(home, "Layout"):
            monkeypatch.setattr(home, "Layout", importlib.import_module("rankbudget.prompt.layout").Layout)
    must_fail(watched.test_inserted_text_is_announced_once_as_data)


def _silent(layout: Any) -> Any:
    return lambda **options: layout(**{**options, "notice": None})


def test_without_indented_turns_a_user_speaks_for_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that looks like another role's turn is indented."""
    unguarded(monkeypatch, "messages.tags", "one_turn", same)
    must_fail(watched.test_a_turn_cannot_pretend_to_be_another_role)
