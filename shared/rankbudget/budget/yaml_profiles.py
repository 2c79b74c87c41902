"""Budgets from YAML files: system defaults under `llm`, overrides by a profile of its own file or by name.

A value of a later level replaces the same value of earlier levels, in either spelling: a reserve beside the
ratios or among them, a block's size or its ratio. Other keys (temperature, base_url, ...) belong to the host
and pass, except misspelt ones of ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, check_number, misspelt, refuse, shown
from ..segment import by_block
from .validation import DEFAULT_RATIOS, SHARE

_RENAMED = {"max_response_tokens": "max_output", "budget_ratios": "ratios"}
_MERGED = ("ratios", "sizes", "ranks")
_DEFAULTS, _OVERRIDES = "llm", "preferred_llm"
_GROUPS = ("profiles", "characters")
_LARGEST_FILE = 1_000_000
_MOST_MERGED = 200_000


def read_profile(
    path: str | PathLike[str],
    profile: str | None,
    *,
    defaults: str | PathLike[str] | None,
    fields: Sequence[str],
) -> dict[str, Any]:
    """Returns the values of a budget's `fields` in a YAML file, each level merged over the one before."""
    values: dict[str, Any] = {}
    for where, section in _levels(path, profile, defaults, fields):
        if not isinstance(section, Mapping):
            known = ", ".join((*_RENAMED, *fields))
            raise _error(where, f"must be a mapping with {known} (got {shown(section)})")
        values = _merged(values, _read_level(section, where, fields))
    return values


def _levels(
    path: str | PathLike[str],
    profile: str | None,
    defaults: str | PathLike[str] | None,
    fields: Sequence[str],
) -> list[tuple[str, Any]]:
    """Returns the sections that describe a budget, the most general first, and where each one is."""
    levels = []
    if defaults is not None:
        general = _read(defaults)
        _check_names(general, defaults, fields)
        if _DEFAULTS not in general:
            raise _error(defaults, f"must have a section {_DEFAULTS!r} (got {shown(list(general))})")
        levels.append((f"{defaults}: {_DEFAULTS}", general[_DEFAULTS]))
    document = _read(path)
    _check_names(document, path, fields)
    if _DEFAULTS in document:
        levels.append((f"{path}: {_DEFAULTS}", document[_DEFAULTS]))
    profiles = _profiles(document)
    names = ", ".join(map(repr, profiles)) or "none"
    if profile is not None and str(profile) not in profiles:
        raise _error(path, f"profile must be one of those in the file: {names} (got {profile!r})")
    if profile is not None:
        where, section = profiles[str(profile)]
        levels.append((f"{path}: {where}", section))
    elif _OVERRIDES in document:
        levels.append((f"{path}: {_OVERRIDES}", document[_OVERRIDES]))
    elif _DEFAULTS not in document:
        seen = f"(got {shown(list(document))}). Profiles to choose from: {names}"
        raise _error(path, f"must have a section {_DEFAULTS!r} or {_OVERRIDES!r} {seen}")
    return levels


def _check_names(document: Mapping[Any, Any], path: str | PathLike[str], fields: Sequence[str]) -> None:
    """Raises for each misspelt section, and each misspelt field of any section."""
    profiles = _profiles(document)
    own, groups = (*_RENAMED, *fields), (_DEFAULTS, _OVERRIDES, *_GROUPS)
    sections = [*((name, document.get(name)) for name in (_DEFAULTS, _OVERRIDES)), *profiles.values()]
    found = [(shown(key), misspelt(str(key), groups)) for key in document if str(key) not in profiles]
    found += [
        (f"{where}.{shown(key)}", _misspelt_option(str(key), own))
        for where, section in sections
        for key in (section if isinstance(section, Mapping) else ())
        if key not in own
    ]
    problems = [f"{path}: {place} is unknown; did you mean {meant!r}?" for place, meant in found if meant]
    refuse(problems)


def _error(where: object, problem: str) -> BudgetConfigError:
    return BudgetConfigError(f"{where}: {problem}")


def _read(path: str | PathLike[str]) -> Mapping[str, Any]:
    import yaml

    try:
        data = Path(path).read_bytes()
    except (OSError, TypeError, ValueError) as error:
        seen = getattr(error, "strerror", None) or error
        raise _error(path, f"cannot be read ({seen}). Give the path of a YAML file") from error
    if len(data) > _LARGEST_FILE:
        raise _error(path, f"must have at most {_LARGEST_FILE:,} bytes (got {len(data):,})")
    try:
        document = _loader()(data).get_single_data()
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise _error(path, f"must be plain YAML (got {' '.join(str(error).split())[:300]})") from error
    if not isinstance(document, Mapping):
        raise _error(
            path, f"must hold a mapping with {_DEFAULTS!r} or {_OVERRIDES!r} (got {shown(document)})"
        )
    return document


