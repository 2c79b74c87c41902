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
from ..segment import block_named

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
    """Returns the texts of `before`, what was offered, and of `after`, what was kept, by block and id.

    A text that was passed belongs to each piece that says the same, wherever it stands in its list.
    """
    ids: dict[str, dict[str, bool]] = {}
    for one in report.decisions:
        ids.setdefault(one.block, {})[one.segment_id] = one.action != "trimmed"
    offered, kept = _Passed.of(before, ids, "before"), _Passed.of(after, ids, "after")
    known = report._pieces  # noqa: SLF001 - for others a report holds no texts
    if known is None:  # it was plain data: only hosts' own ids are certain
        found = [
            (name, made, offered.named(name, made), kept.named(name, made))
            for name, own in ids.items()
            for made in own
        ]
    else:
        found = [
            (name, made, offered.saying(name, whole), kept.saying(name, reads))
            for name, made, whole, reads in known()
            if made in ids.get(name, ())
        ]
    return Texts(
        _certain([((name, made), words) for name, made, words, _ in found]),
        _certain([((name, made), words) for name, made, _, words in found if ids[name][made]]),
    )


def kept_in(result: Any) -> Given:
    """Returns what a FitResult or an Assembly kept, by block where it says so."""
    held = getattr(result, "kept", None)
    if held is None:
        return getattr(result, "messages", None) or getattr(result, "segments", None) or None
    layout = getattr(result, "layout", None)
    found: dict[str, Any] = {"history": list(result.history), **held}
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
@dataclass(frozen=True, slots=True)
class _Passed:
    """What a caller passed, by block: what it says by its identity, its text and its own id."""

    objects: Mapping[tuple[str, int], tuple[Any, Words]]  # held, so that no other object gets its identity
    texts: Mapping[tuple[str, str], Words]
    ids: Mapping[tuple[str, str], Words]

    @classmethod
    def of(cls, given: Given, ids: Mapping[str, Any], what: str) -> _Passed:
        items = [(name, item) for name, held in _by_block(given, ids, what).items() for item in _items(held)]
        words = [words_of(item) for _, item in items]
        said = [(name, item, one) for (name, item), one in zip(items, words, strict=True)]
        return cls(
            {(name, id(item)): (item, one) for name, item, one in said},
            {(name, one.text): one for name, _, one in said},
            _certain([((name, _own_id(item)), one) for name, item, one in said]),
        )

    def named(self, block: str, made: str) -> Words | None:
        return self.ids.get((block, made)) if made else None

    def saying(self, block: str, forms: Iterable[Any]) -> Words | None:
        """Returns what was passed that is one form of a piece or says the same, with the piece's own role."""
        for form in (one for one in forms if one is not None):
            own = words_of(form)
            _, same = self.objects.get((block, id(form)), (None, None))
            found = same or self.texts.get((block, own.text))
            if found is not None:
                score = found.score if own.score is None else own.score
                return Words(found.text, own.role or found.role, score)
        return None


def _certain(found: Iterable[tuple[tuple[str, str], Words | None]]) -> dict[tuple[str, str], Words]:
    """Returns the words by block and id, without an id that several pieces have which say different words."""
    held: dict[tuple[str, str], Words | None] = {}
    for key, words in found:
        held[key] = words if held.get(key, words) == words else None
    return {key: words for key, words in held.items() if words is not None}


def _by_block(given: Given, ids: Mapping[str, Any], what: str) -> dict[str, Any]:
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
    pieces = getattr(held, "pieces", None)  # what a block kept
    if pieces is not None:
        return [_Kept(one.segment.id, one.rendition.text, one.segment.score) for one in pieces]
    inside = getattr(held, "messages", None) or getattr(held, "segments", None)
    if inside is not None:
        return list(inside)
    alone = isinstance(held, str | Mapping) or not isinstance(held, Iterable) or hasattr(held, "model_dump")
    return [held] if alone else list(held)


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
