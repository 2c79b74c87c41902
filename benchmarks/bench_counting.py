"""Counting against tiktoken: chat messages, a megabyte of anything, threads, templates, fastokens; and the table of estimate errors.

`python benchmarks/bench_counting.py` measures; `--table` prints the table of docs/counting.md instead.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

from harness import Contender, apart, bundled_vocabulary, chat, documents, race, table
from texts_by_kind import KINDS, texts

from rankbudget import counter_for
from rankbudget.counting.tiktoken_counter import TiktokenCounter

ENCODINGS = ("o200k_base", "cl100k_base")


def contents(seed: str, size: int) -> list[dict[str, Any]]:
    """Returns the messages of a round: the same for all, for each counts with a memory of its own."""
    return chat(size, seed.rpartition("-")[0])


def messages_race(encoding: str, rounds: int, size: int = 10_000) -> None:
    """Times 10,000 messages not counted before, and the same again."""
    import tiktoken

    encode = tiktoken.get_encoding(encoding).encode_ordinary

    def peer(seed: str) -> Callable[[], Any]:
        drawn = contents(seed, size)
        return lambda: sum([len(encode(message["content"])) for message in drawn])

    def first(seed: str) -> Callable[[], Any]:
        drawn, counter = contents(seed, size), TiktokenCounter(encoding)
        return lambda: counter.count_messages(drawn)

    def second(seed: str) -> Callable[[], Any]:
        drawn, counter = contents(seed, size), TiktokenCounter(encoding)
        counter.count_messages(drawn)
        return lambda: counter.count_messages(drawn)

    def again(seed: str) -> Callable[[], Any]:
        drawn, counter = contents(seed, size), TiktokenCounter(encoding)
        counter.count_messages(drawn)
        equal = [{"role": m["role"], "content": m["content"][:1] + m["content"][1:]} for m in drawn]
        return lambda: counter.count_messages(equal)

    contenders = [
        Contender("tiktoken encode_ordinary", peer),
        Contender("count_messages, first time", first),
        Contender("count_messages, second time", second),
        Contender("count_messages, equal texts, new objects", again),
    ]
    race(contenders, rounds=rounds, seed=f"counting {encoding}")
    print(
        table(
            f"{size:,} chat messages, {encoding}",
            contenders,
            base=contenders[0],
            describe=lambda tokens: f"{tokens:,} tokens",
        )
    )


def turn_about(encoding: str, rounds: int, size: int = 10_000, part: int = 250) -> None:
    """Prints what the first count of 10,000 messages takes beside tiktoken: both count the same messages part by part, each first in every other part.

    A machine that gets slower for a while slows both, so that this ratio moves less than that of two medians.
    """
    import tiktoken

    encode = tiktoken.get_encoding(encoding).encode_ordinary
    ratios = []
    for turn in range(rounds):
        thread, counter = chat(size, f"{encoding} turn about {turn}"), TiktokenCounter(encoding)
        counter.count_messages(thread[:3])
        gc.collect()
        gc.disable()
        spent = [0.0, 0.0]
        for start in range(0, size, part):
            messages = thread[start : start + part]
            for side in (0, 1) if start // part % 2 else (1, 0):
                begin = time.process_time()
                counter.count_messages(messages) if side else sum(
                    [len(encode(message["content"])) for message in messages]
                )
                spent[side] += time.process_time() - begin
        gc.enable()
        ratios.append(spent[1] / spent[0])
    print(
        f"{size:,} chat messages for the first time, turn about, {encoding}: {statistics.median(ratios):.3f} times tiktoken, "
        f"{min(ratios):.3f} to {max(ratios):.3f} in {rounds} rounds"
    )


def batch_calls(encoding: str, rounds: int, size: int = 10_000) -> None:
    """Prints what tiktoken's batch call, which tokenizes in threads, takes beside one call for each message."""
    import tiktoken

    loaded = tiktoken.get_encoding(encoding)

    def singly(texts: list[str]) -> int:
        return sum([len(loaded.encode_ordinary(text)) for text in texts])

    def at_once(texts: list[str]) -> int:
        return sum(map(len, loaded.encode_ordinary_batch(texts)))

    ratios: dict[str, list[float]] = {"elapsed": [], "processor": []}
    for turn in range(rounds):
        texts = [message["content"] for message in chat(size, f"{encoding} batch {turn}")]
        spent: dict[Callable[[list[str]], int], tuple[float, float]] = {}
        for side in (singly, at_once) if turn % 2 else (at_once, singly):
            begin, used = time.perf_counter(), time.process_time()
            side(texts)
            spent[side] = (time.perf_counter() - begin, time.process_time() - used)
        for name, batch, single in zip(ratios, spent[at_once], spent[singly], strict=True):
            ratios[name].append(batch / single)
    told = [f"{name} {statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})" for name, r in ratios.items()]
    print(f"{size:,} messages by tiktoken's batch call, {encoding}, times one call each: {', '.join(told)}")


