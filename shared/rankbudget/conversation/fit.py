"""One conversation and a limit in, a valid conversation within it out.

`read_thread` reads, `needs_of` says what the conversation cannot do without, `fit_thread` selects
(selection.py), shortens what must stay and does not fit (capping.py), asks for a summary of what was dropped
(summary.py), and counts what it returns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._drivers import Steps
from ..errors import BudgetExceededError, MessageError
from ..segment import Decision, DecisionRange
from .capping import LEAST_TOKENS, VERY_LEAST, cap_units, least_cost, shortened
from .decisions import decisions_on
from .selection import Selection, fill, minimum_sets, remembered, resume, stable
from .state import Summary
from .summary import summarize
from .thread import FittedThread, Thread
from .timeline import Broken, Timeline, Unit

__all__ = ["Needs", "fit_thread", "least_tokens", "needs_of", "read_thread"]

SUMMARY_SHARE = 0.3
"""Part of the history's room that a summary of what was dropped may take."""
_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class Needs:
    """What a conversation wants at the least.

    Args:
        exchanges: tokens of the last exchanges and of the system messages.
        must: tokens of what must stay: system messages and, when it is among the messages, the question.
    """

    exchanges: int
    must: int


def read_thread(thread: Thread) -> Timeline:
    """Returns the conversation, ready to be cut.

    Raises:
        MessageError: a message cannot be read, or needs a repair while `strict`.
    """
    timeline = Timeline(
        thread.messages,
        thread.codec,
        thread.measure,
        ended=thread.asked_elsewhere,
        sent=thread.sent,
        known=thread.known,
    )
    if thread.strict:
        broken = timeline.leftovers() + [b for turn in timeline.turns() for b in turn.broken]
        if broken:
            listed = ", ".join([f"message {position}: {reason}" for position, reason in sorted(broken)[:10]])
            msg = f"messages must be a valid conversation (got {listed}). Repair it, or pass strict=False."
            raise MessageError(msg)
    return timeline


def needs_of(thread: Thread, timeline: Timeline) -> Needs:
    """Returns what the conversation needs, before anything is granted."""
    pinned = timeline.pinned_tokens
    sets = [timeline.cost(units) for units in minimum_sets(timeline, thread.min_exchanges)]
    must = 0 if thread.asked_elsewhere else min(sets, default=0)
    return Needs(pinned + max(sets, default=0), pinned + must)


def least_tokens(thread: Thread, timeline: Timeline) -> int:
    """Returns what must stay of the conversation, its texts as short as they may be."""
    if thread.asked_elsewhere or timeline.newest is None:
        return timeline.pinned_tokens
    return timeline.pinned_tokens + _least_cost(thread, timeline, minimum_sets(timeline, 1)[-1])


def fit_thread(thread: Thread, timeline: Timeline, limit: int, *, beside: int = 0) -> Steps[FittedThread]:
    """Fits one conversation into `limit` tokens, tools and priming of the request included.

    Args:
        thread: what to fit and how.
        timeline: the conversation, from `read_thread`.
        limit: tokens for messages, tools and priming.
        beside: tokens that other parts of the prompt hold; an error counts them in.

    Raises:
        BudgetExceededError: system messages and the current question alone exceed the limit.
    """
    room = limit - thread.measure.overhead - timeline.pinned_tokens
    select = _select_by_parts if thread.measure.additive else _select_counted
    selection = select(thread, timeline, room) if room >= 0 or not thread.measure.additive else None
    if selection is None:
        raise _refused(thread, timeline, limit, room, beside)
    if thread.summarizer is None or selection.complete:
        return _put_together(thread, timeline, selection)
    share = int(room * SUMMARY_SHARE)
    smaller = select(thread, timeline, room - share)
    if smaller is None or smaller.caps != selection.caps:
        smaller, share = selection, room - selection.tokens  # nothing is shortened to make room for a summary
    kept = smaller.positions(timeline.pinned)
    summary, shown, warning = yield from summarize(thread, timeline, kept, share)
    warnings = (warning,) if warning else ()
    if shown is not None:
        fitted = _put_together(thread, timeline, smaller, summary, shown, warnings)
        if fitted.tokens <= limit:
            return fitted
        warnings = (*warnings, "summary_left_out: in its place it is over the limit")
    return _put_together(thread, timeline, selection, summary, None, warnings)


