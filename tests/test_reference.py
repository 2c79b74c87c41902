"""The reference: each public name is on one page, and its docstring names its parameters, its fields and its errors.

A name counts as told where an entry of `Args` or `Attributes` begins with it, or where such a section has it in backticks or with an underscore.
The one-line docstring of a method may have it in backticks. "As in `name`" and "what `name` returns" bring the sections of that name along.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rankbudget", "langchain_budget", "llamaindex_budget")
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)
SECTION = re.compile(r"^(\w+):\n((?: .*\n|\n)*)", re.MULTILINE)
ENTRY = re.compile(r"^ {4}([*\w, ]+):", re.MULTILINE)
MENTION = re.compile(r"`(\w+)`|\b(\w*[a-z]_[a-z]\w*)\b")
ELSEWHERE = re.compile(r"as in\s+`(\w+)`|what `(\w+)` returns")
SPECIAL = ("__init__", "__post_init__")
Nested = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


class Method(NamedTuple):
    """A public method or property, and the public class that has it."""

    owner: type
    home: type
    name: str
    value: Any
    function: FunctionType

    def __str__(self) -> str:
        return f"{self.owner.__module__}.{self.owner.__name__}.{self.name}"


# ---- what is public --------------------------------------------------------------------------------------------------------------
@functools.cache
def public(package: str) -> dict[str, Any]:
    """The names of a package's `__all__`, with what they are."""
    module = importlib.import_module(package)
    return {name: getattr(module, name) for name in module.__all__}


def classes(package: str) -> list[type]:
    return [thing for thing in public(package).values() if inspect.isclass(thing)]


def is_ours(thing: Any) -> bool:
    return str(getattr(thing, "__module__", "")).split(".", maxsplit=1)[0] in PACKAGES


def homes(cls: type) -> list[type]:
    """The class and its bases that are written here; pydantic makes more, with brackets in the name."""
    return [base for base in cls.__mro__ if is_ours(base) and "[" not in base.__name__]


def function_of(value: Any) -> FunctionType | None:
    """The function behind a method, a property or an async form."""
    for attribute in ("__func__", "fget", "func"):
        value = getattr(value, attribute, value)
    return value if inspect.isfunction(value) and is_ours(value) else None


@functools.cache
def methods(package: str) -> list[Method]:
    """Every public method and property of the public classes, each where it is written."""
    found: dict[tuple[type, str], Method] = {}
    for cls in classes(package):
        for home in homes(cls):
            for name, value in vars(home).items():
                function = function_of(value)
                if function is not None and not name.startswith("_"):
                    found.setdefault((home, name), Method(cls, home, name, value, function))
    return list(found.values())


@functools.cache
def protocols() -> list[type]:
    named = [*classes("rankbudget"), *classes("rankbudget.memory")]
    return [cls for cls in named if getattr(cls, "_is_protocol", False)]


def is_told_elsewhere(method: Method) -> bool:
    """Whether a host's class or a protocol of ours says what the method does."""
    hosts = [b for b in method.home.__mro__[1:] if not is_ours(b) and method.name in vars(b)]
    if hosts:
        return any(inspect.getdoc(vars(base)[method.name]) for base in hosts) or bool(method.function.__doc__)
    return any(
        method.name in vars(protocol)
        and method.owner is not protocol
        and all(hasattr(method.owner, name) for name in vars(protocol) if not name.startswith("_"))
        for protocol in protocols()
    )


# ---- what a docstring tells ------------------------------------------------------------------------------------------------------
def sections(docstring: str | None, *headings: str) -> str:
    """The text under some headings of a docstring."""
    text = inspect.cleandoc(docstring or "") + "\n"
    return "\n".join(body for heading, body in SECTION.findall(text) if heading in headings)


def referred(docstring: str | None, owner: type | None = None) -> Iterator[str | None]:
    """The docstring, and those that it refers to."""
    yield docstring
    for found in ELSEWHERE.findall(docstring or ""):
        name = found[0] or found[1]
        names = [vars(home) for home in homes(owner)] if owner else []
        target = next((n[name] for n in [*names, *map(public, PACKAGES)] if name in n), None)
        if target is not None:
            yield getattr(function_of(target) or target, "__doc__", None)


