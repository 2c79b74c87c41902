"""The host packages and their extras; langchain-core alone is enough for all but two classes."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

SUPPORTED = {
    "langchain_core": ("langchain", ">=1.4.7,<2"),
    "langchain": ("agents", ">=1.3,<2"),
    "langchain_classic": ("classic", ">=1.0.5,<2"),
}
"""The extra that installs each host package, and the versions it is tested with: the floor and the latest."""


def is_kind(value: Any, *names: str) -> bool:
    """Returns whether an object is of one of langchain-core's classes, which are not loaded to find out.

    Its models, prompts and runnables load a client for traces: four times what its messages load.
    """
    kinds = type(value).__mro__
    return any(kind.__name__ in names and kind.__module__.startswith("langchain_core.") for kind in kinds)


def require(module: str, *, needed_by: str) -> ModuleType:
    """Imports a host module; a missing one is an ImportError that names the extra."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        if package not in SUPPORTED or (error.name or "").partition(".")[0] != package:
            raise
        extra, versions = SUPPORTED[package]
        needed = package.replace("_", "-") + versions
        msg = f'{needed_by} needs {needed}; install it with: pip install "rankbudget[{extra}]"'
        raise ImportError(msg, name=error.name) from error
