"""How many applications the laws are checked on: one place, chosen by hypothesis profile."""

from __future__ import annotations

from hypothesis import settings

__all__ = ["DRAWS", "draws"]

DRAWS = {"smoke": (4, 2), "fast": (20, 10), "dev": (60, 20), "ci": (200, 50)}
"""Draws for each sync and each async entry point, by the name of the hypothesis profile; any other name draws as "dev"."""

LEAST = 10
"""Draws of each case of a law that is parametrized: 183 cases have 1,830 together."""


def draws(*, asynchronous: bool = False, cases: int = 1) -> settings:
    """Returns settings under which every run draws the same applications.

    Parametrized `cases` of one law share its draws; each has at least 10 of them, or all where there are fewer.

    Example:
        >>> draws(asynchronous=True).max_examples <= draws().max_examples
        True
    """
    sync, others = DRAWS.get(settings.get_current_profile_name(), DRAWS["dev"])
    most = others if asynchronous else sync
    return settings(
        max_examples=max(most // cases, min(most, LEAST)), deadline=None, database=None, derandomize=True
    )
