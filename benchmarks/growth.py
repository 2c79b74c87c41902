"""Fits ever longer inputs through each entry point, ten times as long at each step: do time and memory grow as the input does?

    python benchmarks/growth.py                          # about twenty minutes, and 8 GB of memory
    python benchmarks/growth.py --only documents --most 10000

Each size runs in a process of its own, on texts of which no two are alike and none was counted before. CPU seconds and peak memory are those of
the call alone: the tokenizer and the relevance model are loaded before, the input is made before. Ten times the input may cost 14 times the
seconds and 11 times the memory. Less than 0.05 s and 8 MB count as that much: a process' own noise.

Ends with status 1 when a step costs more.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from harness import bundled_vocabulary, chat, commit, documents, versions

MOST_TIME, MOST_MEMORY = 14.0, 11.0
SECONDS, BYTES = 0.05, 8_000_000
LIMIT = 8_192
MESSAGES = (1_000, 10_000, 100_000, 1_000_000)
DOCUMENTS = (1_000, 10_000, 100_000)
MEGABYTES = (1, 10, 100)
QUESTION = "When was the pump of the second line replaced?"
Call = Callable[[], Any]


class Door(NamedTuple):
    """One entry point: `prepare` makes an input of a size and returns the call to measure."""

    prepare: Callable[[int, str], Call]
    sizes: tuple[int, ...]
    unit: str


# ---- inputs ------------------------------------------------------------------------------------------------------------------------
def messages(size: int, seed: str) -> list[dict[str, Any]]:
    return [*chat(size, seed), {"role": "user", "content": QUESTION}]


def texts(size: int, seed: str) -> list[str]:
    """Returns documents of about 60 words in sentences, each document with a number of its own."""
    made = documents(size, seed, words=60)
    return [f"Report {i} is about part {i * 7919 % 1_000_003}. {text}" for i, text in enumerate(made)]


def long_text(megabytes: int, seed: str) -> str:
    """Returns paragraphs of about 170 words in sentences, each paragraph with a number of its own."""
    parts: list[str] = []
    left = megabytes * 1_000_000
    while left > 0:
        for text in documents(100, f"{seed}-{len(parts)}"):
            parts.append(f"Entry {len(parts)} was read twice. {text}")
            left -= len(parts[-1]) + 2
    return "\n\n".join(parts)[: megabytes * 1_000_000]


def examples(size: int, seed: str) -> list[dict[str, str]]:
    source = random.Random(seed)
    return [
        {"input": text, "output": f"Answer {source.random()}"} for text in documents(size, seed, words=20)
    ]


# ---- entry points ------------------------------------------------------------------------------------------------------------------
def fit_newest(size: int, seed: str) -> Call:
    from rankbudget import fit_messages

    thread = messages(size, seed)
    return lambda: fit_messages(thread, max_tokens=LIMIT)


def fit_most(size: int, seed: str) -> Call:
    from rankbudget import fit_messages

    thread = messages(size, seed)
    return lambda: fit_messages(thread, max_tokens=30 * size + LIMIT)


def fit_relevant(size: int, seed: str) -> Call:
    from rankbudget import fit_messages

    thread = messages(size, seed)
    return lambda: fit_messages(thread, max_tokens=LIMIT, query=QUESTION)


def session(size: int, seed: str) -> Call:
    from rankbudget import BudgetSession

    thread = messages(size, seed)
    held = BudgetSession(LIMIT)

    def turns() -> None:
        for i in range(5):
            held.fit(thread)
            thread.append({"role": "assistant", "content": f"Answer {i}."})
            thread.append({"role": "user", "content": f"Question {i}?"})

    return turns


def row_of_messages(size: int, seed: str) -> Call:
    from rankbudget.batch import FitPrompt

    fit, row = FitPrompt(LIMIT), {"history": messages(size, seed)}
    return lambda: _fitted(fit.row(row))


def row_of_documents(size: int, seed: str) -> Call:
    from rankbudget.batch import FitPrompt

    fit, row = FitPrompt(LIMIT), {"question": QUESTION, "documents": texts(size, seed)}
    return lambda: _fitted(fit.row(row))


def _fitted(made: dict[str, Any]) -> None:
    if made["budget_error"] is not None:
        sys.exit(made["budget_error"])


def fit_texts(size: int, seed: str) -> Call:
    from rankbudget import fit_documents

    found = texts(size, seed)
    return lambda: fit_documents(found, max_tokens=LIMIT, query=QUESTION).report.decisions


def long_message(size: int, seed: str) -> Call:
    from rankbudget import fit_messages

    said = [{"role": "user", "content": long_text(size, seed)}, {"role": "assistant", "content": "Noted."}]
    said.append({"role": "user", "content": QUESTION})
    return lambda: fit_messages(said, max_tokens=LIMIT)


def one_document(size: int, seed: str) -> Call:
    from rankbudget import fit_documents

    found = [long_text(size, seed)]
    return lambda: fit_documents(found, max_tokens=LIMIT, query=QUESTION)


def select_three(size: int, seed: str) -> Call:
    from rankbudget import FewShotSelector

    known, selector = examples(size, seed), FewShotSelector()
    return lambda: selector.select(QUESTION, known)


def select_tokens(size: int, seed: str) -> Call:
    from rankbudget import FewShotSelector

    known, selector = examples(size, seed), FewShotSelector()
    return lambda: selector.select(QUESTION, known, None, max_tokens=LIMIT)


def count(size: int, seed: str) -> Call:
    from rankbudget import counter_for

    text, counter = long_text(size, seed), counter_for("o200k_base")
    return lambda: counter.count(text)


def estimate(size: int, seed: str) -> Call:
    from rankbudget import counter_for

    text, counter = long_text(size, seed), counter_for("estimate")
    return lambda: counter.count(text)


def cut(size: int, seed: str) -> Call:
    from rankbudget import fit_text

    text = long_text(size, seed)
    return lambda: fit_text(text, max_tokens=LIMIT)


def answer(size: int, seed: str) -> Call:
    from rankbudget import fit_text

    text = long_text(size, seed)
    return lambda: fit_text(text, max_tokens=LIMIT, query=QUESTION)


def compress(size: int, seed: str) -> Call:
    from rankbudget import PromptCompressor

    text, compressor = long_text(size, seed), PromptCompressor()
    return lambda: compressor.compress(text, LIMIT, query=QUESTION)


def compress_half(size: int, seed: str) -> Call:
    from rankbudget import PromptCompressor

    text, compressor = long_text(size, seed), PromptCompressor()
    return lambda: compressor.compress(text)


def langchain(size: int, seed: str) -> Call:
    from langchain_core.messages import AIMessage, HumanMessage

    from langchain_budget import BudgetTrimmer

    kinds = {"user": HumanMessage, "assistant": AIMessage, "system": HumanMessage}
    thread = [kinds[m["role"]](m["content"], id=str(i)) for i, m in enumerate(messages(size, seed))]
    trimmer = BudgetTrimmer(max_tokens=LIMIT)
    return lambda: trimmer.invoke(thread)


def llamaindex(size: int, seed: str) -> Call:
    from llama_index.core.schema import NodeWithScore, TextNode

    from llamaindex_budget import BudgetNodePostprocessor

    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(i))) for i, text in enumerate(texts(size, seed))]
    processor = BudgetNodePostprocessor(max_tokens=LIMIT)
    return lambda: processor.postprocess_nodes(nodes, query_str=QUESTION)


DOORS = {
    "messages: fit_messages, the newest": Door(fit_newest, MESSAGES, "messages"),
    "messages: fit_messages, more than half stays": Door(fit_most, MESSAGES, "messages"),
    "messages: fit_messages with a query": Door(fit_relevant, MESSAGES, "messages"),
    "messages: BudgetSession, five turns": Door(session, MESSAGES, "messages"),
    "messages: FitPrompt, one row": Door(row_of_messages, MESSAGES, "messages"),
    "messages: LangChain's BudgetTrimmer": Door(langchain, MESSAGES, "messages"),
    "documents: fit_documents": Door(fit_texts, DOCUMENTS, "documents"),
    "documents: FitPrompt, one row": Door(row_of_documents, DOCUMENTS, "documents"),
    "documents: LlamaIndex's BudgetNodePostprocessor": Door(llamaindex, DOCUMENTS, "documents"),
    "examples: FewShotSelector, three": Door(select_three, DOCUMENTS, "examples"),
    "examples: FewShotSelector, by tokens": Door(select_tokens, DOCUMENTS, "examples"),
    "text: counted": Door(count, MEGABYTES, "MB"),
    "text: estimated": Door(estimate, MEGABYTES, "MB"),
    "text: fit_text": Door(cut, MEGABYTES, "MB"),
    "text: fit_text with a query": Door(answer, MEGABYTES, "MB"),
    "text: fit_documents, one document": Door(one_document, MEGABYTES, "MB"),
    "text: fit_messages, one long message": Door(long_message, MEGABYTES, "MB"),
    "text: PromptCompressor, to 8,192 tokens": Door(compress, MEGABYTES, "MB"),
    "text: PromptCompressor, by 60 %": Door(compress_half, MEGABYTES, "MB"),
}


# ---- one process -------------------------------------------------------------------------------------------------------------------
class Cost(NamedTuple):
    """CPU seconds and bytes of peak memory of one call."""

    seconds: float
    bytes: int


def measure(name: str, size: int) -> Cost:
    """Runs one entry point on an input of one size; tokenizer and relevance model are loaded before, the caches are empty."""
    from rankbudget import fit_documents

    fit_documents(["Tea is hot.", "Cats sleep."], max_tokens=4, query="Is tea hot?")
    call = DOORS[name].prepare(size, f"growth-{size}")
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # glibc: what is free goes back to the system
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):  # Linux: the peak starts again at what is held now
        Path("/proc/self/clear_refs").write_text("5")
    before, began = peak(), time.process_time()
    call()
    return Cost(time.process_time() - began, peak() - before)


def peak() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


# ---- the table ---------------------------------------------------------------------------------------------------------------------
def run(name: str, size: int) -> Cost:
    command = [sys.executable, __file__, "--measure", name, str(size)]
    plain = {**os.environ, "PYTHONMALLOC": "malloc"}  # so that free pages can be given back before the call
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=3600, env=plain)  # noqa: S603 - our own code
    last = done.stdout.strip().splitlines()[-1:] or [""]
    if done.returncode or not last[0].startswith("measured: "):
        sys.exit(f"{name}, {size:,}: status {done.returncode} {done.stdout[-2000:]}{done.stderr[-4000:]}")
    return Cost(*json.loads(last[0].removeprefix("measured: ")))


def judge(small: Cost, large: Cost) -> tuple[float, float, bool]:
    """Returns how many times the seconds and the memory one step costs, and whether that is allowed."""
    times = large.seconds / max(small.seconds, SECONDS)
    memory = large.bytes / max(small.bytes, BYTES)
    return times, memory, times <= MOST_TIME and memory <= MOST_MEMORY


def steps(name: str, most: int) -> list[bool]:
    """Measures one entry point at each size up to `most`, prints a line a step, and returns the verdicts."""
    door = DOORS[name]
    found: list[bool] = []
    sizes = [size for size in door.sizes if size <= most]
    costs: list[Cost] = []
    for size in sizes:
        costs.append(run(name, size))
        if len(costs) > 1:
            small, large = costs[-2:]
            times, memory, held = judge(small, large)
            found.append(held)
            row = f"| {name} | {size // 10:,} to {size:,} {door.unit} | {small.seconds:.2f} to {large.seconds:.2f} s | {times:.1f} "
            row += f"| {small.bytes / 1e6:,.0f} to {large.bytes / 1e6:,.0f} MB | {memory:.1f} | {'held' if held else 'MISSED'} |"
            print(row, flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="a part of the names to measure")
    parser.add_argument("--most", type=int, default=max(MESSAGES), help="the largest input, in its own unit")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    bundled_vocabulary()
    if options.measure:
        print("measured:", json.dumps(measure(options.measure[0], int(options.measure[1]))))
        return 0
    names = [name for name in DOORS if options.only in name]
    print(f"commit {commit()}; {versions('tiktoken')}\n")
    print("| entry point | input | CPU | times | memory | times | verdict |")
    print("|---|---|---|---|---|---|---|")
    found = [held for name in names for held in steps(name, options.most)]
    print(
        f"\n{sum(found)} of {len(found)} steps cost at most {MOST_TIME:.0f} times the seconds and {MOST_MEMORY:.0f} times the memory"
    )
    return 0 if found and all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
