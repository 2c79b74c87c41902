"""The history station: newest first, groups whole, the last exchanges, repairs, caps, cuts that stay."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rankbudget import (
    BudgetExceededError,
    BudgetSession,
    MessageError,
    TokenBudget,
    afit_messages,
    fit_messages,
)
from rankbudget.errors import BudgetConfigError, BudgetError
from rankbudget.testing import WordCounter

COUNTER = WordCounter()  # 4 tokens frame a message, 3 prime the reply


def words(n: int) -> str:
    return " ".join(["w"] * n)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str, *calls: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = [
            {"id": c, "type": "function", "function": {"name": "f", "arguments": "{}"}} for c in calls
        ]
    return message


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def exchanges(n: int, size: int = 10) -> list[dict[str, Any]]:
    return [m for i in range(n) for m in (user(f"q{i} {words(size - 1)}"), says(f"a{i} {words(size - 1)}"))]


def fit(messages: list[Any], limit: int, **options: Any) -> list[Any]:
    found = fit_messages(messages, max_tokens=limit, counter=COUNTER, **options)
    assert COUNTER.count_messages(found.messages) == found.report.total_tokens <= limit
    return list(found.messages)


def reasons(messages: list[Any], limit: int, **options: Any) -> dict[str, str]:
    report = fit_messages(messages, max_tokens=limit, counter=COUNTER, **options).report
    return {d.segment_id: d.reason for d in report.decisions}


def test_what_fits_comes_back_as_the_same_objects() -> None:
    """A conversation within the limit comes back untouched, message for message."""
    chat = [system("s"), *exchanges(3), user("now")]
    kept = fit(chat, 10_000)
    assert all(a is b for a, b in zip(kept, chat, strict=True))


def test_newest_exchanges_stay() -> None:
    """Of 20 exchanges of 28 tokens, 100 tokens hold the question and the newest three."""
    chat = [*exchanges(20), user("now")]
    assert [m["content"].split()[0] for m in fit(chat, 100)] == [
        "q17",
        "a17",
        "q18",
        "a18",
        "q19",
        "a19",
        "now",
    ]


def test_system_messages_stay_wherever_they_stood() -> None:
    """Leading system messages stay first, a later one keeps its place among what is kept."""
    chat = [system("one"), *exchanges(20), system("two"), user("now")]
    kept = fit(chat, 80)
    assert [m["content"] for m in kept if m["role"] == "system"] == ["one", "two"]
    assert kept[0] is chat[0]
    assert kept[-2] is chat[-2]


def test_a_tool_batch_lives_or_dies_whole() -> None:
    """A call with two results is dropped with both of them when both do not fit."""
    chat = [
        user("q"),
        says("", "a", "b"),
        result("a", words(30)),
        result("b", words(30)),
        says("done"),
        user("now"),
    ]
    assert [m["role"] for m in fit(chat, 60)] == ["user", "assistant", "user"]
    assert [m["role"] for m in fit(chat, 200)] == [m["role"] for m in chat]


def test_an_agent_keeps_its_task_and_its_newest_steps() -> None:
    """In one long turn the question stays; older steps are shortened, and without a cap they go."""
    chat = [
        user("do the job"),
        *(m for i in range(10) for m in (says("", f"c{i}"), result(f"c{i}", words(40)))),
    ]
    for cap, calls in ((1_000, ["c7", "c8", "c9"]), (None, ["c8", "c9"])):
        kept = fit(chat, 159, message_cap=cap)  # 3 priming, 7 for the task, 50 for each step
        assert kept[0] is chat[0]
        assert [m["tool_call_id"] for m in kept if m["role"] == "tool"] == calls


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ([user("q"), result("x", "lost"), user("now")], "orphan_result"),
        ([user("q"), says("", "c"), user("now")], "unanswered_call"),
        ([user("q"), says("", "c", "d"), result("c", "1"), user("now")], "unanswered_call"),
        ([user("q"), says("", "c"), system("s"), result("c", "1"), user("now")], "unanswered_call"),
        ([says("hello"), user("now")], "leading_assistant"),
        ([result("x", "lost"), user("now")], "orphan_result"),
    ],
)
def test_broken_input_is_repaired_and_reported_or_refused(broken: list[Any], reason: str) -> None:
    """Every repair has its reason in the report; strict=True refuses the same conversation."""
    kept = fit(broken, 1000)
    assert [m for m in kept if m["role"] == "user"] == [m for m in broken if m["role"] == "user"]
    assert not any(m["role"] in ("tool", "assistant") for m in kept)
    assert reason in reasons(broken, 1000).values()
    with pytest.raises(MessageError, match=reason):
        fit_messages(broken, max_tokens=1000, counter=COUNTER, strict=True)


def test_a_call_that_waits_at_the_end_stays() -> None:
    """A tool call that is the last word is not broken: its results are still to come."""
    chat = [user("q"), says("", "c", "d"), result("c", "1")]
    assert fit(chat, 1000) == chat


def test_long_texts_of_the_last_exchanges_are_capped_before_an_exchange_goes() -> None:
    """Two results of 3,000 words share a room of 1,000 tokens instead of vanishing, and the report says so."""
    chat = [user("compare"), says("", "a", "b"), result("a", words(3000)), result("b", words(3000))]
    kept = fit(chat, 1000)
    assert [m["role"] for m in kept] == ["user", "assistant", "tool", "tool"]
    assert kept[2]["content"] != chat[2]["content"]
    assert chat[2]["content"] == words(3000)
    assert reasons(chat, 1000)["history-2"] == "message_cap"


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"message_cap": 0}, "message_cap is 0"),
        ({"message_cap": -5}, "message_cap is -5"),
        ({"message_cap": 50}, "message_cap is 50"),
        ({"message_cap": "300"}, "message_cap is '300'"),
        ({"min_exchanges": "3"}, "min_exchanges is '3'"),
        ({"min_exchanges": 2.5}, "min_exchanges is 2.5"),
        ({"min_exchanges": -1}, "min_exchanges is -1"),
        ({"min_exchanges": None}, "min_exchanges is None"),
        ({"cut": "none", "min_exchanges": True}, "cut is 'none'"),
    ],
)
async def test_settings_that_would_erase_or_crash_are_refused(options: dict[str, Any], seen: str) -> None:
    """The same rules as a budget's, all at once, in both forms; a question is never cut to nothing."""
    chat = [user(words(3000))]
    with pytest.raises(BudgetConfigError) as caught:
        fit_messages(chat, max_tokens=1000, counter=COUNTER, **options)
    what, value = seen.split(" is ")
    assert f"{what} must be" in str(caught.value)
    assert f"(got {value})" in str(caught.value)
    with pytest.raises(BudgetConfigError) as again:
        await afit_messages(chat, max_tokens=1000, counter=COUNTER, **options)
    assert str(again.value) == str(caught.value)


