"""`make bench`: runs the benchmarks that measure time and prints what they were measured on.

`make bench T="--only history --rounds 3"` runs one of them, shorter.
"""

from __future__ import annotations

import argparse
import importlib
import time
from pathlib import Path

from harness import apart, bundled_vocabulary, commit, versions

HERE = Path(__file__).resolve().parent
BENCHMARKS = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
PACKAGES = ("rankbudget", "tiktoken", "pydantic", "langchain-core", "llama-index-core")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", choices=BENCHMARKS, action="append", help="run this one; may be given again"
    )
    parser.add_argument("--rounds", type=int, help="interleaved rounds; each benchmark has its own default")
    given = parser.parse_args()
    bundled_vocabulary()
    print(f"commit {commit()}, {versions(*PACKAGES)}")
    begin = time.monotonic()
    for name in given.only or BENCHMARKS:
        print(f"\n== {name}", flush=True)
        apart(_run, name, given.rounds)
    print(f"\n{time.monotonic() - begin:.0f} s in all")


def _run(name: str, rounds: int | None) -> None:
    module = importlib.import_module(f"bench_{name}")
    module.main(**({"rounds": rounds} if rounds else {}))


if __name__ == "__main__":
    main()
