"""The demonstration: one budget through both frameworks, the same pieces kept, and what it says when something is missing."""

from __future__ import annotations

import json

import pytest

from rankbudget.counting import counter_for
from rankbudget.cli.demo import QUESTION, Task, _documentation, _shipped, quoted
from rankbudget.errors import BudgetConfigError
from rankbudget.cli.reading import read_chat, read_passages
from tests.core.cli.conftest import run

COUNTER = counter_for("gpt-4o")


def test_the_shipped_conversation_is_long_and_valid():
    """It has tool calls in parallel, and more tokens than the demonstration's window."""
    chat = read_chat(_shipped("conversation.json"))
    assert len(chat.messages) > 100
    assert COUNTER.count_messages(chat.messages) > 4_096
    assert any(len(m.get("tool_calls") or ()) > 1 for m in chat.messages)
    assert len(read_passages(_documentation())) > 10


def test_the_demonstration_keeps_the_same_pieces_in_both_frameworks(capsys):
    """Both halves run on the shipped conversation and the project's documentation, fit, agree and answer."""
    pytest.importorskip("langchain_core")
    pytest.importorskip("llama_index.core")
    pytest.importorskip("faiss")
    assert run("demo") == 0
    out = capsys.readouterr().out
    assert "indexed with FAISS" in out
    assert out.count("final prompt: ") == 2
    assert "both kept the same" in out
    assert "only the" not in out
    assert QUESTION in out
    assert "no model was given" in out


@pytest.mark.parametrize("window", [800, 1_500, 2_500])
def test_both_frameworks_keep_the_same_pieces_in_small_windows(window, capsys):
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
        == 0
    )
    assert capsys.readouterr().out.rstrip().endswith("Keep tea dry and dark.\n  (tea.md#2)")


@pytest.fixture
def server():
    pytest.importorskip("langchain_openai")
    pytest.importorskip("llama_index.llms.openai_like")
    from rankbudget.testing.server import StrictModelServer

    with StrictModelServer(["from the chain", "from the engine"], context_window=4_096) as running:
        yield running


def test_a_model_answers_through_both_frameworks(server, capsys):
    """A strict server of 4,096 tokens accepts both requests, which hold the same messages, and counts what we count."""
    assert run("demo", "--model", "gpt-4o", "--base-url", server.base_url) == 0
    out = capsys.readouterr().out
    assert "gpt-4o through the LangChain chain: from the chain" in out
    assert "gpt-4o through the LlamaIndex engine: from the engine" in out
    first, second = server.requests
    assert [m["content"] for m in first.messages] == [m["content"] for m in second.messages]
    assert first.prompt_tokens == second.prompt_tokens <= 4_096 - 600
    assert f"final prompt: {first.prompt_tokens:,} tokens of 3,496" in out


def test_a_model_that_does_not_answer_is_one_line(capsys):
    """A server that is not there names the model, with status 2."""
    pytest.importorskip("langchain_openai")
    assert run("demo", "--model", "gpt-4o", "--base-url", "http://127.0.0.1:9/v1") == 2
    assert "rankbudget: error: model 'gpt-4o' did not answer: " in capsys.readouterr().err


def test_quoting_nothing_says_so():
    """Without a kept passage there is nothing to quote."""
    assert "nothing to quote" in quoted([], "why?")


def test_a_demonstration_without_documents_says_how_to_give_some(monkeypatch, tmp_path):
    """Where neither the wheel nor a checkout has the pages, the message names --docs."""
    monkeypatch.setattr("rankbudget.cli.demo.__file__", str(tmp_path / "a" / "b" / "c" / "demo.py"))
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


def test_without_embeddings_words_decide_among_all_passages(monkeypatch):
    """Where the embedding library is missing, every passage goes on to be ranked by its words."""
    from rankbudget.cli import main as cli
    from rankbudget.relevance import index
    from rankbudget.segment import Segment

    def missing(*_):
        msg = "no wordllama"
        raise ImportError(msg)

    monkeypatch.setattr(index, "EmbeddingIndex", missing)
    passages = [Segment(id=str(i), text=f"text {i}") for i in range(60)]
    assert cli._near(passages, "text") == tuple(passages)


def test_a_missing_framework_names_its_extra(capsys, monkeypatch):
    """Without LlamaIndex the demonstration says what to install."""
    monkeypatch.setattr("rankbudget.cli.demo._HALVES", {"LlamaIndex engine": "no_such_adapter.demo"})
    assert run("demo") == 2
    assert 'pip install "rankbudget[llamaindex,faiss,embed]"' in capsys.readouterr().err


def test_differences_between_the_frameworks_are_told(capsys):
    """What only one of them kept is named, and the comparison says no."""
    from rankbudget.cli.demo import Half, _compare

    one = Half(prompt=[], history=[("user", "hi")], documents=[("a", "A"), ("b", "B")], reports=[])
    two = Half(prompt=[], history=[("user", "hi")], documents=[("a", "A")], reports=[])
    assert _compare({"chain": one, "engine": two}) is False
    out = capsys.readouterr().out
    assert "both kept the same 1 messages" in out
    assert "only the chain kept 1 passages: b: 'B'" in out
    assert "only the engine" not in out
