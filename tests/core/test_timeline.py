"""Tool results in user messages: the batch they belong to, the questions they are not, what is repaired."""

from __future__ import annotations

from typing import Any

import pytest

from rankbudget import BudgetSession, MessageError, fit_messages
from rankbudget.conversation.timeline import Timeline
from rankbudget.messages.codec import DictCodec
from rankbudget.messages.measure import CodecMeasure
from rankbudget.testing import WordCounter, check_laws

COUNTER = WordCounter()  # 4 tokens frame a message, 3 prime the reply


def ask(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(*ids: str) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": i, "name": "f", "input": {}} for i in ids],
    }


def results(*ids: str, text: str = "found it", more: str = "") -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": i, "content": text} for i in ids]
    return {"role": "user", "content": [*blocks, {"type": "text", "text": more}] if more else blocks}


def timeline(messages: list[Any], *, ended: bool = False) -> Timeline:
    codec = DictCodec()
    return Timeline(messages, codec, CodecMeasure(codec, COUNTER), ended=ended)


def fit(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    found = fit_messages(messages, max_tokens=limit, counter=COUNTER, **options)
    check_laws(messages, found.messages, limit=limit, counter=COUNTER, reported=found.report.total_tokens)
    return list(found.messages)


@pytest.mark.parametrize(
    "answer",
    [results("a", "b"), results("b", "a", more="Please go on.")],
    ids=["results", "results and text"],
)
def test_a_user_message_with_results_answers_its_batch(answer: dict[str, Any]) -> None:
    """One user message may answer several calls, and text after the results makes it no question."""
    chat = [ask("q1"), call("a", "b"), answer, says("done"), ask("q2")]
    turns = list(timeline(chat).turns())
    assert [(t.start, t.stop, [(u.start, u.stop) for u in t.body], t.broken) for t in turns] == [
        (4, 5, [], ()),
        (0, 4, [(1, 3), (3, 4)], ()),
    ]
    assert fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True).messages == chat


def test_call_and_results_go_together() -> None:
    """Where there is no room for a batch, neither its call nor its user message stays."""
    chat = [ask("q1"), call("a"), results("a", text="w " * 300), says("done"), ask("q2")]
    assert fit(chat, 25) == [chat[0], chat[3], chat[4]]
    assert fit(chat, 1_000) == chat


@pytest.mark.parametrize(
    ("chat", "kept", "reasons"),
    [
        ([ask("q"), results("x"), says("ok"), ask("q2")], [0, 2, 3], {"history-1": "orphan_result"}),
        (
            [ask("q"), call("a"), results("x"), says("ok"), ask("q2")],
            [0, 3, 4],
            {"history-1": "unanswered_call", "history-2": "orphan_result"},
        ),
        (
            [ask("q"), call("a", "b"), results("a"), ask("q2")],
            [0, 3],
            {"history-1": "unanswered_call", "history-2": "unanswered_call"},
        ),
    ],
)
def test_broken_results_are_repaired(chat: list[Any], kept: list[int], reasons: dict[str, str]) -> None:
    """Results without a call are dropped, and so is a call without all of its results; both are reported, or refused when strict."""
    found = fit_messages(chat, max_tokens=1_000, counter=COUNTER)
    assert found.messages == [chat[i] for i in kept]
    assert {d.segment_id: d.reason for d in found.report.decisions if d.action == "trimmed"} == reasons
    with pytest.raises(MessageError, match=r"orphan_result|unanswered_call"):
        fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True)


@pytest.mark.parametrize(
    ("chat", "at", "left"),
    [
        ([ask("q"), says("ok"), results("x", more="how long?")], 2, results(more="how long?")),
        ([results("x", more="how long?"), says("ok"), ask("q")], 0, results(more="how long?")),
        ([ask("q"), call("a"), results("a", "x"), ask("q2")], 2, results("a")),
        ([ask("q"), call("a"), results("a", "a"), says("ok"), ask("q2")], 2, results("a")),
        ([ask("q"), call("a"), results("x", "a", more="now?")], 2, results("a", more="now?")),
        (
            [ask("q"), {**results("x", more="It is 42."), "role": "assistant"}, ask("q2")],
            1,
            says("It is 42."),
        ),
    ],
)
def test_what_is_beside_a_result_without_its_call_stays(
    chat: list[Any], at: int, left: dict[str, Any]
) -> None:
    """Only the result goes; the report says what was cut of the message, and strict refuses it."""
    found = fit_messages(chat, max_tokens=1_000, counter=COUNTER)
    texts = (
        [{"type": "text", "text": left["content"]}] if isinstance(left["content"], str) else left["content"]
    )
    assert found.messages == [*chat[:at], {**left, "content": texts}, *chat[at + 1 :]]
    assert all(
        one is other for n, (one, other) in enumerate(zip(found.messages, chat, strict=True)) if n != at
    )
    [decision] = [d for d in found.report.decisions if d.action != "kept"]
    assert (decision.segment_id, decision.action, decision.reason) == (
        f"history-{at}",
        "truncated",
        "orphan_result",
    )
    assert (decision.before, decision.after) == tuple(
        COUNTER.count_messages([m]) - 3 for m in (chat[at], left)
    )
    assert decision.detail == "Results without their call were removed."
    with pytest.raises(MessageError, match=f"message {at}: orphan_result"):
        fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True)


