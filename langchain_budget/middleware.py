"""The budget inside an agent: every model call of a run is fitted (needs the extra `agents`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, RemoveMessage, ToolMessage
from typing_extensions import Unpack, override

from rankbudget import BudgetReport, TokenBudget
from rankbudget.adapters import (
    Call,
    Plan,
    Steps,
    adrive,
    content_text,
    drive,
    following,
    send_report,
    truncate_text,
)
from rankbudget.errors import BudgetError, BudgetExceededError

from ._codec import CODEC, codec_for
from ._convert import as_tools
from ._limits import with_texts
from ._options import LimitOptions, SharedCopy, checked
from ._supported import require
from .agents import AgentBudget, thread_id
from .model import FIELD, Planned, RequestBudget, wrapped
from .models import client_of, unwrapped

require("langchain.agents.middleware", needed_by="BudgetMiddleware")
from langchain.agents.middleware import (  # noqa: E402 - the line above names the extra
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
)
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # noqa: E402 - comes with langchain
from langgraph.types import Command  # noqa: E402 - the same

Answer = ModelResponse[Any] | AIMessage | ExtendedModelResponse[Any]


class BudgetMiddleware(SharedCopy, AgentMiddleware[AgentState[Any], Any, Any]):
    """Fits system prompt, tools and messages into the model's window before every model call of a run.

    The state keeps the full history; the model sees the part that fits, always a valid conversation: calls
    with all their results, the task and the current question, long parallel results shortened rather than
    lost. If a later middleware changes the request or its model, it is fitted again, to the model that is
    called. With a `thread_id` the cut is remembered between calls: over the limit it moves once, down to half
    of it, so that prompt caches stay warm.

    Args:
        budget: the limits; without any, each model's own profile or name gives its window.
        persist: writes the cut to the state, too: what was dropped is removed from it.
        retry: after a `ContextOverflowError` the call is tried once more with three quarters of what was
            sent; where these do not hold what must stay, the error is raised.
        tool_result_tokens: most tokens of one tool result as it enters the state; None leaves results whole.
        on_report: is called with the report of every model call; what it raises is logged.
        keep: for how many threads the cut is remembered; the one not used for longest is forgotten.
        limits: model (instead of the one that is called), max_tokens, context_window, counter, summarizer
            and summary_timeout, as in `BudgetTrimmer`; with a summarizer, runs need a `thread_id`.

    Example:
        >>> from langchain.agents import create_agent
        >>> from langchain_core.language_models.fake_chat_models import FakeListChatModel
        >>> model = FakeListChatModel(responses=["fine"])
        >>> agent = create_agent(model, middleware=[BudgetMiddleware(max_tokens=200)])
        >>> agent.invoke({"messages": [("human", "how are you?")]})["messages"][-1].content
        'fine'
    """

    _own = ("_budget",)

    @checked
    def __init__(
        self,
        budget: TokenBudget | None = None,
        *,
        persist: bool = False,
        retry: bool = True,
        tool_result_tokens: int | None = None,
        on_report: Callable[[BudgetReport], Any] | None = None,
        keep: int = 1000,
        **limits: Unpack[LimitOptions],
    ) -> None:
        super().__init__()
        self.tools = []
        self.persist = persist
        self.retry = retry
        self.tool_result_tokens = tool_result_tokens
        self.on_report = on_report
        self._budget = AgentBudget(budget=budget, keep=keep, **limits)

    def forget(self, thread_id: Any) -> bool:
        """Forgets the cut and the summary of a thread; returns whether it was known."""
        return self._budget.forget(thread_id)

    # ---- before every model call -------------------------------------------------------------------------
    @override
    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> Answer:
        return drive(self._steps(request, handler, None))

    @override
    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> Answer:
        return await adrive(self._steps(request, None, handler))

    def _steps(self, request: ModelRequest[Any], handler: Any, awaitable: Any) -> Steps[Answer]:
        settings, system = request.model_settings, request.system_message
        tools = as_tools([*request.tools, *_structured_tools(request.response_format)])
        called = request.model.bind(**settings) if settings else request.model
        fit = partial(
            self._budget.steps,
            request.messages,
            model=called,
            system=system,
            tools=tools or (),
            thread=thread_id(),
        )
        sent: list[BudgetReport] = []  # of a request that a later middleware changed

        def send(kept: list[Any], plan: Plan) -> Call:
            sent.clear()
            beside = with_texts(tools or (), called)
            codec = codec_for(client_of(called, tools=tools))
            planned = Planned(kept if system is None else [system, *kept], beside, plan, codec)
            guard = _guard_of(request.model, self._budget, planned, sent.append)
            return Call(handler, (_GuardedRequest.of(request, kept, guard),), awaitable)

        kept, plan = yield from fit()
        try:
            try:
                answer = yield send(kept, plan)
            except ContextOverflowError as refusal:
                if not self.retry:
                    raise
                try:
                    kept, plan = yield from fit(refused=sent[-1] if sent else plan.report)
                except BudgetExceededError as error:  # its limit is ours, and no setting of the user's
                    raise refusal from error
                answer = yield send(kept, plan)
        finally:  # a handler may raise for an answer, too
            self._send_report(request, following(sent[-1], plan.report) if sent else plan.report)
        writes = self.persist and not plan.unsummarized  # what is in no summary stays
        return _with_update(request, kept, answer) if writes else cast("Answer", answer)

    def _send_report(self, request: ModelRequest[Any], report: BudgetReport) -> None:
        """Puts the figures into `stream_mode="custom"`, which callbacks' events do not reach."""
        send_report(self.on_report, report)
        writer = getattr(request.runtime, "stream_writer", None)
        if writer is not None:
            figures = {"total_tokens": report.total_tokens, "limit": report.limit}
            seen = [block for block in report.blocks if block.name == "history"]
            kept = sum([block.kept + block.shortened for block in seen])
            given = kept + sum([block.dropped for block in seen])
            writer({"context_budget": {**figures, "kept": kept, "given": given}})

    # ---- after every tool --------------------------------------------------------------------------------
    @override
    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        return self._capped(handler(request))

    @override
    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        return self._capped(await handler(request))

    def _capped(self, answer: Any) -> Any:
        """Shortens results longer than `tool_result_tokens`, alone or in a command; artifacts stay."""
        most = self.tool_result_tokens
        if most is None:
            return answer
        if isinstance(answer, ToolMessage):
            counter, text = self._budget.text_counter(), content_text(answer.content)
            short = counter.count(text) <= most
            return answer if short else CODEC.with_text(answer, truncate_text(text, most, counter))
        if isinstance(answer, list):
            return [self._capped(part) for part in answer]
        if isinstance(answer, Command) and isinstance(answer.update, dict):
            update = {key: self._capped(value) for key, value in answer.update.items()}
            return dataclasses.replace(answer, update=update)
        return answer


