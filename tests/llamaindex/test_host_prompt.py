"""The host's own prompt, told to a memory: it takes its room from the history."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.schema import MetadataMode

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetNodePostprocessor,
    HistorySummaryMemoryBlock,
    budget_model,
    postprocessor,
)
from rankbudget import BudgetExceededError, BudgetSession, TokenBudget
from rankbudget.errors import BudgetConfigError
from tests.llamaindex.models import (
    FixedRetriever,
    ListStore,
    PlayLLM,
    exchanges,
    nodes,
    say,
    tokens,
    words,
)

CHAT = [say("system", "RULE"), *exchanges(20), say("user", "last")]


def _memory(**fields: Any) -> BudgetChatMemoryBuffer:
    return BudgetChatMemoryBuffer.from_defaults(**{"token_limit": 400, "chat_history": CHAT, **fields})


def test_the_hosts_prompt_is_counted() -> None:
    """A text, messages or a template as `prompt=` take their room from the history."""
    budget = TokenBudget(context_window=1000, reserve=400, max_system_ratio=None)
    template = PromptTemplate(words(300) + "{query_str}")
    for prompt in (words(300), [say("system", words(300))], template):
        kept = _memory(token_limit=None, budget=budget, counter="cl100k_base", prompt=prompt).get("hi")
        assert 100 < tokens(kept) <= 300
    with pytest.raises(BudgetConfigError, match="prompt must be"):
        _memory(prompt=3)


@pytest.mark.parametrize("told", ["memory", "postprocessor", "stored", "budget", "door"])
@pytest.mark.parametrize("rules", [300, 400])
async def test_a_quarter_of_the_window_is_checked_where_the_system_prompt_is_seen(
    told: str, rules: int
) -> None:
    """A part that sees the engine's system prompt refuses more than a quarter of its budget's window; the last door, whose system messages hold nodes, does not."""
    prompt = words(rules)
    template = ChatPromptTemplate.from_messages(
        [("system", prompt + "\n{context_str}"), ("user", "{query_str}")]
    )
    session = BudgetSession(TokenBudget(context_window=1500, reserve=200), counter="cl100k_base")
    memory = BudgetChatMemoryBuffer.from_defaults(
        chat_history=[say("system", prompt)] if told == "stored" else [],
        session=session,
        prompt=prompt if told == "memory" else None,
    )
    shared = {"budget": session.budget} if told == "budget" else {"session": session}
    seen = {"postprocessor": prompt, "budget": template}.get(told)
    llm = PlayLLM(requests=[], window=4000, reply=200)
    engine = ContextChatEngine.from_defaults(
        retriever=FixedRetriever(nodes(9, 30)),
        llm=budget_model(llm, session) if told == "door" else llm,
        memory=memory,
        node_postprocessors=[BudgetNodePostprocessor(prompt=seen, counter="cl100k_base", **shared)],
        system_prompt=None if told == "stored" else prompt,
    )
    if rules > 1500 // 4 and told != "door":
        with pytest.raises(BudgetExceededError, match=r"375 tokens, 25%"):
            engine.chat("what?")
        with pytest.raises(BudgetExceededError, match=r"375 tokens, 25%"):
            await engine.achat("what?")
    else:
        engine.chat("what?")
        await engine.achat("and then?")
        assert rules < min(llm.sizes())
        assert max(llm.sizes()) <= session.budget.limit()


@pytest.mark.parametrize("prompt", ["You are kind.", PromptTemplate("{context_str} {query_str}")])
def test_the_question_has_a_row_in_the_report(prompt: Any) -> None:
    """A question that the host's prompt shows is a row of its own, as where the plan shows it."""
    budget = TokenBudget(context_window=1000, reserve=400, max_system_ratio=None)
    report = _memory(token_limit=None, budget=budget, prompt=prompt).fit("what is up?").report
    assert [b.name for b in report.blocks][-1] == "query"
    assert sum(b.used for b in report.blocks) + report.overhead == report.total_tokens


@pytest.mark.parametrize("prompt", [None, PromptTemplate("{context_str} {query_str}")])
def test_nodes_beside_a_memory_are_reported_as_what_is_seen(
    prompt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its `prompt=` a turn of nodes and memory sees neither system text nor template."""
    reports: list[Any] = []
    monkeypatch.setattr(postprocessor, "send_report", lambda report, *_: reports.append(report))
    budget = TokenBudget(context_window=1000, reserve=400)
    memory = _memory(token_limit=None, budget=budget, prompt=prompt)
    BudgetNodePostprocessor(memory=memory).postprocess_nodes(nodes(3, 20), query_str="why?")
    assert [report.covers for report in reports] == ["blocks" if prompt is None else "prompt"]


def test_metadata_lines_are_counted_in_the_hosts_prompt() -> None:
    """What the model sees of a node beside its text is in the prompt that is counted."""
    found = nodes(9, 100)
    for node in found:
        node.node.metadata = {"file_name": words(30)}
    template = PromptTemplate("{context_str} {query_str}")
    for limit in range(200, 900, 50):
        budget = TokenBudget(context_window=limit, reserve=20)
        post = BudgetNodePostprocessor(budget=budget, counter="cl100k_base", prompt=template)
        kept = post.postprocess_nodes(found, query_str="why?")
        seen = "\n\n".join(n.node.get_content(MetadataMode.LLM) for n in kept)
        assert tokens([say("user", f"{seen} why?")]) <= budget.limit()


async def test_a_deleted_conversation_leaves_no_summary_in_a_block() -> None:
    """After a reset, and after the messages are replaced, a summary block says nothing of what was."""
    for replaced in (False, True):
        memory = BudgetMemory.from_defaults(
            token_limit=200, memory_blocks=[HistorySummaryMemoryBlock()], chat_store=ListStore()
        )
        await memory.aput_messages(
            [say("user", "my pin is 7741"), *exchanges(30), say("user", "what is my pin?")]
        )
        assert "7741" in str(await memory.aget())
        if replaced:
            await memory.aset([say("user", "[redacted]"), *exchanges(30), say("user", "what is my pin?")])
        else:
            await memory.areset()
            await memory.aput(say("user", "what is my pin?"))
        assert "7741" not in str(await memory.aget())
