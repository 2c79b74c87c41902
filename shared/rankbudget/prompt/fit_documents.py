"""Fitting documents in one call: `fit_documents`, for retrieved texts, memories and anything else that is read, not answered."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ..budget.validation import shown
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..fitting.evidence import Evidence, Packed
from ..fitting.packing import Order
from ..fitting.protocol import Cost, Piece
from ..relevance.fusion import default_scorer
from ..relevance.protocol import Scorer
from ..report.report import BlockTotal, BudgetReport
from ..report.result import FitResult
from ..segment import Scope, Segment

__all__ = ["fit_documents"]

_RANK = 7
_ROUNDS = 8


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
    keep_evidence: float | None = None,
    scope: Scope | None = None,
) -> FitResult:
    """Returns the documents, or the sentences of them, that most likely hold the answer, within an exact number of tokens.

    Segments with a role are read as turns of a conversation, and each counts with what was said around it.

    Args:
        texts_or_segments: what there is; texts get their position as id.
        max_tokens: most tokens of `.text`, or of all costs where `cost` is given.
        query: the question they should answer.
        counter: a model or encoding name, or anything `counter_for` takes.
        scorer: rates segments that have no score of their own; None takes the default mix of words and meaning.
        cost: tokens of a text where it stands for a segment in your prompt, wrapping included; None counts each on a line of its own.
        compress: allows single sentences where few whole documents fit; False keeps or drops whole documents only.
        dedup: leaves out near-duplicates when not everything fits.
        order: "original", "edges" (the best first and last) or "score".
        keep_evidence: stops at this share of the expected evidence, 0 to 1, instead of filling `max_tokens`.
        scope: who reads; segments of other users or projects are left out.

    Returns:
        `.segments` are the same objects where they are kept whole, otherwise copies with the kept words; `.text` is all of them, a line
        break between two; `.report` has a reason for every one.

    Raises:
        BudgetConfigError: a negative number of tokens, something that is neither text nor segment, or ids that repeat.
        BudgetExceededError: pinned segments need more than `max_tokens`.

    Example:
        >>> result = fit_documents(["Cats sleep.", "A refund takes ten days.", "Dogs bark."], max_tokens=7, query="How long does a refund take?")
        >>> result.text, result.report.total_tokens
        ('A refund takes ten days.', 6)
    """
    if type(max_tokens) is not int or max_tokens < 0:
        msg = f"max_tokens is {max_tokens!r}, allowed: 0 or more"
        raise BudgetConfigError(msg)
    segments, hidden = _read(texts_or_segments, scope)
    measure = counter_for(counter)
    strategy = Evidence(
        scorer=scorer, compress=compress, dedup=dedup, order=order, keep_evidence=keep_evidence
    )
    packed, text, total = _fitted(strategy, segments, query, max_tokens, measure, cost)
    warnings = [] if hidden == 0 else [f"out_of_scope: {hidden} segments belong to other users or projects"]
    if keep_evidence is not None:
        warnings.append(
            f"expected_evidence: {packed.expected:.1%} of the expected evidence is kept, asked for: {keep_evidence:.0%}"
        )
    reason = getattr(default_scorer() if scorer is None else scorer, "reason", None)
    if reason:
        warnings.append(f"relevance: {reason}")
    return FitResult(
        segments=tuple([_segment(piece) for piece in packed.fit.pieces]),
        text=text,
        report=BudgetReport(
            limit=max_tokens,
            total_tokens=total,
            blocks=(BlockTotal(name="knowledge", rank=_RANK, granted=max_tokens, used=total),),
            parts=packed.fit.decisions,
            warnings=warnings,
            counter=measure.name,
            exact=measure.exact,
        ),
    )


def _read(given: Sequence[str | Segment], scope: Scope | None) -> tuple[list[Segment], int]:
    if isinstance(given, (str, Segment)):
        msg = f"fit_documents takes a list of texts or segments, seen: one {type(given).__name__}; put it in a list"
        raise BudgetConfigError(msg)
    several: Any = given  # whoever does not check types gives None, or None among the texts
    if not isinstance(several, Iterable):
        msg = f"fit_documents takes a list of texts or segments, seen: {shown(several)}; give [] where nothing was found"
        raise BudgetConfigError(msg)
    found = list(several)
    odd = [
        f"document {i} is {shown(text)}, allowed: str or Segment"
        for i, text in enumerate(found)
        if not isinstance(text, (str, Segment))
    ]
    if odd:
        raise BudgetConfigError.of(
            [
                *odd[:5],
                "leave out what is empty, and give other objects as Segment(id=.., text=.., source=..)",
            ]
        )
    everything = [
        text if isinstance(text, Segment) else Segment(id=str(i), text=text) for i, text in enumerate(found)
    ]
    counts = Counter([segment.id for segment in everything])
    twice = [name for name, times in counts.items() if times > 1]
    if twice:
        msg = f"segment ids {twice[:5]!r} stand for more than one segment, allowed: each id once"
        raise BudgetConfigError(msg)
    visible = [segment for segment in everything if segment.scope is None or segment.scope.visible_to(scope)]
    return visible, len(everything) - len(visible)


def _fitted(
    strategy: Evidence,
    segments: Sequence[Segment],
    query: str,
    max_tokens: int,
    counter: TokenCounter,
    cost: Cost | None,
) -> tuple[Packed, str, int]:
    """Fits, counts the joined text, and fits again with less where a joint cost more than its parts."""
    limit = max_tokens
    for _ in range(_ROUNDS):
        packed = strategy.pack(
            segments, limit=limit, counter=counter, block="knowledge", query=query, cost=cost
        )
        text = "\n".join([piece.rendition.text for piece in packed.fit.pieces])
        total = packed.fit.tokens if cost is not None else counter.count(text)
        if total <= max_tokens:
            return packed, text, total
        limit = max(0, limit - max(1, total - max_tokens))
    msg = f"the joined documents have {total} tokens, allowed: {max_tokens}; give a cost that counts them as your prompt joins them"
    raise BudgetConfigError(msg)


def _segment(piece: Piece) -> Segment:
    if piece.whole:
        return piece.segment
    return dataclasses.replace(piece.segment, text=piece.rendition.text, tokens=piece.rendition.tokens)
