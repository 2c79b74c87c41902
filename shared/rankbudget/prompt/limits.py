"""The limits of an entry point, resolved in one place: a budget, a model or a number, and how to count."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import Any

from typing_extensions import Self

from ..budget.context_windows import context_window_of
from ..budget.token_budget import TokenBudget
from ..budget.validation import DEFAULT_RESERVE
from ..counting import counter_for
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetConfigError, CounterUnavailableError, check_count, refuse, shown
from ..messages.measure import Measure
from .stages import plain_budget

_STORED = ("previous_response_id", "conversation", "cached_content")
"""What the integrations call that which a provider stores and adds to a request."""
UNKNOWN = 1 << 62
"""A window that nothing states."""
_HOW = "Set a smaller answer on the model, or give budget=TokenBudget(context_window=.., reserve=..)."


@dataclass(frozen=True, kw_only=True)
class ModelFacts:
    """What an adapter reads off a host's model object; None where the model does not say it."""

    name: str | None = None
    window: int | None = None  # most tokens of prompt and answer, as its object states it
    assumed: int | None = None  # the same, of a server that may be configured otherwise
    max_output: int | None = None  # the largest answer the model can write
    answer: int | None = None  # the largest answer its requests ask for
    answer_chosen: bool = False  # the user chose that answer; else it may be the integration's default
    smallest_fallback: int | None = None  # the smallest window of its fallback models
    counter: Any = None  # counts as the model does; what `counter_for` takes
    shown_as: str = "model"  # what an error calls the model

    def own_window(self, budget: TokenBudget | None = None, given: int | None = None) -> int | None:
        """Returns the model's window, which no larger limit switches off; None where it is unknown.

        The one that is assumed counts where no limit is given; then what the object states, then a window
        `given` for it, then that of its name. A fallback model may have a smaller one.
        """
        assumed = self.assumed if budget is None and given is None else None
        window = assumed or self.window or given
        if window is None and self.name is not None:
            known = context_window_of(self.name, default=UNKNOWN)
            window = None if known == UNKNOWN else known
        if window is None or self.smallest_fallback is None:
            return window
        return min(window, self.smallest_fallback)

    def answer_in(self, window: int) -> int | None:
        """Returns the answer that needs room in a window: a default of more than half of it does not."""
        eats = not self.answer_chosen and self.answer is not None and self.answer > window // 2
        return None if eats else self.answer


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What every prompt of an entry point keeps to."""

    budget: TokenBudget  # the limits; a bare number is a budget without a reserve
    counter: TokenCounter
    ceiling: int | None = None  # most tokens of the whole prompt beside the budget
    tools: Sequence[Tool] | None = None  # tool schemas sent along; they are counted
    measure: Measure | None = None  # counts messages and tools as the host does; None their neutral form
    notes: tuple[str, ...] = ()  # where these are not the limits that were given; reports warn of it

    @property
    def most(self) -> int:
        """The most tokens a prompt without a system message may have."""
        return self.budget.limit(band=self.counter.band, ceiling=self.ceiling)

    def at_most(self, tokens: int) -> Self:
        """Returns limits by which no prompt has more than `tokens`; the band is free in them already."""
        return replace(self, ceiling=self.budget.ceiling_for(min(tokens, self.most), band=self.counter.band))

    def fields(self) -> dict[str, Any]:
        """Returns these limits as fields of a `PromptRequest`."""
        return {
            "budget": self.budget,
            "counter": self.counter,
            "ceiling": self.ceiling,
            "tools": self.tools,
            "measure": self.measure,
            "notes": self.notes,
        }


def limits_of(
    *,
    budget: Any = None,
    max_tokens: int | None = None,
    context_window: int | None = None,
    model: ModelFacts | str | None = None,
    counter: Any = None,
) -> Limits:
    """Returns the limits that these options mean; with none of them, those of a window of 8,192 tokens.

    Beside a budget a model says how to count and how long its answers may be, and its own window counts where
    it is smaller; `max_tokens` is a ceiling. Alone, `max_tokens` is all of the prompt, without a reserve;
    `context_window` is for models that do not state it.

    Raises:
        BudgetConfigError: an option is wrong, or the model's answer leaves nothing of its window.
        CounterUnavailableError: the model's window is unknown and nothing states it.

    Example:
        >>> limits_of(model="gpt-4o").budget.context_window, limits_of(max_tokens=500).most
        (128000, 500)
        >>> limits_of(budget={"context_window": 1000, "reserve": 200}, max_tokens=500).most
        500
    """
    _check(budget, max_tokens, context_window)
    max_tokens = None if max_tokens is None else index(max_tokens)
    facts = ModelFacts(name=model) if isinstance(model, str) else model
    given = TokenBudget.from_dict(budget) if isinstance(budget, Mapping) else budget
    own = context_window if facts is None else facts.own_window(given, context_window)
    if given is None:
        whole = _budget(facts, own if own is None else min(own, context_window or own), max_tokens)
    else:
        whole = given if facts is None else _for_model(given, own, facts)
    wanted = context_window if given is None else given.context_window
    bare = wanted is None and facts is None  # a number alone is all of the limit
    ceiling = None if bare else _beside_answer(facts, own or _stated(whole), max_tokens)
    return Limits(
        budget=whole,
        counter=counter_for(_counted_by(counter, facts, whole)),
        ceiling=ceiling,
        notes=() if bare and max_tokens is not None else _notes(wanted, whole, facts, own, ceiling),
    )


def _counted_by(counter: Any, facts: ModelFacts | None, budget: TokenBudget) -> Any:
    """Returns what counts: a counter that was given, the model, or the budget's."""
    of_model = () if facts is None else (facts.counter, facts.name)
    return next((one for one in (counter, *of_model) if one is not None), budget.model or "o200k_base")


