"""Parts of a run over files: a damaged one is done again, and no cell depends on how rows fell into shards."""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from rankbudget import BudgetConfigError, TokenBudget, counter_for
from rankbudget.batch import FitPrompt, fit_files
from tests.batch.rows import read_jsonl, write_jsonl
from tests.drawing import draws

FIT = FitPrompt(100)


class StoppedError(Exception):
    """Ends a run in the middle."""


def stop(progress):
    if progress.rows == 6:
        raise StoppedError


# ---- damage ---------------------------------------------------------------------------------------------------------------------
def _changed(content, at):
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def _swapped(content, at):
    lines = content.splitlines(keepends=True)
    return b"".join([*lines[1:], lines[0]]) if len(lines) > 1 else content[at:] + content[:at]


DAMAGES = {
    "a bit": _changed,
    "zeros": lambda content, at: content[:at] + bytes(len(content) - at),
    "cut": lambda content, at: content[:at],
    "first line last": _swapped,
    "a line twice": lambda content, at: content[: content.find(b"\n") + 1] + content,
    "more": lambda content, at: content + content[at:],
}


@pytest.mark.parametrize("end", ["jsonl", "parquet"])
@pytest.mark.parametrize("damage", DAMAGES)
@draws(cases=2 * len(DAMAGES))
@given(which=st.integers(0, 1), share=st.floats(0, 1, exclude_max=True))
def test_a_damaged_part_is_done_again(end, damage, which, share):
    """Whatever happened to a part on the disk, the next run writes what a run without damage writes."""
    if end == "parquet":
        pytest.importorskip("pyarrow")
    with TemporaryDirectory() as folder:
        source = write_jsonl(Path(folder, "in.jsonl"), [{"id": i, "question": f"Why {i}?"} for i in range(9)])
        target = Path(folder, f"out.{end}")
        options = {"workers": 1, "shard_rows": 3}
        fit_files(source, target, FIT, **options)
        whole = target.read_bytes()
        with pytest.raises(StoppedError):
            fit_files(source, target, FIT, progress=stop, **options)
        part = sorted(target.with_name(f"{target.name}.parts").glob("0*"))[which]
        content = part.read_bytes()
        damaged = DAMAGES[damage](content, int(share * len(content)))
        part.write_bytes(damaged)
        assert fit_files(source, target, FIT, **options).resumed == (6 if damaged == content else 3)
        assert target.read_bytes() == whole


# ---- cells ----------------------------------------------------------------------------------------------------------------------
NUMBERS = st.sampled_from(
    [0, 12, -1, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**70, 0.5, 1.0, -0.0, 1e308, math.nan]
)
CELLS = st.one_of(
    st.lists(st.one_of(*kinds), min_size=1, max_size=7)
    for kinds in (
        [st.integers(-9, 9), st.floats(), st.none()],
        [st.booleans(), st.floats(), st.none()],
        [NUMBERS, st.none()],
        [NUMBERS, st.booleans(), st.sampled_from(["x", "12", "", "\ud83d"]), st.just([1, {"a": math.nan}])],
    )
)


def is_told(cell, value):
    """Whether a cell of Parquet says what a JSON value says: itself, an exact float of it, or its text."""
    if value is None or cell is None:
        return cell is None and (value is None or (isinstance(value, float) and not math.isfinite(value)))
    if isinstance(cell, str):
        if isinstance(value, str):
            return cell == value.encode("utf-8", "backslashreplace").decode()
        return cell == json.dumps(json.loads(json.dumps(value), parse_constant=lambda _: None))
    if isinstance(value, bool) or isinstance(cell, bool):
        return cell is value
    return cell == value or (math.isnan(cell) and math.isnan(value))


@draws()
@given(values=CELLS, data=st.data())
def test_a_cell_depends_on_no_shard_and_no_order(values, data):
    """In Parquet made from lines each cell says what its line says, in the same way however rows are ordered and cut."""
    pq = pytest.importorskip("pyarrow.parquet")
    order = data.draw(st.permutations(range(len(values))))
    seen = []
    for places in (range(len(values)), order):
        with TemporaryDirectory() as folder:
            source, target = Path(folder, "in.jsonl"), Path(folder, "out.parquet")
            write_jsonl(source, [{"question": "Why?", "n": i, "cell": values[i]} for i in places])
            fit_files(source, target, FIT, workers=1, shard_rows=data.draw(st.integers(1, len(values))))
            made = pq.read_table(target)
        cells = dict(zip(made["n"].to_pylist(), made["cell"].to_pylist(), strict=True))
        assert all(is_told(cells[i], value) for i, value in enumerate(values)), cells
        seen.append((made.schema.field("cell").type, [repr(cells[i]) for i in range(len(values))]))
    assert seen[0] == seen[1]


