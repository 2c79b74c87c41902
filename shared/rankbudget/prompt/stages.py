"""From a request to a plan: read, price, grant, fit, verify, report; each a function over frozen values."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache, partial
from operator import index
from os import PathLike
from typing import SupportsIndex

from .._drivers import Steps, drive
from ..budget.token_budget import TokenBudget
from ..conversation.stored import AGAIN, StoredMessages
from ..errors import BudgetConfigError, BudgetExceededError, StoreConflictError
from ..messages.texts import content_text
from ..report.report import BudgetReport
from .fitted import fit, fit_history, verify
from .grants import Inputs, Prices, grant, price, read
from .outcome import contents, known_pieces, needs, warnings
from .request import Plan, PromptRequest, Turn
from .stores import filled_steps

_SHORTENED, _LEAST_QUESTION = 4, 16
"""How often a question is shortened, and the tokens below which it is not cut."""


def plan_steps(request: PromptRequest, turn: Turn | None = None) -> Steps[Plan]:
    """Returns the plan for a request; `turn` is what a session adds to it.

    Raises:
        BudgetExceededError: what must stay does not fit.
        BudgetConfigError: the blocks cannot be read.
        MessageError: a message cannot be read, or needs a repair while `strict`.
    """
    request = yield from filled_steps(request)
    for _ in range(AGAIN):
        try:
            return (yield from _one_plan(request, turn))
        except StoreConflictError:  # noqa: PERF203 - nothing was shown yet
            if not isinstance(request.history, StoredMessages):
                raise
            request = replace(request, history=request.history.again())
    return (yield from _one_plan(request, turn))


def _one_plan(request: PromptRequest, turn: Turn | None) -> Steps[Plan]:
    """Returns the plan for a request whose stores have filled their blocks."""
    inputs = read(request, turn)
    request, prices = _priced(request, inputs)
    if inputs.bare:
        rendered = yield from fit_history(request, inputs, prices)
    else:
        fitted = yield from fit(request, inputs, prices, grant(request, inputs, prices))
        rendered = yield from verify(request, inputs, prices, fitted)
    fitted, history, counter = rendered.fitted, rendered.fitted.history, request.counter
    window, timeline = request.budget.context_window, inputs.timeline
    # The same call again is another fit where a session or a summarizer remembers this one.
    remembers = timeline is not None and timeline.thread.remembers
    repeatable = request.repeatable and request.summarizer is None and not remembers
    again = partial(_report_with, request, prices.limit)
    report = BudgetReport(
        limit=prices.limit,
        total_tokens=rendered.total,
        window=None if window == prices.limit else window,
        reserve=prices.reserve,
        safety=prices.safety,
        warnings=partial(warnings, request, inputs, prices, rendered),
        counter=counter.name,
        exact=counter.exact,
        model=request.budget.model,
        covers=request.covers,
        later=partial(contents, request, inputs, prices, rendered),
        needs=partial(needs, request, inputs, prices, fitted, again) if repeatable else None,
        pieces=partial(known_pieces, request, inputs, prices, fitted),
    )
    return Plan(
        messages=rendered.messages,
        history=history.messages if history is not None else (),
        kept=fitted.fits,
        report=report,
        counter=counter,
        granted=fitted.granted,
        layout=rendered.layout,
        state=history.state if history is not None else None,
        unsummarized=history is not None and history.unsummarized,
        edits=history.edits if history is not None else {},
    )


def _priced(request: PromptRequest, inputs: Inputs) -> tuple[PromptRequest, Prices]:
    """Returns the request, with a shorter question where it must be, and its prices."""
    try:
        return request, price(request, inputs)
    except BudgetExceededError as error:
        return _price_with_short_question(request, inputs, error)


def _price_with_short_question(
    request: PromptRequest, inputs: Inputs, error: BudgetExceededError
) -> tuple[PromptRequest, Prices]:
    """Returns the request with its question cut so that it fits, and its prices; else raises `error`."""
    if request.question is None or request.shorten_question is None or "question" not in error.blocks:
        raise error
    if not request.shorten_question:
        msg = f"{error} Or set shorten_question=True of the budget, which cuts the question."
        raise BudgetExceededError(msg, limit=error.limit, needed=error.needed, blocks=error.blocks) from None
    from ..compression.structured import remembered_cut  # loaded only where a question is shortened
    from ..relevance.asking import own_questions

    before = inputs.measure.group([request.question])
    text = content_text(request.codec.to_dict(request.question).get("content"))
    most = request.counter.count(text)
    asked, last = "\n".join(own_questions(text)) or None, error
    for _ in range(_SHORTENED):
        most -= last.needed - last.limit
        if most < _LEAST_QUESTION:
            break
        shorter = remembered_cut(text, most, request.counter, question=asked)
        cut = replace(request, question=request.codec.with_text(request.question, shorter))
        try:
            return cut, replace(price(cut, inputs), question_before=before)
        except BudgetExceededError as still:
            last = still
    raise error


def plain_budget(tokens: object) -> TokenBudget:
    """Returns the budget of a bare number of prompt tokens.

    It has no reserve, shares memory to history as 3 : 4, and allows a system prompt of any size.
    """
    if isinstance(tokens, (bool, type)) or not isinstance(tokens, SupportsIndex) or index(tokens) < 1:
        msg = f"budget must be a TokenBudget or a number of prompt tokens, 1 or more (got {tokens!r})"
        msg += ". TokenBudget.from_file reads a file." if isinstance(tokens, (str, PathLike)) else ""
        raise BudgetConfigError(msg)
    return budget_of(index(tokens))


def whole_request_budget(budget: TokenBudget) -> TokenBudget:
    """Returns the budget of a finished request: its system messages hold blocks, so it bounds no prompt."""
    sizes = {name: size for name, size in budget.sizes.items() if name != "system"}
    return budget.replace(max_system_ratio=None, sizes=sizes)


@lru_cache(maxsize=256)
def budget_of(tokens: int) -> TokenBudget:
    """Returns the same for a number that was checked."""
    ratios = {"memory": 0.43, "history": 0.57}
    return TokenBudget(context_window=tokens, reserve=0, ratios=ratios, max_system_ratio=None)


def _report_with(request: PromptRequest, limit: int, more: int) -> BudgetReport:
    """Returns the report of the same request where the prompt has so many more tokens."""
    budget = request.budget
    if budget == plain_budget(budget.context_window):  # counted in `max_tokens`, as the caller gave it
        larger = plain_budget(budget.context_window + more)
        ceiling = None if request.ceiling is None else request.ceiling + more
    else:
        larger = budget.replace(
            context_window=limit + more + 2, reserve=2, safety=0, keep_band=False, max_system_ratio=None
        )
        ceiling = None
    return drive(_one_plan(replace(request, budget=larger, ceiling=ceiling), None)).report
