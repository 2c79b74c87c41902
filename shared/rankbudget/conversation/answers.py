"""What follows a question: answers, calls with their results, and what is repaired of both.

A result of no call is removed from its message. What else is in that message stays: beside other
results it still answers their calls, without any it is a question or an answer of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..counting.blocks import answered_call, has_no_id, must_be_answered, paired
from ..messages.codec import PINNED_ROLES, Codec, beside_results, says_nothing
from .reading import WithCopies
from .units import Broken, Unit

CODES = {role: ord(role[0]) for role in ("system", "developer", "user", "assistant", "tool")}
"""A byte for each role: a long thread is searched for its questions at the speed of memory."""
NAMES = {code: role for role, code in CODES.items()}
USER, ASSISTANT, TOOL = CODES["user"], CODES["assistant"], CODES["tool"]
ANSWERS = ord("r")  # a user message known to hold tool results
EMPTY = ord("e")  # a user or system message known to say nothing
STORED = ord("p")  # a result at the start whose call the provider stores: it always stays
NAMES |= {ANSWERS: "tool", STORED: "tool", EMPTY: "user"}
PINNED = frozenset([*(CODES[role] for role in PINNED_ROLES), STORED])
_STRAYS = {TOOL: "orphan_result", ANSWERS: "orphan_result", EMPTY: "empty_message"}
"""Why a message that no answer took up is dropped."""


class Answers:
    """Reads answers, calls and results among the messages of a `Timeline`."""

    given: Sequence[Any]
    messages: Sequence[Any]  # those given, `stripped` copies in the place of some
    stripped: dict[int, Any]  # repaired copies, by position
    repairs: dict[int, str]  # why there is each of them
    codec: Codec
    _roles: bytearray
    _may_wait: bool
    _answers: Callable[[Any], tuple[str, ...]]
    _goes_on: Callable[[Any], bool] | None
    _read_roles: Callable[[int], None]  # reads the roles from a position on

    def _strip(self, position: int, message: Any, reason: str = "orphan_result") -> None:
        if not self.stripped:
            self.messages = WithCopies(self.given, self.stripped)
        self.stripped[position] = message
        if self.repairs.get(position) != "orphan_result":
            self.repairs[position] = reason

    def _parse_body(self, at: int, stop: int) -> tuple[list[Unit], list[Broken]]:
        """Reads what follows a question, and what of it is broken."""
        roles, body, broken = self._roles, list[Unit](), list[Broken]()
        while at < stop:
            role = roles[at]
            if role == ASSISTANT:
                at = self._parse_answer(at, body, broken)
                continue
            if role in _STRAYS:
                broken.append((at, _STRAYS[role]))
            at += 1
        return body, broken

    def _parse_answer(self, at: int, body: list[Unit], broken: list[Broken]) -> int:
        """Reads an assistant message, with the results of its calls; returns the position after them."""
        if self._answers(self.messages[at]):
            rest = beside_results(self.codec, self.messages[at])
            if rest is None:
                broken.append((at, "orphan_result"))
                return at + 1
            self._strip(at, rest)
        after = at + 1
        while self._goes_on is not None and after < len(self._roles) and self._roles[after] == ASSISTANT:
            if not self._goes_on(self.messages[after - 1]):
                break
            after += 1
        calls = [call for message in self.messages[at:after] for call in self.codec.call_ids(message)]
        if calls:
            return self._batch(at, after, calls, body, broken)
        if all(map(says_nothing, map(self.codec.to_dict, self.messages[at:after]))):
            broken += [(i, "empty_message") for i in range(at, after)]
        else:
            body.append(Unit(at, after))
        return after

    def _batch(self, at: int, after: int, calls: list[str], body: list[Unit], broken: list[Broken]) -> int:
        """Reads the results that directly follow calls; returns the position after them."""
        found, asks, open_calls = self._results(after, calls)
        after += len(found)
        strays = tuple([position for position, message in found.items() if message is None])
        waiting = bool(open_calls) and after == len(self._roles) and self._may_wait
        if must_be_answered(open_calls) and not waiting:
            after = min([after, *asks])  # what the user says with results of a broken call is a question
            broken += [(i, "unanswered_call") for i in range(at, after) if i not in strays]
        else:
            for position, message in found.items():
                if message is not None and message is not self.messages[position]:
                    self._strip(position, message)
            if getattr(self.codec, "sends_as_given", False) and any(map(has_no_id, calls)):
                self._name_calls(at, after)
            body.append(Unit(at, after, waiting, holes=strays))
        broken += [(i, "orphan_result") for i in strays if i < after]
        return after

    def _name_calls(self, at: int, after: int) -> None:
        """Gives calls without an id that of their result: OpenAI answers 400 where only one has it."""
        codec: Any = self.codec
        asked = [(i, n, call) for i in range(at, after) for n, call in enumerate(self._calls(i))]
        given = dict[tuple[int, int], str]()
        for answer in [answer or "" for i in range(at, after) for answer in self._answered(i)]:
            found = answered_call([call for _, _, call in asked], answer)
            place = next((one for one in asked if one[2] == found), None)
            if place is not None:
                asked.remove(place)
                if has_no_id(place[2]) and answer and not has_no_id(answer):
                    given[place[:2]] = answer
        for i in sorted({i for i, _ in given}):
            old = self._calls(i)
            named = codec.with_ids(
                self.messages[i], old, [given.get((i, n), call) for n, call in enumerate(old)]
            )
            if named is not self.messages[i]:
                self._strip(i, named, "call_without_id")

    def _calls(self, position: int) -> tuple[str, ...]:
        is_answer = self._roles[position] == ASSISTANT
        return self.codec.call_ids(self.messages[position]) if is_answer else ()

    def _results(self, at: int, open_calls: list[str]) -> tuple[dict[int, Any], list[int], list[str]]:
        """Returns the messages with results from a position on, without those of no call; None for strays.

        Then which of them are the user's and say more, and the calls that are still open.
        """
        found, asks = dict[int, Any](), list[int]()
        give = getattr(self.codec, "with_results", None)
        while at < len(self._roles) and (answered := self._answered(at)):
            message = self.messages[at]
            left, belong = paired(open_calls, answered)
            says_more = beside_results(self.codec, message) is not None
            found[at] = None
            if all(belong) or (give is not None and any(belong)):
                found[at] = message if give is None or all(belong) else give(message, belong)
                is_answer = self._roles[at] == ASSISTANT
                open_calls = [*left, *self.codec.call_ids(message)] if is_answer else left
                asks += [at] if says_more and not is_answer else []
            elif says_more:
                del found[at]
                break
            at += 1
        return found, asks, open_calls

    def _answered(self, position: int) -> tuple[str | None, ...]:
        """Returns the calls that a message answers; nothing where it holds no result."""
        role, message = self._roles[position], self.messages[position]
        if role not in (TOOL, ANSWERS, USER, ASSISTANT):
            return ()
        return self._answers(message) or ((self.codec.result_id(message),) if role == TOOL else ())

    def _is_answer(self, position: int) -> bool:
        """Returns whether a user message holds a result of a call that has all its results, or waits."""
        start = position
        while start > 0:
            self._read_roles(start - 1)
            answers = self._answered(start - 1)
            if self._roles[start - 1] != ASSISTANT and not answers:
                break
            start -= 1
            if self._roles[start] == ASSISTANT and not answers and not self._goes_on_at(start - 1):
                break
        body, _ = self._parse_body(start, position + 1)
        return any(position in unit.positions() for unit in body)

    def _goes_on_at(self, position: int) -> bool:
        if position < 0 or self._goes_on is None:
            return False
        self._read_roles(position)
        return self._roles[position] == ASSISTANT and self._goes_on(self.messages[position])
