"""The picture of README shows a real run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_picture_is_what_its_program_draws() -> None:
    """The example of README, run again, gives the picture that is stored, and the words beside it have its numbers."""
    made = subprocess.run(
        [sys.executable, str(ROOT / ".ci/picture.py")],
        check=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
    ).stdout
    assert made == (ROOT / "docs/window.svg").read_text(encoding="utf-8")
    words = re.search(r"!\[(.*?)\]\(docs/window\.svg\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    label = re.search(r'aria-label="(.*?)"', made)
    assert words is not None
    assert label is not None
    assert re.findall(r"[\d,]*\d", words[1]) == re.findall(r"[\d,]*\d", label[1])
