"""Retrieved nodes as segments and back: whole nodes return as the same objects, shortened ones as copies that keep all but their text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import AudioBlock, ChatMessage, ImageBlock, TextBlock, VideoBlock
from llama_index.core.schema import ImageNode, MetadataMode, Node, NodeWithScore

from rankbudget import Provenance, Segment, TokenCounter

from ._convert import CODEC

__all__ = ["media_tokens", "node_text", "shortened", "to_nodes", "to_segments"]

_TITLES = ("title", "file_name", "filename", "source", "file_path")


def node_text(item: NodeWithScore) -> str:
    """Returns what a response synthesizer puts in front of the model for this node."""
    return str(item.node.get_content(metadata_mode=MetadataMode.LLM))


def media_tokens(item: NodeWithScore, counter: TokenCounter) -> int:
    """Returns what pictures, sound and film of a node cost where a model is sent them; counted by the counter's table, nothing is opened.

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
        data = node.image.encode() if node.image else None  # base64, as the node keeps it
        blocks.append(
            ImageBlock.model_construct(
                image=data,
                path=Path(node.image_path) if node.image_path else None,
                url=node.image_url,
                image_mimetype=node.image_mimetype,
            )
        )
    elif isinstance(node, Node):
        for kind, field in _MEDIA:
            found = getattr(node, f"{field}_resource")
            if found is not None:
                blocks.append(
                    kind.model_construct(
                        **{
                            field: found.data,
                            "path": found.path,
                            "url": found.url,
                            f"{field}_mimetype": found.mimetype,
                        }
                    )
                )
    if not blocks:
        return 0
    shown = CODEC.to_dict(
        ChatMessage(role="user", blocks=[TextBlock(text="")]).model_copy(
            update={"blocks": [TextBlock(text=""), *blocks]}
        )
    )
    return max(0, counter.count_message(shown) - counter.count_message({"role": "user", "content": ""}))


_MEDIA: tuple[tuple[Any, str], ...] = ((ImageBlock, "image"), (AudioBlock, "audio"), (VideoBlock, "video"))


def to_segments(nodes: Sequence[NodeWithScore]) -> list[Segment]:
    r"""Returns one segment per node; a node retrieved twice gets its place in its id.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> [s] = to_segments([NodeWithScore(node=TextNode(id_="n1", text="tea", metadata={"title": "Drinks"}), score=0.5)])
        >>> s.id, s.text, s.score
        ('n1', 'title: Drinks\n\ntea', 0.5)
    """
    segments: list[Segment] = []
    seen: set[str] = set()
    for place, item in enumerate(nodes):
        node, identity = item.node, item.node.node_id
        if identity in seen:
            identity = f"{identity}#{place}"
        seen.add(identity)
        title = next((str(node.metadata[key]) for key in _TITLES if node.metadata.get(key)), None)
        segments.append(
            Segment(
                id=identity,
                text=node_text(item),
                score=item.score,
                title=title,
                provenance=Provenance(source_id=node.ref_doc_id or node.node_id, retrieval_score=item.score),
                metadata=node.metadata,
                source=item,
            )
        )
    return segments


def to_nodes(segments: Iterable[Segment], given: Sequence[Segment]) -> list[NodeWithScore]:
    """Returns nodes for kept segments: the very object where the text is the one `given`, else a copy with the new text."""
    whole = {segment.id: segment.text for segment in given}
    return [s.source if s.text == whole[s.id] else shortened(s.source, s.text) for s in segments]


def shortened(item: NodeWithScore, text: str) -> NodeWithScore:
    """Returns a copy whose whole `MetadataMode.LLM` text is `text`; id, score, metadata and relationships stay, the original too."""
    node: Any = item.node.model_copy()
    node.metadata = dict(node.metadata)
    node.relationships = dict(node.relationships)
    # The text already holds the metadata the model should see; shown again it would cost twice and break the count.
    node.excluded_llm_metadata_keys = list(node.metadata)
    node.set_content(text)
    return NodeWithScore(node=node, score=item.score)
