"""What tool and structured-output schemas cost, by OpenAI's published formula.

    7 (10 before gpt-4o) per function + "name:description"
    3 if it has properties, then 3 per property + "name:type:description", and -3 + 3 per choice + the choices
    of an enum 12 once per request

The formula knows one level and these keys. Nested schemas are counted by the same constants, level by level;
every other key (default, const, examples, limits, ...) costs its JSON. It is not confirmed for every model:
counts with tools are close, not proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .blocks import as_block, function_of
from .messages import as_text

__all__ = ["schema_tokens"]

Count = Callable[[str], int]

_PROPERTIES = 3
_PROPERTY = 3
_ENUM = -3
_CHOICE = 3
_END = 12
_MAX_DEPTH = 24  # deeper schemas count as JSON
_SCHEMAS = ("parameters", "input_schema", "schema", "inputSchema")
_INSIDE_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_INSIDE_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_INSIDE_NAMED = ("properties", "patternProperties", "dependentSchemas")
_DEFINITIONS = ("$defs", "definitions")
_COUNTED_ELSEWHERE = frozenset(
    {
        *_INSIDE_LISTS, *_INSIDE_ONE, *_INSIDE_NAMED, *_DEFINITIONS,
        "type", "description", "enum", "title", "required", "$ref", "$schema",
    }
)  # fmt: skip
_TOOL_KEYS = frozenset({"name", "description", "type", "strict", "cache_control", "function", *_SCHEMAS})


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
    return sum([_tool(as_block(tool), count, start) for tool in tools]) + _END if tools else 0


def _tool(tool: Any, count: Count, start: int) -> int:
    function: Any = {}
    if isinstance(tool, Mapping):
        inner = tool.get("json_schema")
        function = inner if isinstance(inner, Mapping) else function_of(tool)
    if "name" not in function:
        return start + count(as_text(tool))
    line = f"{as_text(function.get('name') or '')}:{_sentence(function)}"
    total = start + count(line) + _rest(function, _TOOL_KEYS, count)
    for key in _SCHEMAS:
        if isinstance(function.get(key), Mapping):
            total += _Schemas(function[key], count).root()
    return total


class _Schemas:
    """Counts one JSON schema; each of its definitions is read once, and ends where it holds itself."""

    def __init__(self, schema: Mapping[str, Any], count: Count) -> None:
        self._schema = schema
        self._count: Count = lambda text: count(text) if text else 0
        self._definitions: dict[str, int] = {}
        self._depth = 0

    def root(self) -> int:
        """Returns the tokens of the schema and of the definitions that nothing refers to."""
        total = self._inside(self._schema) + self._count(_sentence(self._schema))
        for key in _DEFINITIONS:
            for name, held in _mapping(self._schema.get(key)).items():
                if f"#/{key}/{name}" not in self._definitions:
                    total += self._part(held)
        return total

    def _inside(self, schema: Mapping[str, Any], name: str = "") -> int:
        """Returns the tokens of all that a schema says besides its type and description."""
        if self._depth > _MAX_DEPTH:
            return self._count(as_text(schema))
        self._depth += 1
        total = self._referred(schema) + _choices(schema, self._count) + self._count(_title(schema, name))
        total += _rest(schema, _COUNTED_ELSEWHERE, self._count)
        for key in _INSIDE_NAMED:
            named = _mapping(schema.get(key))
            total += _PROPERTIES if named else 0
            for key_name, value in named.items():
                total += self._property(as_text(key_name), value)
        total += sum([self._part(part) for part in _parts(schema)])
        self._depth -= 1
        return total

    def _property(self, name: str, value: Any) -> int:
        if not isinstance(value, Mapping):
            return _PROPERTY + self._count(f"{name}:{as_text(value)}")
        meant = value if "type" in value else self._resolved(value)
        line = f"{name}:{as_text(meant.get('type', ''))}:{_sentence(value)}"
        return _PROPERTY + self._count(line) + self._inside(value, name)

    def _part(self, schema: Any) -> int:
        """Returns the tokens of an array's items, an alternative or a definition."""
        if not isinstance(schema, Mapping):
            return 0
        return self._count(_sentence(schema)) + self._inside(schema)

    def _referred(self, schema: Mapping[str, Any]) -> int:
        reference, held = schema.get("$ref"), self._resolved(schema)
        if not isinstance(reference, str) or held is schema:
            return 0
        if reference not in self._definitions:
            self._definitions[reference] = 0
            self._definitions[reference] = self._part(held)
        return self._definitions[reference]

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the definition a local `$ref` names, else the schema itself."""
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = self._schema
        for step in reference[2:].split("/"):
            found = found.get(step) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else schema


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the schemas of array items, further properties and alternatives."""
    for key in _INSIDE_ONE:
        yield schema.get(key)
    for key in _INSIDE_LISTS:
        found = schema.get(key)
        yield from found if isinstance(found, (list, tuple)) else ()


def _choices(schema: Mapping[str, Any], count: Count) -> int:
    choices = schema.get("enum")
    if not isinstance(choices, (list, tuple)):
        return 0
    return _ENUM + sum([_CHOICE + count(as_text(choice)) for choice in choices])


def _title(schema: Mapping[str, Any], name: str) -> str:
    """Returns a title that somebody wrote; pydantic's own repeats the name of the field or the class."""
    title = as_text(schema.get("title") or "")
    made = title.isidentifier() or title.replace(" ", "_").lower() == name.lower()
    return "" if made else title


def _rest(schema: Mapping[str, Any], known: frozenset[str], count: Count) -> int:
    """Returns the tokens of the keys that nothing else counts."""
    return sum([count(f"{key}:{as_text(value)}") for key, value in schema.items() if key not in known])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sentence(schema: Mapping[str, Any]) -> str:
    """Returns a description without its last full stop, as the formula has it."""
    return as_text(schema.get("description") or "").removesuffix(".")
