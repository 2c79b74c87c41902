"""Errors of pydantic models as the library's own, in every class of the adapters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from ..errors import BudgetConfigError, BudgetError, shown

__all__ = ["typed_errors"]


@contextmanager
def typed_errors() -> Iterator[None]:
    """Makes pydantic's errors one BudgetConfigError that names each option.

    Example:
        >>> from pydantic import BaseModel
        >>> class Room(BaseModel):
        ...     windows: int
        >>> with typed_errors():
        ...     Room(windows="many")
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: Room: windows must be valid (got 'many'). Input should be ...
    """
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
