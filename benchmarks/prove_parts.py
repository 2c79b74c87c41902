"""More ways to a model: parts that fit one piece of a prompt. Their user says how many tokens it may have: what the rest of the prompt leaves."""

from __future__ import annotations

from typing import Any

from prove_cases import Case, as_sent
from prove_hosts import to_langchain, to_llamaindex
from prove_ways import COUNTER, SYSTEM, Lab, model, way

from rankbudget import BlockAssembler, TokenBudget, fit_documents
from rankbudget.errors import BudgetExceededError
from rankbudget.testing.server import Reply
from rankbudget.testing.server.request_tokens import request_tokens

JOINT = 8
"""Tokens to spare where texts that were counted apart are joined by a template."""


def left(case: Case, *, beside: str = "", tools: Any = None) -> int:
    """Returns the tokens the case's prompt leaves for one more piece."""
    rest = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"{beside}\n\n{case.question}"},
    ]
    room = case.limit - JOINT - request_tokens(rest, tools)
    if room < 1:
        msg = f"the prompt alone needs {case.limit - room} tokens, the limit is {case.limit}"
        raise BudgetExceededError(msg, limit=case.limit, needed=case.limit - room)
    return room


def documents(case: Case) -> list[str]:
    return [text for text in case.application.documents if text.strip()] or ["nothing is known"]


# ---------------------------------------------------------------- the core
@way("core BlockAssembler")
def core_blocks(case: Case, lab: Lab) -> None:
    window = (
        case.limit
        - JOINT
        - request_tokens([{"role": "system", "content": ""}, {"role": "user", "content": case.question}])
    )
    budget = TokenBudget(
        context_window=window, reserve=0, ratios={"history": 0.5, "knowledge": 0.5}, max_system_ratio=None
    )
    history = [as_sent(m) for m in case.messages[:-1] if m["role"] in {"user", "assistant"}]
    text = BlockAssembler(budget, counter=COUNTER).assemble(SYSTEM, "", "Find it.", history, documents(case))
    lab.send(case, [{"role": "system", "content": text}, {"role": "user", "content": case.question}])


@way("core fit_documents")
def core_documents(case: Case, lab: Lab) -> None:
    fitted = fit_documents(documents(case), max_tokens=left(case), query=case.question, counter=COUNTER)
    context = "\n\n".join(segment.text for segment in fitted.segments)
    lab.send(
        case,
        [{"role": "system", "content": SYSTEM}, {"role": "user", "content": f"{context}\n\n{case.question}"}],
    )


# ---------------------------------------------------------------- LangChain
@way("langchain BudgetMiddleware in an agent")
def langchain_agent(case: Case, lab: Lab) -> None:
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    from langchain_budget import BudgetMiddleware

    @tool
    def search(query: str) -> str:
        """Searches the archive."""
        return f"{query}: " + "found " * (40 * (case.number % 9))

    lab.server.script(
        *[Reply(text="", tool_calls=[("search", {"query": "a"}), ("search", {"query": "b"})])]
        * (case.number % 3)
    )
    chat = lab.chat.model_copy(update={"model_name": model(case)})
    agent = create_agent(
        chat, [search], middleware=[BudgetMiddleware(max_tokens=case.limit, counter=COUNTER)]
    )
    value = {"messages": to_langchain(case.messages)}
    lab.wait(agent.ainvoke(value)) if case.number % 2 else agent.invoke(value)


