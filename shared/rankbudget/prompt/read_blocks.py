"""What an assembler takes: blocks, or a plain mapping of names to texts, made into blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..errors import BudgetConfigError
from ..segment import Block, Segment

_CONVERSATIONS = ("system", "history", "query")
"""Blocks that may be made of host messages."""

Blocks = Sequence[Block] | Mapping[str, Any]
"""Blocks; or names with a text, texts, segments, or (history) messages."""


def read_blocks(blocks: Blocks) -> list[Block]:
    """Returns blocks, each name once.

    Raises:
        BudgetConfigError: a name twice, or a value that is not a block.
    """
    given: Any = blocks  # callers without type checks give anything
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        msg = (
            f"blocks must be Block objects or a mapping (got a {type(given).__name__}). "
            "Give {'system': 'Be kind.', 'history': messages}, for example."
        )
        raise BudgetConfigError(msg)
    found: list[Any] = list(given)
    if isinstance(given, Mapping):
        found = [_block(name, value) for name, value in given.items()]
    others: list[Any] = [b for b in found if not isinstance(b, Block)]
    if others:
        raise BudgetConfigError.of([f"blocks must be Block objects (got {other!r:.80})" for other in others])
    problems = [
        f"block {name!r} must be given once (got {n} times)" for name, n in _repeated(b.name for b in found)
    ]
    for block in found:
        if block.messages is not None and block.name not in _CONVERSATIONS:
            names = ", ".join(map(repr, _CONVERSATIONS))
            problems.append(
                f"block {block.name!r} must have segments (got messages). Only {names} take messages."
            )
        for name, n in _repeated(s.id for s in block.segments):
            problems.append(f"ids in block {block.name!r} must be unique (got {name!r} {n} times)")
    if problems:
        raise BudgetConfigError.of(problems)
    return found


def check_history(block: Block) -> None:
    """Refuses what a conversation cannot promise: it is cut by age, in turns."""
    pinned = [s.id for s in block.segments if s.pinned][:5]
    grouped = [s.id for s in block.segments if s.group][:5]
    asked = [f"pinned segments {pinned!r}"] if pinned else []
    asked += ["pinned=True"] if block.pinned else []
    asked += [f"strategy={block.strategy!r}"] if block.strategy is not None else []
    asked += [f"groups for {grouped!r}"] if grouped else []
    if asked:
        msg = (
            f"the history block must have no pins, groups or strategy (got {', '.join(asked)}). It is kept "
            "from its newest turn on; put what must stay into a memory block or a system message, and set "
            "cut= and min_exchanges= for the rest."
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
    if isinstance(value, Mapping) and name in _CONVERSATIONS and "role" in value:
        return Block(name=name, messages=[value])
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        msg = f"block {name!r} must be a text, a list of texts or segments, or messages (got {value!r:.80})"
        raise BudgetConfigError(msg)
    return _block_of_items(name, list(value))


def _block_of_items(name: str, items: list[Any]) -> Block:
    segments = [item for item in items if isinstance(item, Segment)]
    if items and len(segments) == len(items):
        return Block(name=name, segments=tuple(items))
    texts = items and name != "history" and all(isinstance(item, str) for item in items)
    if name in _CONVERSATIONS and not texts:
        return Block(name=name, messages=items)
    if None in items:
        msg = f"block {name!r} must hold texts, segments or objects (got None at {items.index(None)})."
        raise BudgetConfigError(msg)
    made = [
        item
        if isinstance(item, Segment)
        else Segment(id=f"{name}-{i}", text=str(item), source=None if isinstance(item, str) else item)
        for i, item in enumerate(items)
    ]
    return Block(name=name, segments=tuple(made))


def _repeated(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, times) for name, times in Counter(names).items() if times > 1]
