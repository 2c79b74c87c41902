"""The history station: one conversation and a limit in, a valid conversation within it out.

`fit_steps` is the pipeline; `fit_messages` (messages.py), the sessions and the assembler run it. It selects (fitting/history.py), shortens
what must stay and does not fit (fitting/capping.py), asks for a summary of what went, and verifies what it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..messages.codec import Codec
from ..counting.protocol import TokenCounter
from .decisions import decisions_on
from .._drivers import Steps
from ..errors import BudgetExceededError, MessageError, SummaryError
from .arguments import check_messages
from .capping import cap_units
from .selection import Cut, Run, Selection, closed, fill, minimum_sets, resume, stable
from ..messages.measure import Measure
from .summary import SUMMARY_TIMEOUT, announce, newly_dropped, summarize
from ..segment import Decision, DecisionRange
from .timeline import Broken, Timeline

__all__ = ["CutMode", "Fitted", "Memo", "Request", "Summarizer", "fit_steps"]

CutMode = Literal["fill", "stable"]
Summarizer = Callable[..., Any]
"""`(text: str, max_tokens: int) -> str`, blocking or awaitable."""

SUMMARY_SHARE = 0.3
"""Part of the history's room that a summary of what was dropped may take (memory-blocks specification, history block)."""
_ROUNDS = 8


@dataclass(slots=True, kw_only=True)
class Request:
    """What to fit and how."""

    messages: Sequence[Any]
    limit: int
    """Tokens for the whole request: messages, tools, priming."""
    codec: Codec
    counter: TokenCounter
    measure: Measure
    cut: CutMode = "fill"
    min_exchanges: int = 3
    message_cap: int | None = 1000
    summarizer: Summarizer | None = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    """Seconds one call of the summarizer may take; None waits for ever."""
    strict: bool = False
    query: str | None = None
    """What older messages should be relevant to; None keeps by age alone."""
    block: str = "history"
    asked_elsewhere: bool = False
    """The current question is not among the messages: if need be, all of the history may go, system messages apart."""
    widen: Callable[[int, int], int] | None = None
    """Given what the last exchanges need and what must stay, returns the limit; for an assembler whose other blocks may have to give way."""

    def __post_init__(self) -> None:
        if not isinstance(self.messages, (list, tuple)):
            self.messages = check_messages(self.messages)


@dataclass(slots=True)
class Memo:
    """What a session remembers of its conversation between two turns."""

    timeline: Timeline | None = None
    cut: Cut | None = None
    run: Run | None = None
    fresh: bool = True
    summary: str = ""
    summarized: int = 0
    """Positions before this one that were dropped are in the summary."""
    kept_before: frozenset[int] = frozenset()

    def copy(self) -> Memo:
        """Returns a memory that can be worked on while this one stays as it is."""
        timeline = self.timeline.copy() if self.timeline is not None else None
        return Memo(timeline, self.cut, None, self.fresh, self.summary, self.summarized, self.kept_before)


@dataclass(slots=True, kw_only=True)
class Fitted:
    """A conversation that fits, and why it looks as it does."""

    messages: list[Any]
    tokens: int
    """All of the request: messages, tools, priming."""
    untouched: bool
    parts: list[Decision | DecisionRange]
    warnings: list[str] = field(default_factory=list)
    question: int | None = None
    """Index of the current question in `messages`."""
    summary: str = ""


