"""Calls in the places where clients keep them: what is read is what the client sends."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import httpx
import ollama
import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetFunctionAgent, BudgetMemory, budget_model
from llamaindex_budget._codec import CODEC
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.models import ListStore, result, say, strict_llm
from tests.llamaindex.test_stored_by_the_provider import ANSWER

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::pydantic.warnings.PydanticDeprecationWarning"
    ),  # the host's own, of its workflows
]
SAID = {"role": "assistant", "content": "Done."}
CHAT = {
    "id": "x",
    "object": "chat.completion",
    "created": 1,
    "model": "gpt-4o",
    "choices": [{"index": 0, "message": SAID, "finish_reason": "stop"}],
}
OLDER = [
    {"id": f"c{n}", "type": "function", "function": {"name": f"n{n}", "arguments": f'{{"q": {n}}}'}}
    for n in range(2)
]
NEWER = [
    {
        "type": "function_call",
        "id": f"f{n}",
        "call_id": f"c{n}",
        "name": f"n{n}",
        "arguments": f'{{"q": {n}}}',
    }
    for n in range(2)
]
OBJECTS = [SimpleNamespace(id=one["id"], function=SimpleNamespace(**one["function"])) for one in OLDER]  # type: ignore[arg-type]
BLOCKS = [ToolCallBlock(tool_call_id=f"c{n}", tool_name=f"n{n}", tool_kwargs={"q": n}) for n in range(2)]
FORMS: dict[str, tuple[list[ToolCallBlock], dict[str, Any], list[str]]] = {
    "blocks": (BLOCKS, {}, ["n0", "n1"]),
    "blocks and copies": (BLOCKS, {"tool_calls": OLDER}, ["n0", "n1"]),
    "blocks and copies that are objects": (BLOCKS, {"tool_calls": OBJECTS}, ["n0", "n1"]),
    "the one that is made of two": (BLOCKS[:1], {"tool_calls": OLDER}, ["n0"]),
    "the one that is made of two objects": (BLOCKS[:1], {"tool_calls": OBJECTS}, ["n0"]),
    "blocks and a function": (BLOCKS, {"function_call": OLDER[0]["function"]}, ["n0", "n1"]),
    "the older place alone": ([], {"tool_calls": OLDER}, ["n0", "n1"]),
    "those of the responses client alone": ([], {"tool_calls": NEWER}, ["n0", "n1"]),
    "a function alone": ([], {"function_call": OLDER[0]["function"]}, ["n0"]),
}
OPENAIS_OWN = ("a function alone",)
"""A form that only OpenAI's chat clients can send."""


