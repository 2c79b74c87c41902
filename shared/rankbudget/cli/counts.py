"""`rankbudget count`, `compress` and `models`: tokens of texts, and what is known of models."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..budget.context_windows import context_window_of, max_output_of
from ..counting import counter_for
from ..counting.models import encoding_for, listed_models
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, check_count, counted, refuse
from ..messages.texts import content_text
from ..prompt.fit_text import fit_text
from .reading import read_chat, read_text
from .tables import aligned

_CHATS = (".json", ".jsonl")
_BEGINNING = 40


def show_counts(files: Sequence[str], model: str, *, each: bool) -> None:
    """Prints the tokens of each file, or of each message of it."""
    counter = counter_for(model)
    rows = [row for file in files for row in _counts(file, counter, each=each)]
    if len(files) > 1:
        rows.append(("total", sum(tokens for name, tokens, _ in rows if name), ""))
    print(aligned(("file", "tokens", ""), rows))
    print(f"counted with {counter.name}{'' if counter.exact else ' (estimated)'}")


def show_compressed(file: str, max_tokens: int, model: str, question: str | None) -> None:
    """Prints the shortened text, and its tokens on standard error."""
    problems: list[str] = []
    check_count("--max-tokens", max_tokens, problems, low=1)  # a typo must not print an empty text
    refuse(problems)
    made = fit_text(read_text(file), max_tokens=max_tokens, counter=counter_for(model), query=question)
    (decision,) = made.report.decisions
    print(made.text)
    print(f"rankbudget: {decision.before:,} -> {decision.after:,} tokens", file=sys.stderr)


def show_models(part: str) -> None:
    """Prints each known model whose name contains `part`: window, largest answer, tokenizer.

    Raises:
        BudgetConfigError: there is none.
    """
    names = [name for name in listed_models() if part.lower() in name]
    if not names:
        msg = f"part must be in the name of a known model (got {part!r}). Without it all are listed."
        raise BudgetConfigError(msg)
    rows = [
        (name, encoding_for(name) or "estimated", context_window_of(name), max_output_of(name))
        for name in names
    ]
    print(aligned(("model", "tokenizer", "window", "largest answer"), rows))


def _counts(file: str, counter: TokenCounter, *, each: bool) -> Iterator[tuple[str, int, str]]:
    """Yields name and tokens of a file, after those of `each` of its messages, without a name."""
    if Path(file).suffix.lower() not in _CHATS:
        yield file, counter.count(read_text(file)), ""
        return
    chat = read_chat(file)
    if each and chat.system is not None:
        yield "", counter.count_message(chat.system), _line("system", chat.system)
    for number, message in enumerate(chat.messages if each else (), start=1):
        yield "", counter.count_message(message), _line(f"{number} {message['role']}", message)
    if each and chat.tools:
        alone = counter.count_messages(chat.prompt)
        yield "", counter.count_messages(chat.prompt, chat.tools) - alone, "tools"
    yield file, counter.count_messages(chat.prompt, chat.tools), counted(len(chat.messages), "message")


def _line(name: str, message: Mapping[str, Any]) -> str:
    text = " ".join(content_text(message.get("content")).split())
    return f"{name}: {text[:_BEGINNING]}"
