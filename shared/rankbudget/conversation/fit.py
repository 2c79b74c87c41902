"""One conversation and a limit in, a valid conversation within it out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .._drivers import Steps
from ..errors import BudgetExceededError, too_large
from .capping import VERY_LEAST, cuttable, shortened
from .decisions import decisions_on
from .selection import Selection, cost_of_waiting, cost_within, fill, left_by_running, minimum_sets
from .state import Summary
from .summary import left_out, running_tokens, summarize
from .thread import FittedThread
from .timeline import Timeline
from .units import Broken, Unit

SUMMARY_SHARE = 0.3
"""Part of the history's room that a summary of what was dropped may take."""
_ROUNDS, _UNKNOWN = 8, 1 << 62
_STORED = "results of calls that the provider stores"
_STEP = "newest tool call with its results"


class Needs(NamedTuple):
    """What a conversation wants at the least, in tokens."""

    exchanges: int = 0  # of the last exchanges and of the system messages, at the cost of lower ranks
    must: int = 0  # of what must stay: system messages and, when it is among the messages, the question
    whole: int = 0  # of the last exchanges and the system messages, before anything of them is shortened


def needs_of(timeline: Timeline, room: int) -> Needs:
    """Returns what the conversation needs of `room` tokens, before anything is granted.

    Where the last exchanges, or a longer running turn, do not fit whole they are shortened, and take what
    that needs, up to half of the room; in a larger room all that is more than they want whole. So it never
    leaves others less. The question stays whole where it fits, and of its pending step what cannot be cut.
    """
    room -= timeline.pinned_tokens
    sets = minimum_sets(timeline, timeline.thread.min_exchanges)
    costs = [timeline.cost(units) for units in sets]
    must = min(costs, default=0)
    if timeline.running is not None:
        costs.append(cost_within(timeline, timeline.running.units, room))
    whole = max(costs, default=0) + cost_of_waiting(timeline, timeline.thread.min_exchanges)
    exchanges = whole
    if 2 * whole > room:
        least = [_least_cost(timeline, units) for units in sets]
        must = min([_least_cost(timeline, units, question=False) for units in sets], default=0)
        must = must if must <= room else min(least, default=0)
        half = max(0, min(room, whole)) // 2
        exchanges = min(whole, min(max(least, default=0), half) + max(0, room - whole))
    if timeline.ended:
        must = 0
    pinned = timeline.pinned_tokens
    return Needs(pinned + max(must, exchanges), pinned + must, pinned + whole)


def least_parts(timeline: Timeline, room: int = -1) -> dict[str, int]:
    """Returns what must stay of a conversation that has more than `room` tokens, by part; texts shortened."""
    newest, question, step = timeline.newest, 0, 0
    if newest is None or timeline.ended:
        question = max(0, room + 1)
    else:
        smallest = _least_cost(timeline, minimum_sets(timeline, 1)[-1])
        step = _least_cost(timeline, timeline.pending_step(newest)) if newest.question is not None else 0
        question = max(0, max(smallest, room + 1) - step)
    results = [timeline.messages[p] for p in timeline.pinned if timeline.role(p) == "tool"]
    stored = timeline.measure.group(results) if results else 0
    return {"system": timeline.pinned_tokens - stored, _STORED: stored, "question": question, _STEP: step}


def fit_thread(timeline: Timeline, limit: int, *, beside: int = 0) -> Steps[FittedThread]:
    """Fits one conversation into `limit` tokens, tools and priming of the request included.

    An error counts in what other parts of the prompt hold, `beside`.

    Raises:
        BudgetExceededError: system messages and the current question alone exceed the limit.
    """
    room = limit - timeline.overhead - timeline.pinned_tokens
    select = _select_by_parts if timeline.measure.additive else _select_counted
    selection = select(timeline, room) if room >= 0 or not timeline.measure.additive else None
    if selection is None:
        raise _refused(timeline, limit, room, beside)
    if timeline.thread.summarizer is None or (selection.complete and not timeline.first_turn):
        return _put_together(timeline, selection)
    return (yield from _with_summary(timeline, select, selection, room, limit))


def _with_summary(
    timeline: Timeline,
    select: Callable[[Timeline, int], Selection | None],
    selection: Selection,
    room: int,
    limit: int,
) -> Steps[FittedThread]:
    """Returns what stays with a summary of the rest, or without one where that has no room."""
    smaller = selection  # nothing is left out of last turns that leave half of a summary's share
    if not selection.complete or 2 * (room - selection.tokens) < int(room * SUMMARY_SHARE):
        smaller = _beside_summary(timeline, select, selection, room)
    summary, fitted, warnings = yield from _summarized(timeline, smaller, room)
    if fitted is not None and fitted.tokens <= limit:
        return fitted
    if fitted is not None:
        warnings = (*warnings, "summary_left_out: in its place it is over the limit")
    timeline.shortens = timeline.thread.message_cap is not None
    selection = select(timeline, room) or selection
    if not summary.text and not warnings:  # the next read would ask for one of what this leaves out
        summary, fitted, warnings = yield from _summarized(timeline, selection, room)
    if fitted is not None and fitted.tokens <= limit:
        return fitted
    if not warnings and len(_kept(timeline, selection)) < len(timeline.messages):
        warnings = ("summary_left_out: what must stay leaves no room for it",)
    return _put_together(timeline, selection, summary, None, warnings)


