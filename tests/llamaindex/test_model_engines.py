"""Every engine and agent class of llama-index-core through `budget_model`, over HTTP, against a server that refuses what providers refuse."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import warnings
from collections.abc import Iterator
from typing import Any

import llama_index.core
import pytest
from llama_index.core import Settings
from llama_index.core.agent.workflow.base_agent import BaseWorkflowAgent
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.chat_engine.types import BaseChatEngine
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.response_synthesizers.base import BaseSynthesizer
from llama_index.core.workflow import Workflow
from llama_index.llms.openai_like import OpenAILike

from llamaindex_budget import budget_model
from rankbudget import TokenBudget
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.engine_cases import CASES, NO_DOOR, SYNTHESIZERS
from tests.llamaindex.models import strict_llm

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
