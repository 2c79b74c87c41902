"""The band of a counter that estimates is kept free once, whichever part plans and whichever sends."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetPromptHelper, budget_for, budget_model
from rankbudget import BudgetExceededError, TokenBudget, counter_for
from tests.llamaindex.models import exchanges, say

COUNTER = counter_for("estimate")
LIMIT, ANSWER = 2600, 256
NET = math.floor(LIMIT / (1 + COUNTER.band))
CHAT = [*exchanges(200), say("user", "and now?")]
TEXTS = [f"Number {i} is written here, with some words after it." for i in range(400)]
ASK = PromptTemplate("Use {context_str}. {query_str}").partial_format(query_str="Which number is written?")
GIVEN = [LIMIT, TokenBudget(context_window=LIMIT + ANSWER, reserve=ANSWER)]


class _Sent(MockLLM):
    """Keeps what it is sent."""

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        """Keeps the size."""
        _sizes.append(_tokens(messages))
        return super().chat(messages, **kwargs)

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        """Keeps the size."""
        _sizes.append(COUNTER.count(prompt))
        return super().complete(prompt, formatted=formatted, **kwargs)


_sizes: list[int] = []


def _tokens(messages: Any) -> int:
    return COUNTER.count_messages([{"role": m.role.value, "content": m.content or ""} for m in messages])


def _llm(limit: Any, *, chat: bool = False) -> Any:
    return budget_model(_Sent(is_chat_model=chat), limit, counter=COUNTER)


def _sends(ask: Callable[[], Any]) -> int:
    _sizes.clear()
    ask()
    return _sizes[-1]


def _longest(ask: Callable[[str], Any]) -> int:
    """Returns the tokens of the longest prompt that is sent."""
    sent = 0
    with contextlib.suppress(BudgetExceededError):
        for n in range(1000, 4000, 10):
            sent = _sends(functools.partial(ask, "word " * n))
    return sent


def _packed(limit: Any, llm: Any = None) -> int:
    budget = (
        {"budget": limit}
        if isinstance(limit, TokenBudget)
        else {"context_window": LIMIT + ANSWER, "num_output": ANSWER}
    )
    [chunk] = BudgetPromptHelper(counter=COUNTER, **budget).repack(ASK, TEXTS, llm=llm)
    return _tokens([say("user", ASK.format(context_str=chunk))])


def _packed_for_metadata(limit: Any) -> int:
    llm = _llm(limit)
    helper = BudgetPromptHelper.from_llm_metadata(llm.metadata, counter=COUNTER)
    [chunk] = helper.repack(ASK, TEXTS, llm=llm)
    return _tokens([say("user", ASK.format(context_str=chunk))])


def _remembered(limit: Any, **given: Any) -> int:
    made = BudgetChatMemoryBuffer(counter=COUNTER, budget=budget_for(_llm(limit, chat=True)), **given)
    made.set(CHAT)
    return _tokens(made.get())


DOORS: dict[str, Callable[[Any], int]] = {
    "chat": lambda limit: _longest(lambda text: _llm(limit, chat=True).chat([say("user", text)])),
    "chat of a completion model": lambda limit: _longest(lambda text: _llm(limit).chat([say("user", text)])),
    "complete": lambda limit: _longest(_llm(limit).complete),
    "predict": lambda limit: _sends(lambda: _llm(limit).predict(ASK, context_str="\n\n".join(TEXTS))),
    "repack": _packed,
    "repack for a bounded LLM": lambda limit: _packed(limit, _llm(limit)),
    "repack for a smaller bounded LLM": lambda limit: _packed(
        TokenBudget(context_window=9999, reserve=ANSWER), _llm(limit)
    ),
    "repack for a larger bounded LLM": lambda limit: _packed(limit, _llm(9999)),
    "repack with its metadata": _packed_for_metadata,
    "memory": _remembered,
}


@pytest.mark.parametrize("limit", GIVEN, ids=["number", "budget"])
@pytest.mark.parametrize("door", DOORS)
def test_the_band_is_kept_free_once(door: str, limit: Any) -> None:
    """No more is sent than the limit less the band, and little less: not twice the band."""
    assert COUNTER.band > 0.25
    assert NET / (1 + COUNTER.band) < DOORS[door](limit) <= NET