def test_the_smallest_cap_and_no_minimum_work() -> None:
    """A shortened text keeps all of the room that is free; without a minimum the question alone may stay."""
    (kept,) = fit([user(words(3000))], 1000, message_cap=200, shorten_question=True)
    assert 950 <= COUNTER.count(kept["content"]) <= 1000
    assert [m["content"] for m in fit([*exchanges(5), user("now")], 10, min_exchanges=0)] == ["now"]


def test_a_question_that_cannot_stay_is_an_error_with_figures() -> None:
    """Pinned content and the question that exceed the limit raise an error that says by how much and where."""
    with pytest.raises(BudgetExceededError) as caught:
        fit_messages([system(words(50)), user(words(50))], max_tokens=60, counter=COUNTER)
    assert (caught.value.limit, caught.value.needed, caught.value.blocks["system"]) == (60, 111, 54)


@pytest.mark.parametrize("limit", [0, -5, True, 2.5, "many"])
def test_a_limit_that_is_no_limit_is_refused(limit: Any) -> None:
    """A limit has to be a whole number of tokens, 1 or more."""
    with pytest.raises(BudgetConfigError, match="max_tokens"):
        fit_messages([user("q")], max_tokens=limit, counter=COUNTER)


@pytest.mark.parametrize("message", [{"content": "x"}, {"role": "wizard", "content": "x"}, "text", None])
def test_a_message_without_a_known_role_is_refused(message: Any) -> None:
    """The error names the role seen and the roles allowed."""
    with pytest.raises(BudgetError, match="role"):
        fit_messages([user("q"), message], max_tokens=100, counter=COUNTER)


def test_nothing_in_nothing_out() -> None:
    """An empty conversation stays empty."""
    assert fit([], 10) == []


