"""What a report says of dropped pieces, tried out: so many more tokens bring one back, one token less does not."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbudget import Assembler, BudgetReport, Segment, TokenBudget, fit_documents, fit_messages
from rankbudget.errors import BudgetExceededError
from rankbudget.messages.measure import ListMeasure
from rankbudget.testing import WordCounter

COUNTER = WordCounter()
DRAWS = {"fast": 30, "dev": 100, "ci": 2_000}
MORE = re.compile(r"([\d,]+) more tokens?")
ENOUGH = 1_000_000

words = st.lists(st.sampled_from("tea ice row box key sun".split()), min_size=1, max_size=30).map(" ".join)


longer = st.integers(201, 500).map(lambda number: "tea ice " * (number // 2))


def drawn(cases: int = 1) -> settings:
    """As many draws as the profile asks for, the same in every run; the cases of a law share them."""
    count = DRAWS.get(settings.get_current_profile_name(), DRAWS["dev"])
    return settings(max_examples=count // cases, deadline=None, database=None, derandomize=True)


@st.composite
def chats(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation with system notes, tool calls, stray results and answers that are missing."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(words)}] * draw(st.integers(0, 1))
    for number in range(draw(st.integers(1, 10))):
        messages.append({"role": "user", "content": draw(words)})
        for kind in draw(st.lists(st.sampled_from(["answer", "tool", "stray"]), max_size=2)):
            call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            result = {"role": "tool", "tool_call_id": f"c{number}", "content": draw(words)}
            if kind == "answer":
                messages.append({"role": "assistant", "content": draw(words | words | longer)})
            elif kind == "stray":
                messages.append(result)
            else:
                messages += [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
    return messages


def check(report: BudgetReport, again: Callable[[int], BudgetReport]) -> tuple[int, int]:
    """Tries what the report says of each dropped piece; returns how many have a number, and how many are dropped."""
    for block in report.blocks:
        assert sum(d.after for d in report.decisions if d.block == block.name) == block.used, block.name
    assert report.overhead >= 0
    assert sum(block.used for block in report.blocks) + report.overhead == report.total_tokens
    again = functools.cache(again)
    dropped = [d for d in report.decisions if d.action == "trimmed"]
    counted = 0
    for decision in dropped:
        said = report.explain(decision.segment_id, decision.block)
        piece = decision.segment_id
        if found := MORE.search(said):
            more = int(found.group(1).replace(",", ""))
            counted += 1
            assert piece in again(more).kept_ids(decision.block), said
            assert piece not in again(more - 1).kept_ids(decision.block), said
        elif "no budget would" in said:
            counted += 1
            assert piece not in again(ENOUGH).kept_ids(decision.block), said
    return counted, len(dropped)


@pytest.mark.slow
@drawn()
@given(chats(), st.integers(10, 200) | st.integers(10, 1500))
def test_a_conversation_says_truly_what_brings_a_message_back(chat: list[Any], limit: int) -> None:
    """An answer comes back with its question, a shortened exchange counts, a stray result never comes back."""
    try:
        report = fit_messages(chat, max_tokens=limit, counter=COUNTER).report
    except BudgetExceededError:
        return
    told, dropped = check(
        report, lambda more: fit_messages(chat, max_tokens=limit + more, counter=COUNTER).report
    )
    assert told >= 0.8 * dropped


@pytest.mark.slow
@drawn()
@given(st.lists(words, min_size=1, max_size=12), st.integers(0, 150), words, st.booleans())
def test_documents_say_truly_what_brings_one_back(
    texts: list[str], limit: int, query: str, compress: bool
) -> None:
    """So do documents, doubles among them, whole or in sentences."""

    def fitted(more: int) -> BudgetReport:
        options: dict[str, Any] = {"query": query, "counter": COUNTER, "compress": compress}
        return fit_documents(texts, max_tokens=limit + more, **options).report

    told, dropped = check(fitted(0), fitted)
    assert told >= 0.8 * dropped


@pytest.mark.slow
@pytest.mark.parametrize("surplus", ["waterfall", "borrow", "keep"])
@drawn(cases=3)
@given(
    chat=chats(),
    texts=st.lists(words, max_size=6),
    memories=st.lists(words, max_size=3),
    limit=st.integers(40, 400),
    preset=st.sampled_from([None, "rag"]),
)
def test_blocks_say_truly_what_brings_a_piece_back(
    chat: list[Any], texts: list[str], memories: list[str], limit: int, surplus: Any, preset: Any
) -> None:
    """The number is of the whole prompt: what of it reaches a block is the budget's to say."""
    blocks = {
        "history": chat,
        "knowledge": texts,
        "memory": [Segment(id=f"m{i}", text=text) for i, text in enumerate(memories)],
    }

    def fitted(more: int) -> BudgetReport:
        budget = TokenBudget(
            context_window=limit + more + 50,
            reserve=50,
            surplus=surplus,
            preset=preset,
            max_system_ratio=None,
        )
        return Assembler(budget, counter=COUNTER).assemble(blocks, query="which box?").report

    try:
        report = fitted(0)
    except BudgetExceededError:
        return
    told, dropped = check(report, fitted)
    assert told >= 0.8 * dropped