@given(st.text(st.characters(), max_size=5).filter(lambda name: name != "question"))
def test_every_key_of_a_line_is_a_column(name):
    """A key that Parquet cannot hold, as half a surrogate pair, is escaped as texts are."""
    pq = pytest.importorskip("pyarrow.parquet")
    with TemporaryDirectory() as folder:
        source = write_jsonl(Path(folder, "in.jsonl"), [{"question": "Why?", name: 1}])
        fit_files(source, Path(folder, "out.parquet"), FIT, workers=1)
        made = pq.read_table(Path(folder, "out.parquet")).to_pylist()[0]
    assert made[name.encode("utf-8", "backslashreplace").decode()] == 1


def _counts_with(folder, file, step):
    """Writes what counts: a function, a tokenizer, or a chat template beside it, other ones in each step."""
    if file == "counter.py":
        (folder / file).write_text(f"def count(text):\n    return len(text) // {step} + 1\n")
        return
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    width = step if file == "tokenizer.json" else 2
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("." * width), "isolated")
    tokenizer.save(str(folder / "tokenizer.json"))
    os.utime(folder / "tokenizer.json", (width, width))
    if file != "tokenizer.json":
        shown = "{% for m in messages %}" + "{{ m['content'] }}" * step + "{% endfor %}"
        (folder / file).write_text(shown if file.endswith("jinja") else json.dumps({"chat_template": shown}))


GIVEN = {
    "a function": lambda folder: {"counter": importlib.import_module("counter").count},
    "a folder": lambda folder: {"counter": str(folder)},
    "a path": lambda folder: {"counter": folder},
    "a file": lambda folder: {"counter": str(folder / "tokenizer.json")},
    "a counter": lambda folder: {"counter": counter_for(str(folder))},
    "the budget's model": lambda folder: {"model": str(folder)},
}
FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


@pytest.mark.parametrize(("file", "given"), [("counter.py", "a function"), *product(FILES, list(GIVEN)[1:])])
def test_another_counter_is_another_option(tmp_path, monkeypatch, file, given):
    """A function or a tokenizer whose files were changed counts all rows again, however it was given."""
    target, folder = tmp_path / "out.jsonl", tmp_path / "given"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": f"Why {n}?"} for n in range(9)])
    for step in (2, 3):
        _counts_with(folder, file, step)
        os.utime(folder / file, (step, step))
        monkeypatch.delitem(sys.modules, "counter", raising=False)
        importlib.invalidate_caches()
        monkeypatch.setattr("rankbudget.counting.resolve.COUNTERS", {})  # as in another process
        options = {"model": None, **GIVEN[given](folder)}
        budget = TokenBudget(context_window=100, reserve=0, model=options.pop("model"))
        fit = FitPrompt(budget, **options)
        run = partial(fit_files, source, target, fit, workers=1, shard_rows=3)
        if step == 2:
            with pytest.raises(StoppedError):
                run(progress=stop)
    assert run().resumed == 0
    made = [row["prompt_tokens"] for row in read_jsonl(target)]
    assert made == [fit.row({"question": f"Why {n}?"})["prompt_tokens"] for n in range(9)]


def test_files_of_others_beside_the_parts_stay(tmp_path):
    """What somebody keeps in the folder of parts is there when the run has ended; its own files are gone."""
    kept = tmp_path / "out.jsonl.parts" / "mine" / "notes.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "Why?"}])
    fit_files(source, tmp_path / "out.jsonl", FIT, workers=1)
    assert kept.read_text() == "mine"
    assert [path.name for path in kept.parent.parent.iterdir()] == ["mine"]


@pytest.mark.parametrize("lines", [3, 9, 12])
def test_an_input_that_changes_meanwhile_is_refused(tmp_path, lines):
    """Rows of two states are never one output: what was there stays, and the next run is whole."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": f"Why {n}?"} for n in range(9)])
    target = tmp_path / "out.jsonl"
    target.write_text("old")

    def change(_):
        write_jsonl(source, [{"question": f"How {n}?"} for n in range(lines)])

    with pytest.raises(BudgetConfigError, match="must stay as it is while it is read"):
        fit_files(source, target, FIT, workers=1, shard_rows=3, progress=change)
    assert target.read_text() == "old"
    fit_files(source, target, FIT, workers=1, shard_rows=3)
    assert [row["question"] for row in read_jsonl(target)] == [f"How {n}?" for n in range(lines)]
