"""Conversations in a database: all of what many write, once, in order, for nobody but their owner."""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_budget.stored_history import FORM as LANGCHAIN
from llamaindex_budget._stored import FORM as LLAMAINDEX
from rankbudget import BudgetConfigError, MessageError, Scope
from rankbudget.errors import StoreConflictError
from rankbudget.memory import HistoryStore, HostForm, MemoryStore, StoredThread
from rankbudget.memory.forms import DICTS
from rankbudget.memory.history_tables import ARCHIVED, keys
from rankbudget.testing import StoreConformance
from tests.drawing import draws

ANN, BOB = Scope(user="ann"), Scope(user="bob")


def said(text: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"role": role, "content": text, **fields}


def texts(thread: StoredThread) -> list[str]:
    return [message["content"] for message in thread.messages()]


class TestConformance(StoreConformance):
    """A thread of dicts is a message store."""

    @pytest.fixture(autouse=True)
    def _empty(self, histories: HistoryStore) -> None:
        self.store = histories

    def make(self) -> Any:
        return self.store

    def append(self, store: Any, key: str, messages: list[Any]) -> None:
        store.thread(key, scope=ANN).append(messages)

    def read(self, store: Any, key: str) -> list[Any]:
        return store.thread(key, scope=ANN).messages()  # type: ignore[no-any-return]

    def clear(self, store: Any, key: str) -> None:
        store.thread(key, scope=ANN).clear()


# ---- many at once --------------------------------------------------------------------------------
def write(place: Any, writer: int, count: int) -> None:
    """Appends messages one by one, as one writer among others."""
    store = place if isinstance(place, HistoryStore) else HistoryStore(place)
    thread = store.thread("t", scope=ANN)
    for number in range(count):
        thread.append([said(f"{writer}:{number}")])
    if store is not place:
        store.close()


@pytest.mark.parametrize("processes", [False, True], ids=["threads", "processes"])
def test_writers_lose_and_reorder_nothing(shared_place: Any, processes: bool) -> None:
    """What many threads or processes append at once is all there, once, in each writer's order."""
    writers, count = (3, 20) if processes else (8, 12)
    store = HistoryStore(shared_place)
    place = shared_place if processes else store
    spawn = multiprocessing.get_context("spawn")
    pool: Any = ProcessPoolExecutor(writers, mp_context=spawn) if processes else ThreadPoolExecutor(writers)
    with pool:
        list(pool.map(write, [place] * writers, range(writers), [count] * writers))
    thread = store.thread("t", scope=ANN)
    found = texts(thread)
    assert len(found) == len(thread) == writers * count
    store.close()
    for writer in range(writers):
        mine = [text for text in found if text.startswith(f"{writer}:")]
        assert mine == [f"{writer}:{number}" for number in range(count)]


def test_a_batch_is_kept_whole_or_not_at_all(histories: HistoryStore) -> None:
    """A message that cannot be stored leaves nothing of the call that brought it, however large that is."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said("before")])
    many = [said(str(number)) for number in range(1500)]
    with pytest.raises(MessageError, match="must hold only what JSON can hold"):
        thread.append(iter([*many, said("bad", extra=object())]))
    assert texts(thread) == ["before"]


# ---- what is sent again --------------------------------------------------------------------------
def test_a_message_with_an_id_is_stored_once(histories: HistoryStore) -> None:
    """A message that is sent again is not added again; with other content it takes the old one's place."""
    thread = histories.thread("t", scope=ANN)
    assert thread.append([said("one", id="a"), said("two", id="b"), said("ok")]) == 3
    assert thread.append([said("one", id="a"), said("ok")]) == 1
    assert thread.append([said("ONE", id="a")]) == 0
    assert texts(thread) == ["ONE", "two", "ok", "ok"]
    assert [message["content"] for message in thread.replaced()] == ["one"]


def test_a_call_with_a_key_is_stored_once(histories: HistoryStore) -> None:
    """Messages without ids are added once for one key, and again for another."""
    thread = histories.thread("t", scope=ANN)
    for key in ("turn 1", "turn 1", "turn 2"):
        thread.append([said("yes"), said("ok", "assistant")], key=key)
    assert texts(thread) == ["yes", "ok", "yes", "ok"]


EDITS: dict[str, Callable[[StoredThread, int], Any]] = {
    "delete": lambda thread, place: thread.delete(place),
    "replace": lambda thread, place: thread.replace([said("new"), *thread.messages()[place:]]),
    "empty": lambda thread, _: thread.replace([]),
    "regenerate": lambda thread, place: thread.append(
        [said("again", "assistant")], after=thread.ids()[place]
    ),
    "edit": lambda thread, _: thread.append([said("edited", id="m1")]),
    "add": lambda thread, _: thread.append([said("more")]),
}


