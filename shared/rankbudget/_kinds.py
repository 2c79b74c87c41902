"""What each option may be: one table for all entry points."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from .errors import BudgetConfigError, shown
from .segment import Scope

_REQUIRED = frozenset({"extra_tokens", "prompt", "row"})


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    def is_list(value: Any) -> bool:
        one = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection)
        return not one and all(isinstance(item, kind) for item in value)

    return is_list


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "codec": (_has("role", "to_dict", "with_text"), "a Codec, as DictCodec()"),
    "measure": (_has("group", "total"), "a Measure, as CodecMeasure(codec, counter)"),
    "session": (_has("plan_steps"), "a BudgetSession"),
    "scope": (lambda value: isinstance(value, Scope), "a Scope, as Scope(user='ann')"),
    "summarizer": (callable, "a callable (text, max_tokens) -> str"),
    "shown": (callable, "a callable (block, segment, text) -> str"),
    "notice": (lambda value: isinstance(value, str), "a sentence, or None for none"),
    "extra_tokens": (lambda value: type(value) is int and value >= 0, "a whole number from 0"),
    "sources": (_is_list_of(str), "a list of block names"),
    "examples": (_is_list_of(Mapping), "a list of mappings with an input and an output"),
    "history": (_is_list_of(Mapping), "a list of mappings with a role and a content"),
    "row": (lambda value: isinstance(value, Mapping), "a dict of values by column"),
    "prompt": (lambda value: isinstance(value, str), "a text"),
    "system_prompt": (lambda value: isinstance(value, str), "a text, or None"),
}


def check_kinds(given: Mapping[str, Any]) -> None:
    """Raises BudgetConfigError that names each option that is of no allowed kind."""
    problems = []
    for name, value in given.items():
        is_one, words = _KINDS[name]
        if not is_one(value) and (value is not None or name in _REQUIRED):
            problems.append(f"{name} must be {words} (got {shown(value)})")
    if problems:
        raise BudgetConfigError.of(problems)
