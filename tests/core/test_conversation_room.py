"""What has room stays: finished threads, questions that do not fit, and room that grows."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import (
    Assembler,
    Block,
    BudgetExceededError,
    BudgetSession,
    TokenBudget,
    afit_messages,
    counter_for,
    fit_messages,
)
from rankbudget._drivers import drive
from rankbudget.errors import BudgetConfigError, BudgetError
from rankbudget.messages.codec import DictCodec
from rankbudget.testing import (
    Application,
    WordCounter,
    applications,
    check_laws,
    check_outcome,
    check_refusal,
)
from tests.drawing import draws

COUNTER = WordCounter()  # 4 tokens frame a message, 3 prime the reply


def words(count: int, word: str = "w") -> str:
    return " ".join([word] * count)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str, *calls: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        function = {"name": "f", "arguments": "{}"}
        message["tool_calls"] = [{"id": c, "type": "function", "function": function} for c in calls]
    return message


def result(call: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": call}


def exchanges(count: int, size: int = 10) -> list[dict[str, Any]]:
    return [
        message
        for i in range(count)
        for message in (user(f"q{i} {words(size - 1)}"), says(f"a{i} {words(size - 1)}"))
    ]


def read(session: BudgetSession, thread: list[Any], **fields: Any) -> list[Any]:
    return list(drive(session.read_steps(session.request(thread, **fields))).history)


@draws()
@given(
    preset=st.sampled_from([None, "rag"]),
    surplus=st.sampled_from(["waterfall", "borrow", "keep"]),
    most=st.integers(40, 400),
    documents=st.integers(0, 3),
    shared=st.booleans(),
)
def test_a_bound_of_the_history_holds_with_every_preset(
    preset: Any, surplus: Any, most: int, documents: int, shared: bool
) -> None:
    """What other blocks leave free is not the history's where the caller bounds it."""
    budget = TokenBudget(context_window=2000, reserve=200, preset=preset, surplus=surplus)
    session = BudgetSession(budget, counter=COUNTER, sources=["knowledge"] if shared else [])
    blocks = [Block.of("knowledge", *[words(30, f"d{i}") for i in range(documents)])] if documents else []
    plan = drive(session.plan_steps(session.request(exchanges(30), blocks=blocks, history_tokens=most)))
    assert 0 < plan.report.block("history").used <= most


# ---- a finished thread ----------------------------------------------------------------------------------------------
def test_a_long_answered_question_is_an_exchange_like_any_other() -> None:
    """Read before the next question, a thread keeps the answer of its long last question, or drops both together."""
    thread = [user("first"), says("one"), user(words(150, "pasted")), says("the answer")]
    for limit in range(20, 180):
        kept = read(BudgetSession(limit, counter=COUNTER), thread)
        assert kept == [] or kept[-1] == thread[-1], limit
    assert read(BudgetSession(180, counter=COUNTER), thread) == thread


@draws()
@given(applications(user_results=True))
def test_a_stored_thread_is_read_for_the_next_question(application: Application) -> None:
    """A finished thread keeps the laws with a question after it: it is empty rather than without an answer."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    session = BudgetSession(limit, counter=COUNTER)
    try:
        found: Any = read(session, messages)
    except BudgetError as error:
        found = error
    check_outcome(messages, found, limit=limit, counter=COUNTER, codec=DictCodec(), stored=True)


# ---- a question that does not fit ------------------------------------------------------------------------------------
@draws()
@given(applications(user_results=True))
def test_a_question_is_whole_or_refused(application: Application) -> None:
    """Without `shorten_question` the question comes back whole or the error does; with it, it may be cut."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    tools = application.tools or None
    for shorten in (False, True):
        try:
            found = fit_messages(
                messages, max_tokens=limit, counter=COUNTER, tools=tools, shorten_question=shorten
            )
        except BudgetExceededError as error:
            check_refusal(messages, error, limit=limit, counter=COUNTER, tools=tools)
            continue
        check_laws(
            messages, found.messages, limit=limit, counter=COUNTER, tools=tools, shortens_question=shorten
        )


SIZES = st.integers(1, 400)


