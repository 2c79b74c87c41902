"""Fits the same rows in a plain loop, in the worker pool, in Ray and in Daft, and compares rows per second and every result.

    python benchmarks/scale.py               # 20,000 rows
    python benchmarks/scale.py 5000 --engines loop pool

A row has a question and 20 documents of together about 1,200 words, no two rows alike; it is fitted to 800 tokens. Each engine reads the
same JSONL file in a process of its own, with all that it has to start: workers, tokenizer, cluster. The loop reads, fits and writes line by
line. It runs before and after each of the others, and each is compared with the mean of the two, as others may use the machine.

Ends with status 1 when an engine's rows differ from the loop's. Engines that are not installed are named.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import commit, documents

from rankbudget.batch import FitPrompt, fit_files

BUDGET = 800
ENGINES = {"loop": "", "pool": "", "ray": "ray.data", "daft": "daft"}
OUTPUTS = (
    *("messages", "prompt_tokens", "kept", "shortened", "dropped"),
    *("max_completion_tokens", "budget_error"),
)


def write_rows(path: Path, rows: int) -> None:
    with path.open("w", encoding="utf-8") as file:
        for i in range(rows):
            texts = documents(20, f"scale-{i}", words=60)
            words = random.Random(i).choice(texts).split()[3:8]
            question = f"What is {' '.join(words).strip('.')} number {i}?"
            file.write(json.dumps({"id": i, "question": question, "documents": json.dumps(texts)}) + "\n")


# ---- engines: each takes the file and returns its rows; the time until then counts -------------------------------------------------
def loop(source: Path, _workers: int) -> Iterable[dict[str, Any]]:
    fit, target = FitPrompt(BUDGET), source.with_suffix(".loop")
    with source.open("rb") as file, target.open("w", encoding="utf-8") as out:
        for line in file:
            row = json.loads(line)
            out.write(json.dumps({**row, **fit.row(row)}) + "\n")
    return _lines(target)


def pool(source: Path, workers: int) -> Iterable[dict[str, Any]]:
    target = source.with_name("pool.jsonl")
    fit_files(source, target, FitPrompt(BUDGET), workers=workers)
    return _lines(target)


def ray(source: Path, workers: int) -> Iterable[dict[str, Any]]:
    import ray as engine

    engine.init(num_cpus=workers, include_dashboard=False, logging_level="ERROR")
    engine.data.DataContext.get_current().enable_progress_bars = False
    actors = engine.data.ActorPoolStrategy(size=workers)
    given = {"fn_constructor_kwargs": {"budget": BUDGET}, "batch_format": "pyarrow", "batch_size": 256}
    data = engine.data.read_json(str(source), lines=True, override_num_blocks=16 * workers)
    made: list[dict[str, Any]] = data.map_batches(FitPrompt, compute=actors, num_cpus=0.5, **given).take_all()
    return sorted(made, key=lambda row: int(row["id"]))


def daft(source: Path, workers: int) -> Iterable[dict[str, Any]]:
    import daft as engine

    from rankbudget.batch import fit_daft

    made: list[dict[str, Any]] = fit_daft(
        engine.read_json(str(source)), FitPrompt(BUDGET), workers=workers
    ).to_pylist()
    return made


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    with path.open("rb") as file:
        yield from map(json.loads, file)


def measure(engine: str, source: Path, workers: int) -> None:
    """Prints the seconds of one engine and a digest of its rows; runs in a process of its own."""
    run: Callable[[Path, int], Iterable[dict[str, Any]]] = {
        "loop": loop,
        "pool": pool,
        "ray": ray,
        "daft": daft,
    }[engine]
    began = time.perf_counter()
    made = run(source, workers)
    seconds = time.perf_counter() - began
    digest, rows = hashlib.blake2b(), 0
    for row in made:
        if isinstance(row["messages"], str):
            row["messages"] = json.loads(row["messages"])
        digest.update(json.dumps([row["id"], *[row[name] for name in OUTPUTS]]).encode())
        rows += 1
    print("\nmeasured:", json.dumps({"seconds": seconds, "rows": rows, "digest": digest.hexdigest()}))


# ---- the table -----------------------------------------------------------------------------------------------------------------------
def run(engine: str, source: Path, workers: int) -> dict[str, Any]:
    command = [
        sys.executable,
        __file__,
        "--measure",
        engine,
        "--source",
        str(source),
        "--workers",
        str(workers),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600)  # noqa: S603 - our own code
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("measured: "):
        sys.exit(f"{engine}: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(last[0].removeprefix("measured: "))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", type=int, nargs="?", default=20_000)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--measure", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--source", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.source, options.workers)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.jsonl")
        write_rows(source, options.rows)
        loops = [run("loop", source, options.workers)]
        others: list[tuple[str, dict[str, Any]]] = []
        for engine in [name for name in options.engines if name != "loop"]:
            if ENGINES[engine] and importlib.util.find_spec(ENGINES[engine].partition(".")[0]) is None:
                print(f"{engine} is not installed: pip install 'rankbudget[{engine}]'")
                continue
            others.append((engine, run(engine, source, options.workers)))
            loops.append(run("loop", source, options.workers))
    seconds = [found["seconds"] for found in loops]
    print(f"{options.rows:,} rows, {options.workers} workers, commit {commit()}; start included\n")
    print("| engine | rows/s | loop beside it | ratio | rows |")
    print("|---|---|---|---|---|")
    print(f"| plain loop | {options.rows / statistics.mean(seconds):,.0f} | | 1.00 | {loops[0]['rows']:,} |")
    wrong = [found for found in loops if found["digest"] != loops[0]["digest"]]
    for (engine, found), beside in zip(others, pairwise(seconds), strict=True):
        speed, loop_speed = options.rows / found["seconds"], options.rows / statistics.mean(beside)
        is_equal = found["digest"] == loops[0]["digest"]
        wrong += [] if is_equal else [found]
        equal = "equal" if is_equal else "DIFFERENT"
        print(f"| {engine} | {speed:,.0f} | {loop_speed:,.0f} | {speed / loop_speed:.2f} | {equal} |")
    print(f"\nseconds of the loops: {', '.join(f'{one:.1f}' for one in seconds)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
