"""What fitting a conversation refuses before anything is read: all wrong arguments in one error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..budget.validation import (
    LEAST_MESSAGE_CAP,
    NO_CAP,
    check_choice,
    check_count,
    check_flag,
    check_number,
    shown,
)
from ..errors import BudgetConfigError, MessageError
from .thread import SUMMARY_TIMEOUT

__all__ = ["check_arguments", "check_messages", "check_timeout"]


def check_arguments(given: Mapping[str, Any]) -> None:
    """Checks the numbers and words of one call, by their argument names.

    Raises:
        BudgetConfigError: with every one that is not allowed.
    """
    limit, minimum, cap = given["max_tokens"], given["min_exchanges"], given["message_cap"]
    numbers = type(limit) is type(minimum) is type(cap) is int
    words = given["cut"] == "fill" and given["shorten_question"] is False
    usual = numbers and words and given["summary_timeout"] == SUMMARY_TIMEOUT
    if usual and limit > 0 and minimum >= 0 and cap >= LEAST_MESSAGE_CAP:
        return  # nearly every call
    problems: list[str] = []
    check_count("max_tokens", limit, problems, low=1)
    check_choice("cut", given["cut"], problems, ("fill", "stable"))
    check_count("min_exchanges", minimum, problems)
    if cap is not None:
        check_count("message_cap", cap, problems, low=LEAST_MESSAGE_CAP, instead=NO_CAP)
    check_flag("shorten_question", given["shorten_question"], problems)
    check_timeout(given["summary_timeout"], problems)
    if problems:
        raise BudgetConfigError.of(problems)


def check_timeout(seconds: Any, problems: list[str]) -> None:
    """Adds a problem when a summarizer cannot be given so many seconds."""
    if seconds is not None:
        words = "seconds above 0, or None for no timeout"
        check_number("summary_timeout", seconds, problems, above=True, allowed=words)


def check_messages(messages: Any) -> Sequence[Any]:
    """Returns a conversation that can be read by position.

    Raises:
        MessageError: it is no list of messages.
    """
    if isinstance(messages, (str, bytes, bytearray, Mapping)) or not isinstance(messages, Iterable):
        hint = "Put it in a list" if messages else "Give [] for an empty conversation"
        msg = f"messages must be a list of messages, oldest first (got {shown(messages)}). {hint}."
        raise MessageError(msg)
    return messages if isinstance(messages, Sequence) else list(messages)
