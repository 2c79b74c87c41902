"""Real engines with a memory and a postprocessor that share one session: together they never overflow."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Settings
from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import QueryBundle
from llama_index.core.storage.chat_store import SimpleChatStore

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    budget_model,
    use_session,
)
from rankbudget import BudgetSession, TokenBudget
from tests.llamaindex.models import FixedRetriever, PlayLLM, exchanges, nodes, say, tokens, words

WINDOW, REPLY = 4096, 256
BUDGET = TokenBudget(context_window=WINDOW, reserve=512, max_system_ratio=None)


@pytest.fixture(autouse=True)
def _one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt helper that makes one call with the best nodes."""
    monkeypatch.setattr(Settings, "_prompt_helper", BudgetPromptHelper.from_llm_metadata(_llm().metadata))


def _llm(**fields: Any) -> PlayLLM:
    plain = PlayLLM(window=WINDOW, reply=REPLY, requests=[], steps=[], **fields)
    return budget_model(plain, BUDGET, counter="cl100k_base")


def _shared(host_tokens: int = 0, **fields: Any) -> tuple[BudgetChatMemoryBuffer, BudgetNodePostprocessor]:
    session = BudgetSession(BUDGET, counter="cl100k_base", host_tokens=host_tokens)
    return BudgetChatMemoryBuffer.from_defaults(session=session, **fields), BudgetNodePostprocessor(
        session=session
    )


@pytest.mark.parametrize("engine_class", [ContextChatEngine, CondensePlusContextChatEngine])
@pytest.mark.parametrize("system", ["SYS", words(600)])
def test_history_and_nodes_together_fit_the_window(engine_class: Any, system: str) -> None:
    """With a long past and more nodes than fit, every request stays in the window less the reserve, and nodes are in it."""
    memory, postprocessor = _shared(chat_history=exchanges(60))
    llm = _llm()
    engine = engine_class.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        system_prompt=system,
        node_postprocessors=[postprocessor],
    )
    for turn in range(6):
        response = engine.chat(f"question {turn}?")
        assert response.source_nodes
    assert max(llm.sizes()) <= BUDGET.limit()
    answered = [
        messages for messages, _ in llm.requests if messages[0].role == MessageRole.SYSTEM
    ]  # the others rewrite the question
    assert len(answered) == 6  # one request with nodes for each turn: nothing was split into a second call
    assert [m[-1].content for m in answered] == [f"question {turn}?" for turn in range(6)]


async def test_async_sends_what_sync_sends() -> None:
    """The async path of the same engine makes the same requests."""
    sent = []
    for is_async in (False, True):
        memory, postprocessor = _shared(chat_history=exchanges(60))
        llm = _llm()
        engine = ContextChatEngine.from_defaults(
            retriever=FixedRetriever(nodes(20)),
            llm=llm,
            memory=memory,
            system_prompt="SYS",
            node_postprocessors=[postprocessor],
        )
        for turn in range(3):
            await engine.achat(f"q{turn}") if is_async else engine.chat(f"q{turn}")
        sent.append([[(m.role, m.content) for m in messages] for messages, _ in llm.requests])
    assert sent[0] == sent[1]


def test_streams_fit_too() -> None:
    """The streaming call reads the same memory and nodes."""
    memory, postprocessor = _shared(chat_history=exchanges(60))
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)), llm=llm, memory=memory, node_postprocessors=[postprocessor]
    )
    for turn in range(3):
        assert "".join(engine.stream_chat(f"q{turn}").response_gen) == "done"
    assert max(llm.sizes()) <= BUDGET.limit()
    assert len(memory.get_all()) == 126


def test_the_system_prompt_is_counted_where_the_parts_cannot_see_it() -> None:
    """A system prompt of 1,500 tokens that the session is told takes its room from history and nodes, not from the answer."""
    memory, postprocessor = _shared(host_tokens=1600, chat_history=exchanges(60))
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        system_prompt=words(1500),
        node_postprocessors=[postprocessor],
    )
    engine.chat("hi")
    assert len(llm.requests) == 1
    assert BUDGET.limit() * 0.8 < llm.sizes()[0] <= BUDGET.limit()


