"""Every method of a budget that computes takes numbers it can compute with, or says which value is wrong."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import pytest

from rankbudget import BudgetError, EmbeddingIndex, TokenBudget

BUDGET = TokenBudget(context_window=8_000)
METHODS = [name for name, held in inspect.getmembers(BUDGET, inspect.ismethod) if not name.startswith("_")]
GOOD: dict[str, Any] = {"limit": 100, "band": 0.1, "block": "history", "system_tokens": 5}
WRONG = [None, "x", b"x", -1, 3, [], [1], {}, object(), float("nan"), float("inf")]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", WRONG, ids=[f"{type(one).__name__} {n}" for n, one in enumerate(WRONG)])
def test_a_wrong_number_has_a_typed_error(method: str, value: object) -> None:
    """Nothing else is raised, wherever the value is used."""
    call = getattr(BUDGET, method)
    options = inspect.signature(call).parameters
    needed = {name: GOOD[name] for name, one in options.items() if name in GOOD and one.default is one.empty}
    for name in set(options) & {"limit", "band", "block", "system_tokens", "fixed", "ceiling"}:
        with suppress(BudgetError):
            call(**{**needed, name: value})


@pytest.mark.parametrize("metadata", [3, "a", {"a": 1}, [3], [None], [{}, {}]], ids=repr)
def test_wrong_metadata_of_an_index_is_named(metadata: Any) -> None:
    """One mapping for each text."""
    with pytest.raises(BudgetError, match="metadata must"):
        EmbeddingIndex().add(["A cat sleeps."], metadata=metadata)