def megabytes(encoding: str, rounds: int) -> None:
    """Times a million characters of each kind against tiktoken on the same text, turn about; prints median ratios."""
    import tiktoken

    encode = tiktoken.get_encoding(encoding).encode_ordinary
    source = random.Random(5)
    kinds = {
        "prose": " ".join(documents(1_200, "megabyte"))[:1_000_000],
        "one letter": "a" * 1_000_000,
        "spaces": " " * 240_000,  # longer runs are counted in slices, where tiktoken itself may panic
        "spaces and a word": "hi " + " " * 240_000 + "x",
        "line breaks": "\n" * 240_000,
        "carets": "^" * 1_000_000,
        "random letters": "".join(source.choices("abcdefghijklmnopqrstuvwxyz", k=1_000_000)),
        "base64": "".join(
            source.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=1_000_000)
        ),
        "joined emoji": "👩‍👩‍👧" * 200_000,
        "Chinese": "会议决定把项目的截止日期推迟到下个月底。" * 50_000,
    }
    print(f"a megabyte, {encoding}: times tiktoken, medians of {rounds} turns")
    for kind, text in kinds.items():
        ratios = []
        for _ in range(rounds):
            counter = TiktokenCounter(encoding)
            begin = time.process_time()
            expected = len(encode(text))
            middle = time.process_time()
            counted = counter.count(text)
            ratios.append((time.process_time() - middle) / (middle - begin))
            assert counted == expected, (kind, counted, expected)
        print(f"  {kind:<20}{statistics.median(ratios):>6.2f}")
    begin = time.process_time()
    counted = TiktokenCounter(encoding).count(" " * 1_000_000)
    print(
        f"  a million spaces, where tiktoken may panic: {counted:,} tokens in {(time.process_time() - begin) * 1000:,.0f} ms"
    )


def threads(encoding: str) -> None:
    """Prints how two threads scale over documents not counted before."""

    def timed(workers: int, seed: str) -> float:
        drawn = documents(1_200, seed)
        counter = TiktokenCounter(encoding)
        halves = [drawn[index::workers] for index in range(workers)]
        begin = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            assert sum(len(counts) for counts in pool.map(counter.count_many, halves)) == len(drawn)
        return time.perf_counter() - begin

    pairs = [(timed(1, f"one {turn}"), timed(2, f"two {turn}")) for turn in range(5)]
    print(
        f"two threads, {encoding}, 1,200 documents: {statistics.median(one / two for one, two in pairs):.2f} times as fast as one (wall time)"
    )


_FIRST_RUN = """
import sys, time
sys.path.insert(0, {folder!r})
from harness import bundled_vocabulary, chat
bundled_vocabulary()
from rankbudget import counter_for
begin = time.perf_counter()
counter = counter_for({name!r})
counter.count("start")
started = time.perf_counter() - begin
texts = [m["content"] for m in chat(10_000, {seed!r})]
begin = time.process_time()
tokens = sum(counter.count_many(texts))
print(started, time.process_time() - begin, tokens)
"""


