"""The chat memory: accepted wherever a `ChatMemoryBuffer` is, and never over its limit."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import threading
from collections.abc import Callable
from typing import Any

import llama_index.core
import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import CondenseQuestionChatEngine, SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer, SimpleComposableMemory
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.storage.chat_store import BaseChatStore, SimpleChatStore
from llama_index.core.tools import FunctionTool
from llama_index.core.workflow import Context

from llamaindex_budget import BudgetChatMemoryBuffer
from rankbudget import BudgetError, BudgetExceededError, BudgetSession, TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import RecordingCounter
from tests.llamaindex.models import (
    FixedRetriever,
    PlayLLM,
    calls,
    exchanges,
    nodes,
    result,
    say,
    tokens,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows

CHAT = [
    say("system", "RULE"),
    *exchanges(20),
    calls("c1", "c2"),
    result("c1", "one"),
    result("c2", "two"),
    say("user", "last"),
]


def length(text: str) -> list[str]:
    """Splits at white space: a tokenizer that can be found by its name."""
    return text.split()


def _memory(**fields: Any) -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(**{"token_limit": 400, "chat_history": CHAT, **fields})


def _llm(**fields: Any) -> PlayLLM:
    return PlayLLM(**{"requests": [], "steps": [], **fields})


# ---------------------------------------------------------------- reading
def test_get_is_within_the_limit_and_valid() -> None:
    """What comes back counts at most the limit, starts with the system message and the user, and ends with the question."""
    got = _memory().get()
    assert tokens(got) <= 400
    assert [m.role.value for m in got[:2]] == ["system", "user"]
    assert got[-1].content == "last"


async def test_async_gets_what_sync_gets() -> None:
    """`aget`, `aput`, `aset`, `aget_all` and `areset` are the same operations."""
    memory = _memory()
    assert await memory.aget() == memory.get()
    await memory.aput(say("user", "more"))
    await memory.aput_messages([say("assistant", "yes"), say("user", "and?")])
    assert [m.content for m in await memory.aget_all()][-3:] == ["more", "yes", "and?"]
    await memory.aset(exchanges(1))
    assert len(await memory.aget_all()) == len(memory.get_all()) == 2
    await memory.areset()
    assert memory.get() == await memory.aget() == []


def test_the_smaller_of_limit_and_budget_wins() -> None:
    """`token_limit` is a ceiling beside a budget, and a budget is one beside `token_limit`."""
    budget = TokenBudget(context_window=1000, reserve=400)
    assert tokens(_memory(budget=budget, token_limit=300).get()) <= 300
    roomy = tokens(_memory(budget=budget, token_limit=5000).get())
    assert 400 < roomy <= 600
    assert BudgetChatMemoryBuffer.from_defaults(budget=budget).token_limit == 600


def test_tokens_in_front_are_taken_off() -> None:
    """`initial_token_count` takes its room from the history; more than the limit is a typed error that is a ValueError."""
    assert tokens(_memory().get(initial_token_count=250)) <= 150
    with pytest.raises(
        BudgetExceededError, match=r"Initial token count exceeds token limit: token_limit must be 401 or more"
    ):
        _memory().get(initial_token_count=401)
    assert issubclass(BudgetError, ValueError)


def test_a_question_not_yet_stored_has_its_room() -> None:
    """`get(input=...)` leaves room for the question; a question that is stored already is not counted twice."""
    memory = _memory()
    assert tokens([*memory.get("words " * 100), say("user", "words " * 100)]) <= 400
    assert memory.get("last") == memory.get()


def test_results_are_copies_and_reading_changes_nothing() -> None:
    """Editing a result edits neither the store nor the caller's messages; a second `get` equals the first."""
    given = exchanges(5)
    before = copy.deepcopy(given)
    memory = _memory(chat_history=given)
    first = memory.get()
    for message in first:
        message.blocks[0].text = "EDITED"
    memory.put(say("user", "more"))
    memory.get_all()[0].blocks[0].text = "EDITED"
    assert given == before
    assert all("EDITED" not in (m.content or "") for m in memory.get_all() + memory.get())


