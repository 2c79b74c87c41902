"""What the ratings of documents and sentences are made of, and which passages stay beside the ones rated high."""

from __future__ import annotations

import pytest

from rankbudget import Segment
from rankbudget.relevance.evidence import rate_documents, rate_sentences
from rankbudget.relevance.lexical import Bm25Scorer
from tests.growth import growth

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


def test_a_title_that_many_have_leads_nowhere() -> None:
    """Chunks of one file share its title, and naming it says nothing about one of them."""
    question = "Where was the director of The Zone born?"
    chunks = [Segment(id=str(n), title="Denys Roy", text=f"Denys Roy wrote page {n}.") for n in range(3)]
    shared = rate_documents(question, [*PAGES[:1], *chunks], Bm25Scorer())
    alone = rate_documents(question, [*PAGES[:1], *chunks[:1]], Bm25Scorer())
    assert shared[1] == shared[2] == shared[3] < 1 < alone[1]


@pytest.mark.parametrize("title", ["Annual Report Contoso", "Annual Report Contoso page {}"])
def test_titles_that_are_alike_cost_no_more_each(title: str) -> None:
    """Twice the chunks of one file cost at most three times as much."""

    def chunks(count: int) -> list[Segment]:
        titles = [title.format(n) for n in range(count)]
        return [
            Segment(id=str(n), title=named, text=f"{named} says {n} {count}")
            for n, named in enumerate(titles)
        ]

    work = lambda segments: rate_documents("What does Contoso say?", segments, Bm25Scorer())  # noqa: E731
    found = growth(work, chunks, short=1200, times=2, most=3)
    assert found.linear, found


def test_the_second_page_is_kept_by_its_sentence() -> None:
    """The sentence that answers on the page another page leads to beats all other sentences of both."""
    ratings = rate_sentences(QUESTION, PAGES, Bm25Scorer())
    documents = rate_documents(QUESTION, PAGES, Bm25Scorer())
    assert documents[0] > documents[2] < documents[1]
    assert ratings[1][1] > max(ratings[1][0], ratings[0][1], *ratings[2])
