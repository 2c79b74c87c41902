"""Entry points that have the same slots keep the same pieces, or refuse with the same numbers.

`python tests/parity/doors.py` prints how often each pair agrees and what differs.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.schema import NodeWithScore, TextNode

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetNodePostprocessor, budget_model
from rankbudget import BudgetSession, TokenBudget
from tests.llamaindex.models import FixedRetriever, PlayLLM, exchanges
from tests.parity.doors import KINDS, PAIRS
from tests.parity.draws import draws_of
from tests.parity.table import agreement, async_agreement, model_calls, told

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # a host's own

ENGINES = [(kind, door) for kind, doors in KINDS.items() for door in doors if "Engine" in door.name]
WITHOUT_ASYNC = {
    "core FewShotSelector",
    "core fit_documents",
    "LI few_shot_function",
    "LI BudgetFunctionAgent",
}
ASYNC = [(kind, door) for kind, doors in KINDS.items() for door in doors if door.name not in WITHOUT_ASYNC]


def _pair(value: Any) -> str:
    return value if isinstance(value, str) else value.name


@pytest.mark.parametrize(("kind", "first", "second"), PAIRS, ids=_pair)
def test_doors_with_the_same_slots_keep_the_same_pieces(kind: str, first: Any, second: Any) -> None:
    """Turn after turn both doors keep the same pieces and texts, or refuse with the same limit and needed tokens."""
    found = agreement(kind, first, second, draws_of())
    assert found.agreed == found.compared, told(kind, first, second, found)


@pytest.mark.parametrize(("kind", "door"), ASYNC, ids=_pair)
def test_async_keeps_what_sync_keeps(kind: str, door: Any) -> None:
    """The async form of a door keeps what its blocking form keeps, and refuses what that refuses."""
    found = async_agreement(
        kind, door, max(10, draws_of() // 5), asyncio.get_event_loop_policy().get_event_loop()
    )
    assert found.agreed == found.compared, told(kind, door, door, found)


@pytest.mark.parametrize(("kind", "door"), ENGINES, ids=_pair)
def test_an_engine_asks_its_model_once_a_turn(kind: str, door: Any) -> None:
    """Kept documents are in one request: none of them makes the host split the prompt into a second call."""
    once, turns = model_calls(kind, door, draws_of())
    assert once == turns, f"{turns - once} of {turns} turns made another number of model calls than one"


TEXTS = {
    "English": "Item {i} of shelf {n} weighs {i} grams and is stored behind the door.",
    "Hindi": "\u0935\u0938\u094d\u0924\u0941 {i} \u0915\u093e \u0935\u091c\u0928 {n} \u0917\u094d\u0930\u093e\u092e \u0939\u0948\u0964",
}
"""Two tokenizers differ on the second: o200k_base counts far less than the host's cl100k_base."""


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("counter", ["o200k_base", "gpt-4o", "cl100k_base"])
def test_an_engine_whose_window_is_the_budget_asks_its_model_once(counter: str, text: str) -> None:
    """Twelve turns of a context engine make twelve model calls, whatever tokenizer the budget counts with.

    Where the budget's tokenizer counts far less than the host's, the last door's window says so to the host.
    """
    budget = TokenBudget(context_window=4096, reserve=256, max_system_ratio=None)
    session = BudgetSession(budget, counter=counter)
    llm = PlayLLM(window=4096, reply=256, requests=[], steps=[])
    llm = llm if text == "English" else budget_model(llm, session)
    found = [" ".join(TEXTS[text].format(i=i, n=n) for i in range(20)) for n in range(30)]
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever([NodeWithScore(node=TextNode(text=t), score=0.5) for t in found]),
        llm=llm,
        memory=BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=exchanges(60)),
        node_postprocessors=[BudgetNodePostprocessor(session=session)],
    )
    for turn in range(12):
        engine.chat(f"question {turn}?")
    assert len(llm.requests) == 12


def test_every_kind_compares_different_packages() -> None:
    """The matrix has no kind with a single door, and no door is in a kind twice."""
    for kind, doors in KINDS.items():
        assert len({door.name for door in doors}) == len(doors) > 1, kind
