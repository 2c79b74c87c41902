"""The codec: what LlamaIndex's messages look like to the core."""

from __future__ import annotations

import json
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiktoken
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)

from llamaindex_budget._codec import CODEC, MARK, copy_message, defused
from llamaindex_budget._counters import counter_of, settings_counter
from rankbudget.errors import MessageError
from tests.llamaindex.models import calls, result, say

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.mark.parametrize(
    ("role", "neutral"),
    [
        ("model", "assistant"),
        ("chatbot", "assistant"),
        ("function", "tool"),
        ("developer", "developer"),
        ("user", "user"),
        ("tool", "tool"),
    ],
)
def test_every_host_role_has_a_neutral_role(role: str, neutral: str) -> None:
    """MODEL and CHATBOT speak for the assistant, FUNCTION for a tool; the others keep their name."""
    message = say(role, "hi")
    assert (CODEC.role(message), CODEC.roles([message]), CODEC.to_dict(message)["role"]) == (
        neutral,
        [neutral],
        neutral,
    )


def test_roles_in_one_pass_equal_roles_one_by_one() -> None:
    """`roles` is only a faster way to ask `role` of each message."""
    messages = [say(role.value, "x") for role in MessageRole]
    assert CODEC.roles(messages) == [CODEC.role(m) for m in messages]


def test_a_thing_without_a_role_is_a_typed_error() -> None:
    """What is not a message is named, with the roles that are allowed."""
    with pytest.raises(MessageError, match="allowed: system, developer, user"):
        CODEC.roles([SimpleNamespace(role="robot")])


def test_plain_text_is_a_plain_dict() -> None:
    """A message of one text has its text as content."""
    assert CODEC.to_dict(say("user", "hi")) == {"role": "user", "content": "hi"}


def test_several_texts_are_joined_as_the_host_joins_them() -> None:
    """`ChatMessage.content` joins with newlines, and so does the count."""
    message = ChatMessage(role="user", blocks=[TextBlock(text="a"), TextBlock(text="b")])
    assert CODEC.to_dict(message)["content"] == message.content == "a\nb"


