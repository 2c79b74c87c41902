"""What an assembler takes: blocks, or a plain mapping of names to texts, made into blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import BudgetConfigError
from ..segment import Block, Decision, Scope, Segment

__all__ = ["Blocks", "for_reader", "read_blocks"]

_CONVERSATIONS = ("system", "history", "query")
"""Blocks that may be made of host messages."""

Blocks = Sequence[Block] | Mapping[str, Any]
"""Blocks; or names with a text, texts, segments, or (history) messages."""


def read_blocks(blocks: Blocks) -> list[Block]:
    """Returns blocks, each name once.

    Example:
        >>> [b.name for b in read_blocks({"system": "Be kind.", "knowledge": ["one", "two"], "history": []})]
        ['system', 'knowledge', 'history']

    Raises:
        BudgetConfigError: a name twice, or something that is no block.
    """
    if isinstance(blocks, Mapping):
        found = [_block(name, value) for name, value in blocks.items()]
    elif not _is_several(blocks):
        msg = f"blocks is {type(blocks).__name__}, allowed: Block objects, or a mapping as {{'system': 'Be kind.', 'history': messages}}"
        raise BudgetConfigError(msg)
    else:
        found = list(blocks)
    problems = [f"{b!r} is no Block" for b in found if not _is_block(b)]
    if problems:
        raise BudgetConfigError.of(problems)
    names = [b.name for b in found]
    problems += [
        f"block {n!r} is there {names.count(n)} times, allowed: once"
        for n in dict.fromkeys(names)
        if names.count(n) > 1
    ]
    problems += [
        f"block {b.name!r} has messages, allowed: segments; only {', '.join(map(repr, _CONVERSATIONS))} are made of messages"
        for b in found
        if b.messages is not None and b.name not in _CONVERSATIONS
    ]
    problems += [
        f"block {b.name!r} has the segment id {i!r} more than once"
        for b in found
        for i in _twice([s.id for s in b.segments])
    ]
    if problems:
        raise BudgetConfigError.of(problems)
    return found


def for_reader(block: Block, reader: Scope | None) -> tuple[Block, list[Decision]]:
    """Returns the block with what the reader may see, and a decision for what it may not."""
    hidden = [s for s in block.segments if s.scope is not None and not s.scope.visible_to(reader)]
    if not hidden:
        return block, []
    decisions = [
        Decision(
            segment_id=s.id,
            block=block.name,
            action="trimmed",
            reason="out_of_scope",
            before=s.tokens or 0,
            after=0,
        )
        for s in hidden
    ]
    gone = {s.id for s in hidden}
    return replace(block, segments=tuple(s for s in block.segments if s.id not in gone)), decisions


def _block(name: Any, value: Any) -> Block:
    if not isinstance(name, str) or not name:
        msg = f"a block is named {name!r}, allowed: a non-empty text"
        raise BudgetConfigError(msg)
    if isinstance(value, Block):
        return value if value.name == name else replace(value, name=name)
    if value is None:
        return Block(name=name)
    if isinstance(value, str):
        return Block.of(name, value) if value else Block(name=name)
    if isinstance(value, Segment):
        return Block(name=name, segments=(value,))
    if not isinstance(value, Iterable):
        msg = f"block {name!r} is {value!r:.80}, allowed: a text, a list of texts or segments, or (history) messages"
        raise BudgetConfigError(msg)
    items = list(value)
    if all(isinstance(item, Segment) for item in items) and items:
        return Block(name=name, segments=tuple(items))
    if all(isinstance(item, str) for item in items) and name != "history":
        return Block.of(name, *items)
    if name in _CONVERSATIONS:
        return Block(name=name, messages=items)
    wrong = [i for i, item in enumerate(items) if item is None]
    if wrong:
        msg = f"item {wrong[0]} of block {name!r} is None, allowed: texts, segments, or objects that say something; leave it out"
        raise BudgetConfigError(msg)
    segments = tuple(
        item
        if isinstance(item, Segment)
        else Segment(id=f"{name}-{i}", text=item if isinstance(item, str) else str(item), source=item)
        for i, item in enumerate(items)
    )
    return Block(name=name, segments=segments)


def _is_several(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes))


def _is_block(given: Any) -> bool:
    return isinstance(given, Block)


def _twice(ids: list[str]) -> list[str]:
    return [i for i, times in Counter(ids).items() if times > 1]
