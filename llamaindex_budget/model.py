"""The last door before the model: the LLM itself, with one step more that counts and fits every request.

llm = budget_model(OpenAI(model="gpt-4o"))
agent = ReActAgent(llm=llm, tools=tools)
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.llms.structured_llm import StructuredLLM

from rankbudget import BudgetReport, BudgetSession, TokenBudget
from rankbudget.errors import BudgetConfigError

from ._codec import shallow_copy
from ._limits import RequestBudget, as_text
from ._request import FixedPrompt, schema_of

__all__ = ["budget_model"]

LLMT = TypeVar("LLMT", bound=LLM)
_BUDGET = "_request_budget"


def budget_model(
    llm: LLMT,
    budget_or_session: TokenBudget | BudgetSession | int | None = None,
    *,
    max_tokens: int | None = None,
    counter: Any = None,
    on_report: Callable[[BudgetReport], Any] | None = None,
) -> LLMT:
    r"""Returns the LLM with a guarantee: no request leaves it that is larger than the limit.

    Every request is counted in its final form, with tools and output schema. A request that fits is sent as
    it is. Another is fitted; where that is impossible an error is raised before anything is sent. The result
    is of a subclass of the LLM's own class, so whatever takes the LLM takes the result. Its `metadata` states
    the limit as its window, so that engines, memories and prompt helpers plan within it.

    Args:
        llm: a chat model, or a completion model, whose prompts are counted and never cut.
        budget_or_session: the limits; a session brings its budget and its counter, and learns what the
            host adds around history and nodes. None takes the window and the answer of the LLM.
        max_tokens: most tokens of a request, from 1; beside a budget the smaller wins.
        counter: counts instead of the LLM's tokenizer; anything `counter_for` takes.
        on_report: is called with the report of every fit; a structured request may be fitted in two steps.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> from llama_index.core.llms import MockLLM
        >>> mock = MockLLM(is_chat_model=True)
        >>> llm = budget_model(mock, max_tokens=30, on_report=lambda r: print(r.total_tokens))
        >>> chat = [ChatMessage(role="user", content=f"question {i}") for i in range(9)]
        >>> llm.chat(chat).message.content
        24
        'user: question 6\nuser: question 7\nuser: question 8\nassistant: '
        >>> isinstance(llm, MockLLM)
        True
    """
    budget: Any = budget_or_session
    session = budget if isinstance(budget, BudgetSession) else None
    if session is not None:
        counter = session.counter if counter is None else counter
        budget = session.budget
    if isinstance(budget, int):
        budget, max_tokens = None, min(budget, max_tokens or budget)
    _check(llm, budget, max_tokens)
    if isinstance(llm, StructuredLLM):  # the LLM inside sees the schema
        given = session or budget
        inner = budget_model(llm.llm, given, max_tokens=max_tokens, counter=counter, on_report=on_report)
        return llm.model_copy(update={"llm": inner})
    limits = RequestBudget(
        budget=budget,
        max_tokens=max_tokens,
        counter=counter,
        on_report=on_report,
        session=session,
        inner=_limits_of(llm),
    )
    made: LLMT = _bounded(_unbounded(llm), limits)
    return made


def _limits_of(llm: Any) -> RequestBudget | None:
    found: RequestBudget | None = getattr(llm, _BUDGET) if isinstance(llm, _BudgetLLM) else None
    return found


def _check(llm: Any, budget: Any, max_tokens: Any) -> None:
    if not isinstance(llm, LLM):
        msg = f"llm must be a LlamaIndex LLM (got a {type(llm).__name__}). Wrap it before you build engines."
        raise BudgetConfigError(msg)
    if budget is not None and not isinstance(budget, TokenBudget):
        msg = f"budget_or_session must be a TokenBudget, a BudgetSession or a number (got {budget!r:.80})."
        raise BudgetConfigError(msg)
    if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
        msg = f"max_tokens must be a number from 1 (got {max_tokens!r}). None takes the window of the LLM."
        raise BudgetConfigError(msg)


class _BudgetLLM:
    """What every bounded class adds to its LLM's class, beside the checked methods."""

    @property
    def metadata(self) -> LLMMetadata:
        plain, limits = _parts(self)
        return limits.metadata(plain)

    def __reduce__(self) -> tuple[Any, ...]:
        return _bounded, _parts(self)


