"""Options that several commands have, and the budget that they describe."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError, CounterUnavailableError

Options = Mapping[str, Mapping[str, Any]]
_FACTORS = {"k": 1_000, "m": 1_000_000}


def tokens(text: str) -> int:
    """Returns a number of tokens: 8192, 128k or 1m.

    Raises:
        ValueError: it is none.
    """
    factor = _FACTORS.get(text[-1:].lower())
    return int(text) if factor is None else round(float(text[:-1]) * factor)


def _tokens(text: str) -> int:
    try:
        return tokens(text)
    except (ValueError, OverflowError):
        msg = f"must be a number of tokens, as 8192 or 128k (got {text!r})"
        raise argparse.ArgumentTypeError(msg) from None


def _tokens_or_share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return _tokens(text)


_CHAT = 'a list of messages, {"messages": [..], "tools": [..]}, or one message a line; - is standard input'
LIMITS: Options = {
    "--window": {"type": _tokens, "metavar": "TOKENS", "help": "the context window (default: the model's)"},
    "--model": {"default": "gpt-4o", "help": "whose tokenizer counts (default: %(default)s)"},
    "--reserve": {
        "type": _tokens_or_share,
        "metavar": "TOKENS|SHARE",
        "help": "kept for the answer: tokens above 1, else a share (default: 0.3)",
    },
    "--budget": {
        "metavar": "FILE.yaml",
        "help": "take the budget from a file; --window and --reserve change it",
    },
    "--profile": {"metavar": "NAME", "help": "a profile of that file"},
}
CHAT: Options = {"chat": {"metavar": "CHAT.json", "help": _CHAT}}
PROMPT: Options = {
    **LIMITS,
    "--docs": {"metavar": "DIR", "help": "texts to take the best passages from (.md, .rst, .txt)"},
    "--question": {"metavar": "TEXT", "help": "the question, when it is not the chat's last message"},
}
AS_JSON: Options = {"--json": {"action": "store_true", "help": "print JSON"}}
MAX_TOKENS = {"type": _tokens, "required": True, "metavar": "TOKENS", "help": "most tokens of the result"}
WINDOW = {"type": _tokens, "default": 4096, "help": "tokens of the context window (default: %(default)s)"}


def budget_of(options: argparse.Namespace) -> TokenBudget:
    """Returns the budget that the options of `LIMITS` describe.

    Raises:
        BudgetConfigError: options that do not go together, values that cannot work, or an unknown window.
    """
    budget = _given(options)
    changes: dict[str, Any] = {"model": budget.model or options.model}
    if options.window is not None:
        changes["context_window"] = options.window
    if options.reserve is not None:
        changes["reserve"] = options.reserve
        if 0 <= options.reserve <= 1:  # the other shares make room for it
            shares = {name: budget.share_of(name) for name in budget.ratios}
            changes["ratios"] = {name: share * (1 - options.reserve) for name, share in shares.items()}
    return budget.replace(**changes)


def _given(options: argparse.Namespace) -> TokenBudget:
    if options.profile and not options.budget:
        msg = "--profile must come with --budget FILE.yaml, the file that has the profile"
        raise BudgetConfigError(msg)
    if options.budget:
        return TokenBudget.from_file(options.budget, options.profile)
    if options.window is not None:
        return TokenBudget()
    try:
        return TokenBudget.for_model(options.model)
    except CounterUnavailableError as error:
        msg = f"the context window of {options.model!r} is unknown; pass --window TOKENS"
        raise BudgetConfigError(msg) from error
