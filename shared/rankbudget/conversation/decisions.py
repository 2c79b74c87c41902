"""A decision for every message of a conversation; those on dropped ones are made when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ..errors import counted
from ..messages.texts import texts_of
from ..segment import Action, Decision, DecisionRange
from .timeline import Timeline
from .units import Broken

_decision = partial(Decision, block="history")


def decisions_on(
    timeline: Timeline,
    chosen: list[int],
    broken: list[Broken],
    edits: Mapping[int, Any],
    written: tuple[int, int] | None,
) -> list[Decision | DecisionRange]:
    """Returns what was kept, shortened, repaired away and dropped, in this order.

    `written` says of a summary how many kept messages come before it, and its tokens.
    """
    decide = partial(_decide, timeline, {**timeline.stripped, **edits})
    parts: list[Decision | DecisionRange] = []

    def spread(size: int, find: Callable[[], Iterable[int]], action: Action, reason: str) -> None:
        def expand() -> Any:
            return (decide(i, action, reason) for i in find())

        if size:
            made = DecisionRange(block="history", action=action, reason=reason, size=size, expand=expand)
            parts.append(made)

    size = len(timeline.messages)
    cut = [i for i in edits if edits[i] != timeline.messages[i]]
    reasons = {**timeline.repairs, **dict.fromkeys(cut, "message_cap")}
    whole = [i for i in chosen if i not in reasons]
    if written is not None:
        ahead, whole = whole[: written[0]], whole[written[0] :]  # only pinned ones come before a summary
        spread(len(ahead), lambda: ahead, "kept", "fits")
        replaced = size - len(chosen)
        detail = f"It replaces {counted(replaced, 'dropped message')}."
        about = {"segment_id": "history-summary", "reason": "summary_of_dropped", "detail": detail}
        parts.append(_decision(**about, action="summarized", before=0, after=written[1]))
    spread(len(whole), lambda: whole, "kept", "fits")
    actions: dict[str, Action] = {"call_without_id": "kept"}
    parts += [decide(i, actions.get(reasons[i], "truncated"), reasons[i]) for i in chosen if i in reasons]
    parts += [decide(position, "trimmed", reason) for position, reason in broken]
    first = next((i for i in chosen if not timeline.is_pinned(i)), size)
    named = {*chosen, *(position for position, _ in broken)}
    since = timeline.first_turn
    runs = ((0, since, "older_than_last_turns"), (since, first, "older_than_cut"), (first, size, "no_room"))
    for start, stop, reason in runs:
        dropped, others = partial(_others, start, stop, named), sum([start <= i < stop for i in named])
        left = stop - start - others
        if timeline.stored is not None:
            read = [i for i in timeline.stored.loaded(start, stop) if i not in named]
            parts += [_unread(left - len(read))] if left > len(read) else []
            dropped, left = partial(list, read), len(read)
        spread(left, dropped, "trimmed", reason)
    return parts


def _unread(number: int) -> Decision:
    """Returns one decision for all stored messages that were not read: nothing of them is known."""
    was = "was" if number == 1 else "were"
    detail = f"{counted(number, 'older message')} of the stored conversation {was} not read."
    about = {"segment_id": "history-unread", "reason": "not_read", "detail": detail}
    return _decision(**about, action="trimmed", before=0, after=0)


def _others(start: int, stop: int, named: set[int]) -> list[int]:
    return [i for i in range(start, stop) if i not in named]


def _decide(timeline: Timeline, edits: Mapping[int, Any], at: int, action: Action, reason: str) -> Decision:
    message, group = timeline.given[at], timeline.measure.group
    before, detail = group([message]), ""
    after = 0 if action == "trimmed" else group([edits[at]]) if at in edits else before
    if action == "truncated":
        detail = _what_is_left(timeline, at, edits[at]) if reason == "message_cap" else ""
        if timeline.repairs.get(at) == "orphan_result":
            detail = f"{detail} Results without their call were removed.".strip()
    if action == "kept" and timeline.is_pinned(at):
        reason = "pinned"
    name = timeline.name(at)
    return _decision(segment_id=name, action=action, reason=reason, before=before, after=after, detail=detail)


def _what_is_left(timeline: Timeline, at: int, edited: Any) -> str:
    """Returns how many tokens of a shortened message's text are left, and which."""
    from ..compression.structured import what_is_left

    neutral = map(timeline.codec.to_dict, (timeline.messages[at], edited))
    texts, cuts = [texts_of(one.get("content")) for one in neutral]
    if not any(cuts):
        return "None of its text is left."
    before, after = (sum(timeline.thread.counter.count_many(each)) for each in (texts, cuts))
    each = " of each long text" if len(texts) == len(cuts) > 1 else ""
    if not each:  # as one text, of which whole blocks may be gone
        texts, cuts = ["\n".join(texts)], ["\n".join(cuts)]
    pairs = zip(texts, cuts, strict=True)
    parts = dict.fromkeys([what_is_left(text, cut) for text, cut in pairs if text != cut])
    return f"{after:,} of {counted(before, 'token')} of its text are left: {' or '.join(parts)}{each}."
