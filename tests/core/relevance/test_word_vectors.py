"""Tokens found word by word are those of the whole text, and the vectors those of wordllama."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rankbudget.relevance import word_vectors
from rankbudget.relevance.word_vectors import WordVectors, merges_within_words

np = pytest.importorskip("numpy")
wordllama = pytest.importorskip("wordllama")

PARTS = [
    *"ab \n\t.,'XY1",
    "\u00e9",
    "\u5317",
    "\U0001f600",
    "\u2581",
    " the ",
    "  ",
    "\n\n",
    "</s>",
    "<unk>",
    "\r\n",
    " \n",
    "\n ",
    "x" * 60,
]
PROSE = [
    "Paris is a city. It is old.",
    "Paris again: a city\nof 2 million,  with (some) rivers ",
    "",
    " ",
    "\n",
    "tea",
]


def load() -> Any:
    """Returns a model of its own."""
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


@pytest.fixture(scope="module")
def model() -> Any:
    return load()


def drawn(seed: int, many: int) -> list[str]:
    """Returns texts of words, blanks, line breaks and marks in all orders."""
    source = random.Random(seed)
    return ["".join(source.choices(PARTS, k=source.randint(0, 14))) for _ in range(many)]


def test_tokens_word_by_word_are_those_of_the_whole_text(model: Any) -> None:
    """Blanks in a row, line breaks, marks and special tokens included, whatever was asked before."""
    words = WordVectors(model)
    for text in drawn(1, 5_000):
        assert words.tokens([text])[0] == model.tokenizer.encode(text, add_special_tokens=False).ids


def test_vectors_are_wordllamas() -> None:
    """The same means, one text at a time or many, with zeros where nothing is."""
    texts = PROSE + drawn(2, 200)
    model = load()
    found = WordVectors(model).embed(texts)
    whole = [text for text in texts if text]
    expected = np.zeros_like(found)
    expected[[bool(text) for text in texts]] = model.embed(whole)  # many at once: the model still pads
    assert found.dtype == np.float32
    assert np.allclose(found, expected, atol=1e-5)
    assert not found[texts.index("")].any()


def test_a_text_has_one_vector_whatever_stands_beside_it(model: Any) -> None:
    """Neither the texts embedded with it nor those before it change a bit."""
    alone = WordVectors(model).embed([PROSE[1]])[0]
    used = WordVectors(model)
    used.embed(drawn(3, 100))
    assert (used.embed([*drawn(4, 50), PROSE[1]])[-1] == alone).all()


def test_remembered_words_are_bounded(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory starts anew when it is full, long words never enter it, and tokens stay right throughout."""
    monkeypatch.setattr(word_vectors, "_MOST_WORDS", 50)
    words = WordVectors(model)
    for number in range(40):
        text = f"word{number} again{number} the word{number // 2} " + "y" * 80
        assert words.tokens([text])[0] == model.tokenizer.encode(text, add_special_tokens=False).ids
        assert len(words._words) <= 51
    assert all(len(word) <= 40 for word in words._words)


def test_a_known_word_is_not_tokenized_again(model: Any) -> None:
    """A text of known words costs no call of the tokenizer."""
    words = WordVectors(model)
    words.embed(["the city of Paris"])
    words._tokenizer = None
    assert words.embed(["Paris the city of the city"]).any()


def test_another_tokenizer_is_noticed(model: Any) -> None:
    """A vocabulary with a token across words, or with more tokens than vectors, is tokenized as a whole."""
    assert merges_within_words(model)
    assert (
        len(model.embed(PROSE[:2])) == 2
    )  # asking changes nothing: it still embeds texts of several lengths

    class Across:
        truncation = None

        def get_vocab(self) -> dict[str, int]:
            return {"\u2581": 0, "of\u2581the": 1}

    assert not merges_within_words(SimpleNamespace(tokenizer=Across(), embedding=np.zeros((2, 4))))
    assert not merges_within_words(
        SimpleNamespace(tokenizer=model.tokenizer, embedding=model.embedding[:100])
    )
