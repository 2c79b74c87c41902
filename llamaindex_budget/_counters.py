"""LlamaIndex's tokenizers and models as token counters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import llama_index.core
from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.llms.llm import LLM
from llama_index.core.utils import get_tokenizer

from rankbudget import TokenBudget, TokenCounter, counter_for
from rankbudget.errors import BudgetConfigError

__all__ = ["counter_for_llm", "counter_of", "settings_counter", "tiktoken_name"]

_NAMELESS = LLMMetadata().model_name
"""What a model without a name is called."""


def counter_of(
    tokenizer_fn: Callable[[str], list[Any]] | None,
    counter: Any = None,
    *,
    llm: LLM | None = None,
    budget: TokenBudget | None = None,
) -> TokenCounter:
    """Returns the first that is given: counter, tokenizer, LLM, the budget's model, the global tokenizer."""
    if counter is not None:
        return counter_for(counter)
    if tokenizer_fn is not None:
        return counter_for(tiktoken_name(tokenizer_fn) or _TokenizerLength(tokenizer_fn))
    if llm is not None:
        return counter_for_llm(llm)
    return counter_for(budget.model) if budget is not None and budget.model else settings_counter()


def counter_for_llm(llm: LLM) -> TokenCounter:
    """Returns the counter of an LLM: its own tokenizer's, its model's, the global one's, or an estimate."""
    tokenizer: Any = getattr(llm, "tokenizer", None)
    if tokenizer is not None:
        try:
            return counter_for(tokenizer)
        except BudgetConfigError:  # LlamaIndex asks for no more than `encode`
            return counter_of(tokenizer.encode)
    name = llm.metadata.model_name
    if not name or name == _NAMELESS:
        return settings_counter()
    counter, chosen = counter_for(name), llama_index.core.global_tokenizer
    if counter.exact or chosen is None:
        return counter
    # LlamaIndex sets its own at its first count.
    own = getattr(chosen, "keywords", None) == {"allowed_special": "all"}
    return counter if own and tiktoken_name(chosen) == "cl100k_base" else counter_of(chosen)


def settings_counter() -> TokenCounter:
    """Returns the counter of LlamaIndex's global tokenizer, its own cl100k_base when none was set."""
    return counter_of(get_tokenizer())


@dataclass(frozen=True)
class _TokenizerLength:
    """Counts with a tokenizer that returns a list; equal for equal tokenizers."""

    tokenizer_fn: Callable[[str], list[Any]]

    @property
    def __name__(self) -> str:
        return getattr(self.tokenizer_fn, "__qualname__", type(self.tokenizer_fn).__name__)

    def __call__(self, text: str) -> int:
        return len(self.tokenizer_fn(text))


def tiktoken_name(tokenizer_fn: Any) -> str | None:
    """Returns the encoding whose `encode` a tokenizer is, None for any other."""
    while isinstance(tokenizer_fn, functools.partial):
        tokenizer_fn = tokenizer_fn.func
    owner: Any = getattr(tokenizer_fn, "__self__", None)
    own = type(owner).__module__.split(".")[0] == "tiktoken"
    return str(owner.name) if own and getattr(tokenizer_fn, "__name__", "").startswith("encode") else None
