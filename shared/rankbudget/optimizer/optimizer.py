"""`TokenOptimizer`: a prompt without what its question does not need, and what that risks."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from ..compression.key_moments import find_moments
from ..compression.prompt_parts import PromptPart, parse_prompt, split_paragraphs
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import check_choice, named_options, refuse
from ..messages.texts import content_text
from ..prompt.fit_documents import fit_documents
from ..prompt.kinds import check_kinds
from ..prompt.pydantic_errors import TypedModel
from ..relevance.words import content_words
from ..segment import Segment
from .analyzer import AnalyzerConfig, ContextAnalyzer, message_line, split_turns
from .compressor import CompressorConfig, PromptCompressor
from .few_shot import FewShotSelector, example_text

QualityRisk = Literal["none", "low", "medium", "high"]
Percent = Annotated[float, Field(ge=0, le=100)]
Messages = Sequence[Mapping[str, Any]]
_PREFERENCES, _TASK_TYPES = ("low", "medium", "high"), ("general", "critical")
_DECISIVE_GAP, _DECISIVE_WORDS = 0.5, 6
"""Share, and number, of the question's words by which some documents must lead for all others to go."""
_ALIKE = 0.9
"""Share of the best rating from which a text counts as like the best, which the question may compare."""
_LASTING = {"decision", "commitment", "correction", "preference"}


class OptimizerConfig(TypedModel):
    """Every threshold of the optimizer.

    Attributes:
        counter: model, encoding or tokenizer folder that counts.
        ratio: share of the documents' tokens that is removed where none clearly answers, 0 to 1.
        long_ratio: the same of long documents, and of all with quality_preference="low".
        long_tokens: documents from so many tokens on are long.
        compress_system_prompt: whether the system prompt is shortened; its instructions stay as they are
            written.
        recent_turns: newest turns of the history that always stay.
        max_examples: most few-shot examples; None has no limit.
        max_example_tokens: most tokens of all few-shot examples; None has no limit.
        diversity_weight: how much likeness to a picked example costs, 0 to 1.
        low_risk_percent: savings from here on are a low risk, from `medium_risk_percent` on a medium one,
            above `high_risk_percent` a high one.
        max_risk: above this risk the prompt stays as it is; None only reports the risk.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counter: str = "o200k_base"
    ratio: Annotated[float, Field(ge=0, lt=1)] = 0.25
    long_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.5
    long_tokens: NonNegativeInt = 4000
    compress_system_prompt: bool = False
    recent_turns: NonNegativeInt = 1
    max_examples: NonNegativeInt | None = 3
    max_example_tokens: NonNegativeInt | None = None
    diversity_weight: Annotated[float, Field(ge=0, le=1)] = 0.2
    low_risk_percent: Percent = 15
    medium_risk_percent: Percent = 30
    high_risk_percent: Percent = 50
    max_risk: QualityRisk | None = None

    def risk(self, savings_percent: float) -> QualityRisk:
        """Returns the risk band of a saving of `savings_percent`."""
        if savings_percent > self.high_risk_percent:
            return "high"
        if savings_percent >= self.medium_risk_percent:
            return "medium"
        return "low" if savings_percent >= self.low_risk_percent else "none"


class OptimizationResult(BaseModel):
    """What went in, what came out, what was done, what it saves and what it risks.

    Attributes:
        original_prompt: what went in, with `original_tokens` tokens.
        optimized_prompt: what came out, with `optimized_tokens` tokens.
        tokens_saved: the difference; `savings_percent` is the same in percent.
        strategies_applied: in order: "skipped: ...", "deduplicate", "relevance_filter", "extractive",
            "template", "history_filter", "few_shot".
        quality_risk: by savings: under 15 % none, 15-30 % low, 30-50 % medium, above high.
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


