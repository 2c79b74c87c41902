"""`PromptCompressor`: the specified interface, the exact target, what each strategy leaves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.compressor import CompressionResult, CompressorConfig, PromptCompressor
from rankbudget.testing import WordCounter

EXACT = counter_for("o200k_base")
DOCUMENT = "\n\n".join(
    f"Chapter {i} speaks of the river and its {i + 2} bridges. The river is {40 + i} metres wide there. Bridge {i} was opened in {1800 + i}. On Sundays {100 * i} people walk there. "
    f"Some of them bring bread for the {i} ducks, and others sit on one of the {i + 5} benches and read the newspaper until it gets dark."
    for i in range(12)
)


@given(target=st.integers(0, 400), strategy=st.sampled_from(["extractive", "abstractive", "template"]))
def test_the_target_is_never_exceeded(target, strategy):
    """Whatever the strategy, the result has at most the tokens asked for, and its figures are true."""
    result = PromptCompressor().compress(DOCUMENT, target, strategy)
    assert EXACT.count(result.compressed_text) == result.compressed_tokens <= target
    assert result.original_tokens == EXACT.count(DOCUMENT)
    assert result.compression_ratio == pytest.approx(1 - result.compressed_tokens / result.original_tokens)


def test_a_good_part_of_the_target_is_used():
    """The bound is not met by giving little: at half the size, nine tenths of the room are filled."""
    result = PromptCompressor().compress(DOCUMENT, 400)
    assert result.compressed_tokens >= 360


@pytest.mark.parametrize("strategy", ["extractive", "abstractive", "template"])
@pytest.mark.parametrize("text", ["", "   ", "Short already."])
def test_short_text_comes_back_untouched(text, strategy):
    """Nothing is done to what is short: the same object, ratio 0, strategy "none"."""
    result = PromptCompressor().compress(text, strategy=strategy)
    assert result.compressed_text is text
    assert (result.compression_ratio, result.strategy_used) == (0.0, "none")


def test_the_result_is_the_specified_model():
    """The six fields of the specification, no more and no less."""
    assert list(CompressionResult.model_fields) == [
        "original_text",
        "compressed_text",
        "original_tokens",
        "compressed_tokens",
        "compression_ratio",
        "strategy_used",
    ]


def test_long_documents_shrink_by_half_and_keep_the_answer():
    """More than half goes, the sentence asked for stays."""
    result = PromptCompressor().compress_document(DOCUMENT, "When was bridge 7 opened?")
    assert result.compression_ratio >= 0.5
    assert "Bridge 7 was opened in 1807." in result.compressed_text
    assert result.strategy_used == "extractive"


def test_system_prompts_keep_their_instructions():
    """The template strategy is the one of system prompts."""
    prompt = (
        "We are very happy to have you here. Always cite your sources. Thank you for all that you do for us. Always cite your sources. "
        * 4
        + "Never guess."
    )
    result = PromptCompressor().compress_system_prompt(prompt)
    assert (result.compressed_text, result.strategy_used) == (
        "Always cite your sources. Never guess.",
        "template",
    )
    assert result.compression_ratio > 0.6


def test_a_template_over_its_target_gives_up_statements_before_instructions():
    """The bound is exact; what is not an instruction goes first."""
    prompt = (
        "The river is wide and slow. Always cite your sources. The ducks are fat. Never guess. "
        + "The banks are green in summer and brown in winter. " * 3
    )
    result = PromptCompressor(counter=WordCounter()).compress(prompt, 7, "template")
    assert result.compressed_text == "Always cite your sources. Never guess."
    assert result.strategy_used == "template+extractive"


def test_history_keeps_its_last_turns_whole():
    """The last turns are copied, what came before is said in fewer words, decisions first."""
    history = [
        {"role": "user", "content": "We decided to meet Ada in Paris on 4 May."},
        {"role": "assistant", "content": "Noted!"},
    ]
    for i in range(8):
        history += [
            {"role": "user", "content": f"Small talk number {i} about the weather outside"},
            {"role": "assistant", "content": "Yes indeed, the weather is what it is."},
        ]
    result = PromptCompressor().compress_history(history, max_turns=2)
    lines = result.compressed_text.splitlines()
    assert lines[-4:] == [f"{m['role']}: {m['content']}" for m in history[-4:]]
    assert "We decided to meet Ada in Paris on 4 May." in lines[0]
    assert lines[0].startswith("[Earlier: ")
    assert result.compression_ratio > 0.3


def test_history_within_its_turns_is_untouched():
    """Fewer turns than allowed are left alone; no turns at all summarize everything."""
    history = [{"role": "user", "content": "a " * 50}, {"role": "assistant", "content": "b " * 50}]
    assert PromptCompressor().compress_history(history, max_turns=5).strategy_used == "none"
    assert PromptCompressor().compress_history(history, max_turns=0).compression_ratio > 0
    with pytest.raises(BudgetConfigError, match=r"max_turns must be .*got -1"):
        PromptCompressor().compress_history(history, max_turns=-1)


def test_json_documents_stay_json():
    """A document that is JSON is shortened by its structure."""
    text = json.dumps(
        [{"id": i, "name": f"row {i}", "comment": "nothing to say about this one " * 3} for i in range(50)],
        indent=1,
    )
    result = PromptCompressor().compress(text, 300)
    assert isinstance(json.loads(result.compressed_text), list)


def test_abstractive_uses_the_summarizer():
    """The summarizer's words are the result, and it is told its limit."""
    seen = []

    def write(text, max_tokens):
        seen.append((text, max_tokens))
        return "Rivers, bridges, ducks."

    result = PromptCompressor(summarizer=write).compress(DOCUMENT, 100, "abstractive")
    assert (result.compressed_text, result.strategy_used, seen) == (
        "Rivers, bridges, ducks.",
        "abstractive",
        [(DOCUMENT, 100)],
    )


def test_a_failing_summarizer_costs_neither_the_text_nor_the_bound():
    """The text's own sentences are used instead, and the result says so."""

    def fail(text, max_tokens):
        raise RuntimeError

    result = PromptCompressor(summarizer=fail).compress(DOCUMENT, 100, "abstractive")
    assert result.strategy_used == "extractive"
    assert 0 < result.compressed_tokens <= 100


async def test_async_summarizers_answer_the_async_form():
    """`acompress` awaits an async summarizer; both forms agree where nothing is async."""

    async def write(text, max_tokens):
        return "short"

    assert (
        await PromptCompressor(summarizer=write).acompress(DOCUMENT, 50, "abstractive")
    ).compressed_text == "short"
    assert await PromptCompressor().acompress(DOCUMENT, 50) == PromptCompressor().compress(DOCUMENT, 50)


def test_wrong_arguments_are_named_together():
    """Every problem of a call is in one error."""
    with pytest.raises(BudgetConfigError, match=r"target_token_count .*got -1.*strategy .*got 'magic'"):
        PromptCompressor().compress("text", -1, "magic")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(BudgetConfigError, match="classifier_path"):
        PromptCompressor().compress(DOCUMENT, 10, "token_classifier")
    with pytest.raises(ValueError, match="extra"):
        CompressorConfig(surprise=1)  # type: ignore[call-arg]  # wrong on purpose


def test_every_default_ratio_is_configuration():
    """The share that goes without a target is a field."""
    for ratio in (0.2, 0.8):
        config = CompressorConfig(extractive_ratio=ratio)
        assert PromptCompressor(config).compress(DOCUMENT).compression_ratio == pytest.approx(ratio, abs=0.06)
