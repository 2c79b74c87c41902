"""Asks a local server how large a model's context window is: a running one, a configured one, the model's."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

from ..errors import BudgetConfigError

OLLAMA_DEFAULT = 4_096
"""Tokens that Ollama runs a model with on less than 24 GiB of video memory, when nothing is configured."""
_SECONDS = 3.0
_MOST_BYTES = 8_000_000
# Server, where it lists its models, what names one there, and where its entry has the window, best first.
_LISTS = (
    ("Ollama", "/api/ps", ("name", "model"), (("context_length",),)),
    ("LM Studio", "/api/v0/models", ("id",), (("loaded_context_length",), ("max_context_length",))),
    ("vLLM", "/v1/models", ("id", "root"), (("max_model_len",), ("meta", "n_ctx"))),
)


def served_window(base_url: str, model: str | None) -> tuple[int | None, list[str]]:
    """Returns the window a server runs a model with (None: the only model), and what else it answered."""
    parts = urlsplit(str(base_url).strip())
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        msg = f"base_url must be http://host:port or https://host (got {base_url!r}). Name the server."
        raise BudgetConfigError(msg)
    root = f"{parts.scheme}://{parts.netloc}{re.sub(r'/(?:v1|api(?:/v[01])?)?/?$', '', parts.path)}"
    answers: list[str] = []
    for kind, path, names, places in _LISTS:
        try:
            entry = _entry_of(model, _get(root + path), names)
            window = next(filter(None, [_number_at(entry, place) for place in places]), None)
            if window is None and kind == "Ollama" and model:
                window = _configured(_get(f"{root}/api/show", {"model": model}))
        except (URLError, OSError, ValueError, TypeError, AttributeError, LookupError) as error:
            answers.append(f"{kind}: {str(error)[:80]}")
            continue
        if window is not None:
            return window, answers
        answers.append(f"{kind}: no such model")
    return None, answers


def _entry_of(model: str | None, answer: dict[str, Any], names: tuple[str, ...]) -> Any:
    """Returns the entry of a model, with or without ":latest"; the only one when no name was given."""
    listed = [entry for entry in answer.get("data") or answer.get("models") or () if isinstance(entry, dict)]
    if model is None:
        return listed[0] if len(listed) == 1 else None
    wanted = model.lower().removesuffix(":latest")
    for entry in listed:
        if wanted in {str(entry.get(name, "")).lower().removesuffix(":latest") for name in names}:
            return entry
    return None


def _configured(shown: dict[str, Any]) -> int | None:
    """Returns the window of a model that Ollama does not run yet: num_ctx, else its default."""
    num_ctx = re.search(r"^\s*num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    if num_ctx:
        return int(num_ctx[1])
    trained = [value for key, value in shown["model_info"].items() if key.endswith(".context_length")]
    return min(OLLAMA_DEFAULT, int(trained[0])) if trained else None


def _number_at(entry: Any, place: tuple[str, ...]) -> int | None:
    for key in place:
        entry = entry.get(key) if isinstance(entry, dict) else None
    return int(entry) if isinstance(entry, (int, float)) and entry >= 1 else None


def _get(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    address = quote(url, safe=":/?&=%[]@")
    request = Request(address, data=data, headers=headers)  # noqa: S310 - only http is let through
    with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310 - the same
        answer = json.loads(response.read(_MOST_BYTES))
    return answer if isinstance(answer, dict) else {}
