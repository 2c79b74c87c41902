"""Settings, chat stores and tokenizers as plain data, and back; names are looked up among what is loaded."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import llama_index.core
from llama_index.core.bridge.pydantic import ValidationError
from llama_index.core.memory import BaseMemoryBlock

from rankbudget import BudgetSession, counter_for
from rankbudget.adapters import (
    function_name,
    function_named,
    read_counter,
    read_session,
    summarizer_or_warning,
    write_counter,
    write_session,
)
from rankbudget.errors import BudgetConfigError

from ._codec import STORED
from ._counters import tiktoken_name
from ._options import check_values
from .blocks import BudgetMemoryBlock

_LOST = "lost:"
_TAKEN = {"facts", "waiting"}  # of blocks that take messages: facts, what a summary does not hold yet


def class_named(name: Any, base: Any, option: str) -> Any:
    """Returns the loaded subclass with a name; nothing is imported because data names it."""
    known = list(base.__subclasses__())
    for found in known:  # grows: subclasses of subclasses follow
        known += found.__subclasses__()
        if name in (found.__name__, getattr(found, "class_name", lambda: None)()):
            return found
    msg = f"class {name!r} is not known here. Import it before loading, or pass {option}=."
    raise BudgetConfigError(msg)


def written_block(block: BaseMemoryBlock[Any]) -> dict[str, Any]:
    """Returns a memory block as plain data; a warning names what plain data cannot hold."""
    kind = type(block)
    live = {name: field.default for name, field in kind.model_fields.items() if field.exclude}
    given = {
        name: getattr(block, name) for name, default in live.items() if getattr(block, name) is not default
    }
    named = {name: value for name, value in given.items() if isinstance(value, str)}
    before = [name for name in getattr(block, "_lost", ()) if name not in given]
    lost = [*(name for name in given if name not in named), *before]
    written = {"class": kind.__name__, **block.model_dump(mode="json"), **named}
    if not lost:
        return written
    names = ", ".join(f"{name}=" for name in lost)
    msg = f"memory block {block.name!r} is written without {names}: it cannot be plain data. "
    warnings.warn(f"{msg}Pass memory_blocks= where this is loaded.", UserWarning, stacklevel=3)
    return {**written, "lost": lost}


def read_block(data: Mapping[str, Any]) -> BaseMemoryBlock[Any]:
    """Returns the memory block that `written_block` wrote."""
    values = dict(data)
    kind = class_named(values.pop("class", None), BaseMemoryBlock, "memory_blocks")
    lost = values.pop("lost", ())
    try:
        made: BaseMemoryBlock[Any] = kind(**values)
    except (TypeError, ValidationError) as error:  # a model or store in it is no plain data
        name = values.get("name")
        msg = f"memory block {name!r} ({kind.__name__}) cannot be made from plain data. Pass memory_blocks=."
        raise BudgetConfigError(msg) from error
    if isinstance(made, BudgetMemoryBlock):
        made._lost = tuple(lost)  # noqa: SLF001 - not public
    return made


def loaded_blocks(written: Sequence[Mapping[str, Any]]) -> list[BaseMemoryBlock[Any]]:
    """Returns the memory blocks that were written; a warning names what another option replaces."""
    blocks = list(map(read_block, written))
    for block in blocks:
        for option in getattr(block, "_lost", ()):
            if (instead := getattr(block, option)) is not None:
                msg = f"memory block {block.name!r} is loaded with {option}={instead!r} instead of its own. "
                warnings.warn(f"{msg}Pass memory_blocks=.", UserWarning, stacklevel=3)
    return blocks


def take_up(blocks: Sequence[Any], written: Sequence[Mapping[str, Any]]) -> None:
    """Gives empty blocks what those of their names held of messages, which are handed to them no more."""
    known = {data.get("name"): data for data in written}
    for block in blocks:
        fields = type(block).model_fields
        held = {"text", *_TAKEN}.intersection(fields, known.get(block.name, ()))
        if not _TAKEN.isdisjoint(fields) and not any(getattr(block, name) for name in held):
            for name in held:
                setattr(block, name, copy(known[block.name][name]))


def _tokenizer_named(name: str) -> Any:
    module, _, rest = name.partition(":")
    if module == "tiktoken":
        import tiktoken

        return functools.partial(tiktoken.get_encoding(rest).encode, allowed_special="all")
    found = function_named(name)
    if found is None:
        msg = f"tokenizer {name!r} is not loaded here. Import its module, or pass tokenizer_fn=."
        raise BudgetConfigError(msg)
    return found


def _tokenizer_name(tokenizer_fn: Any) -> str | None:
    """Returns what finds a tokenizer again: None finds the global one, and nothing what is "lost:"."""
    encoding = tiktoken_name(tokenizer_fn)
    if encoding is not None:
        return f"tiktoken:{encoding}"
    name = function_name(tokenizer_fn)
    if name is None and tokenizer_fn is not llama_index.core.global_tokenizer:
        return f"{_LOST}{tokenizer_fn!r}"  # another tokenizer must not count in its place
    return name


def is_lost(name: str | None) -> bool:
    return name is not None and name.startswith(_LOST)


def add_settings(
    data: dict[str, Any], session: BudgetSession | None, counter: Any, tokenizer_fn: Any
) -> None:
    """Adds a part's session, else its counter, and the name of its tokenizer to its plain data."""
    name = None if tokenizer_fn is None else _tokenizer_name(tokenizer_fn)
    data["tokenizer"] = None if counter is not None and is_lost(name) else name  # then the counter counts
    if session is not None:
        data["session"] = write_session(session)
        summarizer_or_warning(session.summarizer, pickled=False)
    if isinstance(counter, str):
        data["counter"] = counter
    elif counter is not None and session is None:
        written = write_counter(counter)
        if is_lost(written):  # a tokenizer object may have a named counter
            written = write_counter(counter_for(counter))
        data["counting"] = written


def read_settings(data: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a part that wrote `data`; `given` replaces what was written."""
    check_values({"data": data}, "data")
    values = {key: value for key, value in data.items() if key not in {"class_name", *given}}
    tokenizer, counting = values.pop("tokenizer", None), values.pop("counting", None)
    if tokenizer is not None and given.get("tokenizer_fn") is None:
        values["tokenizer_fn"] = _tokenizer_named(tokenizer)
    counter = given.get("counter")
    if isinstance(values.get("session"), dict):
        written, summarizer = values["session"], given.pop("summarizer", None)  # the session has it
        values["session"] = read_session(written, codec=STORED, counter=counter, summarizer=summarizer)
    elif counting is not None and counter is None and given.get("session") is None:
        values["counter"] = read_counter(counting)
    return {**values, **given}