@pytest.mark.parametrize("goes_on", [False, True])
@draws(cases=2)
@given(
    sizes=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    edits=st.lists(st.tuples(st.sampled_from(list(EDITS)), st.integers(0, 3)), max_size=4),
    named=st.booleans(),
)
def test_a_key_holds_whatever_became_of_its_messages(
    goes_on: bool, sizes: list[int], edits: list[tuple[str, int]], named: bool
) -> None:
    """A call sent again adds and replaces nothing, be its messages deleted, replaced or edited since."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN)
    thread.append([said("start", id="m0")])
    calls: list[tuple[list[Any], dict[str, Any]]] = []
    for number, size in enumerate(sizes):
        ids = [{"id": f"m{number + n}"} if named else {} for n in range(1, size + 1)]
        given = [said(f"{number}.{n}", **one) for n, one in enumerate(ids)]
        calls.append((given, {"key": f"k{number}", "after": "m0" if goes_on else None}))
        thread.append(calls[-1][0], **calls[-1][1])
    for edit, place in [*edits, ("delete", 9)]:
        if place < len(thread) or edit in ("empty", "add", "edit"):
            EDITS[edit](thread, place)
        before = thread.ids(), thread.messages(), thread.replaced()
        for given, options in calls:
            assert thread.append(given, **options) == 0
        assert (thread.ids(), thread.messages(), thread.replaced()) == before
    thread.append([*calls[0][0], said("streamed")], key="k0")
    assert texts(thread)[-1] == "streamed", "what a key has more than before is added"
    store.close()


def test_a_key_ends_with_its_conversation(histories: HistoryStore) -> None:
    """A cleared or forgotten conversation keeps no key; another one of the same name or scope has its own."""
    threads = [histories.thread(name, scope=scope) for name, scope in (("t", ANN), ("u", ANN), ("t", BOB))]
    for _ in range(2):
        assert [thread.append([said("yes")], key="ann's") for thread in threads] == [1, 1, 1]
        assert [thread.append([said("yes")], key="ann's") for thread in threads] == [0, 0, 0]
        threads[0].clear()
        histories.forget(ANN)
        with histories.database.read() as connection:
            assert len(connection.execute(keys().select()).all()) == 1, "bob's"
        histories.forget(BOB)


@draws()
@given(st.lists(st.lists(st.sampled_from("abcd"), max_size=12), min_size=1, max_size=5))
def test_replacing_equals_the_list(steps: list[list[str]]) -> None:
    """After each replacement the conversation is the list, sums included, and no message has left the store."""
    store = HistoryStore(":memory:")
    thread, seals, ever = store.thread("t", scope=ANN), {}, 0
    for step in steps:
        before = set(texts(thread))
        thread.replace([said(text) for text in step])
        assert texts(thread) == step
        conversation = thread.conversation()
        sealed = [conversation.seal(place, ()) for place in range(len(step) + 1)]
        for place in range(len(step) + 1):
            assert seals.setdefault(tuple(step[:place]), sealed[place]) == sealed[place]
        assert len(set(seals.values())) == len(seals)
        ever = max(ever, len(thread.replaced()))
        assert before <= {*step, *(message["content"] for message in thread.replaced())}
    store.close()


def test_unchanged_messages_keep_their_rows(histories: HistoryStore) -> None:
    """A list that differs in the middle replaces only what differs."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said(text) for text in "abcde"])
    ids = thread.ids()
    thread.replace([said(text) for text in "abXYde"])
    assert [one for one in thread.ids() if one in ids] == [ids[0], ids[1], ids[3], ids[4]]
    assert [message["content"] for message in thread.replaced()] == ["c"]
    assert thread.delete(0) == said("a")
    assert thread.delete(9) is None
    assert texts(thread) == ["b", "X", "Y", "d", "e"]


