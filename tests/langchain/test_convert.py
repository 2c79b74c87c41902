"""LangChain objects reach the core and come back as they were."""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    HumanMessageChunk,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.tools import tool
from pydantic import BaseModel, Field

from langchain_budget._codec import CODEC, MARK, NeedsConversionError
from langchain_budget._convert import (
    as_messages,
    as_tools,
    document_text,
    example_text,
    from_segment,
    to_segments,
)
from rankbudget.errors import BudgetConfigError, MessageError

CALL = {"name": "search", "args": {"q": "cats"}, "id": "c1"}


def test_roles_cover_every_message_class() -> None:
    """Every class, chunk and subclass has one role, in one pass and one by one."""

    class Loud(AIMessage):
        pass

    thread = [
        SystemMessage("s"),
        SystemMessage("d", additional_kwargs={"__openai_role__": "developer"}),
        HumanMessage("h"),
        HumanMessageChunk("h"),
        AIMessage("a"),
        AIMessageChunk("a"),
        Loud("a"),
        ToolMessage("t", tool_call_id="c1"),
        FunctionMessage("f", name="f"),
        ChatMessage("c", role="user"),
        ChatMessage("c", role="model"),
    ]
    expected = [
        "system",
        "developer",
        "user",
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert CODEC.roles(thread) == expected
    assert [CODEC.role(m) for m in thread] == expected


def test_an_unknown_role_is_a_typed_error_that_names_the_allowed_ones() -> None:
    """A ChatMessage with an unknown role says what was seen and what is allowed."""
    with pytest.raises(MessageError, match=r"ai, assistant.*developer.*'narrator'"):
        CODEC.role(ChatMessage("x", role="narrator"))


@pytest.mark.parametrize("item", [("human", "hi"), {"role": "user"}, "hi", RemoveMessage(id="1")])
def test_what_is_no_message_yet_asks_for_conversion(item: object) -> None:
    """Tuples, dicts, strings and removals raise the error on which entry points convert."""
    with pytest.raises(NeedsConversionError):
        CODEC.roles([HumanMessage("x"), item])


def test_plain_messages_are_role_and_content() -> None:
    """A plain message's neutral form holds nothing else."""
    assert CODEC.to_dict(HumanMessage("hi")) == {"role": "user", "content": "hi"}
    assert CODEC.to_dict(HumanMessage("hi", name="ann")) == {"role": "user", "content": "hi", "name": "ann"}
    assert CODEC.to_dict(
        AIMessage("yes", usage_metadata={"input_tokens": 1, "output_tokens": 1, "total_tokens": 2})
    ) == {
        "role": "assistant",
        "content": "yes",
    }


def test_an_artifact_is_not_sent() -> None:
    """A tool result's artifact is no part of the neutral form."""
    assert CODEC.to_dict(ToolMessage("r", tool_call_id="c1", artifact={"big": "x" * 99})) == {
        "role": "tool",
        "content": "r",
        "tool_call_id": "c1",
    }


@pytest.mark.parametrize(
    "message",
    [
        AIMessage("", tool_calls=[CALL]),
        AIMessage([{"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "cats"}}]),
        AIMessage(
            [{"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "cats"}}], tool_calls=[CALL]
        ),
        AIMessage(content_blocks=[{"type": "tool_call", **CALL}]),
        AIMessage(
            "",
            additional_kwargs={
                "tool_calls": [{"id": "c1", "function": {"name": "search", "arguments": '{"q": "cats"}'}}]
            },
        ),
        AIMessage(
            "", invalid_tool_calls=[{"name": "search", "args": '{"q": "cats"}', "id": "c1", "error": "bad"}]
        ),
        AIMessageChunk(
            "", tool_call_chunks=[{"name": "search", "args": '{"q": "cats"}', "id": "c1", "index": 0}]
        ),
        AIMessage(
            [{"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"q": "cats"}'}]
        ),
    ],
)
def test_a_call_is_seen_once_wherever_it_is_kept(message: AIMessage) -> None:
    """Each of the places LangChain keeps a call gives the same id and the same payload, once."""
    assert CODEC.call_ids(message) == ("c1",)
    neutral = CODEC.to_dict(message)
    assert [
        (c["id"], c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in neutral["tool_calls"]
    ] == [("c1", "search", {"q": "cats"})]
    assert not neutral["content"]


def test_the_longer_of_two_payloads_counts() -> None:
    """Where content and `tool_calls` disagree, the longer arguments are the ones counted."""
    message = AIMessage([{"type": "tool_use", "id": "c1", "name": "w", "input": {"body": "long" * 9}}])
    message.tool_calls = [{"name": "w", "args": {}, "id": "c1", "type": "tool_call"}]
    assert "longlong" in CODEC.to_dict(message)["tool_calls"][0]["function"]["arguments"]


def test_thinking_stays_in_the_content_beside_the_call() -> None:
    """Only call blocks move out of the content; thinking and its signature stay."""
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    message = AIMessage(
        [thinking, {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "c1", "name": "f", "input": {}}]
    )
    assert CODEC.to_dict(message)["content"] == [thinking, {"type": "text", "text": "ok"}]


def test_reasoning_beside_the_content_is_counted() -> None:
    """`reasoning_content` is sent back by several integrations, so it is part of the neutral form."""
    message = AIMessage("answer", additional_kwargs={"reasoning_content": "because"})
    assert CODEC.to_dict(message)["content"] == [
        {"type": "reasoning", "reasoning": "because"},
        {"type": "text", "text": "answer"},
    ]


def test_a_function_is_answered_by_its_name() -> None:
    """The oldest call form pairs through the function's name."""
    asked = AIMessage("", additional_kwargs={"function_call": {"name": "f", "arguments": "{}"}})
    assert CODEC.call_ids(asked) == (CODEC.result_id(FunctionMessage("r", name="f")),)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (HumanMessage("a"), HumanMessage("b")),
        (HumanMessage("a"), AIMessage("a")),
        (HumanMessage("a"), HumanMessage("a", name="n")),
        (AIMessage("", tool_calls=[CALL]), AIMessage("", tool_calls=[{**CALL, "args": {}}])),
        (ToolMessage("a", tool_call_id="1"), ToolMessage("a", tool_call_id="2")),
        (HumanMessage([{"type": "text", "text": "a"}]), HumanMessage([{"type": "text", "text": "b"}])),
        (AIMessage("a"), AIMessage("a", additional_kwargs={"reasoning_content": "x"})),
    ],
)
def test_the_fingerprint_changes_with_what_is_sent(first: object, second: object) -> None:
    """Two messages that cost differently have different fingerprints; a copy has the same."""
    one, other = CODEC.fingerprints([first, second])
    assert one != other
    assert CODEC.fingerprints([CODEC.copy(first)]) == [one]


def test_fingerprints_of_texts_call_no_function() -> None:
    """A session reads its whole thread each turn; a call for each message doubles the time."""
    thread = [HumanMessage("one"), AIMessage("two"), ToolMessage("three", tool_call_id="3")] * 100
    CODEC.roles(thread)
    called: list[str] = []
    sys.setprofile(lambda frame, event, _: called.append(event) if event == "call" else None)
    try:
        CODEC.fingerprints(thread)
    finally:
        sys.setprofile(None)
    assert len(called) < 10


def test_edited_text_is_a_marked_copy_without_stale_usage() -> None:
    """A shortened message keeps id, calls and blocks, loses its usage, and says that it was edited; the original is as it was."""
    usage = {"input_tokens": 5, "output_tokens": 50, "total_tokens": 55}
    image = {"type": "image_url", "image_url": {"url": "x"}}
    message = AIMessage(
        [image, {"type": "text", "text": "long"}],
        id="m1",
        tool_calls=[CALL],
        usage_metadata=usage,
        response_metadata={"token_usage": usage, "model_name": "m"},
    )
    before = message.model_dump()
    edited = CODEC.with_text(message, "short")
    assert edited.content == [image, {"type": "text", "text": "short"}]
    assert (edited.id, edited.tool_calls, edited.usage_metadata) == ("m1", message.tool_calls, None)
    assert edited.response_metadata == {"model_name": "m"}
    assert edited.additional_kwargs[MARK] == "rankbudget"
    assert message.model_dump() == before


def test_inserted_messages_are_marked_with_their_origin() -> None:
    """What no user typed carries `lc_source`, as LangChain's own inserted messages do."""
    made = CODEC.make("user", "In short: ..", origin="summary")
    assert (made.type, made.text, made.additional_kwargs) == ("human", "In short: ..", {MARK: "summary"})
    assert [
        CODEC.role(CODEC.make(r, "x", origin="o")) for r in ("system", "developer", "user", "assistant")
    ] == [
        "system",
        "developer",
        "user",
        "assistant",
    ]


def test_a_copy_shares_nothing_that_can_change() -> None:
    """Editing a copy in place leaves the original alone."""
    message = HumanMessage([{"type": "text", "text": "a"}], additional_kwargs={"k": [1]})
    copied = CODEC.copy(message)
    copied.content[0]["text"] = "b"
    copied.additional_kwargs["k"].append(2)
    assert message == HumanMessage([{"type": "text", "text": "a"}], additional_kwargs={"k": [1]})


def test_anything_message_like_becomes_messages() -> None:
    """Prompt values, strings, tuples and dicts convert; messages stay the same objects; removals are carried out."""
    message = HumanMessage("kept", id="2")
    found = as_messages(
        [
            HumanMessage("gone", id="1"),
            message,
            RemoveMessage(id="1"),
            ("ai", "yes"),
            {"role": "user", "content": "go"},
        ]
    )
    assert [m.text for m in found] == ["kept", "yes", "go"]
    assert found[0] is message
    assert [m.text for m in as_messages("hello")] == ["hello"]
    assert [
        m.type
        for m in as_messages(ChatPromptTemplate([("system", "s"), ("human", "{q}")]).invoke({"q": "x"}))
    ] == ["system", "human"]
    with pytest.raises(MessageError, match="a message must be"):
        as_messages([{"content": "no role"}])
    with pytest.raises(MessageError, match=r"messages must be a list.*int"):
        as_messages(3)


def test_removing_all_clears_what_came_before() -> None:
    """A removal of everything leaves only what follows it."""
    kept = HumanMessage("b")
    assert as_messages([HumanMessage("a"), RemoveMessage(id="__remove_all__"), kept]) == [kept]


def test_tools_of_every_kind_become_schemas() -> None:
    """Functions, decorated tools, classes, and dicts give the schema that `bind_tools` sends."""

    @tool
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    class Lookup(BaseModel):
        """Looks something up."""

        key: str = Field(description="what")

    raw = {"type": "function", "function": {"name": "raw", "parameters": {}}}
    found = as_tools([add, Lookup, raw])
    assert found is not None
    assert [t["function"]["name"] for t in found] == ["add", "Lookup", "raw"]
    assert as_tools(None) is None


def test_a_document_comes_back_as_the_same_object_or_a_shorter_copy() -> None:
    """Whole documents are handed back untouched; a shortened one keeps id and metadata, and shares no metadata dict."""
    document = Document(
        id="d1", page_content="long text", metadata={"source": "a.md", "title": "A", "relevance_score": 0.5}
    )
    (segment,) = to_segments([document])
    assert (segment.id, segment.text, segment.title, segment.score) == ("d1", "long text", "A", 0.5)
    assert segment.provenance is not None
    assert segment.provenance.source_id == "a.md"
    assert from_segment(segment) is document
    shorter = from_segment(segment, "long")
    assert (shorter.id, shorter.page_content, shorter.metadata) == ("d1", "long", document.metadata)
    assert shorter.metadata is not document.metadata


def test_segment_ids_are_unique() -> None:
    """Documents without an id are named by place, and a second one of the same id too."""
    documents = [
        Document(page_content="a"),
        Document(id="x", page_content="b"),
        Document(id="x", page_content="c"),
    ]
    assert [s.id for s in to_segments(documents)] == ["document-0", "x", "x#2"]


def test_examples_and_texts_become_segments() -> None:
    """A dict's text is its lines, or what its prompt makes of it; a plain text comes back as a text."""
    example = {"input": "2+2", "output": "4"}
    (segment,) = to_segments(
        [example],
        prefix="example",
        text_of=lambda e: example_text(e, PromptTemplate.from_template("{input}={output}")),
    )
    assert (segment.id, segment.text) == ("example-0", "2+2=4")
    assert from_segment(segment) is example
    chat = ChatPromptTemplate([("human", "{input}"), ("ai", "{output}")])
    assert example_text(example, chat) == "2+2\n4"
    (text,) = to_segments(["a note"], prefix="memory")
    assert (from_segment(text), from_segment(text, "a")) == ("a note", "a")
    with pytest.raises(MessageError, match=r"memory must be .*int"):
        to_segments([3], prefix="memory")


def test_a_document_prompt_decides_the_text() -> None:
    """A document's text is what the chain's own document prompt shows."""
    document = Document(page_content="Cats purr.", metadata={"source": "cats.md"})
    assert (
        document_text(document, PromptTemplate.from_template("[{source}] {page_content}"))
        == "[cats.md] Cats purr."
    )


@pytest.mark.parametrize(
    ("metadata", "score"),
    [
        ({"relevance_score": np.float32(0.5)}, 0.5),
        ({"relevance_score": np.int64(2)}, 2.0),
        ({"relevance_score": Fraction(1, 4)}, 0.25),
        ({"relevance_score": float("nan")}, None),
        ({"relevance_score": float("inf")}, None),
        ({"relevance_score": np.float64("nan")}, None),
        ({"relevance_score": True}, None),
        ({"relevance_score": "0.9"}, None),
        ({"score": 0.9}, 0.9),
        ({"score": 0.9, "relevance_score": 0.2}, 0.2),
    ],
)
def test_a_score_is_a_finite_number_of_any_library(metadata: dict[str, Any], score: float | None) -> None:
    """Rerankers leave numpy's numbers; what is no number rates nothing."""
    (segment,) = to_segments([Document(page_content="text", metadata=metadata)])
    assert segment.score == score


def test_a_shortened_document_shares_no_metadata_however_deep() -> None:
    """What somebody adds to the copy's tags is not in the store's document; objects inside are handed on as they are."""
    anything = object()
    document = Document(
        page_content="long text", metadata={"tags": [{"a": 1}], "pair": ([1], 2), "any": anything}
    )
    shorter = from_segment(to_segments([document])[0], "long")
    shorter.metadata["tags"][0]["a"] = 2
    shorter.metadata["pair"][0].append(3)
    assert document.metadata == {"tags": [{"a": 1}], "pair": ([1], 2), "any": anything}
    assert shorter.metadata["any"] is anything


def test_what_is_no_tool_is_a_bad_setting() -> None:
    """A tool that cannot be read is named, with what is allowed."""
    with pytest.raises(BudgetConfigError, match=r"each tool must be .*got 3"):
        as_tools([3])
