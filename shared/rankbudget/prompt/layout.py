"""Rendered: the place of every part of a prompt, as messages and as tagged text.

Order: system, static blocks (preferences, project, task), history, what changes every turn (memory,
examples, knowledge, your own), question. Fresh text before the history would make every turn's prompt new
to a provider's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..conversation.summary import spoken_text
from ..fitting.protocol import Fit
from ..messages.codec import PINNED_ROLES, Codec, make_among
from ..messages.tags import escape_text, placeholder, render_block, role_line, wrapper_of

STATIC = ("system", "preferences", "project", "task")
"""Blocks that come before the history."""
REMEMBERED = "preferences"
"""The one of them that others than the author of the prompt wrote, so the notice stands before it."""


@dataclass(slots=True, kw_only=True)
class Layout:
    """The parts of one prompt."""

    codec: Codec  # makes host messages
    among: Sequence[Any]  # the messages whose form these have
    system: list[Any]  # system messages
    static: dict[str, Fit]  # static blocks by name, in order
    history: list[Any]  # the conversation that stays
    asked: int | None  # index in `history` of the current question, None when it is `question`
    volatile: dict[str, Fit]  # blocks that change every turn by name, in order
    question: Any  # the current question as a message of its own
    notice: str | None  # the sentence before inserted text; None leaves it out
    tags: tuple[str, ...]  # names of tags besides the usual ones, which no text may spell

    def around(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Returns the messages before the history, before the question, and the question if it is apart."""
        static = [
            self._made(self._noticed(name, self._block(name, fit)).rstrip("\n"), name)
            for name, fit in self.static.items()
            if fit.pieces
        ]
        changing = "".join(self._block(name, fit) for name, fit in self.volatile.items() if fit.pieces)
        changing = (self.notice + "\n" + changing if self.notice and changing else changing).rstrip("\n")
        inserted = [self._made(changing, "context")] if changing else []
        return [*self.system, *static], inserted, [] if self.question is None else [self.question]

    def messages(self, front: list[Any], inserted: list[Any], question: list[Any]) -> list[Any]:
        """Returns the prompt as host messages, made of what `around` returned."""
        at = len(self.history) if self.asked is None or question else self.asked
        return [*front, *self.history[:at], *inserted, *self.history[at:], *question]

    def text(self) -> str:
        """Returns the prompt as tagged text, for completion models; empty blocks say so."""
        parts = [self._tagged("system", [self._plain(m) for m in self.system])] if self.system else []
        parts += [
            self._noticed(name, self._block(name, fit, says_empty=True)) for name, fit in self.static.items()
        ]
        lines = [role_line(self.codec.role(m), self._plain(m), tags=self.tags) for m in self.history]
        at = len(lines) if self.asked is None or self.question is not None else self.asked
        parts.append(render_block("history", lines[:at] or [placeholder("history") or ""]))
        if self.notice and any(fit.pieces for fit in self.volatile.values()):
            parts.append(self.notice + "\n")
        parts += [self._block(name, fit, says_empty=True) for name, fit in self.volatile.items()]
        if self.question is not None:
            parts.append(self._tagged("query", [self._plain(self.question)]))
        elif lines[at:]:  # the question is in the history, and what was done about it so far
            parts.append(
                render_block("query", lines[at:])
                if lines[at + 1 :]
                else self._tagged("query", [self._plain(self.history[at])])
            )
        return "\n".join(part for part in parts if part).rstrip("\n")

    def _made(self, text: str, origin: str) -> Any:
        return make_among(self.codec, self.among, "system", text, origin=origin)

    def _noticed(self, name: str, block: str) -> str:
        return f"{self.notice}\n{block}" if block and name == REMEMBERED and self.notice else block

    def _plain(self, message: Any) -> str:
        return spoken_text(self.codec.to_dict(message))

    def _block(self, name: str, fit: Fit, *, says_empty: bool = False) -> str:
        """Returns a block as tagged text; when nothing of it is left "", or a block that says so."""
        if not fit.pieces:
            empty = placeholder(name, fit.decisions) if says_empty else None
            return render_block(name, [empty]) if empty else ""
        wrap = wrapper_of(name, self.tags)
        return render_block(name, [wrap(piece.segment, piece.rendition.text) for piece in fit.pieces])

    def _tagged(self, name: str, texts: Sequence[str]) -> str:
        escaped = [text if name in PINNED_ROLES else escape_text(text, tags=self.tags) for text in texts]
        return render_block(name, [text.rstrip("\n") + "\n" for text in escaped])
