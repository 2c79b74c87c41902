"""The fit of the next call's weights uses the library's own signs and choices, and climbs where it says it climbs."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rankbudget.conversation import relevant as relevant_history
from rankbudget.conversation.next_call import WEIGHTS, likely, values_of

np = pytest.importorskip("numpy")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("fit_next_call")


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("fit_next_call_parts")


def thread(task: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A booking fails, twelve look-ups follow whose results are full of codes, and a seat is found; the next call is the booking with that flight."""
    items: list[dict[str, Any]] = [
        {"role": "user", "text": f"I am mia_li_{task} and want to fly to Rome.", "n": 12}
    ]

    def step(number: int, arguments: dict[str, str], result: str) -> None:
        called = {"id": f"c{number}", "name": "look", "arguments": json.dumps(arguments)}
        items.append({"role": "assistant", "text": json.dumps(arguments), "tool_calls": [called], "n": 15})
        items.append({"role": "tool", "text": result, "tool_call_id": f"c{number}", "n": 10 + number})

    for n in range(13):
        if n == task % 4:
            step(
                n,
                {
                    "user_id": f"mia_li_{task}",
                    "flight": f"HAT{200 + task}",
                    "cabin": "economy",
                    "day": "2024-05-10",
                },
                "no seats, NONE left: E77",
            )
        else:
            step(
                n,
                {"day": f"2024-05-{10 + n}"},
                f"found HAT{300 + 7 * n + task} FL_{300 + n} for $1{n}0 and ${n}55 at 1{n}:30",
            )
        if n % 3 == 2:
            items += [
                {"role": "assistant", "text": f"No seats for ${n}55.", "n": 9},
                {"role": "user", "text": f"And on day {n}?", "n": 6},
            ]
    items += [
        {"role": "assistant", "text": f"HAT{384 + task} has seats for $110. Shall I?", "n": 14},
        {"role": "user", "text": "Yes, please.", "n": 5},
    ]
    for n, item in enumerate(items):
        item["id"] = str(n)
    wanted = f"mia_li_{task}", "economy", f"HAT{384 + task}"
    return {
        "query": "Yes, please.",
        "doc_id": f"airline-{task}-0",
        "gold": [{"val": value} for value in wanted],
    }, items


def test_the_signs_are_the_librarys(script: ModuleType) -> None:
    """A value's signs, times the library's weights, are the odds the library gives it."""
    booking = json.dumps({"user_id": "mia_li_3668", "flight": "HAT136", "cabin": "economy"})
    units: list[tuple[str, list[str], list[str], bool]] = [
        ("I am mia_li_3668", [], [], True),
        (booking, [booking], ["booked HAT136 for $255 at JFK: economy"], False),
        ("HAT136 is booked, HAT039 has seats at JFK for $99", [], [], False),
    ]
    values = values_of(units)
    signs = script.signs_of(values, len(units))
    odds = signs @ np.array(list(WEIGHTS.values()))
    assert (signs != 0).any(axis=0).all()
    assert 1 / (1 + np.exp(-odds)) == pytest.approx(
        [likely(name, value, len(units)) for name, value in values.items()]
    )


def test_a_case_chooses_what_the_library_keeps(script: ModuleType) -> None:
    """With the library's weights each listed case gives exactly the messages `fit_messages` keeps at that budget."""
    question, items = thread(1)
    (conversation,) = script.read([(question, items)])
    worth = 1 / (1 + np.exp(-conversation.signs @ np.array(list(WEIGHTS.values()))))
    everything = sum(item["n"] for item in items)
    seen = []
    for case in conversation.cases:
        (share,) = [
            share
            for share in script.BUDGETS
            if int(share * everything) == case.room + sum(case.prices[n] for n in case.kept)
        ]
        kept = set(script.select(question["query"], items, int(share * everything)))
        piece_of = np.cumsum([item["role"] != "tool" for item in items]) - 1
        assert {int(piece_of[n]) for n, item in enumerate(items) if item["id"] in kept} == case.choose(worth)
        seen.append(len(kept))
    assert seen == sorted(seen)
    assert seen[-1] > 2
    assert conversation.evidence.shape == (24, 3)
    assert conversation.evidence.sum(axis=0).tolist() == [2, 1, 2]  # HAT385, economy, mia_li_1
    assert conversation.needed.sum() == 3


@pytest.mark.slow
def test_the_fit_keeps_what_it_was_not_fitted_to(script: ModuleType, parts: ModuleType) -> None:
    """Fitted to five tasks, the weights keep more of a sixth than no weights do, the same each time; needed values are likelier than others."""
    conversations = script.read([thread(task) for task in range(6)])
    weights = parts.fit(conversations[:5])
    assert weights.tolist() == parts.fit(script.read([thread(task) for task in range(5)])).tolist()
    last = conversations[5]
    worth = 1 / (1 + np.exp(-last.signs @ weights))
    assert worth[last.needed == 1].mean() > 2 * worth[last.needed == 0].mean()

    def evidence(worth: Any) -> float:
        return float(
            np.mean([last.evidence[sorted(case.choose(worth))].any(axis=0).mean() for case in last.cases])
        )

    assert evidence(worth) > evidence(np.full(len(worth), 0.5))


def test_it_climbs_where_more_is_kept(script: ModuleType, parts: ModuleType) -> None:
    """The slope is that of the evidence kept on average, by finite differences."""
    conversations = script.read([thread(task) for task in range(3)])
    weights = np.linspace(-1.0, 1.0, len(WEIGHTS))
    listed = parts._listed(conversations, weights, np.ones(len(WEIGHTS)))

    def evidence(weights: Any) -> float:
        total = 0.0
        for case in listed:
            worth = (
                parts.SHARPNESS
                * case.holds
                @ (1 / (1 + np.exp(-conversations[case.conversation].signs @ weights)))
            )
            taken = np.exp(worth) / np.exp(worth).sum()
            total += case.counts * float(taken @ case.keeps)
        return total / len(listed)

    nudges = np.eye(len(WEIGHTS)) * 1e-5
    expected = [(evidence(weights + nudge) - evidence(weights - nudge)) / 2e-5 for nudge in nudges]
    assert max(map(abs, expected)) > 0.001
    assert parts._slope(weights, conversations, listed) == pytest.approx(expected, abs=1e-6)


def test_the_library_is_left_as_it_was(script: ModuleType) -> None:
    """After a failure inside, weights and functions are the library's own again."""
    weights, cover = dict(WEIGHTS), relevant_history.cover

    def fail() -> None:
        with script.weighing(dict.fromkeys(WEIGHTS, 9.0)), script.overheard("cover"):
            assert WEIGHTS["base"] == 9.0
            assert relevant_history.cover is not cover
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert weights == WEIGHTS
    assert relevant_history.cover is cover


def test_without_the_data_one_line_says_so(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """An empty folder is no failure."""
    monkeypatch.setenv("QUALITY_DIR", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["fit_next_call.py"])
    assert script.main() == 0
    assert (
        capsys.readouterr().out
        == f"no quality data in {str(tmp_path)!r}: set QUALITY_DIR to the folder that holds score.py and dev/\n"
    )
