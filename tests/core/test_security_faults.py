"""What happens when a part from outside raises, hangs, is cancelled or answers nonsense: nothing is lost and the error names the part."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    Block,
    BudgetSession,
    EmbeddingIndex,
    TokenBudget,
    afit_messages,
    counter_for,
    fit_documents,
    fit_messages,
)
from rankbudget.errors import BudgetError
from rankbudget.testing import RecordingCounter, WordCounter, check_laws, snapshot

COUNTER = WordCounter()
CHAT = [
    {"role": role, "content": f"{i}. {role} says " + "word " * 20}
    for i in range(30)
    for role in ("user", "assistant")
] + [{"role": "user", "content": "And now?"}]
LIMIT = 200


def boom(*_: Any, **__: Any) -> Any:
    msg = "503 from outside"
    raise RuntimeError(msg)


# ---------------------------------------------------------------- summarizers
NONSENSE: list[Any] = [None, 3, b"bytes", ["a"], "", "   ", "\x00", "word " * 9000, object()]


@pytest.mark.parametrize("answer", NONSENSE, ids=lambda a: type(a).__name__)
def test_a_summarizer_that_answers_nonsense_breaks_nothing(answer: Any) -> None:
    """Whatever a summarizer returns, the result is valid, within the limit, and the messages given are as they were."""
    before = snapshot(CHAT)
    result = fit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER, summarizer=lambda text, max_tokens: answer)
    check_laws(CHAT, result.messages, limit=LIMIT, counter=COUNTER, before=before, inserts=True)


def test_a_summarizer_that_raises_leaves_everything_and_is_named() -> None:
    """The result is what it would be without one, and a warning says that the summary failed and why."""
    plain = fit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER)
    result = fit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER, summarizer=boom)
    assert result.messages == plain.messages
    assert any("summar" in w and "503" in w for w in result.report.warnings)


def test_a_session_forgets_nothing_when_its_summarizer_fails_once() -> None:
    """After a failure the next turn summarizes all that is not in a summary yet."""
    seen: list[str] = []
    down = [True]

    def summarizer(text: str, max_tokens: int) -> str:
        if down[0]:
            boom()
        seen.append(text)
        return "summary"

    session = BudgetSession(
        TokenBudget(context_window=10_000, max_system_ratio=None), counter=COUNTER, summarizer=summarizer
    )
    session.fit(CHAT, limit=LIMIT)
    down[0] = False
    more = [*CHAT, {"role": "assistant", "content": "Then."}, {"role": "user", "content": "Go on?"}]
    result = session.fit(more, limit=LIMIT)
    kept = {m["content"] for m in result.messages}
    told = "\n".join(seen)
    lost = [m["content"][:20] for m in CHAT if m["content"] not in kept and m["content"][:12] not in told]
    assert not lost


async def test_a_cancelled_summary_leaves_the_session_as_it_was() -> None:
    """Cancelling a turn while its summary is written neither changes the session nor blocks the next turn."""
    started = asyncio.Event()

    async def hang(text: str, max_tokens: int) -> str:
        started.set()
        await asyncio.sleep(60)
        return "late"

    session = BudgetSession(
        TokenBudget(context_window=10_000, max_system_ratio=None), counter=COUNTER, summarizer=hang
    )
    task = asyncio.create_task(session.afit(CHAT, limit=LIMIT))
    await asyncio.wait_for(started.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    session.summarizer = None
    result = await asyncio.wait_for(session.afit(CHAT, limit=LIMIT), 5)
    assert result.messages[-1] is CHAT[-1]
    assert session.summary == ""


def test_a_hanging_summarizer_does_not_hold_other_turns() -> None:
    """While one thread waits for its summary, another thread's turn without one is answered."""
    release = threading.Event()
    waiting = threading.Event()

    def hang(text: str, max_tokens: int) -> str:
        waiting.set()
        release.wait(20)
        return "late"

    session = BudgetSession(
        TokenBudget(context_window=10_000, max_system_ratio=None), counter=COUNTER, summarizer=hang
    )
    slow = threading.Thread(target=lambda: session.fit(CHAT, limit=LIMIT))
    slow.start()
    assert waiting.wait(10)
    session.fit(CHAT[-3:], limit=10_000)
    assert slow.is_alive(), "the other turn has waited for the summary"
    release.set()
    slow.join(20)
    assert not slow.is_alive()


def test_an_async_summarizer_in_sync_code_is_explained() -> None:
    """A coroutine function given to the sync form never runs forever or in silence: it works, or a warning or typed error names the async form."""

    async def summarizer(text: str, max_tokens: int) -> str:
        return "short"

    result = fit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER, summarizer=summarizer)
    check_laws(CHAT, result.messages, limit=LIMIT, counter=COUNTER, inserts=True)
    assert "<summary>" in str(result.messages) or any("async" in w for w in result.report.warnings)
    again = asyncio.run(afit_messages(CHAT, max_tokens=LIMIT, counter=COUNTER, summarizer=summarizer))
    assert "short" in str(again.messages)


