"""From a request to a plan, in stages. Each stage is a function over frozen values.

read     request                  -> Inputs     the conversation, the blocks as their reader sees them
price    request, Inputs          -> Prices     fixed cost, what blocks want, what the conversation needs
grant    request, Inputs, Prices  -> Grants     integers: one allocation for all
fit      ... Grants               -> Fitted     the conversation and each block within its grant
verify   ... Fitted               -> Rendered   rendered and counted; lower ranks give up any excess
report   ... Rendered             -> Plan       a decision and a reason for every piece
"""

from __future__ import annotations

from .._drivers import Steps
from ..errors import BudgetExceededError
from .fitted import fit, verify
from .grants import grant, price, read
from .outcome import report
from .plan import Plan
from .question import price_with_short_question
from .request import PromptRequest, Turn

__all__ = ["plan_steps"]


def plan_steps(request: PromptRequest, turn: Turn | None = None) -> Steps[Plan]:
    """Returns the plan for a request; `turn` is what a session adds to it.

    Raises:
        BudgetExceededError: what must stay does not fit.
        BudgetConfigError: the blocks cannot be read.
        MessageError: a message cannot be read, or needs a repair while `strict`.
    """
    inputs = read(request, turn)
    try:
        prices = price(request, inputs)
    except BudgetExceededError as error:
        request, prices = price_with_short_question(request, inputs, error)
    grants = grant(request, inputs, prices)
    fitted = yield from fit(request, inputs, prices, grants)
    rendered = yield from verify(request, inputs, prices, fitted)
    return report(request, inputs, prices, rendered)
