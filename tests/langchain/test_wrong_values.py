"""A wrong kind of value is the same typed error through every door of the three packages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core.prompts import PromptTemplate

import llamaindex_budget
import rankbudget
from langchain_budget import BudgetMemory, BudgetMessageHistory, BudgetRetriever, BudgetTrimmer
from rankbudget import BudgetSession, TokenBudget
from rankbudget.batch import FitPrompt
from rankbudget.errors import BudgetConfigError, BudgetError
from tests.langchain.test_wrong_calls import Found

TALK = [{"role": "user", "content": "hi"}]
CALLS: dict[str, tuple[Callable[[], Callable[..., Any]], dict[str, Any], str]] = {
    "fit_messages": (lambda: rankbudget.fit_messages, {"messages": TALK, "max_tokens": 50}, "strict"),
    "fit_documents": (
        lambda: rankbudget.fit_documents,
        {"texts_or_segments": ["a b"], "max_tokens": 9, "query": "a"},
        "query compress dedup counter scope",
    ),
    "fit_text": (lambda: rankbudget.fit_text, {"text": "a b", "max_tokens": 9}, "text query max_tokens"),
    "counter_for": (lambda: rankbudget.counter_for, {}, "media fast model"),
    "Assembler": (lambda: rankbudget.Assembler, {"budget": 99}, "budget session scope strict notice text"),
    "assemble": (lambda: rankbudget.Assembler(99).assemble, {"blocks": {}, "query": "x"}, "include_memories"),
    "BlockAssembler": (lambda: rankbudget.BlockAssembler, {}, "budget notice scope"),
    "session.fit": (
        lambda: BudgetSession(99).fit,
        {"messages": TALK},
        "limit ceiling history_tokens extra_tokens question strict",
    ),
    "PromptCompressor": (lambda: rankbudget.PromptCompressor, {}, "config"),
    "ContextAnalyzer": (lambda: rankbudget.ContextAnalyzer, {}, "config"),
    "TokenOptimizer": (lambda: rankbudget.TokenOptimizer, {}, "analyzer compressor few_shot_selector config"),
    "CompressorConfig": (lambda: rankbudget.CompressorConfig, {}, "min_tokens extractive_ratio"),
    "AnalyzerConfig": (lambda: rankbudget.AnalyzerConfig, {}, "max_history_turns system_boost"),
    "OptimizerConfig": (lambda: rankbudget.OptimizerConfig, {}, "ratio recent_turns max_risk"),
    "index": (lambda: rankbudget.EmbeddingIndex, {}, "faiss_above"),
    "index.search": (lambda: rankbudget.EmbeddingIndex().search, {"query": "a"}, "query k scope"),
    "report": (lambda: rankbudget.fit_messages(TALK, max_tokens=50).report.save_html, {}, "path"),
    "FitPrompt": (lambda: FitPrompt, {"budget": 99}, "strict by_question reasons notice"),
    "load": (lambda: BudgetMemory(max_tokens=50).load_memory_variables, {}, "inputs"),
    "lc memory.fit": (lambda: BudgetMemory(max_tokens=50).fit, {}, "inputs"),
    "save": (
        lambda: BudgetMemory(max_tokens=50).save_context,
        {"inputs": {"input": "a"}, "outputs": {"output": "b"}},
        "inputs outputs",
    ),
    "retrieve": (lambda: BudgetRetriever(retriever=Found(), max_tokens=20).invoke, {}, "input"),
    "lc history.fit": (lambda: BudgetMessageHistory(max_tokens=50).fit, {}, "question"),
    "trimmer": (lambda: BudgetTrimmer, {"max_tokens": 50}, "max_tokens context_window last_turns"),
    "li memory": (
        lambda: llamaindex_budget.BudgetMemory,
        {"token_limit": 50},
        "token_limit chat_history_token_ratio token_flush_size",
    ),
    "buffer.get": (lambda: llamaindex_budget.BudgetChatMemoryBuffer(token_limit=50).get, {}, "input"),
    "buffer.fit": (lambda: llamaindex_budget.BudgetChatMemoryBuffer(token_limit=50).fit, {}, "question"),
    "li memory.get": (lambda: llamaindex_budget.BudgetMemory(token_limit=50).get, {}, "input"),
    "use_session": (
        lambda: lambda session: llamaindex_budget.use_session(session).__enter__(),
        {},
        "session",
    ),
    "budget_for": (lambda: llamaindex_budget.budget_for, {}, "llm"),
    "helper": (
        lambda: llamaindex_budget.BudgetPromptHelper().repack,
        {"prompt": PromptTemplate("{x}"), "text_chunks": ["a"]},
        "text_chunks padding",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_no_wrong_kind_passes_or_raises_another_error(name: str) -> None:
    """Through every door of the three packages: the option is named, with what it must be and what was given."""
    make, fixed, options = CALLS[name]
    for option in options.split():
        for value in (object(), int, b"x", [5], [None], {"a"}, math.nan, -1.5):
            with pytest.raises(BudgetError) as caught:
                make()(**{**fixed, option: value})
            assert re.search(r"must|needs", str(caught.value)), (option, value)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (llamaindex_budget.BudgetChatMemoryBuffer, {"session": BudgetSession(50), "budget": TokenBudget()}),
        (llamaindex_budget.BudgetMemory, {"session": BudgetSession(50), "budget": TokenBudget()}),
        (llamaindex_budget.BudgetNodePostprocessor, {"session": BudgetSession(50), "budget": TokenBudget()}),
        (llamaindex_budget.BudgetNodePostprocessor, {"max_tokens": 50, "token_limit": 40}),
    ],
)
def test_two_limits_of_which_one_would_be_ignored_are_refused(make: Any, options: dict[str, Any]) -> None:
    """A reader would not see which of them holds."""
    with pytest.raises(BudgetConfigError, match=r"must be None beside .*\(got both\)"):
        make(**options)