def test_a_message_put_is_a_copy() -> None:
    """Changing a message after it was put does not change what is stored."""
    memory = _memory(chat_history=[])
    message = say("user", "as it was")
    memory.put(message)
    message.blocks[0].text = "changed"
    assert memory.get()[0].content == "as it was"


def test_only_what_is_kept_is_ever_counted() -> None:
    """Of 2,000 messages the counter sees what is kept and one exchange more; later reads the new message and the exchange it reopens."""
    counter = RecordingCounter(counter_for("cl100k_base"))
    memory = BudgetChatMemoryBuffer.from_defaults(
        token_limit=1000, chat_history=exchanges(1000), counter=counter
    )
    kept = len(memory.get())
    assert counter.messages <= kept + 2
    counted = counter.messages
    memory.get()
    memory.put(say("user", "new"))
    memory.get()
    assert counter.messages <= counted + 3


def test_an_appended_message_keeps_the_prefix() -> None:
    """Turn after turn the kept messages start alike until the limit is reached; then the cut jumps once."""
    memory = _memory(token_limit=1000, chat_history=[])
    starts = []
    for i, message in enumerate(exchanges(60)):
        memory.put(message)
        starts.append(memory.get()[0].content)
        assert tokens(memory.get()) <= 1000, i
    moves = sum(a != b for a, b in itertools.pairwise(starts))
    assert 0 < moves <= 12


def test_a_summary_stands_for_what_went() -> None:
    """With a summarizer, what no longer fits is summarized; the stored messages stay."""
    llm = _llm(answer="they said words")
    memory = _memory(summarizer=llm)
    got = memory.get()
    assert "they said words" in (got[1].content or "")
    assert tokens(got) <= 400
    assert len(memory.get_all()) == len(CHAT)


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failing_summarizer_loses_nothing(is_async: bool) -> None:
    """When the model is down the memory answers as without a summarizer, and says so in the report."""
    memory = _memory(summarizer=_llm(fail=True))
    fitted = await memory.afit() if is_async else memory.fit()
    assert [m.content for m in fitted.messages] == [m.content for m in _memory().get()]
    assert any("summary" in warning for warning in fitted.report.warnings)
    assert len(memory.get_all()) == len(CHAT)


def test_many_threads_put_and_get() -> None:
    """Eight threads writing and reading leave every message stored once, and every result within the limit."""
    memory = _memory(chat_history=[])
    sizes: list[int] = []

    def work(number: int) -> None:
        for i in range(25):
            memory.put_messages([say("user", f"{number}/{i}"), say("assistant", "ok")])
            sizes.append(tokens(memory.get()))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = memory.get_all()
    assert len(stored) == 400
    assert all(m.role.value == role for m, role in zip(stored, ["user", "assistant"] * 200, strict=True))
    assert max(sizes) <= 400


# ---------------------------------------------------------------- the host's contract
def test_it_is_a_chat_memory_buffer_and_never_falsy() -> None:
    """An empty memory must be truthy: engines write `memory or default`."""
    memory = BudgetChatMemoryBuffer.from_defaults()
    assert isinstance(memory, ChatMemoryBuffer)
    assert bool(memory)
    assert not hasattr(type(memory), "__len__")
    assert (memory.token_limit, memory.chat_store_key, memory.class_name()) == (
        3000,
        "chat_history",
        "BudgetChatMemoryBuffer",
    )


def test_limits_and_unknown_arguments_are_checked() -> None:
    """A limit below 1 and unknown arguments are typed errors, which are ValueErrors as the stock buffer's."""
    for bad in (0, -1):
        with pytest.raises(BudgetConfigError, match="token_limit must be a whole number from 1"):
            BudgetChatMemoryBuffer.from_defaults(token_limit=bad)
    with pytest.raises(BudgetConfigError, match="no option 'tokn_limit'; did you mean 'token_limit'"):
        BudgetChatMemoryBuffer.from_defaults(tokn_limit=10)
    assert BudgetChatMemoryBuffer.from_defaults(llm=_llm(window=4096)).token_limit == 4096 - 1228