def test_what_is_said_with_results_of_a_broken_call_is_a_question() -> None:
    """A call that another one of is never answered goes with its results, not with what the user says."""
    chat = [ask("q"), call("a", "b"), results("a", more="how long?"), says("a day")]
    found = fit_messages(chat, max_tokens=1_000, counter=COUNTER)
    assert found.messages == [chat[0], results(more="how long?"), chat[3]]
    assert (
        fit_messages(chat[:3], max_tokens=1_000, counter=COUNTER).messages == chat[:3]
    )  # the call still waits
    session = BudgetSession(1_000, counter=COUNTER)
    assert session.fit(chat[:3]).messages == chat[:3]
    for _ in range(2):
        assert session.fit(chat).messages == found.messages


@pytest.mark.parametrize("empty", ["", " \n", None, [], [{"type": "text", "text": " "}]])
def test_an_empty_user_message_is_no_question(empty: Any) -> None:
    """It is dropped where something else asks; where nothing does, it is refused, but a session may read it."""
    nothing = {"role": "user", "content": empty}
    answered = [ask("q"), says("ok")]
    for asks in ([ask("q")], [ask("q"), call("a"), results("a")]):
        for chat in ([*asks, nothing], [*answered, nothing, *asks], [*answered, nothing, says("so"), *asks]):
            found = fit_messages(chat, max_tokens=1_000, counter=COUNTER)
            assert found.messages == [m for m in chat if m is not nothing]
            dropped = [d.reason for d in found.report.decisions if d.action == "trimmed"]
            assert dropped == ["empty_message"]
    for chat in ([nothing], [*answered, nothing], [*answered, nothing, {"role": "system", "content": "s"}]):
        with pytest.raises(MessageError, match="question must not be empty"):
            fit_messages(chat, max_tokens=1_000, counter=COUNTER)
    assert BudgetSession(1_000, counter=COUNTER).fit([*answered, nothing]).messages == answered


def test_both_ways_to_answer_may_answer_one_batch() -> None:
    """A tool message and a user message with the other result complete a call between them."""
    chat = [
        ask("q"),
        call("a", "b"),
        {"role": "tool", "tool_call_id": "a", "content": "one"},
        results("b"),
        says("done"),
        ask("q2"),
    ]
    assert fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True).messages == chat


def test_results_are_no_first_question() -> None:
    """What stands before the first real question cannot open a conversation, results in user messages included."""
    chat = [call("a"), results("a"), says("hello"), ask("q"), says("ok")]
    assert [position for position, _ in timeline(chat).leftovers()] == [0, 1, 2]
    assert fit(chat, 1_000) == chat[3:]
    assert timeline(chat[:3]).leftovers() == []


@pytest.mark.parametrize("cut", ["fill", "stable"])
def test_an_agent_keeps_its_question_over_many_steps(cut: str) -> None:
    """A hundred steps answered in user messages are one turn: the question stays, and the newest steps."""
    steps = [m for i in range(100) for m in (call(f"c{i}"), results(f"c{i}", text=f"step {i} " + "w " * 9))]
    chat = [ask("the task"), *steps]
    kept = fit(chat, 300, cut=cut)
    assert kept[0] == ask("the task")
    assert kept[1:] == chat[-len(kept) + 1 :]
    assert len(kept) > 6


@pytest.mark.slow
def test_stable_cuts_count_questions_only() -> None:
    """A cut that is to stay where it is stays for as many turns with results in user messages as with tool messages."""

    def starts(answer: Any) -> list[Any]:
        chat: list[Any] = []
        found = []
        for i in range(60):
            chat += [ask(f"q{i} w w w w"), call(f"c{i}"), answer(f"c{i}"), says(f"a{i} w w w w")]
            found.append(fit([*chat, ask("next")], 400, cut="stable")[0]["content"])
        return found

    tool = starts(lambda i: {"role": "tool", "tool_call_id": i, "content": "w w w w w"})
    user = starts(lambda i: results(i, text="w w w w"))
    assert len(set(user)) <= len(set(tool)) + 2 < 20


def test_a_session_grows_by_steps_answered_in_user_messages() -> None:
    """A conversation that grows message by message is read in a session as it is read at once."""
    session = BudgetSession(400, counter=COUNTER)
    chat: list[Any] = []
    for i in range(12):
        for new in (ask(f"q{i}"), call(f"a{i}", f"b{i}"), results(f"a{i}", f"b{i}"), says(f"done {i}")):
            chat.append(new)
            found = session.fit(chat)
            check_laws(chat, found.messages, limit=400, counter=COUNTER, remembers=True)
            if i < 3:
                assert found.messages == chat


def test_a_question_of_blocks_is_a_question() -> None:
    """Content blocks without results are what they always were."""
    chat = [
        ask("q1"),
        says("a1"),
        {
            "role": "user",
            "content": [{"type": "text", "text": "q2"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
    ]
    assert [t.start for t in timeline(chat).turns()] == [2, 0]
    assert timeline(chat).role(2) == "user"
    assert timeline([ask("q"), call("a"), results("a")]).role(2) == "tool"
