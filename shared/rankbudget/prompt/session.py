"""One conversation under a budget: its timeline, the remembered cut, the running summary, and what is left for documents this turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from ..budget.allocation import allocate, demand_for, with_absent
from ..budget.token_budget import TokenBudget
from ..budget.validation import check_count
from ..messages.codec import Codec, DictCodec
from ..conversation.fit import Fitted, Memo, Request, Summarizer, fit_steps
from ..counting import counter_for
from ..counting.protocol import TokenCounter, Tool
from .._drivers import Steps, adrive, drive
from ..errors import BudgetConfigError, BudgetExceededError
from ..conversation.arguments import check_timeout
from ..messages.measure import CodecMeasure, Measure
from .fit_messages import report_on
from ..report.result import FitResult
from ..conversation.summary import SUMMARY_TIMEOUT

__all__ = ["BudgetSession", "stable_share"]

_PLAIN = TokenBudget()
"""Where a bare number is the budget, the other settings are the defaults."""


class BudgetSession:
    """Keeps the cut of one conversation where it is until it must move, and shares one budget between history and documents.

    Safe to use from many threads: each call sees the session as the call before left it.

    Args:
        budget: the limits; a number is a bare `max_tokens` for the prompt.
        counter: what `counter_for` takes; None takes the budget's model, else o200k_base.
        codec: reads the host's messages; None reads OpenAI-style dicts.
        measure: counts host messages in the host's own way.
        summarizer: `(text, max_tokens) -> str`, keeps a running summary of what was cut.
        tools: tool schemas sent with every request.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that the turn goes on without a new summary, with a
            warning, and the session stays as it was. None waits for ever.

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
    ) -> None:
        problems: list[str] = []
        if not isinstance(budget, TokenBudget):
            check_count("budget", budget, problems, low=1)
            if problems:
                problems.append("give a TokenBudget, or the tokens the prompt may have")
        check_timeout(summary_timeout, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        self.budget = budget
        model = budget.model if isinstance(budget, TokenBudget) else None
        self.counter: TokenCounter = counter_for(counter if counter is not None else model or "o200k_base")
        self.codec: Codec = DictCodec() if codec is None else codec
        self.summarizer = summarizer
        self.summary_timeout = summary_timeout
        self.tools = tools
        self._measure = measure
        self._memo = Memo()
        self._lock = threading.RLock()
        self._read: Callable[[], Sequence[Any]] | None = None
        self._ceiling: int | None = None
        self._history_tokens: int | None = None
        self._task: tuple[str, int] = ("", 0)

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
            limit: tokens for the prompt that holds it, instead of the history's stable share of the budget.
            ceiling: tokens the prompt that holds it may not exceed, beside the share: the smaller wins.
            history_tokens: tokens the part itself may not exceed, whatever stands beside it: the smallest wins.
            extra_tokens: tokens of the prompt that are spoken for (template, system prompt) and not in `messages`.
            question: the current question when it is not in `messages` yet; its tokens are set aside, and if need be all of the history goes.
            tools: tool schemas; None takes the session's.
            strict: refuses a broken conversation instead of repairing it.

        Raises:
            BudgetExceededError: what must stay does not fit.
        """
        return drive(
            self.steps(
                self._request(
                    messages, limit, ceiling, history_tokens, extra_tokens, question, tools, strict=strict
                )
            )
        )

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
        request = self._request(
            messages, limit, ceiling, history_tokens, extra_tokens, question, tools, strict=strict
        )
        return await adrive(self.steps(request))

    def steps(self, request: Request) -> Steps[FitResult]:
        """Runs one fit on the session's memory; a failure leaves the memory as it was."""
        fitted = yield from self.fit_steps(request)
        return FitResult(messages=fitted.messages, report=report_on(fitted, request))

    def fit_steps(self, request: Request) -> Steps[Fitted]:
        """Runs the history station on a copy of the memory and keeps the copy when it succeeded."""
        if request.summarizer is None:
            with self._lock:  # no waiting inside: nothing but counting happens here
                return (yield from fit_steps(request, self._memo))
        with self._lock:
            memo = self._memo.copy()
        fitted = yield from fit_steps(request, memo)
        with self._lock:  # the later of two turns at once wins
            if memo.timeline is not None and (
                self._memo.timeline is None or len(memo.timeline) >= len(self._memo.timeline)
            ):
                self._memo = memo
        return fitted

    def reset(self) -> None:
        """Forgets the conversation."""
        with self._lock:
            self._memo = Memo()

    def task_turns(self, task: str, messages: Sequence[Any]) -> int:
        """Returns for how many turns of the conversation the task block has said the same; looks at 200 messages at most.

        Example:
            >>> session, turn = BudgetSession(4096), [{"role": "user", "content": "on"}, {"role": "assistant", "content": "ok"}]
            >>> [session.task_turns(task, turn * n) for n, task in enumerate(["Sort.", "Sort.", "Sort.", "Merge."])]
            [0, 1, 2, 0]
        """
        with self._lock:
            if task != self._task[0] or len(messages) < self._task[1]:
                self._task = (task, len(messages))
            since = max(self._task[1], len(messages) - 200)
        return sum(role == "user" for role in self.codec.roles(messages[since:]))

    # ---- copies -----------------------------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        """Returns what travels: all but the lock and the place the conversation is read from, which is attached again there."""
        with self._lock:
            return {**self.__dict__, "_lock": None, "_read": None, "_memo": self._memo.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def __deepcopy__(self, memo: dict[int, Any]) -> BudgetSession:
        """Returns a session of its own that starts from what this one remembers; it reads the same conversation until another is attached."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__({**self.__getstate__(), "_read": self._read})
        return twin

    @property
    def summary(self) -> str:
        """The running summary, "" without one."""
        return self._memo.summary

    # ---- sharing with documents -------------------------------------------------------------------------------------------------
    def attach(
        self,
        read: Callable[[], Sequence[Any]],
        *,
        ceiling: int | None = None,
        history_tokens: int | None = None,
    ) -> None:
        """Tells the session where the stored conversation is read, so that documents can be fitted before the history is asked for.

        Args:
            read: returns the stored messages.
            ceiling: what `fit` will be given for them; both must cut alike.
            history_tokens: the same.
        """
        self._read, self._ceiling, self._history_tokens = read, ceiling, history_tokens

    def room(
        self, *, extra_tokens: int = 0, question: str | None = None, tools: Sequence[Tool] | None = None
    ) -> int:
        """Returns the tokens history and documents share: window less reserve, safety, tools, framing, question and `extra_tokens`."""
        measure = self._measured(tools)
        fixed = measure.overhead + extra_tokens + self._question_tokens(measure, question)
        if not isinstance(self.budget, TokenBudget):
            if fixed > self.budget:
                msg = f"what always stays needs {fixed} tokens, the limit is {self.budget}; shorten the prompt or the question, or raise the limit"
                raise BudgetExceededError(msg, limit=self.budget, needed=fixed)
            return self.budget - fixed
        return self.budget.room(fixed=fixed, system_tokens=0, band=self.counter.band)

    def history_share(
        self, *, extra_tokens: int = 0, question: str | None = None, tools: Sequence[Tool] | None = None
    ) -> int:
        """Returns the tokens the history may have for itself: its stable share, which only moves with the fixed parts of the prompt."""
        room = self.room(extra_tokens=extra_tokens, question=question, tools=tools)
        return stable_share(self.budget, "history", room) if isinstance(self.budget, TokenBudget) else room

    def room_for(
        self,
        block: str = "knowledge",
        *,
        extra_tokens: int = 0,
        question: str | None = None,
        tools: Sequence[Tool] | None = None,
    ) -> int:
        """Returns the tokens this turn's documents may have: all that the stored history leaves, which is granted first.

        Args:
            block: the block the documents stand in; a block with a size or `surplus="keep"` gets no more than its own.
            extra_tokens: tokens of the prompt that are spoken for and in neither.
            question: the current question when it is not stored yet.
            tools: tool schemas; None takes the session's.
        """
        room = self.room(extra_tokens=extra_tokens, question=question, tools=tools)
        used = 0
        messages = self._read() if self._read is not None else ()
        if messages:
            given = self._request(
                messages,
                None,
                self._ceiling,
                self._history_tokens,
                extra_tokens,
                question,
                tools,
                strict=False,
            )
            report = drive(self.steps(given)).report
            used = report.total_tokens - report.overhead
        left = max(0, room - used)
        if isinstance(self.budget, TokenBudget) and (
            self.budget.surplus == "keep" or block in self.budget.sizes
        ):
            return min(left, stable_share(self.budget, block, room))
        return left

    def _question_tokens(self, measure: Measure, question: str | None) -> int:
        return measure.group([self.codec.make("user", question, origin="query")]) if question else 0

    def _measured(self, tools: Sequence[Tool] | None) -> Measure:
        return self._measure or CodecMeasure(
            self.codec, self.counter, tools if tools is not None else self.tools
        )

    def _request(
        self,
        messages: Sequence[Any],
        limit: int | None,
        ceiling: int | None,
        history_tokens: int | None,
        extra_tokens: int,
        question: str | None,
        tools: Sequence[Tool] | None,
        *,
        strict: bool,
    ) -> Request:
        measure = self._measured(tools)
        spoken_for = extra_tokens + self._question_tokens(measure, question)
        most = (
            self.room(extra_tokens=extra_tokens, question=question, tools=tools) + measure.overhead
            if limit is None
            else limit - spoken_for
        )
        if ceiling is not None:
            most = min(most, ceiling - spoken_for)
        if history_tokens is not None:  # tools stand beside the history, they are not in it
            most = min(most, history_tokens + measure.overhead - self.counter.overhead())
        share = most
        if limit is None:
            share = min(
                most,
                self.history_share(extra_tokens=extra_tokens, question=question, tools=tools)
                + measure.overhead,
            )
        budget = self.budget if isinstance(self.budget, TokenBudget) else _PLAIN
        documents_give_way = budget.surplus != "keep" and budget.rank_of("knowledge") > budget.rank_of(
            "history"
        )

        def widen(need: int, must: int) -> int:
            """Grants the share; more where the last exchanges need it and documents rank lower, or where the question does."""
            wanted = need if documents_give_way else must
            return min(most, max(share, wanted + measure.overhead))

        return Request(
            messages=messages,
            limit=share,
            codec=self.codec,
            counter=self.counter,
            measure=measure,
            min_exchanges=budget.min_exchanges,
            message_cap=budget.message_cap,
            summarizer=self.summarizer,
            summary_timeout=self.summary_timeout,
            strict=strict,
            asked_elsewhere=question is not None,
            widen=widen if share < most else None,
        )


def stable_share(budget: TokenBudget, block: str, room: int) -> int:
    """Returns the tokens of `room` that are a block's own, whatever the others do.

    Example:
        >>> stable_share(TokenBudget(), "history", 700)  # ratios 0.3 for memory, 0.4 for history
        400
        >>> stable_share(TokenBudget(ratios={}), "history", 700)  # nobody has a share: all are free to take all
        700
    """
    if not budget.ratios and block not in budget.sizes:
        return room
    return allocate(room, with_absent(budget, [demand_for(budget, block, room)]), surplus="keep").shares[
        block
    ]
