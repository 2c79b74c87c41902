"""The laws through the entry points that put a whole prompt together."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given

from rankbudget import Assembler, Block, BlockAssembler, TokenBudget, build_constrained_prompt, counter_for
from rankbudget.errors import BudgetConfigError, BudgetError, BudgetExceededError
from rankbudget.testing import (
    Application,
    WordCounter,
    applications,
    check_delimited,
    check_laws,
    check_refusal,
    check_same,
    check_scopes,
    snapshot,
)
from rankbudget.testing.repairs import least_messages, repaired
from tests.drawing import draws

COUNTER = WordCounter()
TAGS = ("knowledge", "memory", "examples", "example", "document", "history")
SYSTEM = "Answer briefly."


def setup(application: Application, messages: list[Any]) -> tuple[Assembler, list[Block], int]:
    limit = application.limit(COUNTER) + 40
    budget = TokenBudget(
        context_window=limit,
        reserve=0,
        ratios={"memory": 0.4, "history": 0.6},
        surplus=application.surplus,
        max_system_ratio=None,
    )
    assembler = Assembler(budget, counter=COUNTER, cut=application.cut, scope=application.reader)
    return assembler, [Block.of("system", SYSTEM), *application.blocks(messages)], limit


def assemble(application: Application, messages: list[Any]) -> Any:
    assembler, blocks, _ = setup(application, messages)
    try:
        return assembler.assemble(blocks, query=application.question, tools=application.tools or None)
    except BudgetError as error:
        return error


def judge(application: Application, messages: list[Any], before: object, made: Any, limit: int) -> None:
    tools = application.tools or None
    given_messages = [{"role": "system", "content": SYSTEM}, *messages]
    asked = [{"role": "user", "content": application.question}] if application.question else []
    if isinstance(made, BudgetError):
        assert isinstance(made, BudgetExceededError), f"law 1 (limit): {made!r}"
        needed = COUNTER.count_messages(least_messages(repaired([*given_messages, *asked])), tools)
        assert needed > limit, (
            f"law 1 (limit): refused although what must stay counts {needed} <= {limit}: {made}"
        )
        return
    texts = "\n".join(_text(m) for m in made.messages)
    total = COUNTER.count_messages(made.messages, tools)
    assert total <= limit, f"law 1 (limit): {total} > {limit}"
    assert made.report.total_tokens == total, (
        f"law 1 (limit): reported {made.report.total_tokens}, counted {total}"
    )
    kept = [m for m in made.messages if any(m is x for x in messages)]
    last = made.messages[-1:] if asked else []
    check_laws(
        [*messages, *last], [*made.history, *last], limit=limit, counter=COUNTER, tools=tools, remembers=True
    )
    assert snapshot(messages) == before, "law 5 (order): inputs were changed"
    assert kept == [m for m in made.history if any(m is x for x in messages)]
    assert made.messages[0] == {"role": "system", "content": SYSTEM}
    if asked:
        assert _text(made.messages[-1]) == application.question, "law 4 (question): not last"
    inserted = [
        *application.documents,
        *(m.text for m in application.memories),
        *(f"{a} {b}" for a, b in application.examples),
    ]
    ours = "\n".join(
        _text(m) for m in made.messages if not any(m is x for x in messages) and m["role"] == "system"
    )
    check_delimited(ours, inserted, tags=TAGS)
    check_scopes(texts, application.memories, application.reader)


def _text(message: Any) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(str(b.get("text", "")) for b in content)
    return content or ""


@draws()
@given(applications())
def test_assemble(application: Application) -> None:
    """A whole prompt is within the window, valid, delimited and without leaks, whatever competes for it, and the same every time."""
    messages = application.fresh()
    before = snapshot(messages)
    made = assemble(application, messages)
    _, _, limit = setup(application, messages)
    judge(application, messages, before, made, limit)
    if not isinstance(made, BudgetError):
        check_same(made.messages, assemble(application, messages).messages)


@draws(asynchronous=True)
@given(applications())
def test_aassemble(application: Application) -> None:
    """`aassemble` gives what `assemble` gives."""
    messages = application.fresh()
    expected = assemble(application, messages)
    assembler, blocks, _ = setup(application, messages)
    try:
        made = asyncio.run(
            assembler.aassemble(blocks, query=application.question, tools=application.tools or None)
        )
    except BudgetError as error:
        if str(error) != str(expected):
            raise
        return
    check_same(expected.messages, made.messages, what="the async form")


@draws(asynchronous=True)
@given(applications(media=False))
def test_block_assembler(application: Application) -> None:
    """The five-block text counts at most its budget and keeps its tags, or says by how much it cannot."""
    limit = application.limit(COUNTER) + 60
    budget = TokenBudget(
        context_window=limit, reserve=0, ratios={"memory": 0.4, "history": 0.6}, max_system_ratio=None
    )
    counter = counter_for("o200k_base")
    assembler = BlockAssembler(budget, counter=counter)
    try:
        text = assembler.assemble(
            SYSTEM, "A project.", "A task.", application.fresh(), list(application.documents)
        )
    except BudgetExceededError as error:
        if error.needed <= error.limit:
            raise
        return
    assert counter.count(text) <= limit, f"law 1 (limit): {counter.count(text)} > {limit}"
    assert SYSTEM in text
    check_delimited(
        text, application.documents, tags=("system", "project", "task", "history", "knowledge", "memory")
    )
    assert text == assembler.assemble(
        SYSTEM, "A project.", "A task.", application.fresh(), list(application.documents)
    )


@draws(asynchronous=True)
@given(applications())
def test_build_constrained_prompt(application: Application) -> None:
    """The constrained prompt fits what the reserve leaves, begins with the system prompt, ends with the question, and is valid."""
    counter = counter_for("gpt-4o")
    messages = application.fresh()
    before = snapshot(messages)
    limit = counter.count_messages(messages) * (application.eighths or 4) // 8 + 120
    question = application.question or "Which is it?"
    try:
        made = build_constrained_prompt(
            SYSTEM, question, messages, list(application.documents), limit + 50, output_reserve_tokens=50
        )
    except BudgetConfigError:
        assert limit < 1
        return
    except BudgetExceededError as error:
        asked = {"role": "user", "content": question}
        check_refusal(
            [{"role": "system", "content": SYSTEM}, *messages, asked],
            error,
            limit=limit - 100,
            counter=counter,
        )
        return
    total = counter.count_messages(made)
    assert total <= limit, f"law 1 (limit): {total} > {limit}"
    assert made[0]["content"] == SYSTEM
    assert made[-1] == {"role": "user", "content": question}
    history = [m for m in made[1:-1] if m["role"] != "system" or any(m is x for x in messages)]
    check_laws([*messages, made[-1]], [*history, made[-1]], limit=limit, counter=counter, remembers=True)
    assert snapshot(messages) == before, "law 5 (order): inputs were changed"
