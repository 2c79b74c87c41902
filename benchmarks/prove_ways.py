"""Every way an application can take through the product to a model: entry points inside real chains, engines and agents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from prove_cases import Case, as_sent
from prove_hosts import to_langchain, to_llamaindex

from rankbudget import (
    Assembler,
    Block,
    BudgetExceededError,
    BudgetSession,
    TokenBudget,
    build_constrained_prompt,
    fit_messages,
)
from rankbudget.testing.server import Reply, StrictModelServer
from rankbudget.testing.server.request_tokens import text_tokens

COUNTER = "o200k_base"
SYSTEM = "Answer from the documents."


@dataclass
class Lab:
    """The running server and one client of each kind, pointed at the case's window."""

    server: StrictModelServer
    openai: Any
    chat: Any
    llm: Any
    loop: asyncio.AbstractEventLoop
    reported: list[tuple[int, bool]] = field(default_factory=list)
    """Totals the product reported for the requests of a case, and whether they count the very request."""

    def wait(self, awaitable: Any) -> Any:
        """Runs async code on the one loop of the lab: clients keep their connections for it."""
        return self.loop.run_until_complete(awaitable)

    def send(self, case: Case, messages: Any, tools: Any = None) -> None:
        self.openai.chat.completions.create(
            model=model(case), messages=list(messages), **({"tools": tools} if tools else {})
        )

    def langchain(self, case: Case) -> Any:
        return self.chat.bind(model=model(case))

    def llamaindex(self, case: Case, *, spare: int = 2048) -> Any:
        """Points the LLM at the case's window; it claims `spare` tokens more, so that the budget binds and not the host's own reserve."""
        self.llm.model, self.llm.context_window = model(case), case.limit + spare
        return self.llm


Way = Callable[[Case, Lab], Any]
WAYS: dict[str, Way] = {}


def model(case: Case) -> str:
    return f"openai@{case.limit}"


def budget(case: Case) -> TokenBudget:
    """All of the window is for the prompt; the server sees to the rest."""
    ratios = {"memory": 0.43, "history": 0.57}
    return TokenBudget(
        context_window=case.limit,
        reserve=0,
        ratios=ratios,
        max_system_ratio=None,
        surplus=case.application.surplus,
    )


def way(name: str) -> Callable[[Way], Way]:
    def register(function: Way) -> Way:
        WAYS[name] = function
        return function

    return register


@contextmanager
def lab() -> Iterator[Lab]:
    """Starts the server and makes the clients; nothing retries, so every refusal is seen."""
    import openai
    from langchain_openai import ChatOpenAI
    from llama_index.core import Settings
    from llama_index.llms.openai_like import OpenAILike

    Settings.tokenizer = lambda text: (
        [0] * text_tokens(text)
    )  # the host sizes its chunks with the model's tokenizer too
    with (
        StrictModelServer() as server,
        openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as client,
    ):
        chat = ChatOpenAI(
            base_url=server.base_url, api_key="none", model="openai@1", max_retries=0, output_version="v0"
        )
        llm = OpenAILike(
            model="openai@1",
            api_base=server.base_url,
            api_key="none",
            is_chat_model=True,
            is_function_calling_model=True,
            max_retries=0,
        )
        loop = asyncio.new_event_loop()
        try:
            yield Lab(server, client, chat, llm, loop)
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()


# ---------------------------------------------------------------- the core
@way("core fit_messages")
def core_fit_messages(case: Case, lab: Lab) -> None:
    messages = [as_sent(m) for m in case.messages]
    fitted = fit_messages(
        messages, max_tokens=case.limit, counter=COUNTER, tools=case.tools or None, cut=case.application.cut
    )
    lab.reported.append((fitted.report.total_tokens, True))
    lab.send(case, fitted.messages, case.tools)


@way("core BudgetSession")
def core_session(case: Case, lab: Lab) -> None:
    session = BudgetSession(budget(case), counter=COUNTER)
    messages = [as_sent(m) for m in case.messages]
    fitted = session.fit(messages, limit=case.limit, tools=case.tools or None)
    lab.reported.append((fitted.report.total_tokens, True))
    lab.send(case, fitted.messages, case.tools)


@way("core Assembler")
def core_assembler(case: Case, lab: Lab) -> None:
    application = case.application
    blocks = [Block.of("system", SYSTEM), *application.blocks([as_sent(m) for m in case.messages[:-1]])]
    assembler = Assembler(budget(case), counter=COUNTER, scope=application.reader, cut=application.cut)
    made = assembler.assemble(blocks, query=case.question, tools=case.tools or None)
    lab.reported.append((made.report.total_tokens, True))
    lab.send(case, made.messages, case.tools)


