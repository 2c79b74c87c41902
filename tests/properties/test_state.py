"""What an entry point remembers is numbers and one summary: no text but this call's input reaches a model."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

pytest.importorskip("langchain")
pytest.importorskip("llama_index.core")
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables.history import RunnableWithMessageHistory
from langgraph.checkpoint.memory import InMemorySaver

import langchain_budget as lb
from rankbudget import BudgetSession
from rankbudget.errors import BudgetConfigError
from tests.drawing import draws
from tests.properties.asking import ASKING, Ask, middleware_way
from tests.properties.stateful import WAYS, core_rows
from tests.properties.ways import COUNTER, Rows, Summarizer, Way, markers
from tests.properties.ways_langchain import Recorder, Store

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::pydantic.warnings.PydanticDeprecationWarning"
    ),  # the host's workflows
]

NAMED = [way for way in WAYS if way.named]
SUMMARIZING = [way for way in NAMED if way.summarizes]
RUNS = [(way, False) for way in WAYS] + [(way, True) for way in SUMMARIZING]
BYTES_A_MESSAGE = 100
ONCE = 60_000
"""Bytes a thread may take whatever its length: a session, its settings, a summary, the last report."""


def _name(value: Any) -> str:
    return value.name if isinstance(value, Way) else str(value)


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Gives each test the loop that LlamaIndex's blocking calls run on."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield made
    asyncio.set_event_loop(None)
    made.close()


class Users:
    """The conversations of some users, each text with a marker that nothing else has; a version counts its edits."""

    def __init__(self) -> None:
        self.threads: dict[str, list[dict[str, Any]]] = {}
        self.written = 0

    def text(self, user: str, size: int) -> str:
        self.written += 1
        return f"z{user}{self.written}v0" + " word" * size

    def ask(self, user: str, size: int, question: int = 5) -> list[dict[str, Any]]:
        """Answers the user's last question, adds a new one, and returns the whole thread."""
        thread = self.threads.setdefault(user, [])
        if thread:
            thread.append({"role": "assistant", "content": self.text(user, size)})
        thread.append({"role": "user", "content": self.text(user, question)})
        return thread

    def edit(self, user: str, place: int, size: int) -> list[dict[str, Any]]:
        """Replaces the text of one message by another one."""
        thread = self.threads[user]
        thread[place % len(thread)]["content"] = self.text(user, size)
        return thread

    def shrink(self, user: str) -> list[dict[str, Any]]:
        """Replaces every text by a short one, so that there is room for all again."""
        for place in range(len(self.threads[user])):
            self.edit(user, place, 1)
        return self.threads[user]

    def drop(self, user: str) -> list[dict[str, Any]]:
        """Deletes the oldest exchange."""
        thread = self.threads[user]
        if len(thread) > 2:
            del thread[:2]
        return thread


def check(made: Any, user: str, thread: list[dict[str, Any]], limit: int, *, whole: bool) -> Rows:
    """Reads a thread twice and checks what every read promises."""
    found = made.read(user, thread)
    strange = markers(found) - markers(thread)
    assert not strange, f"texts that are not in this call's input: {sorted(strange)}"
    assert made.read(user, thread) == found, "reading twice gave two answers"
    assert thread[-1]["content"] in found[-1][1], "the question is not the last message"
    if whole and COUNTER.count_messages(thread) <= limit:
        assert found == [(m["role"], m["content"]) for m in thread], "what fits did not come back whole"
    return found


STEP = st.tuples(
    st.sampled_from(("ann", "bob")),
    st.sampled_from(("ask", "ask", "ask", "ask", "ask", "edit", "edit", "shrink", "drop")),
    st.integers(0, 12),
    st.sampled_from((3, 20, 20, 60)),
)


@pytest.mark.parametrize(("way", "summarizes"), RUNS, ids=_name)
def test_no_text_but_this_calls_input(way: Way, summarizes: bool) -> None:
    """Interleaved users whose histories are edited, redacted and shortened read their own current texts only."""
    drawn = draws(asynchronous=True)

    @settings(drawn, max_examples=min(way.draws, drawn.max_examples), phases=[Phase.generate])
    @given(st.lists(STEP, min_size=2, max_size=16), st.sampled_from((90, 160, 300)))
    def through(steps: Sequence[Any], limit: int) -> None:
        play(way, summarizes, steps, limit)

    through()


def play(way: Way, summarizes: bool, steps: Sequence[Any], limit: int) -> None:
    """Runs one drawn script on two users whose threads are over the limit, or nearly."""
    made = way.open(limit, Summarizer() if summarizes else None)
    users = Users()
    for user in ("ann", "bob") * 5:
        check(made, user, users.ask(user, 20), limit, whole=way.whole)
    for user, what, place, size in steps:
        if what == "ask":
            users.ask(user, size)
        elif what == "edit":
            users.edit(user, place, size)
        elif what == "shrink":
            users.shrink(user)
        else:
            users.drop(user)
        check(made, user, users.threads[user], limit, whole=way.whole)


