"""Files of prompts in a pool of processes: every row once and in order, whatever dies on the way."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rankbudget import BudgetConfigError, BudgetError, RowError, TokenBudget
from rankbudget.batch import FitPrompt, fit_files
from rankbudget.batch.progress import Meter
from rankbudget.cli.main import main
from tests.batch.rows import (
    BUDGET,
    check_promise,
    columns,
    count_or_die,
    fit_prompt,
    plain,
    read_jsonl,
    rows,
    run,
    write_jsonl,
)

LIMITS = ["--window", "500", "--reserve", "150", "--strict"]


@pytest.fixture
def source(tmp_path):
    return write_jsonl(tmp_path / "in.jsonl", rows())


@pytest.fixture(scope="module")
def fitted():
    return plain(fit_prompt()(columns(rows())))


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def parts_of(target):
    return sorted(target.with_name(f"{target.name}.parts").glob("0*"))


# ---- the promise ----------------------------------------------------------------------------------------------------------------
def test_a_pool_gives_what_a_loop_gives(source, tmp_path, fitted):
    """Two workers write the thousand rows, fifty with their error, as one call over columns does."""
    seen = []
    result = run(source, tmp_path / "out.jsonl", workers=2, progress=seen.append)
    assert (result.rows, result.failed, result.resumed) == (1000, 50, 0)
    assert result.error.startswith("RowError: history must be JSON")
    made = read_jsonl(tmp_path / "out.jsonl")
    check_promise(rows(), made)
    assert plain(made) == fitted
    assert [p.rows for p in seen] == list(range(100, 1001, 100))
    assert [p.seconds_left for p in seen[:3]] == [None] * 3
    assert seen[4].seconds_left > 0
    assert (seen[-1].share, seen[-1].seconds_left) == (1, 0)
    assert names_in(tmp_path) == ["in.jsonl", "out.jsonl"]


def test_what_a_line_had_stays_as_it_was_written(tmp_path):
    """Numbers, escapes and order of keys are not written anew; blank lines are no rows."""
    lines = [
        '{"z": 1.50, "question": "Why?", "n": 12345678901234567890.0}',
        "",
        ' {"question": "\\u0041?" } ',
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\ufeff" + "\r\n".join(lines), encoding="utf-8")
    assert run(source, target, workers=1).rows == 2
    made = target.read_text().splitlines()
    assert made[0].startswith(lines[0][:-1] + ', "messages": [{"role": "user", "content": "Why?"}]')
    assert made[1].startswith('{"question": "\\u0041?", "messages"')


def test_lines_that_are_no_objects_are_kept(tmp_path):
    """A line that is not JSON, or no object, is an error of its row and stays in it as text."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_bytes(b'{"question": "Why?"}\n{"question": \n[1]\n\xff\n{}\n')
    result = run(source, target, workers=1)
    made = read_jsonl(target)
    assert (result.rows, result.failed) == (5, 4)
    assert [row.get("line") for row in made[1:4]] == ['{"question":', "[1]", "\\xff"]
    assert [row["budget_error"].partition(" must")[0] for row in made[1:4]] == [
        f"RowError: line {n}" for n in (2, 3, 4)
    ]


def test_a_line_with_an_output_already_is_kept(tmp_path):
    """A later line with a key of an output is an error of its row, and stays as text."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "Why?"}, {"question": "How?", "kept": 1}])
    assert run(source, tmp_path / "out.jsonl", workers=1, shard_rows=1).failed == 1
    row = read_jsonl(tmp_path / "out.jsonl")[1]
    assert json.loads(row["line"])["kept"] == 1
    assert "'kept'" in row["budget_error"]


def test_an_empty_file_gives_an_empty_file(tmp_path):
    """No rows in, no rows out, and no division by nothing."""
    source, target = write_jsonl(tmp_path / "in.jsonl", []), tmp_path / "out.jsonl"
    assert run(source, target, workers=2).rows == 0
    assert target.read_text() == ""


# ---- Parquet --------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("formats", [("jsonl", "parquet"), ("parquet", "jsonl"), ("parquet", "parquet")])
def test_parquet_in_and_out(formats, tmp_path, fitted):
    """Every way between JSONL and Parquet gives the same rows."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source, target = tmp_path / f"in.{formats[0]}", tmp_path / f"out.{formats[1]}"
    if formats[0] == "parquet":
        pq.write_table(pa.Table.from_pylist(rows()), source)
    else:
        write_jsonl(source, rows())
    result = run(source, target, workers=2 if formats == ("parquet", "parquet") else 1, shard_rows=250)
    assert (result.rows, result.failed) == (1000, 50)
    made = read_jsonl(target) if formats[1] == "jsonl" else pq.read_table(target).to_pylist()
    check_promise(rows(), made)
    assert plain(made) == fitted
    assert [row["system"] for row in made] == [row["system"] for row in rows()]


