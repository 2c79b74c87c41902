"""Work grows with the length of a text and the number of examples, not with their square."""

from __future__ import annotations

import pytest

from rankbudget import ContextAnalyzer, FewShotSelector, PromptCompressor
from rankbudget.compression.json_values import dump
from rankbudget.compression.key_moments import find_moments
from rankbudget.compression.prompt_parts import parse_prompt
from rankbudget.compression.structured import compress_structured
from rankbudget.compression.template import compress_template
from rankbudget.compression.truncate import truncate_text
from rankbudget.compression.units import split_units
from rankbudget.optimizer.analyzer import AnalyzerConfig
from rankbudget.relevance.lexical import KeywordScorer
from rankbudget.relevance.sentences import split_sentences
from rankbudget.relevance.tree import tree_of
from rankbudget.testing import WordCounter
from tests.growth import Growth, growth

WORDS = WordCounter()
ANALYZER = ContextAnalyzer(AnalyzerConfig(scoring_method="keyword"), counter=WORDS)
SHORT, TIMES, MOST = 4_000, 10, 14
"""Characters, and how many times as long ten times as many may take: linear work takes ten times as long."""
RUNS = (
    *"!.?…,;:'\"-_*#=~|()[]{}<>/\\@&%+^$`“”‘’«»。！？ \t\n",
    *(
        "\n ",
        " \n",
        "a",
        "a1",
        "a, ",
        "a; ",
        "<tr>a",
        "},{",
        "a-",
        "A-",
        "_-",
        "a_",
        "A ",
        "1.",
        '."',
        '\\"',
        '"\\',
        "“ ",
        "{\n",
        "}\n",
        "[{",
        "<context>",
        "Context:\n",
    ),
    *(
        "```\n",
        "~~~\n",
        "| ",
        "a|",
        "x\ty",
        "    x\n",
        "user:",
        "[a] ",
        "hope ",
        "i really ",
        "not ",
        "Aa Bb Cc ",
        "https://",
    ),
)
READERS = {
    "cut": lambda text: truncate_text(text, 5, WORDS),
    "cut both ends": lambda text: truncate_text(f"{text} a b c d e f", 5, WORDS, keep="both"),
    "structure": lambda text: compress_structured(text, 5, WORDS),
    "structure for a question": lambda text: compress_structured(
        "x\n" * 8 + text + "\ny" * 8, 5, WORDS, "What is K-10, and who is ann@corp.com?"
    ),
    "sentences": lambda text: split_sentences(f"{text} "),
    "records": lambda text: tree_of([f"k{n}: a{text}b\n" for n in range(4)]),
    "prompt parts": parse_prompt,
    "key moments": find_moments,
    "history": lambda text: ANALYZER.analyze({"history": text}, "q"),
    "units": split_units,
    "template": compress_template,
    "extract": lambda text: PromptCompressor(counter=WORDS).compress(text, 1, query="q"),
    "document": lambda text: ANALYZER.analyze({"document": text}, "q"),
}


def grows_linearly(work, make) -> Growth:
    """Ten times as much takes at most `MOST` times as long."""
    return growth(work, make, SHORT, TIMES, MOST)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["The ", "\n"])
@pytest.mark.parametrize("name", READERS)
def test_a_long_run_of_marks_costs_its_length(name, start):
    """Ten times as many of any mark, or of two that alternate, take far less than a hundred times as long."""
    work = READERS[name]
    for run in RUNS:
        linear, small, large = grows_linearly(work, lambda n, run=run: f"{start}{run * (n // len(run))}z{n}")
        assert linear, (run, small, large)


def test_sentences_without_spaces_cost_their_number():
    """Whether what ten times as many begin with is a key is found in at most `MOST` times the time."""
    lines = lambda n: [f"会社の番号{chr(0x4E00 + i % 5000)}{chr(0x4E00 + i // 7)}です。" for i in range(n)]  # noqa: E731
    assert grows_linearly(tree_of, lines)[0]


def test_nested_brackets_that_are_no_json_are_read_once():
    """Lines that open and close brackets around something else are not parsed again from each line."""
    assert grows_linearly(split_units, lambda n: "{\n" * (n // 8) + "x\n" + "}\n" * (n // 8))[0]


def test_rows_with_keys_of_their_own_cost_their_number():
    """A list of objects that share no key is shortened in linear time."""
    rows = lambda n: dump([{f"key{i}": i} for i in range(n // 20)])  # noqa: E731
    assert grows_linearly(lambda text: compress_structured(text, 5, WORDS), rows)[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits", [{}, {"max_tokens": 1_000_000_000, "counter": WORDS}, {"max_tokens": 40, "counter": WORDS}]
)
def test_any_number_of_examples_may_be_selected(limits):
    """Without a number the selection of ten times as many examples takes at most fourteen times as long."""

    def examples(n):
        return [
            {"input": f"topic {i % 7} question {i} of {n}", "output": f"answer {i}"} for i in range(n // 4)
        ]

    selector = FewShotSelector(KeywordScorer())
    assert grows_linearly(lambda given: selector.select("topic 3", given, None, **limits), examples)[0]
