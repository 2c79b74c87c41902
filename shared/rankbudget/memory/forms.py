"""How a host's messages are written into rows and made of them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..counting.protocol import TokenCounter
from ..counting.resolve import COUNTERS
from ..errors import BudgetConfigError
from ..messages.codec import Codec, DictCodec
from ..messages.measure import CodecMeasure, Measure
from .memory import check_storable
from .plain import digest_of_text, read, written, written_own

NUMBERED = "rankbudget-message-"
"""Begins the id of a stored message that its host gave none; the number of its row follows."""


def _same(message: Any) -> Any:
    return message


def _neutral(neutral: Mapping[str, Any], _: str | None) -> Any:
    return neutral


@dataclass(frozen=True, slots=True, kw_only=True)
class HostForm:
    """The messages of one host.

    Rules:
        1. `restore(plain(m))` equals `m`, where `plain` gives what JSON can hold, and bytes. Dates and
           decimal numbers come back as texts; other objects that no model reads do not come back.
        2. `make` gives a message of this host from the neutral form that any other host's codec made, with
           its texts, calls, results, media and thinking.

    Args:
        name: the host.
        codec: reads its messages.
        plain: a message as plain data.
        restore: plain data as the message again.
        make: a neutral dict and an id, or None, as a message.
        reader: the codec by which a prompt's messages are counted, where it is another one.
    """

    name: str
    codec: Codec
    plain: Callable[[Any], Any] = _same
    restore: Callable[[Any], Any] = _same
    make: Callable[[Mapping[str, Any], str | None], Any] = _neutral
    reader: Codec | None = None

    def row(self, message: Any) -> dict[str, Any]:
        """Returns a message as a row, without its place; raises BudgetConfigError for an id that is none."""
        role = self.codec.role(message)  # raises MessageError for what is no message
        name, problems = self.codec.message_id(message) or "", list[str]()
        check_storable("the id of a message", name, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        neutral = self.codec.to_dict(message)
        text, own = written(neutral), self.plain(message)
        return {
            "role": role,
            "name": name or None,
            "neutral": text,
            "form": self.name,
            "host": None if own is neutral else written_own(own),
            "digest": digest_of_text(text),
            "counts": "{}",
        }

    def message(self, row: Any) -> Any:
        """Returns the message of a row; another host's is made anew from its neutral form."""
        if row.form != self.name:
            return self.make(read(row.neutral), row.name)
        return self.restore(read(row.neutral if row.host is None else row.host))

    def measure(self, counter: TokenCounter) -> Measure:
        """Returns what counts its messages with a counter."""
        return CodecMeasure(self.reader or self.codec, counter)

    def counted_by(self, measure: Measure) -> bool:
        """Returns whether a measure counts this host's messages as rows say."""
        codec, own = getattr(measure, "codec", None), self.reader or self.codec
        same = codec is own or type(codec) is type(own) is DictCodec
        return isinstance(measure, CodecMeasure) and same


DICTS = HostForm(name="dicts", codec=DictCodec())
"""OpenAI-style dicts, and those of other providers."""


@dataclass(slots=True)
class Counts:
    """Which counters' tokens are stored, and by what name.

    A counter that `counter_for` finds by its name has that name; others have the one they are `given` by.
    """

    given: Mapping[str, TokenCounter] = field(default_factory=dict)

    def key(self, form: HostForm, counter: TokenCounter) -> str | None:
        """Returns the name in a row of a counter's tokens; None where none is safe to store."""
        own = next((name for name, one in self.given.items() if one is counter), None)
        if own is None and COUNTERS.get(counter.name) is counter:
            own = counter.name
        return None if own is None else f"{form.name}/{own}/{__version__}"

    def of(self, form: HostForm, messages: Sequence[Any]) -> list[dict[str, int]]:
        """Returns the tokens of new messages by the counters that were given."""
        found: list[dict[str, int]] = [{} for _ in messages]
        for counter in self.given.values():
            key, measure = self.key(form, counter), form.measure(counter)
            for counts, message in zip(found, messages, strict=True):
                counts[str(key)] = measure.group([message])
        return found
