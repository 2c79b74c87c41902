"""`TokenOptimizer`: a whole prompt in, the same prompt without what the question does not need out, and how risky that was.

Seven steps: parse, analyze, remove, compress, select examples, put together, calculate. It removes a document only when another one clearly
answers to the question; where nothing does, everything stays, because then nothing is known to be irrelevant. A document that goes on about
what the relevant one before it says, or opens with a name that a relevant one gives, stays with it. Old turns are
always compressed; the documents that stay only with `quality_preference="low"`, the system prompt only on request: it can cost an answer.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..messages.codec import content_text
from .compressor import CompressorConfig, PromptCompressor
from ..compression.earlier import said_earlier
from ..compression.prompt_parts import PromptPart, parse_prompt, split_paragraphs
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError
from .few_shot import FewShotSelector, example_text
from .analyzer import AnalyzerConfig, ContextAnalyzer
from ..relevance.passages import needed_passages
from ..relevance.words import content_words, raw_words

__all__ = ["OptimizationResult", "OptimizerConfig", "QualityRisk", "TokenOptimizer"]

QualityRisk = Literal["none", "low", "medium", "high"]
_RISKS: tuple[QualityRisk, ...] = ("none", "low", "medium", "high")
_PREFERENCES = ("low", "medium", "high")
_MANY = 100_000
"""More than any part has paragraphs: part and paragraph make one number."""


class OptimizerConfig(BaseModel):
    """Every threshold of the optimizer.

    Example:
        >>> config = OptimizerConfig()
        >>> [config.risk(percent) for percent in (14.9, 15, 30, 50, 50.1)]
        ['none', 'low', 'medium', 'medium', 'high']
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counter: str = Field(default="o200k_base", description="Model, encoding or tokenizer folder that counts.")
    decisive_relevance: float = Field(
        default=0.65, ge=0, le=1, description="Documents are removed only when one is at least this relevant,"
    )
    decisive_words: int = Field(
        default=6,
        ge=1,
        description="or when the relevant ones are set apart by so many of the question's words.",
    )
    short_question_words: int = Field(
        default=4,
        ge=0,
        description="Up to so many words in the question, one of them in a document is enough to keep it.",
    )
    continued_share: float = Field(
        default=0.15,
        ge=0,
        le=1,
        description="A document that shares this much of its words with the relevant one right before it continues that one and stays.",
    )
    low_quality_ratio: float = Field(
        default=0.4,
        ge=0,
        lt=1,
        description="Share of the kept documents that goes with quality_preference='low'.",
    )
    compress_system_prompt: bool = Field(
        default=False, description="Shorten the system prompt; instructions stay as they are written."
    )
    recent_turns: int = Field(default=1, ge=0, description="Newest turns of the history that always stay.")
    earlier_tokens: int = Field(
        default=30,
        ge=0,
        description="Most tokens a turn left out of the history keeps as '[Earlier: ...]'; 0 = nothing.",
    )
    max_examples: int | None = Field(default=3, ge=0, description="Most few-shot examples.")
    max_example_tokens: int | None = Field(
        default=None, ge=0, description="Most tokens of all few-shot examples."
    )
    diversity_weight: float = Field(
        default=0.2, ge=0, le=1, description="How much likeness to a picked example costs."
    )
    skip_task_types: tuple[str, ...] = Field(
        default=("critical",), description="Task types that are never touched."
    )
    skip_quality_preferences: tuple[str, ...] = Field(
        default=("high",), description="Quality preferences that are never touched."
    )
    low_risk_percent: float = Field(
        default=15, ge=0, le=100, description="Savings from here on are a low risk."
    )
    medium_risk_percent: float = Field(
        default=30, ge=0, le=100, description="Savings from here on are a medium risk."
    )
    high_risk_percent: float = Field(default=50, ge=0, le=100, description="Savings above are a high risk.")
    max_risk: QualityRisk | None = Field(
        default=None, description="Above this risk the prompt stays as it is; None reports risk, no more."
    )
    model: str = Field(default="gpt-4o", description="Row of the price table.")
    prices: dict[str, float] = Field(
        default={"gpt-4o": 2.5, "gpt-4o-mini": 0.15, "gpt-4.1": 2.0, "gpt-4.1-mini": 0.4},
        description="US dollars for a million input tokens, by model; list prices, put in what you pay.",
    )

    def risk(self, savings_percent: float) -> QualityRisk:
        """Returns the risk band of a saving."""
        if savings_percent > self.high_risk_percent:
            return "high"
        if savings_percent >= self.medium_risk_percent:
            return "medium"
        return "low" if savings_percent >= self.low_risk_percent else "none"


