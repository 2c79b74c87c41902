"""What a plan's report says, made when read: totals, decisions, texts, warnings, what brings a piece back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..conversation.older import least_price, may_be_short
from ..conversation.selection import MUST, OLDER, REST_SHARE, in_order_of_importance
from ..conversation.timeline import Timeline
from ..conversation.units import Unit
from ..errors import counted, did_you_mean
from ..report.parts import KnownPiece, Part
from ..report.report import BudgetReport, MoreTokens
from ..report.totals import BlockTotal
from ..report.words import warnings_for
from ..segment import BLOCKS, Block, Decision, DecisionRange, block_named
from .fitted import Fitted, Rendered
from .grants import Inputs, Prices
from .layout import STATIC
from .request import PromptRequest

Kept = frozenset[tuple[str, str]]
"""Block and id of every piece that is in a prompt."""

Thresholds = Mapping[tuple[str, str], int]
"""Tokens more by block and id."""

_LEAST_REFITS, _MOST_PIECES = 64, 150_000
"""Refits of one report, however many pieces there are; and pieces that all refits together may fit again."""
Again = Callable[[int], BudgetReport]
"""The report of the same request with so many more tokens."""

_IN_PROMPT = {name: i for i, name in enumerate((*STATIC, "history"))}
"""The place of each block; others follow, the question is last."""


def contents(request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered) -> Mapping[str, Any]:
    """Returns totals and decisions. A block's tags are overhead.

    Where joined texts and merged messages cost less than one by one, the largest block has saved it.
    """
    fitted, history = rendered.fitted, rendered.fitted.history
    totals = _totals(request, inputs, prices, fitted)
    parts: list[Part] = [_always(t, prices) for t in totals if t.granted is None]
    parts += inputs.hidden
    for kept in fitted.fits.values():
        parts += kept.decisions
    if history is not None:
        given = request.history_block
        parts += _named(history.decide(), given) if given is not None and given.segments else history.decide()
    joined = set() if inputs.measure.additive or history is None else {"history"}
    overhead = rendered.total - sum([total.used for total in totals])
    if overhead < 0:
        largest = max(range(len(totals)), key=lambda i: totals[i].used)
        totals[largest] = replace(totals[largest], used=totals[largest].used + overhead)
        joined.add(totals[largest].name)
    return {"overhead": max(0, overhead), "totals": totals, "parts": parts, "joined": joined}


def known_pieces(
    request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted
) -> Iterator[KnownPiece]:
    """Yields every piece as it was given and as it reads, under the id of its decision.

    It is made only for who passes texts, as a page does, which must not mix them up.
    """
    if len(request.system) == 1:
        yield KnownPiece("system", "system", tuple(request.system), tuple(request.system))
    yield from _known_messages(request, inputs, fitted)
    for block in inputs.blocks:
        reads = {piece.segment.id: piece for piece in fitted.fits[block.name].pieces}
        for segment in block.segments:
            whole, piece = (segment, segment.source), reads.get(segment.id)
            shorter = () if piece is None else (piece.rendition.text,)
            yield KnownPiece(
                block.name, segment.id, whole, whole if piece is None or piece.whole else shorter
            )
    asked = request.question_text if request.question is None else request.question
    yield KnownPiece("query", "query", () if prices.question_before else (asked,), (asked,))


def _known_messages(request: PromptRequest, inputs: Inputs, fitted: Fitted) -> Iterator[KnownPiece]:
    """Yields the messages of the conversation, without those of a stored one that were not read."""
    timeline, history, given = inputs.timeline, fitted.history, request.history_block
    if timeline is None or history is None:
        return
    own = {f"history-{i}": s.id for i, s in enumerate(given.segments)} if given is not None else {}
    size = len(timeline.messages)
    for i in range(size) if timeline.stored is None else timeline.stored.loaded(0, size):
        name, message = timeline.name(i), timeline.given[i]
        yield KnownPiece("history", own.get(name, name), (message,), (history.edits.get(i, message),))
    yield KnownPiece("history", "history-summary", (), (history.summary,))


def _totals(request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted) -> list[BlockTotal]:
    """Returns the figures of each block in the order of the prompt."""
    rank = request.budget.rank_of
    totals = []
    if request.system:
        totals.append(BlockTotal(name="system", rank=rank("system"), granted=None, used=prices.system_tokens))
    if fitted.history is not None:
        used = fitted.history.tokens - inputs.overhead
        granted, given = fitted.granted["history"], request.history_block
        own = (given.rank if given is not None else None) or rank("history")
        totals.append(BlockTotal(name="history", rank=own, granted=granted, used=used))
    for block in inputs.blocks:
        name, wish = block.name, prices.wishes[block.name]
        frame = wish.base if fitted.fits[name].pieces else 0
        used = fitted.fits[name].tokens - frame
        wanted = wish.all_of(block) if request.cost is None else None
        total = BlockTotal(
            name=name,
            rank=block.rank or rank(name),
            granted=fitted.granted[name],
            used=used,
            wanted=wanted,
            frame=wish.base,
        )
        totals.append(total)
    if request.question is not None:
        used = inputs.measure.group([request.question])
        totals.append(BlockTotal(name="query", rank=rank("query"), granted=None, used=used))
    elif request.render is not None and request.asked_elsewhere and request.question_text:
        used = request.counter.count(request.question_text)  # the host's template shows it
        totals.append(BlockTotal(name="query", rank=rank("query"), granted=None, used=used))
    return sorted(totals, key=lambda t: _IN_PROMPT.get(t.name, 99 if t.name == "query" else 50))


def _always(total: BlockTotal, prices: Prices) -> Decision:
    """Returns the decision on what always stays; only a question may be cut."""
    used, name = total.used, total.name
    made = Decision(segment_id=name, block=name, action="kept", reason="pinned", before=used, after=used)
    if name == "query" and prices.question_before:
        return replace(made, action="truncated", reason="message_cap", before=prices.question_before)
    return made


def _named(parts: Sequence[Part], history: Block) -> list[Part]:
    """Returns the decisions on a history of segments under the segments' own ids; messages keep theirs."""
    names = {f"history-{i}": s.id for i, s in enumerate(history.segments)}

    def name(part: Part) -> Any:
        if isinstance(part, DecisionRange):
            return replace(part, expand=lambda: map(name, part.expand()))
        return replace(part, segment_id=names.get(part.segment_id, part.segment_id))

    return [name(part) for part in parts]


