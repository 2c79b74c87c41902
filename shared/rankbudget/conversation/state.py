"""What a session remembers of one conversation: positions, counts, hashes, and one summary; never a message."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ..messages.codec import Codec

__all__ = ["Cut", "KeptRun", "Prints", "ThreadState"]


@dataclass(frozen=True, slots=True)
class Cut:
    """A remembered decision: of the units before position `edge`, only those that begin at `starts` stay."""

    starts: frozenset[int]
    edge: int
    oldest: int


@dataclass(frozen=True, slots=True)
class KeptRun:
    """What stays of the turns before position `stop`: they cannot change any more, so they are not parsed again."""

    stop: int
    tokens: int
    positions: tuple[int, ...]
    broken: tuple[tuple[int, str], ...]
    """Messages among them that no valid conversation may hold: position and reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadState:
    """What one fit of a conversation leaves for the next one.

    Args:
        size: how many messages there were.
        stop: where the newest turn began; the turns before it cannot change any more.
        pinned: positions of system messages before `stop`.
        start: the oldest position before `stop` that was kept, system messages apart.
        tail: the oldest step of the newest turn that was kept.
        kept_hash: hash of older system messages, of the messages from `start` to `stop`, and from `tail` on.
        cut: which units stay; None while all of them do.
        run: what stays of the turns before `stop`.
        counted: first position, last position and tokens of each unit of the newest turn, in one array.
        question_hash: hash of the newest question, which those tokens hold for.
        whole: tokens of all turns before `stop` at the least.
        caps: positions whose text was shortened, each with the most tokens it kept.
        summary: the running summary; "" without one.
        summarized: the dropped messages before this position are in the summary.
        kept_before: positions before `summarized` that were kept when the summary was written, in order.
        summary_hash: hash of the messages that the summary covers; it holds in this process.
        summary_digest: the same, in every process.
        refused_at: size of the conversation for which the summarizer failed; it is asked again when that
            changes.
    """

    size: int = 0
    stop: int = 0
    pinned: tuple[int, ...] = ()
    start: int = 0
    tail: int = 0
    kept_hash: int = 0
    cut: Cut | None = None
    run: KeptRun | None = None
    counted: array[int] = field(default_factory=lambda: array("q"))
    question_hash: int = 0
    whole: int = 0
    caps: tuple[tuple[int, int], ...] = ()
    summary: str = ""
    summarized: int = 0
    kept_before: tuple[int, ...] = ()
    summary_hash: int = 0
    summary_digest: bytes = b""
    refused_at: int = -1

    def continued_by(self, prints: Prints) -> ThreadState | None:
        """Returns what still holds of this state for the messages behind `prints`; None where nothing does.

        The cut holds while nothing that was kept has changed, the newest question apart: hosts send it with
        retrieved text and store it without. The summary holds while nothing it covers has changed.
        """
        if self.summary and not self._summary_holds(prints):
            return None
        if (
            prints.size >= self.size
            and prints.asks(self.stop, self.size)
            and self.kept_hash
            == prints.hash_of_kept(self.pinned, self.start, self.stop, self.tail, self.size)
        ):
            return self
        return _only_summary(self) if self.summary else None

    def _summary_holds(self, prints: Prints) -> bool:
        """Returns whether all that the summary covers is as it was; a state from another process is compared by its digest."""
        covered = prints.covered(self.summarized, self.kept_before)
        return hash(tuple(covered)) == self.summary_hash or digest_of(covered) == self.summary_digest

    def tokens_of_newest(self, prints: Prints) -> dict[tuple[int, int], int]:
        """Returns the tokens of the newest turn's units as they were counted, by first position and the one after the last."""
        flat = self.counted
        found = {(flat[i], flat[i + 1]): flat[i + 2] for i in range(0, len(flat), 3)}
        if self.stop < prints.size and hash(prints.one(self.stop)) != self.question_hash:
            found.pop((self.stop, self.stop + 1), None)
        return found


class Prints:
    """The fingerprints of one list of messages, each made once where it is needed.

    Args:
        codec: makes them.
        messages: the conversation.
    """

    def __init__(self, codec: Codec, messages: Sequence[Any]) -> None:
        self.size = len(messages)
        self._codec = codec
        self._messages = messages
        self._kept: tuple[int, list[Hashable]] = (0, [])
        self._steps: tuple[int, list[Hashable]] = (0, [])

    def asks(self, position: int, size: int) -> bool:
        """Returns whether a user message is where the newest turn of a conversation of `size` messages began."""
        return position >= size or self._codec.role(self._messages[position]) == "user"

    def one(self, position: int) -> Hashable:
        """Returns the fingerprint of one message."""
        first, texts = self._kept
        if first <= position < first + len(texts):
            return texts[position - first]
        return self._codec.fingerprints(self._messages[position : position + 1])[0]

    def kept(self, start: int, stop: int) -> list[Hashable]:
        """Returns the fingerprints of older messages that were kept."""
        self._kept = self._extended(self._kept, start, stop)
        return self._kept[1]

    def steps(self, start: int, stop: int) -> list[Hashable]:
        """Returns the fingerprints of the newest turn's steps."""
        self._steps = self._extended(self._steps, start, stop)
        return self._steps[1]

    def covered(self, before: int, kept: tuple[int, ...]) -> list[Hashable]:
        """Returns the fingerprints of the messages before a position, apart from `kept`."""
        covered: list[Any] = []
        at = 0
        for position in kept:
            covered += self._messages[at:position]
            at = position + 1
        covered += self._messages[at:before]
        return self._codec.fingerprints(covered)

    def hash_of_kept(self, pinned: Sequence[int], start: int, stop: int, tail: int, size: int) -> int:
        """Returns the hash of older system messages, and of the messages from `start` to `stop` and from `tail` to `size`.

        It holds in this process.
        """
        older = tuple([self.one(p) for p in pinned if p < start])
        return hash((older, tuple(self.kept(start, stop)), tuple(self.steps(tail, size))))

    def _extended(
        self, known: tuple[int, list[Hashable]], start: int, stop: int
    ) -> tuple[int, list[Hashable]]:
        first, texts = known
        if not first <= start <= first + len(texts):
            return start, self._codec.fingerprints(self._messages[start:stop])
        held = texts[start - first : max(0, stop - first)]
        return start, held + self._codec.fingerprints(self._messages[start + len(held) : stop])


def digest_of(prints: Sequence[Hashable]) -> bytes:
    """Returns a hash of fingerprints that is the same in every process."""
    texts = [p if isinstance(p, str) else repr(p) for p in prints]
    made = blake2b(array("q", map(len, texts)).tobytes(), digest_size=16)
    made.update("".join(texts).encode("utf-8", "surrogatepass"))
    return made.digest()


def _only_summary(state: ThreadState) -> ThreadState:
    """Returns a state that remembers the summary alone."""
    return ThreadState(
        summary=state.summary,
        summarized=state.summarized,
        kept_before=state.kept_before,
        summary_hash=state.summary_hash,
        summary_digest=state.summary_digest,
    )
