"""Results without their call among what a user says: the results go, one by one, and what is said stays."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("llama_index.core")
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock

import langchain_budget as lb
import llamaindex_budget as ib
from langchain_budget._codec import CODEC
from llamaindex_budget._codec import CODEC as CHAT
from rankbudget import BudgetError, BudgetSession, MessageError, fit_messages
from rankbudget.messages.codec import Codec, DictCodec
from rankbudget.testing import WordCounter, check_laws, check_refusal, check_same, is_broken, snapshot
from tests.drawing import draws

COUNTER = WordCounter()
WHOLE = 100_000
Message = dict[str, Any]
Step = tuple[str, tuple[str, ...], bool, bool]
"""What happens, the calls that are made or answered by it, whether a text, and a picture, come with it."""
CALLS = st.lists(st.sampled_from(("a", "b")), max_size=2, unique=True).map(tuple)
ANSWERED = st.lists(st.sampled_from(("a", "b", "a", "lost")), min_size=1, max_size=3).map(tuple)
MIXED = st.tuples(st.just("mixed"), ANSWERED, st.booleans(), st.booleans())
ASK = st.tuples(st.just("ask"), st.just(()), st.booleans(), st.booleans())
ANSWER = st.tuples(st.just("assistant"), CALLS, st.booleans(), st.just(False))
STEPS = st.tuples(  # what comes before the first question goes with the assistant that it follows
    st.one_of(ASK, st.tuples(st.just("mixed"), ANSWERED, st.just(True), st.booleans())),
    st.lists(st.one_of(ASK, ANSWER, MIXED, MIXED), max_size=8),
).map(lambda drawn: [drawn[0], *drawn[1]])


def anthropic(steps: list[Step]) -> list[Message]:
    """Blocks with ids; each text of the user has a mark of its own."""
    found: list[Message] = []
    for number, (kind, ids, text, image) in enumerate(steps):
        picture = {"type": "base64", "media_type": "image/png", "data": f"iVBORw0KGgo{number}"}
        blocks: list[Any] = [{"type": "image", "source": picture}] if image else []
        if kind == "assistant":
            blocks += [{"type": "text", "text": f"said{number}"}] if text or not ids else []
            blocks += [{"type": "tool_use", "id": one, "name": "find", "input": {}} for one in ids]
            found.append({"role": "assistant", "content": blocks})
            continue
        results = [
            {"type": "tool_result", "tool_use_id": one, "content": f"found{number}"}
            for one in (ids if kind == "mixed" else ())
        ]
        blocks += [{"type": "text", "text": f"asked{number}"}] if text or kind == "ask" else []
        found.append({"role": "user", "content": [*results, *blocks]})
    return found


def gemini(steps: list[Step]) -> list[Message]:
    """Parts without types, calls known by the name of their function."""
    found: list[Message] = []
    for message in anthropic(steps):
        parts: list[Any] = []
        for block in message["content"]:
            if block["type"] == "text":
                parts.append({"text": block["text"]})
            elif block["type"] == "image":
                parts.append({"inlineData": {"mimeType": "image/png", "data": block["source"]["data"]}})
            elif block["type"] == "tool_use":
                parts.append({"functionCall": {"name": block["id"], "args": {}}})
            else:
                response = {"result": block["content"]}
                parts.append({"functionResponse": {"name": block["tool_use_id"], "response": response}})
        found.append({"role": {"assistant": "model"}.get(message["role"], "user"), "parts": parts})
    return found


def openai(steps: list[Step]) -> list[Message]:
    """Results in messages of their own, what the user says after them."""
    found: list[Message] = []
    for message in anthropic(steps):
        kinds = {"tool_use": list[Any](), "tool_result": list[Any]()}
        rest = [b for b in message["content"] if b["type"] not in kinds or kinds[b["type"]].append(b)]
        calls = [
            {"id": b["id"], "type": "function", "function": {"name": "find", "arguments": "{}"}}
            for b in kinds["tool_use"]
        ]
        found += [
            {"role": "tool", "tool_call_id": b["tool_use_id"], "content": b["content"]}
            for b in kinds["tool_result"]
        ]
        if calls or rest:
            made = {"role": message["role"], "content": rest or None}
            found.append({**made, "tool_calls": calls} if calls else made)
    return found


def langchain(steps: list[Step]) -> list[Any]:
    """Anthropic's blocks in LangChain's messages."""
    kinds: dict[str, Callable[[Any], Any]] = {"user": HumanMessage, "assistant": AIMessage}
    return [kinds[message["role"]](message["content"]) for message in anthropic(steps)]


def llamaindex(steps: list[Step]) -> list[Any]:
    """LlamaIndex's messages, whose results are messages of their own."""
    found: list[Any] = []
    for message in openai(steps):
        blocks: list[Any] = [
            TextBlock(text=b["text"]) for b in message["content"] or () if isinstance(b, dict) and "text" in b
        ]
        if isinstance(message["content"], str):
            blocks = [TextBlock(text=message["content"])]
        calls = message.get("tool_calls", ())
        blocks += [ToolCallBlock(tool_call_id=call["id"], tool_name="find") for call in calls]
        extra = {"tool_call_id": message["tool_call_id"]} if "tool_call_id" in message else {}
        found.append(ChatMessage(role=message["role"], blocks=blocks, additional_kwargs=extra))
    return found


