"""Makes the site of docs/: mkdocs calls the functions as hooks, griffe the class for each object it reads.

README, CONTRIBUTING, CHANGELOG and the notebooks lie beside docs/ and join the site. Links are written for
the repository. A link that leaves docs/ is pointed at the copy on the site, so one text works in both places.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")


class AsCalled(griffe.Extension):
    """Shows what a caller sees: griffe reads the source, where some of it is made by functions of ours."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if isinstance(obj, griffe.Function) and any(str(d.value) == "blocking" for d in obj.decorators):
            obj.returns = re.sub(r"^Steps\[(.+)\]$", r"\1", str(obj.returns))
        if obj.docstring:  # griffe knows `Examples:` only
            obj.docstring.value = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)

    def on_members(self, *, obj: griffe.Object, **_: Any) -> None:
        for name, member in list(obj.members.items()):
            value = member.value if isinstance(member, griffe.Attribute) else None
            if made := re.fullmatch(r"awaiting\((\w+)\)", str(value)):
                obj.set_member(name, async_form(name, obj.members[made[1]]))


def async_form(name: str, run: Any) -> griffe.Function:
    """Returns the function that `name = awaiting(run)` makes."""
    made = griffe.Function(name, lineno=run.lineno, parameters=run.parameters, returns=run.returns)
    text = f"Returns what `{run.name}` returns, without blocking the event loop; the arguments are the same."
    made.docstring = griffe.Docstring(text, parent=made)
    made.labels.add("async")
    return made


def moved() -> dict[str, str]:
    """Where each file beside docs/ is on the site, by its path in the repository."""
    notebooks = [path.relative_to(ROOT).as_posix() for path in (ROOT / "notebooks").glob("*.ipynb")]
    return PAGES | {name: name for name in notebooks}


def on_files(files: Files, *, config: Any) -> Files:
    for source, target in moved().items():
        files.append(File.generated(config, target, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    here = page.file.src_uri
    origin = {target: source for source, target in PAGES.items()}.get(here, f"docs/{here}")
    return LINK.sub(lambda link: site_link(link.group(), origin, here), markdown)


def site_link(link: str, origin: str, here: str) -> str:
    """Returns a link of `origin`, a page of the repository, as its copy `here` on the site writes it."""
    named = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    known = moved()
    if named not in known and not named.startswith("docs/"):
        return link  # it leads nowhere on the site, and the strict build fails on it
    return posixpath.relpath(known.get(named, named.removeprefix("docs/")), posixpath.dirname(here) or ".")


def on_post_build(*, config: Any) -> None:
    """Points the index for language models at the pages of the site; in a wheel it names the files."""
    index = Path(config["site_dir"]) / "llms.txt"
    text = index.read_text(encoding="utf-8")
    index.write_text(re.sub(r"\]\((\S+)\.md\)", r"](\1/)", text), encoding="utf-8")
