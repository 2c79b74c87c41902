"""A question of its own that does not fit: cut to what is free, where that is asked for."""

from __future__ import annotations

from dataclasses import replace

from ..compression.truncate import truncate_text
from ..errors import BudgetExceededError
from ..messages.codec import content_text
from .grants import Inputs, Prices, price
from .request import PromptRequest

__all__ = ["price_with_short_question"]

_ROUNDS = 4
_LEAST = 16
"""A question is not cut to fewer tokens."""


def price_with_short_question(
    request: PromptRequest, inputs: Inputs, error: BudgetExceededError
) -> tuple[PromptRequest, Prices]:
    """Returns the request with its question cut so that it fits, and its prices; else raises `error`."""
    if request.question is None or request.shorten_question is None or "other" not in error.blocks:
        raise error
    if not request.shorten_question:
        msg = f"{error} Or set shorten_question=True of the budget, which cuts the question."
        raise BudgetExceededError(msg, limit=error.limit, needed=error.needed, blocks=error.blocks) from None
    before = inputs.measure.group([request.question])
    text = content_text(request.codec.to_dict(request.question).get("content"))
    most = request.counter.count(text)
    last = error
    for _ in range(_ROUNDS):
        most -= last.needed - last.limit
        if most < _LEAST:
            break
        shorter = truncate_text(text, most, request.counter, keep="both")
        cut = replace(request, question=request.codec.with_text(request.question, shorter))
        try:
            return cut, replace(price(cut, inputs), question_before=before)
        except BudgetExceededError as still:
            last = still
    raise error
