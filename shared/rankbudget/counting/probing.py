"""Finds out what a chat template demands, how it wants content, and whether message counts may be added.

They may when (1) between the contents of any two messages is a token at which the tokenizer always cuts, so
that no token spans two messages, and (2) in every probe the whole is the sum of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from .profiles import RenderingProfile
from .protocol import Message

__all__ = [
    "PROBE_TOOLS",
    "Render",
    "TemplateRefusedError",
    "keeps_blocks",
    "probe_conversations",
    "profile_of",
    "separates_messages",
]

Render = Callable[[Sequence[Message], Any], str]

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


class TemplateRefusedError(ValueError):
    """Says why a template does not render a conversation."""


def profile_of(render: Render) -> RenderingProfile:
    """Returns what a template demands: what it refuses or leaves out must be written another way."""
    turns = _chat("user mark1", "assistant mark2", "user mark3")
    system: Any = "anywhere"
    if not _shows(render, _chat("system mark0") + turns):
        system = "user"
    elif not _shows(render, [*turns[:2], *_chat("system mark0"), turns[2]]):
        system = "first"
    takes_systems = _shows(render, _chat("system mark8", "system mark9") + turns)
    takes_users = _shows(render, _chat("user mark8") + turns)
    takes_answers = _shows(render, turns + _chat("assistant mark8", "assistant mark9", "user mark7"))
    return RenderingProfile(
        system=system,
        one_system=system != "user" and not takes_systems,
        alternate=not (takes_users and takes_answers),
    )


def keeps_blocks(render: Render) -> bool:
    """Returns whether a template reads a list of content blocks; others are given the text."""
    rendered = _rendered(render, [{"role": "user", "content": [{"type": "text", "text": "mark1"}]}])
    return "mark1" in rendered and "'type'" not in rendered and '"type"' not in rendered


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


def probe_conversations() -> list[list[Message]]:
    """Returns conversations on which a template that depends on its context shows it."""
    return [_chat(*turns) for turns in _PROBES]


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