class OptimizationResult(BaseModel):
    """What went in, what came out, what was done, what it saves and what it risks.

    Attributes:
        strategies_applied: in order: "skipped: ...", "deduplicate", "relevance_filter", "extractive", "template", "history_filter", "few_shot".
        quality_risk: by savings: under 15 % none, 15-30 % low, 30-50 % medium, above high.
        cost_saved: US dollars a call, by the configured price table; None where it has no price for the model.
    """

    model_config = ConfigDict(frozen=True)

    original_prompt: str
    optimized_prompt: str
    original_tokens: int
    optimized_tokens: int
    tokens_saved: int
    savings_percent: float
    strategies_applied: list[str]
    quality_risk: QualityRisk
    cost_before: float | None = None
    cost_after: float | None = None
    cost_saved: float | None = None


@dataclass(slots=True)
class _Prompt:
    """The parsed prompt and what became of each part; `text` maps a part's key to its new text."""

    system: str | None
    history: list[Mapping[str, Any]]
    examples: list[Mapping[str, Any]]
    parts: list[PromptPart]
    query: str
    low_quality: bool
    relevance: dict[str, float] = field(default_factory=dict)
    applied: list[str] = field(default_factory=list)

    def note(self, strategy: str) -> None:
        if strategy not in self.applied:
            self.applied.append(strategy)