def test_rows_of_many_types_become_one_table(tmp_path):
    """Columns that only some lines have are null in others; types without a common one become texts."""
    pq = pytest.importorskip("pyarrow.parquet")
    given = [
        {"question": "A?", "x": 1, "y": 1, "z": {"deep": [1]}},
        {"question": "B?", "x": 2.5, "y": "one"},
        {"question": "C?", "w": None, "y": True, "z": "text"},
    ]
    source, target = write_jsonl(tmp_path / "in.jsonl", given), tmp_path / "out.parquet"
    assert run(source, target, workers=1, shard_rows=1).rows == 3
    made = pq.read_table(target).to_pydict()
    assert made["x"] == [1.0, 2.5, None]
    assert made["y"] == ["1", "one", "true"]
    assert made["z"] == ['{"deep": [1]}', None, "text"]
    assert made["budget_error"] == [None] * 3
    empty = write_jsonl(tmp_path / "none.jsonl", [])
    run(empty, tmp_path / "none.parquet", workers=1)
    assert "messages" in pq.read_table(tmp_path / "none.parquet").schema.names


# ---- what dies ------------------------------------------------------------------------------------------------------------------
def test_killed_workers_are_replaced(source, tmp_path, fitted):
    """After kill -9 of a worker after each of two shards: every row is there once, as without it."""
    killed = []

    def kill(progress):
        alive = [child for child in multiprocessing.active_children() if child.pid not in killed]
        if len(killed) < 2 and alive:
            killed.append(alive[0].pid)
            os.kill(alive[0].pid, signal.SIGKILL)

    result = run(source, tmp_path / "out.jsonl", workers=2, progress=kill)
    assert len(killed) == 2
    assert (result.rows, result.failed) == (1000, 50)
    assert plain(read_jsonl(tmp_path / "out.jsonl")) == fitted


def test_a_row_that_kills_its_worker_is_named(tmp_path):
    """After three dead workers the run stops and says which rows they had; the other shards are kept."""
    given = [{"question": "poison" if i == 3 else "Why?"} for i in range(4)]
    source, target = write_jsonl(tmp_path / "in.jsonl", given), tmp_path / "out.jsonl"
    fit = FitPrompt(100, counter=count_or_die)
    with pytest.raises(BudgetError, match=r"rows 4 to 4 .*exit code 11"):
        run(source, target, fit=fit, workers=2, shard_rows=1)
    assert len(parts_of(target)) == 3
    assert not target.exists()
    assert multiprocessing.active_children() == []


def _command(source, target, *options):
    program = "import sys; from rankbudget.cli.main import main; sys.exit(main())"
    arguments = ["batch", source, target, "--shard-rows", "50", "--workers", "2", *LIMITS, *options]
    return [sys.executable, "-c", program, *map(str, arguments)]


def _children(pid):
    task = Path(f"/proc/{pid}/task/{pid}/children")
    return task.read_text().split() if task.exists() else []


