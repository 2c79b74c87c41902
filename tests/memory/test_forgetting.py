"""After `forget`, the files hold nothing of the subject; what cannot be reached is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankbudget import Scope
from rankbudget.errors import MessageError
from rankbudget.memory import HistoryStore, MemoryStore
from rankbudget.memory.history_tables import messages
from rankbudget.testing.conformance._agreement import disagreements

ANN, BOB = Scope(user="ann-4711"), Scope(user="bob-4711")


def held(folder: Path, words: tuple[str, ...]) -> list[str]:
    """Which of the words are in any file of a folder, whatever their case."""
    raw = b"".join(path.read_bytes() for path in sorted(folder.iterdir())).lower()
    return [word for word in words if word.lower().encode() in raw]


def test_the_files_hold_nothing_of_the_subject(
    sqlite_file: Path, open_store: Callable[..., MemoryStore]
) -> None:
    """Texts, words, ids, keys, users, sources and metadata are in no byte of the database, its log or its index."""
    store = open_store(sqlite_file)
    for i in range(40):
        store.put(
            f"Xylographer number {i} likes quincunxes.",
            scope=ANN,
            key=f"walrus{i}",
            sources=(f"src-zeppelin{i}",),
        )
        store.put(
            f"Bookbinder number {i} likes marzipan.", scope=BOB, key=f"heron{i}", metadata={"from": "kiosk"}
        )
    store.put("Xylographer retired.", scope=ANN, key="walrus1", metadata={"from": "gazette"})
    store.update("walrus2", lambda _: "Xylographer moved to Ouagadougou.", scope=ANN)
    store.delete("walrus3", scope=ANN)
    store.put(
        "The xylographer's project.", scope=Scope(user=ANN.user, project="tannery"), source_type="telegram"
    )
    ids = [store.get(f"walrus{i}", scope=ANN).id for i in (0, 1, 39)]
    mine = (
        "xylograph",
        "quincunx",
        "ouagadougou",
        "walrus",
        "zeppelin",
        "gazette",
        "tannery",
        "telegram",
        "ann-4711",
        *ids,
    )
    theirs = ("bookbinder", "marzipan", "heron", "kiosk", "bob-4711")
    assert held(sqlite_file.parent, mine) == list(mine)
    receipt = store.forget(ANN)
    assert receipt.removed["memories"] == 41
    assert not any("log" in place for place in receipt.unreached)
    assert held(sqlite_file.parent, mine) == []
    assert held(sqlite_file.parent, theirs) == list(theirs)
    assert disagreements(store.backend.database) == []
    assert store.search("Who likes marzipan?", scope=BOB)[0].key.startswith("heron")


def test_a_reader_keeps_the_log(sqlite_file: Path, open_store: Callable[..., MemoryStore]) -> None:
    """While another connection reads, the receipt says that the log is still there; the next one clears it."""
    store, other = open_store(sqlite_file, wait=0.2), open_store(sqlite_file)
    store.put("Xylographer.", scope=ANN)
    with other.backend.database.read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM rankbudget_memories").all()
        receipt = store.forget(ANN)
        assert "write-ahead log" in receipt.unreached[0] or "could not be rewritten" in receipt.unreached[0]
    assert not any("log" in place or "rewritten" in place for place in store.forget(ANN).unreached)
    assert held(sqlite_file.parent, ("xylograph", "ann-4711")) == []


def test_the_server_keeps_what_its_receipt_names(
    postgres: str, open_store: Callable[..., MemoryStore]
) -> None:
    """PostgreSQL's receipt names VACUUM FULL, the write-ahead log, replicas and backups."""
    store = open_store(postgres)
    store.put("Xylographer.", scope=ANN)
    receipt = store.forget(ANN)
    assert receipt.removed["memories"] == 1
    for place in ("VACUUM FULL", "write-ahead log", "replicas", "backups"):
        assert place in receipt.unreached[0]
    assert disagreements(store.backend.database) == []


