"""Settings as pydantic fields: wrong ones raise, changed ones take effect, all can be pickled and copied.

Pydantic ignores a name it does not know and keeps what was worked out from an old value. For a limit both
mean a prompt that is too large.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationError, model_validator
from typing_extensions import Self, override

from rankbudget import TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetError

from ._limits import OPTIONS, HostLimits, limits_for
from ._options import check_given

__all__ = ["LimitSettings", "Settings", "SharedCopy", "typed_errors"]


class Settings(BaseModel):
    """A model whose unknown fields are errors and whose changed fields count; the first base."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        check_given(type(self).__name__, kwargs, type(self).model_fields)
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
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        check_given(type(self).__name__, {name: value}, type(self).model_fields)
        before = self.__dict__.get(name)
        super().__setattr__(name, value)
        try:
            self._prepare()
        except BaseException:
            super().__setattr__(name, before)
            raise

    @override
    def __getstate__(self) -> dict[Any, Any]:
        """Returns the fields; what is worked out from them is worked out again after unpickling."""
        return {**super().__getstate__(), "__pydantic_private__": None}

    @override
    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__({**state, "__pydantic_private__": {}})
        self._prepare()

    @override
    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        check_given(type(self).__name__, update or {}, type(self).model_fields)
        copied = super().model_copy(update=update, deep=deep)
        copied._prepare()  # noqa: SLF001 - its own kind
        return copied


class LimitSettings(Settings):
    """Settings with the limits that all classes share; see `limits_for`."""

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    context_window: int | None = None
    counter: Any = None

    _limits: HostLimits = PrivateAttr()

    @override
    def _prepare(self) -> None:
        given = {name: getattr(self, name) for name in OPTIONS if name in type(self).model_fields}
        self._limits = limits_for(**given)


class SharedCopy:
    """Deep copies share models and callbacks; only what `_own` names is copied."""

    _own: ClassVar[tuple[str, ...]]

    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        twin = memo[id(self)] = copy.copy(self)
        for name in self._own:
            twin.__dict__[name] = copy.deepcopy(self.__dict__[name], memo)
        return twin


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
        raise BudgetConfigError.of([_message(error.title, problem) for problem in found]) from error


def _message(title: str, problem: Any) -> str:
    where = ".".join(map(str, problem["loc"]))
    if problem["type"] == "missing":
        return f"{title} needs {where}="
    seen = f"{where} is {problem['input']!r:.80}: " if where else ""
    return f"{title}: {seen}{problem['msg']}"