def fit_steps(request: Request, memo: Memo | None = None) -> Steps[Fitted]:
    """Fits one conversation; with a `memo`, the remembered cut and summary go on.

    Raises:
        BudgetExceededError: system messages and the current question alone exceed the limit.
        MessageError: a message cannot be read, or needs a repair while `strict`.
    """
    timeline = _timeline(request, memo)
    if request.strict:
        _refuse_broken(timeline)
    if request.widen is not None:
        request.limit = request.widen(*_least(timeline, request))
    room, pinned = _room(timeline, request)
    settled = _settle(timeline, request, memo, room, pinned)
    if settled is None:
        raise _refused(timeline, request, room, pinned)
    selection, chosen = settled
    summary, warnings = "", []
    message: Any = None
    if not selection.complete and request.summarizer is not None:
        edits = dict(timeline.edits)
        share = int(room * SUMMARY_SHARE)
        smaller = _settle(timeline, request, memo, room - share, pinned, least=True)
        if (
            smaller is None or timeline.edits != edits
        ):  # nothing is shortened for a summary: it gets what the last exchanges leave
            timeline.restore(edits)
            smaller, share = settled, room - selection.tokens
        dropped = newly_dropped(timeline, smaller[1], memo)
        try:
            summary = yield from summarize(timeline, request, dropped, memo, share)
        except SummaryError as error:
            timeline.restore(edits)
            warnings.append(f"summary_failed: {error}")
        else:
            if summary:  # without one, nothing has to make room for it
                selection, chosen = smaller
                message = request.codec.make("user", announce(summary), origin="summary")
    fitted = _put_together(timeline, request, selection, chosen, message, summary, warnings)
    if (
        message is not None and fitted.tokens > request.limit
    ):  # where counts do not add up, a summary may cost more in its place than alone
        warnings.append("summary_left_out: in its place it is over the limit")
        summary = ""
        selection, chosen = settled
        fitted = _put_together(timeline, request, selection, chosen, None, "", warnings)
    if memo is not None:
        _note(memo, timeline, selection, chosen, summary)
    return fitted


def _timeline(request: Request, memo: Memo | None) -> Timeline:
    if memo is not None and memo.timeline is not None:
        memo.timeline.measure = request.measure
        memo.timeline.end(ended=request.asked_elsewhere)
        if memo.timeline.extend(request.messages):
            return memo.timeline
        memo.cut, memo.run, memo.fresh, memo.summary, memo.summarized, memo.kept_before = (
            None,
            None,
            True,
            "",
            0,
            frozenset(),
        )
    return Timeline(request.messages, request.codec, request.measure, ended=request.asked_elsewhere)


def _refuse_broken(timeline: Timeline) -> None:
    broken = timeline.leftovers() + [b for turn in timeline.turns() for b in turn.broken]
    if broken:
        listed = ", ".join(
            f"message {b.position}: {b.reason}" for b in sorted(broken, key=lambda b: b.position)[:10]
        )
        msg = f"the conversation is not valid ({listed}). Repair it, or pass strict=False to have it repaired and reported."
        raise MessageError(msg)


def _least(timeline: Timeline, request: Request) -> tuple[int, int]:
    """Returns what the last exchanges need, and what must stay: pinned messages and, when it is among them, the question."""
    pinned = sum([timeline.tokens_at(p) for p in timeline.pinned])
    sets = [
        sum([timeline.tokens_of(u) for u in units])
        for _, units in minimum_sets(timeline, request.min_exchanges)
    ]
    return pinned + max(sets, default=0), pinned + (0 if request.asked_elsewhere else min(sets, default=0))


def _room(timeline: Timeline, request: Request) -> tuple[int, int]:
    pinned = sum([timeline.tokens_at(p) for p in timeline.pinned])
    room = request.limit - request.measure.overhead - pinned
    if room < 0 and request.measure.additive:
        raise _exceeded(request, pinned, 0)
    return room, pinned


def _refused(timeline: Timeline, request: Request, room: int, pinned: int) -> BudgetExceededError:
    """Says what the smallest valid conversation needs: one token more than there is at the least, where counts do not add up."""
    newest = next(timeline.turns(), None)
    if newest is None or request.asked_elsewhere:
        return _exceeded(request, pinned, max(1, room + 1))
    smallest = [units for _, units in minimum_sets(timeline, 1)][-1]
    step = sum([timeline.tokens_of(u) for u in timeline.owed(newest)]) if newest.question else 0
    question = max(sum([timeline.tokens_of(u) for u in smallest]), room + 1) - step
    return _exceeded(request, pinned, max(0, question), step)


def _exceeded(request: Request, pinned: int, question: int, step: int = 0) -> BudgetExceededError:
    overhead = request.measure.overhead
    needed = overhead + pinned + question + step
    parts = {
        "system": pinned,
        "question": question,
        "newest tool call with its results": step,
        "tools and framing": overhead,
    }
    listed = ", ".join(f"{name} {tokens}" for name, tokens in parts.items() if tokens)
    msg = (
        f"what must stay needs {needed} tokens ({listed}), the limit is {request.limit}; "
        f"raise the limit, or shorten the system messages, the tools{', the newest tool call, its results' if step else ''} or the question"
    )
    return BudgetExceededError(msg, limit=request.limit, needed=needed, blocks=parts)


