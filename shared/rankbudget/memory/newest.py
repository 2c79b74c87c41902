"""The newest messages of a stored conversation, as far as they fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..conversation.stored import AGAIN
from ..conversation.timeline import Timeline
from ..counting.protocol import TokenCounter
from ..errors import StoreConflictError
from .forms import HostForm
from .reading import ThreadMessages


def newest_of(stored: ThreadMessages, form: HostForm, left: int, counter: TokenCounter) -> Iterator[Any]:
    """Yields messages from the newest on within `left` tokens; those before the first that is too large."""
    for more in reversed(range(AGAIN)):
        shown = False
        try:
            for message in _fitting(stored, form, left, counter):
                shown = True
                yield message
        except StoreConflictError:
            if shown or not more:
                raise
            stored = stored.again()
        else:
            return


def _fitting(stored: ThreadMessages, form: HostForm, left: int, counter: TokenCounter) -> Iterator[Any]:
    timeline = Timeline(stored, form.reader or form.codec, stored.measured(form.measure(counter), counter))
    for turn in timeline.turns():
        whole = [turn.units] if turn is not timeline.newest else [[unit] for unit in turn.units]
        for units in reversed(whole):
            left -= timeline.cost(units)
            if left < 0:
                return
            for unit in reversed(units):
                yield from reversed(timeline.read(unit))
