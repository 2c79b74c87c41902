"""LlamaIndex's half of `rankbudget demo`: a context engine; memory and postprocessor share one session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.bridge.pydantic import ConfigDict, Field
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.chat_engine.context import DEFAULT_CONTEXT_TEMPLATE
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.llm import LLMChatStartEvent
from llama_index.core.llms import LLM, MockLLM
from llama_index.core.prompts import ChatPromptTemplate
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from rankbudget import BudgetReport, BudgetSession
from rankbudget.cli.demo import Half, Task

from ._codec import CODEC
from ._events import BudgetEvent
from .memory import BudgetChatMemoryBuffer
from .postprocessor import BudgetNodePostprocessor


class IndexRetriever(BaseRetriever):
    """Finds passages in the demonstration's index, with their scores."""

    def __init__(self, task: Task) -> None:
        self._task = task
        super().__init__()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = self._task.search(query_bundle.query_str)
        return [NodeWithScore(node=TextNode(text=one.text, id_=one.id), score=one.score) for one in found]


class Events(BaseEventHandler):
    """Collects the budget's reports and the prompts sent to the model."""

    reports: list[BudgetReport] = Field(default_factory=list)
    prompts: list[list[ChatMessage]] = Field(default_factory=list)

    model_config = ConfigDict(arbitrary_types_allowed=True)

    def handle(self, event: Any, **_: Any) -> None:
        if isinstance(event, BudgetEvent):
            self.reports.append(event.report)
        elif isinstance(event, LLMChatStartEvent):
            self.prompts.append(list(event.messages))


def run(task: Task) -> Half:
    """Returns what the engine kept, sent and answered."""
    session = BudgetSession(task.budget)
    around = [
        ChatMessage(role="system", content=DEFAULT_CONTEXT_TEMPLATE + task.system.strip()),
        ChatMessage(role="user", content="{query_str}"),
    ]
    prompt = ChatPromptTemplate(around)  # what the engine sends around the conversation
    memory = BudgetChatMemoryBuffer.from_defaults(
        chat_history=[_message(message) for message in task.history], session=session, prompt=prompt
    )
    engine = ContextChatEngine.from_defaults(
        retriever=IndexRetriever(task),
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(session=session, prompt=prompt)],
        llm=_no_model(task),
        system_prompt=task.system,
    )
    events, dispatcher = Events(), get_dispatcher()
    dispatcher.add_event_handler(events)
    try:
        response = engine.chat(task.question)
    finally:
        dispatcher.event_handlers.remove(events)
    return Half(
        prompt=[CODEC.to_dict(message) for message in events.prompts[-1]],
        passages={node.node_id: node.text for node in response.source_nodes},
        report=next(report for report in events.reports if report.covers == "prompt"),
    )


def _message(message: Mapping[str, Any]) -> ChatMessage:
    """Returns an OpenAI-style dict as LlamaIndex keeps it: tool calls and their ids beside the text."""
    extra = {key: message[key] for key in ("tool_calls", "tool_call_id", "name") if message.get(key)}
    return ChatMessage(role=message["role"], content=message.get("content"), additional_kwargs=extra)


def _no_model(task: Task) -> LLM:
    # Told the true window, LlamaIndex would split a full prompt into two calls.
    window, reply = 2 * task.budget.context_window, task.budget.reserve_tokens()

    class NoModel(MockLLM):
        @property
        def metadata(self) -> LLMMetadata:
            return LLMMetadata(context_window=window, num_output=reply, is_chat_model=True)

    return NoModel(max_tokens=1)
