"""The core's assembler, for blocks whose pieces a host's template shows otherwise than they read.

A document is cut in its content, and costs what the document prompt makes of it: heading, source and all, however short the content gets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import override

from rankbudget import Assembler
from rankbudget.assembly import Assembly
from rankbudget.blocks import Blocks
from rankbudget.counting.protocol import Tool
from rankbudget.effects import adrive, drive
from rankbudget.fitting.protocol import Fit
from rankbudget.pipeline import Render, Run
from rankbudget.segment import Segment

__all__ = ["Shown", "ShownAssembler"]

Shown = Callable[[str, Segment, str], str]
"""Returns how a text that stands for a segment of a block reads in the prompt."""


class ShownAssembler(Assembler):
    """Fits pieces by what they cost as they are shown, and keeps them as they read.

    Args:
        budget: the limits.
        shown: how a piece reads in the prompt.
        options: everything else that `Assembler` takes.
    """

    def __init__(self, budget: Any, *, shown: Shown, **options: Any) -> None:
        super().__init__(budget, **options)
        self.shown = shown

    @override
    def assemble(
        self,
        blocks: Blocks,
        *,
        query: Any = None,
        tools: Sequence[Tool] | None = None,
        include_memories: bool = True,
        memory_query: str | None = None,
        render: Render | None = None,
    ) -> Assembly:
        return drive(self._steps(_ShownRun(self, tools, render), blocks, query, memory_query, include_memories=include_memories))

    @override
    async def aassemble(
        self,
        blocks: Blocks,
        *,
        query: Any = None,
        tools: Sequence[Tool] | None = None,
        include_memories: bool = True,
        memory_query: str | None = None,
        render: Render | None = None,
    ) -> Assembly:
        return await adrive(self._steps(_ShownRun(self, tools, render), blocks, query, memory_query, include_memories=include_memories))


class _ShownRun(Run):
    """One pass in which every piece is counted, and laid out, as it is shown."""

    def __init__(self, assembler: ShownAssembler, tools: Sequence[Tool] | None, render: Render | None) -> None:
        super().__init__(assembler, tools, render)
        self._shown = assembler.shown

    @override
    def _piece(self, name: str, segment: Segment, text: str) -> str:
        return super()._piece(name, segment, self._shown(name, segment, text))

    @override
    def messages(self) -> list[Any]:
        if self.render is not None:  # the host's own template shows the pieces
            return super().messages()
        kept = [competitor.fit for competitor in self.competitors]
        for competitor in self.competitors:
            competitor.fit = self._as_shown(competitor.block.name, competitor.fit)
        try:
            return super().messages()
        finally:
            for competitor, fit in zip(self.competitors, kept, strict=True):
                competitor.fit = fit

    def _as_shown(self, name: str, fit: Fit) -> Fit:
        pieces = [
            replace(piece, rendition=replace(piece.rendition, text=self._shown(name, piece.segment, piece.rendition.text)))
            for piece in fit.pieces
        ]
        return replace(fit, pieces=tuple(pieces))
