"""One conversation and a limit in, a valid conversation within it out.

`read_thread` reads, `needs_of` says what the conversation cannot do without, `fit_thread` selects
(selection.py), shortens what must stay and does not fit (capping.py), asks for a summary of what was dropped
(summary.py), and counts what it returns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .._drivers import Steps
from ..errors import BudgetExceededError, MessageError
from .capping import cap_units, shortened
from .decisions import decisions_on
from .remember import remembered
from .selection import Selection, fill, minimum_sets, resume, stable
from .state import Prints
from .summary import Summary, announce, summarize
from .thread import FittedThread, Thread
from .timeline import Broken, Timeline, Unit

__all__ = ["Needs", "fit_thread", "needs_of", "read_thread"]

SUMMARY_SHARE = 0.3
"""Part of the history's room that a summary of what was dropped may take (memory-blocks specification, history block)."""
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
    prints = Prints(thread.codec, thread.messages)
    known = thread.known.continued_by(prints) if thread.known is not None else None
    timeline = Timeline(
        thread.messages,
        thread.codec,
        thread.measure,
        ended=thread.asked_elsewhere,
        known=known,
        prints=prints,
    )
    if thread.strict:
        _refuse_broken(timeline)
    return timeline


def needs_of(thread: Thread, timeline: Timeline) -> Needs:
    """Returns what the conversation needs, before anything is granted."""
    pinned = timeline.pinned_tokens
    sets = [timeline.cost(units) for units in minimum_sets(timeline, thread.min_exchanges)]
    must = 0 if thread.asked_elsewhere else min(sets, default=0)
    return Needs(pinned + max(sets, default=0), pinned + must)


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
    return (yield from _with_summary(thread, timeline, selection, limit, room))


def _with_summary(
    thread: Thread, timeline: Timeline, selection: Selection, limit: int, room: int
) -> Steps[FittedThread]:
    share = int(room * SUMMARY_SHARE)
    select = _select_by_parts if thread.measure.additive else _select_counted
    smaller = select(thread, timeline, room - share)
    if smaller is None or smaller.caps != selection.caps:
        smaller, share = selection, room - selection.tokens  # nothing is shortened to make room for a summary
    summary, warning = yield from summarize(thread, timeline, smaller.positions(timeline.pinned), share)
    warnings = (warning,) if warning else ()
    if summary.shown:
        fitted = _put_together(thread, timeline, smaller, summary, warnings)
        if fitted.tokens <= limit:
            return fitted
        warnings = (*warnings, "summary_left_out: in its place it is over the limit")
    return _put_together(thread, timeline, selection, replace(summary, shown=""), warnings)


def _refuse_broken(timeline: Timeline) -> None:
    broken = timeline.leftovers() + [b for turn in timeline.turns() for b in turn.broken]
    if broken:
        first = sorted(broken, key=lambda b: b.position)[:10]
        listed = ", ".join(f"message {b.position}: {b.reason}" for b in first)
        msg = f"messages must be a valid conversation (got {listed}). Repair it, or pass strict=False."
        raise MessageError(msg)


def _refused(thread: Thread, timeline: Timeline, limit: int, room: int, beside: int) -> BudgetExceededError:
    """Returns the error that says what the smallest valid conversation needs."""
    newest, pinned, step = timeline.newest, timeline.pinned_tokens, 0
    if room < 0 and thread.measure.additive:
        question = 0
    elif newest is None or thread.asked_elsewhere:
        question = max(1, room + 1)
    else:
        smallest = minimum_sets(timeline, 1)[-1]
        step = timeline.cost(timeline.pending_step(newest)) if newest.question else 0
        question = max(0, max(timeline.cost(smallest), room + 1) - step)
    overhead = thread.measure.overhead + beside
    limit += beside
    needed = overhead + pinned + question + step
    parts = {
        "system": pinned,
        "question": question,
        "newest tool call with its results": step,
        "tools and framing": overhead,
    }
    listed = ", ".join(f"{name} {tokens}" for name, tokens in parts.items() if tokens)
    step_words = ", the newest tool call, its results" if step else ""
    msg = (
        f"what must stay needs {needed} tokens ({listed}), the limit is {limit}. "
        f"Raise the limit, or shorten the system messages, the tools{step_words} or the question."
    )
    return BudgetExceededError(msg, limit=limit, needed=needed, blocks=parts)


# ---- what stays -------------------------------------------------------------------------------------------------------------


