"""The texts of a report's pieces, read from what the caller passes: a report holds none itself.

Messages, documents and nodes of any host are read by the attributes that hold text, so no host is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from ..counting.blocks import as_block, block_text, function_of, kind_of
from ..errors import BudgetConfigError, shown
from ..segment import Segment, block_named
from .order import in_order

if TYPE_CHECKING:
    from .report import BudgetReport

Given = Mapping[str, Any] | Sequence[Any] | None
"""A list of messages, segments, documents or texts, or such lists by block."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a piece says: its text, who says it, and its relevance where that is known."""

    text: str
    role: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True)
class Texts:
    """What pieces say by block and id, before and after the fitting."""

    before: Mapping[tuple[str, str], Words] = field(default_factory=dict)
    after: Mapping[tuple[str, str], Words] = field(default_factory=dict)


def texts_of(report: BudgetReport, *, before: Given = None, after: Given = None) -> Texts:
    """Returns the texts of `before`, what was offered, and of `after`, what was kept, by block and id."""
    ids: dict[str, list[str]] = {}
    for one in report.decisions:
        ids.setdefault(one.block, []).append(one.segment_id)
    offered = {name: _items(held) for name, held in _by_block(before, ids, "before").items()}
    shorter = {name: _items(held) for name, held in _by_block(after, ids, "after").items()}
    first = dict(_named(offered, ids))
    names = {id(item): key for key, item in first.items()}
    kept: dict[str, list[str]] = {}
    for one in in_order(report.decisions, list(ids), first):
        if one.action != "trimmed":
            kept.setdefault(one.block, []).append(one.segment_id)
    return Texts(
        {key: words_of(item) for key, item in first.items()},
        {key: words_of(item) for key, item in _still_named(shorter, kept, names)},
    )


def kept_in(result: Any) -> Given:
    """Returns what a FitResult or an Assembly kept, by block where it says so."""
    held = getattr(result, "kept", None)
    if held is None:
        return getattr(result, "messages", None) or getattr(result, "segments", None) or None
    layout = getattr(result, "layout", None)
    found: dict[str, Any] = {"history": list(result.history)}
    for name, fit in held.items():
        pieces = getattr(fit, "pieces", ())
        found[name] = [_Kept(p.segment.id, p.rendition.text, p.segment.score) for p in pieces]
    if layout is not None:
        found |= {"system": layout.system, "query": [layout.question] if layout.question is not None else []}
    return found


@dataclass(frozen=True, slots=True)
class _Kept:
    """A segment as it reads in the prompt."""

    id: str
    text: str
    score: float | None


# ---- which piece an item is ----------------------------------------------------------------------
def _by_block(given: Given, ids: Mapping[str, list[str]], what: str) -> dict[str, Any]:
    """Returns the items by block; a plain list is of the conversation, or of the only block."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {name if name in ids else block_named(name): held for name, held in given.items()}
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        msg = (
            f"{what} must be a list, or a dict of lists by block (got {shown(given)}). "
            "Give the messages or documents that were fitted."
        )
        raise BudgetConfigError(msg)
    blocks = [one for one in given if hasattr(one, "segments") and hasattr(one, "name")]
    if blocks and len(blocks) == len(given):
        return {one.name: one for one in blocks}
    return {"history" if "history" in ids else next(iter(ids), "history"): given}


def _items(held: Any) -> list[Any]:
    """Returns the items of one block: one text, a Block, or a list."""
    if held is None:
        return []
    inside = getattr(held, "messages", None) or getattr(held, "segments", None)
    if inside is not None:
        return list(inside)
    alone = isinstance(held, str | Mapping) or not isinstance(held, Iterable) or hasattr(held, "model_dump")
    return [held] if alone else list(held)


def _named(
    offered: Mapping[str, list[Any]], ids: Mapping[str, list[str]]
) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yields each item that was offered with the block and id of its piece.

    An item has its own id or the one its position gives it, as decisions name it.
    """
    for name, items in offered.items():
        known = dict.fromkeys(ids.get(name, ()))
        for i, item in enumerate(items):
            alone = [name] if len(items) == 1 else []
            named = [_own_id(item), f"{name}-{i}", str(i), f"document-{i + 1}", *alone]
            # A segment is decided on under its own id. One its reader may not see has none in the report.
            for made in named[:1] if isinstance(item, Segment) else named:
                if made and made in known:
                    yield (name, made), item
                    break


def _still_named(
    shorter: Mapping[str, list[Any]], kept: Mapping[str, list[str]], names: Mapping[int, tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], Any]]:
    """Yields each item that was kept with the block and id of its piece.

    What is kept whole is the same object, and others may have an id. The rest is paired in order, where it
    has as many pieces; where it has not, no text is better than the wrong one.
    """
    for name, items in shorter.items():
        waiting = dict.fromkeys(kept.get(name, ()))
        apart = []
        for item in items:
            key = names.get(id(item), (name, _own_id(item)))
            if key[0] == name and key[1] in waiting:
                del waiting[key[1]]
                yield key, item
            else:
                apart.append(item)
        if len(apart) == len(waiting):
            yield from (((name, key), item) for key, item in zip(waiting, apart, strict=True))


def _own_id(item: Any) -> str:
    item = getattr(item, "node", item)
    found = item.get("id") if isinstance(item, Mapping) else getattr(item, "id", None)
    if found is None:
        found = getattr(item, "node_id", None)
    return found if isinstance(found, str) else ""


# ---- what an item says ---------------------------------------------------------------------------
def words_of(item: Any) -> Words:
    """Returns what a message, segment, document, node or text says."""
    score = getattr(item, "score", None)
    item = getattr(item, "node", item)
    role = getattr(item, "role", None) or getattr(item, "type", None)
    if isinstance(item, Mapping):
        role = item.get("role")
    return Words(
        "\n".join([line for line in (_text(item), *_calls(item)) if line]),
        role=str(getattr(role, "value", role) or "").replace("Document", ""),
        score=float(score) if isinstance(score, Real) and isfinite(score) else None,
    )


def _text(item: Any) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, Mapping):
        return _content(item.get("content", item.get("parts", item.get("output"))))
    for name in ("text", "page_content", "content", "blocks"):
        found = getattr(item, name, None)
        if isinstance(found, str):
            return str(found)
        if isinstance(found, list):
            return _content(found)
    return ""


def _content(content: Any) -> str:
    """Returns the text of content blocks; another block is its kind in brackets."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    return "\n".join([_block(block) for block in content])


def _block(block: Any) -> str:
    text = block_text(block)
    if text is not None:
        return text
    plain = as_block(block)
    said = plain.get("text") if isinstance(plain, Mapping) else None
    return said if isinstance(said, str) else f"[{kind_of(plain) or 'content'}]"


def _calls(item: Any) -> Iterator[str]:
    """Yields one line for each tool call of a message."""
    held = item.get("tool_calls") if isinstance(item, Mapping) else getattr(item, "tool_calls", None)
    for call in held if isinstance(held, list | tuple) else ():
        plain = as_block(call)
        function = function_of(plain) if isinstance(plain, Mapping) else {}
        yield f"[calls {function.get('name')}({function.get('arguments', function.get('args', ''))})]"
