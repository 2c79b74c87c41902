"""What a session remembers: positions, counts and hashes, and one summary that holds while what it covers is as it was."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest

from rankbudget import Assembler, BudgetSession, TokenBudget, counter_for
from rankbudget.testing import WordCounter, check_laws

COUNTER = "o200k_base"


def chat(turns: int) -> list[dict[str, Any]]:
    """Exchanges, each with a word of its own."""
    made: list[dict[str, Any]] = []
    for n in range(turns):
        made.append({"role": "user", "content": f"question{n} " + "why " * 10})
        made.append({"role": "assistant", "content": f"answer{n} " + "because " * 10})
    return made


class Writer:
    """Writes summaries that name what they were told, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str, max_tokens: int) -> str:
        self.asked.append(text)
        return f"summary {len(self.asked)}"


def session(writer: Any = None, limit: int = 200) -> BudgetSession:
    return BudgetSession(limit, counter=COUNTER, summarizer=writer)


def test_no_text_of_a_message_is_in_a_pickled_session() -> None:
    """A session that cut, kept and summarized holds none of the words that were said."""
    held = BudgetSession(200, counter=COUNTER)
    held.fit(chat(30))
    data = pickle.dumps(held)
    assert not any(f"{word}{n}".encode() in data for n in range(30) for word in ("question", "answer"))


def test_a_copy_in_this_process_goes_on_from_the_same_cut() -> None:
    """A deep copy keeps what the session would keep."""
    held, thread = session(), chat(30)
    held.fit(thread)
    twin = copy.deepcopy(held)
    grown = [*thread, {"role": "user", "content": "and now?"}]
    assert list(twin.fit(grown).messages) == list(held.fit(grown).messages)


