"""What an installation promises: an entry point asks only for what it needs, and the pages name each extra.

`tests/test_imports.py` looks at what is loaded. Here every import is written down when it is asked for, so a
library that is not installed is noticed, too, even where a missing one is caught.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
RECORDER = """
import json, sys

class Recorder:
    asked = set()

    def find_spec(self, name, path=None, target=None):
        self.asked.add(name.split(".")[0])

sys.meta_path.insert(0, Recorder())
"""
PARSED = ["regex", "typing_extensions"]
MODELS = ["annotated_types", "pydantic", "pydantic_core", "typing_inspection"]
ENGINES = "daft faiss fastokens onnxruntime pandas pyarrow ray tokenizers torch transformers wordllama"
DEVELOPERS = {"dev", "docs", "notebooks", "test", "upstream"}


def asked_by(statement: str) -> set[str]:
    """The packages outside the standard library that a fresh interpreter asks for."""
    program = f"{RECORDER}\n{statement}\nprint(json.dumps(sorted(Recorder.asked)))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    java = {"org"}  # `copy` and `pickle` ask for Jython's classes
    generated = {name for name in json.loads(done.stdout) if name.startswith("_sysconfigdata")}
    return set(json.loads(done.stdout)) - sys.stdlib_module_names - java - generated


def names_of(package: str) -> str:
    return f"import {package} as package; [getattr(package, name) for name in package.__all__]"


@pytest.mark.parametrize(
    ("statement", "needed"),
    [
        ("import rankbudget", []),
        ("import rankbudget.testing", []),
        ("import rankbudget.cli.main", PARSED),
        (names_of("rankbudget.batch"), PARSED),
        ("import rankbudget.adapters", PARSED),
        (names_of("rankbudget"), PARSED + MODELS),
    ],
)
def test_the_core_asks_only_for_what_it_needs(statement: str, needed: list[str]) -> None:
    """An entry point of the core asks for no framework, engine or model, installed or not."""
    assert asked_by(statement) <= {"rankbudget", *needed}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "host", "others"),
    [
        (
            "langchain_budget",
            "langchain.agents, langchain_core.language_models",
            "llama_index llamaindex_budget",
        ),
        ("llamaindex_budget", "llama_index.core", "langchain langchain_core langgraph langchain_budget"),
    ],
)
def test_an_adapter_asks_only_for_its_own_framework(adapter: str, host: str, others: str) -> None:
    """Importing an adapter asks for itself alone. All its names together do not ask for the other framework,
    nor for an engine that their own framework does not ask for.
    """
    assert asked_by(f"import {adapter}") == {adapter}
    asked = asked_by(names_of(adapter))
    assert asked >= {adapter, "rankbudget"}
    assert asked & set(others.split()) == set()
    assert asked & set(ENGINES.split()) <= asked_by(f"import {host}")


# ---- extras ----
def extras() -> dict[str, list[str]]:
    """What each extra installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return project["optional-dependencies"]


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def named_in(text: str) -> set[str]:
    """The extras that commands, errors and tables name: `rankbudget[a,b]` and `.[a,b]`."""
    return {
        name for found in re.findall(r"(?:rankbudget|\.)\[([a-z,]+)\]", text) for name in found.split(",")
    }


def test_every_extra_that_is_named_is_there() -> None:
    """Pages, errors, the Makefile and other extras name only extras of pyproject.toml."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    code = [
        p for top in ("shared", "langchain_budget", "llamaindex_budget") for p in (ROOT / top).rglob("*.py")
    ]
    named = {path: named_in(path.read_text(encoding="utf-8")) for path in [*pages, *code]}
    wrong = {path.name: names - extras().keys() for path, names in named.items() if names - extras().keys()}
    assert wrong == {}
    assert named_in(str(extras())) <= extras().keys()
    assert len(set().union(*named.values())) > 10


def test_the_table_of_the_readme_names_extras() -> None:
    """The last column of the entry points holds extras."""
    rows = re.findall(r"^\|.*\|([^|]*)\|$", readme().split("## Entry points")[1], flags=re.MULTILINE)
    column = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(column) > 5
    assert column <= extras().keys()


def test_every_extra_is_told() -> None:
    """The README names each extra for users; the Makefile or another extra uses each one for developers."""
    users = extras().keys() - DEVELOPERS
    table = readme().split("## Entry points")[1].split("\n## ")[0]
    assert users - set(re.findall(r"`(\w+)`", table)) == set()
    used = named_in((ROOT / "Makefile").read_text(encoding="utf-8")) | named_in(str(extras()))
    assert DEVELOPERS - used == set()


def test_the_readme_says_what_all_leaves_out() -> None:
    """`all` is every extra for users but those that the README says."""
    [sentence] = re.findall(r"`all` \(without ([^)]*)\)", readme())
    without = set(re.findall(r"`(\w+)`", sentence))
    assert named_in(str(extras()["all"])) == extras().keys() - DEVELOPERS - without - {"all"}


def test_every_extra_for_users_is_tried_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """`make extras` has a program for each extra, and finds the names that docs/langchain.md gives for it."""
    monkeypatch.syspath_prepend(ROOT / ".ci")
    script = importlib.import_module("extras")
    on_the_page = {"langchain", "agents", "classic"}
    assert {*script.USE, *on_the_page, "all"} == extras().keys() - DEVELOPERS
    assert [extra for extra in on_the_page if not script.named_on_the_page(extra)] == []
    for extra in extras().keys() - DEVELOPERS:
        compile(script.program_of(extra), extra, "exec")


@pytest.mark.parametrize(
    ("folder", "module", "adapter"),
    [
        ("langchain-rankbudget", "langchain_rankbudget", "langchain_budget"),
        (
            "llama-index-postprocessor-rankbudget",
            "llama_index.postprocessor.rankbudget",
            "llamaindex_budget",
        ),
    ],
)
def test_a_shim_has_the_names_of_its_adapter(folder: str, module: str, adapter: str) -> None:
    """Each of the two distributions for a framework's users has all names, the same objects, and this version."""
    shim = ROOT / ".ci" / "shims" / folder
    program = (
        f"import {adapter} as own, {module} as shim\n"
        "assert shim.__all__ == list(own.__all__)\n"
        "assert all(getattr(shim, name) is getattr(own, name) for name in shim.__all__)\n"
    )
    path = os.pathsep.join([str(shim), *sys.path])
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": path})
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    made = tomllib.loads((shim / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert made["name"] == folder
    assert made["version"] == ours["version"]
    assert re.fullmatch(rf"rankbudget\[\w+\]=={ours['version']}", made["dependencies"][0])
