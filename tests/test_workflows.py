"""What runs on GitHub: workflows, forms, pinned tools, and what a release is refused for."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
PINNED = re.compile(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+")


def read(path: Path) -> dict[Any, Any]:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def parts(path: Path, key: str) -> list[str]:
    """What the jobs of a workflow and their steps say under `uses` or `run`."""
    jobs = read(path)["jobs"].values()
    steps = [step for job in jobs for step in (job, *job.get("steps", []))]
    return [step[key] for step in steps if key in step]


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_every_command_of_a_workflow_is_there(path: Path) -> None:
    """A `run:` is one line that begins with a target of the Makefile or with a script that can be run."""
    targets = set(re.findall(r"^\.PHONY: (\S+)$", text_of("Makefile"), flags=re.MULTILINE))
    missing = []
    for line in parts(path, "run"):
        first, *rest = shlex.split(line)
        is_target = first == "make" and rest and rest[0] in targets
        is_script = (ROOT / first).is_file() and os.access(ROOT / first, os.X_OK)
        if "\n" in line.strip() or not (is_target or is_script):
            missing.append(line)
    assert missing == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_every_action_is_pinned(path: Path) -> None:
    """An action has a whole version, and a workflow of this repository is there."""
    used = parts(path, "uses")
    assert used
    local = [part for part in used if part.startswith("./")]
    assert [part for part in used if part not in local and not PINNED.fullmatch(part)] == []
    assert [part for part in local if not (ROOT / part).is_file()] == []


def test_the_checks_run_on_every_supported_python() -> None:
    """`.ci/run` runs on the versions of Python that the classifiers of pyproject.toml name."""
    check = read(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["check"]
    supported = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text_of("pyproject.toml"))
    assert check["strategy"]["matrix"]["python"] == supported
    assert ".ci/run" in [step.get("run") for step in check["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=name)
def test_a_workflow_reads_only(path: Path) -> None:
    """A workflow reads the repository; only the publishing job may ask for an identity; none has a secret."""
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    more = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert more == ({"publish": {"id-token": "write"}} if path.name == "release.yml" else {})
    assert "secrets." not in path.read_text(encoding="utf-8")


def test_a_release_is_checked_built_and_attested() -> None:
    """A tag is published after all checks, from what `make dist` built for it, with an attestation."""
    jobs = read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]
    assert jobs["check"]["uses"] == "./.github/workflows/ci.yml"
    assert "workflow_call" in read(ROOT / ".github" / "workflows" / "ci.yml")[True]  # YAML reads `on` as true
    assert 'make dist TAG="$GITHUB_REF_NAME"' in [step.get("run") for step in jobs["build"]["steps"]]
    assert set(jobs["publish"]["needs"]) == {"check", "build"}
    last = jobs["publish"]["steps"][-1]
    assert last["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert last["with"] == {"attestations": True}


def test_ruff_has_one_version() -> None:
    """The hook before a commit runs the ruff that constraints.txt pins."""
    [repository] = read(ROOT / ".pre-commit-config.yaml")["repos"]
    [pinned] = re.findall(r"^ruff==(\S+)$", text_of("constraints.txt"), flags=re.MULTILINE)
    assert repository["rev"] == f"v{pinned}"
    assert {hook["id"] for hook in repository["hooks"]} == {"ruff-check", "ruff-format"}


def test_dependabot_leaves_the_pins_alone() -> None:
    """It raises actions; versions of packages are raised together, by hand."""
    updates = read(ROOT / ".github" / "dependabot.yml")
    assert updates["version"] == 2
    assert [update["package-ecosystem"] for update in updates["updates"]] == ["github-actions"]


@pytest.mark.parametrize("path", FORMS, ids=name)
def test_a_form_can_be_shown(path: Path) -> None:
    """A form has what GitHub asks for: a name, a description, and fields with a label and an own id."""
    form = read(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in fields} <= {"input", "textarea", "dropdown"}
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in fields)


def test_a_bug_report_asks_for_what_explains_it() -> None:
    """The version and the report are required."""
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml")
    needed = {f["id"]: f for f in form["body"] if f.get("validations", {}).get("required")}
    assert "rankbudget --version" in needed["version"]["attributes"]["description"]
    assert "report.table()" in needed["report"]["attributes"]["description"]


def test_every_file_that_a_policy_names_is_there() -> None:
    """SECURITY.md and the forms name files of the repository, in links or in backticks."""
    pages = [ROOT / "SECURITY.md", ROOT / ".github" / "pull_request_template.md", *FORMS]
    pattern = re.compile(r"\]\(([^)#\s]+)|`([\w./]+\.(?:md|yml))`")
    named = [one or other for page in pages for one, other in pattern.findall(page.read_text("utf-8"))]
    assert len(named) > 5
    assert [place for place in named if not (ROOT / place).is_file()] == []


# ---- what a release is refused for ----
@pytest.fixture
def dist(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return importlib.import_module("dist")


READY = {
    "pyproject.toml": '[project]\nversion = "1.2.3"\n[project.urls]\nRepository = "somewhere"\n',
    "shared/rankbudget/__init__.py": '__version__ = "1.2.3"\n',
    "CHANGELOG.md": "# Changes\n\n## 1.2.3 (2026-01-01)\n",
}


@pytest.mark.parametrize(
    ("file", "text", "tag", "told"),
    [
        ("CHANGELOG.md", READY["CHANGELOG.md"], "v1.2.3", None),
        ("CHANGELOG.md", READY["CHANGELOG.md"], "v1.2.4", r"tag must be v1.2.3.*\(got v1.2.4\)"),
        ("CHANGELOG.md", "# Changes\n\n## Unreleased\n\n## 1.2.3\n", "v1.2.3", "got '## Unreleased'"),
        ("shared/rankbudget/__init__.py", '__version__ = "1.2.2"\n', "v1.2.3", "__version__ must be 1.2.3"),
        ("pyproject.toml", '[project]\nversion = "1.2.3"\n', "v1.2.3", r"must have \[project.urls\]"),
    ],
)
def test_a_release_must_agree_with_itself(
    file: str, text: str, tag: str, told: str | None, dist: ModuleType, tmp_path: Path
) -> None:
    """Tag, version, changelog and address of a release agree; otherwise it is refused with the reason."""
    for place, content in (READY | {file: text}).items():
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(content, encoding="utf-8")
    found = dist.problems_of(tag, tmp_path)
    assert len(found) == (1 if told else 0)
    assert told is None or re.search(told, found[0])


def test_the_versions_of_this_tree_agree(dist: ModuleType) -> None:
    """pyproject.toml and `rankbudget.__version__` have the same version."""
    assert [problem for problem in dist.problems_of("v0") if "__version__" in problem] == []