@draws()
@given(door=st.sampled_from(["messages", "session", "assembler"]), rules=SIZES, question=SIZES, tool=SIZES)
def test_a_refusal_names_each_part_with_its_tokens(door: str, rules: int, question: int, tool: int) -> None:
    """System prompt, question and tools, whichever of them is too large alone."""
    tools = [{"type": "function", "function": {"name": "f", "description": words(tool), "parameters": {}}}]
    system, asked = {"role": "system", "content": words(rules)}, user(words(question))
    least = {
        "system": COUNTER.count_messages([system]) - COUNTER.count_messages([]),
        "question": COUNTER.count_messages([asked]) - COUNTER.count_messages([]),
        "tools and framing": COUNTER.count_messages([], tools),
    }
    limit = min(200, sum(least.values()) - 1)
    blocks = {"system": words(rules), "history": [user("Hi."), says("Hello.")]}
    refused: dict[str, Callable[[], Any]] = {
        "messages": lambda: fit_messages([system, asked], max_tokens=limit, counter=COUNTER, tools=tools),
        "session": lambda: BudgetSession(limit, counter=COUNTER).fit([system, asked], tools=tools),
        "assembler": lambda: Assembler(limit, counter=COUNTER).assemble(
            blocks, query=words(question), tools=tools
        ),
    }
    with pytest.raises(BudgetExceededError) as caught:
        refused[door]()
    error = caught.value
    assert {name: tokens for name, tokens in error.blocks.items() if tokens} == least
    assert (error.needed, error.limit) == (sum(least.values()), limit)
    assert all(f"{name} {tokens:,}" in str(error) for name, tokens in least.items())


async def test_a_long_question_keeps_what_is_free() -> None:
    """A question of 58,858 tokens in 50,000 raises an error that names the option; with it, all that is free is used."""
    chat = [*exchanges(3), user(words(58_858))]
    with pytest.raises(BudgetExceededError, match="shorten_question=True") as caught:
        fit_messages(chat, max_tokens=50_000, counter=COUNTER)
    assert (caught.value.limit, caught.value.needed) == (50_000, 58_865)
    assert caught.value.blocks["question"] == 58_862
    found = fit_messages(chat, max_tokens=50_000, counter=COUNTER, shorten_question=True)
    assert 49_000 < found.report.total_tokens <= 50_000
    assert [d.action for d in found.report.decisions if d.segment_id == "history-6"] == ["truncated"]
    again = await afit_messages(chat, max_tokens=50_000, counter=COUNTER, shorten_question=True)
    assert again.messages == found.messages
    uncapped = fit_messages(chat, max_tokens=50_000, counter=COUNTER, shorten_question=True, message_cap=None)
    assert uncapped.messages == found.messages


def test_a_budget_lets_every_entry_point_shorten_a_question() -> None:
    """`TokenBudget(shorten_question=True)` holds for sessions and assemblers, also for a question of its own."""
    plain = TokenBudget(context_window=600, reserve=100)
    budget = plain.replace(shorten_question=True)
    chat = [*exchanges(3), user(words(900))]
    with pytest.raises(BudgetExceededError, match="shorten_question"):
        BudgetSession(plain, counter=COUNTER).fit(chat)
    assert len(BudgetSession(budget, counter=COUNTER).fit(chat).messages) == 1
    with pytest.raises(BudgetExceededError, match="shorten_question"):
        Assembler(plain, counter=COUNTER).assemble({"history": exchanges(3)}, query=words(900))
    for blocks in ({"history": exchanges(3)}, {"knowledge": ["one fact", "two facts"]}, {}):
        made = Assembler(budget, counter=COUNTER).assemble(blocks, query=words(900))
        assert 450 < made.report.total_tokens <= 500
        (asked,) = [d for d in made.report.decisions if d.segment_id == "query"]
        assert (asked.action, asked.before) == ("truncated", 904)
    made = Assembler(budget, counter=COUNTER).assemble({"history": chat, "knowledge": ["one fact"]})
    assert 450 < made.report.total_tokens <= 500


@pytest.mark.parametrize("value", [1, "yes", None])
def test_shorten_question_is_true_or_false(value: Any) -> None:
    """Anything else is refused by name, by a call and by a budget."""
    with pytest.raises(BudgetConfigError, match="shorten_question must be True or False"):
        fit_messages([user("q")], max_tokens=100, counter=COUNTER, shorten_question=value)
    with pytest.raises(BudgetConfigError, match="shorten_question must be True or False"):
        TokenBudget(shorten_question=value)


def test_results_are_shortened_rather_than_refused() -> None:
    """Forty parallel results of 150 tokens in 5,000 stay, each shorter; one newest result keeps all that is free."""
    names = [f"c{i}" for i in range(40)]
    chat = [user("compare"), says("", *names), *(result(name, words(150)) for name in names)]
    kept = fit_messages(chat, max_tokens=5_000, counter=COUNTER)
    check_laws(chat, kept.messages, limit=5_000, counter=COUNTER)
    assert len(kept.messages) == len(chat)
    assert kept.report.total_tokens > 4_500
    chat = [user("look"), says("", "c"), result("c", words(58_858))]
    assert fit_messages(chat, max_tokens=50_000, counter=COUNTER).report.total_tokens > 49_900
    texts = [user(words(5_000)), says(words(5_000)), user(words(5_000)), says(words(5_000)), user("and?")]
    assert fit_messages(texts, max_tokens=20_000, counter=COUNTER).report.total_tokens > 19_900


