"""Settings that are read with care, and that travel: an unknown name is refused, a change takes effect.

Pydantic drops a name it does not know and keeps what was worked out from an old value; for a limit both mean
a prompt that is too large.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError, model_validator
from typing_extensions import Self, override

from rankbudget.adapters import Limits
from rankbudget.adapters import check_options as check_names
from rankbudget.errors import BudgetConfigError, BudgetError

from ._counters import model_name

__all__ = ["Settings", "check_options", "named_options", "plain_fields", "travels", "typed_errors"]

F = TypeVar("F", bound=Callable[..., Any])
_CALLABLES = ("counter", "summarizer", "scorer")


class Settings(BaseModel):
    """A model whose unknown fields are errors and whose changed fields count; the first base."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_options(type(self), kwargs, type(self).model_fields)
        with typed_errors():
            super().__init__(*args, **kwargs)

    @model_validator(mode="after")
    def _made(self) -> Self:
        self._prepare()
        return self

    def _prepare(self) -> None:
        """Checks the fields and works out what they mean together; called again after each change."""

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).model_fields:
            super().__setattr__(name, value)
            return
        before = self.__dict__.get(name)
        super().__setattr__(name, value)
        try:
            self._prepare()
        except BaseException:
            super().__setattr__(name, before)
            raise

    @override
    def __getstate__(self) -> dict[Any, Any]:
        """Returns the fields; what is worked out from them is worked out again where they arrive."""
        return {**super().__getstate__(), "__pydantic_private__": None}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__({**state, "__pydantic_private__": {}})
        self._prepare()

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        if update:
            check_options(type(self), update, type(self).model_fields)
        copied = super().model_copy(update=update, deep=deep)
        copied._prepare()  # noqa: SLF001 - its own kind
        return copied


def check_options(owner: type, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Raises BudgetConfigError for options that do not exist; `_` names are the host's."""
    check_names(owner.__name__, [name for name in given if not name.startswith("_")], allowed)


def named_options(function: F) -> F:
    """Makes a misspelt option of a function or a constructor a typed error that names the nearest one."""
    owner = function.__qualname__.removesuffix(".__init__")
    allowed = [name for name in inspect.signature(function).parameters if name != "self"]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_names(owner, kwargs, allowed)
        return function(*args, **kwargs)

    return cast("F", checked)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Makes errors of pydantic's a BudgetConfigError that names the option."""
    try:
        yield
    except ValidationError as error:
        found = error.errors()
        for problem in found:
            cause = problem.get("ctx", {}).get("error")
            if isinstance(cause, BudgetError):
                raise cause from None
        raise BudgetConfigError.of([_said(error.title, problem) for problem in found]) from error


def plain_fields(part: Any, limits: Limits) -> dict[str, Any]:
    """Returns the fields that are plain data on the wire: budget, model's name, tool schemas."""
    plain: dict[str, Any] = {}
    if part.budget is not None or part.model is not None:
        plain["budget"] = limits.budget.to_dict()
        plain["context_window"] = None
    if part.model is not None:
        plain["model"] = model_name(part.model)
    if limits.tools:
        plain["tools"] = list(limits.tools)
    return plain


def travels(part: Any) -> bool:
    """Says whether a part can be sent: a callable of the user's would not arrive."""
    given = [getattr(part, name) for name in _CALLABLES]
    return not any(callable(value) and not hasattr(value, "to_json") for value in given)


def _said(title: str, problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{title} needs {where}="
    seen = f"{where} is {problem['input']!r:.80}: " if where else ""
    return f"{title}: {seen}{problem['msg']}"
