"""One conversation under a budget: its remembered cut and running summary, and one plan for each turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .._drivers import Steps, adrive, drive
from ..budget.token_budget import TokenBudget
from ..budget.validation import check_count
from ..conversation.arguments import check_messages, check_timeout
from ..conversation.state import ThreadState
from ..conversation.thread import SUMMARY_TIMEOUT, Summarizer
from ..counting import counter_for
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetConfigError
from ..messages.codec import Codec, DictCodec, finished
from ..messages.measure import CodecMeasure, Measure
from ..report.result import FitResult
from ..segment import Block
from .plain import plain_budget
from .plan import Plan
from .request import PromptRequest, Turn
from .stages import plan_steps

__all__ = ["BudgetSession"]


class BudgetSession:
    """Remembers the cut of one conversation, and shares one budget between history and documents.

    A session keeps positions, counts and hashes, no messages; the only text it keeps is its summary. It is
    safe to use from many threads: each call sees the session as the call before left it.

    Args:
        budget: the limits; a number is the tokens of the whole prompt.
        counter: what `counter_for` takes; None takes the budget's model, else o200k_base.
        codec: reads the host's messages; None reads OpenAI-style dicts.
        measure: counts host messages in the host's own way.
        summarizer: `(text, max_tokens) -> str`, keeps a running summary of what was cut.
        tools: tool schemas sent with every request.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that the turn goes on
            with the last summary and a warning. None for no timeout.
        sources: the blocks that share the prompt with the history, as "knowledge"; their share stays free for
            them.
        host_tokens: tokens that the host adds around them (templates, its own system prompt), 0 or more; the
            last door corrects it with every request it sees.

    Example:
        >>> session = BudgetSession(50, counter="o200k_base")
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(10)]
        >>> len(session.fit(chat).messages)  # 3 to prime the reply, 7 for each message
        6
        >>> chat.append({"role": "user", "content": "question 10"})
        >>> len(session.fit(chat).messages)  # over the limit: cut once, down to half, to the last three exchanges at least
        3
    """

    def __init__(
        self,
        budget: TokenBudget | int,
        *,
        counter: Any = None,
        codec: Codec | None = None,
        measure: Measure | None = None,
        summarizer: Summarizer | None = None,
        tools: Sequence[Tool] | None = None,
        summary_timeout: float | None = SUMMARY_TIMEOUT,
        sources: Sequence[str] = (),
        host_tokens: int = 0,
    ) -> None:
        problems: list[str] = []
        if not isinstance(budget, TokenBudget):
            check_count("budget", budget, problems, low=1)
            if problems:
                problems.append("give a TokenBudget, or the tokens the prompt may have")
        check_timeout(summary_timeout, problems)
        check_count("host_tokens", host_tokens, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        self.budget = budget
        model = budget.model if isinstance(budget, TokenBudget) else None
        self.counter: TokenCounter = counter_for(counter if counter is not None else model or "o200k_base")
        self.codec: Codec = DictCodec() if codec is None else codec
        self.measure = measure
        self.summarizer = summarizer
        self.summary_timeout = summary_timeout
        self.tools = tools
        self.sources = frozenset(sources) | {"history"}
        self.host_tokens = host_tokens
        self._planned = 0  # tokens of this turn's largest plan, without what the host adds
        self._planned_for: int | None = None  # messages of the conversation it was made for
        self._state: ThreadState | None = None
        self._turn: tuple[int, int, int] | None = None  # messages, hash of the question, the history's grant
        self._task = (0, 0)  # hash of the task, messages when it was new
        self._read: Callable[[], Sequence[Any]] | None = None
        self._lock = threading.Lock()

    # ---- the conversation -----------------------------------------------------------------------------------------------------
    def fit(
        self,
        messages: Sequence[Any],
        *,
        limit: int | None = None,
        ceiling: int | None = None,
        history_tokens: int | None = None,
        extra_tokens: int = 0,
        question: str | None = None,
        tools: Sequence[Tool] | None = None,
        strict: bool = False,
    ) -> FitResult:
        """Returns the part of the conversation this turn may send.

        Args:
            messages: the whole conversation so far.
            limit: tokens of a prompt that holds nothing but this conversation, instead of the session's
                budget.
            ceiling: most tokens of the whole prompt, beside the budget.
            history_tokens: most tokens of the part itself.
            extra_tokens: tokens of the prompt that are not in `messages` (template, system prompt).
            question: the current question when it is not in `messages` yet; its tokens are kept free, and if
                need be all of the history goes.
            tools: tool schemas; None takes the session's.
            strict: refuses a broken conversation instead of repairing it.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        request = self.request(
            check_messages(messages),
            limit=limit,
            ceiling=ceiling,
            history_tokens=history_tokens,
            extra_tokens=extra_tokens,
            question=question,
            tools=tools,
            strict=strict,
        )
        return _result(drive(self.plan_steps(request)))

    async def afit(
        self,
        messages: Sequence[Any],
        *,
        limit: int | None = None,
        ceiling: int | None = None,
        history_tokens: int | None = None,
        extra_tokens: int = 0,
        question: str | None = None,
        tools: Sequence[Tool] | None = None,
        strict: bool = False,
    ) -> FitResult:
        """Returns what `fit` returns, without blocking the event loop while a summary is written."""
        request = self.request(
            check_messages(messages),
            limit=limit,
            ceiling=ceiling,
            history_tokens=history_tokens,
            extra_tokens=extra_tokens,
            question=question,
            tools=tools,
            strict=strict,
        )
        return _result(await adrive(self.plan_steps(request)))

    def request(
        self,
        messages: Sequence[Any] | None = None,
        *,
        blocks: Sequence[Block] = (),
        limit: int | None = None,
        ceiling: int | None = None,
        history_tokens: int | None = None,
        extra_tokens: int = 0,
        question: str | None = None,
        tools: Sequence[Tool] | None = None,
        strict: bool = False,
        **fields: Any,
    ) -> PromptRequest:
        """Returns the request of one turn with the session's own budget, counter, codec, tools and summarizer.

        Args:
            messages: the whole conversation so far; None where this call does not know it.
            blocks: the other blocks that this call brings, as retrieved documents.
            limit: see `fit`; so are the next six.
            ceiling: see `fit`.
            history_tokens: see `fit`.
            extra_tokens: see `fit`.
            question: see `fit`.
            tools: see `fit`.
            strict: see `fit`.
            fields: any other field of a `PromptRequest`.
        """
        own = plain_budget(self.budget) if not isinstance(self.budget, TokenBudget) else self.budget
        tools = self.tools if tools is None else tools
        measure = self.measure or CodecMeasure(self.codec, self.counter, tools)
        extra_tokens = max(extra_tokens, self.host_tokens)
        if question and fields.get("render") is None:
            extra_tokens += measure.group([self.codec.make("user", question, origin="query")])
        history = None if messages is None else Block(name="history", messages=check_messages(messages))
        given: dict[str, Any] = {
            "budget": own if limit is None else plain_budget(limit),
            "counter": self.counter,
            "codec": self.codec,
            "measure": measure,
            "tools": tools,
            "blocks": blocks,
            "history": history,
            "question_text": question or "",
            "asked_elsewhere": question is not None,
            "ceiling": ceiling,
            "history_tokens": history_tokens,
            "extra_tokens": extra_tokens,
            "sources": None if limit is None else frozenset({"history"}),
            "covers": "prompt" if limit is not None or blocks or fields.get("render") else "history",
            "min_exchanges": own.min_exchanges,
            "message_cap": own.message_cap,
            "shorten_question": own.shorten_question,
            "strict": strict,
            "summarizer": self.summarizer,
            "summary_timeout": self.summary_timeout,
        }
        return PromptRequest(**{**given, **fields})

    def read_steps(self, request: PromptRequest) -> Steps[Plan]:
        """Makes the plan for reading a stored conversation.

        A thread that ends on a finished answer is read for a question that comes next: its last question and
        answer are an exchange like any other.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        messages = request.history.messages if request.history is not None else None
        if messages and finished(request.codec, messages):
            request = replace(request, asked_elsewhere=True)
        return self.plan_steps(request)

    def plan_steps(self, request: PromptRequest) -> Steps[Plan]:
        """Makes the plan of a turn, or hands out a part of the plan that an earlier call of the same turn made.

        The history's grant is decided by the first call of a turn; blocks of this turn that are not given yet
        keep their share reserved. A failure leaves the session as it was.
        """
        if (
            request.summarizer is not None
            and request.summary_timeout == SUMMARY_TIMEOUT != self.summary_timeout
        ):
            request = replace(request, summary_timeout=self.summary_timeout)
        if request.history is None and self._read is not None:
            request = replace(request, history=Block(name="history", messages=list(self._read())))
        present = {block.name for block in request.blocks}
        if request.history is None:  # nobody reads one, so nothing is kept free for it
            sources = frozenset(present) if request.sources is None else request.sources
            return (yield from plan_steps(replace(request, sources=sources)))
        sources = request.sources if request.sources is not None else self.sources | present
        key = (len(request.history.messages or ()), hash(request.question_text))
        with self._lock:
            known, turn = self._state, self._turn
        awaited = sources - present - {"history"}
        granted = turn[2] if turn is not None and turn[:2] == key else None
        made = yield from plan_steps(request, Turn(sources, awaited, known, granted))
        with self._lock:  # of two turns at once the longer conversation wins
            state = made.state
            if state is not None and (self._state is known or state.size >= known_size(self._state)):
                self._state = state
                self._turn = (*key, made.granted["history"])
            self._plan_seen(request, made, key[0])
        return made

    def _plan_seen(self, request: PromptRequest, made: Plan, messages: int) -> None:
        """Notes what this turn's plans hold without what the host adds; each call plans its part."""
        host = self.host_tokens if request.extra_tokens >= self.host_tokens else 0
        planned = made.report.total_tokens - host
        same_turn = self._planned_for == messages
        self._planned = max(planned, self._planned) if same_turn else planned
        self._planned_for = messages

    def forget(self) -> None:
        """Forgets the conversation: its cut, its summary and its plan."""
        with self._lock:
            self._state = self._turn = self._planned_for = None

    @property
    def summary(self) -> str:
        """The running summary, "" without one."""
        state = self._state
        return state.summary.text if state is not None else ""

    def task_turns(self, task: str, messages: Sequence[Any]) -> int:
        """Returns for how many turns of the conversation the task block has said the same; looks at 200 messages at most.

        Example:
            >>> session, turn = BudgetSession(4096), [{"role": "user", "content": "on"}, {"role": "assistant", "content": "ok"}]
            >>> [session.task_turns(task, turn * n) for n, task in enumerate(["Sort.", "Sort.", "Sort.", "Merge."])]
            [0, 1, 2, 0]
        """
        with self._lock:
            if hash(task) != self._task[0] or len(messages) < self._task[1]:
                self._task = (hash(task), len(messages))
            since = max(self._task[1], len(messages) - 200)
        return sum(role == "user" for role in self.codec.roles(messages[since:]))

    # ---- sharing with documents -------------------------------------------------------------------------------------------------
    def share_with(self, *blocks: str) -> None:
        """Says which other blocks the prompt may hold, as "knowledge": their share is kept free for them."""
        self.sources = self.sources | set(blocks)

    def learn(self, total_tokens: int) -> None:
        """Notes the tokens of the finished request: what they exceed the last plan by is what the host added around it."""
        if self._planned_for is not None:
            self.host_tokens = max(0, total_tokens - self._planned)

    def attach(self, read: Callable[[], Sequence[Any]]) -> None:
        """Says where the stored conversation is read, so that documents can be planned before the history is asked for."""
        self._read = read

    # ---- copies -----------------------------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        """Returns all but the lock and the place the conversation is read from, which is attached again after unpickling."""
        return {**self.__dict__, "_lock": None, "_read": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> BudgetSession:
        """Returns a session of its own that starts from what this one remembers."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__({**self.__getstate__(), "_read": self._read})
        return twin


def _result(plan: Plan) -> FitResult:
    return FitResult(messages=plan.history, report=plan.report)


def known_size(state: ThreadState | None) -> int:
    """Returns how many messages a remembered conversation had."""
    return state.size if state is not None else 0