def test_a_tool_call_block_is_a_tool_call() -> None:
    """Name and arguments are counted, where the stock buffer counts nothing."""
    call = CODEC.to_dict(calls("c1", q="tea"))["tool_calls"]
    assert call == [
        {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": "tea"}'}}
    ]


def test_calls_of_older_places_are_read_where_no_block_holds_one() -> None:
    """`tool_calls` and `function_call` are read, as dicts or objects; beside a block they are copies."""
    message = say(
        "assistant",
        "",
        tool_calls=[
            {"id": "c1", "function": {"name": "search", "arguments": "{}"}},
            SimpleNamespace(id="c2", function=SimpleNamespace(name="add", arguments='{"a": 1}')),
        ],
        function_call={"name": "old", "arguments": "{}"},
    )
    assert CODEC.call_ids(message) == ("c1", "c2", "function:old")
    assert [c["function"]["name"] for c in CODEC.to_dict(message)["tool_calls"]] == ["search", "add", "old"]
    message.blocks += calls("c1").blocks
    assert CODEC.call_ids(message) == ("c1",)


def test_results_name_their_call() -> None:
    """A result answers the call of its id; the oldest protocol answers by function name."""
    assert CODEC.result_id(result("c1", "42")) == "c1"
    assert CODEC.result_id(say("function", "42", name="old")) == "function:old"
    assert CODEC.to_dict(result("c1", "42")) == {"role": "tool", "content": "42", "tool_call_id": "c1"}


def test_media_are_handed_on_and_never_opened(tmp_path: Path) -> None:
    """A path or URL that leads nowhere is no problem, because no code follows it."""
    there = tmp_path / "gone.png"
    there.write_bytes(PNG)
    blocks = [
        ImageBlock(path=there, detail="low"),
        ImageBlock(url="http://127.0.0.1:9/x.png"),
        AudioBlock(url="http://127.0.0.1:9/x.mp3"),
        VideoBlock(url="http://127.0.0.1:9/x.mp4"),
        DocumentBlock(url="http://127.0.0.1:9/x.pdf", title="Paper"),
    ]
    there.unlink()
    content = CODEC.to_dict(ChatMessage(role="user", blocks=blocks))["content"]
    assert [block["type"] for block in content] == ["image_url", "image_url", "input_audio", "video", "file"]
    assert content[0]["image_url"] == {"url": str(there), "detail": "low"}


def test_inline_data_is_a_data_url() -> None:
    """Bytes go along as the host would send them; an open file is not read."""
    image = ImageBlock(image=PNG, image_mimetype="image/png")
    opened = ImageBlock(image=BytesIO(PNG))
    content = CODEC.to_dict(ChatMessage(role="user", blocks=[image, opened]))["content"]
    assert content[0]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert content[1]["image_url"]["url"] == ""


def test_thinking_citations_and_cache_points() -> None:
    """Thinking keeps its signature, cited text is counted, a cache point is a flag and no text."""
    message = ChatMessage(
        role="assistant",
        blocks=[
            ThinkingBlock(content="hm", additional_information={"signature": "sig"}),
            CitableBlock(title="T", source="S", content=[TextBlock(text="inner")]),
            CitationBlock(
                cited_content=TextBlock(text="quoted"), source="S", title="T", additional_location_info={}
            ),
            CachePoint(cache_control=CacheControl(type="ephemeral")),
        ],
    )
    content = CODEC.to_dict(message)["content"]
    assert content[0] == {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert "inner" in json.dumps(content[1])
    assert "quoted" in json.dumps(content[2])
    assert len(content) == 3


def test_an_edited_copy_keeps_what_is_not_text_and_says_so() -> None:
    """`with_text` changes the text of a copy; image, signature and original stay."""
    image = ImageBlock(url="http://127.0.0.1:9/x.png")
    message = ChatMessage(
        role="user",
        blocks=[TextBlock(text="long"), image, TextBlock(text="more")],
        additional_kwargs={"k": 1},
    )
    edited = CODEC.with_text(message, "short")
    assert [getattr(b, "text", b) for b in edited.blocks] == ["short", image]
    assert edited.additional_kwargs == {"k": 1, MARK: "edited"}
    assert message.content == "long\nmore"


def test_no_mark_goes_to_a_provider_beside_old_tool_calls() -> None:
    """Beside legacy tool calls the host sends every extra key, so an edited copy carries none of ours."""
    message = say(
        "assistant", "long", tool_calls=[{"id": "c1", "function": {"name": "f", "arguments": "{}"}}]
    )
    assert MARK not in CODEC.with_text(message, "short").additional_kwargs


def test_a_copy_shares_nothing_that_can_be_edited() -> None:
    """Text, tool arguments, cited blocks and extra keys of a copy can be changed without a trace in the original."""
    message = ChatMessage(
        role="assistant",
        blocks=[
            TextBlock(text="t"),
            ToolCallBlock(tool_call_id="c", tool_name="f", tool_kwargs={"a": {"b": 1}}),
            CitableBlock(title="T", source="S", content=[TextBlock(text="inner")]),
            CitationBlock(
                cited_content=TextBlock(text="quoted"),
                source="S",
                title="T",
                additional_location_info={"page": 1},
            ),
        ],
        additional_kwargs={"tool_calls": [{"id": "x"}]},
    )
    before = message.model_dump_json()
    fresh = copy_message(message)
    assert fresh == message
    fresh.blocks[0].text = "!"
    fresh.blocks[1].tool_kwargs["a"]["b"] = 2
    fresh.blocks[2].content[0].text = "!"
    fresh.blocks[3].cited_content.text = "!"
    fresh.additional_kwargs["tool_calls"][0]["id"] = "y"
    fresh.blocks.append(TextBlock(text="more"))
    assert message.model_dump_json() == before


def test_a_fingerprint_changes_with_any_content() -> None:
    """Text, tool arguments and extra keys changed in place are noticed."""

    def printed(message: ChatMessage) -> str:
        return CODEC.fingerprints([message])[0]

    message = calls("c1", q="a")
    first = printed(message)
    assert printed(copy_message(message)) == first
    message.blocks[0].tool_kwargs["q"] = "b"
    second = printed(message)
    message.additional_kwargs["tool_call_id"] = "z"
    assert len({first, second, printed(message)}) == 3
    assert printed(say("user", "a")) != printed(say("assistant", "a"))


def test_made_messages_say_where_they_come_from() -> None:
    """A summary is a user message with a mark."""
    made = CODEC.make("user", "so far", origin="summary")
    assert (made.role, made.content, made.additional_kwargs) == (
        MessageRole.USER,
        "so far",
        {MARK: "summary"},
    )


def test_slots_of_the_hosts_templates_are_defused() -> None:
    """Only the engine's own variables are touched; other braces are the user's."""
    assert defused('{"a": {query_str}} {context_str} {x}') == '{"a": { query_str}} { context_str} {x}'


def test_tiktoken_tokenizers_are_counted_by_tiktoken() -> None:
    """Special tokens in user text raise in tiktoken's own encode and count here."""
    encode = tiktoken.get_encoding("cl100k_base").encode
    counter = counter_of(encode)
    assert counter.name == counter_of(partial(encode, allowed_special="all")).name == settings_counter().name
    assert counter.count("<|endoftext|>") == 7


def test_any_tokenizer_counts_by_its_length() -> None:
    """A tokenizer is a function from text to a list; its length is the count."""
    assert counter_of(str.split).count("three short words") == 3
    assert counter_of(None, "o200k_base").name == "o200k_base"
