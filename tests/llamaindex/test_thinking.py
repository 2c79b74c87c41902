"""Thinking of another model costs room only where the client sends it."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage, TextBlock, ThinkingBlock
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import budget_model
from rankbudget.testing.server import StrictModelServer


def test_thinking_that_openais_client_leaves_out_drops_no_message() -> None:
    """A conversation that a thinking model began keeps its first message when it goes on with OpenAI's chat client."""
    thought = ThinkingBlock(content="first I think about the rooms and then about the guests " * 20)
    said = [ChatMessage("My booking code is HX-4471.")]
    for number in range(8):
        answer = ChatMessage(role="assistant", blocks=[thought, TextBlock(text="Yes, it is.")])
        said += [answer, ChatMessage(f"Is room {number} free?")]
    with StrictModelServer(context_window=100_000) as server:
        model = OpenAILike(
            model="gpt-4o", api_base=server.base_url, api_key="none", is_chat_model=True, context_window=8000
        )
        budget_model(model, max_tokens=600, counter="o200k_base").chat(said)
        (sent,) = server.requests
    assert sent.problems == ()
    assert "HX-4471" in str(sent.body["messages"])
    assert "I think" not in str(sent.body["messages"])
