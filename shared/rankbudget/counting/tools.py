"""What tool and structured-output schemas cost, by OpenAI's published formula.

    7 (10 before gpt-4o) per function + "name:description"
    3 if it has properties, then 3 per property + "name:type:description", and -3 + 3 per choice + the choices
    of an enum 12 once per request

The formula knows one level; nested objects, array items and alternatives are counted by the same constants,
level by level. It is not confirmed for every model: counts with tools are close, not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .messages import as_text

__all__ = ["schema_tokens"]

Count = Callable[[str], int]

_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_CHOICE = 3
_END = 12
_MAX_DEPTH = 12  # recursive schemas refer to themselves


def schema_tokens(tools: Sequence[Any], count: Count, *, start: int = 7) -> int:
    """Returns the tokens of the schemas of a request, structured-output schemas included.

    Args:
        tools: OpenAI-style tools, bare functions, `{"type": "json_schema", ..}` or anything else, which
            counts as JSON.
        count: counts a text.
        start: tokens before each function: 7 in the gpt-4o family, 10 before it.

    Example:
        >>> city = {"type": "string", "description": "where"}
        >>> parameters = {"type": "object", "properties": {"city": city}}
        >>> tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
        >>> schema_tokens([tool], lambda text: 1)  # 7 + 1, 3, 3 + 1, 12
        27
    """
    return sum(_tool(tool, count, start) for tool in tools) + _END if tools else 0


def _tool(tool: Any, count: Count, start: int) -> int:
    function = _first_mapping(tool, "function", "json_schema") or tool
    if not isinstance(function, Mapping) or (function is tool and "name" not in tool):
        return start + count(as_text(tool))
    line = f"{as_text(function.get('name') or '')}:{_sentence(function)}"
    schema = _first_mapping(function, "parameters", "input_schema", "schema")
    return start + count(line) + _properties(schema, schema, count, 0)


def _first_mapping(holder: Any, *keys: str) -> Mapping[str, Any]:
    if isinstance(holder, Mapping):
        for key in keys:
            if isinstance(holder.get(key), Mapping):
                return holder[key]  # type: ignore[no-any-return]  # checked in the line above
    return {}


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any], count: Count, depth: int) -> int:
    """Returns the tokens of an object's properties, and of what they hold."""
    schema = _resolved(schema, root)
    total = 0
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and properties:
        total += _PROPERTIES
        for name, value in properties.items():
            total += _property(name, value, root, count, depth)
    if depth < _MAX_DEPTH:
        for part in _parts(schema):
            total += _properties(part, root, count, depth + 1) + _choices(part, count)
    return total


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yields the schemas of array items, further properties and alternatives."""
    inner = [schema.get("items"), schema.get("additionalProperties")]
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        found = schema.get(key)
        inner += found if isinstance(found, (list, tuple)) else []
    for part in inner:
        if isinstance(part, Mapping):
            yield part


def _property(name: Any, value: Any, root: Mapping[str, Any], count: Count, depth: int) -> int:
    if not isinstance(value, Mapping):
        return _PROPERTY + count(f"{as_text(name)}:{as_text(value)}")
    resolved = _resolved(value, root)
    line = f"{as_text(name)}:{as_text(resolved.get('type', ''))}:{_sentence(value)}"
    total = _PROPERTY + count(line) + _choices(resolved, count)
    return total + (_properties(value, root, count, depth + 1) if depth < _MAX_DEPTH else 0)


def _choices(schema: Mapping[str, Any], count: Count) -> int:
    choices = schema.get("enum")
    if not isinstance(choices, (list, tuple)):
        return 0
    return _ENUM + sum(_CHOICE + count(as_text(choice)) for choice in choices)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the definition a local `$ref` names, else the schema itself."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return schema
    found: Any = root
    for step in reference[2:].split("/"):
        found = found.get(step) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else schema


def _sentence(schema: Mapping[str, Any]) -> str:
    """Returns a description without its last full stop, as the formula has it."""
    return as_text(schema.get("description") or "").removesuffix(".")
