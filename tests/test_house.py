"""The rules of the house that no tool checks."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (
    "shared",
    "langchain_budget",
    "llamaindex_budget",
    "tests",
    "benchmarks",
    "docs",
    "notebooks",
    ".ci",
    ".github",
)
TEXT = {".py", ".md", ".toml", ".txt", ".yaml", ".yml", ".json", ".ipynb", ".sh", ""}
LONGEST = 400
PACKAGES = {
    "rankbudget": ROOT / "shared" / "rankbudget",
    "langchain_budget": ROOT / "langchain_budget",
    "llamaindex_budget": ROOT / "llamaindex_budget",
}
MOST_LINES = 46_852
MOST_WIDE_LINES = 0
WIDEST, LONGEST_BODY, MOST_COMPLEX = 110, 40, 15
MOST_FILES, MOST_FOLDERS = 7, 16


def own_files(*suffixes: str) -> list[Path]:
    """Every text file of the project, generated folders left out."""
    top = [path for path in ROOT.iterdir() if path.is_file() and not path.name.startswith(".")]
    top.append(ROOT / ".pre-commit-config.yaml")
    deep = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    wanted = set(suffixes) or TEXT
    return sorted(
        p
        for p in top + deep
        if p.suffix in wanted and not any(map(_made_by_a_tool, p.relative_to(ROOT).parts[:-1]))
    )


def _made_by_a_tool(folder: str) -> bool:
    return folder == "__pycache__" or (folder.startswith(".") and folder not in {".ci", ".github"})


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_file_is_longer_than_a_reader_keeps_in_mind() -> None:
    """No source, test or page has more than 400 lines."""
    sizes = {
        name(p): len(p.read_text(encoding="utf-8").splitlines()) for p in own_files(".py", ".md", ".toml", "")
    }
    assert {n: size for n, size in sizes.items() if size > LONGEST} == {}


def test_nothing_names_a_machine() -> None:
    """No file holds a path that exists on one machine only, or a package index's address."""
    places = [
        "/root" + "/",
        r"/home/\w",
        r"/Users/\w",
        r"C:\\Users",
        "/work" + "/",
        "/tmp/" + "venv",
        "pypi" + r"\.org",
        "index" + "-url",
    ]
    pattern = re.compile("|".join(places))
    found = {
        name(p): match.group()
        for p in own_files()
        if p.name != "LICENSE" and (match := pattern.search(p.read_text(encoding="utf-8")))
    }
    assert found == {}


