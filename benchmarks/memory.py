"""`make memory-bench`: what it costs to find memories, and what is found.

`speed`: one search over all vectors in numpy (product and ten best) and `store.fit` of 1,000 tokens take turns on
the same memories, at growing sizes, in many scopes and in one. CPU time, medians, and the ratio. numpy has one thread:
several go on spinning after a product, in the time of whoever is next. `recall` is the share of the ten
nearest memories that the reader may see which `store.search` has among its first ten.

`locomo`: each turn of a conversation is put as a memory; kept evidence of `store.fit`, and of the same memories
fitted as a list, at the same costs. The data is read from QUALITY_DIR and not part of this project.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from harness import commit, documents, versions
from quality import judged_data

from rankbudget import Scope
from rankbudget.memory import Memory, MemoryStore
from rankbudget.memory.choosing import fit_memories
from rankbudget.memory.tables import memories, row_of
from rankbudget.memory.terms import add_terms
from rankbudget.relevance.embedding import default_embedder
from rankbudget.relevance.words import content_terms

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
READER = Scope(user="u3", project="p")
MOST_RATIO, LEAST_RECALL, MOST_LOSS = 3.0, 0.98, 0.01


def scope_of(i: int, *, one: bool) -> Scope:
    """All memories of one user; or four of five spread over 90 users, the others a project's and everybody's."""
    if one:
        return Scope(user="u3")
    return {8: Scope(project="p"), 9: Scope()}.get(i % 10, Scope(user=f"u{i % 90}"))


def filled(place: str, texts: list[str], *, one: bool) -> MemoryStore:
    """Returns a store of these memories, written at once, as 100,000 single commits wait for the disk."""
    store = MemoryStore(place, clock=lambda: NOW)
    with store.backend.database.write() as connection:
        for i, text in enumerate(texts):
            memory = Memory(
                text=text,
                scope=scope_of(i, one=one),
                id=f"{i:032}",
                created_at=NOW,
                valid_from=NOW,
                version=1,
            )
            found = connection.execute(memories().insert().values(row_of(memory)).returning(memories().c.seq))
            add_terms(connection, found.scalar_one(), content_terms(text))
    store.embed_missing()
    store.close()
    return MemoryStore(place, clock=lambda: NOW)  # it reads its index at the first search


def bare(vectors: Any, query: Any) -> Any:
    scores = vectors @ query
    best = np.argpartition(-scores, 10)[:10]
    return best[np.argsort(-scores[best])]


def taken(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def speed(size: int, rounds: int, *, one: bool) -> bool:
    """Prints a row of the table; returns whether it is within the bounds."""
    texts = documents(size, f"memories-{one}", words=25)
    embedder = default_embedder()
    with tempfile.TemporaryDirectory() as folder:
        store = filled(str(Path(folder) / "memories.db"), texts, one=one)
        vectors = np.concatenate([embedder.vectors(texts[i : i + 1000]) for i in range(0, size, 1000)])
        visible = [i for i in range(size) if scope_of(i, one=one).visible_to(READER)]
        start = time.process_time()
        store.fit("The first question reads the index.", scope=READER, max_tokens=1000)
        start = time.process_time() - start
        times: tuple[list[float], list[float]] = [], []
        hits = 0
        for turn in range(rounds):
            query = documents(1, f"question-{turn}", words=10)[0]
            asked = embedder.vectors((query,))[0]
            calls = (
                lambda asked=asked: bare(vectors, asked),
                lambda query=query: store.fit(query, scope=READER, max_tokens=1000),
            )
            for k in random.Random(turn).sample((0, 1), 2):
                times[k].append(taken(calls[k])[0])
            exact = [texts[visible[i]] for i in bare(vectors[visible], asked)]
            found = {memory.text for memory in store.search(query, scope=READER, limit=10)}
            hits += sum(text in found for text in exact)
        store.close()
    search, fit = (statistics.median(some) * 1000 for some in times)
    recall = hits / (10 * rounds)
    where = "one scope" if one else "92 scopes"
    print(
        f"  {size:>8,} {where:<10}{search:>12.2f} ms{fit:>12.2f} ms{fit / search:>9.2f}{recall:>9.3f}{start:>10.2f} s",
        flush=True,
    )
    return recall >= LEAST_RECALL and (size < 100_000 or fit / search <= MOST_RATIO)


def locomo(questions: int) -> bool:
    """Prints kept evidence of both ways; returns whether the store keeps as much."""
    data = judged_data()
    if data is None:
        return True
    judge, folder = data
    known: dict[int, tuple[Any, MemoryStore, list[Memory]]] = {}

    def of(items: Any) -> tuple[MemoryStore, list[Memory]]:
        if id(items) not in known:
            store, ann = MemoryStore(":memory:", clock=lambda: NOW), Scope(user="ann")
            kept = [store.put(item["text"], scope=ann, key=item["id"], created_at=NOW) for item in items]
            known[id(items)] = items, store, kept  # the items stay, so that no other list gets their id
        return known[id(items)][1:]

    def from_store(query: str, items: Any, budget: int) -> list[str]:
        store, _ = of(items)
        return [s.text for s in store.fit(query, scope=Scope(user="ann"), max_tokens=budget).segments]

    def from_list(query: str, items: Any, budget: int) -> list[str]:
        _, kept = of(items)
        fitted = fit_memories(query, [kept], Scope(user="ann"), budget, "o200k_base", None, NOW)
        return [segment.text for segment in fitted.segments]

    rows = {}
    for name, choose in (("store", from_store), ("list", from_list)):
        found = judge.evaluate(choose, "dev", ["locomo"], questions, False, str(folder))["locomo"]
        rows[name] = found["ev"]
        print(
            f"  {name:<8}{found['ev']}  {found['nq']} questions, over the limit {sum(found['over'])}",
            flush=True,
        )
    return all(a >= b - MOST_LOSS for a, b in zip(rows["store"], rows["list"], strict=True))


def main() -> int:
    """Runs the parts and says whether their bounds hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("speed", "locomo"))
    parser.add_argument("--sizes", default="1000,10000,100000", help="numbers of memories, comma between")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--questions", type=int, default=200)
    given = parser.parse_args()
    print(f"commit {commit()}\n{versions('numpy', 'faiss-cpu', 'sqlalchemy', 'wordllama')}")
    good = True
    if given.only != "locomo":
        print(
            f"  {'memories':>8} {'':<10}{'all vectors':>15}{'store.fit':>15}{'ratio':>9}{'recall':>9}{'start':>12}"
        )
        for size in map(int, given.sizes.split(",")):
            for one in (False, True):
                good &= speed(size, given.rounds, one=one)
    if given.only != "speed":
        print("LoCoMo, evidence kept at 5, 10, 20 and 50 % of the tokens")
        good &= locomo(given.questions)
    print("within the bounds" if good else "OVER THE BOUNDS")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
