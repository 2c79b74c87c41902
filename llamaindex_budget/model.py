"""The last door before the model: the LLM itself, with one step more that counts and fits every request."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from operator import index
from typing import Any, NamedTuple, SupportsIndex, TypeVar, cast

from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.llms.structured_llm import StructuredLLM

from rankbudget import BudgetReport, BudgetSession, TokenBudget, TokenCounter
from rankbudget.adapters import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError, named_options, shown

from ._codec import shallow_copy
from ._limits import Door, Limits
from ._options import check_values
from ._request import FixedPrompt, forms_beside, forms_of, schemas_in
from ._sharing import adopt
from ._texts import as_text
from ._unsent import client_of

LLMT = TypeVar("LLMT", bound=LLM)
_BUDGET = "_request_budget"


@named_options
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
        llm: a chat model, or a completion model, whose prompts are counted. Of a prompt that is one text
            only the variables of its template are shortened, never the question.
        budget_or_session: the limits; a session brings its budget, its counter and its summarizer, and
            learns what the host adds around history and nodes. None takes the window and the answer of the
            LLM; where no answer is set, 30 % of the window, at most the model's largest answer.
        max_tokens: most tokens of a request, from 1; a smaller budget or window of the LLM wins.
        counter: counts instead of the LLM's tokenizer; anything `counter_for` takes.
        on_report: is called with the report of every fit; a template or a structured request may be fitted
            in two steps, a `BudgetPromptHelper`'s being one more. It must not be async; what it raises is
            logged.

    Raises:
        BudgetConfigError: an option is wrong. A request that cannot fit raises a BudgetExceededError that is
            no ValueError, because LlamaIndex's synthesizers answer "Empty Response" to one.

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
    model: Any = llm
    budget: Any = budget_or_session
    session = adopt(budget, client_of(model)) if isinstance(budget, BudgetSession) else None
    if session is not None:
        counter = session.counter if counter is None else counter
        budget = session.budget
    if isinstance(budget, SupportsIndex) and not isinstance(budget, bool):
        budget, max_tokens = None, min(index(budget), max_tokens or index(budget))
    if not isinstance(model, LLM):
        msg = f"llm must be a LlamaIndex LLM (got a {type(llm).__name__}). Wrap it before you build engines."
        raise BudgetConfigError(msg)
    if budget is not None and not isinstance(budget, TokenBudget):
        msg = f"budget_or_session must be a TokenBudget, a BudgetSession or a number (got {shown(budget)})."
        raise BudgetConfigError(msg)
    check_values({"max_tokens": max_tokens, "on_report": on_report})
    if isinstance(llm, StructuredLLM):  # the LLM inside sees the schema
        given = session or budget
        bounded = budget_model(llm.llm, given, max_tokens=max_tokens, counter=counter, on_report=on_report)
        kind = BoundedStructuredLLM if type(llm) is StructuredLLM else type(llm)
        return cast("LLMT", shallow_copy(llm, kind).model_copy(update={"llm": bounded}))
    inner = None
    if isinstance(model, _BudgetLLM):
        before = _door(model)
        model, inner = before.llm, before.limits
    made: LLMT = _bounded(model, Limits(budget, max_tokens, counter, on_report, session, inner))
    return made


class _BudgetLLM:
    """What every bounded class adds to its LLM's class, beside the checked methods."""

    @property
    def metadata(self) -> LLMMetadata:
        return _door(self).metadata()

    @property
    def request_limit(self) -> int:
        """Most tokens of a request."""
        return _door(self).limit({})

    @property
    def request_budget(self) -> TokenBudget | None:
        """The budget that the LLM was given, None where it was given a bare limit."""
        return _door(self).limits.given

    @property
    def request_counter(self) -> TokenCounter:
        """What counts a request."""
        return _door(self).counter

    @property
    def request_on_report(self) -> Callable[[BudgetReport], Any] | None:
        """What is told of every fit of a request."""
        return _door(self).limits.on_report

    def as_structured_llm(self, output_cls: Any, **kwargs: Any) -> StructuredLLM:
        """Returns an LLM that answers with `output_cls`, and plans and shortens beside its schema."""
        return BoundedStructuredLLM(llm=self, output_cls=output_cls, **kwargs)


def _bounded(llm: Any, limits: Limits) -> Any:
    """Returns a copy of an LLM, of the bounded class; what the LLM refers to is shared."""
    Door(llm, limits).limit({})  # raises now rather than at the first request
    own: Any = type(llm)
    return shallow_copy(llm, _bounded_class(own), **{_BUDGET: limits})


def _made_again(llm: Any) -> tuple[Any, ...]:
    """Returns how a bounded LLM is unpickled."""
    door = _door(llm)
    return _bounded, (door.llm, door.limits)


def _door(llm: Any) -> Door:
    """Returns a bounded LLM's limits, with the LLM as it was given: a copy that shares what it refers to."""
    if isinstance(llm, StructuredLLM):
        return replace(_door(llm.llm), around=llm)
    plain = shallow_copy(llm, type(llm).__mro__[2])
    return Door(plain, plain.__pydantic_private__.pop(_BUDGET))