def _refused(thread: Thread, timeline: Timeline, limit: int, room: int, beside: int) -> BudgetExceededError:
    """Returns the error that says what the smallest valid conversation needs."""
    newest, pinned, question, step = timeline.newest, timeline.pinned_tokens, 0, 0
    asked = newest is not None and newest.question is not None and not thread.asked_elsewhere
    if newest is None or thread.asked_elsewhere:
        question = max(0, room + 1)
    else:
        smallest = _least_cost(thread, timeline, minimum_sets(timeline, 1)[-1])
        step = _least_cost(thread, timeline, timeline.pending_step(newest)) if asked else 0
        question = max(0, max(smallest, room + 1) - step)
    overhead = thread.measure.overhead + beside
    needed, limit = overhead + pinned + question + step, limit + beside
    parts = {
        "system": pinned,
        "question": question,
        "newest tool call with its results": step,
        "tools and framing": overhead,
    }
    listed = ", ".join(f"{name} {tokens}" for name, tokens in parts.items() if tokens)
    step_words = ", the newest tool call, its results" if step else ""
    advice = (
        ", or set shorten_question=True (a TokenBudget has it, and fit_messages)"
        if asked and question and not thread.shorten_question
        else ""
    )
    msg = (
        f"what must stay needs {needed} tokens ({listed}), the limit is {limit}. "
        f"Raise the limit, or shorten the system messages, the tools{step_words} or the question{advice}."
    )
    return BudgetExceededError(msg, limit=limit, needed=needed, blocks=parts)


def _least_cost(thread: Thread, timeline: Timeline, units: Sequence[Unit]) -> int:
    cuttable = _cuttable(thread, timeline, units, last=True)[-1]
    inside = {i for unit in units for i in unit.positions()}
    return least_cost(timeline, units, counter=thread.counter, cuttable=inside.intersection(cuttable))


# ---- what stays ------------------------------------------------------------------------------------------


def _select_by_parts(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Returns what stays within `room` tokens, None when not even the smallest conversation fits."""
    minimum, known = thread.min_exchanges, timeline.known
    found: Selection | None = None
    if known is not None:
        edits = shortened(timeline, dict(known.caps), thread.counter) if known.caps else {}
        found = resume(timeline, room, minimum, known, edits)
        if found is not None and found.edits:
            found.caps = dict(known.caps)
    elif thread.cut == "stable":
        found = stable(timeline, room, minimum)
    elif thread.query and not thread.remembers:
        from .relevant import relevant  # scorers are loaded only by those who ask

        found = relevant(thread, timeline, room)
    found = found or fill(timeline, room, minimum) or _select_least(thread, timeline, room)
    if found is not None:
        found.room = room
    return found


def _select_least(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Keeps fewer and fewer exchanges, with long texts shortened; the question is cut last, if at all."""
    sets = minimum_sets(timeline, thread.min_exchanges)
    if thread.asked_elsewhere:  # an old question is useless without its answer
        sets = [units for units in sets if len(units) > 1]
    for units in sets:
        price = timeline.cost(units)
        if price <= room:
            return Selection(units, price)
        last = units is sets[-1]
        floor = VERY_LEAST if last else LEAST_TOKENS
        for cuttable in _cuttable(thread, timeline, units, last=last):
            caps = cap_units(timeline, units, room, counter=thread.counter, cuttable=cuttable, floor=floor)
            if caps is not None:
                edits = shortened(timeline, caps, thread.counter)
                return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)
    return Selection([], 0) if thread.asked_elsewhere and room >= 0 else None


def _cuttable(thread: Thread, timeline: Timeline, units: Sequence[Unit], *, last: bool) -> list[list[int]]:
    """Returns positions of the texts that may be shortened; the first choice spares the current question."""
    newest = timeline.newest
    asked = newest.question.start if newest is not None and newest.question is not None else None
    if thread.asked_elsewhere:
        asked = None
    others: list[int] = []
    if thread.message_cap is not None:
        others = [i for unit in units for i in unit.positions() if i != asked]
    if last and asked is not None and thread.shorten_question:
        return [others, [asked, *others]]
    return [others]


