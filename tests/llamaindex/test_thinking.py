"""Thinking of another model, and media in results, cost room only where the client sends them."""

from __future__ import annotations

import copy
import pickle
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
from llama_index.llms.openai import OpenAIResponses
from llama_index.llms.openai.utils import to_openai_message_dicts
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    RequestExceededError,
    StoredChatStore,
    budget_model,
)
from rankbudget import BudgetSession, TokenBudget
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


def _replies(**options: Any) -> tuple[Any, list[Any]]:
    """Returns OpenAI's responses client, and the requests that it would send."""
    sent: list[Any] = []

    class Client(OpenAIResponses):
        def _chat(self, messages: Any, **given: Any) -> ChatResponse:
            store = self._get_model_kwargs(**given)["store"]
            sent.append(to_openai_message_dicts(messages, is_responses_api=True, store=store))
            return ChatResponse(message=ChatMessage(role="assistant", content="Then."))

    return Client(model="gpt-4o", api_key="none", **options), sent


def _parts(thinking: int, turns: int = 8) -> list[ChatMessage]:
    """Returns a conversation about parts; before each call an assistant thinks so many sentences."""
    said: list[ChatMessage] = []
    for i in range(turns):
        thought = ThinkingBlock(
            content=f"I should look up part {i}. " * thinking, additional_information={"id": f"rs_{i}"}
        )
        call = ToolCallBlock(tool_call_id=f"k{i}", tool_name="find", tool_kwargs={"part": i})
        said += [
            ChatMessage(f"Find part {i}."),
            ChatMessage(role="assistant", blocks=[*([thought] if thinking else []), call]),
            ChatMessage(
                f"Part {i} was replaced in {1990 + i}. " * 8,
                role="tool",
                additional_kwargs={"tool_call_id": f"k{i}"},
            ),
            ChatMessage(f"In {1990 + i}.", role="assistant"),
        ]
    return said


@given(thinking=st.integers(1, 60), limit=st.integers(60, 2500))
def test_reasoning_that_openais_responses_client_leaves_out_takes_no_room(thinking: int, limit: int) -> None:
    """It is sent with `store=True` only: without it the request and its count are the same as with no reasoning."""
    plain, sent = _replies()
    counts: list[int] = []
    llm = budget_model(plain, max_tokens=limit, on_report=lambda report: counts.append(report.total_tokens))
    for length in (thinking, 0):
        llm.chat([*_parts(length), ChatMessage("And part 2?")])
    assert sent[0] == sent[1]
    assert counts[0] == counts[1]


@pytest.mark.parametrize("where", ["llm", "additional", "call"])
def test_reasoning_that_is_sent_is_counted(where: str) -> None:
    """A provider that stores answers is sent their reasoning, wherever `store=True` was said."""
    options: dict[str, Any] = {
        "llm": {"store": True},
        "additional": {"additional_kwargs": {"store": True}},
    }.get(where, {})
    plain, sent = _replies(**options)
    llm = budget_model(plain, max_tokens=1500, counter="o200k_base")
    call = {"store": True} if where == "call" else {}
    llm.chat([*_parts(30), ChatMessage("And part 2?")], **call)
    assert "I should look up part 7" in str(sent[0])
    assert "Part 2 was replaced" not in str(sent[0])


def _llm(kind: str, *, bounded: bool) -> Any:
    plain: Any = OpenAIResponses(model="gpt-4o", api_key="none")
    if kind == "chat":
        plain = OpenAILike(model="gpt-4o", api_key="none", is_chat_model=True, context_window=2000)
    return budget_model(plain, max_tokens=1500, counter="o200k_base") if bounded else plain


def _memory(memory_class: Any, llm: Any, how: str) -> Any:
    """Returns a memory of 600 tokens for an LLM; of a session's LLM where that is `how` it knows it."""
    if how == "session":
        session = BudgetSession(TokenBudget(context_window=1200, reserve=600), counter="o200k_base")
        budget_model(llm, session)
        return memory_class.from_defaults(session=session)
    stored = {"chat_store": StoredChatStore(place=":memory:")} if how == "database" else {}
    return memory_class.from_defaults(llm=llm, token_limit=600, **stored)


def _copied(memory: Any, how: str) -> Any:
    if how == "copy":
        return copy.deepcopy(memory)
    if how == "pickle":
        return pickle.loads(pickle.dumps(memory))
    return type(memory).from_dict(memory.to_dict()) if how == "dict" else memory


_BUFFER, _BLOCKS = BudgetChatMemoryBuffer, BudgetMemory
_MEMORIES = [
    *[(_BUFFER, how) for how in ("", "copy", "pickle", "dict", "session", "database")],
    *[(_BLOCKS, how) for how in ("", "copy", "session")],
]


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize(("memory_class", "how"), _MEMORIES)
async def test_a_memory_counts_what_the_client_of_its_llm_sends(
    memory_class: Any, how: str, kind: str, *, bounded: bool
) -> None:
    """It returns the same messages as without thinking, each with its thinking; so do its copies."""
    found = []
    for thinking in (60, 0):
        memory = _memory(memory_class, _llm(kind, bounded=bounded), how)
        await memory.aput_messages(_parts(thinking))
        memory = _copied(memory, how)
        kept = await memory.aget("And part 2?")
        assert [m.content for m in memory.get("And part 2?")] == [m.content for m in kept]
        found.append(kept)
    thoughts = [b for m in found[0] for b in m.blocks if isinstance(b, ThinkingBlock)]
    calls = [b for m in found[0] for b in m.blocks if isinstance(b, ToolCallBlock)]
    assert [m.content for m in found[0]] == [m.content for m in found[1]]
    assert len(thoughts) == len(calls) > 0


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")
@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("kind", ["chat", "responses"])
async def test_an_agent_counts_what_the_client_of_its_llm_sends(kind: str, *, bounded: bool) -> None:
    """It keeps the same messages as without thinking."""
    agent = BudgetFunctionAgent(
        llm=_llm(kind, bounded=bounded), tools=[], budget=TokenBudget(context_window=1200, reserve=600)
    )
    kept = [await agent.fit([*_parts(thinking), ChatMessage("And part 2?")]) for thinking in (60, 0)]
    assert [m.content for m in kept[0]] == [m.content for m in kept[1]]
