"""`PromptCompressor`: one text in, a shorter one out, at most as many tokens as asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat

from .._drivers import Steps, awaiting, blocking, drive
from ..compression.abstractive import Summarizer, summarize_steps
from ..compression.extractive import extract, extractive_summary
from ..compression.template import compress_template, is_instruction
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import SummaryError, check_choice, check_count, named_options, refuse
from ..fitting.one_text import answering
from ..prompt.kinds import check_kinds
from ..prompt.pydantic_errors import TypedModel
from ..relevance.protocol import Scorer
from .analyzer import message_line, split_turns

if TYPE_CHECKING:
    from ..compression.token_classifier import TokenClassifier

CompressionStrategy = Literal["extractive", "abstractive", "template", "token_classifier"]
Share = Annotated[float, Field(ge=0, lt=1)]


class CompressionResult(BaseModel):
    """What went in and what came out.

    Attributes:
        original_text: what went in, with `original_tokens` tokens.
        compressed_text: what is left, with `compressed_tokens`; the original when it was short enough.
        compression_ratio: share of the tokens that was removed, 0 = nothing, 0.6 = 60 %.
        strategy_used: what was done: "none" for an untouched text, "extractive" for a summary without a
            model, "template+extractive" when one strategy was not enough.
    """

    model_config = ConfigDict(frozen=True)

    original_text: str
    compressed_text: str
    original_tokens: int
    compressed_tokens: int
    compression_ratio: float
    strategy_used: str


class CompressorConfig(TypedModel):
    """Settings of a `PromptCompressor`; ratios are shares of the tokens to remove, 0 up to 1.

    Attributes:
        counter: model, encoding or tokenizer folder that counts.
        min_tokens: texts of at most this many tokens come back untouched when no target is given.
        extractive_ratio: what extractive compression, and that of older turns, removes without a target.
        abstractive_ratio: what a summary removes without a target.
        token_classifier_ratio: what the token classifier removes without a target.
        summarizer_timeout: seconds that one summarizer call may take; None has no timeout.
        classifier_path: folder with the weights of the token_classifier strategy.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    counter: str = "o200k_base"
    min_tokens: NonNegativeInt = 40
    extractive_ratio: Share = 0.6
    abstractive_ratio: Share = 0.75
    token_classifier_ratio: Share = 0.5
    summarizer_timeout: PositiveFloat | None = None
    classifier_path: str | None = None


