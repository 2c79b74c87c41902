"""One pass through the stations: read, count what is fixed, grant, fit, render, verify, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..budget.allocation import Demand, allocate, demand_for, with_absent
from .assembly import Assembly
from .blocks import Blocks, for_reader, read_blocks
from ..messages.codec import content_text
from ..conversation.fit import Fitted, Memo, Request, fit_steps
from ..counting.profiles import apply_profile
from ..counting.protocol import Tool
from .._drivers import Steps, drive
from ..errors import BudgetExceededError
from ..fitting.protocol import Fit
from ..fitting.strategies import strategy_for
from .history_block import check_history, named_parts
from ..messages.measure import CodecMeasure
from .layout import STATIC, Layout
from ..messages.tags import JOINT, close_tag, open_tag, own_tags, wrapper_of
from ..report.report import BlockTotal, BudgetReport, warnings_for
from ..segment import Block, Decision, DecisionRange, Segment

if TYPE_CHECKING:
    from .assembler import Assembler
    from ..budget.token_budget import TokenBudget

__all__ = ["Render", "Run"]

Render = Callable[[Mapping[str, Fit], list[Any]], Sequence[Any]]
"""Makes the final host messages from the kept pieces by block and the kept history: a host's own prompt template."""

_ROUNDS = 12
_UNBOUNDED = 1 << 40


def _nothing() -> Fit:
    return Fit(pieces=(), tokens=0, decisions=())


@dataclass(slots=True)
class _Competitor:
    """A block that is fitted to a grant: everything but the fixed parts and the history."""

    block: Block
    rank: int
    query: str
    wanted: int
    base: int
    pinned: int = 0
    """Tokens of what is never cut, the block's frame included."""
    granted: int = 0
    fit: Fit = field(default_factory=_nothing)


