"""The demonstration: one budget through both frameworks, the same pieces kept, and what it says when something is missing."""

from __future__ import annotations

import json

import pytest

from rankbudget.budget.token_budget import TokenBudget
from rankbudget.cli.demo import _DATA, QUESTION, Half, Task, _compare, _documentation, _tokens_sent
from rankbudget.cli.reading import read_chat, read_passages
from rankbudget.counting import counter_for
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.report.report import BudgetReport
from tests.core.cli.conftest import run

COUNTER = counter_for("gpt-4o")


def test_the_shipped_conversation_is_long_and_valid():
    """It has tool calls in parallel, and more tokens than the demonstration's window."""
    chat = read_chat(_DATA / "conversation.json")
    assert len(chat.messages) > 100
    assert COUNTER.count_messages(chat.messages) > 4_096
    assert any(len(m.get("tool_calls") or ()) > 1 for m in chat.messages)
    assert len(read_passages(_documentation())) > 10


@pytest.mark.slow
def test_the_demonstration_reports_the_whole_prompt_of_each_framework(capsys):
    """Each framework has one report, with its documents and its history, and the pieces are compared."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("faiss")
    assert run("demo") == 0
    out = capsys.readouterr().out
    chain, engine = out.split("== LangChain ==")[1].split("== LlamaIndex ==")
    for part in (chain, engine):
        assert part.count("\nhistory ") == part.count("\nknowledge ") == part.count("\ntotal ") == 1
        assert "window 4,096 = 3,496 for the prompt + 600 reserve" in part
        assert "covers the whole prompt" in part
    assert "the same text in both: " in engine
    assert QUESTION in engine


@pytest.mark.slow
@pytest.mark.parametrize("window", [800, 1_500, 4_096])
def test_both_frameworks_keep_the_same_pieces(window, capsys):
    """Where a single token decides whether one more sentence fits, both still decide alike."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("faiss")
    assert run("demo", "--window", window) == 0, capsys.readouterr().out


def test_the_demonstration_takes_a_users_own_files(chat, docs, capsys):
    """Another conversation, other documents, another question: the best kept passage answers."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("faiss")
    assert (
        run("demo", "--chat", chat, "--docs", docs, "--question", "How do I store tea?", "--window", 2_000)
        < 2
    )
    assert "Keep tea dry and dark.\n  (tea.md#2" in capsys.readouterr().out


def test_a_demonstration_without_documents_says_how_to_give_some(monkeypatch, tmp_path):
    """Where neither the wheel nor a checkout has the pages, the message names --docs."""
    monkeypatch.setattr("rankbudget.cli.demo.__file__", str(tmp_path / "a" / "b" / "c" / "demo.py"))
    monkeypatch.setattr("rankbudget.cli.demo._DATA", tmp_path)
    with pytest.raises(BudgetConfigError, match="--docs DIR"):
        _documentation()


def test_a_task_is_plain_data():
    """Both halves are given the same frozen task."""
    assert Task.__dataclass_params__.frozen


# ---- the rest -----------------------------------------------------------------------------------------------------------------------
def test_of_many_passages_the_nearest_are_ranked(chat, tmp_path, capsys):
    """Among 80 pages the one that answers is in the prompt, whether meaning or words decide."""
    folder = tmp_path / "many"
    folder.mkdir()
    for i in range(80):
        (folder / f"page{i}.md").write_text(
            f"Page {i} tells how engine number {i} is oiled and cleaned every week."
        )
    (folder / "bees.md").write_text("Bees dance to tell other bees where flowers are.")
    assert (
        run("fit", chat, "--window", 1_200, "--docs", folder, "--question", "Why do bees dance?", "--json")
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    assert any("Bees dance" in (m["content"] or "") for m in made["messages"])


def test_a_missing_framework_names_its_extra(capsys, monkeypatch):
    """Without LlamaIndex the demonstration says what to install."""
    monkeypatch.setattr("rankbudget.cli.demo._HALVES", {"LlamaIndex": "no_such_adapter.demo"})
    assert run("demo") == 2
    assert 'pip install "rankbudget[langchain,classic,llamaindex,faiss,embed]"' in capsys.readouterr().err


def half(history, passages):
    prompt = [{"role": "system", "content": "s"}, *history, {"role": "user", "content": "q"}]
    return Half(prompt=prompt, passages=passages, report=BudgetReport(limit=9, total_tokens=9))


HELLO = {"role": "user", "content": "hi"}


def test_differences_between_the_frameworks_are_named(capsys):
    """What only one of them kept is named, and the comparison says no."""
    assert (
        _compare({"chain": half([HELLO], {"a": "A", "b": "B"}), "engine": half([HELLO], {"a": "A"})}) is False
    )
    out = capsys.readouterr().out
    assert "the same text in both: 2 of 3 pieces" in out
    assert "b: chain keeps 1 characters, 'B', engine leaves it out" in out
    assert _compare({"chain": half([HELLO], {"a": "A"}), "engine": half([HELLO], {"a": "A"})}) is True


def test_a_prompt_over_the_limit_is_an_error():
    """The demonstration does not print a prompt that breaks its own promise."""
    task = Task(
        budget=TokenBudget(context_window=12, reserve=10, model="gpt-4o"),
        system="s",
        history=[],
        question="q",
        index=None,
    )
    with pytest.raises(BudgetExceededError, match="the limit is 2"):
        _tokens_sent(half([HELLO], {}), task)