def test_a_killed_run_is_resumed(source, tmp_path, fitted):
    """After kill -9 of the run: its workers end by themselves, the next run does the rest, every row is there once."""
    target = tmp_path / "out.jsonl"
    process = subprocess.Popen(_command(source, target), stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while len(parts_of(target)) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    children = _children(process.pid)
    process.kill()
    process.wait()
    assert not target.exists()
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    (parts_of(target)[0].parent / "00000019-951-0.unfinished").write_text("half a part")
    done = subprocess.run(_command(source, target), check=False, capture_output=True, text=True)
    assert done.returncode == 3
    assert "1,000 rows, 50 failed, " in done.stderr
    assert " 0 by an earlier run" not in done.stderr
    assert plain(read_jsonl(target)) == fitted
    assert names_in(tmp_path) == ["in.jsonl", "out.jsonl"]


# ---- resume ---------------------------------------------------------------------------------------------------------------------
class StoppedError(Exception):
    """Ends a run in the middle."""


def _stop_after(shards):
    seen = []

    def stop(progress):
        seen.append(progress)
        if len(seen) == shards:
            raise StoppedError

    return stop


def test_finished_shards_are_not_done_again(source, tmp_path, fitted):
    """After four of ten shards the next run does six; their progress says so."""
    target, seen = tmp_path / "out.jsonl", []
    with pytest.raises(StoppedError):
        run(source, target, workers=1, progress=_stop_after(4))
    result = run(source, target, workers=1, progress=seen.append)
    assert (result.rows, result.failed, result.resumed) == (1000, 50, 400)
    assert len(seen) == 6
    assert (seen[0].rows, seen[0].resumed) == (500, 400)
    assert plain(read_jsonl(target)) == fitted


def test_what_was_changed_is_done_again(source, tmp_path):
    """A shard with a changed row, and all shards with changed options, are fitted again."""
    target = tmp_path / "out.jsonl"
    with pytest.raises(StoppedError):
        run(source, target, workers=1, progress=_stop_after(4))
    changed = rows()
    changed[150]["question"] = "Who changed this?"
    write_jsonl(source, changed)
    with pytest.raises(StoppedError):
        run(source, target, workers=1, progress=_stop_after(2))  # the second shard and the fifth
    other = fit_prompt(notice=None)
    assert run(source, target, workers=1, fit=other).resumed == 0
    made = read_jsonl(target)
    assert made[150]["messages"][-1]["content"] == "Who changed this?"
    assert plain(made) == plain(other(columns(changed)))


def test_the_first_error_is_the_first_of_the_file(source, tmp_path):
    """Whichever run fitted its row, and in whatever format."""
    expected = next(error for error in plain(fit_prompt()(columns(rows(100))))["budget_error"] if error)
    formats = ["jsonl", "parquet"] if importlib.util.find_spec("pyarrow") else ["jsonl"]
    for end in formats:
        with pytest.raises(StoppedError):
            run(source, tmp_path / f"out.{end}", workers=1, progress=_stop_after(1))
        assert run(source, tmp_path / f"out.{end}", workers=2).error == expected


def test_a_stopped_run_leaves_no_worker(source, tmp_path):
    """When the caller's progress raises, the workers end at once."""
    with pytest.raises(StoppedError):
        run(source, tmp_path / "out.jsonl", workers=2, progress=_stop_after(1))
    assert multiprocessing.active_children() == []


def test_two_runs_do_not_write_one_target(source, tmp_path):
    """A run that starts while another one writes the same target is refused."""
    target = tmp_path / "out.jsonl"

    def second(progress):
        with pytest.raises(BudgetConfigError, match=f"one run .*process {os.getpid()} "):
            run(source, target, workers=1)
        raise StoppedError

    with pytest.raises(StoppedError):
        run(source, target, workers=1, progress=second)


# ---- what is wrong --------------------------------------------------------------------------------------------------------------
def test_raise_stops_the_run_and_names_the_line(source, tmp_path):
    """With on_error="raise" the error of a worker's row is raised, with its line."""
    fit = fit_prompt(on_error="raise")
    with pytest.raises(RowError, match="line 8: RowError: history must be JSON"):
        run(source, tmp_path / "out.jsonl", workers=2, fit=fit, shard_rows=1000)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("given", "target", "options", "said"),
    [
        ([{"question": "A?"}], "out.csv", {}, "out.csv"),
        ([{"question": "A?"}], "in.jsonl", {}, "another file"),
        ([{"question": "A?"}], "out.jsonl", {"workers": 0}, "workers"),
        ([{"question": "A?"}], "out.jsonl", {"shard_rows": 0}, "shard_rows"),
        ([{"text": "A?"}], "out.jsonl", {}, "question"),
        ([{"question": "A?", "messages": 1}], "out.jsonl", {}, "'messages' already"),
    ],
)
def test_wrong_calls_write_nothing(given, target, options, said, tmp_path):
    """Formats, options and columns are checked before the first row is fitted."""
    source = write_jsonl(tmp_path / "in.jsonl", given)
    with pytest.raises(BudgetConfigError, match=said):
        fit_files(source, tmp_path / target, FitPrompt(100), **{"workers": 1, **options})
    assert names_in(tmp_path) == ["in.jsonl"]