def test_what_the_history_leaves_the_nodes_may_use() -> None:
    """A new conversation has little history, so nearly the whole window goes to nodes; a long one leaves them less."""
    kept = []
    for history in ([], exchanges(60)):
        memory, postprocessor = _shared(chat_history=history)
        engine = ContextChatEngine.from_defaults(
            retriever=FixedRetriever(nodes(20)),
            llm=_llm(),
            memory=memory,
            node_postprocessors=[postprocessor],
        )
        kept.append(sum(len(n.text) for n in engine.chat("hi").source_nodes))
    assert kept[0] > 1.5 * kept[1] > 0


def test_reading_twice_in_a_turn_gives_the_same_answer() -> None:
    """The postprocessor fits the history before the memory does; both see the same cut, before and after."""
    memory, postprocessor = _shared(chat_history=exchanges(60))
    first = memory.get("hi")
    kept = postprocessor.postprocess_nodes(nodes(20), query_str="hi")
    second = memory.get("hi")
    again = postprocessor.postprocess_nodes(nodes(20), query_str="hi")
    assert [m.content for m in first] == [m.content for m in second]
    assert [n.text for n in kept] == [n.text for n in again]


def test_one_giant_exchange_in_the_past_stops_nothing() -> None:
    """A past message larger than the window is left out; the new question is answered."""
    memory, postprocessor = _shared(
        chat_history=[*exchanges(3), say("user", words(9000)), say("assistant", words(9000))]
    )
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(5)), llm=llm, memory=memory, node_postprocessors=[postprocessor]
    )
    engine.chat("hi")
    assert llm.sizes()[0] <= BUDGET.limit()
    assert llm.requests[0][0][-1].content == "hi"


def test_default_constructors_hold_two_hundred_turns() -> None:
    """Parts made without any budget take the engine's own window: one call a turn, every request fits, no error."""
    llm = _llm(answer=words(60))
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm)
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        system_prompt="Be brief.",
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    )
    for turn in range(200):
        engine.chat(f"question number {turn} {words(20)}?")
    sizes = llm.sizes()
    assert len(sizes) == 200
    assert max(sizes) <= WINDOW - REPLY
    assert len(memory.get_all()) == 400


def test_a_memory_alone_leaves_nodes_their_room() -> None:
    """Without a postprocessor of ours the history still takes only its share of the engine's window."""
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=exchanges(60))
    engine = ContextChatEngine.from_defaults(retriever=FixedRetriever(nodes(2)), llm=llm, memory=memory)
    engine.chat("hi")
    assert len(llm.requests) == 1
    assert llm.sizes()[0] <= WINDOW - REPLY


def test_a_past_message_is_not_a_template() -> None:
    """Braces of an earlier message that name the engine's variables are not filled in with nodes or the question."""
    memory, postprocessor = _shared(
        chat_history=[say("user", "echo {context_str} and {query_str}"), say("assistant", '{"a": 1}')]
    )
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(2)), llm=llm, memory=memory, node_postprocessors=[postprocessor]
    )
    engine.chat("QQQ")
    sent = [m.content for m in llm.requests[0][0]]
    assert sent[1:] == ["echo { context_str} and { query_str}", '{"a": 1}', "QQQ"]
    assert memory.get_all()[0].content == "echo {context_str} and {query_str}"


def test_a_simple_engine_with_a_large_system_prompt_fits() -> None:
    """Where the stock memory sent 4,449 tokens to a window of 4,096, ours counts the system prompt."""
    llm = _llm()
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=exchanges(60))
    engine = SimpleChatEngine.from_defaults(llm=llm, memory=memory, system_prompt=words(1800))
    engine.chat("hi")
    assert 3000 < llm.sizes()[0] <= WINDOW - 256
    assert llm.requests[0][0][-1].content == "hi"


def test_a_query_engine_fits_its_template() -> None:
    """A postprocessor with a budget leaves room for the query engine's own prompt; one call is made."""
    llm = _llm()
    engine = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(40)),
        llm=llm,
        node_postprocessors=[BudgetNodePostprocessor(budget=BUDGET, counter="cl100k_base")],
    )
    response = engine.query("what does item 105 weigh?")
    assert len(llm.requests) == 1
    assert BUDGET.limit() * 0.8 < llm.sizes()[0] <= BUDGET.limit()
    assert response.source_nodes


