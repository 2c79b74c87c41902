"""Which paragraphs of a text can stand apart: those that are below one heading cannot."""

from __future__ import annotations

from ..relevance.sentences import parts_of
from ..relevance.tree import NONE, tree_of


def sections_of(text: str) -> list[str]:
    """Returns the paragraphs of a text, each with all that is below it, without the blank lines between."""
    pieces = parts_of(text)
    owners, sections, first = tree_of(pieces).owners, [""], len(pieces)
    for i in range(len(pieces) - 1, -1, -1):
        first = first if owners[i] == NONE else min(first, owners[i])
        sections[-1] = pieces[i] + sections[-1]
        if i <= first and i and pieces[i - 1].endswith("\n\n"):
            sections.append("")
    return [section.strip("\n") for section in reversed(sections)]
