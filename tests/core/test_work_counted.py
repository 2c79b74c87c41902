"""Speed as work counted: how much text a fit tokenizes and how much memory it takes, whatever the machine."""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    BudgetSession,
    FewShotSelector,
    PromptCompressor,
    Segment,
    TokenBudget,
    counter_for,
    fit_documents,
    fit_messages,
    fit_text,
)
from rankbudget.batch import FitPrompt
from rankbudget.compression import importance, json_shrink, structured
from rankbudget.conversation.timeline import Timeline
from rankbudget.counting.tiktoken_counter import TiktokenCounter
from rankbudget.fitting import doubles
from rankbudget.messages.codec import DictCodec
from rankbudget.messages.measure import CodecMeasure
from rankbudget.relevance import corpus, evidence, sentences
from rankbudget.relevance.embedding import Embedder
from rankbudget.testing import RecordingCounter

LIMIT = 4_096


def thread(size: int) -> list[dict[str, str]]:
    """A conversation whose messages differ in length and text."""
    roles = ("user", "assistant")
    return [
        {
            "role": roles[i % 2],
            "content": f"Message {i} of {size}: " + "some words that cost tokens. " * (1 + i % 11),
        }
        for i in range(size)
    ]


def characters(messages: list[dict[str, str]]) -> int:
    return sum(len(m["content"]) for m in messages)


def largest_group(messages: list[dict[str, str]]) -> int:
    """Characters of the largest question with its answer."""
    return max(len(a["content"]) + len(b["content"]) for a, b in pairwise(messages))


@pytest.mark.parametrize("size", [1_000, 10_000])
@pytest.mark.parametrize("cut", ["fill", "stable"])
def test_a_cold_fit_tokenizes_what_fits_and_one_group_more(size: int, cut: str) -> None:
    """However long the thread, no more text is tokenized than fits, plus one group to see that it does not."""
    messages = thread(size)
    counter = RecordingCounter(counter_for("o200k_base"))
    fits = fit_messages(messages, max_tokens=LIMIT).messages
    kept = fit_messages(messages, max_tokens=LIMIT, counter=counter, cut=cut).messages
    assert 0 < len(kept) <= len(fits)
    assert 0 < counter.characters <= characters(list(fits)) + largest_group(messages)


def test_the_work_does_not_grow_with_the_thread() -> None:
    """A thread ten times as long, with the same end, costs the same number of tokenized characters."""
    messages = thread(10_000)
    work = []
    for size in (1_000, 10_000):
        counter = RecordingCounter(counter_for("o200k_base"))
        fit_messages(messages[-size:], max_tokens=LIMIT, counter=counter)
        work.append(counter.characters)
    assert work[0] == work[1]


