"""What messages looked like before a call, so that nothing can change them unseen."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from typing import Any

__all__ = ["snapshot"]


def snapshot(messages: Sequence[Any]) -> object:
    """Returns something that compares equal exactly while the list and all its messages stay as they are.

    Example:
        >>> chat = [{"role": "user", "content": "hi"}]
        >>> before = snapshot(chat)
        >>> chat[0]["content"] = "ho"
        >>> snapshot(chat) == before
        False
    """
    return [(id(message), _frozen(message)) for message in messages]


def _frozen(message: Any) -> object:
    try:
        return pickle.dumps(message, protocol=5)  # sooner made and compared than a deep copy
    except Exception:  # noqa: BLE001 - a host's object may hold what no pickle does
        return copy.deepcopy(message)
