"""A memory: a short text that outlives its conversation, with its owner, kind, source and validity."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from enum import Enum
from hashlib import blake2b
from typing import Any, Literal

from ..errors import BudgetConfigError, check_choice, check_flag, check_number, named_fields, refuse, shown
from ..relevance.memories import KINDS
from ..segment import Provenance, Scope, Segment

LONGEST_NAME = 200
"""Most characters of a user, project or key: PostgreSQL's index takes three of these."""
_SURROGATE = re.compile("[\ud800-\udfff]")
Level = Literal["user", "project", "global"]
"""Whose memory it is: one user's, also within a project, a project's, or everybody's."""


_FIXED = ("id", "scope", "version")
"""Fields that a change leaves as they are."""
DATES = ("created_at", "valid_from", "valid_to", "expires_at", "review_at")


class BlockType(str, Enum):
    """The blocks of a prompt that memories go to, and the others of the five-block form."""

    SYSTEM = "system"
    PROJECT = "project"
    TASK = "task"
    HISTORY = "history"
    KNOWLEDGE = "knowledge"


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One remembered text.

    Args:
        text: what is remembered, as the model will read it.
        scope: its owner: a user, a user within a project, a project, or everybody with `Scope()`.
        id: unique in its store, given by it.
        key: a name that one memory of its scope has at a time; of several the one that began last holds.
        kind: "core", "explicit", "fact", "project", "experience", "preference" or "decision".
        priority: its own importance, 0 to 100; None where unknown.
        confidence: trust in it, 0 to 1; None where unknown.
        sources: ids of the messages or documents that it comes from.
        source_type: what these are, as "conversation", "adr" or "commit".
        static: it rarely changes, so a fact belongs to the project's block and not to retrieved knowledge.
        created_at: when it was first put.
        valid_from: since when it holds.
        valid_to: until when it holds, whatever holds in between; None for no end.
        expires_at: from then on it is never returned; None for no end.
        review_at: from then on reports call it stale; None for never.
        replaced_by: id of the memory that superseded it; in `versions` also of the next one under its key.
        version: grows by one with each change; `MemoryStore.replace` compares it.
        metadata: anything of yours that JSON can hold.
        score: nearness to the question it was found with, any range; None where it was not searched for.

    Raises:
        BudgetConfigError: a field has a wrong type or value; all problems at once.

    Example:
        >>> memory = Memory(text="Prefers tabs.", scope=Scope(user="ann"), kind="preference")
        >>> memory.level, route_memory_to_block(memory).value
        ('user', 'system')
    """

    text: str
    scope: Scope
    id: str = ""
    key: str | None = None
    kind: str = "fact"
    priority: float | None = None
    confidence: float | None = None
    sources: tuple[str, ...] = ()
    source_type: str = "conversation"
    static: bool = False
    created_at: datetime | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    expires_at: datetime | None = None
    review_at: datetime | None = None
    replaced_by: str | None = None
    version: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    score: float | None = None

    def __post_init__(self) -> None:
        problems: list[str] = []
        text: Any = self.text
        if not isinstance(text, str) or not text.strip():
            problems.append(f"text of a memory must be a str with words in it (got {shown(text)})")
        else:
            check_storable("text of a memory", text, problems)
        check_scope(self.scope, problems)
        for name in ("key", "source_type"):
            if (value := getattr(self, name)) is not None or name != "key":
                check_storable(f"{name} of a memory", value, problems, most=LONGEST_NAME)
        if self.key == "":
            problems.append("key of a memory must be a name, or None for none (got '')")
        check_flag("static of a memory", self.static, problems)
        check_choice("kind of a memory", self.kind, problems, tuple(KINDS))
        for name, high in (("priority", 100), ("confidence", 1)):
            value = getattr(self, name)
            if value is not None:
                check_number(
                    f"{name} of a memory", value, problems, high=high, allowed=f"a number from 0 to {high}"
                )
        self._check_details(problems)
        refuse(problems)

    def _check_details(self, problems: list[str]) -> None:
        """Adds what is wrong with sources, metadata and dates."""
        sources: Any = self.sources
        if not isinstance(sources, tuple) or not all(isinstance(one, str) for one in sources):
            problems.append(f"sources of a memory must be a tuple of ids (got {shown(sources)})")
        try:
            json.dumps(dict(self.metadata), sort_keys=True)
        except (TypeError, ValueError):
            given = shown(self.metadata)
            problems.append(f"metadata of a memory must be a dict that JSON can hold (got {given})")
        for name in DATES:
            moment = getattr(self, name)
            if moment is not None and not isinstance(moment, datetime):
                problems.append(f"{name} of a memory must be a datetime (got {shown(moment)})")

    @property
    def level(self) -> Level:
        """Whose it is."""
        return (
            "user"
            if self.scope.user is not None
            else "project"
            if self.scope.project is not None
            else "global"
        )

    def holds_at(self, moment: datetime) -> bool:
        """Returns whether it is valid and not expired at a moment."""
        begins, ends, expires = self.valid_from, self.valid_to, self.expires_at
        return (
            (begins is None or utc(begins) <= utc(moment))
            and (ends is None or utc(moment) < utc(ends))
            and (expires is None or utc(moment) < utc(expires))
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns its fields as JSON holds them, without the score; `Memory.from_dict` reads them."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        dates = {name: value.isoformat() for name, value in fields.items() if isinstance(value, datetime)}
        scope = {"user": self.scope.user, "project": self.scope.project}
        plain = {
            "scope": scope,
            "sources": list(self.sources),
            "metadata": dict(self.metadata),
            "score": None,
        }
        return {name: value for name, value in {**fields, **dates, **plain}.items() if value is not None}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Memory:
        """Returns the memory that `to_dict` wrote."""
        dates = {name: datetime.fromisoformat(given[name]) for name in DATES if name in given}
        scope, sources = Scope(**given["scope"]), tuple(given.get("sources", ()))
        return cls(**{**given, **dates, "scope": scope, "sources": sources})

    def segment(self, *, score: float | None = None) -> Segment:
        """Returns it as a segment of a prompt; its source is the first of `sources`, else its key.

        Args:
            score: its nearness to the question, any range; None takes its own.
        """
        source = (*self.sources, self.key or self.source_type)[0]
        return Segment(
            id=self.id or digest_of(self.text),
            text=self.text,
            score=self.score if score is None else score,
            kind=self.kind,
            priority=self.priority,
            scope=self.scope,
            created_at=self.created_at,
            provenance=Provenance(
                source_id=source,
                source_type=self.source_type,
                confidence=self.confidence,
                created_at=self.created_at,
                retrieval_score=self.score,
            ),
            metadata=self.metadata,
            source=self,
        )


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBlock:
    """One block of the five-block form, with what it costs.

    Args:
        block_type: which block it is.
        content: its text.
        token_count: tokens of `content`.
        truncation_rank: 1 is cut last.
        metadata: anything of yours.
        provenance: where it comes from.
    """

    block_type: BlockType
    content: str
    token_count: int
    truncation_rank: int
    metadata: Mapping[str, Any] = field(default_factory=dict, hash=False)
    provenance: Provenance | None = None


def route_memory_to_block(memory: Memory) -> BlockType:
    """Returns which block of the prompt a memory belongs to.

    A user's preference goes beside the system prompt, anybody else's to the project, as does a fact that
    rarely changes; all others are retrieved knowledge.
    """
    if memory.kind == "preference":
        return BlockType.SYSTEM if memory.level == "user" else BlockType.PROJECT
    return BlockType.PROJECT if memory.kind == "fact" and memory.static else BlockType.KNOWLEDGE


def check_scope(scope: object, problems: list[str], name: str = "scope") -> None:
    """Adds a problem when `scope` is not one; there is no default, as a forgotten scope leaks."""
    if not isinstance(scope, Scope):
        problems.append(f"{name} must be a Scope, and Scope() for everybody (got {shown(scope)})")
        return
    for part in ("user", "project"):
        if (value := getattr(scope, part)) is not None:
            check_storable(f"{part} of a scope", value, problems, most=LONGEST_NAME)


def check_storable(name: str, value: object, problems: list[str], most: int | None = None) -> None:
    """Adds a problem when a text is none, or one that not every database can hold."""
    if not isinstance(value, str):
        problems.append(f"{name} must be a str (got {shown(value)})")
    elif most is not None and len(value) > most:
        problems.append(f"{name} must have at most {most} characters (got {len(value)}). Put a hash of it.")
    elif not is_storable(value):
        problems.append(f"{name} must hold no NUL character and no lone surrogate (got {shown(value)})")


def is_storable(text: str) -> bool:
    """Returns whether every database can hold a text."""
    return "\0" not in text and not _SURROGATE.search(text)


def check_reading(query: object, scope: object, problems: list[str]) -> None:
    """Adds a problem where a question is no text, or its reader no scope."""
    if not isinstance(query, str):
        problems.append(f"query must be a text (got {shown(query)})")
    check_scope(scope, problems)


def check_validity(memory: Memory) -> None:
    """Raises BudgetConfigError for a memory that would end before it begins."""
    begins, ends = memory.valid_from, memory.valid_to
    if begins is not None and ends is not None and utc(ends) < utc(begins):
        msg = f"valid_from must not be after valid_to (got {begins} and {ends}). Exchange them."
        raise BudgetConfigError(msg)


def check_same(memory: Memory, changed: object) -> None:
    """Raises BudgetConfigError where a change returned something else, which no retry would make right."""
    same = isinstance(changed, Memory) and all(getattr(changed, f) == getattr(memory, f) for f in _FIXED)
    if not same:
        fixed = ", ".join(_FIXED)
        msg = f"change must return a text, or the memory with the same {fixed} (got {shown(changed)})"
        raise BudgetConfigError(msg)


def after(now: datetime, ttl: timedelta | float) -> datetime:
    """Returns the moment so long after now; the last one that there is for a time without end."""
    problems: list[str] = []
    seconds = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    found = check_number("ttl", seconds, problems, allowed="a timedelta or seconds above 0", above=True)
    refuse(problems)
    try:
        return now + timedelta(seconds=found)
    except OverflowError:
        return datetime.max.replace(tzinfo=timezone.utc)


def digest_of(text: str) -> str:
    """Returns the same for texts that differ only in case, spaces or the form of their characters."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def utc(moment: datetime) -> datetime:
    """Returns a moment with a time zone; one without is taken as UTC."""
    if moment.tzinfo is None:
        return moment.replace(tzinfo=timezone.utc)
    try:
        return moment.astimezone(timezone.utc)
    except OverflowError:  # the first or last moment there is, in a time zone of its own
        return moment.replace(tzinfo=timezone.utc)


def in_utc(memory: Memory) -> Memory:
    """Returns a memory whose dates have a time zone, whatever keeps it."""
    given: dict[str, Any] = {name: getattr(memory, name) for name in DATES}
    known: dict[str, Any] = {name: utc(moment) for name, moment in given.items() if moment is not None}
    return replace(memory, **known)


def levels_of(reader: Scope) -> list[Scope]:
    """Returns the scopes that a reader sees, its own first, everybody's last."""
    mine = [reader, Scope(user=reader.user)] if reader.user is not None else []
    shared = [Scope(project=reader.project)] if reader.project is not None else []
    return list(dict.fromkeys([*mine, *shared, Scope()]))
