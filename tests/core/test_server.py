"""The strict model server, asked by the real clients over HTTP."""

from __future__ import annotations

import json
import urllib.request

import pytest

from rankbudget.testing.server import (
    ALTERNATING,
    ANTHROPIC,
    Reply,
    StrictModelServer,
    problems_of,
    request_tokens,
)

openai = pytest.importorskip("openai")

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {
    "type": "function",
    "function": {"name": "f", "description": "Finds it.", "parameters": {"type": "object", "properties": {}}},
}


def say(role, content="hello", **fields):
    return {"role": role, "content": content, **fields}


@pytest.fixture
def server():
    with StrictModelServer() as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0, timeout=5) as made:
        yield made


def refusal(client, messages, model="openai@8192", **options):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=model, messages=messages, **options)
    return caught.value


@pytest.mark.slow
def test_it_answers_with_scripted_text_and_usage(server, client):
    """A scripted text comes back with the tokens the server counted."""
    server.script("Tuesday it is")
    answer = client.chat.completions.create(
        model="openai@8192", messages=[say("system", "be brief"), say("user", "when?")]
    )
    assert answer.choices[0].message.content == "Tuesday it is"
    assert (
        answer.usage.prompt_tokens
        == server.requests[0].prompt_tokens
        == request_tokens(server.requests[0].messages)
    )
    assert answer.usage.completion_tokens == 3
    assert (
        client.chat.completions.create(model="openai@8192", messages=[say("user")]).choices[0].message.content
        == "ok"
    )


@pytest.mark.slow
def test_it_streams_text_tool_calls_and_usage(server, client):
    """A stream carries the text word by word, the calls in pieces, and the usage when asked for."""
    server.script(Reply(text="one two three", tool_calls=[("search", {"query": "release"})]))
    chunks = list(
        client.chat.completions.create(
            model="openai@8192",
            messages=[say("user")],
            stream=True,
            stream_options={"include_usage": True},
            tools=[TOOL],
        )
    )
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    pieces = [call for c in chunks if c.choices for call in c.choices[0].delta.tool_calls or ()]
    assert text == "one two three"
    assert json.loads("".join(p.function.arguments for p in pieces)) == {"query": "release"}
    assert chunks[-1].usage.prompt_tokens == server.requests[0].prompt_tokens
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "tool_calls"


def test_it_refuses_one_token_too_many(server, client):
    """A request of exactly the window passes, one more token is 400 context_length_exceeded, and so is room for the answer."""
    messages = [say("user", "word " * 40)]
    size = request_tokens(messages)
    client.chat.completions.create(model=f"openai@{size}", messages=messages)
    assert refusal(client, messages, model=f"openai@{size - 1}").code == "context_length_exceeded"
    assert (
        refusal(client, messages, model=f"openai@{size + 9}", max_tokens=10).code == "context_length_exceeded"
    )
    assert [r.status for r in server.requests] == [200, 400, 400]


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "too short"),
        ([say("user"), say("tool", tool_call_id="c1")], "must be a response"),
        ([say("user"), say("assistant", None, tool_calls=[CALL])], "have no response"),
        ([say("user"), say("assistant", None, tool_calls=[CALL]), say("user")], "have no response"),
        (
            [
                say("user"),
                say("assistant", None, tool_calls=[CALL]),
                say("tool", tool_call_id="c1"),
                say("tool", tool_call_id="c1"),
            ],
            "must be",
        ),
        ([say("user", None)], "got null"),
        ([say("assistant", None)], "got null"),
        ([say("user", [])], "too short"),
        ([say("user", [{"type": "tool_use", "id": "x"}])], "not one of"),
        ([say("narrator")], "not one of"),
        ([say("user"), say("assistant", "x", tool_calls=[])], "too short"),
    ],
)
def test_it_refuses_what_openai_refuses(server, client, messages, words):
    """Broken pairs, null and empty content, unknown blocks and roles are 400."""
    assert words in str(refusal(client, messages))
    assert server.refused


