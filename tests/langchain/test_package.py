"""The package imports with langchain-core alone, names the extra where one is missing, and loads nothing it does not need."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest
from packaging.requirements import Requirement

import langchain_budget
from langchain_budget._supported import SUPPORTED, require

_WITHOUT = """
import importlib.abc, sys

class Without(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"langchain", "langchain_classic", "langgraph", "langchain_community", "langchain_text_splitters"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import langchain_budget
"""


def run(code: str) -> str:
    """Runs code in a Python of its own, where only langchain-core is installed."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _WITHOUT + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_langchain_core_alone_is_enough_for_all_but_three_names() -> None:
    """Without the other packages every name but a memory and two middlewares loads, and a trimmer works."""
    code = """
names = [n for n in langchain_budget.__all__ if n not in {"BudgetMemory", "BudgetMiddleware", "StoredThreadMiddleware"}]
for name in names:
    getattr(langchain_budget, name)
print(len(langchain_budget.BudgetTrimmer(max_tokens=100).invoke([("human", "hi")])), len(names))
"""
    assert run(code) == "1 16"


@pytest.mark.parametrize(
    ("name", "extra"),
    [("BudgetMemory", "classic"), ("BudgetMiddleware", "agents"), ("StoredThreadMiddleware", "agents")],
)
def test_a_missing_package_names_its_extra(name: str, extra: str) -> None:
    """A class whose package is missing is an ImportError with the command that installs it."""
    code = f"""
try:
    langchain_budget.{name}
except ImportError as error:
    print(error)
"""
    assert f'pip install "rankbudget[{extra}]"' in run(code)


def test_importing_the_package_loads_no_host() -> None:
    """Names are loaded on first use: the import alone loads neither langchain-core nor the core's stations."""
    assert (
        run("print(sorted(m for m in ('langchain_core', 'pydantic', 'tiktoken') if m in sys.modules))")
        == "[]"
    )


def test_the_public_names_are_these() -> None:
    """A new name is a decision; each one listed exists."""
    assert langchain_budget.__all__ == [
        "BudgetChatPromptTemplate",
        "BudgetContextEdit",
        "BudgetDocumentCompressor",
        "BudgetExampleSelector",
        "BudgetMemory",
        "BudgetMessageHistory",
        "BudgetMiddleware",
        "BudgetRetriever",
        "BudgetTrimmer",
        "GraphBackend",
        "MemoryRetriever",
        "MemoryVectors",
        "StoredMessageHistory",
        "StoredThreadMiddleware",
        "add_run_metadata",
        "budget_model",
        "memory_tools",
        "pre_model_hook",
        "trim_messages",
    ]
    assert all(
        getattr(langchain_budget, name).__name__ == name
        for name in langchain_budget.__all__
        if name != "pre_model_hook"
    )
    assert set(langchain_budget.__all__) <= set(dir(langchain_budget))
    with pytest.raises(AttributeError, match="no attribute 'BudgetNothing'"):
        _ = langchain_budget.BudgetNothing


def test_the_installed_hosts_are_in_the_stated_ranges() -> None:
    """What the tests run on is what the package says it supports."""
    for package, (_, versions) in SUPPORTED.items():
        name = package.replace("_", "-")
        assert Requirement(f"{name}{versions}").specifier.contains(importlib.metadata.version(name))


def test_an_error_inside_a_host_is_not_hidden() -> None:
    """Only the host's own absence is renamed; another missing module stays what it is."""
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        require("no_such_module", needed_by="a test")
