"""Unknown options and wrong values as one typed error, in every class and function of the adapters."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from ..errors import BudgetConfigError, BudgetError, check_options, shown

__all__ = ["named_options", "typed_errors"]

F = TypeVar("F", bound=Callable[..., Any])


def named_options(function: F) -> F:
    """Makes a misspelt option of a function or a constructor a BudgetConfigError with the nearest name."""
    owner = function.__qualname__.removesuffix(".__init__")
    allowed = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        check_options(owner, kwargs, allowed)
        return function(*args, **kwargs)

    return cast("F", checked)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Makes pydantic's errors a BudgetConfigError that names each option."""
    try:
        yield
    except ValidationError as error:
        problems = error.errors()
        for problem in problems:
            cause = problem.get("ctx", {}).get("error")
            if isinstance(cause, BudgetError):
                raise cause from None
        raise BudgetConfigError.of([_described(error.title, problem) for problem in problems]) from error


def _described(title: str, problem: Any) -> str:
    option = ".".join(map(str, problem["loc"]))
    if not option:
        return f"{title}: {problem['msg']}"
    if problem["type"] == "missing":
        return f"{title} needs {option}="
    return f"{title}: {option} must be valid (got {shown(problem['input'])}). {problem['msg']}"