@pytest.mark.slow
def test_a_turn_of_ten_thousand_steps_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question asked ten thousand messages ago is found by looking at each role once."""
    looked: list[int] = []

    class Watched(bytearray):
        def rfind(self, *given: int) -> int:  # type: ignore[override]
            looked.append(given[2] - given[1])
            return super().rfind(*given)

    messages = [{"role": "user", "content": "go"}] + [{"role": "assistant", "content": "step"}] * 10_000
    codec = DictCodec()
    monkeypatch.setattr("rankbudget.conversation.timeline.bytearray", Watched, raising=False)
    timeline = Timeline(messages, codec, CodecMeasure(codec, counter_for("o200k_base")))
    assert next(timeline.turns()).start == 0
    assert len(looked) > 10
    assert sum(looked) == len(messages)


def examples(size: int) -> list[dict[str, str]]:
    return [{"input": f"Where is part {i} of {i % 97}?", "output": f"In box {i}."} for i in range(size)]


def text(size: int) -> str:
    return " ".join([f"Part {i} was replaced in year {i % 211}." for i in range(size)])


LONG_INPUTS: dict[str, Callable[[int, RecordingCounter], object]] = {
    "messages": lambda size, counter: fit_messages(thread(size), max_tokens=20 * size, counter=counter),
    "row": lambda size, counter: FitPrompt(300, counter=counter).row({"history": thread(size)}),
    "documents": lambda size, counter: fit_documents(
        text(size).split(". "), max_tokens=300, query="When was part 7 replaced?", counter=counter
    ),
    "examples": lambda size, counter: FewShotSelector().select(
        "Where is part 7?", examples(size), None, max_tokens=300, counter=counter
    ),
    "fit text": lambda size, counter: fit_text(
        text(size), max_tokens=5 * size, query="When was part 7 replaced?", counter=counter
    ),
    "compress": lambda size, counter: PromptCompressor(counter=counter).compress(text(size)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG_INPUTS)
def test_ten_times_the_input_costs_at_most_eleven_times_the_work(name: str) -> None:
    """From 300 to 3,000 pieces, tokenized characters and peak memory grow as the input does."""
    work = []
    for size in (300, 3_000):
        counter = RecordingCounter(counter_for("o200k_base"))
        tracemalloc.start()
        LONG_INPUTS[name](size, counter)
        work.append((counter.characters + 10_000, tracemalloc.get_traced_memory()[1] + 500_000))
        tracemalloc.stop()
    (few, small), (many, large) = work
    assert many <= 11 * few
    assert large <= 11 * small


CACHES = (
    corpus._WORDS,
    corpus._INDEXES,
    evidence._RATED,
    evidence._SPLITS,
    sentences._SENTENCES,
    doubles._ALIKE,
)
PASTED = "When was part 7 replaced? " + "INFO order 17 done, " * 20
SEGMENTS: dict[str, Callable[[str, int], Segment]] = {
    "plain": lambda text, i: Segment(id=str(i), text=text),
    "titled": lambda text, i: Segment(id=str(i), text=text, title=f"Line {i}"),
    "scored": lambda text, i: Segment(id=str(i), text=text, score=i % 17),
    "twice": lambda text, i: Segment(id=str(i), text=text.replace(f"line {i} ", f"line {i // 2} ")),
}


@pytest.mark.parametrize(("query", "most"), [("When was part 7 replaced?", 3.2), (PASTED, 4.3)])
@pytest.mark.parametrize("kind", SEGMENTS)
def test_too_many_texts_for_the_caches_are_read_as_often_as_few(
    kind: str, query: str, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is split once; its words are listed for itself, for its sentences and for what repeats it."""
    read = {"_split": 0, "_analyse": 0}

    def watch(module: object, name: str) -> None:
        function = getattr(module, name)

        def watched(text: str) -> object:
            read[name] += len(text)
            return function(text)

        monkeypatch.setattr(module, name, watched)

    watch(sentences, "_split")
    watch(corpus, "_analyse")
    monkeypatch.setattr("rankbudget.relevance.fusion.MANY", 20)
    monkeypatch.setattr("rankbudget.relevance.fusion.POOL", 5)
    for cache in CACHES:
        monkeypatch.setattr(cache, "_max_size", 1)  # what was kept last stays, and nothing else
    said = [f"of line {i} was replaced in {len(query)}{kind} and looks" for i in range(100)]
    texts = [
        " ".join([f"Part {i * k} {words} like {k * 31}." for k in range(8)]) for i, words in enumerate(said)
    ]
    given = [SEGMENTS[kind](text, i) for i, text in enumerate(texts)]
    cost = lambda segment, text: len(text) // 4 + 400 * (segment.id == "7")  # noqa: E731 - one has a picture
    assert len(fit_documents(given, max_tokens=1_500, query=query, cost=cost).segments) > 5
    total = sum(map(len, texts))
    assert read["_split"] <= 1.1 * total
    assert total <= read["_analyse"] <= most * total


def test_of_many_examples_those_are_embedded_that_may_be_picked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meaning is compared of the best 500 by words, and of those whose turn comes."""
    embedded: list[str] = []
    embed = Embedder._embedded
    monkeypatch.setattr(
        Embedder, "_embedded", lambda self, texts: embedded.extend(texts) or embed(self, texts)
    )
    known = [{**example, "input": f"Say: {example['input']}"} for example in examples(3_000)]
    assert len(FewShotSelector().select("Where is part 7 of 3000?", known)) == 3
    assert 500 <= len(embedded) <= 600


def test_a_long_conversation_leaves_two_objects_a_message_to_the_garbage_collector() -> None:
    """Of a question with its answer these are the turn, its two units, and what follows the question."""
    messages = thread(2_000)
    fit_messages(messages[:20], max_tokens=LIMIT)
    gc.collect()
    before = len(gc.get_objects())
    made = fit_messages(messages, max_tokens=10**6)
    gc.collect()
    assert len(made.messages) == len(messages)
    assert len(gc.get_objects()) - before <= 2.1 * len(messages)


@pytest.mark.slow
def test_a_compressed_text_is_counted_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where much of a long text stays, it is not counted whole again for each place where it could be cut."""
    counter = counter_for("cl100k_base")
    measured: list[int] = []
    measure = type(counter)._measure
    monkeypatch.setattr(
        type(counter), "_measure", lambda self, text: measured.append(len(text)) or measure(self, text)
    )
    given = text(10_000)
    PromptCompressor(counter=counter).compress(given)
    assert len(given) <= sum(measured) <= 5 * len(given)


@pytest.mark.parametrize("size", [1_000, 10_000])
def test_a_later_turn_tokenizes_the_new_messages_only(size: int) -> None:
    """In a session, a turn that moves no cut tokenizes its new messages and nothing else, however long the thread."""
    messages = thread(size)
    counter = RecordingCounter(counter_for("o200k_base"))
    session = BudgetSession(LIMIT, counter=counter)
    turns = [
        [
            {"role": "assistant", "content": f"New answer {i}."},
            {"role": "user", "content": f"New question {i}?"},
        ]
        for i in range(3)
    ]
    for new in turns[:2]:  # the thread fills the limit, the turn after it cuts
        session.fit(messages)
        messages += new
    before = session.fit(messages)
    counter.reset()
    after = session.fit([*messages, *turns[2]])
    assert counter.characters == characters(turns[2])
    assert list(after.messages) == [*before.messages, *turns[2]]


