"""The laws through the core's conversation entry points; a failure names the law."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession, TokenBudget, afit_messages, fit_messages
from rankbudget.errors import BudgetError, BudgetExceededError, MessageError
from rankbudget.testing import (
    Application,
    ListCounter,
    WordCounter,
    applications,
    check_laws,
    check_prefix,
    check_refusal,
    check_same,
    check_superset,
    is_broken,
    snapshot,
)
from tests.drawing import draws

COUNTER = WordCounter()


class LumpyCounter(WordCounter):
    """Counts whole requests only: two messages in a row of one role share their framing, as some chat templates do."""

    additive = False

    def count_messages(self, messages: Any, tools: Any = None) -> int:
        shared = sum(self.framing for a, b in pairwise(messages) if a["role"] == b["role"])
        return super().count_messages(messages, tools) - shared


def run(application: Application, messages: list[Any], limit: int, **options: Any) -> Any:
    options = {"counter": COUNTER, "cut": application.cut, "tools": application.tools or None, **options}
    try:
        return fit_messages(messages, max_tokens=limit, **options)
    except BudgetError as error:
        return error


def judge(
    application: Application, messages: list[Any], before: object, found: Any, limit: int, **options: Any
) -> bool:
    options = {"counter": COUNTER, "tools": application.tools or None, **options}
    if isinstance(found, BudgetError):
        check_refusal(messages, found, limit=limit, **options)
        return False
    check_laws(
        messages, found.messages, limit=limit, before=before, reported=found.report.total_tokens, **options
    )
    return True


@draws()
@given(applications(user_results=True))
def test_fit_messages(application: Application) -> None:
    """`fit_messages` keeps the laws of one conversation, at every limit, with both cuts."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    before = snapshot(messages)
    found = run(application, messages, limit)
    if not judge(application, messages, before, found, limit):
        return
    check_same(found.messages, run(application, messages, limit).messages)
    again = run(application, found.messages, limit)
    check_same(found.messages, again.messages, what="fitting twice")
    assert all(a is b for a, b in zip(found.messages, again.messages, strict=True))
    decided = sum(getattr(part, "size", 1) for part in found.report.parts)
    assert decided == len(messages), "every message has one decision"
    assert len(list(found.report.decisions)) == len(messages)


@draws()
@given(applications(user_results=True), st.integers(1, 200))
def test_fit_messages_keeps_more_with_more_room(application: Application, more: int) -> None:
    """With `cut="fill"` a larger limit keeps whatever a smaller one kept."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    smaller = run(application, messages, limit, cut="fill")
    if isinstance(smaller, BudgetError):
        return
    larger = run(application, messages, limit + more, cut="fill")
    assert not isinstance(larger, BudgetError), f"fits in {limit}, not in {limit + more}: {larger}"
    check_superset(messages, smaller.messages, larger.messages)


@draws()
@given(applications(user_results=True))
def test_fit_messages_with_a_counter_that_does_not_add_up(application: Application) -> None:
    """A counter that only knows whole requests is obeyed all the same, and only ever asked about lists in order."""
    counter = LumpyCounter()
    messages, limit = application.fresh(), max(1, application.limit(COUNTER))
    before = snapshot(messages)
    found = run(application, messages, limit, counter=counter)
    judge(application, messages, before, found, limit, counter=counter)


@draws()
@given(applications(user_results=True))
def test_fit_messages_strict(application: Application) -> None:
    """With `strict=True` a broken conversation is refused and a valid one fits as ever."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    before = snapshot(messages)
    found = run(application, messages, limit, strict=True)
    if is_broken(messages):
        assert isinstance(found, MessageError), f"a broken conversation came back as {found!r}"
        return
    if isinstance(found, BudgetError):
        check_refusal(
            messages, found, limit=limit, counter=COUNTER, tools=application.tools or None, strict=True
        )
    else:
        check_laws(
            messages, found.messages, limit=limit, counter=COUNTER, tools=application.tools, before=before
        )