class Sent:
    """What a client sends, and what its provider answers."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    def transport(self, answer: Any) -> httpx.MockTransport:
        def take(request: httpx.Request) -> httpx.Response:
            self.requests.append(json.loads(request.content))
            return httpx.Response(200, json=answer)

        return httpx.MockTransport(take)

    def answered(self) -> bool:
        """Returns whether each call of the last request has a result, where its provider reads ids."""
        items = self.requests[-1].get("messages") or self.requests[-1]["input"]
        calls = [call.get("id") for one in items for call in one.get("tool_calls") or ()]
        calls += [one["call_id"] for one in items if one.get("type") == "function_call"]
        named = ("function_call_output", None)
        found = [one.get("call_id") or one.get("tool_call_id") for one in items if one.get("type") in named]
        return [one for one in calls if one] == [one for one in found if one]

    def names(self) -> list[str]:
        """Returns the functions that the last request calls, in order."""
        [last] = self.requests
        items = last.get("messages") or last["input"]
        found = [one["name"] for one in items if one.get("type") == "function_call"]
        for one in items:
            found += [call["function"]["name"] for call in one.get("tool_calls") or ()]
            found += [one["function_call"]["name"]] if one.get("function_call") else []
        return found


def _openai(kind: Any, answer: Any) -> Callable[[Sent], Any]:
    options = {"is_chat_model": True, "is_function_calling_model": True} if kind is OpenAILike else {}
    return lambda sent: kind(
        model="gpt-4o",
        api_key="none",
        http_client=httpx.Client(transport=sent.transport(answer)),
        **options,
    )


CLIENTS: dict[str, Callable[[Sent], Any]] = {
    "openai": _openai(OpenAI, CHAT),
    "openai-like": _openai(OpenAILike, CHAT),
    "responses": _openai(OpenAIResponses, ANSWER),
    "ollama": lambda sent: Ollama(
        "llama3",
        context_window=4_096,
        client=ollama.Client(transport=sent.transport({"message": SAID, "done": True})),
    ),
}


def _thread(form: str) -> list[ChatMessage]:
    blocks, extra, names = FORMS[form]
    called = ChatMessage(role="assistant", blocks=list(blocks), additional_kwargs=dict(extra))
    answers = [say("function", "found", name="n0")]
    if form != "a function alone":
        answers = [result(name.replace("n", "c"), "found") for name in names]
    return [say("user", "Find it."), called, *answers]


@pytest.mark.parametrize(
    ("client", "form"),
    [(one, form) for one in CLIENTS for form in FORMS if form not in OPENAIS_OWN or one.startswith("openai")],
)
def test_each_client_sends_the_calls_that_are_read(client: str, form: str) -> None:
    """A request that fits is sent with its step, and its calls are those that were counted, each once."""
    sent, reports = Sent(), []
    llm = budget_model(CLIENTS[client](sent), max_tokens=2_000, counter="gpt-4o", on_report=reports.append)
    thread, names = _thread(form), FORMS[form][2]
    before = [message.model_copy(deep=True) for message in thread]
    llm.chat(thread)
    assert [d.action for d in reports[0].decisions] == ["kept"] * len(thread)
    assert sent.names() == names == [c["function"]["name"] for c in CODEC.to_dict(thread[1])["tool_calls"]]
    assert sent.answered()
    assert thread == before


@pytest.mark.parametrize("form", FORMS)
async def test_memories_keep_a_step_for_later_turns(form: str) -> None:
    """The step stays whole, with what both places hold, when the next question follows."""
    thread = [*_thread(form), say("assistant", "Found."), say("user", "And now?")]
    memory = BudgetMemory.from_defaults(token_limit=2_000, counter="gpt-4o", sql_store=ListStore())
    await memory.aput_messages(thread)
    buffer = BudgetChatMemoryBuffer.from_defaults(token_limit=2_000, counter="gpt-4o", chat_history=thread)
    for kept in (await memory.aget(), buffer.get()):
        assert [m.model_dump() for m in kept] == [m.model_dump() for m in thread]


@pytest.mark.parametrize("bounded", [False, True], ids=["agent", "model"])
async def test_an_agent_that_takes_one_call_of_two_ends(bounded: bool) -> None:
    """With `allow_parallel_tool_calls=False` the first of two calls is answered, and the model sees the result."""

    def lookup(name: str) -> str:
        """Looks up."""
        return f"result of {name}"

    two = Reply(text="", tool_calls=[("lookup", {"name": "a"}), ("lookup", {"name": "b"})])
    with StrictModelServer([two], default=Reply(text="Done."), context_window=4_096) as server:
        llm = strict_llm(server.base_url, context_window=4_096, max_tokens=256)
        kind = FunctionAgent if bounded else BudgetFunctionAgent
        llm = budget_model(llm, counter="o200k_base") if bounded else llm
        agent = kind(llm=llm, tools=[lookup], streaming=False, allow_parallel_tool_calls=False)
        assert str(await agent.run("hi", max_iterations=4)) == "Done."
        assert [r.problems for r in server.requests] == [(), ()]
        assert [m["role"] for m in server.requests[1].body["messages"]][-3:] == ["user", "assistant", "tool"]
