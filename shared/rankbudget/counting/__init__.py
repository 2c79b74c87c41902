"""Measures text, messages, tools and media as the model will see them.

In: a model's name, an encoding, a tokenizer or a callable. Out: a `TokenCounter`, which says whether it is
`exact`, and `why`; where it estimates, the budget keeps its `band` free, by which it may be too low.
"""

from __future__ import annotations

from .media import MediaTable
from .profiles import RenderingProfile, apply_profile
from .protocol import Message, Side, TokenCounter, Tool
from .resolve import counter_for

__all__ = [
    "MediaTable", "Message", "RenderingProfile", "Side", "TokenCounter", "Tool", "apply_profile",
    "counter_for",
]  # fmt: skip
