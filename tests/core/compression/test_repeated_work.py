"""What shortening a text repeats, and what it finds out once."""

from __future__ import annotations

import json

import pytest

from rankbudget import counter_for, fit_messages
from rankbudget.compression import json_shrink

EXACT = counter_for("o200k_base")


def test_the_items_of_a_long_result_are_ranked_once_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their order depends on the question alone, so the targets that are tried share it."""
    ranked: list[int] = []
    real = json_shrink.ranked_by_words

    def count(items, asked):
        ranked.append(id(items))
        return real(items, asked)

    monkeypatch.setattr(json_shrink, "ranked_by_words", count)
    messages: list[dict[str, object]] = []
    for turn in range(8):
        call = {"id": f"c{turn}", "type": "function", "function": {"name": "find", "arguments": "{}"}}
        found = json.dumps([{"id": f"FL{i:04d}", "price": 100 + i % 7, "turn": turn} for i in range(200)])
        messages += [
            {"role": "user", "content": f"Find flights of day {turn}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{turn}", "content": found},
            {"role": "assistant", "content": "Here they are."},
        ]
    asked = {"role": "user", "content": "And what is the price of FL0123?"}
    kept = fit_messages([*messages, asked], max_tokens=3000, counter=EXACT).messages
    shortened = [m for m in kept if m["role"] == "tool"]
    cuts = 2 * len(shortened)  # with the least tokens, and with what is left of the room
    assert 0 < len(shortened) <= len(ranked) <= cuts
