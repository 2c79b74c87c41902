"""Makes counters of Hugging Face formats: a folder, a tokenizer.json, a tokenizer object, a cached model."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..errors import CounterUnavailableError, shown
from .media import MediaTable
from .protocol import Message, Tool
from .tokenizer_counter import Render, TemplateRefusedError, TokenizerCounter

T = TypeVar("T")
_BESIDE = ("tokenizer_config.json", "special_tokens_map.json", "chat_template.json", "chat_template.jinja")
"""Files beside tokenizer.json that hold the chat template and what it shows."""
_MORE_TEMPLATES = "additional_chat_templates/*.jinja"


def read_files(place: Path) -> list[Path]:
    """Returns the files that `from_folder` reads of a place."""
    file = _tokenizer_in(place)
    beside = [file.parent / name for name in _BESIDE]
    return [one for one in (file, *beside, *_more_templates(file.parent)) if one.is_file()]


def _more_templates(folder: Path) -> list[Path]:
    return sorted(folder.glob(_MORE_TEMPLATES))


def _tokenizer_in(place: Path) -> Path:
    return place / "tokenizer.json" if place.is_dir() else place


def from_folder(place: Path, *, name: str | None = None, media: MediaTable | None = None) -> TokenizerCounter:
    """Returns the counter of a tokenizer's folder or tokenizer.json, with its chat template if it has one."""
    file = _tokenizer_in(place)
    if not file.is_file():
        advice = "Save one there with tokenizer.save_pretrained(folder), or give the tokenizer object."
        msg = f"the tokenizer's folder must hold tokenizer.json (got {str(place)!r}). {advice}"
        raise CounterUnavailableError(msg)
    try:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(file))
    except ImportError as error:  # pragma: no cover - comes with the extra
        msg = f'{str(file)!r} needs the tokenizers library: pip install "rankbudget[transformers]"'
        raise CounterUnavailableError(msg) from error
    except Exception as error:
        msg = f"{str(file)!r} cannot be read as a tokenizer: {error}"
        raise CounterUnavailableError(msg) from error
    template = _template_in(file.parent)
    return from_tokenizer(tokenizer, name=name or str(place), template=template, media=media)


def from_tokenizer(
    tokenizer: Any,
    *,
    name: str | None = None,
    template: Render | None = None,
    media: MediaTable | None = None,
) -> TokenizerCounter:
    """Returns the counter of an object whose `encode` returns tokens; `template` is for one without."""
    core, own_render = _backend(tokenizer)
    shown = name or getattr(tokenizer, "name_or_path", None) or type(tokenizer).__name__
    # A tokenizer always cuts at the tokens that match exactly as they are written.
    added: Any = getattr(core, "get_added_tokens_decoder", dict)().values()
    plain = [t for t in added if not (t.lstrip or t.rstrip or t.single_word or t.normalized)]
    return TokenizerCounter(
        _encoder(core if core is not None else tokenizer, fast=core is not None),
        name=str(shown),
        render=template or own_render,
        specials=[token.content for token in plain if token.content],
        media=media,
    )


def cached_folder(model: str) -> Path | None:
    """Returns a model's folder in this machine's Hugging Face cache; nothing is downloaded."""
    if model.count("/") != 1:
        return None
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    hub = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    kept = hub / f"models--{model.replace('/', '--')}"
    try:
        snapshots = kept / "snapshots"
        current = snapshots / (kept / "refs" / "main").read_text(encoding="utf-8").strip()
        candidates = [current, *sorted(snapshots.iterdir())]
    except OSError:
        return None
    return next((folder for folder in candidates if (folder / "tokenizer.json").is_file()), None)


