"""The limits of one prompt: how large the window is, what the answer needs, who gets which share, who is cut last.

`TokenBudget` is plain immutable data. It counts nothing and cuts nothing; `allocation.py` turns it into grants.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .validation import (
    DEFAULT_RATIOS,
    DEFAULT_RESERVE,
    LEAST_MESSAGE_CAP,
    NO_CAP,
    FrozenDict,
    check_choice,
    check_count,
    check_mapping,
    check_number,
    check_ratios,
    contradictions,
    parts_of,
    shown,
)
from ..errors import BudgetConfigError, BudgetExceededError
from .five_blocks import five_block_sizes

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["DEFAULT_RANKS", "Preset", "Surplus", "TokenBudget"]

Surplus = Literal["waterfall", "borrow", "keep"]
"""Where unused tokens go: down the ranks, to any hungry block, or nowhere."""
Preset = Literal["chat", "rag"]
"""What is cut first: knowledge ("chat"), or history because the facts answer the question ("rag")."""

DEFAULT_RANKS: Mapping[str, int] = FrozenDict(
    {
        "system": 1,
        "query": 1,
        "project": 2,
        "task": 3,
        "memory": 4,
        "history": 5,
        "examples": 6,
        "knowledge": 7,
    }
)
_RAG_RANKS = FrozenDict({**DEFAULT_RANKS, "history": 7, "knowledge": 5})
_UNKNOWN_RANK = 7
_TOKENS_OR_SHARE = "tokens above 1, or a share from 0 to 1"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """Immutable limits for one prompt; one budget may serve all users, threads and frameworks.

    Usage:
        ====================================================  ==============================================================
        TokenBudget()                                         8,192 tokens: 30 % for the answer, memory to history 3 : 4
        TokenBudget(context_window=32768, reserve=4096)       4,096 tokens for the answer
        TokenBudget(ratios={"history": .5, "knowledge": .2})  half for history, a fifth for documents, the reserve's .3 stays
        TokenBudget(reserve=.2, ratios={"history": .8})       ratios and reserve together must be 1 (0.95 to 1.05)
        TokenBudget(sizes={"project": 1000})                  a fixed number of tokens instead of a share
        TokenBudget(ranks={"examples": 2})                    examples are cut nearly last (1 = cut last)
        TokenBudget(preset="rag")                             history is cut before the documents
        TokenBudget(surplus="borrow")                         whoever is hungry takes what others leave
        TokenBudget(safety=0.02)                              2 % of the window stays empty (tokens if above 1)
        TokenBudget.for_model("gpt-4o")                       window and largest answer of a known model
        TokenBudget.five_blocks("gpt-4")                      fixed sizes for system, project, task, history, knowledge
        TokenBudget.from_file("budget.yaml", profile="nova")  system defaults with a profile's overrides
        TokenBudget.from_file("nova.yaml", defaults="s.yaml") a profile's own file over the system's
        budget.replace(reserve=1000)                          the same budget with one thing changed
        ====================================================  ==============================================================

    Args:
        context_window: tokens the model can read and write together.
        reserve: kept for the answer: tokens if above 1, else a share (0-1) of the window without the system prompt.
        ratios: shares (0-1) of the room by block name. A block without one draws from the "memory" share in rank order.
        sizes: fixed tokens by block name, instead of a share. "system" is then a ceiling, "query" what is kept for the question.
        ranks: importance by block name, 1 = cut last; others keep `DEFAULT_RANKS`, unknown names are cut with the knowledge.
        surplus: where unused tokens go.
        safety: kept empty because counts may be too low: tokens if above 1, else a share of the window; None is the counter's own band.
        max_system_ratio: largest share of the window for the system prompt; None allows any.
        min_exchanges: question-and-answer pairs of the history that stay when anything of it stays.
        message_cap: tokens a single message may be capped to when those pairs do not fit, from 200; None never caps.
        model: the model's name, for its tokenizer.
        max_output: the longest answer in tokens the model can give; caps a reserve given as a share.
        preset: "rag" swaps the ranks of history and knowledge.

    Example:
        >>> TokenBudget(context_window=8192, reserve=2000, safety=0).available
        6192
        >>> budget = TokenBudget(context_window=32768)
        >>> budget.reserve_tokens(300), budget.room(fixed=300)
        (9740, 22728)
        >>> TokenBudget(ratios={"memory": .5, "history": .6})
        Traceback (most recent call last):
        ...
        rankbudget.errors.BudgetConfigError: ratios and reserve sum to 1.4 (memory 0.5 + history 0.6 + reserve 0.3), allowed: 0.95 to 1.05
    """

    context_window: int = 8192
    reserve: float = DEFAULT_RESERVE
    ratios: Mapping[str, float] = field(default_factory=lambda: DEFAULT_RATIOS)
    sizes: Mapping[str, int] = field(default_factory=FrozenDict)
    ranks: Mapping[str, int] = field(default_factory=FrozenDict)
    surplus: Surplus = "waterfall"
    safety: float | None = None
    max_system_ratio: float | None = 0.25
    min_exchanges: int = 3
    message_cap: int | None = 1000
    model: str | None = None
    max_output: int | None = None
    preset: Preset | None = None

    def __post_init__(self) -> None:
        given: Any = self  # what a caller passes may have any type until it is checked
        problems: list[str] = []
        ratios = check_ratios(given, problems)
        plain: dict[str, Any] = {
            "context_window": check_count("context_window", given.context_window, problems, low=1),
            "reserve": check_number(
                "reserve", ratios.pop("reserve", given.reserve), problems, allowed=_TOKENS_OR_SHARE
            ),
            "ratios": FrozenDict(ratios),
            "sizes": FrozenDict(
                {
                    n: check_count(f"size of {shown(n)}", v, problems)
                    for n, v in check_mapping("sizes", given.sizes, problems)
                }
            ),
            "ranks": FrozenDict(
                {
                    n: check_count(f"rank of {shown(n)}", v, problems, low=1)
                    for n, v in check_mapping("ranks", given.ranks, problems)
                }
            ),
            "min_exchanges": check_count("min_exchanges", given.min_exchanges, problems),
        }
        if given.safety is not None:
            plain["safety"] = check_number("safety", given.safety, problems, allowed=_TOKENS_OR_SHARE)
        if given.max_system_ratio is not None:
            share = check_number(
                "max_system_ratio",
                given.max_system_ratio,
                problems,
                high=1,
                above=True,
                allowed="a share above 0 to 1, or None",
            )
            plain["max_system_ratio"] = share
        if given.message_cap is not None:
            plain["message_cap"] = check_count(
                "message_cap", given.message_cap, problems, low=LEAST_MESSAGE_CAP, instead=NO_CAP
            )
        if given.max_output is not None:
            plain["max_output"] = check_count("max_output", given.max_output, problems, low=1)
        check_choice("surplus", given.surplus, problems, ("waterfall", "borrow", "keep"))
        check_choice("preset", given.preset, problems, (None, "chat", "rag"))
        if given.model is not None and not isinstance(given.model, str):
            problems.append(
                f"model is {shown(given.model)}, allowed: a model's name; give objects to a counter"
            )
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        problems = problems or contradictions(self)
        if problems:
            raise BudgetConfigError.of(problems)

    # ---- making one -------------------------------------------------------------------------------------------------------------
    @classmethod
    def for_model(
        cls, model: Any, *, default: int | None = None, base_url: str | None = None, **fields: Any
    ) -> TokenBudget:
        """Returns a budget with the context window and the largest answer of a known model.

        Args:
            model: a model's name, or a host's model object that knows its own window.
            default: the window to take when the model is unknown; without it an unknown model is an error.
            base_url: an Ollama, LM Studio or vLLM server that runs the model; it is asked first.
            fields: any other field of the budget.

        Raises:
            CounterUnavailableError: when the window is unknown and there is no `default`.
        """
        from .context_windows import context_window_of, max_output_of  # the table is only needed here

        if "context_window" not in fields:
            fields["context_window"] = context_window_of(model, default=default, base_url=base_url)
        if "max_output" not in fields:
            fields["max_output"] = max_output_of(model)
        fields.setdefault(
            "model",
            model
            if isinstance(model, str)
            else getattr(model, "model_name", None) or getattr(model, "model", None),
        )
        return cls(**fields)

    @classmethod
    def five_blocks(cls, model: str = "gpt-4", **fields: Any) -> TokenBudget:
        """Returns the fixed sizes of the five-block form for a window of 4K, 8K or 128K; what is unused flows down the ranks.

        A model whose window is unknown gets the 8K table.

        Example:
            >>> budget = TokenBudget.five_blocks("gpt-4")
            >>> budget.blocks_total, budget.grand_total
            (5000, 8192)
        """
        sizes = five_block_sizes(model)
        plain = {
            "context_window": sizes.pop("window"),
            "reserve": sizes.pop("reserve"),
            "safety": sizes.pop("safety"),
        }
        return cls(
            **{**plain, "ratios": {}, "sizes": sizes, "surplus": "waterfall", "model": model, **fields}
        )

    @classmethod
    def from_file(
        cls,
        path: str | PathLike[str],
        profile: str | None = None,
        *,
        defaults: str | PathLike[str] | None = None,
    ) -> TokenBudget:
        """Returns the budget of a YAML file: system defaults under `llm`, overrides under `preferred_llm` or a named profile.

        What a level says replaces what the levels before it said of the same thing, in whichever spelling: `reserve` and a "reserve" among the
        ratios, a block's size and its ratio (which the other ratios then share).

        Args:
            path: the file.
            profile: a name under `profiles` or `characters`, or at the top of the file.
            defaults: another file whose `llm` section is taken first, where system and profile have a file each.

        Raises:
            BudgetConfigError: with file, key, what was seen and what is allowed.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     system, nova = Path(folder, "system.yaml"), Path(folder, "nova.yaml")
            ...     _ = system.write_text("llm: {context_window: 32768, budget_ratios: {memory: .3, history: .4, reserve: .3}}")
            ...     _ = nova.write_text("preferred_llm: {reserve: 2000}")
            ...     budget = TokenBudget.from_file(nova, defaults=system)
            >>> budget.context_window, budget.reserve, dict(budget.ratios)
            (32768, 2000, {'memory': 0.3, 'history': 0.4})
        """
        from .yaml_profiles import load_budget  # YAML is only needed here

        return load_budget(path, profile, defaults=defaults)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenBudget:
        """Returns the budget that `to_dict` wrote.

        Example:
            >>> TokenBudget.from_dict({"context_window": 4096, "reserve": 500}).available
            3596
        """
        read: Any = data
        if not isinstance(read, Mapping):
            msg = f"a budget is {shown(read)}, allowed: a mapping of its fields"
            raise BudgetConfigError(msg)
        names = [f.name for f in dataclasses.fields(cls)]
        unknown = [key for key in data if key not in names]
        if unknown:
            msg = f"a budget has no field {', '.join(map(shown, unknown))}; allowed: {', '.join(names)}"
            raise BudgetConfigError(msg)
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Returns the budget as plain data that survives JSON."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}

    def replace(self, **fields: Any) -> TokenBudget:
        """Returns the same budget with some fields changed.

        Example:
            >>> TokenBudget(context_window=8192, reserve=2000).replace(reserve=1000).available
            7192
        """
        return TokenBudget.from_dict({**self.to_dict(), **fields})

    # ---- asking it --------------------------------------------------------------------------------------------------------------
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
        """Tokens of all fixed sizes with question, reserve and safety; what is left of the window is shared by ratios and surplus."""
        return sum(self.sizes.values()) + self.reserve_tokens() + self.safety_tokens()

    def reserve_tokens(self, system_tokens: int = 0) -> int:
        """Returns the tokens kept for the answer beside a system prompt of `system_tokens`."""
        if self.reserve > 1:
            return int(self.reserve)
        share = max(0, self.context_window - system_tokens) * parts_of(self.reserve) // parts_of(1)
        return share if self.max_output is None else min(share, self.max_output)

    def safety_tokens(self, *, system_tokens: int = 0, band: float = 0.0) -> int:
        """Returns the tokens kept empty for a counter that may be too low by the share `band`.

        Example:
            >>> TokenBudget(context_window=1000, reserve=100).safety_tokens(band=0.5)
            300
        """
        if self.safety is None:
            prompt = self.context_window - self.reserve_tokens(system_tokens)
            return prompt - prompt * parts_of(1) // (parts_of(1) + parts_of(band))
        return (
            int(self.safety)
            if self.safety > 1
            else self.context_window * parts_of(self.safety) // parts_of(1)
        )

    def limit(self, *, system_tokens: int = 0, band: float = 0.0) -> int:
        """Returns the largest prompt: window - reserve - safety."""
        return (
            self.context_window
            - self.reserve_tokens(system_tokens)
            - self.safety_tokens(system_tokens=system_tokens, band=band)
        )

    def room(
        self,
        *,
        fixed: int = 0,
        system_tokens: int | None = None,
        safety: int | None = None,
        band: float = 0.0,
    ) -> int:
        """Returns what the blocks may share: window - reserve - safety - `fixed`.

        Args:
            fixed: tokens that always stay: system prompt, tools, question, framing.
            system_tokens: how many of them are the system prompt; None takes all.
            safety: tokens kept empty; None asks `safety_tokens`.
            band: by what share the counter may be too low.

        Raises:
            BudgetExceededError: when what always stays does not fit.
        """
        system = fixed if system_tokens is None else system_tokens
        reserve = self.reserve_tokens(system)
        safety = self.safety_tokens(system_tokens=system, band=band) if safety is None else safety
        limit = self.context_window - reserve - safety
        if fixed > limit:
            msg = (
                f"what always stays needs {fixed:,} tokens ({system:,} of them the system prompt), allowed: {limit:,} "
                f"(window {self.context_window:,} - reserve {reserve:,} - safety {safety:,}); "
                "shorten the system prompt, tools or question, lower the reserve, or take a model with a larger window"
            )
            raise BudgetExceededError(
                msg,
                limit=limit, needed=fixed, blocks={"system": system, "other": fixed - system},
            )  # fmt: skip
        return limit - fixed

    def check_system(self, system_tokens: int) -> None:
        """Raises BudgetExceededError when the system prompt is larger than its size or `max_system_ratio` allow."""
        limits = []
        if "system" in self.sizes:
            limits.append(
                (self.sizes["system"], f"its size of {self.sizes['system']:,} tokens", "sizes['system']")
            )
        if self.max_system_ratio is not None:
            most = self.context_window * parts_of(self.max_system_ratio) // parts_of(1)
            limits.append(
                (
                    most,
                    f"{most:,} tokens, {self.max_system_ratio:.0%} of the window of {self.context_window:,}",
                    "max_system_ratio",
                )
            )
        for most, words, setting in sorted(limits):
            if system_tokens > most:
                msg = f"the system prompt has {system_tokens:,} tokens, allowed: {words}; shorten it or raise {setting}"
                raise BudgetExceededError(
                    msg,
                    limit=most, needed=system_tokens, blocks={"system": system_tokens},
                )  # fmt: skip

    def rank_of(self, block: str) -> int:
        """Returns the rank of a block, 1 = cut last.

        Example:
            >>> TokenBudget().rank_of("history") < TokenBudget().rank_of("knowledge")
            True
        """
        known = _RAG_RANKS if self.preset == "rag" else DEFAULT_RANKS
        return self.ranks.get(block, known.get(block, _UNKNOWN_RANK))

    def share_of(self, block: str) -> float:
        """Returns the share (0-1) of the room that is a block's own; 0 when it draws from the memory share or has a size.

        Example:
            >>> TokenBudget(ratios={"memory": .35, "history": .35}).share_of("history")
            0.5
        """
        total = sum(self.ratios.values())
        return self.ratios.get(block, 0.0) / total if total else 0.0

    # ---- as a field of a pydantic model ------------------------------------------------------------------------------------------
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # asked only by pydantic itself

        return core_schema.no_info_before_validator_function(
            lambda value: cls.from_dict(value) if isinstance(value, Mapping) else value,
            core_schema.is_instance_schema(cls),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda budget: budget.to_dict()),
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {
            "type": "object",
            "title": "TokenBudget",
            "properties": {f.name: {} for f in dataclasses.fields(cls)},
            "additionalProperties": False,
        }
