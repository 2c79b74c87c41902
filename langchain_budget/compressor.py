"""The budget behind a retriever: documents in, documents within the tokens there are out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from langchain_core.callbacks import Callbacks
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict, Field, PrivateAttr
from typing_extensions import override

from rankbudget import BudgetSession, TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.messages.tags import JOINT
from rankbudget.report.result import FitResult
from rankbudget.segment import Segment
from rankbudget.prompt.session import stable_share

from ._convert import document_text, from_segment, to_segments
from ._limits import Limits, limits_of
from ._settings import Settings

__all__ = ["BudgetDocumentCompressor"]


class BudgetDocumentCompressor(Settings, BaseDocumentCompressor):
    """Keeps the documents, or the sentences of them, that most likely hold the answer, within an exact number of tokens.

    Works alone, in a `DocumentCompressorPipeline`, and in `ContextualCompressionRetriever(base_compressor=..)`. Ids and metadata stay as they are;
    documents kept whole are the same objects, shortened ones copies.

    Args:
        max_tokens: most tokens of all documents together, as `document_prompt` and `separator` show them.
        budget: instead of a number: the share that documents have of this budget.
        model: a chat model or a model's name; gives window and tokenizer.
        session: a session whose history is granted first; the documents get what it leaves this turn.
        counter: counts instead of the model's tokenizer.
        scorer: rates the documents; None takes the default mix of words and meaning, unless the metadata has a `relevance_score`.
        compress: allows single sentences where few whole documents fit.
        dedup: leaves out near-duplicates when not everything fits.
        order: "original", "edges" (the best first and last) or "score".
        document_prompt: renders one document; None shows its content.
        separator: stands between two documents.

    Example:
        >>> found = [Document(page_content="Cats sleep."), Document(page_content="A refund takes ten days."), Document(page_content="Dogs bark.")]
        >>> [d.page_content for d in BudgetDocumentCompressor(max_tokens=8).compress_documents(found, "How long does a refund take?")]
        ['A refund takes ten days.']
    """

    max_tokens: int | None = None
    budget: TokenBudget | None = None
    model: Any = None
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
    def _settle(self) -> None:
        if self.session is not None and not isinstance(self.session, BudgetSession):
            msg = f"session is a {type(self.session).__name__}, allowed: a BudgetSession"
            raise BudgetConfigError(msg)
        budget = (
            self.budget
            if self.session is None or not isinstance(self.session.budget, TokenBudget)
            else self.session.budget
        )
        counter = self.counter if self.counter is not None or self.session is None else self.session.counter
        self._limits = limits_of(budget=budget, model=self.model, max_tokens=self.max_tokens, counter=counter)

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
        """Returns the kept documents as segments, with the report that says why; each segment's `source` is its document."""
        from rankbudget import fit_documents  # ranking is only loaded where documents are

        counter = self._limits.counter

        def cost(segment: Segment, text: str) -> int:
            return counter.count(self._shown(segment, text) + self.separator)

        return fit_documents(
            to_segments(documents),
            max_tokens=self.room(question=query),
            query=query,
            counter=counter,
            scorer=self.scorer,
            cost=cost,
            compress=self.compress,
            dedup=self.dedup,
            order=self.order,
        )

    def best(self, documents: Sequence[Document], query: str, k: int) -> list[Document]:
        """Returns the `k` documents that most likely hold the answer, in their order; without `compress`, of those that fit by themselves."""
        from rankbudget import fit_documents

        segments = to_segments(documents)
        if not self.compress:
            room = self.room(question=query)
            segments = [
                s
                for s in segments
                if self._limits.counter.count(self._shown(s, s.text) + self.separator) <= room
            ]
        if len(segments) > k:
            ranked = fit_documents(
                segments,
                max_tokens=0,
                query=query,
                scorer=self.scorer,
                cost=lambda segment, text: 0,
                order="score",
            )
            chosen = {segment.id for segment in ranked.segments[:k]}
            segments = [s for s in segments if s.id in chosen]
        return [segment.source for segment in segments]

    def room(self, *, question: str | None = None) -> int:
        """Returns the tokens that documents may have now."""
        ceiling = self.max_tokens
        if self.session is not None:
            left = int(self.session.room_for("knowledge", question=question))
            return left if ceiling is None else min(left, ceiling)
        budget = self._limits.budget
        if budget is None:
            return ceiling or 0
        share = stable_share(budget, "knowledge", budget.limit(band=self._limits.counter.band))
        return share if ceiling is None else min(share, ceiling)

    def _shown(self, segment: Segment, text: str) -> str:
        if self.document_prompt is None:
            return text
        return document_text(
            from_segment(segment, None if text == segment.text else text), self.document_prompt
        )


def _documents(result: FitResult) -> list[Document]:
    """Returns the documents: the same objects where they are whole."""
    return [
        from_segment(s, None if s.source is not None and s.source.page_content == s.text else s.text)
        for s in result.segments
    ]
