"""What both memories share: limits, session, the plan of a turn, copies and plain data."""
# ruff: noqa: A002 - LlamaIndex calls a question `input`

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import BaseMemory, BaseMemoryBlock

from rankbudget import BudgetSession, FitResult, Rendition, TokenBudget, TokenCounter
from rankbudget.adapters import (
    Call,
    Fit,
    Piece,
    Plan,
    PromptRequest,
    Steps,
    adrive,
    drive,
    summarizer_or_warning,
    typed_errors,
)
from rankbudget.errors import BudgetExceededError

from ._clear_calls import GOOGLE
from ._codec import CODEC, check_messages, codec_for, copy_message, pending
from ._contexts import given_memory, workflow_callers
from ._counters import counter_of
from ._database import opened
from ._events import BudgetEvent, dispatcher
from ._options import by_name, check_part, check_values, named
from ._render import Part, Rendering, as_is, for_engines, with_prompt
from ._serialize import add_settings, is_lost, read_block, read_settings
from ._sharing import active, adopt, budget_for, budget_of, within
from ._unsent import client_of, is_client_of
from .blocks import serve
from .models import as_summarizer
from .prompt_helper import for_one_call

if TYPE_CHECKING:
    from typing_extensions import Self

OPTIONS = ("budget", "session", "llm", "prompt", "counter", "summarizer")
"""What our memories take beside the options of LlamaIndex's."""
_OF_LLM = ("one_call", "client", "bounded", "by_name")
Turn = tuple[Plan, Sequence[ChatMessage]]
"""The plan of a turn, and the messages of it that a memory returns."""
_JOINTS = 2
"""Tokens that a text may cost more between its tags than alone."""


