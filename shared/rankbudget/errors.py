"""Errors, and the checks of values; a message has the form "X must be Z (got Y). What to do."."""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from numbers import Integral, Real
from os import PathLike
from reprlib import Repr
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_repr = Repr()
_repr.maxstring = _repr.maxother = 80
_repr.maxdict = _repr.maxlist = 8
_repr.maxlevel = 2
_LONGEST = 200


class BudgetError(ValueError):
    """Base of all errors of this library."""


class BudgetConfigError(BudgetError):
    """Says what is wrong with a configuration; lists every problem at once.

    Example:
        >>> str(BudgetConfigError.of(["reserve must be 0 or more (got -1)", "give one of both"]))
        'reserve must be 0 or more (got -1); give one of both'
    """

    @classmethod
    def of(cls, problems: Iterable[str]) -> BudgetConfigError:
        """Returns one error that carries all `problems`."""
        return cls("; ".join(problems))


class BudgetExceededError(BudgetError):
    """Says that what must stay needs more tokens than there are, and where they are.

    Args:
        message: what was seen and what to change.
        limit: tokens allowed.
        needed: tokens that must stay.
        blocks: tokens that must stay, by block name.
    """

    def __init__(
        self, message: str, *, limit: int = 0, needed: int = 0, blocks: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.limit = limit
        self.needed = needed
        self.blocks = dict(blocks or {})


def too_large(parts: Mapping[str, int], limit: int, advice: str) -> BudgetExceededError:
    """Returns the error for what must stay and exceeds the limit: its tokens by part, and what to do."""
    needed = sum(parts.values())
    listed = ", ".join(f"{name} {tokens:,}" for name, tokens in parts.items() if tokens)
    msg = f"what must stay needs {needed:,} tokens ({listed}), the limit is {limit:,}. {advice}"
    return BudgetExceededError(msg, limit=limit, needed=needed, blocks=parts)


class CounterUnavailableError(BudgetError, ImportError):
    """Says which tokenizer, context window or optional library is missing and how to get it."""


class EmbeddingIndexError(BudgetError):
    """Says why a saved embedding index cannot be used."""


class MessageError(BudgetError):
    """Says which message cannot be read, or which repair `strict=True` forbids."""


class RowError(BudgetError):
    """Says which row of a batch cannot be read or fitted, and why."""


class StoreError(BudgetError):
    """Says why a database of memories or histories cannot be read or written, and what to do."""


class StoreConflictError(StoreError):
    """Says that somebody else changed what was to be replaced; read it again."""


class StoreUnsupportedError(StoreError):
    """Says which promise a store's backend cannot keep."""


class SummaryError(BudgetError):
    """Says how a summarizer failed; what it was given is still where it was."""


def shown(value: object) -> str:
    """Returns a short `repr` for messages, however large or deep the value is."""
    text = _repr.repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "..."


def counted(number: int, what: str) -> str:
    """Returns a number with its noun, as "1 piece" or "2,000 pieces"; `what` is the singular."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


# A check adds what is wrong with a value to `problems`, so that one error can name all of it, and returns the
# value in its plain form.


def check_number(
    name: str, value: Any, problems: list[str], *, allowed: str, high: float = math.inf, above: bool = False
) -> float:
    """Returns a finite number from 0 (above 0 when `above`) to `high`; `allowed` says so in words."""
    number = math.nan
    if not isinstance(value, (bool, str, bytes)) and hasattr(value, "__float__"):
        with suppress(OverflowError, TypeError, ValueError):
            number = float(value)
    if not math.isfinite(number) or not 0 <= number <= high or (above and number == 0):
        problems.append(f"{name} must be {allowed} (got {shown(value)})")
    return int(number) if number > 1 and number.is_integer() else number


def check_flag(name: str, value: Any, problems: list[str]) -> bool:
    """Returns True or False; anything else is a problem."""
    if not isinstance(value, bool):
        problems.append(f"{name} must be True or False (got {shown(value)})")
    return bool(value)


def check_count(name: str, value: Any, problems: list[str], *, low: int = 0, instead: str = "") -> int:
    """Returns a whole number of at least `low`; a float, a bool or a text is a problem."""
    try:
        count = operator.index(value)
    except TypeError:
        count = low - 1
    if isinstance(value, bool) or count < low:
        problems.append(f"{name} must be a whole number from {low}{instead} (got {shown(value)})")
    return count


def check_list(name: str, value: Any, of: str) -> None:
    """Raises BudgetConfigError for one text or mapping, or a single value, where a list is meant."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping)):
        msg = f"{name} must be a list of {of} (got {shown(value)}). Put a single one into a list."
        raise BudgetConfigError(msg)


def check_place(place: Any) -> None:
    """Raises BudgetConfigError for what is no place in a list; places below 0 count from its end."""
    if not hasattr(place, "__index__"):
        msg = f"place must be a whole number (got {shown(place)})"
        raise BudgetConfigError(msg)


def refuse(problems: list[str]) -> None:
    """Raises one BudgetConfigError that names all problems, if there are any."""
    if problems:
        raise BudgetConfigError.of(problems)


def check_choice(name: str, value: Any, problems: list[str], allowed: tuple[str | None, ...]) -> Any:
    """Returns one of the allowed words."""
    if not (value is None or isinstance(value, str)) or value not in allowed:
        words = ", ".join(map(repr, allowed))
        hint = did_you_mean(value, [word for word in allowed if word])
        problems.append(f"{name} must be one of {words} (got {shown(value)}){hint}")
    return value


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Returns "; did you mean 'x'?" with the known name nearest to `name`, or "" when none is near."""
    near = get_close_matches(name.lower(), list(known), n=1) if isinstance(name, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""


def misspelt(name: str, known: Collection[str]) -> str:
    """Returns the known name of which `name` is surely a misspelling, or ""."""
    if name in known:
        return ""
    for word in get_close_matches(name, known, n=1, cutoff=0.7):
        is_variant = name.rstrip("s_-0123456789") == word.rstrip("s")
        is_near = sorted(name) == sorted(word) or bool(get_close_matches(name, [word], cutoff=0.85))
        if is_near and not is_variant:
            return word
    return ""


_SAME = {"model": "counter"}
"""Options under names that other functions have for them."""
_READ_BY = {"langchain_core": "langchain_budget", "llama_index": "llamaindex_budget"}


def adapter_hint(value: object) -> str:
    """Returns " langchain_budget takes it." for an object of LangChain's, "" for one of no framework."""
    package = _READ_BY.get(type(value).__module__.split(".", maxsplit=1)[0])
    return f" {package} takes it." if package else ""


def check_options(owner: str, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Raises BudgetConfigError for the options that do not exist, with the nearest name that does."""
    known = list(allowed)
    unknown = [name for name in given if name not in known]
    if unknown:
        listed = f"; allowed: {', '.join(known)}"
        raise BudgetConfigError.of(
            f"{owner} has no option {name!r}{did_you_mean(_SAME.get(name, name), known) or listed}"
            for name in unknown
        )


def named_options(function: F, *, kinds_too: bool = True) -> F:
    """Makes a call with unknown, missing or wrongly typed options a BudgetConfigError that names them.

    Numbers are left to the function, which knows their ranges, until it fails.
    """

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        stated = _stated(function) if kinds_too else {}
        refuse(_wrong(stated, (*zip(stated, args, strict=False), *options.items())))
        try:
            return function(*args, **options)
        except TypeError as error:
            check_call(function, args, options, error)
            raise

    return cast("F", call)


def named_only(function: F) -> F:
    """Does as `named_options` for a function that checks the kinds itself, to say more of them."""
    return named_options(function, kinds_too=False)


_PLAIN: dict[str, tuple[Any, str]] = {
    "str": (str, "a text"), "bool": (bool, "True or False"), "None": (type(None), "None"),
    "PathLike[str]": (PathLike, "a path"),
}  # fmt: skip
_NUMBERS: dict[str, tuple[Any, str]] = {"int": (Integral, "a whole number"), "float": (Real, "a number")}


def _wrong(stated: Mapping[str, Any], given: Iterable[tuple[str, Any]]) -> list[str]:
    """Returns what is wrong with the kinds of the values given."""
    known = [(name, value, *stated.get(name, ((), ""))) for name, value in given]
    return [
        f"{name} must be {words} (got {shown(value)})"
        for name, value, kinds, words in known
        if kinds and not isinstance(value, kinds)
    ]


@functools.cache
def _stated(function: Any, *, numbers: bool = False) -> dict[str, tuple[tuple[Any, ...], str]]:
    """Returns the kinds of a function's parameters, in order; no kinds where one is no plain class."""
    known = {**_PLAIN, **(_NUMBERS if numbers else {})}
    for name, held in function.__globals__.items():
        if inspect.isclass(held) and not getattr(held, "_is_protocol", hasattr(held, "__total__")):
            known.setdefault(name, (held, f"a {name}"))
    found = {}
    for name, one in inspect.signature(function).parameters.items():
        kinds = [known.get(word, (object, "")) for word in str(one.annotation).split(" | ")]
        any_kind = any(kind in (object, Any) for kind, _ in kinds)
        found[name] = tuple(kind for kind, _ in kinds if not any_kind), " or ".join(w for _, w in kinds)
    return found


@contextmanager
def named_file(path: object) -> Iterator[None]:
    """Adds the file's name to an error of the system that has none, as that of a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


@contextmanager
def named_failure(what: str, kind: type[BudgetError] = BudgetError) -> Iterator[None]:
    """Makes a failure of a function from outside an error that names it; errors of this library pass."""
    try:
        yield
    except BudgetError:
        raise
    except Exception as error:
        msg = f"{what} must not raise (got {type(error).__name__}: {error})"
        raise kind(msg) from error


def named_fields(cls: type[T]) -> type[T]:
    """Makes a dataclass built with unknown or missing fields a BudgetConfigError, see `named_options`."""
    setattr(cls, "__init__", named_only(cls.__init__))  # noqa: B010 - mypy refuses the plain form
    return cls


def check_call(
    function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], error: TypeError
) -> None:
    """Raises BudgetConfigError when Python refused the arguments; else the function itself failed."""
    signature = inspect.signature(function)
    owner = function.__qualname__.removesuffix(".__init__")
    try:
        given = signature.bind(*args, **options).arguments
    except TypeError as refused:
        names = [name for name in signature.parameters if name not in {"self", "cls"}]
        check_options(owner, options, names)
        msg = f"{owner} must be called as {owner}({', '.join(names)}), by name (got: {refused})."
        raise BudgetConfigError(msg) from error
    refuse(_wrong(_stated(function, numbers=True), given.items()))