@way("core build_constrained_prompt")
def core_constrained(case: Case, lab: Lab) -> None:
    history = [as_sent(m) for m in case.messages[:-1]]
    documents = list(case.application.documents)
    lab.send(
        case,
        build_constrained_prompt(
            SYSTEM, case.question, history, documents, case.limit, output_reserve_tokens=0
        ),
    )


# ---------------------------------------------------------------- LangChain
def _run(chain: Any, value: Any, case: Case, lab: Lab) -> Any:
    """Calls a chain in one of its four ways."""
    how = case.number % 4
    if how == 0:
        return chain.invoke(value)
    if how == 1:
        return chain.batch([value])[0]
    if how == 2:
        return list(chain.stream(value))
    return lab.wait(chain.ainvoke(value))


@way("langchain BudgetTrimmer | model")
def langchain_trimmer(case: Case, lab: Lab) -> None:
    from langchain_budget import BudgetTrimmer

    chat = lab.langchain(case)
    if case.tools:
        chat = lab.chat.bind_tools(case.tools).bind(model=model(case))
    trimmer = BudgetTrimmer(
        max_tokens=case.limit, counter=COUNTER, tools=case.tools or None, cut=case.application.cut
    )
    _run(trimmer | chat, to_langchain(case.messages), case, lab)


@way("langchain BudgetTrimmer | prompt | model")
def langchain_slots(case: Case, lab: Lab) -> None:
    from langchain_core.documents import Document
    from langchain_core.prompts import ChatPromptTemplate

    from langchain_budget import BudgetTrimmer

    prompt = ChatPromptTemplate.from_messages(
        [
            ("system", SYSTEM),
            ("placeholder", "{history}"),
            ("human", "{documents}\n{memory}\n{examples}\n\n{question}"),
        ]
    )
    application = case.application
    value = {
        "history": to_langchain(case.messages[:-1]),
        "documents": [Document(text) for text in application.documents],
        "examples": [{"input": given, "output": wanted} for given, wanted in application.examples],
        "memory": [item.text for item in application.memories if item.scope.visible_to(application.reader)],
        "question": case.question,
    }
    trimmer = BudgetTrimmer(max_tokens=case.limit, counter=COUNTER, prompt=prompt)
    _run(trimmer | prompt | lab.langchain(case), value, case, lab)


@way("langchain trim_messages | model")
def langchain_trim(case: Case, lab: Lab) -> None:
    from langchain_budget import trim_messages

    trimmed = trim_messages(
        to_langchain(case.messages),
        max_tokens=case.limit,
        token_counter=COUNTER,
        include_system=True,
        start_on="human",
    )
    lab.langchain(case).invoke(trimmed)


@way("langchain BudgetMemory in a ConversationChain")
def langchain_memory(case: Case, lab: Lab) -> None:
    from langchain_classic.chains import ConversationChain
    from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder

    from langchain_budget import BudgetMemory

    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{input}")])
    memory = BudgetMemory(max_tokens=case.limit, counter=COUNTER, prompt=prompt, return_messages=True)
    memory.chat_memory.add_messages(to_langchain(case.messages[:-1]))
    chain = ConversationChain(llm=lab.langchain(case), prompt=prompt, memory=memory)
    lab.wait(chain.ainvoke({"input": case.question})) if case.number % 2 else chain.invoke(
        {"input": case.question}
    )


@way("langchain BudgetMessageHistory")
def langchain_history(case: Case, lab: Lab) -> None:
    from langchain_budget import BudgetMessageHistory

    history = BudgetMessageHistory(max_tokens=case.limit, counter=COUNTER)
    history.add_messages(to_langchain(case.messages))
    lab.langchain(case).invoke(lab.wait(history.aget_messages()) if case.number % 2 else history.messages)


@way("langchain BudgetChatPromptTemplate | model")
def langchain_template(case: Case, lab: Lab) -> None:
    from langchain_budget import BudgetChatPromptTemplate

    prompt = BudgetChatPromptTemplate.from_messages(
        [("system", SYSTEM), ("placeholder", "{history}"), ("human", "{documents}\n\n{question}")],
        max_tokens=case.limit,
        counter=COUNTER,
    )
    value = {
        "history": to_langchain(case.messages[:-1]),
        "documents": list(case.application.documents),
        "question": case.question,
    }
    _run(prompt | lab.langchain(case), value, case, lab)


# ---------------------------------------------------------------- LlamaIndex
def _buffer(case: Case, **options: Any) -> Any:
    from llamaindex_budget import BudgetChatMemoryBuffer

    return BudgetChatMemoryBuffer.from_defaults(
        chat_history=to_llamaindex(case.messages[:-1]), counter=COUNTER, **options
    )


