"""Chat stores and tokenizers as plain data, and back: by names that are looked up among what is already loaded, never imported from data."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.utils import get_tokenizer

from rankbudget.errors import BudgetConfigError

from ._convert import tiktoken_name

__all__ = ["dump_store", "load_store", "name_of_tokenizer", "tokenizer_named"]

Tokenizer = Callable[[str], list[Any]]


def dump_store(store: BaseChatStore) -> dict[str, Any]:
    """Returns a store as plain data, messages included; the stock serializer of `SimpleChatStore` fails on pydantic 2.14."""
    if isinstance(store, SimpleChatStore):
        messages = {key: [m.model_dump(mode="json") for m in found] for key, found in store.store.items()}
        return {"store": messages, "class_name": store.class_name()}
    return {**store.model_dump(mode="json"), "class_name": store.class_name()}


def load_store(data: dict[str, Any]) -> BaseChatStore:
    """Returns the store that `dump_store` wrote: any class of a chat store that is imported in this process."""
    name = data.get("class_name")
    if name in (None, SimpleChatStore.class_name()):
        store = {
            key: [ChatMessage.model_validate(m) for m in found]
            for key, found in (data.get("store") or {}).items()
        }
        return SimpleChatStore(store=store)
    for found in _subclasses(BaseChatStore):  # type: ignore[type-abstract]  # only looked through
        if found.class_name() == name:
            return found.from_dict(data)
    msg = f"the chat store {name!r} is not known here; import its class before loading, or pass chat_store="
    raise BudgetConfigError(msg)


def name_of_tokenizer(tokenizer_fn: Tokenizer) -> str | None:
    """Returns a name that `tokenizer_named` finds again, None for a function without one."""
    encoding = tiktoken_name(tokenizer_fn)
    if encoding is not None:
        return f"tiktoken:{encoding}"
    module, name = getattr(tokenizer_fn, "__module__", None), getattr(tokenizer_fn, "__qualname__", None)
    found = _loaded(module, name) if module and name else None
    return f"{module}:{name}" if found is tokenizer_fn else None


def tokenizer_named(name: str | None) -> Tokenizer | None:
    """Returns the tokenizer with a name; None, which means LlamaIndex's global one, for no name.

    Raises:
        BudgetConfigError: when its module is not loaded, so that no other tokenizer silently counts in its place.
    """
    if name is None:
        return None
    module, _, rest = name.partition(":")
    if module == "tiktoken":
        import tiktoken

        stock = get_tokenizer()
        if tiktoken_name(stock) == rest:
            return stock
        return functools.partial(tiktoken.get_encoding(rest).encode, allowed_special="all")
    found = _loaded(module, rest)
    if found is None:
        msg = f"the tokenizer {name!r} is not loaded here; import its module before loading the memory, or pass tokenizer_fn="
        raise BudgetConfigError(msg)
    return found  # type: ignore[no-any-return]  # the name was written for a tokenizer


def _loaded(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def _subclasses(base: type[BaseChatStore]) -> Iterator[type[BaseChatStore]]:
    for found in base.__subclasses__():
        yield found
        yield from _subclasses(found)
