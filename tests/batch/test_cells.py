"""What a cell may hold, and of which input: bytes, and the forms of a system prompt in other blocks."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError
from rankbudget.batch import FitPrompt
from rankbudget.messages.texts import content_text
from tests.drawing import draws

RULE: dict[str, object] = {"type": "text", "text": "Rule one."}


@pytest.mark.parametrize("name", ["system", "project", "task"])
@pytest.mark.parametrize(
    "given",
    [
        "Rule one.",
        ["Rule one."],
        [None, "Rule one."],
        {"role": "system", "content": "Rule one."},
        [{"role": "developer", "content": "Rule one."}],
        [{"role": "system", "content": [RULE]}, {"role": "system", "content": None}],
        [RULE],
    ],
)
def test_project_and_task_are_read_as_the_system_prompt(given: object, name: str) -> None:
    """A text, a message, content blocks, or a list of them, nested or as JSON, say the same in each block."""
    fit = FitPrompt(90, columns={"project": "project", "task": "task"})
    tag = "" if name == "system" else f"<{name}>\nRule one.\n</{name}>"
    cells = [given] if isinstance(given, str) or None in given else [given, json.dumps(given)]  # type: ignore[operator]
    for cell in cells:
        said = fit.row({"question": "q", name: cell})["messages"][0]["content"]
        assert content_text(said) == (tag or "Rule one.")


TEA = {"role": "user", "content": "Is tea hot? 你好"}
CELLS = {
    "history": [TEA],
    "documents": ["Tea is hot. 你好"],
    "question": "Is tea hot?",
    "system": "Be brief. 你好",
}


@given(
    st.sets(st.sampled_from(sorted(CELLS))), st.sampled_from([bytes, bytearray, memoryview]), st.booleans()
)
@draws()
def test_a_cell_of_bytes_is_the_text_that_it_holds(names, kind, marked):
    """Parquet's type BINARY holds texts or JSON in UTF-8, with a byte order mark or without."""
    texts = {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in CELLS.items()}
    fit = FitPrompt(300)
    held = {name: kind(texts[name].encode("utf-8-sig" if marked else "utf-8")) for name in names}
    assert fit.row({**texts, **held}) == fit.row(texts)
    assert fit.row({**texts, "documents": [b"Tea is hot."]}) == fit.row(
        {**texts, "documents": ["Tea is hot."]}
    )


def test_a_cell_of_bytes_that_are_no_text_is_an_error_of_its_row():
    """The error names the input."""
    made = FitPrompt(300).row({"question": b"\xff\xfe"})
    assert made["budget_error"].startswith("RowError: question must be UTF-8 text (got ")


def test_a_column_is_one_input():
    """Two inputs of one column are refused; a usual input does not read a column that is named for another."""
    with pytest.raises(BudgetConfigError, match="got 'a' for memory and examples"):
        FitPrompt(300, columns={"memory": "a", "examples": "a"})
    fit = FitPrompt(300, columns={"memory": "documents"})
    assert fit.row({"question": "Is tea hot?", "documents": ["Tea is hot."]})["kept"] == ["memory-0"]


@pytest.mark.parametrize("nothing", ["[]", " [ ] ", "[null]"])
def test_the_json_of_an_empty_list_is_no_text(nothing):
    """Rows without a system prompt may have the JSON of none; a question may be about such a list."""
    said = {"question": nothing}
    assert FitPrompt(100).row({"system": nothing, **said}) == FitPrompt(100).row(said)
    assert FitPrompt(100).row(said)["messages"] == [{"role": "user", "content": nothing}]


@pytest.mark.parametrize("score", [0.5, "0.5", Decimal("0.5000"), 1, None])
def test_a_score_is_a_number(score):
    """Of a database it may be a decimal; what is none is an error of its row that names the input."""
    fit, document = FitPrompt(100), {"text": "Tea."}
    row = {"question": "Why?", "documents": [{**document, "score": score}]}
    assert fit.row(row) == fit.row({"question": "Why?", "documents": [document]})
    for wrong in ("high", True, [1]):
        row["documents"] = [{**document, "score": wrong}]
        assert "documents must be objects whose score is a number" in fit.row(row)["budget_error"]
