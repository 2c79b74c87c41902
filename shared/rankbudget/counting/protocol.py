"""What a token counter promises.

Rules, each with a test in `rankbudget.testing.CounterConformance`:
    1. `count` is 0 for "" and never negative; it never raises for any str.
    2. `count_many(texts)` equals `[count(t) for t in texts]`.
    3. `truncate(text, n)` counts at most n, is a prefix of the text ("right") or a suffix ("left"), never
       splits a grapheme, and is the text itself when it fits.
    4. When `additive`, `count_messages(m, tools) == overhead(tools) + sum(count_message(x) for x in m)` for
       every m; otherwise `count_message` is an estimate and only `count_messages` is the truth.
    5. When `exact` is False, `why` says why, and the true count is at most `ceil(count * (1 + band))`.
    6. Safe to call from many threads at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

Message = Mapping[str, Any]
"""An OpenAI-style message: role, content (str, None or content blocks), name, tool_calls, tool_call_id."""
Tool = Mapping[str, Any]
"""An OpenAI-style tool: `{"type": "function", "function": {"name": .., "parameters": {..}}}`."""
Side = Literal["right", "left"]


@runtime_checkable
class TokenCounter(Protocol):
    """Measures text, messages and tools as the model will see them.

    Called with what `counter_for` takes, it returns what `counter_for` returns. Type checkers allow no call
    of a protocol: use `counter_for` in checked code.

    Example:
        >>> from rankbudget import counter_for
        >>> TokenCounter("gpt-4o") is counter_for("gpt-4o")
        True
    """

    @property
    def name(self) -> str:
        """What it counts for; `counter_for(counter.name)` finds it again where possible."""

    @property
    def exact(self) -> bool:
        """Whether it knows or estimates."""

    @property
    def why(self) -> str:
        """Where the numbers come from, or why they are estimates."""

    @property
    def band(self) -> float:
        """By what share the count may be too low, 0 when exact."""

    @property
    def additive(self) -> bool:
        """Whether message counts may be added (rule 4)."""

    def count(self, text: str) -> int:
        """Returns the tokens of `text`."""

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens of each of `texts`, in order."""

    def truncate(self, text: str, max_tokens: int, *, side: Side = "right") -> str:
        """Returns the longest start of `text` (`side` "right") or end ("left") within `max_tokens`."""

    def count_message(self, message: Message) -> int:
        """Returns what `message` adds to a request, framing included."""

    def overhead(self, tools: Sequence[Tool] | None = None) -> int:
        """Returns what a request costs before any message: reply priming and the schemas of `tools`."""

    def count_messages(self, messages: Sequence[Message], tools: Sequence[Tool] | None = None) -> int:
        """Returns the tokens of the whole request, `messages` and `tools`, as it will be rendered."""
