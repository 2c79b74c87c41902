"""Counts with a model's own tokenizer and chat template, from Hugging Face's formats.

The template decides what a message costs, so the whole request is rendered and the rendering is counted. Tokenizers cut at special tokens
before they do anything else: a rendering is counted piece by piece between them, and pieces seen before cost a look-up. Where probing shows
that a template treats every message alike, message counts are added instead. Both ways are checked at load against plain encoding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import messages as framing
from .base import TextCounter
from .chat_template import TemplateRefusedError
from .media import MediaTable
from .probing import PROBE_TOOLS, Render, keeps_blocks, probe_conversations, profile_of, separates_messages
from .profiles import RenderingProfile, apply_profile, join_contents
from .protocol import Message, Tool

__all__ = ["TokenizerCounter"]

_REFUSED_FRAMING = (
    8  # tokens a message of a refused conversation is assumed to need around it: more than any template seen
)
_BARE_BAND = 0.10
_PROBE_TEXTS = (
    "",
    "plain words",
    " lead",
    "trail ",
    "a\n\nb",
    "e\u0301 中文 👍🏽",
    "1234 + 5",
    "\n",
    "  two",
    "x = {'a': 1}",
)


class TokenizerCounter(TextCounter):
    """Counts with any tokenizer: text by encoding, requests by rendering.

    Args:
        encode: tokens of a text, special tokens in it recognised, none added.
        name: what it counts for.
        render: the chat template; None frames messages as OpenAI does, and says so.
        specials: tokens at which the tokenizer always cuts.
        media: what images, audio, files and videos cost.

    Attributes:
        profile: what the template demands of a conversation.
    """

    def __init__(
        self,
        encode: Callable[[str], int],
        *,
        name: str,
        render: Render | None = None,
        specials: Sequence[str] = (),
        media: MediaTable | None = None,
    ) -> None:
        super().__init__(name=name, exact=render is not None, why=f"the tokenizer {name!r}", media=media)
        self._encode = encode
        self._render = render
        self._cuts: re.Pattern[str] | None = None
        self._deltas: dict[Any, int] = {}
        self._bases: dict[str, int] = {}
        self.profile = RenderingProfile()
        self.additive = True
        if render is None:
            self._why = f"the tokenizer {name!r} counts texts exactly; it has no chat template, messages are framed as OpenAI's"
            self._band = _BARE_BAND
            return
        self.profile = profile_of(render)
        self._blocks_pass = keeps_blocks(render)
        self._cuts = self._checked_cuts(specials, render)
        self.additive = (
            self._cuts is not None and separates_messages(render, self._cuts) and self._adds_up(render)
        )
        self._forget()
        self._deltas.clear()
        self._bases.clear()
        how = "messages add up" if self.additive else "requests are rendered and counted whole"
        self._why = f"the tokenizer and the chat template of {name!r}; {how}"

    # ---- texts ------------------------------------------------------------------------------------------------------------------
    def _measure(self, text: str) -> int:
        try:
            return self._encode(text)
        except (
            UnicodeEncodeError,
            TypeError,
        ):  # a lone surrogate has no UTF-8: it reaches a model as the replacement character
            replaced = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if replaced == text:
                raise
            return self._encode(replaced)

    # ---- requests ---------------------------------------------------------------------------------------------------------------
    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the tokens of the rendering; a conversation the template refuses is counted as its profile demands it."""
        if self._render is None or self.additive:
            return self.overhead(tools) + sum(map(self.count_message, messages))
        return self._rendered(messages, tools)

    def count_message(self, message: Message) -> int:
        """Returns what one message adds; the truth when `additive`, an estimate otherwise."""
        if self._render is None:
            return super().count_message(message)
        content = message.get("content") if isinstance(message, dict) else None
        key = (message.get("role"), content) if type(content) is str and len(message) == 2 else None  # noqa: PLR2004 - role and content
        found = self._deltas.get(key) if key is not None else None
        if found is None:
            found = self._delta(message)
            if key is not None:
                if len(self._deltas) > 50_000:  # noqa: PLR2004 - bounded; texts are remembered by the counter itself
                    self._deltas = {}
                self._deltas[key] = found
        return found

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns what a request costs before any message: what the template writes around them, and the tools."""
        if self._render is None:
            return super().overhead(tools)
        key = "" if not tools else framing.as_text(list(tools))
        if key not in self._bases:
            if len(self._bases) > 64:  # noqa: PLR2004 - applications have few sets of tools
                self._bases = {}
            one, two = [{"role": "user", "content": "one"}], [{"role": "user", "content": "two"}]
            answer = [{"role": "assistant", "content": "so"}]
            try:
                base = self._tried(one, tools) + self._tried(two, tools) - self._tried(one + two, tools)
            except TemplateRefusedError:
                try:  # a template that demands alternation: what it writes once is in both, the user's turn is in the longer twice
                    base = 2 * self._tried(one + answer + two, tools) - self._tried(
                        one + answer + two + answer + two, tools
                    )
                except TemplateRefusedError:
                    base = framing.REPLY + (self.count(key) if key else 0)
            self._bases[key] = max(0, base)
        return self._bases[key]

    def _delta(self, message: Message) -> int:
        """Returns what a message adds to a request, in the first context that its template accepts."""
        asked: Message = {"role": "user", "content": "one"}
        for before in ([], [asked]):
            try:
                base = self._tried(before, None) if before else self.overhead(None)
                return max(0, self._tried([*before, message], None) - base)
            except TemplateRefusedError:  # noqa: PERF203 - refusing is an answer
                continue
        return framing.message_tokens(message, self.count, self._media) + _REFUSED_FRAMING

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> int:
        if not messages:
            return self.overhead(tools)
        for attempt in (messages, self._obedient(messages)):
            try:
                return self._tried(attempt, tools)
            except TemplateRefusedError:  # noqa: PERF203 - refusing is an answer
                continue
        return self.overhead(tools) + sum(
            framing.message_tokens(m, self.count, self._media) + _REFUSED_FRAMING for m in messages
        )

    def _obedient(self, messages: Sequence[Message]) -> Sequence[Message]:
        return apply_profile([self._readable(m)[0] for m in messages], self.profile)

    def _tried(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> int:
        """Returns the tokens of a rendering; arguments that are JSON texts are given as objects when the template wants them so."""
        assert self._render is not None
        extra = 0
        prepared: list[Message] = []
        for message in messages:
            readable, cost = self._readable(message)
            prepared.append(readable)
            extra += cost
        try:
            text = self._render(prepared, tools)
        except TemplateRefusedError:
            parsed = [_with_objects(m) for m in prepared]
            if parsed == prepared:
                raise
            text = self._render(parsed, tools)
        return self._count_rendering(text) + extra

    def _readable(self, message: Message) -> tuple[Message, int]:
        """Returns a message as the template can read it, and what its media cost besides."""
        if not hasattr(message, "get"):  # no message at all is counted as what it says
            return {"role": "user", "content": framing.as_text(message)}, 0
        content = message.get("content")
        if content is None or isinstance(content, str):
            return message, 0
        blocks = content if isinstance(content, (list, tuple)) else [content]
        cost = 0
        kept: list[Any] = []
        for block in blocks:
            media = self._media.tokens(block) if isinstance(block, Mapping) else None
            cost += media or 0
            if media is None or self._blocks_pass:
                kept.append(block)
        if self._blocks_pass:
            return message, cost
        text: Any = ""
        for block in kept:
            text = join_contents(text, _block_text(block), "\n")
        return {**message, "content": text}, cost

    def _count_rendering(self, text: str) -> int:
        if self._cuts is None:
            return self.count(text)
        pieces = self._cuts.split(text)
        return len(pieces) - 1 + sum(map(self.count, pieces))

    # ---- proof at load ----------------------------------------------------------------------------------------------------------
    def _checked_cuts(self, specials: Sequence[str], render: Render) -> re.Pattern[str] | None:
        """Returns the pattern of the special tokens, if cutting at them gives the same counts as encoding the whole."""
        if not specials:
            return None
        cuts = re.compile("|".join(re.escape(token) for token in sorted(specials, key=len, reverse=True)))
        joined = [
            f"{a}{token}{b}"
            for token in list(specials)[:12]
            for a, b in zip(_PROBE_TEXTS, reversed(_PROBE_TEXTS), strict=True)
        ]
        for conversation in probe_conversations():
            try:
                joined.append(render(conversation, None))
            except TemplateRefusedError:  # noqa: PERF203 - refusing is an answer
                continue
        for text in joined:
            pieces = cuts.split(text)
            if len(pieces) - 1 + sum(self._measure(piece) for piece in pieces if piece) != self._measure(
                text
            ):
                return None
        return cuts

    def _adds_up(self, render: Render) -> bool:
        """Returns whether in every probe the whole is the sum of its parts."""
        for tools in (None, PROBE_TOOLS):
            for conversation in probe_conversations():
                try:
                    whole = self._count_rendering(render(conversation, tools))
                    parts = sum(
                        self._tried([message], None) - self.overhead(None) for message in conversation
                    )
                except TemplateRefusedError:
                    return False
                if whole != self.overhead(tools) + parts:
                    return False
        return True


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return block
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return str(block["text"])
    return "" if block is None else framing.as_text(block)


def _with_objects(message: Message) -> Message:
    """Returns a message whose tool arguments are objects instead of JSON texts, where they are JSON."""
    calls = message.get("tool_calls")
    if not isinstance(calls, (list, tuple)):
        return message
    changed = []
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
            try:
                changed.append(
                    {**call, "function": {**function, "arguments": json.loads(function["arguments"] or "{}")}}
                )
                continue
            except ValueError:
                pass
        changed.append(call)
    return {**message, "tool_calls": changed}