class SessionMemory(BaseMemory):
    """A memory whose turns are planned by a `BudgetSession`."""

    budget: TokenBudget | None = None
    counter: str | None = None  # its name

    _session: BudgetSession = PrivateAttr()
    _given: dict[str, Any] = PrivateAttr(default_factory=dict)
    _has_budget: bool = PrivateAttr(default=False)
    _derived: int | None = PrivateAttr(default=None)  # the token limit that was taken from the budget
    _of_llm: dict[str, Any] = PrivateAttr(default_factory=dict)  # what is known of its LLM
    # Frames, after what decides them.
    _framed: tuple[Any, Mapping[str, int]] = PrivateAttr(default=(None, {}))

    @classmethod
    def class_name(cls) -> str:
        """Returns the name under which LlamaIndex writes it."""
        return cls.__name__

    if TYPE_CHECKING:
        token_limit: int
        tokenizer_fn: Callable[[str], list[Any]]

        def _reading(self, question: Any, options: Mapping[str, Any]) -> Call:
            """Returns the call that reads the stored messages, and pairs of memory blocks and contents."""

    @by_name
    def __init__(self, **data: Any) -> None:
        known = {name: data.pop(name, None) for name in _OF_LLM}  # of a copy, whose original had an LLM
        check_part(type(self), data, beside=OPTIONS)
        if data.get("memory_blocks", ()) is None:
            del data["memory_blocks"]
        given = {name: data.pop(name, None) for name in ("session", "prompt", "counter", "summarizer")}
        llm, session, counter = data.pop("llm", None), given["session"], given["counter"]
        budget = budget_of(data.get("budget"), llm, session)
        limits = budget or (session.budget if session is not None else None)
        derived = None
        if data.get("token_limit") is None and limits is not None:
            derived = limits.limit() if isinstance(limits, TokenBudget) else limits
            data["token_limit"] = within(limits, llm)
        if counter is None and data.get("tokenizer_fn") is None and (llm or budget):
            counter = counter_of(None, llm=llm, budget=budget)
        name = counter if isinstance(counter, str) else None
        with typed_errors():
            super().__init__(**{**data, "budget": budget, "counter": name})
        serve(getattr(self, "memory_blocks", ()), getattr(self, "session_id", None))
        self._given = {**given, "counter": counter, "summarizer": as_summarizer(given["summarizer"])}
        self._derived = derived
        self._has_budget = limits is not None
        self._of_llm = known if llm is None else _facts_of(llm)
        self._use(session or self._own_session())

    @classmethod
    def from_defaults(cls, *args: Any, **kwargs: Any) -> Self:
        """Returns a memory; takes the options of the stock class's `from_defaults` and those of the class.

        Raises:
            BudgetConfigError: an option is wrong.
        """
        stock: Any = cls.__mro__[cls.__mro__.index(SessionMemory) + 1]
        names = list(inspect.signature(stock.from_defaults).parameters)
        kwargs = named(stock.from_defaults, args, kwargs)
        check_part(cls, kwargs, beside=(*OPTIONS, *names))
        if kwargs.get("chat_history") is not None:
            check_messages(kwargs["chat_history"])
            kwargs["chat_history"] = [copy_message(m) for m in kwargs["chat_history"]]
        given = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
        with typed_errors():
            made = stock.from_defaults(**given)
        fields = {name: getattr(made, name) for name in stock.model_fields}
        fields["tokenizer_fn"] = given.get("tokenizer_fn")
        own = {name: value for name, value in kwargs.items() if name not in names or name == "llm"}
        limited = any(own.get(name) is not None for name in ("budget", "session", "llm"))
        if limited and "token_limit" not in given:  # the stock buffer's share is nobody's limit
            fields["token_limit"] = None
        return cls(**{**fields, **own})

    def _use(self, session: BudgetSession) -> None:
        self._session = adopt(session, self._of_llm["client"])

    def _own_limits(self) -> TokenBudget | int:
        """Returns the limits of what the memory itself may return, where there is no budget."""
        return self.token_limit

    def _own_session(self) -> BudgetSession:
        return BudgetSession(
            self.budget or self._own_limits(),
            counter=counter_of(self.tokenizer_fn, self._given["counter"]),
            codec=codec_for(self._of_llm["client"], stored=True),
            summarizer=self._given["summarizer"],
        )

    def __bool__(self) -> bool:
        """Returns False to an agent's run that is given another memory than the one its context holds."""
        given = given_memory()
        return given is None or given is self

    # ---- reading ---------------------------------------------------------------------------------
    @property
    def one_call(self) -> int | None:
        """Most tokens of a prompt of its LLM; None without an LLM."""
        found: int | None = self._of_llm["one_call"]
        return found

    @property
    def given_prompt(self) -> Any:
        """What the host sends around history and nodes, where the memory was told; else None."""
        return self._given["prompt"]

    @property
    def session(self) -> BudgetSession:
        """The session whose budget this memory shares."""
        own = self._session
        if not self._has_budget and own.budget != self.token_limit:
            own.budget = self._own_limits()
        return active.get() or own

    def _telling(self, stored: Sequence[ChatMessage], plan: Plan) -> Call | None:  # noqa: ARG002 - hook
        """Returns what tells the memory blocks of messages that a plan drops; None where they know them."""
        return None

    def _most(self) -> int | None:
        """Returns the most tokens of the history beside a budget; None where the budget alone bounds it."""
        if not self._has_budget or self.token_limit == self._derived:
            return None
        return max(0, self.token_limit - self._session.counter.overhead())

    def get(self, input: Any = None, initial_token_count: int = 0, **options: Any) -> list[ChatMessage]:
        """Returns copies of what fits; `input` is a question that may not be stored yet."""
        return list(self.fit(input, initial_token_count, **options).messages)

    async def aget(
        self, input: Any = None, initial_token_count: int = 0, **options: Any
    ) -> list[ChatMessage]:
        """Returns what `get` returns, without blocking the event loop."""
        return list((await self.afit(input, initial_token_count, **options)).messages)

    def fit(self, question: Any = None, initial_token_count: int = 0, **options: Any) -> FitResult:
        """Returns what `get` returns for `question`, `initial_token_count` and `options`, and why.

        Raises:
            BudgetExceededError: system messages and the current question alone exceed the limit.
        """
        return self._result(drive(self.turn_steps(question, initial_token_count, read=options)))

    async def afit(self, question: Any = None, initial_token_count: int = 0, **options: Any) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop."""
        return self._result(await adrive(self.turn_steps(question, initial_token_count, read=options)))

    def turn_steps(
        self, question: Any = None, initial: int = 0, *, read: Mapping[str, Any] | None = None, **fields: Any
    ) -> Steps[Turn]:
        """Plans a turn: `question`, `initial` tokens, what blocks `read`, a postprocessor's `fields`."""
        check_values({"question": question})
        stored, said = yield self._reading(question, read or {})
        turn = yield from self._planned(question, initial, stored, said, **fields)
        telling = self._telling(stored, turn[0])
        if telling is None:
            return turn
        yield telling
        stored, now = yield self._reading(question, read or {})
        if [content for _, content in now] == [content for _, content in said]:
            return turn
        return (yield from self._planned(question, initial, stored, now, **fields))

    def _planned(
        self,
        question: Any,
        initial: int,
        stored: Sequence[ChatMessage],
        contents: Sequence[tuple[BaseMemoryBlock[Any], Any]],
        **fields: Any,
    ) -> Steps[Turn]:
        blocks, prompt = fields.pop("blocks", ()), fields.pop("prompt", None)
        session = self.session
        asked, ended = pending(question, stored)
        parts = [Part.of(block, content, session) for block, content in contents]
        render = Rendering(self, parts, asked is not None, fields.get("shown", as_is)) if parts else None
        bounded = self._has_budget and self.token_limit != self._derived
        if parts:
            media = {name: cost for part in parts for name, cost in {**part.beside, **part.media}.items()}
            fields["beside"] = {**fields.get("beside", {}), **media}
        elif bounded:
            fields["history_tokens"] = self._most()
        request = session.request(
            stored,
            question=asked,
            blocks=[*(p.block for p in parts), *blocks],
            extra_tokens=initial,
            asked_elsewhere=ended,
            covers="blocks" if blocks else "history",
            **fields,
        )
        if render is not None:  # the session counts the question, which the host renders
            request = replace(request, render=render, frames=self._frames_of(render, session.counter))
        prompt = self._given["prompt"] if prompt is None else prompt
        if prompt is not None:
            request = with_prompt(request, prompt, asked, session.host_tokens, before=initial)
        if bounded and parts and not blocks:  # what is not the memory's comes on top of its own limit
            request = replace(request, ceiling=self.token_limit + _others(request))
        try:
            plan = yield from self._within_one_call(session, request, awaits=not blocks)
        except BudgetExceededError as error:
            raise self._exceeded(error, initial) from error
        if render is None:
            return plan, plan.history
        return plan, replace(render, request=request)(plan.kept, list(plan.history))

    def _within_one_call(
        self, session: BudgetSession, request: PromptRequest, *, awaits: bool
    ) -> Steps[Plan]:
        """Makes a plan that leaves nodes to come the room for one call; what does not fit so has more."""
        awaits, told = awaits and "knowledge" in session.sources, self._given["prompt"] is not None
        most = for_one_call(self.one_call, told=told) if awaits else None
        if most is not None and most < (request.ceiling or most + 1):
            try:
                return (yield from session.plan_steps(replace(request, ceiling=most)))
            except BudgetExceededError:
                pass
        return (yield from session.plan_steps(request))

    def _frames_of(self, render: Rendering, counter: TokenCounter) -> Mapping[str, int]:
        """Returns what the template puts around each block; it is rendered again only when that changes."""
        memory, parts = render.memory, [p for p in render.parts if p.block.segments and not p.media]
        names = [part.block.name for part in parts]
        key = (names, memory.memory_blocks_template, memory.notice, memory.insert_method, counter)
        if self._framed[0] != key:
            self._framed = (key, _frames(render, parts, counter))
        return self._framed[1]

    def _exceeded(self, error: BudgetExceededError, initial: int) -> BudgetExceededError:
        own = self.token_limit != self._derived
        hint = f" token_limit={self.token_limit} bounds the history: raise it or the budget." if own else ""
        msg = f"{error}{hint}"
        if initial > self.token_limit:  # the first words are those of the stock buffer
            least = f"token_limit must be {initial} or more (got {self.token_limit})"
            msg = f"Initial token count exceeds token limit: {least}. {error}"
        return BudgetExceededError(msg, limit=error.limit, needed=error.needed, blocks=error.blocks)

    def _result(self, turn: Turn) -> FitResult:
        plan, messages = turn
        dispatcher.event(BudgetEvent(report=plan.report))
        copies = [for_engines(m, plan.counter) for m in messages]
        return FitResult(messages=copies, report=plan.report)

    # ---- copies and plain data -------------------------------------------------------------------
    def _with_settings(self, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the plain data of the memory with its session, counter and tokenizer in it."""
        add_settings(data, self._given["session"], self._given["counter"], self.tokenizer_fn)
        data.update(self._of_llm)
        summarizer_or_warning(self._given["summarizer"], pickled=False)
        if self.token_limit == self._derived:
            data.pop("token_limit", None)  # it is the budget's
        if workflow_callers():
            # What a context could not read again it leaves out, and takes from the next run.
            read_settings(data, {})
            for block in data.get("memory_blocks", ()):
                read_block(block)
        return data

    def __getstate__(self) -> dict[str, Any]:
        # The base deletes what cannot be pickled from the live object; here the state is a copy. A counter
        # that is not picklable raises its own error: another one would count something else.
        summarizer = summarizer_or_warning(self._given["summarizer"], pickled=True)
        state = {**self._fields(), **self._given, "summarizer": summarizer, **self._of_llm}
        add_settings(state, None, None, self.tokenizer_fn)
        kept: dict[str, Any] = {}
        if is_lost(state["tokenizer"]):
            del state["tokenizer"]  # another one counts there, for which what was counted does not hold
        elif self._given["session"] is None:
            kept = self._session.learned()
        return {"__dict__": state, "remembered": kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**opened(read_settings(state["__dict__"], {})))  # type: ignore[misc]  # as the base
        self._session.learn_again(state.get("remembered", {}))

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Any:
        """Returns a memory of its own; one in a database is the same conversation."""
        if workflow_callers():  # `edit_state` copies all of a context, whose memory stays what it is
            return self
        memo = {} if memo is None else memo
        session = copy.deepcopy(self._session, memo)
        given = {**self._given, "session": session if self._given["session"] is not None else None}
        fields = opened(copy.deepcopy(self._fields(), memo))
        twin = type(self)(**fields, **given, tokenizer_fn=self.tokenizer_fn, **self._of_llm)
        twin._use(session)  # noqa: SLF001 - its own kind
        memo[id(self)] = twin
        return twin

    def _fields(self) -> dict[str, Any]:
        derived = {"token_limit"} if self.token_limit == self._derived else set()
        left_out = {"tokenizer_fn", "counter", *derived}
        return {key: value for key, value in self.__dict__.items() if key not in left_out}


def _facts_of(llm: BaseLLM) -> dict[str, Any]:
    """Returns what a memory and its copies know of an LLM: limit, client, last door, and results by name."""
    facts = budget_for(llm).limit(), client_of(llm), hasattr(llm, "request_limit"), is_client_of(llm, GOOGLE)
    return dict(zip(_OF_LLM, facts, strict=True))


def _frames(render: Rendering, parts: Sequence[Part], counter: TokenCounter) -> dict[str, int]:
    """Returns the tokens that the template puts around each block, what the blocks share around the first."""
    nothing = Rendition(kind="truncated", text="", tokens=0)
    empty = {p.block.name: Fit(pieces=(Piece(p.block.segments[0], nothing),), tokens=0) for p in parts}

    def tokens(shown: Mapping[str, Fit]) -> int:
        return counter.count_messages([CODEC.to_dict(m) for m in render(shown, [])]) - counter.overhead()

    alone = {name: tokens({name: fit}) for name, fit in empty.items()}
    shared = (sum(alone.values()) - tokens(empty)) // (len(empty) - 1) if len(empty) > 1 else 0
    first = next(iter(empty), None)
    return {name: n + _JOINTS - (0 if name == first else shared) for name, n in alone.items()}


def _others(request: PromptRequest) -> int:
    """Returns the tokens of a memory's request that are not its own."""
    assert request.render is not None
    assert request.measure is not None
    return request.extra_tokens + request.measure.total(request.render({}, [])) - request.measure.overhead
