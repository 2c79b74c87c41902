"""Hypothesis strategies that draw one application at a time.

An application has messages, documents, tools, a question and a budget. Everything is drawn from few small
choices and built by plain functions, so that a draw takes well under a millisecond of work and shrinks to
something readable: fewer turns, the simplest kind of turn, plain words.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ..segment import Scope
from .application import Application, MemoryItem
from .payloads import HOSTILE, WORDS
from .shapes import SHAPES, STEPS
from .turns import ANSWERED_BY_USER, BROKEN, ENDS, MEDIA, ODD, PLAIN, SYSTEMS, Writer

__all__ = ["applications", "conversations", "shaped_turns", "shapes", "texts", "tools"]


def texts(*, giant: bool = False) -> st.SearchStrategy[str]:
    """Draws a text; a giant one is a short one many times."""
    times = st.sampled_from((1, 1, 1, 2, 7) if not giant else (1, 3, 40, 400))
    return st.builds(
        lambda word, n: " ".join([word] * n) if n > 1 else word, st.sampled_from(WORDS + HOSTILE), times
    )


def conversations(
    *,
    broken: bool = True,
    media: bool = True,
    max_turns: int = 10,
    systems: bool = True,
    user_results: bool = False,
) -> st.SearchStrategy[tuple[dict[str, Any], ...]]:
    """Draws a conversation as OpenAI-style dicts.

    Args:
        broken: tool results without a call, calls without results, and the like may occur.
        media: images, audio, files and thinking may occur.
        max_turns: most drawn turns; a drawn repetition may make the conversation longer.
        systems: system and developer messages may stand anywhere.
        user_results: user messages may hold tool results among their content blocks, some of them broken; not
            every host has such messages.
    """
    kinds = PLAIN + ODD + (SYSTEMS if systems else ()) + (MEDIA if media else ()) + (BROKEN if broken else ())
    kinds += ANSWERED_BY_USER if user_results else ()
    turn = st.tuples(st.sampled_from(kinds), st.sampled_from(WORDS), st.integers(0, 6))
    opening = st.lists(
        st.tuples(st.sampled_from(SYSTEMS), st.sampled_from(WORDS), st.integers(0, 3)),
        max_size=2 if systems else 0,
    )
    return st.builds(
        _conversation,
        opening,
        st.lists(turn, max_size=max_turns),
        st.sampled_from((1, 1, 1, 1, 2, 6)),
        st.sampled_from((*ENDS, "user_end", "user_results") if user_results else ENDS),
        st.sampled_from(WORDS),
    )


def shaped_turns(*, max_turns: int = 5) -> st.SearchStrategy[list[tuple[str, str, int]]]:
    """Draws what happens in a conversation, for `Shape.write`: kind of turn, text and size."""
    turn = st.tuples(st.sampled_from(STEPS), st.sampled_from(WORDS), st.integers(0, 5))
    return st.lists(turn, min_size=1, max_size=max_turns)


def shapes() -> st.SearchStrategy[tuple[str, tuple[dict[str, Any], ...]]]:
    """Draws a provider's name and a conversation as this provider's dicts."""
    return st.builds(
        _shaped, st.sampled_from(sorted(SHAPES)), shaped_turns(), st.sampled_from(("", "Which is it?"))
    )


def _shaped(name: str, turns: list[tuple[str, str, int]], end: str) -> tuple[str, tuple[dict[str, Any], ...]]:
    shape = SHAPES[name]()
    for turn in turns:
        shape.write(*turn)
    if end:
        shape.ask(end)
    return name, tuple(shape.messages)


def tools() -> st.SearchStrategy[tuple[dict[str, Any], ...]]:
    """Draws up to three tool schemas."""
    return st.lists(
        st.tuples(st.sampled_from(("search", "write_file", "f")), st.integers(0, 12)), max_size=3
    ).map(lambda drawn: tuple(_tool(f"{name}_{i}", size) for i, (name, size) in enumerate(drawn)))


def applications(
    *,
    broken: bool = True,
    media: bool = True,
    max_turns: int = 10,
    systems: bool = True,
    user_results: bool = False,
) -> st.SearchStrategy[Application]:
    """Draws one application in neutral form; the arguments are those of `conversations`.

    The limit is a number of tokens from 1 up, or lies within a few tokens of what an eighth, a half or all of
    the conversation takes, where mistakes by one show.
    """
    scope = st.builds(
        lambda user, project: Scope(user=user, project=project),
        st.sampled_from((None, "ann", "bob")),
        st.sampled_from((None, "x", "y")),
    )
    absolute = st.tuples(
        st.none(), st.one_of(st.integers(1, 80), st.integers(60, 600), st.sampled_from((1500, 4000, 16000)))
    )
    relative = st.tuples(st.sampled_from((8, 7, 6, 4, 2, 1)), st.integers(-2, 2))
    return st.builds(
        _application,
        conversations(
            broken=broken, media=media, max_turns=max_turns, systems=systems, user_results=user_results
        ),
        st.lists(
            st.tuples(st.sampled_from(WORDS + HOSTILE), st.sampled_from((1, 1, 2, 20, 150))), max_size=5
        ),
        st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(WORDS)), max_size=3),
        st.lists(
            st.tuples(
                st.sampled_from(WORDS + HOSTILE), scope, st.sampled_from(("fact", "core", "experience"))
            ),
            max_size=4,
        ),
        st.one_of(st.none(), st.sampled_from(WORDS)),
        tools(),
        st.one_of(absolute, relative),
        st.sampled_from(("fill", "fill", "stable")),
        st.sampled_from(("waterfall", "borrow", "keep")),
        scope,
    )


def _application(
    messages: tuple[dict[str, Any], ...],
    documents: list[tuple[str, int]],
    examples: list[tuple[str, str]],
    memories: list[tuple[str, Scope, str]],
    question: str | None,
    tools: tuple[dict[str, Any], ...],
    limit: tuple[int | None, int],
    cut: Any,
    surplus: Any,
    reader: Scope,
) -> Application:
    return Application(
        messages=messages,
        documents=tuple(
            " ".join([f"Document {i}: {text}"] * times) for i, (text, times) in enumerate(documents)
        ),
        examples=tuple((f"example {i} {given}", wanted) for i, (given, wanted) in enumerate(examples)),
        memories=tuple(
            MemoryItem(text=f"memory {i} of {who}: {text}", scope=who, kind=kind)
            for i, (text, who, kind) in enumerate(memories)
        ),
        question=question and f"Question: {question}",
        tools=tools,
        eighths=limit[0],
        tokens=limit[1],
        cut=cut,
        surplus=surplus,
        reader=reader,
    )


def _conversation(
    opening: list[tuple[str, str, int]], turns: list[tuple[str, str, int]], times: int, end: str, last: str
) -> tuple[dict[str, Any], ...]:
    writer = Writer()
    for kind, word, size in [*opening, *(turns * times), (end, last, 2)]:
        writer.write(kind, word, size)
    return tuple(writer.messages)


def _tool(name: str, size: int) -> dict[str, Any]:
    properties = {
        f"field_{i}": {"type": ("string", "integer", "boolean")[i % 3], "description": WORDS[i % 3]}
        for i in range(size)
    }
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    return {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Does {name} for {size} fields.",
            "parameters": parameters,
        },
    }
