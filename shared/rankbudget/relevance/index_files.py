"""The file of a saved index: a checksum, lines of JSON and numbers; nothing in it can run code."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from ..errors import EmbeddingIndexError
from ..segment import Provenance, Scope, Segment

if TYPE_CHECKING:
    from .embedding import Vectors

INDEX_FILE = "index.rankbudget"
_FORMAT = 2


def write_index(folder: Path, segments: Sequence[Segment], vectors: Vectors | None, embedding: str) -> None:
    """Writes the file beside the old one, then replaces that."""
    head = {
        "format": _FORMAT,
        "embedding": embedding,
        "count": len(segments),
        "dimension": 0 if vectors is None else int(vectors.shape[1]),
    }
    # In ASCII no character of a text is a line break, and a lone surrogate has a form.
    lines = "\n".join([json.dumps(head), *map(_line, segments), ""]).encode("ascii")
    body = lines + (b"" if vectors is None else vectors.astype("<f4").tobytes())
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=f"{INDEX_FILE}.", suffix=".part", delete=False) as part:
        part.write(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    Path(part.name).replace(folder / INDEX_FILE)


def read_index(folder: Path, embedding: str) -> tuple[list[Segment], Vectors]:
    """Returns the segments and vectors of a saved index."""
    import numpy as np

    try:
        checksum, body = (folder / INDEX_FILE).read_bytes().split(b"\n", 1)
        first, rest = body.split(b"\n", 1)
        head = json.loads(first)
        problem = "" if head["format"] == _FORMAT else f"format {_FORMAT} is read, got {head['format']!r}"
        if hashlib.sha256(body).hexdigest().encode() != checksum:
            problem = "its checksum differs"
        if problem:
            raise ValueError(problem)  # noqa: TRY301 - one message for all that is damaged
        *lines, numbers = rest.split(b"\n", head["count"])
        segments = [_segment(json.loads(line)) for line in lines]
        vectors = np.frombuffer(numbers, dtype="<f4").reshape(len(segments), head["dimension"])
        built_with = head["embedding"]
    except FileNotFoundError as error:
        msg = (
            f"there is no saved index in {str(folder)!r} (no {INDEX_FILE}); give the folder that save() wrote"
        )
        raise EmbeddingIndexError(msg) from error
    except Exception as error:
        msg = f"the index in {str(folder)!r} cannot be read ({error}); build it again"
        raise EmbeddingIndexError(msg) from error
    if built_with != embedding:
        msg = (
            f"the index in {str(folder)!r} was built with the embedding {built_with!r} "
            f"(got {embedding!r}); load it with that embedding, or build it again"
        )
        raise EmbeddingIndexError(msg)
    return segments, vectors.astype(np.float32)


def _line(segment: Segment) -> str:
    try:
        return json.dumps(_plain(segment))
    except (TypeError, ValueError) as error:
        msg = f"metadata of segment {segment.id!r} must be text, numbers, lists and mappings ({error})"
        raise EmbeddingIndexError(msg) from error


def _plain(value: Segment | Scope | Provenance) -> dict[str, Any]:
    """Returns the fields that differ from their default, without score and source."""
    found = {}
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if given == field.default or field.name in ("score", "source"):
            continue
        if isinstance(given, datetime):
            given = given.isoformat()
        elif isinstance(given, (Scope, Provenance)):
            given = _plain(given)
        found[field.name] = dict(given) if isinstance(given, Mapping) else given
    return found


def _segment(data: Mapping[str, Any]) -> Segment:
    """Returns the segment that `_plain` wrote."""
    fields = _with_moment(data)
    if "scope" in fields:
        fields["scope"] = Scope(**fields["scope"])
    if "provenance" in fields:
        fields["provenance"] = Provenance(**_with_moment(fields["provenance"]))
    return Segment(**fields)


def _with_moment(data: Mapping[str, Any]) -> dict[str, Any]:
    moment = data.get("created_at")
    return {**data, "created_at": datetime.fromisoformat(moment)} if moment else dict(data)
