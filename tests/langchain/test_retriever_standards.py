"""LangChain's own standard tests for retrievers; the package that has them pins old test tools, so it is not always there."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from langchain_budget import BudgetRetriever

standards = pytest.importorskip(
    "langchain_tests.integration_tests", reason="langchain-tests is not installed"
)


class Facts(BaseRetriever):
    """Finds the first `k` facts."""

    k: int = 20

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [
            Document(f"Fact {i} about cats: it is number {i}.", metadata={"source": f"{i}.md"})
            for i in range(self.k)
        ]


class TestRetrieverStandards(standards.RetrieversIntegrationTests):
    """LangChain's own standard tests for retrievers."""

    @property
    def retriever_constructor(self) -> Any:
        return BudgetRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"retriever": Facts(), "max_tokens": 2000, "counter": "o200k_base"}

    @property
    def retriever_query_example(self) -> str:
        return "What is known about cats?"