# ---------------------------------------------------------------- tokenizers, scorers, embedders
@pytest.mark.parametrize("answer", [-5, None, "many", 1e9, float("nan")])
def test_a_tokenizer_that_answers_nonsense_is_refused_or_obeyed(answer: Any) -> None:
    """A callable tokenizer that returns something else than a number of tokens ends in a typed error; a huge number ends in a refusal."""
    with pytest.raises((BudgetError, TypeError), match=r"\w"):
        fit_messages(CHAT, max_tokens=LIMIT, counter=counter_for(lambda text: answer))


def test_a_tokenizer_that_raises_is_heard() -> None:
    """The tokenizer's own error reaches the caller, and the messages are as they were."""
    before = snapshot(CHAT)
    with pytest.raises((RuntimeError, BudgetError), match="503"):
        fit_messages(CHAT, max_tokens=LIMIT, counter=counter_for(boom))
    assert snapshot(CHAT) == before


class _BadScorer:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def score(self, query: str, segments: Any) -> Any:
        return self.answer(segments)


@pytest.mark.parametrize(
    "answer",
    [
        boom,
        lambda s: [],
        lambda s: [float("nan")] * len(s),
        lambda s: [float("inf"), float("-inf")] * len(s),
        lambda s: None,
        lambda s: ["x"] * len(s),
    ],
    ids=["raises", "too few", "nan", "infinite", "none", "words"],
)
def test_a_scorer_that_fails_is_named_or_survived(answer: Any) -> None:
    """A scorer that raises, or returns too few, infinite or no numbers never yields a prompt over the limit; its error says so otherwise."""
    documents = [f"Document {i} says " + "word " * 9 for i in range(20)]
    try:
        result = fit_documents(
            documents, max_tokens=60, query="word", counter=COUNTER, scorer=_BadScorer(answer)
        )
    except Exception as error:  # any error is fine as long as it says what happened
        if not str(error).strip():
            raise
        return
    assert sum(COUNTER.count(s.text + "\n") for s in result.segments) <= 60


@pytest.mark.parametrize(
    "embed",
    [
        boom,
        lambda texts: [],
        lambda texts: [[1.0]] * (len(texts) + 1),
        lambda texts: [["x"]] * len(texts),
        lambda texts: [[float("nan"), 1.0]] * len(texts),
    ],
    ids=["raises", "too few", "too many", "words", "nan"],
)
def test_an_embedder_that_fails_leaves_the_index_as_it_was(embed: Any) -> None:
    """An index keeps what it has when adding more fails."""
    works = [True]

    def embedder(texts: Any) -> Any:
        return [[float(len(t)), 1.0] for t in texts] if works[0] else embed(texts)

    index = EmbeddingIndex(embedder)
    index.add(["one", "two"])
    works[0] = False
    with pytest.raises((ValueError, RuntimeError)) as caught:
        index.add(["three"])
    assert str(caught.value).strip()
    assert len(index) == 2
    works[0] = True
    index.add(["three"])
    assert len(index) == 3


# ---------------------------------------------------------------- processes, threads, work
def test_many_threads_share_one_budget_and_one_counter() -> None:
    """Eight threads with one budget and one counter get what one thread gets."""
    counter = counter_for("o200k_base")
    expected = fit_messages(CHAT, max_tokens=LIMIT, counter=counter).messages
    found: list[Any] = []

    def work() -> None:
        found.extend(
            fit_messages(CHAT, max_tokens=LIMIT, counter=counter).messages == expected for _ in range(20)
        )

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [True] * 160


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_works_and_interpreter_exit_is_quiet() -> None:
    """Counting before a fork does not hang the child, and leaving with a session alive prints nothing."""
    code = (
        "import os, sys; from rankbudget import BudgetSession, fit_messages\n"
        "chat = [{'role': 'user', 'content': 'hi'}]\n"
        "session = BudgetSession(100, counter='o200k_base'); session.fit(chat)\n"
        "pid = os.fork()\n"
        "assert len(session.fit(chat).messages) == 1\n"
        "if pid: sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_dropped_is_never_counted() -> None:
    """Of a thread of 4,000 messages only what is kept and one group more is given to the tokenizer."""
    chat = [{"role": "user", "content": f"{i} " + "word " * 30} for i in range(4000)]
    counter = RecordingCounter(COUNTER)
    result = fit_messages(chat, max_tokens=400, counter=counter)
    kept = sum(len(m["content"]) for m in result.messages)
    assert counter.characters <= kept + 2 * len(chat[0]["content"]) + 200


def test_an_assembler_whose_part_fails_says_which() -> None:
    """A failing scorer inside a whole assembly reaches the caller as an error, with nothing changed."""
    before = snapshot(CHAT)
    assembler = Assembler(TokenBudget(context_window=2000), counter=COUNTER, scorer=_BadScorer(boom))
    documents = Block.of("knowledge", *(f"Document {i} " + "word " * 200 for i in range(20)))
    with pytest.raises((RuntimeError, BudgetError), match="503"):
        assembler.assemble(
            [Block.of("system", "Rules."), Block(name="history", messages=CHAT), documents], query="word?"
        )
    assert snapshot(CHAT) == before
