"""One conversation under a budget: its remembered cut and running summary, and one plan for each turn."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._drivers import Steps, awaiting, blocking
from ..budget.token_budget import TokenBudget
from ..conversation.state import ThreadState
from ..conversation.stored import keep_summary, with_stored
from ..conversation.thread import SUMMARY_TIMEOUT, Summarizer
from ..counting import counter_for
from ..counting.protocol import TokenCounter, Tool
from ..errors import check_count, named_options, refuse
from ..messages.codec import Codec, DictCodec, finished, waits
from ..messages.measure import CodecMeasure, Measure
from ..report.report import FitResult
from ..segment import Block, check_block_name
from .fit_messages import check_messages, check_timeout
from .kinds import check_kinds
from .parts import Had, Part, asked_by, beside_steps, beside_turn, left_for, limit_of, of_this_turn
from .request import Plan, PromptRequest, Turn
from .stages import budget_of, plain_budget, plan_steps
from .stores import filled_steps

_LEARNED = (
    *("sources", "host_tokens", "_reported", "_planned", "_states", "_turn", "_task"),
    *("_said", "_brought", "_had"),
)
_CONVERSATIONS = 4
"""How many conversations of a thread are remembered: of an agent, of its sub-agent, of calls for a title."""
_BELIEVED = 4
"""One report may raise what the host adds to this part of the prompt; more takes two in a row."""


class BudgetSession:
    """Remembers the cut of one conversation, and shares one budget between history and documents.

    A session keeps positions, counts and hashes, no messages; the only text it keeps is its summary. Other
    prompts of the same thread, as a sub-agent's, leave the cut alone: it remembers four conversations. It is
    safe to use from many threads: each call sees the session as the call before left it.

    Args:
        budget: the limits; a number is the tokens of the whole prompt.
        counter: what `counter_for` takes; None takes the budget's model, else o200k_base.
        codec: reads the host's messages; None reads OpenAI-style dicts.
        measure: counts host messages in the host's own way.
        summarizer: `(text, max_tokens) -> str`, keeps a running summary of what was cut. A call's own
            summarizer is used instead where a call gives one.
        tools: tool schemas sent with every request.
        summary_timeout: seconds one call of the summarizer may take, above 0; after that the turn goes on
            with the last summary and a warning. None for no timeout.
        sources: the blocks that share the prompt with the history, as "knowledge"; their share stays free for
            them.
        host_tokens: tokens that the host adds around them (templates, its own system prompt), 0 or more; the
            last door corrects it with every request it sees.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> session = BudgetSession(50, counter="o200k_base")
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(10)]
        >>> len(session.fit(chat).messages)  # 3 to prime the reply, 7 for each message
        6
        >>> chat.append({"role": "user", "content": "question 10"})
        >>> len(session.fit(chat).messages)  # over the limit: cut once, to half or the last three exchanges
        3
    """

    _said = _brought = Part()  # the last plan of the conversation, and of blocks that another call brought
    _had = Had()

    @named_options
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
        refuse(problems)
        check_kinds({"codec": codec, "measure": measure})
        _check_sources(sources)
        self.budget = budget
        model = budget.model if isinstance(budget, TokenBudget) else None
        self.counter: TokenCounter = counter_for(counter if counter is not None else model or "o200k_base")
        self.measure = measure
        self.read_with(DictCodec() if codec is None else codec)
        self.summarizer = summarizer
        self.summary_timeout = summary_timeout
        self.tools = tools
        self.sources = frozenset(sources) | {"history"}
        self.host_tokens = host_tokens
        self._reported = host_tokens  # what the last report said that the host adds
        self._planned: tuple[int, int] | None = None  # messages, tokens of their largest plan
        self._states: tuple[ThreadState, ...] = ()  # one for each conversation, the newest first
        self._turn: tuple[int, int, int] | None = None  # messages, hash of the question, the history's grant
        self._task = (0, 0)  # hash of the task, messages when it was new
        self._read: Callable[[], Sequence[Any]] | None = None
        self._most: Callable[[], int | None] | None = None  # the most tokens that who reads it returns
        self._lock = threading.Lock()

    @blocking
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
    ) -> Steps[FitResult]:
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
        plan = yield from self.plan_steps(request)
        return FitResult(messages=plan.history, report=plan.report)

    afit = awaiting(fit)

    def request(
        self,
        messages: Sequence[Any] | None = None,
        *,
        blocks: Sequence[Block] = (),
        limit: int | None = None,
        extra_tokens: int = 0,
        question: str | None = None,
        tools: Sequence[Tool] | None = None,
        **fields: Any,
    ) -> PromptRequest:
        """Returns the request of one turn with the session's own budget, counter, codec and tools.

        Arguments are as in `fit`; besides, `blocks` are the others of this call, `fields` any other field of
        a `PromptRequest`. `messages` is None where this call does not know the conversation.
        """
        others = {name: fields.get(name) for name in ("ceiling", "history_tokens")}
        check_kinds({"extra_tokens": extra_tokens, **others})
        own = self.budget if isinstance(self.budget, TokenBudget) else budget_of(self.budget)
        tools = self.tools if tools is None else tools
        plain = CodecMeasure(self.codec, self.counter, tools) if tools else self._plain
        measure = self.measure or plain
        extra_tokens = max(extra_tokens, self.host_tokens)
        if question and fields.get("render") is None:
            extra_tokens += measure.group([self.codec.make("user", question, origin="query")])
        given: dict[str, Any] = {
            "budget": own if limit is None else plain_budget(limit),
            "counter": self.counter,
            "codec": self.codec,
            "measure": measure,
            "tools": tools,
            "blocks": blocks,
            "history": messages,
            "question_text": question or "",
            "asked_elsewhere": question is not None,
            "extra_tokens": extra_tokens,
            "sources": None if limit is None else frozenset({"history"}),
            "covers": "prompt" if limit is not None or blocks or fields.get("render") else "history",
            "min_exchanges": own.min_exchanges,
            "last_turns": own.last_turns,
            "message_cap": own.message_cap,
            "shorten_question": own.shorten_question,
            "summarizer": self.summarizer,
            "summary_timeout": self.summary_timeout,
        }
        return PromptRequest(**{**given, **fields})

    def read_steps(self, request: PromptRequest, *, results_next: bool = True) -> Steps[Plan]:
        """Plans a `request` that reads a thread; a call at its end stays if its `results_next` may come."""
        stored, codec = request.history, request.codec
        if stored and (finished(codec, stored) or (not results_next and waits(codec, stored))):
            request = replace(request, asked_elsewhere=True)
        return self.plan_steps(request)

    def plan_steps(self, request: PromptRequest) -> Steps[Plan]:
        """Makes the plan of the `request` of a turn, or a part of the plan that an earlier call made of it.

        The history's grant is decided by the first call of a turn, unless a request is `sent`: it has no
        other part. Blocks that are not given keep what they had in this turn, else their share. Blocks
        without a history, but with it among the `sources`, get what the history left, or their share. A
        failure leaves the session as it was.
        """
        if request.history is None and "history" in (request.sources or ()):
            return (yield from self._blocks_steps(request))
        if request.history is None or (request.summarizer, self.summarizer) != (None, None):
            request = self._completed(request)
        request = yield from filled_steps(request)
        present = {block.name for block in request.blocks}
        if request.history is None:  # nothing reads one, so nothing is kept free for it
            sources = frozenset(present) if request.sources is None else request.sources
            return (yield from plan_steps(replace(request, sources=sources)))
        return (yield from self._turn_steps(request, present))

    def _turn_steps(self, request: PromptRequest, present: set[str]) -> Steps[Plan]:
        """Plans a conversation, with the blocks that are `present` beside it."""
        assert request.history is not None
        sources = request.sources if request.sources is not None else self.sources | present
        key = (len(request.history), hash(request.question_text))
        asked = 0 if self._brought.asked is None else asked_by(request, request.history)
        with self._lock:
            known, turn, had = self._states, None if request.sent else self._turn, self._had
            brought = self._brought = left_for(self._brought, asked)
        known = with_stored(known, request.history, request.summarizer)
        awaited = sources - present - {"history"}
        granted = turn[2] if turn is not None and turn[:2] == key else None
        had = had if granted is not None else Had()
        parts = Turn(sources, awaited, known, granted, had.within(request.ceiling))
        made = yield from beside_steps(request, parts, asked, other=brought, taken=brought.tokens)
        host = self.host_tokens if request.extra_tokens >= self.host_tokens else 0
        planned = made.report.total_tokens - host
        own = planned - sum([fit.tokens for fit in made.kept.values()])
        said = Part(asked_by(request, made.history), own, frozenset({"history"}))
        with self._lock:
            self._said = said
            self._brought = beside_turn(self._brought, brought, asked)
            if made.state is not None and self._remember(made.state, known) and not request.sent:
                self._turn, self._had = (*key, made.granted["history"]), had.after(made, present)
            if self._planned is not None and self._planned[0] == key[0]:
                planned = max(planned, self._planned[1])
            self._planned = (key[0], planned)
        yield from keep_summary(request.history, made.state)
        return made

    def _blocks_steps(self, request: PromptRequest) -> Steps[Plan]:
        """Plans the blocks of a turn whose conversation is planned by another call, before or after this."""
        request = yield from filled_steps(request)
        assert request.sources is not None
        names, asked = frozenset([block.name for block in request.blocks]), asked_by(request, ())
        with self._lock:
            said = self._said = of_this_turn(self._said, self._brought, asked)
        if said.asked != asked and self._read is not None:
            made = yield from self.plan_steps(self._completed(request))
            tokens = sum([fit.tokens for fit in made.kept.values()])
        else:
            fixed = request.extra_tokens + (0 if request.measure is None else request.measure.overhead)
            taken = min(said.tokens + self.host_tokens, limit_of(request)) - fixed  # the question is in both
            turn = Turn(request.sources, request.sources - names)
            made = yield from beside_steps(request, turn, asked, other=said, taken=max(0, taken))
            tokens = made.report.total_tokens - fixed
        with self._lock:
            self._brought = Part(asked, tokens, names, asked if said.asked == asked else None)
        return made

    def _remember(self, state: ThreadState, known: Sequence[ThreadState]) -> bool:
        """Notes the new state of a conversation; of two turns at once the longer one wins."""
        now = next((one for one in self._states if one.line is state.line), None)
        if now is not None and now.size > state.size and all(one is not now for one in known):
            return False
        states = [state, *(one for one in self._states if one is not now)]
        if len(states) > _CONVERSATIONS:  # one without a cut or a summary has the least to lose
            least = [n for n, one in enumerate(states) if n and one.cut is None and not one.summary.text]
            del states[least[-1] if least else -1]
        self._states = tuple(states)
        return True

    def _completed(self, request: PromptRequest) -> PromptRequest:
        """Returns a request with what this session knows and the call did not give."""
        if request.summarizer is None:
            request = replace(request, summarizer=self.summarizer)
        check_kinds({"summarizer": request.summarizer})
        if request.summary_timeout == SUMMARY_TIMEOUT != self.summary_timeout:
            request = replace(request, summary_timeout=self.summary_timeout)
        if request.history is None and self._read is not None:
            most = None if self._most is None else self._most()
            request = replace(request, history=list(self._read()), history_tokens=most)
        return request

    def forget(self) -> None:
        """Forgets the conversation: its cut, its summary and its plan."""
        with self._lock:
            self._states, self._turn, self._planned = (), None, None
            self._said = self._brought = Part()

    @property
    def summary(self) -> str:
        """The running summary, "" without one."""
        return next((state.summary.text for state in self._states), "")

    def task_turns(self, task: str, messages: Sequence[Any]) -> int:
        """Returns for how many turns of `messages` the task block has said `task`; looks at 200 at most.

        Example:
            >>> session = BudgetSession(4096)
            >>> turn = [{"role": "user", "content": "on"}, {"role": "assistant", "content": "ok"}]
            >>> [session.task_turns(task, turn * n) for n, task in enumerate(["Sort.", "Sort.", "Merge."])]
            [0, 1, 0]
        """
        with self._lock:
            if hash(task) != self._task[0] or len(messages) < self._task[1]:
                self._task = (hash(task), len(messages))
            since = max(self._task[1], len(messages) - 200)
        return sum(role == "user" for role in self.codec.roles(messages[since:]))

    def share_with(self, *blocks: str) -> None:
        """Adds other `blocks` that the prompt may hold, as "knowledge": their share is kept free for them."""
        _check_sources(blocks)
        self.sources = self.sources | set(blocks)

    def learn(self, total_tokens: int) -> None:
        """Notes the `total_tokens` of a finished request: what exceeds the last plan was added by the host.

        A single report adds at most a quarter of the window; a second one in a row is believed.
        """
        if self._planned is None:
            return
        window = self.budget.context_window if isinstance(self.budget, TokenBudget) else self.budget
        added = max(0, total_tokens - self._planned[1])
        self.host_tokens = min(added, max(self._reported, window // _BELIEVED))
        self._reported = added

    def read_with(self, codec: Codec) -> None:
        """Sets the `codec` that reads the host's messages."""
        self.codec = codec
        self._plain = CodecMeasure(codec, self.counter)  # counts requests without tools

    def attach(self, read: Callable[[], Sequence[Any]], most: Callable[[], int | None] | None = None) -> None:
        """Sets `read`, which gives the stored conversation, so that documents can be planned before it.

        `most` returns the most tokens of it that its own reader returns.
        """
        self._read, self._most = read, most

    def learned(self) -> dict[str, Any]:
        """Returns what this session learned of its conversation; by `learn_again` another one goes on."""
        with self._lock:
            return {name: getattr(self, name) for name in _LEARNED}

    def learn_again(self, learned: Mapping[str, Any]) -> None:
        """Goes on from what a session with the same counter `learned`."""
        with self._lock:
            self.__dict__.update(learned)

    def __getstate__(self) -> dict[str, Any]:
        """Returns all but the lock and the place the conversation is read from; attach it again."""
        return {**self.__dict__, "_lock": None, "_read": None, "_most": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> BudgetSession:
        """Returns a session of its own that starts from what this one remembers."""
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__setstate__({**self.__getstate__(), "_read": self._read, "_most": self._most})
        return twin


def _check_sources(names: Sequence[str]) -> None:
    """Refuses what is no list of names of blocks, and misspelt ones, whose share would stay free."""
    check_kinds({"sources": names})
    problems: list[str] = []
    for name in names:
        check_block_name("each of sources", name, problems)
    refuse(problems)