@pytest.mark.parametrize(
    ("provider", "messages", "words"),
    [
        (ANTHROPIC, [say("assistant"), say("user")], "first message"),
        (ANTHROPIC, [say("user"), say("system")], "before all other"),
        (ANTHROPIC, [say("user", " ")], "non-empty"),
        (ANTHROPIC, [say("user", [{"type": "text", "text": ""}])], "non-empty"),
        (
            ANTHROPIC,
            [
                say("user"),
                say(
                    "assistant",
                    [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b", "signature": "c"}],
                ),
            ],
            "before",
        ),
        (ANTHROPIC, [say("user"), say("assistant", [{"type": "thinking", "thinking": "b"}])], "signature"),
        (ALTERNATING, [say("user"), say("user")], "alternate"),
        (ALTERNATING, [say("system"), say("system"), say("user")], "at most 1"),
        (ALTERNATING, [say("system"), say("assistant"), say("user")], "first message"),
    ],
)
def test_each_family_has_its_own_rules(provider, messages, words):
    """What one family refuses, the OpenAI rules may allow."""
    assert any(words in problem for problem in problems_of(messages, provider))


def test_a_valid_tool_conversation_passes_every_family():
    """A system message, a question, parallel calls with their results and an answer break no provider's rules."""
    other = {**CALL, "id": "c2"}
    messages = [
        say("system"),
        say("user"),
        say("assistant", "let me look", tool_calls=[CALL, other]),
        say("tool", tool_call_id="c2"),
        say("tool", tool_call_id="c1"),
        say("assistant"),
        say("user"),
    ]
    for provider in (ANTHROPIC, ALTERNATING):
        assert problems_of(messages, provider) == []
    assert problems_of(messages) == []


def test_it_simulates_what_goes_wrong(server, client):
    """Rate limits, server errors, timeouts, cut streams, wrong usage and bodies that are no JSON reach the client as such."""
    ask = {"model": "openai@8192", "messages": [say("user")]}
    for fault, error in (
        ("rate_limit", openai.RateLimitError),
        ("server_error", openai.InternalServerError),
        ("timeout", openai.APIConnectionError),
    ):
        server.script(Reply(fault=fault))
        with pytest.raises(error):
            client.chat.completions.create(**ask)
    server.script(Reply(text="a b c d e f", fault="cut_stream"))
    with pytest.raises(Exception, match=r"(?i)incomplete|closed|peer"):
        list(client.chat.completions.create(**ask, stream=True))
    server.script(Reply(fault="wrong_usage"))
    answer = client.chat.completions.create(**ask)
    assert answer.usage.prompt_tokens == server.requests[-1].prompt_tokens * 10 + 7
    server.script(Reply(delay_seconds=5))
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.2).chat.completions.create(**ask)


@pytest.mark.slow
def test_a_client_that_retries_gets_through(server):
    """The real client's retry turns one 429 into an answer."""
    server.script(Reply(fault="rate_limit"), "second time")
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=1) as client:
        answer = client.chat.completions.create(model="openai@8192", messages=[say("user")])
    assert answer.choices[0].message.content == "second time"
    assert [r.status for r in server.requests] == [429, 200]


def test_it_lists_its_models(client):
    """`/v1/models` names one model for each family."""
    assert [m.id for m in client.models.list()] == ["openai@8192", "anthropic@8192", "alternating@8192"]
    assert client.models.retrieve("openai@1").id == "openai@1"


def test_it_refuses_what_is_no_request(server):
    """A body that is no JSON, messages that are no list, and unknown paths get an error, not a crash."""
    for path, body, status in (
        ("/chat/completions", b"{", 400),
        ("/chat/completions", b'{"messages": 3}', 400),
        ("/embeddings", b"{}", 404),
    ):
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(server.base_url + path, body))
        assert caught.value.code == status
        caught.value.close()


async def test_async_clients_get_answers_at_the_same_time(server):
    """Twenty async requests at once are all answered."""
    import asyncio

    async with openai.AsyncOpenAI(base_url=server.base_url, api_key="none") as client:
        answers = await asyncio.gather(
            *(
                client.chat.completions.create(model="openai@99", messages=[say("user", f"number {i}")])
                for i in range(20)
            )
        )
    assert len(answers) == len(server.requests) == 20


@pytest.mark.slow
def test_langchain_talks_to_it(server):
    """ChatOpenAI invokes, streams and calls tools through it."""
    chat = pytest.importorskip("langchain_openai").ChatOpenAI(
        base_url=server.base_url, api_key="none", model="openai@8192"
    )
    server.script("plain", "in pieces", Reply(text="", tool_calls=[("f", {"x": 1})]))
    assert chat.invoke("hi").content == "plain"
    assert "".join(chunk.content for chunk in chat.stream("hi")) == "in pieces"
    assert chat.bind_tools([TOOL]).invoke("hi").tool_calls[0]["args"] == {"x": 1}
    assert server.requests[-1].body["tools"][0]["function"]["name"] == "f"


def test_llamaindex_talks_to_it(server):
    """OpenAILike chats, streams and calls tools through it."""
    like = pytest.importorskip("llama_index.llms.openai_like").OpenAILike
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool

    llm = like(
        model="openai@8192",
        api_base=server.base_url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
    )
    server.script("plain", "in pieces", Reply(text="", tool_calls=[("double", {"x": 4})]))
    asked = [ChatMessage(role="user", content="hi")]
    assert llm.chat(asked).message.content == "plain"
    assert [part.message.content for part in llm.stream_chat(asked)][-1] == "in pieces"
    tool = FunctionTool.from_defaults(lambda x: 2 * x, name="double", description="Doubles.")
    answer = llm.chat_with_tools([tool], user_msg="double four")
    assert llm.get_tool_calls_from_response(answer)[0].tool_kwargs == {"x": 4}
