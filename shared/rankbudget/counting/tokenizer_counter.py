"""Counts with a model's own tokenizer and chat template: the whole request is rendered and counted.

Message counts are added instead where between the contents of any two messages is a token at which the
tokenizer always cuts, and in every conversation rendered to find out the whole is the sum of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any

from ..errors import CounterUnavailableError, check_list, shown
from . import messages as framing
from .base import DIGEST_OVER, TextCounter
from .blocks import blocks_of
from .engine_forms import in_blocks, in_chat_form, with_all_fields, with_marks, with_objects
from .media import MediaTable
from .profiles import RenderingProfile, apply_profile, in_profile, join_contents
from .protocol import Message, Tool
from .tools import check_tools

_REASONING = ("reasoning_content", "thinking", "reasoning")
"""Fields of a message that engines show templates under the names of all of them; the first one counts."""
_REFUSED_FRAMING = 8  # tokens around a message that a template refuses: more than any template seen needs
_BARE_BAND = 0.10
_PLAIN = 2  # role and content
_MOST_MESSAGES = 50_000
_MOST_TOOL_SETS = 64
_CHECKED_SPECIALS = 12
_AROUND = ("", "words", " lead", "trail ", "a\n\nb", "e\u0301 中文 👍🏽", "12 + 5", "\n", "  two", "x = {1}")
_CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
_WEATHER = {"name": "weather", "description": "Tells the weather.", "parameters": _CITY}
PROBE_TOOLS = [{"type": "function", "function": _WEATHER}]
_EDGES = ("", " a", "b ", "c\n", "\n\nd", "/e", "'s", "中", "!", "  ", "👍", "1")
_PROBES = (
    ("user one",),
    ("user one", "assistant two"),
    ("assistant two",),
    ("assistant two", "user one"),
    ("system brief",),
    ("system brief", "user one"),
    ("system brief", "system kind", "user one"),
    ("user one", "system brief", "user two"),
    ("user one", "assistant two", "system brief", "user three", "assistant four", "user five"),
    ("user one", "user two", "assistant three", "assistant four", "user five"),
    ("user one", "thought mark", "user two", "thought mark", "user three"),
    ("user one", "reasoned mark", "user two", "reasoned mark", "user three"),
    ("user one", "call", "result sunny", "assistant It is sunny.", "user thanks"),
    ("user one", "call Looking.", "result sunny", "result warm", "call", "result {}"),
    ("user one", "reasoned mark", "call", "result sunny", "reasoned mark", "user two"),
    tuple(turn for i, edge in enumerate(_EDGES) for turn in (f"user {edge}", f"assistant {_EDGES[-i - 1]}")),
)

Render = Callable[[Sequence[Message], Any], str]


class TemplateRefusedError(ValueError):
    """Says why a template does not render a conversation."""


class TokenizerCounter(TextCounter):
    """Counts with any tokenizer: text by encoding, requests by rendering.

    `encode` gives the tokens of a text, special tokens in it recognised, none added; at `specials` it always
    cuts. `render` is the chat template; without it messages are framed as OpenAI's, and `why` says so.
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
        self._plain_delta = lru_cache(_MOST_MESSAGES)(
            lambda role, content: self._delta({"role": role, "content": content})
        )
        self._bases: dict[str, int] = {}
        self.profile, self._wraps = RenderingProfile(), False
        if render is None:
            self.why += " counts texts exactly; it has no chat template, messages are framed as OpenAI's"
            self.band = _BARE_BAND
            return
        self.profile = profile_of(render)
        self._wraps = _is_longer_in_blocks(render)
        cuts = self._cuts = self._checked_cuts(specials, render)
        self.additive = cuts is not None and separates_messages(render, cuts) and self._adds_up(render)
        how = "messages add up" if self.additive else "requests are rendered and counted whole"
        self.why = f"the tokenizer and the chat template of {name!r}; {how}"

    def _measure(self, text: str) -> int:
        try:
            return self._encode(text)
        except (UnicodeEncodeError, TypeError):
            # A lone surrogate reaches a model as the replacement character.
            replaced = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            if replaced == text:
                raise
            return self._encode(replaced)

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the tokens of the rendering; a refused conversation counts as its profile demands it."""
        check_list("messages", messages, "messages")
        if self._render is None or self.additive or not messages:
            return self.overhead(tools) + sum(map(self.count_message, messages))
        with suppress(TemplateRefusedError):
            return self._tokens(messages, tools)
        with suppress(TemplateRefusedError):
            readable = [self._readable(message)[0] for message in messages]
            return self._tokens(apply_profile(readable, self.profile), tools)
        return self.overhead(tools) + sum(map(self._refused, messages))

    def render(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str:
        """Returns the prompt that is counted, as engines make it: JSON texts of arguments are objects.

        Args:
            messages: a conversation; media that the template cannot show are left out.
            tools: tool schemas.

        Raises:
            CounterUnavailableError: the tokenizer has no chat template.
            TemplateRefusedError: the template does not render the conversation.
        """
        if self._render is None:
            msg = f"a chat template must be there to render with ({self.name!r} has none)."
            raise CounterUnavailableError(msg)
        return self._renderings([self._readable(message)[0] for message in messages], tools)[0]

    def refusal(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> str | None:
        """Returns why a template refuses a conversation, or what it leaves out; None where it shows all."""
        if self._render is None:
            return None
        chat = [with_objects(in_chat_form(message)) for message in messages]
        for number, message in enumerate(chat):
            if "parts" in message or message.get("role") is None:
                return f"message {number} with {', '.join(map(repr, message))}"
        texts: list[tuple[int, str]] = []

        def mark(number: int, text: str) -> str:
            texts.append((number, text))
            return f"mark{len(texts)}x"

        try:
            rendered = self.render([with_marks(m, partial(mark, n)) for n, m in enumerate(chat)], tools)
        except TemplateRefusedError as error:
            return str(error)
        for place, (number, text) in enumerate(texts, start=1):
            if f"mark{place}x" not in rendered:
                return f"it leaves out message {number}, of role {chat[number]['role']!r}: {shown(text)}"
        return None

    def count_message(self, message: Message) -> int:
        """Returns what one message adds; exact when `additive`, an estimate otherwise."""
        if self._render is None:
            return super().count_message(message)
        content = message.get("content") if isinstance(message, dict) else None
        if type(content) is not str or len(message) != _PLAIN or len(content) > DIGEST_OVER:
            return self._delta(message)
        return self._plain_delta(message.get("role"), content)

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns what a request costs before any message: the template's own text, and the tools."""
        if self._render is None:
            return super().overhead(tools)
        if tools:
            check_tools(tools)
        key = framing.as_text(list(tools)) if tools else ""
        if key not in self._bases:
            if len(self._bases) > _MOST_TOOL_SETS:
                self._bases = {}
            self._bases[key] = max(0, self._base(key, tools))
        return self._bases[key]

    def _base(self, key: str, tools: Sequence[Tool] | None) -> int:
        one, two = [{"role": "user", "content": "one"}], [{"role": "user", "content": "two"}]
        answer = [{"role": "assistant", "content": "so"}]
        with suppress(TemplateRefusedError):
            return self._tokens(one, tools) + self._tokens(two, tools) - self._tokens(one + two, tools)
        with suppress(TemplateRefusedError):  # it demands alternation: the longer one has one exchange more
            shorter = one + answer + two
            return 2 * self._tokens(shorter, tools) - self._tokens(shorter + answer + two, tools)
        return framing.REPLY + (self.count(key) if key else 0)

    def _delta(self, message: Message) -> int:
        """Returns what a message adds to a request, in the first context that its template accepts."""
        asked: Message = {"role": "user", "content": "one"}
        with suppress(TemplateRefusedError):
            return max(0, self._tokens([message], None) - self.overhead(None))
        with suppress(TemplateRefusedError):
            return max(0, self._tokens([asked, message], None) - self._tokens([asked], None))
        return self._refused(message)

    def _refused(self, message: Message) -> int:
        return framing.message_tokens(message, self.count, self._media) + _REFUSED_FRAMING

    def _tokens(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> int:
        """Returns the tokens of the longest rendering of what engines make of messages and tools.

        JSON texts of arguments may be objects, texts one block each, and a tool may have all its fields.
        """
        readable = [self._readable(message) for message in messages]
        dumped = None if tools is None else [with_all_fields(tool) for tool in tools]
        made = self._renderings([message for message, _ in readable], dumped)
        return max(map(self._count_rendering, made)) + sum(cost for _, cost in readable)

    def _renderings(self, messages: Sequence[Message], tools: Sequence[Tool] | None) -> list[str]:
        """Returns what the template makes of all forms that it accepts, objects as arguments first."""
        assert self._render is not None
        parsed = [with_objects(message) for message in messages]
        forms = [parsed, messages] if parsed != messages else [parsed]
        made: list[str] = []
        for form in [*forms, in_blocks(parsed)] if self._wraps else forms:
            with suppress(TemplateRefusedError):
                made.append(self._render(form, tools))
        if made:
            return made
        # Where null is refused, engines give an empty text.
        return [self._render([{**m, "content": m.get("content") or ""} for m in parsed], tools)]

    def _readable(self, message: Message) -> tuple[Message, int]:
        """Returns a message as the template can read it, and what its media cost besides."""
        if not hasattr(message, "get"):  # anything else counts as its text
            return {"role": "user", "content": framing.as_text(message)}, 0
        message = in_profile(in_chat_form(message), self.profile)
        reasoning = next((message[key] for key in _REASONING if message.get(key) is not None), None)
        if reasoning is not None:
            message = {**dict.fromkeys(_REASONING, reasoning), **message, "reasoning_content": reasoning}
        content = message.get("content")
        if content is None or isinstance(content, str):
            return message, 0
        cost, text = 0, ""
        for block in blocks_of(content):
            media = self._media.tokens(block) if isinstance(block, Mapping) else None
            if media is None and block is not None:
                own = block.get("text") if isinstance(block, Mapping) else block
                text = join_contents(text, own if isinstance(own, str) else framing.as_text(block), "\n")
            cost += media or 0
        return ({**message, "content": text} if self.profile.one_text else message), cost

    def _count_rendering(self, text: str) -> int:
        return self.count(text) if self._cuts is None else _sum_of_pieces(text, self._cuts, self.count)

    def _checked_cuts(self, specials: Sequence[str], render: Render) -> re.Pattern[str] | None:
        """Returns the pattern of the special tokens, if cutting at them counts the same as not cutting."""
        if not specials:
            return None
        cuts = re.compile("|".join(re.escape(token) for token in sorted(specials, key=len, reverse=True)))
        texts = [
            f"{before}{token}{after}"
            for token in specials[:_CHECKED_SPECIALS]
            for before, after in zip(_AROUND, reversed(_AROUND), strict=True)
        ]
        texts += filter(None, [_rendered(render, _chat(*turns)) for turns in _PROBES])
        equal = all(_sum_of_pieces(text, cuts, self.count) == self._measure(text) for text in texts)
        return cuts if equal else None

    def _adds_up(self, render: Render) -> bool:
        """Returns whether in every probe the whole is the sum of its parts."""
        alone = self.overhead(None)
        try:
            for conversation in [_chat(*turns) for turns in _PROBES]:
                parts = sum([self._tokens([message], None) - alone for message in conversation])
                for tools in (None, PROBE_TOOLS):
                    if self._count_rendering(render(conversation, tools)) != self.overhead(tools) + parts:
                        return False
        except TemplateRefusedError:
            return False
        return True


def _sum_of_pieces(text: str, cuts: re.Pattern[str], count: Callable[[str], int]) -> int:
    pieces = cuts.split(text)
    return len(pieces) - 1 + sum(map(count, pieces))


def _is_longer_in_blocks(render: Render) -> bool:
    """Returns whether a template that loops over blocks writes these longer than the same texts."""
    chat = _chat("user mark1", "call mark2", "result mark3", "assistant mark4", "user mark5")
    one = _rendered(render, in_blocks(chat[:1]))
    is_longer = len(_rendered(render, in_blocks(chat))) > len(_rendered(render, chat))
    return "mark1" in one and "type" not in one and is_longer


def profile_of(render: Render) -> RenderingProfile:
    """Returns what a template demands: what it refuses or leaves out must be written another way."""
    turns = _chat("user mark1", "assistant mark2", "user mark3")
    system: Any = "anywhere"
    step = _chat("user mark5", "call", "result mark6")
    # It may be shown before nothing but a question.
    seen = [chat for chat in (turns[:2], step) if _shows(render, chat)]
    if not all(_shows(render, _chat("system mark0") + chat) for chat in (turns, *seen)):
        system = "user"
    elif not _shows(render, [*_chat("system mark0"), *turns[:2], *_chat("system mark4"), turns[2]]):
        system = "first"  # a later one is refused, or takes the place of the first
    takes_users = _shows(render, _chat("user mark8") + turns)
    takes_answers = _shows(render, turns + _chat("assistant mark8", "assistant mark9", "user mark7"))
    return RenderingProfile(
        system=system,
        one_system=system != "user" and not _shows(render, _chat("system mark8", "system mark9") + turns),
        alternate=not (takes_users and takes_answers),
        one_text=not _shows_blocks(render),
        answered=not _shows(render, [*step, *_chat("user mark7")]) and _shows(render, [*step, *turns[1:]]),
        no_developer=not _shows(render, _chat("developer mark0") + turns),
    )


def _shows_blocks(render: Render) -> bool:
    """Returns whether a template reads lists of content blocks, and all of them in every role."""
    turns = _chat("system mark1", "user mark2", "assistant mark3", "user mark4")
    texts = [(message["content"], f"mark{n}") for n, message in enumerate(turns, 5)]
    both = [[{"type": "text", "text": text} for text in pair] for pair in texts]
    chat = [{**message, "content": blocks} for message, blocks in zip(turns, both, strict=True)]
    is_read = _shows(render, chat[1:]) and "type" not in _rendered(render, chat[1:])
    return is_read and (_shows(render, chat) or not _shows(render, turns))


def separates_messages(render: Render, cuts: re.Pattern[str]) -> bool:
    """Returns whether between the contents of any two neighbours the tokenizer always cuts."""
    mixed = "system system user system user user assistant assistant".split()
    called = "user assistant call result result assistant system".split()
    for roles in (mixed, called):
        chain = _chat(*(f"{role} mark{i}" for i, role in enumerate(roles)))
        pieces = re.split(r"mark\d", _rendered(render, chain))
        if len(pieces) != len(roles) + 1 or not all(map(cuts.search, pieces[1:-1])):
            return False
    return True


def _chat(*turns: str) -> list[Message]:
    return [_message(*turn.partition(" ")[::2]) for turn in turns]


def _message(kind: str, text: str) -> Message:
    if kind == "result":
        return {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": text}
    answer = {"role": "assistant", "content": text}
    if kind == "call":
        function = {"name": "weather", "arguments": {"city": "Rome"}}
        return {**answer, "tool_calls": [{"id": "call00001", "type": "function", "function": function}]}
    if kind == "thought":
        return {**answer, "content": f"<think>\nlet me see\n</think>\n\n{text}"}
    if kind == "reasoned":
        return {**answer, "reasoning_content": "let me see"}
    return {"role": kind, "content": text}


def _shows(render: Render, messages: Sequence[Message]) -> bool:
    """Returns whether a template renders a conversation with everything in it."""
    rendered = _rendered(render, messages)
    return all(mark in rendered for mark in re.findall(r"mark\d", str(messages)))


def _rendered(render: Render, messages: Sequence[Message]) -> str:
    """Returns a rendering, "" where the template refuses the conversation."""
    with suppress(TemplateRefusedError):
        return render(messages, None)
    return ""
