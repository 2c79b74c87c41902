"""Dates in a question: what was said on the day, in the month or year it names is likelier meant.

Days are often told of later ("yesterday I ..."), so the two weeks that follow count too, less and less. Dates
are read as 2023-05-08, 8 May 2023, May 8, May 2023, in May, in 2023; month names are English. A month alone
must follow a word such as "in": April may be a person.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

__all__ = ["Dates", "closeness", "dates_in"]

_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()
_MONTH = (
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_DAY = r"(?<![\d.,:])\d{1,2}(?:st|nd|rd|th)?(?![\d:%]|[.,]\d)"
_YEAR = r"(?<![\d.,:$€£-])(?:19|20)\d\d(?![\d:%-]|[.,]\d)"
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?(?!\d)")
_SPOKEN = re.compile(
    rf"(?:({_DAY})(?:\s+of)?\s+)?(?:\b(in|on|of|during|since|by|until|before|after|early|late|last)\s+)?"
    rf"\b({_MONTH})\b\.?(?:\s+({_DAY}))?(?:,?\s+({_YEAR}))?",
    re.IGNORECASE,
)
_ALONE = re.compile(_YEAR)
_MOST_MONTHS, _MOST_DAYS = 12, 31
_SOON = timedelta(days=15)
"""Time after a date in which it counts less and less."""
_SAYS_DAY, _SAYS_MONTH, _SAYS_YEAR = 1.0, 0.65, 0.15
"""What a day, a month and a year say about what lies in them."""


@dataclass(frozen=True, slots=True)
class Dates:
    """A day, a month or a year; without a year any year's."""

    year: int | None
    month: int | None = None
    day: int | None = None

    def near(self, moment: date) -> float:
        """Returns how near a moment is, 1 = on the day."""
        years = [self.year] if self.year else [moment.year, moment.year - 1]
        return max([self._near(moment, year) for year in years])

    def _near(self, moment: date, year: int) -> float:
        try:
            start = date(year, self.month or 1, self.day or 1)
            if self.day:
                says, end = _SAYS_DAY, start
            elif self.month:
                says, end = _SAYS_MONTH, (start + timedelta(days=31)).replace(day=1) - timedelta(days=1)
            else:
                return _SAYS_YEAR * (moment.year == year)
        except (ValueError, OverflowError):  # 30 February, and the ends of the calendar
            return 0.0
        since = moment - end if moment > end else timedelta()
        return says * max(0.0, 1 - since / _SOON) if moment >= start else 0.0


def dates_in(query: str) -> list[Dates]:
    """Returns the dates a question names.

    Example:
        >>> dates_in("What did Ann do on 8 May 2023, and in June?")
        [Dates(year=2023, month=5, day=8), Dates(year=None, month=6, day=None)]
        >>> dates_in("What may April say about the march?")
        []
    """
    found = [Dates(int(m[1]), int(m[2]), int(m[3]) if m[3] else None) for m in _ISO.finditer(query)]
    rest = _ISO.sub(" ", query)
    for before, word, name, after, year in _SPOKEN.findall(rest):
        number = re.sub(r"\D", "", before or after)
        if number or year or (word and name[0].isupper()):
            month = _MONTHS.index(name[:3].lower()) + 1
            found.append(Dates(int(year) if year else None, month, int(number) if number else None))
    named = {dates.year for dates in found}
    found += [Dates(int(year)) for year in _ALONE.findall(rest) if int(year) not in named]
    return [
        one
        for one in dict.fromkeys(found)
        if (one.month or 1) <= _MOST_MONTHS and (one.day or 1) <= _MOST_DAYS
    ]


def closeness(query: str, moments: Sequence[datetime | None]) -> list[float]:
    """Returns for each moment how near it is to a date the question names, 0 to 1; all 0 when it names none.

    Example:
        >>> closeness("Where was he on May 8?", [datetime(2023, 5, 8, 9), datetime(2023, 5, 23), None])
        [1.0, 0.0, 0.0]
    """
    dates = dates_in(query) if any(moments) else []
    days = {moment.date() for moment in moments if moment and dates}
    known = {day: max([one.near(day) for one in dates]) for day in days}
    return [known[moment.date()] if moment and dates else 0.0 for moment in moments]
