"""The recipes of CONTRIBUTING.md pass what a change has to pass: style where the code would stand, and strict types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_readme import ROOT, examples

BLOCKS = [example.code for example in examples(ROOT / "CONTRIBUTING.md")]
SHIPPED = [code for code in BLOCKS if code.startswith('"""')]
IMPORT = "from rankbudget.fitting.recipe import ShortestFirst\n"
TESTS = [IMPORT * ("ShortestFirst()" in code) + code for code in BLOCKS if "Conformance" in code]


def errors(tool: str, *arguments: str, given: str = "") -> str:
    """What a tool of `make lint` or `make type` says, or nothing."""
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=ROOT,
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.parametrize(
    ("place", "code"),
    [
        *(("shared/rankbudget/fitting/recipe.py", code) for code in SHIPPED),
        *(("tests/core/test_recipe.py", code.split("\nsuite =")[0]) for code in TESTS),
    ],
)
def test_a_recipe_passes_the_style_of_its_place(place: str, code: str) -> None:
    """What ships is held to the rules of the packages, a conformance test to those of tests, and both to the formatter."""
    assert errors("ruff", "check", "--stdin-filename", place, "-", given=code) == ""
    kept = code.rstrip("\n") + "\n"
    assert errors("ruff", "format", "--check", "--stdin-filename", place, "-", given=kept) == ""


@pytest.mark.slow
def test_a_recipe_has_the_types_it_says(tmp_path: Path) -> None:
    """What ships is strictly typed, and is a `FitStrategy`."""
    (code,) = SHIPPED
    use = "\n\nfrom rankbudget import FitStrategy\n\nchosen: FitStrategy = ShortestFirst()\n"
    (tmp_path / "recipe.py").write_text(code + use, encoding="utf-8")
    assert errors("mypy", str(tmp_path / "recipe.py"), "--cache-dir", str(tmp_path / "cache")) == ""


def test_there_are_recipes() -> None:
    """A strategy and its suite, a tokenizer's suite."""
    assert (len(SHIPPED), len(TESTS)) == (1, 2)