def _langchain_retriever(case: Case) -> Any:
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever

    class Drawn(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:  # noqa: ARG002 - what was drawn is what is found
            return [Document(text, id=str(i)) for i, text in enumerate(documents(case))]

    return Drawn()


def _retrieval_chain(retriever: Any, case: Case, lab: Lab) -> None:
    from langchain_core.prompts import ChatPromptTemplate
    from langchain_core.runnables import RunnablePassthrough

    prompt = ChatPromptTemplate.from_messages([("system", SYSTEM), ("human", "{context}\n\n{question}")])
    context = retriever | (lambda found: "\n\n".join(d.page_content for d in found))
    chain: Any = {"context": context, "question": RunnablePassthrough()} | prompt | lab.langchain(case)
    lab.wait(chain.ainvoke(case.question)) if case.number % 2 else chain.invoke(case.question)


@way("langchain BudgetRetriever in a retrieval chain")
def langchain_retriever(case: Case, lab: Lab) -> None:
    from langchain_budget import BudgetRetriever

    _retrieval_chain(
        BudgetRetriever(retriever=_langchain_retriever(case), max_tokens=left(case), counter=COUNTER),
        case,
        lab,
    )


@way("langchain BudgetDocumentCompressor in a ContextualCompressionRetriever")
def langchain_compressor(case: Case, lab: Lab) -> None:
    from langchain_classic.retrievers import ContextualCompressionRetriever

    from langchain_budget import BudgetDocumentCompressor

    compressor = BudgetDocumentCompressor(max_tokens=left(case), counter=COUNTER)
    _retrieval_chain(
        ContextualCompressionRetriever(base_compressor=compressor, base_retriever=_langchain_retriever(case)),
        case,
        lab,
    )


@way("langchain BudgetExampleSelector in a FewShotPromptTemplate")
def langchain_examples(case: Case, lab: Lab) -> None:
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.prompts import FewShotPromptTemplate, PromptTemplate

    from langchain_budget import BudgetExampleSelector

    shown = PromptTemplate.from_template("Q: {input}\nA: {output}")
    examples = [{"input": given, "output": wanted} for given, wanted in case.application.examples]
    selector = BudgetExampleSelector(
        examples, max_tokens=left(case), example_prompt=shown, counter=COUNTER, double_braces=True
    )
    prompt = FewShotPromptTemplate(
        example_selector=selector, example_prompt=shown, suffix="{question}", input_variables=["question"]
    )
    text = prompt.format(question=case.question)
    lab.langchain(case).invoke([SystemMessage(SYSTEM), HumanMessage(text)])


@way("langchain BudgetContextEdit in an agent")
def langchain_edit(case: Case, lab: Lab) -> None:
    from langchain.agents import create_agent
    from langchain.agents.middleware import ContextEditingMiddleware
    from langchain_core.tools import tool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    from langchain_budget import BudgetContextEdit

    @tool
    def search(query: str) -> str:
        """Searches the archive."""
        return f"{query}: " + "found " * (40 * (case.number % 9))

    tools = [convert_to_openai_tool(search)]
    most = max(1, case.limit - request_tokens([], tools) + request_tokens([]))
    lab.server.script(
        *[Reply(text="", tool_calls=[("search", {"query": "a"}), ("search", {"query": "b"})])]
        * (case.number % 3)
    )
    edit = ContextEditingMiddleware(edits=[BudgetContextEdit(trigger=most, counter=COUNTER)])
    agent = create_agent(lab.chat.model_copy(update={"model_name": model(case)}), [search], middleware=[edit])
    value = {"messages": to_langchain(case.messages)}
    lab.wait(agent.ainvoke(value)) if case.number % 2 else agent.invoke(value)


@way("langchain pre_model_hook before an agent's model")
def langchain_hook(case: Case, lab: Lab) -> None:
    from langchain_budget import pre_model_hook

    hook = pre_model_hook(max_tokens=case.limit, counter=COUNTER)
    state = {"messages": to_langchain(case.messages)}
    fitted = lab.wait(hook.ainvoke(state)) if case.number % 2 else hook.invoke(state)
    lab.langchain(case).invoke(fitted["llm_input_messages"])


# ---------------------------------------------------------------- LlamaIndex
def _nodes(case: Case) -> Any:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.schema import NodeWithScore, TextNode

    class Drawn(BaseRetriever):
        def _retrieve(self, query_bundle: Any) -> list[NodeWithScore]:  # noqa: ARG002 - what was drawn is what is found
            return [
                NodeWithScore(node=TextNode(text=text), score=0.9 - i / 10)
                for i, text in enumerate(documents(case))
            ]

    return Drawn()


@way("llamaindex BudgetMemory with ranked blocks")
def llamaindex_memory(case: Case, lab: Lab) -> None:
    from llama_index.core.llms import ChatMessage

    from llamaindex_budget import BudgetMemory, ProjectMemoryBlock

    notes = [
        ProjectMemoryBlock(name=f"note{i}", text=text, rank=2 + i, counter=COUNTER)
        for i, text in enumerate(documents(case)[:3])
    ]
    memory = BudgetMemory.from_defaults(token_limit=case.limit, counter=COUNTER, memory_blocks=notes)

    async def read() -> Any:
        await memory.aset(
            [*to_llamaindex(case.messages[:-1]), ChatMessage(role="user", content=case.question)]
        )
        return await memory.aget()

    lab.llamaindex(case).chat(lab.wait(read()))


@way("llamaindex BudgetPromptHelper in a query engine")
def llamaindex_helper(case: Case, lab: Lab) -> None:
    from llama_index.core.query_engine import RetrieverQueryEngine
    from llama_index.core.response_synthesizers import get_response_synthesizer

    from llamaindex_budget import BudgetPromptHelper

    llm = lab.llamaindex(case)
    helper = BudgetPromptHelper(context_window=case.limit, num_output=0, counter=COUNTER)
    synthesizer = get_response_synthesizer(llm=llm, prompt_helper=helper)
    engine = RetrieverQueryEngine(retriever=_nodes(case), response_synthesizer=synthesizer)
    lab.wait(engine.aquery(case.question)) if case.number % 2 else engine.query(case.question)


@way("llamaindex few_shot_function in a prompt")
def llamaindex_examples(case: Case, lab: Lab) -> None:
    from llama_index.core.llms import ChatMessage
    from llama_index.core.prompts import PromptTemplate

    from llamaindex_budget import few_shot_function

    examples = [{"input": given, "output": wanted} for given, wanted in case.application.examples]
    pick = few_shot_function(examples, max_tokens=left(case), max_examples=9, counter=COUNTER)
    prompt = PromptTemplate("{examples}\n\n{query_str}", function_mappings={"examples": pick})
    text = prompt.format(query_str=case.question)
    lab.llamaindex(case).chat(
        [ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=text)]
    )
