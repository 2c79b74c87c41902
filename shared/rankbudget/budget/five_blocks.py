"""The five-block form: fixed sizes for a window of 4K, 8K or 128K."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FIVE_BLOCKS", "five_block_sizes"]

_COLUMNS = ("window", "system", "project", "task", "history", "knowledge", "query", "reserve", "safety")
FIVE_BLOCKS: Mapping[str, Mapping[str, int]] = {
    name: dict(zip(_COLUMNS, sizes, strict=True))
    for name, sizes in {
        "4K": (4_096, 300, 400, 300, 400, 800, 500, 1_200, 100),
        "8K": (8_192, 500, 1_000, 500, 1_000, 2_000, 1_000, 2_000, 192),
        "128K": (128_000, 1_000, 2_000, 1_000, 4_000, 8_000, 4_000, 8_000, 1_000),
    }.items()
}
"""Tokens by window; the safety is for counts that are off by a few, and what the sizes leave of the window flows down the ranks."""
_MODELS = {
    "gpt-4-turbo": "128K",
    "claude-3-opus": "128K",
    "gpt-4": "8K",
    "claude-3-sonnet": "8K",
    "gpt-3.5-turbo": "4K",
}


def five_block_sizes(model: str) -> dict[str, int]:
    """Returns the table for a model; one whose window is unknown gets the 8K table.

    Example:
        >>> five_block_sizes("gpt-3.5-turbo")["history"]
        400
    """
    if model in _MODELS:
        return dict(FIVE_BLOCKS[_MODELS[model]])
    from .context_windows import context_window_of  # the table of models is only needed here

    window = context_window_of(model, default=FIVE_BLOCKS["8K"]["window"])
    return dict(
        FIVE_BLOCKS[next((name for name in ("128K", "8K") if window >= FIVE_BLOCKS[name]["window"]), "4K")]
    )
