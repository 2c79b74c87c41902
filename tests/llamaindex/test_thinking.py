"""Thinking of another model, and media in results, cost room only where the client sends them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    ChatResponse,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.llms.openai.utils import to_openai_message_dicts
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import RequestExceededError, budget_model
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


def _asked(role: str, media: int, rows: int) -> list[ChatMessage]:
    """Returns a conversation in which a message of a role holds a text, and so many pictures and sounds."""
    blocks: list[Any] = [TextBlock(text="a row of the stock list\n" * rows)]
    blocks += [
        ImageBlock(url=f"http://x/{i}.png") if i % 2 else AudioBlock(url=f"http://x/{i}.mp3")
        for i in range(media)
    ]
    extra = {"tool_call_id": "a"} if role == "tool" else {}
    made = ChatMessage(role=role, blocks=blocks, additional_kwargs=extra)
    if role == "system":
        return [made, ChatMessage("When?")]
    call = ChatMessage(
        role="assistant", blocks=[ToolCallBlock(tool_call_id="a", tool_name="look", tool_kwargs={})]
    )
    return (
        [ChatMessage("When?"), call, made]
        if role == "tool"
        else [ChatMessage("When?"), made, ChatMessage("Why?")]
    )


@given(
    role=st.sampled_from(["tool", "assistant", "system"]),
    media=st.integers(1, 4),
    rows=st.integers(1, 300),
    limit=st.integers(50, 2500),
)
def test_media_that_openais_client_leaves_out_take_no_room(
    role: str, media: int, rows: int, limit: int
) -> None:
    """Results, answers and system messages are sent as text: the request is the same with pictures in them and without."""
    sent: list[Any] = []

    class Client(OpenAILike):
        def _chat(self, messages: Any, **_: Any) -> ChatResponse:
            sent.append(to_openai_message_dicts(messages))
            return ChatResponse(message=ChatMessage(role="assistant", content="Then."))

    plain = Client(model="gpt-4o", api_key="none", is_chat_model=True, context_window=8000)
    llm = budget_model(plain, max_tokens=limit, counter="o200k_base")

    def result_of(pictures: int) -> Any:
        try:
            llm.chat(_asked(role, pictures, rows))
        except RequestExceededError as error:
            return error.needed
        return sent[-1]

    assert result_of(media) == result_of(0)


@given(media=st.integers(1, 3))
def test_media_that_a_user_sends_are_counted(media: int) -> None:
    """They are sent, and need their room."""
    llm = budget_model(OpenAILike(model="gpt-4o", api_key="none", is_chat_model=True), max_tokens=80)
    blocks = [TextBlock(text="When?"), *[ImageBlock(url=f"http://x/{i}.png") for i in range(media)]]
    with pytest.raises(RequestExceededError):
        llm.chat([ChatMessage(role="user", blocks=blocks)])
