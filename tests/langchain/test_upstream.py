"""LangChain's own tests, run with ours in the place of theirs.

They are in the source distributions only. `make upstream`, which CI runs, fetches those of the installed versions and sets LANGCHAIN_SDISTS to their
folder; everywhere else these tests are skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SDISTS = os.environ.get("LANGCHAIN_SDISTS")
pytestmark = pytest.mark.skipif(
    not SDISTS, reason="LANGCHAIN_SDISTS does not name a folder with LangChain's source distributions"
)

_TRIM = """
import langchain_core.messages, langchain_core.messages.utils
from langchain_budget import trim_messages
langchain_core.messages.trim_messages = langchain_core.messages.utils.trim_messages = trim_messages
"""
_MEMORY = """
import langchain_classic.chains.conversation.memory as chains, langchain_classic.memory as all_of_them
import langchain_classic.memory.buffer as buffer, langchain_classic.memory.buffer_window as window
from langchain_budget import BudgetMemory
ConversationBufferMemory = type("ConversationBufferMemory", (BudgetMemory,), {"__module__": __name__})
ConversationBufferWindowMemory = type("ConversationBufferWindowMemory", (BudgetMemory,), {"__module__": __name__})
for module in (buffer, all_of_them, chains):
    module.ConversationBufferMemory = ConversationBufferMemory
for module in (window, all_of_them, chains):
    module.ConversationBufferWindowMemory = ConversationBufferWindowMemory
"""
DELIBERATE = {
    # These two expect a result that opens on the second half of an answer; ours opens on the user's message (docs/langchain.md).
    "test_trim_messages_last_40_include_system_allow_partial",
    "test_trim_messages_last_30_include_system_allow_partial_end_on_human",
}


def _run(plugin: str, folder: str, tests: list[str], tmp_path: Path) -> tuple[int, set[str]]:
    (tmp_path / "substitute.py").write_text(plugin)
    source = next(Path(SDISTS or "").glob(f"{folder}-*/"))
    own = source / folder  # the copy beside the tests would hide the installed package
    if own.exists():
        own.rename(source / f"_{folder}")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "substitute", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        command,
        cwd=source,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout + done.stderr
    return int(passed.group(1)), set(re.findall(r"^FAILED \S+::(\w+)", done.stdout, flags=re.MULTILINE))


def test_langchain_cores_trim_tests_pass(tmp_path: Path) -> None:
    """All of langchain-core's tests of trim_messages pass with ours, but for the two listed differences."""
    passed, failed = _run(
        _TRIM, "langchain_core", ["tests/unit_tests/messages/test_utils.py", "-k", "trim"], tmp_path
    )
    assert failed == DELIBERATE
    assert passed >= 19


def test_langchain_classics_memory_tests_pass(tmp_path: Path) -> None:
    """All of langchain-classic's conversation and memory tests pass with BudgetMemory as buffer and as window memory."""
    tests = ["chains/test_conversation.py", "chains/test_memory.py", "memory/test_combined_memory.py"]
    passed, failed = _run(_MEMORY, "langchain_classic", [f"tests/unit_tests/{t}" for t in tests], tmp_path)
    assert failed == set()
    assert passed >= 20
