"""Candidates of a question in the order of their use, within a number of tokens, and by their block."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from heapq import nlargest
from itertools import chain
from typing import Any

from ..counting import counter_for
from ..fitting.evidence import Memories
from ..messages.tags import wrapper_of
from ..prompt.fit_documents import fit_one_block, kept_segment
from ..relevance.asking import rated_for
from ..relevance.corpus import TermIndex
from ..relevance.fusion import default_scorer, normalised
from ..relevance.lexical import Bm25Scorer
from ..relevance.memories import OVER_RETRIEVE, MemoryWeights
from ..report.report import FitResult
from ..segment import Block, Scope, Segment
from .memory import BlockType, Memory, route_memory_to_block, utc
from .protocol import Near
from .shells import Formula, in_turn, matters_always, named_in

PREFERENCES = "preferences"
"""The block of what always matters, after the system prompt: preferences, and facts that rarely change."""
_WORDS = Bm25Scorer()
_LEVELS = {"user": 0, "project": 1, "global": 2}


def ranked(query: str, found: Sequence[Memory], weights: MemoryWeights | None, now: datetime) -> list[Memory]:
    """Returns memories by the formula of `MemoryScorer`; of equal ones the user's own come first."""
    formula = Formula(found, weights, _Given(), now)
    ratings = formula.score(query, [m.segment() for m in found])
    order = sorted(range(len(found)), key=lambda i: (-ratings[i], _LEVELS[found[i].level], found[i].text))
    return [found[i] for i in order]


def confident(found: Near, least: float) -> Near:
    """Returns memories without those of a lower known confidence."""
    return Near([m for m in found if m.confidence is None or m.confidence >= least], found.named)


def all_confident(shells: Sequence[Near], least: float) -> tuple[list[Near], list[str]]:
    """Returns shells without memories of a lower known confidence, and a warning where there were some."""
    known = [confident(found, least) for found in shells]
    low = sum(map(len, shells)) - sum(map(len, known))
    words = f"low confidence: {low} memories are below {least:g} and were left out"
    return known, [words] if low else []


def nearness(query: str, found: Sequence[Memory]) -> list[float] | None:
    """Returns how near each memory is to a question, by search and words; None where the search said nothing.

    Where the search gave each memory a similarity, as vectors do, the words of the question count as much, as
    vectors miss names and numbers. This takes a tenth of the default scorer's time.
    """
    given = [memory.score for memory in found if memory.score is not None]
    if not given or len(given) < len(found):
        return None
    index = TermIndex.of(tuple([memory.text for memory in found]))
    words = rated_for(query, lambda asked: normalised(index.bm25(asked)))
    return [near + named for near, named in zip(normalised(given), words, strict=True)]


class _Given:
    """The similarity that a search by meaning gave each memory; where one has none, the default scorer's."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        given = [segment.score for segment in segments if segment.score is not None]
        if len(given) == len(segments):
            return given
        return rated_for(query, lambda asked: default_scorer().score(asked, segments))


def fit_memories(
    query: str,
    shells: Sequence[Sequence[Memory]],
    scope: Scope,
    max_tokens: int,
    counter: Any,
    weights: MemoryWeights | None,
    now: datetime,
    *,
    named: bool = False,
) -> FitResult:
    """Returns the memories that a question needs most, tagged as in a prompt, within `max_tokens`.

    All of one shell are kept before any of the next one. `named` tags have the key or id as source.
    """
    measured, tagged = counter_for(counter), wrapper_of("memory")

    def wrap(segment: Segment, text: str) -> str:
        return tagged(_by_name(segment) if named else segment, text)

    blocks = chain.from_iterable(_blocks(query, shell, weights, now) for shell in shells)
    block = in_turn(blocks, max_tokens)
    kept, report = fit_one_block(
        block, query, max_tokens, measured, cost=lambda s, text: measured.count(wrap(s, text)), scope=scope
    )
    return FitResult(
        segments=tuple([kept_segment(piece) for piece in kept.pieces]),
        text="".join([wrap(piece.segment, piece.rendition.text) for piece in kept.pieces]).rstrip("\n"),
        report=report.noting(*stale_ones(list(chain.from_iterable(shells)), now)),
    )


def as_one(
    query: str,
    shells: Sequence[Near],
    weights: MemoryWeights | None,
    now: datetime,
    most: int,
    notes: Sequence[str] = (),
) -> tuple[list[Memory], Block]:
    """Returns the best memories, at most so many, and a block that keeps what `fit_memories` does."""
    blocks, chosen = list[Block](), list[Memory]()
    for shell in shells:
        best = ranked(query, shell, weights, now)[: most - len(chosen)]
        ids = set(map(id, best))
        blocks += _blocks(query, Near([m for m in shell if id(m) in ids], shell.named), weights, now)
        chosen += best
    stale = stale_ones(list(chain.from_iterable(shells)), now)
    return chosen, replace(in_turn(iter(blocks), sys.maxsize), notes=(*notes, *stale))


def _by_name(segment: Segment) -> Segment:
    """Returns a memory's segment with the name that deletes it as its source."""
    memory: Memory = segment.source
    return replace(memory, sources=(str(memory.key or memory.id),)).segment()


def _blocks(
    query: str,
    found: Sequence[Memory],
    weights: MemoryWeights | None,
    now: datetime,
    most: int = OVER_RETRIEVE,
) -> Iterator[Block]:
    """Yields the nearest memories as a block that ranks and packs them, then the others."""
    near, named = nearness(query, found), named_in(found)
    strategy = Memories(scorer=Formula(found, weights, None if near is None else _WORDS, now))
    first, others = list(range(len(found))), []
    if near is not None and len(found) > most:
        nearest = set(nlargest(most, first, key=near.__getitem__))
        nearest |= {i for i in first if found[i].id in named or matters_always(found[i])}
        first, others = sorted(nearest), sorted(set(first) - nearest)
    for some in (first, others) if others else (first,):
        segments = [found[i].segment(score=None if near is None else near[i]) for i in some]
        yield Block(name="memory", segments=segments, strategy=strategy)


def routed(
    query: str,
    found: Sequence[Memory],
    weights: MemoryWeights | None,
    now: datetime,
    notes: Sequence[str] = (),
) -> list[Block]:
    """Returns memories as blocks: those that always matter, and all others, the oldest first.

    Notes, also on stale ones, are with the others, which may be none then.
    """
    blocks = {PREFERENCES: Near(named=named_in(found)), "memory": Near(named=named_in(found))}
    for memory in sorted(found, key=lambda one: (one.created_at or now, one.text)):
        always = route_memory_to_block(memory) is not BlockType.KNOWLEDGE
        blocks[PREFERENCES if always else "memory"].append(memory)
    made = {
        name: replace(next(_blocks(query, held, weights, now, len(held))), name=name)
        for name, held in blocks.items()
        if held
    }
    if notes := (*notes, *stale_ones(found, now)):
        made["memory"] = replace(made.get("memory") or Block(name="memory"), notes=notes)
    return list(made.values())


def stale_ones(found: Sequence[Memory], now: datetime) -> list[str]:
    """Returns a warning that names memories past their date of review; [] where there are none."""
    stale = [memory.key or memory.id for memory in found if memory.review_at and utc(memory.review_at) <= now]
    return (
        [f"stale memories: {len(stale)} are past their date of review: {', '.join(stale[:5])}"]
        if stale
        else []
    )
