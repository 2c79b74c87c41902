"""Makes our parts behind one keyword contract, so that the same failure cases run on stock classes and on ours."""

from __future__ import annotations

from typing import Any

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetNodePostprocessor


def make_memory(
    *, token_limit: int, tokenizer_fn: Any, chat_history: Any = None, llm: Any = None, **_: Any
) -> BudgetChatMemoryBuffer:
    """Returns a memory that drops what does not fit."""
    return BudgetChatMemoryBuffer.from_defaults(
        token_limit=token_limit, tokenizer_fn=tokenizer_fn, chat_history=chat_history
    )


def make_summarizing_memory(
    *, token_limit: int, tokenizer_fn: Any, chat_history: Any = None, llm: Any = None, **_: Any
) -> BudgetChatMemoryBuffer:
    """Returns a memory that summarizes what does not fit with the model of the case."""
    return BudgetChatMemoryBuffer.from_defaults(
        token_limit=token_limit, tokenizer_fn=tokenizer_fn, chat_history=chat_history, summarizer=llm
    )


def make_postprocessor(
    *, token_limit: int, tokenizer_fn: Any, embed_model: Any, memory: Any = None, **_: Any
) -> BudgetNodePostprocessor:
    """Returns a postprocessor that shares the budget of `memory`, when there is one."""
    return BudgetNodePostprocessor(
        token_limit=token_limit, tokenizer_fn=tokenizer_fn, embed_model=embed_model, memory=memory
    )