def told(docstring: str | None, owner: type | None = None) -> set[str]:
    """The parameters and fields that a docstring tells."""
    names: set[str] = set()
    for text in referred(docstring, owner):
        told_here = sections(text, "Args", "Attributes")
        for entry in ENTRY.findall(told_here):
            names |= {name.strip(" *") for name in re.split(r",| and ", entry)}
        for found in MENTION.findall(told_here):
            names |= set(found)
    return names


def told_of(cls: type) -> set[str]:
    """The parameters and fields that a class tells, in its own docstring, those of its bases, or under a field."""
    names: set[str] = set()
    for home in homes(cls):
        names |= told(vars(home).get("__doc__"), cls)
        [tree] = ast.parse(textwrap.dedent(inspect.getsource(home))).body
        assert isinstance(tree, ast.ClassDef)
        for field, following in zip(tree.body, tree.body[1:], strict=False):
            under = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            if under and isinstance(field, ast.AnnAssign):
                names.add(ast.unparse(field.target))
    return names


def told_by(method: Method) -> set[str]:
    """The parameters that a method tells, or its class for it."""
    short = {name for text in referred(method.function.__doc__, method.owner) for name in _backticked(text)}
    return told(method.function.__doc__, method.owner) | told_of(method.owner) | short


def _backticked(docstring: str | None) -> list[str]:
    return re.findall(r"`(\w+)`", docstring or "")


def parameters(function: Callable[..., Any], *, collected: bool = True) -> list[str]:
    """The names of its parameters; without `collected` those of `*args` and `**kwargs` are left out."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return [
        p.name
        for p in found
        if p.name not in {"self", "cls"} and not p.name.startswith("_") and (collected or p.kind not in kinds)
    ]


def constructor(cls: type) -> list[str]:
    """The parameters of a class's own `__init__`; those of a pydantic class that it hands on are its fields."""
    function = next((vars(home)["__init__"] for home in homes(cls) if "__init__" in vars(home)), None)
    if function is None or cls in protocols():
        return []
    return parameters(function, collected=not hasattr(cls, "model_fields"))


def fields(cls: type) -> list[str]:
    """The public fields of a dataclass or pydantic class that are written here."""
    if hasattr(cls, "model_fields"):
        names = set(cls.model_fields)
    elif dataclasses.is_dataclass(cls):
        names = {field.name for field in dataclasses.fields(cls)}
    else:
        return []
    written = {name for home in homes(cls) for name in inspect.get_annotations(home)}
    return sorted(name for name in names & written if not name.startswith("_"))


# ---- what a function raises ------------------------------------------------------------------------------------------------------
def raised(function: FunctionType) -> set[str]:
    """The library's errors that the function's own body raises by name."""
    function = inspect.unwrap(function)
    if function.__code__.co_filename == "<string>":
        return set()  # a dataclass has made it
    [tree] = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    errors = {name for name in public("rankbudget") if name.endswith("Error")}
    found = (_name_of(node.exc) for node in _own_nodes(tree) if isinstance(node, ast.Raise))
    return errors.intersection(found)


def _own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below, without those of functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, Nested):
            yield child
            yield from _own_nodes(child)


def _name_of(error: ast.expr | None) -> str:
    """The name of a raised class: `Error(msg)` and `Error.of(problems)` are both of `Error`."""
    while isinstance(error, ast.Call | ast.Attribute):
        error = error.func if isinstance(error, ast.Call) else error.value
    return error.id if isinstance(error, ast.Name) else ""


def unnamed_errors(function: FunctionType, docstring: str | None, owner: type | None = None) -> set[str]:
    """What a function raises that is neither under `Raises` nor in a first sentence "Raises X ..."."""
    texts = list(referred(docstring, owner))
    under = "\n".join(sections(text, "Raises") for text in texts)
    first = re.findall(r"^Raises (\w+)", docstring or "")
    return {name for name in raised(function) if name not in first and not re.search(rf"\b{name}\b", under)}


