"""What answers a question in one text."""

from __future__ import annotations

import re

from ..compression.json_values import parse
from ..compression.structured import compress_structured
from ..counting.protocol import TokenCounter
from ..relevance.evidence import rate_sentences
from ..relevance.fusion import default_scorer
from ..relevance.long_lines import SHORT
from ..relevance.protocol import Scorer
from ..relevance.sentences import parts_of, split_sentences
from ..segment import Segment
from .evidence import Evidence

_BLANK = re.compile(r"\n\s*\n")
_SURE = 20
"""Characters by which a piece of a text is known."""


def answering(
    text: str, query: str, max_tokens: int, counter: TokenCounter, *, scorer: Scorer | None = None
) -> str:
    """Returns what of a text most likely answers a question, in order; the text itself when it fits.

    What is kept is chosen as of documents: sentences, rows and records. JSON stays JSON.

    Args:
        text: what to shorten.
        query: what it should answer.
        max_tokens: most tokens of the result.
        counter: counts.
        scorer: rates its sentences; None takes the default mix of words and meaning.
    """
    if counter.count(text) > max_tokens and parse(text) is not None:
        return compress_structured(text, max_tokens, counter, query)
    fit = Evidence(scorer=scorer).fit(
        [Segment(id="text", text=text)], limit=max_tokens, counter=counter, block="text", query=query
    )
    kept = fit.pieces[0].rendition.text if fit.pieces else ""
    pieces = [piece.strip() for piece in split_sentences(text) if piece.strip()]
    if kept and not any(piece in kept for piece in pieces):  # the start of one that may answer behind it
        start = kept.strip()[:_SURE]
        cut = next((piece for piece in pieces if piece.startswith(start)), "")
        if len(cut) > SHORT:  # a record of data; of a sentence the start says more than both ends
            kept = compress_structured(cut, max_tokens, counter, query) or kept
    return kept or _best_that_fits(text, query, max_tokens, counter, scorer)


def _best_that_fits(
    text: str, query: str, max_tokens: int, counter: TokenCounter, scorer: Scorer | None
) -> str:
    """Returns the best sentence that has room, each rated in its paragraph; "" where none has."""
    paragraphs = [Segment(id=str(i), text=part) for i, part in enumerate(_BLANK.split(text)) if part.strip()]
    rows = rate_sentences(query, paragraphs, scorer or default_scorer())
    rated = [
        (rating, piece.strip())
        for segment, row in zip(paragraphs, rows, strict=True)
        for rating, piece in zip(row, parts_of(segment.text), strict=True)
    ]
    rated.sort(key=lambda one: -one[0])
    return next((piece for _, piece in rated if counter.count(piece) <= max_tokens), "")
