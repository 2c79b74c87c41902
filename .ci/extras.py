"""Installs each extra alone into an environment of its own, with the pins, and runs what the extra is for.

.venv/bin/python .ci/extras.py            # all of them; the batch engines take minutes
.venv/bin/python .ci/extras.py faiss fast
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from wheel_test import build, run

ROOT = Path(__file__).resolve().parents[1]
USE = {
    "transformers": """
import jinja2, transformers
from tokenizers import Tokenizer, models
from rankbudget import counter_for
assert counter_for(Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))).count("one") == 1
""",
    "faiss": """
from rankbudget import EmbeddingIndex
index = EmbeddingIndex(lambda texts: [[len(text), 1.0] for text in texts], backend="faiss")
index.add(["one", "three"])
assert index.uses_faiss and index.search("three", k=1)
""",
    "embed": """
from rankbudget import EmbeddingIndex
index = EmbeddingIndex()
index.add(["A bee dances.", "Tea is stored dry."])
assert index.search("Why do bees dance?", k=1)
""",
    "onnx": "import numpy, onnxruntime, tokenizers; import rankbudget.compression.token_classifier",
    "vocab": """
import socket
socket.create_connection = None
from rankbudget import counter_for
assert [counter_for(name).exact for name in ("o200k_base", "cl100k_base")] == [True, True]
""",
    "fast": """
from rankbudget import counter_for
assert counter_for("o200k_base", fast=True).name
""",
    "cli": "import argcomplete; from rankbudget import BudgetReport; BudgetReport(limit=1, total_tokens=0).print()",
    "sql": """
from rankbudget import Scope
from rankbudget.memory import MemoryStore
MemoryStore(":memory:").put("Ann likes tea.", scope=Scope(user="ann"))
""",
    "postgres": "import psycopg; from rankbudget.memory import MemoryStore",
    "otel": "from rankbudget import trace_reports; trace_reports()",
    "parquet": "from pathlib import Path; import rankbudget.batch.formats as f; f.format_of(Path('in.parquet'))",
    "ray": "import pyarrow, ray.data; from rankbudget.batch import FitPrompt",
    "daft": "import daft, pyarrow; from rankbudget.batch import fit_daft",
    "llamaindex": "import llamaindex_budget as m; [getattr(m, name) for name in m.__all__]",
}


def program_of(extra: str) -> str:
    """Returns what must run with the extra alone; what `all` brings must run together."""
    if extra == "all":
        parts = ["langchain", "agents", "classic", *(set(USE) - {"parquet", "ray", "daft"})]
        return "\n".join(map(program_of, parts))
    return USE.get(extra) or f"from langchain_budget import {', '.join(named_on_the_page(extra))}"


def named_on_the_page(extra: str) -> list[str]:
    """Returns the names that the table of docs/langchain.md gives for an extra."""
    page = (ROOT / "docs" / "langchain.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\|.*\|(.*)\| `rankbudget\[{extra}\]` \|$", page, flags=re.MULTILINE)
    return re.findall(r"`(\w+)`", " ".join(rows))


def problem_of(extra: str, wheel: Path, folder: Path) -> str:
    """Returns the error of an extra installed alone, or nothing."""
    place = folder / extra
    venv.create(place, with_pip=True)
    python = place / "bin" / "python"
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    try:
        run(*pip, "install", "-c", ROOT / "constraints.txt", f"{wheel}[{extra}]")
    except SystemExit as error:
        return str(error)
    done = subprocess.run(
        [python, "-c", program_of(extra)], cwd=folder, check=False, capture_output=True, text=True
    )
    return done.stderr if done.returncode else ""


def main() -> None:
    known = ["langchain", "agents", "classic", *USE, "all"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("extras", nargs="*", default=known, help=f"some of {', '.join(known)}")
    wanted: list[str] = parser.parse_args().extras
    if unknown := set(wanted) - set(known):
        parser.error(f"an extra must be one of {', '.join(known)} (got {', '.join(sorted(unknown))})")
    failed = []
    with tempfile.TemporaryDirectory() as name:
        wheel = build(Path(name))
        for extra in wanted:
            problem = problem_of(extra, wheel, Path(name))
            shutil.rmtree(Path(name, extra))
            print(f"{extra}: {'FAILED' if problem else 'ok'}\n{problem}".strip(), flush=True)
            failed += [extra] if problem else []
    sys.exit(f"these extras fail alone: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
