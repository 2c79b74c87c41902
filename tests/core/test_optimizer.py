"""`TokenOptimizer`: the specification's example, each step of the pipeline, risk, money, and when it keeps its hands off."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from rankbudget.compression.prompt_parts import parse_prompt, split_paragraphs
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.analyzer import AnalyzerConfig, ContextAnalyzer
from rankbudget.optimizer.compressor import CompressorConfig, PromptCompressor
from rankbudget.optimizer.few_shot import FewShotSelector
from rankbudget.optimizer.optimizer import OptimizationResult, OptimizerConfig, TokenOptimizer

EXACT = counter_for("o200k_base")
HOME = Path(__file__).parents[2] / "benchmarks" / "optimizer_prompts.py"


@pytest.fixture(scope="module")
def prompts():
    spec = importlib.util.spec_from_file_location("optimizer_prompts", HOME)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


OFF_TOPIC = "The office garden has roses, an old oak and a bench that the trainees painted green last summer."
ON_TOPIC = "Refunds for faulty lamps are paid within ten days after the return."
QUESTION = "Within how many days are refunds for faulty lamps paid?"


def test_the_specifications_example_shrinks_by_four_fifths(prompts):
    """3,400 tokens of which 90 % of the documents do not matter: at least 80 % go, the relevant tenth, the rules and the question stay to the letter."""
    sample = prompts.spec_example()
    sizes = {
        "system": EXACT.count(sample.arguments["system_prompt"]),
        "question": EXACT.count(prompts.QUESTION),
        "relevant": sum(EXACT.count(text) for text in prompts.RELEVANT),
        "prompt": EXACT.count(sample.arguments["prompt"]),
        "history": sum(EXACT.count(message["content"]) for message in sample.arguments["history"]),
    }
    assert sizes["system"] == pytest.approx(500, rel=0.1)
    assert sizes["question"] == pytest.approx(100, rel=0.1)
    assert sizes["relevant"] == pytest.approx(200, rel=0.1)
    assert sizes["prompt"] - sizes["question"] == pytest.approx(2000, rel=0.1)
    assert sizes["history"] == pytest.approx(800, rel=0.1)
    result = TokenOptimizer(config=OptimizerConfig(compress_system_prompt=True)).optimize(**sample.arguments)
    assert result.savings_percent >= 80
    assert result.quality_risk == "high"
    assert [text for text in (*sample.kept, *sample.answers) if text not in result.optimized_prompt] == []
    assert result.strategies_applied == ["relevance_filter", "template", "history_filter"]


def test_no_answer_is_lost_on_the_benchmark_prompts(prompts):
    """Ordinary retrieval prompts get a fifth smaller or more, on average, and each still holds its answer."""
    optimizer = TokenOptimizer()
    savings = []
    for sample in prompts.benchmark_prompts():
        result = optimizer.optimize(**sample.arguments)
        assert all(answer in result.optimized_prompt for answer in sample.answers), sample.name
        savings.append(result.savings_percent)
    assert sum(savings) / len(savings) >= 20


def test_savings_are_those_aimed_at():
    """Where several documents may answer, a quarter of them goes, half of long ones, the best stay."""
    body = [
        f"Refunds for faulty lamps of series {i} are paid within {i} days after the return."
        if i % 2
        else f"Faulty lamps of the series {i} were mended within {i} days by the workers of the hall."
        for i in range(40)
    ]
    short = TokenOptimizer().optimize("\n\n".join([*body, QUESTION]))
    longest = max(EXACT.count(f"{text}\n\n") for text in body)  # one that does not fit whole goes, too
    assert 0.18 * short.original_tokens <= short.tokens_saved <= 0.25 * short.original_tokens + longest
    long = TokenOptimizer(config=OptimizerConfig(long_tokens=500)).optimize("\n\n".join([*body, QUESTION]))
    assert 0.4 * long.original_tokens <= long.tokens_saved <= 0.5 * long.original_tokens + longest
    assert set(long.optimized_prompt.splitlines()) <= set(short.optimized_prompt.splitlines())


@pytest.mark.parametrize("question", ["Which plan is the cheapest?", "Which plan holds the most gigabytes?"])
def test_texts_that_rate_alike_stay_together(question):
    """A question that compares them needs all of them."""
    body = [
        f"The plan {name} costs {i * 7 % 5} euros a month and holds {i} gigabytes. {ON_TOPIC}"
        for i, name in enumerate(["Basic", "Silver", "Gold", "Team"], start=1)
    ]
    kept = TokenOptimizer().optimize("\n\n".join([*body, question])).optimized_prompt
    assert all(text in kept for text in body)


def test_what_stays_is_what_fit_documents_keeps():
    """At equal tokens the optimizer and `fit_documents` keep the same documents."""
    body = [f"Refunds for faulty lamps of series {i} are paid within {i} days." for i in range(20)]
    kept = TokenOptimizer().optimize("\n\n".join([*body, QUESTION])).optimized_prompt
    left = [line for line in kept.splitlines() if line in body]
    fitted = fit_documents(body, max_tokens=sum(EXACT.count(f"{line}\n") for line in left), query=QUESTION)
    assert [segment.text for segment in fitted.segments] == left


def test_an_indented_paragraph_stays_with_the_one_before():
    """A function's body is no document of its own."""
    code = "def refund():\n    lamp = 1\n\n    return lamp"
    assert [text for text, _ in split_paragraphs(f"{code}\n\nSoup.")] == [code, "Soup."]


