"""Which parts of a prompt the question needs: every segment gets a relevance from 0 to 1 and a category."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from ..compression.prompt_parts import Category
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, named_options
from ..messages.texts import content_text
from ..prompt.kinds import check_kinds
from ..prompt.pydantic_errors import TypedModel
from ..relevance.embedding import Embedder, EmbeddingScorer, EmbedFunction, missing_reason
from ..relevance.lexical import KeywordScorer, TfidfScorer
from ..relevance.protocol import Scorer
from ..relevance.sentences import split_sentences
from ..segment import Segment

Relevance = Annotated[float, Field(ge=0, le=1)]


class AnalyzerConfig(TypedModel):
    """Every threshold of the analyzer.

    Attributes:
        min_relevance_threshold: segments below this are candidates for removal, 0 to 1.
        protected_categories: categories that are never removed and always score 1.0.
        max_history_turns: only so many turns at the end of the history are rated.
        scoring_method: how relevance is rated.
        system_boost: added to system segments, because they set the behaviour, 0 to 1.
        max_segment_tokens: longer paragraphs are rated sentence by sentence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_relevance_threshold: Relevance = 0.3
    protected_categories: list[str] = Field(default=["query"])
    max_history_turns: NonNegativeInt = 5
    scoring_method: Literal["tfidf", "embedding", "keyword"] = "embedding"
    system_boost: Relevance = 0.2
    max_segment_tokens: PositiveInt = 120


class SegmentScore(BaseModel):
    """One piece of the prompt and how much the question needs it.

    Attributes:
        segment_id: category and number, as "document-0".
        text: the piece itself, with `token_count` tokens.
        relevance_score: 0.0 = irrelevant, 1.0 = critical.
        category: the part of the prompt that it is from.
    """

    model_config = ConfigDict(frozen=True)

    segment_id: str
    text: str
    token_count: int
    relevance_score: Relevance
    category: Category


class ContextAnalyzer:
    r"""Rates each segment of a prompt by what the question needs.

    Args:
        config: thresholds and method.
        counter: counts tokens; None takes o200k_base.
        embed: vectors for the "embedding" method; None takes the embedded default, or tf-idf where that is
            not installed.

    Attributes:
        reason: why another method than the configured one is used, None when it is not.

    Example:
        >>> analyzer = ContextAnalyzer(AnalyzerConfig(scoring_method="keyword"))
        >>> parts = {"document": "Refunds take ten days.\n\nWe love cats.", "query": "When?"}
        >>> scores = analyzer.analyze(parts, "How long do refunds take?")
        >>> [(score.segment_id, score.relevance_score) for score in scores]
        [('document-0', 0.67), ('document-1', 0.0), ('query-0', 1.0)]
        >>> [score.segment_id for score in analyzer.filter_by_relevance(scores)]
        ['document-0', 'query-0']
    """

    @named_options
    def __init__(
        self,
        config: AnalyzerConfig | None = None,
        *,
        counter: TokenCounter | None = None,
        embed: Embedder | EmbedFunction | None = None,
    ) -> None:
        self.config = config or AnalyzerConfig()
        self.counter: TokenCounter = counter or counter_for("o200k_base")
        method = self.config.scoring_method
        self.reason = missing_reason() if method == "embedding" and embed is None else None
        self._scorer: Scorer = KeywordScorer() if method == "keyword" else TfidfScorer()
        if method == "embedding" and not self.reason:
            self._scorer = EmbeddingScorer(embed)

    @named_options
    def analyze(self, prompt_parts: Mapping[str, str], query: str) -> list[SegmentScore]:
        """Returns the rated segments of a prompt, in order.

        Args:
            prompt_parts: texts by category: "system", "document", "history", "query", "example"; plurals and
                numbered keys ("documents", "document_2") are read too. A history is split at lines that open
                with a speaker, else into paragraphs or lines, each of which counts as a turn.
            query: the user's question.

        Raises:
            BudgetConfigError: a part has no category.
        """
        check_kinds({"prompt_parts": prompt_parts})
        pieces: list[tuple[str, str, Category]] = []
        for name, text in prompt_parts.items():
            category = _category(name)
            pieces += [(f"{name}-{i}", p, category) for i, p in enumerate(self._pieces(text, category))]
        tokens = self.counter.count_many([text for _, text, _ in pieces])
        scores = self._scorer.score(query, [Segment(id=name, text=text) for name, text, _ in pieces])
        return [
            SegmentScore(
                segment_id=name,
                text=text,
                token_count=count,
                relevance_score=self._relevance(score, category),
                category=category,
            )
            for (name, text, category), count, score in zip(pieces, tokens, scores, strict=True)
        ]

    def filter_by_relevance(
        self, segments: Sequence[SegmentScore], min_relevance: float | None = None
    ) -> list[SegmentScore]:
        """Returns the segments at or above the threshold, and all protected ones, in order.

        Args:
            segments: what `analyze` returned.
            min_relevance: 0 to 1; None takes the configured threshold.

        Raises:
            BudgetConfigError: a threshold outside 0 to 1.
        """
        check_kinds({"segments": segments}, "segments")
        threshold = self.config.min_relevance_threshold if min_relevance is None else min_relevance
        if not 0 <= threshold <= 1:
            msg = f"min_relevance must be a share from 0 to 1 (got {threshold!r})."
            raise BudgetConfigError(msg)
        protected = self.config.protected_categories
        return [s for s in segments if s.category in protected or s.relevance_score >= threshold]

    def estimate_token_savings(
        self, original_segments: Sequence[SegmentScore], filtered_segments: Sequence[SegmentScore]
    ) -> dict[str, Any]:
        """Returns what `filtered_segments` save against `original_segments`, in tokens and percent."""
        given = {"original_segments": original_segments, "filtered_segments": filtered_segments}
        check_kinds(given, *given)
        before = sum(segment.token_count for segment in original_segments)
        after = sum(segment.token_count for segment in filtered_segments)
        return {
            "original_tokens": before,
            "filtered_tokens": after,
            "tokens_saved": before - after,
            "savings_percent": round(100 * (before - after) / before, 2) if before else 0.0,
            "segments_removed": len(original_segments) - len(filtered_segments),
        }

    def _relevance(self, score: float, category: Category) -> float:
        if category in self.config.protected_categories:
            return 1.0
        boosted = score + (self.config.system_boost if category == "system" else 0.0)
        return round(min(max(boosted, 0.0), 1.0), 2)

    def _pieces(self, text: str, category: Category) -> list[str]:
        if category == "query":
            return [text] if text.strip() else []
        if category == "history":
            return _last_turns(text, self.config.max_history_turns)
        pieces: list[str] = []
        for paragraph in _paragraphs(text):
            short = self.counter.count(paragraph) <= self.config.max_segment_tokens
            pieces += [paragraph] if short else map(str.strip, split_sentences(paragraph))
        return pieces


