"""The notebooks run top to bottom, offline, print what they show, and end in a plot."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the extra `notebooks` is not installed")
NotebookClient = pytest.importorskip("nbclient", reason="the extra `notebooks` is not installed").NotebookClient

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

pytestmark = [pytest.mark.notebook, pytest.mark.slow, pytest.mark.filterwarnings("default")]


def printed(notebook: nbformat.NotebookNode) -> list[str]:
    """What each code cell printed, in order."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(o.text for o in cell.outputs if o.output_type == "stream" and o.name == "stdout") for cell in cells]


def test_each_notebook_is_linked() -> None:
    """README and the page of notebooks name each of them."""
    pages = [(FOLDER.parent / name).read_text(encoding="utf-8") for name in ("README.md", "docs/notebooks.md")]
    assert NOTEBOOKS
    assert [path.name for path in NOTEBOOKS if f"notebooks/{path.name}" not in pages[1]] == []
    assert "docs/notebooks.md" in pages[0]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_showed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh run prints what the saved notebook shows, and its last cell draws."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel's own shows plots in the notebook
    saved = nbformat.read(path, as_version=4)
    shown = printed(saved)
    fresh = NotebookClient(saved, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}).execute()
    assert printed(fresh) == shown
    assert any("image/png" in output.get("data", {}) for output in fresh.cells[-1].outputs), "the last cell draws nothing"
