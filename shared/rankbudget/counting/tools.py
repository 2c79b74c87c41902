"""What tool and structured-output schemas cost, by OpenAI's published formula, level by level.

7 (10 before gpt-4o) per function + "name:description"; 12 once per request
3 if it has properties, then 3 per property + "name:type:description"
-3 + 3 per choice + the choices of an enum; every other key costs its JSON

A response format costs its compact JSON where that is more: how it is billed is nowhere published.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import BudgetConfigError, check_list, shown
from .blocks import as_block, function_of
from .messages import as_text

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


def check_tools(tools: Any) -> None:
    """Raises BudgetConfigError for functions, whose schemas are unknown here; odd schemas are counted."""
    check_list("tools", tools, "tool schemas")
    wrong = [tool for tool in tools if callable(tool)]
    if wrong:
        raise BudgetConfigError.of(
            f"each tool must be a schema, as {{'type': 'function', 'function': {{..}}}} (got {shown(tool)}). "
            "Give the one that you send; the classes of langchain_budget take functions, too"
            for tool in wrong
        )


def schema_tokens(tools: Sequence[Any], count: Count, *, start: int = 7) -> int:
    """Returns the tokens of OpenAI-style tools, bare functions and structured-output schemas, or of JSON."""
    return sum([_tool(as_block(tool), count, start) for tool in tools]) + _END if tools else 0


def _tool(tool: Any, count: Count, start: int) -> int:
    given = tool if isinstance(tool, Mapping) else {}
    function = function_of(given)
    if "name" not in function:
        return start + count(as_text(tool))
    line = f"{as_text(function.get('name') or '')}:{_sentence(function)}"
    total = start + count(line) + _rest(function, _TOOL_KEYS, count)
    for key in _SCHEMAS:
        if isinstance(function.get(key), Mapping):
            total += _Schemas(function[key], count).root()
    if function is given.get("json_schema"):
        return max(total, count(as_text(tool, separators=(",", ":"))))
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
        total = self._part(self._schema)
        for key in _DEFINITIONS:
            for name, held in _mapping(self._schema.get(key)).items():
                if f"#/{key}/{name}" not in self._definitions:
                    total += self._part(held)
        return total

    def _part(self, schema: Any) -> int:
        """Returns the tokens of an array's items, an alternative or a definition."""
        if not isinstance(schema, Mapping):
            return 0
        return self._count(_sentence(schema)) + self._inside(schema, "")

    def _property(self, name: str, value: Any) -> int:
        if not isinstance(value, Mapping):
            return _PROPERTY + self._count(f"{name}:{as_text(value)}")
        meant = value if "type" in value else self._resolved(value)
        line = f"{name}:{as_text(meant.get('type', ''))}:{_sentence(value)}"
        return _PROPERTY + self._count(line) + self._inside(value, name)

    def _inside(self, schema: Mapping[str, Any], name: str) -> int:
        """Returns the tokens of all that a schema says besides its type and description."""
        if self._depth > _MAX_DEPTH:
            return self._count(as_text(schema))
        self._depth += 1
        total = self._referred(schema) + _rest(schema, _COUNTED_ELSEWHERE, self._count)
        title, choices = as_text(schema.get("title") or ""), schema.get("enum")
        # A title of pydantic's own repeats the name of the field or the class.
        if not title.isidentifier() and title.replace(" ", "_").lower() != name.lower():
            total += self._count(title)
        if isinstance(choices, (list, tuple)):
            total += _ENUM + sum([_CHOICE + self._count(as_text(choice)) for choice in choices])
        for named in [_mapping(schema.get(key)) for key in _INSIDE_NAMED]:
            total += _PROPERTIES if named else 0
            total += sum([self._property(as_text(key), value) for key, value in named.items()])
        lists = [found for key in _INSIDE_LISTS if isinstance(found := schema.get(key), (list, tuple))]
        parts = [*map(schema.get, _INSIDE_ONE), *(part for found in lists for part in found)]
        total += sum(map(self._part, parts))
        self._depth -= 1
        return total

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


def _rest(schema: Mapping[str, Any], known: frozenset[str], count: Count) -> int:
    """Returns the tokens of the keys that nothing else counts."""
    return sum([count(f"{key}:{as_text(value)}") for key, value in schema.items() if key not in known])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sentence(schema: Mapping[str, Any]) -> str:
    """Returns a description without its last full stop, as the formula has it."""
    return as_text(schema.get("description") or "").removesuffix(".")