def _select_counted(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Where counts do not add up: selects, counts the result whole, and selects again with the difference."""
    target = room + timeline.pinned_tokens + thread.measure.overhead
    best: Selection | None = None
    kept, aim, tried = 0, room, set()
    for _ in range(_ROUNDS):
        selection = _select_by_parts(thread, timeline, max(0, aim))
        if selection is None or aim in tried:
            break
        tried.add(aim)
        messages = selection.messages(timeline)
        spare = target - thread.measure.total(messages)
        if spare >= 0 and len(messages) >= kept:
            best, kept = selection, len(messages)
        elif best is not None:
            break
        if spare >= 0 and selection.complete:
            break
        aim += max(1, spare) if spare >= 0 else spare
    for selection in _counted_too_high(thread, timeline, best, kept):
        if thread.measure.total(selection.messages(timeline)) <= target:
            return selection
    return best


def _counted_too_high(
    thread: Thread, timeline: Timeline, best: Selection | None, kept: int
) -> list[Selection]:
    """Returns what may fit after all when it is counted whole: the smallest conversations, or everything."""
    newest = timeline.newest
    asked = newest.question.start if newest is not None and newest.question is not None else None
    if best is None or asked in best.edits:
        sets = minimum_sets(timeline, thread.min_exchanges)
        return [Selection(units, timeline.cost(units)) for units in sets]
    if best.complete or len(timeline.messages) > 4 * kept + 16:
        return []
    everything = fill(timeline, 1 << 62, 0)
    return [] if everything is None else [everything]


# ---- what is returned -------------------------------------------------------------------------------------


def _put_together(
    thread: Thread,
    timeline: Timeline,
    selection: Selection,
    summary: Summary | None = None,
    shown: Any = None,
    warnings: tuple[str, ...] = (),
) -> FittedThread:
    """Returns what stays with the summary that `shown` shows, its decisions, and what a session remembers."""
    chosen = selection.positions(timeline.pinned)
    untouched = selection.complete and shown is None and len(chosen) == len(timeline.messages)
    messages = timeline.messages[:] if untouched else selection.messages(timeline, chosen)
    tokens = thread.measure.overhead + selection.tokens + timeline.pinned_tokens
    written: tuple[int, int] | None = None
    if shown is not None:
        pinned = set(timeline.pinned)
        at = next((n for n, i in enumerate(chosen) if i not in pinned), len(chosen))
        messages.insert(at, shown)
        written = (at, thread.measure.group([shown]))
        tokens += written[1]
    if not thread.measure.additive:
        tokens = thread.measure.total(messages)
    newest, known = timeline.newest, timeline.known
    question = None
    if newest is not None and newest.question is not None:
        question = bisect_left(chosen, newest.question.start) + (shown is not None)
    state = None
    if thread.remembers:
        broken = _repaired(timeline, selection)
        failed = any(warning.startswith("summary_failed") for warning in warnings)
        if summary is None:
            summary = known.summary if known is not None else Summary()
        state = remembered(timeline, selection, broken, summary, failed=failed)

    def decide() -> list[Decision | DecisionRange]:
        broken = _repaired(timeline, selection) + (timeline.leftovers() if selection.complete else [])
        return decisions_on(timeline, thread.block, chosen, broken, selection.edits, written)

    return FittedThread(
        messages=messages,
        tokens=tokens,
        untouched=untouched,
        decide=decide,
        warnings=warnings,
        question=question,
        state=state,
    )


def _repaired(timeline: Timeline, selection: Selection) -> list[Broken]:
    """Returns the broken messages among what is kept; what is older is gone anyway."""
    run = selection.run
    found = list(run.broken) if run is not None else []
    oldest = run.stop if run is not None else 0
    if run is None and not selection.complete:
        oldest = min([unit.start for unit in selection.units], default=len(timeline.messages))
    for turn in timeline.turns():
        found += turn.broken
        if turn.start <= oldest:
            break
    return found