def test_a_deleted_message_is_in_no_row(histories: HistoryStore) -> None:
    """What is deleted is gone at once; what was edited or taken out, when all that was replaced is forgotten."""
    thread, other = histories.thread("t", scope=ANN), histories.thread("u", scope=ANN)

    def secrets() -> int:
        with histories.database.read() as connection:
            return sum(["secret" in str(row) for row in connection.execute(messages().select())])

    thread.append([{"role": "user", "content": f"secret-{n}", "id": f"m{n}"} for n in range(4)])
    other.append([{"role": "user", "content": "secret-9", "id": "m9"}])
    assert thread.delete(0)["content"] == "secret-0"
    assert (secrets(), thread.replaced()) == (4, [])
    redacted = [{"role": "user", "content": "[redacted]", "id": name} for name in ("m1", "m9")]
    for one in (thread, other):
        one.edit(redacted)
    thread.take_oldest(2, archive=True)
    thread._archive().take_oldest(2)
    thread.append([{"role": "assistant", "content": "fine"}], after="m3")
    thread.delete(0)
    assert secrets() == 3
    assert (thread.forget_replaced(), thread.forget_replaced()) == (3, 0)
    assert [message["content"] for message in thread.messages()] == ["fine"]
    assert secrets() == len(other.replaced()) == 1
    assert histories.thread("none", scope=ANN).forget_replaced() == 0


def test_a_redaction_does_what_it_says_or_raises(histories: HistoryStore) -> None:
    """Archived messages are edited by their ids; a message without an id, which would be left out, is refused."""
    thread = histories.thread("t", scope=ANN)
    thread.append([{"role": "user", "content": f"secret-{n}"} for n in range(4)])
    thread.take_oldest(2, archive=True)
    with pytest.raises(MessageError, match=r"a message to edit must have the id .* \(got none\)"):
        thread.edit([{**message, "content": "[redacted]"} for message in thread.messages()])
    ids = [*thread._archive().ids(), *thread.ids(), "other"]
    redacted = [{"role": "user", "content": "[redacted]", "id": name} for name in ids]
    assert thread.edit(redacted, archived=True) == 4
    assert [message["content"] for message in thread.replaced()] == [f"secret-{n}" for n in range(4)]
    assert thread.forget_replaced() == 4
    with histories.database.read() as connection:
        assert not any("secret" in str(row) for row in connection.execute(messages().select()))
    assert [message["content"] for message in thread.messages(archived=True)] == ["[redacted]"] * 4
    thread.append([{"role": "user", "content": "secret-4"}])
    thread.insert(len(thread), [{**thread.delete(-1), "content": "[redacted]"}])
    with histories.database.read() as connection:
        assert not any("secret" in str(row) for row in connection.execute(messages().select()))


@pytest.mark.parametrize("apart", [1, 7])
@pytest.mark.parametrize("resent", [False, True], ids=["edit", "append"])
def test_ten_times_the_edits_cost_at_most_fourteen_times_as_much(apart: int, resent: bool) -> None:
    """Counted in SQLite's own steps: sums over a conversation are made once for edits that are near each other."""
    steps = []
    for count in (100, 1000):
        store = HistoryStore(":memory:")
        thread = store.thread("t", scope=ANN)
        thread.append([{"role": "user", "content": "word", "id": f"m{n}"} for n in range(count * apart)])
        edited = [{"role": "user", "content": "other", "id": f"m{n * apart}"} for n in range(count)]
        with store.database.read() as connection:
            driver: Any = connection.connection.dbapi_connection
        steps.append(0)
        driver.set_progress_handler(lambda: steps.append(steps.pop() + 1), 10)
        thread.append(edited) if resent else thread.edit(edited)
        driver.set_progress_handler(None, 1)
        texts = [message["content"] for message in thread.messages()]
        assert texts == ["word" if n % apart else "other" for n in range(count * apart)]
        assert len(thread.replaced()) == count
        store.close()
    assert steps[0] > 100
    assert steps[1] <= 14 * steps[0]
