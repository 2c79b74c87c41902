"""From what a user has at hand to a counter: a name, a folder, an object, a callable, a client."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, misspelt, named_options, shown
from .base import CallableCounter, TextCounter
from .media import MediaTable, media_for
from .models import encoding_for, is_known, near_models, similar_to
from .protocol import TokenCounter
from .provider import ProviderCounter
from .tiktoken_counter import TiktokenCounter
from .vocabulary import ENCODINGS, VocabularyMissingError

_log = logging.getLogger("rankbudget.counting")
_lock = threading.RLock()
COUNTERS: dict[str, TokenCounter] = {}
"""What `counter_for` gave for each name: a counter is pickled as its name."""
_by_object: OrderedDict[int, tuple[Any, TokenCounter]] = OrderedDict()
"""The object is kept, so that its id is not reused."""
_MAX_NAMES = 256
_MAX_OBJECTS = 16
_FAST = "+fast"
_HARMONY = "o200k_harmony"
# gpt-oss's format adds a system message (61 tokens, 15 more with tools) and the channel of each message.
_HARMONY_FRAMING: dict[str, Any] = {
    "exact": False,
    "why": "tiktoken's o200k_harmony; the framing of gpt-oss is estimated, rather too high",
    "request_start": 78,
    "message_start": 9,
}
_ALLOWED = (
    "a model's name ('gpt-4o'), an encoding ('o200k_base'), a tokenizer, a callable from text to int, "
    "or a TokenCounter"
)


@named_options
def counter_for(
    spec: Any = "o200k_base", *, media: MediaTable | None = None, fast: bool = False, model: str | None = None
) -> TokenCounter:
    """Returns the counter for a model, an encoding, a tokenizer or a callable; always the same one.

    Args:
        spec: a model's name ("gpt-4o"), an encoding ("o200k_base"), a tokenizer's folder or object,
            "estimate", a callable from text to int, a provider's client, or a counter, which comes back.
        media: what images, audio, files and videos cost; None takes the model's own table.
        fast: count with fastokens, which starts slowly and counts faster; the same as the suffix in
            "gpt-4o+fast".
        model: the model a provider's client counts for.

    Raises:
        CounterUnavailableError: when what it needs is not installed or cannot be found.
        BudgetConfigError: when `spec` is none of these.

    Example:
        >>> counter_for("gpt-4o").count("Hello, world!")
        4
        >>> counter_for(lambda text: len(text)).count("four")
        4
    """
    if isinstance(spec, str):
        name = spec + _FAST if fast and not spec.endswith(_FAST) else spec
        if media is not None:
            return _from_name(name, media)
        return COUNTERS[name] if name in COUNTERS else _remembered_name(name)
    # Asking a protocol is slow, so the class comes first.
    if isinstance(spec, TextCounter) or (isinstance(spec, TokenCounter) and not isinstance(spec, type)):
        return spec
    if model is not None:
        return ProviderCounter(spec, model, local=counter_for(model, media=media))
    return _remembered_object(spec)


def files_of(spec: Any) -> list[Path]:
    """Returns the files of the tokenizer that `spec` means to `counter_for`, or that its counter is of."""
    given = os.fspath(spec) if isinstance(spec, PathLike) else getattr(spec, "name", spec)
    place = _tokenizer_folder(given.strip().removesuffix(_FAST)) if isinstance(given, str) else None
    if place is None:
        return []
    from .huggingface import read_files

    return read_files(place)


def _reduce(counter: TextCounter) -> tuple[Any, ...]:
    """Returns how a counter is pickled: as its name."""
    if COUNTERS.get(counter.name) is not counter:
        msg = (
            f"{counter!r} cannot be pickled: counter_for({counter.name!r}) gives another counter. "
            "Pickle its name or what it was made from."
        )
        raise TypeError(msg)
    return counter_for, (counter.name,)


def _made(cls: type[Any], *args: Any, **options: Any) -> Any:
    """Returns the counter for the arguments of a call of the protocol; a class built on it makes its own."""
    return counter_for(*args, **options) if cls is TokenCounter else super(TokenCounter, cls).__new__(cls)


TokenCounter.__new__ = staticmethod(_made)  # type: ignore[method-assign]  # the protocol imports nothing
TextCounter.__reduce__ = _reduce  # type: ignore[assignment,method-assign]  # only this module knows names


def _remembered_name(name: str) -> TokenCounter:
    with _lock:
        if name not in COUNTERS:
            if len(COUNTERS) >= _MAX_NAMES:
                COUNTERS.clear()
            COUNTERS[name] = _from_name(name)
        return COUNTERS[name]


def _remembered_object(spec: Any) -> TokenCounter:
    made = _by_object.get(id(spec)) or (spec, _from_object(spec))
    with _lock:
        made = _by_object.setdefault(id(spec), made)
        _by_object.move_to_end(id(spec))
        while len(_by_object) > _MAX_OBJECTS:
            _by_object.popitem(last=False)
    return made[1]


def _from_name(name: str, media: MediaTable | None = None) -> TokenCounter:
    plain = name.strip().removesuffix(_FAST)
    meant = misspelt(plain, ("estimate", *ENCODINGS))
    if meant or not plain:
        hint = f"; did you mean {meant!r}?" if meant else ". Give one of these."
        msg = f"counter must be {_ALLOWED} (got {name!r}){hint}"
        raise BudgetConfigError(msg)
    if plain == "estimate":
        return _estimated(plain, "an estimate was asked for", media)
    encoding = plain if plain in ENCODINGS else encoding_for(plain)
    folder = _tokenizer_folder(plain) if encoding is None else None
    if folder is not None:
        from .huggingface import from_folder

        return from_folder(folder, name=plain, media=media)
    media = media or media_for(plain)
    try:
        if encoding is None:
            return _similar(plain, media)
        if encoding == _HARMONY != plain:
            return TiktokenCounter(encoding, name=plain, media=media, **_HARMONY_FRAMING)
        fast = name.strip().endswith(_FAST)
        return TiktokenCounter(encoding, name=plain + _FAST if fast else plain, fast=fast, media=media)
    except VocabularyMissingError as error:
        _log.warning("tokens of %r are estimated: %s", plain, error)
        return _estimated(plain, str(error), media)


def _estimated(name: str, why: str, media: MediaTable | None) -> TokenCounter:
    from .estimate import EstimateCounter  # reads a list of words, which exact counts do not need

    return EstimateCounter(name=name, why=why, media=media)


def _similar(name: str, media: MediaTable) -> TokenCounter:
    """Returns a counter with another model's vocabulary, and logs it."""
    from .estimate import SimilarCounter

    encoding, band = similar_to(name)
    how = f"counted with {encoding} and an estimate, up to {band:.0%} too low"
    why = f"the tokenizer of {name!r} is not known here; {how}"
    counter = SimilarCounter(encoding, name=name, exact=False, why=why, band=band, media=media)
    hint = "." if is_known(name) else near_models(name) or "."
    _log.warning("%s%s Give a tokenizer to count exactly.", why, hint)
    return counter


