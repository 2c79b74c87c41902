"""One conversation, read from its newest end: turns, units that are kept or dropped together, pinned positions.

A turn starts at a user message. Its units are that message, plain answers, and tool batches (a call with all
its results). Old messages are read only when they are asked for, except their roles, which is one fast pass:
system messages may be anywhere. A user message that holds tool results is part of the batch it answers, not a
question.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ..counting.blocks import must_be_answered, unanswered
from ..messages.codec import KNOWN_ROLES, PINNED_ROLES, Codec, answers_of, says_nothing
from ..messages.measure import Measure
from .state import Prints, ThreadState

__all__ = ["NO_EDITS", "Broken", "Timeline", "Turn", "Unit"]

NO_EDITS: Mapping[int, Any] = MappingProxyType({})
"""Nothing is shortened."""

_UNKNOWN = -2
_HELD_BY_SERVER = (
    "server_history: the calls of these results are not among the messages; they are not counted"
)
_CODES = {role: ord(role[0]) for role in ("system", "developer", "user", "assistant", "tool")}
"""A byte for each role: a long thread keeps one a message, and is searched for its questions at the speed of memory."""
_NAMES = {code: role for role, code in _CODES.items()}
_USER, _ASSISTANT, _TOOL = _CODES["user"], _CODES["assistant"], _CODES["tool"]
_ANSWERS = ord("r")  # a user message known to hold tool results
_NAMES[_ANSWERS] = "tool"
_PINNED = frozenset(_CODES[role] for role in PINNED_ROLES)
_BLOCK = 128  # roles read at once


@dataclass(slots=True)
class Unit:
    """A run of messages that lives or dies together: positions `start` to before `stop`."""

    start: int
    stop: int
    waiting: bool = False
    """A tool call at the very end that still waits for (some of) its results."""
    tokens: int = -1
    holes: tuple[int, ...] = ()
    """Positions inside that do not belong: results nobody asked for."""

    def positions(self) -> Sequence[int]:
        """Returns the positions that belong."""
        if not self.holes:
            return range(self.start, self.stop)
        return [i for i in range(self.start, self.stop) if i not in self.holes]


@dataclass(slots=True)
class Broken:
    """A message that no valid conversation may hold, and why."""

    position: int
    reason: str


@dataclass(slots=True)
class Turn:
    """A question and all that follows it up to the next one; `question` is None for a thread without any user message."""

    start: int
    stop: int
    question: Unit | None
    body: list[Unit]
    broken: list[Broken]

    def units(self) -> list[Unit]:
        """Returns all units, oldest first."""
        return [self.question, *self.body] if self.question else self.body

    def core(self) -> list[Unit]:
        """Returns what an exchange is at the least: the question and its last answer or tool batch."""
        if self.question is None:
            return self.body[-1:]
        return [self.question, self.body[-1]] if self.body else [self.question]

    def rest(self) -> list[Unit]:
        """Returns the other units, newest first."""
        return self.body[-2::-1] if len(self.body) > 1 else []


class Timeline:
    """Reads one list of host messages.

    Args:
        messages: the conversation, oldest first; never changed.
        codec: reads the host's message objects.
        measure: counts them.
        ended: something follows them in the prompt, so that no call at their end can still wait for its
            results.
        known: what a session remembers of the same conversation; what it has read is not read again.
        prints: the fingerprints of the messages; None makes them anew where they are needed.
    """

    def __init__(
        self,
        messages: Sequence[Any],
        codec: Codec,
        measure: Measure,
        *,
        ended: bool = False,
        known: ThreadState | None = None,
        prints: Prints | None = None,
    ) -> None:
        self.messages = list(
            messages
        )  # a report reads dropped messages later, whatever the caller does to its list
        self.codec = codec
        self.measure = measure
        self.ended = ended
        self.known = known
        self.prints = prints or Prints(codec, self.messages)
        self._answers = answers_of(codec)
        self._goes_on = getattr(codec, "goes_on", None)
        self.warnings: tuple[str, ...] = ()
        self._turns: list[Turn] = []  # newest first, parsed on demand
        self._tokens: dict[int, int] = {}
        self._first_user = _UNKNOWN
        self._roles = bytearray(len(self.messages))
        self._unread = len(self.messages)  # roles before this position are not read yet
        self.pinned = list(known.pinned) if known is not None else self._find_pinned()
        if known is not None:
            self._read_roles(known.stop)

    def __len__(self) -> int:
        return len(self._roles)

    def role(self, position: int) -> str:
        """Returns what one message is: its role, and "tool" for a user message that holds tool results."""
        self._read_roles(position)
        if self._roles[position] == _USER:
            self._asks(position)
        return _NAMES[self._roles[position]]

    @property
    def first_user(self) -> int:
        """The position of the first user message, -1 without one."""
        if self._first_user == _UNKNOWN:
            self._read_roles(0)
            found = self._roles.find(_USER)
            while found >= 0 and not self._asks(found):
                found = self._roles.find(_USER, found + 1)
            self._first_user = found
        return self._first_user

    @property
    def leading(self) -> int:
        """How many system and developer messages open the conversation."""
        count = 0
        for position in self.pinned:
            if position != count:
                break
            count += 1
        return count

    def turns(self) -> Iterator[Turn]:
        """Yields the turns, newest first; each is parsed once."""
        done = 0
        while True:
            if done == len(self._turns) and not self._parse_one():
                return
            yield self._turns[done]
            done += 1

    def tokens_of(self, unit: Unit) -> int:
        """Returns what a unit costs as it was written; counted once."""
        tokens = unit.tokens
        if tokens < 0:
            run = self.messages[unit.start : unit.stop] if not unit.holes else self.read(unit)
            tokens = unit.tokens = self.measure.group(run)
        return tokens

    def cost(self, units: Sequence[Unit], edits: Mapping[int, Any] = NO_EDITS) -> int:
        """Returns what units cost with shortened copies in the place of some messages."""
        if not edits:
            return sum([self.tokens_of(unit) for unit in units])
        return sum([self._edited_tokens(unit, edits) for unit in units])

    def _edited_tokens(self, unit: Unit, edits: Mapping[int, Any]) -> int:
        if edits.keys().isdisjoint(unit.positions()):
            return self.tokens_of(unit)
        return self.measure.group([edits.get(i, self.messages[i]) for i in unit.positions()])

    def costs_at_most(self, tokens: int) -> bool:
        """Returns whether all of the conversation costs at most `tokens`; counts no more than that."""
        left = tokens - self.pinned_tokens
        if left < 0 or (self.known is not None and self.known.whole > left):
            return False
        for turn in self.turns():
            left -= self.cost(turn.units())
            if left < 0:
                return False
        return True

    def read(self, unit: Unit) -> Sequence[Any]:
        """Returns the messages of a unit."""
        if unit.holes:
            return [self.messages[i] for i in unit.positions()]
        return self.messages[unit.start : unit.stop]

    def counted_since(self, start: int) -> int:
        """Returns what was counted so far of the turns that begin at `start` or later, the newest turn apart."""
        older = [turn for turn in self._turns[1:] if turn.start >= start]
        return sum([unit.tokens for turn in older for unit in turn.units() if unit.tokens > 0])

    @property
    def pinned_tokens(self) -> int:
        """What the system messages cost."""
        return sum([self.tokens_at(p) for p in self.pinned])

    @property
    def newest(self) -> Turn | None:
        """The newest turn, None where there is none."""
        return next(self.turns(), None)

    def tokens_at(self, position: int) -> int:
        """Returns what one message costs on its own; counted once."""
        found = self._tokens.get(position)
        if found is None:
            found = self._tokens[position] = self.measure.group(self.messages[position : position + 1])
        return found

    def turn_number(self, start: int) -> int:
        """Returns the ordinal of the turn that starts at a position, 1 for the first.

        Where none of the turns read so far holds results in user messages, older ones are not searched for
        them, and each counts for a turn.
        """
        self._read_roles(0)
        if _ANSWERS in self._roles:
            return sum([self._asks(i) for i, role in enumerate(self._roles[: start + 1]) if role == _USER])
        return self._roles.count(_USER, 0, start + 1)

    def pending_step(self, turn: Turn) -> list[Unit]:
        """Returns the tool batch at the very end of the newest turn, waiting for results or with all of them: the model has not answered it yet."""
        last = turn.body[-1:]
        if not last or last[0].waiting:
            return last
        return last if not self.ended and self._roles[last[0].stop - 1] != _ASSISTANT else []

    def leftovers(self) -> list[Broken]:
        """Returns what stands before the first user message and may not open a conversation."""
        opening = self.first_user
        if opening < 0:
            opening = len(self) if self.ended else 0
        return [Broken(i, "leading_assistant") for i in range(opening) if self._roles[i] not in _PINNED]

    def _find_pinned(self) -> list[int]:
        """Looks through all messages once, and only where system messages stand after the first others through all of them again."""
        role, messages = self.codec.role, self.messages
        leading = 0
        while leading < len(messages) and role(messages[leading]) in PINNED_ROLES:
            leading += 1
        shorter = getattr(self.codec, "kinds", None)  # ten thousand messages are looked at on every call
        kinds = (
            shorter(messages, leading) if shorter is not None else set(self.codec.roles(messages[leading:]))
        )
        if kinds <= KNOWN_ROLES and kinds.isdisjoint(PINNED_ROLES):
            return list(range(leading))
        self._read_roles(0)
        return [i for i, role in enumerate(self._roles) if role in _PINNED]

    def _read_roles(self, position: int) -> None:
        """Reads the roles down to a position."""
        while self._unread > position:
            low = max(0, min(position, self._unread - _BLOCK))
            codes = _codes(self.codec, self.messages[low : self._unread])
            self._roles[low : self._unread] = codes
            self._unread = low
            if self.known is not None and not _PINNED.isdisjoint(codes):  # what is new, or was edited since
                found = {low + i for i, code in enumerate(codes) if code in _PINNED}
                self.pinned = sorted(found.union(self.pinned))

    def _asks(self, position: int) -> bool:
        """Says whether a user message is a question; one that holds tool results is noted as such."""
        if self._answers(self.messages[position]):
            self._roles[position] = _ANSWERS
        return self._roles[position] == _USER

    def _parse_one(self) -> bool:
        roles = self._roles
        stop = self._turns[-1].start if self._turns else len(roles)
        if stop <= 0:
            return False
        looked = stop  # nobody asks from here on
        while True:
            start = roles.rfind(_USER, self._unread, looked)
            if start >= 0:
                if self._answers(self.messages[start]):  # `_asks`, written out
                    roles[start], looked = _ANSWERS, start
                    continue
                turn = self._parse(start, stop, asked=True)
                self._turns.append(turn)
                if self.known is not None and start == self.known.stop:
                    self._take_known_tokens(turn, self.known)
                return True
            looked = self._unread
            if not looked:
                break
            self._read_roles(max(0, looked - _BLOCK))
        if not self._turns and not self.ended:  # a thread without any user message is one turn
            self._turns.append(self._parse(0, stop, asked=False))
            return True
        return False

    def _take_known_tokens(self, turn: Turn, known: ThreadState) -> None:
        """Takes over the counts of what has not changed in the turn that was the newest one last time."""
        counted = known.tokens_of_newest(self.prints)
        for unit in turn.units():
            if not unit.holes:
                unit.tokens = counted.get((unit.start, unit.stop), -1)

    def _parse(self, start: int, stop: int, *, asked: bool) -> Turn:
        roles = self._roles
        body: list[Unit] = []
        broken: list[Broken] = []
        at = start + 1 if asked else start
        while at < stop:
            role = roles[at]
            if role == _ASSISTANT:
                at = self._parse_answer(at, stop, body, broken)
                continue
            if role in (_TOOL, _ANSWERS):
                broken.append(Broken(at, "orphan_result"))
            at += 1
        if broken and not body and not asked and not self.ended and _ASSISTANT not in roles:
            # Nothing but results: the server holds their calls (OpenAI's `previous_response_id`).
            self.warnings = (_HELD_BY_SERVER,)
            results = [b.position for b in broken]
            holes = tuple([i for i in range(results[0], results[-1]) if i not in results])
            return Turn(start, stop, None, [Unit(results[0], results[-1] + 1, True, holes=holes)], [])
        return Turn(start, stop, Unit(start, start + 1) if asked else None, body, broken)

    def _parse_answer(self, at: int, stop: int, body: list[Unit], broken: list[Broken]) -> int:
        """Reads an assistant message, with the results of its calls; returns the position after them."""
        roles, messages = self._roles, self.messages
        after = at + 1
        while self._goes_on is not None and after < stop and roles[after] == _ASSISTANT:
            if not self._goes_on(messages[after - 1]):
                break
            after += 1
        ids = [call for message in messages[at:after] for call in self.codec.call_ids(message)]
        if ids:
            return self._batch(at, after, stop, ids, body, broken)
        if all(says_nothing(self.codec.to_dict(message)) for message in messages[at:after]):
            broken += [Broken(i, "empty_message") for i in range(at, after)]
        elif self._answers(messages[at]):
            broken += [Broken(i, "orphan_result") for i in range(at, after)]
        else:
            body.append(Unit(at, after))
        return after

    def _batch(
        self, at: int, after: int, stop: int, ids: list[str], body: list[Unit], broken: list[Broken]
    ) -> int:
        """Reads the results that directly follow a call; returns the position after them."""
        roles, messages = self._roles, self.messages
        open_calls = ids
        results, strays = list(range(at + 1, after)), []
        while after < stop and roles[after] in (_TOOL, _ANSWERS, _ASSISTANT):
            answered: tuple[str | None, ...] = self._answers(messages[after])
            if roles[after] == _ASSISTANT and not answered:
                break
            if roles[after] == _TOOL and not answered:
                answered = (self.codec.result_id(messages[after]),)
            left = unanswered(open_calls, answered)
            if left is not None:
                open_calls = left
                results.append(after)
                if roles[after] == _ASSISTANT:
                    open_calls += self.codec.call_ids(messages[after])
            else:
                strays.append(after)
            after += 1
        waiting = bool(open_calls) and after == len(roles) and not self.ended
        broken += [Broken(i, "orphan_result") for i in strays]
        if must_be_answered(open_calls) and not waiting:
            broken.append(Broken(at, "unanswered_call"))
            broken += [Broken(i, "unanswered_call") for i in results]
        else:
            body.append(Unit(at, after, waiting, holes=tuple(strays)))
        return after


def _codes(codec: Codec, messages: Sequence[Any]) -> bytes:
    roles = codec.roles(messages)
    try:
        known = set(roles) <= KNOWN_ROLES
    except TypeError:  # something a role cannot be: reading it on its own says so
        known = False
    return bytes(map(_CODES.__getitem__, roles if known else [codec.role(m) for m in messages]))