@pytest.mark.parametrize(("way", "summarizes"), RUNS, ids=_name)
def test_a_redacted_message_stays_redacted_when_there_is_room_again(way: Way, summarizes: bool) -> None:
    """A message that was cut and then replaced in the store is never sent with its old text."""
    made, users = way.open(200, Summarizer() if summarizes else None), Users()
    for _ in range(12):
        check(made, "ann", users.ask("ann", 20), 200, whole=way.whole)
    users.edit("ann", 0, 2)
    for place in range(4, len(users.threads["ann"])):
        users.edit("ann", place, 2)
        check(made, "ann", users.threads["ann"], 200, whole=way.whole)
    check(made, "ann", users.shrink("ann"), 200, whole=way.whole)


@pytest.mark.parametrize("way", WAYS, ids=_name)
def test_users_whose_threads_end_alike_share_nothing(way: Way) -> None:
    """Two users with equal message ids and an equal tail at equal positions each read their own beginning."""
    made, users = way.open(200, Summarizer() if way.summarizes and way.named else None), Users()
    for _ in range(14):
        thread = users.ask("ann", 20)
        users.threads["bob"] = [dict(m) for m in thread]
        for place in range(min(6, len(thread))):
            users.threads["bob"][place]["content"] = f"zbob{place}v0" + " word" * 20
        for user in ("ann", "bob"):
            check(made, user, users.threads[user], 200, whole=way.whole)


@pytest.mark.parametrize("way", WAYS, ids=_name)
def test_users_at_once_share_nothing(way: Way, loop: asyncio.AbstractEventLoop) -> None:
    """Reads of four users under one asyncio.gather give each their own texts, and what reading one by one gives."""
    summarizer = Summarizer() if way.summarizes and way.named else None
    made, alone, users = way.open(200, summarizer), way.open(200, summarizer), Users()
    names = ["ann", "bob", "cleo", "dan"]

    async def together() -> list[Rows]:
        return await asyncio.gather(*(made.aread(user, users.threads[user]) for user in names))

    for _ in range(8):
        for user in names:
            users.ask(user, 20)
        for user, found in zip(names, loop.run_until_complete(together()), strict=True):
            assert not markers(found) - markers(users.threads[user])
            assert found == alone.read(user, users.threads[user])


@pytest.mark.parametrize("way", [way for way in WAYS if not way.named], ids=_name)
def test_a_summarizer_without_a_thread_is_refused(way: Way) -> None:
    """Without a thread_id, a summarizer raises an error that names what to give."""
    users = Users()
    with pytest.raises(BudgetConfigError, match="thread_id"):
        way.open(90, Summarizer()).read("ann", users.ask("ann", 5))


