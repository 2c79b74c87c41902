"""Operations on one conversation meet: each is as if it came before or after the other, and no message is lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.history import RunnableWithMessageHistory
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.storage.chat_store.base_db import MessageStatus
from sqlalchemy import event

from langchain_budget import BudgetMessageHistory, StoredMessageHistory, StoredThreadMiddleware
from llamaindex_budget import StoredAsyncChatStore, StoredChatStore
from rankbudget import Scope
from rankbudget.memory import HistoryStore
from tests.drawing import draws

ANN = Scope(user="ann")
ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED
_threads = count()


def words(value: Any) -> Any:
    """Returns what an operation returned, of messages their texts."""
    if isinstance(value, list):
        return [words(one) for one in value]
    return getattr(value, "content", value)


@dataclass
class Door:
    """All that two frameworks do with the conversation `key` of a store."""

    store: HistoryStore
    key: str

    @property
    def chats(self) -> StoredChatStore:
        return StoredChatStore(store=self.store, user="ann")

    @property
    def tasks(self) -> StoredAsyncChatStore:
        return StoredAsyncChatStore(chats=self.chats)

    def begin(self) -> None:
        """Stores two archived messages and six active ones, of which one has the id of an archived one."""
        told = [{"role": "user", "content": f"old {n}", "id": f"m{n}"} for n in range(8)]
        self.store.thread(self.key, scope=ANN).append(told[:2])
        asyncio.run(self.tasks.archive_oldest_messages(self.key, 2))
        self.store.thread(self.key, scope=ANN).append([{**told[2], "id": "m1"}, *told[3:]])

    def state(self) -> Any:
        """Returns the texts of each part."""
        return [words(asyncio.run(self.tasks.get_messages(self.key, part))) for part in (ARCHIVED, ACTIVE)]

    def do(self, name: str, mark: str) -> Any:
        """Does one operation, whose new messages are `mark`, and returns what it returned."""
        return words(OPERATIONS[name](self, mark))


def edit(door: Door, mark: str) -> None:
    """A client sends all it knows again, with another text in the first message."""
    middleware = StoredThreadMiddleware(door.store, scope=ANN, max_tokens=1000)
    sent = [HumanMessage(f"old {n}", id=f"m{n}") for n in range(3, 8)]
    sent[1] = HumanMessage(mark, id="m4")
    begin = RunnableLambda(lambda state: middleware.before_agent(state, None))
    begin.invoke({"messages": sent}, {"configurable": {"thread_id": door.key}})


def task(method: str, *args: Any) -> Callable[[Door, str], Any]:
    """Returns an operation of the store for tasks; "mark" among its arguments is a new message."""

    def run(door: Door, mark: str) -> Any:
        new = ChatMessage(mark)
        given = [new if one == "mark" else [new] if one == ["mark"] else one for one in args]
        return asyncio.run(getattr(door.tasks, method)(door.key, *given))

    return run


OPERATIONS: dict[str, Callable[[Door, str], Any]] = {
    "add": task("add_message", "mark"),
    "add archived": task("add_messages", ["mark"], ARCHIVED),
    "insert": lambda door, mark: door.chats.add_message(door.key, ChatMessage(mark), idx=1),
    "delete": task("delete_message", 1),
    "delete last": lambda door, _: door.chats.delete_last_message(door.key),
    "delete oldest": task("delete_oldest_messages", 2),
    "archive": task("archive_oldest_messages", 3),
    "LangChain adds": lambda door, mark: StoredMessageHistory(door.store, door.key, scope=ANN).add_message(
        HumanMessage(mark)
    ),
    "set": task("set_messages", ["mark"]),
    "set archived": task("set_messages", ["mark"], ARCHIVED),
    "delete all": lambda door, _: door.chats.delete_messages(door.key),
    "delete active": task("delete_messages", ACTIVE),
    "delete archived": task("delete_messages", ARCHIVED),
    "read all": task("get_messages", None),
    "count all": task("count_messages", None),
    "edit": edit,
}
KEEPING = list(OPERATIONS)[:8]
"""Operations that keep each message they find, or return it."""
CHANGING = [name for name in OPERATIONS if not name.endswith("all") or name == "delete all"]


@pytest.fixture
def both(sqlite_file: Path) -> Iterator[tuple[HistoryStore, HistoryStore]]:
    """A store, and that of another process in the same database."""
    made = HistoryStore(sqlite_file), HistoryStore(sqlite_file)
    yield made
    for store in made:
        store.close()


def in_turn(store: HistoryStore, *named: tuple[str, str]) -> Any:
    """Returns what operations returned and left, one after the other, each with the word in its messages."""
    door = Door(store, f"t{next(_threads)}")
    door.begin()
    return {mark: door.do(name, mark) for mark, name in named}, door.state()


def meeting(store: HistoryStore, other: HistoryStore, first: str, second: str, moment: int) -> Any:
    """Returns what both returned and left, `second` before the first one's transaction of this number."""
    door, said, left = Door(store, f"t{next(_threads)}"), {}, count()
    door.begin()

    def before(*_: Any) -> None:
        if next(left) == moment:
            said["second"] = Door(other, door.key).do(second, "second")

    event.listen(store.database.engine, "checkout", before)
    try:
        said["first"] = door.do(first, "first")
    finally:
        event.remove(store.database.engine, "checkout", before)
    return (said, door.state()) if "second" in said else None


