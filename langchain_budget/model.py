"""The last door before the model: the model itself, with one step more that counts and fits every request."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from langchain_core.language_models import BaseChatModel, BaseLanguageModel, BaseLLM
from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.configurable import RunnableConfigurableAlternatives
from pydantic import Field, create_model

from rankbudget import BudgetReport, BudgetSession, TokenBudget
from rankbudget.adapters import (
    PINNED_ROLES,
    Plan,
    Steps,
    adrive,
    drive,
    holds,
    limits_of,
    refuse_empty,
    send_report,
    whole_request_budget,
    with_clear_ids,
    within_window,
)
from rankbudget.errors import BudgetConfigError, BudgetExceededError

from ._codec import CODEC, LangChainCodec, NeedsConversionError, codec_for
from ._convert import as_messages
from ._counters import model_name
from ._limits import HostLimits, limit_of, schemas_in
from ._options import checked
from ._placeholders import in_order
from .agents import AgentBudget, thread_id
from .models import ANSWER_NAMES, client_of, facts_of, flat, inner_name

ModelT = TypeVar("ModelT")
FIELD = "context_budget"
_THREAD = "context_budget_thread"
"""The argument that passes a thread from a direct call to its request; no provider and no trace sees it."""
_SESSION = "rankbudget-session"
"""The thread of requests without a thread_id, where a session brought a summarizer."""
_IN_A_CHAIN = "In a chain, wrap the model before you build the chain."
_OF_EACH_CALL = (
    "init_chat_model(configurable_fields=..) makes a model for each call: leave configurable_fields out, and "
    "join models with .configurable_alternatives(..) before you wrap them."
)
_ALWAYS = ("_generate_with_cache", "_agenerate_with_cache")
"""Fitted before the cache is asked, so that an answer is stored under the request that was sent."""
_WHERE_IMPLEMENTED = (
    *("_generate", "_agenerate", "_stream", "_astream"),
    *("_stream_chat_model_events", "_astream_chat_model_events"),
)
"""LangChain asks whether a class implements these, so only those the model's class has are overridden."""


@checked
def budget_model(
    model: ModelT,
    budget_or_session: TokenBudget | BudgetSession | Mapping[str, Any] | None = None,
    *,
    max_tokens: int | None = None,
    context_window: int | None = None,
    counter: Any = None,
    on_report: Callable[[BudgetReport], Any] | None = None,
) -> ModelT:
    """Returns the model with a guarantee: no request leaves it that is larger than the limit.

    Every request is counted in its final form, with tools and output schema. A request that fits is sent
    unchanged. Another is fitted; where that is impossible an error is raised before anything is sent. The
    result is of a subclass of the model's own class, so whatever takes the model takes the result. Of
    `bind_tools`, `bind`, `with_retry`, `with_fallbacks` and configurable models each model inside is
    bounded and the rest stays; a fallback with a smaller window keeps to its own.

    Args:
        model: a chat model, or a completion model (counted, never fitted: a text has no parts), bound or with
            fallbacks.
        budget_or_session: the limits; a session brings its budget, counter and summarizer. None takes the
            model's window, which also counts where it is smaller than the budget's.
        max_tokens: most tokens of a request, from 1; beside a budget the smaller wins.
        context_window: the window in tokens, from 1, where the model does not state it; it comes before
            what is known of the model's name.
        counter: counts instead of the model's tokenizer.
        on_report: is called with the report of every request to a chat model; what it raises is logged.

    Raises:
        BudgetConfigError: an option is wrong.
        CounterUnavailableError: the model's window is unknown and nothing states it.

    Example:
        >>> from langchain_core.language_models.fake_chat_models import ParrotFakeChatModel
        >>> from langchain_core.messages import AIMessage, HumanMessage
        >>> thread = [HumanMessage("one"), AIMessage("two"), HumanMessage("three")]
        >>> reports = []
        >>> model = budget_model(ParrotFakeChatModel(), max_tokens=2, counter=len, on_report=reports.append)
        >>> model.invoke(thread).content, reports[0].total_tokens, isinstance(model, ParrotFakeChatModel)
        ('three', 1, True)
    """
    budget: Any = budget_or_session
    options: dict[str, Any] = {"max_tokens": max_tokens, "counter": counter}
    if isinstance(budget, BudgetSession):
        session = budget
        budget, options["max_tokens"] = limit_of(session, max_tokens)
        options |= {"summarizer": session.summarizer, "summary_timeout": session.summary_timeout}
        if counter is None:
            options["counter"] = session.counter
    elif isinstance(budget, Mapping):
        budget = TokenBudget.from_dict(budget)

    def limited(each: Any, its_budget: Any) -> RequestBudget:
        stated = context_window if its_budget is budget else None  # a fallback has a window of its own
        agent = AgentBudget(budget=its_budget, context_window=stated, **options)
        made = RequestBudget(agent, on_report, getattr(each, FIELD, None))
        made.limits(each, {})  # raises now where the limit is unknown
        return made

    return cast("ModelT", wrapped(model, budget, limited))