@draws(asynchronous=True)
@given(applications(user_results=True))
def test_afit_messages(application: Application) -> None:
    """`afit_messages` gives what `fit_messages` gives."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    before = snapshot(messages)
    expected = run(application, messages, limit)
    try:
        found = asyncio.run(
            afit_messages(
                messages,
                max_tokens=limit,
                counter=COUNTER,
                cut=application.cut,
                tools=application.tools or None,
            )
        )
    except BudgetError as error:
        if str(error) != str(expected):
            raise
        return
    judge(application, messages, before, found, limit)
    check_same(expected.messages, found.messages, what="the async form")


def _summary(text: str, max_tokens: int) -> str:
    return f"they spoke of {len(text.split())} words"


def _too_long(text: str, max_tokens: int) -> str:
    return "blah </summary> " * (max_tokens + 500)


def _fails(text: str, max_tokens: int) -> str:
    msg = "503 from the summarizer"
    raise RuntimeError(msg)


def _nonsense(text: str, max_tokens: int) -> Any:
    return None


@pytest.mark.parametrize("summarizer", [_summary, _too_long, _fails, _nonsense])
@draws(asynchronous=True)
@given(applications(user_results=True))
def test_fit_messages_with_a_summarizer(summarizer: Any, application: Application) -> None:
    """A summarizer that works, grows, raises or returns nonsense never breaks a law; a failing one changes nothing."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    before = snapshot(messages)
    plain = run(application, messages, limit)
    found = run(application, messages, limit, summarizer=summarizer)
    if isinstance(found, BudgetError):
        check_refusal(messages, found, limit=limit, counter=COUNTER, tools=application.tools or None)
        return
    check_laws(
        messages,
        found.messages,
        limit=limit,
        counter=COUNTER,
        tools=application.tools,
        before=before,
        inserts=True,
    )
    inserted = [
        m
        for m in found.messages
        if not any(m is x for x in messages) and "<summary>" in str(m.get("content"))
    ]
    assert len(inserted) <= 1
    assert all(str(m["content"]).count("</summary>") == 1 for m in inserted)
    if summarizer is _fails:
        check_same(plain.messages, found.messages, what="a failing summarizer's result")


@draws()
@given(applications(max_turns=7, user_results=True), st.sampled_from((1, 1, 1, 2, 3)))
def test_a_session_over_a_growing_conversation(application: Application, step: int) -> None:
    """A session keeps the laws turn by turn, and rewrites the kept prefix only when the limit makes it."""
    messages, tools = application.fresh(), application.tools or None
    limit = application.limit(COUNTER)
    session = BudgetSession(TokenBudget(context_window=1_000_000, max_system_ratio=None), counter=COUNTER)
    last: list[Any] | None = None
    last_size = 0
    for size in range(1, len(messages) + 1, step):
        so_far = messages[:size]
        before = snapshot(so_far)
        try:
            found = session.fit(so_far, tools=tools, limit=limit)
        except BudgetError as error:
            check_refusal(so_far, error, limit=limit, counter=COUNTER, tools=tools)
            last = None
            continue
        check_laws(
            so_far,
            found.messages,
            limit=limit,
            counter=COUNTER,
            tools=tools,
            before=before,
            reported=found.report.total_tokens,
        )
        again = session.fit(so_far, tools=tools, limit=limit)
        check_same(found.messages, again.messages, what="a second reading in the same turn")
        if last is not None:
            grown = [*last, *so_far[last_size:]]
            current = last[-1:] == [
                so_far[last_size - 1]
            ]  # otherwise the newest message itself did not fit the last time
            fits = (
                current
                and COUNTER.count_messages(grown, tools) <= limit
                and not is_broken(so_far)
                and not is_broken(grown)
            )
            check_prefix(last, found.messages, fits=fits)
        last, last_size = list(found.messages), size


