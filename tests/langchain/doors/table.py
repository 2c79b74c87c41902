"""The table of doors, and what their runs share."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.prompts import PromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, Tool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel

__all__ = [
    "CLASSIC",
    "DOORS",
    "Found",
    "Person",
    "Run",
    "door",
    "embedding",
    "llm_chain",
    "look",
    "of",
    "plain",
    "store",
]

CLASSIC = "langchain_classic"
Run = Callable[[Any, str], Any]
DOORS: dict[str, Run] = {}


class Person(BaseModel):
    """A person."""

    name: str


@tool
def look(name: str) -> str:
    """Looks something up."""
    return f"{name} is fine"


class Found(BaseRetriever):
    """Finds one text, whatever is asked."""

    text: str

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        return [Document(self.text, metadata={"source": "a"})]


def door(name: str) -> Callable[[Run], Run]:
    """Enters a run into the table."""

    def enter(run: Run) -> Run:
        DOORS[name if name.startswith(("langchain.", "langgraph.")) else f"{CLASSIC}.{name}"] = run
        return run

    return enter


def of(name: str) -> Any:
    """Returns what a name means, without langchain_classic in front of it."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(f"{CLASSIC}.{module}"), last)


def plain(name: str) -> BaseTool:
    """Returns a tool that takes one text."""
    return Tool(name, lambda text: f"{text} is fine", "Looks something up.")


def llm_chain(model: Any, template: str) -> Any:
    return of("chains.LLMChain")(llm=model, prompt=PromptTemplate.from_template(template))


def embedding() -> DeterministicFakeEmbedding:
    return DeterministicFakeEmbedding(size=8)


def store(text: str) -> InMemoryVectorStore:
    return InMemoryVectorStore.from_texts([text], embedding())