def test_figures_are_counted_on_the_prompts_themselves():
    """Tokens are counts of the two texts, savings follow from them."""
    result = TokenOptimizer().optimize(f"{ON_TOPIC}\n\n{OFF_TOPIC}\n\n{QUESTION}")
    assert result.original_tokens == EXACT.count(result.original_prompt)
    assert result.optimized_tokens == EXACT.count(result.optimized_prompt)
    assert result.tokens_saved == result.original_tokens - result.optimized_tokens > 0
    assert result.savings_percent == round(100 * result.tokens_saved / result.original_tokens, 2)


def test_nothing_goes_where_nothing_answers():
    """When no document stands out, none is known to be irrelevant, and the prompt is untouched."""
    prompt = f"{OFF_TOPIC}\n\nThe canteen serves soup on Mondays.\n\nWho won the chess championship of 1972?"
    result = TokenOptimizer().optimize(prompt)
    assert result.optimized_prompt == prompt
    assert (result.savings_percent, result.quality_risk, result.strategies_applied) == (0.0, "none", [])


@given(
    documents=st.lists(
        st.sampled_from([ON_TOPIC, OFF_TOPIC, "Soup is served at noon.", "", "A lamp.\nAnother line."]),
        max_size=6,
    ),
    label=st.booleans(),
    preference=st.sampled_from(["low", "medium", "high"]),
)
def test_never_longer_and_the_question_stays(documents, label, preference):
    """Whatever the documents, the result is no longer than the prompt, holds the whole question, and invents no line."""
    body = "\n\n".join(documents)
    prompt = f"Context:\n{body}\n\nQuestion: {QUESTION}" if label else f"{body}\n\n{QUESTION}"
    result = TokenOptimizer().optimize(prompt, quality_preference=preference)
    assert result.optimized_tokens <= result.original_tokens
    assert QUESTION in result.optimized_prompt
    assert all(line.strip() in prompt for line in result.optimized_prompt.splitlines())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"task_type": "critical"}, "task_type is critical"),
        ({"quality_preference": "high"}, "quality_preference is high"),
    ],
)
def test_critical_tasks_and_high_quality_are_not_touched(arguments, reason):
    """The prompt comes back as it was, and the result says why."""
    result = TokenOptimizer().optimize(f"{ON_TOPIC}\n\n{OFF_TOPIC}\n\n{QUESTION}", **arguments)
    assert result.optimized_prompt == result.original_prompt
    assert result.strategies_applied == [f"skipped: {reason}"]


def test_risk_is_reported_and_acted_on_only_by_request():
    """A saving above the allowed risk is undone when a limit is set, and only then."""
    prompt = "\n\n".join([ON_TOPIC, *[f"{OFF_TOPIC} Number {i}." for i in range(9)], QUESTION])
    assert TokenOptimizer().optimize(prompt).quality_risk == "high"
    guarded = TokenOptimizer(config=OptimizerConfig(max_risk="medium")).optimize(prompt)
    assert guarded.optimized_prompt == prompt
    assert guarded.strategies_applied == ["skipped: quality risk high is above medium"]


def test_risk_bands_are_the_specified_ones_and_configuration():
    """Below 15 none, to 30 low, to 50 medium, above high; other bands can be set."""
    assert [OptimizerConfig().risk(p) for p in (0, 14.99, 15, 29.99, 30, 50, 50.01)] == [
        "none",
        "none",
        "low",
        "low",
        "medium",
        "medium",
        "high",
    ]
    assert OptimizerConfig(low_risk_percent=1, medium_risk_percent=2, high_risk_percent=3).risk(4) == "high"


