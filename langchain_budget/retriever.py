"""The budget around a retriever: any retriever, its documents ranked, deduplicated and within the tokens there are."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field, model_validator
from typing_extensions import Self, override

from rankbudget.errors import BudgetConfigError

from ._limits import check_number, typed_errors
from .compressor import BudgetDocumentCompressor

__all__ = ["BudgetRetriever"]

_OPTIONS = tuple(BudgetDocumentCompressor.model_fields)


class BudgetRetriever(BaseRetriever):
    """Retrieves what another retriever finds, within an exact number of tokens.

    Takes what `BudgetDocumentCompressor` takes beside the retriever, or a compressor that is shared.

    Args:
        retriever: what finds the documents; ask it for more than fits, the best are kept.
        compressor: keeps what fits; made of the other options when it is not given.
        k: most documents, best first by place in the result; None has no limit but the tokens. `invoke(query, k=2)` sets it for one call.

    Example:
        >>> from langchain_core.vectorstores import InMemoryVectorStore
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> store = InMemoryVectorStore.from_texts(["Cats sleep.", "A refund takes ten days."], DeterministicFakeEmbedding(size=8))
        >>> found = BudgetRetriever(retriever=store.as_retriever(), max_tokens=8).invoke("How long does a refund take?")
        >>> [d.page_content for d in found]
        ['A refund takes ten days.']
    """

    retriever: BaseRetriever
    compressor: BudgetDocumentCompressor = Field(default_factory=BudgetDocumentCompressor)
    k: int | None = None

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def __init__(self, **kwargs: Any) -> None:
        options = {name: kwargs.pop(name) for name in _OPTIONS if name in kwargs}
        with typed_errors():
            if options and "compressor" in kwargs:
                msg = f"compressor and {', '.join(options)} are both given, allowed: one or the other; a compressor has its own options"
                raise BudgetConfigError(msg)
            if "compressor" not in kwargs:
                kwargs["compressor"] = BudgetDocumentCompressor(**options)
            super().__init__(**kwargs)

    @model_validator(mode="after")
    def _settle(self) -> Self:
        check_number("k", self.k, "or None")
        return self

    @override
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None, **kwargs: Any
    ) -> list[Document]:
        found = self.retriever.invoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        return self._first(self.compressor.compress_documents(found, query), k)

    @override
    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None, **kwargs: Any
    ) -> list[Document]:
        found = await self.retriever.ainvoke(query, config={"callbacks": run_manager.get_child()}, **kwargs)
        return self._first(await self.compressor.acompress_documents(found, query), k)

    def _first(self, documents: Any, k: int | None) -> list[Document]:
        check_number("k", k, "or None")
        return list(documents)[: self.k if k is None else k]
