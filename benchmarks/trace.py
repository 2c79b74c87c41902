"""`make trace`: how many functions and files of ours a call passes, beside the bound for each entry point.

Counted is the second of two equal calls: a user who steps through one meets these functions, without what
runs once. Comprehensions, generator expressions and lambdas are not counted. Exits with 1 when a bound is
missed, unless `--no-fail` is given; `--list` names the functions.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from harness import bundled_vocabulary, commit

PACKAGES = ("rankbudget", "langchain_budget", "llamaindex_budget")
UNNAMED = {"<lambda>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<module>"}
LIMIT = 600
MOST_LINES = 3_500


@dataclass
class Passed:
    """The functions that one call entered, and the files they are in."""

    folders: tuple[str, ...]
    functions: set[CodeType] = field(default_factory=set)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in UNNAMED and code.co_filename.startswith(self.folders):
            self.functions.add(code)

    @property
    def files(self) -> list[Path]:
        return sorted({Path(code.co_filename) for code in self.functions})


def second_call(call: Callable[[], Any]) -> Passed:
    """Returns what the second of two equal calls passes, in this thread and in those it starts."""
    origins = [spec.origin for spec in map(find_spec, PACKAGES) if spec is not None]
    folders = [f"{Path(str(origin)).parent}/" for origin in origins]
    passed = Passed(tuple(folders))
    call()
    threading.setprofile(passed.note)
    sys.setprofile(passed.note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # None switches it off
    return passed


# ---- what is called --------------------------------------------------------------------------------
def conversation() -> list[dict[str, str]]:
    """Returns 41 messages that do not fit: a system prompt and twenty questions with their answers."""
    made = [{"role": "system", "content": "You answer questions about a warehouse."}]
    for number in range(20):
        made.append(
            {"role": "user", "content": f"Where is the box with the number {number}, and who put it there?"}
        )
        made.append(
            {
                "role": "assistant",
                "content": f"Box {number} is in row {number % 7}; the night shift put it there on Monday.",
            }
        )
    return made


def documents() -> list[str]:
    """Returns twelve documents that do not all fit."""
    return [
        f"Row {number} holds spare parts. Its {number + 3} boxes were counted on Monday. "
        f"The key is with the night shift. Box {number * 3} holds bolts, box {number * 3 + 1} holds nuts, "
        f"and box {number * 3 + 2} is empty."
        for number in range(12)
    ]


def plain_messages() -> Callable[[], Any]:
    from rankbudget import fit_messages

    messages = conversation()
    return lambda: fit_messages(messages, max_tokens=LIMIT)


def trimmer_on_messages() -> Callable[[], Any]:
    from langchain_core.messages import convert_to_messages

    from langchain_budget import BudgetTrimmer

    messages, trimmer = convert_to_messages(conversation()), BudgetTrimmer(max_tokens=LIMIT)
    return lambda: trimmer.invoke(messages)


def trimmer_with_documents() -> Callable[[], Any]:
    from langchain_core.documents import Document
    from langchain_core.messages import convert_to_messages
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

    from langchain_budget import BudgetTrimmer

    system, *rest = conversation()
    template = [
        ("system", system["content"] + "\n{documents}"),
        MessagesPlaceholder("history"),
        ("human", "{question}"),
    ]
    trimmer = BudgetTrimmer(max_tokens=LIMIT, prompt=ChatPromptTemplate.from_messages(template))
    slots = {
        "history": convert_to_messages(rest),
        "documents": [Document(page_content=text, id=str(i)) for i, text in enumerate(documents())],
        "question": "Which row has box 11?",
    }
    return lambda: trimmer.invoke(slots)


def _chat_messages() -> list[Any]:
    from llama_index.core.base.llms.types import ChatMessage

    return [ChatMessage(role=message["role"], content=message["content"]) for message in conversation()]


def chat_memory() -> Callable[[], Any]:
    from llamaindex_budget import BudgetChatMemoryBuffer

    memory = BudgetChatMemoryBuffer.from_defaults(chat_history=_chat_messages(), token_limit=LIMIT)
    return memory.get


def block_memory() -> Callable[[], Any]:
    from llamaindex_budget import BudgetMemory

    memory = BudgetMemory.from_defaults(chat_history=_chat_messages(), token_limit=LIMIT)
    return memory.get


@dataclass(frozen=True)
class Entry:
    """One entry point, how to call it, and the most functions and files that the call may pass."""

    name: str
    make: Callable[[], Callable[[], Any]]
    functions: int
    files: int


ENTRIES = (
    Entry("BudgetTrimmer, 41 messages", trimmer_on_messages, 40, 16),
    Entry("BudgetTrimmer, 12 documents and a prompt", trimmer_with_documents, 120, 24),
    Entry("LlamaIndex BudgetChatMemoryBuffer.get", chat_memory, 45, 15),
    Entry("LlamaIndex BudgetMemory.get", block_memory, 70, 20),
)


# ---- what is printed -------------------------------------------------------------------------------
def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--no-fail", action="store_true", help="exit with 0 even where a bound is missed")
    parser.add_argument("--list", action="store_true", help="name the functions of each entry point")
    given = parser.parse_args()
    bundled_vocabulary()
    print(f"commit {commit()}")
    kept = all(
        [_entry(entry, names=given.list) for entry in ENTRIES] + [_files_of_fit_messages(names=given.list)]
    )
    return 0 if kept or given.no_fail else 1


def _entry(entry: Entry, *, names: bool) -> bool:
    passed = second_call(entry.make())
    functions, files = len(passed.functions), len(passed.files)
    kept = functions <= entry.functions and files <= entry.files
    figures = (
        f"{functions:4} functions (at most {entry.functions:3}) in {files:2} files (at most {entry.files:2})"
    )
    print(f"{entry.name:42} {figures}{_missed(kept)}")
    if names:
        _names(passed)
    return kept


def _files_of_fit_messages(*, names: bool) -> bool:
    passed = second_call(plain_messages())
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in passed.files}
    kept = sum(sizes.values()) <= MOST_LINES
    print(f"\nfit_messages, 41 messages: {len(passed.functions)} functions in {len(sizes)} files:")
    for path, size in sizes.items():
        print(f"{size:6,}  {_short(path)}")
    print(f"{sum(sizes.values()):6,}  lines in all (at most {MOST_LINES:,}){_missed(kept)}")
    if names:
        _names(passed)
    return kept


def _missed(kept: bool) -> str:  # noqa: FBT001 - one yes or no
    return "" if kept else "  MISSED"


def _names(passed: Passed) -> None:
    for path in passed.files:
        inside = sorted(
            (code.co_firstlineno, code.co_name) for code in passed.functions if code.co_filename == str(path)
        )
        print(f"    {_short(path)}: {', '.join(name for _, name in inside)}")


def _short(path: Path) -> str:
    """Returns a file's path from its package on."""
    parts = path.parts
    first = max(i for i, part in enumerate(parts) if part in PACKAGES)
    return "/".join(parts[first:])


if __name__ == "__main__":
    sys.exit(main())
