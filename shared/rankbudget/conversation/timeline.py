"""One conversation, read from its newest end: turns, units that live or die together, pinned positions, lazy counts.

A turn starts at a user message. Its units are that message, plain answers, and tool batches (a call with all its results). Nothing old
is read until it is asked for, except which roles there are, which is one fast pass: system messages may stand anywhere. A user message that
holds tool results is no question but part of the batch it answers; it is told from a question when the search for questions comes to it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..messages.codec import KNOWN_ROLES, PINNED_ROLES, Codec, answers_of
from ..messages.measure import Measure

__all__ = ["Broken", "Timeline", "Turn", "Unit"]

_UNKNOWN = -2
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
        ended: something follows them in the prompt, so that no call at their end can still wait for its results.
    """

    def __init__(
        self, messages: Sequence[Any], codec: Codec, measure: Measure, *, ended: bool = False
    ) -> None:
        self.ended = ended
        self.messages = list(messages)
        self.codec = codec
        self._answers = answers_of(codec)
        self.measure = measure
        self._roles = bytearray(len(self.messages))
        self._unread = len(self.messages)  # roles before this position are not read yet
        self.edits: dict[int, Any] = {}
        self.least = 0
        """What all that is valid costs at the least, as it was written: what a session once knew to be too long for a room stays too long for it."""
        self._turns: list[Turn] = []  # newest first, parsed on demand
        self._tokens: dict[int, int] = {}
        self._prints: list[object] = []
        self._pinned_prints: dict[int, object] = {}
        self._prints_from = 0
        self._first_user = _UNKNOWN
        self.pinned = self._find_pinned()

    def __len__(self) -> int:
        return len(self._roles)

    def role(self, position: int) -> str:
        """Returns what one message is: its role, and "tool" for a user message that holds tool results."""
        self._read_roles(position)
        if self._roles[position] == _USER:
            self._asks(position)
        return _NAMES[self._roles[position]]

    def copy(self) -> Timeline:
        """Returns a timeline of its own over the same messages; turns are parsed again, counts come from the counter's cache."""
        new = copy.copy(self)
        fresh: dict[str, Any] = {"_turns": [], "_tokens": dict(self._tokens), "_prints": list(self._prints)}
        vars(new).update(
            fresh,
            messages=list(self.messages),
            edits=dict(self.edits),
            _roles=self._roles[:],
            pinned=list(self.pinned),
        )
        return new

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
        """Returns what a unit costs; counted once."""
        tokens = unit.tokens
        if tokens < 0:
            as_written = not self.edits and not unit.holes  # `read`, written out: most units are
            tokens = unit.tokens = self.measure.group(
                self.messages[unit.start : unit.stop] if as_written else self.read(unit)
            )
        return tokens

    def read(self, unit: Unit) -> Sequence[Any]:
        """Returns the messages of a unit, shortened copies in the place of what they replace."""
        if self.edits and not self.edits.keys().isdisjoint(range(unit.start, unit.stop)):
            return [self.edits.get(i, self.messages[i]) for i in unit.positions()]
        if unit.holes:
            return [self.messages[i] for i in unit.positions()]
        return self.messages[unit.start : unit.stop]

    def edit(self, edits: dict[int, Any]) -> None:
        """Puts shortened copies in the place of messages, from now on."""
        self.note_least()
        self.edits.update(edits)
        self._recount(edits)

    def unedit(self) -> None:
        """Takes all shortened copies back."""
        edits, self.edits = self.edits, {}
        self._recount(edits)

    def restore(self, edits: dict[int, Any]) -> None:
        """Puts the shortened copies back that were in place before."""
        if edits != self.edits:
            self.unedit()
            self.edit(edits)

    def note_least(self) -> None:
        """Remembers what all that was counted so far costs, apart from what may yet turn out not to be valid."""
        if not self.edits:
            certain = [
                u.tokens
                for t in self._turns
                if t.question
                for u in t.units()
                if u.tokens > 0 and not u.waiting
            ]
            self.least = max(self.least, sum(certain))

    def _recount(self, edits: Iterable[int]) -> None:
        changed = frozenset(edits)
        for turn in self._turns:
            for unit in turn.units():
                if not changed.isdisjoint(range(unit.start, unit.stop)):
                    unit.tokens = -1

    def end(self, *, ended: bool) -> None:
        """Says whether something follows the messages in the prompt."""
        if ended != self.ended:
            self.ended = ended
            self._reparse_end()

    def tokens_at(self, position: int) -> int:
        """Returns what one message costs on its own; counted once."""
        found = self._tokens.get(position)
        if found is None:
            found = self._tokens[position] = self.measure.group(self.messages[position : position + 1])
        return found

    def turn_number(self, start: int) -> int:
        """Returns the ordinal of the turn that starts at a position, 1 for the first.

        Where none of the turns read so far holds results in user messages, older ones are not searched for them, and each counts for a turn.
        """
        self._read_roles(0)
        if _ANSWERS in self._roles:
            return sum([self._asks(i) for i, role in enumerate(self._roles[: start + 1]) if role == _USER])
        return self._roles.count(_USER, 0, start + 1)

    def owed(self, turn: Turn) -> list[Unit]:
        """Returns the tool batch at the very end of the newest turn, waiting for results or with all of them: the model has not answered it yet."""
        last = turn.body[-1:]
        return (
            last
            if last and (last[0].waiting or (not self.ended and last[0].stop - last[0].start > 1))
            else []
        )

    def leftovers(self) -> list[Broken]:
        """Returns what stands before the first user message and may not open a conversation."""
        opening = self.first_user
        if opening < 0:
            opening = len(self) if self.ended else 0
        return [Broken(i, "leading_assistant") for i in range(opening) if self._roles[i] not in _PINNED]

    def remember(self, start: int) -> None:
        """Notes what is kept from a position on, so that `extend` can tell the same conversation from another."""
        while self._turns and self._turns[-1].start < start:
            self._turns.pop()
        prints = self.codec.fingerprints
        if start == self._prints_from and self._prints:
            self._prints += prints(self.messages[start + len(self._prints) :])
            return
        self._prints_from = start
        self._prints = prints(self.messages[start:])
        self._pinned_prints = {p: self.codec.fingerprint(self.messages[p]) for p in self.pinned if p < start}

    def extend(self, messages: Sequence[Any]) -> bool:
        """Takes a longer list of the same conversation; reads only what was kept and what is new.

        Returns False, and changes nothing, when what was kept is not there any more: then it is another conversation.
        """
        known, start = len(self._roles), self._prints_from
        if len(messages) < known or len(self._prints) != known - start:
            return False
        kept = messages[start:known]
        if self.codec.fingerprints(kept) != self._prints:
            return False
        if any(self.codec.fingerprint(messages[p]) != seen for p, seen in self._pinned_prints.items()):
            return False
        added = messages[known:]
        fresh = _codes(self.codec, added)
        self.messages[start:known] = kept  # equal, but what is handed back are the objects of this call
        for p in self._pinned_prints:
            self.messages[p] = messages[p]
        self.messages += added
        if not fresh:
            return True
        self._roles += fresh
        self.pinned += [known + i for i, role in enumerate(fresh) if role in _PINNED]
        if self._first_user < 0:
            self._first_user = _UNKNOWN
        self._reparse_end()
        return True

    def _reparse_end(self) -> None:
        """Parses the newest turn again, which new messages changed, and the turns they opened; a unit that is as it was keeps its count."""
        newest, older = self._turns[:1], self._turns[1:]
        self._turns = []
        if older:
            edge = older[0].stop
            while self._parse_one() and self._turns[-1].start > edge:
                continue
        known = {(u.start, u.stop, u.holes): u.tokens for turn in newest for u in turn.units()}
        for turn in self._turns if known else ():
            for unit in turn.units():
                unit.tokens = known.get((unit.start, unit.stop, unit.holes), -1)
        self._turns += older

    def _find_pinned(self) -> list[int]:
        """Looks through all messages once, and only where system messages stand after the first others through all of them again."""
        role, messages = self.codec.role, self.messages
        leading = 0
        while leading < len(messages) and role(messages[leading]) in PINNED_ROLES:
            leading += 1
        kinds = _kinds(self.codec, messages, leading)
        if kinds <= KNOWN_ROLES and kinds.isdisjoint(PINNED_ROLES):
            return list(range(leading))
        self._read_roles(0)
        return [i for i, role in enumerate(self._roles) if role in _PINNED]

    def _read_roles(self, position: int) -> None:
        """Reads the roles down to a position."""
        while self._unread > position:
            low = max(0, min(position, self._unread - _BLOCK))
            self._roles[low : self._unread] = _codes(self.codec, self.messages[low : self._unread])
            self._unread = low

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
                self._turns.append(self._parse(start, stop, asked=True))
                return True
            looked = self._unread
            if not looked:
                break
            self._read_roles(max(0, looked - _BLOCK))
        if not self._turns and not self.ended:  # a thread without any user message is one turn
            self._turns.append(self._parse(0, stop, asked=False))
            return True
        return False

    def _parse(self, start: int, stop: int, *, asked: bool) -> Turn:
        roles = self._roles
        body: list[Unit] = []
        broken: list[Broken] = []
        at = start + 1 if asked else start
        while at < stop:
            role = roles[at]
            if role == _ASSISTANT:
                ids = self.codec.call_ids(self.messages[at])
                after = at + 1
                if ids:
                    after = self._batch(at, stop, ids, body, broken)
                else:
                    body.append(Unit(at, after))
                at = after
                continue
            if role in (_TOOL, _ANSWERS):
                broken.append(Broken(at, "orphan_result"))
            at += 1
        return Turn(start, stop, Unit(start, start + 1) if asked else None, body, broken)

    def _batch(self, at: int, stop: int, ids: tuple[str, ...], body: list[Unit], broken: list[Broken]) -> int:
        """Reads a call and the results that directly follow it; returns the position after them."""
        roles, messages = self._roles, self.messages
        open_ids = set(ids)
        results, strays = [], []
        after = at + 1
        while after < stop and roles[after] in (_TOOL, _ANSWERS):
            answered = (
                (self.codec.result_id(messages[after]),)
                if roles[after] == _TOOL
                else self._answers(messages[after])
            )
            if open_ids.issuperset(answered) and len(set(answered)) == len(answered):
                open_ids.difference_update(answered)
                results.append(after)
            else:
                strays.append(after)
            after += 1
        waiting = bool(open_ids) and after == len(roles) and not self.ended
        broken += [Broken(i, "orphan_result") for i in strays]
        if open_ids and not waiting:
            broken.append(Broken(at, "unanswered_call"))
            broken += [Broken(i, "unanswered_call") for i in results]
        else:
            body.append(Unit(at, after, waiting, holes=tuple(strays)))
        return after


def _kinds(codec: Codec, messages: Sequence[Any], start: int) -> set[str]:
    """Returns which roles there are; ten thousand messages are looked at on every call, so that a codec may have a shorter way."""
    shorter = getattr(codec, "kinds", None)
    return shorter(messages, start) if shorter is not None else set(codec.roles(messages[start:]))


def _codes(codec: Codec, messages: Sequence[Any]) -> bytes:
    roles = codec.roles(messages)
    try:
        known = set(roles) <= KNOWN_ROLES
    except TypeError:  # something a role cannot be: reading it on its own says so
        known = False
    return bytes(map(_CODES.__getitem__, roles if known else [codec.role(m) for m in messages]))