class TokenOptimizer:
    r"""Takes out of a prompt what its question does not need.

    Args:
        analyzer: rates documents and turns; None rates by the question's words, which takes milliseconds. Give
            `ContextAnalyzer(AnalyzerConfig(scoring_method="embedding"))` to rate by meaning.
        compressor: shortens the system prompt (on request) and documents (with `quality_preference="low"`).
        few_shot_selector: picks examples.
        config: thresholds, risk bands and prices.

    Example:
        >>> documents = "Refunds are paid within ten days of the return.\n\nOur office has a garden with roses and an old oak tree."
        >>> result = TokenOptimizer().optimize(f"{documents}\n\nWithin how many days are refunds paid?")
        >>> print(result.optimized_prompt)
        Refunds are paid within ten days of the return.
        <BLANKLINE>
        Within how many days are refunds paid?
        >>> result.quality_risk, result.strategies_applied
        ('medium', ['relevance_filter'])
    """

    def __init__(
        self,
        analyzer: ContextAnalyzer | None = None,
        compressor: PromptCompressor | None = None,
        few_shot_selector: FewShotSelector | None = None,
        config: OptimizerConfig | None = None,
    ) -> None:
        self.config = config or OptimizerConfig()
        self.counter: TokenCounter = counter_for(self.config.counter)
        self.analyzer = analyzer or ContextAnalyzer(
            AnalyzerConfig(scoring_method="keyword", max_segment_tokens=2000, max_history_turns=5),
            counter=self.counter,
        )
        self.compressor = compressor or PromptCompressor(CompressorConfig(), counter=self.counter)
        self.few_shot_selector = few_shot_selector or FewShotSelector()

    def optimize(
        self,
        prompt: str,
        system_prompt: str | None = None,
        history: Sequence[Mapping[str, Any]] | None = None,
        examples: Sequence[Mapping[str, Any]] | None = None,
        task_type: str = "general",
        quality_preference: str = "medium",
    ) -> OptimizationResult:
        """Returns the prompt without what the question does not need.

        Args:
            prompt: documents and question; found by tags or labels, else the last paragraph is the question.
            system_prompt: stays as it is unless `compress_system_prompt` is set.
            history: messages with `role` and `content`, oldest first.
            examples: few-shot examples, mappings with an input and an output.
            task_type: "critical" is not touched.
            quality_preference: "high" is not touched, "low" also shortens the documents that stay.

        Raises:
            BudgetConfigError: an unknown quality preference.
        """
        if quality_preference not in _PREFERENCES:
            raise BudgetConfigError.of(
                [f"quality_preference is {quality_preference!r}, allowed: {', '.join(_PREFERENCES)}"]
            )
        parsed = self._parse(
            prompt, system_prompt, history, examples, low_quality=quality_preference == "low"
        )
        original = _assemble(parsed)
        for seen, skipped, name in (
            (task_type, self.config.skip_task_types, "task_type"),
            (quality_preference, self.config.skip_quality_preferences, "quality_preference"),
        ):
            if seen in skipped:
                return self._result(original, original, [f"skipped: {name} is {seen}"])
        self._analyze(parsed)
        self._documents(parsed)
        self._system(parsed)
        self._history(parsed)
        self._examples(parsed)
        result = self._result(original, _assemble(parsed), parsed.applied)
        if self.config.max_risk is not None and _RISKS.index(result.quality_risk) > _RISKS.index(
            self.config.max_risk
        ):
            return self._result(
                original,
                original,
                [f"skipped: quality risk {result.quality_risk} is above {self.config.max_risk}"],
            )
        return result

    def _parse(
        self,
        prompt: str,
        system: str | None,
        history: Sequence[Mapping[str, Any]] | None,
        examples: Sequence[Mapping[str, Any]] | None,
        *,
        low_quality: bool,
    ) -> _Prompt:
        parts = parse_prompt(prompt)
        query = "\n".join(part.text for part in parts if part.category == "query")
        return _Prompt(system, list(history or ()), list(examples or ()), parts, query, low_quality)

    def _analyze(self, parsed: _Prompt) -> None:
        texts: dict[str, str] = {}
        for p, part in enumerate(parsed.parts):
            if part.category == "document":
                texts.update(
                    {
                        f"document_{p * _MANY + i}": text
                        for i, (text, _) in enumerate(split_paragraphs(part.text))
                    }
                )
        for i, message in enumerate(parsed.history):
            for j, (text, _) in enumerate(split_paragraphs(content_text(message.get("content")))):
                # On one line: which turns count is decided here, and the lines of one message are no turns.
                texts[f"history_{i * _MANY + j}"] = " ".join(text.split())
        if not texts or not parsed.query.strip():
            return
        for score in self.analyzer.analyze(texts, parsed.query):
            key = score.segment_id.rpartition("-")[0]
            if score.category == "history":
                key = f"message_{int(key.removeprefix('history_')) // _MANY}"
            parsed.relevance[key] = max(parsed.relevance.get(key, 0.0), score.relevance_score)

    @property
    def _threshold(self) -> float:
        return self.analyzer.config.min_relevance_threshold

    def _document_threshold(self, parsed: _Prompt) -> float:
        """Returns the relevance below which documents go; 0 where no document stands out, because then none is known to be irrelevant."""
        rated = sorted(score for key, score in parsed.relevance.items() if key.startswith("document_"))
        if not rated or rated[-1] < self._threshold:
            return 0.0
        words = len(set(content_words(parsed.query)))
        if rated[-1] >= self.config.decisive_relevance:
            return (
                min(self._threshold, 1 / max(words, 1))
                if words <= self.config.short_question_words
                else self._threshold
            )
        # No document holds most of a long question's words; a wide gap between the scores tells as much.
        low, high = max(itertools.pairwise(rated), key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))
        decisive = (high - low) * words >= self.config.decisive_words
        return min(self._threshold, high) if decisive else 0.0

    def _documents(self, parsed: _Prompt) -> None:
        threshold = self._document_threshold(parsed)
        seen: set[tuple[str, ...]] = set()
        for p, part in enumerate(parsed.parts):
            if part.category != "document":
                continue
            kept: list[tuple[str, str]] = []
            paragraphs = split_paragraphs(part.text)
            words = [tuple(raw_words(text)) for text, _ in paragraphs]
            ratings = [parsed.relevance.get(f"document_{p * _MANY + i}", 1.0) for i in range(len(paragraphs))]
            needed = needed_passages(
                words, ratings, threshold=threshold, continued_share=self.config.continued_share
            )
            for i, paragraph in enumerate(paragraphs):
                if words[i] and words[i] in seen:
                    parsed.note("deduplicate")
                elif needed[i]:
                    kept.append(paragraph)
                else:
                    parsed.note("relevance_filter")
                seen.add(words[i])
            text = (
                "".join(f"{text}{gap}" for text, gap in kept).rstrip()
                if len(kept) < len(paragraphs)
                else part.text
            )
            if parsed.low_quality and text:
                target = self.counter.count(text)
                target -= int(target * self.config.low_quality_ratio)
                result = self.compressor.compress(
                    text, max(target, self.compressor.config.min_tokens), query=parsed.query
                )
                text = result.compressed_text
                if result.strategy_used != "none":
                    parsed.note(result.strategy_used)
            # A part without its label says the same; an empty label says nothing.
            parsed.parts[p] = (
                PromptPart("document", part.before, text, part.after)
                if text or not part.text
                else PromptPart("document", "", "", "")
            )

    def _system(self, parsed: _Prompt) -> None:
        if not (self.config.compress_system_prompt and parsed.system):
            return
        result = self.compressor.compress_system_prompt(parsed.system)
        if result.compressed_tokens < result.original_tokens:
            parsed.system = result.compressed_text
            parsed.note(result.strategy_used)

    def _history(self, parsed: _Prompt) -> None:
        turns = _turns(parsed.history)
        first_recent = len(turns) - self.config.recent_turns
        first_looked_at = len(turns) - self.analyzer.config.max_history_turns
        kept: list[Mapping[str, Any]] = []
        for number, positions in enumerate(turns):
            ratings = [parsed.relevance.get(f"message_{i}", 0.0) for i in positions]
            relevance = max(ratings, default=0.0)
            messages = [parsed.history[i] for i in positions]
            whole = any(
                message.get("role") == "system" or message.get("tool_calls") or message.get("role") == "tool"
                for message in messages
            )
            if (
                number >= first_recent
                or whole
                or (number >= first_looked_at and relevance >= self._threshold)
                or not parsed.query.strip()
            ):
                kept.extend(messages)
                continue
            parsed.note("history_filter")
            needed = [rating >= self._threshold for rating in ratings]
            kept.extend(said_earlier(messages, self.config.earlier_tokens, self.counter, needed=needed))
        if "history_filter" in parsed.applied:
            parsed.history = kept

    def _examples(self, parsed: _Prompt) -> None:
        if not parsed.examples:
            return
        picked = self.few_shot_selector.select(
            parsed.query,
            parsed.examples,
            self.config.max_examples,
            self.config.diversity_weight,
            max_tokens=self.config.max_example_tokens,
            counter=self.counter,
        )
        if len(picked) < len(parsed.examples):
            # The order given is kept: examples may build on each other. An object given more than once stays as often as it was picked.
            left = [id(example) for example in picked]
            kept: list[Mapping[str, Any]] = []
            for example in parsed.examples:
                if id(example) in left:
                    left.remove(id(example))
                    kept.append(example)
            parsed.examples = kept
            parsed.note("few_shot")

    def _result(self, original: str, optimized: str, applied: Sequence[str]) -> OptimizationResult:
        before = self.counter.count(original)
        after = before if optimized == original else self.counter.count(optimized)
        if after >= before:
            optimized, after = original, before
        percent = round(100 * (before - after) / before, 2) if before else 0.0
        price = self.config.prices.get(self.config.model)
        cost = [
            None if price is None else tokens * price / 1_000_000
            for tokens in (before, after, before - after)
        ]
        return OptimizationResult(
            original_prompt=original,
            optimized_prompt=optimized,
            original_tokens=before,
            optimized_tokens=after,
            tokens_saved=before - after,
            savings_percent=percent,
            strategies_applied=list(applied),
            quality_risk=self.config.risk(percent),
            cost_before=cost[0],
            cost_after=cost[1],
            cost_saved=cost[2],
        )


def _turns(history: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    turns: list[list[int]] = []
    for i, message in enumerate(history):
        if not turns or message.get("role") == "user":
            turns.append([])
        turns[-1].append(i)
    return turns


def _assemble(parsed: _Prompt) -> str:
    sections = [
        parsed.system or "",
        "\n".join(
            f"{message.get('role', 'user')}: {content_text(message.get('content'))}"
            for message in parsed.history
        ),
        "\n\n".join(map(example_text, parsed.examples)),
        "".join(part.render() for part in parsed.parts),
    ]
    return "\n\n".join(section for section in sections if section)
