"""A question is read without its courtesy and its slips of spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.relevance.embedding import common_words
from rankbudget.relevance.question import plain_question
from rankbudget.relevance.words import stem
from tests.growth import growth

TEXTS = ("The battery of the yellow scooter lasts a year.", "Refunds take thirty days after delivery.")
COMMON = frozenset(common_words())
WORDS = ("battery", "yellow", "scooter", "refunds", "thirty", "delivery")


@st.composite
def slips(draw: st.DrawFn) -> tuple[str, str]:
    """Draws a word of the texts, and the same with one letter behind the first lost, added, wrong or swapped."""
    word = draw(st.sampled_from(WORDS))
    at = draw(st.integers(1, len(word) - 2))
    letter = draw(st.sampled_from("aeioux"))
    changed = draw(
        st.sampled_from(
            [
                word[:at] + word[at + 1 :],
                word[:at] + letter + word[at:],
                word[:at] + letter + word[at + 1 :],
                word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            ]
        )
    )
    return word, changed


@given(slips())
def test_a_word_with_one_slip_is_read_as_the_texts_spell_it(slip: tuple[str, str]) -> None:
    """Whatever letter is lost, added, wrong or swapped, unless that gives another word or the same stem."""
    word, changed = slip
    known = stem(changed) in {stem(known) for known in WORDS} or changed in COMMON
    assert plain_question(f"What about {changed}?", TEXTS) == f"What about {changed if known else word}?"


@pytest.mark.parametrize(
    "query", ["What is a yell?", "Is the battle year-long?", "Who has 12 refunds?", "", "北京?"]
)
def test_other_words_stay(query: str) -> None:
    """A word that is not one slip away from one of the texts, a short one, and one they hold stay as they are."""
    assert plain_question(query, TEXTS) == query


@pytest.mark.parametrize(
    "frame",
    [
        "Hello! Could you please tell me: {} Thank you very much in advance!",
        "Hi there, I was wondering whether you could help me with this. {} Thanks a lot!",
        "Sorry to bother you, but I would really like to know: {}",
        "{} Thank you",
    ],
)
@pytest.mark.parametrize(
    "query", ["How long do refunds take", "How long do refunds take?", "Is the battery new?"]
)
def test_courtesy_goes(frame: str, query: str) -> None:
    """A polite frame leaves the question that is in it."""
    assert plain_question(frame.format(query), TEXTS) == query


@pytest.mark.parametrize("query", ["Hello!", "Thank you very much!", "Could you help me?"])
def test_a_question_of_courtesy_alone_stays(query: str) -> None:
    """Where nothing else is asked, nothing is taken away."""
    assert plain_question(query, TEXTS) == query


def test_a_misspelt_polite_question_keeps_what_answers_it() -> None:
    """`fit_documents` keeps the same text for the question as it was meant."""
    segments = [Segment(id=str(n), text=text) for n, text in enumerate(TEXTS)]
    query = "Hello! Could you tell me, how long do refudns take after delivry? Thank you so much!"
    assert fit_documents(segments, max_tokens=9, query=query).text == TEXTS[1]


@pytest.mark.parametrize("piece", ["thanks ", " ", ".", "a, ", "xq", "xqvz "])
def test_a_long_question_costs_little(piece: str) -> None:
    """Questions of any length and form are read in linear time."""
    found = growth(
        lambda query: plain_question(query, TEXTS), lambda n: piece * (n // len(piece)) + "?", 4_000, 10, 20
    )
    assert found.linear, found
