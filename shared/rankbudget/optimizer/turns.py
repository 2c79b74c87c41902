"""Turns of a conversation: a user message and everything up to the next one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..messages.codec import content_text

__all__ = ["message_line", "split_turns"]


def split_turns(roles: Sequence[str]) -> list[list[int]]:
    """Returns the positions of each turn; messages before the first user message belong to none."""
    turns: list[list[int]] = []
    for i, role in enumerate(roles):
        if role == "user":
            turns.append([])
        if turns:
            turns[-1].append(i)
    return turns


def message_line(message: Mapping[str, Any]) -> str:
    """Returns a message as the optimizer shows it: `role: text`."""
    return f"{message.get('role', 'user')}: {content_text(message.get('content'))}"