def test_messages_appended_behind_an_older_one_replace_what_followed_it(histories: HistoryStore) -> None:
    """The branch that is left stays readable, an id of it can be used again; an unknown place is refused, and nothing is lost."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said(text, id=text) for text in "abcd"])
    assert thread.append([said("B", id="b"), said("C", id="c"), said("e")], after="b") == 2
    assert texts(thread) == ["a", "B", "C", "e"]
    assert [message["content"] for message in thread.replaced()] == ["b", "c", "d"]
    for wrong in ("d", 5):
        with pytest.raises(StoreConflictError, match="no longer, to go on after"):
            thread.append([said("f")], after=wrong)  # type: ignore[arg-type]
    assert thread.append([], after="b") == 0
    assert texts(thread) == ["a", "B"]


@pytest.mark.parametrize("form", [DICTS, LANGCHAIN, LLAMAINDEX], ids=lambda form: form.name)
def test_every_id_of_a_message_names_it(histories: HistoryStore, form: HostForm) -> None:
    """Each id that a conversation gives is found, and can be gone on after, whether its host made it or not."""
    histories.thread("other", scope=ANN).append([said("first row")])
    thread = histories.thread("t", scope=ANN)
    thread.append([said("a"), said("b", id="message-2"), said("c", id="own"), said("d"), said("e")])
    ids = histories.thread("t", scope=ANN, form=form).ids()
    assert thread.stored([*ids, "message-1", "5"]) == set(ids)
    for place in reversed(range(5)):
        assert thread.append([said("new")], after=ids[place]) == 1
        assert texts(thread) == [*"abcde"[: place + 1], "new"]


@pytest.mark.parametrize("given", [said("one"), None, 5, "text", [5], [None], ["text"], [{"content": "one"}]])
@pytest.mark.parametrize("form", [DICTS, LANGCHAIN, LLAMAINDEX], ids=lambda form: form.name)
def test_what_is_no_list_of_messages_is_refused_in_words(
    histories: HistoryStore, given: Any, form: HostForm
) -> None:
    """Whatever is given in the place of messages, in each host's form: a typed error says what is meant, and nothing is stored."""
    thread = histories.thread("t", scope=ANN, form=form)
    for write in (thread.append, thread.replace):
        with pytest.raises((BudgetConfigError, MessageError)):
            write(given)
    assert len(thread) == 0


# ---- whose it is ---------------------------------------------------------------------------------
def test_a_thread_of_another_scope_is_not_found(histories: HistoryStore) -> None:
    """Threads of one name in several scopes do not see each other, and a scope and a name that every database takes must be given."""
    scopes = [ANN, BOB, Scope(), Scope(user="ann", project="p"), Scope(project="p"), Scope(user="")]
    for number, scope in enumerate(scopes):
        histories.thread("t", scope=scope).append([said(str(number))])
    assert [texts(histories.thread("t", scope=scope)) for scope in scopes] == [[n] for n in "012345"]
    histories.thread("t", scope=ANN).clear()
    assert [len(histories.thread("t", scope=scope)) for scope in scopes] == [0, 1, 1, 1, 1, 1]
    assert (histories.threads(scope=ANN), histories.threads(scope=BOB)) == ([], ["t"])
    for wrong in ({"scope": None}, {}, {"scope": "ann"}):
        with pytest.raises(BudgetConfigError, match="scope"):
            histories.thread("t", **wrong)
    for name in ("", 5, "a\0b", "\ud83d", f"t{ARCHIVED}"):
        with pytest.raises(BudgetConfigError, match="thread_id must"):
            histories.thread(name, scope=ANN)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", ["\0", "a\0b", "\ud83d", "rankbudget-message-1\0"])
def test_an_id_that_not_every_database_takes_is_refused(histories: HistoryStore, odd: str) -> None:
    """No message gets it, whoever writes it in whichever way, and none is found by it."""
    thread, known = histories.thread("t", scope=ANN), said("known", id="k")
    thread.append([known])
    for write in (
        thread.append,
        thread.replace,
        thread.edit,
        lambda given: thread.insert(0, given),
        lambda given: thread.append(given, after="k"),
    ):
        with pytest.raises(BudgetConfigError, match="the id of a message must hold no NUL"):
            write([said("one", id="1"), said("odd", id=odd)])
    with pytest.raises(StoreConflictError, match="has no message"):
        thread.append([said("two")], after=odd)
    for place in ("1", None, 1.0):
        with pytest.raises(BudgetConfigError, match=r"place must be a whole number \(got"):
            thread.delete(place)  # type: ignore[arg-type]
        with pytest.raises(BudgetConfigError, match=r"place must be a whole number \(got"):
            thread.insert(place, [])  # type: ignore[arg-type]
    assert (thread.stored([odd, "k"]), thread.changed([known, said("odd", id=odd)])) == ({"k"}, [])
    assert thread.append([said("two")], asked=[odd]) == 1
    assert texts(thread) == ["known", "two"]


