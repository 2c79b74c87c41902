"""The range of llama-index-core this package is tested with, and the error when it is missing."""

from __future__ import annotations

from importlib.util import find_spec

SUPPORTED = "llama-index-core>=0.14.24,<0.15"
"""Tested at both ends."""


def require_llama_index() -> None:
    """Raises an ImportError that names the extra when llama-index-core is not installed."""
    if find_spec("llama_index") is None or find_spec("llama_index.core") is None:
        msg = f'llamaindex_budget needs {SUPPORTED}: pip install "rankbudget[llamaindex]"'
        raise ImportError(msg)
