"""Prompt caches stay warm: of what is sent in a long agent thread, most was sent in the same place the call before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages import trim_messages as stock_trim_messages

from langchain_budget import BudgetMemory, BudgetMessageHistory, BudgetMiddleware, BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget.testing import WordCounter
from tests.langchain.running import on_thread


class Remembering(WordCounter):
    """Counts words, each text once: the simulation sends the same texts hundreds of times."""

    @lru_cache(maxsize=4096)  # noqa: B019 - one counter for the whole file
    def count(self, text: str) -> int:
        return super().count(text)


WORDS = Remembering(framing=4, priming=3)
CACHED_PRICE = 0.1
MODEL = FakeListChatModel(responses=[""])
Fit = Callable[[list[Any]], list[Any]]


@dataclass
class Bill:
    """What was sent, how much of it was in the same place before, and what that costs."""

    sent: int = 0
    cached: int = 0
    largest: int = 0

    @property
    def share(self) -> float:
        return self.cached / self.sent

    @property
    def units(self) -> float:
        return self.sent - self.cached + CACHED_PRICE * self.cached


def thread(seed: int, size: int = 400) -> list[Any]:
    """Returns a thread of lognormal lengths around 60 tokens: 120 of system prompt, 40 % tool turns of 1 to 3 calls, results three times as long."""
    draw = random.Random(seed)

    def text(times: float = 1.0) -> str:
        return "word " * max(1, int(times * math.exp(draw.gauss(math.log(44), 0.8))))

    messages: list[Any] = [SystemMessage("rule " * 116, id="system")]
    while len(messages) < size:
        messages.append(HumanMessage(text(), id=str(len(messages))))
        if draw.random() < 0.4:
            calls = [f"c{len(messages)}_{i}" for i in range(draw.randint(1, 3))]
            messages.append(
                AIMessage(
                    "", tool_calls=[{"name": "f", "args": {}, "id": c} for c in calls], id=str(len(messages))
                )
            )
            messages += [ToolMessage(text(3), tool_call_id=c, id=f"t{c}") for c in calls]
        messages.append(AIMessage(text(), id=str(len(messages))))
    return messages


def calls(messages: list[Any]) -> Iterator[list[Any]]:
    """Yields the thread as it is at every call of the model: at each question and each result."""
    for i, message in enumerate(messages):
        if message.type in {"human", "tool"}:
            yield messages[: i + 1]


def bill(fit: Fit, seed: int) -> Bill:
    total, before, known = Bill(), [], {}
    for given in calls(thread(seed)):
        prompt = fit(given)
        prints = CODEC.fingerprints(prompt)
        for mark, message in zip(prints, prompt, strict=True):
            if mark not in known:
                known[mark] = WORDS.count_message(CODEC.to_dict(message))
        costs = [known[mark] for mark in prints]
        same = next(
            (n for n, (old, new) in enumerate(zip(before, prints, strict=False)) if old != new),
            min(len(before), len(prints)),
        )
        total.sent += sum(costs)
        total.cached += sum(costs[:same])
        total.largest = max(total.largest, sum(costs) + WORDS.priming)
        before = prints
    return total


def middleware(limit: int) -> Fit:
    made = BudgetMiddleware(max_tokens=limit, counter=WORDS)

    def fit(messages: list[Any]) -> list[Any]:
        sent: list[Any] = []

        def handler(asked: ModelRequest[Any]) -> ModelResponse[Any]:
            sent.extend([asked.system_message, *asked.messages])
            return ModelResponse(result=[AIMessage("ok")])

        asked = ModelRequest(model=MODEL, messages=messages[1:], system_message=messages[0])
        with on_thread():
            made.wrap_model_call(asked, handler)
        return sent

    return fit


def memory(limit: int) -> Fit:
    made = BudgetMemory(max_tokens=limit, counter=WORDS, return_messages=True)

    def fit(messages: list[Any]) -> list[Any]:
        made.chat_memory.add_messages(messages[len(made.chat_memory.messages) :])
        return list(made.load_memory_variables({})["history"])

    return fit


def history(limit: int) -> Fit:
    made = BudgetMessageHistory(max_tokens=limit, counter=WORDS)

    def fit(messages: list[Any]) -> list[Any]:
        made.add_messages(messages[len(made.history.messages) :])
        return made.messages

    return fit


def stable(limit: int) -> Fit:
    return BudgetTrimmer(max_tokens=limit, counter=WORDS, cut="stable").invoke


def filled(limit: int) -> Fit:
    return BudgetTrimmer(max_tokens=limit, counter=WORDS).invoke


@pytest.mark.parametrize(
    ("made", "seed"),
    [(middleware, 1), (middleware, 3), (memory, 1), (history, 3)],
    ids=lambda v: getattr(v, "__name__", str(v)),
)
@pytest.mark.parametrize(("limit", "least"), [(4000, 0.89), (16000, 0.96)])
def test_a_remembered_cut_keeps_the_cache_warm(
    made: Callable[[int], Fit], limit: int, least: float, seed: int
) -> None:
    """With a remembered cut at least 89 % (4k) and 96 % (16k) of what is sent was sent in the same place before, never over the limit."""
    total = bill(made(limit), seed)
    assert total.largest <= limit
    assert total.share >= least


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize(("limit", "least", "most"), [(4000, 0.87, 125_000), (16000, 0.965, 300_000)])
def test_a_stable_cut_needs_no_memory(limit: int, least: float, most: int, seed: int) -> None:
    """The stateless stable cut reaches 87 % (4k) and 96.5 % (16k) at 125k and 300k units at most, never over the limit."""
    total = bill(stable(limit), seed)
    assert total.largest <= limit
    assert total.share >= least
    assert total.units <= most


def test_the_stock_trimmer_costs_more_than_twice_as_much() -> None:
    """langchain-core's own trimmer moves its cut at every call, and so does a cut that keeps as much as fits."""

    def stock(messages: list[Any]) -> list[Any]:
        def count(listed: list[Any]) -> int:
            return sum(WORDS.count_message(CODEC.to_dict(m)) for m in listed)

        return stock_trim_messages(
            messages, max_tokens=4000, token_counter=count, include_system=True, start_on="human"
        )

    ours = bill(stable(4000), 1)
    assert ours.units * 2 < bill(stock, 1).units
    assert ours.share > bill(filled(4000), 1).share
