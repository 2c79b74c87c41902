"""A prompt is blocks; a block is segments; every segment ends as kept, shortened or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from numbers import Number
from operator import attrgetter
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .errors import BudgetConfigError, check_count, check_number, misspelt, named_fields, refuse, shown

BLOCKS = ("system", "query", "preferences", "project", "task", "memory", "history", "examples", "knowledge")
_ALIASES = {"documents": "knowledge"}
"""What hosts call a block; a budget takes either name."""
_MEANT = {
    **dict.fromkeys(("messages", "chat_history", "conversation"), "history"),
    **dict.fromkeys(("question", "input", "user_query", "query_str"), "query"),
    **dict.fromkeys(("system_prompt", "system_message"), "system"),
}
"""What hosts call what is no data: as a block of an application's own it would be shown as such."""

Action = Literal["kept", "trimmed", "truncated", "compressed", "summarized"]
"""What became of a segment: whole, dropped whole, cut inside its text, its own words only, new words."""

RenditionKind = Literal["whole", "truncated", "compressed", "summarized", "placeholder"]


@named_fields
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
    confidence: float | None = None
    created_at: datetime | None = None
    retrieval_score: float | None = None

    def __post_init__(self) -> None:
        _check_types(self)


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Says who may see a text; a field left out is open to all.

    A segment is visible to a reader when each field it names equals the reader's.

    Args:
        user: the one user who may see it.
        project: the one project it belongs to.

    Example:
        >>> [Scope(user="ann").visible_to(Scope(user=user, project="x")) for user in ("ann", "bob")]
        [True, False]
    """

    user: str | None = None
    project: str | None = None

    def __post_init__(self) -> None:
        _check_types(self)

    def visible_to(self, reader: Scope | None) -> bool:
        """Returns whether a reader with the scope `reader` may see a text of this scope."""
        user, project = (reader.user, reader.project) if reader else (None, None)
        return self.user in (None, user) and self.project in (None, project)


@named_fields
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
        beside: what the model reads beside the text, as lines of metadata; it is rated with the text, and
            texts with other words beside them are no duplicates.
        label: the class of a labelled example.
        kind: a memory's type, as "core", "explicit", "fact", "project", "experience".
        priority: a memory's own importance, 0 to 100; None where unknown.
        provenance: where the text comes from.
        scope: who may see it; None is everybody.
        created_at: when it was written; recency scores read it.
        metadata: anything of the host's.
        source: the host's own object, handed back untouched when the segment is kept whole.

    Raises:
        BudgetConfigError: `text` is not a str, for example the None of an empty database field.

    Example:
        >>> Segment(id="m1", text="Rome is in Italy.", score=0.8).pinned
        False
    """

    id: str
    text: str
    role: str | None = None
    tokens: int | None = None
    score: float | None = None
    group: str | None = None
    pinned: bool = False
    title: str | None = None
    beside: str = ""
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
        if not isinstance(text, str):
            msg = (
                f"the text of segment {self.id!r} must be a str (got {shown(text)}). "
                'Give "" for an empty one, or leave the segment out; Block.of takes its texts one by one.'
            )
            raise BudgetConfigError(msg)
        _check_types(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendition:
    """One way a segment can appear in the prompt.

    Args:
        kind: whether it is whole or in which way it is shorter.
        text: what the model reads.
        tokens: what that costs.
    """

    kind: RenditionKind
    text: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What became of one segment, and why.

    Args:
        segment_id: the segment's id; `block` is the name of its block.
        action: what happened.
        reason: a short fixed word, as "fits", "no_room", "older_than_cut", "orphan_result".
        before: tokens of the whole segment; 0 for a summary, which was not part of the input.
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
    """Equal decisions over `size` segments; `expand` makes the single ones from the host's own messages."""

    block: str
    action: Action
    reason: str
    size: int
    expand: Callable[[], Iterator[Decision]]


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A named, ranked region of the prompt.

    Args:
        name: "system", "project", "task", "memory", "history", "examples", "knowledge", "query" or your own.
        segments: what it holds, in the order it should appear.
        messages: a conversation in the host's own message objects (history only); read through a codec.
        rank: importance, a whole number from 1 (cut last); None takes the budget's rank for the name.
        ratio: share of the room, 0 to 1; None takes the budget's.
        size: fixed number of tokens, whole, instead of a share; a block has one of the two.
        pinned: never cut.
        strategy: name of the fitting strategy, or an object that is one; None takes the block's default.
        query: ranks this block by another text than the question.
        store: a `MemoryStore`; what it has for the question and the prompt's scope is added to this block,
            preferences to a block of that name after the system prompt.
        notes: sentences about what fills it, which are among the warnings of the report.

    Raises:
        BudgetConfigError: an impossible rank, ratio or size, or a ratio and a size; all problems at once.

    Example:
        >>> Block(name="rules", segments=[Segment(id="r1", text="Be brief.")], rank=2, size=100).pinned
        False
    """

    name: str
    segments: Sequence[Segment] = ()
    messages: Sequence[Any] | None = None
    rank: int | None = None
    ratio: float | None = None
    size: int | None = None
    pinned: bool = False
    strategy: Any = None
    query: str | None = None
    store: Any = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        problems: list[str] = []
        whose = f"of block {self.name!r}"
        check_block_name("name of a block", self.name, problems)
        if self.rank is not None:
            check_count(f"rank {whose}", self.rank, problems, low=1)
        if self.size is not None:
            check_count(f"size {whose}", self.size, problems)
        if self.ratio is not None:
            check_number(f"ratio {whose}", self.ratio, problems, high=1, allowed="a share from 0 to 1")
        if self.ratio is not None and self.size is not None:
            problems.append(f"block {self.name!r} must have a ratio or a size (got both)")
        if not _is_list(self.segments) or not all(isinstance(one, Segment) for one in self.segments):
            advice = "Block.of(name, *texts) takes texts"
            problems.append(
                f"segments {whose} must be Segment objects in a list (got {shown(self.segments)}). {advice}"
            )
        if self.messages is not None and not _is_list(self.messages):
            problems.append(f"messages {whose} must be a list of messages (got {shown(self.messages)})")
        if self.store is not None and not hasattr(self.store, "blocks"):
            problems.append(f"store {whose} must be a MemoryStore (got {shown(self.store)})")
        refuse(problems)
        _check_types(self)

    @classmethod
    def of(cls, name: str, *texts: str, **fields: Any) -> Block:
        """Returns a block of plain `texts`, with the ids "name-0", "name-1", ...; `fields` are other options.

        Example:
            >>> [s.id for s in Block.of("knowledge", "one", "two").segments]
            ['knowledge-0', 'knowledge-1']
        """
        segments = tuple(Segment(id=f"{name}-{i}", text=text) for i, text in enumerate(texts))
        return cls(name=name, segments=segments, **fields)


def _check_types(value: Any) -> None:
    """Raises BudgetConfigError for the fields of a dataclass that are not of their declared types."""
    kind: Any = type(value)
    read, allowed, known = _typed_fields(kind)
    held = read(value)
    types_held = tuple(map(type, held))
    if types_held in known:  # nearly always: there may be thousands
        return
    if all(map(isinstance, held, allowed.values())):
        if len(known) < _MOST_KNOWN:
            known.add(types_held)
        return
    raise BudgetConfigError.of(
        f"{name} of the {kind.__name__.lower()} must be a {types[0].__name__} (got {shown(one)})"
        for (name, types), one in zip(allowed.items(), held, strict=True)
        if not isinstance(one, types)
    )


_MOST_KNOWN = 256


@cache
def _typed_fields(
    kind: type,
) -> tuple[Callable[[Any], Any], dict[str, tuple[type, ...]], set[tuple[type, ...]]]:
    """Returns what reads the fields of a dataclass, the types of each, and a set for those seen in use.

    Any number may be a float.
    """
    allowed = {}
    for name, hint in get_type_hints(kind).items():
        declared = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        types: list[Any] = [get_origin(one) or one for one in declared]
        if Any not in types:
            allowed[name] = (*types, Number) if float in types else tuple(types)
    return attrgetter(*allowed), allowed, set()


def block_named(name: Any) -> Any:
    """Returns the name under which a budget keeps the limits of a block."""
    return _ALIASES.get(name, name)


def ranked_as(name: str) -> str:
    """Returns the block whose rank a block has by default: an application's own counts as knowledge."""
    own: str = block_named(name)
    return own if own in BLOCKS else "knowledge"


def by_block(given: Mapping[Any, Any], what: str, problems: list[str]) -> dict[Any, Any]:
    """Returns entries by the names of their blocks; adds a problem when a block has two."""
    for alias, name in _ALIASES.items():
        if alias in given and name in given:
            problems.append(f"{what} must name a block once (got {alias!r} and {name!r}, which are the same)")
    return {block_named(name): entry for name, entry in given.items()}


def check_block_name(what: str, name: object, problems: list[str]) -> None:
    """Adds a problem when `name` cannot be a block's name or is a misspelt one, as "knowlege"."""
    if not isinstance(name, str) or not name:
        problems.append(f"{what} must be a block's name, as 'memory' (got {shown(name)})")
    elif name not in BLOCKS and (meant := _meant(name.lower(), name)):
        problems.append(f"{what} must be a block's name (got {name!r}); did you mean {meant!r}?")


def _meant(lower: str, name: str) -> str:
    """Returns the block that a name surely means in other letters or words, or ""."""
    known = (*BLOCKS, *_ALIASES)
    return lower if lower != name and lower in known else _MEANT.get(lower) or misspelt(lower, known)


def _is_list(value: Any) -> bool:
    """Returns whether a value can be read by position and is not one text or one mapping."""
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))
