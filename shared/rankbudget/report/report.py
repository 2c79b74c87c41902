"""What became of every segment and why, with totals for each block.

Every call makes a report, and few are looked at: counts, dropped ranges and warnings are worked out on
first access.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from ..errors import BudgetError
from ..segment import Decision, DecisionRange
from .html import page
from .table import table

__all__ = ["BlockTotal", "BudgetReport", "warnings_for"]

Covers = Literal["prompt", "history", "documents", "examples"]
Part = Decision | DecisionRange
Warnings = Sequence[str] | Callable[[], Sequence[str]]
MoreTokens = Callable[[str, str, int], int | None]
"""(block, segment id, first guess) -> tokens more that bring a piece back; 0 if none do, None if unknown."""

_PLAIN = (
    "limit", "total_tokens", "window", "reserve", "safety", "overhead", "counter", "exact", "model", "covers",
)  # fmt: skip
_BROKEN = frozenset({"orphan_result", "unanswered_call", "leading_assistant", "out_of_scope", "discarded"})
"""Reasons that hold at any size."""
_SHORT_HISTORY = 100
_NEAR_LIMIT = 0.80
_STALE_TURNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTotal:
    """One block in figures.

    Args:
        name: the block.
        rank: its importance, 1 = cut last.
        granted: tokens it was allowed; None where only the window limits it.
        used: tokens that are in the prompt.
        wanted: tokens it would have used, where known.
        kept: segments kept whole; the report counts this and the next two from its decisions.
        shortened: segments truncated, compressed or summarized.
        dropped: segments trimmed.

    Example:
        >>> BlockTotal(name="history", rank=5, granted=400, used=100).utilization
        0.25
    """

    name: str
    rank: int
    granted: int | None
    used: int
    wanted: int | None = None
    kept: int = 0
    shortened: int = 0
    dropped: int = 0

    @property
    def size(self) -> int:
        """How many segments it has, dropped ones included."""
        return self.kept + self.shortened + self.dropped

    @property
    def utilization(self) -> float | None:
        """Share of the grant that is used, 0 to 1; None without a grant."""
        if self.granted is None:
            return None
        return self.used / self.granted if self.granted else 0.0


class BudgetReport:
    """Says how large the prompt is, what it may be, and what became of every segment. It never changes.

    Args:
        limit: tokens the prompt may have: window - reserve - safety, or the bare `max_tokens`.
        total_tokens: tokens of the finished prompt, counted on its final form.
        window: the context window, where there is one.
        reserve: tokens kept for the answer.
        safety: tokens kept free because counts may be too low.
        overhead: tokens that belong to no block: reply priming, message framing, tool schemas.
        blocks: the blocks in prompt order.
        parts: decisions in order; a range stands for many and is expanded on first access.
        warnings: sentences, or a function that makes them; what the decisions show is added.
        counter: name of the token counter.
        exact: whether it knows or estimates.
        model: the model's name, where known.
        covers: what the report is about: the whole prompt, or the part of it that this entry point sees.
        joined: blocks whose pieces cost another number of tokens together than one by one; the last kept
            piece takes the difference.
        needs: makes, of the report, what says how many more tokens bring a piece back.

    Example:
        >>> from functools import partial
        >>> message = partial(Decision, block="history")
        >>> report = BudgetReport(
        ...     limit=100,
        ...     total_tokens=60,
        ...     blocks=[BlockTotal(name="history", rank=5, granted=80, used=57)],
        ...     parts=[
        ...         message(segment_id="m1", action="trimmed", reason="older_than_cut", before=70, after=0),
        ...         message(segment_id="m2", action="kept", reason="fits", before=57, after=57),
        ...     ],
        ...     overhead=3,
        ... )
        >>> print(report.table())
        block     rank  granted  used  share  kept  shortened  dropped
        history      5       80    57    71%     1          0        1
        overhead                    3
        total               100    60    60%     1          0        1
        covers the whole prompt
        warning: dropped 1 of 2 segments: history 1 of 2
        warning: history has only 57 tokens left: context may be lost
        >>> print(report.explain("m1"))
        m1 (history) was dropped: older_than_cut. It has 70 tokens; the block was granted 80 and uses 57.
    """

    limit: int
    total_tokens: int
    window: int | None
    reserve: int
    safety: int
    overhead: int
    parts: tuple[Part, ...]
    counter: str
    exact: bool
    model: str | None
    covers: Covers
    _given: tuple[BlockTotal, ...]
    _noted: Warnings
    _joined: Collection[str]
    _needs: Callable[[BudgetReport], MoreTokens] | None

    def __init__(
        self,
        *,
        limit: int,
        total_tokens: int,
        window: int | None = None,
        reserve: int = 0,
        safety: int = 0,
        overhead: int = 0,
        blocks: Iterable[BlockTotal] = (),
        parts: Iterable[Part] = (),
        warnings: Warnings = (),
        counter: str = "",
        exact: bool = True,
        model: str | None = None,
        covers: Covers = "prompt",
        joined: Collection[str] = (),
        needs: Callable[[BudgetReport], MoreTokens] | None = None,
    ) -> None:
        self.__dict__.update(
            limit=limit, total_tokens=total_tokens, window=window, reserve=reserve, safety=safety,
            overhead=overhead, parts=tuple(parts), counter=counter, exact=exact, model=model, covers=covers,
            _given=tuple(blocks), _noted=warnings, _joined=joined, _needs=needs,
        )  # fmt: skip

    def __setattr__(self, name: str, *_: object) -> None:
        msg = f"a BudgetReport never changes; {name!r} cannot be set or deleted"
        raise AttributeError(msg)

    __delattr__ = __setattr__

    def __repr__(self) -> str:
        return (
            f"BudgetReport({self.total_tokens:,} of {self.limit:,} tokens, {len(self._given)} blocks, "
            f"{self.size:,} decisions)"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetReport) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which may be long

    def __reduce__(self) -> tuple[object, ...]:
        return BudgetReport.from_dict, (self.to_dict(),)  # ranges hold closures, which cannot be pickled

    def replace(self, **changes: Any) -> BudgetReport:
        """Returns the report with other values for some of its arguments."""
        given = {name: getattr(self, name) for name in _PLAIN}
        given |= {"blocks": self._given, "parts": self.parts, "warnings": self._noted}
        given |= {"joined": self._joined, "needs": self._needs}
        return BudgetReport(**(given | changes))

    def noting(self, *warnings: str) -> BudgetReport:
        """Returns the report with more warnings."""
        return self.replace(warnings=lambda: (*self._own_warnings(), *warnings)) if warnings else self

    def without(self, name: str) -> BudgetReport:
        """Returns the report without one block and its decisions; the totals stay."""
        return self.replace(
            blocks=[block for block in self._given if block.name != name],
            parts=[part for part in self.parts if part.block != name],
        )

    # ---- what it says ----------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """How many decisions there are; expands nothing."""
        return sum(_size(part) for part in self.parts)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, ranges expanded."""
        found: list[Decision] = []
        for part in self.parts:
            found.extend(part.expand() if isinstance(part, DecisionRange) else (part,))
        for block in self._given:
            if block.name in self._joined:
                _make_sum(found, block)
        return tuple(found)

    @cached_property
    def blocks(self) -> tuple[BlockTotal, ...]:
        """The blocks with their counts of kept, shortened and dropped segments; expands nothing."""
        counts: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            outcome = {"kept": "kept", "trimmed": "dropped"}.get(part.action, "shortened")
            of_block = counts.setdefault(part.block, {"kept": 0, "shortened": 0, "dropped": 0})
            of_block[outcome] += _size(part)
        return tuple([replace(block, **counts.get(block.name, {})) for block in self._given])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong, one sentence each; expands nothing."""
        return tuple(dict.fromkeys([*self._own_warnings(), *_warnings_of(self.blocks)]))

    def _own_warnings(self) -> Sequence[str]:
        return self._noted() if callable(self._noted) else self._noted

    def block(self, name: str) -> BlockTotal:
        """Returns the figures of one block."""
        for block in self.blocks:
            if block.name == name:
                return block
        names = ", ".join(repr(block.name) for block in self._given) or "none"
        msg = f"the report has no block {name!r}; it has {names}"
        raise BudgetError(msg)

    def kept_ids(self, block: str | None = None) -> tuple[str, ...]:
        """Returns the ids of all segments that are in the prompt, whole or shortened, in order."""
        kept = [found for found in self.decisions if found.action != "trimmed"]
        return tuple([found.segment_id for found in kept if block in (None, found.block)])

    def in_prompt(self) -> frozenset[tuple[str, str]]:
        """Returns block and id of all segments that are in the prompt; expands no dropped ones."""
        kept = [part for part in self.parts if part.action != "trimmed"]
        ranges = [part.expand() if isinstance(part, DecisionRange) else (part,) for part in kept]
        return frozenset([(d.block, d.segment_id) for found in ranges for d in found])

    def explain(self, segment_id: str, block: str | None = None) -> str:
        """Returns why a segment is in the prompt or not, and how many more tokens would bring it back.

        The number is added to the room of the whole prompt; the same call with one token less drops the
        segment again. Without a number it is not known.
        """
        found = [d for d in self._by_id.get(segment_id, ()) if block in (None, d.block)]
        if not found:
            place = f" in block {block!r}" if block else ""
            msg = f"the report has no segment {segment_id!r}{place}; ids are in report.decisions"
            raise BudgetError(msg)
        return " ".join(map(self._explain, found))

    @cached_property
    def _by_id(self) -> dict[str, list[Decision]]:
        found: dict[str, list[Decision]] = {}
        for decision in self.decisions:
            found.setdefault(decision.segment_id, []).append(decision)
        return found

    # ---- its forms -------------------------------------------------------------------------------
    def table(self) -> str:
        """Returns the blocks as aligned plain text."""
        return table(self._totals())

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain data, ranges expanded."""
        return {**self._totals(), "decisions": [asdict(decision) for decision in self.decisions]}

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def to_html(self) -> str:
        """Returns one self-contained page: totals, a bar of the window, every decision; text is escaped."""
        return page(self.to_dict())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetReport:
        """Returns the report that `to_dict` wrote."""
        values = {name: data[name] for name in _PLAIN if name in data}
        blocks = [{k: v for k, v in block.items() if k != "utilization"} for block in data["blocks"]]
        made = cls(
            **values,
            blocks=[BlockTotal(**block) for block in blocks],
            parts=[Decision(**decision) for decision in data["decisions"]],
        )
        made.__dict__["warnings"] = tuple(data["warnings"])
        return made

    def _totals(self) -> dict[str, Any]:
        """Returns everything but the decisions as plain data."""
        blocks = [{**asdict(block), "utilization": block.utilization} for block in self.blocks]
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "blocks": blocks, "warnings": list(self.warnings)}

    def _explain(self, decision: Decision) -> str:
        name, reason = f"{decision.segment_id} ({decision.block})", decision.reason
        detail = f" {decision.detail}" if decision.detail else ""
        before, after = f"{decision.before:,}", f"{decision.after:,}"
        if decision.action == "kept":
            return f"{name} was kept whole: {reason}, {after} tokens.{detail}"
        if decision.action != "trimmed":
            return f"{name} was {decision.action}: {reason}, from {before} to {after} tokens.{detail}"
        dropped = f"{name} was dropped: {reason}. It has {before} tokens"
        if reason in _BROKEN:
            return f"{dropped}; no budget would bring it back.{detail}"
        return f"{dropped}; {self._missing_room(decision)}{detail}"

    def _missing_room(self, decision: Decision) -> str:
        total = next((block for block in self._given if block.name == decision.block), None)
        granted = self.limit if total is None or total.granted is None else total.granted
        used = self.total_tokens if total is None else total.used
        figures = f"the block was granted {granted:,} and uses {used:,}"
        more = None
        if self._more is not None:
            more = self._more(decision.block, decision.segment_id, decision.before)
        if more is None:
            return f"{figures}."
        if not more:
            return f"{figures}; no budget would bring it back."
        return f"{figures}. {more:,} more tokens for the prompt would bring it back."

    @cached_property
    def _more(self) -> MoreTokens | None:
        return None if self._needs is None else self._needs(self)