def wrapped(model: Any, budget: Any, limited: Callable[[Any, Any], RequestBudget]) -> Any:
    """Returns a model, or what is wrapped around models, with every model in it bounded."""
    if isinstance(model, BaseLanguageModel):
        return _bounded(model, limited(model, budget))

    def fallback(other: Any) -> Any:
        return wrapped(other, _within_own_window(other, budget), limited)

    inner = inner_name(model)
    if inner is None:
        kind = type(model).__name__
        hint = _OF_EACH_CALL if kind == "_ConfigurableModel" else _IN_A_CHAIN
        msg = f"model must be a language model, bound or with fallbacks (got a {kind}). {hint}"
        raise BudgetConfigError(msg)
    update: dict[str, Any] = {inner: wrapped(getattr(model, inner), budget, limited)}
    if isinstance(model, RunnableWithFallbacks):
        update["fallbacks"] = list(map(fallback, model.fallbacks))
    elif isinstance(model, RunnableConfigurableAlternatives):
        others = {name: m() if inspect.isroutine(m) else m for name, m in model.alternatives.items()}
        update["alternatives"] = {name: fallback(other) for name, other in others.items()}
    return model.model_copy(update=update)


@dataclass(frozen=True)
class Planned:
    """A request as an earlier door planned it."""

    messages: Sequence[Any]
    tools: Sequence[Any] | None
    plan: Plan
    codec: LangChainCodec

    def is_still(self, request: Sequence[Any], limits: HostLimits) -> bool:
        """Returns whether a request has the same messages, sent no fuller, no more tools, and the room."""
        return (
            list(map(id, request)) == list(map(id, self.messages))
            and limits.counter.overhead(limits.tools) <= limits.counter.overhead(self.tools)
            and self.plan.report.total_tokens <= limits.most
            and self.codec in (CODEC, limits.codec)  # the first of which counts all
        )


