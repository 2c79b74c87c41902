"""What a request carries beside its messages: tools, texts and schemas count, settings do not."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

from ..counting.messages import as_text

_PASSED_ON = ("model_kwargs", "additional_kwargs", "extra_body", "generation_config", "options")
"""Holds further arguments; where one of them is given twice, only the client knows which of both is sent."""
_FIELDS = re.compile(
    r"schema|format|grammar|guided|instruction|document|built_in_tools|^system$|^output_config$"
    r"|^(model_kwargs|additional_kwargs|extra_body|generation_config)$"
)
"""The fields of a model that it sends with each request and that may hold texts, by their names."""
_ALWAYS = frozenset(
    "tools functions built_in_tools instructions system system_instruction system_prompt".split()
)
"""What counts whatever it is: objects of any kind, and single words."""
_SETTINGS = frozenset(
    """
    audio base_url betas bad_words cache cache_control cached_content callbacks chat_template config
    container context_management conversation default_headers default_query extra_headers extra_query
    function_call headers http_options image_config include input labels logit_bias
    ls_structured_output_format mcp_servers messages metadata modalities model plugins previous_response_id
    prompt_cache_key prompt_cache_options provider reasoning response_modalities run_manager
    safety_identifier safety_settings speech_config stop stop_sequences stop_token_ids stop_words
    stream_options structured_output_format tags thinking thinking_config timeout tool_choice tool_config
    transforms user user_id web_search_options
    """.split()
)
"""What is no part of the prompt, however long it is."""
_WORD = re.compile(r"[\w.:/@+=-]{0,40}", re.ASCII)
_SHORT = 100
"""Characters of a list or mapping of words that may be a setting, as `{"effort": "high"}`."""


def sent_beside(model: Any, arguments: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Returns name and value of all that a model's client sends beside messages, settings left out.

    That are the arguments of the call, those that the model adds to each call, and its fields for schemas.
    """
    fields = {name: value for name, value in getattr(model, "__dict__", {}).items() if _FIELDS.search(name)}
    kept = fields.pop("model_kwargs", None)
    return _counted({**fields, **(kept if isinstance(kept, Mapping) else {}), **arguments})


def _counted(given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in given.items():
        if name in _PASSED_ON and isinstance(value, Mapping):
            found += _counted(value)
        elif value and name not in _SETTINGS and (name in _ALWAYS or is_text(value)):
            found.append((name, _as_sent(value)))
    return found


def _as_sent(value: Any) -> Any:
    """Returns a class of pydantic as the response format that a client makes of it, else what is given."""
    if not (isinstance(value, type) and hasattr(value, "model_json_schema")):
        return value
    try:  # OpenAI's client writes more than pydantic; where it is not loaded, it sends nothing
        schema = sys.modules["openai"].pydantic_function_tool(value)["function"]["parameters"]
    except Exception:  # noqa: BLE001 - no client, an old one, or a class that it does not take
        schema = value.model_json_schema()
    inner = {"name": value.__name__, "strict": True, "schema": schema}
    return {"type": "json_schema", "json_schema": inner}


def is_text(value: Any) -> bool:
    """Returns whether an argument may hold text or a schema: more than a word, or a few of them."""
    if isinstance(value, (str, type)):
        return isinstance(value, type) or _WORD.fullmatch(value) is None
    held = list(value.values() if isinstance(value, Mapping) else value if _is_list(value) else ())
    if any(isinstance(part, Mapping) or _is_list(part) or is_text(part) for part in held):
        return True
    return len(as_text(value)) > _SHORT if held else callable(getattr(value, "model_dump", None))


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))