@dataclasses.dataclass(init=False, eq=False, repr=False)
class _GuardedRequest(ModelRequest[Any]):
    """A request that bounds its model, also a later middleware's: `override` keeps the class."""

    guards: tuple[Callable[[Any], Any], ...] = ()  # one of each BudgetMiddleware

    def __init__(self, *, guards: tuple[Callable[[Any], Any], ...], **fields: Any) -> None:
        object.__setattr__(self, "guards", guards)
        super().__init__(**fields)

    @classmethod
    def of(cls, request: ModelRequest[Any], messages: list[Any], guard: Callable[[Any], Any]) -> Any:
        """Returns a request with other messages and one more guard of its model."""
        fields = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
        guards = (*fields.pop("guards", ()), guard)
        return cls(**{**fields, "messages": messages}, guards=guards)

    @override
    def __setattr__(self, name: str, value: Any) -> None:
        if name == "model":
            for guard in self.guards:
                value = guard(value)
        super().__setattr__(name, value)


def _guard_of(
    model: Any, agent: AgentBudget, planned: Planned, on_report: Callable[[BudgetReport], Any]
) -> Callable[[Any], Any]:
    """Returns what gives any model the limits of an agent's plan, each model once.

    What was planned for `model` is not counted again. Another model has another tokenizer and window: it gets
    the request fitted to its own.
    """
    first = unwrapped(model)[0]

    def limited(each: Any, _: Any) -> RequestBudget:
        known: RequestBudget | None = getattr(each, FIELD, None)
        inner = known
        while inner is not None:
            if inner.planned is not None and inner.planned.plan is planned.plan:
                assert known is not None
                return known
            inner = inner.inner
        if each is first:
            return RequestBudget(agent, on_report, known, planned)
        return RequestBudget(
            agent, on_report, _own_window(each, known), dataclasses.replace(planned, messages=())
        )

    return lambda chosen: wrapped(chosen, None, limited)


def _own_window(model: Any, inner: RequestBudget | None) -> RequestBudget | None:
    """Returns the limit of a model's own window, within `inner`; a window that is unknown has no limit."""
    made = RequestBudget(AgentBudget(), None, inner)
    try:
        made.limits(model, {})
    except BudgetError:
        return inner
    return made


def _with_update(request: ModelRequest[Any], kept: list[Any], answer: Any) -> Any:
    """Returns the answer with a state update that leaves what was sent."""
    given = {id(m) for m in request.messages}
    sent = {id(m) for m in kept}
    dropped = [m for m in request.messages if id(m) not in sent]
    if not dropped:
        return answer
    response, update = answer, {}
    if isinstance(answer, ExtendedModelResponse):
        response = answer.model_response
        if answer.command is not None and isinstance(answer.command.update, dict):
            update = answer.command.update
    if isinstance(response, AIMessage):
        response = ModelResponse(result=[response])
    known = {m.id for m in request.messages if m.id is not None}
    stays = {m.id for m in kept}
    if stays <= known:
        removed = known - stays
        changes: list[Any] = [RemoveMessage(id=m.id) for m in dropped if m.id in removed]
        changes += [m for m in kept if id(m) not in given]
    else:  # a summary comes first, and only a new list gives its place
        changes = [RemoveMessage(id=REMOVE_ALL_MESSAGES), *kept, *response.result]
    update = {**update, "messages": [*update.get("messages", []), *changes]}
    return ExtendedModelResponse(response, Command(update=update))


def _structured_tools(response_format: Any) -> list[Any]:
    """Returns the schemas that structured output adds to the tools, or to the request itself."""
    specs = getattr(response_format, "schema_specs", None)
    if specs:
        return [spec.schema for spec in specs if spec.schema is not None]
    schema = getattr(response_format, "schema", response_format)
    return [schema] if schema is not None else []