_SPEAKER = re.compile(
    r"^[ \t]*(?:\[[^\]\n]{1,40}\][ \t]*)?"
    r"(?:(?P<user>user|human|customer)|system|assistant|ai|bot|tool|function|agent)[ \t]*:",
    re.IGNORECASE | re.MULTILINE,
)
_OTHER_NAMES = {"context": "document", "question": "query", "system_prompt": "system"}


def _category(name: str) -> Category:
    base = re.sub(r"[-_ ]?\d+$", "", name.lower())
    base = _OTHER_NAMES.get(base, base).removesuffix("s")
    if base not in get_args(Category):
        msg = f"prompt parts must be {', '.join(get_args(Category))} (got {name!r})."
        raise BudgetConfigError(msg)
    return cast("Category", base)


def _paragraphs(text: str, between: str = r"\n\s*\n") -> list[str]:
    return [part.strip() for part in re.split(between, text) if part.strip()]


def _last_turns(text: str, turns: int) -> list[str]:
    """Returns the messages of the last turns; where no speaker is named, each paragraph or line is a turn."""
    speakers = list(_SPEAKER.finditer(text))
    if turns == 0:
        return []
    if not speakers:
        return _paragraphs(text, r"\n\s*\n" if "\n\n" in text else "\n")[-turns:]
    bounds = [0, *[speaker.start() for speaker in speakers[1:]], len(text)]
    messages = [text[start:end].strip() for start, end in pairwise(bounds)]
    found = split_turns(["user" if speaker["user"] else "other" for speaker in speakers])
    return messages[found[-turns][0] :] if turns <= len(found) else messages


def split_turns(roles: Sequence[str]) -> list[list[int]]:
    """Returns the positions of each turn; messages before the first user message belong to none."""
    turns: list[list[int]] = []
    for i, role in enumerate(roles):
        if role == "user":
            turns.append([])
        if turns:
            turns[-1].append(i)
    return turns


def message_line(message: Mapping[str, Any]) -> str:
    """Returns a message as the optimizer shows it: `role: text`."""
    return f"{message.get('role', 'user')}: {content_text(message.get('content'))}"