@pytest.mark.slow
def test_a_summary_outlives_its_process() -> None:
    """A session that is unpickled in another process still has its summary, and asks for no other."""
    writer = Writer()
    held = session(writer)
    held.fit(chat(30))
    assert len(writer.asked) == 1
    held.summarizer = None
    program = (
        "import pickle, sys\n"
        "from tests.core.test_session_state import Writer, chat\n"
        "held = pickle.loads(sys.stdin.buffer.read())\n"
        "held.summarizer = writer = Writer()\n"
        "kept = held.fit(chat(30)).messages\n"
        "assert writer.asked == [] or 'question0 ' not in writer.asked[0], writer.asked\n"
        "assert any('summary' in m['content'] for m in kept)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(held), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_an_edit_of_what_was_summarized_voids_the_summary() -> None:
    """After an old message is redacted, the next summary is written from what the thread says now."""
    writer, thread = Writer(), chat(30)
    held = session(writer)
    held.fit(thread)
    thread[0] = {"role": "user", "content": "redacted"}
    held.fit(thread)
    assert "question0" in writer.asked[0]
    assert "question0" not in writer.asked[-1]
    assert "redacted" in writer.asked[-1]


def test_an_edit_of_what_was_kept_leaves_the_summary() -> None:
    """A summary covers old messages only: a correction of a new one does not have all of them read again."""
    writer, thread = Writer(), chat(30)
    held = session(writer)
    held.fit(thread)
    thread[-1] = {"role": "assistant", "content": "corrected"}
    kept = held.fit(thread).messages
    assert kept[-1]["content"] == "corrected"
    assert all("question0 " not in asked for asked in writer.asked[1:])


def test_what_was_cut_returns_when_all_of_it_fits() -> None:
    """One long question hides older turns for as long as it takes their room, and no longer."""
    held, thread = session(limit=400), chat(6)
    assert len(held.fit(thread, question="paste " * 330).messages) < len(thread)
    assert list(held.fit(thread, question="short").messages) == thread


def test_the_newest_question_may_be_stored_otherwise_than_it_was_sent() -> None:
    """A host that sends the question with retrieved text and stores it without does not lose the cut."""
    held, stored = BudgetSession(300, counter=WordCounter()), chat(40)
    starts = []
    for n in range(4):
        kept = held.fit([*stored, {"role": "user", "content": "context " * 20 + f"turn {n}"}]).messages
        starts.append(kept[0]["content"])
        stored += [{"role": "user", "content": f"turn {n}"}, {"role": "assistant", "content": "yes"}]
    assert starts[1] == starts[2] == starts[3], "cut once, then the prefix stays"


def test_a_forgotten_conversation_is_a_new_one() -> None:
    """`forget` leaves nothing: neither cut nor summary."""
    writer = Writer()
    held, thread = session(writer), chat(30)
    first = held.fit(thread).messages
    held.forget()
    assert held.summary == ""
    assert list(held.fit(thread).messages)[1:] == list(first)[1:]
    assert len(writer.asked) == 2


def says(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def test_going_back_in_a_summarized_conversation_is_no_error() -> None:
    """A regenerated, shorter conversation keeps the summary of what it still holds."""
    system = says("system", "Be brief.")
    thread = [system, *chat(4)]
    held = BudgetSession(120, counter=COUNTER, summarizer=lambda text, max_tokens: "SUMMARY")
    held.fit([*thread, says("user", "why?")])
    kept = held.fit([*thread[:7], says("user", "instead " * 30)]).messages
    assert kept[-1]["content"].startswith("instead")


def test_what_came_back_into_view_is_still_covered() -> None:
    """Redacting a message that was summarized and then seen again voids the summary, for this thread and for any other."""

    def words(text: str, max_tokens: int) -> str:
        return " ".join(word for word in ("TOPIC", "SECRET") if word in text)

    calls = [
        {"id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in range(3)
    ]
    step = [{"role": "assistant", "content": None, "tool_calls": calls}]
    step += [{"role": "tool", "tool_call_id": f"c{i}", "content": "word " * 10} for i in range(3)]
    for limit in range(100, 200, 5):
        thread = [
            says("system", "Be brief."),
            says("user", "TOPIC " + "word " * 10),
            says("user", "SECRET " + "word " * 30),
            says("assistant", "ok " + "word " * 10),
            says("user", "look"),
            *step,
        ]
        held = BudgetSession(limit, counter=COUNTER, summarizer=words)
        held.fit(thread)
        thread += [says("assistant", "done"), says("user", "next " + "word " * 20)]
        held.fit(thread)
        thread[2] = says("user", "[redacted] " + "word " * 30)
        for _ in range(2):
            assert "SECRET" not in str(held.fit(thread).messages), limit


def test_a_conversation_with_messages_deleted_is_valid() -> None:
    """After a deletion a session gives a valid conversation, whatever it remembers of the longer one."""
    call = {"id": "c0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    thread = [
        says("system", "Be brief."),
        says("user", "q0 " + "word " * 40),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c0", "content": "word " * 40},
        says("assistant", "ok"),
        says("user", "next " + "word " * 40),
    ]
    later = [says("assistant", "x"), says("user", "y " + "word " * 40)]
    for limit in range(60, 200, 10):
        for gone in range(1, 5):
            held = BudgetSession(limit, counter=COUNTER)
            held.fit(thread)
            given = [*thread[:gone], *thread[gone + 1 :], *later]
            kept = list(held.fit(given).messages)
            check_laws(given, kept, limit=limit, counter=counter_for(COUNTER), remembers=True)


def test_an_assembler_takes_what_its_session_has() -> None:
    """The summarizer and the counter of a session are the assembler's, where it has none of its own."""
    held = BudgetSession(150, counter=COUNTER, summarizer=lambda text, max_tokens: "SUMMARY")
    made = Assembler(150, session=held).assemble({"history": chat(30)}, query="and now?")
    assert "SUMMARY" in str(made.messages)


@pytest.mark.parametrize(
    "second",
    [[], "", "short", [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]],
    ids=["no blocks", "no text", "short", "an image"],
)
def test_a_question_in_the_place_of_a_shortened_one_stays_as_it_is(second: Any) -> None:
    """A session that shortened a long question takes the one in its place, the same object; one that is empty asks nothing."""
    budget = TokenBudget(context_window=900, ratios={}, reserve=0, safety=0, shorten_question=True)
    held = BudgetSession(budget, counter=WordCounter())
    assert held.fit([{"role": "user", "content": "word " * 2_000}]).report.total_tokens <= 900
    question = {"role": "user", "content": second}
    assert list(map(id, held.fit([question]).messages)) == ([id(question)] if second else [])


def test_a_shortened_result_is_not_cut_again_each_turn() -> None:
    """While the cut stands, a turn gives the tokenizer what is new, not the long result that was cut before."""
    seen: list[int] = []

    def count(text: str) -> int:
        seen.append(len(text))
        return len(text.split())

    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    long = " ".join(f"word{n}" for n in range(20_000))
    thread: list[dict[str, Any]] = [
        {"role": "user", "content": "What is in the file?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": long},
        {"role": "assistant", "content": "Words."},
    ]
    held = BudgetSession(3_000, counter=counter_for(count))
    kept = set()
    for turn in range(6):
        thread.append({"role": "user", "content": f"And number {turn}?"})
        seen.clear()
        result = held.fit(thread)
        assert result.report.total_tokens <= 3_000
        texts = [m["content"] for m in result.messages if m["role"] == "tool"]
        if turn > 1:
            assert sum(seen) < 2_000
            kept.add(texts[0])
        thread.append({"role": "assistant", "content": "So it is."})
    assert len(kept) == 1
