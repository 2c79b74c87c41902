"""Every way into the library, opened alike, grouped by the slots it has: doors of one kind must keep the same pieces.

Run as a script it prints how often each pair of doors agrees: `python tests/parity/doors.py --draws 100`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from rankbudget.errors import BudgetExceededError
from tests.parity import doors_core, doors_langchain, doors_llamaindex
from tests.parity.draws import Case

__all__ = ["KINDS", "PAIRS", "Ask", "Door", "difference", "outcome"]

Kept = dict[str, Any]
"""What one turn keeps, slot -> pieces. Keys that start with an underscore are not compared between doors."""


class Ask:
    """Calls a method of a host's object, or its async twin, which every host names with an `a` before the name."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop

    def __call__(self, made: Any, name: str, *args: Any, **options: Any) -> Any:
        if self._loop is None:
            return getattr(made, name)(*args, **options)
        return self._loop.run_until_complete(getattr(made, f"a{name}")(*args, **options))

    def wait(self, answer: Any) -> Any:
        """Returns what a coroutine of a method without a blocking form returns."""
        return (self._loop or asyncio.get_event_loop_policy().get_event_loop()).run_until_complete(answer)


@dataclass(frozen=True)
class Door:
    """One entry point: runs a case turn by turn and yields what each turn keeps."""

    name: str
    run: Callable[[Case, Ask], Iterator[Kept]]
    bare_only: bool = False
    budget_only: bool = False

    def takes(self, case: Case) -> bool:
        """Whether the door can be given this case's budget."""
        return case.bare if self.bare_only else not (self.budget_only and case.bare)


core, lc, li = doors_core, doors_langchain, doors_llamaindex

KINDS: dict[str, tuple[Door, ...]] = {
    "a thread without memory": (
        Door("core fit_messages", core.fit_thread, bare_only=True),
        Door("core Assembler", core.assemble_thread),
        Door("LC BudgetTrimmer list", lc.trim_list),
        Door("LC BudgetTrimmer dict", lc.trim_history_key),
        Door("LC BudgetTrimmer list prompt=", lc.trim_list_prompted),
        Door("LC BudgetChatPromptTemplate", lc.template_thread),
        Door("LI BudgetFunctionAgent", li.agent),
    ),
    "a thread, stable cut": (
        Door("core fit_messages", core.fit_thread_stable, bare_only=True),
        Door("core Assembler", core.assemble_thread_stable),
        Door("LC BudgetTrimmer list", lc.trim_list_stable),
        Door("LC BudgetChatPromptTemplate", lc.template_thread_stable),
    ),
    "trim_messages": (
        Door("core fit_messages", core.fit_thread_one_exchange, bare_only=True),
        Door("LC trim_messages", lc.trim_messages, bare_only=True),
    ),
    "a stored thread": (
        Door("core BudgetSession", core.session),
        Door("core fit_messages session=", core.fit_with_session, bare_only=True),
        Door("LC BudgetMessageHistory", lc.message_history),
        Door("LC BudgetMemory", lc.memory),
        Door("LC BudgetTrimmer list session=", lc.trim_list_session),
        Door("LC pre_model_hook thread_id", lc.hook),
        Door("LI BudgetChatMemoryBuffer", li.buffer),
        Door("LI BudgetMemory", li.block_memory),
    ),
    "a summarized thread": (
        Door("core BudgetSession", core.session_summarizing),
        Door("LC BudgetMessageHistory", lc.message_history_summarizing),
        Door("LC BudgetMemory", lc.memory_summarizing),
        Door("LC BudgetTrimmer list session=", lc.trim_list_summarizing),
        Door("LI BudgetChatMemoryBuffer", li.buffer_summarizing),
    ),
    "a stored thread and a question": (
        Door("core BudgetSession", core.session_asked),
        Door("core Assembler session=", core.assemble_asked),
        Door("LC BudgetMemory", lc.memory_asked),
        Door("LC BudgetTrimmer dict session=", lc.trim_asked),
        Door("LI BudgetChatMemoryBuffer", li.buffer_asked),
        Door("LI BudgetMemory", li.block_memory_asked),
    ),
    "a stored thread in a host's prompt": (
        Door("LC BudgetMemory prompt=", lc.memory_prompted),
        Door("LC BudgetTrimmer list session= prompt=", lc.trim_list_system),
        Door("LI SimpleChatEngine", li.simple_engine),
    ),
    "a stored thread and a question in a host's prompt": (
        Door("LC BudgetMemory prompt=", lc.memory_asked_prompted),
        Door("LC BudgetTrimmer dict prompt=", lc.trim_asked_prompted),
        Door("LI BudgetChatMemoryBuffer prompt=", li.buffer_asked_prompted),
    ),
    "history and documents by hand": (
        Door("core Assembler session=", core.assemble_parts),
        Door("LC BudgetTrimmer dict session=", lc.trim_parts),
        Door("LC BudgetMemory retriever=", lc.memory_with_retriever),
        Door("LI postprocessor + buffer", li.parts_by_hand),
        Door("LI postprocessor + BudgetMemory", li.parts_by_hand_blocks),
    ),
    "history and documents in a host's prompt": (
        Door("LC BudgetTrimmer dict prompt=", lc.trim_parts_prompted),
        Door("LI ContextChatEngine", li.context_engine),
        Door("LI ContextChatEngine use_session", li.context_engine_use_session),
    ),
    "history first, documents after it, in a host's prompt": (
        Door("LC BudgetTrimmer dict prompt= twice", lc.trim_history_first),
        Door("LI CondensePlusContextChatEngine", li.condense_engine),
    ),
    "documents of a query engine with a memory": (
        Door("LC BudgetTrimmer dict prompt=", lc.trim_query_prompted),
        Door("LI RetrieverQueryEngine memory=", li.query_engine),
    ),
    "all slots without a host": (
        Door("core Assembler", core.assemble_slots),
        Door("LC BudgetTrimmer dict", lc.trim_slots),
    ),
    "all slots in a host's prompt": (
        Door("LC BudgetTrimmer dict prompt=", lc.trim_slots_prompted),
        Door("LC BudgetChatPromptTemplate", lc.template_slots),
    ),
    "documents alone": (
        Door("core fit_documents", core.fit_documents_alone, bare_only=True),
        Door("LC BudgetDocumentCompressor", lc.compressor),
        Door("LC BudgetRetriever", lc.retriever),
        Door("LI BudgetNodePostprocessor", li.postprocessor, bare_only=True),
    ),
    "documents and a question": (
        Door("core Assembler", core.assemble_documents),
        Door("LC BudgetTrimmer dict", lc.trim_documents),
        Door("LI BudgetNodePostprocessor session=", li.postprocessor_session),
        Door("LI BudgetNodePostprocessor budget=", li.postprocessor, budget_only=True),
    ),
    "few-shot examples": (
        Door("core FewShotSelector", core.few_shot, bare_only=True),
        Door("LC BudgetExampleSelector", lc.example_selector, bare_only=True),
        Door("LI few_shot_function", li.few_shot, bare_only=True),
    ),
}
"""The matrix: doors of one kind have the same slots, see the same text of the host and count with the same counter.

A host says what it sends around them through `prompt=`. An engine that reads the history before it searches cannot
know what its documents will need: their share stays free, even where everything would fit together. It is
compared with a trimmer that is called twice, first without documents.
"""

