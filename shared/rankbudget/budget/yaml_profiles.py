"""Budgets from YAML files, in the two shapes people already have.

System defaults, and overrides by a profile of its own file or by name::

    llm:                                  # system defaults
      context_window: 32768
      max_response_tokens: 4096           # the longest answer: caps the reserve
      budget_ratios: {memory: 0.30, history: 0.40, reserve: 0.30}
    profiles:
      nova:
        preferred_llm:
          model: "qwen2.5:14b-instruct"
          budget_ratios: {memory: 0.35, history: 0.35}

What a level says replaces what the levels before it said of the same thing, however they spelled it: a reserve beside the ratios or among
them, a block's size or its ratio. Two answers in one level are an error.

Other keys of these sections (temperature, base_url, ...) are the host's and pass, except those that look like a slip of ours.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .token_budget import TokenBudget
from .validation import DEFAULT_RATIOS, shown
from ..errors import BudgetConfigError, CounterUnavailableError

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["load_budget"]

_RENAMED = {"max_response_tokens": "max_output", "budget_ratios": "ratios"}
_FIELDS = tuple(f.name for f in dataclasses.fields(TokenBudget))
_KEYS = (*_RENAMED, *_FIELDS)
_MERGED = ("ratios", "sizes", "ranks")
_DEFAULTS, _OVERRIDES = "llm", "preferred_llm"
_GROUPS = ("profiles", "characters")
_LARGEST_FILE = 1_000_000


def load_budget(
    path: str | PathLike[str], profile: str | None = None, *, defaults: str | PathLike[str] | None = None
) -> TokenBudget:
    """Returns the budget a YAML file describes; a profile's values replace the system defaults, key by key.

    Args:
        path: the file.
        profile: a name under `profiles` (or `characters`), or at the top of the file.
        defaults: another file whose `llm` section is taken first.

    Raises:
        BudgetConfigError: with file, key, what was seen and what is allowed.
    """
    values: dict[str, Any] = {}
    if defaults is not None:
        _overlay(values, _section(_read(defaults), _DEFAULTS, defaults), f"{defaults}: {_DEFAULTS}")
    document = _read(path)
    if _DEFAULTS in document:
        _overlay(values, _section(document, _DEFAULTS, path), f"{path}: {_DEFAULTS}")
    if profile is not None:
        section, where = _profile(document, profile, path)
        _overlay(values, section, where)
    elif _OVERRIDES in document:
        _overlay(values, _section(document, _OVERRIDES, path), f"{path}: {_OVERRIDES}")
    elif _DEFAULTS not in document:
        names = _names(document)
        hint = f"; choose one of its profiles: {', '.join(map(repr, names))}" if names else ""
        msg = f"{path}: no section {_DEFAULTS!r} or {_OVERRIDES!r}, seen: {shown(list(document))}{hint}"
        raise BudgetConfigError(msg)
    return _build(values, path, profile)


def _read(path: str | PathLike[str]) -> Mapping[str, Any]:
    import yaml

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror or error}); give the path of a YAML file"
        raise BudgetConfigError(msg) from error
    if len(data) > _LARGEST_FILE:
        msg = f"{path}: {len(data):,} bytes, allowed: {_LARGEST_FILE:,}; a budget needs a few lines"
        raise BudgetConfigError(msg)
    try:
        document = yaml.safe_load(data)  # safe: a tag that builds objects is an error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        msg = f"{path}: not plain YAML: {' '.join(str(error).split())[:300]}"
        raise BudgetConfigError(msg) from error
    if not isinstance(document, Mapping):
        msg = f"{path}: holds {shown(document)}, allowed: a mapping with {_DEFAULTS!r} or {_OVERRIDES!r}"
        raise BudgetConfigError(msg)
    return document


def _section(document: Mapping[str, Any], key: str, path: object) -> Mapping[str, Any]:
    if key not in document:
        msg = f"{path}: no section {key!r}, seen: {shown(list(document))}"
        raise BudgetConfigError(msg)
    section = document[key]
    if not isinstance(section, Mapping):
        msg = f"{path}: {key} is {shown(section)}, allowed: a mapping with {', '.join(_KEYS)}"
        raise BudgetConfigError(msg)
    return section


def _names(document: Mapping[str, Any]) -> list[str]:
    grouped = [
        name for group in _GROUPS if isinstance(document.get(group), Mapping) for name in document[group]
    ]
    return [str(n) for n in grouped] + [
        str(n) for n, v in document.items() if isinstance(v, Mapping) and _OVERRIDES in v
    ]


def _profile(document: Mapping[str, Any], name: str, path: object) -> tuple[Mapping[str, Any], str]:
    places: list[tuple[str, Any]] = [
        (f"{group}.{name}", found) for group in _GROUPS for found in _called(document.get(group), name)
    ]
    places += [
        (name, found)
        for found in _called(document, name)
        if isinstance(found, Mapping) and _OVERRIDES in found
    ]
    if not places:
        msg = f"{path}: no profile {name!r}; allowed: {', '.join(map(repr, _names(document))) or 'none, the file has no profiles'}"
        raise BudgetConfigError(msg)
    where, found = places[0]
    if isinstance(found, Mapping) and _OVERRIDES in found:
        where, found = f"{where}.{_OVERRIDES}", found[_OVERRIDES]
    if not isinstance(found, Mapping):
        msg = f"{path}: {where} is {shown(found)}, allowed: a mapping with {', '.join(_KEYS)}"
        raise BudgetConfigError(msg)
    return found, f"{path}: {where}"


def _called(group: Any, name: str) -> list[Any]:
    """Returns what a group has under a name; YAML reads a name such as 1 as a number, a text of the same look comes first."""
    if not isinstance(group, Mapping):
        return []
    return [
        group[key]
        for key in sorted((k for k in group if str(k) == str(name)), key=lambda k: not isinstance(k, str))
    ]


def _overlay(values: dict[str, Any], section: Mapping[str, Any], where: str) -> None:
    """Puts a section's values over those so far; a section that says one thing in two ways, or slips, is an error."""
    problems = []
    seen: dict[str, str] = {}
    given: dict[str, Any] = {}
    entries: Mapping[Any, Any] = section  # YAML keys may be numbers
    for key, value in entries.items():
        name = _RENAMED.get(key, key) if isinstance(key, str) else None
        if name not in _FIELDS:
            close = difflib.get_close_matches(str(key), _KEYS, n=1, cutoff=0.8)
            if close:
                problems.append(f"{where}.{shown(key)} is unknown; did you mean {close[0]!r}?")
            continue
        if name in seen:
            problems.append(f"{where} has {seen[name]!r} and {key!r}, allowed: one of them")
        seen[name] = key
        if name in _MERGED and not isinstance(value, Mapping):
            problems.append(
                f"{where}.{key} is {shown(value)}, allowed: a mapping from block names to numbers"
            )
        given[name] = value
    if not problems:
        problems = _said_twice(given, where)
    if problems:
        raise BudgetConfigError.of(problems)
    _forget(values, given)
    for name, value in given.items():
        values[name] = {**values.get(name, {}), **value} if name in _MERGED else value


