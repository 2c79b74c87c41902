"""The short table of peers in README is made of the full ones."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("chat", "tools", "RAG")
EVIDENCE = 4


def full() -> dict[str, dict[str, list[str]]]:
    """The cells of docs/peers.md, by library and kind of case."""
    page = (ROOT / "docs/peers.md").read_text(encoding="utf-8")
    found: dict[str, dict[str, list[str]]] = {}
    for kind, body in re.findall(r"^\| (chat|tools|RAG) \|.*\n\|---.*\n((?:\|.*\n)+)", page, re.MULTILINE):
        for line in body.splitlines():
            name, *cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(name, {})[kind] = cells
    return found


def test_readme_has_the_worst_of_each_kind() -> None:
    """Each library has its worst share of each fault, and its evidence of each kind, in the order of the page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Beside other libraries")[2]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| \S.*", text, re.MULTILINE)
    ]
    made = []
    for name, kinds in full().items():
        worst = [max(int(c[i].rstrip("%")) for c in kinds.values() if c[i] != "-") for i in range(3)]
        made.append([name, *(f"{share}%" for share in worst), *(kinds[kind][EVIDENCE] for kind in KINDS)])
    assert len(made) > 1
    assert [row for row in rows if row[0] in full()] == made
