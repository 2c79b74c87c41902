"""A callback for reports never costs an answer."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import SummaryIndex
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.llms import MockLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import TextNode

from llamaindex_budget import BudgetChatMemoryBuffer, budget_model
from rankbudget.errors import BudgetConfigError

ASKED = [ChatMessage(role="user", content="fine")]
LONG = PromptTemplate("Use {context_str}. fine")


async def later(report: Any) -> None:
    """Does nothing."""


class Later:
    """An object whose call is async."""

    async def __call__(self, report: Any) -> None:
        """Does nothing."""


def broken(report: Any) -> None:
    """Fails, as a metrics client whose server is away."""
    raise ConnectionError(report)


@pytest.mark.parametrize("given", [later, Later(), functools.partial(later), Later().__call__])
def test_an_async_callback_is_refused(given: Any) -> None:
    """It would never be awaited."""
    with pytest.raises(BudgetConfigError, match="on_report must be a blocking callable"):
        budget_model(MockLLM(), on_report=given)


def _memory() -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer(token_limit=100)


async def _streamed(answer: Any) -> str:
    return [part async for part in await answer][-1].message.content or ""


DOORS: dict[str, Callable[[Any], Any]] = {
    "chat": lambda llm: llm.chat(ASKED).message.content,
    "achat": lambda llm: asyncio.run(llm.achat(ASKED)).message.content,
    "stream_chat": lambda llm: list(llm.stream_chat(ASKED))[-1].message.content,
    "astream_chat": lambda llm: asyncio.run(_streamed(llm.astream_chat(ASKED))),
    "complete": lambda llm: llm.complete("fine").text,
    "acomplete": lambda llm: asyncio.run(llm.acomplete("fine")).text,
    "predict": lambda llm: llm.predict(LONG, context_str="A word. " * 200),
    "chat engine": lambda llm: (
        SimpleChatEngine.from_defaults(llm=llm, memory=_memory()).chat("fine").response
    ),
    "query engine": lambda llm: (
        SummaryIndex([TextNode(text="A fact.")]).as_query_engine(llm=llm).query("fine").response
    ),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_callback_that_fails_is_logged_and_the_answer_returned(
    door: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer was paid for."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=400, on_report=broken)
    with caplog.at_level(logging.ERROR, logger="rankbudget"):
        assert "fine" in DOORS[door](llm)
    raised = {(r.name, r.exc_info[0]) for r in caplog.records if r.exc_info}
    assert raised == {("rankbudget", ConnectionError)}
