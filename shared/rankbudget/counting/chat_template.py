"""Renders a model's chat template as transformers does, with nothing but jinja2."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import CounterUnavailableError
from .protocol import Message, Tool

__all__ = ["ChatTemplate", "TemplateRefusedError", "template_of_folder"]


class TemplateRefusedError(ValueError):
    """Says why a template does not render a conversation."""


class ChatTemplate:
    """Renders messages with a chat template, in a sandbox: a template is somebody else's program.

    Args:
        source: the template.
        variables: what else it may use: bos_token, eos_token and other special tokens.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        try:
            from jinja2 import TemplateError
        except ImportError as error:  # pragma: no cover - jinja2 comes with the extra
            msg = 'chat templates need jinja2: pip install "rankbudget[transformers]"'
            raise CounterUnavailableError(msg) from error
        try:
            self._template = _environment().from_string(source)
        except TemplateError as error:
            msg = f"the chat template cannot be read: {error}"
            raise CounterUnavailableError(msg) from error
        self._variables = dict(variables or {})

    def __call__(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """Returns the prompt, the generation prompt included.

        Raises:
            TemplateRefusedError: when the template does not accept the conversation.
        """
        try:
            rendered = self._template.render(
                messages=list(messages),
                tools=list(tools) if tools else None,
                documents=None,
                add_generation_prompt=True,
                **self._variables,
            )
        except Exception as error:
            msg = f"{type(error).__name__}: {error}"
            raise TemplateRefusedError(msg) from error
        return str(rendered)


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
    tokens = {**_read_json(folder / "special_tokens_map.json"), **config}
    variables = {
        key: _content(value)
        for key, value in tokens.items()
        if key.endswith("_token") and isinstance(value, (str, dict))
    }
    return ChatTemplate(source, variables)


def _content(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        msg = f"{path} cannot be read: {error}"
        raise CounterUnavailableError(msg) from error
    return read if isinstance(read, dict) else {}


def _environment() -> Any:
    """Returns jinja as chat templates expect it: trimmed blocks, loop controls, plain JSON, helpers."""
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Renders `{% generation %}` blocks, which mark the assistant's words for training."""

        tags = {"generation"}  # noqa: RUF012 - as jinja declares it

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(
                parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line
            )

    def tojson(value: Any, **options: Any) -> str:
        return json.dumps(value, **{"ensure_ascii": False, **options})

    def raise_exception(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment
