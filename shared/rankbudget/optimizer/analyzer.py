"""Which parts of a prompt the question needs: every segment gets a relevance from 0 to 1 and a category.

Field names and defaults are those of the token-optimization specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from ..segment import Segment
from ..relevance.embedding import Embedder, EmbeddingScorer, EmbedFunction
from ..relevance.keyword import KeywordScorer
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..relevance.tfidf import TfidfScorer

__all__ = ["AnalyzerConfig", "ContextAnalyzer", "SegmentScore"]

Category = Literal["system", "document", "history", "query", "example"]
ScoringMethod = Literal["tfidf", "embedding", "keyword"]


class AnalyzerConfig(BaseModel):
    """Every threshold of the analyzer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_relevance_threshold: float = Field(
        default=0.3, ge=0, le=1, description="Segments below this are candidates for removal."
    )
    protected_categories: list[str] = Field(
        default=["query"], description="Categories that are never removed and always score 1.0."
    )
    max_history_turns: int = Field(
        default=5,
        ge=0,
        description="Only the last so many turns of the history are looked at; a turn is a user message and all up to the next.",
    )
    scoring_method: ScoringMethod = Field(default="embedding", description="How relevance is rated.")
    system_boost: float = Field(
        default=0.2, ge=0, le=1, description="Added to system segments: they set the behaviour."
    )
    max_segment_tokens: int = Field(
        default=120, ge=1, description="Longer paragraphs are rated sentence by sentence."
    )
    price_per_million_tokens: float = Field(
        default=2.5, ge=0, description="Price of input tokens, for savings in money."
    )


class SegmentScore(BaseModel):
    """One piece of the prompt and how much the question needs it."""

    model_config = ConfigDict(frozen=True)

    segment_id: str
    text: str
    token_count: int
    relevance_score: float = Field(ge=0, le=1, description="0.0 = irrelevant, 1.0 = critical.")
    category: Category


