"""Writes the JSON schema of budget files, for editors.

.venv/bin/python .ci/budget_schema.py > docs/budget.schema.json

The fields, their order and what they mean come from `TokenBudget` itself.
"""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from rankbudget import TokenBudget
from rankbudget.budget.validation import LEAST_MESSAGE_CAP
from rankbudget.budget.yaml_profiles import _RENAMED

COUNT = {"type": "integer", "minimum": 1}
SHARE = {"type": "number", "minimum": 0, "maximum": 1}
TOKENS_OR_SHARE = {"type": "number", "minimum": 0}
RULES: dict[str, dict[str, Any]] = {
    "context_window": COUNT,
    "reserve": TOKENS_OR_SHARE,
    "ratios": {"type": "object", "additionalProperties": SHARE},
    "sizes": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    "ranks": {"type": "object", "additionalProperties": COUNT},
    "surplus": {"enum": ["waterfall", "borrow", "keep"]},
    "safety": {**TOKENS_OR_SHARE, "type": ["number", "null"]},
    "keep_band": {"type": "boolean"},
    "max_system_ratio": {"type": ["number", "null"], "exclusiveMinimum": 0, "maximum": 1},
    "min_exchanges": {"type": "integer", "minimum": 0},
    "last_turns": {"type": ["integer", "null"], "minimum": 1},
    "message_cap": {"type": ["integer", "null"], "minimum": LEAST_MESSAGE_CAP},
    "shorten_question": {"type": "boolean"},
    "model": {"type": ["string", "null"]},
    "max_output": {"type": ["integer", "null"], "minimum": 1},
    "preset": {"enum": ["chat", "rag", None]},
}


def schema() -> dict[str, Any]:
    """Returns the schema of a whole file."""
    told = _descriptions()
    fields = {
        field.name: {"description": told[field.name], **RULES[field.name]}
        for field in dataclasses.fields(TokenBudget)
    }
    renamed = {
        old: {**fields[new], "description": f"Another name of {new}."} for old, new in _RENAMED.items()
    }
    section = {"type": "object", "properties": {**fields, **renamed}}
    whole = {"anyOf": [{"$ref": "#/$defs/budget"}, {"type": "object", "required": ["preferred_llm"]}]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A budget of rankbudget",
        "description": "Other keys belong to the application; misspelt ones of these are errors when the file is read.",
        "type": "object",
        "anyOf": [
            *({"required": [name]} for name in ("llm", "preferred_llm", "profiles", "characters")),
            {"not": {"additionalProperties": {"not": {"type": "object", "required": ["preferred_llm"]}}}},
        ],
        "properties": {
            "llm": {"$ref": "#/$defs/budget", "description": "The defaults."},
            "preferred_llm": {"$ref": "#/$defs/budget", "description": "What differs from the defaults."},
            "profiles": {"type": "object", "additionalProperties": whole, "description": "Budgets by name."},
            "characters": {
                "type": "object",
                "additionalProperties": whole,
                "description": "The same as profiles.",
            },
        },
        "$defs": {"budget": section},
    }


def _descriptions() -> dict[str, str]:
    """Returns what the docstring says of each field."""
    told = (TokenBudget.__doc__ or "").split("Args:")[1].split("Raises:")[0]
    found = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", told, flags=re.MULTILINE)
    return {name: text[0].upper() + " ".join(text.split())[1:] for name, text in found}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=2))
