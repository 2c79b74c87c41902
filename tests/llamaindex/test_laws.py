"""The laws hold through every entry point that returns messages or nodes; a failure names the law."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from llama_index.core.base.llms.types import AudioBlock, ChatMessage, DocumentBlock, ImageBlock, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, ToolMetadata

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    ProjectMemoryBlock,
)
from llamaindex_budget._convert import CODEC
from rankbudget import BudgetSession, TokenBudget
from rankbudget.errors import BudgetError
from rankbudget.testing import (
    AdapterConformance,
    Application,
    WordCounter,
    applications,
    check_outcome,
    check_same,
    draws,
    snapshot,
)
from tests.llamaindex.models import ListStore, PlayLLM

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # the host's own, of its workflows

LLM = PlayLLM()


def to_host(messages: Sequence[dict[str, Any]]) -> list[ChatMessage]:
    """Returns OpenAI-style dicts as LlamaIndex messages, every one an object of its own."""
    made = []
    for number, message in enumerate(messages):
        extra = {"id": f"m{number}"} | {key: message[key] for key in ("tool_call_id", "name") if message.get(key)}
        made.append(ChatMessage(role=message["role"], blocks=_blocks(message), additional_kwargs=extra))
    return made


def _blocks(message: dict[str, Any]) -> list[Any]:
    content, calls = message.get("content"), message.get("tool_calls") or ()
    blocks: list[Any] = [TextBlock(text=content)] if isinstance(content, str) else []
    blocks += [b for part in (content if isinstance(content, list) else ()) if (b := _block(part)) is not None]
    for call in calls:
        function = call["function"]
        blocks.append(ToolCallBlock(tool_call_id=call["id"], tool_name=function["name"], tool_kwargs=json.loads(function["arguments"])))
    return blocks


def _block(part: dict[str, Any]) -> Any:
    kind = part["type"]
    if kind == "text":
        return TextBlock(text=part["text"])
    if kind == "image_url":
        return ImageBlock(url=part["image_url"]["url"])
    if kind == "input_audio":
        return AudioBlock(audio=part["input_audio"]["data"].encode(), format=part["input_audio"]["format"])
    if kind == "file":
        data = part["file"]["file_data"].partition("base64,")[2].encode()
        return DocumentBlock(data=data, title=part["file"]["filename"], document_mimetype="application/pdf")
    if kind == "thinking":
        return ThinkingBlock(content=part["thinking"], additional_information={"signature": part["signature"]})
    if kind == "redacted_thinking":
        return ThinkingBlock(content=None, additional_information={"signature": part["data"]})
    return None  # a tool_use beside its own tool call: the host keeps it once


@dataclass(frozen=True)
class Entry:
    """One way into the library: a thread in, messages out."""

    name: str
    make: Callable[[Application, int, WordCounter], tuple[Callable[[list[Any]], Any], Callable[[list[Any]], Awaitable[Any]]]]
    identity: bool = False
    tools: bool = False
    superset: bool = True
    stored: bool = True


def buffer(app: Application, limit: int, counter: WordCounter) -> Any:
    def made(messages: list[Any]) -> BudgetChatMemoryBuffer:
        return BudgetChatMemoryBuffer.from_defaults(token_limit=limit, counter=counter, chat_history=messages)

    async def aread(messages: list[Any]) -> Any:
        return await made(messages).aget()

    return lambda messages: made(messages).get(), aread


def session(app: Application, limit: int, counter: WordCounter) -> Any:
    """A memory on a session with tools, under a budget whose history has all of the room."""
    budget = TokenBudget(context_window=limit, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)

    def made(messages: list[Any]) -> BudgetChatMemoryBuffer:
        shared = BudgetSession(budget, counter=counter, tools=list(app.tools))
        return BudgetChatMemoryBuffer.from_defaults(session=shared, chat_history=messages)

    async def aread(messages: list[Any]) -> Any:
        return await made(messages).aget()

    return lambda messages: made(messages).get(), aread


def agent(app: Application, limit: int, counter: WordCounter) -> Any:
    budget = TokenBudget(context_window=limit, reserve=0, ratios={"history": 1.0}, max_system_ratio=None)
    made = BudgetFunctionAgent(llm=LLM, tools=[], budget=budget, counter=counter)
    tools = [_Tool(schema) for schema in app.tools]

    async def afit(messages: list[Any]) -> Any:
        return await made.fit(messages, tools)

    return lambda messages: asyncio.run(afit(messages)), afit


class _Tool(FunctionTool):
    """A tool whose schema is the drawn one."""

    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(fn=lambda: "", metadata=_Metadata(schema))


class _Metadata(ToolMetadata):
    def __init__(self, schema: dict[str, Any]) -> None:
        super().__init__(description="", name=schema["function"]["name"])
        self.schema = schema

    def to_openai_tool(self, skip_length_check: bool = False) -> dict[str, Any]:
        return self.schema


def blocks(app: Application, limit: int, counter: WordCounter) -> Any:
    def made() -> BudgetMemory:
        return BudgetMemory.from_defaults(token_limit=limit, counter=counter, chat_store=ListStore())

    async def aread(messages: list[Any]) -> Any:
        memory = made()
        await memory.aset(messages)
        return await memory.aget()

    return lambda messages: asyncio.run(aread(messages)), aread


ENTRIES = [
    Entry("buffer", buffer),
    Entry("session", session, tools=True),
    Entry("agent", agent, identity=True, tools=True, superset=False, stored=False),
    Entry("memory with blocks", blocks, superset=False),
]
entries = pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)


def _run(call: Callable[[list[Any]], Any], messages: list[Any]) -> Any:
    try:
        return call(list(messages))
    except BudgetError as error:
        return error


def _judge(entry: Entry, app: Application, found: Any, host: list[Any], before: Any, limit: int, counter: WordCounter) -> None:
    tools = list(app.tools) if entry.tools and app.tools else None
    rules = {"before": before, "identity": entry.identity, "stored": entry.stored}
    check_outcome(host, found, limit=limit, counter=counter, codec=CODEC, tools=tools, **rules)


def _ids(messages: Sequence[ChatMessage]) -> set[str]:
    """Returns which messages these are; copies of equal texts are told apart by what the host stores beside them."""
    return {m.additional_kwargs["id"] for m in messages}


@entries
def test_the_laws_hold(entry: Entry) -> None:
    """Each drawn thread comes back within the limit and valid, twice the same, and no less with a larger limit."""

    @draws()
    @given(applications())
    def check(app: Application) -> None:
        counter = WordCounter()
        limit, host = app.limit(counter), to_host(app.messages)
        before = snapshot(host)
        found = _run(entry.make(app, limit, counter)[0], host)
        _judge(entry, app, found, host, before, limit, counter)
        if isinstance(found, BudgetError):
            return
        check_same(found, _run(entry.make(app, limit, counter)[0], host), codec=CODEC)
        check_same(found, _run(entry.make(app, limit, counter)[0], list(found)), codec=CODEC, what="fitting twice")
        if entry.superset:
            larger = _run(entry.make(app, limit + 50, counter)[0], host)
            assert not isinstance(larger, BudgetError)
            assert _ids(found) <= _ids(larger), "a larger limit loses messages"

    check()


@entries
def test_the_laws_hold_async(entry: Entry) -> None:
    """The async form gives exactly what the sync form gives, or the same refusal."""

    @draws(asynchronous=True)
    @given(applications())
    def check(app: Application) -> None:
        counter = WordCounter()
        limit, host = app.limit(counter), to_host(app.messages)
        before = snapshot(host)
        sync = _run(entry.make(app, limit, counter)[0], host)
        found = _run(lambda messages: asyncio.run(_await(entry.make(app, limit, counter)[1], messages)), host)
        _judge(entry, app, found, host, before, limit, counter)
        assert isinstance(found, BudgetError) == isinstance(sync, BudgetError)
        if not isinstance(found, BudgetError):
            check_same(sync, found, codec=CODEC, what="the async form")

    check()


async def _await(call: Callable[[list[Any]], Awaitable[Any]], messages: list[Any]) -> Any:
    return await call(messages)


@draws(asynchronous=True)  # each draw is as many fits as it has messages
@given(applications(broken=False))  # a broken call is repaired away when more follows; the cut it caused stays, as a session's cut does
def test_a_memory_that_grows_keeps_the_laws_at_every_turn(app: Application) -> None:
    """Message after message, reading twice each time: always valid and within the limit, and what is stored is what was put."""
    counter = WordCounter()
    limit, host = app.limit(counter), to_host(app.messages)
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=limit, counter=counter)
    for size, message in enumerate(host, start=1):
        memory.put(message)
        found, again = _run(lambda _: memory.get(), []), _run(lambda _: memory.get(), [])
        _judge(ENTRIES[0], app, found, host[:size], None, limit, counter)
        if not isinstance(found, BudgetError):
            check_same(found, again, codec=CODEC, what="reading again")
    assert memory.get_all() == host


@draws()
@given(applications())
def test_blocks_and_history_share_one_limit(app: Application) -> None:
    """With ranked blocks, whatever a `BudgetMemory` returns counts at most its limit."""
    counter = WordCounter()
    limit = app.limit(counter)
    parts = [ProjectMemoryBlock(name=f"note{i}", text=text, rank=2 + i, counter=counter) for i, text in enumerate(app.documents)]
    memory = BudgetMemory.from_defaults(token_limit=limit, counter=counter, chat_store=ListStore(), memory_blocks=parts)

    async def read() -> Any:
        await memory.aset(to_host(app.messages))
        return await memory.aget(app.question)

    try:
        found = asyncio.run(read())
    except BudgetError:
        return
    asked = [ChatMessage(role="user", content=app.question)] if app.question else []
    assert counter.count_messages([CODEC.to_dict(m) for m in [*found, *asked]]) <= limit


@draws()
@given(applications())
def test_nodes_are_within_the_limit_in_order_and_unchanged(app: Application) -> None:
    """Whatever nodes come back count at most the limit as the model sees them, in their order, whole ones the same objects."""
    counter = WordCounter()
    given_nodes = [
        NodeWithScore(node=TextNode(id_=f"n{i}", text=text, metadata={"k": "v"}), score=1 - i / 9) for i, text in enumerate(app.documents)
    ]
    before = [n.model_dump_json() for n in given_nodes]
    limit = max(1, app.tokens if app.eighths is None else 20)
    post = BudgetNodePostprocessor(max_tokens=limit, counter=counter)
    kept = post.postprocess_nodes(given_nodes, query_str=app.question)
    shown = [n.node.get_content(metadata_mode=MetadataMode.LLM) for n in kept]
    assert counter.count("\n\n".join(shown)) <= limit
    assert [n.model_dump_json() for n in given_nodes] == before
    order = [n.node_id for n in kept]
    assert order == [n.node_id for n in given_nodes if n.node_id in order]
    whole = {n.node_id: n for n in given_nodes}
    assert all(n is whole[n.node_id] or len(n.node.get_content()) < len(whole[n.node_id].node.get_content(MetadataMode.LLM)) for n in kept)
    again = post.postprocess_nodes(kept, query_str=app.question)
    assert [n.node.get_content(metadata_mode=MetadataMode.LLM) for n in again] == shown


@draws(asynchronous=True)
@given(applications())
def test_nodes_async(app: Application) -> None:
    """The async postprocessor keeps what the sync one keeps."""
    found = [NodeWithScore(node=TextNode(id_=f"n{i}", text=text), score=1.0) for i, text in enumerate(app.documents)]
    post = BudgetNodePostprocessor(max_tokens=max(1, app.tokens), counter=WordCounter())
    sync = post.postprocess_nodes(found, query_str=app.question)
    later = asyncio.run(post.apostprocess_nodes(found, query_str=app.question))
    assert [n.node.get_content() for n in sync] == [n.node.get_content() for n in later]


@draws()
@given(applications())
def test_packed_chunks_fit_their_prompt(app: Application) -> None:
    """Whatever a prompt helper packs into one chunk, the finished prompt counts at most window less answer."""
    counter = WordCounter()
    helper = BudgetPromptHelper(context_window=max(20, app.tokens), num_output=5, counter=counter)
    prompt = PromptTemplate("Use this: {context_str} Now answer.")
    try:
        packed = helper.repack(prompt, app.documents)
    except BudgetError:
        assert max(20, app.tokens) < 40
        return
    assert len(packed) <= 1
    for chunk in packed:
        sent = counter.count_messages([{"role": "user", "content": prompt.format(context_str=chunk)}])
        assert sent <= helper.context_window - helper.num_output


class TestBufferConformance(AdapterConformance):
    """The kit's own rules for adapters: the codec's four, and the laws."""

    codec = CODEC
    has_async = True
    identity = False
    stored = True
    examples = 60

    def to_host(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        return to_host(messages)

    def fit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        shared = BudgetSession(max_tokens, counter=counter, tools=tools)
        return BudgetChatMemoryBuffer.from_defaults(session=shared, chat_history=messages).get()

    async def afit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        shared = BudgetSession(max_tokens, counter=counter, tools=tools)
        return await BudgetChatMemoryBuffer.from_defaults(session=shared, chat_history=messages).aget()
