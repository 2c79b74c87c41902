"""LangChain's entry points as doors, and LangChain's messages and documents of a drawn case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, convert_to_messages
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda

import langchain_budget as lb
from rankbudget import BudgetSession
from tests.parity.doors_core import Row, example_rows, examples_room, summarize
from tests.parity.draws import Case

CONTEXT = "Use the context information below.\n----\n{context_str}\n----\n"
"""What both hosts show documents in; LlamaIndex puts the system prompt behind it."""
QUERY = "Context is below.\n----\n{context_str}\n----\nQuery: {query_str}\nAnswer: "
_ROLES = {"human": "user", "ai": "assistant"}
_UNLIMITED = 10**6


class Fixed(BaseRetriever):
    """Returns the same documents to every query."""

    documents: list[Document]

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return list(self.documents)


def messages(given: Sequence[dict[str, Any]]) -> list[BaseMessage]:
    """Returns OpenAI-style dicts as LangChain messages with ids."""
    made = convert_to_messages(list(given))
    for i, message in enumerate(made):
        message.id = f"m{i}"
    return made


def rows(found: Sequence[BaseMessage]) -> list[Row]:
    """Returns messages as role, text and the ids of their calls or of the call they answer."""
    made = []
    for m in found:
        calls = [c["id"] for c in getattr(m, "tool_calls", None) or ()]
        calls += [m.tool_call_id] if m.type == "tool" else []
        made.append((_ROLES.get(m.type, m.type), str(m.text), tuple(calls)))
    return made


def documents(case: Case) -> list[Document]:
    """Returns the drawn documents; a retriever's score stands where LangChain's rerankers put it."""
    return [
        Document(
            id=d.id, page_content=d.text, metadata={} if d.score is None else {"relevance_score": d.score}
        )
        for d in case.documents
    ]


def document_rows(found: Sequence[Document]) -> list[tuple[str, str]]:
    return [(d.id or "", d.page_content) for d in found]


def limits(case: Case) -> dict[str, Any]:
    """Returns a case's budget as the entry points take it."""
    return {"max_tokens" if case.bare else "budget": case.budget, "counter": case.counter}


def _joined(values: dict[str, Any]) -> str:
    return "\n\n".join(d.page_content for d in values.get("documents") or ())


def _mirror(*parts: Any) -> Runnable[Any, Any]:
    """Returns LlamaIndex's own template as a LangChain prompt over the keys of a trimmer."""
    template = ChatPromptTemplate(list(parts))

    def fill(values: dict[str, Any]) -> Any:
        return template.format_prompt(
            context_str=_joined(values),
            query_str=values["question"],
            history=values.get("history") or [],
            system=values.get("system", ""),
        )

    return RunnableLambda(fill)


_HISTORY = MessagesPlaceholder("history")
_ENGINE = _mirror(("system", CONTEXT + "{system}"), _HISTORY, ("human", "{query_str}"))
_QUERY = _mirror(_HISTORY, ("human", QUERY))
_CHAT = _mirror(("system", "{system}"), _HISTORY, ("human", "{query_str}"))


# ---- a thread ----------------------------------------------------------------------------------------------
def _trim_list(case: Case, ask: Any, *, remembers: bool = False, **options: Any) -> Iterator[dict[str, Any]]:
    if remembers:
        options["session"] = BudgetSession(case.budget, counter=case.counter)
    made = lb.BudgetTrimmer(**limits(case), **options)
    for turn in range(len(case.questions)):
        found = ask(made, "fit", messages(case.thread(turn, asked=True)))
        yield {"history": rows(found.value), "total": found.report.total_tokens}


