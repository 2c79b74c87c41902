"""Builds the source archive, and the wheel from it, into dist/, and checks what a release must hold.

Beside them come the two distributions of shims/, which bring the adapters under names of their frameworks.

With `--tag v1.2.3` it also checks that the tag, the version and the changelog agree.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tarfile
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

from wheel_test import look_into, run

ROOT = Path(__file__).resolve().parents[1]


def shims_of(root: Path) -> list[Path]:
    """Returns the folders of the small distributions."""
    return sorted(path.parent for path in (root / ".ci" / "shims").glob("*/pyproject.toml"))


def problems_of(tag: str, root: Path = ROOT) -> list[str]:
    """Returns what keeps this tree from being released as `tag`."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = project["version"]
    found = []
    if tag != f"v{version}":
        found.append(f"the tag must be v{version}, the version of pyproject.toml (got {tag})")
    code = (root / "shared" / "rankbudget" / "__init__.py").read_text(encoding="utf-8")
    if f'__version__ = "{version}"' not in code:
        found.append(f"rankbudget.__version__ must be {version}, the version of pyproject.toml")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = next((line for line in changes.splitlines() if line.startswith("## ")), "nothing")
    if newest.split()[:2] != ["##", version]:
        found.append(f"the first version in CHANGELOG.md must be '## {version}' (got '{newest}')")
    for shim in shims_of(root):
        other = tomllib.loads((shim / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        if other["version"] != version or not other["dependencies"][0].endswith(f"=={version}"):
            found.append(f"{shim.name} must have and depend on version {version}")
    if not project.get("urls"):
        found.append("pyproject.toml must have [project.urls]. Name the repository there.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="", help="the tag that is released")
    tag: str = parser.parse_args().tag
    if tag and (found := problems_of(tag)):
        sys.exit("\n".join(found))
    folder = ROOT / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)  # the wheel is built from the archive
    (archive,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    look_into(wheel)
    with tarfile.open(archive) as packed:
        print(f"{archive.name}: {len(packed.getnames())} files")
    for shim in shims_of(ROOT):
        run(sys.executable, "-m", "build", "--outdir", folder, shim)
        print(f"{shim.name}: built")


if __name__ == "__main__":
    main()
