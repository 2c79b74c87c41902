"""Blanks of a screen or a fixed-width file take no room from lines, and no more work than other text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from rankbudget.testing import RecordingCounter
from tests.drawing import draws

EXACT = counter_for("o200k_base")


def result_of(text: str) -> list[dict[str, Any]]:
    """Returns a question, a tool call, its result, and the next question."""
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    return [
        {"role": "user", "content": "Read the screen."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": text},
    ]


@draws()
@given(lines=st.integers(8, 40), width=st.integers(60, 300), empty=st.integers(0, 12), query=st.booleans())
def test_all_lines_stay_where_their_blanks_alone_are_too_long(
    lines: int, width: int, empty: int, query: bool
) -> None:
    """A result that fits without its blanks keeps everything else, and the report says so."""
    said = [f"pump {i} of hall {i * 7 % 50}: {i * 37} bar" for i in range(lines)]
    padding = (" " * width + "\n") * empty
    text = "".join(f"{line.ljust(width)}\n{padding}" for line in said)
    free = [
        *result_of(""),
        {"role": "assistant", "content": "Done."},
        {"role": "user", "content": "Which hall?"},
    ]
    room = EXACT.count_messages(free) + EXACT.count("\n\n".join(said)) + 40
    messages = [*result_of(text), *free[3:]]
    asked = {"query": "Which hall?"} if query else {}
    fitted = fit_messages(messages, max_tokens=room, counter=EXACT, **asked)
    kept = next(m["content"] for m in fitted.messages if m["role"] == "tool")
    assert [line.rstrip() for line in kept.splitlines() if line.strip()] == said
    if kept != text:
        assert "all but blanks" in fitted.report.explain("history-2")


@pytest.mark.parametrize("line", [" " * 200, "\t" * 80, "", "pump 7 ok".ljust(200)])
def test_a_screen_is_counted_no_more_often_than_a_log(line: str) -> None:
    """Blanks have few tokens, so that the length that fits is far away and each guess would count all of it."""
    log = "".join(f"pump {i} of hall {i * 7 % 50}: {i * 37} bar\n" for i in range(7_000))[:200_000]
    assert work_on(f"{line}\n" * (200_000 // (len(line) + 1))) <= 1.2 * work_on(log)


def work_on(text: str) -> int:
    """Returns how many characters are counted to fit a long result."""
    counter = RecordingCounter(EXACT)
    messages = [*result_of(f"{text}code C-500 is 7"), {"role": "user", "content": "Which code is C-500?"}]
    assert "C-500 is 7" in str(fit_messages(messages, max_tokens=2_000, counter=counter).messages)
    return counter.characters