class ContextAnalyzer:
    r"""Rates each segment of a prompt by what the question needs.

    Args:
        config: thresholds and method.
        counter: counts tokens; None takes o200k_base.
        embed: vectors for the "embedding" method; None takes the embedded default, or tf-idf where that is not installed.

    Attributes:
        reason: why another method than the configured one is used, None when it is not.

    Example:
        >>> analyzer = ContextAnalyzer(AnalyzerConfig(scoring_method="keyword"))
        >>> scores = analyzer.analyze({"document": "Refunds take ten days.\n\nWe love cats.", "query": "How long do refunds take?"}, "How long do refunds take?")
        >>> [(score.segment_id, score.relevance_score) for score in scores]
        [('document-0', 0.67), ('document-1', 0.0), ('query-0', 1.0)]
        >>> [score.segment_id for score in analyzer.filter_by_relevance(scores)]
        ['document-0', 'query-0']
    """

    def __init__(
        self,
        config: AnalyzerConfig | None = None,
        *,
        counter: TokenCounter | None = None,
        embed: Embedder | EmbedFunction | None = None,
    ) -> None:
        self.config = config or AnalyzerConfig()
        self.reason: str | None = None
        self._counter = counter
        self._scorer = self._make_scorer(embed)

    @property
    def counter(self) -> TokenCounter:
        """What counts the tokens."""
        if self._counter is None:
            from ..counting import counter_for

            self._counter = counter_for("o200k_base")
        return self._counter

    def analyze(self, prompt_parts: Mapping[str, str], query: str) -> list[SegmentScore]:
        """Returns the rated segments of a prompt, in order.

        Args:
            prompt_parts: texts by category: "system", "document", "history", "query", "example"; plurals and numbered keys
                ("documents", "document_2") are read too. A history is cut where a line opens with a speaker, else into paragraphs or lines;
                with speakers a turn is a user message and everything up to the next one, without them each piece is a turn.
            query: the user's question.
        """
        unknown = [name for name in prompt_parts if _category(name) is None]
        if unknown:
            msg = f"prompt parts {unknown!r} have no category, allowed: {', '.join(get_args(Category))}"
            raise BudgetConfigError(msg)
        pieces: list[tuple[str, str, Category]] = []
        for name, text in prompt_parts.items():
            category = _category(name) or "document"
            for i, piece in enumerate(self._pieces(text, category)):
                pieces.append((f"{name}-{i}", piece, category))
        tokens = self.counter.count_many([text for _, text, _ in pieces])
        scores = self._relevance(query, pieces)
        return [
            SegmentScore(
                segment_id=name,
                text=text,
                token_count=tokens[i],
                relevance_score=scores[i],
                category=category,
            )
            for i, (name, text, category) in enumerate(pieces)
        ]

    def filter_by_relevance(
        self, segments: Sequence[SegmentScore], min_relevance: float | None = None
    ) -> list[SegmentScore]:
        """Returns the segments at or above the threshold, and all protected ones, in order.

        Args:
            segments: what `analyze` returned.
            min_relevance: threshold, 0 to 1; None takes the configured one (0.3 by default).
        """
        threshold = self.config.min_relevance_threshold if min_relevance is None else min_relevance
        if not 0 <= threshold <= 1:
            msg = f"min_relevance is {threshold!r}, allowed: 0 to 1"
            raise BudgetConfigError(msg)
        return [
            s
            for s in segments
            if s.category in self.config.protected_categories or s.relevance_score >= threshold
        ]

    def estimate_token_savings(
        self, original_segments: Sequence[SegmentScore], filtered_segments: Sequence[SegmentScore]
    ) -> dict[str, Any]:
        """Returns what leaving segments out saves, in tokens, percent and money."""
        before = sum(segment.token_count for segment in original_segments)
        after = sum(segment.token_count for segment in filtered_segments)
        return {
            "original_tokens": before,
            "filtered_tokens": after,
            "tokens_saved": before - after,
            "savings_percent": round(100 * (before - after) / before, 2) if before else 0.0,
            "cost_saved": (before - after) * self.config.price_per_million_tokens / 1_000_000,
            "segments_removed": len(original_segments) - len(filtered_segments),
        }

    def _make_scorer(self, embed: Embedder | EmbedFunction | None) -> Scorer:
        method = self.config.scoring_method
        if method == "embedding":
            from ..relevance.embedding import missing_reason

            self.reason = None if embed is not None else missing_reason()
            return TfidfScorer() if self.reason else EmbeddingScorer(embed)
        return TfidfScorer() if method == "tfidf" else KeywordScorer()

    def _pieces(self, text: str, category: Category) -> list[str]:
        if not text.strip():
            return []
        if category == "query":
            return [text]
        if category == "history":
            return _last_turns(_messages(text), self.config.max_history_turns)
        pieces: list[str] = []
        for paragraph in re.split(r"\n\s*\n", text):
            if not paragraph.strip():
                continue
            if self.counter.count(paragraph) <= self.config.max_segment_tokens:
                pieces.append(paragraph.strip())
            else:
                pieces.extend(sentence.strip() for sentence in split_sentences(paragraph))
        return pieces

    def _relevance(self, query: str, pieces: Sequence[tuple[str, str, Category]]) -> list[float]:
        raw = self._scorer.score(query, [Segment(id=name, text=text) for name, text, _ in pieces])
        found = []
        for score, (_, _, category) in zip(raw, pieces, strict=True):
            boosted = score + (self.config.system_boost if category == "system" else 0.0)
            found.append(
                1.0 if category in self.config.protected_categories else round(min(max(boosted, 0.0), 1.0), 2)
            )
        return found


_SPEAKER = re.compile(
    r"^\s*(?:\[[^\]\n]{1,40}\]\s*)?(?P<who>system|user|human|assistant|ai|bot|tool|function|customer|agent)\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_USERS = ("user", "human", "customer")
_PLURALS = {
    "documents": "document",
    "context": "document",
    "examples": "example",
    "question": "query",
    "system_prompt": "system",
}


def _category(name: str) -> Category | None:
    base = re.sub(r"[-_ ]?\d+$", "", name.lower())
    base = _PLURALS.get(base, base)
    return next((category for category in get_args(Category) if category == base), None)


def _messages(text: str) -> list[str]:
    starts = [match.start() for match in _SPEAKER.finditer(text)]
    if starts:
        bounds = [0, *starts[1:], len(text)]
        found = [text[a:b].strip() for a, b in pairwise(bounds)]
    else:
        found = [
            part.strip() for part in (re.split(r"\n\s*\n", text) if "\n\n" in text else text.splitlines())
        ]
    return [message for message in found if message]


def _last_turns(messages: list[str], turns: int) -> list[str]:
    """Returns the messages of the last turns; where nobody is named, each piece is a turn."""
    speakers = [
        match.group("who").lower() if (match := _SPEAKER.search(message)) else "" for message in messages
    ]
    starts = (
        [i for i, who in enumerate(speakers) if who in _USERS]
        if any(speakers)
        else list(range(len(messages)))
    )
    if turns == 0:
        return []
    return messages[starts[-turns] :] if turns <= len(starts) else messages
