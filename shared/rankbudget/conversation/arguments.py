"""What fitting a conversation refuses before anything is read: every rule for its arguments, all broken ones told at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..budget.validation import LEAST_MESSAGE_CAP, NO_CAP, check_choice, check_count, check_number, shown
from ..errors import BudgetConfigError, MessageError
from .thread import SUMMARY_TIMEOUT

__all__ = ["check_arguments", "check_messages", "check_timeout"]


def check_arguments(given: Mapping[str, Any]) -> None:
    """Checks the numbers and words of one call, by their argument names.

    Raises:
        BudgetConfigError: with every one that is not allowed.

    Example:
        >>> check_arguments({"max_tokens": 0, "cut": "fill", "min_exchanges": 2.5, "message_cap": 50, "summary_timeout": None})
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: max_tokens must be a whole number from 1 (got 0); min_exchanges must be a whole number from 0 (got 2.5); message_cap must be a whole number from 200, or None to leave every message whole (got 50)
    """
    if _is_plain(given):  # nearly every call
        return
    problems: list[str] = []
    check_count("max_tokens", given["max_tokens"], problems, low=1)
    check_choice("cut", given["cut"], problems, ("fill", "stable"))
    check_count("min_exchanges", given["min_exchanges"], problems)
    if given["message_cap"] is not None:
        check_count("message_cap", given["message_cap"], problems, low=LEAST_MESSAGE_CAP, instead=NO_CAP)
    check_timeout(given["summary_timeout"], problems)
    if problems:
        raise BudgetConfigError.of(problems)


def _is_plain(given: Mapping[str, Any]) -> bool:
    """Returns whether the arguments are of the usual types and sizes."""
    limit, minimum, cap = given["max_tokens"], given["min_exchanges"], given["message_cap"]
    return (
        type(limit) is int
        and limit > 0
        and type(minimum) is int
        and minimum >= 0
        and (cap is None or (type(cap) is int and cap >= LEAST_MESSAGE_CAP))
        and given["cut"] in ("fill", "stable")
        and given["summary_timeout"] == SUMMARY_TIMEOUT
    )


def check_timeout(seconds: Any, problems: list[str]) -> None:
    """Adds a problem when a summarizer cannot be given so many seconds."""
    if seconds is not None:
        check_number(
            "summary_timeout",
            seconds,
            problems,
            above=True,
            allowed="seconds above 0, or None to wait for ever",
        )


def check_messages(messages: Any) -> Sequence[Any]:
    """Returns a conversation that can be read by position.

    Raises:
        MessageError: it is no list of messages.

    Example:
        >>> check_messages(None)
        Traceback (most recent call last):
        ...
        rankbudget.errors.MessageError: messages is None, allowed: a list of messages, oldest first; give [] for an empty conversation
    """
    if isinstance(messages, Sequence) and not isinstance(messages, (str, bytes, bytearray)):
        return messages
    if isinstance(messages, (str, bytes, bytearray, Mapping)) or not isinstance(messages, Iterable):
        hint = "put it in a list" if messages else "give [] for an empty conversation"
        msg = f"messages is {shown(messages)}, allowed: a list of messages, oldest first; {hint}"
        raise MessageError(msg)
    return list(messages)
