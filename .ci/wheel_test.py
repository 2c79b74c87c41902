"""Builds the wheel, looks into it, installs it alone, and runs the core's tests against what was installed.

In the working tree `shared` and `tests` can be imported, so a suite that passes there may still ship a broken wheel. Here the wheel stands in an
environment of its own: first with its declared dependencies only, then with the test tools lent by the developer's environment.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("rankbudget", "langchain_budget", "llamaindex_budget")
ALONE = """
import importlib.util, sys
import rankbudget
assert "site-packages" in rankbudget.__file__, rankbudget.__file__
assert importlib.util.find_spec("shared") is None, "the wheel must not bring a package named shared"
assert importlib.util.find_spec("tests") is None, "the wheel must not bring the tests"
assert importlib.util.find_spec("langchain_core") is None and importlib.util.find_spec("llama_index") is None
counter = rankbudget.counter_for(len)
fitted = rankbudget.fit_messages([{"role": "user", "content": "a question"}], max_tokens=100, counter=counter)
assert fitted.messages == [{"role": "user", "content": "a question"}], fitted
for adapter, extra in (("langchain_budget", "rankbudget[langchain]"), ("llamaindex_budget", "rankbudget[llamaindex]")):
    try:
        module = __import__(adapter)
        getattr(module, module.__all__[0])
    except ImportError as error:
        assert extra in str(error), f"{adapter} without its framework must name {extra}: {error}"
    else:
        raise AssertionError(f"{adapter} works without its framework?")
print("alone: imports, fits a message, and names the extra that is missing")
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([str(c) for c in command], cwd=cwd, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(c) for c in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    return wheel


def look_into(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {n.split("/")[0] for n in names if ".dist-info" not in n.split("/")[0]}
    problems = []
    if top != set(PACKAGES):
        problems.append(f"top-level names are {sorted(top)}, wanted {sorted(PACKAGES)}")
    problems += [f"{p}/py.typed is missing" for p in PACKAGES if f"{p}/py.typed" not in names]
    if not any(n.endswith("licenses/LICENSE") for n in names):
        problems.append("the license is missing")
    problems += [
        f"{n} is missing"
        for n in ("rankbudget/data/conversation.json", "rankbudget/data/docs/tour.md")
        if n not in names
    ]
    packed = {n for n in names if n.endswith(".py")}
    sources = {
        str(f.relative_to(ROOT / top))
        for top in ("shared", ".")
        for p in PACKAGES
        for f in (ROOT / top / p).rglob("*.py")
    }
    problems += [f"{n} is missing" for n in sorted(sources - packed)]
    problems += [f"{n} is not a source file" for n in sorted(packed - sources)]
    if problems:
        sys.exit("the wheel is wrong: " + "; ".join(problems))
    print(
        f"{wheel.name}: {len(names)} files, {wheel.stat().st_size // 1024} kB, {', '.join(sorted(top))}, all typed"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-wheel", help="where to install the wheel")
    place: Path = parser.parse_args().venv.absolute()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        look_into(wheel)
        venv.create(place, with_pip=True, clear=True)
        python = place / "bin" / "python"
        run(
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "-c",
            ROOT / "constraints.txt",
            wheel,
        )
        print(run(python, "-c", ALONE, cwd=folder).strip())
        print(run(place / "bin" / "rankbudget", "--help", cwd=folder).splitlines()[0])

        # Lend the test tools. Path lines in a lent folder are not followed, so the editable install behind them stays out of sight.
        (site,) = (place / "lib").glob("python*/site-packages")
        (site / "lent_test_tools.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        for own in ("tests", "benchmarks"):  # some tests hold the benchmarks to what they claim
            shutil.copytree(ROOT / own, folder / own, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        run(python, "-c", "import rankbudget; assert 'wheel' in rankbudget.__file__", cwd=folder)
        print(
            run(place / "bin" / "rankbudget", "demo", cwd=folder).count("\n"),
            "lines of the demonstration, from the wheel",
            flush=True,
        )
        few = os.environ | {
            "HYPOTHESIS_PROFILE": "fast"
        }  # `make test` draws many; here it is the packaging that is in question
        command = [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-n",
            "auto",
            "--maxprocesses",
            "8",
            "-m",
            "not slow",
            "tests/core",
        ]
        done = subprocess.run(command, cwd=folder, env=few, check=False)
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