def trim_list(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_list(case, ask)


def trim_list_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_list(case, ask, prompt=ChatPromptTemplate([MessagesPlaceholder("messages")]))


def trim_list_system(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    prompt = ChatPromptTemplate([("system", case.system), MessagesPlaceholder("messages")])
    return _trim_list(case, ask, remembers=True, prompt=prompt)


def trim_list_stable(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_list(case, ask, cut="stable")


def trim_list_session(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_list(case, ask, remembers=True)


def trim_list_summarizing(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_list(case, ask, remembers=True, summarizer=summarize)


def trim_history_key(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetTrimmer(**limits(case))
    for turn in range(len(case.questions)):
        found = ask(made, "fit", {"history": messages(case.thread(turn, asked=True))})
        yield {"history": rows(found.value["history"]), "total": found.report.total_tokens}


def _template_thread(case: Case, ask: Any, **options: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetChatPromptTemplate.from_messages([_HISTORY], **limits(case), **options)
    for turn in range(len(case.questions)):
        found = ask(made, "fit", history=messages(case.thread(turn, asked=True)))
        yield {"history": rows(found.messages), "total": found.report.total_tokens}


def template_thread(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _template_thread(case, ask)


def template_thread_stable(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _template_thread(case, ask, cut="stable")


def trim_messages(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    assert isinstance(case.budget, int)
    made = lb.trim_messages(max_tokens=case.budget, token_counter=case.counter, include_system=True)
    for turn in range(len(case.questions)):
        yield {"history": rows(ask(made, "invoke", messages(case.thread(turn, asked=True))))}


def hook(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.pre_model_hook(**limits(case))
    config = {"configurable": {"thread_id": "t"}}
    for turn in range(len(case.questions)):
        found = ask(made, "invoke", {"messages": messages(case.thread(turn, asked=True))}, config)
        yield {"history": rows(found["llm_input_messages"])}


# ---- a stored thread ---------------------------------------------------------------------------------------
def _message_history(case: Case, ask: Any, **options: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetMessageHistory(**limits(case), **options)
    stored = 0
    for turn in range(len(case.questions)):
        thread = messages(case.thread(turn, asked=True))
        ask(made, "add_messages", thread[stored:])
        stored = len(thread)
        yield {"history": rows(ask(made, "fit").messages)}


def message_history(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _message_history(case, ask)


def message_history_summarizing(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _message_history(case, ask, summarizer=summarize)


def _memory(case: Case, ask: Any, *, asked: bool, **options: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetMemory(**limits(case), return_messages=True, return_docs=True, **options)
    stored = 0
    for turn, question in enumerate(case.questions):
        thread = messages(case.thread(turn, asked=asked))
        ask(made.chat_memory, "add_messages", thread[stored:])
        stored = len(thread)
        found = ask(
            made, "load_memory_variables", {} if asked else {"input": question, "system": case.system}
        )
        kept: dict[str, Any] = {"history": rows(found["history"])}
        if "documents" in found:
            kept["documents"] = document_rows(found["documents"])
        yield kept


def memory(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _memory(case, ask, asked=True)


def memory_summarizing(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _memory(case, ask, asked=True, summarizer=summarize)


def memory_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _memory(case, ask, asked=False, input_key="input")


def memory_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    prompt = ChatPromptTemplate([("system", case.system), _HISTORY])
    return _memory(case, ask, asked=True, prompt=prompt)


def memory_asked_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    prompt = ChatPromptTemplate([("system", "{system}"), _HISTORY, ("human", "{input}")])
    return _memory(case, ask, asked=False, input_key="input", prompt=prompt)


def memory_with_retriever(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _memory(case, ask, asked=False, input_key="input", retriever=Fixed(documents=documents(case)))


# ---- a dict of slots ---------------------------------------------------------------------------------------
def _trim_dict(
    case: Case, ask: Any, slots: Sequence[str], *, prompt: Any = None, remembers: bool = True
) -> Iterator[dict[str, Any]]:
    remembered = BudgetSession(case.budget, counter=case.counter) if remembers else None
    made = lb.BudgetTrimmer(**limits(case), prompt=prompt, session=remembered)
    for turn, question in enumerate(case.questions):
        done = ask(made, "fit", _values(case, slots, turn, question))
        found = done.value
        kept: dict[str, Any] = {} if prompt is None else {"total": done.report.total_tokens}
        if "history" in slots:
            kept["history"] = rows(found["history"])
        if "documents" in slots:
            kept["documents"] = document_rows(found["documents"])
        if "examples" in slots:
            kept["examples"] = example_rows(case, found["examples"])
        yield kept


def _values(case: Case, slots: Sequence[str], turn: int, question: str) -> dict[str, Any]:
    given = {
        "history": messages(case.thread(turn)),
        "documents": documents(case),
        "examples": [dict(e) for e in case.examples],
    }
    return {"question": question, "system": case.system, **{name: given[name] for name in slots}}


def trim_asked(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["history"])


def trim_asked_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["history"], prompt=_CHAT)


def trim_parts(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["history", "documents"])


def trim_parts_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["history", "documents"], prompt=_ENGINE)


def trim_history_first(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    """Trims the history before the documents are known, then both, as parts of one turn."""
    shared = BudgetSession(case.budget, counter=case.counter, sources=["knowledge"])
    made = lb.BudgetTrimmer(**limits(case), prompt=_ENGINE, session=shared)
    for turn, question in enumerate(case.questions):
        read = ask(made, "fit", _values(case, ["history"], turn, question)).value
        found = ask(made, "fit", _values(case, ["history", "documents"], turn, question))
        kept = document_rows(found.value["documents"])
        yield {"history": rows(read["history"]), "documents": kept, "total": found.report.total_tokens}


def trim_query_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    for kept in _trim_dict(case, ask, ["history", "documents"], prompt=_QUERY):
        yield {"documents": kept["documents"]}


def trim_slots(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["history", "documents", "examples"], remembers=False)


def trim_documents(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    return _trim_dict(case, ask, ["documents"], remembers=False)


_SLOTS = [
    ("system", "{system}\n{documents}"),
    MessagesPlaceholder("examples"),
    _HISTORY,
    ("human", "{question}"),
]


def template_slots(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetChatPromptTemplate.from_messages(_SLOTS, **limits(case))
    for turn, question in enumerate(case.questions):
        values = _values(case, ["history", "documents", "examples"], turn, question)
        yield {"prompt": rows(ask(made, "fit", **values).messages)}


def trim_slots_prompted(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    shown = lb.BudgetChatPromptTemplate.from_messages(_SLOTS, max_tokens=_UNLIMITED, counter=case.counter)
    made = lb.BudgetTrimmer(**limits(case), prompt=shown)
    for turn, question in enumerate(case.questions):
        values = _values(case, ["history", "documents", "examples"], turn, question)
        found = ask(made, "fit", values)
        yield {"prompt": rows(shown.format_messages(**found.value))}


# ---- one slot alone ----------------------------------------------------------------------------------------
def compressor(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetDocumentCompressor(**limits(case))
    for question in case.questions:
        yield {"documents": document_rows(ask(made, "compress_documents", documents(case), question))}


def retriever(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetRetriever(retriever=Fixed(documents=documents(case)), **limits(case))
    for question in case.questions:
        yield {"documents": document_rows(ask(made, "invoke", question))}


def example_selector(case: Case, ask: Any) -> Iterator[dict[str, Any]]:
    made = lb.BudgetExampleSelector(
        list(case.examples), max_tokens=examples_room(case), k=case.k, counter=case.counter
    )
    for question in case.questions:
        yield {"examples": example_rows(case, ask(made, "select_examples", {"question": question}))}
