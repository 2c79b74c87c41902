"""The kinds of turn in a drawn conversation: plain ones, tool batches, media, and every way to be broken."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from itertools import count
from typing import Any

from .payloads import HOSTILE

__all__ = ["ANSWERED_BY_USER", "BROKEN", "ENDS", "MEDIA", "ODD", "PLAIN", "SYSTEMS", "Writer"]

PLAIN = ("chat", "chat", "chat", "user", "tools", "parallel", "loop")
SYSTEMS = ("system", "developer")
MEDIA = ("image", "audio", "file", "blocks", "thinking", "thinking_call")
_GIANT = ("giant_user", "giant_assistant", "giant_result")
ODD = ("empty_user", "empty_assistant", "assistant", "two_users", *_GIANT, "named")
BROKEN = ("orphan", "unanswered", "half_answered", "separated", "answered_twice", "system_inside")
ANSWERED_BY_USER = (
    *("user_results", "user_results", "user_loop", "user_orphan", "user_half", "user_stray"),
    *("user_twice", "user_end"),
)
"""Tool results among the content blocks of a user message, as Anthropic takes them, valid and broken."""
ENDS = (
    "end_question",
    "end_question",
    "end_question",
    "end_none",
    "end_pending",
    "end_pending_half",
    "end_results",
    "end_answer",
    "end_hostile",
)

_PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sIIBBBBBI", 13, b"IHDR", 640, 480, 8, 2, 0, 0, 0, 0)
_WAV = (
    b"RIFF"
    + struct.pack("<I4s4sIHHIIHH4sI", 836, b"WAVE", b"fmt ", 16, 1, 1, 8000, 8000, 1, 8, b"data", 800)
    + b"\x80" * 800
)
_ATOMS: dict[str, dict[str, Any]] = {
    "image": {
        "type": "image_url",
        "image_url": {"url": "data:image/png;base64," + base64.b64encode(_PNG).decode()},
    },
    "audio": {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(_WAV).decode(), "format": "wav"},
    },
    "file": {
        "type": "file",
        "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + "JVBERi0x" * 12},
    },
}
"""A picture of 640 x 480, a tenth of a second of sound, the start of a PDF."""


class Writer:
    """Writes one conversation, turn by turn; no two texts are equal, and no call id is used twice.

    Example:
        >>> writer = Writer()
        >>> writer.write("chat", "hello", 0)
        >>> [m["content"] for m in writer.messages]
        ['0. hello', '1. hello']
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.word = ""
        self.size = 0
        self._ids = count()
        self._numbers = count()

    def write(self, kind: str, word: str, size: int) -> None:
        """Appends one turn of a kind; `word` is its text, `size` how much of it there is."""
        self.word, self.size = word, size
        _TURNS[kind](self)

    def text(self, times: int = 1) -> str:
        """Returns the turn's word `times` times, numbered."""
        return f"{next(self._numbers)}. " + " ".join([self.word] * max(1, times))

    def say(self, role: str, content: Any, **fields: Any) -> None:
        """Appends one message."""
        self.messages.append({"role": role, "content": content, **fields})

    def ask(self) -> None:
        """Appends a plain user message."""
        self.say("user", self.text())

    def answer(self) -> None:
        """Appends a plain assistant message."""
        self.say("assistant", self.text())

    def call(
        self, how_many: int = 1, content: Any = None, arguments: dict[str, Any] | None = None
    ) -> list[str]:
        """Appends a message with tool calls and returns their ids."""
        ids = [f"call_{next(self._ids)}" for _ in range(how_many)]
        written = json.dumps(arguments or {"query": "what is the budget", "rows": list(range(self.size))})
        calls = [
            {"id": i, "type": "function", "function": {"name": "search", "arguments": written}} for i in ids
        ]
        self.say("assistant", content, tool_calls=calls)
        return ids

    def result(self, call_id: str, times: int = 1) -> None:
        """Appends the result of a call."""
        self.say("tool", self.text(times), tool_call_id=call_id)

    def hand_in(self, *call_ids: str, times: int = 1, more: bool = False) -> None:
        """Appends results of calls in one user message; if `more`, text and perhaps a picture follow."""
        blocks: list[dict[str, Any]] = [
            {"type": "tool_result", "tool_use_id": one, "content": self.text(times)} for one in call_ids
        ]
        pictures = [dict(_ATOMS["image"])] * (self.size // 5)
        self.say("user", [*blocks, *pictures, {"type": "text", "text": self.text()}] if more else blocks)


Turn = Callable[[Writer], None]
_TURNS: dict[str, Turn] = {}


def _turn(write: Turn) -> Turn:
    _TURNS[write.__name__.removeprefix("_")] = write
    return write


# ---------------------------------------------------------------- plain
@_turn
def _chat(w: Writer) -> None:
    w.ask()
    w.say("assistant", w.text(w.size))


@_turn
def _user(w: Writer) -> None:
    w.ask()


@_turn
def _tools(w: Writer) -> None:
    w.ask()
    [one] = w.call(content=(None, "", "let me look")[w.size % 3])
    w.result(one, 1 + w.size * w.size)
    w.answer()


@_turn
def _parallel(w: Writer) -> None:
    w.ask()
    batch = w.call(2 + w.size % 3)
    turned = w.size % len(batch)
    for one in batch[turned:] + batch[:turned]:
        w.result(one, 1 + w.size)
    w.answer()


@_turn
def _loop(w: Writer) -> None:
    for _ in range(1 + w.size):
        [one] = w.call(content="")
        w.result(one, 1 + w.size)


@_turn
def _system(w: Writer) -> None:
    w.say("system", w.text(1 + w.size))


@_turn
def _developer(w: Writer) -> None:
    w.say("developer", w.text(1 + w.size))


# ---------------------------------------------------------------- odd
@_turn
def _assistant(w: Writer) -> None:
    w.answer()


@_turn
def _two_users(w: Writer) -> None:
    w.ask()
    w.ask()


@_turn
def _named(w: Writer) -> None:
    w.say("user", w.text(), name="ann")
    w.answer()


@_turn
def _empty_user(w: Writer) -> None:
    w.say("user", ("", " ", [])[w.size % 3])
    w.answer()


@_turn
def _empty_assistant(w: Writer) -> None:
    w.ask()
    w.say("assistant", ("", None, "   ")[w.size % 3])


@_turn
def _giant_user(w: Writer) -> None:
    w.say("user", w.text(60 * (1 + w.size)))
    w.answer()


@_turn
def _giant_assistant(w: Writer) -> None:
    w.ask()
    w.say("assistant", w.text(60 * (1 + w.size)))


@_turn
def _giant_result(w: Writer) -> None:
    w.ask()
    [one] = w.call(arguments={"rows": list(range(60 * w.size))})
    w.result(one, 60 * (1 + w.size))


# ---------------------------------------------------------------- media
def _with_atom(kind: str) -> Turn:
    def write(w: Writer) -> None:
        parts = [{"type": "text", "text": w.text(1 + w.size * 5)}, dict(_ATOMS[kind])]
        w.say("user", parts if w.size % 2 else parts[::-1])
        w.answer()

    return write


_TURNS.update({kind: _with_atom(kind) for kind in _ATOMS})


@_turn
def _blocks(w: Writer) -> None:
    w.say("user", [{"type": "text", "text": w.text()} for _ in range(1 + w.size % 3)])
    w.say("assistant", [{"type": "text", "text": w.text()}])


def _thought(w: Writer) -> dict[str, Any]:
    if w.size % 4 == 3:  # noqa: PLR2004 - one draw in four is redacted
        return {"type": "redacted_thinking", "data": "c2lnbmVk" * 8}
    return {"type": "thinking", "thinking": w.text(1 + w.size), "signature": "c2ln" * 6}


@_turn
def _thinking(w: Writer) -> None:
    w.ask()
    w.say("assistant", [_thought(w), {"type": "text", "text": w.text(1 + w.size * 20)}])


@_turn
def _thinking_call(w: Writer) -> None:
    w.ask()
    content: list[dict[str, Any]] = [_thought(w), {"type": "text", "text": w.text()}]
    [one] = w.call(content=content, arguments={"query": w.word})
    content.append({"type": "tool_use", "id": one, "name": "search", "input": {"query": w.word}})
    w.result(one)
    w.answer()


# ---------------------------------------------------------------- broken
@_turn
def _orphan(w: Writer) -> None:
    w.result("nobody_asked")


@_turn
def _unanswered(w: Writer) -> None:
    w.call(content=w.text())
    if w.size % 2:
        w.ask()


@_turn
def _half_answered(w: Writer) -> None:
    w.ask()
    w.result(w.call(2)[w.size % 2])


@_turn
def _separated(w: Writer) -> None:
    [one] = w.call()
    w.ask()
    w.result(one)


@_turn
def _answered_twice(w: Writer) -> None:
    [one] = w.call()
    w.result(one)
    w.result(one)


@_turn
def _system_inside(w: Writer) -> None:
    [one] = w.call()
    w.say("system", w.text())
    w.result(one)


# ---------------------------------------------------------------- results in user messages
@_turn
def _user_results(w: Writer) -> None:
    w.ask()
    w.hand_in(*w.call(1 + w.size % 3), times=1 + w.size, more=w.size % 2 == 1)
    w.answer()


@_turn
def _user_loop(w: Writer) -> None:
    for step in range(1 + w.size):
        w.hand_in(*w.call(1 + step % 2, content=""), times=1 + w.size)


@_turn
def _user_orphan(w: Writer) -> None:
    w.hand_in("nobody_asked", more=w.size % 2 == 1)


@_turn
def _user_half(w: Writer) -> None:
    w.ask()
    w.hand_in(w.call(2)[w.size % 2], more=w.size > 2)  # noqa: PLR2004 - more than half of the draws


@_turn
def _user_stray(w: Writer) -> None:
    [one] = w.call()
    answered = ((one, "nobody_asked"), (one, one), ("nobody_asked",))
    w.hand_in(*answered[w.size % 3], more=w.size > 2)  # noqa: PLR2004
    w.answer()


@_turn
def _user_twice(w: Writer) -> None:
    one, two = w.call(2)
    w.result(one)
    w.hand_in(two)
    w.hand_in(two)


@_turn
def _user_end(w: Writer) -> None:
    w.ask()
    w.hand_in(*w.call(2), times=1 + 9 * w.size)


# ---------------------------------------------------------------- ends
@_turn
def _end_none(w: Writer) -> None:
    """Leaves the conversation as it is."""


@_turn
def _end_question(w: Writer) -> None:
    w.say("user", w.text() + " Which is it?")


@_turn
def _end_hostile(w: Writer) -> None:
    w.say("user", w.text() + HOSTILE[2] + HOSTILE[4])


@_turn
def _end_answer(w: Writer) -> None:
    w.ask()
    w.answer()


@_turn
def _end_pending(w: Writer) -> None:
    w.ask()
    w.call(2)


@_turn
def _end_pending_half(w: Writer) -> None:
    w.ask()
    w.result(w.call(2, content="")[0])


@_turn
def _end_results(w: Writer) -> None:
    w.ask()
    for one in w.call(2):
        w.result(one, 9)
