"""Runs one long conversation through both adapters in one process: is memory bounded, is speed steady, is every turn valid?

    python benchmarks/soak.py            # 10,000 turns each
    python benchmarks/soak.py 2000

A control only stores the same messages. Beyond it, memory may grow by less than 10 % of what is stored from the first tenth to the end, and by at
most 64 bytes a message;
a turn at the end may take at most 1.5 times as long as one at the first tenth. Ends with status 1 when one of these does not hold.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rankbudget import counter_for
from rankbudget.testing.server import OPENAI, problems_of

LIMIT = 4_000
COUNTER = "o200k_base"
WORDS = "time year people way day man thing woman life child world school state family".split()


@dataclass
class Run:
    """What one thread measured."""

    name: str
    seconds: list[float] = field(default_factory=list)
    bytes_at: dict[int, int] = field(default_factory=dict)
    messages: int = 0
    invalid: int = 0
    largest: int = 0


def turn(number: int) -> tuple[str, list[tuple[str, str]], str]:
    """Returns the question, the tool calls with their results, and the answer of a turn, all different."""
    text = " ".join(WORDS[(number + i) % len(WORDS)] for i in range(10 + number % 50))
    calls = [(f"call_{number}_{i}", f"result {number} {text}") for i in range(number % 4 if number % 5 == 0 else 0)]
    return f"question {number}: {text}?", calls, f"answer {number}: {text}."


Start = Callable[[], tuple[Callable[[int], int], Callable[[], list[dict[str, Any]]]]]


def measure(name: str, turns: int, start: Start, *, traced: bool = True) -> Run:
    """Runs the turns; `start` returns a function that takes one turn and returns how many messages it added, and one that reads the thread.

    Tracing memory makes everything slower, so time is measured in a run of its own, without it.
    """
    run = Run(name)
    counter = counter_for(COUNTER)
    gc.collect()
    if traced:
        tracemalloc.start()
    base = tracemalloc.get_traced_memory()[0]
    take, read = start()
    marks = {turns // 10, turns}
    for number in range(1, turns + 1):
        run.messages += take(number)
        begin = time.perf_counter()
        seen = read()
        run.seconds.append(time.perf_counter() - begin)
        if seen and (number % 97 == 0 or number in marks):
            run.invalid += bool(problems_of(seen, OPENAI))
            run.largest = max(run.largest, counter.count_messages(seen))
        if number in marks:
            del seen
            gc.collect()
            run.bytes_at[number] = tracemalloc.get_traced_memory()[0] - base
    tracemalloc.stop()
    return run


def control_langchain() -> Any:
    from langchain_core.chat_history import InMemoryChatMessageHistory

    store = InMemoryChatMessageHistory()
    return lambda number: _add_langchain(store, number), list


def langchain() -> Any:
    from langchain_core.chat_history import InMemoryChatMessageHistory
    from langchain_core.messages import convert_to_openai_messages

    from langchain_budget import BudgetMessageHistory

    store = InMemoryChatMessageHistory()
    history = BudgetMessageHistory(store, max_tokens=LIMIT, counter=COUNTER)

    def read() -> list[dict[str, Any]]:
        return convert_to_openai_messages(history.messages)

    return lambda number: _add_langchain(history, number), read


def _add_langchain(store: Any, number: int) -> int:
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    question, calls, answer = turn(number)
    made: list[Any] = [HumanMessage(question)]
    if calls:
        made.append(AIMessage("", tool_calls=[{"name": "search", "args": {"n": number}, "id": i} for i, _ in calls]))
        made += [ToolMessage(text, tool_call_id=i) for i, text in calls]
    store.add_messages([*made, AIMessage(answer)])
    return len(made) + 1


def control_llamaindex() -> Any:
    from llama_index.core.storage.chat_store import SimpleChatStore

    store = SimpleChatStore()
    return lambda number: _add_llamaindex(lambda m: store.add_message("k", m), number), list


def llamaindex() -> Any:
    from llamaindex_budget import BudgetChatMemoryBuffer
    from llamaindex_budget._convert import CODEC

    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=LIMIT, counter=COUNTER)

    def read() -> list[dict[str, Any]]:
        return [dict(CODEC.to_dict(m)) for m in memory.get()]

    return lambda number: _add_llamaindex(memory.put, number), read


def _add_llamaindex(put: Callable[[Any], None], number: int) -> int:
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock

    question, calls, answer = turn(number)
    made = [ChatMessage(role="user", content=question)]
    if calls:
        blocks = [ToolCallBlock(tool_call_id=i, tool_name="search", tool_kwargs={"n": number}) for i, _ in calls]
        made.append(ChatMessage(role="assistant", blocks=blocks))
        made += [ChatMessage(role="tool", content=text, additional_kwargs={"tool_call_id": i}) for i, text in calls]
    for message in [*made, ChatMessage(role="assistant", content=answer)]:
        put(message)
    return len(made) + 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("turns", nargs="?", type=int, default=10_000)
    turns = parser.parse_args().turns
    warnings.simplefilter("ignore")
    failed = False
    print(
        f"| adapter | turns | messages | beyond the control at turn {turns // 10:,} | at turn {turns:,} | growth, of what is stored | bytes a message | ms a turn | later | invalid |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, subject, control in (("LangChain", langchain, control_langchain), ("LlamaIndex", llamaindex, control_llamaindex)):
        measure(name, 50, subject)  # imports and tokenizer are not the conversation's
        plain, ours, timed = (
            measure(f"{name} control", turns, control),
            measure(name, turns, subject),
            measure(name, turns, subject, traced=False),
        )
        extra = {mark: ours.bytes_at[mark] - plain.bytes_at[mark] for mark in ours.bytes_at}
        first, last = extra[turns // 10], extra[turns]
        growth = (last - first) / max(1, ours.messages * 9 // 10)
        share = (last - first) / plain.bytes_at[turns]
        tenth = turns // 10
        early, late = (statistics.median(part) * 1000 for part in (timed.seconds[tenth // 2 : tenth * 3 // 2], timed.seconds[-tenth:]))
        bad = [
            f"grows by {growth:.0f} bytes a message" if growth > 64 else "",
            f"memory beyond the control grows from {first:,} to {last:,}, {share:.1%} of what is stored" if share > 0.1 else "",
            f"a turn takes {late / early:.2f} times as long" if late > 1.5 * early else "",
            f"{ours.invalid} invalid turns" if ours.invalid else "",
            f"{ours.largest} tokens > {LIMIT}" if ours.largest > LIMIT else "",
        ]
        row = [name, f"{turns:,}", f"{ours.messages:,}", f"{first / 1000:,.0f} kB", f"{last / 1000:,.0f} kB", f"{share:.1%}", f"{growth:.1f}"]
        print("| " + " | ".join([*row, f"{early:.2f}", f"{late:.2f}", str(ours.invalid)]) + " |", flush=True)
        for line in filter(None, bad):
            print(f"  {name}: {line}")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