@pytest.mark.parametrize("wrong", [{"context_window": 100}, None, 8192, FitPrompt])
def test_what_fits_is_a_fit_prompt(wrong, tmp_path):
    """A budget in its place is named, and nothing is written."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "A?"}])
    with pytest.raises(BudgetConfigError, match="fit must be a FitPrompt"):
        fit_files(source, tmp_path / "out.jsonl", wrong, workers=1)
    assert names_in(tmp_path) == ["in.jsonl"]


def test_a_damaged_page_of_parquet_names_its_file(tmp_path):
    """Only reading it shows the damage; the footer is whole."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"question": [f"A {n}?" for n in range(100)]}), source)
    data = bytearray(source.read_bytes())
    data[40:70] = bytes(30)
    source.write_bytes(data)
    with pytest.raises(BudgetConfigError, match=r"in\.parquet"):
        fit_files(source, tmp_path / "out.jsonl", FitPrompt(100), workers=1)


# ---- the command ----------------------------------------------------------------------------------------------------------------
def test_the_command_says_by_its_exit_code_whether_all_rows_are_fitted(tmp_path, capsys):
    """0 when all are fitted, 3 when some have an error, 2 for a wrong call; standard output stays empty."""
    good = write_jsonl(tmp_path / "good.jsonl", [{"q": "Why?", "messages": 1}] * 3)
    named = ["--column", "question=q", "--output", "messages=prompt", "--workers", "1"]
    assert main(["batch", str(good), str(tmp_path / "a.jsonl"), *LIMITS, *named]) == 0
    assert [row["prompt"][0]["content"] for row in read_jsonl(tmp_path / "a.jsonl")] == ["Why?"] * 3
    bad = write_jsonl(tmp_path / "bad.jsonl", rows(40))
    assert main(["batch", str(bad), str(tmp_path / "b.jsonl"), *LIMITS, "--workers", "1"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert "40 rows, 2 failed" in err
    assert "first error: RowError: history must be JSON" in err
    assert main(["batch", str(tmp_path / "none.jsonl"), str(tmp_path / "c.jsonl"), *LIMITS]) == 2
    for wrong in (["--column", "q"], ["--column", "question=p", "--column", "question=q"]):
        assert main(["batch", str(good), str(tmp_path / "c.jsonl"), *LIMITS, *wrong]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("rankbudget: error: ") == err.count("\n") == 3


def test_the_command_counts_as_fit_does(tmp_path):
    """A chat in a row gets the messages that `rankbudget fit` gives it."""
    chat = [
        {"role": role, "content": f"{role} {n} " * 9} for n in range(40) for role in ("user", "assistant")
    ]
    chat.append({"role": "user", "content": "And now?"})
    source = write_jsonl(tmp_path / "in.jsonl", [{"history": chat}])
    assert main(["batch", str(source), str(tmp_path / "out.jsonl"), *LIMITS, "--workers", "1"]) == 0
    made = read_jsonl(tmp_path / "out.jsonl")[0]
    budget = TokenBudget(context_window=500, reserve=150, model="gpt-4o")
    assert budget.available == BUDGET.available
    assert made["messages"] == chat[-len(made["messages"]) :]
    assert 300 < made["prompt_tokens"] <= 350


def test_the_estimate_leaves_the_start_out(monkeypatch):
    """With two workers that start for 9 s and then fit 100 rows a second each, the rate is 200 from the fourth shard on."""
    clock = iter([10.0, 10.0, 11.0, 11.0, 12.0])
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    meter = Meter(1000, workers=2)
    seen = [meter.finish(rows=100, failed=0, amount=100) for _ in range(5)]
    assert [p.rows_per_second for p in seen] == [None, None, None, 200, 150]
    assert seen[3].seconds_left == 3
    assert str(seen[3]) == "400 rows (40%), 0 failed, 200 rows/s, about 3 s left"
    assert str(replace(seen[3], share=1.0)) == "400 rows (100%), 0 failed, 200 rows/s"