def test_a_larger_limit_keeps_a_superset() -> None:
    """Keeping by age is monotone in the limit."""
    chat = [
        m
        for i in range(12)
        for m in (user(f"q{i}"), says("", f"c{i}"), result(f"c{i}", words(i * 7)), says(words(i)))
    ]
    before: set[int] = set()
    for limit in range(60, 900, 23):
        kept = {id(m) for m in fit(chat, limit, message_cap=None)}
        assert before <= kept
        before = kept


def test_the_stable_cut_moves_rarely() -> None:
    """Over 60 turns the stable cut moves its start far less often than filling does."""

    def moves(cut: str) -> int:
        chat: list[Any] = []
        starts = []
        for i in range(60):
            chat += [user(f"q{i} {words(9)}")]
            starts.append(id(fit(chat, 300, cut=cut)[0]))
            chat += [says(words(10))]
        return sum(a != b for a, b in pairwise(starts))

    assert moves("fill") > 40
    assert moves("stable") < 15


def test_a_session_cuts_down_to_half_and_then_leaves_the_prefix_alone() -> None:
    """Between two cuts every prompt starts with the one before it."""
    session = BudgetSession(300, counter=COUNTER)
    chat: list[Any] = []
    before: list[Any] = []
    moved = 0
    for i in range(80):
        chat += [user(f"q{i} {words(9)}")]
        kept = list(session.fit(chat).messages)
        assert COUNTER.count_messages(kept) <= 300
        assert kept == list(session.fit(chat).messages)
        moved += kept[: len(before)] != before
        before = kept
        chat += [says(words(10))]
    assert 5 <= moved <= 20


def test_a_session_notices_another_conversation() -> None:
    """When what was kept is gone, the session starts over instead of serving the old cut."""
    session = BudgetSession(100, counter=COUNTER)
    session.fit(exchanges(30))
    other = [user("something else")]
    assert list(session.fit(other).messages) == other


def test_a_session_notices_an_edited_message() -> None:
    """A message changed in place is counted again."""
    session = BudgetSession(100, counter=COUNTER)
    chat = [user("short"), says("answer"), user("now")]
    session.fit(chat)
    chat[0]["content"] = words(500)
    assert COUNTER.count_messages(session.fit(chat).messages) <= 100


def test_a_summary_stands_first_and_counts() -> None:
    """What was dropped is summarized in a marked message before the kept part, inside the limit."""
    chat = [system("s"), *exchanges(40), user("now")]
    kept = fit(chat, 300, summarizer=lambda text, max_tokens: "they talked about <summary> tags")
    assert [m["role"] for m in kept][:3] == ["system", "user", "user"]
    assert "[Summary of earlier conversation" in kept[1]["content"]
    assert "&lt;summary> tags" in kept[1]["content"]


@pytest.mark.parametrize("answer", [None, "", "many " * 5000])
def test_a_summary_that_fails_loses_nothing(answer: str | None) -> None:
    """A summarizer that raises, answers nothing or too much leaves the full cut and a warning."""

    def summarizer(text: str, max_tokens: int) -> str:
        if answer is None:
            msg = "503"
            raise RuntimeError(msg)
        return answer

    chat = [*exchanges(40), user("now")]
    found = fit_messages(chat, max_tokens=300, counter=COUNTER, summarizer=summarizer)
    assert any("summary_failed" in w for w in found.report.warnings)
    assert list(found.messages) == fit(chat, 300)


def test_a_session_summarizes_only_what_is_new() -> None:
    """Each cut hands over the summary so far and the messages that just went, never the whole past again."""
    seen: list[str] = []

    def summarizer(text: str, max_tokens: int) -> str:
        seen.append(text)
        return f"summary {len(seen)}"

    session = BudgetSession(300, counter=COUNTER, summarizer=summarizer)
    chat: list[Any] = []
    for i in range(60):
        chat += [user(f"q{i} {words(9)}"), says(f"a{i} {words(9)}")]
        kept = session.fit([*chat, user("now")][: len(chat)]).messages
        assert COUNTER.count_messages(kept) <= 300
    assert len(seen) > 3
    assert all(len(text.split()) < 400 for text in seen)
    told = " ".join(seen)
    first_kept = next(m["content"].split()[0] for m in kept if m["content"].startswith("q"))
    assert all(told.count(f"user: q{i} ") == 1 for i in range(int(first_kept[1:])))