class ListStore(SimpleChatStore):
    """Another store of the user's own."""

    @classmethod
    def class_name(cls) -> str:
        return "ListStore"


@pytest.mark.parametrize("store", [SimpleChatStore, ListStore])
def test_any_store_under_any_key(store: type[BaseChatStore]) -> None:
    """Two memories on one store keep apart by their keys."""
    shared = store()
    ann, bob = (
        BudgetChatMemoryBuffer.from_defaults(token_limit=100, chat_store=shared, chat_store_key=key)
        for key in ("ann", "bob")
    )
    ann.put(say("user", "I am Ann"))
    bob.put(say("user", "I am Bob"))
    assert ([m.content for m in ann.get()], [m.content for m in bob.get()]) == (["I am Ann"], ["I am Bob"])
    assert sorted(shared.get_keys()) == ["ann", "bob"]


@pytest.mark.parametrize(
    "leave",
    [
        lambda m: type(m).from_dict(json.loads(json.dumps(m.to_dict()))),
        lambda m: type(m).from_string(m.to_string()),
        lambda m: pickle.loads(pickle.dumps(m)),
        copy.deepcopy,
    ],
    ids=["dict", "string", "pickle", "deepcopy"],
)
@pytest.mark.parametrize("store", [SimpleChatStore, ListStore])
def test_a_memory_survives_leaving_the_process(
    leave: Callable[[Any], Any], store: type[BaseChatStore]
) -> None:
    """Messages, limits, budget and tokenizer come back; the memory that was written stays usable."""
    budget = TokenBudget(context_window=1000, reserve=500, ratios={"memory": 0.2, "history": 0.8})
    memory = _memory(budget=budget, token_limit=390, tokenizer_fn=length, chat_store=store())
    restored = leave(memory)
    assert restored.get_all() == memory.get_all()
    assert restored.get() == memory.get()
    assert (restored.token_limit, restored.budget, restored.tokenizer_fn("a b")) == (390, budget, ["a", "b"])
    assert type(restored.chat_store) is store
    restored.put(say("user", "only there"))
    assert len(memory.get_all()) == len(CHAT)


def test_a_dict_given_to_from_dict_stays_as_it_is() -> None:
    """Loading twice from one dict works, because nothing is taken out of it."""
    data = _memory().to_dict()
    before = json.dumps(data)
    for _ in range(2):
        assert len(BudgetChatMemoryBuffer.from_dict(data).get_all()) == len(CHAT)
    assert json.dumps(data) == before


def test_what_a_stock_buffer_wrote_can_be_read() -> None:
    """The stock shapes, with a store or with a bare chat_history, load."""
    message = say("user", "hello").model_dump(mode="json")
    new = {
        "token_limit": 10,
        "chat_store": {"store": {"k": [message]}, "class_name": "SimpleChatStore"},
        "chat_store_key": "k",
    }
    old = {"token_limit": 10, "chat_history": [message], "class_name": "ChatMemoryBuffer"}
    assert [BudgetChatMemoryBuffer.from_dict(d).get()[0].content for d in (new, old)] == ["hello", "hello"]


def test_a_lambda_tokenizer_is_lost_loudly_never_from_the_live_memory() -> None:
    """A tokenizer without a name cannot be restored; pickling leaves the live memory as it was."""
    memory = _memory(tokenizer_fn=lambda text: text.split())
    restored = pickle.loads(pickle.dumps(memory))
    assert memory.tokenizer_fn("a b") == ["a", "b"]
    assert restored.get_all() == memory.get_all()
    written = json.loads(json.dumps(memory.to_dict()))
    with pytest.raises(BudgetConfigError, match=r"lambda.*not loaded here"):
        BudgetChatMemoryBuffer.from_dict(written)
    assert BudgetChatMemoryBuffer.from_dict(written, tokenizer_fn=length).get_all() == memory.get_all()
    with pytest.raises(BudgetConfigError, match="not loaded here"):
        BudgetChatMemoryBuffer.from_dict(
            {**_memory(tokenizer_fn=length).to_dict(), "tokenizer": "nowhere:tokenizer"}
        )