# ---- the tests -------------------------------------------------------------------------------------------------------------------
def directives() -> list[str]:
    """Every name on the reference pages."""
    return [name for page in PAGES for name in DIRECTIVE.findall(page.read_text(encoding="utf-8"))]


def test_every_public_name_is_on_exactly_one_page() -> None:
    """Each name of each `__all__` is on one reference page, once."""
    shown = directives()
    wanted = [f"{package}.{name}" for package in PACKAGES for name in public(package)]
    assert {name: shown.count(name) for name in wanted if shown.count(name) != 1} == {}
    assert len(shown) == len(set(shown))


@pytest.mark.parametrize("name", directives())
def test_every_name_on_a_page_is_there(name: str) -> None:
    """What a reference page shows can be imported by that name."""
    module, _, last = name.rpartition(".")
    assert hasattr(importlib.import_module(module), last)


def test_the_site_lists_every_page() -> None:
    """The navigation has each page of docs/ once, and none that is not there."""
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    assert sorted(_pages(nav)) == sorted([*_written(), "index.md", "contributing.md", "changelog.md"])


def test_the_index_for_language_models_lists_every_page() -> None:
    """`docs/llms.txt` has each page of docs/ once, with one sentence, and none that is not there."""
    lines = (ROOT / "docs" / "llms.txt").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    pages = [re.fullmatch(r"- \[[^]]+\]\((\S+)\): [A-Z`](?:(?!\. ).)+\.", entry) for entry in entries]
    assert [entry for entry, page in zip(entries, pages, strict=True) if page is None] == []
    assert sorted(page[1] for page in pages if page) == _written()


def _written() -> list[str]:
    """The pages of docs/."""
    return sorted(path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md"))


def _pages(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for part in inner for page in _pages(part)]


@pytest.mark.parametrize("package", PACKAGES)
def test_everything_public_has_a_docstring(package: str) -> None:
    """Public classes, functions, methods and properties say what they are; the host or a protocol may say it."""
    silent = []
    for name, thing in public(package).items():
        docstring = vars(thing).get("__doc__", thing.__doc__)
        if not docstring or docstring.startswith(f"{name}("):  # a dataclass without one gets its signature
            silent.append(name)
    silent += [str(m) for m in methods(package) if not m.function.__doc__ and not is_told_elsewhere(m)]
    assert silent == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_parameter_is_named(package: str) -> None:
    """The parameters of public functions, constructors and methods are named, those of a host's methods apart."""
    untold: dict[str, list[str]] = {}
    for name, thing in public(package).items():
        known = told_of(thing) if inspect.isclass(thing) else told(thing.__doc__)
        wanted = constructor(thing) if inspect.isclass(thing) else parameters(thing)
        untold[name] = [parameter for parameter in wanted if parameter not in known]
    for method in methods(package):
        if not isinstance(method.value, property | functools.cached_property) and not is_told_elsewhere(
            method
        ):
            known = told_by(method)
            untold[str(method)] = [p for p in parameters(method.function) if p not in known]
    assert {name: missing for name, missing in untold.items() if missing} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_field_is_named(package: str) -> None:
    """The fields of public dataclasses and pydantic classes are named, or have a docstring under them."""
    untold = {cls.__name__: sorted(set(fields(cls)) - told_of(cls)) for cls in classes(package)}
    assert {name: missing for name, missing in untold.items() if missing} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_is_named(package: str) -> None:
    """A public function, constructor or method that raises an error of the library says so."""
    untold: dict[str, set[str]] = {}
    for name, thing in public(package).items():
        if not inspect.isclass(thing):
            untold[name] = unnamed_errors(thing, thing.__doc__)
            continue
        for home in homes(thing):
            for special in SPECIAL:
                function = function_of(vars(home).get(special))
                if function is not None:
                    untold[f"{name}.{special}"] = unnamed_errors(function, thing.__doc__, thing)
    for method in methods(package):
        if not is_told_elsewhere(method) or method.function.__doc__:
            untold[str(method)] = unnamed_errors(method.function, method.function.__doc__, method.owner)
    assert {name: missing for name, missing in untold.items() if missing} == {}
