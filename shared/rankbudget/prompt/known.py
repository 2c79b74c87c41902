"""The pieces of a plan as they were given and as they read, for a page that must not mix up their texts."""

from __future__ import annotations

from collections.abc import Iterator

from ..report.parts import KnownPiece
from .fitted import Fitted
from .grants import Inputs, Prices
from .request import PromptRequest


def known_pieces(
    request: PromptRequest, inputs: Inputs, prices: Prices, fitted: Fitted
) -> Iterator[KnownPiece]:
    """Yields every piece that was given, under the id of its decision; made only for who passes texts."""
    if len(request.system) == 1:
        yield KnownPiece("system", "system", tuple(request.system), tuple(request.system))
    yield from _history(request, inputs, fitted)
    for block in inputs.blocks:
        reads = {piece.segment.id: piece for piece in fitted.fits[block.name].pieces}
        for segment in block.segments:
            whole, piece = (segment, segment.source), reads.get(segment.id)
            shorter = () if piece is None else (piece.rendition.text,)
            yield KnownPiece(
                block.name, segment.id, whole, whole if piece is None or piece.whole else shorter
            )
    asked = request.question_text if request.question is None else request.question
    yield KnownPiece("query", "query", () if prices.question_before else (asked,), (asked,))


def _history(request: PromptRequest, inputs: Inputs, fitted: Fitted) -> Iterator[KnownPiece]:
    """Yields the messages of the conversation, without those of a stored one that were not read."""
    timeline, history, given = inputs.timeline, fitted.history, request.history_block
    if timeline is None or history is None:
        return
    own = {f"history-{i}": s.id for i, s in enumerate(given.segments)} if given is not None else {}
    size = len(timeline.messages)
    for i in range(size) if timeline.stored is None else timeline.stored.loaded(0, size):
        name, message = timeline.name(i), timeline.given[i]
        yield KnownPiece("history", own.get(name, name), (message,), (history.edits.get(i, message),))
    yield KnownPiece("history", "history-summary", (), (history.summary,))