def _template_in(folder: Path) -> Render | None:
    """Returns the chat template of a tokenizer's folder, None when it has none."""
    config = _read_json(folder / "tokenizer_config.json")
    sources = _sources_of({**config, **_read_json(folder / "chat_template.json")}.get("chat_template"))
    jinja = folder / "chat_template.jinja"
    sources |= {"default": jinja.read_text(encoding="utf-8")} if jinja.is_file() else {}
    sources |= {file.stem: file.read_text(encoding="utf-8") for file in _more_templates(folder)}
    if not sources:
        return None
    first = sources.get("default") or next(iter(sources.values()))
    variables = {}
    for key, token in {**_read_json(folder / "special_tokens_map.json"), **config}.items():
        text = token.get("content", "") if isinstance(token, dict) else token
        if key.endswith("_token") and isinstance(text, str):
            variables[key] = text
    default = _chat_template(first, variables)
    named = {name: _chat_template(source, variables) for name, source in sources.items() if source != first}

    def render(messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        return (_chosen(named, tools) or default)(messages, tools)

    return render


def _sources_of(given: Any) -> dict[str, str]:
    """Returns the templates of a model by name: it may have one alone, or several as a list or by name."""
    if isinstance(given, list):
        given = {entry.get("name"): entry.get("template") for entry in given if isinstance(entry, dict)}
    named = given if isinstance(given, Mapping) else {"default": given}
    return {name: source for name, source in named.items() if isinstance(source, str)}


def _chosen(templates: Mapping[str, T], tools: Sequence[Tool] | None) -> T | None:
    """Returns the template that engines take: one for tools, where there are any and it is there."""
    return (templates.get("tool_use") if tools else None) or templates.get("default")


def _chat_template(source: str, variables: dict[str, Any]) -> Render:
    try:
        from .chat_template import ChatTemplate
    except ImportError as error:  # pragma: no cover - jinja2 comes with the extra
        msg = 'chat templates need jinja2: pip install "rankbudget[transformers]"'
        raise CounterUnavailableError(msg) from error
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


def _backend(tokenizer: Any) -> tuple[Any, Render | None]:
    """Returns the `tokenizers` object inside, if any, and the tokenizer's own chat template, if any."""
    inner = getattr(tokenizer, "backend_tokenizer", None) or getattr(tokenizer, "_tokenizer", None)
    core = tokenizer if _is_core(tokenizer) else inner if _is_core(inner) else None
    apply = getattr(tokenizer, "apply_chat_template", None)
    if not callable(apply) or not getattr(tokenizer, "chat_template", None):
        return core, None

    if getattr(apply, "__module__", "").startswith("transformers."):
        return core, _sandboxed(tokenizer)

    def render(messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        given = {"tools": list(tools) if tools else None, "tokenize": False, "add_generation_prompt": True}
        try:
            return str(apply(list(messages), **given))
        except Exception as error:
            msg = f"{type(error).__name__}: {error}"
            raise TemplateRefusedError(msg) from error

    return core, render


def _sandboxed(tokenizer: Any) -> Render:
    """Returns the template of a transformers tokenizer or processor, rendered where its work is bounded."""
    templates: dict[str, Render] = {}

    def render(messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        source = _chosen(_sources_of(tokenizer.chat_template), tools)
        if source is None:
            msg = f"chat_template must have a template named 'default' (got {shown(tokenizer.chat_template)})"
            raise TemplateRefusedError(msg)
        if source not in templates:
            holder = tokenizer if hasattr(tokenizer, "special_tokens_map") else tokenizer.tokenizer
            templates[source] = _chat_template(source, dict(holder.special_tokens_map))
        return templates[source](messages, tools)

    return render


def _is_core(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] == "tokenizers" and hasattr(thing, "encode_batch")


def _encoder(tokenizer: Any, *, fast: bool) -> Callable[[str], int]:
    """Returns tokens of a text, nothing added."""
    if fast and (tokenizer.padding or tokenizer.truncation):
        # Either would falsify counts. The user's object stays as it is.
        tokenizer = type(tokenizer).from_str(tokenizer.to_str())
        tokenizer.no_padding()
        tokenizer.no_truncation()
    encode = tokenizer.encode
    try:
        len(encode("a", add_special_tokens=False))
    except TypeError:
        return lambda text: len(encode(text))
    return lambda text: len(encode(text, add_special_tokens=False))
