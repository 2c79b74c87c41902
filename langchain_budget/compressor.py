"""The budget behind a retriever: documents in, documents within the tokens there are out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import run_in_executor
from pydantic import Field
from typing_extensions import override

from rankbudget import Block, FitResult, Segment
from rankbudget.adapters import JOINT, Evidence, Piece, PromptRequest, drive, plan_steps

from ._codec import CODEC
from ._convert import from_segment, to_segments
from ._limits import LimitSettings
from ._options import check_values
from ._slots import shown_by

__all__ = ["BudgetDocumentCompressor"]


class BudgetDocumentCompressor(LimitSettings, BaseDocumentCompressor):
    """Keeps the documents, or sentences of them, that most likely hold the answer, within a limit.

    Works alone, in a `DocumentCompressorPipeline`, and in
    `ContextualCompressionRetriever(base_compressor=..)`. Ids and metadata stay as they are; documents kept
    whole are the same objects, shortened ones copies.

    Args:
        max_tokens: most tokens of all documents together, from 1, as `document_prompt` and `separator` show
            them.
        budget: instead of a number: the documents get all that it leaves beside the question. model,
            context_window and counter are as in `BudgetTrimmer`.
        session: a session whose history is granted first; the documents get what it leaves this turn.
        scorer: rates the documents; None takes the default mix of words and meaning, unless the metadata has
            a score.
        compress: allows single sentences where few whole documents fit.
        dedup: leaves out near-duplicates when not everything fits.
        order: "original", "edges" (the best first and last) or "score".
        document_prompt: renders one document; None shows its content.
        separator: joins two documents.

    Example:
        >>> texts = ["Cats sleep.", "A refund takes ten days.", "Dogs bark."]
        >>> found = [Document(page_content=text) for text in texts]
        >>> kept = BudgetDocumentCompressor(max_tokens=8).compress_documents(found, "When is the refund?")
        >>> [d.page_content for d in kept]
        ['A refund takes ten days.']
    """

    session: Any = Field(default=None, exclude=True)
    scorer: Any = None
    compress: bool = True
    dedup: bool = True
    order: Literal["original", "edges", "score"] = "original"
    document_prompt: Any = None
    separator: str = JOINT

    @override
    def _prepare(self) -> None:
        super()._prepare()
        if self.session is not None:
            self.session.share_with("knowledge")

    @override
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return _documents(self.fit(documents, query))

    @override
    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        return _documents(await run_in_executor(None, self.fit, documents, query))

    def fit(self, documents: Sequence[Document], query: str) -> FitResult:
        """Returns the kept documents as segments, with the report; a segment's `source` is its document."""
        check_values({"query": query})
        segments = tuple(to_segments(documents))
        options = {"scorer": self.scorer, "compress": self.compress, "dedup": self.dedup, "order": self.order}
        if all(getattr(self, name) is None for name in ("session", "budget", "model", "context_window")):
            from rankbudget import fit_documents  # ranking is only loaded where documents are

            most, counter = self._limits.budget.limit(), self._limits.counter
            return fit_documents(
                segments, max_tokens=most, query=query, counter=counter, cost=self._cost, **options
            )
        fields: dict[str, Any] = {
            "blocks": (Block(name="knowledge", segments=segments, strategy=Evidence(**options)),),
            "shown": shown_by(self.document_prompt),
            "covers": "documents",
        }
        if self.session is not None:
            ceiling = self._limits.ceiling or self.max_tokens
            request = self.session.request(question=query, ceiling=ceiling, **fields)
            plan = drive(self.session.plan_steps(request))
        else:
            asked = CODEC.make("user", query, origin="query")
            fields |= {**self._limits.fields(), "question": asked, "question_text": query}
            plan = drive(plan_steps(PromptRequest(**fields, sources=frozenset({"knowledge"}))))
        pieces = plan.kept["knowledge"].pieces
        text = self.separator.join([p.rendition.text for p in pieces])
        return FitResult(segments=tuple(map(_segment, pieces)), text=text, report=plan.report)

    def best(self, documents: Sequence[Document], query: str, k: int) -> list[Document]:
        """Returns the `k` best documents in their order; without `compress`, of those that fit alone."""
        from rankbudget import fit_documents  # ranking is only loaded where documents are

        segments = to_segments(documents)
        if not self.compress:
            segments = [s for s in segments if self._cost(s, s.text) <= self._limits.most]
        if len(segments) > k:
            free = partial(fit_documents, max_tokens=0, cost=lambda segment, text: 0)
            ranked = free(segments, query=query, scorer=self.scorer, order="score")
            chosen = {segment.id for segment in ranked.segments[:k]}
            segments = [s for s in segments if s.id in chosen]
        return [segment.source for segment in segments]

    def _cost(self, segment: Segment, text: str) -> int:
        shown = shown_by(self.document_prompt)
        whole = text if shown is None else shown("knowledge", segment, text)
        return self._limits.counter.count(whole + self.separator)


def _segment(piece: Piece) -> Segment:
    if piece.whole:
        return piece.segment
    return dataclasses.replace(piece.segment, text=piece.rendition.text, tokens=piece.rendition.tokens)


def _documents(result: FitResult) -> list[Document]:
    """Returns the documents: the same objects where they are whole."""
    return [
        from_segment(s, None if s.source is not None and s.source.page_content == s.text else s.text)
        for s in result.segments
    ]
