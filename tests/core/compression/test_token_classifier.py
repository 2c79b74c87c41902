"""The token classifier: real loading code, the exact bound, and what is never dropped first."""

from __future__ import annotations

import sys

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from rankbudget import CounterUnavailableError, counter_for
from rankbudget.compression.token_classifier import TokenClassifier
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.compressor import CompressorConfig, PromptCompressor
from rankbudget.testing import WordCounter

EXACT = counter_for("o200k_base")
TEXT = (
    'well the old harbour of the town was built in 1872 and it was not cheap so the mayor said "Fort Saint Anne" was dearer see https://example.org/plan for more '
    "about the harbour and the town and the mayor and the old fort\n```\nkeep = 1\n```\n"
) * 3
KEPT_WORDS = ("harbour", "built", "mayor")


class LongWordsStay(TokenClassifier):
    """Rates by a rule instead of a model, so that the packing is tested alone."""

    def __init__(self):
        super().__init__("no folder")

    def rate(self, words):
        return [min(len(word), 20) / 20 for word in words]


PIECES = (
    "a few words",
    'the "Old Harbour Inn" there',
    "not 17 of them",
    "https://example.org/x?y=1",
    "\n\n```\nx = 1\n```\n",
    "漢字かな。",
    "extraordinarily",
    "| a | b |\n| 1 | 2 |\n",
)


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=20), limit=st.integers(0, 80))
def test_the_bound_is_exact_for_any_rating(pieces, limit):
    """Whatever the ratings, the result fits, and what fits comes back as it is."""
    text = " ".join(pieces)
    kept = LongWordsStay().compress(text, limit, EXACT)
    assert EXACT.count(kept) <= limit
    if limit and EXACT.count(text) <= limit:
        assert kept == text


def test_protected_words_outlive_better_rated_ones():
    """A number, a negation, a URL, a quotation and code stay although longer words are rated higher."""
    text = 'extraordinarily comprehensive documentation says "Inn 7" is not at https://a.b/c but nearby somewhere\n```\nx = 1\n```'
    kept = LongWordsStay().compress(text, 24, EXACT)
    for part in ('"Inn 7"', "not", "https://a.b/c", "```\nx = 1\n```"):
        assert part in kept
    assert "somewhere" not in kept


def test_better_rated_words_stay_in_their_order():
    """Among ordinary words the ratings decide, and the order is the text's."""
    assert (
        LongWordsStay().compress("we saw magnificent old lighthouses by an ocean", 6, WordCounter())
        == "we saw magnificent old lighthouses ocean"
    )


def test_a_missing_library_names_what_to_install(folder, monkeypatch):
    """Without ONNX Runtime the error is an ImportError that says what to install."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(CounterUnavailableError, match=r"needs onnxruntime: pip install") as caught:
        TokenClassifier(folder).rate(["a"])
    assert isinstance(caught.value, ImportError)


WORDS = sorted({word for word in TEXT.replace('"', " ").replace("`", " ").split() if word.isalpha()})
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_model(path, vocabulary, inputs=INPUTS):
    """Writes a classifier of one table: a word's row says whether it stays."""
    table = np.array([[-3.0, 3.0] if word in KEPT_WORDS else [3.0, -3.0] for word in vocabulary], np.float32)
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", ["table", inputs[0]], ["logits"])],
        "words",
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.INT64, [1, "n"]) for name in inputs],
        [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, "n", 2])],
        [onnx.numpy_helper.from_array(table, "table")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path / "model.onnx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tokenizer and a model of a few dozen words, as an exporter leaves them."""
    path = tmp_path_factory.mktemp("weights")
    vocabulary = ["[UNK]", "[CLS]", "[SEP]", *WORDS]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(path / "tokenizer.json"))
    write_model(path, vocabulary)
    return path


@pytest.mark.parametrize("limit", [1, 7, 20, 60, 120, 10_000])
def test_the_bound_is_exact(folder, limit):
    """Counted with the caller's own tokenizer, not the model's, the result fits; the whole text comes back when it fits."""
    kept = TokenClassifier(folder).compress(TEXT, limit, EXACT)
    assert EXACT.count(kept) <= limit
    assert (kept == TEXT) == (EXACT.count(TEXT) <= limit)


def test_the_model_decides_which_words_go(folder):
    """Words the weights are for come out above the others, through the real tokenizer and model."""
    words = [word for word in TEXT.split() if word.isalpha()]
    ratings = dict(zip(words, TokenClassifier(folder).rate(words), strict=True))
    assert all(ratings[word] > 0.9 for word in KEPT_WORDS)
    assert all(rating < 0.1 for word, rating in ratings.items() if word not in KEPT_WORDS)


def test_what_must_stay_goes_last(folder):
    """Numbers, negations, URLs, quotations and code outlive every other word, and occur in the text whole."""
    kept = TokenClassifier(folder).compress(TEXT, 90, EXACT)
    assert kept.count("1872") == 3
    assert kept.count("not") == 3
    assert kept.count('"Fort Saint Anne"') == 3
    assert kept.count("https://example.org/plan") == 3
    assert kept.count("```\nkeep = 1\n```") == 3
    assert kept.count("harbour") >= 3
    assert "cheap" not in kept


def test_the_order_of_words_stays(folder):
    """What is left is the text with words missing."""
    source = iter(TEXT.split())
    kept = TokenClassifier(folder).compress(TEXT, 80, EXACT).split()
    assert all(word in source for word in kept)


def test_words_of_more_pieces_than_the_window_are_rated(folder):
    """Words that are many tokens each fill several rows, and the last of them is rated as the first."""
    words = ["harbour" + "-a" * 20, "well"] * 200
    rated = TokenClassifier(folder).rate(words)
    assert rated == pytest.approx(rated[:2] * 200)
    assert rated[0] > 0.9
    assert rated[1] < 0.1


def test_the_compressor_loads_it_from_its_path(folder):
    """The strategy of `PromptCompressor` reads the folder of its configuration."""
    compressor = PromptCompressor(CompressorConfig(classifier_path=str(folder)))
    result = compressor.compress(TEXT, strategy="token_classifier")
    assert result.strategy_used == "token_classifier"
    assert result.compressed_tokens <= result.original_tokens - int(result.original_tokens * 0.5)


def test_a_folder_without_weights_is_a_typed_error(folder, tmp_path):
    """A path that is no folder, files that hold no model, and a model of another kind say so."""
    with pytest.raises(BudgetConfigError, match="must be a folder"):
        TokenClassifier(tmp_path / "nothing").rate(["a"])
    (tmp_path / "tokenizer.json").write_text((folder / "tokenizer.json").read_text())
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(BudgetConfigError, match="must be a folder"):
        TokenClassifier(tmp_path).rate(["a"])
    write_model(tmp_path, ["a"], inputs=("pixels",))
    with pytest.raises(BudgetConfigError, match=r"must take input_ids.*pixels"):
        TokenClassifier(tmp_path).rate(["a"])
