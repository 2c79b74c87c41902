"""The budget behind a retriever, or around one: documents ranked, deduplicated and within the limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
    Callbacks,
)
from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field
from typing_extensions import override

from rankbudget import Block, FitResult, Segment
from rankbudget.adapters import (
    JOINT,
    Call,
    Evidence,
    PromptRequest,
    Steps,
    adrive,
    drive,
    plain_budget,
    plan_steps,
)
from rankbudget.errors import BudgetConfigError

from ._codec import CODEC
from ._convert import from_segment, to_segments
from ._limits import LimitSettings, limits_for
from ._options import Settings, check_given, check_values
from ._slots import shown_by


class BudgetDocumentCompressor(LimitSettings, BaseDocumentCompressor):
    """Keeps the documents, or sentences of them, that most likely hold the answer, within a limit.

    Works alone, in a `DocumentCompressorPipeline`, and in
    `ContextualCompressionRetriever(base_compressor=..)`. Ids and metadata stay as they are; documents kept
    whole are the same objects, shortened ones copies.

    Args:
        max_tokens: most tokens of all documents, from 1, as `document_prompt` and `separator` show them.
        budget: instead of a number, or beside it: the documents get what it leaves beside the question.
        model: its tokenizer counts; without a number and a budget its window, or `context_window`, is the
            budget. `counter` is as in `BudgetTrimmer`.
        session: a session that a trimmer shares: the documents get what its messages left for the same
            question; before them, or without any, their share. The trimmer then leaves them their place.
        scorer: rates the documents; None takes the metadata's scores and beside them the question's words;
            without scores, words and meaning.
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
        if self.max_tokens is not None and self._is_planned():  # the number bounds the documents alone
            own = ("budget", "session", "counter", "model")
            self._limits = limits_for(**{name: getattr(self, name) for name in own})
        if self.session is not None:
            self.session.share_with("knowledge")

    @override
    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        check_values({"documents": documents})
        kept = self.fit(documents, query).segments
        return [_as_document(segment) for segment in kept]

    def fit(self, documents: Sequence[Document], query: str) -> FitResult:
        """Returns which `documents` are kept for `query`, as `source` of each segment, and the report."""
        check_values({"query": query})
        segments = tuple(to_segments(documents, shown=shown_by(self.document_prompt)))
        options: dict[str, Any] = {n: getattr(self, n) for n in ("scorer", "compress", "dedup", "order")}
        hidden: tuple[Any, ...] = ()
        if self.max_tokens is not None or not self._is_planned():
            from rankbudget import fit_documents  # ranking is only loaded where documents are

            most = self.max_tokens or self._limits.budget.limit()
            own: dict[str, Any] = {"max_tokens": most, "counter": self._limits.counter, "cost": self._cost}
            found = fit_documents(segments, query=query, **own, **options)
            if not self._is_planned():
                return found
            segments = tuple(
                [dataclasses.replace(s, source=_as_document(s), tokens=None) for s in found.segments]
            )
            hidden = tuple([one for one in found.report.decisions if one.action == "trimmed"])
        fields: dict[str, Any] = {
            "blocks": (Block(name="knowledge", segments=segments, strategy=Evidence(**options)),),
            "shown": shown_by(self.document_prompt),
            "covers": "documents",
            "hidden": hidden,
        }
        if self.session is not None:
            fields |= {"ceiling": self._limits.ceiling, "sources": self.session.sources}
            request = self.session.request(question=query, **fields)
            plan = drive(self.session.plan_steps(request))
        else:
            asked = CODEC.make("user", query, origin="query")
            fields |= {**self._limits.fields(), "question": asked, "question_text": query}
            plan = drive(plan_steps(PromptRequest(**fields, sources=frozenset({"knowledge"}))))
        kept = [
            dataclasses.replace(p.segment, text=p.rendition.text, tokens=p.rendition.tokens)
            for p in plan.kept["knowledge"].pieces
        ]
        text = self.separator.join([segment.text for segment in kept])
        return FitResult(segments=tuple(kept), text=text, report=plan.report)

    def best(self, documents: Sequence[Document], query: str, k: int) -> list[Document]:
        """Returns the `k` best `documents` for `query` in order; without `compress`, of those that fit."""
        from rankbudget import fit_documents  # ranking is only loaded where documents are

        segments = to_segments(documents, shown=shown_by(self.document_prompt))
        if not self.compress:
            most = self._limits.most
            if self.max_tokens is not None:
                most = plain_budget(self.max_tokens).limit(band=self._limits.counter.band)
            segments = [s for s in segments if self._cost(s, s.text) <= most]
        if len(segments) > k:
            free: Any = {"max_tokens": 0, "cost": lambda segment, text: 0, "order": "score"}
            ranked = fit_documents(segments, query=query, scorer=self.scorer, **free)
            chosen = {segment.id for segment in ranked.segments[:k]}
            segments = [s for s in segments if s.id in chosen]
        return [segment.source for segment in segments]

    def _is_planned(self) -> bool:
        """Returns whether there is a limit of the whole prompt, of which the documents get a part."""
        if self.session is not None or self.budget is not None:
            return True
        return self.max_tokens is None and (self.model is not None or self.context_window is not None)

    def _cost(self, segment: Segment, text: str) -> int:
        shown = shown_by(self.document_prompt)
        whole = text if shown is None else shown("knowledge", segment, text)
        return self._limits.counter.count(whole + self.separator)


