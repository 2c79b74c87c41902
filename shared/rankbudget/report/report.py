"""Report out: what became of every segment and why, with totals for each block.

A report is made on every call, so it only holds what the stations hand it. Counts per block, decisions of long ranges and warnings are
worked out when somebody looks, once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import BudgetError
from ..segment import Decision, DecisionRange

__all__ = ["BlockTotal", "BudgetReport", "warnings_for"]

Warnings = Sequence[str] | Callable[[], Sequence[str]]

_SHORT_HISTORY = 100
_NEAR = 0.80
_STALE_TURNS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTotal:
    """One block in figures.

    Args:
        name: the block.
        rank: its importance, 1 = cut last.
        granted: tokens it was allowed; None where nothing limits it but the window.
        used: tokens that are in the prompt.
        wanted: tokens it would have used, where known.
        kept: segments that stand whole; the report counts this and the next two from its decisions.
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
    def utilization(self) -> float | None:
        """Share of the grant that is used, 0 to 1; None without a grant."""
        return None if self.granted is None else self.used / self.granted if self.granted else 0.0


class BudgetReport:
    """Says how large the prompt is, what may be in it, and what became of every segment.

    A report never changes once it was looked at: ranges of dropped messages read these when first looked at. `decisions`, `blocks`, `warnings` and everything made of them are worked out on first access.

    Args:
        limit: tokens the prompt may have: window - reserve - safety, or the bare `max_tokens`.
        total_tokens: tokens the finished prompt has, counted on its final form.
        window: the context window, where there is one.
        reserve: tokens kept for the answer.
        safety: tokens kept empty because counts may be too low.
        overhead: tokens of the prompt that belong to no block: reply priming, message framing, tool schemas.
        blocks: the blocks in prompt order.
        parts: decisions in order; a range stands for many and costs nothing until somebody looks.
        warnings: sentences, or a function that makes them.
        counter: name of what counted.
        exact: whether it knows or estimates.
        model: the model's name, where known.

    Example:
        >>> report = BudgetReport(
        ...     limit=100,
        ...     total_tokens=60,
        ...     blocks=[BlockTotal(name="history", rank=5, granted=80, used=57)],
        ...     parts=[
        ...         Decision(segment_id="m1", block="history", action="trimmed", reason="older_than_cut", before=70, after=0),
        ...         Decision(segment_id="m2", block="history", action="kept", reason="fits", before=57, after=57),
        ...     ],
        ...     overhead=3,
        ... )
        >>> print(report.table())
        block    rank  granted  used  share  kept  shortened  dropped
        history     5       80    57    71%     1          0        1
        overhead                   3
        total              100    60    60%     1          0        1
        >>> print(report.explain("m1"))
        m1 (history) was dropped: older_than_cut. It has 70 tokens; the block was granted 80 and uses 57. 47 more tokens for history would bring it back.
    """

    __slots__ = (
        "_blocks", "_decisions", "_given", "_warnings", "counter", "exact", "limit", "model", "overhead", "parts", "reserve", "safety",
        "total_tokens", "window",
    )  # fmt: skip

    limit: int
    total_tokens: int
    window: int | None
    reserve: int
    safety: int
    overhead: int
    parts: tuple[Decision | DecisionRange, ...]
    counter: str
    exact: bool
    model: str | None
    _given: tuple[BlockTotal, ...]
    _warnings: Warnings
    _blocks: tuple[BlockTotal, ...] | None
    _decisions: tuple[Decision, ...] | None

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
        parts: Iterable[Decision | DecisionRange] = (),
        warnings: Warnings = (),
        counter: str = "",
        exact: bool = True,
        model: str | None = None,
    ) -> None:
        put = super().__setattr__
        put("limit", limit)
        put("total_tokens", total_tokens)
        put("window", window)
        put("reserve", reserve)
        put("safety", safety)
        put("overhead", overhead)
        put("parts", tuple(parts))
        put("counter", counter)
        put("exact", exact)
        put("model", model)
        put("_given", tuple(blocks))
        put("_warnings", warnings)
        put("_blocks", None)
        put("_decisions", None)

    def __setattr__(self, name: str, value: object) -> None:
        msg = f"a BudgetReport never changes; {name!r} cannot be set"
        raise AttributeError(msg)

    def __delattr__(self, name: str) -> None:
        msg = f"a BudgetReport never changes; {name!r} cannot be deleted"
        raise AttributeError(msg)

    def __repr__(self) -> str:
        return f"BudgetReport({self.total_tokens:,} of {self.limit:,} tokens, {len(self._given)} blocks, {self.size:,} decisions)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetReport) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which may be long

    def __reduce__(self) -> tuple[object, ...]:
        return (
            BudgetReport._rebuild,
            (self.to_dict(),),
        )  # ranges hold closures; the spelled-out form travels

    @classmethod
    def _rebuild(cls, data: Mapping[str, Any]) -> BudgetReport:
        return cls.from_dict(data)

    def replace(self, *, total_tokens: int, overhead: int) -> BudgetReport:
        """Returns the same report of a prompt that was rendered otherwise."""
        return BudgetReport(
            limit=self.limit, total_tokens=total_tokens, window=self.window, reserve=self.reserve, safety=self.safety, overhead=overhead,
            blocks=self._given, parts=self.parts, warnings=self._warnings, counter=self.counter, exact=self.exact, model=self.model,
        )  # fmt: skip

    # ---- what it says -----------------------------------------------------------------------------------------------------------
    @property
    def size(self) -> int:
        """How many decisions there are; expands nothing."""
        return sum(part.size if isinstance(part, DecisionRange) else 1 for part in self.parts)

    @property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, ranges spelled out."""
        if self._decisions is None:
            found: list[Decision] = []
            for part in self.parts:
                if isinstance(part, DecisionRange):
                    found.extend(part.expand())
                else:
                    found.append(part)
            object.__setattr__(self, "_decisions", tuple(found))  # two threads compute the same value
        return self._decisions  # type: ignore[return-value]  # set just above

    @property
    def blocks(self) -> tuple[BlockTotal, ...]:
        """The blocks with their counts of kept, shortened and dropped segments; expands nothing."""
        if self._blocks is None:
            counts: dict[str, list[int]] = {}
            for part in self.parts:
                tally = counts.setdefault(part.block, [0, 0, 0])
                tally[0 if part.action == "kept" else 2 if part.action == "trimmed" else 1] += (
                    part.size if isinstance(part, DecisionRange) else 1
                )
            blocks = []
            for block in self._given:
                kept, shortened, dropped = counts.get(
                    block.name, (block.kept, block.shortened, block.dropped)
                )
                blocks.append(dataclasses.replace(block, kept=kept, shortened=shortened, dropped=dropped))
            object.__setattr__(self, "_blocks", tuple(blocks))
        return self._blocks  # type: ignore[return-value]  # set just above

    @property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong, one sentence each."""
        if not isinstance(self._warnings, tuple):
            object.__setattr__(
                self, "_warnings", tuple(self._warnings() if callable(self._warnings) else self._warnings)
            )
        return self._warnings  # type: ignore[return-value]  # a tuple since the line above

    def block(self, name: str) -> BlockTotal:
        """Returns the figures of one block."""
        for block in self.blocks:
            if block.name == name:
                return block
        msg = f"the report has no block {name!r}; it has {', '.join(repr(b.name) for b in self._given) or 'none'}"
        raise BudgetError(msg)

    def without(self, name: str) -> BudgetReport:
        """Returns the report without one block and its decisions; the totals stay."""
        plain: dict[str, Any] = {key: getattr(self, key) for key in _PLAIN}
        blocks = (block for block in self._given if block.name != name)
        return BudgetReport(
            blocks=blocks,
            parts=(part for part in self.parts if part.block != name),
            warnings=self._warnings,
            **plain,
        )

    def kept_ids(self, block: str | None = None) -> tuple[str, ...]:
        """Returns the ids of all segments that are in the prompt, whole or shortened, in order."""
        return tuple(
            d.segment_id for d in self.decisions if d.action != "trimmed" and block in (None, d.block)
        )

    def explain(self, segment_id: str, block: str | None = None) -> str:
        """Returns why a segment is in the prompt or not, and what would bring it back."""
        found = [
            i for i, d in enumerate(self.decisions) if d.segment_id == segment_id and block in (None, d.block)
        ]
        if not found:
            raise BudgetError(
                f"the report has no segment {segment_id!r}"
                + (f" in block {block!r}" if block else "")
                + "; ids are in report.decisions"
            )
        return " ".join(self._explain(i) for i in found)

    # ---- its forms --------------------------------------------------------------------------------------------------------------
    def table(self) -> str:
        """Returns the blocks as aligned plain text."""
        from .table import table  # only when somebody looks

        return table(self)

    def to_dict(self) -> dict[str, Any]:
        """Returns all of it as plain data, decisions spelled out."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {
            **plain,
            "blocks": [
                {**dataclasses.asdict(block), "utilization": block.utilization} for block in self.blocks
            ],
            "decisions": [dataclasses.asdict(decision) for decision in self.decisions],
            "warnings": list(self.warnings),
        }

    def to_json(self, *, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def to_html(self) -> str:
        """Returns one self-contained page: totals, a bar of the window, every decision; text is escaped."""
        from .html import page  # only when somebody looks

        return page(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetReport:
        """Returns the report that `to_dict` wrote."""
        values = dict(data)
        blocks = [
            BlockTotal(**{k: v for k, v in block.items() if k != "utilization"})
            for block in values.pop("blocks")
        ]
        parts = [Decision(**decision) for decision in values.pop("decisions")]
        return cls(**{**values, "warnings": tuple(values["warnings"])}, blocks=blocks, parts=parts)

    def _explain(self, index: int) -> str:
        decision = self.decisions[index]
        name = f"{decision.segment_id} ({decision.block})"
        detail = f" {decision.detail}" if decision.detail else ""
        if decision.action == "kept":
            return f"{name} was kept whole: {decision.reason}, {decision.after:,} tokens.{detail}"
        if decision.action != "trimmed":
            return f"{name} was {decision.action}: {decision.reason}, from {decision.before:,} to {decision.after:,} tokens.{detail}"
        told = f"{name} was dropped: {decision.reason}. It has {decision.before:,} tokens"
        total = next((b for b in self._given if b.name == decision.block), None)
        if decision.reason not in _FOR_ROOM:
            return f"{told}; no budget would bring it back.{detail}"
        granted = self.limit if total is None or total.granted is None else total.granted
        used = self.total_tokens if total is None else total.used
        need = decision.before
        if (
            decision.reason == "older_than_cut"
        ):  # history is kept from the newest on: everything newer comes back first
            need = sum(
                d.before
                for d in self.decisions[index:]
                if d.block == decision.block and d.reason == decision.reason
            )
        missing = need - (granted - used)
        told += f"; the block was granted {granted:,} and uses {used:,}."
        if missing <= 0:
            return f"{told} It would fit by itself; its group or a cut that keeps the prompt cache warm left it out.{detail}"
        return f"{told} {missing:,} more tokens for {decision.block} would bring it back.{detail}"


_PLAIN = ("limit", "total_tokens", "window", "reserve", "safety", "overhead", "counter", "exact", "model")
_FOR_ROOM = frozenset({"no_room", "older_than_cut", "too_large", "over_limit", "rank", "overflow"})


def warnings_for(
    blocks: Iterable[BlockTotal],
    *,
    window: int | None = None,
    system_tokens: int | None = None,
    system_limit: int | None = None,
    task_turns: int = 0,
    given: Mapping[str, int] | None = None,
) -> tuple[str, ...]:
    """Returns one sentence for each thing that often explains a wrong answer.

    Args:
        blocks: the blocks of the prompt; a block that was not asked for is not warned about.
        window: the context window.
        system_tokens: tokens of the system prompt; None takes the "system" block's.
        system_limit: the most it may have.
        task_turns: turns for which the task block has stayed the same.
        given: how many segments each block was given, where known: tells an empty retrieval from one that does not fit.

    Example:
        >>> warnings_for([BlockTotal(name="knowledge", rank=7, granted=900, used=0)])
        ('knowledge is empty: retrieval may have failed',)
    """
    found = []
    by_name = {block.name: block for block in blocks}
    knowledge, history = by_name.get("knowledge"), by_name.get("history")
    if knowledge is not None and knowledge.used == 0:
        count = (given or {}).get("knowledge", 0)
        found.append(
            f"knowledge is empty: none of {count} segments fits the {knowledge.granted or 0:,} tokens it was granted"
            if count
            else "knowledge is empty: retrieval may have failed"
        )
    if history is not None and history.used < _SHORT_HISTORY:
        found.append(f"history is very short, {history.used} tokens: context may be lost")
    if system_tokens is None and "system" in by_name:
        system_tokens = by_name["system"].used
    if system_tokens and system_limit and system_tokens >= _NEAR * system_limit:
        of_window = f" of a window of {window:,}" if window else ""
        found.append(
            f"system has {system_tokens:,} of at most {system_limit:,} tokens{of_window}: near its limit"
        )
    if task_turns >= _STALE_TURNS:
        found.append(f"task has not changed for {task_turns} turns: it may be stale")
    return tuple(found)
