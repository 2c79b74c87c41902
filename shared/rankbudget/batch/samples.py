"""`whole_turns`: what a set for fine-tuning takes of a fitted conversation."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress, dropwhile
from typing import Any

from ..errors import RowError
from ..messages.codec import PINNED_ROLES, DictCodec
from .reading import asks, names_of, parsed, read_history
from .tables import in_utf8


def whole_turns(cut: Any, dropped: Iterable[str] | None, history: Any) -> list[Any]:
    """Returns what a model may learn from a fitted conversation: system messages and whole turns.

    A turn is a question of the user's and all that follows up to the next one, results of calls included.
    Turns count as whole behind the last message that was dropped.

    Args:
        cut: the messages of a fitted row, or their JSON.
        dropped: what its output `dropped` holds.
        history: the conversation as the row had it: messages, or their JSON. A question that it had in a
            column of its own is the last of them.

    Returns:
        The system and developer messages, then the turns, in their order; [] if the row has an error or no
        turn is whole.

    Raises:
        RowError: the three are not of one row, one is no JSON, or a profile joined messages.

    Example:
        >>> chat = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]
        >>> whole_turns(chat, ["history-0"], [{"role": "user", "content": "Hi"}, *chat]) == chat
        True
    """
    made = parsed("cut", cut) if isinstance(cut, str) else cut
    if made is None:  # the row has an error
        return []
    given, lost = read_history(history), frozenset(() if dropped is None else dropped)
    kept = [in_utf8(name) not in lost for name in names_of(given)]
    said, expected = _said(made), len(_said(compress(given, kept)))
    if len(said) != expected:
        msg = (
            f"cut must have the messages of history that were not dropped (got {len(said)} of {expected}). "
            "Give what one row had, and fit it with profile=RenderingProfile(), which joins none."
        )
        raise RowError(msg)
    start = max((i for i, stays in enumerate(kept, start=1) if not stays), default=0)
    turns = list(dropwhile(lambda message: not asks(message), said[expected - len(_said(given[start:])) :]))
    return [message for message in made if _is_rule(message)] + turns if turns else []


def _said(messages: Iterable[Any]) -> list[Any]:
    return [message for message in messages if not _is_rule(message)]


def _is_rule(message: Any) -> bool:
    return DictCodec().role(message) in PINNED_ROLES