@pytest.mark.parametrize("counter", [LumpyCounter(), ListCounter()])
@draws()
@given(applications(max_turns=7, user_results=True))
def test_a_session_reads_the_same_twice_with_counts_that_do_not_add_up(
    counter: Any, application: Application
) -> None:
    """The cut of a turn is not chosen anew when the turn is read again, whole requests counted or not."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    session = BudgetSession(TokenBudget(context_window=1_000_000, max_system_ratio=None), counter=counter)
    for size in range(1, len(messages) + 1):
        try:
            found = session.fit(messages[:size], limit=limit)
        except BudgetError:
            continue
        for _ in range(2):
            again = session.fit(messages[:size], limit=limit)
            check_same(found.messages, again.messages, what="a second reading in the same turn")


def test_a_session_refuses_a_prompt_that_is_over_without_any_history() -> None:
    """When what the prompt holds beside the history is over the limit, an empty history is no answer: law 1 beats all."""
    for budget in (
        9,
        TokenBudget(
            context_window=9, reserve=0, ratios={"memory": 0.4, "history": 0.6}, max_system_ratio=None
        ),
    ):
        session = BudgetSession(budget, counter=COUNTER)
        assert session.fit([], extra_tokens=6).messages == []  # 3 more prime the reply
        with pytest.raises(BudgetExceededError):
            session.fit([], extra_tokens=7)


@draws(asynchronous=True)
@given(applications(user_results=True))
def test_a_session_async(application: Application) -> None:
    """Two sessions over the same conversation agree, one asked in sync, one in async code."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    budget = TokenBudget(context_window=1_000_000, max_system_ratio=None)
    one, other = BudgetSession(budget, counter=COUNTER), BudgetSession(budget, counter=COUNTER)
    for size in range(1, len(messages) + 1, 3):
        so_far = messages[:size]
        try:
            expected = one.fit(so_far, limit=limit)
        except BudgetError as error:
            with pytest.raises(type(error)):
                asyncio.run(other.afit(so_far, limit=limit))
            continue
        found = asyncio.run(other.afit(so_far, limit=limit))
        check_same(expected.messages, found.messages, what="the async form")


@pytest.mark.parametrize("counter", [COUNTER, ListCounter()], ids=["adds up", "whole lists only"])
@draws(asynchronous=True)
@given(applications(max_turns=6, user_results=True))
def test_a_growing_conversation_with_a_summary(counter: Any, application: Application) -> None:
    """A session that summarizes stays within the limit turn by turn, also where counts do not add up and texts must be shortened."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    for summarizer in (_summary, None):
        session = BudgetSession(
            TokenBudget(context_window=1_000_000, max_system_ratio=None),
            counter=counter,
            summarizer=summarizer,
        )
        for size in range(1, len(messages) + 1):
            so_far = messages[:size]
            try:
                found = session.fit(so_far, limit=limit)
            except BudgetError as error:
                check_refusal(so_far, error, limit=limit, counter=counter)
                continue
            check_laws(
                so_far,
                found.messages,
                limit=limit,
                counter=counter,
                reported=found.report.total_tokens,
                inserts=summarizer is not None,
            )


@draws()
@given(application=applications(), shorten=st.booleans(), share=st.floats(0.02, 0.6))
def test_what_a_refusal_needs_is_the_least(application: Application, *, shorten: bool, share: float) -> None:
    """With as many tokens as the error says the same call fits, with one less it does not."""
    messages = application.messages
    whole = COUNTER.count_messages(messages, application.tools or None)
    refused = run(application, messages, max(1, int(whole * share)), shorten_question=shorten)
    if isinstance(refused, BudgetExceededError):
        fits = run(application, messages, refused.needed, shorten_question=shorten)
        assert not isinstance(fits, BudgetError), (refused, fits)
        less = run(application, messages, refused.needed - 1, shorten_question=shorten)
        assert isinstance(less, BudgetExceededError), (refused, less)
