"""ContextAnalyzer: segments of a prompt, rated and filtered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import ContextAnalyzer
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.analyzer import AnalyzerConfig, SegmentScore
from rankbudget.optimizer.compressor import CompressorConfig, PromptCompressor
from rankbudget.relevance import embedding
from rankbudget.testing import WordCounter

QUESTION = "How long do refunds take?"
PARTS = {
    "system": "You help customers of a shop.",
    "document": "Refunds take ten days.\n\nOur founder loves sailing boats.",
    "history": "\n".join(f"user: question {i}\nassistant: answer {i}" for i in range(6)),
    "query": QUESTION,
    "example": "Q: Is shipping free?\nA: Yes.",
}


def analyzer(**config: object) -> ContextAnalyzer:
    return ContextAnalyzer(AnalyzerConfig(**{"scoring_method": "keyword", **config}), counter=WordCounter())  # type: ignore[arg-type]


def of(scores: list[SegmentScore], category: str) -> list[SegmentScore]:
    return [score for score in scores if score.category == category]


def test_defaults_are_the_specification() -> None:
    """The configuration has the specified fields and defaults."""
    config = AnalyzerConfig()
    assert (config.min_relevance_threshold, config.protected_categories, config.max_history_turns, config.scoring_method) == (
        0.3, ["query"], 5, "embedding",
    )  # fmt: skip


def test_every_part_becomes_rated_segments_in_order() -> None:
    """Each paragraph of a document is a segment of its own, with id, text, tokens and category."""
    scores = analyzer().analyze(PARTS, QUESTION)
    documents = of(scores, "document")
    assert [(s.segment_id, s.text, s.token_count) for s in documents] == [
        ("document-0", "Refunds take ten days.", 4),
        ("document-1", "Our founder loves sailing boats.", 5),
    ]
    assert documents[0].relevance_score > documents[1].relevance_score == 0.0
    assert [s.category for s in scores] == sorted([s.category for s in scores], key=list(PARTS).index)


@pytest.mark.parametrize("method", ["tfidf", "keyword", "embedding"])
def test_irrelevant_paragraph_is_removed_by_every_method(method: str) -> None:
    """Whatever the method, the paragraph about something else falls below the one that answers."""
    if method == "embedding":
        pytest.importorskip("wordllama")
    tool = analyzer(scoring_method=method)
    scores = tool.analyze(PARTS, QUESTION)
    kept = of(tool.filter_by_relevance(scores), "document")
    assert [s.segment_id for s in kept] == ["document-0"]


def test_the_query_is_protected() -> None:
    """A protected category scores 1.0 and survives any threshold."""
    tool = analyzer()
    scores = tool.analyze({"query": "xyzzy", "document": "nothing"}, "something else")
    assert of(scores, "query")[0].relevance_score == 1.0
    assert of(tool.filter_by_relevance(scores, 1.0), "query") == of(scores, "query")


def test_other_categories_can_be_protected() -> None:
    """Protecting the system category keeps it whatever its relevance."""
    tool = analyzer(protected_categories=["query", "system"])
    assert of(tool.filter_by_relevance(tool.analyze(PARTS, QUESTION), 0.99), "system")


def test_system_segments_are_boosted() -> None:
    """System segments get 0.2 on top; nothing goes over 1.0."""
    assert of(analyzer().analyze(PARTS, QUESTION), "system")[0].relevance_score == pytest.approx(0.2)
    assert of(analyzer(system_boost=0.0).analyze(PARTS, QUESTION), "system")[0].relevance_score == 0.0
    assert analyzer().analyze({"system": QUESTION}, QUESTION)[0].relevance_score == 1.0


def test_only_the_last_turns_of_the_history_are_looked_at() -> None:
    """A turn is a user message and everything up to the next one; older turns are left out, the newest stay in order."""
    texts = [s.text for s in of(analyzer(max_history_turns=2).analyze(PARTS, QUESTION), "history")]
    assert texts == ["user: question 4", "assistant: answer 4", "user: question 5", "assistant: answer 5"]


@pytest.mark.parametrize(
    ("history", "kept"),
    [
        ("user: Which day?\nassistant: Friday.", ["user: Which day?", "assistant: Friday."]),
        (
            "user: One?\nassistant: Yes.\nuser: Two?\ntool: 2\nassistant: Two.",
            ["user: Two?", "tool: 2", "assistant: Two."],
        ),
        ("assistant: Welcome.\nHuman: Hi\nAI: Hello", ["Human: Hi", "AI: Hello"]),
        ("assistant: Welcome.\nassistant: Still there?", ["assistant: Welcome.", "assistant: Still there?"]),
        (
            "talk before\n[10:00] customer: Hi\nagent: Hello",
            ["talk before\n[10:00] customer: Hi", "agent: Hello"],
        ),
        ("first\n\nsecond", ["second"]),
    ],
)
def test_one_turn_is_what_the_compressor_calls_one_turn(history: str, kept: list[str]) -> None:
    """One turn keeps the last question with its whole answer; where no speaker is named, a piece is a turn."""
    assert [
        s.text for s in of(analyzer(max_history_turns=1).analyze({"history": history}, "Friday?"), "history")
    ] == kept


@given(roles=st.lists(st.sampled_from(["user", "assistant", "tool"]), max_size=8), turns=st.integers(0, 5))
def test_turns_are_those_of_compress_history(roles: list[str], turns: int) -> None:
    """What is looked at is what `PromptCompressor.compress_history` leaves as it is."""
    history = [{"role": role, "content": f"message number {i}"} for i, role in enumerate(roles)]
    lines = [f"{m['role']}: {m['content']}" for m in history]
    looked_at = [
        s.text for s in analyzer(max_history_turns=turns).analyze({"history": "\n".join(lines)}, "q")
    ]
    compressed = (
        PromptCompressor(CompressorConfig(min_tokens=0), counter=WordCounter())
        .compress_history(history, turns)
        .compressed_text
    )
    if looked_at == lines:
        assert compressed == "\n".join(lines)
    else:
        assert compressed.endswith("".join(["]", *[f"\n{line}" for line in looked_at]]))


def test_no_history_turns_means_no_history() -> None:
    """A limit of zero leaves all of the history out."""
    assert of(analyzer(max_history_turns=0).analyze(PARTS, QUESTION), "history") == []


def test_history_without_speakers_goes_by_paragraph_or_line() -> None:
    """Turns are paragraphs, or lines where there are no paragraphs."""
    assert [s.text for s in analyzer().analyze({"history": "a\n\nb c"}, "b")] == ["a", "b c"]
    assert [s.text for s in analyzer().analyze({"history": "a\nb c"}, "b")] == ["a", "b c"]


def test_long_paragraphs_are_rated_by_sentence() -> None:
    """A paragraph over the segment size is cut at its sentence ends."""
    text = "One two three. Four five six."
    assert [s.text for s in analyzer(max_segment_tokens=5).analyze({"document": text}, "four")] == [
        "One two three.",
        "Four five six.",
    ]


def test_savings_are_counted_in_tokens_and_percent() -> None:
    """Savings follow from the token counts of what was left out."""
    tool = analyzer()
    scores = tool.analyze(PARTS, QUESTION)
    kept = tool.filter_by_relevance(scores)
    saved = tool.estimate_token_savings(scores, kept)
    before, after = sum(s.token_count for s in scores), sum(s.token_count for s in kept)
    assert saved == {
        "original_tokens": before,
        "filtered_tokens": after,
        "tokens_saved": before - after,
        "savings_percent": round(100 * (before - after) / before, 2),
        "segments_removed": len(scores) - len(kept),
    }
    assert saved["tokens_saved"] > 0


def test_nothing_saves_nothing() -> None:
    """An empty prompt has no segments and saves nothing."""
    tool = analyzer()
    assert tool.analyze({"document": "  ", "query": ""}, "q") == []
    assert tool.estimate_token_savings([], [])["savings_percent"] == 0.0


def test_plurals_and_numbered_parts_are_read() -> None:
    """Keys like "documents" and "document_2" find their category; ids stay apart."""
    scores = analyzer().analyze({"documents": "a", "document_2": "b", "context": "c"}, "a")
    assert [(s.segment_id, s.category) for s in scores] == [
        ("documents-0", "document"),
        ("document_2-0", "document"),
        ("context-0", "document"),
    ]


def test_bad_input_is_said_with_what_is_allowed() -> None:
    """Unknown parts, thresholds outside 0 to 1 and unknown fields are refused."""
    with pytest.raises(BudgetConfigError, match=r"document.*'weather'"):
        analyzer().analyze({"weather": "rain"}, "q")
    with pytest.raises(BudgetConfigError, match="0 to 1"):
        analyzer().filter_by_relevance([], 1.5)
    with pytest.raises(BudgetConfigError):
        AnalyzerConfig(scoring_method="magic")  # type: ignore[arg-type]
    with pytest.raises(BudgetConfigError):
        AnalyzerConfig(threshold=0.1)  # type: ignore[call-arg]


def test_missing_embedding_falls_back_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without wordllama the embedding method goes by tf-idf, and the analyzer says why."""
    monkeypatch.setattr(embedding.importlib.util, "find_spec", lambda name: None)
    tool = ContextAnalyzer(counter=WordCounter())
    assert tool.reason is not None
    assert of(tool.analyze(PARTS, QUESTION), "document")[0].relevance_score > 0
