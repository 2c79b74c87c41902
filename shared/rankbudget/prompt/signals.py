"""What a host's metadata says about a text, as fields of a `Segment`: the same keys in every adapter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timezone
from numbers import Real
from typing import Any

from ..segment import Provenance

_SCORES = ("relevance_score", "score")
_SOURCES = ("source", "file_name")


def segment_signals(metadata: Mapping[str, Any], *, name: str = "") -> dict[str, Any]:
    """Returns the fields of a `Segment` that metadata fills; what is unknown or unreadable is left out.

    Read are `relevance_score` or `score` (higher is better), `priority` (0 to 100), `created_at` (a datetime,
    ISO text or seconds since 1970), `confidence` (0 to 1), `title`, `kind`, `label`, and `source` or
    `file_name`.

    Args:
        metadata: what the host keeps beside a text.
        name: names the source where only its confidence is known.

    Example:
        >>> segment_signals({"relevance_score": 0.8, "title": "Refunds", "confidence": "high"})
        {'score': 0.8, 'title': 'Refunds'}
    """
    if not metadata:
        return {}
    score = next((s for s in (_number(metadata.get(key)) for key in _SCORES) if s is not None), None)
    found: dict[str, Any] = {
        "score": score,
        "priority": _number(metadata.get("priority"), 0, 100),
        "created_at": _time(metadata.get("created_at")),
        "provenance": _provenance(metadata, name, score),
        **{key: _word(metadata.get(key)) for key in ("title", "kind", "label")},
    }
    return {key: value for key, value in found.items() if value is not None}


def _provenance(metadata: Mapping[str, Any], name: str, score: float | None) -> Provenance | None:
    source = next((str(metadata[key]) for key in _SOURCES if metadata.get(key)), "")
    confidence = _number(metadata.get("confidence"), 0, 1)
    if not source and (confidence is None or not name):
        return None
    return Provenance(
        source_id=source or name,
        confidence=confidence,
        created_at=_time(metadata.get("created_at")),
        retrieval_score=score,
    )


def _number(value: Any, low: float = -math.inf, high: float = math.inf) -> float | None:
    """Returns a finite number of any library's within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer that is larger than any float
        return None
    return number if math.isfinite(number) and low <= number <= high else None


def _time(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif _number(value) is not None:
            value = datetime.fromtimestamp(float(value), timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return value if isinstance(value, datetime) else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
