"""What is shortened in any case takes no room from other blocks, and what no block can use is not left empty."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, BudgetExceededError, BudgetSession, MessageError, TokenBudget, fit_messages
from rankbudget.batch import FitPrompt
from rankbudget.testing import WordCounter
from tests.drawing import draws

COUNTER = WordCounter()


@draws()
@given(
    limit=st.integers(150, 2000),
    beyond=st.integers(1, 3000),
    facts=st.integers(1, 60),
    share=st.integers(1, 9),
    who=st.sampled_from(["user", "assistant", "tool"]),
)
def test_a_text_that_is_shortened_leaves_other_blocks_their_share(
    limit: int, beyond: int, facts: int, share: int, who: str
) -> None:
    """Documents have what they want, up to their share, whatever is pasted into the last exchange; nothing stays free."""
    said = {role: "w " * (limit + beyond if role == who else 3) for role in ("user", "assistant", "tool")}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": said["user"]},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": said["tool"]},
        {"role": "assistant", "content": said["assistant"]},
    ]
    documents = [f"Parcel {i} leaves at {i} o'clock." for i in range(facts)]
    budget = TokenBudget(
        context_window=limit + 10, reserve=10, ratios={"history": 1 - share / 10, "knowledge": share / 10}
    )
    made = Assembler(budget, counter=COUNTER).assemble(
        {"history": history, "knowledge": documents}, query="When does parcel 1 leave?"
    )
    tokens = {block.name: block for block in made.report.blocks}
    fixed = made.report.total_tokens - tokens["history"].used - tokens["knowledge"].used
    own = (made.report.limit - fixed) * share // 10
    wanted = Assembler(100_000, counter=COUNTER).assemble({"knowledge": documents}, query="?").report
    needed = next(block.used for block in wanted.blocks if block.name == "knowledge")
    assert tokens["knowledge"].granted >= min(own, needed) - 8
    if tokens["knowledge"].dropped == 0 and who != "tool":  # tool output is cut by its structure
        assert made.report.total_tokens >= made.report.limit - 8


def test_a_blank_question_is_refused_at_every_door() -> None:
    """No provider takes a message of white space: an assembler and a batch say so as `fit_messages` does."""
    with pytest.raises(MessageError, match="question must not be empty"):
        Assembler(200, counter=COUNTER).assemble({"system": "s"}, query=" \n ")
    made = FitPrompt(200).row({"system": "s", "question": "  "})
    assert "must not be empty" in made["budget_error"]
    with pytest.raises(BudgetExceededError):
        Assembler(8, counter=COUNTER).assemble({"system": "s"}, query="w " * 20)


@draws()
@given(
    sizes=st.lists(st.integers(1, 900), min_size=4, max_size=9),
    limit=st.integers(150, 3000),
    asked=st.integers(1, 60),
    session=st.booleans(),
)
def test_no_exchange_is_dropped_beside_free_room(
    sizes: list[int], limit: int, asked: int, session: bool
) -> None:
    """While both its texts could be kept with 200 tokens, the newest exchange that does not fit whole is shortened."""
    pairs = [[("user", size), ("assistant", size // 3 + 1)] for size in sizes]
    said = [*(one for pair in pairs for one in pair), ("user", asked)]
    messages = [{"role": role, "content": "w " * size} for role, size in said]
    known = BudgetSession(limit, counter=COUNTER) if session else None
    fit = fit_messages(messages, max_tokens=limit, counter=COUNTER) if known is None else known.fit(messages)
    tokens = COUNTER.count_messages(fit.messages)
    assert tokens <= limit
    assert len(fit.messages) == len(messages) or limit - tokens <= 2 * (200 + 4)


@draws()
@given(
    sizes=st.lists(st.integers(5, 400), min_size=6, max_size=10),
    count=st.integers(1, 12),
    budget=st.sampled_from(
        [
            {},
            {"sizes": {"documents": 120}},
            {"ratios": {"documents": 0.65, "history": 0.1}},
            {"preset": "rag"},
            {"surplus": "borrow"},
            {"message_cap": None},
        ]
    ),
    room=st.integers(200, 1500),
    more=st.lists(st.integers(1, 400), min_size=3, max_size=6),
)
def test_a_larger_window_keeps_the_document_that_answers(
    sizes: list[int], count: int, budget: dict[str, Any], room: int, more: list[int]
) -> None:
    """However long the last exchanges are, they do not push it out where a smaller window keeps it."""
    said = [
        {"role": ("user", "assistant")[n % 2], "content": f"m{n} " + "w " * size}
        for n, size in enumerate(sizes)
    ]
    chat = said[: len(said) // 2 * 2]
    pages = [f"Valve {n} opens at {n + 40} degrees. " + "w " * 12 for n in range(count)]
    blocks = {"history": chat, "knowledge": pages}
    shown = False
    for step in [0, *more]:
        room += step
        own = TokenBudget(context_window=room, reserve=0, safety=0, **budget)
        plan = Assembler(own, counter=COUNTER).assemble(blocks, query="When does valve 0 open?")
        answered = "Valve 0 opens at 40 degrees." in str(plan.messages)
        assert answered or not shown
        shown = answered
    if "sizes" in budget:
        assert shown


@draws()
@given(
    room=st.integers(400, 3000),
    chat=st.integers(0, 2),
    asked=st.sampled_from(["memory", "knowledge", "examples", "handbook"]),
    others=st.dictionaries(
        st.sampled_from(["task", "preferences", "memory", "examples", "knowledge", "wiki"]),
        st.integers(1, 120),
        max_size=5,
    ),
    surplus=st.sampled_from(["waterfall", "borrow"]),
)
def test_the_text_that_answers_stays_beside_many_of_other_blocks(
    room: int, chat: int, asked: str, others: dict[str, int], surplus: Any
) -> None:
    """Whichever block it is in, beside a task of a quarter of the room and however much the others have to say."""
    others = {name: min(count, room // 60) if name == "task" else count for name, count in others.items()}
    blocks: dict[str, Any] = {
        name: [f"{name} {n}: pack shelf {n} into box {n + 7}. " + "w " * 6 for n in range(count)]
        for name, count in others.items()
    }
    blocks[asked] = [*blocks.get(asked, ()), "The owner of ticket 84 is Mara Quist."]
    blocks["history"] = [{"role": ("user", "assistant")[n % 2], "content": "Hello."} for n in range(2 * chat)]
    budget = TokenBudget(context_window=room, reserve=0, safety=0, surplus=surplus)
    plan = Assembler(budget, counter=COUNTER).assemble(blocks, query="Who is the owner of ticket 84?")
    assert "Mara Quist" in str(plan.messages)


@draws(cases=4)
@given(
    result=st.integers(50, 900),
    chat=st.integers(0, 3),
    facts=st.integers(1, 30),
    room=st.integers(300, 600),
    step=st.integers(7, 90),
)
def test_a_result_that_is_shortened_leaves_higher_ranks_their_text(
    result: int, chat: int, facts: int, room: int, step: int
) -> None:
    """Where an agent's question and its newest step just fit, a larger limit shows no fewer of the memories."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history: list[dict[str, Any]] = [
        {"role": ("user", "assistant")[n % 2], "content": "w " * 30} for n in range(2 * chat)
    ]
    history += [
        {"role": "user", "content": "Who is the owner of ticket 84?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "w " * result},
    ]
    memories = [*[f"Pack shelf {n}. " for n in range(facts)], "The owner of ticket 84 is Mara Quist."]
    shown = False
    for limit in range(room, 3 * room, step):
        budget = TokenBudget(context_window=limit, reserve=0, safety=0)
        plan = Assembler(budget, counter=COUNTER).assemble({"memory": memories, "history": history})
        answered = "Mara Quist" in str(plan.messages)
        assert answered or not shown
        shown = answered


NAMES = ("memory", "knowledge", "examples", "handbook", "rules", "a", "zoo")
_SLACK = 4
"""Tokens that joined texts may cost less than one by one."""


@draws()
@given(
    sizes=st.dictionaries(
        st.sampled_from(NAMES), st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=4
    ),
    said=st.lists(st.integers(1, 90), max_size=12),
    parts=st.dictionaries(st.sampled_from((*NAMES, "history")), st.integers(1, 9), max_size=4),
    ranks=st.dictionaries(st.sampled_from((*NAMES, "history")), st.integers(1, 9), max_size=2),
    options=st.fixed_dictionaries(
        {
            "preset": st.sampled_from([None, "chat", "rag"]),
            "surplus": st.sampled_from(["waterfall", "borrow"]),
            "reserve": st.sampled_from([0, 50]),
        }
    ),
    cut=st.sampled_from(["fill", "stable"]),
    room=st.integers(60, 900),
)
def test_no_piece_is_without_room_beside_free_room(
    sizes: dict[str, tuple[int, int]],
    said: list[int],
    parts: dict[str, int],
    ranks: dict[str, int],
    options: dict[str, Any],
    cut: Any,
    room: int,
) -> None:
    """However blocks are called and the room is shared: a text that fits into what is free is not dropped."""
    texts = {n: [f"{n}{i} " + "w " * size for i in range(count)] for n, (size, count) in sizes.items()}
    history = [{"role": ("user", "assistant")[n % 2], "content": "h " * size} for n, size in enumerate(said)]
    ratios = {name: part / sum(parts.values()) for name, part in parts.items()}
    budget = TokenBudget(context_window=room + 50, safety=0, ratios=ratios, ranks=ranks, **options)
    made = Assembler(budget, counter=COUNTER, cut=cut).assemble({"history": history, **texts}, query="q")
    free = made.report.limit - made.report.total_tokens
    dropped = {d.block for d in made.report.decisions if d.reason in ("no_room", "too_large") and not d.after}
    for block in made.report.blocks:
        if block.name in dropped and block.name != "history":
            frame = 0 if block.kept + block.shortened else block.frame
            each = (block.wanted - block.frame) // len(texts[block.name])
            assert free < each + frame + _SLACK, block
