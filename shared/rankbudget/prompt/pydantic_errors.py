"""Errors of pydantic as errors of this project; a check of options needs nothing of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from ..errors import BudgetConfigError, BudgetError, check_options, shown


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


class TypedModel(BaseModel):
    """Settings whose misspelt names and wrong values are a BudgetConfigError."""

    if not TYPE_CHECKING:  # type checkers know the fields by name

        def __init__(self, **fields: Any) -> None:
            check_options(type(self).__name__, fields, type(self).model_fields)
            with typed_errors():
                super().__init__(**fields)


def _described(title: str, problem: Any) -> str:
    option = ".".join(map(str, problem["loc"]))
    if not option:
        return f"{title}: {problem['msg']}"
    if problem["type"] == "missing":
        return f"{title} needs {option}="
    return f"{title}: {option} must be valid (got {shown(problem['input'])}). {problem['msg']}"