class Run:
    """One pass through the stations."""

    def __init__(self, assembler: Assembler, tools: Sequence[Tool] | None, render: Render | None) -> None:
        self.setup = assembler
        self.render = render
        self.budget = assembler.budget
        self.counter = assembler.counter
        self.codec = assembler.codec
        self.measure = assembler.measure or CodecMeasure(assembler.codec, assembler.counter, tools)
        self.layout = Layout(codec=assembler.codec, notice=assembler.notice)
        self.competitors: list[_Competitor] = []
        self.history: Block | None = None
        self.fitted: Fitted | None = None
        self.history_granted = 0
        self.hidden: list[Decision] = []
        self.system_tokens = self.system_text = self.fixed = self.room = self.limit = self.total = 0
        self.given: dict[str, int] = {}
        self.final: list[Any] = []

    # ---- data in ------------------------------------------------------------------------------------------------------------------
    def read(self, blocks: Blocks, query: Any, *, include_memories: bool, memory_query: str | None) -> None:
        question = ""
        for given in read_blocks(blocks):
            if given.name == "memory" and not include_memories:
                continue
            block, hidden = for_reader(given, self.setup.scope)
            self.hidden += hidden
            if block.name == "system":
                self.layout.system = self._messages_of(block, "system")
            elif block.name == "history":
                check_history(block)
                self.history = block
            elif block.name == "query":
                query = self._messages_of(block, "user")[-1:] or query
                query = query[0] if isinstance(query, list) else query
            else:
                self.competitors.append(_Competitor(block, self._rank(block), "", 0, 0))
        if query is not None and query != "":
            self.layout.question = (
                self.codec.make("user", query, origin="query") if isinstance(query, str) else query
            )
            question = query if isinstance(query, str) else self._text(query)
        elif self.history is not None:
            question = self._last_question(self._history_messages())
        for competitor in self.competitors:
            block = competitor.block
            competitor.query = block.query or (
                memory_query if block.name == "memory" and memory_query else question
            )
        self.layout.tags = own_tags(competitor.block.name for competitor in self.competitors)
        self.competitors.sort(key=lambda c: (c.rank, c.block.name))

    def _messages_of(self, block: Block, role: str) -> list[Any]:
        if block.messages is not None:
            return list(block.messages)
        text = "\n\n".join(s.text for s in block.segments if s.text)
        return [self.codec.make(role, text, origin=block.name)] if text else []

    def _history_messages(self) -> Sequence[Any]:
        block = self.history
        if block is None:
            return ()
        if block.messages is not None:
            return block.messages
        return [
            s.source if s.source is not None else self.codec.make(s.role or "user", s.text, origin="history")
            for s in block.segments
        ]

    def _last_question(self, messages: Sequence[Any]) -> str:
        roles = self.codec.roles(messages)
        for at in range(len(roles) - 1, -1, -1):
            if roles[at] == "user":
                return self._text(messages[at])
        return ""

    def _text(self, message: Any) -> str:
        return content_text(self.codec.to_dict(message).get("content"))

    def _rank(self, block: Block) -> int:
        return block.rank if block.rank is not None else self.budget.rank_of(block.name)

    # ---- counted --------------------------------------------------------------------------------------------------------------------
    def fix(self) -> None:
        """Counts what always stays, and what every other block would like to have."""
        layout, measure = self.layout, self.measure
        self.system_tokens = measure.group(layout.system) if layout.system else 0
        self.system_text = sum(self.counter.count_many([self._text(m) for m in layout.system]))
        self.budget.check_system(self.system_text)
        if self.render is not None:
            self.fixed = measure.total(list(self.render({c.block.name: c.fit for c in self.competitors}, [])))
        else:
            question = measure.group([layout.question]) if layout.question is not None else 0
            self.fixed = measure.overhead + self.system_tokens + question
        self.room = self.budget.room(
            fixed=self.fixed, system_tokens=self.system_tokens, band=self.counter.band
        )
        self.limit = self.room + self.fixed
        changing = False
        for competitor in self.competitors:
            block = competitor.block
            self.given[block.name] = len(block.segments)
            if not block.segments:
                continue
            first = block.name in STATIC or not changing
            changing = changing or block.name not in STATIC
            competitor.base = self._base(block.name, framing=first)
            costs = self._costs(block)
            stay = self._staying(block)
            competitor.wanted = competitor.base + sum(costs)
            competitor.pinned = competitor.base + sum([costs[i] for i in stay]) if stay else 0

    def _base(self, name: str, *, framing: bool) -> int:
        """Returns what a block costs before its first piece: tags, and for the first of its message framing and notice."""
        if self.render is not None:
            return 0
        tags = self.counter.count(open_tag(name)) + self.counter.count(close_tag(name))
        if not framing:
            return tags
        notice = (
            self.counter.count(self.layout.notice + "\n") if self.layout.notice and name not in STATIC else 0
        )
        return tags + notice + self.measure.group([self.codec.make("system", "", origin=name)])

    def _costs(self, block: Block) -> list[int]:
        return self.counter.count_many([self._piece(block.name, s, s.text) for s in block.segments])

    def _staying(self, block: Block) -> list[int]:
        """Returns the positions of the segments that are never cut: the pinned ones, with all of their groups."""
        if block.pinned:
            return list(range(len(block.segments)))
        pinned = [i for i, s in enumerate(block.segments) if s.pinned]
        groups = {block.segments[i].group for i in pinned} - {None}
        return (
            [i for i, s in enumerate(block.segments) if s.pinned or s.group in groups] if groups else pinned
        )

    def _piece(self, name: str, segment: Segment, text: str) -> str:
        if self.setup.shown is not None:
            text = self.setup.shown(name, segment, text)
        return text + JOINT if self.render is not None else wrapper_of(name, self.layout.tags)(segment, text)

    # ---- granted and fitted -----------------------------------------------------------------------------------------------------------
    def grant(self) -> Steps[None]:
        """Grants the history first, then the others in rank order, each taking what the one before left."""
        history = self._history_messages()
        rest = [
            demand_for(self.budget, c.block.name, c.wanted, block=c.block, pinned=c.pinned)
            for c in self.competitors
        ]
        if history:
            yield from self._fit_history(history, rest)
        used = 0 if self.fitted is None else self._history_used()
        present = [*rest, demand_for(self.budget, "history", used, block=self.history)] if history else rest
        allocation = allocate(self.room, with_absent(self.budget, present), surplus=self.budget.surplus)
        if allocation["history"] < used:  # the last exchanges, or the question, needed more than the share
            present[-1] = replace(present[-1], pinned=used, rank=1)
            allocation = allocate(self.room, with_absent(self.budget, present), surplus=self.budget.surplus)
        carry = 0
        for i, competitor in enumerate(self.competitors):
            if i == len(self.competitors) - 1:
                carry += (
                    allocation.unused
                )  # rounded off, or left by a history that ranks below: the last block may use it
            competitor.granted = allocation[competitor.block.name] + (
                carry if self.budget.surplus != "keep" else 0
            )
            self._fit(competitor, competitor.granted)
            carry = competitor.granted - competitor.fit.tokens

    def _fit_history(self, messages: Sequence[Any], rest: list[Demand]) -> Steps[None]:
        everyone = with_absent(
            self.budget, [*rest, demand_for(self.budget, "history", _UNBOUNDED, block=self.history)]
        )

        def widen(need: int, must: int) -> int:
            """Grants the stable share; more only where the last exchanges need it, and from everybody where the question does."""
            for minimum, stays in ((need, 0), (must, must)):
                demands = [
                    replace(d, minimum=minimum, pinned=stays, rank=1 if stays else d.rank)
                    if d.name == "history"
                    else d
                    for d in everyone
                ]
                self.history_granted = allocate(self.room, demands, surplus=self.budget.surplus)["history"]
                if self.history_granted >= must:
                    break
            return self.history_granted + self.measure.overhead

        request = self._request(messages, 0)
        request.widen = widen
        session = self.setup.session
        self.fitted = yield from (fit_steps(request) if session is None else session.fit_steps(request))
        self.layout.history, self.layout.asked = self.fitted.messages, self.fitted.question

    def _history_used(self) -> int:
        return 0 if self.fitted is None else self.fitted.tokens - self.measure.overhead

    def _request(self, messages: Sequence[Any], limit: int) -> Request:
        setup = self.setup
        return Request(
            messages=messages, limit=limit, codec=self.codec, counter=self.counter, measure=self.measure, cut=setup.cut,
            min_exchanges=self.budget.min_exchanges, message_cap=self.budget.message_cap, summarizer=setup.summarizer,
            summary_timeout=setup.summary_timeout, strict=setup.strict, asked_elsewhere=self.layout.question is not None,
        )  # fmt: skip

    def _fit(self, competitor: _Competitor, granted: int) -> None:
        block = competitor.block
        name, segments = block.name, block.segments
        if block.pinned:
            segments = tuple(replace(s, pinned=True) for s in segments)
        strategy = strategy_for(name, block.strategy, scorer=self.setup.scorer)
        counter = self.counter
        fit = strategy.fit(
            segments, limit=max(0, granted - competitor.base), counter=counter, block=name, query=competitor.query,
            cost=lambda segment, text: counter.count(self._piece(name, segment, text)),
        )  # fmt: skip
        competitor.fit = replace(fit, tokens=fit.tokens + competitor.base) if fit.pieces else fit

    # ---- rendered and verified --------------------------------------------------------------------------------------------------------
    def messages(self) -> list[Any]:
        fits = {c.block.name: c.fit for c in self.competitors}
        if self.render is not None:
            return list(self.render(fits, self.layout.history))
        if self.setup.shown is not None:
            fits = {name: _as_shown(fit, partial(self.setup.shown, name)) for name, fit in fits.items()}
        self.layout.static = {n: fits[n] for n in STATIC if n in fits}
        self.layout.volatile = {n: f for n, f in fits.items() if n not in STATIC}
        messages = self.layout.messages()
        return messages if self.setup.profile is None else apply_profile(messages, self.setup.profile)

    def verify(self) -> None:
        """Counts the final form; while it is too large, the lowest rank that still has something gives up some of the excess."""
        for attempt in range(_ROUNDS):
            self.final = self.messages()
            self.total = self.measure.total(self.final)
            largest = (
                max(self.total, self.counter.count(self.layout.text())) if self.setup.text else self.total
            )
            over = largest - self.limit
            if over <= 0:
                return
            if (
                attempt < _ROUNDS // 2
            ):  # a template may count a text more than once: what is asked for first is what a doubled text needs
                over = (over + 1) // 2
            given = over
            for competitor in reversed(self.competitors):
                if competitor.fit.pieces and over > 0:
                    before = competitor.fit.tokens
                    self._fit(competitor, max(competitor.pinned, before - over))
                    over -= before - competitor.fit.tokens
            if over == given and not self._shrink_history(
                over
            ):  # a block that is gone takes its frame with it: look again before the history gives
                break
        blocks = {
            "system": self.system_tokens,
            "history": self._history_used(),
            **{c.block.name: c.fit.tokens for c in self.competitors},
        }
        msg = f"the prompt has {largest:,} tokens in its final form, the limit is {self.limit:,}; shorten the fixed parts or raise the limit"
        raise BudgetExceededError(msg, limit=self.limit, needed=largest, blocks=blocks)

    def _shrink_history(self, over: int) -> bool:
        if self.fitted is None:
            return False
        request = self._request(self._history_messages(), self.fitted.tokens - over)
        request.summarizer = None
        try:
            self.fitted = drive(fit_steps(request, Memo() if self.setup.session else None))
        except BudgetExceededError:
            return False
        self.layout.history, self.layout.asked = self.fitted.messages, self.fitted.question
        return True

    # ---- report out -------------------------------------------------------------------------------------------------------------------
    def assembly(self) -> Assembly:
        fits = {c.block.name: c.fit for c in self.competitors}
        return Assembly(
            messages=self.final, history=self.layout.history, kept=fits, report=self._report(), layout=self.layout, counter=self.counter,
        )  # fmt: skip

    def _pinned(self, name: str, tokens: int) -> Decision:
        return Decision(
            segment_id=name, block=name, action="kept", reason="pinned", before=tokens, after=tokens
        )

    def _report(self) -> BudgetReport:
        budget, rank = self.budget, self.budget.rank_of
        totals = []
        if self.layout.system:
            totals.append(
                BlockTotal(name="system", rank=rank("system"), granted=None, used=self.system_tokens)
            )
        if self.history is not None:
            totals.append(
                BlockTotal(
                    name="history",
                    rank=self._rank(self.history),
                    granted=self.history_granted,
                    used=self._history_used(),
                )
            )
        totals += [
            BlockTotal(name=c.block.name, rank=c.rank, granted=c.granted, used=c.fit.tokens, wanted=c.wanted)
            for c in self.competitors
        ]
        if self.layout.question is not None:
            used = self.measure.group([self.layout.question])
            totals.append(BlockTotal(name="query", rank=rank("query"), granted=None, used=used))
        order = {name: i for i, name in enumerate((*STATIC, "history"))}
        totals.sort(key=lambda t: order.get(t.name, 99 if t.name == "query" else 50))
        parts: list[Decision | DecisionRange] = [
            self._pinned(t.name, t.used) for t in totals if t.granted is None
        ]
        parts += self.hidden
        for c in self.competitors:
            parts += c.fit.decisions
        parts += (
            named_parts(self.fitted.parts, self.history)
            if self.fitted is not None and self.history is not None
            else []
        )
        notes = tuple(self.fitted.warnings) if self.fitted is not None else ()
        given, turns = self.given, self._task_turns()
        return BudgetReport(
            limit=self.limit,
            total_tokens=self.total,
            window=budget.context_window,
            reserve=budget.reserve_tokens(self.system_tokens),
            safety=budget.safety_tokens(system_tokens=self.system_tokens, band=self.counter.band),
            overhead=self.total - sum(t.used for t in totals),
            blocks=totals,
            parts=parts,
            warnings=lambda: (
                *notes,
                *warnings_for(
                    totals,
                    window=budget.context_window,
                    system_tokens=self.system_text,
                    system_limit=_most_system(budget),
                    given=given,
                    task_turns=turns,
                ),
            ),
            counter=self.counter.name,
            exact=self.counter.exact,
            model=budget.model,
        )

    def _task_turns(self) -> int:
        """Returns for how many turns a session has seen the same task; without a session there is no telling."""
        task = next((c.block for c in self.competitors if c.block.name == "task"), None)
        if self.setup.session is None or task is None:
            return 0
        return self.setup.session.task_turns(
            "\n".join(s.text for s in task.segments), self._history_messages()
        )


def _most_system(budget: TokenBudget) -> int | None:
    """Returns the tokens the system prompt may have at most, None where nothing limits it but the window."""
    limits = [budget.sizes["system"]] if "system" in budget.sizes else []
    if budget.max_system_ratio is not None:
        limits.append(int(budget.context_window * budget.max_system_ratio))
    return min(limits, default=None)


def _as_shown(fit: Fit, shown: Callable[[Segment, str], str]) -> Fit:
    """Returns a fit whose pieces read as the prompt shows them."""
    pieces = [
        replace(p, rendition=replace(p.rendition, text=shown(p.segment, p.rendition.text)))
        for p in fit.pieces
    ]
    return replace(fit, pieces=tuple(pieces))
