"""Data in: a prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped.

The first station. Nothing here counts, scores or cuts; these are the things the other stations pass along.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from reprlib import repr as _repr  # short, however long the value is
from typing import Any, Literal

from .errors import BudgetConfigError

__all__ = ["Action", "Block", "Decision", "DecisionRange", "Provenance", "Rendition", "Scope", "Segment"]

Action = Literal["kept", "trimmed", "truncated", "compressed", "summarized"]
"""What became of a segment: whole, dropped whole, cut inside its text, shorter with its own words, new words."""

RenditionKind = Literal["whole", "truncated", "compressed", "summarized", "placeholder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Says where a text comes from, so that an answer can cite it.

    Args:
        source_id: the source's own name, as "ADR-007" or a file path.
        source_type: what kind of source it is, as "adr", "commit" or "document".
        confidence: trust in the text, 0 to 1; None where unknown.
        created_at: when the text was written.
        retrieval_score: the retriever's own score, any range.
    """

    source_id: str
    source_type: str = "document"
    confidence: float | None = 1.0
    created_at: datetime | None = None
    retrieval_score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Says who may see a text; a field left out is open to all.

    A segment is visible to a reader when each field it names equals the reader's.

    Example:
        >>> Scope(user="ann").visible_to(Scope(user="ann", project="x"))
        True
        >>> Scope(user="ann").visible_to(Scope(user="bob", project="x"))
        False
        >>> Scope().visible_to(Scope())
        True
    """

    user: str | None = None
    project: str | None = None

    def visible_to(self, reader: Scope | None) -> bool:
        """Returns whether a reader with the scope `reader` may see a text of this scope."""
        return all(
            mine is None or (reader is not None and mine == theirs)
            for mine, theirs in (
                (self.user, reader.user if reader else None),
                (self.project, reader.project if reader else None),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The smallest thing kept or cut.

    Args:
        id: unique inside its block; decisions name it.
        text: what the model would read.
        role: the message role, where the segment is a message.
        tokens: count of `text`, where known.
        score: relevance to the query, any range; higher is kept first.
        group: segments of one group live or die together.
        pinned: never cut.
        title: a short name scorers may use (a document's title).
        label: the class of a labelled example.
        kind: a memory's type, as "core", "explicit", "fact", "project", "experience".
        priority: a memory's own importance, 0 to 100; None where unknown.
        provenance: where the text comes from.
        scope: who may see it; None is everybody.
        created_at: when it was written; recency scores read it.
        metadata: anything of the host's.
        source: the host's own object, handed back untouched when the segment is kept whole.

    Raises:
        BudgetConfigError: `text` is no text, as the None of an empty database field.

    Example:
        >>> Segment(id="m1", text=None)
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: the text of segment 'm1' is None, allowed: str; give "" for an empty one, or leave the segment out
    """

    id: str
    text: str
    role: str | None = None
    tokens: int | None = None
    score: float | None = None
    group: str | None = None
    pinned: bool = False
    title: str | None = None
    label: str | None = None
    kind: str | None = None
    priority: float | None = None
    provenance: Provenance | None = None
    scope: Scope | None = None
    created_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    source: Any = field(default=None, compare=False)

    def __post_init__(self) -> None:
        text: Any = self.text
        if not isinstance(text, str):  # one look: segments are made by the thousand
            msg = f'the text of segment {self.id!r} is {_repr(text)}, allowed: str; give "" for an empty one, or leave the segment out'
            raise BudgetConfigError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendition:
    """One way a segment can appear in the prompt."""

    kind: RenditionKind
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one segment, and why.

    Args:
        segment_id: the segment's id.
        block: the name of its block.
        action: what happened.
        reason: a short fixed word, as "fits", "no_room", "older_than_cut", "orphan_result".
        before: tokens of the whole segment; 0 for a summary that was written, which was not among what was given.
        after: tokens that are in the prompt, 0 when dropped.
        detail: one sentence for people, with figures.
    """

    segment_id: str
    block: str
    action: Action
    reason: str
    before: int
    after: int
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRange:
    """Equal decisions over many segments, counted and spelled out only when somebody looks.

    A range reads the host's own messages when it is first looked at, because copying or counting what is dropped would make every call pay
    for all of it. Whoever changes a message in place between the call and the first look sees the changed one counted; read
    `report.decisions` once before changing anything, they are worked out once and stay.

    Args:
        block: the name of the block.
        action: what happened to each.
        reason: a short fixed word.
        size: how many segments.
        expand: makes the single decisions.
    """

    block: str
    action: Action
    reason: str
    size: int
    expand: Callable[[], Iterator[Decision]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A named, ranked region of the prompt.

    Args:
        name: "system", "project", "task", "memory", "history", "examples", "knowledge", "query" or one of yours.
        segments: what it holds, in the order it should appear.
        messages: a conversation in the host's own message objects (history only); read through a codec.
        rank: importance, a whole number from 1 = cut last; None takes the budget's rank for the name.
        ratio: share of the room, 0 to 1; None takes the budget's.
        size: fixed number of tokens, whole, instead of a share; a block has one of the two.
        pinned: never cut.
        strategy: name of the fitting strategy; None takes the block's default.
        query: ranks this block by another text than the question.

    Raises:
        BudgetConfigError: a rank, ratio or size that is none, or a ratio and a size; all of them at once.

    Example:
        >>> Block(name="rules", ratio=1.5, rank=0)
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: rank of block 'rules' is 0, allowed: a whole number from 1; ratio of block 'rules' is 1.5, allowed: a share from 0 to 1
    """

    name: str
    segments: Sequence[Segment] = ()
    messages: Sequence[Any] | None = None
    rank: int | None = None
    ratio: float | None = None
    size: int | None = None
    pinned: bool = False
    strategy: str | None = None
    query: str | None = None

    def __post_init__(self) -> None:
        if self.rank is not None or self.ratio is not None or self.size is not None:
            self._check()

    def _check(self) -> None:
        problems: list[str] = []
        if self.rank is not None and not _is_count(self.rank, 1):
            problems.append(
                f"rank of block {self.name!r} is {_repr(self.rank)}, allowed: a whole number from 1"
            )
        if self.ratio is not None and not _is_share(self.ratio):
            problems.append(
                f"ratio of block {self.name!r} is {_repr(self.ratio)}, allowed: a share from 0 to 1"
            )
        if self.size is not None and not _is_count(self.size, 0):
            problems.append(
                f"size of block {self.name!r} is {_repr(self.size)}, allowed: a whole number from 0"
            )
        if self.ratio is not None and self.size is not None:
            problems.append(f"block {self.name!r} has a ratio and a size, allowed: one of them")
        if problems:
            raise BudgetConfigError.of(problems)

    @classmethod
    def of(cls, name: str, *texts: str, **fields: Any) -> Block:
        """Returns a block whose segments are plain `texts`, with the ids "name-0", "name-1", ...

        Raises:
            BudgetConfigError: a text is something else, as a list of texts.

        Example:
            >>> [s.id for s in Block.of("knowledge", "one", "two").segments]
            ['knowledge-0', 'knowledge-1']
        """
        odd = [
            f"text {i} of block {name!r} is a {type(t).__name__}, allowed: str"
            for i, t in enumerate(texts)
            if not isinstance(t, str)
        ]  # type: ignore[redundant-expr]  # whoever does not check types gives a list
        if odd:
            raise BudgetConfigError.of(
                [
                    *odd[:5],
                    "give texts one by one, Block.of(name, *texts), and segments as Block(name=.., segments=..)",
                ]
            )
        return cls(
            name=name,
            segments=tuple(Segment(id=f"{name}-{i}", text=t) for i, t in enumerate(texts)),
            **fields,
        )


def _is_count(value: Any, low: int) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) >= low
    except TypeError:
        return False


def _is_share(value: Any) -> bool:
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        return False
    try:
        return 0 <= float(value) <= 1  # not a number is neither
    except (OverflowError, TypeError, ValueError):
        return False
