"""What the ratings of documents and sentences are made of, and which passages stay beside the ones rated high."""

from __future__ import annotations

import pytest

from rankbudget import Segment
from rankbudget.relevance.bm25 import Bm25Scorer
from rankbudget.relevance.corpus import TermIndex
from rankbudget.relevance.evidence import (
    DOCUMENT_WEIGHTS,
    SENTENCE_WEIGHTS,
    features,
    rate_documents,
    rate_sentences,
)
from rankbudget.relevance.passages import needed_passages

PAGES = [
    Segment(
        id="film",
        title="The Zone",
        text="The Zone is a film directed by Denys Roy. It was shot in one night.",
    ),
    Segment(
        id="director",
        title="Denys Roy",
        text="He likes long walks. Denys Roy has his place of birth in Montreal.",
    ),
    Segment(id="other", title="Rome", text="Rome is old. Many people have their birth there."),
]
QUESTION = "What is the place of birth of the director of The Zone?"


def test_every_weight_has_its_feature() -> None:
    """No weight stands for a feature that is not worked out, and none is missing."""
    found = features(QUESTION, PAGES, Bm25Scorer())
    assert set(DOCUMENT_WEIGHTS) - {"base"} <= set(found.documents[0])
    assert set(SENTENCE_WEIGHTS) - {"base", "document"} == set(found.sentences[0])


@pytest.mark.parametrize("title_in_text", [False, True])
def test_a_sentence_completes_a_sure_document(title_in_text: bool) -> None:
    """A sentence counts for the question's words the surest document lacks; words of that document's title are not lacking."""
    pages = [
        Segment(id=p.id, title=p.title, text=f"{p.title}: {p.text}" if title_in_text else p.text)
        for p in PAGES
    ]
    found = features(QUESTION, pages, Bm25Scorer())
    completes = [row["completes"] for row in found.sentences]
    assert found.documents[0]["strength"] == 1.0
    assert completes[3] > completes[5] > 0.0  # "place of birth", "birth"
    assert completes[0] < completes[3]


def test_the_second_page_is_kept_by_its_sentence() -> None:
    """The sentence that answers on the page another page leads to beats all other sentences of both."""
    ratings = rate_sentences(QUESTION, PAGES, Bm25Scorer())
    documents = rate_documents(QUESTION, PAGES, Bm25Scorer())
    assert documents[0] > documents[2] < documents[1]
    assert ratings[1][1] > max(ratings[1][0], ratings[0][1], *ratings[2])


def test_neighbouring_words_count_together() -> None:
    """Two words of the query side by side beat the same words apart, whatever their inflection."""
    apart, together = "Of all fathers he is the one.", "He was the father of four."
    assert TermIndex.of((apart, together, "Nobody.")).pairs("fathers of")[0] == 0.0
    assert TermIndex.of((apart, together, "Nobody.")).pairs("fathers of")[1] > 0.0
    assert TermIndex.of((apart,)).pairs("") == [0.0]


def test_passages_stay_with_what_they_belong_to() -> None:
    """What continues or is named by a needed passage is needed; what continues or is named by those only is not, nor what shares too little."""
    passages = [
        "the zone by denys roy",
        "roy made it",
        "then he made more",
        "denys roy of quebec",
        "quebec is cold",
        "the roy family",
        "",
    ]
    words = [passage.split() for passage in passages]
    ratings = [0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert needed_passages(words, ratings, threshold=0.5, continued_share=0.3) == [
        True,
        True,
        False,
        True,
        False,
        False,
        False,
    ]
    assert needed_passages(words, ratings, threshold=0.5, continued_share=1.0) == [
        True,
        False,
        False,
        True,
        False,
        False,
        False,
    ]
    assert needed_passages(words, ratings, threshold=0.0, continued_share=0.3) == [True] * 7
