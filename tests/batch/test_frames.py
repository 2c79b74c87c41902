"""A row says the same in every kind of frame, whatever Python, numpy, pandas and Arrow make of its cells."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.batch import FitPrompt, fit_files
from tests.drawing import draws

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pq = pytest.importorskip("pyarrow.parquet")
WORDS = st.lists(st.sampled_from(["tea", "is hot", "by 7 bar"]), min_size=1, max_size=3)


def _openai(words: list[str], number: int) -> list[dict[str, Any]]:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": json.dumps([number])}}
    return [
        {"role": "user", "content": [{"type": "text", "text": word} for word in words]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "text": word} for word in words], "tool_call_id": "c1"},
        {"role": "assistant", "content": [{"type": "text", "text": "yes"}]},
    ]


def _anthropic(words: list[str], number: int) -> list[dict[str, Any]]:
    said = [{"type": "text", "text": word} for word in words]
    return [
        {"role": "user", "content": said},
        {"role": "assistant", "content": [*said, _tool_use(words, number)]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": said}]},
        {"role": "assistant", "content": said},
    ]


def _tool_use(words: list[str], number: int) -> dict[str, Any]:
    return {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": words, "n": [str(number)] * 2}}


def _gemini(words: list[str], number: int) -> list[dict[str, Any]]:
    said = [{"text": word} for word in words]
    call = {"functionCall": {"name": "look", "args": {"q": words, "n": str(number)}}}
    result = {"functionResponse": {"name": "look", "response": {"r": words}}}
    return [
        {"role": "user", "parts": said},
        {"role": "model", "parts": [call] * len(words)},
        {"role": "user", "parts": [result] * len(words)},
        {"role": "model", "parts": said},
    ]


def _ollama(words: list[str], number: int) -> list[dict[str, Any]]:
    calls = [{"function": {"name": "look", "arguments": {"q": words, "n": str(number)}}}] * len(words)
    results = [{"role": "tool", "tool_name": "look", "content": word} for word in words]
    return [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": calls},
        *results,
        {"role": "assistant", "content": "yes"},
    ]


def _responses(words: list[str], number: int) -> list[dict[str, Any]]:
    said = [{"type": "output_text", "text": word} for word in words]
    return [
        {"role": "user", "content": [{"type": "input_text", "text": word} for word in words]},
        {"type": "function_call", "call_id": "c1", "name": "look", "arguments": json.dumps([number])},
        {"type": "function_call_output", "call_id": "c1", "output": "hot"},
        {"role": "assistant", "content": said},
    ]


def _written(table: Any) -> io.BytesIO:
    file = io.BytesIO()
    pq.write_table(table, file)
    file.seek(0)
    return file


def _in_scalars(table: Any) -> dict[str, Any]:
    return {name: list(table[name]) for name in table.column_names}


def _in_numpy(table: Any) -> dict[str, Any]:
    frame = pd.read_parquet(_written(table))
    return {name: frame[name].to_numpy() for name in frame}


FRAMES = {
    "lists": lambda table: table.to_pydict(),
    "Arrow": lambda table: table,
    "scalars of Arrow": _in_scalars,
    "numpy": _in_numpy,
    "pandas": lambda table: pd.DataFrame(table.to_pydict()),
    "pandas of Parquet": lambda table: pd.read_parquet(_written(table)),
    "pandas, nullable": lambda table: pd.read_parquet(_written(table), dtype_backend="numpy_nullable"),
    "pandas, Arrow's": lambda table: pd.read_parquet(_written(table), dtype_backend="pyarrow"),
}
SHAPES = [_openai, _anthropic, _gemini, _ollama, _responses]


@draws()
@given(st.sampled_from(SHAPES), WORDS, st.integers(0, 9), st.booleans(), st.booleans())
def test_a_row_is_the_same_in_every_frame(shape, words, number, asks_apart, scored):
    """Nested messages, blocks, parts, calls, documents and tools of one row give one result.

    Arguments are texts: pandas itself makes floats of integers in structs that other messages lack.
    """
    asks = {"parts": [{"text": word} for word in words]} if shape is _gemini else {"content": "When?"}
    blocks = [{"text": word} | ({} if shape is _gemini else {"type": "text"}) for word in words]
    row: dict[str, Any] = {
        "history": shape(words, number),
        "system": {"parts": blocks} if shape is _gemini else blocks,
        "documents": [{"id": number + i, "text": word} for i, word in enumerate(words)],
        "tools": [{"name": "look", "input_schema": {"type": "object", "required": words}}],
    }
    if scored:
        row["documents"] = [{**one, "score": 0.5} for one in row["documents"]]
    row["question"] = {"role": "user", **asks} if asks_apart else "When?"
    table = pa.table({name: [value, value] for name, value in row.items()})
    fit = FitPrompt(900)
    made = {kind: fit(frame(table)) for kind, frame in FRAMES.items()}
    made["Arrow"] = made["Arrow"].to_pydict()
    for kind, outputs in made.items():
        assert list(outputs["budget_error"]) == [None, None], kind
        for name in ("messages", "prompt_tokens", "kept"):
            assert list(outputs[name]) == list(made["lists"][name]), kind


def test_maps_are_objects():
    """Spark writes objects of any keys as maps."""
    given = pa.map_(pa.string(), pa.string())
    chat = [
        {"role": "user", "content": "Find it."},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "find", "arguments": [("q", "pump")]}}],
        },
        {"role": "tool", "content": "There."},
    ]
    function = pa.struct([("name", pa.string()), ("arguments", given)])
    message = pa.struct(
        [
            ("role", pa.string()),
            ("content", pa.string()),
            ("tool_calls", pa.list_(pa.struct([("function", function)]))),
        ]
    )
    table = pa.table({"history": pa.array([chat], pa.list_(message)), "question": ["And now?"]})
    made = FitPrompt(500)(table).to_pylist()[0]
    assert made["budget_error"] is None
    assert json.loads(made["messages"])[1]["tool_calls"][0]["function"]["arguments"] == {"q": "pump"}


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("target", ["jsonl", "parquet"])
def test_a_cell_that_python_cannot_read_stops_no_other_row(tmp_path, read, target):
    """A text that is no UTF-8 is an error of its row where it is an input, and is passed on where it is not; so is a date of the far future."""
    notes = pa.array([b"fine", b"caf\xe9"], pa.binary()).view(pa.string())
    dates = pa.array([1, 9223372036854], pa.timestamp("s"))
    table = pa.table({"question": ["Why?", "When?"], "note": notes, "at": dates})
    pq.write_table(table, tmp_path / "in.parquet")
    columns = {"question": "note"} if read else None
    fit = FitPrompt(500, columns=columns)
    done = fit_files(tmp_path / "in.parquet", tmp_path / f"out.{target}", fit, workers=1)
    assert (done.rows, done.failed) == (2, int(read))
