"""An old turn in few words: what later turns need of it, each thing said by who said it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..messages.codec import content_text
from ..counting.protocol import TokenCounter
from .key_moments import find_moments, weigh
from .summary import extractive_summary

__all__ = ["said_earlier"]

_LASTING = {"decision", "commitment", "correction", "preference"}


def said_earlier(
    messages: Sequence[Mapping[str, Any]],
    max_tokens: int,
    counter: TokenCounter,
    *,
    needed: Sequence[bool] = (),
) -> list[Mapping[str, Any]]:
    """Returns what is worth keeping of a turn's messages, as "[Earlier: ...]" under the role of whoever said it.

    Args:
        messages: one turn, messages with `role` and `content`.
        max_tokens: most tokens of all texts kept, without "[Earlier: ]"; 0 keeps nothing.
        counter: counts.
        needed: for each message, whether it is needed even without a decision, commitment, correction or preference; these come first.

    Returns:
        Copies of the messages that are shortened, the others as they were given; all of them when shortening saves nothing.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> turn = [
        ...     {"role": "user", "content": "Which login do you think we want here, and what speaks for it or against it in the end?"},
        ...     {"role": "assistant", "content": "We decided to use JWT. It is a fine day and there is a long story about it."},
        ... ]
        >>> said_earlier(turn, 6, WordCounter())
        [{'role': 'assistant', 'content': '[Earlier: We decided to use JWT.]'}]
    """
    texts = [content_text(message.get("content")) for message in messages]
    first = list(needed) or [False] * len(texts)
    wanted = [need or bool(find_moments(text) & _LASTING) for need, text in zip(first, texts, strict=True)]
    room = max_tokens
    said: dict[int, Mapping[str, Any]] = {}
    for i in sorted(
        range(len(texts)), key=lambda i: (not first[i], -weigh(texts[i]), -i)
    ):  # of equals the later settles it
        summary = extractive_summary(texts[i], room, counter) if wanted[i] else ""
        # The first may be cut inside a sentence; half a sentence more from somebody else is not worth a line.
        if not summary or (said and summary.endswith("...") and not texts[i].endswith("...")):
            continue
        room -= counter.count(summary)
        shown = f"[Earlier: {summary}]"
        shorter = counter.count(shown) < counter.count(texts[i])
        said[i] = {"role": messages[i].get("role", "user"), "content": shown} if shorter else messages[i]
    saves = sum(
        counter.count(content_text(message.get("content"))) for message in said.values()
    ) < counter.count("\n".join(texts))
    return [said[i] for i in sorted(said)] if saves else list(messages)
