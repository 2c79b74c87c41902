"""Draws for the properties: how many, and that every run draws the same."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

DRAWS = {"fast": (20, 10), "dev": (100, 25), "ci": (500, 100)}
"""Draws for each sync and each async entry point, by profile."""
PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")


def draws(*, asynchronous: bool = False) -> settings:
    """Returns the settings of one entry point's laws."""
    sync, others = DRAWS.get(PROFILE, DRAWS["dev"])
    return settings(max_examples=others if asynchronous else sync, deadline=None, database=None, derandomize=True)


@pytest.fixture(scope="session")
def profile() -> str:
    """The chosen profile's name."""
    return PROFILE
