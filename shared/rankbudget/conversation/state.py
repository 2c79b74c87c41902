"""What a session remembers of a conversation: positions, counts, hashes, and one summary; never a message."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..messages.codec import Codec, answers_of, says_nothing


@dataclass(frozen=True, slots=True)
class Cut:
    """A remembered decision: of the units before position `edge`, only those that begin at `starts` stay.

    `oldest` is the first of them, `room` the tokens there were for all but the current question.
    """

    starts: frozenset[int]
    edge: int
    oldest: int
    room: int


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What stays of the turns before position `stop`, which are closed and not parsed again.

    `broken` are the messages among them that no valid conversation may hold: position and reason.
    """

    stop: int
    tokens: int
    positions: tuple[int, ...]
    broken: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A summary and what it covers: the messages before position `summarized`, apart from `kept_before`.

    `hash` is of the messages that it covers and holds in this process, `digest` in every process.
    """

    text: str = ""
    summarized: int = 0
    kept_before: tuple[int, ...] = ()
    hash: int = 0
    digest: bytes = b""


@dataclass(slots=True)
class Prints:
    """The fingerprints of one list of messages; those of the last kept runs are not made again."""

    codec: Codec
    messages: Sequence[Any]
    _runs: dict[str, tuple[int, list[Hashable]]] = field(default_factory=dict)

    def one(self, position: int) -> Hashable:
        """Returns the fingerprint of one message."""
        return self.codec.fingerprints(self.messages[position : position + 1])[0]

    def asks(self, start: int, stop: int) -> bool:
        """Returns whether there is a question among some messages."""
        roles, answers = self.codec.roles(self.messages[start:stop]), answers_of(self.codec)
        asked = [m for m, role in zip(self.messages[start:stop], roles, strict=True) if role == "user"]
        return any(not answers(m) and not says_nothing(self.codec.to_dict(m)) for m in asked)

    def covered(self, before: int, kept: tuple[int, ...]) -> list[Hashable]:
        """Returns the fingerprints of the messages before a position, apart from `kept`."""
        covered: list[Any] = []
        at = 0
        for position in kept:
            covered += self.messages[at:position]
            at = position + 1
        covered += self.messages[at:before]
        return self.codec.fingerprints(covered)

    def sealed(self, before: int, kept: tuple[int, ...]) -> tuple[int, bytes]:
        """Returns hash and digest of the messages before a position, apart from `kept`."""
        seal = getattr(self.messages, "seal", None)  # of a stored conversation, which is not read for it
        if seal is not None:
            return 0, seal(before, kept)
        covered = self.covered(before, kept)
        return hash(tuple(covered)), digest_of(covered)

    def holds(self, summary: Summary) -> bool:
        """Returns whether nothing that a summary covers has changed."""
        before, kept = summary.summarized, summary.kept_before
        if hasattr(self.messages, "seal"):
            return self.sealed(before, kept)[1] == summary.digest
        covered = self.covered(before, kept)
        return hash(tuple(covered)) == summary.hash or digest_of(covered) == summary.digest

    def hash_of_kept(self, pinned: Sequence[int], start: int, stop: int, tail: int, size: int) -> int:
        """Returns the hash of older system messages and of two runs, `start` to `stop`, `tail` to `size`."""
        older = tuple([self.one(p) for p in pinned if p < start])
        hashed: list[tuple[Hashable, ...]] = []
        for name, first, last in (("turns", start, stop), ("steps", tail, size)):
            at, known = self._runs.get(name, (first, []))
            held = known[first - at : max(0, last - at)] if at <= first <= at + len(known) else []
            fresh = self.messages[first + len(held) : last]
            made = held + self.codec.fingerprints(fresh) if fresh else held
            self._runs[name] = (first, made)
            hashed.append(tuple(made))
        return hash((older, *hashed))


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """What one fit of a conversation leaves for the next one."""

    size: int = 0  # how many messages there were
    stop: int = 0  # where the newest turn began; the turns before it cannot change any more
    pinned: tuple[int, ...] = ()  # positions of system messages before `stop`
    start: int = 0  # the oldest position before `stop` that was kept, system messages apart
    tail: int = 0  # the oldest step of the newest turn that was kept
    kept_hash: int = 0  # of older system messages, of what is from `start` to `stop`, and from `tail` on
    cut: Cut | None = None  # which units stay; None while all of them do
    run: KeptRun | None = None  # what stays of the turns before `stop`
    counted: array[int] = field(default_factory=lambda: array("q"))
    """Of each unit of the newest turn its first position, its last, its tokens."""
    question_hash: int = 0  # of the newest question, which those tokens hold for
    asked_hash: int = 0  # of what was asked, wherever it stands
    whole: int = 0  # tokens of all turns before `stop` at the least
    caps: tuple[tuple[int, int], ...] = ()  # positions of shortened texts, with the most tokens of each
    asked: tuple[tuple[int, ...], ...] = ()  # where the questions are that each of these was shortened for
    summary: Summary = Summary()  # the running one
    refused_at: int = -1  # size for which the summarizer failed; it is asked again when that changes
    line: object = field(default_factory=object)  # the same for all states of one conversation

    def continued_by(self, prints: Prints) -> ThreadState | None:
        """Returns what still holds of this state for the messages behind `prints`; None where nothing does.

        The cut holds while nothing that was kept has changed, the newest question apart: hosts send it with
        retrieved text and store it without; where nothing else was kept, it must be the same. The summary
        holds while nothing it covers has changed.
        """
        summary, messages, stop = self.summary, prints.messages, self.stop
        held = not summary.text or prints.holds(summary)
        kept = (
            len(messages) >= self.size
            # What is asked beside results of no call does not look like a question.
            and (stop in (0, self.size) or prints.asks(stop, stop + 1) or self.has_question_of(prints))
            # Its newest turn is one still.
            and (stop + 1 >= self.size or not prints.asks(stop + 1, self.size))
            and self.kept_hash == prints.hash_of_kept(self.pinned, self.start, stop, self.tail, self.size)
            and (not self._is_question_alone() or self.has_question_of(prints))
        )
        if held and kept:
            return self
        if summary.text and held:
            return ThreadState(summary=summary, line=self.line)
        return ThreadState(line=self.line) if kept else None  # what was summarized has been edited

    def tokens_of_newest(self, prints: Prints) -> dict[tuple[int, int], int]:
        """Returns the counted tokens of the newest turn's units, by their start and stop."""
        flat = self.counted
        found = {(flat[i], flat[i + 1]): flat[i + 2] for i in range(0, len(flat), 3)}
        if found and not self.has_question_of(prints):
            found.pop((self.stop, self.stop + 1), None)
        return found

    def _is_question_alone(self) -> bool:
        pinned = sum([position >= self.start for position in self.pinned])
        return self.tail == self.size and self.stop - self.start == pinned

    def has_question_of(self, prints: Prints) -> bool:
        """Returns whether the newest question is still where it was, with the same text."""
        return self.stop < len(prints.messages) and hash(prints.one(self.stop)) == self.question_hash


def continued(known: Sequence[ThreadState], prints: Prints) -> ThreadState | None:
    """Returns what still holds of one of a thread's states; the longest that holds as a whole wins."""
    part: ThreadState | None = None
    for state in sorted(known, key=lambda state: -state.size):
        found = state.continued_by(prints)
        if found is state:
            return state
        part = part or found
    return part


def digest_of(prints: Sequence[Hashable]) -> bytes:
    """Returns a hash of fingerprints that is the same in every process."""
    texts = [p if isinstance(p, str) else repr(p) for p in prints]
    made = blake2b(array("q", map(len, texts)).tobytes(), digest_size=16)
    made.update("".join(texts).encode("utf-8", "surrogatepass"))
    return made.digest()