def test_one_receipt_covers_memories_and_conversations(shared_place: Any) -> None:
    """Forgetting a user names rows of both stores, and the memories of others that cite what went."""
    histories, memories = HistoryStore(shared_place), MemoryStore(shared_place)
    thread = histories.thread("t", scope=ANN)
    thread.append([said("secret plan", id="m1"), said("another")])
    histories.thread("t", scope=BOB).append([said("mine", id="m2")])
    histories.thread("a", scope=ANN).append([said("old"), said("new")])
    histories.thread("a", scope=ANN).take_oldest(1, archive=True)
    histories.record(thread.fit(max_tokens=100).report, scope=ANN, thread_id="t")
    memories.put("Ann has a plan.", scope=Scope(project="p"), key="cited", sources=("m1",))
    memories.put("Ann said more.", scope=Scope(project="p"), key="by number", sources=(thread.ids()[1],))
    memories.put("Bob said it.", scope=Scope(project="p"), key="other", sources=("m2", "message-x"))
    memories.put("Likes tea.", scope=ANN)
    receipt = (memories if isinstance(shared_place, str) else histories).forget(ANN)
    histories.close()
    memories.backend.database.close()  # type: ignore[attr-defined]
    assert receipt.removed == {"memories": 1, "messages": 4, "threads": 2, "summaries": 0, "reports": 1}
    if isinstance(shared_place, Path):
        files = shared_place.parent.glob(f"{shared_place.name}*")
        assert not any(b"secret plan" in file.read_bytes() for file in files)
    citing = [line for line in receipt.unreached if "cites messages" in line]
    assert sorted(line.split("'")[1] for line in citing) == ["by number", "cited"]
    assert (len(thread), len(histories.thread("t", scope=BOB))) == (0, 1)
    assert list(histories.reports(scope=ANN)) == []
    with pytest.raises(BudgetConfigError, match="must name a user or a project"):
        histories.forget(Scope())
    histories.close()


# ---- what it holds -------------------------------------------------------------------------------
@draws()
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text() | st.binary(),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("__bytes__"), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_whatever_json_and_bytes_can_say_comes_back(held: Any) -> None:
    """Texts of every kind, halves of surrogate pairs and bytes come back as they were."""
    store = HistoryStore(":memory:")
    thread = store.thread("t", scope=ANN)
    message = said("\ud800 \x00 é", extra=held)
    thread.append([message])
    assert thread.messages() == [message]
    store.close()


def test_nul_and_surrogates_in_every_database(histories: HistoryStore) -> None:
    """Characters that PostgreSQL refuses in texts come back from it, too."""
    message = said("\ud800 \x00 é 漢", data=b"\x00\xff")
    histories.thread("t", scope=ANN).append([message])
    assert histories.thread("t", scope=ANN).messages() == [message]


def test_a_conversation_does_not_change_while_it_is_read(histories: HistoryStore) -> None:
    """What others append is not in it; what others take out of it is an error that says so."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said(str(number)) for number in range(100)])
    reading = thread.conversation()
    thread.append([said("later")])
    assert (len(reading), reading[-1]["content"]) == (100, "99")
    thread.replace([said("short")])
    with pytest.raises(StoreConflictError, match="Read it again"):
        reading[0]


def test_a_value_of_another_kind_is_refused_by_name(histories: HistoryStore) -> None:
    """Nothing is changed by it, and a place without a message deletes nothing, nor begins a conversation."""
    thread: Any = histories.thread("t", scope=ANN)
    thread.append([said("one")])
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("count must be a whole number from 0", lambda: thread.take_oldest(-1)),
        ("key must be a text, or None", lambda: thread.append([said("two")], key=5)),
        ("asked must be a list of ids", lambda: thread.append([said("two")], asked=5)),
        ("report must be a BudgetReport", lambda: histories.record(thread.fit(99), scope=ANN)),  # type: ignore[arg-type]
        ("since must be a datetime", lambda: histories.reports(scope=ANN, since="2020")),  # type: ignore[arg-type]
    ]
    for words, call in calls:
        with pytest.raises(BudgetConfigError, match=rf"^{words}.* \(got "):
            call()
    assert thread.delete(99) is histories.thread("u", scope=ANN).delete(0) is None
    assert texts(thread) == ["one"]
    assert histories.threads(scope=ANN) == ["t"]


def test_figures_of_turns_are_read_again(histories: HistoryStore) -> None:
    """Totals of each turn come back by scope and thread, without a text or an id of a message."""
    thread = histories.thread("t", scope=ANN)
    thread.append([said(f"word{number}", id=f"secret{number}") for number in range(40)])
    report = thread.fit(max_tokens=60).report
    for name in ("t", "t", "u"):
        histories.record(report, scope=ANN, thread_id=name)
    turns = list(histories.reports(scope=ANN, thread_id="t"))
    assert [turn.thread_id for turn in turns] == ["t", "t"]
    assert turns[0].report.blocks == report.blocks
    assert "secret" not in turns[0].report.to_json()
    assert len(list(histories.reports(scope=ANN, since=turns[1].at))) == 2
    assert list(histories.reports(scope=BOB)) == []


def test_a_store_is_pickled_as_its_place(shared_place: Any) -> None:
    """A store that another process unpickles has the same conversations."""
    store = HistoryStore(shared_place)
    store.thread("t", scope=ANN).append([said("one")])
    twin = pickle.loads(pickle.dumps(store))
    assert texts(twin.thread("t", scope=ANN)) == ["one"]
    store.close()
    twin.close()