def _beside_summary(
    timeline: Timeline, select: Callable[[Timeline, int], Selection | None], whole: Selection, room: int
) -> Selection:
    """Returns what stays beside a summary: `whole` where it has no room.

    Texts that are shortened anyway, and a running turn that does not fit, leave it its share, or what the
    running one takes while that covers all that is left out. Others are shortened for a running one only.
    """
    share, left = int(room * SUMMARY_SHARE), left_by_running(timeline, room)
    left = share if left is None else left
    running = running_tokens(timeline, share)
    reserved = min(share, left) if left >= running else share
    smaller = select(timeline, room - reserved)
    same = smaller if smaller is not None and smaller.caps in ({}, whole.caps) else None
    as_it_is = _within(timeline, select, whole, room - running) if running else None
    covered = as_it_is is not None and not left_out(timeline, _kept(timeline, as_it_is))[1]
    if as_it_is is not None and covered and (as_it_is.caps or same is None):
        return as_it_is
    if same is not None:
        return same
    may_shorten = any((whole.caps, running, left < 0))
    found = _within(timeline, select, whole, room - share) if may_shorten else None
    return found or as_it_is or whole


def _within(
    timeline: Timeline, select: Callable[[Timeline, int], Selection | None], whole: Selection, room: int
) -> Selection | None:
    """Returns what stays in less room; None where that cuts the question or parts of the last exchange."""
    found = select(timeline, room)
    return found if found is not None and _keeps_last(timeline, found, whole) else None


def _keeps_last(timeline: Timeline, smaller: Selection, whole: Selection) -> bool:
    """Returns whether the question is not cut, and what `whole` has of the last exchange stays."""
    units = next(iter(minimum_sets(timeline, 1)), [])
    last = {i for unit in units for i in unit.positions()}.intersection(whole.positions())
    return timeline.asked not in smaller.caps and last.issubset(smaller.positions())


def _kept(timeline: Timeline, selection: Selection) -> set[int]:
    """Returns the positions that no summary has to cover: what is kept, and broken messages."""
    broken = [position for position, _ in _repaired(timeline, selection)]
    return {*selection.positions(timeline.pinned), *broken}


def _summarized(
    timeline: Timeline, selection: Selection, room: int
) -> Steps[tuple[Summary, FittedThread | None, tuple[str, ...]]]:
    """Returns a summary of what is left out, the result that shows it, or None without room, and warnings."""
    share = min(int(room * SUMMARY_SHARE), room - selection.tokens)
    summary, shown, warning = yield from summarize(timeline, _kept(timeline, selection), share)
    warnings = (warning,) if warning else ()
    if shown is None:
        return summary, None, warnings
    return summary, _put_together(timeline, selection, summary, shown, warnings), warnings


def _refused(timeline: Timeline, limit: int, room: int, beside: int) -> BudgetExceededError:
    """Returns the error that says what the smallest valid conversation needs."""
    parts = least_parts(timeline, room)
    step_words = ", the newest tool call, its results" if parts[_STEP] else ""
    if parts[_STORED]:
        step_words += ", what your tools return (BudgetMiddleware(tool_result_tokens=) does)"
    asked = None if timeline.ended else timeline.asked
    advice = (
        ", or set shorten_question=True (a TokenBudget has it, and fit_messages)"
        if asked is not None
        and timeline.is_longer(asked, VERY_LEAST)
        and not timeline.thread.shorten_question
        else ""
    )
    parts |= {"tools and framing": timeline.overhead, "rest of the prompt": beside}
    shorter = f"the system messages, the tools{step_words} or the question{advice}"
    return too_large(parts, limit + beside, f"Raise the limit, or shorten {shorter}.")


def _least_cost(timeline: Timeline, units: Sequence[Unit], *, question: bool = True) -> int:
    """Returns what units cost with each text that may be cut, the `question` too, as short as it may be."""
    inside = {i for unit in units for i in unit.positions()}
    may_be_cut = inside.intersection(cuttable(timeline, units, last=question)[-1])
    long = [i for i in may_be_cut if timeline.is_longer(i, VERY_LEAST)]
    return timeline.cost(units, shortened(timeline, dict.fromkeys(long, VERY_LEAST)))


# ---- what stays ------------------------------------------------------------------------------------------