def test_the_global_tokenizer_is_the_global_one_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A memory that counts with LlamaIndex's global tokenizer loads where that has no name."""
    monkeypatch.setattr(llama_index.core, "global_tokenizer", lambda text: text.split())
    memory = _memory()
    for restored in (BudgetChatMemoryBuffer.from_dict(memory.to_dict()), pickle.loads(pickle.dumps(memory))):
        assert restored.get() == memory.get()


def test_an_unknown_store_is_a_typed_error() -> None:
    """A store class that is not imported is named, and nothing is imported from data."""
    with pytest.raises(BudgetConfigError, match="'NoStore' is not known here"):
        BudgetChatMemoryBuffer.from_dict({"token_limit": 10, "chat_store": {"class_name": "NoStore"}})


# ---------------------------------------------------------------- engines and agents that take it
def test_a_simple_engine_makes_it_by_its_class() -> None:
    """`memory_cls=` is called with the engine's own arguments."""
    llm = _llm()
    engine = SimpleChatEngine.from_defaults(
        llm=llm, memory_cls=BudgetChatMemoryBuffer, chat_history=exchanges(100)
    )
    engine.chat("hi")
    assert llm.sizes()[0] <= 4096 - 256
    assert len(engine.chat_history) == 202


def test_a_condense_question_engine_reads_and_writes_it() -> None:
    """The engine that rewrites the question keeps both sides of each turn."""
    llm = _llm()
    inner = RetrieverQueryEngine.from_args(FixedRetriever(nodes(2)), llm=llm)
    engine = CondenseQuestionChatEngine.from_defaults(inner, memory=_memory(token_limit=1000), llm=llm)
    engine.chat("hi")
    assert [m.content for m in engine.chat_history][-2:] == ["hi", "done"]


def test_it_is_the_primary_memory_of_a_composed_one() -> None:
    """`SimpleComposableMemory` takes it as its primary memory."""
    composed = SimpleComposableMemory.from_defaults(primary_memory=_memory())
    composed.put(say("user", "more"))
    assert composed.get()[-1].content == "more"


async def test_an_agent_uses_it_and_its_context_survives() -> None:
    """A function agent stores call, result and answer in it; the serialized context brings the memory back."""
    tool = FunctionTool.from_defaults(lambda q: f"found {q}", name="search", description="Search.")
    agent = FunctionAgent(tools=[tool], llm=_llm(steps=[calls("c1")]), system_prompt="SYS")
    context = Context(agent)
    memory = _memory(token_limit=1000)
    await agent.run("question", memory=memory, ctx=context)
    assert [m.role.value for m in memory.get_all()][-4:] == ["user", "assistant", "tool", "assistant"]
    restored = Context.from_dict(agent, json.loads(json.dumps(context.to_dict())))
    again = await restored.store.get("memory")
    assert isinstance(again, BudgetChatMemoryBuffer)
    assert again.get_all() == memory.get_all()


async def test_an_agents_state_does_not_reach_the_stored_message() -> None:
    """The agent writes its state into the message it was handed; the stored one stays the user's."""
    agent = FunctionAgent(tools=[], llm=_llm(), initial_state={"count": 1})
    memory = _memory(chat_history=[])
    await agent.run("question", memory=memory)
    assert memory.get_all()[0].content == "question"


def test_a_session_that_reads_dicts_reads_messages_here() -> None:
    """A session made without a codec takes this one."""
    session = BudgetSession(TokenBudget(context_window=1000, reserve=400))
    memory = BudgetChatMemoryBuffer.from_defaults(session=session, chat_history=CHAT)
    assert memory.get()[-1].content == "last"
    assert memory.session is session


def test_a_limit_raised_later_takes_effect() -> None:
    """`token_limit` is read with every call, not once."""
    memory = _memory(token_limit=100)
    assert tokens(memory.get()) <= 100
    memory.token_limit = 100_000
    assert [m.content for m in memory.get()] == [m.content for m in CHAT]
