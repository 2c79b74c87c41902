"""Every engine, synthesizer and agent of llama-index-core as a turn with more than fits, by class; and the classes that are no door to a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llama_index.core import SQLDatabase, StorageContext, SummaryIndex, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, CodeActAgent, FunctionAgent, ReActAgent
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.chat_engine.multi_modal_condense_plus_context import (
    MultiModalCondensePlusContextChatEngine,
)
from llama_index.core.chat_engine.multi_modal_context import MultiModalContextChatEngine
from llama_index.core.evaluation import GuidelineEvaluator, RelevancyEvaluator
from llama_index.core.graph_stores import SimpleGraphStore
from llama_index.core.indices.composability import ComposableGraph
from llama_index.core.indices.query.query_transform import HyDEQueryTransform, StepDecomposeQueryTransform
from llama_index.core.indices.struct_store.json_query import JSONQueryEngine
from llama_index.core.indices.struct_store.sql_query import (
    NLSQLTableQueryEngine,
    SQLTableRetrieverQueryEngine,
)
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.objects import SQLTableSchema
from llama_index.core.objects.base import ObjectRetriever
from llama_index.core.query_engine import (
    CitationQueryEngine,
    ComposableGraphQueryEngine,
    FLAREInstructQueryEngine,
    KnowledgeGraphQueryEngine,
    MultiStepQueryEngine,
    RetrieverQueryEngine,
    RetrieverRouterQueryEngine,
    RetryGuidelineQueryEngine,
    RetryQueryEngine,
    RetrySourceQueryEngine,
    RouterQueryEngine,
    SimpleMultiModalQueryEngine,
    SQLAutoVectorQueryEngine,
    SQLJoinQueryEngine,
    SubQuestionQueryEngine,
    ToolRetrieverRouterQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.retrievers import VectorIndexAutoRetriever
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import FunctionTool, QueryEngineTool
from llama_index.core.vector_stores import VectorStoreInfo
from pydantic import BaseModel, Field
from sqlalchemy import create_engine

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetNodePostprocessor
from rankbudget.testing.server import Reply
from tests.llamaindex.models import FixedRetriever, exchanges, nodes, say, words

PAST = [say("system", "RULE"), *exchanges(60)]
TEMPLATE = "Answer from these facts.\n" + words(120, "style") + "\n{context_str}\nQuestion: {query_str}\n"


class Answer(BaseModel):
    """What was found."""

    facts: list[str] = Field(default_factory=list)


ANSWER = Reply(text="", tool_calls=[("Answer", {"facts": ["tea"]})])


class Case:
    """One turn of one class.

    Args:
        kind: the class under test.
        run: makes the turn with a model.
        replies: what the model answers, in order; then "The answer.".
        name: tells cases of one class apart.
    """

    def __init__(self, kind: type, run: Callable[[Any], Any], *replies: Any, name: str = "") -> None:
        self.kind, self.run, self.replies = kind, run, replies
        self.name = f"{kind.__name__}{'-' if name else ''}{name}"


def stuffed() -> ChatMemoryBuffer:
    """Returns a stock memory that hands on far more than the window."""
    return ChatMemoryBuffer.from_defaults(chat_history=list(PAST), token_limit=1_000_000)


def _query(llm: Any, **options: Any) -> RetrieverQueryEngine:
    return RetrieverQueryEngine.from_args(FixedRetriever(nodes(20)), llm=llm, **options)


def _tool(llm: Any, name: str = "facts") -> QueryEngineTool:
    return QueryEngineTool.from_defaults(_query(llm), name=name, description=words(1500, name))


def _planned(kind: Any) -> Callable[[Any], Any]:
    """A context engine sizes nodes beside its whole history and raises before the model is asked, so a memory and a postprocessor plan."""

    def run(llm: Any) -> Any:
        memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=PAST)
        options = {
            "node_postprocessors": [BudgetNodePostprocessor(memory=memory)],
            "system_prompt": words(300),
        }
        return kind.from_defaults(
            retriever=FixedRetriever(nodes(20)), llm=llm, memory=memory, **options
        ).chat("why?")

    return run


def _multi_modal(kind: Any) -> Callable[[Any], Any]:
    def run(llm: Any) -> Any:
        engine = kind.from_defaults(
            retriever=FixedRetriever(nodes(5)),
            multi_modal_llm=llm,
            memory=stuffed(),
            system_prompt=words(300),
        )
        return engine.chat("why?")

    return run


def _condense(llm: Any) -> Any:
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=PAST)
    return CondenseQuestionChatEngine.from_defaults(_query(llm), memory=memory, llm=llm).chat("why?")


def _simple(llm: Any) -> Any:
    return SimpleChatEngine.from_defaults(llm=llm, memory=stuffed(), system_prompt=words(900)).chat("why?")


def _simple_structured(llm: Any) -> Any:
    structured = llm.as_structured_llm(Answer)
    return SimpleChatEngine.from_defaults(llm=structured, memory=stuffed()).chat("why?")


def _mode(mode: ResponseMode, *, structured: bool = False, **options: Any) -> Callable[[Any], Any]:
    def run(llm: Any) -> Any:
        from llama_index.core.prompts import PromptTemplate

        model = llm.as_structured_llm(Answer) if structured else llm
        synthesizer = get_response_synthesizer(
            response_mode=mode, llm=model, text_qa_template=PromptTemplate(TEMPLATE), **options
        )
        return RetrieverQueryEngine(FixedRetriever(nodes(20)), response_synthesizer=synthesizer).query("why?")

    return run


def _sql() -> SQLDatabase:
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        connection.exec_driver_sql("create table rooms (name text, windows int)")
        connection.exec_driver_sql(f"insert into rooms values ('{words(3000)}', 7)")
    return SQLDatabase(engine)


def _sql_tables(llm: Any) -> Any:
    class Tables(ObjectRetriever):
        def __init__(self) -> None:
            pass

        def retrieve(self, _: Any) -> Any:
            return [SQLTableSchema(table_name="rooms", context_str=words(300))]

    return SQLTableRetrieverQueryEngine(_sql(), Tables(), llm=llm).query("how many windows?")


def _json(llm: Any) -> Any:
    def found(*_: Any, **__: Any) -> Any:
        return [{"rooms": 7}]

    return JSONQueryEngine({"a": 1}, {"a": words(900)}, llm=llm, output_processor=found).query("how many?")


def _graph(llm: Any) -> Any:
    class Graph(SimpleGraphStore):
        def get_schema(self, refresh: bool = False) -> str:
            return words(900)

        def query(self, query: str, param_map: Any = None) -> Any:
            return [words(3000)]

    from llama_index.core.prompts import PromptTemplate

    asked = PromptTemplate("Schema: {schema}\nQuestion: {query_str}")
    storage = StorageContext.from_defaults(graph_store=Graph())
    return KnowledgeGraphQueryEngine(
        llm=llm, storage_context=storage, graph_query_synthesis_prompt=asked
    ).query("why?")


def _composed(llm: Any) -> Any:
    indices = [SummaryIndex(nodes=[n.node for n in nodes(8)]) for _ in range(2)]
    graph = ComposableGraph.from_indices(SummaryIndex, indices, index_summaries=["one", "two"])
    engines = {i.index_id: i.as_query_engine(llm=llm) for i in [*indices, graph.root_index]}
    return ComposableGraphQueryEngine(graph, custom_query_engines=engines, llm=llm).query("why?")


def _routed(llm: Any) -> Any:
    tools = [_tool(llm, "first"), _tool(llm, "second")]
    return RouterQueryEngine.from_defaults(
        tools, llm=llm, selector=LLMSingleSelector.from_defaults(llm=llm)
    ).query("why?")


def _tool_routed(llm: Any) -> Any:
    class Tools(ObjectRetriever):
        def __init__(self) -> None:
            pass

        def retrieve(self, _: Any) -> Any:
            return [_tool(llm, "first"), _tool(llm, "second")]

    return ToolRetrieverRouterQueryEngine(Tools(), llm=llm).query("why?")


def _sub_questions(llm: Any) -> Any:
    engine = SubQuestionQueryEngine.from_defaults(
        [_tool(llm)], llm=llm, question_gen=LLMQuestionGenerator.from_defaults(llm=llm),
        response_synthesizer=get_response_synthesizer(llm=llm), use_async=False, verbose=False,
    )  # fmt: skip
    return engine.query("why?")


def _joined(kind: Any) -> Callable[[Any], Any]:
    def run(llm: Any) -> Any:
        sql = QueryEngineTool.from_defaults(
            NLSQLTableQueryEngine(_sql(), llm=llm), name="sql", description="rooms"
        )
        selector = LLMSingleSelector.from_defaults(llm=llm)
        tool = _tool(llm)
        if kind is SQLAutoVectorQueryEngine:
            index = VectorStoreIndex(nodes=[n.node for n in nodes(20)])
            info = VectorStoreInfo(content_info=words(300), metadata_info=[])
            retriever = VectorIndexAutoRetriever(index, info, llm=llm, similarity_top_k=20)
            tool = QueryEngineTool.from_defaults(
                RetrieverQueryEngine.from_args(retriever, llm=llm), name="facts"
            )
        return kind(sql, tool, selector=selector, llm=llm, verbose=False).query("why?")

    return run


def search(q: str) -> str:
    """Searches the archive."""
    return f"{q}: {words(1500, 'fact')}"


TOOL = FunctionTool.from_defaults(search, name="search")
CALLS = [
    Reply(text="", tool_calls=[("search", {"q": f"{n}.{i}"}) for i in range(1 + n % 3)]) for n in range(6)
]
THOUGHTS = [f'Thought: I look.\nAction: search\nAction Input: {{"q": "item {n}"}}' for n in range(6)]
SAID = "Thought: I can answer without using any more tools.\nAnswer: The answer."
CODE = [f"<execute>\nsearch('item {n}')\n</execute>" for n in range(6)]


async def _execute(code: str) -> str:
    return f"{code}: {words(1500, 'fact')}"


def _agent(kind: Any, **options: Any) -> Callable[[Any], Any]:
    async def run(llm: Any) -> Any:
        settings = {
            "name": "finder",
            "description": "Finds.",
            "tools": [TOOL],
            "llm": llm,
            "system_prompt": words(300),
            **options,
        }
        return await kind(**settings).run("What is in the archive?", memory=stuffed(), max_iterations=20)

    return run


def _workflow(*, iterations: int = 20, **options: Any) -> Callable[[Any], Any]:
    async def run(llm: Any) -> Any:
        agent = FunctionAgent(
            name="finder", description="Finds.", tools=[TOOL], llm=llm, system_prompt=words(300)
        )
        other = FunctionAgent(name="writer", description="Writes.", tools=[], llm=llm, system_prompt="Write.")
        flow = AgentWorkflow(
            agents=[agent, other], root_agent="finder", initial_state={"notes": words(400)}, **options
        )
        return await flow.run("What is in the archive?", memory=stuffed(), max_iterations=iterations)

    return run


SELECT = '[{"choice": 1, "reason": "it fits"}]'
QUESTIONS = '{"items": [{"sub_question": "why?", "tool_name": "facts"}]}'
SQL = "SELECT name, windows FROM rooms"
NO = "NO"

CASES = [
    Case(SimpleChatEngine, _simple),
    Case(SimpleChatEngine, _simple_structured, ANSWER, name="structured"),
    Case(ContextChatEngine, _planned(ContextChatEngine)),
    Case(CondensePlusContextChatEngine, _planned(CondensePlusContextChatEngine)),
    Case(CondenseQuestionChatEngine, _condense),
    Case(MultiModalContextChatEngine, _multi_modal(MultiModalContextChatEngine)),
    Case(MultiModalCondensePlusContextChatEngine, _multi_modal(MultiModalCondensePlusContextChatEngine)),
    *(
        Case(RetrieverQueryEngine, _mode(mode), name=mode.value)
        for mode in ResponseMode
        if mode not in (ResponseMode.NO_TEXT, ResponseMode.CONTEXT_ONLY)
    ),
    Case(RetrieverQueryEngine, _mode(ResponseMode.COMPACT, structured=True), *[ANSWER] * 9, name="structured"),
    Case(SimpleMultiModalQueryEngine, lambda llm: SimpleMultiModalQueryEngine(FixedRetriever(nodes(20)), multi_modal_llm=llm).query("why?")),
    Case(CitationQueryEngine, lambda llm: CitationQueryEngine(FixedRetriever(nodes(20)), llm=llm).query("why?")),
    Case(TransformQueryEngine, lambda llm: TransformQueryEngine(_query(llm), HyDEQueryTransform(llm=llm)).query("why?")),
    Case(MultiStepQueryEngine, lambda llm: MultiStepQueryEngine(_query(llm), StepDecomposeQueryTransform(llm=llm), get_response_synthesizer(llm=llm), num_steps=2).query("why?")),
    Case(RetryQueryEngine, lambda llm: RetryQueryEngine(_query(llm), RelevancyEvaluator(llm=llm), max_retries=1).query("why?")),
    Case(RetrySourceQueryEngine, lambda llm: RetrySourceQueryEngine(_query(llm), RelevancyEvaluator(llm=llm), llm=llm, max_retries=1).query("why?")),
    Case(RetryGuidelineQueryEngine, lambda llm: RetryGuidelineQueryEngine(_query(llm), GuidelineEvaluator(llm=llm, guidelines=words(300)), max_retries=1).query("why?"), *['{"passing": true, "feedback": "fine"}'] * 9),
    Case(RouterQueryEngine, _routed, SELECT),
    Case(RetrieverRouterQueryEngine, lambda llm: RetrieverRouterQueryEngine(FixedRetriever(nodes(1)), lambda _: _query(llm)).query("why?")),
    Case(ToolRetrieverRouterQueryEngine, _tool_routed),
    Case(SubQuestionQueryEngine, _sub_questions, QUESTIONS),
    Case(SQLJoinQueryEngine, _joined(SQLJoinQueryEngine), SELECT, SQL),
    Case(SQLAutoVectorQueryEngine, _joined(SQLAutoVectorQueryEngine), SELECT, SQL),
    Case(NLSQLTableQueryEngine, lambda llm: NLSQLTableQueryEngine(_sql(), llm=llm, tables=["rooms"], embed_model=None).query("how many?"), SQL),
    Case(SQLTableRetrieverQueryEngine, _sql_tables, SQL),
    Case(JSONQueryEngine, _json, "$.a"),
    Case(KnowledgeGraphQueryEngine, _graph),
    Case(ComposableGraphQueryEngine, _composed),
    Case(FLAREInstructQueryEngine, lambda llm: FLAREInstructQueryEngine(_query(llm), llm=llm, max_iterations=2).query("why?")),
    Case(FunctionAgent, _agent(FunctionAgent), *CALLS),
    Case(FunctionAgent, _agent(FunctionAgent, streaming=False, initial_state={"notes": words(400)}), *CALLS, name="blocking with state"),
    Case(FunctionAgent, _agent(FunctionAgent, output_cls=Answer), *CALLS, "The answer.", ANSWER, name="output_cls"),
    Case(ReActAgent, _agent(ReActAgent), *THOUGHTS, SAID),
    Case(ReActAgent, _agent(ReActAgent, streaming=False, output_cls=Answer), *THOUGHTS, SAID, ANSWER, name="output_cls"),
    Case(CodeActAgent, _agent(CodeActAgent, code_execute_fn=_execute), *CODE),
    Case(AgentWorkflow, _workflow(), *CALLS),
    Case(AgentWorkflow, _workflow(output_cls=Answer), *CALLS, "The answer.", ANSWER, name="output_cls"),
    Case(AgentWorkflow, _workflow(early_stopping_method="generate", iterations=4), *CALLS, name="early stopping"),
]  # fmt: skip

NO_DOOR = {
    "SQLStructStoreQueryEngine": "runs the SQL it is given and asks no model",
    "NLStructStoreQueryEngine": "needs an SQLStructStoreIndex, which 0.14 cannot build any more; its requests go through LLM.predict",
    "PGVectorSQLQueryEngine": "needs PostgreSQL; its prompts and its synthesizer are those of NLSQLTableQueryEngine",
    "CogniswitchQueryEngine": "asks a remote service, no LLM of the host's",
    "BaseSQLTableQueryEngine": "abstract",
    "CustomQueryEngine": "abstract: the user's own code",
    "BaseWorkflowAgent": "abstract",
    "ContextOnly": "returns the context and asks no model",
    "NoText": "returns the nodes and asks no model",
}
"""Classes without a case, and why."""

SYNTHESIZERS = {
    "Accumulate": ResponseMode.ACCUMULATE,
    "CompactAndAccumulate": ResponseMode.COMPACT_ACCUMULATE,
    "CompactAndRefine": ResponseMode.COMPACT,
    "Generation": ResponseMode.GENERATION,
    "Refine": ResponseMode.REFINE,
    "SimpleSummarize": ResponseMode.SIMPLE_SUMMARIZE,
    "TreeSummarize": ResponseMode.TREE_SUMMARIZE,
}
"""The response mode whose `RetrieverQueryEngine` case runs a synthesizer."""