def _select_by_parts(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Returns what stays within `room` tokens, None when not even the smallest conversation fits."""
    minimum, known = thread.min_exchanges, timeline.known
    found: Selection | None = None
    if known is not None and thread.remembers:
        edits = shortened(timeline, dict(known.caps), thread.counter) if known.caps else {}
        found = resume(timeline, room, minimum, known, edits)
        if found is not None and found.edits:
            found.caps = dict(known.caps)
    elif thread.cut == "stable":
        found = stable(timeline, room, minimum)
    elif thread.query and not thread.remembers:
        from .relevant import relevant  # scorers are loaded only by those who ask

        found = relevant(timeline, room, minimum, thread.query)
    if found is None:
        found = fill(timeline, room, minimum)
    return found if found is not None else _select_least(thread, timeline, room)


def _select_least(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Shortens long texts of the last exchanges, then keeps fewer exchanges, then the question, cut only when it cannot stay whole."""
    sets = minimum_sets(timeline, thread.min_exchanges)
    newest = timeline.newest
    question = newest.question.start if newest and newest.question else None
    if thread.asked_elsewhere:  # an old question may be shortened, and helps nobody without its answer
        question = None
        sets = [units for units in sets if len(units) > 1]
    tries: list[tuple[list[Unit], int | None, bool]] = [
        (units, question, units is sets[-1] and not thread.asked_elsewhere) for units in sets
    ]
    if sets and not thread.asked_elsewhere:
        tries.append((sets[-1], None, False))
    for units, spared, last in tries:
        price = timeline.cost(units)
        if price <= room:
            return Selection(units, price)
        if thread.message_cap is None:
            continue
        caps = cap_units(timeline, units, room, counter=thread.counter, spared=spared, last=last)
        if caps is not None:
            edits = shortened(timeline, caps, thread.counter)
            return Selection(units, timeline.cost(units, edits), edits=edits, caps=caps)
    return Selection([], 0) if thread.asked_elsewhere and room >= 0 else None


def _select_counted(thread: Thread, timeline: Timeline, room: int) -> Selection | None:
    """Where counts do not add up: selects, counts the result whole, and selects again with what that taught."""
    target = room + timeline.pinned_tokens + thread.measure.overhead
    best: Selection | None = None
    kept, aim, tried = 0, room, set()
    for _ in range(_ROUNDS):
        selection = _select_by_parts(thread, timeline, max(0, aim))
        if selection is None or aim in tried:
            break
        tried.add(aim)
        messages = _messages(timeline, selection, selection.positions(timeline.pinned))
        spare = target - thread.measure.total(messages)
        if spare >= 0 and len(messages) >= kept:
            best, kept = selection, len(messages)
        elif best is not None:
            break
        if spare >= 0 and selection.complete:
            break
        aim += max(1, spare) if spare >= 0 else spare
    if best is None or _cuts_question(timeline, best):  # it is cut only when it cannot stay whole
        return _smallest_counted(thread, timeline, target) or best
    return _everything_counted(thread, timeline, target, best, kept)


def _cuts_question(timeline: Timeline, selection: Selection) -> bool:
    newest = timeline.newest
    return newest is not None and newest.question is not None and newest.question.start in selection.edits


def _smallest_counted(thread: Thread, timeline: Timeline, target: int) -> Selection | None:
    """Counts the smallest valid conversations whole: where parts count too high, one of them may fit after all."""
    for units in minimum_sets(timeline, thread.min_exchanges):
        selection = Selection(units, timeline.cost(units))
        messages = _messages(timeline, selection, selection.positions(timeline.pinned))
        if thread.measure.total(messages) <= target:
            return selection
    return None


def _everything_counted(
    thread: Thread, timeline: Timeline, target: int, best: Selection, kept: int
) -> Selection:
    """Counts the whole conversation where little was left out: parts that count too high must not cut what fits."""
    if best.complete or len(timeline) > 4 * kept + 16:
        return best
    everything = fill(timeline, 1 << 62, 0)
    if everything is None:
        return best
    messages = _messages(timeline, everything, everything.positions(timeline.pinned))
    return everything if thread.measure.total(messages) <= target else best


# ---- what is returned -------------------------------------------------------------------------------------------------------


def _messages(timeline: Timeline, selection: Selection, positions: Sequence[int]) -> list[Any]:
    messages, edits = timeline.messages, selection.edits
    if edits:
        return [edits.get(i, messages[i]) for i in positions]
    return [messages[i] for i in positions]


def _put_together(
    thread: Thread,
    timeline: Timeline,
    selection: Selection,
    summary: Summary | None = None,
    warnings: tuple[str, ...] = (),
) -> FittedThread:
    chosen = selection.positions(timeline.pinned)
    shows_summary = summary is not None and bool(summary.shown)
    untouched = selection.complete and not shows_summary and len(chosen) == len(timeline)
    messages = timeline.messages[:] if untouched else _messages(timeline, selection, chosen)
    tokens = thread.measure.overhead + selection.tokens + timeline.pinned_tokens
    written: tuple[int, int] | None = None
    if summary is not None and shows_summary:
        shown = thread.codec.make("user", announce(summary.shown), origin="summary")
        pinned = set(timeline.pinned)
        at = next((n for n, i in enumerate(chosen) if i not in pinned), len(chosen))
        messages.insert(at, shown)
        written = (at, thread.measure.group([shown]))
        tokens += written[1]
    if not thread.measure.additive:
        tokens = thread.measure.total(messages)
    newest = timeline.newest
    asked = newest.question.start if newest and newest.question else None
    broken = _repaired(timeline, selection)
    failed = any(w.startswith("summary_failed") for w in warnings)
    return FittedThread(
        messages=messages,
        tokens=tokens,
        untouched=untouched,
        parts=decisions_on(timeline, thread.block, chosen, broken, selection.edits, written=written),
        warnings=(*warnings, *timeline.warnings),
        question=None if asked is None else bisect_left(chosen, asked) + shows_summary,
        state=remembered(timeline, selection, summary, failed=failed) if thread.remembers else None,
    )


def _repaired(timeline: Timeline, selection: Selection) -> list[Broken]:
    """Returns the broken messages among what is kept; what is older is gone anyway."""
    run = selection.run
    found = [Broken(position, reason) for position, reason in run.broken] if run else []
    oldest = 0 if selection.complete else min((u.start for u in selection.units), default=0)
    for turn in timeline.turns():
        if turn.stop <= (run.stop if run else oldest):
            break
        found += turn.broken
    return found + (timeline.leftovers() if selection.complete else [])
