"""The budget around any retriever: its documents ranked, deduplicated and within the limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import run_in_executor
from pydantic import ConfigDict, Field
from typing_extensions import override

from rankbudget.errors import BudgetConfigError

from ._options import Settings, check_given, check_values
from .compressor import BudgetDocumentCompressor

__all__ = ["BudgetRetriever"]

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
            tokens. `invoke(query, k=2)` sets it for one call.

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
            msg = f"compressor must be given without {', '.join(options)}: a compressor has its own options"
            raise BudgetConfigError(msg)
        if kwargs.get("compressor") is None:
            kwargs["compressor"] = BudgetDocumentCompressor(**options)
        super().__init__(**kwargs)

    @override
    def _prepare(self) -> None:
        if self.max_tokens is not None and self.compressor.max_tokens is not None:
            msg = "max_tokens must be given once: the compressor has a max_tokens of its own"
            raise BudgetConfigError(msg)

    @override
    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
        max_tokens: int | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        compressor = self._compressor(k, max_tokens)
        found = self.retriever.invoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        return self._kept(compressor, found, query, k)

    @override
    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
        max_tokens: int | None = None,
        **kwargs: Any,
    ) -> list[Document]:
        compressor = self._compressor(k, max_tokens)
        found = await self.retriever.ainvoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        return await run_in_executor(None, self._kept, compressor, found, query, k)

    def _compressor(self, k: int | None, max_tokens: int | None) -> BudgetDocumentCompressor:
        """Returns the compressor of this call; its options are checked before anything is retrieved."""
        check_values({"k": k, "max_tokens": max_tokens})
        most = self.max_tokens if max_tokens is None else max_tokens
        return self.compressor if most is None else self.compressor.model_copy(update={"max_tokens": most})

    def _kept(
        self, compressor: BudgetDocumentCompressor, found: Sequence[Document], query: str, k: int | None
    ) -> list[Document]:
        most = self.k if k is None else k
        chosen = found if most is None else compressor.best(found, query, most)
        return list(compressor.compress_documents(chosen, query))