class PromptCompressor:
    """Makes prompt parts shorter without splitting code, JSON, tables, URLs, numbers or quoted names.

    Args:
        config: settings; None takes the defaults.
        counter: counts; None takes `config.counter`. Anything `counter_for` takes.
        summarizer: `(text, max_tokens) -> str`, blocking or async, for the abstractive strategy; None picks
            sentences.
        scorer: rates sentences against a query; None compares words.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> compressor = PromptCompressor(counter=WordCounter())
        >>> text = "Cats sleep all day long. The invoice of Ada is due on Friday."
        >>> result = compressor.compress(text, target_token_count=8)
        >>> result.compressed_text, result.compressed_tokens, result.strategy_used
        ('The invoice of Ada is due on Friday.', 8, 'extractive')
    """

    @named_options
    def __init__(
        self,
        config: CompressorConfig | None = None,
        *,
        counter: Any = None,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        self.config = config or CompressorConfig()
        self.counter: TokenCounter = counter_for(self.config.counter if counter is None else counter)
        self.summarizer = summarizer
        self.scorer = scorer

    @blocking
    def compress(
        self,
        text: str,
        target_token_count: int | None = None,
        strategy: CompressionStrategy = "extractive",
        *,
        query: str = "",
    ) -> Steps[CompressionResult]:
        """Returns `text` in at most `target_token_count` tokens, untouched when it is short enough already.

        Args:
            text: what to shorten.
            target_token_count: the bound; None takes the strategy's ratio (template: as short as it gets).
            strategy: how.
            query: what the kept sentences should answer (extractive).

        Raises:
            BudgetConfigError: an unknown strategy, a negative target, or no classifier path.
        """
        problems: list[str] = []
        if target_token_count is not None:
            check_count("target_token_count", target_token_count, problems)
        check_choice("strategy", strategy, problems, get_args(CompressionStrategy))
        if strategy == "token_classifier" and not self.config.classifier_path:
            problems.append("CompressorConfig(classifier_path=...) must be a folder of weights (got None)")
        refuse(problems)
        target, tokens = target_token_count, self.counter.count(text)
        if tokens <= (self.config.min_tokens if target is None else target) or not text.strip():
            return self._result(text, text, "none")
        limit = target
        if limit is None:
            limit = tokens - int(tokens * getattr(self.config, f"{strategy}_ratio", 0.0))
        used: str = strategy
        if strategy == "template":
            shorter, used = self._template(text, limit)
        elif strategy == "abstractive":
            shorter, used = yield from self._summary(text, limit)
        elif strategy == "token_classifier":
            shorter = self._classifier.compress(text, limit, self.counter)
        elif query.strip():
            shorter = answering(text, query, limit, self.counter, scorer=self.scorer)
        else:
            shorter = extract(text, limit, self.counter)
        return self._result(text, shorter, "none" if shorter == text else used)

    acompress = awaiting(compress)

    def compress_system_prompt(self, system_prompt: str) -> CompressionResult:
        """Returns `system_prompt` without repeats and filler, every instruction as it is written."""
        return self.compress(system_prompt, strategy="template")

    def compress_document(self, document: str, query: str) -> CompressionResult:
        """Returns the sentences of `document` that bear on `query`."""
        return self.compress(document, strategy="extractive", query=query)

    def compress_history(self, history: Sequence[Mapping[str, Any]], max_turns: int = 5) -> CompressionResult:
        """Returns a conversation as text: the last `max_turns` turns whole, a summary of what came before.

        Args:
            history: messages with `role` and `content`, oldest first.
            max_turns: turns that stay as they are: a user message and everything up to the next one.

        Raises:
            BudgetConfigError: a negative `max_turns`.
        """
        check_kinds({"history": history}, "history")
        problems: list[str] = []
        check_count("max_turns", max_turns, problems)
        refuse(problems)
        lines = list(map(message_line, history))
        turns = split_turns([str(message.get("role")) for message in history])
        cut = turns[-max_turns][0] if 0 < max_turns <= len(turns) else 0 if max_turns else len(lines)
        text, older = "\n".join(lines), "\n".join(lines[:cut])
        tokens = self.counter.count(older)
        if not older or tokens <= self.config.min_tokens:
            return self._result(text, text, "none")
        target = max(tokens - int(tokens * self.config.extractive_ratio), 1)
        summary, used = drive(self._summary(older, target))
        return self._result(text, "\n".join([f"[Earlier: {summary}]", *lines[cut:]]), used)

    def _template(self, text: str, limit: int) -> tuple[str, str]:
        shorter = min(compress_template(text), text, key=self.counter.count)
        if self.counter.count(shorter) <= limit:
            return shorter, "template"
        return extract(shorter, limit, self.counter, first=is_instruction), "template+extractive"

    def _summary(self, text: str, limit: int) -> Steps[tuple[str, str]]:
        """Returns a summary and the strategy used: the bound holds even when a summarizer fails."""
        if self.summarizer is not None and limit > 0:
            with suppress(SummaryError):
                summary = yield from summarize_steps(
                    [text],
                    max_tokens=limit,
                    counter=self.counter,
                    summarizer=self.summarizer,
                    timeout=self.config.summarizer_timeout,
                )
                return summary, "abstractive"
        return extractive_summary(text, limit, self.counter), "extractive"

    @cached_property
    def _classifier(self) -> TokenClassifier:
        from ..compression.token_classifier import TokenClassifier

        return TokenClassifier(self.config.classifier_path or "")

    def _result(self, original: str, compressed: str, strategy: str) -> CompressionResult:
        before = self.counter.count(original)
        after = before if compressed == original else self.counter.count(compressed)
        return CompressionResult(
            original_text=original,
            compressed_text=compressed,
            original_tokens=before,
            compressed_tokens=after,
            compression_ratio=1 - after / before if before else 0.0,
            strategy_used=strategy,
        )
