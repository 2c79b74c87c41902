"""Every engine and agent class of llama-index-core through `budget_model`, over HTTP, against a server that refuses what providers refuse."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import llama_index.core
import pytest
from llama_index.core import Settings
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.response_synthesizers.base import BaseSynthesizer
from llama_index.core.workflow import Workflow
from llama_index.llms.openai import OpenAI
from llama_index.llms.openai_like import OpenAILike
from pydantic import Field

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_model,
)
from rankbudget import TokenBudget
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.engine_cases import ANSWER, CASES, NO_DOOR, SYNTHESIZERS, Answer
from tests.llamaindex.models import CL100K, FixedRetriever, nodes, strict_llm, words

pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),  # the host's own
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of classes the host still has
]
WINDOW, REPLY = 4096, 512


@pytest.fixture(autouse=True)
def _offline() -> Iterator[None]:
    """No engine may look for a model of its own."""
    Settings.embed_model = MockEmbedding(embed_dim=3)
    yield
    Settings._embed_model = Settings._llm = Settings._prompt_helper = None


def _llm(server: StrictModelServer) -> OpenAILike:
    return strict_llm(server.base_url, context_window=WINDOW, max_tokens=REPLY, system_prompt="Be brief.")


async def _turn(case: Any, llm: Any, server: StrictModelServer) -> int:
    server.script(*case.replies)
    Settings.llm, Settings._prompt_helper = (
        llm,
        None,
    )  # some engines ask for no other, and the helper is cached
    found = case.run(llm)
    if inspect.isawaitable(found):
        await found
    return len(server.requests)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_every_request_of_a_turn_is_accepted(case: Any) -> None:
    """No request is over the window or invalid, and no more are made than the stock engine makes with a window that never ends."""
    stock = None
    with StrictModelServer(default=Reply(text="The answer."), context_window=10**9) as lenient:
        try:
            stock = await _turn(case, _llm(lenient), lenient)
        except ValueError as error:  # the stock engine's own helper may refuse
            assert re.search("not non-negative|is not positive", str(error))  # noqa: PT017
    with StrictModelServer(default=Reply(text="The answer."), context_window=WINDOW) as server:
        budget = TokenBudget(context_window=WINDOW, reserve=REPLY, shorten_question=True)
        made = await _turn(case, budget_model(_llm(server), budget, counter="o200k_base"), server)
        assert [r.problems for r in server.requests if r.problems] == []
        assert made > 0
        assert stock is None or made <= stock


def _subclasses(base: type) -> Iterator[type]:
    for found in base.__subclasses__():
        if found.__module__.startswith("llama_index.core"):
            yield found
            yield from _subclasses(found)


def _installed(*bases: type) -> set[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in pkgutil.walk_packages(llama_index.core.__path__, "llama_index.core."):
            try:
                importlib.import_module(module.name)
            except ImportError:  # noqa: PERF203 - an optional library is not here
                continue
    return {found.__name__ for base in bases for found in _subclasses(base)}


def test_no_engine_or_agent_class_is_forgotten() -> None:
    """A class of the installed package has a case, or a reason why it is no door to a model."""
    tested = {case.kind.__name__ for case in CASES}
    assert (
        _installed(BaseChatEngine, BaseQueryEngine, BaseWorkflowAgent, Workflow) - tested - NO_DOOR.keys()
        == set()
    )


def test_no_synthesizer_is_forgotten() -> None:
    """A synthesizer of the installed package is run by the case of its response mode."""
    names = {case.name for case in CASES}
    assert _installed(BaseSynthesizer) - SYNTHESIZERS.keys() - NO_DOOR.keys() == set()
    assert {f"RetrieverQueryEngine-{mode.value}" for mode in SYNTHESIZERS.values()} <= names
    assert {m.value for m in ResponseMode} <= {n.partition("-")[2] for n in names} | {
        "no_text",
        "context_only",
    }


# ---------------------------------------------------------------- structured LLMs
FACTS = '{"facts": ["tea"]}'
LIMIT = 2000
TOLD = ("format", "tool", "instruction", "completion")
QUESTION = "What does item 305 weigh?"


class _Completes(CustomLLM):
    """A completion model that keeps its prompts."""

    prompts: list[str] = Field(default_factory=list)

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata(context_window=LIMIT + 300, num_output=300)

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        self.prompts.append(prompt)
        return CompletionResponse(text=FACTS)

    def stream_complete(self, prompt: str, formatted: bool = False, **_: Any) -> Any:
        yield self.complete(prompt)


def _told(way: str, server: StrictModelServer) -> Any:
    """Returns an LLM that sends an output class in this way, bounded."""
    server.default = ANSWER if way == "tool" else Reply(text=FACTS)
    own: Any = {"api_base": server.base_url, "api_key": "none", "max_retries": 0, "max_tokens": 300}
    made = {
        "format": lambda: OpenAI("gpt-4o", **own),
        "tool": lambda: OpenAI("gpt-4", **own),
        "instruction": lambda: strict_llm(
            server.base_url, is_function_calling_model=False, context_window=LIMIT + 300
        ),
        "completion": _Completes,
    }[way]()
    return budget_model(made, max_tokens=LIMIT)


def _sizes(llm: Any, server: StrictModelServer) -> list[int]:
    assert [r.problems for r in server.requests if r.problems] == []
    return [r.prompt_tokens for r in server.requests] or [
        CL100K.count(text) for text in getattr(llm, "prompts", ())
    ]


@pytest.mark.parametrize("way", TOLD)
@pytest.mark.parametrize("mode", SYNTHESIZERS.values())
async def test_a_structured_llm_answers_whatever_is_found(mode: ResponseMode, way: str) -> None:
    """The prompt helper leaves room for the schema: no call is refused, and no more are made than of the LLM inside."""
    with StrictModelServer(context_window=LIMIT + 300) as server:
        llm, made = _told(way, server), []
        structured = llm.as_structured_llm(Answer)
        Settings.prompt_helper = BudgetPromptHelper.from_llm_metadata(llm.metadata)
        plain = StructuredLLM(llm=llm, output_cls=Answer)
        for asked, known in [*product((llm, structured), (None, llm, structured)), (plain, None)]:
            found = nodes(20)
            if known is not None:
                found = BudgetNodePostprocessor(llm=known).postprocess_nodes(found, query_str=QUESTION)
            texts, before = [item.get_content() for item in found], len(_sizes(llm, server))
            synthesizer = get_response_synthesizer(llm=asked, response_mode=mode)
            synthesizer.get_response(QUESTION, texts)
            await synthesizer.aget_response(QUESTION, texts)
            made.append(len(_sizes(llm, server)) - before)
        assert made[3:] == [*made[:3], made[0]]
        assert max(_sizes(llm, server)) <= LIMIT


@pytest.mark.parametrize("way", TOLD[:3])
@pytest.mark.parametrize("engine", [ContextChatEngine, CondensePlusContextChatEngine])
@pytest.mark.parametrize("helper", [True, False])
async def test_a_structured_llm_chats_whatever_is_found(engine: Any, way: str, helper: bool) -> None:
    """A memory made with the LLM inside does not know of the schema; the helper and the last door do."""
    with StrictModelServer(context_window=LIMIT + 300) as server:
        llm = _told(way, server)
        structured = llm.as_structured_llm(Answer)
        Settings.prompt_helper = BudgetPromptHelper.from_llm_metadata(llm.metadata) if helper else None
        for known in (llm, structured):
            memory = BudgetChatMemoryBuffer.from_defaults(llm=known)
            chat = engine.from_defaults(
                retriever=FixedRetriever(nodes(20)),
                llm=structured,
                memory=memory,
                node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
            )
            for turn in range(4):
                question = f"{QUESTION} Case {turn}: {words(160)}"
                assert "tea" in str(chat.chat(question) if turn % 2 else await chat.achat(question))
        assert max(_sizes(llm, server)) <= LIMIT