def fast(encoding: str, rounds: int) -> None:
    """Compares first passes in fresh processes, where no cache of words has been filled."""
    if find_spec("fastokens") is None:
        print(f"fastokens, {encoding}: not installed")
        return
    seen: dict[str, list[tuple[float, float, int]]] = {"": [], "+fast": []}
    for turn in range(rounds):
        for suffix, samples in seen.items():
            code = _FIRST_RUN.format(folder=sys.path[0], name=encoding + suffix, seed=f"first pass {turn}")
            command = [sys.executable, "-c", code]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own code
            out = done.stdout.split()
            samples.append((float(out[0]), float(out[1]), int(out[2])))
    plain, quick = seen.values()
    assert [s[2] for s in plain] == [s[2] for s in quick]
    ratio = statistics.median(p[1] / q[1] for p, q in zip(plain, quick, strict=True))
    start = statistics.median(q[0] for q in quick) - statistics.median(p[0] for p in plain)
    saved = statistics.median(p[1] - q[1] for p, q in zip(plain, quick, strict=True))
    print(
        f"fastokens, {encoding}: first pass over 10,000 messages {ratio:.1f} times as fast, {start:.1f} s more to start; "
        f"it pays from {10_000 * start / saved:,.0f} new messages on"
        if saved > 0 and start > 0
        else f"fastokens, {encoding}: first pass {ratio:.1f} times as fast, {start:.1f} s more to start"
    )


def look_ups() -> None:
    """Prints what a known count costs."""
    import timeit

    counter = counter_for("o200k_base")
    text = "a short text of eight words or so"
    message = {"role": "user", "content": text}
    counter.count_message(message)
    for label, call in (
        ("count", lambda: counter.count(text)),
        ("count_message", lambda: counter.count_message(message)),
    ):
        best = min(timeit.repeat(call, number=200_000, repeat=5)) / 200_000
        print(f"known {label:<14}{best * 1e9:>6.0f} ns")


def error_table(many: int = 200) -> str:
    """Returns the table of estimate errors: by how much the true count is above (+) or below (-) the estimate."""
    estimate = counter_for("estimate")
    columns: dict[str, Callable[[str], int]] = {name: counter_for(name).count for name in ENCODINGS}
    small = _small_vocabulary()
    if small is not None:
        columns["32k vocabulary"] = small
    lines = [
        "| kind | " + " | ".join(f"{name}, mean | worst" for name in columns) + " |",
        "|---|" + "---:|---:|" * len(columns),
    ]
    for kind in KINDS:
        drawn = texts(kind, many=many, seed=2)
        cells = []
        for count in columns.values():
            errors = [count(text) / estimate.count(text) - 1 for text in drawn]
            cells += [f"{statistics.mean(errors):+.0%}", f"{max(errors):+.0%}"]
        lines.append(f"| {kind} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _small_vocabulary() -> Callable[[str], int] | None:
    """Returns the counts of a vocabulary of 32,000 pieces, the one wordllama carries."""
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations or find_spec("tokenizers") is None:
        return None
    from pathlib import Path

    from tokenizers import Tokenizer

    file = next(Path(spec.submodule_search_locations[0]).glob("tokenizers/*.json"))
    tokenizer = Tokenizer.from_file(str(file))
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def measure(encoding: str, rounds: int) -> None:
    """Prints what is measured of one encoding."""
    bundled_vocabulary()
    messages_race(encoding, rounds)
    turn_about(encoding, rounds)
    batch_calls(encoding, rounds)
    megabytes(encoding, min(5, rounds))
    threads(encoding)
    fast(encoding, min(3, rounds))


def main(rounds: int = 9) -> None:
    """Runs all of it."""
    look_ups()
    for encoding in ENCODINGS:
        apart(measure, encoding, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="print the table of estimate errors and stop")
    parser.add_argument("--batch", action="store_true", help="measure tiktoken's batch call and stop")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    bundled_vocabulary()
    if given.table:
        print(error_table())
    elif given.batch:
        for name in ENCODINGS:
            batch_calls(name, given.rounds)
    else:
        main(given.rounds)
