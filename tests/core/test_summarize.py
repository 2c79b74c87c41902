"""Summaries: bounded, incremental, in pieces, and without a trace when they fail; and what is found without a model."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import SummaryError, counter_for
from rankbudget._drivers import adrive, drive
from rankbudget.compression.abstractive import summarize_steps
from rankbudget.compression.extractive import extractive_summary
from rankbudget.compression.key_moments import find_moments, is_filler, weigh
from rankbudget.testing import WordCounter

WORDS = WordCounter()
EXACT = counter_for("o200k_base")


class Writer:
    """A summarizer that remembers what it was given and answers the first words of it."""

    def __init__(self, words: int | None = None, window: int | None = None) -> None:
        self.calls: list[tuple[str, int]] = []
        self.words = words
        self.input_window = window

    def __call__(self, text: str, max_tokens: int) -> str:
        self.calls.append((text, max_tokens))
        return " ".join(text.split()[: self.words or max_tokens])


def run(texts, summarizer, **options):
    settings = {
        "previous": "",
        "max_tokens": 8,
        "counter": WORDS,
        "timeout": None,
        **options,
    }
    return drive(summarize_steps(texts, summarizer=summarizer, **settings))


def test_one_call_without_a_window():
    """All texts go to the summarizer at once, with the bound on its answer."""
    writer = Writer()
    assert run(["a b", "c"], writer) == "a b c"
    assert writer.calls == [("a b\nc", 8)]


def test_incremental_calls_carry_the_summary_so_far():
    """What was summarized before is handed on, not summarized from scratch."""
    writer = Writer(words=4)
    run(["new words"], writer, previous="old words")
    assert writer.calls[0][0] == "Summary so far:\nold words\n\nNew:\nnew words"


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=8), window=st.integers(24, 80))
def test_every_call_fits_the_window_and_nothing_is_left_out(sizes, window):
    """Input and answer together fit the summarizer's window, and each word of each text is handed over once, in order."""
    texts = [" ".join(f"t{i}w{j}" for j in range(size)) for i, size in enumerate(sizes)]
    writer = Writer(words=2, window=window)
    summary = run(texts, writer, max_tokens=6)
    assert WORDS.count(summary) <= 6
    assert all(WORDS.count(text) + limit <= window for text, limit in writer.calls)
    handed = [word for text, _ in writer.calls for word in text.rpartition("New:\n")[2].split()]
    assert handed == " ".join(texts).split()


class Windowed(Writer):
    """A summarizer that says how much it reads, and has an async form of its own."""

    async def acall(self, text: str, max_tokens: int) -> str:
        return self(text, max_tokens)


@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), previous=st.integers(0, 12))
async def test_a_summarizers_own_window_bounds_every_call(sizes, previous):
    """The summarizer's own window bounds input and answer of each call, in both drivers alike."""
    texts = [" ".join(f"t{i}w{j}" for j in range(size)) for i, size in enumerate(sizes)]
    blocking, waiting = Windowed(words=2, window=40), Windowed(words=2, window=40)
    settings = {"previous": "p " * previous, "max_tokens": 6, "counter": WORDS}
    summary = drive(summarize_steps(texts, summarizer=blocking, **settings))
    assert summary == await adrive(summarize_steps(texts, summarizer=waiting, **settings))
    assert blocking.calls == waiting.calls
    assert all(WORDS.count(text) + limit <= 40 for text, limit in blocking.calls)


def test_a_window_too_small_is_an_error():
    """A window that cannot hold the answer twice and a word of input says so before any call."""
    writer = Writer(window=12)
    with pytest.raises(SummaryError, match="got 12"):
        run(["a b c"], writer)
    assert writer.calls == []


def test_nothing_new_asks_no_summarizer():
    """Without new text the summary so far stands."""
    writer = Writer()
    assert run(["", "  "], writer, previous="as it was") == "as it was"
    assert writer.calls == []


