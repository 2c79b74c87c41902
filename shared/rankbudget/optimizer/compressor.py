"""`PromptCompressor`: one text in, a shorter one out, at most as many tokens as asked for.

Four ways to shorten: extractive (fewer sentences), template (the same instructions in fewer words), abstractive (new words by a model)
and token_classifier (fewer words by a small model).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..messages.codec import content_text
from ..counting import counter_for
from .._drivers import Steps, adrive, drive
from ..errors import BudgetConfigError, SummaryError
from ..compression.abstractive import summarize_steps
from ..compression.extractive import ExtractOptions, extract
from ..compression.structured import compress_structured
from ..compression.summary import extractive_summary
from ..compression.template import compress_template, is_instruction
from ..compression.units import split_units

if TYPE_CHECKING:
    from ..counting.protocol import TokenCounter
    from ..relevance.protocol import Scorer
    from ..compression.token_classifier import TokenClassifier

__all__ = ["CompressionResult", "CompressionStrategy", "CompressorConfig", "PromptCompressor"]

CompressionStrategy = Literal["extractive", "abstractive", "template", "token_classifier"]


class CompressionResult(BaseModel):
    """What went in and what came out.

    Attributes:
        original_text: what was given.
        compressed_text: what is left; the original when it was short enough.
        original_tokens: tokens of `original_text`.
        compressed_tokens: tokens of `compressed_text`.
        compression_ratio: share of the tokens that went away, 0 = nothing, 0.6 = 60 %.
        strategy_used: the strategy, "none" when the text came back untouched, "template+extractive" when one was not enough.
    """

    model_config = ConfigDict(frozen=True)

    original_text: str
    compressed_text: str
    original_tokens: int
    compressed_tokens: int
    compression_ratio: float
    strategy_used: str


class CompressorConfig(BaseModel):
    """Settings of a `PromptCompressor`.

    Example:
        >>> CompressorConfig(extractive_ratio=0.5).target("extractive", 200)
        100
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    counter: str = Field("o200k_base", description="model, encoding or tokenizer folder that counts")
    min_tokens: int = Field(
        40, ge=0, description="texts of at most this many tokens come back untouched when no target is given"
    )
    extractive_ratio: float = Field(
        0.6, ge=0, lt=1, description="share of the tokens extractive compression takes away without a target"
    )
    abstractive_ratio: float = Field(
        0.75, ge=0, lt=1, description="share of the tokens a summary takes away without a target"
    )
    token_classifier_ratio: float = Field(
        0.5, ge=0, lt=1, description="share of the tokens the token classifier takes away without a target"
    )
    history_ratio: float = Field(
        0.6, ge=0, lt=1, description="share of the tokens of older turns `compress_history` takes away"
    )
    paragraph_weight: float = Field(
        0.6, ge=0, description="share of its paragraph's relevance a sentence gets"
    )
    neighbour_weight: float = Field(
        0.0, ge=0, description="share of the relevance of neighbouring sentences a sentence gets"
    )
    salience_weight: float = Field(
        0.5, ge=0, description="weight of decisions, names and numbers where there is no query"
    )
    lead_weight: float = Field(
        0.3, ge=0, description="weight of a paragraph's first sentence where there is no query"
    )
    block_weight: float = Field(
        0.5, ge=0, description="weight of code, JSON and tables where there is no query"
    )
    drop_repeats: bool = Field(True, description="a sentence in the same words as a kept one goes first")
    abbreviate_names: bool = Field(
        True, description="template: names of three words or more, said three times, become abbreviations"
    )
    summarizer_window: int | None = Field(
        None, gt=0, description="most tokens one summarizer call may hold, input and answer"
    )
    summarizer_timeout: float | None = Field(None, gt=0, description="seconds one summarizer call may take")
    classifier_path: str | None = Field(
        None, description="folder with token-classification weights for the strategy token_classifier"
    )
    classifier_keep_label: int = Field(
        -1, description='number of the label that means "keep"; -1 is the last'
    )

    def target(self, strategy: CompressionStrategy, tokens: int) -> int:
        """Returns the tokens a text of `tokens` is compressed to when no target is given."""
        shares = {
            "extractive": self.extractive_ratio,
            "abstractive": self.abstractive_ratio,
            "token_classifier": self.token_classifier_ratio,
        }
        return tokens - int(tokens * shares.get(strategy, 0.0))

    def options(self) -> ExtractOptions:
        """Returns the weights of the extractive strategy."""
        return ExtractOptions(
            paragraph_weight=self.paragraph_weight,
            neighbour_weight=self.neighbour_weight,
            salience_weight=self.salience_weight,
            lead_weight=self.lead_weight,
            block_weight=self.block_weight,
            drop_repeats=self.drop_repeats,
        )


