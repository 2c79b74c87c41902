"""Tool results that are capped as they enter an agent's state; what an agent remembers of a thread."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.types import Command

from langchain_budget import BudgetMiddleware, pre_model_hook
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import WordCounter
from tests.langchain.running import on_thread

WORDS = WordCounter(framing=1, priming=0)


def answer() -> ModelResponse[Any]:
    return ModelResponse(result=[AIMessage("ok")])


def chat(turns: int) -> list[Any]:
    return [
        m
        for i in range(turns)
        for m in (HumanMessage(f"question {i}", id=f"q{i}"), AIMessage(f"answer {i}", id=f"a{i}"))
    ]


def test_a_tool_result_can_be_capped_as_it_enters_the_state() -> None:
    """With tool_result_tokens a giant result is stored short; a short one, and an artifact, stay as they are."""

    def long_result(_: Any) -> ToolMessage:
        return ToolMessage("word " * 900, tool_call_id="c1", artifact={"all": True})

    capped = BudgetMiddleware(max_tokens=100, counter=WORDS, tool_result_tokens=50).wrap_tool_call(
        None, long_result
    )
    assert WORDS.count(capped.content) <= 50
    assert capped.artifact == {"all": True}
    assert (
        BudgetMiddleware(max_tokens=100, counter=WORDS).wrap_tool_call(None, long_result).content
        == "word " * 900
    )


def by_characters(text: str) -> int:
    return len(text)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"max_tokens": 5000, "counter": by_characters}, by_characters),
        ({"max_tokens": 5000, "counter": lambda message: len(message.content.split())}, WORDS.count),
        ({"model": "gpt-4"}, counter_for("gpt-4").count),
        ({"budget": TokenBudget(context_window=5000, model="gpt-4")}, counter_for("gpt-4").count),
    ],
    ids=["text", "message", "model", "budget"],
)
def test_a_cap_counts_as_everything_else_does(options: Any, count: Any) -> None:
    """Whatever counts prompts also counts what one result may have."""
    result = ToolMessage("Überraschung und völlig " * 200, tool_call_id="c1")
    capped = BudgetMiddleware(**options, tool_result_tokens=40).wrap_tool_call(None, lambda _: result)
    assert 20 <= count(capped.content) <= 40


def test_a_cap_counts_with_the_model_that_was_called() -> None:
    """When only requests name a model its tokenizer counts the results of the tools it asked for."""
    result = ToolMessage("Überraschung und völlig " * 200, tool_call_id="c1")
    middleware = BudgetMiddleware(max_tokens=5000, tool_result_tokens=40)
    old = ChatOpenAI(model="gpt-4", api_key="none")
    middleware.wrap_model_call(ModelRequest(model=old, messages=chat(1)), lambda _: answer())
    assert counter_for("gpt-4").count(middleware.wrap_tool_call(None, lambda _: result).content) <= 40
    assert (
        counter_for("o200k_base").count(
            BudgetMiddleware(tool_result_tokens=40).wrap_tool_call(None, lambda _: result).content
        )
        <= 40
    )


def test_results_inside_commands_and_lists_are_capped() -> None:
    """A tool may answer with a state update, or with several: what it says to the model is as short as any result."""
    long, short = ToolMessage("word " * 900, tool_call_id="c1"), ToolMessage("ok", tool_call_id="c2")
    middleware = BudgetMiddleware(max_tokens=100, counter=WORDS, tool_result_tokens=50)
    update = {"messages": [long, short], "seen": ["word " * 900]}
    given = Command(update=update, goto="elsewhere")
    capped = middleware.wrap_tool_call(None, lambda _: given)
    assert WORDS.count(capped.update["messages"][0].content) <= 50
    assert capped.update["messages"][1] is short
    assert (capped.update["seen"], capped.goto) == (["word " * 900], "elsewhere")
    assert given.update == {"messages": [long, short], "seen": ["word " * 900]}
    both = middleware.wrap_tool_call(None, lambda _: [given, long])
    assert WORDS.count(both[0].update["messages"][0].content) <= 50
    assert WORDS.count(both[1].content) <= 50
    goto = Command(goto="elsewhere")
    assert middleware.wrap_tool_call(None, lambda _: goto) is goto


# ---------------------------------------------------------------- threads
def test_a_summary_needs_a_thread() -> None:
    """Without a thread_id it is unknown whose summary it would be: the error says what to give."""
    thread = [*chat(40), HumanMessage("now")]
    options: Any = {"max_tokens": 60, "counter": WORDS, "summarizer": lambda text, most: "They talked."}
    middleware, hook = BudgetMiddleware(**options), pre_model_hook(**options)
    asked = ModelRequest(model=FakeListChatModel(responses=[""]), messages=thread)
    with pytest.raises(BudgetConfigError, match="thread_id"):
        middleware.wrap_model_call(asked, lambda _: answer())
    with pytest.raises(BudgetConfigError, match="thread_id"):
        hook.invoke({"messages": thread})
    sent: list[Any] = []
    with on_thread("ann"):
        middleware.wrap_model_call(asked, lambda request: sent.extend(request.messages) or answer())
    assert "They talked." in sent[0].content
    assert [middleware.forget("ann"), middleware.forget("ann")] == [True, False]


def test_messages_of_equal_ids_are_not_one_thread() -> None:
    """Two users whose clients number their messages alike, without a thread: each is sent what it gave, and nothing else."""
    middleware = BudgetMiddleware(max_tokens=60, counter=WORDS)
    for user in ("ann", "bob"):
        thread = [HumanMessage(f"I am {user}", id="m0"), *chat(40), HumanMessage(f"{user} asks", id="m99")]
        sent: list[Any] = []
        asked = ModelRequest(model=FakeListChatModel(responses=[""]), messages=thread)
        middleware.wrap_model_call(
            asked, lambda request, sent=sent: sent.extend(request.messages) or answer()
        )
        assert all(any(message is given for given in thread) for message in sent)
        assert sent[-1].content == f"{user} asks"
