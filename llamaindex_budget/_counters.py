"""What LlamaIndex's tokenizers and models count with; the window and the answer of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import llama_index.core
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.constants import DEFAULT_CONTEXT_WINDOW, DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.llm import LLM
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.utils import get_tokenizer

from rankbudget import TokenBudget, TokenCounter, counter_for
from rankbudget.adapters import context_window_of
from rankbudget.errors import BudgetConfigError

_NAMELESS = LLMMetadata().model_name
"""What a model without a name is called."""
ANSWERS = ("max_completion_tokens", "max_output_tokens", "max_tokens", "num_predict")
"""The names under which a request says how long its answer may be."""


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
    return counter_named(llm.metadata.model_name)


def request_counter_of(llm: LLM) -> TokenCounter:
    """Returns the counter of an LLM's limits, where `budget_model` gave it some, else its own."""
    # Not for nodes: a host counts those again with another tokenizer, and splits what it finds too long.
    llm = llm.llm if isinstance(llm, StructuredLLM) else llm
    return getattr(llm, "request_counter", None) or counter_for_llm(llm)


def counter_named(name: str) -> TokenCounter:
    """Returns the counter of a model's name: its own, the global tokenizer's, or an estimate."""
    if not name or name == _NAMELESS:
        return settings_counter()
    counter, chosen = counter_for(name), llama_index.core.global_tokenizer
    if counter.exact or chosen is None:
        return counter
    # LlamaIndex sets its own at its first count.
    own = getattr(chosen, "keywords", None) == {"allowed_special": "all"}
    return counter if own and tiktoken_name(chosen) == "cl100k_base" else counter_of(chosen)


def window_of(llm: BaseLLM) -> int:
    """Returns the window to plan with: the one an LLM states, less where its server is asked for less."""
    stated: int = llm.metadata.context_window
    return min(stated, context_window_of(llm, default=stated))


def known_window(llm: BaseLLM) -> int | None:
    """Returns the window an LLM really has, None where it shows only LlamaIndex's default."""
    window = context_window_of(llm, default=DEFAULT_CONTEXT_WINDOW)
    return None if window == DEFAULT_CONTEXT_WINDOW else window


def answer_of(llm: BaseLLM) -> int | None:
    """Returns the longest answer the user chose on an LLM, None where it is an integration's default."""
    stated = llm.metadata.num_output
    # An integration's field of the same length is sent with each request.
    is_chosen = stated != DEFAULT_NUM_OUTPUTS or stated == answer_in(vars(llm))
    return answer_in(getattr(llm, "additional_kwargs", None)) or (
        stated if is_chosen and stated > 1 else None
    )


def facts_of(llm: BaseLLM) -> list[Any]:
    """Returns what an LLM's window, answer and counter depend on, to be compared with what it was before."""
    fields = [dict(value) if isinstance(value, dict) else value for value in vars(llm).values()]
    return [llm.metadata, llama_index.core.global_tokenizer, fields]


def answer_in(arguments: Any) -> int | None:
    """Returns the longest answer that the arguments of a request ask for."""
    given = [arguments.get(name) for name in ANSWERS] if isinstance(arguments, Mapping) else []
    return max((n for n in given if isinstance(n, int) and n > 0), default=None)


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
