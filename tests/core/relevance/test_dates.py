"""Dates in questions: which are read, which words only look like one, and which turns they bring."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, fit_documents
from rankbudget.relevance.bm25 import Bm25Scorer
from rankbudget.relevance.dates import Dates, closeness, dates_in
from rankbudget.relevance.turns import TurnScorer


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("What was Sam doing on December 4, 2023?", [Dates(2023, 12, 4)]),
        ("What did Nate cook on 9 November, 2022?", [Dates(2022, 11, 9)]),
        ("on the 5th of June", [Dates(None, 6, 5)]),
        ("since Sept. 3", [Dates(None, 9, 3)]),
        ("between 2023-05-08 and 2023-06", [Dates(2023, 5, 8), Dates(2023, 6)]),
        ("in August 2023, or in late May", [Dates(2023, 8), Dates(None, 5)]),
        ("the june 2022 trip", [Dates(2022, 6)]),
        ("Which cities did Dave see in 2023?", [Dates(2023)]),
    ],
)
def test_dates_are_read(query: str, expected: list[Dates]) -> None:
    """Days, months and years are read in the forms people write them."""
    assert dates_in(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        "May I ask?",
        "in may ways",
        "What did April and June say?",
        "marching in Mayfair",
        "2023-13-01",
        "on May 32",
        "2.2023",
        "$2000",
        "",
        "version 3.5",
    ],
)
def test_words_that_only_look_like_dates(query: str) -> None:
    """Verbs, people, prices, versions and impossible days are no dates."""
    assert [dates for dates in dates_in(query) if dates.month != 6] == []  # "and June" may be either


def test_the_day_counts_most_then_the_month_then_the_year() -> None:
    """The day itself says most, days soon after less and less, a month less than a day, a year least, and before the date nothing."""
    day = Dates(2023, 12, 20)
    assert day.near(date(2023, 12, 20)) == 1
    assert 1 > day.near(date(2023, 12, 22)) > day.near(date(2024, 1, 3)) > 0
    assert day.near(date(2024, 1, 4)) == day.near(date(2023, 12, 19)) == 0
    month = Dates(2023, 12)
    inside = {month.near(date(2023, 12, n)) for n in (1, 31)}
    assert len(inside) == 1
    assert 1 > inside.pop() > month.near(date(2024, 1, 14)) > month.near(date(2024, 1, 15)) == 0
    assert Dates(2023).near(date(2023, 7, 1)) > Dates(2023).near(date(2024, 1, 1)) == 0
    assert Dates(None, 12, 30).near(date(2024, 1, 2)) > 0, "a day of any year, told of in the next"
    assert Dates(2023, 2, 30).near(date(2023, 3, 1)) == 0


@given(
    st.builds(Dates, st.none() | st.integers(1, 9999), st.integers(1, 12), st.none() | st.integers(1, 31)),
    st.dates(),
)
def test_nearness_is_a_share(dates: Dates, moment: date) -> None:
    """Any day compares with any date, the first and the last of the calendar too."""
    assert 0 <= dates.near(moment) <= 1


@given(
    st.text(max_size=60)
    | st.lists(
        st.sampled_from(("May", "5", "2023", "of", "on", ",", "in", "31st", "sept.", "-", "12")), max_size=8
    ).map(" ".join)
)
def test_any_question_is_read(query: str) -> None:
    """No text breaks the reading, and nothing is found twice."""
    found = dates_in(query)
    assert len(set(found)) == len(found)


def test_moments_without_a_date_are_far() -> None:
    """Undated texts are near to nothing; zones do not matter."""
    moment = datetime(2023, 5, 8, 23, tzinfo=timezone(timedelta(hours=5)))
    assert closeness("on 8 May 2023", [moment, None]) == [1.0, 0.0]
    assert closeness("on 8 May 2023", [None, None]) == [0.0, 0.0]
    assert closeness("when?", [moment]) == [0.0]


def test_a_named_day_brings_its_turns() -> None:
    """Asked about a day, `fit_documents` keeps what was said then, among turns that all fit the words."""
    turns = [
        Segment(
            id=str(n),
            role="user",
            text=f"I had lunch with {name} today.",
            created_at=datetime(2023, 5, 1, tzinfo=timezone.utc) + timedelta(days=30 * n),
        )
        for n, name in enumerate(("Ann", "Bo", "Cy", "Di", "Ed", "Flo"))
    ]
    scores = TurnScorer(Bm25Scorer()).score("With whom was lunch on May 31?", turns)
    assert scores.index(max(scores)) == 1
    assert (
        "Cy" in fit_documents(turns, max_tokens=10, query="With whom was lunch at the end of June 2023?").text
    )
