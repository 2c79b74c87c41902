"""`token_limit` bounds the history, the window the whole prompt: neither prevents the other."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.query_engine import RetrieverQueryEngine

from llamaindex_budget import BudgetChatMemoryBuffer, BudgetMemory, BudgetNodePostprocessor, budget_model
from rankbudget import BudgetExceededError, BudgetSession, TokenBudget
from tests.drawing import draws
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM, exchanges, nodes, say, tokens, words

STORES: dict[Any, Any] = {BudgetChatMemoryBuffer: dict, BudgetMemory: lambda: {"chat_store": ListStore()}}


def _llm(window: int = 128_000, reply: int = 1000, *, shorten: bool = False, **fields: Any) -> PlayLLM:
    budget = TokenBudget(context_window=window, reserve=reply, shorten_question=True) if shorten else None
    return budget_model(PlayLLM(window=window, reply=reply, requests=[], steps=[], **fields), budget)


def _history(sent: Any) -> list[Any]:
    return [m for m in sent[0][1:-1] if m.role in ("user", "assistant")]


@pytest.mark.parametrize("system", [100, 2500, 20_000])
@pytest.mark.parametrize("engine_class", [ContextChatEngine, CondensePlusContextChatEngine, SimpleChatEngine])
def test_a_long_system_prompt_takes_nothing_from_the_history_where_the_window_is_large(
    engine_class: Any, system: int
) -> None:
    """With 128,000 tokens of window a token_limit of 3,000 is filled with history, whatever the system prompt and the nodes take."""
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, token_limit=3000, chat_history=exchanges(90))
    options: dict[str, Any] = {"llm": llm, "memory": memory, "system_prompt": words(system)}
    if engine_class is not SimpleChatEngine:
        options |= {
            "retriever": FixedRetriever(nodes(5)),
            "node_postprocessors": [BudgetNodePostprocessor(memory=memory)],
        }
    engine_class.from_defaults(**options).chat("x?")
    history = _history(llm.requests[-1])
    assert 2500 < tokens(history) <= 3000
    if engine_class is not SimpleChatEngine:
        assert all(f"Node {i} fact" in llm.requests[-1][0][0].content for i in range(5))


def test_a_shared_session_keeps_the_two_apart_as_well() -> None:
    """With a session's window of 128,000 tokens a token_limit of 1,500 bounds the history alone."""
    llm, sizes = _llm(), []
    for system in (100, 1400):
        session = BudgetSession(
            TokenBudget(context_window=128_000, reserve=1000, max_system_ratio=None), counter="cl100k_base"
        )
        memory = BudgetChatMemoryBuffer.from_defaults(
            chat_history=exchanges(90), token_limit=1500, session=session
        )
        post = BudgetNodePostprocessor(session=session)
        ContextChatEngine.from_defaults(
            retriever=FixedRetriever(nodes(5)),
            llm=llm,
            memory=memory,
            node_postprocessors=[post],
            system_prompt=words(system),
        ).chat("x?")
        sizes.append(tokens(_history(llm.requests[-1])))
    assert 1200 < sizes[0] == sizes[1] <= 1500


@pytest.mark.parametrize("system", [1400, 3000])
def test_nodes_get_their_room_from_the_window(system: int) -> None:
    """A `BudgetMemory` of 1,500 tokens leaves all nodes whole beside any system prompt that the window holds."""
    llm = _llm()
    memory = BudgetMemory.from_defaults(
        llm=llm, chat_history=exchanges(90), token_limit=1500, chat_store=ListStore()
    )
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(5)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
        system_prompt=words(system),
    )
    assert len(engine.chat("x?").source_nodes) == 5
    assert "Node 4 fact 17" in llm.requests[-1][0][0].content


@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
@pytest.mark.parametrize("limit", [600, 3000, 50_000])
@pytest.mark.parametrize("system", [10, 900])
def test_the_whole_prompt_never_exceeds_the_window(kind: Any, limit: int, system: int) -> None:
    """Whatever token_limit says, history, nodes and system prompt together stay in a window of 2,800 tokens less the answer."""
    llm = _llm(2800, 300)
    prompt = words(system)
    memory = kind.from_defaults(
        llm=llm, token_limit=limit, prompt=prompt, chat_history=exchanges(90), **STORES[kind]()
    )
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
        system_prompt=words(system),
    )
    for turn in range(3):
        engine.chat(f"and {turn}?")
    assert len(llm.requests) == 3
    assert max(llm.sizes()) <= 2500


def test_a_number_as_session_bounds_the_whole_prompt() -> None:
    """`BudgetSession(1500)` is the limit of everything, as its documentation says, and nodes still get a share."""
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(
        chat_history=exchanges(90), session=BudgetSession(1500, counter="cl100k_base")
    )
    ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    ).chat("x?")
    assert llm.sizes()[0] <= 1500
    assert "Node 0" in llm.requests[0][0][0].content


def test_a_refusal_names_token_limit() -> None:
    """When rules in the history alone exceed token_limit, the error says so by that name."""
    memory = BudgetChatMemoryBuffer.from_defaults(
        token_limit=50, chat_history=[say("system", words(90)), say("user", "hi")]
    )
    with pytest.raises(BudgetExceededError, match=r"token_limit=50 bounds the history"):
        memory.get()


def test_a_share_kept_empty_is_not_given_back() -> None:
    """With a budget's safety as a share, a smaller token_limit still is the limit, to the token."""
    budget = TokenBudget(context_window=100_000, reserve=1000, safety=0.2, max_system_ratio=None)
    memory = BudgetMemory.from_defaults(
        token_limit=1000, budget=budget, chat_history=exchanges(90), chat_store=ListStore()
    )
    assert 800 < tokens(memory.get()) <= 1000


