"""LangChain's half of `rankbudget demo`: retriever | BudgetTrimmer | prompt."""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import convert_to_messages, convert_to_openai_messages
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnablePassthrough

from rankbudget import BudgetSession
from rankbudget.cli.demo import CONTEXT, Half, Task

from .trimmer import BudgetTrimmer


def run(task: Task) -> Half:
    """Returns what the chain kept, sent and answered."""
    template = ChatPromptTemplate.from_messages(
        [("system", CONTEXT + "{system}"), MessagesPlaceholder("history"), ("human", "{question}")]
    )
    prompt = RunnablePassthrough.assign(context=_context) | template
    trimmer = BudgetTrimmer(
        budget=task.budget, prompt=prompt, report_key="report", session=BudgetSession(task.budget)
    )
    chain: Runnable[Any, Any] = (
        RunnablePassthrough.assign(documents=partial(_search, task))
        | trimmer
        | RunnablePassthrough.assign(prompt=prompt)
    )
    done = chain.invoke(
        {
            "system": task.system,
            "history": convert_to_messages([dict(message) for message in task.history]),
            "question": task.question,
        }
    )
    return Half(
        prompt=convert_to_openai_messages(done["prompt"].to_messages()),
        passages={document.id: document.page_content for document in done["documents"]},
        report=done["report"],
    )


def _search(task: Task, values: dict[str, Any]) -> list[Document]:
    """Returns passages of the demonstration's index, with their scores."""
    return [
        Document(page_content=found.text, id=found.id, metadata={"relevance_score": found.score})
        for found in task.search(values["question"])
    ]


def _context(values: dict[str, Any]) -> str:
    return "\n\n".join(document.page_content for document in values.get("documents") or ())