class Tokenizing(TiktokenCounter):
    """Notes how many characters reach the tokenizer."""

    def __init__(self) -> None:
        super().__init__("o200k_base")
        self.characters = 0
        self._tokenize, self._encode_to_buffer = self._encode_to_buffer, self._noted

    def _noted(self, text: str, special: set[str]) -> object:
        self.characters += len(text)
        return self._tokenize(text, special)


def test_a_turn_with_the_same_documents_tokenizes_what_is_new() -> None:
    """A prompt tokenizes its documents about once; a later turn no rendered block, only what is cut anew."""
    documents = [f"Report {i} says: " + f"the parcel number {i} was sent by ship, " * 25 for i in range(20)]
    history = thread(40)
    counter = Tokenizing()
    session = BudgetSession(TokenBudget(context_window=LIMIT, reserve=500), counter=counter)
    assembler = Assembler(session.budget, session=session)
    work = []
    for i in range(6):
        before = counter.characters
        assembler.assemble({"history": history, "knowledge": documents}, query=f"Where is parcel {i}?")
        work.append(counter.characters - before)
        history = [*history, {"role": "assistant", "content": f"In {i}."}, {"role": "user", "content": "?"}]
    assert work[0] <= 1.3 * (sum(map(len, documents)) + characters(thread(40)))
    assert 0 < max(work[1:]) <= 5 * max(map(len, documents))


def test_documents_that_the_room_cannot_hold_are_counted_when_the_report_is_read() -> None:
    """Of documents much larger than the room only a part is tokenized, and the rest when the report is read."""
    texts = [f"Page {i}. " + " ".join(f"word{i}x{n}" for n in range(120)) for i in range(40)]
    counter = RecordingCounter(counter_for("o200k_base"))
    plan = Assembler(1_300, counter=counter).assemble({"knowledge": texts}, query="What is word3x5?")
    planned, everything = counter.characters, sum(map(len, texts))
    assert planned < everything // 2
    assert len([d for d in plan.report.decisions if d.block == "knowledge" and d.before > 0]) == len(texts)
    assert counter.characters - planned > everything // 2


@pytest.mark.parametrize("remembers", [False, True])
def test_a_step_of_a_long_run_cuts_its_own_result_alone(
    monkeypatch: pytest.MonkeyPatch, *, remembers: bool
) -> None:
    """However many long results an agent has read, one more step shortens no older result again.

    Only the newest result is cut, and at most one older one that takes the rest of the room.
    """
    read, cut = [0], structured.compress_structured

    def noted(text: str, *given: Any, **named: Any) -> str:
        read[0] += len(text)
        return cut(text, *given, **named)

    monkeypatch.setattr(structured, "compress_structured", noted)
    result = "".join(f"line {i} of words. " for i in range(2_000))
    run: list[dict[str, Any]] = [{"role": "user", "content": "Find order 17."}]
    for i in range(124):
        call = {"id": f"c{i}", "type": "function", "function": {"name": "read", "arguments": "{}"}}
        run.append({"role": "assistant", "content": "", "tool_calls": [call]})
        run.append({"role": "tool", "tool_call_id": f"c{i}", "content": f"file {i}. {result}"})
    counter = counter_for("o200k_base")
    once = partial(fit_messages, max_tokens=60_000, counter=counter)
    fit = BudgetSession(60_000, counter=counter).fit if remembers else once
    fit(run[:-6])
    assert sum(len(message["content"]) for message in run) > 4_000_000
    for stop in (-4, -2, None):
        read[0] = 0
        fit(run[:stop])
        assert read[0] <= 2.5 * len(result)


def test_what_is_asked_is_looked_for_once_in_an_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each size that is tried for a JSON array chooses among items that were read for the first one."""
    read, rank = [0], importance.ranked_by_words

    def noted(items: list[Any], asked: frozenset[str]) -> importance.Ranked:
        read[0] += len(items)
        return rank(items, asked)

    monkeypatch.setattr(json_shrink, "ranked_by_words", noted, raising=False)
    monkeypatch.setattr(importance, "ranked_by_words", noted)
    rows = [{"order": f"O{i}", "status": "sent" * (i % 7), "price": i} for i in range(800)]
    for text in (json.dumps(rows), json.dumps({"content": json.dumps(rows)})):
        read[0] = 0
        kept = structured.compress_structured(text, 200, counter_for("o200k_base"), "Where is order O423?")
        assert "O423" in kept
        assert read[0] <= len(rows) + 200
