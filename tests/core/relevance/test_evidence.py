"""What the ratings of documents and sentences are made of, and which passages stay beside the ones rated high."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.relevance.evidence import rate_documents, rate_sentences
from rankbudget.relevance.lexical import Bm25Scorer
from tests.drawing import draws
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


LISTS = {
    "hashes": lambda i: hashlib.sha256(bytes([i])).hexdigest(),
    "names": lambda i: ("Anna", "Berta", "Clara", "Dieter", "Emil", "Franz")[i % 6],
    "numbers": lambda i: f"SKU{i * 7919 % 100_000:05d}",
    "fruit": lambda i: ("apples", "pears", "plums", "red cherries", "lemons")[i % 5],
    "answers": lambda i: ("Yes.", "No.", "Done!", "OK?")[i % 4],
}


@draws()
@given(
    form=st.sampled_from(sorted(LISTS)),
    size=st.integers(8, 60),
    lines=st.integers(1, 3),
    room=st.integers(100, 300),
)
def test_a_list_of_words_keeps_no_sentence_out(form: str, size: int, lines: int, room: int) -> None:
    """The one text that says what is asked stays beside a list that has no word of the question, and a pasted log."""
    answer = "The alarm pin is 7714."
    log = "\n".join(f"[20:3{i}] user{i}: did anyone look at build 71{i}? it failed again" for i in range(4))
    pasted = [f"[{i}:33] user{i}: did anyone look at build {6213 + i}? it failed again" for i in range(lines)]
    question = "What is my alarm pin? " + "\n".join(pasted)
    texts = [answer, log, "\n".join(map(LISTS[form], range(size)))]
    kept = [segment.text for segment in fit_documents(texts, max_tokens=room, query=question).segments]
    assert answer in kept
