"""Fitting one text in one call: `fit_text`."""

from __future__ import annotations

from typing import Any

from ..compression.truncate import truncate_text
from ..counting import counter_for
from ..errors import check_count, named_only, refuse, shown
from ..report.parts import KnownPiece
from ..report.report import BudgetReport, FitResult
from ..report.totals import BlockTotal
from ..segment import Action, Decision, Segment
from .stages import plain_budget


@named_only
def fit_text(
    text: str, *, max_tokens: int, counter: Any = "o200k_base", query: str | None = None
) -> FitResult:
    """Returns a text within `max_tokens`, cut at the end of a sentence where there is one.

    Args:
        text: what to fit.
        max_tokens: most tokens of the result, the "..." that marks the cut included.
        counter: what `counter_for` takes.
        query: keeps the sentences, rows and records that answer it instead of the first ones.

    Returns:
        `.text` is the text itself when it fits.

    Raises:
        BudgetConfigError: what is given is no text, or `max_tokens` no whole number from 0.

    Example:
        >>> fit_text("One is first. Two is next. Three is last.", max_tokens=9).text
        'One is first. Two is next....'
    """
    problems: list[str] = []
    given: Any = text  # callers without type checks give None
    asked_for: Any = query
    if not isinstance(given, str):
        problems.append(f'text must be a str (got {shown(given)}). Give "" for an empty one')
    check_count("max_tokens", max_tokens, problems)
    if asked_for is not None and not isinstance(asked_for, str):
        problems.append(f"query must be a text, or None (got {shown(asked_for)})")
    refuse(problems)
    measured = counter_for(counter)
    asked = max_tokens
    max_tokens = plain_budget(asked).limit(band=measured.band) if asked else 0
    before = measured.count(text)
    if query and before > max_tokens:
        from ..fitting.one_text import answering

        kept = answering(text, query, max_tokens, measured)
    else:
        kept = truncate_text(text, max_tokens, measured)
    after = measured.count(kept)
    action: Action = "compressed" if query else "truncated"
    if kept == text or not kept:
        action = "kept" if kept == text else "trimmed"
    reason = "fits" if kept == text else "no_room"
    decision = Decision(
        segment_id="text", block="text", action=action, reason=reason, before=before, after=after
    )
    report = BudgetReport(
        limit=max_tokens,
        window=None if max_tokens == asked else asked,
        safety=asked - max_tokens,
        total_tokens=after,
        blocks=(BlockTotal(name="text", rank=1, granted=max_tokens, used=after, wanted=before),),
        parts=(decision,),
        counter=measured.name,
        exact=measured.exact,
        pieces=lambda: (KnownPiece("text", "text", (text,), (kept,)),),
    )
    return FitResult(segments=(Segment(id="text", text=kept, tokens=after),), text=kept, report=report)
