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
from pydantic import ConfigDict, Field, PrivateAttr
from typing_extensions import override

from rankbudget import Block, FitResult, Segment, TokenBudget
from rankbudget.adapters import JOINT, Evidence, Limits, Piece, PromptRequest, drive, plan_steps

from ._codec import CODEC
from ._convert import document_text, from_segment, to_segments
from ._limits import limits_for
from ._serialize import Settings

__all__ = ["BudgetDocumentCompressor"]


class BudgetDocumentCompressor(Settings, BaseDocumentCompressor):
    """Keeps the documents, or sentences of them, that most likely hold the answer, within a limit.

    Works alone, in a `DocumentCompressorPipeline`, and in
    `ContextualCompressionRetriever(base_compressor=..)`. Ids and metadata stay as they are; documents kept
    whole are the same objects, shortened ones copies.

    Args:
        max_tokens: most tokens of all documents together, as `document_prompt` and `separator` show them.
        budget: instead of a number: the documents get all that it leaves beside the question.
        model: a chat model or a model's name; gives window and tokenizer.
        context_window: the window in tokens, where the model does not say it.
        session: a session whose history is granted first; the documents get what it leaves this turn.
        counter: counts instead of the model's tokenizer.
        scorer: rates the documents; None takes the default mix of words and meaning, unless the metadata has
            a score.
        compress: allows single sentences where few whole documents fit.
        dedup: leaves out near-duplicates when not everything fits.
        order: "original", "edges" (the best first and last) or "score".
        document_prompt: renders one document; None shows its content.
        separator: stands between two documents.

    Example:
        >>> texts = ["Cats sleep.", "A refund takes ten days.", "Dogs bark."]
        >>> found = [Document(page_content=text) for text in texts]
        >>> kept = BudgetDocumentCompressor(max_tokens=8).compress_documents(found, "When is the refund?")
        >>> [d.page_content for d in kept]
        ['A refund takes ten days.']
    """

    max_tokens: int | None = None
    budget: TokenBudget | None = None
    model: Any = None
    context_window: int | None = None
    session: Any = Field(default=None, exclude=True)
    counter: Any = None
    scorer: Any = None
    compress: bool = True
    dedup: bool = True
    order: Literal["original", "edges", "score"] = "original"
    document_prompt: Any = None
    separator: str = JOINT

    _limits: Limits = PrivateAttr()

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

    @override
    def _prepare(self) -> None:
        options = ("budget", "model", "max_tokens", "context_window", "counter", "session")
        self._limits = limits_for(**{name: getattr(self, name) for name in options})
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
        segments = tuple(to_segments(documents))
        if (
            self.session is None
            and self.budget is None
            and self.model is None
            and self.context_window is None
        ):
            return self._fit_alone(segments, query)
        options = {"scorer": self.scorer, "compress": self.compress, "dedup": self.dedup, "order": self.order}
        block = Block(name="knowledge", segments=segments, strategy=Evidence(**options))
        fields: dict[str, Any] = {
            "blocks": (block,),
            "shown": None if self.document_prompt is None else self._shown,
            "covers": "documents",
        }
        if self.session is not None:
            ceiling = self._limits.ceiling or self.max_tokens
            request = self.session.request(question=query, ceiling=ceiling, **fields)
            plan = drive(self.session.plan_steps(request))
        else:
            fields |= {**self._limits.fields(), "codec": CODEC, "sources": frozenset({"knowledge"})}
            asked = CODEC.make("user", query, origin="query")
            plan = drive(plan_steps(PromptRequest(question=asked, question_text=query, **fields)))
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

    def _fit_alone(self, segments: Sequence[Segment], query: str) -> FitResult:
        from rankbudget import fit_documents  # ranking is only loaded where documents are

        return fit_documents(
            segments,
            max_tokens=self._limits.budget.limit(),
            query=query,
            counter=self._limits.counter,
            scorer=self.scorer,
            cost=self._cost,
            compress=self.compress,
            dedup=self.dedup,
            order=self.order,
        )

    def _cost(self, segment: Segment, text: str) -> int:
        return self._limits.counter.count(self._shown("knowledge", segment, text) + self.separator)

    def _shown(self, block: str, segment: Segment, text: str) -> str:  # noqa: ARG002 - a core's `Shown`
        if self.document_prompt is None:
            return text
        whole = text == segment.text
        return document_text(from_segment(segment, None if whole else text), self.document_prompt)


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
