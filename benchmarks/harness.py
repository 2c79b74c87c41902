"""Fair timing: the contenders of a table take turns in one process, which is theirs alone; each gets texts not counted before, medians and ratios are printed.

Ratios compare CPU time: on a machine that others use, it moves least.
"""

from __future__ import annotations

import gc
import importlib.metadata
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

__all__ = [
    "Contender",
    "apart",
    "bundled_vocabulary",
    "chat",
    "commit",
    "documents",
    "race",
    "ratios",
    "table",
    "versions",
]

_SYLLABLES = (
    "an ber con der el fi gra hon in jo ken lu mer nor ol per qui ra sen ti ul ver wil xen yor zan".split()
)


def _words(size: int) -> list[str]:
    source = random.Random(7)
    common = "the of and to a in is it you that he was for on are with as his they be at one have this from or had by not but what".split()
    return common + [
        "".join(source.choices(_SYLLABLES, k=source.choice((1, 2, 2, 3, 3, 4)))) for _ in range(size)
    ]


_VOCABULARY = _words(6000)
_WEIGHTS = [
    1 / (rank + 3) for rank in range(len(_VOCABULARY))
]  # few words are common, most are rare, as in a language
_SUMS: list[float] = []
for _weight in _WEIGHTS:
    _SUMS.append((_SUMS[-1] if _SUMS else 0.0) + _weight)


def _text(source: random.Random, words: int) -> str:
    chosen = source.choices(_VOCABULARY, cum_weights=_SUMS, k=words)
    for i in range(0, words, 12):
        chosen[i] = chosen[i].capitalize()
        chosen[i - 1] += "."  # of the first sentence, the end of the last one
    return " ".join(chosen)


def chat(size: int, seed: str) -> list[dict[str, Any]]:
    """Returns a conversation of `size` messages of about 60 tokens, the same for the same seed, with a system message in front."""
    source = random.Random(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": _text(source, 30)}]
    while len(messages) < size:
        role = "user" if len(messages) % 2 else "assistant"
        messages.append(
            {"role": role, "content": _text(source, min(200, max(4, int(source.lognormvariate(3.2, 0.6)))))}
        )
    return messages


def documents(size: int, seed: str, words: int = 170) -> list[str]:
    """Returns `size` documents of about `words` words."""
    source = random.Random(seed)
    return [_text(source, source.randint(words // 2, words * 3 // 2)) for _ in range(size)]


@dataclass(slots=True)
class Contender:
    """One thing to time.

    Args:
        name: what the table calls it.
        prepare: makes fresh input from a seed, untimed, and returns the call to time, or yields several: each is a sample, what stands between them is untimed.
        rounds: how many rounds it takes part in; None is all of them.
    """

    name: str
    prepare: Callable[[str], Callable[[], Any] | Iterator[Callable[[], Any]]]
    rounds: int | None = None
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def race(contenders: Sequence[Contender], *, rounds: int, seed: str) -> None:
    """Times all contenders, in a new random order each round; garbage is collected before the input is made, not during a run."""
    order = random.Random(seed)
    for contender in contenders:  # once untimed: imports, vocabularies, first calls
        if contender.rounds is None:
            for call in _calls(contender, f"{seed}-warm-up-{contender.name}"):
                call()
    for turn in range(rounds):
        for contender in order.sample(list(contenders), len(contenders)):
            if contender.rounds is not None and turn >= contender.rounds:
                continue
            gc.collect()
            gc.disable()
            calls = _calls(contender, f"{seed}-{turn}-{contender.name}")
            for call in calls:
                begin, cpu = time.perf_counter(), time.process_time()
                result = call()
                contender.seconds.append(time.perf_counter() - begin)
                contender.cpu.append(time.process_time() - cpu)
                contender.result = (
                    result  # only now: this frees the result before it, and with it a whole thread
                )
            gc.enable()


def apart(measure: Callable[..., None], *given: Any) -> None:
    """Calls a function of a benchmark in a process of its own: what others leave in memory scatters new objects, which slows whatever reads many."""
    process = get_context("spawn").Process(target=measure, args=given)
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def _calls(contender: Contender, seed: str) -> Iterable[Callable[[], Any]]:
    prepared = contender.prepare(seed)
    return prepared if isinstance(prepared, Iterator) else [prepared]


def table(
    title: str,
    contenders: Sequence[Contender],
    *,
    base: Contender,
    describe: Callable[[Any], str] = lambda result: "",
) -> str:
    """Returns medians and bests, CPU medians, and how many times as long as `base` each takes (by the medians of the CPU time)."""
    lines = [title, f"  {'':<42}{'median':>14}{'best':>14}{'CPU':>14}{'x ' + base.name:>20}  samples"]
    own = statistics.median(base.cpu)
    for c in contenders:
        ratio = statistics.median(c.cpu) / own
        times = "".join(
            f"{seconds * 1000:>11,.3f} ms" for seconds in (c.median, min(c.seconds), statistics.median(c.cpu))
        )
        lines.append(
            f"  {c.name:<42}{times}{ratio:>20,.{0 if ratio >= 10 else 2}f}  {len(c.seconds):>6}  {describe(c.result)}".rstrip()
        )
    return "\n".join(lines)


def ratios(peers: Sequence[Contender], ours: Sequence[Contender]) -> str:
    """Returns how many times as long as each of ours each peer takes, by the medians of the CPU time."""
    lines = [f"  {'times as long as':<42}" + "".join(f"{c.name:>22}" for c in ours)]
    for peer in peers:
        taken = statistics.median(peer.cpu)
        lines.append(
            f"  {peer.name:<42}" + "".join(f"{taken / statistics.median(c.cpu):>22,.1f}" for c in ours)
        )
    return "\n".join(lines)


def commit() -> str:
    """Returns the commit that is measured, with a + where the packages were changed since."""
    git = ["git", "-C", str(Path(__file__).parents[1])]
    packages = ["shared", "langchain_budget", "llamaindex_budget"]
    head = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)  # noqa: S603 - fixed words
    same = subprocess.run([*git, "diff", "--quiet", "HEAD", "--", *packages], check=False)  # noqa: S603 - fixed words
    return (head.stdout.strip() or "unknown") + ("+" if same.returncode else "")


def versions(*packages: str) -> str:
    """Returns what was measured on what."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"Python {platform.python_version()} on {platform.machine()}, {cores} cores, {sys.platform}; "
        + ", ".join(found)
    )


def bundled_vocabulary() -> None:
    """Lets the peers, too, find the vocabularies that llama-index-core ships, so that a benchmark needs no network."""
    from importlib.util import find_spec

    spec = find_spec("llama_index.core")
    if spec and spec.origin and "TIKTOKEN_CACHE_DIR" not in os.environ:
        os.environ["TIKTOKEN_CACHE_DIR"] = str(Path(spec.origin).parent / "_static" / "tiktoken_cache")
