"""Content blocks that tell LlamaIndex's prompt helper the tokens that our counter counts."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr

from rankbudget import TokenCounter

from ._codec import shallow_copy
from ._convert import media_cost

__all__ = ["measured"]


class _Measured(BaseContentBlock):
    """A block that knows its tokens and holds no template.

    A stock picture answers 2,125 whatever its size, after reading it; a file answers 512. Where that leaves
    nothing of the window, an engine raises although the request fits.
    """

    _tokens: int = PrivateAttr(default=0)

    async def aestimate_tokens(self, *_: Any, **__: Any) -> int:
        return self._tokens

    def get_template_vars(self) -> list[str]:
        return []

    def format_vars(self, **_: Any) -> Any:
        return self


_MEASURED = (AudioBlock, CitableBlock, CitationBlock, DocumentBlock, ImageBlock, ToolCallBlock, VideoBlock)
_KINDS: dict[type[Any], type[_Measured]] = {
    kind: type(f"_{kind.__name__}", (_Measured, kind), {"__module__": __name__}) for kind in _MEASURED
}
globals().update({made.__name__: made for made in _KINDS.values()})  # where pickle looks for them


def measured(block: Any, counter: TokenCounter) -> Any:
    """Returns a block that answers with our count when asked; texts and thinking as they are."""
    kind = _KINDS.get(type(block))
    return block if kind is None else shallow_copy(block, kind, _tokens=media_cost(block, counter))