def _settle(
    timeline: Timeline, request: Request, memo: Memo | None, room: int, pinned: int, *, least: bool = False
) -> tuple[Selection, list[int]] | None:
    """Selects what stays; `least` answers None instead of raising."""
    if not request.measure.additive:
        return _settle_counted(timeline, request, memo, room, pinned)
    selection = _select(timeline, request, memo, room, pinned, least=least)
    return None if selection is None else (selection, _positions(timeline, selection))


def _settle_counted(
    timeline: Timeline, request: Request, memo: Memo | None, room: int, pinned: int
) -> tuple[Selection, list[int]] | None:
    """Where counts do not add up: selects, counts the result whole, and selects again with what that taught."""
    measure, target = request.measure, room + pinned + request.measure.overhead
    best: tuple[Selection, list[int]] | None = None
    edits: dict[int, Any] = {}
    aim, tried = room, set()
    for _ in range(_ROUNDS):
        selection = _select(timeline, request, memo, max(0, aim), pinned, least=True)
        if selection is None or aim in tried:
            break
        tried.add(aim)
        chosen = _positions(timeline, selection)
        spare = target - measure.total(_read(timeline, chosen))
        if spare >= 0 and (best is None or len(chosen) >= len(best[1])):
            best, edits = (selection, chosen), dict(timeline.edits)
        elif best is not None:
            break
        if spare >= 0 and selection.complete:
            break
        aim += max(1, spare) if spare >= 0 else spare
    if best is None:
        return _smallest(timeline, request, target)
    newest = next(timeline.turns(), None)
    if (
        newest and newest.question and newest.question.start in edits
    ):  # cut because its parts count too high? It is only cut when it cannot stay whole
        timeline.unedit()
        uncut = _smallest(timeline, request, target)
        if uncut is not None:
            return uncut
    timeline.restore(edits)  # a later round may have shortened other texts
    return _all_after_all(timeline, request, target, best)


def _all_after_all(
    timeline: Timeline, request: Request, target: int, best: tuple[Selection, list[int]]
) -> tuple[Selection, list[int]]:
    """Counts the whole conversation where little was left out: parts that count too high must not cut what fits."""
    if best[0].complete or len(timeline) > 4 * len(best[1]) + 16:
        return best
    everything = fill(timeline, 1 << 62, 0)
    if everything is None:
        return best
    chosen = _positions(timeline, everything)
    return (everything, chosen) if request.measure.total(_read(timeline, chosen)) <= target else best


def _smallest(timeline: Timeline, request: Request, target: int) -> tuple[Selection, list[int]] | None:
    """Counts the smallest valid conversations whole: where parts count too high, one of them may fit after all."""
    for count, units in minimum_sets(timeline, request.min_exchanges):
        selection = Selection(units, sum(timeline.tokens_of(u) for u in units), exchanges=count)
        chosen = _positions(timeline, selection)
        if request.measure.total(_read(timeline, chosen)) <= target:
            return selection, chosen
    return None


def _select(
    timeline: Timeline, request: Request, memo: Memo | None, room: int, pinned: int, *, least: bool
) -> Selection | None:
    minimum = request.min_exchanges
    found: Selection | None = None
    if memo is not None:
        found = _all_again(timeline, room, memo) or resume(
            timeline, room, minimum, memo.cut, memo.run, fresh=memo.fresh
        )
    elif request.cut == "stable":
        found = stable(timeline, room, minimum)
    elif request.query:
        from .relevant import relevant  # scorers are loaded by those who ask

        found = relevant(timeline, room, minimum, request.query)
    if found is None:
        found = fill(timeline, room, minimum)
    if found is None:
        found = _ladder(timeline, request, room)
    if found is None and not least:
        raise _refused(timeline, request, room, pinned)
    return found


def _all_again(timeline: Timeline, room: int, memo: Memo) -> Selection | None:
    """Forgets the cut and takes shortened texts back when all would fit: a repair or a larger limit can make room."""
    if timeline.least > room or (memo.cut is None and not timeline.edits):
        return None
    edits = dict(timeline.edits)
    timeline.unedit()
    whole = fill(timeline, room, 1)
    if whole is not None and whole.complete:
        return whole
    timeline.note_least()
    timeline.edit(edits)
    return None