def _select_by_parts(timeline: Timeline, room: int) -> Selection | None:
    """Returns what stays within `room` tokens, None when not even the smallest conversation fits."""
    minimum, known = timeline.thread.min_exchanges, timeline.known
    found: Selection | None = None
    if known is not None:
        from .cuts import resume  # loaded only by sessions

        found = resume(timeline, room, minimum, known)
    elif timeline.thread.cut == "stable":
        from .cuts import stable

        found = stable(timeline, room, minimum)
    elif timeline.thread.query and not timeline.thread.remembers:
        from .relevant import relevant  # scorers are loaded only by those who ask

        found = relevant(timeline, room)
    found = found or fill(timeline, room, minimum)
    if found is None or (found.older and timeline.shortens and known is None):
        from .older import with_shortened  # loaded only where not all fits

        found = with_shortened(timeline, room, minimum)
    if found is not None:
        found.room = room
    return found


def _select_counted(timeline: Timeline, room: int) -> Selection | None:
    """Where counts do not add up: selects, counts the result whole, and selects again with the difference.

    Between the room of a selection that fits and the tokens of one that does not, the largest is tried next.
    """
    target = room + timeline.pinned_tokens + timeline.overhead
    best: Selection | None = None
    kept, aim, fits, over = 0, max(0, room), -1, _UNKNOWN
    for _ in range(_ROUNDS):
        selection = _select_by_parts(timeline, aim)
        if selection is None:
            break
        messages = selection.messages(timeline)
        spare = target - timeline.total(messages)
        if spare < 0:
            over = min(over, selection.tokens)
            aim = max(0, selection.tokens + spare, (fits + over) // 2)
        else:
            same = best is not None and selection.tokens == best.tokens
            if len(messages) >= kept:
                best, kept = selection, len(messages)
            if selection.complete or selection.cut is not None:
                break  # with more room, a remembered cut would be chosen anew
            fits, aim = aim, over - 1 if same and over < _UNKNOWN else min(aim + max(1, spare), over - 1)
        if not fits < aim < over:
            break
    for selection in _counted_too_high(timeline, best, kept):
        if timeline.total(selection.messages(timeline)) <= target:
            return selection
    return best


def _counted_too_high(timeline: Timeline, best: Selection | None, kept: int) -> list[Selection]:
    """Returns what may fit after all when it is counted whole: the smallest conversations, or everything."""
    if best is None or timeline.asked in best.edits:
        sets = minimum_sets(timeline, timeline.thread.min_exchanges)
        return [Selection(units, timeline.cost(units)) for units in sets]
    if best.complete or len(timeline.messages) > 4 * kept + 16:
        return []
    everything = fill(timeline, 1 << 62, 0)
    return [] if everything is None else [everything]


# ---- what is returned -------------------------------------------------------------------------------------


def _put_together(
    timeline: Timeline,
    selection: Selection,
    summary: Summary | None = None,
    shown: Any = None,
    warnings: tuple[str, ...] = (),
) -> FittedThread:
    """Returns what stays with the summary that `shown` shows, its decisions, and what a session remembers."""
    chosen, edits = selection.positions(timeline.pinned), selection.edits
    messages = list(map(timeline.messages.__getitem__, chosen))
    if edits:
        messages = [edits.get(i, whole) for i, whole in zip(chosen, messages, strict=True)]
    tokens = timeline.overhead + selection.tokens + timeline.pinned_tokens
    written: tuple[int, int] | None = None
    if shown is not None:
        pinned = set(timeline.pinned)
        at = next((n for n, i in enumerate(chosen) if i not in pinned), len(chosen))
        messages.insert(at, shown)
        written = (at, timeline.measure.group([shown]))
        tokens += written[1]
    state = timeline.known
    failed = any(warning.startswith("summary_failed") for warning in warnings)
    resumed = selection.run is not None and not selection.edits and summary is None
    if timeline.thread.remembers and not (resumed and timeline.is_as_remembered()):
        from .cuts import remembered

        state = remembered(timeline, selection, _repaired(timeline, selection), summary, failed=failed)
    asked = timeline.asked
    # Asked for now: a report may be read after others have changed a stored conversation.
    opens = not timeline.first_turn and selection.complete
    return FittedThread(
        messages=messages,
        tokens=tokens if timeline.measure.additive else timeline.total(messages),
        decide=partial(_decide, timeline, selection, chosen, written, opens=opens),
        warnings=warnings,
        question=None if asked is None else bisect_left(chosen, asked) + (shown is not None),
        state=state,
        unsummarized=summary is not None and (failed or shown is None),
        edits={**timeline.stripped, **edits},
        summary=shown,
    )


def _decide(
    timeline: Timeline,
    selection: Selection,
    chosen: list[int],
    written: tuple[int, int] | None,
    *,
    opens: bool,
) -> list[Any]:
    """Returns the decisions; `opens` says that the oldest that is kept opens the conversation."""
    broken = _repaired(timeline, selection) + (timeline.leftovers() if opens else [])
    return decisions_on(timeline, chosen, broken, selection.edits, written)


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