def test_an_answer_too_long_gets_one_second_chance():
    """The summarizer is asked to shorten its own answer once; then it is an error."""
    answers = iter(["w " * 20, "w " * 5])
    assert run(["text"], lambda text, max_tokens: next(answers)) == "w w w w w"
    with pytest.raises(SummaryError, match=r"at most 8 tokens \(got 20\)"):
        run(["text"], lambda text, max_tokens: "w " * 20)


@pytest.mark.parametrize(
    ("answer", "seen"), [("", "got ''"), ("  ", "got '  '"), (None, "got None"), (7, "got 7")]
)
def test_an_answer_that_is_no_text_is_an_error(answer, seen):
    """Only a text with words in it is a summary."""
    with pytest.raises(SummaryError, match=seen):
        run(["text"], lambda text, max_tokens: answer)


def test_a_failing_summarizer_is_named():
    """The error carries the cause and the name."""

    def broken_model(text, max_tokens):
        raise ConnectionError

    with pytest.raises(SummaryError, match="'broken_model' failed: ConnectionError") as caught:
        run(["text"], broken_model)
    assert isinstance(caught.value.__cause__, ConnectionError)


def test_a_hanging_summarizer_is_left_behind():
    """After its time a blocking summarizer is an error, and the caller goes on at once."""
    release = threading.Event()
    answered = threading.Event()

    def hang(text, max_tokens):
        release.wait(30)
        answered.set()
        return "late"

    with pytest.raises(SummaryError, match=r"must answer within 0\.05 seconds"):
        run(["text"], hang, timeout=0.05)
    assert not answered.is_set()
    release.set()