async def test_a_query_engine_fits_without_any_budget_given() -> None:
    """The window of the engine's model is the budget when none is given, on the async path too."""
    llm = _llm()
    engine = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(40)), llm=llm, node_postprocessors=[BudgetNodePostprocessor(llm=llm)]
    )
    await engine.aquery("what?")
    engine.query("what?")
    assert len(llm.requests) == 2
    assert max(llm.sizes()) <= WINDOW - REPLY
    assert llm.sizes()[0] == llm.sizes()[1]


async def test_what_an_engine_retrieves_is_what_its_queries_use() -> None:
    """`retrieve` and `aretrieve`, which are called without a request to the model, keep the nodes that `query` keeps."""
    llm = _llm()
    engine = RetrieverQueryEngine.from_args(
        FixedRetriever(nodes(40)), llm=llm, node_postprocessors=[BudgetNodePostprocessor(llm=llm)]
    )
    question = QueryBundle("what does item 105 weigh?")
    used = [n.text for n in engine.query(question).source_nodes]
    assert 0 < len(used) < 40
    assert [n.text for n in engine.retrieve(question)] == used
    assert [n.text for n in await engine.aretrieve(question)] == used


class _AsyncOnly(SimpleChatStore):
    """A store whose blocking methods are not there."""

    def get_messages(self, key: str) -> list[ChatMessage]:
        raise NotImplementedError

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        raise NotImplementedError

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return super().get_messages(key)

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        super().add_message(key, message, idx)


async def test_a_store_that_only_works_asynchronously_is_enough_for_achat() -> None:
    """The postprocessor reads the history of such a store too, and leaves it its room."""
    llm = _llm()
    store = _AsyncOnly(store={"chat_history": exchanges(60)})
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_store=store)
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)),
        llm=llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(memory=memory)],
    )
    response = await engine.achat("hi")
    assert response.source_nodes
    assert llm.sizes()[0] <= WINDOW - REPLY
    assert len(store.store["chat_history"]) == 122


def test_an_engine_shared_by_users_takes_the_session_of_the_call() -> None:
    """`use_session` gives one engine another conversation's session for one call."""
    postprocessor = BudgetNodePostprocessor()
    full, empty = (BudgetSession(BUDGET, counter="cl100k_base") for _ in range(2))
    long = BudgetChatMemoryBuffer.from_defaults(session=full, chat_history=exchanges(60))
    short = BudgetChatMemoryBuffer.from_defaults(session=empty)
    kept = {}
    for name, session in (("long", full), ("short", empty)):
        with use_session(session):
            kept[name] = len(postprocessor.postprocess_nodes(nodes(20), query_str="hi"))
    assert kept["long"] < kept["short"]
    assert tokens(long.get("hi")) < BUDGET.limit()
    assert short.get("hi") == []


def test_parts_report_what_they_did() -> None:
    """`fit` returns the messages with a reason for each."""
    memory, _ = _shared(chat_history=exchanges(60))
    result = memory.fit("hi")
    reasons = {d.reason for d in result.report.decisions}
    assert reasons == {"fits", "older_than_cut"}
    assert len(result.report.decisions) == 120
    assert all(isinstance(m, ChatMessage) for m in result.messages)


def test_a_past_full_of_template_variables_still_fits() -> None:
    """What defusing adds to each kept message is counted, in the memory and in the room left for nodes."""
    memory, postprocessor = _shared(
        chat_history=[say(role, "{query_str} " * 60) for _ in range(40) for role in ("user", "assistant")]
    )
    llm = _llm()
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(20)), llm=llm, memory=memory, node_postprocessors=[postprocessor]
    )
    for turn in range(3):
        engine.chat(f"question {turn}")
    assert len(llm.requests) == 3
    assert max(llm.sizes()) <= BUDGET.limit()


def test_a_session_learns_what_the_host_adds() -> None:
    """After one request through `budget_model` the session knows the rules that stand before the history."""
    session = BudgetSession(BUDGET, counter="cl100k_base")
    llm = budget_model(PlayLLM(window=WINDOW, reply=REPLY, requests=[], steps=[]), session)
    memory = BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=exchanges(60))
    rules = say("system", words(300))
    for turn in range(3):
        memory.put(say("user", f"question {turn}"))
        kept = memory.get()
        llm.chat([rules, *kept])
        assert session.host_tokens == tokens([rules]) - 3
        memory.put(say("assistant", "fine"))
    assert len(llm.requests[-1][0]) == 1 + len(kept)  # nothing was left to cut at the last door
