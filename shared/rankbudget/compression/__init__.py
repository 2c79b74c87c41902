"""Making texts shorter: cut, extracted, templated, rewritten, each to an exact number of tokens.

The compressor's configuration classes load on first use, the functions it is made of stand in their own files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compressor import CompressionResult, CompressorConfig, PromptCompressor

__all__ = ["CompressionResult", "CompressorConfig", "PromptCompressor"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"{__name__}.compressor"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