@functools.lru_cache(maxsize=128)
def _bounded_class(own: type[LLM]) -> type[LLM]:
    """Returns the subclass of an LLM's class whose requests are checked; named as the class, for traces."""

    def fill(namespace: dict[str, Any]) -> None:
        namespace.update({_BUDGET: PrivateAttr(default=None), "__annotations__": {_BUDGET: Any}})
        namespace["__reduce__"] = _made_again
        namespace.update(__module__=own.__module__, __qualname__=own.__qualname__, __doc__=own.__doc__)

    made: type[Any] = types.new_class(own.__name__, (_BudgetLLM, own), {}, fill)
    for name, steps in _CHECKED.items():
        method = getattr(own, name, None)
        # LlamaIndex's own forms of these call `chat`; a class that wrote its own may send the request itself.
        stock = getattr(FunctionCallingLLM, name, None) if steps is _with_tools else None
        if method is not None and method is not stock:
            setattr(made, name, _checked(name, method, steps))
    return made


class _Request(NamedTuple):
    """The arguments of a checked call."""

    positional: tuple[Any, ...]
    named: dict[str, Any]
    sent: tuple[Any, Any] | None = None  # limits and messages; None where another method sends the request


_sending: ContextVar[tuple[Any, Any]] = ContextVar("rankbudget_sending", default=(None, object()))
"""Limits and messages of the request under way: a method of an LLM may call another with the same request."""


def _checked(name: str, method: Any, steps: Callable[..., Steps[_Request]]) -> Any:
    """Returns a method whose arguments are made to fit before it is called."""

    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = drive(steps(_door(self), method, *args, **kwargs))
        with _under_way(request):
            return method(self, *request.positional, **request.named)

    async def asend(self: Any, *args: Any, **kwargs: Any) -> Any:
        request = await adrive(steps(_door(self), method, *args, **kwargs))
        with _under_way(request):
            return await method(self, *request.positional, **request.named)

    return functools.wraps(method)(asend if name.startswith("a") else send)


@contextmanager
def _under_way(request: _Request) -> Iterator[None]:
    token = _sending.set(request.sent or _sending.get())
    try:
        yield
    finally:
        _sending.reset(token)


def _chat(door: Door, _: Any, messages: Sequence[ChatMessage], **kwargs: Any) -> Steps[_Request]:
    if _sending.get()[1] is messages:
        return _Request((messages,), kwargs)
    kept = yield from door.fit_steps(messages, kwargs)
    return _Request((kept,), kwargs, (door.limits, kept))


def _complete(door: Door, _: Any, prompt: str, formatted: Any = None, **kwargs: Any) -> Steps[_Request]:
    sent = None
    if _sending.get()[0] is not door.limits:
        text = as_text(door.llm, prompt, formatted=formatted)
        asked = ChatMessage(role="user", content=text)
        fit = door.fit_steps if door.llm.metadata.is_chat_model else door.text_steps
        [kept] = yield from fit([asked], kwargs)
        prompt, formatted = (prompt, formatted) if kept is asked else (kept.content or "", True)
        sent = (door.limits, prompt)
    return _Request((prompt,), {"formatted": bool(formatted), **kwargs}, sent)


def _with_tools(
    door: Door, _: Any, tools: Any, user_msg: Any = None, chat_history: Any = None, **kwargs: Any
) -> Steps[_Request]:
    if isinstance(user_msg, str):
        user_msg = ChatMessage(role="user", content=user_msg)
    messages = [*(chat_history or ()), *([user_msg] if user_msg is not None else ())]
    kept = yield from door.fit_steps(messages, {**kwargs, "tools": tools})
    return _Request((tools,), {"chat_history": list(kept), **kwargs})


def _predict(door: Door, _: Any, prompt: Any, **variables: Any) -> Steps[_Request]:
    yield from ()  # there is nothing to wait for
    for form in forms_beside(door.around):
        variables = door.variables(prompt, variables, form)
    return _Request((prompt,), variables)


def _structured(
    door: Door, method: Any, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **variables: Any
) -> Steps[_Request]:
    # The LLM adds its system prompt to such a request afterwards, and chooses the form of the schema.
    made, beside = variables, {**(llm_kwargs or {}), "system_prompt": door.llm.system_prompt}
    forms = forms_of(output_cls, door.llm)
    for form in forms:
        made = door.variables(prompt, made, {**beside, **form})
    beside |= forms[0]
    if method is not getattr(LLM, method.__name__):  # it may send the request itself, past `chat`
        messages = prompt.format_messages(llm=door.llm, **made)
        kept = yield from door.fit_steps(messages, beside)
        prompt = prompt if kept is messages else FixedPrompt(kept)
    return _Request((output_cls, prompt), {"llm_kwargs": llm_kwargs, **made})


_STEPS: dict[Any, str] = {
    _chat: "chat stream_chat achat astream_chat",
    _complete: "complete stream_complete acomplete astream_complete",
    _with_tools: "chat_with_tools stream_chat_with_tools achat_with_tools astream_chat_with_tools",
    _predict: "predict stream apredict astream",
    _structured: (
        "structured_predict stream_structured_predict astructured_predict astream_structured_predict"
    ),
}
_CHECKED: dict[str, Callable[..., Steps[_Request]]] = {
    name: steps for steps, names in _STEPS.items() for name in names.split()
}
"""How each way of asking is made to fit, by the name of the method."""


class BoundedStructuredLLM(_BudgetLLM, StructuredLLM):
    """A `StructuredLLM` of a bounded LLM: of a finished prompt that one could shorten no variable."""

    @property
    def request_limit(self) -> int:
        """Most tokens of a request beside what is added to each: schema, instruction, system prompt."""
        count = self.request_counter.count_messages
        told = [schemas_in(None, form) for form in forms_beside(self)]
        return max(1, _door(self).limit({}) - max(count([], form) for form in told) + count([]))


for _name in _STEPS[_predict].split():
    setattr(BoundedStructuredLLM, _name, _checked(_name, getattr(StructuredLLM, _name), _predict))