@pytest.mark.parametrize("named", [True, False], ids=["thread_id", "no thread_id"])
def test_a_state_that_was_updated_is_what_is_read(named: bool) -> None:
    """After `update_state` the next call of an agent sends the new texts, old ones in no form."""
    model, users = Recorder(), Users()
    middleware = lb.BudgetMiddleware(max_tokens=200, counter=COUNTER)
    agent: Any = create_agent(model, middleware=[middleware], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t" if named else "u"}}
    for turn in range(12):
        text = users.text("ann", 20)
        agent.invoke({"messages": [HumanMessage(text, id=f"h{turn}")]}, config)
    state = agent.get_state(config).values["messages"]
    short = [m.model_copy(update={"content": users.text("new", 1)}) for m in state]
    agent.update_state(config, {"messages": short})
    agent.invoke({"messages": [HumanMessage("znew999v0 and now?", id="last")]}, config)
    sent = model.seen["znew999v0 and now?"]
    assert not [m for m in sent if "zann" in m.text]
    assert len(sent) == len(state) + 1


# ---- more room than the turn before -----------------------------------------------------------------------
def _finished(users: Users, user: str, turns: int) -> list[dict[str, Any]]:
    for _ in range(turns):
        users.ask(user, 20)
    return users.threads[user][:-1]


@pytest.mark.parametrize("way", ASKING)
def test_one_large_question_costs_later_turns_nothing(way: Callable[[], Ask]) -> None:
    """After a turn that left little room for the history, all of it comes back as soon as there is room."""
    ask, thread = way(), _finished(Users(), "ann", 6)
    assert len(ask(thread, "paste " * 4900)) < len(thread)
    assert ask(thread, "and now?") == core_rows(thread)


@pytest.mark.parametrize("way", ASKING)
def test_a_redacted_message_that_was_cut_does_not_return(way: Callable[[], Ask]) -> None:
    """A message that was cut, then replaced in the store, comes back with its new text when there is room."""
    ask, users = way(), Users()
    thread = _finished(users, "ann", 6)
    ask(thread, "paste " * 4900)
    thread = users.edit("ann", 0, 3)[:-1]
    assert ask(thread, "and now?") == core_rows(thread)
    users.ask("ann", 20)
    thread = users.edit("ann", 1, 3)[:-1]
    assert ask(thread, "and now?") == core_rows(thread)


@pytest.mark.parametrize("tail", [2, 4, 8])
def test_an_agent_without_a_thread_id_mixes_no_users(tail: int) -> None:
    """Two users with equal message ids and an equal tail: what was cut for one is never sent for the other."""
    ask, users = middleware_way(), Users()
    ann = _finished(users, "ann", 6)
    ask(ann, "paste " * 4900)
    bob = [*_finished(users, "bob", 6)[:-tail], *ann[-tail:]]
    assert ask(bob, "and now?") == core_rows(bob)


# ---- a summarizer that fails --------------------------------------------------------------------------------
def _summary(found: Rows) -> set[str]:
    return next((markers(text) for _, text in found if "<summary>" in text), set())


@pytest.mark.parametrize("mode", ["raises", "too long"])
@pytest.mark.parametrize("way", SUMMARIZING, ids=_name)
def test_a_failing_summarizer_keeps_the_last_good_summary(way: Way, mode: str) -> None:
    """While the summarizer fails the last good summary stays; when it works again, nothing of the thread is missing."""
    summarizer, users = Summarizer(), Users()
    made = way.open(400, summarizer)
    found: Rows = []
    while not _summary(found):
        found = made.read("ann", users.ask("ann", 20))
    good = _summary(found)
    summarizer.mode = mode
    for _ in range(10):
        found = check(made, "ann", users.ask("ann", 20), 400, whole=way.whole)
        assert good <= markers(found), "the last good summary is gone"
    summarizer.mode = "good"
    for _ in range(5):
        found = check(made, "ann", users.ask("ann", 20), 400, whole=way.whole)
    assert markers(found) == markers(users.threads["ann"]), "some messages are in neither summary nor prompt"


def test_a_failing_summarizer_stores_nothing_twice() -> None:
    """A chain whose history summarizes stores each message once, also when the summarizer fails between two reads of a turn."""
    summarizer, users, store = Summarizer(), Users(), Store()
    factory = lb.BudgetMessageHistory.around(
        lambda session_id: store, max_tokens=200, counter=COUNTER, summarizer=summarizer
    )
    chain = RunnableWithMessageHistory(Recorder(), factory)
    config: Any = {"configurable": {"session_id": "s"}}
    asked = []
    for turn in range(16):
        summarizer.mode = "raises once" if turn > 8 else "good"
        asked.append(users.text("ann", 20))
        chain.invoke([HumanMessage(asked[-1])], config)
    assert [m.text for m in store.messages if m.type == "human"] == asked
    assert sum(isinstance(m, AIMessage) for m in store.messages) == len(asked)


# ---- what a thread leaves behind ----------------------------------------------------------------------------
@pytest.mark.parametrize("size", [1_000, 20_000], ids=["1 KB", "20 KB"])
@pytest.mark.parametrize("way", WAYS, ids=_name)
def test_a_thread_leaves_numbers_behind_not_texts(way: Way, size: int) -> None:
    """After 2,000 messages a thread keeps under 100 bytes a message, whatever the messages weigh."""
    made = way.open(300, None)
    made.read("warm", Users().ask("warm", 5))
    gc.collect()
    tracemalloc.start()
    try:
        _read_long_thread(made, size)
        made.empty()
        gc.collect()
        left = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert left < 2000 * BYTES_A_MESSAGE + ONCE, f"{left / 2000:.0f} bytes a message are left"


def _read_long_thread(made: Any, size: int) -> None:
    thread = [
        {"role": ("user", "assistant")[i % 2], "content": f"zann{i}v0" + "x" * (size - i % 7)}
        for i in range(2000)
    ]
    thread.append({"role": "user", "content": "zann9999v0 and now?"})
    made.read("ann", thread)


@pytest.mark.parametrize(
    "way", [w for w in WAYS if w.name in {"core BudgetSession", "LC BudgetMiddleware thread_id"}], ids=_name
)
def test_a_forgotten_thread_is_a_new_one(way: Way) -> None:
    """After `forget` a thread is read as if it had never been read before."""
    made, fresh, users = way.open(200, None), way.open(200, None), Users()
    for _ in range(12):
        made.read("ann", users.ask("ann", 20))
    if isinstance(made.of("ann") if way.name.startswith("core") else None, BudgetSession):
        made.of("ann").forget()
    else:
        made.middleware.forget("ann")
    assert made.read("ann", users.threads["ann"]) == fresh.read("ann", users.threads["ann"])