def _bounded(llm: Any, limits: RequestBudget) -> Any:
    """Returns a copy of an LLM, of the bounded class; what the LLM refers to is shared."""
    limits.limit(llm, {})  # raises now rather than at the first request
    own: Any = type(llm)
    return shallow_copy(llm, _bounded_class(own), **{_BUDGET: limits})


def _parts(llm: Any) -> tuple[LLM, RequestBudget]:
    return _unbounded(llm), getattr(llm, _BUDGET)


def _unbounded(llm: Any) -> Any:
    """Returns the LLM as it was given: a copy that shares what it refers to."""
    if not isinstance(llm, _BudgetLLM):
        return llm
    plain = shallow_copy(llm, type(llm).__mro__[2])
    plain.__pydantic_private__.pop(_BUDGET)
    return plain


@functools.lru_cache(maxsize=128)
def _bounded_class(own: type[LLM]) -> type[LLM]:
    """Returns the subclass of an LLM's class whose requests are checked; named as the class, for traces."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace.update({_BUDGET: PrivateAttr(default=None), "__annotations__": {_BUDGET: Any}})
        namespace.update(__module__=own.__module__, __qualname__=own.__qualname__, __doc__=own.__doc__)

    made: type[Any] = types.new_class(own.__name__, (_BudgetLLM, own), {}, fill)
    for name, wrap in _REQUESTS.items():
        setattr(made, name, functools.wraps(getattr(own, name))(wrap(getattr(own, name))))
    for name, (stock, wrap) in _IF_OVERRIDDEN.items():
        method = getattr(own, name, None)
        if method is not None and method is not getattr(stock, name):
            setattr(made, name, functools.wraps(method)(wrap(method)))
    return made


_sending: ContextVar[tuple[Any, Any]] = ContextVar("rankbudget_sending", default=(None, None))
"""Limits and messages of the request under way: a method of an LLM may call another with the same request."""


@contextmanager
def _request(limits: RequestBudget, request: Any) -> Iterator[None]:
    token = _sending.set((limits, request))
    try:
        yield
    finally:
        _sending.reset(token)


def _chat(method: Any) -> Any:
    def send(self: Any, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        plain, limits = _parts(self)
        if _sending.get()[1] is messages:
            return method(self, messages, **kwargs)
        kept = limits.fit(plain, messages, kwargs)
        with _request(limits, kept):
            return method(self, kept, **kwargs)

    return send


def _achat(method: Any) -> Any:
    async def send(self: Any, messages: Sequence[ChatMessage], **kwargs: Any) -> Any:
        plain, limits = _parts(self)
        if _sending.get()[1] is messages:
            return await method(self, messages, **kwargs)
        kept = await limits.afit(plain, messages, kwargs)
        with _request(limits, kept):
            return await method(self, kept, **kwargs)

    return send


def _complete(method: Any) -> Any:
    def send(self: Any, prompt: str, formatted: Any = False, **kwargs: Any) -> Any:  # noqa: FBT002
        plain, limits = _parts(self)
        if _sending.get()[0] is limits:
            return method(self, prompt, formatted=formatted, **kwargs)
        if plain.metadata.is_chat_model:
            asked = _as_message(plain, prompt, formatted=formatted)
            kept = limits.fit(plain, [asked], kwargs)[0]
            prompt, formatted = (prompt, formatted) if kept is asked else (kept.content or "", True)
        else:
            limits.check_text(plain, prompt, kwargs, formatted=formatted)
        with _request(limits, prompt):
            return method(self, prompt, formatted=formatted, **kwargs)

    return send


def _acomplete(method: Any) -> Any:
    async def send(self: Any, prompt: str, formatted: Any = False, **kwargs: Any) -> Any:  # noqa: FBT002
        plain, limits = _parts(self)
        if _sending.get()[0] is limits:
            return await method(self, prompt, formatted=formatted, **kwargs)
        if plain.metadata.is_chat_model:
            asked = _as_message(plain, prompt, formatted=formatted)
            kept = (await limits.afit(plain, [asked], kwargs))[0]
            prompt, formatted = (prompt, formatted) if kept is asked else (kept.content or "", True)
        else:
            limits.check_text(plain, prompt, kwargs, formatted=formatted)
        with _request(limits, prompt):
            return await method(self, prompt, formatted=formatted, **kwargs)

    return send


def _as_message(llm: LLM, prompt: str, *, formatted: bool) -> ChatMessage:
    """Returns the message that a chat model makes of a prompt."""
    return ChatMessage(role="user", content=as_text(llm, prompt, formatted=formatted))


def _with_tools(method: Any) -> Any:
    def send(self: Any, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any) -> Any:
        plain, limits = _parts(self)
        kept = limits.fit(plain, _joined(chat_history, user_msg), {**kwargs, "tools": tools})
        return method(self, tools, chat_history=list(kept), **kwargs)

    return send


def _awith_tools(method: Any) -> Any:
    async def send(
        self: Any, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
    ) -> Any:
        plain, limits = _parts(self)
        kept = await limits.afit(plain, _joined(chat_history, user_msg), {**kwargs, "tools": tools})
        return await method(self, tools, chat_history=list(kept), **kwargs)

    return send


def _joined(history: Sequence[ChatMessage] | None, asked: Any) -> list[ChatMessage]:
    if isinstance(asked, str):
        asked = ChatMessage(role="user", content=asked)
    return [*(history or ()), *([asked] if asked is not None else ())]


def _structured(method: Any) -> Any:
    def send(self: Any, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **arguments: Any) -> Any:
        plain, limits = _parts(self)
        messages = prompt.format_messages(llm=self, **arguments)
        kept = limits.fit(plain, messages, _structured_arguments(plain, output_cls, llm_kwargs))
        fixed = prompt if kept is messages else FixedPrompt(kept)
        return method(self, output_cls, fixed, llm_kwargs=llm_kwargs, **arguments)

    return send


def _astructured(method: Any) -> Any:
    async def send(self: Any, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **arguments: Any) -> Any:
        plain, limits = _parts(self)
        messages = prompt.format_messages(llm=self, **arguments)
        kept = await limits.afit(plain, messages, _structured_arguments(plain, output_cls, llm_kwargs))
        fixed = prompt if kept is messages else FixedPrompt(kept)
        return await method(self, output_cls, fixed, llm_kwargs=llm_kwargs, **arguments)

    return send


def _structured_arguments(llm: LLM, output_cls: Any, llm_kwargs: Any) -> dict[str, Any]:
    """Returns what such a request holds beside its messages; the LLM adds its system prompt afterwards."""
    return {
        **(llm_kwargs or {}),
        "response_format": schema_of(output_cls),
        "system_prompt": llm.system_prompt,
    }


_REQUESTS: dict[str, Callable[[Any], Any]] = {
    "chat": _chat,
    "stream_chat": _chat,
    "achat": _achat,
    "astream_chat": _achat,
    "complete": _complete,
    "stream_complete": _complete,
    "acomplete": _acomplete,
    "astream_complete": _acomplete,
}
_IF_OVERRIDDEN: dict[str, tuple[type[LLM], Callable[[Any], Any]]] = {
    "chat_with_tools": (FunctionCallingLLM, _with_tools),
    "stream_chat_with_tools": (FunctionCallingLLM, _with_tools),
    "achat_with_tools": (FunctionCallingLLM, _awith_tools),
    "astream_chat_with_tools": (FunctionCallingLLM, _awith_tools),
    "structured_predict": (LLM, _structured),
    "astructured_predict": (LLM, _astructured),
}
"""LlamaIndex's own forms call `chat`. A class that wrote its own may send the request itself, as
`OpenAIResponses.structured_predict` does."""
