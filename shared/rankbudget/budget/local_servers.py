"""Asks a local server how large a model's context window is: Ollama, LM Studio, vLLM (and what speaks as they do).

What a server runs with is smaller than what a model could do, and a server that is given more cuts the prompt without a word. So a running
instance's window comes first, then a configured one, and a model's own limit only where the server uses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from ..errors import BudgetConfigError

__all__ = ["served_window"]

TIMEOUT_SECONDS = 3.0
OLLAMA_DEFAULT = 4_096
"""What Ollama runs a model with when neither the model nor the server says otherwise, on machines with less than 24 GiB of video memory."""
_MOST_BYTES = 8_000_000


def served_window(base_url: str, model: str | None) -> tuple[int | None, list[str]]:
    """Returns the window a server runs a model with, and what each kind of server answered when there is none.

    Args:
        base_url: where the server listens, with or without "/v1".
        model: the model's name there; None takes the only one.
    """
    root = _root(base_url)
    answers: list[str] = []
    for kind, ask in _KINDS:
        try:
            window = ask(root, model)
        except (URLError, OSError, ValueError, TypeError, AttributeError, LookupError) as error:
            answers.append(f"{kind}: {str(error)[:80]}")
            continue
        if window is not None:
            return window, answers
        answers.append(f"{kind}: no such model")
    return None, answers


def _root(base_url: str) -> str:
    parts = urlsplit(base_url.strip())
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        msg = f"base_url is {base_url!r}; allowed: http://host:port or https://host, as in 'http://localhost:11434'"
        raise BudgetConfigError(msg)
    return (
        f"{parts.scheme}://{parts.netloc}{re.sub(r'/(?:v1|api(?:/v[01])?)?/?$', '', parts.path.rstrip('/'))}"
    )


def _vllm(root: str, model: str | None) -> int | None:
    """GET /v1/models: data[].max_model_len; llama.cpp's server says data[].meta.n_ctx."""
    for entry in _matching(_get(f"{root}/v1/models").get("data"), model, "id", "root"):
        meta = entry.get("meta")
        found = _tokens(entry.get("max_model_len")) or (
            _tokens(meta.get("n_ctx")) if isinstance(meta, dict) else None
        )
        if found:
            return found
    return None


def _lm_studio(root: str, model: str | None) -> int | None:
    """GET /api/v0/models: data[].loaded_context_length, else max_context_length; /api/v1/models where the old one is gone."""
    try:
        entries = _matching(_get(f"{root}/api/v0/models").get("data"), model, "id")
    except (URLError, OSError, ValueError):
        entries = []
    for entry in entries:
        found = _tokens(entry.get("loaded_context_length")) or _tokens(entry.get("max_context_length"))
        if found:
            return found
    for entry in _matching(_get(f"{root}/api/v1/models").get("models"), model, "key", "display_name"):
        running = [
            _tokens((i.get("config") or {}).get("context_length"))
            for i in entry.get("loaded_instances") or ()
        ]
        known = [window for window in running if window]
        found = min(known) if known else _tokens(entry.get("max_context_length"))
        if found:
            return found
    return None


def _ollama(root: str, model: str | None) -> int | None:
    """GET /api/ps for a running model, POST /api/show for num_ctx; else the server's default, or the model's own limit where that is less."""
    running = _get(f"{root}/api/ps").get("models")
    for entry in _matching(running, model, "name", "model"):
        found = _tokens(entry.get("context_length"))
        if found:
            return found
    if model is None:
        return None
    shown = _get(f"{root}/api/show", {"model": model})
    configured = re.search(r"^\s*num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    if configured:
        return int(configured[1])
    info = shown.get("model_info")
    trained = (
        [_tokens(v) for k, v in info.items() if k.endswith(".context_length")]
        if isinstance(info, dict)
        else []
    )
    known = [window for window in trained if window]
    return min(OLLAMA_DEFAULT, *known) if known else None


_KINDS: tuple[tuple[str, Callable[[str, str | None], int | None]], ...] = (
    ("Ollama", _ollama),
    ("LM Studio", _lm_studio),
    ("vLLM", _vllm),
)


def _matching(entries: Any, model: str | None, *keys: str) -> list[dict[str, Any]]:
    """Returns the entries that are the model: by its full name, then without a tag; the only entry when no name was given."""
    listed = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    if model is None:
        return listed if len(listed) == 1 else []
    wanted = model.lower()
    exact = [e for e in listed if any(str(e.get(k, "")).lower() == wanted for k in keys)]
    return exact or [
        e
        for e in listed
        if any(
            str(e.get(k, "")).lower().removesuffix(":latest") == wanted.removesuffix(":latest") for k in keys
        )
    ]


def _get(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    request = Request(quote(url, safe=":/?&=%[]@"), data=data, headers=headers)  # noqa: S310 - _root lets only http through
    with urlopen(request, timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - the same
        answer = json.loads(response.read(_MOST_BYTES))
    return answer if isinstance(answer, dict) else {}


def _tokens(value: Any) -> int | None:
    return (
        int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 1 else None
    )