PAIRS = [(kind, a, b) for kind, doors in KINDS.items() for a, b in combinations(doors, 2)]


def outcome(door: Door, case: Case, ask: Ask | None = None) -> list[Kept]:
    """Returns what each turn keeps; a refusal ends the list with its `limit` and `needed`."""
    found: list[Kept] = []
    try:
        found.extend(door.run(case, ask or Ask()))
    except BudgetExceededError as error:
        found.append({"refused": (error.limit, error.needed)})
    return found


def difference(ours: list[Kept], theirs: list[Kept]) -> str:
    """Returns in a few words where two outcomes differ first, "" where they agree."""
    for turn, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        when = "" if turn == 0 else ", later turn"
        if ("refused" in a) != ("refused" in b):
            return f"{'first' if 'refused' in a else 'second'} refuses{when}"
        for key in [k for k in a if k in b and not k.startswith("_")]:
            if a[key] != b[key]:
                return f"{_how(key, a[key], b[key])}{when}"
    return "" if len(ours) == len(theirs) else "number of turns"


def _how(key: str, a: Any, b: Any) -> str:
    if key == "refused":
        names = [name for name, x, y in zip(("limit", "needed"), a, b, strict=True) if x != y]
        return f"other {' and '.join(names)} in the refusal"
    if not isinstance(a, list):
        return f"other {key}"
    if [p[:1] for p in a] == [p[:1] for p in b] and len(a) == len(b) and key != "history":
        return f"{key} shortened otherwise"
    if sorted(map(repr, a)) == sorted(map(repr, b)):
        return f"{key} in another order"
    return f"{'more' if len(a) > len(b) else 'fewer' if len(a) < len(b) else 'other'} {key} in the first"


if __name__ == "__main__":
    from tests.parity.table import main  # it reads the matrix above

    main()
