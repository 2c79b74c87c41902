"""In a run of steps with several calls each, the question's call is found by its arguments and its result together."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_messages
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
CITIES = "Oslo Lima Cairo Porto Turin Ghent Kyoto Quito Accra Perth Leeds Split".split()
HOTELS = "Hotel Adler,Casa Marina,Villa Rossi,Maple Inn,Harbour House,Lodge Tern,Castle Orrin".split(",")
SAID = (
    "{}",
    "{} I need it for the tax form.",
    "I have the hotel on the phone. {}",
    "{} Look it up if you have not seen it yet.",
    "{} Please answer in one sentence.",
    "Please tell me: {}",
)


def _trip(drawn: random.Random, days: int) -> tuple[list[dict[str, Any]], str, str]:
    """Returns a run in which the same hotels are in every city, a question for one code, and the code."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": f"Plan a trip through {', '.join(CITIES)}."}]
    facts: list[tuple[str, str]] = []
    for day in range(1, days + 1):
        calls, results = [], []
        for city in drawn.sample(CITIES, drawn.randint(2, 4)):
            asked = f'{{"city": "{city}", "day": {day}}}'
            name = f"call_{day}_{city}"
            calls.append({"id": name, "type": "function", "function": {"name": "hotels", "arguments": asked}})
            lines = []
            for hotel in drawn.sample(HOTELS, 5):
                code = f"{drawn.choice('ABCDEF')}{drawn.randint(1000, 9999)}"
                lines.append(f"name {hotel} price {drawn.randint(60, 300)} booking_code {code}")
                facts.append((f"Which booking code had the {hotel} in {city} on day {day}?", code))
            results.append({"role": "tool", "tool_call_id": name, "content": "\n".join(lines)})
        chat += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
    question, code = drawn.choice(facts)
    return [*chat, {"role": "assistant", "content": "That is all."}], question, code


@pytest.mark.slow
@pytest.mark.parametrize(("days", "limit"), [(8, 1_400), (20, 3_000)])
@draws(cases=2)
@given(seed=st.integers(0, 10_000), said=st.sampled_from(SAID))
def test_the_call_that_was_asked_for_keeps_its_row(seed: int, said: str, days: int, limit: int) -> None:
    """City and day are in the call, the hotel in the result: no other call has all three, whatever else is said."""
    chat, asked, code = _trip(random.Random(seed), days)
    question = said.format(asked)
    chat.append({"role": "user", "content": question})
    fitted = fit_messages(chat, max_tokens=limit, query=question, counter=COUNTER)
    assert fitted.report.total_tokens <= limit
    assert any(code in str(message["content"]) for message in fitted.messages)
