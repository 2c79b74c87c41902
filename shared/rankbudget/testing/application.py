"""One application in neutral form: everything that competes for one context window, as plain data."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..counting.protocol import TokenCounter
from ..segment import Block, Scope, Segment

__all__ = ["Application", "MemoryItem", "reproduction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """A remembered text and who may see it."""

    text: str
    scope: Scope = field(default_factory=Scope)
    kind: str = "fact"


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """What one call of a chat or RAG application wants in its prompt.

    Args:
        messages: the conversation as OpenAI-style dicts, every one an object of its own.
        documents: retrieved texts.
        examples: few-shot pairs of input and output.
        memories: remembered texts with their scopes.
        question: a question that is not yet part of the conversation.
        tools: OpenAI-style tool schemas.
        tokens: the limit in tokens; with `eighths` it is added to a share of what everything would take.
        eighths: None, or how many eighths of the conversation's own size the limit is (8 with tokens=0: it
            just fits).
        cut: how history is cut.
        surplus: where unused tokens flow.
        reader: who asks.
    """

    messages: tuple[dict[str, Any], ...] = ()
    documents: tuple[str, ...] = ()
    examples: tuple[tuple[str, str], ...] = ()
    memories: tuple[MemoryItem, ...] = ()
    question: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    tokens: int = 1000
    eighths: int | None = None
    cut: Literal["fill", "stable"] = "fill"
    surplus: Literal["waterfall", "borrow", "keep"] = "waterfall"
    reader: Scope = field(default_factory=Scope)

    def limit(self, counter: TokenCounter) -> int:
        """Returns the limit in tokens, at least 1.

        Example:
            >>> from rankbudget.testing import WordCounter
            >>> one = ({"role": "user", "content": "hi there"},)  # 9 tokens with priming
            >>> [Application(messages=one, tokens=t, eighths=8).limit(WordCounter()) for t in (-1, 0)]
            [8, 9]
        """
        if self.eighths is None:
            return max(1, self.tokens)
        return max(
            1, counter.count_messages(self.messages, self.tools or None) * self.eighths // 8 + self.tokens
        )

    def fresh(self) -> list[dict[str, Any]]:
        """Returns the conversation in new objects, so that a test can tell whether somebody changed them."""
        return copy.deepcopy(list(self.messages))

    def blocks(self, messages: Sequence[Any] | None = None) -> list[Block]:
        """Returns the application as the blocks an `Assembler` takes.

        `messages` may be the conversation in a host's own objects.
        """
        found = (
            [Block(name="history", messages=self.fresh() if messages is None else messages)]
            if self.messages or messages
            else []
        )
        if self.memories:
            found.append(
                Block(
                    name="memory",
                    segments=tuple(
                        Segment(id=f"memory-{i}", text=item.text, scope=item.scope, kind=item.kind)
                        for i, item in enumerate(self.memories)
                    ),
                )
            )
        if self.examples:
            found.append(
                Block.of(
                    "examples", *(f"Input: {given}\nOutput: {wanted}" for given, wanted in self.examples)
                )
            )
        if self.documents:
            found.append(Block.of("knowledge", *self.documents))
        return found


def reproduction(application: Application, *, call: str = "") -> str:
    """Returns Python code that makes this application again, long repetitions written as products.

    Example:
        >>> print(reproduction(Application(messages=({"role": "user", "content": "word " * 500},), tokens=9)))
        from rankbudget.segment import Scope
        from rankbudget.testing import Application, MemoryItem
        application = Application(
            messages=(
                {'role': 'user', 'content': ('word ' * 500)},
            ),
            tokens=9,
        )
    """
    lines = [
        "from rankbudget.segment import Scope",
        "from rankbudget.testing import Application, MemoryItem",
        "application = Application(",
    ]
    default = Application()
    for name in Application.__dataclass_fields__:
        value = getattr(application, name)
        if value == getattr(default, name):
            continue
        if isinstance(value, tuple):
            lines.append(f"    {name}=(")
            lines += [f"        {_literal(item)}," for item in value]
            lines.append("    ),")
        else:
            lines.append(f"    {name}={_literal(value)},")
    lines.append(")")
    return "\n".join([*lines, *([call] if call else [])])


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key!r}: {_literal(item)}" for key, item in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_literal, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    if isinstance(value, Scope):
        named = ((name, getattr(value, name)) for name in ("user", "project"))
        return "Scope(" + ", ".join(f"{name}={item!r}" for name, item in named if item is not None) + ")"
    if isinstance(value, MemoryItem):
        return f"MemoryItem(text={_literal(value.text)}, scope={_literal(value.scope)}, kind={value.kind!r})"
    return repr(value)


def _text(text: str) -> str:
    """Writes a text whose tail repeats a short unit as head + unit * n, as every drawn giant does."""
    if len(text) < 200:  # noqa: PLR2004 - shorter texts are readable as they are
        return repr(text)
    for head in range(12):
        for period in range(1, 120):
            unit = text[head : head + period]
            times = (len(text) - head) // period
            if (
                times > 1
                and text[head:] == unit * times + text[head + times * period :]
                and len(text) - head - times * period < period
            ):
                parts = [repr(text[:head])] if head else []
                parts.append(f"({unit!r} * {times})" if not parts else f"{unit!r} * {times}")
                rest = text[head + times * period :]
                parts += [repr(rest)] if rest else []
                return parts[0] if len(parts) == 1 else "(" + " + ".join(parts) + ")"
    return repr(text)