@pytest.mark.parametrize("first", OPERATIONS)
def test_two_operations_are_one_after_the_other(both: tuple[HistoryStore, HistoryStore], first: str) -> None:
    """Whatever comes before any transaction of an operation, both return and leave what they do in one of two orders."""
    for second in CHANGING:
        named = ("first", first), ("second", second)
        allowed = [in_turn(both[0], *named), in_turn(both[0], *named[::-1])]
        for moment in range(9):
            found = meeting(*both, first, second, moment)
            if found is None:
                break
            assert found in allowed, f"{second} before transaction {moment} of {first}"


PLANS = st.lists(st.lists(st.sampled_from(KEEPING), min_size=1, max_size=5), min_size=2, max_size=5)


@settings(draws(asynchronous=True), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=PLANS)
def test_each_message_is_there_once(histories: HistoryStore, plans: list[list[str]]) -> None:
    """Of writers at once each message is in the conversation, in its archive, or was returned by one of them."""
    door = Door(histories, f"t{next(_threads)}")
    door.begin()
    there = [text for part in door.state() for text in part]

    def write(writer: int) -> list[str]:
        taken = list[str]()
        for step, name in enumerate(plans[writer]):
            said = door.do(name, f"{writer}.{step}")
            if name.startswith("delete") and said is not None:
                taken += said if isinstance(said, list) else [said]
        return taken

    with ThreadPoolExecutor(len(plans)) as pool:
        taken = [text for found in pool.map(write, range(len(plans))) for text in found]
    adding = [name in ("add", "add archived", "insert", "LangChain adds") for plan in plans for name in plan]
    places = [f"{w}.{s}" for w, plan in enumerate(plans) for s in range(len(plan))]
    expected = [*there, *(place for place, adds in zip(places, adding, strict=True) if adds)]
    assert Counter([*taken, *(text for part in door.state() for text in part)]) == Counter(expected)


@draws()
@given(
    before=st.integers(0, 12),
    during=st.integers(0, 3),
    size=st.integers(1, 60),
    limit=st.integers(10, 120),
    in_async=st.booleans(),
)
def test_a_run_with_history_stores_its_own_turn_once_whatever_others_write_meanwhile(
    before: int, during: int, size: int, limit: int, in_async: bool
) -> None:
    """LangChain reads the history again at the end of a run, and leaves out of its input what it then has."""
    store = HistoryStore(":memory:")
    chats = StoredChatStore(store=store, user="ann")

    def turn(name: str) -> None:
        chats.add_message("t", ChatMessage(f"{name}? " + "word " * size))
        chats.add_message("t", ChatMessage(f"{name}.", role="assistant"))

    def model(_: Any) -> AIMessage:
        for n in range(during):
            turn(f"meanwhile {n}")
        return AIMessage("An answer.")

    for n in range(before):
        turn(f"before {n}")
    around = BudgetMessageHistory.around(
        lambda session_id: store.thread(session_id, scope=ANN), max_tokens=limit, counter="o200k_base"
    )
    chain = RunnableWithMessageHistory(RunnableLambda(model), around)
    asked: Any = ([HumanMessage("A question?")], {"configurable": {"session_id": "t"}})
    if in_async:
        asyncio.run(chain.ainvoke(*asked))
    else:
        chain.invoke(*asked)
    told = [message["content"] for message in store.thread("t", scope=ANN).messages()]
    store.close()
    assert told[-2:] == ["A question?", "An answer."]
    assert len(told) == len(set(told)) == 2 * (before + during + 1)
