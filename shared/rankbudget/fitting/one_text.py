"""What answers a question in one text."""

from __future__ import annotations

from ..compression.json_values import parse
from ..compression.structured import compress_structured
from ..counting.protocol import TokenCounter
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..segment import Segment
from .evidence import Evidence

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
        kept = compress_structured(cut, max_tokens, counter, query) or kept
    return kept
