"""Texts to terms and to sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.relevance.long_lines import LONGEST
from rankbudget.relevance.sentences import MOST, split_sentences
from rankbudget.relevance.words import content_terms, fold, grams, raw_words, stem

ANY_TEXT = st.text(alphabet=st.sampled_from("ab Z.!?\n\t。！é中文日本ไทยعربи\u0301'\"“)…1,;"), max_size=60)


def test_inflections_share_a_term() -> None:
    """Plural, past and progressive of a word give one term."""
    assert len({stem(word) for word in ("plan", "plans", "planned", "planning")}) == 1


def test_accents_and_case_do_not_matter() -> None:
    """Folding removes case, accents and Arabic vowel marks and unifies the sharp s."""
    assert fold("Élan STRASSE") == fold("elan Straße")


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("北京大学", ["北京", "京大", "大学", *"北京大学"]),
        ("カメラ", ["カメ", "メラ"]),
        ("한국어", ["한국", "국어", *"한국어"]),
        ("松の間", ["松の", "の間", "松", "間"]),
        ("ไทย", ["ไท", "ทย"]),
        ("中", ["中"]),
    ],
)
def test_scripts_without_spaces_come_in_pairs(text: str, pairs: list[str]) -> None:
    """Chinese, Japanese and Korean runs become pairs; a character that may be a name comes alone, too."""
    assert raw_words(text) == pairs


def test_hindi_vowel_signs_stay_in_the_word() -> None:
    """A word with combining vowel signs is one word."""
    assert len(raw_words("हिन्दी भाषा")) == 2


def test_a_query_of_function_words_keeps_them() -> None:
    """Function words leave a query unless nothing else is in it."""
    assert content_terms("What is the budget?") == ["budget"]
    assert content_terms("What is it?") == ["what", "is", "it"]


def test_grams_cover_the_word_with_its_edges() -> None:
    """The four-character pieces of a word overlap by three and mark where it begins and ends."""
    assert grams("index") == ("_ind", "inde", "ndex", "dex_")
    assert grams("a") == ("_a_",)


@given(ANY_TEXT)
def test_sentences_joined_are_the_text(text: str) -> None:
    """Splitting loses nothing: the pieces put together are the text, and no piece is empty unless the text is."""
    pieces = split_sentences(text)
    assert "".join(pieces) == text
    assert all(pieces) or text == ""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Mr. Smith met Dr. No. They talked.", 2),
        ("It costs 3.50 dollars. Buy it!", 2),
        ("He came (late). She left.", 2),
        ("See e.g. the U.S. rules. Done.", 2),
        ("你好。再见！好？", 3),
        ("one line\nanother line", 2),
        ("no end", 1),
        ("كيف؟ جيد.", 2),
        ("Yes. No. OK. It was in 2023. The next came.", 5),
        ("The version is 12. It was the 31. Then it ended.", 3),
        ("1. First item.\n2. Second item.", 2),
        ("See example.com. Wait... What? Paid 3.50. They left.", 5),
    ],
)
def test_sentence_ends(text: str, count: int) -> None:
    """Abbreviations, initials and numbers end no sentence; East Asian and Arabic marks and line breaks do."""
    assert len(split_sentences(text)) == count


def test_many_sentences_cost_no_more_each() -> None:
    """Splitting a text looks at a bounded stretch around each mark, however long the text is."""
    assert len(split_sentences("Go on. " * 20_000)) == 20_000


@pytest.mark.parametrize("between", [" ", "\n", " \n\n"])
def test_a_very_long_text_has_no_piece_that_fills_a_prompt(between: str) -> None:
    """Behind the sentences that are told apart a piece has several; joined, the pieces are the text."""
    text = between.join(f"It was read {n} times." for n in range(2 * MOST))
    pieces = split_sentences(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= LONGEST
    assert MOST < len(pieces) < MOST + len(text) // (LONGEST // 2)