def _retriever(case: Case) -> Any:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class Drawn(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:  # noqa: ARG002 - what was drawn is what is found
            texts = case.application.documents or ("nothing is known",)
            return [
                NodeWithScore(node=TextNode(text=text), score=0.9 - i / 10) for i, text in enumerate(texts)
            ]

    return Drawn()


@way("llamaindex BudgetChatMemoryBuffer.get")
def llamaindex_buffer(case: Case, lab: Lab) -> None:
    from llama_index.core.llms import ChatMessage

    memory = _buffer(case, token_limit=case.limit)
    memory.put(ChatMessage(role="user", content=case.question))
    lab.llamaindex(case).chat(lab.wait(memory.aget()) if case.number % 2 else memory.get())


@way("llamaindex SimpleChatEngine")
def llamaindex_simple(case: Case, lab: Lab) -> None:
    from llama_index.core.chat_engine import SimpleChatEngine

    from llamaindex_budget import budget_model

    llm = budget_model(lab.llamaindex(case), max_tokens=case.limit, counter=COUNTER)
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=_buffer(case, token_limit=case.limit))
    _ask(engine, case, lab)


@way("llamaindex ContextChatEngine, memory + postprocessor")
def llamaindex_context(case: Case, lab: Lab) -> None:
    from llama_index.core.chat_engine import ContextChatEngine

    from llamaindex_budget import BudgetNodePostprocessor, budget_model

    session = BudgetSession(budget(case), counter=COUNTER)
    engine = ContextChatEngine.from_defaults(
        retriever=_retriever(case),
        llm=budget_model(lab.llamaindex(case), session),
        memory=_buffer(case, session=session),
        system_prompt=SYSTEM,
        node_postprocessors=[BudgetNodePostprocessor(session=session)],
    )
    _ask(engine, case, lab)


@way("llamaindex ContextChatEngine, defaults of memory and postprocessor")
def llamaindex_defaults(case: Case, lab: Lab) -> None:
    from llama_index.core.chat_engine import ContextChatEngine

    from llamaindex_budget import BudgetNodePostprocessor, budget_model

    session = BudgetSession(case.limit, counter=COUNTER)
    llm = budget_model(lab.llamaindex(case), session)
    memory = _buffer(case, session=session)
    post = BudgetNodePostprocessor(memory=memory)
    engine = ContextChatEngine.from_defaults(
        retriever=_retriever(case), llm=llm, memory=memory, node_postprocessors=[post]
    )
    _ask(engine, case, lab)


@way("llamaindex RetrieverQueryEngine, postprocessor")
def llamaindex_query(case: Case, lab: Lab) -> None:
    from llama_index.core.query_engine import RetrieverQueryEngine

    from llamaindex_budget import BudgetNodePostprocessor, budget_model

    session = BudgetSession(budget(case), counter=COUNTER)
    post = BudgetNodePostprocessor(session=session)
    llm = budget_model(lab.llamaindex(case), session)
    engine = RetrieverQueryEngine.from_args(_retriever(case), llm=llm, node_postprocessors=[post])
    lab.wait(engine.aquery(case.question)) if case.number % 2 else engine.query(case.question)


@way("llamaindex BudgetFunctionAgent")
def llamaindex_agent(case: Case, lab: Lab) -> None:
    from llama_index.core.tools import FunctionTool

    from llamaindex_budget import BudgetFunctionAgent

    tool = FunctionTool.from_defaults(
        lambda query: f"{query}: " + "found " * (40 * (case.number % 9)),
        name="search",
        description="Searches.",
    )
    lab.server.script(
        *[Reply(text="", tool_calls=[("search", {"query": "a"}), ("search", {"query": "b"})])]
        * (case.number % 3)
    )
    agent = BudgetFunctionAgent(
        tools=[tool],
        llm=lab.llamaindex(case),
        system_prompt=SYSTEM,
        budget=budget(case),
        counter=COUNTER,
        streaming=False,
    )

    async def run() -> None:
        await agent.run(case.question, memory=_buffer(case, token_limit=max(1, case.limit)))

    lab.wait(run())


def _ask(engine: Any, case: Case, lab: Lab) -> None:
    how = case.number % 3
    if how < 2:
        said = str(lab.wait(engine.achat(case.question)) if how else engine.chat(case.question))
    else:
        said = "".join(engine.stream_chat(case.question).response_gen)
    if said == "Empty Response":  # LlamaIndex's synthesizer swallows every ValueError, a refusal too
        msg = "the model's last door refused the request"
        raise BudgetExceededError(msg, limit=case.limit, needed=case.limit + 1)