def warnings(request: PromptRequest, inputs: Inputs, prices: Prices, rendered: Rendered) -> list[str]:
    """Returns what went wrong on the way and what the totals do not show."""
    budget, history = request.budget, rendered.fitted.history
    noted = [*request.notes, *(history.warnings if history is not None else ())]
    noted += [note for block in request.blocks for note in block.notes]
    if request.held:
        noted.append("the provider adds what it stores of this conversation, which is not counted")
    stored = inputs.timeline.stored if inputs.timeline is not None else None
    unread = len(stored) - len(stored.loaded(0, len(stored))) if stored is not None else 0
    if unread:
        was = "was" if unread == 1 else "were"
        noted.append(f"{counted(unread, 'older message')} of the stored conversation {was} not read")
    if inputs.hidden:
        hidden = len(inputs.hidden)
        belong = "belongs" if hidden == 1 else "belong"
        noted.append(f"out_of_scope: {counted(hidden, 'segment')} {belong} to other users or projects")
    noted += _without_block(request, inputs)
    limits = [budget.sizes["system"]] if "system" in budget.sizes else []
    if budget.max_system_ratio is not None:
        limits.append(int(budget.context_window * budget.max_system_ratio))
    return noted + warnings_for(
        window=budget.context_window,
        system_tokens=prices.system_text,
        system_limit=min(limits, default=None),
        task_turns=request.task_turns,
    )


def _without_block(request: PromptRequest, inputs: Inputs) -> list[str]:
    """Returns a warning for each name in the budget that no block of a prompt of many blocks has.

    It is no error: a budget may be shared with prompts that have such a block.
    """
    budget, sources = request.budget, inputs.turn.sources
    if request.covers not in ("prompt", "blocks") or not sources or sources == {"history"}:
        return []
    names = [*BLOCKS, *sorted(sources), *(block.name for block in inputs.blocks)]
    blocks = [*names, *map(block_named, names)]
    named = dict.fromkeys([*budget.ratios, *budget.sizes, *budget.ranks])
    return [
        f"the budget names {name!r}, which is no block of this prompt{did_you_mean(name, blocks)}"
        for name in named
        if name not in blocks
    ]


