"""Counters that take whole requests only, as a provider's counting API: what fits stays all the same."""

from __future__ import annotations

import pytest

from rankbudget import fit_messages
from rankbudget.testing import ListCounter

COUNTER = ListCounter()


@pytest.mark.parametrize("words", [1, 5, 12])
@pytest.mark.parametrize("exchanges", [3, 12, 30])
def test_no_more_stays_free_than_the_next_exchange_needs(exchanges: int, words: int) -> None:
    """Where the counts do not add up, one exchange more would exceed the limit, whatever that is."""
    said = [{"role": role, "content": "word " * words} for role in ("user", "assistant")]
    thread = said * exchanges
    for limit in range(COUNTER.count_messages(said), COUNTER.count_messages(thread) + 1):
        kept = fit_messages(thread, max_tokens=limit, counter=COUNTER).messages
        assert COUNTER.count_messages(kept) <= limit
        assert kept == thread or COUNTER.count_messages([*said, *kept]) > limit