def test_a_summarizer_in_time_is_not_disturbed():
    """A timeout changes nothing for an answer that comes, and passes errors on."""
    assert run(["text"], Writer(), timeout=5) == "text"
    with pytest.raises(SummaryError, match="ZeroDivisionError"):
        run(["text"], lambda text, max_tokens: 1 // 0, timeout=5)


async def test_async_and_blocking_agree():
    """Plain functions, coroutine functions and objects with both forms give the same summary in both drivers."""

    class Both:
        def __call__(self, text, max_tokens):
            return "both"

        async def acall(self, text, max_tokens):
            await asyncio.sleep(0)
            return "both"

    async def only_async(text, max_tokens):
        return "both"

    def answers_later(text, max_tokens):
        return only_async(text, max_tokens)

    for summarizer in (lambda text, max_tokens: "both", Both(), only_async, answers_later):
        steps = summarize_steps(["text"], max_tokens=8, counter=WORDS, summarizer=summarizer, timeout=5)
        assert await adrive(steps) == "both"
    assert run(["text"], Both()) == "both"
    with pytest.raises(SummaryError, match="async"):
        run(["text"], only_async)
    with pytest.raises(SummaryError, match="async only"):
        run(["text"], answers_later)


async def test_a_hanging_async_summarizer_is_cancelled():
    """An async summarizer that never answers is an error after its time."""

    async def hang(text, max_tokens):
        await asyncio.sleep(30)

    with pytest.raises(SummaryError, match="must answer within"):
        await adrive(summarize_steps(["text"], max_tokens=8, counter=WORDS, summarizer=hang, timeout=0.05))


def test_no_room_is_an_error():
    """A summary of no tokens is no summary."""
    with pytest.raises(SummaryError, match=r"must be 1 or more \(got 0\)"):
        run(["text"], Writer(), max_tokens=0)


CHAT = """user: Hello there, how are you today?
assistant: I am fine, thank you so much!
user: My name is Ada Lovelace and I prefer window seats.
assistant: Noted. What a lovely day it is, by the way.
user: We decided to fly on 4 May with flight LH 2041.
assistant: Great! I will book two seats for 318 euros by Friday.
user: Thanks!
user: No, actually it should be 5 May."""


def test_the_offline_summary_keeps_what_matters():
    """Names, preferences, decisions, commitments and corrections stay, pleasantries go."""
    summary = extractive_summary(CHAT, 60, EXACT)
    assert EXACT.count(summary) <= 60
    for part in ("Ada Lovelace", "prefer window seats", "4 May", "5 May", "LH 2041", "318 euros"):
        assert part in summary
    assert "how are you" not in summary
    assert "thank you so much" not in summary


@given(limit=st.integers(0, 90))
def test_the_offline_summary_is_bounded_and_invents_nothing(limit):
    """At any bound the summary fits, and its words are the source's, in order."""
    summary = extractive_summary(CHAT, limit, EXACT)
    assert EXACT.count(summary) <= limit
    source = iter(CHAT.split())
    assert all(
        any(word.rstrip(".") in other for other in source) for word in summary.split() if word != "..."
    )


def test_the_offline_summarizer_is_the_default():
    """Without a summarizer no call is made, and the summary so far counts as text."""
    summary = run(
        ["We decided to use JWT.", "What lovely weather today."],
        None,
        previous="Ada leads the team.",
        max_tokens=9,
    )
    assert summary.split("\n") == ["Ada leads the team.", "We decided to use JWT."]
    assert run(["text"], "extractive") == "text"


@pytest.mark.parametrize(
    ("text", "moments"),
    [
        ("We agreed on the blue one.", {"decision"}),
        ("I'll send the file tomorrow.", {"commitment"}),
        ("Actually, that is wrong.", {"correction"}),
        ("I am allergic to nuts.", {"fact"}),
        ("we meet Grace there", {"name"}),
        ("it costs 40", {"number"}),
        ("it says `rm -rf` there", {"quote"}),
        ("the sky is blue", set()),
    ],
)
def test_key_moments(text, moments):
    """Each kind of moment is found by its form."""
    assert set(find_moments(text)) == moments


def test_filler_weighs_nothing():
    """Pleasantries are filler whatever their length; a request is not."""
    for text in (
        "Thanks!",
        "Great, sounds good. Have a nice day!",
        "Hi there, how are you today?",
        "ok ok ok",
    ):
        assert is_filler(text)
        assert weigh(text) == 0
    assert not is_filler("Great, now delete the table.")


def test_almost_filler_is_none():
    """A text made to send a pattern matcher astray is judged, and stays."""
    assert not is_filler("hope this " * 28 + "x?!#y")
    assert not is_filler("let me know if " * 18 + "?x")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_summarizer_that_hangs_leaves_few_threads(*, asynchronous: bool) -> None:
    """After some calls that never came back it is not asked again, until one of them returns; then it is."""
    release = threading.Event()

    def hang(text: str, max_tokens: int) -> str:
        release.wait(30)
        return "fine"

    def ask() -> str:
        steps = summarize_steps(["a b c"], max_tokens=9, counter=WORDS, summarizer=hang, timeout=0.01)
        return asyncio.run(adrive(steps)) if asynchronous else drive(steps)

    def hanging() -> int:
        return sum(thread.name == "rankbudget-summary" for thread in threading.enumerate())

    before = hanging()
    try:
        for _ in range(20):
            with pytest.raises(SummaryError, match="must answer within"):
                ask()
        assert 0 < hanging() - before <= 8
    finally:
        release.set()
    while hanging() > before:
        time.sleep(0.01)
    assert (
        drive(summarize_steps(["a b c"], max_tokens=9, counter=WORDS, summarizer=hang, timeout=5)) == "fine"
    )


def test_a_summarizer_that_hung_is_asked_again_without_a_timeout() -> None:
    """Who gives no timeout waits; threads that still hang do not answer for it."""
    free = threading.Event()

    def slow(text: str, max_tokens: int) -> str:
        return "fine" if free.wait(5) else "late"

    for _ in range(9):
        with pytest.raises(SummaryError, match="must answer within"):
            drive(summarize_steps(["a b c"], max_tokens=9, counter=WORDS, summarizer=slow, timeout=0.01))
    threading.Timer(0.2, free.set).start()
    steps = summarize_steps(["a b c"], max_tokens=9, counter=WORDS, summarizer=slow, timeout=None)
    assert drive(steps) == "fine"
