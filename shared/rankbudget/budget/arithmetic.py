"""What a budget's fields come to: reserve, safety, the largest prompt, the room, ranks and shares."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..errors import BudgetExceededError, named_options, refuse
from ..segment import block_named, ranked_as
from .validation import PARTS, FrozenDict

DEFAULT_RANKS: Mapping[str, int] = FrozenDict(
    system=1, query=1, preferences=2, project=2, task=3, memory=4, history=5, examples=6, knowledge=7
)
_RAG_RANKS = FrozenDict({**DEFAULT_RANKS, "history": 7, "knowledge": 5})


class BudgetArithmetic:
    """Computes with the fields of a `TokenBudget`, which says what they mean."""

    __slots__ = ()

    context_window: int
    reserve: float
    ratios: Mapping[str, float]
    sizes: Mapping[str, int]
    ranks: Mapping[str, int]
    safety: float | None
    keep_band: bool
    max_system_ratio: float | None
    max_output: int | None
    preset: str | None

    @property
    def available(self) -> int:
        """Tokens for the whole prompt, the system prompt included, when counts are exact."""
        return self.limit()

    @property
    def blocks_total(self) -> int:
        """Tokens of all fixed sizes, the question's apart."""
        return sum(size for name, size in self.sizes.items() if name != "query")

    @property
    def grand_total(self) -> int:
        """Tokens of all fixed sizes with question, reserve and safety."""
        return sum(self.sizes.values()) + self.reserve_tokens() + self.safety_tokens()

    @named_options
    def reserve_tokens(self, system_tokens: int = 0) -> int:
        """Returns the tokens kept for the answer beside a system prompt of `system_tokens`."""
        return self.split(system_tokens=system_tokens)[0]

    @named_options
    def safety_tokens(self, *, system_tokens: int = 0, band: float = 0.0) -> int:
        """Returns the tokens kept empty beside `system_tokens`: a counter may be too low by the share `band`.

        Example:
            >>> from rankbudget import TokenBudget
            >>> TokenBudget(context_window=1000, reserve=100).safety_tokens(band=0.5)
            300
        """
        return self.split(system_tokens=system_tokens, band=band)[1]

    @named_options
    def limit(self, *, system_tokens: int = 0, band: float = 0.0, ceiling: int | None = None) -> int:
        """Returns the largest prompt: window - reserve - safety.

        Args:
            system_tokens: of the system prompt.
            band: by what share the counter may be too low.
            ceiling: most tokens of the prompt beside the budget, from which the band is kept free, too.

        Example:
            >>> from rankbudget import TokenBudget
            >>> TokenBudget(context_window=1000, reserve=100).limit(band=0.5, ceiling=300)
            200
        """
        return self.split(system_tokens=system_tokens, band=band, ceiling=ceiling)[2]

    @named_options
    def split(
        self, *, system_tokens: int = 0, band: float = 0.0, ceiling: int | None = None
    ) -> tuple[int, int, int]:
        """Returns for `system_tokens` and `band` reserve, safety without a `ceiling`, and largest prompt."""
        reserve = int(self.reserve)
        if self.reserve <= 1:
            reserve = max(0, self.context_window - system_tokens) * round(self.reserve * PARTS) // PARTS
            reserve = reserve if self.max_output is None else min(reserve, self.max_output)
        prompt, stays = self.context_window - reserve, 0
        within = self._with_band(band)
        if self.safety is not None:
            share = self.context_window * round(self.safety * PARTS) // PARTS
            stays = int(self.safety) if self.safety > 1 else share
        limit = min(prompt * PARTS // within, prompt - stays)
        most = limit if ceiling is None else min(limit, ceiling * PARTS // within)
        return reserve, prompt - limit, most

    @named_options
    def ceiling_for(self, limit: int, *, band: float) -> int:
        """Returns the `ceiling` that makes `limit` the largest prompt for a counter with this `band`.

        Example:
            >>> from rankbudget import TokenBudget
            >>> TokenBudget(context_window=1000, reserve=100).ceiling_for(200, band=0.5)
            300
        """
        return -(-limit * self._with_band(band) // PARTS)

    def _with_band(self, band: float) -> int:
        if not 0 <= band < math.inf:
            refuse([f"band must be a number from 0 (got {band})"])
        return PARTS + (round(band * PARTS) if self.safety is None or self.keep_band else 0)

    @named_options
    def room(self, *, fixed: int = 0, system_tokens: int | None = None, band: float = 0.0) -> int:
        """Returns what the blocks may share: window - reserve - safety - `fixed`.

        Args:
            fixed: tokens that always stay: system prompt, tools, question, framing.
            system_tokens: how many of them are the system prompt; None takes all.
            band: by what share the counter may be too low.

        Raises:
            BudgetExceededError: when what always stays does not fit.
        """
        system = fixed if system_tokens is None else system_tokens
        limit = self.limit(system_tokens=system, band=band)
        if fixed > limit:
            msg = (
                f"what always stays must have at most {limit:,} tokens of the window of "
                f"{self.context_window:,} (got {fixed:,}, {system:,} of them the system prompt). "
                "Shorten the system prompt, tools or question, lower the reserve, or use a larger window."
            )
            parts = {"system": system, "other": fixed - system}
            raise BudgetExceededError(msg, limit=limit, needed=fixed, blocks=parts)
        return limit - fixed

    @named_options
    def check_system(self, system_tokens: int) -> None:
        """Raises BudgetExceededError when `system_tokens` exceed the system size or `max_system_ratio`."""
        limits = [(self.sizes["system"], "its size", "sizes['system']")] if "system" in self.sizes else []
        if self.max_system_ratio is not None:
            most = self.context_window * round(self.max_system_ratio * PARTS) // PARTS
            words = f"{self.max_system_ratio:.0%} of the window of {self.context_window:,}"
            limits.append((most, words, "max_system_ratio"))
        most, words, setting = min(limits, default=(system_tokens, "", ""))
        if system_tokens > most:
            msg = (
                f"the system prompt must have at most {most:,} tokens, {words} (got {system_tokens:,}). "
                f"Shorten it or raise {setting}."
            )
            blocks = {"system": system_tokens}
            raise BudgetExceededError(msg, limit=most, needed=system_tokens, blocks=blocks)

    @named_options
    def rank_of(self, block: str) -> int:
        """Returns the rank of `block`, 1 = cut last.

        Example:
            >>> from rankbudget import TokenBudget
            >>> TokenBudget().rank_of("history") < TokenBudget().rank_of("knowledge")
            True
        """
        known = _RAG_RANKS if self.preset == "rag" else DEFAULT_RANKS
        name = block_named(block)
        name = name if name in self.ranks else ranked_as(name)
        return self.ranks[name] if name in self.ranks else known[name]

    @named_options
    def share_of(self, block: str) -> float:
        """Returns the share (0-1) of the room that is the own of `block`; 0 when it has none or a size.

        Example:
            >>> from rankbudget import TokenBudget
            >>> TokenBudget(ratios={"memory": .35, "history": .35}).share_of("history")
            0.5
        """
        total = sum(self.ratios.values())
        return self.ratios.get(block_named(block), 0.0) / total if total else 0.0
