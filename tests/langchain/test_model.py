"""budget_model: whatever calls the model, no request leaves it that a provider would refuse."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from langchain_budget import budget_model
from rankbudget.testing.server import StrictModelServer

from .doors import DOORS, NOT_DOORS

WINDOW = 2200
SHORT, LONG = "One short line. ", "A line that is longer. " * 700
PACKAGES = ("langchain", "langchain_classic", "langgraph")
MODEL_NAMES = re.compile(
    r"(llm|model|language_model|\w+_llm|\w+_model|\w*llm_chain|first_model|additional_models)$"
)


@pytest.fixture(scope="module")
def running() -> Iterator[StrictModelServer]:
    with StrictModelServer() as server:
        yield server


@pytest.fixture
def server(running: StrictModelServer) -> StrictModelServer:
    """A strict server on this machine, its record empty."""
    running.forget()
    return running


def client(server: StrictModelServer, **options: Any) -> ChatOpenAI:
    given = {"model": f"openai@{WINDOW}", "base_url": server.base_url, "api_key": "none", "max_retries": 0}
    return ChatOpenAI(**{**given, **options})


def bounded(server: StrictModelServer, **options: Any) -> Any:
    return budget_model(client(server), **{"max_tokens": WINDOW, "counter": "o200k_base", **options})


# ---------------------------------------------------------------- every door of the installed packages
def modules(package: str) -> Iterator[ModuleType]:
    top = importlib.import_module(package)
    yield top
    for found in pkgutil.walk_packages(top.__path__, f"{package}.", onerror=lambda _: None):
        with contextlib.suppress(
            Exception
        ):  # what needs a package that is not installed cannot be used either
            yield importlib.import_module(found.name)


def takes_a_model(thing: Any) -> bool:
    """Says whether a class or function has a field or a parameter that is a model by its type or by its name."""
    fields = getattr(thing, "model_fields", {}) if inspect.isclass(thing) else {}
    named = [(name, str(field.annotation)) for name, field in fields.items()]
    makers = (
        [m.__func__ for m in vars(thing).values() if isinstance(m, classmethod)]
        if inspect.isclass(thing)
        else []
    )
    if not fields or "__init__" in vars(thing):
        makers.append(thing.__init__ if inspect.isclass(thing) else thing)
    for maker in makers:
        try:
            parameters = inspect.signature(maker).parameters
        except (TypeError, ValueError):
            continue
        named += [(name, str(parameter.annotation)) for name, parameter in parameters.items()]
    return any(MODEL_NAMES.match(name) or re.search("LanguageModel|ChatModel", kind) for name, kind in named)


def test_every_door_of_the_installed_packages_is_known() -> None:
    """A class or function that takes a model and is in neither table fails here: test it, or say why it is no door."""
    seen = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for package in PACKAGES:
            for module in modules(package):
                for name, thing in list(vars(module).items()):
                    if name.startswith("_") or not (inspect.isclass(thing) or inspect.isfunction(thing)):
                        continue
                    if thing.__module__ == module.__name__ and takes_a_model(thing):
                        seen.add(f"{module.__name__}.{name}")
    assert seen - DOORS.keys() - NOT_DOORS.keys() == set()


def outcome(door: Any, model: Any, text: str) -> Any:
    """Returns what a run ended in; most parsers refuse the server's answer "ok", which is no matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            door(model, text)
        except Exception as error:  # noqa: BLE001 - compared with the stock model's
            return type(error)
    return None


@pytest.mark.parametrize("name", DOORS, ids=lambda name: name.rpartition(".")[2])
def test_what_fits_goes_through_every_door_as_from_the_model_itself(
    name: str, server: StrictModelServer
) -> None:
    """The same requests byte for byte, as many of them, and the same end."""
    stock = outcome(DOORS[name], client(server), SHORT)
    sent = [r.body for r in server.requests]
    server.forget()
    assert sent
    assert outcome(DOORS[name], bounded(server), SHORT) == stock
    assert [r.body for r in server.requests] == sent


@pytest.mark.parametrize("name", DOORS, ids=lambda name: name.rpartition(".")[2])
def test_no_door_sends_too_much(name: str, server: StrictModelServer) -> None:
    """The stock model is refused by the server; the bounded one fits the request or raises before it is sent."""
    outcome(DOORS[name], client(server), LONG)
    assert server.refused
    server.forget()
    outcome(DOORS[name], bounded(server), LONG)
    assert server.refused == []
