"""Whether a message that is given again is the stored one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..counting.blocks import THOUGHTS, block_text, blocks_of, kind_of
from .forms import HostForm
from .plain import read

_SAID = ("role", "tool_calls", "tool_call_id")
"""What each client states of a message; where one of these is left out, it was taken out."""


def is_same(stored: Any, row: Mapping[str, Any], form: HostForm) -> bool:
    """Returns whether a stored row holds a message that this host writes again."""
    if stored.form == form.name and stored.name == row["name"]:
        return stored.digest == row["digest"] and (row["host"] is None or stored.host == row["host"])
    return said_by(stored, form) == (row["digest"], row["host"])


def said_by(stored: Any, form: HostForm) -> tuple[str, str | None]:
    """Returns digest and host's own text of a stored row, as this host writes its message again."""
    again = form.row(form.message(stored))
    return again["digest"], again["host"]


def is_known(stored: Any, row: Mapping[str, Any], form: HostForm) -> bool:
    """Returns whether a row says nothing that the stored one does not: clients may leave out what is beside.

    That is thinking, usage and what else a client does not show.
    """
    if is_same(stored, row, form):
        return True
    again = form.row(form.message(stored))
    mine, theirs = read(row["neutral"]), read(again["neutral"])
    content = theirs.get("content")
    if mine.get("content") not in (content, _without_thoughts(content)):
        return False
    if any(mine.get(key) != theirs.get(key) for key in _SAID) or not _is_within(mine, theirs):
        return False
    return row["host"] is None or _is_within(read(row["host"]), read(again["host"] or "{}"))


def _without_thoughts(content: Any) -> Any:
    """Returns a content as a client shows it; one text alone is a text."""
    shown = [block for block in blocks_of(content) if kind_of(block) not in THOUGHTS]
    alone = block_text(shown[0]) if len(shown) == 1 else None
    return shown if alone is None else alone


def _is_within(part: Any, whole: Any) -> bool:
    """Returns whether a mapping states nothing beside its content that another does not, or what is empty."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(_is_within(value, whole.get(key)) for key, value in part.items() if key != "content")
    return part == whole or part is None or part in ("", [], {})
