"""One side of the soak in a process of its own; prints what it measured as JSON. `soak.py` starts it.

    python benchmarks/soak_side.py BudgetSession ours 10000            # memory of the whole process, and time
    python benchmarks/soak_side.py BudgetSession control 10000
    python benchmarks/soak_side.py BudgetSession ours 10000 --traced   # what was allocated after the start, and is every read valid?

Without --traced nothing but the conversation is in the process: no checks, no tracing, and in the control no library and no tokenizer.
"""

from __future__ import annotations

import argparse
import array
import ctypes
import gc
import json
import re
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak_parts import COUNTER, LIMIT, PARTS, Thread

CHECKED = 97
"""Every so many turns a read is checked; a prime, so that all kinds of turns have their turn."""


def own_memory() -> int | None:
    """Returns the bytes that are this process' own (no files, nothing shared), with all that is free given back; None where the system does not tell."""
    gc.collect()
    give_back()
    try:
        told = Path("/proc/self/smaps_rollup").read_text(encoding="ascii")
    except OSError:
        return None
    return sum(
        int(kilobytes) * 1024
        for kilobytes in re.findall(r"^(?:Anonymous|Swap):\s+(\d+) kB", told, re.MULTILINE)
    )


def give_back() -> None:
    """Asks glibc to give free pages back to the system; elsewhere there is no such call."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return
    trim(0)


def whole(start: Callable[[], Thread], turns: int) -> dict[str, Any]:
    """Runs the turns and measures the process at a tenth of them and at the end, and each read."""
    seconds = (
        array.array("d", [1.0]) * turns
    )  # written here, so that it is as large at the first mark as at the last
    thread = start()
    messages, memory = 0, {}
    for number in range(1, turns + 1):
        messages += thread.add(number)
        if thread.read is not None:
            begin = time.perf_counter()
            thread.read()
            seconds[number - 1] = time.perf_counter() - begin
        if number in {turns // 10, turns}:
            memory[number] = own_memory()
    tenth = turns // 10
    early, late = (
        sorted(part)[len(part) // 2] for part in (seconds[tenth // 2 : tenth * 3 // 2], seconds[-tenth:])
    )
    loaded = sorted({"rankbudget", "tiktoken"} & sys.modules.keys())
    return {"memory": memory, "messages": messages, "early": early, "late": late, "loaded": loaded}


def traced(start: Callable[[], Thread], turns: int) -> dict[str, Any]:
    """Runs the turns and counts every byte allocated since the start and still held; looks at what is read."""
    from rankbudget import counter_for
    from rankbudget.testing.server import OPENAI, problems_of

    counter = counter_for(COUNTER)
    before = start()
    for number in range(-50, 0):  # imports and tokenizer are not the conversation's
        before.add(number)
        _ = before.read and counter.count_messages(before.dicts(before.read()))
    del before
    gc.collect()
    tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    thread = start()
    messages = invalid = largest = 0
    memory: dict[int, int] = {}
    stored: dict[int, int] = {}
    for number in range(1, turns + 1):
        messages += thread.add(number)
        seen = thread.read() if thread.read is not None else ()
        mark = number in {turns // 10, turns}
        if seen and (mark or number % CHECKED == 0):
            plain = thread.dicts(seen)
            invalid += bool(problems_of(plain, OPENAI))
            largest = max(largest, counter.count_messages(plain))
            del plain
        del seen
        if mark:
            gc.collect()
            memory[number], stored[number] = tracemalloc.get_traced_memory()[0] - base, messages
    tracemalloc.stop()
    return {"memory": memory, "stored": stored, "invalid": invalid, "over": max(0, largest - LIMIT)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("side", choices=("ours", "control"))
    parser.add_argument("turns", type=int)
    parser.add_argument("--traced", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    ours, control = PARTS[given.part]
    start = ours if given.side == "ours" else control
    print(json.dumps((traced if given.traced else whole)(start, given.turns)))


if __name__ == "__main__":
    main()