@draws()
@given(
    st.lists(st.integers(1, 900), min_size=1, max_size=9),
    st.integers(1, 4_000),
    st.integers(1, 400),
    st.sampled_from([None, "look"]),
)
def test_older_steps_are_shortened_before_they_are_dropped(
    sizes: list[int], room: int, more: int, query: str | None
) -> None:
    """A run's newest step is whole or has three quarters of the room; no room is left while a step is missing."""
    chat = [user("look")]
    for i, size in enumerate(sizes):
        chat += [says("", f"c{i}"), result(f"c{i}", words(size, "outcome"))]
    last = {f"history-{n}": size + 4 for n, size in zip(range(2, 99, 2), sizes, strict=False)}
    before: dict[str, int] = {}
    for limit in (60 + room, 60 + room + more):
        made = fit_messages(chat, max_tokens=limit, counter=COUNTER, query=query)
        check_laws(chat, made.messages, limit=limit, counter=COUNTER)
        kept = {d.segment_id: d.after for d in made.report.decisions if d.segment_id in last}
        if sum(last.values()) + 6 * len(sizes) + 8 > limit:
            spare = limit - made.report.total_tokens
            # A call has 6 tokens, the least of a result 20, a cut between two words and its marker a few.
            assert spare < 6 + 20 + 4, (spare, kept)
        if query is None:
            assert all(kept[name] >= min(tokens, 200) for name, tokens in before.items()), (before, kept)
            newest = f"history-{2 * len(sizes)}"
            assert kept[newest] >= min(last[newest], 0.75 * limit - 6 - 8 - 4), (last, kept)
            short = [tokens for name, tokens in kept.items() if 0 < tokens < last[name]]
            assert sum([tokens < 200 for tokens in short]) <= 1
        before = kept


def test_what_brings_a_step_back_is_true_where_steps_are_shortened() -> None:
    """With as many tokens more as the report says a message is kept, shortened or whole, and with one less it is not."""
    chat = []
    for i in range(12):
        chat += [*([] if i % 4 else [user(f"q{i}")]), says("", f"c{i}")]
        chat += [result(f"c{i}", words(30 + 97 * (i * 5 % 7))), *([says("done")] if i % 4 == 3 else [])]
    chat.append(user("and now"))
    report = fit_messages(chat, max_tokens=700, counter=COUNTER).report
    dropped = [d.segment_id for d in report.decisions if d.action == "trimmed"]
    assert len(dropped) > 8
    for name in dropped:
        more = int(report.explain(name).partition(" more token")[0].rpartition(" ")[2].replace(",", ""))
        for limit, kept in ((700 + more, True), (699 + more, False)):
            found = fit_messages(chat, max_tokens=limit, counter=COUNTER).report.in_prompt()
            assert (("history", name) in found) is kept, (name, limit)


LOG = "\n".join(f"2026-11-22 10:00:{n % 60:02} INFO step {n} was done" for n in range(80))


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (words(300, "seat"), "its start"),
        (
            json.dumps([{"id": n, "note": words(9)} for n in range(80)]),
            "its JSON with fewer items or shorter strings",
        ),
        (json.dumps({"id": list(range(400))}, indent=4), "its JSON with fewer items or shorter strings"),
        (LOG, "its first and last lines, and those that the question names or that tell of errors"),
    ],
)
def test_a_shortened_message_says_how_much_of_it_is_left(text: str, left: str) -> None:
    """The report names the tokens of the text before and after, and which part is left."""
    chat = [user("look"), says("", "c"), result("c", text)]
    made = fit_messages(chat, max_tokens=180, counter="o200k_base")
    count = counter_for("o200k_base").count
    (cut,) = [d for d in made.report.decisions if d.action == "truncated"]
    after = count(made.messages[2]["content"])
    assert cut.detail == f"{after:,} of {count(text):,} tokens of its text are left: {left}."
    assert cut.detail in made.report.explain(cut.segment_id)


# ---- room that grows --------------------------------------------------------------------------------------------------
def test_a_raised_limit_brings_history_back() -> None:
    """With twice the room that there was at the cut, the cut is chosen anew; with less, the prefix stays."""
    thread = exchanges(40)  # 28 tokens each
    session = BudgetSession(TokenBudget(context_window=1_000_000, max_system_ratio=None), counter=COUNTER)
    session.fit(thread, limit=300)
    thread += exchanges(10)
    cut = session.fit(thread, limit=300).messages
    assert list(session.fit(thread, limit=500).messages) == list(cut)
    more = session.fit(thread, limit=900).messages
    assert len(more) > len(cut)
    assert list(more[-len(cut) :]) == list(cut)
    assert list(session.fit(thread, limit=900).messages) == list(more), "reading twice is the same"
    grown = [*thread, user("and now?")]
    assert list(session.fit(grown, limit=900).messages) == [*more, grown[-1]], "the new cut stays"


