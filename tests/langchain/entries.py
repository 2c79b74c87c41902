"""Every way into the library that takes messages and gives messages, opened alike, and LangChain's messages with all they can carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from langchain.agents.middleware import (
    ContextEditingMiddleware,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    convert_to_messages,
)
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.runnables.config import set_config_context
from langgraph.graph.message import add_messages

from langchain_budget import (
    BudgetChatPromptTemplate,
    BudgetContextEdit,
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetTrimmer,
    budget_model,
    pre_model_hook,
    trim_messages,
)
from langchain_budget._codec import MARK
from rankbudget.testing import Application
from tests.entry_points import EntryPoint, Opened, drawn_summarizer

MODEL = FakeListChatModel(responses=["ok"])
USAGE = {"input_tokens": 5, "output_tokens": 5, "total_tokens": 10}


def to_host(messages: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Returns OpenAI-style dicts as LangChain messages, every one an object of its own with an id."""
    made = convert_to_messages(list(messages))
    for i, message in enumerate(made):
        message.id = message.id or f"m{i}"
    return made


def as_providers_answer(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Returns the messages as integrations leave them: calls in older or broken forms, chunks, reasoning, usage, artifacts."""
    return [_answered(message, i) for i, message in enumerate(messages)]


def _answered(message: BaseMessage, i: int) -> BaseMessage:
    if message.type == "tool":
        message.artifact = {"raw": i}
        return message
    if not isinstance(message, AIMessage):
        return message
    fields: dict[str, Any] = {
        "id": message.id,
        "content": message.content,
        "name": message.name,
        "tool_calls": message.tool_calls,
    }
    fields |= {
        "usage_metadata": dict(USAGE),
        "response_metadata": {"token_usage": dict(USAGE), "model_name": "m"},
    }
    if i % 3 == 0:
        fields["additional_kwargs"] = {"reasoning_content": "because it is so"}
    if message.tool_calls and i % 4 == 0:
        function = [{"name": c["name"], "arguments": str(c["args"])} for c in message.tool_calls]
        older = [
            {"id": c["id"], "type": "function", "function": f}
            for c, f in zip(message.tool_calls, function, strict=True)
        ]
        fields["additional_kwargs"] = {**fields.get("additional_kwargs", {}), "tool_calls": older}
    elif message.tool_calls and i % 4 == 1:
        *calls, last = message.tool_calls
        fields["tool_calls"] = calls
        fields["invalid_tool_calls"] = [
            {"id": last["id"], "name": last["name"], "args": str(last["args"]), "error": "no JSON"}
        ]
    return AIMessageChunk(**fields) if i % 4 == 2 else AIMessage(**fields)


def check_kept(given: Sequence[BaseMessage], found: Sequence[BaseMessage]) -> None:
    """What is kept has its artifact; a copy with less text says so and claims no usage."""
    sources = {message.id: message for message in given}
    for message in found:
        source = sources.get(message.id)
        if source is None:
            assert message.additional_kwargs[MARK] == "summary"
            continue
        assert getattr(message, "artifact", None) == getattr(source, "artifact", None)
        if message.content != source.content:
            assert message.additional_kwargs[MARK]
            assert getattr(message, "usage_metadata", None) is None
            assert "token_usage" not in message.response_metadata


def removing(entry: EntryPoint) -> EntryPoint:
    """The same way in, given a message more and the RemoveMessage that takes it away again."""
    extra = [HumanMessage("never mind", id="gone")], [RemoveMessage(id="gone")]

    def opened(app: Application, limit: int, counter: Any) -> Opened:
        made = entry.open(app, limit, counter)

        async def arun(messages: list[Any]) -> Any:
            return await made.arun([*extra[0], *messages, *extra[1]])

        return Opened(lambda messages: made.run([*extra[0], *messages, *extra[1]]), arun)

    return replace(entry, open=opened)


def _runnable(make: Callable[[Application, int, Any], Any]) -> Callable[[Application, int, Any], Opened]:
    def opened(app: Application, limit: int, counter: Any) -> Opened:
        made = make(app, limit, counter)
        return Opened(made.invoke, made.ainvoke)

    return opened


def _trimmer(**options: Any) -> Callable[[Application, int, Any], Opened]:
    return _runnable(
        lambda app, limit, counter: BudgetTrimmer(
            max_tokens=limit, counter=counter, tools=list(app.tools), **options
        )
    )


def _trim(app: Application, limit: int, counter: Any) -> Any:
    return trim_messages(max_tokens=limit, token_counter=counter, include_system=True)


def _new(known: Sequence[Any], messages: Sequence[Any]) -> list[Any]:
    """Returns what is not stored yet: a conversation only grows, or is another one."""
    return list(messages[len(known) :])


def _history(app: Application, limit: int, counter: Any) -> Opened:
    return _stored(BudgetMessageHistory(max_tokens=limit, counter=counter, tools=list(app.tools)))


def _summarizing(app: Application, limit: int, counter: Any) -> Opened:
    return _stored(
        BudgetMessageHistory(
            max_tokens=limit, counter=counter, tools=list(app.tools), summarizer=drawn_summarizer(app)
        )
    )


def _stored(made: BudgetMessageHistory) -> Opened:
    async def arun(messages: list[Any]) -> Any:
        await made.aadd_messages(_new(made.history.messages, messages))
        return await made.aget_messages()

    def run(messages: list[Any]) -> Any:
        made.add_messages(_new(made.history.messages, messages))
        return made.messages

    return Opened(run, arun, lambda: made.history.messages)


def _memory(app: Application, limit: int, counter: Any) -> Opened:
    made = BudgetMemory(max_tokens=limit, counter=counter, tools=list(app.tools), return_messages=True)

    async def arun(messages: list[Any]) -> Any:
        await made.chat_memory.aadd_messages(_new(made.chat_memory.messages, messages))
        return (await made.aload_memory_variables({}))["history"]

    def run(messages: list[Any]) -> Any:
        made.chat_memory.add_messages(_new(made.chat_memory.messages, messages))
        return made.load_memory_variables({})["history"]

    return Opened(run, arun, lambda: made.chat_memory.messages)


_THREAD: RunnableConfig = {"configurable": {"thread_id": "t"}}


def _middleware(*, thread: bool = True, **options: Any) -> Callable[[Application, int, Any], Opened]:
    config = _THREAD if thread else RunnableConfig()

    def opened(app: Application, limit: int, counter: Any) -> Opened:
        made = BudgetMiddleware(max_tokens=limit, counter=counter, **options)
        sent: list[Any] = []

        def request(messages: list[Any]) -> ModelRequest[Any]:
            system = messages[0] if messages and isinstance(messages[0], SystemMessage) else None
            return ModelRequest(
                model=MODEL,
                messages=messages[1:] if system else messages,
                system_message=system,
                tools=list(app.tools),
            )

        def note(asked: ModelRequest[Any]) -> ModelResponse[Any]:
            sent[:] = [*([asked.system_message] if asked.system_message else []), *asked.messages]
            return ModelResponse(result=[AIMessage("ok", id="ok")])

        async def anote(asked: ModelRequest[Any]) -> ModelResponse[Any]:
            return note(asked)

        def seen(asked: ModelRequest[Any], answer: Any) -> Any:
            if isinstance(
                answer, ExtendedModelResponse
            ):  # what stays in the state is what was sent, and the answer
                state = add_messages(
                    [*asked.messages, AIMessage("ok", id="ok")], answer.command.update["messages"]
                )
                assert [m.id for m in state] == [*(m.id for m in sent if m is not asked.system_message), "ok"]
            return list(sent)

        def run(messages: list[Any]) -> Any:
            asked = request(messages)
            with set_config_context(config) as context:
                return seen(asked, context.run(made.wrap_model_call, asked, note))

        async def arun(messages: list[Any]) -> Any:
            asked = request(messages)
            with set_config_context(config) as context:
                task = context.run(asyncio.ensure_future, made.awrap_model_call(asked, anote))
                return seen(asked, await task)

        return Opened(run, arun)

    return opened


def _hook(app: Application, limit: int, counter: Any) -> Opened:
    made = pre_model_hook(max_tokens=limit, counter=counter, tools=list(app.tools))

    async def arun(messages: list[Any]) -> Any:
        return (await made.ainvoke({"messages": messages}, _THREAD))["llm_input_messages"]

    return Opened(lambda messages: made.invoke({"messages": messages}, _THREAD)["llm_input_messages"], arun)


def _edit(app: Application, limit: int, counter: Any) -> Opened:
    made = ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=limit, counter=counter)])
    sent: list[Any] = []

    def note(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        sent[:] = asked.messages
        return ModelResponse(result=[AIMessage("ok")])

    async def anote(asked: ModelRequest[Any]) -> ModelResponse[Any]:
        return note(asked)

    def run(messages: list[Any]) -> Any:
        made.wrap_model_call(ModelRequest(model=MODEL, messages=messages), note)
        return list(sent)

    async def arun(messages: list[Any]) -> Any:
        await made.awrap_model_call(ModelRequest(model=MODEL, messages=messages), anote)
        return list(sent)

    return Opened(run, arun)


def _template(app: Application, limit: int, counter: Any) -> Opened:
    made = BudgetChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history")], max_tokens=limit, counter=counter, tools=list(app.tools)
    )

    async def arun(messages: list[Any]) -> Any:
        return await made.aformat_messages(history=messages)

    return Opened(lambda messages: made.format_messages(history=messages), arun)


class Noting(BaseChatModel):
    """A model that notes what it is sent."""

    sent: Any

    @property
    def _llm_type(self) -> str:
        return "noting"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.sent[:] = messages
        return ChatResult(generations=[ChatGeneration(message=AIMessage("ok"))])


def _model(*, thread: bool) -> Callable[[Application, int, Any], Opened]:
    def opened(app: Application, limit: int, counter: Any) -> Opened:
        sent: list[Any] = []
        made = budget_model(Noting(sent=sent), max_tokens=limit, counter=counter)
        config: Any = {"configurable": {"thread_id": "t"}} if thread else {}

        async def agenerate(messages: list[Any]) -> Any:
            return await made._agenerate(
                messages, tools=list(app.tools)
            )  # invoke rewrites audio and files first

        step = RunnableLambda(lambda messages: made._generate(messages, tools=list(app.tools)), agenerate)

        def run(messages: list[Any]) -> Any:
            step.invoke(messages, config)
            return list(sent)

        async def arun(messages: list[Any]) -> Any:
            await step.ainvoke(messages, config)
            return list(sent)

        return Opened(run, arun)

    return opened


ENTRIES = [
    EntryPoint(name="trimmer", open=_trimmer()),
    EntryPoint(name="stable trimmer", open=_trimmer(cut="stable"), superset=False),
    EntryPoint(
        name="prompted trimmer", open=_trimmer(prompt=ChatPromptTemplate([MessagesPlaceholder("messages")]))
    ),
    EntryPoint(name="template", open=_template),
    EntryPoint(name="trim_messages", open=_runnable(_trim), edits="tool", tools=False),
    EntryPoint(name="message history", sent=True, open=_history, identity=False, stored=True, remembers=True),
    EntryPoint(
        name="summarizing history",
        sent=True,
        open=_summarizing,
        identity=False,
        superset=False,
        stored=True,
        remembers=True,
        inserts=True,
    ),
    EntryPoint(name="memory", sent=True, open=_memory, identity=False, stored=True, remembers=True),
    EntryPoint(name="middleware", sent=True, open=_middleware(), remembers=True),
    EntryPoint(name="middleware without a thread", sent=True, open=_middleware(thread=False), superset=False),
    EntryPoint(name="middleware that persists", sent=True, open=_middleware(persist=True), remembers=True),
    EntryPoint(name="hook", sent=True, open=_hook, remembers=True),
    EntryPoint(name="model", sent=True, open=_model(thread=False), superset=False),
    EntryPoint(name="model in a thread", sent=True, open=_model(thread=True), remembers=True),
    EntryPoint(name="context edit", sent=True, open=_edit, identity=False, tools=False, superset=False),
]
