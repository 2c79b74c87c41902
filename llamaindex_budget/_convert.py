"""Retrieved nodes as segments and back, and what media cost in nodes and messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
    TextBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.schema import ImageNode, MetadataMode, Node, NodeWithScore, TextNode

from rankbudget import Provenance, Segment, TokenCounter
from rankbudget.adapters import segment_signals

from ._codec import CODEC, shallow_copy

_MEDIA: tuple[tuple[Any, str], ...] = ((ImageBlock, "image"), (AudioBlock, "audio"), (VideoBlock, "video"))


def seen_parts(item: NodeWithScore) -> tuple[str, str, str]:
    """Returns what the model sees: metadata lines, the node's text, metadata lines; else all as the text."""
    seen = str(item.node.get_content(metadata_mode=MetadataMode.LLM))
    text = str(item.node.get_content(metadata_mode=MetadataMode.NONE)).strip()
    return seen.rpartition(text) if text and text in seen else ("", seen, "")


def media_tokens(item: NodeWithScore, counter: TokenCounter) -> int:
    """Returns what pictures, sound and film of a node cost where a model is sent them; nothing is opened."""
    node = item.node
    blocks: list[Any] = []
    if isinstance(node, ImageNode) and (node.image or node.image_path or node.image_url):
        image = node.image.encode() if node.image else None  # base64, as the node keeps it
        path = Path(node.image_path) if node.image_path else None
        blocks.append(ImageBlock.model_construct(image=image, path=path, url=node.image_url))
    elif isinstance(node, Node):
        for kind, field in _MEDIA:
            held = getattr(node, f"{field}_resource")
            if held is not None:
                blocks.append(kind.model_construct(**{field: held.data}, path=held.path, url=held.url))
    return sum([media_cost(block, counter) for block in blocks])


def media_cost(item: Any, counter: TokenCounter) -> int:
    """Returns what a content block adds to a message, or a message to a request."""
    if isinstance(item, ChatMessage):
        return counter.count_message(CODEC.to_dict(item))
    message = ChatMessage(role=MessageRole.ASSISTANT, content="")
    message.blocks = [TextBlock(text=""), item]
    empty = {"role": "assistant", "content": ""}
    return max(0, counter.count_message(CODEC.to_dict(message)) - counter.count_message(empty))


def to_segments(nodes: Sequence[NodeWithScore], parts: Sequence[tuple[str, str, str]]) -> list[Segment]:
    """Returns one segment per node with its `seen_parts`; a node retrieved twice gets its place in its id."""
    segments: list[Segment] = []
    seen: set[str] = set()
    for place, (item, (before, text, after)) in enumerate(zip(nodes, parts, strict=True)):
        node, identity = item.node, item.node.node_id
        if identity in seen:
            identity = f"{identity}#{place}"
        seen.add(identity)
        found = segment_signals(node.metadata, name=identity)
        if item.score is not None:
            found["score"] = item.score
        if node.ref_doc_id:
            known = found.get("provenance")
            confidence = known.confidence if known is not None else None
            found["provenance"] = Provenance(source_id=node.ref_doc_id, confidence=confidence)
        found["beside"] = (before + after).strip()
        segments.append(Segment(id=identity, text=text, metadata=node.metadata, source=item, **found))
    return segments


def shortened(item: NodeWithScore, text: str) -> NodeWithScore:
    """Returns a copy with another text; id, score, metadata and relationships stay."""
    node: Any = item.node.model_copy()
    node.metadata = dict(node.metadata)
    node.relationships = dict(node.relationships)
    before, _, after = seen_parts(item)
    if not before and not after:  # the text holds all that the model sees; it must not see it twice
        node.excluded_llm_metadata_keys = list(node.metadata)
    node.set_content(text)
    return NodeWithScore(node=node, score=item.score)


def emptied(nodes: Sequence[NodeWithScore]) -> NodeWithScore:
    """Returns the best node without text and media, with its id, score and metadata."""
    best = max(nodes, key=lambda n: n.score or 0.0)
    metadata = dict(best.node.metadata)
    node = TextNode(id_=best.node_id, text="", metadata=metadata, excluded_llm_metadata_keys=list(metadata))
    return NodeWithScore(node=node, score=best.score)


class _Measured(BaseContentBlock):
    """A block that tells LlamaIndex our count of its tokens, and holds no template.

    A stock picture says 2,125 whatever its size, after reading it; a file says 512. Where that leaves nothing
    of the window, an engine raises although the request fits.
    """

    _tokens: int = PrivateAttr(default=0)

    async def aestimate_tokens(self, *_: Any, **__: Any) -> int:
        return self._tokens

    def get_template_vars(self) -> list[str]:
        return []

    def format_vars(self, **_: Any) -> Any:
        return self


_BLOCKS = (AudioBlock, CitableBlock, CitationBlock, DocumentBlock, ImageBlock, ToolCallBlock, VideoBlock)
_KINDS: dict[type[Any], type[_Measured]] = {
    kind: type(f"_{kind.__name__}", (_Measured, kind), {"__module__": __name__}) for kind in _BLOCKS
}
globals().update({made.__name__: made for made in _KINDS.values()})  # where pickle looks for them


def measured(block: Any, counter: TokenCounter) -> Any:
    """Returns a block that answers with our count when asked; texts and thinking as they are."""
    kind = _KINDS.get(type(block))
    return block if kind is None else shallow_copy(block, kind, _tokens=media_cost(block, counter))