def test_the_last_exchanges_take_from_documents_that_rank_lower() -> None:
    """Three exchanges that exceed the history's share stay whole in a session that shares its prompt with documents."""
    chat = exchanges(3, size=40)  # 88 tokens an exchange
    budget = TokenBudget(context_window=523, reserve=100, ratios={"memory": 0.6, "history": 0.4})
    session = BudgetSession(budget, counter=COUNTER, sources=["knowledge"])
    assert list(session.fit(chat).messages) == chat


def test_a_thread_that_ends_on_results_keeps_them_or_says_what_does_not_fit() -> None:
    """The newest call stays with its results while the model has not answered them: shortened if need be, never dropped silently."""
    chat = [user("old"), says("yes"), user("look"), says("", "a"), result("a", words(900))]
    kept = fit(chat, 300)
    assert kept[:-1] == chat[:-1]
    assert 200 <= len(kept[-1]["content"].split()) < 300
    with pytest.raises(
        BudgetExceededError, match=r"question 5, newest tool call with its results 26"
    ) as caught:
        fit_messages(chat, max_tokens=30, counter=COUNTER)
    assert caught.value.limit == 30 < caught.value.needed == sum(caught.value.blocks.values())
    for options in (
        {"message_cap": None},
        {"cut": "stable", "message_cap": None},
        {"query": "look", "message_cap": None},
    ):
        with pytest.raises(BudgetExceededError, match="newest tool call"):
            fit_messages(chat, max_tokens=300, counter=COUNTER, **options)
    with pytest.raises(BudgetExceededError, match="newest tool call"):
        BudgetSession(30, counter=COUNTER).fit(chat)


def test_an_answered_or_ended_batch_may_go() -> None:
    """Results that are answered, or that another question follows, may go: what they belong to stays as long as it fits."""
    batch = [user("look"), says("", "a"), result("a", words(100))]
    assert fit([*batch, says("done")], 60, message_cap=None) == [batch[0], says("done")]
    assert fit([*batch, user("next")], 60, message_cap=None) == [batch[0], user("next")]
    kept = BudgetSession(60, counter=COUNTER).fit(batch, question="next").messages
    assert list(kept[:2]) == batch[:2], "the last exchange is shortened before all is dropped"
    assert BudgetSession(30, counter=COUNTER).fit(batch, question="next").messages == batch[:1]


def test_a_relevant_history_keeps_the_newest_step() -> None:
    """Old answers that serve the query do not push out the result the model waits for."""
    old = [
        m
        for i in range(6)
        for m in (user(f"my booking is HAT13{i}"), says(f"HAT13{i} is refunded to card_{i}"))
    ]
    chat = [*old, user("refund"), says("", "a"), result("a", words(70))]
    kept = fit(chat, 110, query="refund")
    assert kept[-3:] == chat[-3:]


def test_a_summary_that_has_no_room_makes_no_room_for_itself() -> None:
    """Three tenths of the room are too few for any summary: what is kept is what is kept without a summarizer."""
    thread = [user("0. ok"), says("1. ok"), user("2. ok"), says("3. ok"), user("4. ok Which is it?")]
    for limit in range(12, 40):
        plain = fit_messages(thread, max_tokens=limit, counter=COUNTER)
        asked = fit_messages(
            thread, max_tokens=limit, counter=COUNTER, summarizer=lambda _text, _tokens: "a b"
        )
        assert asked.messages == plain.messages or "<summary>" in str(asked.messages)


def test_a_cut_gives_way_when_what_was_cut_is_the_newest_step_again() -> None:
    """A waiting call pushed the step before it out; when the call turns out broken, that step is what the model has not read."""
    session = BudgetSession(TokenBudget(context_window=1_000_000, max_system_ratio=None), counter=COUNTER)
    thread = [says("", "a"), result("a", words(8)), says("", "b"), system("s")]
    limit = COUNTER.count_messages(thread[:2])
    assert session.fit(thread[:1], limit=limit).messages == thread[:1]
    assert session.fit(thread[:3], limit=limit).messages == thread[2:3]
    with pytest.raises(BudgetExceededError, match="what must stay needs 26 tokens"):
        session.fit(thread, limit=limit)
    found = session.fit(thread, limit=limit + COUNTER.count_message(thread[3]))
    assert found.messages == [*thread[:2], thread[3]]