def within_window(budget: TokenBudget, own: int | None, model: str, answer: int | None = None) -> TokenBudget:
    """Returns the budget within the model's `own` window, where that is known and smaller.

    The default reserve grows to the `answer` that the model's requests ask for.

    Raises:
        BudgetConfigError: the budget's reserve or sizes, or the answer, leave nothing of that window.
    """
    if own is not None and own < budget.context_window:
        try:
            budget = budget.replace(context_window=own)
        except BudgetConfigError as error:
            got = f"{budget.context_window:,}"
            msg = f"budget must fit the window of the {model}, {own:,} tokens (got {got}). {error}"
            raise BudgetConfigError(msg) from error
    return budget if answer is None else _with_reserve(budget, answer, own or budget.context_window, model)


def _for_model(budget: TokenBudget, own: int | None, facts: ModelFacts) -> TokenBudget:
    return within_window(budget, own, facts.shown_as, facts.answer_in(own or budget.context_window))


def _stated(budget: TokenBudget) -> int | None:
    """Returns the window that a budget states of a model; beside a chosen reserve it may be any limit."""
    return budget.context_window if budget.reserve == DEFAULT_RESERVE else None


def _notes(
    wanted: int | None, whole: TokenBudget, facts: ModelFacts | None, own: int | None, ceiling: int | None
) -> tuple[str, ...]:
    """Returns what a report says of a window not `wanted` or not given, and of answers."""
    has = whole.context_window
    if wanted is None and facts is None:
        return (f"no limit was given, so a window of {has:,} tokens is assumed; give model= or max_tokens=",)
    if wanted is None or facts is None:
        return ()
    notes = answer_notes(whole.limit(ceiling=ceiling), facts.answer, own or has, facts.shown_as)
    return (*window_notes(wanted, has, facts.shown_as), *notes)


def window_notes(wanted: int, has: int, model: str) -> tuple[str, ...]:
    """Returns what a report says of a given window that is larger than the model's own."""
    if wanted <= has:
        return ()
    return (f"the given window of {wanted:,} tokens is larger than that of the {model}: {has:,} count",)


def answer_notes(most: int, answer: int | None, window: int, model: str) -> tuple[str, ...]:
    """Returns what a report says where prompts of up to `most` tokens leave an answer too little."""
    if answer is None or most + answer <= window:
        return ()
    left = f"prompts of up to {most:,} leave {window - most:,} of the window of {window:,}"
    asks = f"the {model} asks for answers of up to {answer:,} tokens"
    return (f"{asks}, but {left}; give the budget a larger reserve",)