def _tokenizer_folder(name: str) -> Path | None:
    """Returns the folder or file that a name means: its own, or in this machine's Hugging Face cache."""
    try:
        place = Path(name).expanduser()
        if place.is_dir() or (place.suffix == ".json" and place.is_file()):
            return place
    except (OSError, ValueError, RuntimeError):  # not a path
        return None
    if name.startswith((".", "/", "~")):
        msg = f"a tokenizer's folder or .json file must exist (got {name!r})."
        raise BudgetConfigError(msg)
    from .huggingface import cached_folder

    return cached_folder(name)


def _from_object(spec: Any) -> TokenCounter:
    from .huggingface import from_tokenizer

    if type(spec).__module__.partition(".")[0] == "tiktoken":
        import tiktoken.registry

        name = str(spec.name)
        if tiktoken.registry.ENCODINGS.get(name) is spec:
            return counter_for(name)  # which can be written as plain data, by its name
        return TiktokenCounter(spec)
    if callable(getattr(spec, "encode", None)) and not isinstance(spec, type):
        return from_tokenizer(spec)
    if isinstance(spec, PathLike):
        return counter_for(os.fspath(spec))
    if callable(spec):
        return CallableCounter(spec)
    msg = f"counter must be {_ALLOWED} (got {shown(spec)}). Give one of these."
    raise BudgetConfigError(msg)