class PromptCompressor:
    """Makes prompt parts shorter without tearing code, JSON, tables, URLs, numbers, negations or quoted names.

    Args:
        config: settings; None takes the defaults.
        counter: counts; None takes `config.counter`. Anything `counter_for` takes.
        summarizer: `(text, max_tokens) -> str`, blocking or async, for the abstractive strategy; None picks sentences without a model.
        scorer: rates sentences against a query; None compares words.

    Example:
        >>> from rankbudget.testing.fakes import WordCounter
        >>> compressor = PromptCompressor(counter=WordCounter())
        >>> result = compressor.compress("Cats sleep all day long. The invoice of Ada is due on Friday.", target_token_count=8)
        >>> result.compressed_text, result.compressed_tokens, result.strategy_used
        ('The invoice of Ada is due on Friday.', 8, 'extractive')
    """

    def __init__(
        self,
        config: CompressorConfig | None = None,
        *,
        counter: Any = None,
        summarizer: Any = None,
        scorer: Scorer | None = None,
    ) -> None:
        self.config = config or CompressorConfig()
        self.counter: TokenCounter = counter_for(self.config.counter if counter is None else counter)
        self.summarizer = summarizer
        self.scorer = scorer
        self._classifier: TokenClassifier | None = None

    def compress(
        self,
        text: str,
        target_token_count: int | None = None,
        strategy: CompressionStrategy = "extractive",
        *,
        query: str = "",
    ) -> CompressionResult:
        """Returns `text` in at most `target_token_count` tokens, untouched when it is short enough already.

        Args:
            text: what to shorten.
            target_token_count: the bound; None takes the strategy's own ratio (template: as short as it gets without losing anything).
            strategy: how.
            query: what the kept sentences should answer (extractive).

        Raises:
            BudgetConfigError: an unknown strategy, a negative target, or no classifier path.
        """
        return drive(self._compress(text, target_token_count, strategy, query))

    async def acompress(
        self,
        text: str,
        target_token_count: int | None = None,
        strategy: CompressionStrategy = "extractive",
        *,
        query: str = "",
    ) -> CompressionResult:
        """Returns what `compress` returns, without blocking the event loop while a summarizer writes."""
        return await adrive(self._compress(text, target_token_count, strategy, query))

    def compress_system_prompt(self, system_prompt: str) -> CompressionResult:
        """Returns a system prompt without repeats and filler, every instruction as it is written."""
        return self.compress(system_prompt, strategy="template")

    def compress_document(self, document: str, query: str) -> CompressionResult:
        """Returns the sentences of a document that bear on `query`."""
        return self.compress(document, strategy="extractive", query=query)

    def compress_history(self, history: Sequence[Mapping[str, Any]], max_turns: int = 5) -> CompressionResult:
        """Returns a conversation as text: the last `max_turns` turns whole, what was said before in fewer words.

        A turn is a user message and everything up to the next one. Older turns are summarized by the summarizer, or, without one, by
        the sentences that hold decisions, commitments, preferences, names and numbers.

        Args:
            history: messages with `role` and `content`, oldest first.
            max_turns: turns that stay as they are.
        """
        if max_turns < 0:
            raise BudgetConfigError.of([f"max_turns is {max_turns}, allowed: 0 or more"])
        lines = [_line(message) for message in history]
        starts = [i for i, message in enumerate(history) if message.get("role") == "user"]
        cut = (starts[-max_turns] if max_turns <= len(starts) else 0) if max_turns else len(lines)
        text = "\n".join(lines)
        older = "\n".join(lines[:cut])
        tokens = self.counter.count(older)
        if not older or tokens <= self.config.min_tokens:
            return self._result(text, text, "none")
        target = max(tokens - int(tokens * self.config.history_ratio), 1)
        summary, used = drive(self._summary(older, target))
        return self._result(text, "\n".join([f"[Earlier: {summary}]", *lines[cut:]]), used)

    def _compress(
        self, text: str, target: int | None, strategy: CompressionStrategy, query: str
    ) -> Steps[CompressionResult]:
        self._check(target, strategy)
        tokens = self.counter.count(text)
        if tokens <= (self.config.min_tokens if target is None else target) or not text.strip():
            return self._result(text, text, "none", tokens=tokens)
        limit = self.config.target(strategy, tokens) if target is None else target
        if strategy == "template":
            shorter, used = self._template(text, target)
        elif strategy == "abstractive":
            shorter, used = yield from self._summary(text, limit)
        elif strategy == "token_classifier":
            shorter, used = self._words(text, limit), "token_classifier"
        else:
            shorter, used = self._sentences(text, limit, query), "extractive"
        if shorter == text:
            used = "none"
        return self._result(text, shorter, used, tokens=tokens)

    def _check(self, target: int | None, strategy: str) -> None:
        problems = []
        if target is not None and target < 0:
            problems.append(f"target_token_count is {target}, allowed: 0 or more")
        if strategy not in {"extractive", "abstractive", "template", "token_classifier"}:
            problems.append(
                f"strategy is {strategy!r}, allowed: extractive, abstractive, template, token_classifier"
            )
        if strategy == "token_classifier" and not self.config.classifier_path:
            problems.append(
                "strategy token_classifier has no weights; set CompressorConfig(classifier_path=...) to their folder"
            )
        if problems:
            raise BudgetConfigError.of(problems)

    def _sentences(self, text: str, limit: int, query: str) -> str:
        if (
            text.lstrip()[:1] in {"{", "["}
            and len(split_units(text)) == 1
            and split_units(text)[0].kind == "json"
        ):
            return compress_structured(text, limit, self.counter)
        return extract(
            text, limit, self.counter, query=query, scorer=self.scorer, options=self.config.options()
        )

    def _template(self, text: str, target: int | None) -> tuple[str, str]:
        shorter = compress_template(text, abbreviate_names=self.config.abbreviate_names)
        tokens = self.counter.count(shorter)
        if tokens >= self.counter.count(text):
            shorter = text
        if target is None or tokens <= target:
            return shorter, "template"
        # The bound was asked for, so statements go before any instruction does.
        return _instructions_first(
            shorter, target, self.counter, self.config.options()
        ), "template+extractive"

    def _summary(self, text: str, limit: int) -> Steps[tuple[str, str]]:
        if limit <= 0:
            return "", "abstractive"
        try:
            summary = yield from summarize_steps(
                [text],
                max_tokens=limit,
                counter=self.counter,
                summarizer=self.summarizer,
                input_window=self.config.summarizer_window,
                timeout=self.config.summarizer_timeout,
            )
        except SummaryError:
            # A summarizer that fails must not cost the bound: the text's own sentences stand in, and the result says so.
            return extractive_summary(text, limit, self.counter), "extractive"
        return summary, "abstractive"

    def _words(self, text: str, limit: int) -> str:
        if self._classifier is None:
            from ..compression.token_classifier import TokenClassifier

            self._classifier = TokenClassifier(
                self.config.classifier_path or "", keep_label=self.config.classifier_keep_label
            )
        return self._classifier.compress(text, limit, self.counter)

    def _result(
        self, original: str, compressed: str, strategy: str, *, tokens: int | None = None
    ) -> CompressionResult:
        before = self.counter.count(original) if tokens is None else tokens
        after = before if compressed == original else self.counter.count(compressed)
        return CompressionResult(
            original_text=original,
            compressed_text=compressed,
            original_tokens=before,
            compressed_tokens=after,
            compression_ratio=1 - after / before if before else 0.0,
            strategy_used=strategy,
        )


def _line(message: Mapping[str, Any]) -> str:
    return f"{message.get('role', 'user')}: {content_text(message.get('content'))}"


def _instructions_first(text: str, limit: int, counter: TokenCounter, options: ExtractOptions) -> str:
    """Returns the text within `limit`: all instructions if they fit, statements by salience in what room is left."""
    units = split_units(text)
    orders = [unit.kind != "sentence" or is_instruction(unit.text) for unit in units]
    instructions = "".join(unit.text for unit, order in zip(units, orders, strict=True) if order).strip()
    if counter.count(instructions) > limit:
        return extract(text, limit, counter, options=options)
    kept = list(orders)
    for i in range(len(units)):
        if not kept[i]:
            trial = "".join(
                unit.text for unit, keep in zip(units, [*kept[:i], True, *kept[i + 1 :]], strict=True) if keep
            ).strip()
            kept[i] = counter.count(trial) <= limit
    return "".join(unit.text for unit, keep in zip(units, kept, strict=True) if keep).strip()