Write = Callable[[list[Step]], list[Any]]
SHAPES: list[tuple[Write, Codec]] = [
    (anthropic, DictCodec()),
    (gemini, DictCodec()),
    (openai, DictCodec()),
    (langchain, CODEC),
    (llamaindex, CHAT),
]
EACH = pytest.mark.parametrize(("write", "codec"), SHAPES, ids=[write.__name__ for write, _ in SHAPES])


def asked(messages: list[Any], codec: Codec) -> list[str]:
    """Returns what the user says in each message that says something, apart from results."""
    found = []
    for message in messages:
        text = str(codec.to_dict(message).get("content")) if codec.role(message) == "user" else ""
        found += [f"asked{n}" for n in range(20) if f"asked{n}'" in text or text == f"asked{n}"]
    return found


def fit(messages: list[Any], limit: int, codec: Codec, **options: Any) -> Any:
    try:
        return fit_messages(messages, max_tokens=limit, counter=COUNTER, codec=codec, **options)
    except BudgetError as error:
        return error


@EACH
@draws()
@given(steps=STEPS, share=st.sampled_from((8, 8, 6, 4, 2)), cut=st.sampled_from(("fill", "stable")))
def test_what_a_user_says_beside_results_stays(
    write: Write, codec: Codec, steps: list[Step], share: int, cut: str
) -> None:
    """Where all fits, every text of the user stays; a result stays where its call does; the report says what was cut."""
    messages = write(steps)
    before = snapshot(messages)
    for limit in (WHOLE, COUNTER.count_messages([codec.to_dict(m) for m in messages]) * share // 8 or 1):
        found = fit(messages, limit, codec, cut=cut)
        rules: dict[str, Any] = {"limit": limit, "counter": COUNTER, "codec": codec}
        if isinstance(found, BudgetError):
            check_refusal(messages, found, **rules)
            continue
        check_laws(messages, found.messages, before=before, reported=found.report.total_tokens, **rules)
        again = fit(found.messages, limit, codec, cut=cut)
        check_same(found.messages, again.messages, codec=codec, what="fitting twice")
        decisions = list(found.report.decisions)
        assert len(decisions) == len(messages)
        cuts = [d for d in decisions if d.action == "truncated" and d.reason == "orphan_result"]
        given_ones = set(map(id, messages))
        assert len(cuts) == sum(id(m) not in given_ones for m in found.messages)
        assert all(d.after < d.before for d in cuts)
        if limit == WHOLE:
            assert asked(found.messages, codec) == asked(messages, codec)
            kept = [d for d in decisions if d.action == "kept"]
            assert is_broken(messages, codec) == (len(kept) < len(messages))
            strict = fit(messages, limit, codec, strict=True)
            assert isinstance(strict, MessageError) == is_broken(messages, codec)


@EACH
@draws()
@given(steps=STEPS, share=st.sampled_from((100, 8, 6, 4, 3)))
def test_a_session_reads_a_growing_conversation_alike(
    write: Write, codec: Codec, steps: list[Step], share: int
) -> None:
    """Read step by step a conversation is what it is when it is read at once, and reading twice changes nothing."""
    messages = write([*steps, ("ask", (), True, False)])
    limit = max(20, COUNTER.count_messages([codec.to_dict(m) for m in messages]) * share // 8)
    session = BudgetSession(limit, counter=COUNTER, codec=codec)
    for size in range(1, len(messages) + 1):
        given_ones = copy.deepcopy(messages[:size])
        rules: dict[str, Any] = {"limit": limit, "counter": COUNTER, "codec": codec}
        try:
            found = session.fit(given_ones)
        except BudgetError as error:
            check_refusal(given_ones, error, **rules)
            continue
        check_laws(given_ones, found.messages, reported=found.report.total_tokens, **rules, remembers=True)
        check_same(found.messages, session.fit(given_ones).messages, codec=codec, what="reading twice")
        if share == 100:
            fresh = BudgetSession(limit, counter=COUNTER, codec=codec).fit(given_ones)
            check_same(fresh.messages, found.messages, codec=codec, what="reading at once")
            assert asked(found.messages, codec) == asked(given_ones, codec)


@draws(asynchronous=True)
@given(steps=STEPS)
def test_the_adapters_keep_what_a_user_says_beside_results(steps: list[Step]) -> None:
    """LangChain's trimmer and `trim_messages`, and LlamaIndex's memory, keep every text of the user."""
    steps = [*steps, ("mixed", ("lost",), True, False)]
    given_ones = langchain(steps)
    expected = asked(given_ones, CODEC)
    trimmed = lb.BudgetTrimmer(max_tokens=WHOLE, counter=COUNTER).invoke(given_ones)
    assert asked(trimmed, CODEC) == expected
    for strategy in ("first", "last"):
        for partial in (True, False):
            found = lb.trim_messages(
                given_ones, max_tokens=WHOLE, token_counter=len, strategy=strategy, allow_partial=partial
            )
            check_same(trimmed, found, codec=CODEC, what=strategy)
    chat = llamaindex(steps)
    memory = ib.BudgetChatMemoryBuffer.from_defaults(chat_history=chat, token_limit=WHOLE, counter=COUNTER)
    assert asked(memory.get(), CHAT) == asked(chat, CHAT)