def test_the_system_prompt_is_left_alone_unless_asked():
    """By default not a letter changes; on request filler goes and instructions stay."""
    system = (
        "We are very happy to have you here. Always cite sources. Thank you so much for everything you do for all of us here every day. "
        * 3
    )
    plain = TokenOptimizer().optimize(QUESTION, system_prompt=system)
    assert plain.optimized_prompt.startswith(system)
    asked = TokenOptimizer(config=OptimizerConfig(compress_system_prompt=True)).optimize(
        QUESTION, system_prompt=system
    )
    assert asked.optimized_prompt == f"Always cite sources.\n\n{QUESTION}"
    assert asked.strategies_applied == ["template"]


def test_history_keeps_the_newest_and_the_relevant():
    """The last turn stays, a relevant one stays, small talk goes, an old decision stays."""
    history = [
        {
            "role": "user",
            "content": "We decided that refunds for faulty lamps go to the card.",
        },
        {"role": "assistant", "content": "Noted."},
        {"role": "user", "content": "Lovely sunshine today!"},
        {"role": "assistant", "content": "Indeed, and the birds are singing."},
        {"role": "user", "content": "My faulty lamps went back and the refunds are to be paid in some days."},
        {"role": "assistant", "content": "Let me see."},
        {"role": "user", "content": "ok"},
        {"role": "assistant", "content": "Yes?"},
    ]
    analyzer = ContextAnalyzer(AnalyzerConfig(scoring_method="keyword", max_history_turns=2), counter=EXACT)
    text = TokenOptimizer(analyzer).optimize(QUESTION, history=history).optimized_prompt
    assert "sunshine" not in text
    assert "assistant: Yes?" in text
    assert "user: My faulty lamps went back" in text
    assert "user: We decided that refunds for faulty lamps go to the card." in text
    assert "Noted." not in text


@given(
    roles=st.lists(st.sampled_from(["user", "assistant"]), min_size=1, max_size=8),
    texts=st.lists(
        st.sampled_from(
            ["We decided on {}.", "I prefer {} to all others.", "Lovely weather in {} today, is it not? " * 6]
        ),
        min_size=8,
    ),
)
def test_no_speaker_is_credited_with_the_words_of_another(roles, texts):
    """Whatever stays of the history, every name in it is in a line of the role that said it."""
    history = [{"role": role, "content": texts[i].replace("{}", f"thing{i}")} for i, role in enumerate(roles)]
    result = TokenOptimizer().optimize(QUESTION, history=history)
    for line in result.optimized_prompt.splitlines():
        for i, role in enumerate(roles):
            assert f"thing{i}" not in line or line.startswith(f"{role}: ")


def test_the_first_paragraph_of_a_long_message_counts():
    """A relevant turn stays whole though the relevant words are far from the end of its message."""
    long = f"{ON_TOPIC}\n\n" + "\n\n".join(f"{OFF_TOPIC} Number {i}." for i in range(8))
    history = [
        {"role": "user", "content": "hm"},
        {"role": "assistant", "content": long},
        {"role": "user", "content": "and now"},
    ]
    assert ON_TOPIC in TokenOptimizer().optimize(QUESTION, history=history).optimized_prompt


def test_tool_calls_in_the_history_stay_with_their_results():
    """A turn with tools in it is never thinned out."""
    history = [
        {"role": "user", "content": "look it up"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "nothing about the subject"},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": "welcome"},
    ]
    assert (
        "tool: nothing about the subject"
        in TokenOptimizer().optimize(QUESTION, history=history).optimized_prompt
    )


def test_examples_are_selected_and_keep_their_order():
    """The best examples stay, in the order they were given."""
    examples = [
        {"input": f"How are {name} refunds paid?", "output": str(i)}
        for i, name in enumerate(["lamp", "shoe", "faulty lamps", "car", "days of faulty lamps"])
    ]
    result = TokenOptimizer(config=OptimizerConfig(max_examples=2, diversity_weight=0.0)).optimize(
        QUESTION, examples=examples
    )
    assert result.strategies_applied == ["few_shot"]
    kept = [e for e in examples if f"output: {e['output']}" in result.optimized_prompt]
    assert [e["output"] for e in kept] == ["2", "4"]


@pytest.mark.parametrize("most", [0, 1, 3])
def test_one_example_given_many_times_counts_each_time(most):
    """No more examples than configured stay, even where all of them are one and the same object."""
    example = {"input": "a?", "output": "first"}
    result = TokenOptimizer(config=OptimizerConfig(max_examples=most)).optimize(
        "Which colour is it?", examples=[example] * 9
    )
    assert result.optimized_prompt.count("output: first") == most


