"""Retrieved nodes as segments and back: whole nodes are the same objects, shortened ones copies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    VideoBlock,
)
from llama_index.core.schema import ImageNode, MetadataMode, Node, NodeWithScore, TextNode

from rankbudget import Provenance, Segment, TokenCounter
from rankbudget.adapters import segment_signals

from ._codec import CODEC

__all__ = [
    "emptied",
    "media_cost",
    "media_tokens",
    "metadata_around",
    "node_text",
    "shortened",
    "to_nodes",
    "to_segments",
]

_MEDIA: tuple[tuple[Any, str], ...] = ((ImageBlock, "image"), (AudioBlock, "audio"), (VideoBlock, "video"))


def node_text(item: NodeWithScore) -> str:
    """Returns what a response synthesizer puts in front of the model for this node."""
    return str(item.node.get_content(metadata_mode=MetadataMode.LLM))


def metadata_around(item: NodeWithScore) -> tuple[str, str]:
    r"""Returns the metadata lines that the model sees before and after a node's text.

    Example:
        >>> node = TextNode(text="tea", metadata={"file_name": "drinks.pdf"})
        >>> metadata_around(NodeWithScore(node=node))
        ('file_name: drinks.pdf\n\n', '')
    """
    text, seen = _own_text(item), node_text(item)
    before, _, after = seen.rpartition(text) if text else (seen, "", "")
    return (before, after)


def _own_text(item: NodeWithScore) -> str:
    """Returns a node's text without metadata; all that the model sees where it is not found in that."""
    text, seen = str(item.node.get_content(metadata_mode=MetadataMode.NONE)).strip(), node_text(item)
    return text if text and text in seen else seen


def media_tokens(item: NodeWithScore, counter: TokenCounter) -> int:
    """Returns what pictures, sound and film of a node cost where a model is sent them; nothing is opened.

    Example:
        >>> from llama_index.core.schema import ImageNode, TextNode
        >>> from rankbudget import counter_for
        >>> counter = counter_for("cl100k_base")
        >>> media_tokens(NodeWithScore(node=TextNode(text="tea")), counter)
        0
        >>> media_tokens(NodeWithScore(node=ImageNode(image_url="https://example.com/tea.png")), counter) > 50
        True
    """
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


def to_segments(nodes: Sequence[NodeWithScore]) -> list[Segment]:
    r"""Returns one segment per node; a node retrieved twice gets its place in its id.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> node = TextNode(id_="n1", text="tea", metadata={"title": "Drinks"})
        >>> [s] = to_segments([NodeWithScore(node=node, score=0.5)])
        >>> s.id, s.text, s.score
        ('n1', 'tea', 0.5)
    """
    segments: list[Segment] = []
    seen: set[str] = set()
    for place, item in enumerate(nodes):
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
        text = _own_text(item)
        segments.append(Segment(id=identity, text=text, metadata=node.metadata, source=item, **found))
    return segments


def to_nodes(segments: Iterable[Segment], given: Sequence[Segment]) -> list[NodeWithScore]:
    """Returns nodes for kept segments: the same object where the text is as `given`, else a copy."""
    whole = {segment.id: segment.text for segment in given}
    return [s.source if s.text == whole[s.id] else shortened(s.source, s.text) for s in segments]


def shortened(item: NodeWithScore, text: str) -> NodeWithScore:
    """Returns a copy with another text; id, score, metadata and relationships stay."""
    node: Any = item.node.model_copy()
    node.metadata = dict(node.metadata)
    node.relationships = dict(node.relationships)
    if not any(metadata_around(item)):  # the text holds all that the model sees; it must not see it twice
        node.excluded_llm_metadata_keys = list(node.metadata)
    node.set_content(text)
    return NodeWithScore(node=node, score=item.score)


def emptied(nodes: Sequence[NodeWithScore]) -> NodeWithScore:
    """Returns a stand-in for the best node, without text and media: its id, score and metadata."""
    best = max(nodes, key=lambda n: n.score or 0.0)
    metadata = dict(best.node.metadata)
    node = TextNode(id_=best.node_id, text="", metadata=metadata, excluded_llm_metadata_keys=list(metadata))
    return NodeWithScore(node=node, score=best.score)
