"""Every example on every page runs, and prints what the page says it prints.

A block marked `python` runs; a block marked `text` right after it is its output. A page's blocks build on each other, except in the README, where each runs
as pasted: alone, in a fresh interpreter, in an empty folder. `<!-- not run: reason -->` in front of a block leaves it out.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"^(?P<note><!-- not run: .+ -->\n)?```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
ELSEWHERE = {"langchain.md"}  # asks a model, for which tests/langchain/test_docs.py puts a stand-in
PAGES = sorted([ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])


@dataclass(frozen=True)
class Example:
    page: str
    line: int
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def examples(path: Path) -> list[Example]:
    """The runnable blocks of a page, each with the output the page promises."""
    text = path.read_text(encoding="utf-8")
    blocks = [m for m in BLOCK.finditer(text) if m["kind"] != "" or m["note"]]
    found = []
    for block, following in zip_longest(blocks, blocks[1:]):
        if block["kind"] != "python" or block["note"]:
            continue
        near = (
            following is not None
            and following["kind"] == "text"
            and not text[block.end() : following.start()].strip()
        )
        line = text.count("\n", 0, block.start()) + 1
        found.append(
            Example(path.name, line, block["body"], following["body"] if near and following else None)
        )
    return found


def check(example: Example, printed: str) -> None:
    """The printed text is the page's, `...` matching anything; blanks at the end of a line are not compared."""
    if example.output is None:
        return
    printed = re.sub(r" +$", "", printed, flags=re.MULTILINE)
    same = doctest.OutputChecker().check_output(example.output, printed, doctest.ELLIPSIS)
    assert same, f"{example} prints\n{printed}\nand not\n{example.output}"


@pytest.mark.slow
@pytest.mark.parametrize("example", examples(ROOT / "README.md"), ids=str)
def test_the_readme_runs_as_pasted(example: Example, tmp_path: Path) -> None:
    """Each block of the README runs alone in a fresh interpreter, offline, and prints what it says."""
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY")} | {
        "HF_HUB_OFFLINE": "1",
        "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, "-c", example.code],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, f"{example}\n{done.stderr}"
    check(example, done.stdout)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", [p for p in PAGES if p.name not in ELSEWHERE], ids=lambda path: path.name)
def test_a_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other and print what the page says."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__page__"}
    for example in examples(path):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(example.code, str(example), "exec"), names)
        check(example, printed.getvalue())


def test_the_readme_shows_both_frameworks_and_a_report() -> None:
    """The README has a runnable LangChain example, a LlamaIndex one, and at least one printed report."""
    found = examples(ROOT / "README.md")
    assert any("langchain_budget" in e.code for e in found)
    assert any("llamaindex_budget" in e.code for e in found)
    assert any(e.output and "granted" in e.output for e in found)


def test_every_link_between_pages_leads_somewhere() -> None:
    """A relative link on a page names a file that exists."""
    links = [
        (page, target)
        for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES]
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    ]
    assert [
        (page.name, target)
        for page, target in links
        if "://" not in target and not (page.parent / target).exists()
    ] == []


FIGURES = ("batch.md", "memory.md", "performance.md", "proof.md", "quality.md")
COMMAND = re.compile(r"\bmake (?:bench|trace|prove|soak|scale|growth|fuzz|quality)\b|python benchmarks/")
COMMIT = re.compile(r"`[0-9a-f]{7,}\+?`")


@pytest.mark.parametrize("name", FIGURES)
def test_every_table_of_figures_names_its_command_and_its_commit(name: str) -> None:
    """A section with measured rows says which command printed them, and at which commit."""
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    measured = [
        section
        for section in re.split(r"^## ", page, flags=re.MULTILINE)
        if re.search(r"^\|.*\| *\d[\d,.]* *(?:\|.*\d|m?s *\|)", section, flags=re.MULTILINE)
    ]
    assert measured
    without = [s.splitlines()[0] for s in measured if not (COMMAND.search(s) and COMMIT.search(s))]
    assert without == []
