"""What became of every segment and why, worked out when it is read: few reports are looked at."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ..errors import BudgetConfigError, BudgetError, counted, named_options, shown
from ..segment import Decision, Segment
from .parts import KnownPiece, Part, expanded, make_sum, size_of
from .totals import BlockTotal
from .words import HOLDS_AT_ANY_SIZE, explained, table, warnings_of

if TYPE_CHECKING:
    from os import PathLike
    from pathlib import Path

    from matplotlib.figure import Figure

    from .texts import Given

Covers = Literal["prompt", "history", "documents", "examples", "blocks"]
Warnings = Sequence[str] | Callable[[], Sequence[str]]
MoreTokens = Callable[[str, str], int | None]
"""(block, segment id) -> tokens more that bring a piece back; 0 if none do, None if unknown."""

_COUNTS = ("kept", "shortened", "dropped", "dropped_for_room")
_LATER = ("overhead", "parts", "totals", "joined")


@dataclass(frozen=True, init=False, eq=False, repr=False)
class BudgetReport:
    """Says how large the prompt is, what it may be, and what became of every segment. It never changes.

    Args:
        limit: tokens the prompt may have: window - reserve - safety, or the bare `max_tokens`.
        total_tokens: tokens of the finished prompt, counted on its final form.
        window: the context window, where there is one.
        reserve: tokens kept for the answer.
        safety: tokens kept free because counts may be too low.
        overhead: tokens that belong to no block: reply priming, message framing, tool schemas.
        blocks: in prompt order.
        parts: decisions in order; a range holds many and is expanded on first access.
        warnings: sentences, or a function that makes them; what the decisions show is added.
        counter: name of the token counter; `exact` says whether it knows or estimates.
        model: name of the model, where it is known.
        covers: the whole prompt, or the part of it that this entry point sees.
        later: makes `overhead`, `totals` (the blocks), `parts` and `joined` when the report is read. Pieces
            of joined blocks cost other tokens together than one by one; the last kept take the difference.
        needs: makes, of the report, what says how many more tokens bring a piece back.
        pieces: makes all pieces as they were given and as they read, which a page compares texts with.

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
        block     rank  granted  used  usage  kept  shortened  dropped
        history      5       80    57    71%     1          0        1
        overhead                    3
        total               100    60    60%     1          0        1
        covers the whole prompt
        warning: dropped 1 of 2 segments: history 1 of 2
        warning: history was cut to 57 tokens: context may be lost
        >>> print(report.explain("m1"))
        m1 (history) was dropped: older_than_cut. It has 70 tokens; the block was granted 80 and uses 57.
    """

    limit: int
    total_tokens: int
    window: int | None
    reserve: int
    safety: int
    overhead: int
    counter: str
    exact: bool
    model: str | None
    covers: Covers

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
        later: Callable[[], Mapping[str, Any]] | None = None,
        needs: Callable[[BudgetReport], MoreTokens] | None = None,
        pieces: Callable[[], Iterable[KnownPiece]] | None = None,
    ) -> None:
        given = {"overhead": overhead, "totals": tuple(blocks), "parts": tuple(parts), "joined": ()}
        self.__dict__.update(
            limit=limit, total_tokens=total_tokens, window=window, reserve=reserve, safety=safety,
            counter=counter, exact=exact, model=model, covers=covers, _needs=needs, _pieces=pieces,
            _noted=warnings if callable(warnings) else lambda: warnings,
            _later=later or (lambda: given),
        )  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"BudgetReport({self.total_tokens:,} of {counted(self.limit, 'token')}, "
            f"{counted(len(self.totals), 'block')}, {counted(self.size, 'decision')})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BudgetReport) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]  # equal by content, which may be long

    def __reduce__(self) -> tuple[object, ...]:
        return BudgetReport.from_dict, (self.to_dict(),)  # ranges hold closures, which cannot be pickled

    def noting(self, *warnings: str) -> BudgetReport:
        """Returns the report with more warnings."""
        made = BudgetReport.__new__(BudgetReport)
        made.__dict__.update(self.__dict__, _noted=lambda: (*self._noted(), *warnings))
        made.__dict__.pop("warnings", None)
        return made

    # ---- what it says ----------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name not in _LATER:
            msg = f"a BudgetReport has no {name!r}"
            raise AttributeError(msg)
        self.__dict__.update(self._later())
        return self.__dict__[name]

    @property
    def size(self) -> int:
        """How many decisions there are; expands nothing."""
        return sum(size_of(part) for part in self.parts)

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision, ranges expanded."""
        found = [decision for part in self.parts for decision in expanded(part)]
        for block in self.totals:
            if block.name in self.joined:
                make_sum(found, block)
        return tuple(found)

    @cached_property
    def blocks(self) -> tuple[BlockTotal, ...]:
        """The blocks with their counts of kept, shortened and dropped segments; expands nothing."""
        counts: dict[str, dict[str, Any]] = {}
        for part in self.parts:
            outcome = {"kept": "kept", "trimmed": "dropped"}.get(part.action, "shortened")
            of_block = counts.setdefault(part.block, dict.fromkeys(_COUNTS, 0))
            of_block[outcome] += size_of(part)
            if outcome == "dropped" and part.reason not in HOLDS_AT_ANY_SIZE:
                of_block["dropped_for_room"] += size_of(part)
        return tuple([replace(block, **counts.get(block.name, {})) for block in self.totals])

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What looks wrong, one sentence each; expands nothing."""
        return tuple(dict.fromkeys([*self._noted(), *warnings_of(self.blocks)]))

    @property
    def capped(self) -> int:
        """Tokens of the window that a smaller limit than the budget's leaves free, as `max_tokens`."""
        parts = self.limit + self.reserve + self.safety
        return 0 if self.window is None else max(0, self.window - parts)

    def block(self, name: str) -> BlockTotal:
        """Returns the figures of the block `name`.

        Raises:
            BudgetError: the report has no such block.
        """
        for block in self.blocks:
            if block.name == name:
                return block
        names = ", ".join(repr(block.name) for block in self.totals) or "none"
        msg = f"the report has no block {name!r}; it has {names}"
        raise BudgetError(msg)

    def kept_ids(self, block: str | None = None) -> tuple[str, ...]:
        """Returns the ids of all segments, or those of `block`, that are in the prompt, in order."""
        return tuple([one.segment_id for one in self._kept() if block in (None, one.block)])

    def in_prompt(self) -> frozenset[tuple[str, str]]:
        """Returns block and id of all segments that are in the prompt; expands no dropped ones."""
        return frozenset([(one.block, one.segment_id) for one in self._kept()])

    def _kept(self) -> Iterator[Decision]:
        for part in self.parts:
            if part.action != "trimmed":
                yield from expanded(part)

    @named_options
    def explain(self, segment_id: str, block: str | None = None) -> str:
        """Returns why `segment_id` is in the prompt or not, and how many more tokens would bring it back.

        The number is added to the room of the whole prompt; the same call with one token less drops the
        segment again. Without a number it is not known. `block` picks one where segments share an id.

        Raises:
            BudgetError: the report has no such segment.
        """
        return " ".join(map(self._explain, self._found(segment_id, block)))

    def more_tokens(self, segment_id: str, block: str | None = None) -> int | None:
        """Returns how many more tokens of the whole prompt bring the dropped `segment_id` back.

        0: none do, or it is in the prompt. None: not known. `block` picks one where segments share an id.

        Raises:
            BudgetError: the report has no such segment.
        """
        return self._more_for(self._found(segment_id, block)[0])

    def _found(self, segment_id: str, block: str | None) -> list[Decision]:
        found = [d for d in self._by_id.get(segment_id, ()) if block in (None, d.block)]
        if not found:
            place = f" in block {block!r}" if block else ""
            msg = f"the report has no segment {segment_id!r}{place}; ids are in report.decisions"
            raise BudgetError(msg)
        return found

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

    def to_dict(self, *, decisions: bool = True) -> dict[str, Any]:
        """Returns all of it as plain data, ranges expanded; without `decisions` their list is empty."""
        listed = [asdict(decision) for decision in self.decisions] if decisions else []
        return {**self._totals(), "decisions": listed}

    @named_options
    def to_json(self, *, indent: int | None = None) -> str:
        """Returns `to_dict` as JSON, in one line or indented by `indent` spaces a level."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=indent)

    def to_html(self, *, before: Given = None, after: Given = None) -> str:
        """Returns one self-contained page to look into: the window, and every piece of the prompt in order.

        For 200 dropped pieces it says how many more tokens bring them back, as far as 2 seconds last.

        Args:
            before: what was offered: a list of messages, segments or texts, or such lists by block.
            after: what was kept, in the same form. A report holds no texts; without both the page has ids
                and figures.

        Raises:
            BudgetConfigError: `before` or `after` is no list and no dict.

        Example:
            >>> from rankbudget import fit_documents
            >>> made = fit_documents(["one tea", "two teas"], max_tokens=9, query="tea?")
            >>> "default-src 'none'" in made.report.to_html(before=["one tea", "two teas"])
            True
        """
        from .page import page, turn_of  # a view is loaded by those who look

        return page([turn_of(self, before, after)])

    def save_html(self, path: str | PathLike[str], *, before: Given = None, after: Given = None) -> Path:
        """Writes what `to_html` returns for `before` and `after` as the file `path`, and returns its path."""
        from .page import written

        return written(path, self.to_html(before=before, after=after))

    def print(self) -> None:
        """Prints the window as a bar and a grid, and the rows as a table, in at most 80 columns.

        Raises:
            ImportError: rich is missing; the extra `cli` has it.
        """
        from .terminal import show

        show(self)

    def plot(self) -> Figure:
        """Returns a matplotlib figure: the window as a stacked bar, beside what was wanted.

        Raises:
            ImportError: matplotlib is missing; the extra `notebooks` has it.
        """
        from .plot import figure_of

        return figure_of(self)

    def _repr_html_(self) -> str:
        from .bar import cell_html

        return cell_html(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BudgetReport:
        """Returns the report that `to_dict` wrote as `data`.

        Raises:
            BudgetConfigError: `data` is anything else.
        """
        try:
            blocks = [{k: v for k, v in block.items() if k != "utilization"} for block in data["blocks"]]
            return cls(
                **{field.name: data[field.name] for field in fields(cls) if field.name in data},
                blocks=[BlockTotal(**block) for block in blocks],
                parts=[Decision(**decision) for decision in data["decisions"]],
                warnings=data["warnings"],
            )
        except (AttributeError, KeyError, TypeError) as error:
            msg = f"data must be a report as to_dict returns it (got {shown(data)})"
            raise BudgetConfigError(msg) from error

    def _totals(self) -> dict[str, Any]:
        """Returns everything but the decisions as plain data."""
        blocks = [{**asdict(block), "utilization": block.utilization} for block in self.blocks]
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**plain, "capped": self.capped, "blocks": blocks, "warnings": list(self.warnings)}

    def _explain(self, decision: Decision) -> str:
        name, more = decision.block, self._more_for(decision)
        whole = BlockTotal(name=name, rank=1, granted=self.limit, used=self.total_tokens)
        own = next((t for t in self.totals if t.name == name and t.granted is not None), whole)
        return explained(decision, block=own, more=more)

    def _more_for(self, decision: Decision) -> int | None:
        if decision.action != "trimmed" or decision.reason in HOLDS_AT_ANY_SIZE:
            return 0
        if decision.reason == "not_read":
            return None
        return self._more and self._more(decision.block, decision.segment_id)

    @cached_property
    def _more(self) -> MoreTokens | None:
        return None if self._needs is None else self._needs(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """What `fit_messages`, `fit_documents` and their kin return; what is kept whole are the same objects.

    Args:
        messages: the kept host messages.
        segments: the kept segments.
        text: the kept texts, joined as they were counted.
        report: why every piece was kept, shortened or dropped.
    """

    messages: Sequence[Any] = ()
    segments: Sequence[Segment] = ()
    text: str = ""
    report: BudgetReport

    def save_html(self, path: str | PathLike[str], *, before: Given = None) -> Path:
        """Writes the page of the report with the texts that were kept, and returns its path.

        Args:
            path: the file to write; one that is there is replaced.
            before: what was offered, as `BudgetReport.to_html` takes it; None shows no dropped texts.

        Raises:
            BudgetConfigError: `before` is no list and no dict.
        """
        from .page import page, turn_of, written

        return written(path, page([turn_of(self, before)]))
