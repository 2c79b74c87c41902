"""Settings that are read with care: an unknown name is refused, and a change takes effect.

Pydantic drops a name it does not know and keeps what was worked out from an old value; for a limit both mean a prompt that is too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, model_validator
from typing_extensions import Self, override

from rankbudget.errors import BudgetConfigError

from ._limits import typed_errors

__all__ = ["Settings", "check_options"]


def check_options(owner: type, given: Iterable[str], allowed: Iterable[str]) -> None:
    """Raises BudgetConfigError for every given name that is not allowed, with the nearest one that is.

    Example:
        >>> check_options(dict, ["max_token"], ["max_tokens", "counter"])
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: dict has no option 'max_token'; did you mean 'max_tokens'?
    """
    known = list(allowed)
    problems = []
    for name in given:
        if name not in known and not name.startswith("_"):  # a host's own copies carry what it cached
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(known)}"
            problems.append(f"{owner.__name__} has no option {name!r}; {hint}")
    if problems:
        raise BudgetConfigError.of(problems)


class Settings(BaseModel):
    """A model whose unknown fields are errors and whose changed fields count from then on; stands first among a class's bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_options(type(self), kwargs, type(self).model_fields)
        with typed_errors():
            super().__init__(*args, **kwargs)

    @model_validator(mode="after")
    def _made(self) -> Self:
        self._settle()
        return self

    def _settle(self) -> None:
        """Checks the fields and works out what they mean together; called again after each change."""

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).model_fields:
            super().__setattr__(name, value)
            return
        before = self.__dict__.get(name)
        super().__setattr__(name, value)
        try:
            self._settle()
        except BaseException:
            super().__setattr__(name, before)
            raise

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        if update:
            check_options(type(self), update, type(self).model_fields)
        copied = super().model_copy(update=update, deep=deep)
        copied._settle()  # noqa: SLF001 - its own kind
        return copied