def test_repeated_passages_stand_once():
    """Retrievers return doubles; the second one goes even where nothing else does."""
    result = TokenOptimizer().optimize(f"{OFF_TOPIC}\n\n{OFF_TOPIC}\n\nWho won?")
    assert result.optimized_prompt == f"{OFF_TOPIC}\n\nWho won?"
    assert result.strategies_applied == ["deduplicate"]


def test_low_quality_preference_also_shortens_what_stays():
    """With "low" the kept documents lose the sentences that bear least on the question."""
    long = f"{ON_TOPIC} " + " ".join(
        f"Lamps of series {i} are made in hall {i} by a team of {i + 3} people who like their work."
        for i in range(8)
    )
    medium = TokenOptimizer().optimize(f"{long}\n\n{QUESTION}")
    low = TokenOptimizer().optimize(f"{long}\n\n{QUESTION}", quality_preference="low")
    assert low.optimized_tokens < medium.optimized_tokens
    assert ON_TOPIC in low.optimized_prompt
    assert "extractive" in low.strategies_applied


def test_parts_given_are_the_parts_used():
    """Analyzer, compressor and selector of the caller do the work."""
    analyzer = ContextAnalyzer(
        AnalyzerConfig(scoring_method="keyword", min_relevance_threshold=0.0), counter=EXACT
    )
    optimizer = TokenOptimizer(
        analyzer, PromptCompressor(CompressorConfig()), FewShotSelector(), OptimizerConfig()
    )
    prompt = f"{ON_TOPIC}\n\n{OFF_TOPIC}\n\n{QUESTION}"
    assert optimizer.optimize(prompt).optimized_prompt == prompt


def test_rating_by_meaning_plugs_in():
    """With the embedding method the documents are rated by vectors."""
    embed = lambda texts: [[1.0, 0.0] if "lamp" in text else [0.0, 1.0] for text in texts]  # noqa: E731
    analyzer = ContextAnalyzer(AnalyzerConfig(scoring_method="embedding"), counter=EXACT, embed=embed)
    result = TokenOptimizer(analyzer).optimize(f"A lamp is bright.\n\n{OFF_TOPIC}\n\nWhich lamp?")
    assert result.optimized_prompt == "A lamp is bright.\n\nWhich lamp?"


def test_an_unknown_preference_is_refused():
    """The error names what is allowed."""
    with pytest.raises(
        BudgetConfigError, match=r"quality_preference must be one of 'low', 'medium', 'high' .*'best'"
    ):
        TokenOptimizer().optimize("q", quality_preference="best")


def test_the_result_has_the_specified_fields():
    """The specification's eight fields come first."""
    assert list(OptimizationResult.model_fields)[:8] == [
        "original_prompt", "optimized_prompt", "original_tokens", "optimized_tokens", "tokens_saved", "savings_percent", "strategies_applied", "quality_risk"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("What is it?", [("query", "What is it?")]),
        ("Sky is blue.\n\nWhat is?", [("document", "Sky is blue."), ("query", "What is?")]),
        (
            "<context>\nsky\n</context>\n<question>colour?</question>",
            [("document", "sky"), ("query", "colour?")],
        ),
        (
            "You help.\n\n## Documents\nsky\n\n### Question\ncolour?",
            [("system", "You help."), ("document", "sky"), ("query", "colour?")],
        ),
        (
            "Examples:\na\n\nChat history:\nb\n\nContext: c\nQuery: d",
            [("example", "a"), ("history", "b"), ("document", "c"), ("query", "d")],
        ),
        ("", []),
    ],
)
def test_prompts_are_read_back_into_parts(prompt, parts):
    """Tags, headings and labels tell the parts; without them the last paragraph is the question."""
    found = parse_prompt(prompt)
    assert [(part.category, part.text) for part in found if part.text] == parts
    assert "".join(part.render() for part in found) == prompt


_PARTS = ["Context:", "Question:", "<context>", "</context>", "\n", "\n\n", "word ", "why?", "# Documents\n"]


@given(text=st.lists(st.sampled_from(_PARTS), max_size=20).map("".join))
def test_parsing_loses_nothing(text):
    """Put together, the parts are the prompt, and paragraphs are the text."""
    assert "".join(part.render() for part in parse_prompt(text)) == text
    assert "".join(a + b for a, b in split_paragraphs(text)) == text