def _make_sum(found: list[Decision], block: BlockTotal) -> None:
    """Changes the last decisions on kept pieces so that all of them add up to what the block uses."""
    rest = block.used - sum([d.after for d in found if d.block == block.name])
    for i in range(len(found) - 1, -1, -1):
        decision = found[i]
        if rest and decision.after and decision.block == block.name:
            change = max(rest, 1 - decision.after)
            before = decision.before + change if decision.action == "kept" else decision.before
            found[i] = replace(decision, before=before, after=decision.after + change)
            rest -= change


def warnings_for(
    *, window: int | None, system_tokens: int, system_limit: int | None, task_turns: int
) -> list[str]:
    """Returns what the decisions do not show: a system prompt near its limit, a stale task."""
    found = []
    if system_limit and system_tokens >= _NEAR_LIMIT * system_limit:
        of_window = f" of a window of {window:,}" if window else ""
        found.append(
            f"system has {system_tokens:,} of at most {system_limit:,} tokens{of_window}: near its limit"
        )
    if task_turns >= _STALE_TURNS:
        found.append(f"task has not changed for {task_turns} turns: it may be stale")
    return found


def _warnings_of(blocks: Sequence[BlockTotal]) -> Iterator[str]:
    """Yields what the figures show: dropped segments, a history of which little is left, empty knowledge."""
    short = [block for block in blocks if block.dropped]
    if short:
        dropped, total = sum(block.dropped for block in short), sum(block.size for block in blocks)
        each = ", ".join(f"{block.name} {block.dropped:,} of {block.size:,}" for block in short)
        yield f"dropped {dropped:,} of {total:,} segments: {each}"
    for block in blocks:
        if block.name == "history" and block.dropped and block.used < _SHORT_HISTORY:
            yield f"history has only {block.used} tokens left: context may be lost"
        elif block.name == "knowledge" and block.used == 0 and block.size:
            granted = f"{block.granted or 0:,} tokens it was granted"
            yield f"knowledge is empty: none of {block.size:,} segments fits the {granted}"
        elif block.name == "knowledge" and block.used == 0:
            yield "knowledge is empty: retrieval may have failed"


def _size(part: Part) -> int:
    return part.size if isinstance(part, DecisionRange) else 1
