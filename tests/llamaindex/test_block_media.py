"""Media that memory blocks return: sent, counted and reported alike."""

from __future__ import annotations

import base64
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.memory import StaticMemoryBlock
from llama_index.core.memory.memory import DEFAULT_MEMORY_BLOCKS_TEMPLATE
from llama_index.core.prompts import RichPromptTemplate

from llamaindex_budget import BudgetMemory, BudgetMemoryBlock
from rankbudget import BudgetError
from tests.drawing import draws
from tests.llamaindex.models import ListStore, calls, exchanges, result, say, tokens

CHAT = [say("system", "RULE"), *exchanges(20), calls("c1"), result("c1", "one"), say("user", "last")]


def _memory(**fields: Any) -> BudgetMemory:
    return BudgetMemory.from_defaults(
        **{"token_limit": 600, "chat_history": CHAT, "chat_store": ListStore(), **fields}
    )


PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MEDIA: list[Any] = [
    ImageBlock(image=PICTURE, detail="low"),
    ImageBlock(url=f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"),
    ImageBlock(path=__file__, image_mimetype="image/png"),
    AudioBlock(audio=b"RIFF0000WAVE", format="wav"),
    VideoBlock(video=b"0000ftyp", video_mimetype="video/mp4"),
    DocumentBlock(data=b"%PDF-1.4", title="a.pdf", document_mimetype="application/pdf"),
    CitableBlock(title="a", source="b", content=[TextBlock(text="cited")]),
]
TEMPLATES = [
    DEFAULT_MEMORY_BLOCKS_TEMPLATE,
    RichPromptTemplate("Known: {% for name, content in memory_blocks %}{{ name }}{% endfor %}"),
]


@draws(asynchronous=True)
@hypothesis.given(
    content=st.lists(st.sampled_from([*MEDIA, "A picture:", "See <content_block 0> here."]), max_size=5),
    limit=st.sampled_from([100, 400, 900, 6000]),
    how=st.sampled_from(["system", "user"]),
    static=st.booleans(),
    template=st.sampled_from(TEMPLATES),
)
def test_media_that_a_block_keeps_are_sent(
    content: list[Any], limit: int, how: str, static: bool, template: Any
) -> None:
    """What the report keeps is in a user message, as it was given and in its order, and is counted."""
    said = [TextBlock(text=item) if isinstance(item, str) else item for item in content]
    block: Any = BudgetMemoryBlock(name="pictures", read=lambda _: said)
    if static:
        block = StaticMemoryBlock(name="pictures", static_content=said, priority=1)
    memory = _memory(token_limit=limit, memory_blocks=[block], insert_method=how, counter="cl100k_base")
    memory.memory_blocks_template = template
    found = memory.fit()
    kept = {d.segment_id for d in found.report.decisions if d.action == "kept"}
    expected = [item for i, item in enumerate(said) if f"pictures-{i}" in kept and item in MEDIA]
    sent = [(m.role.value, b) for m in found.messages for b in m.blocks if not isinstance(b, TextBlock)]
    media = [block.model_dump() for role, block in sent if not isinstance(block, ToolCallBlock)]
    assert media == [item.model_dump() for item in expected]
    assert {role for role, block in sent if not isinstance(block, ToolCallBlock)} <= {"user"}
    assert found.report.total_tokens == tokens(found.messages) <= limit


@pytest.mark.parametrize("item", [3, {"text": "a"}, ToolCallBlock(tool_name="a", tool_kwargs={})])
async def test_what_cannot_be_in_a_prompt_names_its_block(item: Any) -> None:
    """A number, a dict and a tool call that no message made."""
    memory = _memory(memory_blocks=[BudgetMemoryBlock(name="odd", read=lambda _: ["text", item])])
    with pytest.raises(
        BudgetError, match=r"reading the memory block 'odd' must not raise .*no text, content"
    ):
        await memory.aget()
