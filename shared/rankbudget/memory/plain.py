"""Messages as text in a database: JSON in which bytes are bytes again when it is read."""

from __future__ import annotations

import base64
import json
from hashlib import blake2b
from typing import Any

from ..errors import MessageError

_BYTES = "__bytes__"
_MODULUS = 1 << 128


def written(value: Any) -> str:
    """Returns plain data as JSON that every database takes; raises MessageError for what is none."""
    try:
        text = json.dumps(_marked(value), ensure_ascii=False, separators=(",", ":"))
        return text if _is_sound(text) else json.dumps(_marked(value), separators=(",", ":"))
    except (TypeError, ValueError) as error:
        msg = f"a stored message must hold only what JSON can hold, and bytes (got {error}). Leave it out."
        raise MessageError(msg) from error


def read(text: str) -> Any:
    """Returns the plain data that `written` wrote."""
    return json.loads(text, object_hook=_unmarked if _BYTES in text else None)


def digest_of_text(text: str) -> str:
    """Returns a hash of a text, the same in every process."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def place_value(place: int, digest: str) -> int:
    """Returns what a message at a place adds to the sum over all before it; sums of others differ."""
    return int.from_bytes(blake2b(f"{place}:{digest}".encode(), digest_size=16).digest(), "big")


def added(total: str, value: int) -> str:
    """Returns a sum with one more value; a negative one takes it away."""
    return f"{(int(total, 16) + value) % _MODULUS:032x}"


def _marked(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return {_BYTES: base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        marked = {key: _marked(held) for key, held in value.items()}
        return {_BYTES: [marked[_BYTES]]} if value.keys() == {_BYTES} else marked
    if isinstance(value, (list, tuple)):
        return [_marked(held) for held in value]
    return value


def _unmarked(value: dict[str, Any]) -> Any:
    if value.keys() != {_BYTES}:
        return value
    held = value[_BYTES]
    return base64.b64decode(held) if isinstance(held, str) else {_BYTES: held[0]}


def _is_sound(text: str) -> bool:
    """Returns whether a text is UTF-8: a half of a surrogate pair is written as an escape instead."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
