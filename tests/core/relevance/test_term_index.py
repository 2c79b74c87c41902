"""The index of words, stems and pieces: what it has been asked before never changes an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.relevance.corpus import LOOKS, QUESTIONS, SCANS, TermIndex
from rankbudget.relevance.words import grams

WORDS = st.sampled_from(
    "rank ranks franks banana bananas aaaaaa xyz budget budgets running ran 北京大学 дома домой élan".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=6).map(tuple)
QUERY = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)


def _asked_often(texts: tuple[str, ...]) -> TermIndex:
    """An index that answered so many questions that it lists all words and all pieces by now."""
    index = TermIndex(texts)
    for number in range(max(SCANS, LOOKS * sum(len(set(text.split())) for text in texts)) + 1):
        index.gram_bm25(f"q{number}q")
        index.holders(f"q{number}q")
    assert index._scans == 0
    return index


@given(TEXTS, QUERY)
def test_an_index_asked_often_answers_as_a_new_one(texts: tuple[str, ...], query: str) -> None:
    """Looking words up one by one and listing them all give the same scores, out of memory too."""
    new, old = TermIndex(texts), _asked_often(texts)
    for _ in range(2):  # the second time out of what it remembers
        assert new.bm25(query) == old.bm25(query)
        assert new.gram_bm25(query) == old.gram_bm25(query)


def test_words_are_found_while_another_thread_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks in the middle of the listing looks for itself, and does not take an unfinished list for an answer."""
    index, seen = TermIndex(("rank budget", "budget")), []
    listing = index._list_all

    def meanwhile() -> dict[str, list[tuple[int, int]]]:
        monkeypatch.setattr(index, "_list_all", listing)
        seen.append(list(index.holders("budget")))
        return listing()

    monkeypatch.setattr(index, "_list_all", meanwhile)
    while not seen:
        index.holders(f"none{index._looks}")
    assert seen == [[(0, 1), (1, 1)]]
    assert list(index.holders("rank")) == [(0, 1)]


@given(TEXTS)
def test_holders_are_the_texts_with_the_word(texts: tuple[str, ...]) -> None:
    """A word is found in the texts that have it, with how often."""
    index = TermIndex(texts)
    for word in sorted({word for text in texts for word in text.lower().split() if word.isascii()}):
        expected = [(i, text.split().count(word)) for i, text in enumerate(texts) if word in text.split()]
        assert list(index.holders(word)) == expected


@pytest.mark.parametrize("piece", [*grams("banana"), *grams("ab")])
def test_a_piece_counts_in_every_word_that_has_it(piece: str) -> None:
    """Read off the texts or off the list of all pieces, the count is that of the words."""
    texts = ("banana bananas", "ab", "cab", "")
    expected = {
        i: n for i, text in enumerate(texts) if (n := sum(f"_{word}_".count(piece) for word in text.split()))
    }
    assert TermIndex(texts)._with_piece(piece) == expected
    assert _asked_often(texts)._with_piece(piece) == expected


def test_what_is_answered_may_be_changed_by_who_asked() -> None:
    """Scores are handed out as a list of their own."""
    index = TermIndex(("rank", "budget"))
    index.bm25("rank")[0] = 99.0
    assert index.bm25("rank")[0] < 99.0


def test_few_questions_are_remembered() -> None:
    """What is remembered of questions is bounded."""
    index = TermIndex(("rank", "budget"))
    for number in range(10 * QUESTIONS):
        index.bm25(f"rank {number}")
    assert len(index._asked) <= QUESTIONS
    assert len(index._weights) == 1  # nothing is kept of words no text has
