"""langchain-core's `trim_messages` that only ever returns valid conversations within the limit.

docs/langchain.md lists what differs, with reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import BaseMessage

from rankbudget.errors import BudgetConfigError

from ._options import checked

if TYPE_CHECKING:
    from langchain_core.language_models import BaseLanguageModel

Kinds = str | type[BaseMessage] | Sequence[str | type[BaseMessage]] | None


@checked
def trim_messages(
    messages: Any = None,
    *,
    max_tokens: int,
    token_counter: Callable[[list[BaseMessage]], int]
    | Callable[[BaseMessage], int]
    | BaseLanguageModel[Any]
    | str,
    strategy: Literal["first", "last"] = "last",
    allow_partial: bool = False,
    end_on: Kinds = None,
    start_on: Kinds = None,
    include_system: bool = False,
    text_splitter: Any = None,
) -> Any:
    """Returns the newest (or first) messages within `max_tokens`, always a valid conversation.

    Args:
        messages: a list of messages, tuples, dicts or strings, or a PromptValue; None returns a Runnable.
        max_tokens: most tokens of the result, from 1.
        token_counter: a callable over a list of messages or over one message, a model, "approximate" (counts
            exactly with o200k_base), or the name of an encoding or a known model; `len` counts messages.
        strategy: "last" keeps the newest, "first" the oldest.
        allow_partial: cuts the text of the message at the edge instead of dropping it; thinking, calls and
            media are never cut.
        end_on: drops what follows the last message of these types. If that message does not fit, nothing but
            system messages stays.
        start_on: drops what precedes the first message of these types, system messages apart; only with
            "last".
        include_system: keeps the system messages; only with "last". Without it they are dropped first.
        text_splitter: splits a text into parts that join to it again; None splits after newlines.

    Returns:
        The same message objects. Copies are a message cut under `allow_partial`, and unanswered tool results,
        shortened where they cannot stay whole.

    Raises:
        BudgetConfigError: an option is wrong.
        BudgetError: a ValueError; the limit cannot hold the system messages, the current question and
            unanswered tool results with their call.

    Example:
        >>> from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
        >>> thread = [SystemMessage("Be kind."), HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> [m.content for m in trim_messages(thread, max_tokens=2, token_counter=len, include_system=True)]
        ['Be kind.', 'three']
    """
    options = dict(locals())
    del options["messages"]
    for name, value in (("start_on", start_on), ("include_system", include_system)):
        if value and strategy == "first":
            msg = f"{name} parameter is only valid with strategy='last'"
            raise BudgetConfigError(msg)
    if messages is None:
        from langchain_core.runnables import RunnableLambda

        return RunnableLambda(partial(trim_messages, **options), name="trim_messages")
    from ._trimming import trimmed  # with all that makes a plan, which an import alone does not need

    return trimmed(messages, **options)