def _loader() -> Any:
    """Returns YAML's safe loader, which builds no objects, without repeated keys and endless merges.

    A merge copies the keys of other mappings: seven mappings that each merge the one before nine times make
    millions.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        merged = 0

        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"]
            times = Counter((key.tag, key.value) for key in keys)
            twice = [repr(name) for (_, name), count in times.items() if count > 1]
            if twice:
                msg = f"a key that is given twice: {', '.join(twice)}"
                raise yaml.constructor.ConstructorError(problem=msg, problem_mark=node.start_mark)
            return node

        def flatten_mapping(self, node: Any) -> None:
            super().flatten_mapping(node)
            self.merged += len(node.value)
            if self.merged > _MOST_MERGED:
                msg = f"merged mappings have more than {_MOST_MERGED:,} keys"
                raise yaml.constructor.ConstructorError(problem=msg)

    return Loader


def _profiles(document: Mapping[Any, Any]) -> dict[str, tuple[str, Any]]:
    """Returns the place and section of every profile by its name; YAML reads some names as numbers."""
    found: dict[str, tuple[str, Any]] = {}
    for group in _GROUPS:
        holder = document.get(group)
        for name, section in holder.items() if isinstance(holder, Mapping) else ():
            found.setdefault(str(name), (f"{group}.{name}", section))
    for name, section in document.items():
        if isinstance(section, Mapping) and _OVERRIDES in section:
            found.setdefault(str(name), (str(name), section))
    for name, (where, section) in found.items():
        if isinstance(section, Mapping) and _OVERRIDES in section:
            found[name] = (f"{where}.{_OVERRIDES}", section[_OVERRIDES])
    return found


def _read_level(section: Mapping[Any, Any], where: str, fields: Sequence[str]) -> dict[str, Any]:
    """Returns what a section says of a budget's fields; two values for one are an error."""
    problems = []
    given: dict[str, Any] = {}
    for key, value in section.items():
        name = _RENAMED.get(key, key) if isinstance(key, str) else ""
        if name not in fields:
            continue
        if name in given:
            problems.append(f"{where}: {name} must be given once (got {key!r} and another spelling)")
        if name in _MERGED and not isinstance(value, Mapping):
            allowed = "a mapping from block names to numbers"
            problems.append(f"{where}.{key} must be {allowed} (got {shown(value)})")
        entries = by_block(value, f"{where}.{key}", problems) if isinstance(value, Mapping) else value
        given[name] = entries
    if not problems:
        ratios, sizes = given.get("ratios", {}), given.get("sizes", {})
        both = ", ".join(shown(name) for name in ratios if name in sizes)
        if both:
            problems.append(f"{where}: a block must have a ratio or a size (got both for {both})")
        if "reserve" in ratios:
            among = ratios.pop("reserve")
            check_number(f"{where}: ratio of 'reserve'", among, problems, **SHARE)
            if given.setdefault("reserve", among) != among:
                said = f"{shown(given['reserve'])} beside a ratio of {shown(among)}"
                problems.append(f"{where}: reserve must be given once (got {said})")
    refuse(problems)
    return given


def _misspelt_option(key: str, options: Sequence[str]) -> str:
    """Returns the option that a key misspells, also by its number, or ""; a host may list its `models`."""
    numbers = [name for name in options if name != "model" and name.rstrip("s") == key.rstrip("s")]
    return misspelt(key, options) or next(iter(numbers), "")


def _merged(values: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values with those of the next level over them; a block has its later size or ratio."""
    merged = {**values, **given}
    for name in _MERGED:
        if name in merged:
            merged[name] = {**values.get(name, {}), **given.get(name, {})}
    ratios, sized = given.get("ratios", {}), given.get("sizes", {})
    if "sizes" in merged:
        merged["sizes"] = {name: size for name, size in merged["sizes"].items() if name not in ratios}
    inherited = values.get("ratios", DEFAULT_RATIOS)
    if any(name in inherited for name in sized):
        merged["ratios"] = {**_shared_out(inherited, sized), **ratios}
    return merged


def _shared_out(ratios: Mapping[str, Any], sized: Container[str]) -> dict[str, Any]:
    """Returns the ratios of the blocks that have no size; they share those of the others in proportion."""
    rest = {name: ratio for name, ratio in ratios.items() if name not in sized}
    try:
        factor = sum(ratios.values()) / sum(rest.values())
    except (TypeError, ZeroDivisionError):  # the budget reports a ratio that is not a number
        return rest
    return {name: min(1.0, round(ratio * factor, 9)) for name, ratio in rest.items()}