def _tests(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [f for f in functions if f.name.startswith("test")]


def _test_files() -> list[Path]:
    return [p for p in own_files(".py") if p.name.startswith("test_") or "testing" in p.parts]


@pytest.mark.parametrize("path", _test_files(), ids=name)
def test_every_test_says_what_is_true(path: Path) -> None:
    """Every test has a docstring whose first line is a sentence."""
    silent = [
        f"{f.name} (line {f.lineno})" for f in _tests(path) if len((ast.get_docstring(f) or "").split()) < 3
    ]
    assert silent == []


def test_every_silenced_check_says_why() -> None:
    """A rule that is switched off, and a type that is ignored, has a code and a reason beside it."""
    bare = []
    for path in [p for p in own_files(".py") if "tests" not in p.parts]:  # mypy looks at what ships
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            ignored = re.search(r"#\s*type:\s*ignore(\[[\w,\s-]+\])?(.*)", line)
            if ignored and not (ignored.group(1) and "#" in ignored.group(2)):
                bare.append(f"{name(path)}:{number} {line.strip()}")
            if re.search(r"#\s*noqa\s*($|[^:\s])", line):
                bare.append(f"{name(path)}:{number} {line.strip()}")
    config = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    rules = re.findall(r'^    "[A-Z]+\d*",.*$', config, flags=re.MULTILINE)
    bare += [line for line in rules if "#" not in line]
    assert bare == []
    assert len(rules) > 20, "the list of switched-off rules has moved: this test looks at nothing"


def test_every_target_of_the_makefile_has_help() -> None:
    """`make help` knows each target that a person may ask for."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    asked = set(re.findall(r"^\.PHONY: (\S+)$", text, flags=re.MULTILINE))
    told = set(re.findall(r"^([a-z-]+):.*## \S", text, flags=re.MULTILINE))
    assert asked == told
    wanted = "help install demo test test-fast test-floor batch-test browser-test lint fmt type imports doctest props notebooks bench quality peers prove fuzz soak scale histories growth memory-bench docs trace upstream wheel-test extras dist cov clean all"
    assert asked == set(wanted.split())


def _bounds(lines: list[str]) -> dict[str, str]:
    """Lower bound by distribution, extras and markers left out."""
    found = (re.match(r"([\w.-]+)(?:\[[^\]]*\])?\s*(?:>=|==)\s*([\w.]+)", line) for line in lines)
    return {m.group(1).lower(): m.group(2) for m in found if m}


def test_the_lower_bounds_are_the_ones_tested() -> None:
    """The floor of each framework is the same in pyproject.toml, in the floor's pins and in the adapters' stated ranges."""
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [
        *config["dependencies"],
        *(line for extra in config["optional-dependencies"].values() for line in extra),
    ]
    bounds, pins = (
        _bounds(needed),
        _bounds((ROOT / "constraints-floor.txt").read_text(encoding="utf-8").splitlines()),
    )
    differing = {
        name: (bounds[name], pins[name]) for name in bounds.keys() & pins.keys() if bounds[name] != pins[name]
    }
    looser = {name: pair for name, pair in differing.items() if _numbers(pair[0]) > _numbers(pair[1])}
    assert looser == {}, "a floor below the bound of pyproject.toml"
    for name in (
        "pydantic",
        "tiktoken",
        "regex",
        "langchain-core",
        "langchain",
        "langchain-classic",
        "llama-index-core",
    ):
        assert _numbers(bounds[name]) == _numbers(pins[name])[: len(_numbers(bounds[name]))], name
    supported = importlib.import_module("langchain_budget._supported").SUPPORTED
    told = [f"{module.replace('_', '-')}{versions}" for module, (_, versions) in supported.items()]
    told.append(importlib.import_module("llamaindex_budget._supported").SUPPORTED)
    assert _bounds(told) == {name: bounds[name] for name in _bounds(told)}


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


def test_every_reason_of_the_glossary_is_in_use() -> None:
    """A reason that a page explains is one the code gives."""
    told = re.findall(
        r"^\| `(\w+)` \|", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    code = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "shared").rglob("*.py"))
    assert len(told) > 10
    assert [reason for reason in told if f'"{reason}"' not in code] == []


# ---- what ships stays small enough to be read ------------------------------------------------------------------------------------
Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.Assert,
    ast.match_case,
)


def shipped() -> dict[str, Path]:
    """The modules of the three packages by dotted name, `testing` left out."""
    modules = {}
    for package, folder in PACKAGES.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] != "testing":
                modules[".".join((package, *parts)).removesuffix(".__init__")] = path
    return modules


def functions() -> dict[str, Function]:
    """Every function that ships, by file and name."""
    found: dict[str, Function] = {}
    for path in shipped().values():
        place = name(path).removeprefix("shared/")
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        found |= {f"{place} {node.name} {node.lineno}": node for node in nodes if isinstance(node, Function)}
    return found


def body_lines(function: Function) -> int:
    """Lines of the body from its first statement to its last, the docstring left out."""
    statements = function.body[1:] if ast.get_docstring(function) else function.body
    return statements[-1].end_lineno - statements[0].lineno + 1 if statements else 0


def complexity(node: ast.AST) -> int:
    """One, and one more for each branch, loop, handler, boolean operator and condition of a comprehension; functions inside apart."""
    count = 1
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.ClassDef):
            continue
        count += complexity(child) - 1
        if isinstance(child, BRANCHES):
            count += 1
        elif isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
        elif isinstance(child, ast.comprehension):
            count += len(child.ifs)
    return count


def test_what_ships_does_not_grow() -> None:
    """The packages have no more lines, and no more lines wider than 110 columns, than the figures at the top of this file."""
    lines = [line for path in shipped().values() for line in path.read_text(encoding="utf-8").splitlines()]
    assert len(lines) <= MOST_LINES
    assert len([line for line in lines if len(line) > WIDEST]) <= MOST_WIDE_LINES


def test_no_function_is_long() -> None:
    """No body has more than 40 lines."""
    assert [n for n, node in functions().items() if body_lines(node) > LONGEST_BODY] == []


def test_no_function_is_complex() -> None:
    """No function has a complexity above 15."""
    assert [n for n, node in functions().items() if complexity(node) > MOST_COMPLEX] == []


def test_the_core_is_seen_at_a_glance() -> None:
    """Its top level has at most seven files and sixteen folders."""
    entries = [p for p in PACKAGES["rankbudget"].iterdir() if p.name != "__pycache__"]
    assert len([p for p in entries if p.is_file()]) <= MOST_FILES
    assert len([p for p in entries if p.is_dir()]) <= MOST_FOLDERS


# ---- nothing imports in a circle -------------------------------------------------------------------------------------------------
def _running(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below `node` that can run: what stands under `if TYPE_CHECKING:` cannot."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield from _running(other)
        else:
            yield child
            yield from _running(child)


def imported_by(module: str, modules: dict[str, Path]) -> set[str]:
    """The modules of ours that a module imports, at its top or inside a function."""
    path = modules[module]
    package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    found: set[str] = set()
    for node in _running(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{source}.{alias.name}"
                found.add(inner if inner in modules else source)
    return (found & modules.keys()) - {module}


def reached_from(start: str, graph: dict[str, set[str]]) -> set[str]:
    """What a module imports, directly or through others."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        for module in graph[waiting.pop()] - seen:
            seen.add(module)
            waiting.append(module)
    return seen


def test_nothing_imports_in_a_circle() -> None:
    """No module reaches itself through what it imports."""
    modules = shipped()
    graph = {module: imported_by(module, modules) for module in modules}
    assert [module for module in graph if module in reached_from(module, graph)] == []


def test_every_weight_that_a_benchmark_changes_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that are tried at other values are numbers of the product, under the names that they have there."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    weights = importlib.import_module("leave_one_out").WEIGHTS
    assert all(weight.value() for group in weights.values() for weight in group)
