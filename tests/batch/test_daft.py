"""FitPrompt in Daft: the same rows from a data frame. `make batch-test` runs it."""

from __future__ import annotations

import json

import pytest

from rankbudget import BudgetConfigError
from rankbudget.batch import FitPrompt, fit_daft
from tests.batch.rows import check_promise, columns, fit_prompt, plain, rows

daft = pytest.importorskip("daft")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize("workers", [None, 2])
def test_a_data_frame_gives_what_a_loop_gives(workers):
    """All rows once and in order, their columns kept, equal to one call over columns; with any number of processes."""
    made = fit_daft(daft.from_pydict(columns(rows())), fit_prompt(), workers=workers, batch_rows=100)
    assert made.column_names == [*rows()[0], *fit_prompt().outputs.values()]
    found = made.to_pylist()
    check_promise(rows(), found)
    assert plain(found) == plain(fit_prompt()(columns(rows())))


def test_a_frame_is_fitted_when_it_is_read():
    """Wrong columns and options raise at once; rows are fitted when Daft runs the query."""
    frame = daft.from_pydict({"chat": ["[]"]})
    with pytest.raises(BudgetConfigError, match="question"):
        fit_daft(frame, FitPrompt(100))
    with pytest.raises(BudgetConfigError, match="workers"):
        fit_daft(frame, FitPrompt(100, columns={"history": "chat"}), workers=0)
    with pytest.raises(
        BudgetConfigError, match=r"frame must be a Daft data frame .*; fit must be a FitPrompt"
    ):
        fit_daft({"chat": ["[]"]}, 100)
    made = fit_daft(frame, FitPrompt(100, columns={"history": "chat"}, outputs={"budget_error": "error"}))
    assert made.to_pydict()["error"] == [
        "RowError: a row must have a question or a history with a user message (got neither)."
    ]


def test_rows_of_a_file_are_fitted_many_at_once(tmp_path):
    """Of a JSONL file, as of a frame in memory, a worker gets about as many rows at once as it may, and no more."""

    class Noted(FitPrompt):
        def __call__(self, batch):
            with (tmp_path / "sizes").open("a", encoding="utf-8") as file:
                file.write(f"{len(batch['question'])}\n")
            return super().__call__(batch)

    (tmp_path / "rows.jsonl").write_text('{"question": "Is tea hot?"}\n' * 1_000, encoding="utf-8")
    frame = daft.read_json(str(tmp_path / "rows.jsonl"))
    assert len(fit_daft(frame, Noted(100), workers=2, batch_rows=100).to_pylist()) == 1_000
    sizes = [int(size) for size in (tmp_path / "sizes").read_text(encoding="utf-8").split()]
    assert sum(sizes) == 1_000
    assert max(sizes) <= 100
    assert len(sizes) < 30


def test_columns_of_values_of_several_types_are_fitted() -> None:
    """Daft holds chats with one picture, or texts beside lists, as Python objects: they give what a loop gives."""
    picture = [
        {"type": "text", "text": "And this?"},
        {"type": "image_url", "image_url": {"url": "https://a/b"}},
    ]
    chats = [
        [{"role": "user", "content": "Why?"}],
        [{"role": "user", "content": "Why?"}, {"role": "user", "content": picture}],
        None,
    ]
    systems = ["Be brief.", ["Be brief.", "Be kind."], None]
    given = [
        {"question": "How?", "history": chat, "system": system}
        for chat, system in zip(chats, systems, strict=True)
    ]
    fit = FitPrompt(2000)
    made = fit_daft(daft.from_pylist(given), fit, workers=1).to_pylist()
    assert [json.loads(row["messages"]) for row in made] == [fit.row(row)["messages"] for row in given]
