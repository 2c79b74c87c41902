"""Two counts of one request: the product's, part by part, and the strict server's, of the whole rendering at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from rankbudget import counter_for
from rankbudget.testing import Application, applications
from rankbudget.testing.server import request_tokens
from tests.drawing import draws

SENT = ("text", "image_url", "input_audio", "file")


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """Returns a message as clients send it: without blocks that chat completions do not take."""
    content = message.get("content")
    return (
        {**message, "content": [b for b in content if b["type"] in SENT]}
        if isinstance(content, list)
        else message
    )


@pytest.mark.parametrize("encoding", ["o200k_base", "cl100k_base"])
@draws()
@given(applications())
def test_the_servers_count_is_the_counters(encoding: str, application: Application) -> None:
    """Messages, tools and media count the same on both sides, token for token."""
    messages = [as_sent(m) for m in application.messages]
    tools = application.tools or None
    assert counter_for(encoding).exact
    ours = counter_for(encoding).count_messages(messages, tools)
    if encoding == "cl100k_base" and tools:
        ours -= 3 * len(tools)  # the formula opens a function with 10 instead of 7 tokens before gpt-4o
    assert ours == request_tokens(messages, tools, encoding=encoding)
