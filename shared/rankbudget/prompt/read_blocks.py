"""What an assembler takes: blocks, or a plain mapping of names to texts, made into blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import BudgetConfigError
from ..segment import Block, Decision, Scope, Segment

__all__ = ["Blocks", "check_history", "for_reader", "read_blocks"]

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


def for_reader(block: Block, reader: Scope | None) -> tuple[Block, tuple[Decision, ...]]:
    """Returns the block with what the reader may see, and a decision for each segment it may not; ids of others stay unnamed."""
    seen = [s for s in block.segments if s.scope is None or s.scope.visible_to(reader)]
    hidden = len(block.segments) - len(seen)
    if not hidden:
        return block, ()
    decisions = [
        Decision(
            segment_id=f"{block.name}-hidden-{n}",
            block=block.name,
            action="trimmed",
            reason="out_of_scope",
            before=0,
            after=0,
        )
        for n in range(1, hidden + 1)
    ]
    return replace(block, segments=tuple(seen)), tuple(decisions)


def check_history(block: Block) -> None:
    """Refuses what a conversation cannot promise: it is cut by age, in turns."""
    asked = (
        [f"pinned segments {[s.id for s in block.segments if s.pinned][:5]!r}"]
        if any(s.pinned for s in block.segments)
        else []
    )
    asked += ["pinned=True"] if block.pinned else []
    asked += [f"strategy={block.strategy!r}"] if block.strategy is not None else []
    asked += (
        [f"a group of its own for {[s.id for s in block.segments if s.group][:5]!r}"]
        if any(s.group for s in block.segments)
        else []
    )
    if asked:
        msg = (
            f"the history block has {', '.join(asked)}, allowed: neither, because a conversation is kept from its newest turn on, calls with their "
            "results; put what must stay into the project or memory block or into a system message, and say cut= and min_exchanges= for the rest"
        )
        raise BudgetConfigError(msg)


def _block(name: Any, value: Any) -> Block:
    if not isinstance(name, str) or not name:
        msg = f"a block's name must be a non-empty text (got {name!r})"
        raise BudgetConfigError(msg)
    if isinstance(value, Block):
        return value if value.name == name else replace(value, name=name)
    if value is None or value == "":
        return Block(name=name)
    if isinstance(value, str):
        return Block.of(name, value)
    if isinstance(value, Segment):
        return Block(name=name, segments=(value,))
    if not isinstance(value, Iterable):
        msg = f"block {name!r} must be a text, a list of texts or segments, or messages (got {value!r:.80})"
        raise BudgetConfigError(msg)
    return _block_of_items(name, list(value))


def _block_of_items(name: str, items: list[Any]) -> Block:
    segments = [item for item in items if isinstance(item, Segment)]
    if items and len(segments) == len(items):
        return Block(name=name, segments=tuple(items))
    if name in _CONVERSATIONS and not (
        items and name != "history" and all(isinstance(i, str) for i in items)
    ):
        return Block(name=name, messages=items)
    if None in items:
        msg = f"block {name!r} must hold texts, segments or objects (got None at {items.index(None)}). Leave it out."
        raise BudgetConfigError(msg)
    made = [
        item
        if isinstance(item, Segment)
        else Segment(
            id=f"{name}-{i}",
            text=str(item),
            source=None if isinstance(item, str) else item,
        )
        for i, item in enumerate(items)
    ]
    return Block(name=name, segments=tuple(made))


def _is_several(given: Any) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, (str, bytes))


def _is_block(given: Any) -> bool:
    return isinstance(given, Block)


def _twice(ids: list[str]) -> list[str]:
    return [i for i, times in Counter(ids).items() if times > 1]