def test_one_long_question_hides_history_for_its_own_turn_only() -> None:
    """A question beside the thread, or one stored shorter than it was sent, gives the room it took back."""
    thread = exchanges(40)
    beside = BudgetSession(600, counter=COUNTER)
    hidden = beside.fit(thread, question=words(500, "paste")).messages
    assert len(beside.fit(thread, question="short").messages) > 2 * len(hidden)
    inside = BudgetSession(600, counter=COUNTER)
    hidden = inside.fit([*thread, user("context " * 500)]).messages
    assert len(hidden) < 8
    thread += [user("short"), says("yes"), user("and?")]
    assert len(inside.fit(thread).messages) > 2 * len(hidden)


@draws()
@given(
    applications(max_turns=6, user_results=True), st.lists(st.sampled_from((1, 2, 4)), min_size=2, max_size=5)
)
def test_a_session_whose_limit_moves_keeps_the_laws(application: Application, factors: list[int]) -> None:
    """Whatever the limit does from turn to turn, each result keeps the laws, and reading twice is the same."""
    messages, limit = application.fresh(), application.limit(COUNTER)
    session = BudgetSession(TokenBudget(context_window=1_000_000, max_system_ratio=None), counter=COUNTER)
    for number, factor in enumerate(factors):
        thread = messages[: max(1, len(messages) * (number + 1) // len(factors))]
        most = max(1, limit * factor // 4)
        try:
            found = session.fit(thread, limit=most)
        except BudgetError as error:
            check_refusal(thread, error, limit=most, counter=COUNTER)
            continue
        check_laws(thread, found.messages, limit=most, counter=COUNTER, reported=found.report.total_tokens)
        assert list(session.fit(thread, limit=most).messages) == list(found.messages)


# ---- validity -----------------------------------------------------------------------------------------------------------
def test_a_note_after_the_question_is_no_answer() -> None:
    """A thread that ends on a question and a system note still asks: its question stays, or the error says why not."""
    thread = [*exchanges(5), user(words(30, "asked")), {"role": "system", "content": "note"}]
    for limit in range(10, 120):
        session = BudgetSession(limit, counter=COUNTER)
        try:
            assert thread[-2] in read(session, thread)
        except BudgetExceededError:
            assert limit < 3 + 34 + 5


@draws()
@given(sizes=st.lists(st.sampled_from([3, 6, 400, 900]), min_size=2, max_size=5), room=st.integers(250, 900))
def test_captions_stay_beside_their_images(sizes: list[int], room: int) -> None:
    """Of a message with several texts the long ones are shortened, each in its place; the short ones stay whole."""
    content: list[dict[str, Any]] = []
    for number, size in enumerate(sizes):
        content.append({"type": "text", "text": f"t{number} " + "word " * size})
        content.append({"type": "refusal", "refusal": f"r{number}"})  # a block that is no text
    chat = [{"role": "user", "content": "look"}, {"role": "assistant", "content": content}]
    chat.append({"role": "user", "content": "and now?"})
    try:
        kept = fit_messages(chat, max_tokens=room, counter=COUNTER).messages
    except BudgetExceededError:
        return
    blocks = next((m["content"] for m in kept if m["role"] == "assistant"), content)
    assert [b["type"] for b in blocks] == [b["type"] for b in content]
    for found, given_block in zip(blocks, content, strict=True):
        if given_block["type"] == "refusal" or len(given_block["text"].split()) < 10:
            assert found == given_block
        else:
            assert found["text"].split()[0] == given_block["text"].split()[0]


@pytest.mark.parametrize("session", [False, True])
@pytest.mark.parametrize("room", [600, 1_200])
def test_a_long_result_of_the_last_exchanges_is_shortened(*, session: bool, room: int) -> None:
    """The room is used for what the last answers were made of, also when the model has answered."""
    chat = [user("look"), says("", "a"), result("a", words(5_000)), says("found"), user("how many?")]
    held = BudgetSession(room, counter=COUNTER)
    for size in (3, 5) if session else (5,):
        fitted = held.fit(chat[:size]) if session else fit_messages(chat, max_tokens=room, counter=COUNTER)
    assert [m["role"] for m in fitted.messages] == [m["role"] for m in chat]
    assert room // 3 < fitted.report.total_tokens <= room
    assert [d.action for d in fitted.report.decisions] == ["kept"] * 4 + ["truncated"]
