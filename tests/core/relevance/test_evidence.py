"""What the ratings of documents and sentences are made of, and which passages stay beside the ones rated high."""

from __future__ import annotations

import pytest

from rankbudget import Segment
from rankbudget.relevance.bm25 import Bm25Scorer
from rankbudget.relevance.evidence import (
    DOCUMENT_WEIGHTS,
    document_features,
    rate_documents,
    rate_sentences,
)

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
    found = document_features(QUESTION, PAGES, Bm25Scorer())
    assert set(DOCUMENT_WEIGHTS) - {"base"} == set(found[0])
    assert found[0]["strength"] == 1.0


@pytest.mark.parametrize("title_in_text", [False, True])
def test_a_sentence_completes_a_sure_document(title_in_text: bool) -> None:
    """A sentence with the question's words that the surest document lacks beats one without; its title's words are not lacking."""
    pages = [
        Segment(id=p.id, title=p.title, text=f"{p.title}: {p.text}" if title_in_text else p.text)
        for p in PAGES
    ]
    ratings = rate_sentences(QUESTION, pages, Bm25Scorer())
    assert ratings[1][1] > ratings[2][1] > ratings[2][0]  # "place of birth", "birth", neither


def test_the_second_page_is_kept_by_its_sentence() -> None:
    """The sentence that answers on the page another page leads to beats all other sentences of both."""
    ratings = rate_sentences(QUESTION, PAGES, Bm25Scorer())
    documents = rate_documents(QUESTION, PAGES, Bm25Scorer())
    assert documents[0] > documents[2] < documents[1]
    assert ratings[1][1] > max(ratings[1][0], ratings[0][1], *ratings[2])