# ---- what brings a piece back ---------------------------------------------------------------------


def needs(
    request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted, again: Again, report: BudgetReport
) -> MoreTokens:
    """Returns what says how many more tokens bring back a piece that this plan dropped."""

    def refit(more: int) -> Kept:
        return again(more).in_prompt() if more else report.in_prompt()

    dropped = sum([d.before for d in report.decisions if d.action == "trimmed"])
    return _Needs(
        refit=refit,
        thresholds=_thresholds(request, inputs, prices),
        expected={
            (name, segment_id): tokens + prices.wishes[name].base - fitted.granted[name]
            for name, fit in fitted.fits.items()
            for segment_id, tokens in fit.needed().items()
        },
        left=max(_LEAST_REFITS, _MOST_PIECES // max(1, report.size)),
        most=64 * (dropped + prices.limit) + 1024,
    ).tokens


def _thresholds(request: PromptRequest, inputs: Inputs, prices: Prices) -> dict[tuple[str, str], int]:
    """Returns what each message of a conversation alone needs: it is kept in a known order."""
    timeline = inputs.timeline
    exact = inputs.measure.additive and not request.counter.band and not request.moves
    by_age = not request.query and request.history_tokens is None
    if timeline is None or timeline.stored is not None or not (exact and by_age and inputs.alone):
        return {}  # for these numbers all of a stored conversation would be read
    if timeline.thread.cut != "fill":
        return {}
    found: dict[tuple[str, str], int] = {}
    for used, units in _older_by_need(timeline):
        more = used + timeline.pinned_tokens - prices.room
        for position in [p for unit in units for p in unit.positions()] if more > 0 else ():
            found["history", timeline.name(position)] = more
    return found


def _older_by_need(timeline: Timeline) -> Iterator[tuple[int, list[Unit]]]:
    """Yields units of older turns with the least that they and all before them need, where that is known."""
    must = used = 0
    for importance, units in in_order_of_importance(timeline, timeline.thread.min_exchanges):
        if may_be_short(timeline, importance, units):
            return  # what is older comes back before this is whole
        least, used = used + least_price(timeline, units), used + timeline.cost(units)
        must = used if importance == MUST else must
        whole = not timeline.shortens or must <= least * (1 - REST_SHARE)
        if importance == OLDER and whole:
            yield least, units


@dataclass(slots=True, kw_only=True)
class _Needs:
    """Answers for each dropped piece of one plan; every answer was tried out, one token less too."""

    refit: Callable[[int], Kept]  # what the plan keeps with so many more tokens
    thresholds: Thresholds  # that need no refit
    expected: Thresholds  # first guesses at others
    left: int  # refits that may still be made
    most: int  # more tokens than the whole input needs, whatever share of them a block gets
    tried: dict[int, Kept] = field(default_factory=dict)

    def tokens(self, block: str, segment_id: str) -> int | None:
        """Returns how many more tokens the prompt needs for a piece; 0 if none help, None if unknown."""
        piece = (block, segment_id)
        if piece in self.thresholds:
            return self.thresholds[piece]
        if not self.tried:
            self.tried = {more: self.refit(more) for more in (0, self.most)}
        if piece not in self.tried[self.most]:
            return 0
        high = min(n for n, kept in self.tried.items() if piece in kept)
        low = max(n for n in self.tried if n < high)
        guess = self.expected.get(piece, 0)
        guesses = [guess - 1, guess]
        while high - low > 1:
            if not self.left:
                return None
            self.left -= 1
            guesses = [n for n in guesses if low < n < high]
            # Without a guess it looks close to `low`: nothing is known of how far to go.
            middle = guesses.pop() if guesses else min((low + high) // 2, 2 * low + 64)
            self.tried[middle] = self.refit(middle)
            if piece in self.tried[middle]:
                high = middle
            else:
                low = middle
        return high
