"""Fitting documents in one call: `fit_documents`, for texts that are read, not answered."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .._drivers import drive
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import adapter_hint, check_count, named_options, refuse, shown
from ..fitting.evidence import Evidence, Order
from ..fitting.protocol import Cost, Fit, Piece, plain_cost
from ..messages.codec import DictCodec
from ..relevance.fusion import default_scorer
from ..relevance.protocol import Scorer
from ..report.report import BudgetReport, FitResult
from ..segment import Block, Scope, Segment
from .request import PromptRequest
from .stages import plain_budget, plan_steps


@named_options
def fit_documents(
    texts_or_segments: Sequence[str | Segment],
    *,
    max_tokens: int,
    query: str,
    counter: Any = "o200k_base",
    scorer: Scorer | None = None,
    cost: Cost | None = None,
    compress: bool = True,
    dedup: bool = True,
    order: Order = "original",
    scope: Scope | None = None,
) -> FitResult:
    """Returns the documents, or their sentences, that most likely hold the answer, within `max_tokens`.

    Segments with a role are read as turns of a conversation, and each counts with what was said around it.

    Args:
        texts_or_segments: what there is; texts get their position as id.
        max_tokens: most tokens of `.text`, or of all costs where `cost` is given.
        query: the question they should answer.
        counter: a model or encoding name, or anything `counter_for` takes.
        scorer: rates segments that have no score of their own; None takes the default mix of words and
            meaning.
        cost: tokens of a text kept of a segment in your prompt, wrapping included; None counts each on a line
            of its own.
        compress: allows single sentences of documents; False keeps or drops whole documents only.
        dedup: leaves out documents that repeat another one when not everything fits.
        order: "original", "edges" (the best first and last) or "score".
        scope: who reads; segments of other users or projects are left out.

    Returns:
        `.segments` are the same objects where they are kept whole, otherwise copies with the kept words;
        `.text` is all of them, a line break between two; `.report` has a reason for every one.

    Raises:
        BudgetConfigError: a negative number of tokens, something that is neither text nor segment, or ids
            that repeat.
        BudgetExceededError: pinned segments need more than `max_tokens`.

    Example:
        >>> texts = ["Cats sleep.", "A refund takes ten days.", "Dogs bark."]
        >>> result = fit_documents(texts, max_tokens=7, query="How long does a refund take?")
        >>> result.text, result.report.total_tokens
        ('A refund takes ten days.', 6)
    """
    problems: list[str] = []
    most = check_count("max_tokens", max_tokens, problems)
    segments = _read(texts_or_segments, problems)
    measured = counter_for(counter)
    strategy = Evidence(scorer=scorer, compress=compress, dedup=dedup, order=order)
    block = Block(name="knowledge", segments=segments, strategy=strategy)
    kept, report = fit_one_block(block, query, most, measured, cost=cost, scope=scope)
    reason = getattr(default_scorer() if scorer is None else scorer, "reason", None)
    return FitResult(
        segments=tuple([kept_segment(piece) for piece in kept.pieces]),
        text=_text(kept),
        report=report.noting(f"relevance: {reason}") if reason else report,
    )


def fit_one_block(
    block: Block,
    query: str,
    most: int,
    counter: TokenCounter,
    *,
    cost: Cost | None = None,
    scope: Scope | None = None,
) -> tuple[Fit, BudgetReport]:
    """Returns what a block keeps of itself in a prompt of its own, of `most` tokens, and the report.

    Without a `cost` its pieces are lines of one text.
    """
    request = PromptRequest(
        budget=plain_budget(max(1, most)),
        ceiling=most,
        counter=counter,
        codec=DictCodec(),
        measure=_Joined(counter, priced=cost is not None),
        blocks=(block,),
        question_text=query,
        sources=frozenset({block.name}),
        render=lambda kept, _: [kept[block.name]],
        cost=cost or plain_cost(counter),
        scope=scope,
        covers="documents",
    )
    plan = drive(plan_steps(request))
    return plan.kept[block.name], plan.report


class _Joined:
    """Counts kept documents: as the text they join to, or as the caller prices them."""

    additive = False
    overhead = 0

    def __init__(self, counter: TokenCounter, *, priced: bool) -> None:
        self._counter = counter
        self._priced = priced

    def group(self, messages: Sequence[Any]) -> int:
        return self.total(messages)

    def total(self, messages: Sequence[Any]) -> int:
        return sum([fit.tokens if self._priced else self._counter.count(_text(fit)) for fit in messages])


def _text(fit: Fit) -> str:
    return "\n".join([piece.rendition.text for piece in fit.pieces])


def kept_segment(piece: Piece) -> Segment:
    """Returns a kept segment: the given object where it is whole, else a copy with the kept words."""
    if piece.whole:
        return piece.segment
    return dataclasses.replace(piece.segment, text=piece.rendition.text, tokens=piece.rendition.tokens)


def _read(given: Any, problems: list[str]) -> list[Segment]:
    """Returns texts and segments as segments; raises for `problems` and for what is neither."""
    several = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping, Segment))
    if not several:
        hint = "Put it in a list" if isinstance(given, (str, Segment)) else "Give [] where nothing was found"
        problems.append(
            f"texts_or_segments must be a list of texts or segments (got {shown(given)}). {hint}."
        )
    found = list(given) if several else []
    odd = [(i, item) for i, item in enumerate(found) if not isinstance(item, (str, Segment))]
    for i, item in odd[:5]:
        hint = f".{adapter}" if (adapter := adapter_hint(item)) else ""
        problems.append(f"texts_or_segments[{i}] must be a str or a Segment (got {shown(item)}){hint}")
    segments = [
        item if isinstance(item, Segment) else Segment(id=str(i), text=item)
        for i, item in enumerate(found)
        if isinstance(item, (str, Segment))
    ]
    twice = [name for name, times in Counter([s.id for s in segments]).items() if times > 1]
    if twice:
        problems.append(f"segment ids must be unique (got {twice[:5]!r} more than once)")
    refuse(problems)
    return segments