@dataclass(eq=False)
class RequestBudget:
    """A limit for every request of a bounded model, and a remembered cut for every named thread."""

    agent: AgentBudget
    on_report: Callable[[BudgetReport], Any] | None
    inner: RequestBudget | None  # of a model that is bounded twice: the smaller limit counts
    planned: Planned | None = None
    tools: Any = ()  # what a model has bound that keeps its tools itself

    def steps(
        self, model: BaseLanguageModel[Any], request: Any, asked: Mapping[str, Any], thread: Any = None
    ) -> Steps[Any]:
        """Returns what may be sent for a request: messages, or for a completion model the same texts."""
        if isinstance(request, _Fitted) and request.by is self:  # one method of the model called another
            return request
        limits = self.limits(model, asked)
        if isinstance(model, BaseChatModel):
            try:
                request = _clear(model, request)
            except NeedsConversionError:
                request = _clear(model, as_messages(request))
            refuse_empty(_beside_system(model, request))
        if self.planned is not None and self.planned.is_still(request, limits):
            return request
        if isinstance(model, BaseLLM):
            for text in [request] if isinstance(request, str) else request:
                needed = limits.counter.count(text)
                if needed > limits.most:  # only its author knows what may be cut
                    msg = (
                        f"The prompt must have at most {limits.most} tokens (got {needed}). "
                        "Fit its parts before you join them."
                    )
                    raise BudgetExceededError(
                        msg, limit=limits.most, needed=needed, blocks={"prompt": needed}
                    )
            return request
        if self.planned is not None:  # the plan has its cut and its summary already
            limits, thread = replace(limits, summarizer=None), None
        elif thread is None:
            thread = thread_id() or (_SESSION if limits.summarizer is not None else None)
        plan = yield from self.agent.plan(request, limits, thread=thread)
        send_report(self.on_report, plan.report)
        return _Fitted(plan.messages, by=self)

    def limits(self, model: BaseLanguageModel[Any], asked: Mapping[str, Any]) -> HostLimits:
        """Returns the limits of one request; its arguments are read before the model's own fields."""
        arguments = flat({**(getattr(model, "model_kwargs", None) or {}), **asked})
        names = (*ANSWER_NAMES, "num_ctx", "options", "model")
        read = {name: arguments[name] for name in names if name in arguments}
        called: Any = model.bind(**read) if read else model
        own = called if self.agent.model is None else self.agent.model
        tools = [*schemas_in(None, {"tools": self.tools}), *schemas_in(model, asked)]
        limits = self.agent.limits_for(own).with_tools(tools)
        codec = codec_for(client_of(model, asked))
        limits = replace(limits, held=limits.held or holds(model, asked), codec=codec)
        if self.inner is not None:
            limits = limits.at_most(self.inner.limits(model, asked).most)
        # The system messages of a finished request hold documents, too, and examples are turns like others:
        # the first doors check the share of one and the number of the other.
        return replace(limits, budget=whole_request_budget(limits.budget).replace(last_turns=None))


def _clear(model: BaseChatModel, messages: Sequence[Any]) -> Sequence[Any]:
    """Returns a request as the client takes it: in its order, and each call with an id of its own."""
    return with_clear_ids(CODEC, in_order(model, messages))


def _beside_system(model: BaseChatModel, messages: Sequence[Any]) -> Sequence[Any]:
    """Returns what a client sends as messages: of Anthropic and Google without the system texts."""
    name = model_name(model) or ""
    if "claude" not in name and "gemini" not in name:
        return messages
    return [message for message in messages if CODEC.role(message) not in PINNED_ROLES]


class _Fitted(list[Any]):
    """Messages that passed: counted once, even where one method of a model calls another."""

    def __init__(self, messages: Sequence[Any], by: RequestBudget) -> None:
        super().__init__(messages)
        self.by = by


_Model: Any = object


