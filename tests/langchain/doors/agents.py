"""Agents of LangChain, LangGraph and langchain-classic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain.agents import create_agent
from langchain.agents import middleware as stock
from langchain_core.agents import AgentFinish
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from langchain_core.prompts.string import StringPromptTemplate
from langchain_core.tools import BaseTool
from langgraph.prebuilt import chat_agent_executor

from .table import door, look, of, plain

REACT = PromptTemplate.from_template("{tools} {tool_names} Question: {input} {agent_scratchpad}")
XML = PromptTemplate.from_template("{tools} Question: {input} {agent_scratchpad}")
ASK = PromptTemplate.from_template("{input} {agent_scratchpad}")
CALLING = ChatPromptTemplate([("human", "{input}"), ("placeholder", "{agent_scratchpad}")])
LISTED = ChatPromptTemplate(
    [("system", "{tools} {tool_names}"), ("human", "{input}"), ("placeholder", "{agent_scratchpad}")]
)
TYPED = ChatPromptTemplate([("system", "{tools} {tool_names}"), ("human", "{input} {agent_scratchpad}")])


# ---------------------------------------------------------------- LangChain and LangGraph
def created(name: str, *middleware: Callable[[Any], Any], late: bool = True) -> None:
    """`create_agent` with a system prompt that is made after every other middleware, or a long question."""

    def run(model: Any, text: str) -> Any:
        made = stock.dynamic_prompt(lambda request: text if late else "Be brief.")
        agent = create_agent(
            model, [look, plain("other")], middleware=[*(m(model) for m in middleware), made]
        )
        asked = HumanMessage("Why?" if late else text)
        return agent.invoke({"messages": [HumanMessage("Is it?"), AIMessage("It is."), asked]})

    door(f"langchain.agents.{name}")(run)


created("factory.create_agent")
created("middleware.model_fallback.ModelFallbackMiddleware", stock.ModelFallbackMiddleware)
created(
    "middleware.summarization.SummarizationMiddleware",
    lambda model: stock.SummarizationMiddleware(model, trigger=("messages", 2), keep=("messages", 1)),
)
created(
    "middleware.tool_selection.LLMToolSelectorMiddleware",
    lambda model: stock.LLMToolSelectorMiddleware(model=model, max_tools=1),
    late=False,
)


@door("langchain.agents.middleware.tool_emulator.LLMToolEmulator")
def emulated(model: Any, text: str) -> Any:
    call = {"name": "look", "args": {"name": text}, "id": "c1", "type": "tool_call"}
    request: Any = type("Request", (), {"tool_call": call, "tool": look})()
    return stock.LLMToolEmulator(model=model).wrap_tool_call(request, lambda request: request)


def graph(name: str) -> None:
    def run(model: Any, text: str) -> Any:
        made = getattr(chat_agent_executor, name)(model, [look], prompt=text)
        return made.invoke({"messages": [HumanMessage("Why?")]})

    door(f"langgraph.prebuilt.chat_agent_executor.{name}")(run)


graph("create_react_agent")
graph("create_tool_calling_executor")


# ---------------------------------------------------------------- langchain-classic: agents that plan
def planned(name: str, *tools: BaseTool) -> None:
    door(f"agents.{name}")(
        lambda model, text: (
            of(f"agents.{name}").from_llm_and_tools(model, list(tools)).plan([], input=text, chat_history=[])
        )
    )


planned("chat.base.ChatAgent", look)
planned("conversational.base.ConversationalAgent", plain("look"))
planned("conversational_chat.base.ConversationalChatAgent", plain("look"))
planned("mrkl.base.ZeroShotAgent", plain("look"))
planned("react.base.ReActDocstoreAgent", plain("Search"), plain("Lookup"))
planned("self_ask_with_search.base.SelfAskWithSearchAgent", plain("Intermediate Answer"))
planned("structured_chat.base.StructuredChatAgent", look)


@door("agents.agent.LLMSingleActionAgent")
def single_action(model: Any, text: str) -> Any:
    class Prompt(StringPromptTemplate):
        def format(self, **given: Any) -> str:
            return str(given["input"])

    class Finished(of("agents.AgentOutputParser")):  # type: ignore[misc]  # found by name
        def parse(self, answer: str) -> AgentFinish:
            return AgentFinish({"output": answer}, answer)

    chain = of("chains.LLMChain")(llm=model, prompt=Prompt(input_variables=["input"]))
    agent = of("agents.LLMSingleActionAgent")(llm_chain=chain, output_parser=Finished(), stop=["."])
    return agent.plan([], input=text)


@door("agents.xml.base.XMLAgent")
def xml(model: Any, text: str) -> Any:
    made = of("agents.XMLAgent")
    prompt, parser = made.get_default_prompt(), made.get_default_output_parser()
    chain = of("chains.LLMChain")(llm=model, prompt=prompt, output_parser=parser)
    return made(tools=[look], llm_chain=chain).plan([], input=text, question=text)


# ---------------------------------------------------------------- langchain-classic: agents as Runnables
def executed(name: str, prompt: Any, *tools: BaseTool) -> None:
    def run(model: Any, text: str) -> Any:
        used = list(tools) or [look]
        agent = of(f"agents.{name}")(model, used, prompt)
        return of("agents.AgentExecutor")(agent=agent, tools=used).invoke({"input": text, "chat_history": []})

    door(f"agents.{name}")(run)


executed("json_chat.base.create_json_chat_agent", LISTED)
executed("openai_functions_agent.base.create_openai_functions_agent", CALLING)
executed("openai_tools.base.create_openai_tools_agent", CALLING)
executed("react.agent.create_react_agent", REACT)
executed("self_ask_with_search.base.create_self_ask_with_search_agent", ASK, plain("Intermediate Answer"))
executed("structured_chat.base.create_structured_chat_agent", TYPED)
executed("tool_calling_agent.base.create_tool_calling_agent", CALLING)
executed("xml.base.create_xml_agent", XML)


@door("agents.initialize.initialize_agent")
def initialized(model: Any, text: str) -> Any:
    return of("agents.initialize_agent")([plain("look")], model).invoke({"input": text})


@door("agents.loading.load_agent_from_config")
def loaded(model: Any, text: str) -> Any:
    config = {"_type": "zero-shot-react-description", "load_from_llm_and_tools": True}
    agent = of("agents.loading.load_agent_from_config")(config, llm=model, tools=[plain("look")])
    return agent.plan([], input=text)


@door("agents.mrkl.base.MRKLChain")
def mrkl(model: Any, text: str) -> Any:
    config = of("agents.mrkl.base.ChainConfig")("look", lambda given: given, "Looks something up.")
    return of("agents.MRKLChain").from_chains(model, [config]).invoke({"input": text})


@door("agents.self_ask_with_search.base.SelfAskWithSearchChain")
def self_ask(model: Any, text: str) -> Any:
    class Search:
        def run(self, query: str) -> str:
            return query

        async def arun(self, query: str) -> str:
            return query

    return of("agents.SelfAskWithSearchChain")(model, Search()).invoke({"input": text})


@door("agents.structured_chat.output_parser.StructuredChatOutputParserWithRetries")
def action_parser(model: Any, text: str) -> Any:
    made = of("agents.structured_chat.output_parser.StructuredChatOutputParserWithRetries")
    return made.from_llm(model).parse(f"```\n{{{text}\n```")