@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
@pytest.mark.parametrize("question", ["x?", "What about the house? " * 60])
def test_a_question_that_is_condensed_first_fits(kind: Any, question: str) -> None:
    """The prompt that rewrites the question holds history, question and a template; all of it fits the window."""
    llm = _llm(2000, 300, shorten=True, answer="What about the house?")
    inner = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(9)), llm=llm, node_postprocessors=[BudgetNodePostprocessor(llm=llm)]
    )
    chat = [say(role, f"Part {n} is fine. " * 100) for n in range(9) for role in ("user", "assistant")]
    memory = kind.from_defaults(llm=llm, chat_history=chat, token_limit=1500, **STORES[kind]())
    CondenseQuestionChatEngine.from_defaults(query_engine=inner, llm=llm, memory=memory).chat(question)
    assert len(llm.requests) == 2
    assert max(llm.sizes()) <= 1700
    assert "Part 8 is fine." in llm.requests[0][0][0].content


@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
async def test_what_a_written_history_adds_is_paid_for(kind: Any) -> None:
    """A history written out as one text shows what messages carry beside their content, and that is counted too."""
    llm = _llm(2000, 300, shorten=True)
    chat = [
        say(role, f"Part {n} is fine.", trace=words(30, "step"))
        for n in range(90)
        for role in ("user", "assistant")
    ]
    memory = kind.from_defaults(llm=llm, chat_history=chat, token_limit=1900, **STORES[kind]())
    inner = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(2)), llm=llm, node_postprocessors=[BudgetNodePostprocessor(llm=llm)]
    )
    await CondenseQuestionChatEngine.from_defaults(query_engine=inner, llm=llm, memory=memory).achat(
        "and now?"
    )
    CondensePlusContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(2)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    ).chat("and then?")
    assert len(llm.requests) == 4
    assert "step" in llm.requests[0][0][0].content
    assert max(llm.sizes()) <= 1700


@pytest.mark.parametrize("kind", [BudgetChatMemoryBuffer, BudgetMemory])
def test_a_question_that_was_answered_before_is_counted_again(kind: Any) -> None:
    """Asked twice in the same words, the second question is not in the memory yet; an unanswered one is."""
    question = words(60)
    memory = kind.from_defaults(token_limit=150, **STORES[kind]())
    memory.put(say("user", question))
    assert tokens(memory.get(question)) == tokens([say("user", question)])
    memory.put(say("assistant", "fine " * 40))
    assert tokens([*memory.get(question), say("user", question)]) <= 150


def test_a_drop_in_for_the_stock_buffer_sends_as_much_history() -> None:
    """In an engine, ours sends of a short conversation what the stock buffer sends at the same token_limit: all of it."""
    sent = []
    for kind in (ChatMemoryBuffer, BudgetChatMemoryBuffer):
        llm = _llm()
        memory = kind.from_defaults(token_limit=1500, chat_history=exchanges(10))
        SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt=words(400)).chat("x?")
        sent.append(len(llm.requests[0][0]))
    assert sent == [22, 22]


@draws(asynchronous=True)  # each draw is up to sixteen turns, each with two model calls
@drawn(limit=st.integers(450, 2500), turns=st.integers(6, 16), size=st.integers(2, 40))
def test_a_chat_with_nodes_goes_on_in_a_small_window(limit: int, turns: int, size: int) -> None:
    """The history leaves the synthesizer the room that it keeps free beside nodes, turn after turn."""
    llm = budget_model(PlayLLM(window=limit + 40, reply=40, requests=[], steps=[]), max_tokens=limit)
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm)
    engine = CondensePlusContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(12)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    )
    for turn in range(turns):
        engine.chat(f"What is fact {turn}? " + words(size))
    assert len(memory.get_all()) == 2 * turns


def test_a_question_within_the_limit_of_the_llm_is_never_refused() -> None:
    """With an LLM and no limit of its own, what fits the LLM fits the memory, and a refusal names its true limit."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=1500, counter="gpt-4o")
    for size in range(905, 1494, 98):
        question = ChatMessage(" word" * size)
        memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, counter="gpt-4o")
        memory.put(ChatMessage("older"))
        memory.put(ChatMessage("yes", role="assistant"))
        memory.put(question)
        assert memory.get()[-1].content == question.content
    bounded = BudgetChatMemoryBuffer.from_defaults(llm=llm, counter="gpt-4o", token_limit=900)
    bounded.put(ChatMessage(" word" * 1000))
    with pytest.raises(BudgetExceededError, match="the limit is 900") as caught:
        bounded.get()
    assert "rest of the prompt" not in str(caught.value)


@drawn(turns=st.integers(1, 60), limit=st.integers(1100, 4000))
def test_a_stored_question_has_all_of_a_bounded_llms_limit_for_its_history(turns: int, limit: int) -> None:
    """An agent stores its question before it reads: no nodes come, and a buffer keeps what `BudgetMemory` does."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=limit)
    found = []
    for kind, stored in STORES.items():
        memory = kind.from_defaults(llm=llm, **stored())
        memory.put_messages([*exchanges(turns), say("user", "and now?")])
        found.append([message.content for message in memory.get("and now?")])
    assert found[0] == found[1]


def test_a_plain_llm_keeps_the_share_of_the_stock_buffer_free() -> None:
    """It has no last door: system prompt and tools of an agent need room that the memory does not see."""
    llm = PlayLLM(window=5000, reply=1000, requests=[], steps=[])
    memory = BudgetChatMemoryBuffer.from_defaults(
        llm=llm, chat_history=[*exchanges(200), say("user", "now?")]
    )
    copied = BudgetChatMemoryBuffer.from_dict(memory.to_dict())
    for one in (memory, copied):
        assert tokens(one.get()) <= 3000 < tokens(one.get_all())
