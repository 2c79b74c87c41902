"""LlamaIndex's tokenizers and models as token counters."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import llama_index.core
from llama_index.core.base.llms.types import LLMMetadata
from llama_index.core.llms.llm import LLM

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
    """Returns the counter of a part: the first that is given.

    1. `counter`: anything `counter_for` takes.
    2. `tokenizer_fn`: a LlamaIndex tokenizer. Tiktoken takes special tokens as text.
    3. `llm`: see `counter_for_llm`.
    4. `budget`: the tokenizer of its model.
    5. LlamaIndex's global tokenizer.
    """
    if counter is not None:
        return counter_for(counter)
    if tokenizer_fn is not None:
        return counter_for(tiktoken_name(tokenizer_fn) or _TokenizerLength(tokenizer_fn))
    if llm is not None:
        return counter_for_llm(llm)
    return counter_for(budget.model) if budget is not None and budget.model else settings_counter()


def counter_for_llm(llm: LLM) -> TokenCounter:
    """Returns the counter of an LLM.

    1. Its `tokenizer` field, as `OpenAILike` has it.
    2. Its model name, when the tokenizer of that model is known; media cost what the model charges.
    3. The global tokenizer, when the user set one.
    4. An estimate for the model name; for a model without a name, LlamaIndex's default tokenizer.

    Example:
        >>> from llama_index.core.llms import MockLLM
        >>> counter_for_llm(MockLLM()).name
        'cl100k_base'
    """
    tokenizer = getattr(llm, "tokenizer", None)
    if tokenizer is not None:
        return _counter_of_tokenizer(tokenizer)
    name = llm.metadata.model_name
    if not name or name == _NAMELESS:
        return settings_counter()
    counter = counter_for(name)
    chosen = llama_index.core.global_tokenizer
    return counter if counter.exact or chosen is None or _is_default(chosen) else counter_of(chosen)


def _is_default(tokenizer_fn: Any) -> bool:
    """Returns whether a global tokenizer is the one that LlamaIndex itself sets at its first count."""
    return (
        isinstance(tokenizer_fn, functools.partial)
        and tokenizer_fn.keywords == {"allowed_special": "all"}
        and tiktoken_name(tokenizer_fn) == "cl100k_base"
    )


def _counter_of_tokenizer(tokenizer: Any) -> TokenCounter:
    try:
        return counter_for(tokenizer)
    except BudgetConfigError:  # LlamaIndex asks for no more than `encode`
        return counter_of(tokenizer.encode)


def settings_counter() -> TokenCounter:
    """Returns the counter of LlamaIndex's global tokenizer, its own cl100k_base when none was set."""
    from llama_index.core.utils import get_tokenizer

    return counter_of(get_tokenizer())


class _TokenizerLength:
    """Makes a counting callable of a list-returning tokenizer; equal for equal tokenizers."""

    def __init__(self, tokenizer_fn: Callable[[str], list[Any]]) -> None:
        self.tokenizer_fn = tokenizer_fn
        self.__name__ = getattr(tokenizer_fn, "__qualname__", type(tokenizer_fn).__name__)

    def __call__(self, text: str) -> int:
        return len(self.tokenizer_fn(text))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _TokenizerLength) and other.tokenizer_fn is self.tokenizer_fn

    def __hash__(self) -> int:
        return hash(id(self.tokenizer_fn))


def tiktoken_name(tokenizer_fn: Any) -> str | None:
    """Returns the encoding whose `encode` a tokenizer is, None for any other."""
    while isinstance(tokenizer_fn, functools.partial):
        tokenizer_fn = tokenizer_fn.func
    owner = getattr(tokenizer_fn, "__self__", None)
    if (
        owner is not None
        and type(owner).__module__.split(".")[0] == "tiktoken"
        and getattr(tokenizer_fn, "__name__", "").startswith("encode")
    ):
        return str(owner.name)
    return None
