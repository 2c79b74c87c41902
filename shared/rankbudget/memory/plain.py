"""Messages as text in a database: JSON in which bytes are bytes again when it is read."""

from __future__ import annotations

import base64
import json
import warnings
from collections.abc import Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from hashlib import blake2b
from typing import Any
from uuid import UUID

from ..errors import MessageError

_BYTES = "__bytes__"
_MODULUS = 1 << 128
_AS_TEXT = (date, time, timedelta, Decimal, UUID)
"""What a request to a model has as texts, too."""
_ARTIFACT = "artifact"
"""The field of any object that a tool returns beside its text; it is stored whole or not at all."""
_MIXED = ("additional_kwargs", "response_metadata")
"""Fields of many things. What a model reads of them is in the neutral form, which is written first."""


def written(value: Any) -> str:
    """Returns plain data as JSON that every database takes; raises MessageError for what is none.

    Dates and decimal numbers become texts.
    """
    try:
        text = json.dumps(_marked(value), ensure_ascii=False, separators=(",", ":"))
        return text if _is_sound(text) else json.dumps(_marked(value), separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        msg = f"a stored message must hold only what JSON can hold, and bytes (got {error}). Leave it out."
        raise MessageError(msg) from error


def written_own(own: Mapping[str, Any]) -> str:
    """Returns a host's own form of a message as JSON, without objects in it that no model reads.

    A tool may return any object beside its text. A run that has ended must not be lost by it: a warning says
    what is left out.
    """
    try:
        return written(own)
    except MessageError:
        fields, left_out = dict(own.get("fields", own)), list[str]()
        if not _is_writable(fields.get(_ARTIFACT)):
            left_out.append(_ARTIFACT)
            del fields[_ARTIFACT]
        for name in fields.keys() & _MIXED:
            fields[name] = dict(fields[name])
            for key in [key for key, value in fields[name].items() if not _is_writable({key: value})]:
                left_out.append(f"{name}[{key!r}]")
                del fields[name][key]
        text = written({**own, "fields": fields} if "fields" in own else fields)
    whose = f"the tool {fields['name']!r}" if fields.get("name") else "a message"
    what = " and ".join(sorted(left_out))
    msg = f"{what} of {whose} is not stored, as JSON cannot hold it. What the model reads is stored."
    warnings.warn(msg, UserWarning, stacklevel=2)
    return text


def _is_writable(value: Any) -> bool:
    try:
        written(value)
    except MessageError:
        return False
    return True


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
    return str(value) if isinstance(value, _AS_TEXT) else value


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
