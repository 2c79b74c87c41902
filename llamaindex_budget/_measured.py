"""Content blocks that cost what our counter says, where the host asks them.

LlamaIndex's prompt helper asks each content block for its tokens. A picture answers 2,125 whatever its size or detail, after reading it from its path or URL; a
file answers 512, a tool call the tokens of its own JSON. In a context engine these estimates are taken off the window, and where they leave nothing the engine
raises, although the request fits. The copies a memory hands such an engine answer with the budget's own count, and pass through its templates as they are.
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
    MessageRole,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr

from rankbudget import TokenCounter

from ._convert import CODEC, shallow_copy

__all__ = ["measured", "underestimate"]


class _Measured(BaseContentBlock):
    """A block that knows its tokens and holds no template."""

    _tokens: int = PrivateAttr(default=0)

    async def aestimate_tokens(self, *_: Any, **__: Any) -> int:
        return self._tokens

    def get_template_vars(self) -> list[str]:
        return []

    def format_vars(self, **_: Any) -> Any:
        return self


class _Image(_Measured, ImageBlock):
    pass


class _Audio(_Measured, AudioBlock):
    pass


class _Video(_Measured, VideoBlock):
    pass


class _Document(_Measured, DocumentBlock):
    pass


class _Citable(_Measured, CitableBlock):
    pass


class _Citation(_Measured, CitationBlock):
    pass


class _ToolCall(_Measured, ToolCallBlock):
    pass


_KINDS: dict[type[Any], type[_Measured]] = {kind.__mro__[2]: kind for kind in _Measured.__subclasses__()}


def measured(block: Any, counter: TokenCounter) -> Any:
    """Returns a block that answers with our count when it is asked for its tokens; texts and thinking, which the host counts alike, as they are.

    Example:
        >>> from rankbudget.testing import WordCounter
        >>> image = measured(ImageBlock(url="https://example.org/cat.png"), WordCounter())
        >>> image.estimate_tokens(), image.block_type, isinstance(image, ImageBlock)
        (85, 'image', True)
    """
    kind = _KINDS.get(type(block))
    return block if kind is None else shallow_copy(block, kind, _tokens=_tokens_of(block, counter))


def underestimate(messages: Sequence[ChatMessage], counter: TokenCounter) -> int:
    """Returns by how much the host counts the blocks of its own messages higher than our counter does."""
    asked = [block for message in messages for block in message.blocks if type(block) in _KINDS]
    return sum(max(0, block.estimate_tokens() - _tokens_of(block, counter)) for block in asked)


def _tokens_of(block: Any, counter: TokenCounter) -> int:
    empty = {"role": "assistant", "content": ""}
    return counter.count_message(
        CODEC.to_dict(ChatMessage(role=MessageRole.ASSISTANT, blocks=[block]))
    ) - counter.count_message(empty)
