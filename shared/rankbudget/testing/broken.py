"""The names of the laws, and the error that says which one a result breaks."""

from __future__ import annotations

__all__ = ["LAWS", "LawBroken"]

LAWS = {
    1: "limit",
    2: "pairing",
    3: "system_first",
    4: "question",
    5: "order",
    6: "atomic",
    7: "repeatable",
    8: "nothing_lost",
    9: "stable_prefix",
    10: "delimited",
    11: "scopes",
}


class LawBroken(AssertionError):  # noqa: N818 - an assertion, named for what it says
    """Says which law a result breaks.

    Example:
        >>> str(LawBroken(1, "12 tokens > 9"))
        'law 1 (limit): 12 tokens > 9'
    """

    def __init__(self, law: int, message: str) -> None:
        super().__init__(f"law {law} ({LAWS[law]}): {message}")
        self.law = law
