"""What the soak says about memory and time can be believed: it judges by its bounds, and it sees a leak."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MB = 1_000_000


@pytest.fixture
def soak(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("soak")


@pytest.fixture
def side(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("soak_side")


def process(first: Any, last: Any) -> dict[str, Any]:
    return {"memory": [first, last]}


@pytest.mark.parametrize(
    ("last", "held"), [(99 * MB, True), (109.9 * MB, True), (110 * MB, False), (200 * MB, False)]
)
def test_the_process_beyond_its_control_grows_by_less_than_a_tenth(
    soak: ModuleType, last: float, held: bool
) -> None:
    """100 MB beyond the control may become anything below 110, whatever the control itself has grown to."""
    row = soak.growth("malloc", [(process(130 * MB, last + 500 * MB), process(30 * MB, 500 * MB))])
    assert row.held is held


def test_the_median_of_several_processes_is_judged(soak: ModuleType) -> None:
    """One lucky process does not hide two that grow, and the range shows it."""
    pairs = [(process(100 * MB, last * MB), process(0, 0)) for last in (90, 120, 130)]
    row = soak.growth("malloc", pairs)
    assert (row.figure, row.held) == ("+20.0% (-10.0% to +30.0%): 100.0 to 120.0 MB", False)


def test_memory_that_nothing_tells_is_not_called_bounded(soak: ModuleType) -> None:
    """Where the system does not say how much memory is a process' own, the clause is neither held nor broken."""
    row = soak.growth("malloc", [(process(None, None), process(None, None))])
    assert row.held is None
    assert row.figure.startswith("not measured")


@pytest.mark.parametrize(("each", "held"), [(64, True), (65, False)])
def test_at_most_64_bytes_are_kept_for_a_message(soak: ModuleType, each: int, held: bool) -> None:
    """Bytes beyond the control between the two marks, divided by the messages between them."""
    ours = {
        "memory": [5_000 + 100, 50_000 + 100 + 900 * each],
        "stored": {"100": 100, "1000": 1_000},
        "invalid": 0,
        "over": 0,
    }
    row, told, right = soak.kept(ours, {"memory": [5_000, 50_000]})
    assert (row.figure, row.held, told.held, right.held) == (f"{each:.1f} bytes a message", held, None, True)


@pytest.mark.parametrize(("invalid", "over"), [(1, 0), (0, 1)])
def test_one_read_that_is_wrong_fails(soak: ModuleType, invalid: int, over: int) -> None:
    """An invalid read, or one token over the limit, is a failure."""
    ours = {"memory": [2, 2], "stored": {"1": 1, "2": 2}, "invalid": invalid, "over": over}
    assert soak.kept(ours, process(1, 1))[-1].held is False


@pytest.mark.parametrize(("late", "held"), [(0.0015, True), (0.0016, False)])
def test_a_read_takes_at_most_half_as_long_again(soak: ModuleType, late: float, held: bool) -> None:
    """1.0 ms early may become 1.5 ms at the end."""
    assert soak.timed([{"early": 0.001, "late": late}]).held is held


def test_the_control_is_without_the_library_and_its_tokenizer(soak: ModuleType) -> None:
    """The control's process loads neither, ours loads both; they store the same number of messages."""
    control, ours = (soak.run("BudgetSession", name, 40) for name in ("control", "ours"))
    assert (control["loaded"], ours["loaded"]) == ([], ["rankbudget", "tiktoken"])
    assert control["messages"] == ours["messages"] == 98


def test_the_memory_of_a_process_is_what_it_holds_now(side: ModuleType) -> None:
    """50 MB that are held are seen, and seen no more when they are let go."""
    before = side.own_memory()
    if before is None:
        pytest.skip("this system does not tell a process' own memory")
    held = bytearray(b"x" * 50 * MB)
    during = side.own_memory()
    del held
    after = side.own_memory()
    assert during - before > 45 * MB
    assert after - before < 5 * MB


def test_a_leak_is_seen_to_the_byte(soak: ModuleType, side: ModuleType) -> None:
    """A session beside which 1,000 bytes are lost each message keeps that much more than its control, and the budget's own bytes, and fails."""
    parts = importlib.import_module("soak_parts")
    lost: list[bytes] = []

    def leaking() -> Any:
        thread = parts.core()

        def add(number: int) -> int:
            added = thread.add(number)
            lost.extend(bytes(1_000) for _ in range(added))
            return added

        return dataclasses.replace(thread, add=add)

    control, leaks = (side.traced(start, 100) for start in (parts.core_control, leaking))
    for found in (control, leaks):
        found["memory"] = list(found["memory"].values())
    row, _, right = soak.kept(leaks, control)
    assert (
        1_033 < float(row.figure.split()[0]) < 1_200
    )  # a bytes object has a header of 33 bytes, and the list holds a pointer to it
    assert (row.held, right.held) == (False, True)


@pytest.mark.slow
def test_a_short_soak_of_the_core_holds(soak: ModuleType) -> None:
    """Five hundred turns of a session: the process stays as large as it was beyond its control, and every read is valid."""
    rows = soak.judge("BudgetSession", 500, 1)
    assert len(rows) == 6
    assert [row.held for row in rows if "growth" in row.clause or "invalid" in row.clause] == [
        True,
        True,
        True,
    ]