def _ladder(timeline: Timeline, request: Request, room: int) -> Selection | None:
    """Caps long texts of the last exchanges, then keeps fewer exchanges, then the question alone, which is cut only when it cannot stay whole."""
    newest = next(timeline.turns(), None)
    question = newest.question.start if newest and newest.question else None
    sets = list(minimum_sets(timeline, request.min_exchanges))
    if request.asked_elsewhere:  # an old question without its answer helps nobody
        sets = [s for s in sets if s[0] > 0]
    for count, units, may_cut in [(c, u, False) for c, u in sets] + [(c, u, True) for c, u in sets[-1:]]:
        price = sum([timeline.tokens_of(u) for u in units])
        if price > room:
            if request.message_cap is None or (may_cut and request.asked_elsewhere):
                continue
            spared = None if may_cut else question
            edits = cap_units(
                timeline, units, room, counter=request.counter, message_cap=request.message_cap, spared=spared
            )
            if edits is None:
                continue
            timeline.edit(edits)
            price = sum([timeline.tokens_of(u) for u in units])
        selection = Selection(units, price, exchanges=count)
        selection.cut = Cut.after(selection, len(timeline))
        return selection
    return Selection([], 0, exchanges=0) if request.asked_elsewhere else None


def _positions(timeline: Timeline, selection: Selection) -> list[int]:
    kept = selection.positions()
    return sorted(kept + timeline.pinned) if timeline.pinned else kept


def _read(timeline: Timeline, positions: Sequence[int]) -> list[Any]:
    messages, edits = timeline.messages, timeline.edits
    if edits:
        return [edits.get(i, messages[i]) for i in positions]
    return [messages[i] for i in positions]


def _put_together(
    timeline: Timeline,
    request: Request,
    selection: Selection,
    chosen: list[int],
    summary: Any,
    text: str,
    warnings: list[str],
) -> Fitted:
    broken = _repairs(timeline, selection)
    untouched = selection.complete and summary is None and len(chosen) == len(timeline) and not timeline.edits
    messages = timeline.messages[:] if untouched else _read(timeline, chosen)
    tokens = (
        request.measure.overhead + selection.tokens + sum([timeline.tokens_at(p) for p in timeline.pinned])
    )
    newest = next(timeline.turns(), None)
    asked = newest.question.start if newest and newest.question else None
    written: tuple[int, int] | None = None
    if summary is not None:
        pinned = set(timeline.pinned)
        at = next((n for n, i in enumerate(chosen) if i not in pinned), len(chosen))
        messages.insert(at, summary)
        written = (at, request.measure.group([summary]))
        tokens += written[1]
    if not request.measure.additive:
        tokens = request.measure.total(messages)
    question = None if asked is None else _index(chosen, asked) + (summary is not None)
    return Fitted(
        messages=messages,
        tokens=tokens,
        untouched=untouched,
        parts=decisions_on(timeline, request.block, chosen, broken, written=written),
        warnings=warnings,
        question=question,
        summary=text,
    )


def _index(chosen: list[int], position: int) -> int:
    from bisect import bisect_left

    return bisect_left(chosen, position)


def _repairs(timeline: Timeline, selection: Selection) -> list[Broken]:
    """Returns the broken messages among what is kept; what is older is gone anyway."""
    run = selection.before
    found = list(run.broken) if run else []
    oldest = 0 if selection.complete else min((u.start for u in selection.units), default=0)
    for turn in timeline.turns():
        if turn.stop <= (run.stop if run else oldest):
            break
        found += turn.broken
    return found + (timeline.leftovers() if selection.complete else [])


def _note(memo: Memo, timeline: Timeline, selection: Selection, chosen: list[int], summary: str) -> None:
    if selection.cut is not None and selection.cut is not memo.cut:
        timeline.note_least()
    memo.run = None if timeline.edits else closed(timeline, selection)
    timeline.remember(0 if selection.complete else selection.cut.oldest if selection.cut else 0)
    memo.timeline, memo.cut, memo.fresh = timeline, selection.cut, False
    if summary:
        memo.summary, memo.summarized = summary, len(timeline)
        memo.kept_before = frozenset(chosen)