class TokenOptimizer:
    r"""Takes out of a prompt what its question does not need.

    Where some document may answer the question, a quarter of their tokens goes, half of long ones; more,
    where some clearly answer; less, where many rate like the best; nothing, where none may answer. The
    documents that stay are shortened only with `quality_preference="low"`, the system prompt only on request,
    because that can cost an answer.

    Args:
        analyzer: rates documents and turns; None rates by the question's words, which takes milliseconds, and
            keeps turns of any age that share them.
            Give `ContextAnalyzer(AnalyzerConfig(scoring_method="embedding"))` to rate by meaning.
        compressor: shortens the system prompt (on request) and documents (with `quality_preference="low"`).
        few_shot_selector: picks examples.
        config: thresholds, risk bands and prices.

    Example:
        >>> documents = "Refunds are paid within ten days.\n\nOur office has a garden with roses."
        >>> result = TokenOptimizer().optimize(f"{documents}\n\nWithin how many days are refunds paid?")
        >>> print(result.optimized_prompt)
        Refunds are paid within ten days.
        <BLANKLINE>
        Within how many days are refunds paid?
        >>> result.quality_risk, result.strategies_applied
        ('medium', ['relevance_filter'])
    """

    @named_options
    def __init__(
        self,
        analyzer: ContextAnalyzer | None = None,
        compressor: PromptCompressor | None = None,
        few_shot_selector: FewShotSelector | None = None,
        config: OptimizerConfig | None = None,
    ) -> None:
        self.config = config or OptimizerConfig()
        self.counter: TokenCounter = counter_for(self.config.counter)
        self._own_analyzer = analyzer is not None
        by_words = AnalyzerConfig(
            scoring_method="keyword", max_segment_tokens=2000, max_history_turns=sys.maxsize
        )
        self.analyzer = analyzer or ContextAnalyzer(by_words, counter=self.counter)
        self.compressor = compressor or PromptCompressor(CompressorConfig(), counter=self.counter)
        self.few_shot_selector = few_shot_selector or FewShotSelector()

    @named_options
    def optimize(
        self,
        prompt: str,
        system_prompt: str | None = None,
        history: Messages | None = None,
        examples: Messages | None = None,
        task_type: str = "general",
        quality_preference: str = "medium",
    ) -> OptimizationResult:
        """Returns the prompt without what the question does not need.

        Args:
            prompt: documents and question; found by tags or labels, else the last paragraph is the question.
            system_prompt: stays as it is unless `compress_system_prompt` is set.
            history: messages with `role` and `content`, oldest first.
            examples: few-shot examples, mappings with an input and an output.
            task_type: "general"; the prompt of a "critical" task is not changed.
            quality_preference: "high" changes nothing, "low" also shortens the documents that stay.

        Raises:
            BudgetConfigError: an argument is of a wrong kind, or a word that is not known.
        """
        problems: list[str] = []
        check_choice("quality_preference", quality_preference, problems, _PREFERENCES)
        check_choice("task_type", task_type, problems, _TASK_TYPES)
        refuse(problems)
        check_kinds({"history": history, "examples": examples})
        parts, history, examples = parse_prompt(prompt), history or (), examples or ()
        original = _assemble(system_prompt, history, examples, parts)
        if task_type == "critical":
            return self._result(original, original, ["skipped: task_type is critical"])
        if quality_preference == "high":
            return self._result(original, original, ["skipped: quality_preference is high"])
        query = "\n".join(part.text for part in parts if part.category == "query")
        applied: list[str] = []
        documents = self._documents(parts, query, applied, low=quality_preference == "low")
        system = system_prompt
        if system and self.config.compress_system_prompt:
            shorter = self.compressor.compress_system_prompt(system)
            system = shorter.compressed_text
            applied += [shorter.strategy_used] if shorter.strategy_used != "none" else []
        optimized = _assemble(
            parts=documents,
            system=system,
            history=self._history(history, query, applied) if query.strip() else history,
            examples=self._examples(examples, query, applied),
        )
        result = self._result(original, optimized, list(dict.fromkeys(applied)))
        most, risks = self.config.max_risk, get_args(QualityRisk)
        if most is None or risks.index(result.quality_risk) <= risks.index(most):
            return result
        return self._result(
            original, original, [f"skipped: quality risk {result.quality_risk} is above {most}"]
        )

    def _relevance(self, category: str, texts: Sequence[str], query: str) -> list[float]:
        """Returns how much the question needs each text, 0 to 1."""
        if not texts or not query.strip():
            return [1.0] * len(texts)
        found = [0.0] * len(texts)
        for score in self.analyzer.analyze({f"{category}_{i}": text for i, text in enumerate(texts)}, query):
            i = int(score.segment_id.rpartition("-")[0].removeprefix(f"{category}_"))
            found[i] = max(found[i], score.relevance_score)
        return found

    def _documents(
        self, parts: Sequence[PromptPart], query: str, applied: list[str], *, low: bool
    ) -> list[PromptPart]:
        """Returns the parts without the paragraphs, or with `low` sentences, that matter least."""
        given = [
            text for part in parts if part.category == "document" for text, _ in split_paragraphs(part.text)
        ]
        # The question asked once before the documents is none of them: it says the most and answers nothing.
        asked = dict.fromkeys([text for text in given if text.strip() == query.strip()], query)
        stays = self._needed(
            [text for text in dict.fromkeys(given) if text not in asked], query, applied, low=low
        )
        stays |= asked
        if len(stays) < len(given):
            applied.insert(0, "deduplicate")
        made: list[PromptPart] = []
        for part in parts:
            if part.category != "document" or not part.text:
                made.append(part)
                continue
            # What is repeated stays where it comes first.
            kept = [(stays.pop(text, ""), gap) for text, gap in split_paragraphs(part.text)]
            text = "".join(text + gap for text, gap in kept if text).rstrip()
            if text:  # without a text, a label is removed too
                made.append(replace(part, text=text))
        return made

    def _needed(self, given: list[str], query: str, applied: list[str], *, low: bool) -> dict[str, str]:
        """Returns for each text what `fit_documents` keeps of it in the tokens aimed at, "" for nothing."""
        tokens = self.counter.count_many([f"{text}\n" for text in given])
        ratings = self._relevance("document", given, query)
        target, clearest = self._target(tokens, ratings, query, low=low)
        if target >= sum(tokens):
            return dict(zip(given, given, strict=True))
        scores = ratings if self._own_analyzer else [None] * len(given)
        segments = [
            Segment(id=str(i), text=text, score=score, pinned=i == clearest)
            for i, (text, score) in enumerate(zip(given, scores, strict=True))
        ]
        fitted = fit_documents(segments, max_tokens=target, query=query, counter=self.counter, compress=low)
        stays = dict.fromkeys(given, "") | {given[int(s.id)]: s.text for s in fitted.segments}
        if "" in stays.values():
            applied.append("relevance_filter")
        if any(short not in ("", text) for text, short in stays.items()):
            applied.append("extractive")
        return stays

    def _target(
        self, tokens: Sequence[int], ratings: Sequence[float], query: str, *, low: bool
    ) -> tuple[int, int | None]:
        """Returns how many tokens of documents stay, fewer where some clearly answer, and which one must."""
        config, total = self.config, sum(tokens)
        least, best = self.analyzer.config.min_relevance_threshold, max(ratings, default=0.0)
        if not query.strip() or best < least or not least:
            return total, None  # where none stands out, none is known to be irrelevant
        share = config.long_ratio if low or total >= config.long_tokens else config.ratio
        target = total - int(total * share)
        below, above = max(pairwise(sorted(ratings)), key=lambda pair: pair[1] - pair[0], default=(0.0, 0.0))
        gap = above - below
        if gap >= _DECISIVE_GAP or gap * len(set(content_words(query))) >= _DECISIVE_WORDS:
            clear = [n for n, rating in zip(tokens, ratings, strict=True) if rating >= above]
            if low:
                return min(target, sum(clear)), None
            clearest = max(range(len(tokens)), key=lambda i: ratings[i])
            return max(min(target, sum(clear)), tokens[clearest]), clearest
        alike = [n for n, rating in zip(tokens, ratings, strict=True) if rating >= _ALIKE * best]
        return (target if low else max(target, sum(alike))), None

    def _history(self, history: Messages, query: str, applied: list[str]) -> Messages:
        """Returns the newest and the relevant turns, and what later turns need of the others."""
        # One line each: the analyzer would split a message at lines that look like a speaker's.
        texts = [" ".join(content_text(message.get("content")).split()) for message in history]
        relevance = self._relevance("history", texts, query)
        limits = self.analyzer.config
        turns = split_turns([str(message.get("role")) for message in history])
        first = turns[0][0] if turns else len(history)
        turns = [list(range(first)), *turns] if first else turns
        kept: list[Mapping[str, Any]] = []
        for age, turn in zip(range(len(turns), 0, -1), turns, strict=True):
            messages = [history[i] for i in turn]
            relevant = any(relevance[i] >= limits.min_relevance_threshold for i in turn)
            if (
                age <= self.config.recent_turns
                or (relevant and age <= limits.max_history_turns)
                or any(m.get("role") in ("system", "tool") or m.get("tool_calls") for m in messages)
            ):
                kept.extend(messages)
            else:
                applied.append("history_filter")
                kept.extend(m for m in messages if find_moments(content_text(m.get("content"))) & _LASTING)
        return kept

    def _examples(self, examples: Messages, query: str, applied: list[str]) -> Messages:
        """Returns the best examples in the order given, because examples may build on each other."""
        config = self.config
        picked = self.few_shot_selector.select(
            query,
            examples,
            config.max_examples,
            config.diversity_weight,
            max_tokens=config.max_example_tokens,
            counter=self.counter,
        )
        if len(picked) == len(examples):
            return examples
        applied.append("few_shot")
        left = Counter(map(id, picked))  # an object may be given, and picked, more than once
        kept: list[Mapping[str, Any]] = []
        for example in examples:
            if left[id(example)]:
                left[id(example)] -= 1
                kept.append(example)
        return kept

    def _result(self, original: str, optimized: str, applied: list[str]) -> OptimizationResult:
        before = self.counter.count(original)
        after = before if optimized == original else self.counter.count(optimized)
        if after >= before:
            optimized, after = original, before
        percent = round(100 * (before - after) / before, 2) if before else 0.0
        return OptimizationResult(
            original_prompt=original,
            optimized_prompt=optimized,
            original_tokens=before,
            optimized_tokens=after,
            tokens_saved=before - after,
            savings_percent=percent,
            strategies_applied=applied,
            quality_risk=self.config.risk(percent),
        )


def _assemble(system: str | None, history: Messages, examples: Messages, parts: Sequence[PromptPart]) -> str:
    sections = [
        system or "",
        "\n".join(map(message_line, history)),
        "\n\n".join(map(example_text, examples)),
        "".join(part.render() for part in parts),
    ]
    return "\n\n".join(section for section in sections if section)