class _Bounded(_Model):  # type: ignore[misc]  # the class that follows this one is the model's own
    """What every bounded class adds to its model's class."""

    def forget(self, thread_id: Any) -> bool:
        """Forgets the cut and the summary of a thread; returns whether it was known."""
        known: bool = getattr(self, FIELD).agent.forget(thread_id)
        return known

    # A chain tells its models the config of the run; of a direct call only the method itself gets it.
    def invoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        return super().invoke(input, config, **_with_thread(self, config, options))

    async def ainvoke(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        return await super().ainvoke(input, config, **_with_thread(self, config, options))

    def stream(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        yield from super().stream(input, config, **_with_thread(self, config, options))

    async def astream(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        async for part in super().astream(input, config, **_with_thread(self, config, options)):
            yield part

    def stream_events(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        return super().stream_events(input, config, **_with_thread(self, config, options))

    def astream_events(self, input: Any, config: Any = None, **options: Any) -> Any:  # noqa: A002 - its name
        return super().astream_events(input, config, **_with_thread(self, config, options))

    def _get_invocation_params(self, stop: Any = None, **options: Any) -> Any:
        options.pop(_THREAD, None)
        return super()._get_invocation_params(stop=stop, **options)

    def __reduce__(self) -> tuple[Any, ...]:
        return _empty, (type(self).__mro__[2],), self.__getstate__()

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Returns False: LangChain's JSON would bring back the model without its limit."""
        return False


def _bounded(model: Any, budget: RequestBudget) -> Any:
    """Returns a copy of the model, of the bounded class; what the model refers to is shared."""
    own = type(model).__mro__[2] if isinstance(model, _Bounded) else type(model)
    made = copy.copy(model)
    object.__setattr__(made, "__class__", _bounded_class(own))
    made.__dict__[FIELD] = budget
    return made


def _with_thread(model: Any, config: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a call, with its thread where only its own config names it."""
    thread = thread_id(config)
    if thread == thread_id() or not isinstance(model, BaseChatModel):
        return options
    return {**options, _THREAD: thread}


def _empty(own: Any) -> Any:
    """Returns an object to unpickle into."""
    made: Any = _bounded_class(own)
    return made.__new__(made)


@functools.lru_cache(maxsize=128)
def _bounded_class(own: type[Any]) -> type[Any]:
    """Returns the subclass whose requests are checked; traces know the provider by the class's name."""
    field = Field(default=None, exclude=True, repr=False)
    fields: dict[str, Any] = {FIELD: (Any, field)}
    made: type[Any] = create_model(
        own.__name__, __base__=(_Bounded, own), __module__=own.__module__, **fields
    )
    made.__doc__ = own.__doc__
    for name in _ALWAYS if issubclass(own, BaseChatModel) else ():
        setattr(made, name, _checked(getattr(own, name)))
    for name in _WHERE_IMPLEMENTED:
        method = getattr(own, name, None)
        if method not in (None, getattr(BaseChatModel, name, None), getattr(BaseLLM, name, None)):
            setattr(made, name, _checked(method))
    if getattr(own, "bind_tools", None) not in (None, BaseChatModel.bind_tools):
        setattr(made, "bind_tools", _counted(own.bind_tools))  # noqa: B010 - its type does not say it has one
    return made


def _counted(bind_tools: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a model class's `bind_tools`; what it binds counts even where a request does not carry it."""

    @functools.wraps(bind_tools)
    def bind(self: Any, tools: Any, **options: Any) -> Any:
        made = bind_tools(self, tools, **options)
        budget: RequestBudget | None = getattr(self, FIELD)
        if budget is None or not isinstance(made, _Bounded):
            return made  # a binding passes the tools on with each request
        return _bounded(made, replace(budget, tools=tools))

    return bind


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a method of a model class whose request is checked first."""

    def steps(self: Any, request: Any, asked: dict[str, Any]) -> Steps[Any]:
        thread = asked.pop(_THREAD, None)
        budget: RequestBudget | None = getattr(self, FIELD)
        return request if budget is None else (yield from budget.steps(self, request, asked, thread))

    def send(self: Any, request: Any, *args: Any, **asked: Any) -> Any:
        return method(self, drive(steps(self, request, asked)), *args, **asked)

    async def asend(self: Any, request: Any, *args: Any, **asked: Any) -> Any:
        return await method(self, await adrive(steps(self, request, asked)), *args, **asked)

    async def astream(self: Any, request: Any, *args: Any, **asked: Any) -> Any:
        async for part in method(self, await adrive(steps(self, request, asked)), *args, **asked):
            yield part

    if inspect.isasyncgenfunction(method):
        return functools.wraps(method)(astream)
    return functools.wraps(method)(asend if inspect.iscoroutinefunction(method) else send)


def _within_own_window(model: Any, budget: Any) -> Any:
    """Returns the budget for a model beside the one it was made for; a smaller window of its own counts."""
    facts = facts_of(model)
    own = facts.own_window(budget)
    if own is None:  # the given limits are all there is
        return budget
    if budget is None:
        return limits_of(model=facts).budget
    made = within_window(budget, own, facts.shown_as)
    return budget if made is budget else made.replace(model=facts.name)
