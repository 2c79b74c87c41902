"""One conversation, read from its newest end: turns, units that stay or go together, pinned positions.

A turn starts at a user message. Its units are that message, plain answers, and tool batches (a call with all
its results, which may be in a user message). Old messages are read only when they are asked for, except their
roles, which is one fast pass: system messages may be anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ..messages.codec import KNOWN_ROLES, PINNED_ROLES, Codec, answers_of, beside_results, says_nothing
from ..messages.measure import Measure, opening, total_before
from ..messages.texts import content_text, parts_of
from .answers import ANSWERS, ASSISTANT, CODES, EMPTY, NAMES, PINNED, STORED, USER, Answers
from .reading import held
from .state import Prints, ThreadState, continued
from .stored import StoredMessages
from .thread import Thread
from .units import Broken, Turn, Unit

NO_EDITS: Mapping[int, Any] = MappingProxyType({})
"""Nothing is shortened."""

_BLOCK = 128  # roles read at once


class Timeline(Answers):
    """Reads one list of host messages, oldest first.

    When it is `ended`, something follows it in the prompt, so that no call at its end waits for its results.
    What the session of a `thread` remembers and still holds is not read again.

    Raises:
        MessageError: a message cannot be read, or needs a repair while the thread is strict.
    """

    _counted: dict[tuple[int, int], int]
    thread: Thread  # where there is one
    shortens: bool  # whether results of older steps may be shortened
    _most_turns: int | None = None

    def __init__(
        self,
        messages: Sequence[Any],
        codec: Codec,
        measure: Measure,
        *,
        ended: bool = False,
        thread: Thread | None = None,
    ) -> None:
        self.given = self.messages = held(messages)  # a report reads dropped ones later
        self.stripped, self.repairs = {}, {}
        self.stored = messages if isinstance(messages, StoredMessages) else None
        self._known_roles = getattr(self.messages, "roles", None)  # a store reads no content for them
        self.codec = codec
        self.measure = measure
        self._may_wait = not ended
        if thread is not None:
            self.thread, ended = thread, thread.asked_elsewhere
            self._may_wait = not (ended or thread.sent)
            self._most_turns = thread.most_turns
            # Where there is a summarizer, steps that do not fit whole go into the summary.
            self.shortens = thread.message_cap is not None and thread.summarizer is None
        self.ended = ended
        self.prints = Prints(codec, self.given)
        states = thread.known if thread is not None else ()
        known = continued(states, self.prints) if states else None
        self.known: ThreadState | None = known
        self._answers = getattr(codec, "answers", None) or answers_of(codec)
        self._goes_on = getattr(codec, "goes_on", None)
        self._check_content = getattr(codec, "check", None)
        self._without_blanks = getattr(codec, "without_blanks", None)
        self.turns_read: list[Turn] = []  # newest first, parsed on demand
        self._pinned_counts: dict[int, int] = {}
        self._held = self._results_of_stored_calls() if thread is not None and thread.held else 0
        self._roles = bytearray(len(self.messages))
        self._unread = len(self.messages)  # roles before this position are not read yet
        remembered = known or ThreadState()
        self._counted, self.pinned = remembered.tokens_of_newest(self.prints), list(remembered.pinned)
        self.pinned = self._find_pinned()
        if self._check_content is not None:
            self._check_contents(self.pinned)
        self.newest = self.turns_read[0] if self._parse_one() else None
        self._check_known()
        question = self.newest.question if self.newest is not None else None
        self.asked = None if question is None else question.start  # where the newest question is

    def role(self, position: int) -> str:
        """Returns what one message is: its role, and "tool" for a user message that holds tool results."""
        self._read_roles(position)
        return NAMES[USER if self._asks(position) else self._roles[position]]

    def turns(self) -> Iterator[Turn]:
        """Yields the turns, newest first; each is parsed once."""
        done = 0
        while True:
            if done == len(self.turns_read) and not self._parse_one():
                return
            yield self.turns_read[done]
            done += 1

    @cached_property
    def first_turn(self) -> int:
        """Where the first turn begins that `last_turns` leaves; 0 where it leaves all of them."""
        if self._most_turns is None:
            return 0
        start = len(self.messages)
        for _ in range(min(self._most_turns, start)):
            start = self.question_before(start)
        return start if self.question_before(start) >= 0 else 0

    def tokens_of(self, unit: Unit) -> int:
        """Returns what a unit costs as it was written; counted once."""
        if unit.tokens < 0:
            unit.tokens = self._counted.get((unit.start, unit.stop), -1)
        if unit.tokens < 0:
            run = self.read(unit) if unit.holes else self.messages[unit.start : unit.stop]
            unit.tokens = self.measure.group(run)
        return unit.tokens

    def cost(self, units: Sequence[Unit], edits: Mapping[int, Any] = NO_EDITS) -> int:
        """Returns what units cost with shortened copies in the place of some messages."""
        total = 0
        for unit in units:
            if not edits or edits.keys().isdisjoint(unit.positions()):
                total += self.tokens_of(unit)
            else:
                total += self.measure.group([edits.get(i, self.messages[i]) for i in unit.positions()])
        return total

    def total(self, messages: Sequence[Any]) -> int:
        """Returns what a request with these messages costs, without a question that is given apart."""
        return total_before(self.measure, messages) if self.ended else self.measure.total(messages)

    def costs_at_most(self, tokens: int) -> bool:
        """Returns whether all of the conversation costs at most `tokens`; counts no more than that."""
        left, known = tokens - self.pinned_tokens, self.known
        for turn in self.turns():
            left -= self.cost(turn.units)
            if left < 0:
                return False
            if known is not None and turn.start == known.stop and known.whole > left and not self.first_turn:
                return False  # what was counted before is not counted again
        return left >= 0

    def name(self, position: int) -> str:
        """Returns the id of a message: its host's own, or its position."""
        return self.codec.message_id(self.messages[position]) or f"history-{position}"

    def parts(self, position: int) -> list[list[str]]:
        """Returns the plain texts of a message: those of each tool result in it, and of what is beside."""
        return parts_of(self.codec.to_dict(self.messages[position]).get("content"))

    def text(self, position: int) -> str:
        """Returns the plain text of a message."""
        return content_text(self.codec.to_dict(self.messages[position]).get("content"))

    def sizes(self, position: int) -> list[int]:
        """Returns the tokens of each part of a message; one that is shortened has so many in each."""
        return self.thread.counter.count_many(list(map("\n".join, self.parts(position))))

    def is_longer(self, position: int, tokens: int) -> bool:
        """Returns whether a part of a message has more than so many `tokens`."""
        return max(self.sizes(position), default=0) > tokens

    def read(self, unit: Unit) -> Sequence[Any]:
        """Returns the messages of a unit."""
        return [self.messages[i] for i in unit.positions()]

    def is_pinned(self, position: int) -> bool:
        """Returns whether a message always stays where it is."""
        at = bisect_left(self.pinned, position)
        return self.pinned[at : at + 1] == [position]

    @property
    def pinned_tokens(self) -> int:
        """What the messages that always stay cost."""
        counts = self._pinned_counts
        for position in self.pinned:
            if position not in counts:
                counts[position] = self.measure.group(self.messages[position : position + 1])
        return sum(counts.values())

    @property
    def systems(self) -> list[Any]:
        """The system messages, which always stay."""
        pinned = [self.messages[p] for p in self.pinned]  # `role` would read all behind the first one
        return [message for message in pinned if self.codec.role(message) in PINNED_ROLES]

    @cached_property
    def overhead(self) -> int:
        """What a request costs before any message, where system messages as these open it."""
        if self.measure.additive:  # then no message has to be read for it
            return self.measure.overhead
        return self.measure.overhead + opening(self.measure, self.systems)

    def is_as_remembered(self) -> bool:
        """Returns whether nothing was added and nothing else asked since the session remembered."""
        known = self.known
        if known is None or known.size != len(self.messages):
            return False
        return (known.stop, known.stop + 1) in self._counted  # the question's, where it is the same

    def turn_number(self, start: int) -> int:
        """Returns the ordinal of the turn that starts at a position, 1 for the first.

        Where none of the turns read so far holds results or nothing in user messages, older ones are not
        searched for them, and each counts for a turn.
        """
        self._read_roles(0)
        if ANSWERS in self._roles or EMPTY in self._roles:
            return sum([self._asks(i) for i in range(start + 1)])
        return self._roles.count(USER, 0, start + 1)

    def unread_step(self, turn: Turn) -> list[Unit]:
        """Returns the tool batch at the very end of a turn: the model has not answered it."""
        last = turn.body[-1:]
        return last if last and (last[0].waiting or self._roles[last[0].stop - 1] != ASSISTANT) else []

    def pending_step(self, turn: Turn) -> list[Unit]:
        """Returns the unread step of the newest turn, which the model is to answer now."""
        return self.unread_step(turn) if turn is self.newest and not self.ended else []

    @property
    def running(self) -> Turn | None:
        """The newest turn if it has several steps and the model has not answered its question yet."""
        newest = self.newest
        return newest if newest is not None and len(newest.body) > 1 and self.pending_step(newest) else None

    def leftovers(self) -> list[Broken]:
        """Returns what comes before the first user message and may not open a conversation."""
        self._read_roles(0)
        size = len(self.messages)
        opening = next(filter(self._asks, range(size)), size if self.ended else 0)
        found: list[Broken] = []
        reason = "orphan_result"  # until a call may have asked for it
        for i in range(opening):
            reason = "leading_assistant" if self._roles[i] == ASSISTANT else reason
            if self._roles[i] not in PINNED:
                found.append((i, "empty_message" if self.is_empty(i) else reason))
        return found

    def is_empty(self, position: int) -> bool:
        """Returns whether a message of the conversation says nothing."""
        return self._roles[position] == EMPTY

    def _check_known(self) -> None:
        """Forgets a cut where results of a call that was not answered meanwhile have become a question."""
        known, newest = self.known, self.newest
        if known is not None and newest is not None and known.stop != newest.start < known.size:
            self.known = ThreadState(summary=known.summary, line=known.line)

    def _check_contents(self, positions: Iterable[int]) -> None:
        assert self._check_content is not None
        for position in positions:
            message = self.messages[position]
            self._check_content(message, position)
            if self._without_blanks is not None and (bare := self._without_blanks(message)) is not message:
                self._strip(position, bare, "blank_text")

    def _results_of_stored_calls(self) -> int:
        """Returns where the results at the start end: the provider refuses a request without them."""
        end = 0
        for position, message in enumerate(self.messages):
            if self.codec.role(message) == "tool" or self._answers(message):
                end = position + 1
            elif self.codec.role(message) not in PINNED_ROLES:
                break
        return end

    def _find_pinned(self) -> list[int]:
        """Returns where what always stays is; in one fast pass where all of it comes first."""
        if self.stored is not None and not self._held:
            return [i for i in self.stored.pinned() if not self._is_blank(i)]
        if self.known is not None:
            self._read_roles(self.known.stop)
            return self.pinned
        role, messages = self.codec.role, self.messages
        leading = self._held
        while leading < len(messages) and role(messages[leading]) in PINNED_ROLES:
            leading += 1
        shorter = getattr(self.codec, "kinds", None)  # ten thousand messages are looked at on every call
        kinds = (
            shorter(messages, leading) if shorter is not None else set(self._roles_of(leading, len(messages)))
        )
        if kinds <= KNOWN_ROLES and kinds.isdisjoint(PINNED_ROLES):
            return [i for i in range(leading) if i < self._held or not self._is_blank(i)]
        self._read_roles(0)
        return [i for i, role in enumerate(self._roles) if role in PINNED]

    def question_before(self, stop: int) -> int:
        """Returns where the last question before a position is, -1 if there is none."""
        while stop > 0:
            start = self._roles.rfind(USER, self._unread, stop)
            if start < 0:
                stop = min(stop, self._unread)
                self._read_roles(max(0, stop - _BLOCK))
            elif self._asks(start):
                return start
            else:
                stop = start
        return -1

    def question_after(self, position: int) -> int:
        """Returns where the first question after a position that was read is, -1 if there is none."""
        while (position := self._roles.find(USER, position + 1)) >= 0 and not self._asks(position):
            pass
        return position

    def _read_roles(self, position: int) -> None:
        """Reads the roles down to a position."""
        stop = self._unread
        if stop <= position:
            return
        roles = self._roles_of(position, stop)
        try:
            known = KNOWN_ROLES.issuperset(roles)
        except TypeError:  # something a role cannot be: reading it on its own says so
            known = False
        roles = roles if known else list(map(self.codec.role, self.messages[position:stop]))
        codes = bytes(map(CODES.__getitem__, roles))
        if position < self._held:
            early = codes[: self._held - position]
            codes = bytes([c if c in PINNED else STORED for c in early]) + codes[len(early) :]
        self._roles[position:stop] = codes
        self._unread = position
        if PINNED.isdisjoint(codes):
            return
        for i, code in enumerate(codes, start=position):
            if code in PINNED and code != STORED and self._is_blank(i):
                self._roles[i] = EMPTY
        if self.known is not None:  # what is new, or was edited since
            found = {i for i in range(position, stop) if self._roles[i] in PINNED}
            self.pinned = sorted(found.union(self.pinned))

    def _is_blank(self, position: int) -> bool:
        """Returns whether a system message says nothing; one whose content is null is refused later."""
        neutral = self.codec.to_dict(self.messages[position])
        return neutral.get("content") is not None and says_nothing(neutral)

    def _roles_of(self, start: int, stop: int) -> list[str]:
        read = self._known_roles
        return self.codec.roles(self.messages[start:stop]) if read is None else read(start, stop)

    def _asks(self, position: int) -> bool:
        """Says whether a user message is a question; one with tool results or nothing is noted as such."""
        if self._roles[position] == USER:
            message = self.messages[position]
            if self._answers(message):
                self._roles[position] = ANSWERS
                rest = beside_results(self.codec, message)
                if rest is not None and not self._is_answer(position):
                    self._strip(position, rest)
                    self._roles[position] = USER
            elif says_nothing(self.codec.to_dict(message)):
                self._roles[position] = EMPTY
        return self._roles[position] == USER

    def _parse_one(self) -> bool:
        """Parses the newest turn that is not parsed yet; returns whether there was one that may stay."""
        if len(self.turns_read) == self._most_turns:
            return False
        stop = self.turns_read[-1].start if self.turns_read else len(self._roles)
        start = self.question_before(stop)
        if start < 0 and (stop <= 0 or self.turns_read or self.ended):
            return False
        if self._check_content is not None:
            self._check_contents(range(max(0, start), stop))
        body, broken = self._parse_body(start + 1, stop)  # a thread without any user message is one turn
        question = Unit(start, start + 1) if start >= 0 else None
        self.turns_read.append(Turn(max(0, start), stop, question, body, broken or ()))
        return True
