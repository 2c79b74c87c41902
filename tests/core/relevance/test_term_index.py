"""The index of words, stems and pieces: what it has been asked before never changes an answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment
from rankbudget.fitting.doubles import _alike, find_doubles
from rankbudget.relevance.corpus import TermIndex, scored_texts
from rankbudget.relevance.evidence import Sentences
from rankbudget.relevance.words import grams

WORDS = st.sampled_from(
    "rank ranks franks banana bananas aaaaaa a xyz budget budgets running ran flies being 北京大学 дома домой élan".split()
)
TEXTS = st.lists(st.lists(WORDS, max_size=12).map(" ".join), min_size=1, max_size=6).map(tuple)
QUERY = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)


@given(TEXTS, QUERY, QUERY)
def test_an_index_asked_before_answers_as_a_new_one(texts: tuple[str, ...], query: str, other: str) -> None:
    """What an index remembers of earlier questions never changes an answer."""
    new, old = TermIndex(texts), TermIndex(texts)
    old.bm25(other)
    old.gram_bm25(other)
    assert new.bm25(query) == old.bm25(query)
    assert new.gram_bm25(query) == old.gram_bm25(query)


@given(TEXTS)
def test_holders_are_the_texts_with_the_word(texts: tuple[str, ...]) -> None:
    """A word is found in the texts that have it, with how often."""
    index = TermIndex(texts)
    for word in sorted({word for text in texts for word in text.lower().split() if word.isascii()}):
        expected = [(i, text.split().count(word)) for i, text in enumerate(texts) if word in text.split()]
        assert list(index.holders(word)) == expected


@pytest.mark.parametrize("piece", [*grams("banana"), *grams("ab"), *grams("aaaa")])
def test_a_piece_counts_in_every_word_that_has_it(piece: str) -> None:
    """The count of a piece is the sum over the words that have it."""
    texts = ("banana bananas", "ab", "cab", "", "aaaaaaaaa aaaa")
    expected = {
        i: n for i, text in enumerate(texts) if (n := sum(f"_{word}_".count(piece) for word in text.split()))
    }
    assert list(TermIndex(texts).with_pieces([piece])) == [expected]


@given(TEXTS)
def test_the_words_of_a_stem_are_those_that_it_is_of(texts: tuple[str, ...]) -> None:
    """Words are found by the start of their stem, those of short stems and of other scripts, too."""
    index = TermIndex(texts)
    assert {term: sorted(index.words_of(term)) for term in index.stems} == {
        term: sorted(words) for term, words in index.stems.items()
    }
    assert index.words_of("zebra") == index.words_of("q") == []


SENTENCES = st.lists(WORDS | st.sampled_from(["<b>run</b>", "</p>", "e\u0301lan", ",", "(ran"]), max_size=8)
LINES = st.lists(
    st.builds(lambda words, end: " ".join(words).capitalize() + end, SENTENCES, st.sampled_from(". ?\n。")),
    max_size=4,
).map(" ".join)
PAGES = st.builds(
    lambda text, title, beside: Segment(id="a", text=text, title=title, beside=beside),
    LINES,
    st.none() | WORDS,
    st.just("") | WORDS,
)


@given(st.lists(PAGES, min_size=1, max_size=5), QUERY)
def test_an_index_made_of_parts_answers_as_one_that_reads_the_texts(pages: list[Segment], query: str) -> None:
    """What texts hold is the sum of what their sentences, titles and lines of metadata hold."""
    texts = scored_texts(pages)
    split = Sentences(tuple([page.text for page in pages]))
    parts = split.indexes(pages)[0]
    leads = TermIndex([text.removesuffix(page.text) for text, page in zip(texts, pages, strict=True)])
    made, read = TermIndex(texts, [(leads, range(len(texts))), (parts, split.owners)]), TermIndex(texts)
    assert (made.lengths, made.words) == (read.lengths, read.words)
    assert made.bm25(query) == read.bm25(query) == split.indexes(pages)[1].bm25(query)
    assert made.gram_bm25(query) == read.gram_bm25(query)
    assert [set(made.words_of(term)) for term in read.stems] == [set(words) for words in read.stems.values()]
    assert list(made.alike.items()) == list(read.alike.items())  # of words as near, the first one is meant


@given(st.lists(PAGES, min_size=1, max_size=5))
def test_doubles_are_the_same_by_the_words_of_sentences(pages: list[Segment]) -> None:
    """Texts that repeat another one are found by the words of their sentences as by their own."""
    split = Sentences(tuple([page.text for page in pages]))
    ranked = range(len(pages))
    assert _alike(split.by_text) == _alike([(page.text,) for page in pages])
    assert find_doubles(pages, ranked, split.by_text) == find_doubles(pages, ranked)