def _said_twice(given: Mapping[str, Any], where: str) -> list[str]:
    """Returns what one level says in two ways; later levels could hide it."""
    ratios, sizes = given.get("ratios", {}), given.get("sizes", {})
    problems = [
        f"{where}: ratios and sizes both name {shown(name)}, allowed: one of them for each block"
        for name in ratios
        if name in sizes
    ]
    if "reserve" in given and "reserve" in ratios and given["reserve"] != ratios["reserve"]:
        problems.append(
            f"{where}: reserve is {shown(given['reserve'])} and ratios say {shown(ratios['reserve'])}, allowed: one of them"
        )
    return problems


def _forget(values: dict[str, Any], given: Mapping[str, Any]) -> None:
    """Takes from the levels so far what the next one says in another spelling."""
    ratios, sizes = given.get("ratios", {}), given.get("sizes", {})
    if "reserve" in given and "reserve" in values.get("ratios", {}):
        values["ratios"] = {name: ratio for name, ratio in values["ratios"].items() if name != "reserve"}
    if "reserve" in ratios:
        values.pop("reserve", None)
    if "sizes" in values:
        values["sizes"] = {name: size for name, size in values["sizes"].items() if name not in ratios}
    inherited = values.get("ratios", DEFAULT_RATIOS)
    if any(name in inherited for name in sizes):
        values["ratios"] = _without(inherited, sizes)


def _without(ratios: Mapping[str, Any], sized: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ratios of the blocks that have no size of their own, which share what the others had: only their proportions matter."""
    rest = {name: ratio for name, ratio in ratios.items() if name not in sized}
    try:
        total = sum(ratio for name, ratio in ratios.items() if name != "reserve")
        left = sum(ratio for name, ratio in rest.items() if name != "reserve")
    except TypeError:  # a ratio that is no number: the budget says so
        return rest
    return (
        {
            name: ratio if name == "reserve" else min(1.0, round(ratio * total / left, 9))
            for name, ratio in rest.items()
        }
        if left
        else rest
    )


def _build(values: dict[str, Any], path: object, profile: str | None) -> TokenBudget:
    where = f"{path}" + (f" (profile {profile!r})" if profile else "")
    try:
        if values.get("context_window") is None:
            return _by_model(values)
        return TokenBudget(**values)
    except BudgetConfigError as error:
        msg = f"{where}: {error}"
        raise BudgetConfigError(msg) from error


def _by_model(values: dict[str, Any]) -> TokenBudget:
    rest = {key: value for key, value in values.items() if key not in ("context_window", "model")}
    if not isinstance(values.get("model"), str):
        msg = f"context_window is missing and so is a model to look it up; seen: {', '.join(values) or 'nothing'}"
        raise BudgetConfigError(msg)
    try:
        return TokenBudget.for_model(values["model"], **rest)
    except CounterUnavailableError as error:
        msg = f"context_window is missing and {error}"
        raise BudgetConfigError(msg) from error
