"""Dates in a question: what was said on the day, in the month or year it names, or soon after, is likelier meant.

Days are often told of later ("yesterday I ..."), so the two weeks that follow count too, less and less. Dates are read as 2023-05-08, 8 May 2023, May 8,
May 2023, in May, in 2023; month names are English. A month by itself must follow a word such as "in": April may be a person.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

__all__ = ["Dates", "closeness", "dates_in"]

_MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_MONTH = "|".join([f"{name[:3]}(?:{name[3:]})?" for name in _MONTHS]) + "|sept"
_DAY = r"(?<![\d.,:])\d{1,2}(?:st|nd|rd|th)?(?![\d:%]|[.,]\d)"
_YEAR = r"(?<![\d.,:$€£-])(?:19|20)\d\d(?![\d:%-]|[.,]\d)"
_ISO = re.compile(r"(?<!\d)((?:19|20)\d\d)-(\d\d)(?:-(\d\d))?(?!\d)")
_SPOKEN = re.compile(
    rf"(?:({_DAY})(?:\s+of)?\s+)?(?:\b(in|of|on|during|since|by|until|before|after|from|to|and|or|between|early|late|mid|last|this|next)[\s-]+)?"
    rf"\b({_MONTH})\b\.?(?:,?\s+({_DAY})(?!\s+(?:am|pm)\b))?(?:,?\s+({_YEAR}))?",
    re.IGNORECASE,
)
_ALONE = re.compile(_YEAR)
_SOON = 14
"""Days after a date that still count."""
_IN_MONTH, _AFTER_MONTH, _IN_YEAR = 0.65, 0.35, 0.15
"""What a month, the days after it and a year say, where the day itself says 1."""


@dataclass(frozen=True, slots=True)
class Dates:
    """A day, a month or a year; without a year any year's."""

    year: int | None
    month: int | None = None
    day: int | None = None

    def near(self, moment: date) -> float:
        """Returns how near a moment is, 1 = on the day."""
        if self.month is None:
            return _IN_YEAR if moment.year == self.year else 0.0
        since = min(
            [
                self._since(moment, year)
                for year in ([self.year] if self.year else [moment.year, moment.year - 1])
            ]
        )
        if self.day is not None:
            return 1 - since / (_SOON + 1) if since <= _SOON else 0.0
        if since == 0:
            return _IN_MONTH
        return _AFTER_MONTH if since <= _SOON else 0.0

    def _since(self, moment: date, year: int) -> int:
        """Returns the days since the day, or since the end of the month and 0 inside it; very many before it."""
        month = self.month or 1
        try:
            start = date(year, month, self.day or 1)
            end = start if self.day else date(year + month // 12, month % 12 + 1, 1)
        except ValueError:  # 30 February
            return 1 << 30
        if moment < start:
            return 1 << 30
        return max(0, (moment - end).days + (0 if self.day else 1))


def dates_in(query: str) -> list[Dates]:
    """Returns the dates a question names.

    Example:
        >>> dates_in("What did Ann do on 8 May 2023, and in June?")
        [Dates(year=2023, month=5, day=8), Dates(year=None, month=6, day=None)]
        >>> dates_in("What may April say about the march?")
        []
    """
    found = [_checked(int(m[1]), int(m[2]), int(m[3]) if m[3] else None) for m in _ISO.finditer(query)]
    rest = _ISO.sub(" ", query)
    for match in _SPOKEN.finditer(rest):
        before, word, name, after, year = match.groups()
        number = before or after
        if (number or year or word) and (name[0].isupper() or number or year):
            day = int(re.sub(r"\D", "", number)) if number else None
            month = next(i for i, known in enumerate(_MONTHS, start=1) if known.startswith(name[:3].lower()))
            found.append(_checked(int(year) if year else None, month, day))
    named = {dates.year for dates in found if dates is not None}
    found += [Dates(int(year)) for year in _ALONE.findall(rest) if int(year) not in named]
    return [dates for dates in dict.fromkeys(found) if dates is not None]


def closeness(query: str, moments: Sequence[datetime | None]) -> list[float]:
    """Returns for each moment how near it is to a date the question names, 0 to 1; all 0 when it names none.

    Example:
        >>> closeness("Where was he on May 8?", [datetime(2023, 5, 8, 9), datetime(2023, 5, 23), None])
        [1.0, 0.0, 0.0]
    """
    dates = dates_in(query) if any(moments) else []
    if not dates:
        return [0.0] * len(moments)
    days = [moment.date() if moment else None for moment in moments]
    known = {day: max([one.near(day) for one in dates]) for day in set(days) if day is not None}
    return [known[day] if day is not None else 0.0 for day in days]


def _checked(year: int | None, month: int, day: int | None) -> Dates | None:
    return Dates(year, month, day) if 1 <= month <= len(_MONTHS) and (day is None or 1 <= day <= 31) else None  # noqa: PLR2004
