"""Renders a model's chat template as transformers does, with nothing but jinja2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import CounterUnavailableError
from .protocol import Message, Tool

__all__ = ["ChatTemplate", "TemplateRefusedError", "template_of_folder"]


class TemplateRefusedError(ValueError):
    """Says why a template does not render a conversation."""


class ChatTemplate:
    """Renders messages with a chat template, in a sandbox with bounded work: it is somebody else's program.

    Args:
        source: the template.
        variables: what else it may use: bos_token, eos_token and other special tokens.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        try:
            from jinja2 import TemplateError

            from .template_sandbox import BoundedEnvironment
        except ImportError as error:  # pragma: no cover - jinja2 comes with the extra
            msg = 'chat templates need jinja2: pip install "rankbudget[transformers]"'
            raise CounterUnavailableError(msg) from error
        self._environment = BoundedEnvironment()
        try:
            self._template = self._environment.read(source)
        except (TemplateError, RecursionError) as error:
            msg = f"the chat template cannot be read: {error}"
            raise CounterUnavailableError(msg) from error
        self._variables = dict(variables or {})

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """Returns the prompt, the generation prompt included.

        Raises:
            TemplateRefusedError: when the template does not accept the conversation.
            CounterUnavailableError: when it computes more than any chat template needs.
        """
        given = {
            "messages": list(messages),
            "tools": list(tools) if tools else None,
            "documents": None,
            "add_generation_prompt": True,
        }
        try:
            return self._environment.rendered(self._template, {**given, **self._variables})
        except CounterUnavailableError:
            raise
        except Exception as error:
            msg = f"{type(error).__name__}: {error}"
            raise TemplateRefusedError(msg) from error


def template_of_folder(folder: Path) -> ChatTemplate | None:
    """Returns the chat template of a tokenizer's folder, None when it has none."""
    config = _read_json(folder / "tokenizer_config.json")
    jinja = folder / "chat_template.jinja"
    if jinja.is_file():
        source: Any = jinja.read_text(encoding="utf-8")
    else:
        source = _read_json(folder / "chat_template.json").get("chat_template", config.get("chat_template"))
    if isinstance(source, list):  # several by name
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("default") or next(iter(named.values()), None)
    if not isinstance(source, str):
        return None
    variables = {}
    for key, token in {**_read_json(folder / "special_tokens_map.json"), **config}.items():
        text = token.get("content", "") if isinstance(token, dict) else token
        if key.endswith("_token") and isinstance(text, str):
            variables[key] = text
    return ChatTemplate(source, variables)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise CounterUnavailableError(msg) from error
    return read if isinstance(read, dict) else {}
