"""Every fit is told to LlamaIndex's event handlers, whichever part makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
)
from llamaindex_budget._events import BudgetEvent
from rankbudget import TokenBudget
from tests.llamaindex.models import ListStore, exchanges, nodes, say, tokens


class _Listener(BaseEventHandler):
    seen: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, BudgetEvent):
            self.seen.append(event)


@pytest.fixture
def heard() -> Iterator[list[Any]]:
    """The budget events that are sent while a test runs."""
    listener = _Listener()
    get_dispatcher().add_event_handler(listener)
    yield listener.seen
    get_dispatcher().event_handlers.remove(listener)


def _buffer() -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(token_limit=300, chat_history=exchanges(30))


def _blocks() -> BudgetMemory:
    return BudgetMemory.from_defaults(token_limit=300, chat_history=exchanges(30), chat_store=ListStore())


def _pack() -> Any:
    return BudgetPromptHelper(context_window=400, num_output=100).repack(
        PromptTemplate("Use {context_str} {query_str}"), [n.text for n in nodes(5)]
    )


@pytest.mark.parametrize(
    "fit",
    [
        lambda: _buffer().get(),
        lambda: asyncio.run(_buffer().aget()),
        lambda: _buffer().fit("and now?"),
        lambda: _blocks().get(),
        lambda: asyncio.run(_blocks().aget()),
        _pack,
        lambda: BudgetNodePostprocessor(max_tokens=300).postprocess_nodes(nodes(5)),
    ],
    ids=["get", "aget", "fit", "blocks get", "blocks aget", "repack", "nodes"],
)
def test_every_fit_sends_one_event_with_its_report(fit: Callable[[], Any], heard: list[Any]) -> None:
    """One call, one event; its report has the total of what came back and the reasons of what did not."""
    found = fit()
    assert len(heard) == 1
    report = heard[0].report
    assert 0 < report.total_tokens <= 400
    assert any(decision.reason != "fits" for decision in report.decisions)
    if isinstance(found, list) and hasattr(found[0], "role"):
        assert report.total_tokens == tokens(found)


@pytest.mark.parametrize("with_memory", [True, False])
def test_nodes_are_counted_where_the_prompt_has_no_place_for_them(
    with_memory: bool, heard: list[Any]
) -> None:
    """The host shows them in another template: the report counts rules, history and the nodes it says are kept."""
    budget, rules = TokenBudget(context_window=900, reserve=100), PromptTemplate("You are a helper.")
    own: dict[str, Any] = {"budget": budget, "prompt": rules}
    memory = BudgetChatMemoryBuffer.from_defaults(chat_history=exchanges(30), **own)
    part = BudgetNodePostprocessor(**({"memory": memory} if with_memory else own))
    kept = part.postprocess_nodes(nodes(40), query_str="What is 7?")
    context = "\n\n".join([n.node.get_content(MetadataMode.LLM) for n in kept])
    report, before = heard[-1].report, heard[-1].report.total_tokens
    history = memory.get("What is 7?") if with_memory else []
    shown = [say("system", "You are a helper."), *history, say("system", context), say("user", "What is 7?")]
    assert 600 <= tokens(shown) <= before + 2 <= report.limit + 2
