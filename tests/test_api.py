"""The public signatures, spelled out in `tests/api_snapshot.txt`: one line for each name and each method.

A line has the names, kinds and order of the parameters, and `=...` where there is a default. Annotations are
left out, because Python and the frameworks print them differently from version to version. What a host's
class brings along is left out, too. `docs/stability.md` says what the lines promise.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SNAPSHOT = ROOT / "tests" / "api_snapshot.txt"
COMMAND = ".venv/bin/python tests/test_api.py"
PACKAGES = ("rankbudget", "rankbudget.batch", "langchain_budget", "llamaindex_budget")
OURS = {package.split(".", maxsplit=1)[0] for package in PACKAGES}


class Default:
    """Any default value."""

    def __repr__(self) -> str:
        return "..."


def api() -> Iterator[str]:
    """One line for each public name, method, property and field."""
    page = (ROOT / "docs" / "reference" / "memory.md").read_text(encoding="utf-8")
    of_memory = re.findall(r"^::: rankbudget\.memory\.(\w+)$", page, re.MULTILINE)
    for package in (*PACKAGES, "rankbudget.memory"):
        module = importlib.import_module(package)
        for name in sorted(of_memory if package == "rankbudget.memory" else module.__all__):
            yield from lines_of(f"{package}.{name}", getattr(module, name))


def lines_of(place: str, thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing):
        yield place + parameters(thing)
        return
    yield place + constructor(thing)
    for field in fields(thing):
        yield f"{place}.{field}"
    for name in sorted({name for home in homes(thing) for name in vars(home)}):
        value = inspect.getattr_static(thing, name)
        function = function_of(value)
        if function is not None and (name == "__call__" or not name.startswith("_")):
            is_property = not isinstance(value, FunctionType | classmethod | staticmethod)
            yield f"{place}.{name}" + ("" if is_property else parameters(function))


def homes(cls: type) -> list[type]:
    """The class and its bases that are written here; pydantic makes more, with brackets in the name."""
    return [
        b for b in cls.__mro__ if b.__module__.split(".", maxsplit=1)[0] in OURS and "[" not in b.__name__
    ]


def function_of(value: Any) -> FunctionType | None:
    """The function of ours behind a method or a property."""
    for attribute in ("__func__", "fget", "func"):
        value = getattr(value, attribute, value)
    is_ours = inspect.isfunction(value) and value.__module__.split(".", maxsplit=1)[0] in OURS
    return value if is_ours else None


def parameters(function: Any) -> str:
    """The parameters as they are written, without annotations, each default as `...`."""
    signature = inspect.signature(function)
    kept = [
        p.replace(annotation=p.empty, default=p.empty if p.default is p.empty else Default())
        for p in signature.parameters.values()
        if p.name not in {"self", "cls"}
    ]
    return str(signature.replace(parameters=kept, return_annotation=signature.empty))


def constructor(cls: type) -> str:
    """The parameters of the class's own constructor; those of hosts and protocols are left out."""
    if getattr(cls, "_is_protocol", False):
        return ""
    makers = [
        vars(home)[name] for home in homes(cls) for name in ("__init__", "__new__") if name in vars(home)
    ]
    return parameters(makers[0]) if makers else ""


def fields(cls: type) -> list[str]:
    """The fields of a pydantic class that are written here, with `=...` where one has a default."""
    written = {name for home in homes(cls) for name in inspect.get_annotations(home)}
    known: dict[str, Any] = getattr(cls, "model_fields", {})
    return [
        name + ("" if known[name].is_required() else "=...")
        for name in sorted(written & known.keys())
        if not name.startswith("_")
    ]


def test_no_public_signature_changes_unseen() -> None:
    """Each public name has the parameters that the snapshot says."""
    told, found = SNAPSHOT.read_text(encoding="utf-8").splitlines(), list(api())
    diff = "\n".join(
        difflib.unified_diff(told, found, "tests/api_snapshot.txt", "the code", n=0, lineterm="")
    )
    assert told == found, (
        f"the public API must be what the snapshot says (got the difference below). If the change is meant, "
        f"write it into CHANGELOG.md and run `{COMMAND}`.\n{diff}"
    )


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(api()) + "\n", encoding="utf-8")