@pytest.mark.slow
@drawn()
@given(chats(), st.integers(20, 200), st.sampled_from(["alternating", "anthropic", None]), st.booleans())
def test_decisions_add_up_to_what_is_used(chat: list[Any], limit: int, profile: Any, listed: bool) -> None:
    """Merged neighbours and counts that do not add up leave sums right and no overhead below zero."""
    measure = ListMeasure(lambda messages: COUNTER.count_messages(messages) + len(messages) // 3)
    options: dict[str, Any] = {"profile": profile, "measure": measure if listed else None}
    try:
        report = fit_messages(chat, max_tokens=limit, counter=COUNTER, **options).report
    except BudgetExceededError:
        return
    used = sum(block.used for block in report.blocks)
    assert sum(decision.after for decision in report.decisions) == used
    assert 0 <= report.overhead == report.total_tokens - used


@pytest.mark.slow
def test_all_pieces_of_a_long_conversation_are_explained_in_linear_time() -> None:
    """Ten times the messages take at most fourteen times as many function calls."""
    counts = []
    for size in (1_000, 10_000):
        chat = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"text {i}"} for i in range(size)]
        report = fit_messages(chat, max_tokens=200, counter=COUNTER).report
        calls = [0]
        sys.setprofile(lambda *_, calls=calls: calls.__setitem__(0, calls[0] + 1))
        said = [report.explain(f"history-{i}") for i in range(size)]
        sys.setprofile(None)
        counts.append(calls[0])
        assert sum("more token" in text for text in said) > 0.9 * size
    assert counts[1] <= 14 * counts[0]


@drawn(cases=10)
@given(
    sizes=st.lists(st.lists(st.integers(1, 160), min_size=1, max_size=3), min_size=1, max_size=8),
    limit=st.integers(150, 1_500),
)
def test_what_is_said_to_be_shortened_is_shorter(sizes: list[list[int]], limit: int) -> None:
    """Of several results of one step, one that has room in the end is as it was, and the report says so."""
    chat: list[dict[str, Any]] = [{"role": "user", "content": "Is w3 at w7?"}]
    for step, results in enumerate(sizes):
        ids = [f"c{step}-{n}" for n in range(len(results))]
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
        chat.append({"role": "assistant", "content": None, "tool_calls": calls})
        texts = [
            " ".join(f"w{(7 * step + 3 * n + k * k) % 31}" for k in range(size))
            for n, size in enumerate(results)
        ]
        chat += [{"role": "tool", "tool_call_id": i, "content": t} for i, t in zip(ids, texts, strict=True)]
    try:
        fitted = fit_messages(chat, max_tokens=limit, counter=COUNTER)
    except BudgetExceededError:
        return
    given = {f"history-{i}": message for i, message in enumerate(chat)}
    for decision in fitted.report.decisions:
        if decision.action in {"kept", "truncated"} and decision.segment_id in given:
            whole = given[decision.segment_id] in fitted.messages
            assert whole == (decision.action == "kept"), decision
            assert (decision.after < decision.before) == (decision.action == "truncated"), decision
