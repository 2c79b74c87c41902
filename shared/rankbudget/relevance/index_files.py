"""The files of a saved embedding index: a manifest with checksums, vectors as .npy, segments as JSON lines.

The data files carry their checksum in their names and the manifest is replaced last, so a crash while saving
leaves the old index whole.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import EmbeddingIndexError
from ..segment import Provenance, Scope, Segment

if TYPE_CHECKING:
    from .embedding import Vectors

__all__ = ["MANIFEST", "read_index", "segment_from_dict", "segment_to_dict", "write_index"]

MANIFEST = "index.json"
_FORMAT = 1
_UNREADABLE = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RecursionError,
)
_OWN_FILE = re.compile(r"(vectors|segments)-[0-9a-f]{16}\.(npy|jsonl)")
_FIELDS = {"format": int, "embedding": str, "dimension": int, "count": int, "vectors": dict, "segments": dict}


def write_index(folder: Path, segments: Sequence[Segment], vectors: Vectors | None, embedding: str) -> None:
    """Writes the data files, then the manifest that makes them valid, then removes the old data files."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.save(
        buffer, vectors if vectors is not None else np.zeros((0, 0), dtype=np.float32), allow_pickle=False
    )
    # In ASCII no character of a text is a line break, and a lone surrogate has a form.
    lines = "".join([f"{json.dumps(segment_to_dict(segment))}\n" for segment in segments]).encode("ascii")
    manifest: dict[str, Any] = {
        "format": _FORMAT,
        "embedding": embedding,
        "dimension": 0 if vectors is None else int(vectors.shape[1]),
        "count": len(segments),
    }
    for part, ending, data in (("vectors", "npy", buffer.getvalue()), ("segments", "jsonl", lines)):
        checksum = hashlib.sha256(data).hexdigest()
        manifest[part] = {"file": f"{part}-{checksum[:16]}.{ending}", "sha256": checksum}
        _replace(folder / manifest[part]["file"], data)
    old = _named_files(folder)
    _replace(folder / MANIFEST, json.dumps(manifest, indent=2).encode())
    for name in old - {manifest["vectors"]["file"], manifest["segments"]["file"]}:
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def read_index(folder: Path, embedding: str) -> tuple[list[Segment], Vectors | None]:
    """Returns the segments and vectors of a saved index, checked against its manifest."""
    import numpy as np

    manifest = _manifest(folder)
    if manifest["embedding"] != embedding:
        msg = (
            f"the index in {str(folder)!r} was built with the embedding {manifest['embedding']!r} "
            f"(got {embedding!r}); load it with that embedding, or build it again"
        )
        raise EmbeddingIndexError(msg)
    data = {part: _checked(folder, manifest[part]) for part in ("vectors", "segments")}
    try:
        vectors = np.lib.format.read_array(io.BytesIO(data["vectors"]), allow_pickle=False)
        segments = [segment_from_dict(json.loads(line)) for line in data["segments"].splitlines()]
    except _UNREADABLE as error:
        msg = f"the index in {str(folder)!r} cannot be read ({error}); build it again"
        raise EmbeddingIndexError(msg) from error
    seen = (len(segments), *vectors.shape)
    allowed = (manifest["count"], manifest["count"], manifest["dimension"])
    if seen != allowed or (vectors.size and vectors.dtype != np.float32):
        msg = (
            f"the index in {str(folder)!r} holds {seen} segments, rows and columns, "
            f"its manifest says {allowed}; build it again"
        )
        raise EmbeddingIndexError(msg)
    return segments, vectors if segments else None


def segment_to_dict(segment: Segment) -> dict[str, Any]:
    """Returns the segment as plain JSON data, without score and source; empty fields are left out."""
    found = _plain(dataclasses.replace(segment, score=None, source=None))
    for name in ("scope", "provenance"):
        if getattr(segment, name) is not None:
            found[name] = _plain(getattr(segment, name))
    if segment.metadata:
        try:
            found["metadata"] = json.loads(json.dumps(dict(segment.metadata)))
        except (TypeError, ValueError) as error:
            msg = f"metadata of segment {segment.id!r} must be text, numbers, lists and mappings ({error})"
            raise EmbeddingIndexError(msg) from error
    return found


def _plain(value: Segment | Scope | Provenance) -> dict[str, Any]:
    """Returns the fields that differ from their default; moments as text."""
    found = {}
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if given != field.default and field.name != "metadata":
            found[field.name] = given.isoformat() if isinstance(given, datetime) else given
    return found


def segment_from_dict(data: Mapping[str, Any]) -> Segment:
    """Returns the segment `segment_to_dict` wrote."""
    fields = _with_moment(data)
    if not all(isinstance(fields[name], str) for name in ("id", "text")):
        msg = f"a segment's id and text must be text (got {str(data)[:80]!r})"
        raise ValueError(msg)
    if "scope" in fields:
        fields["scope"] = Scope(**fields["scope"])
    if "provenance" in fields:
        fields["provenance"] = Provenance(**_with_moment(fields["provenance"]))
    return Segment(**fields)


def _with_moment(data: Mapping[str, Any]) -> dict[str, Any]:
    moment = data.get("created_at")
    return {**data, "created_at": datetime.fromisoformat(moment)} if moment else dict(data)


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    manifest: dict[str, Any]
    try:
        manifest = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        msg = f"there is no saved index in {str(folder)!r} (no {MANIFEST}); give the folder that save() wrote"
        raise EmbeddingIndexError(msg) from error
    except (OSError, *_UNREADABLE) as error:
        msg = f"{str(path)!r} cannot be read ({error}); build the index again"
        raise EmbeddingIndexError(msg) from error
    known = isinstance(manifest, dict)
    if not known or not all(isinstance(manifest.get(name), kind) for name, kind in _FIELDS.items()):
        msg = f"{str(path)!r} is not the manifest of an index; it needs {', '.join(_FIELDS)}"
        raise EmbeddingIndexError(msg)
    if manifest["format"] != _FORMAT:
        has = manifest["format"]
        msg = f"the format of the index in {str(folder)!r} must be {_FORMAT} (got {has}); build it again"
        raise EmbeddingIndexError(msg)
    return manifest


def _checked(folder: Path, part: Mapping[str, Any]) -> bytes:
    name = str(part.get("file", ""))
    if not _OWN_FILE.fullmatch(name):
        msg = f"the manifest in {str(folder)!r} must name files that save() wrote (got {name!r})"
        raise EmbeddingIndexError(msg)
    try:
        data = (folder / name).read_bytes()
    except OSError as error:
        msg = f"{name!r} of the index in {str(folder)!r} cannot be read ({error}); build the index again"
        raise EmbeddingIndexError(msg) from error
    if hashlib.sha256(data).hexdigest() != part.get("sha256"):
        msg = f"{name!r} of the index in {str(folder)!r} is damaged (checksum); build the index again"
        raise EmbeddingIndexError(msg)
    return data


def _named_files(folder: Path) -> set[str]:
    """Returns the data files of the index that a folder holds; others in it are never removed."""
    try:
        manifest = _manifest(folder)
    except EmbeddingIndexError:
        return set()
    names = {str(manifest[part].get("file", "")) for part in ("vectors", "segments")}
    return {name for name in names if _OWN_FILE.fullmatch(name)}


def _replace(path: Path, data: bytes) -> None:
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(data)
    part.replace(path)
