"""From what a user has at hand to a counter: a model's name, an encoding, a tokenizer, a callable.

A name is looked for in this order: exact (a tokenizer that is there), similar (another vocabulary, with a band), estimate (no vocabulary at
all). Whatever is not exact says so once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, CounterUnavailableError
from .base import TextCounter
from .media import MediaTable, media_for
from .models import encoding_for, similar_to
from .protocol import TokenCounter
from .vocabulary import ENCODINGS, VocabularyMissingError

__all__ = ["counter_for"]

_log = logging.getLogger("rankbudget.counting")
_lock = threading.RLock()
_by_name: dict[str, TokenCounter] = {}
_by_object: OrderedDict[int, tuple[Any, TokenCounter]] = (
    OrderedDict()
)  # holds the object, so that its id stays its own
_MAX_NAMES = 256
_MAX_OBJECTS = 16
_ESTIMATE = "estimate"
FAST = "+fast"


def counter_for(
    spec: Any = "o200k_base", *, media: MediaTable | None = None, fast: bool = False, model: str | None = None
) -> TokenCounter:
    """Returns the counter for a model, an encoding, a tokenizer or a callable; the same counter for the same argument.

    Args:
        spec: a model's name ("gpt-4o"), an encoding ("o200k_base"), a tokenizer's folder or object, "estimate", a callable from text to
            int, a provider's client, or a counter, which comes back.
        media: what images, audio, files and videos cost; None takes the model's own table.
        fast: count with fastokens, which starts slowly and counts faster; the same as the suffix in "gpt-4o+fast".
        model: the model a provider's client counts for.

    Raises:
        CounterUnavailableError: when what it needs is not installed or not there.
        BudgetConfigError: when `spec` is none of these.

    Example:
        >>> counter_for("gpt-4o").count("Hello, world!")
        4
        >>> counter_for(lambda text: len(text)).count("four")
        4
        >>> counter_for("gpt-4o") is counter_for("gpt-4o")
        True
    """
    if isinstance(spec, str):
        if fast and not spec.endswith(FAST):
            spec += FAST
        if media is not None:
            return _from_name(spec, media)
        found = _by_name.get(spec)
        if found is not None:
            return found
        with _lock:
            if spec not in _by_name:
                if len(_by_name) >= _MAX_NAMES:
                    _by_name.clear()
                _by_name[spec] = _from_name(spec)
            return _by_name[spec]
    if isinstance(spec, TextCounter) or (
        isinstance(spec, TokenCounter) and not isinstance(spec, type)
    ):  # asking a protocol takes long
        return spec
    if model is not None:
        from .provider import ProviderCounter

        return ProviderCounter(spec, model, local=counter_for(model, media=media))
    return _from_object(spec)


def named(name: str) -> TokenCounter | None:
    """Returns the counter that `counter_for(name)` gave, None when nobody asked for it."""
    return _by_name.get(name)


def _from_name(name: str, media: MediaTable | None = None) -> TokenCounter:
    plain = name.strip()
    fast = plain.endswith(FAST)
    plain = plain.removesuffix(FAST)
    if not plain:
        msg = "the counter's name is empty; allowed: a model ('gpt-4o'), an encoding ('o200k_base'), a tokenizer, a callable"
        raise BudgetConfigError(msg)
    if plain == _ESTIMATE:
        from .estimate import EstimateCounter

        return EstimateCounter(why="an estimate was asked for", media=media)
    encoding = plain if plain in ENCODINGS else encoding_for(plain)
    if encoding is None:
        folder = _tokenizer_folder(plain)
        if folder is None:
            return _similar(plain, media)
        from .huggingface import from_folder

        return from_folder(folder, name=plain, media=media)
    from .tiktoken_counter import TiktokenCounter

    media = media or media_for(plain)
    try:
        if fast:
            from .fast import FastCounter

            return FastCounter(encoding, name=name, media=media)
        return TiktokenCounter(encoding, name=plain, media=media)
    except VocabularyMissingError as error:
        return _estimate(plain, str(error), media)


def _tokenizer_folder(name: str) -> Path | None:
    """Returns the folder or file a name stands for: a path, or a model that Hugging Face's cache on this machine has."""
    try:
        place = Path(name).expanduser()
        if (place / "tokenizer.json").is_file() or (place.suffix == ".json" and place.is_file()):
            return place
        folder = place.is_dir()
    except (OSError, ValueError, RuntimeError):  # no path at all
        return None
    if folder:
        msg = f"the folder {name!r} has no tokenizer.json; save one there with tokenizer.save_pretrained({name!r})"
        raise CounterUnavailableError(msg)
    from .huggingface import cached_folder

    return cached_folder(name)


def _similar(name: str, media: MediaTable | None) -> TokenCounter:
    """Returns a counter with another model's vocabulary, and says so once."""
    from .similar import SimilarCounter

    similar = similar_to(name)
    why = f"the tokenizer of {name!r} is not known here; counted with {similar.encoding} and an estimate, up to {similar.band:.0%} too low"
    try:
        counter = SimilarCounter(
            similar.encoding, name=name, why=why, band=similar.band, media=media or media_for(name)
        )
    except VocabularyMissingError as error:
        return _estimate(name, str(error), media or media_for(name))
    _log.warning("%s. Give a tokenizer to count exactly.", why)
    return counter


def _estimate(name: str, reason: str, media: MediaTable) -> TokenCounter:
    """Returns an estimate, and says so once."""
    from .estimate import EstimateCounter

    _log.warning("tokens of %r are estimated: %s", name, reason)
    return EstimateCounter(name=name, why=reason, media=media)


def _from_object(spec: Any) -> TokenCounter:
    with _lock:
        held = _by_object.get(id(spec))
        if held is not None and held[0] is spec:
            _by_object.move_to_end(id(spec))
            return held[1]
    counter = _new_from_object(spec)
    with _lock:
        _by_object[id(spec)] = (spec, counter)
        while len(_by_object) > _MAX_OBJECTS:
            _by_object.popitem(last=False)
    return counter


def _new_from_object(spec: Any) -> TokenCounter:
    if type(spec).__module__.partition(".")[0] == "tiktoken":
        from .tiktoken_counter import TiktokenCounter

        return TiktokenCounter(spec)
    from .huggingface import from_tokenizer, is_tokenizer

    if is_tokenizer(spec):
        return from_tokenizer(spec)
    if isinstance(spec, PathLike):
        return counter_for(os.fspath(spec))
    if callable(spec):
        from .callables import CallableCounter

        return CallableCounter(spec)
    msg = (
        f"no counter for a {type(spec).__name__}: {spec!r:.80}; allowed: a model's name ('gpt-4o'), an encoding ('o200k_base'), "
        "a tokenizer, a callable from text to int, or a TokenCounter"
    )
    raise BudgetConfigError(msg)
