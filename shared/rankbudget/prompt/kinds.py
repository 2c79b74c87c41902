"""What each option may be: one table for all entry points."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ..errors import refuse, shown

_REQUIRED = frozenset({"extra_tokens", "prompt_parts", "row", "sources"})


def _has(*names: str) -> Callable[[Any], bool]:
    return lambda value: not isinstance(value, type) and all(hasattr(value, name) for name in names)


def _is_list_of(kind: type) -> Callable[[Any], bool]:
    def is_list(value: Any) -> bool:
        one = isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection)
        return not one and all(isinstance(item, kind) for item in value)

    return is_list


def _takes(*given: Any) -> Callable[[Any], bool]:
    def takes(value: Any) -> bool:
        try:
            return callable(value) and bool(inspect.signature(value).bind(*given))
        except ValueError:  # a builtin says nothing of what it takes
            return True
        except TypeError:
            return False

    return takes


def _is_rated(value: Any) -> bool:
    return _is_list_of(object)(value) and all(hasattr(item, "category") for item in value)


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "codec": (_has("role", "to_dict", "with_text"), "a Codec, as DictCodec()"),
    "measure": (_has("group", "total"), "a Measure, as CodecMeasure(codec, counter)"),
    "session": (_has("plan_steps"), "a BudgetSession"),
    "summarizer": (_takes("text", 1), "a callable (text, max_tokens) -> str"),
    "shown": (_takes("block", None, "text"), "a callable (block, segment, text) -> str"),
    **dict.fromkeys(
        ("ceiling", "extra_tokens", "history_tokens"),
        (lambda value: type(value) is int and value >= 0, "a whole number from 0"),
    ),
    "sources": (_is_list_of(str), "a list of block names"),
    "examples": (_is_list_of(Mapping), "a list of mappings with an input and an output"),
    "history": (_is_list_of(Mapping), "a list of mappings with a role and a content"),
    "row": (lambda value: isinstance(value, Mapping), "a dict of values by column"),
    "prompt_parts": (lambda v: isinstance(v, Mapping) and _is_list_of(str)(v.values()), "texts by category"),
    **dict.fromkeys(
        ("segments", "original_segments", "filtered_segments"), (_is_rated, "a list that `analyze` returned")
    ),
}


def check_kinds(given: Mapping[str, Any], *required: str) -> None:
    """Raises BudgetConfigError that names each option of a wrong kind; None passes where not `required`."""
    problems = []
    for name, value in given.items():
        is_one, words = _KINDS[name]
        if not is_one(value) and (value is not None or name in _REQUIRED or name in required):
            problems.append(f"{name} must be {words} (got {shown(value)})")
    refuse(problems)
