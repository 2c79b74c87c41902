"""The five-block form: fixed sizes for a window of 4K, 8K or 128K."""

from __future__ import annotations

from collections.abc import Mapping

from .context_windows import context_window_of

__all__ = ["FIVE_BLOCKS", "five_block_sizes"]

_COLUMNS = ("window", "system", "project", "task", "history", "knowledge", "query", "reserve", "safety")
_TABLE = {
    "4K": (4_096, 300, 400, 300, 400, 800, 500, 1_200, 100),
    "8K": (8_192, 500, 1_000, 500, 1_000, 2_000, 1_000, 2_000, 192),
    "128K": (128_000, 1_000, 2_000, 1_000, 4_000, 8_000, 4_000, 8_000, 1_000),
}
FIVE_BLOCKS: Mapping[str, Mapping[str, int]] = {
    name: dict(zip(_COLUMNS, sizes, strict=True)) for name, sizes in _TABLE.items()
}
"""Tokens by window; what the sizes leave of the window flows down the ranks."""
_MODELS = {"claude-3-sonnet": "8K", "gpt-3.5-turbo": "4K"}  # specified below what their windows allow


def five_block_sizes(model: str) -> dict[str, int]:
    """Returns the table for a model; one whose window is unknown gets the 8K table."""
    if model in _MODELS:
        return dict(FIVE_BLOCKS[_MODELS[model]])
    window = context_window_of(model, default=FIVE_BLOCKS["8K"]["window"])
    fitting = [name for name in ("128K", "8K", "4K") if window >= FIVE_BLOCKS[name]["window"]]
    return dict(FIVE_BLOCKS[fitting[0] if fitting else "4K"])