def holds(model: Any, arguments: Mapping[str, Any]) -> bool:
    """Returns whether a request names messages that its provider stores and adds."""
    extras = [getattr(model, name, None) or {} for name in ("model_kwargs", "additional_kwargs")]
    given = {**extras[0], **extras[1], **arguments}
    fields = [name for stored in _STORED for name in (stored, f"_{stored}")]
    named = any(given.get(name) or getattr(model, name, None) for name in fields)
    return named or bool(getattr(model, "use_previous_response_id", False))


def _beside_answer(facts: ModelFacts | None, window: int | None, ceiling: int | None) -> int | None:
    """Returns the most tokens of a prompt beside the answer that the user chose on the model.

    A budget that reserves less must not send what the provider refuses.
    """
    if window is None or facts is None or facts.answer is None or not facts.answer_chosen:
        return ceiling
    most = max(1, window - facts.answer)
    return most if ceiling is None else min(most, ceiling)


def _check(budget: Any, max_tokens: Any, context_window: Any) -> None:
    problems: list[str] = []
    for name, value in (("max_tokens", max_tokens), ("context_window", context_window)):
        if value is not None:
            check_count(name, value, problems, low=1)
    if budget is not None and not isinstance(budget, (TokenBudget, Mapping)):
        problems.append(
            f"budget must be a TokenBudget or its fields (got {shown(budget)}); give a number as max_tokens"
        )
    if budget is not None and context_window is not None:
        problems.append(
            "context_window must be left out beside a budget (got both). The budget has its own window."
        )
    refuse(problems)


def _budget(facts: ModelFacts | None, window: int | None, max_tokens: int | None) -> TokenBudget:
    """Returns the budget of a model, of a window or of a bare number."""
    if facts is None:
        if window is None and max_tokens is not None:
            return plain_budget(max_tokens)
        return TokenBudget() if window is None else TokenBudget(context_window=window)
    known: dict[str, Any] = {} if facts.max_output is None else {"max_output": facts.max_output}
    if window is not None:
        known["context_window"] = window
    elif facts.name is None:
        if max_tokens is not None:
            return plain_budget(max_tokens)
        msg = (
            f"the window of the {facts.shown_as} must be known (got neither a profile nor a name). "
            "Give context_window=, max_tokens= or budget=TokenBudget(context_window=..)."
        )
        raise BudgetConfigError(msg)
    try:
        budget = TokenBudget.for_model(facts.name, **known)
    except CounterUnavailableError:
        if max_tokens is None:
            raise
        return plain_budget(max_tokens)
    return _with_answer(budget, facts)


def _with_answer(budget: TokenBudget, facts: ModelFacts) -> TokenBudget:
    """Returns the budget with room for the answer that the requests ask for.

    A default answer of more than half of the window is not reserved: the user is warned instead.
    """
    window = budget.context_window
    asked = facts.answer_in(window)
    if asked is not None:
        return _with_reserve(budget, asked, window, facts.shown_as)
    if facts.answer is not None:
        warnings.warn(
            f"The {facts.shown_as} asks for answers of up to {facts.answer:,} tokens, its window has "
            f"{window:,}; {budget.reserve_tokens():,} are reserved. {_HOW}",
            stacklevel=2,
        )
    return budget


def _with_reserve(budget: TokenBudget, answer: int, own: int, model: str) -> TokenBudget:
    """Returns the budget whose reserve holds an answer of a model with its `own` window, if none was chosen.

    What a larger window holds beside the budget's is room for the answer. Where sizes leave none, they stay.
    """
    window, needed = budget.context_window, answer - (own - budget.context_window)
    largest_system = window if budget.max_system_ratio is None else int(window * budget.max_system_ratio) + 1
    if _stated(budget) is None or needed <= budget.reserve_tokens(largest_system):
        return budget
    if needed >= window:
        msg = (
            f"the answers of the {model} must have less than its window of {own:,} tokens "
            f"(got {answer:,}). {_HOW}"
        )
        raise BudgetConfigError(msg)
    try:
        return budget.replace(reserve=max(needed, budget.reserve_tokens()))
    except BudgetConfigError:
        return budget