def _as_document(segment: Segment) -> Any:
    """Returns the document that a kept segment is: the object that was given, or a shorter copy."""
    whole = segment.source.page_content == segment.text
    return segment.source if whole else from_segment(segment, segment.text)


_OPTIONS = tuple(name for name in BudgetDocumentCompressor.model_fields if name != "max_tokens")


class BudgetRetriever(Settings, BaseRetriever):
    """Retrieves what another retriever finds, within an exact number of tokens.

    Takes what `BudgetDocumentCompressor` takes beside the retriever, or a compressor that is shared.

    Args:
        retriever: what finds the documents; ask it for more than fits, the best are kept.
        compressor: keeps what fits; made of the other options when it is not given.
        max_tokens: most tokens of all documents together, from 1; None asks the compressor. `invoke(query,
            max_tokens=200)` sets it for one call.
        k: most documents, from 1; the best ones are chosen first, then fitted. None has no limit but the
            tokens. `invoke(query, k=2)` sets it for one call. Further arguments of a call go to the
            retriever.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> texts = ["Cats sleep.", "A refund takes ten days."]
        >>> store = InMemoryVectorStore.from_texts(texts, DeterministicFakeEmbedding(size=8))
        >>> narrow = BudgetRetriever(retriever=store.as_retriever(), max_tokens=8)
        >>> found = narrow.invoke("How long does a refund take?")
        >>> [d.page_content for d in found]
        ['A refund takes ten days.']
    """

    retriever: BaseRetriever
    compressor: BudgetDocumentCompressor = Field(default_factory=BudgetDocumentCompressor)
    max_tokens: int | None = None
    k: int | None = None

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __init__(self, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        check_given(type(self).__name__, kwargs, [*type(self).model_fields, *_OPTIONS])
        if options and kwargs.get("compressor") is not None:
            msg = f"compressor must be given alone (got {', '.join(options)}, too). Give it these options."
            raise BudgetConfigError(msg)
        if kwargs.get("compressor") is None:
            kwargs["compressor"] = BudgetDocumentCompressor(**options)
        super().__init__(**kwargs)

    @override
    def _prepare(self) -> None:
        if self.max_tokens is not None and self.compressor.max_tokens is not None:
            msg = "max_tokens must be given once (got another of the compressor). Leave one of them out."
            raise BudgetConfigError(msg)

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return drive(self._steps(query, run_manager, **options))

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Any
    ) -> list[Document]:
        return await adrive(self._steps(query, run_manager, **options))

    def _steps(self, query: str, run_manager: Any, **options: Any) -> Steps[list[Document]]:
        """Checks the options of this call before anything is retrieved."""
        k, max_tokens = options.pop("k", None), options.pop("max_tokens", None)
        check_values({"k": k, "max_tokens": max_tokens, "query": query})
        near = [name for name in options if get_close_matches(name.lower(), ["max_tokens"], cutoff=0.85)]
        check_given(f"{type(self).__name__}.invoke", dict.fromkeys(near), ["max_tokens", "k"])
        most = self.max_tokens if max_tokens is None else max_tokens
        compressor = self.compressor
        if most is not None:
            compressor = compressor.model_copy(update={"max_tokens": most})
        options["config"] = {"callbacks": run_manager.get_child()}
        retrieve = partial(self.retriever.invoke, **options)
        found = yield Call(retrieve, (query,), partial(self.retriever.ainvoke, **options))

        def kept() -> list[Document]:
            count = self.k if k is None else k
            chosen = found if count is None else compressor.best(found, query, count)
            return list(compressor.compress_documents(chosen, query))

        documents: list[Document] = yield Call(kept)
        return documents
