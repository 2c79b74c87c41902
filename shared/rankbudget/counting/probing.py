"""Finds out what a chat template does, by rendering conversations made for it.

Three questions: what does it demand (its profile); how does it want content; and may message counts be added? The last is answered with yes
only when (1) between the contents of any two messages stands a token at which the tokenizer always cuts, so that no token spans two messages,
and (2) in every probe, tools, late system messages, thinking and repeated roles included, the whole is the sum of its parts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .chat_template import TemplateRefusedError
from .profiles import RenderingProfile
from .protocol import Message

__all__ = ["PROBE_TOOLS", "Render", "keeps_blocks", "probe_conversations", "profile_of", "separates_messages"]

Render = Callable[[Sequence[Message], Any], str]

PROBE_TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tells the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def _system(text: str) -> Message:
    return {"role": "system", "content": text}


def _call(city: str, text: str = "") -> Message:
    function = {"name": "weather", "arguments": {"city": city}}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": "call00001", "type": "function", "function": function}],
    }


def _result(text: str) -> Message:
    return {"role": "tool", "tool_call_id": "call00001", "name": "weather", "content": text}


def profile_of(render: Render) -> RenderingProfile:
    """Returns what a template demands: what it refuses or leaves out must be written another way."""
    turns = [_user("mark1"), _assistant("mark2"), _user("mark3")]
    system: Any = "anywhere"
    if not _shows(render, [_system("mark0"), *turns]):
        system = "user"
    elif not _shows(render, [*turns[:2], _system("mark0"), turns[2]]):
        system = "first"
    return RenderingProfile(
        system=system,
        one_system=system != "user" and not _shows(render, [_system("mark8"), _system("mark9"), *turns]),
        alternate=not _shows(render, [_user("mark8"), *turns])
        or not _shows(render, [*turns, _assistant("mark8"), _assistant("mark9"), _user("mark7")]),
        tool_role=_shows(render, [_user("mark1"), _call("mark5"), _result("mark6")]),
    )


def keeps_blocks(render: Render) -> bool:
    """Returns whether a template reads a list of content blocks; others are given the text."""
    try:
        rendered = render([{"role": "user", "content": [{"type": "text", "text": "mark1"}]}], None)
    except TemplateRefusedError:
        return False
    return "mark1" in rendered and "'type'" not in rendered and '"type"' not in rendered


def separates_messages(render: Render, cuts: re.Pattern[str]) -> bool:
    """Returns whether between the contents of any two neighbours the tokenizer always cuts."""
    mixed = [
        _system("mark0"),
        _system("mark1"),
        _user("mark2"),
        _system("mark3"),
        _user("mark4"),
        _user("mark5"),
        _assistant("mark6"),
        _assistant("mark7"),
    ]
    called = [
        _user("mark0"),
        _assistant("mark1"),
        _call("Rome", "mark2"),
        _result("mark3"),
        _result("mark4"),
        _assistant("mark5"),
        _system("mark6"),
    ]
    for chain in (mixed, called):
        try:
            rendered = render(chain, None)
        except TemplateRefusedError:
            return False
        pieces = re.split(r"mark\d", rendered)
        if len(pieces) != len(chain) + 1 or not all(cuts.search(piece) for piece in pieces[1:-1]):
            return False
    return True


def probe_conversations() -> list[list[Message]]:
    """Returns conversations on which a template that depends on its context shows it."""
    thought = _assistant("<think>\nlet me see\n</think>\n\nmark")
    reasoned = {"role": "assistant", "content": "mark", "reasoning_content": "let me see"}
    edges = ["", " a", "b ", "c\n", "\n\nd", "/e", "'s", "中", "!", "  ", "👍", "1"]
    return [
        [_user("one")],
        [_user("one"), _assistant("two")],
        [_assistant("two")],
        [_assistant("two"), _user("one")],
        [_system("be brief")],
        [_system("be brief"), _user("one")],
        [_system("be brief"), _system("be kind"), _user("one")],
        [_user("one"), _system("be brief"), _user("two")],
        [
            _user("one"),
            _assistant("two"),
            _system("be brief"),
            _user("three"),
            _assistant("four"),
            _user("five"),
        ],
        [_user("one"), _user("two"), _assistant("three"), _assistant("four"), _user("five")],
        [_user("one"), thought, _user("two"), thought, _user("three")],
        [_user("one"), reasoned, _user("two"), reasoned, _user("three")],
        [_user("one"), _call("Rome"), _result("sunny"), _assistant("It is sunny."), _user("thanks")],
        [
            _user("one"),
            _call("Rome", "Looking."),
            _result("sunny"),
            _result("warm"),
            _call("Oslo"),
            _result("{}"),
        ],
        [_user("one"), reasoned, _call("Rome"), _result("sunny"), reasoned, _user("two")],
        [m for i, e in enumerate(edges) for m in (_user(e), _assistant(edges[-i - 1]))],
    ]


def _shows(render: Render, messages: Sequence[Message]) -> bool:
    """Returns whether a template renders a conversation with everything in it."""
    try:
        rendered = render(messages, None)
    except TemplateRefusedError:
        return False
    marks = re.findall(r"mark\d", str(messages))
    return all(mark in rendered for mark in marks)
