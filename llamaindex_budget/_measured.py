"""The copies that a memory returns: safe in an engine's templates, media cost what our counter says.

Context engines take past messages for templates, and LlamaIndex's prompt helper asks each content block
for its tokens: a picture answers 2,125 whatever its size, after reading it; a file answers 512. Where such
estimates leave nothing of the window, the engine raises although the request fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr

from rankbudget import TokenCounter

from ._codec import copy_message, defused, shallow_copy
from ._convert import media_cost

__all__ = ["host_copies", "measured"]


class _Measured(BaseContentBlock):
    """A block that knows its tokens and holds no template."""

    _tokens: int = PrivateAttr(default=0)

    async def aestimate_tokens(self, *_: Any, **__: Any) -> int:
        return self._tokens

    def get_template_vars(self) -> list[str]:
        return []

    def format_vars(self, **_: Any) -> Any:
        return self


_KINDS: dict[type[Any], type[_Measured]] = {
    kind: type(f"_{kind.__name__}", (_Measured, kind), {"__module__": __name__})
    for kind in (
        AudioBlock,
        CitableBlock,
        CitationBlock,
        DocumentBlock,
        ImageBlock,
        ToolCallBlock,
        VideoBlock,
    )
}
globals().update({made.__name__: made for made in _KINDS.values()})  # where pickle looks for them


def measured(block: Any, counter: TokenCounter) -> Any:
    """Returns a block that answers with our count when asked for its tokens; texts and thinking as they are.

    Example:
        >>> from rankbudget.testing import WordCounter
        >>> image = measured(ImageBlock(url="https://example.org/cat.png"), WordCounter())
        >>> image.estimate_tokens(), image.block_type, isinstance(image, ImageBlock)
        (85, 'image', True)
    """
    kind = _KINDS.get(type(block))
    return block if kind is None else shallow_copy(block, kind, _tokens=media_cost(block, counter))


def host_copies(messages: Sequence[ChatMessage], counter: TokenCounter) -> list[ChatMessage]:
    """Returns copies for any engine: no text is a slot of its templates, media cost what the counter says."""
    copies = [copy_message(m) for m in messages]
    for message in copies:
        if type(message.blocks[0] if message.blocks else None) is not TextBlock or len(message.blocks) > 1:
            message.blocks = [measured(block, counter) for block in message.blocks]
        for block in message.blocks:
            if isinstance(block, TextBlock) and "{" in block.text:
                block.text = defused(block.text)
    return copies
