"""The limits of one prompt: plain immutable data, which `allocation.py` turns into grants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

from ..errors import (
    BudgetConfigError,
    BudgetExceededError,
    CounterUnavailableError,
    check_options,
    named_fields,
    named_options,
    shown,
)
from ..segment import block_named
from .validation import DEFAULT_RATIOS, DEFAULT_RESERVE, PARTS, FrozenDict, checked_fields, ratio_problems

Surplus = Literal["waterfall", "borrow", "keep"]
"""Where unused tokens go: down the ranks, to any hungry block, or nowhere."""
Preset = Literal["chat", "rag"]
"""What is cut first: knowledge ("chat"), or history ("rag")."""

DEFAULT_RANKS: Mapping[str, int] = FrozenDict(
    system=1, query=1, preferences=2, project=2, task=3, memory=4, history=5, examples=6, knowledge=7
)
_RAG_RANKS = FrozenDict({**DEFAULT_RANKS, "history": 7, "knowledge": 5})
_UNKNOWN_RANK = 7


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget:
    """Immutable limits for one prompt; one budget may serve all users, threads and frameworks.

    Args:
        context_window: tokens the model can read and write together.
        reserve: kept for the answer: tokens if above 1, else a share (0-1) of the window without the system
            prompt.
        ratios: shares (0-1) of the room by block; "documents" is another name of "knowledge". A block without
            one draws from the "memory" share in rank order; with an empty mapping, all blocks without a size
            share equally.
        sizes: fixed tokens by block, instead of a share. "system" is a ceiling, "query" is kept for the
            question.
        ranks: importance by block, 1 = cut last; others keep `DEFAULT_RANKS`, unknown names are cut with
            knowledge.
        surplus: where unused tokens go.
        safety: kept empty because counts may be too low: tokens if above 1, else a share of the window; None
            takes the counter's own band.
        keep_band: the counter's band is kept empty, too, where it is more than `safety`.
        max_system_ratio: largest share of the window for the system prompt; None allows any.
        min_exchanges: question-and-answer pairs of the history that stay when anything of it stays.
        last_turns: the newest turns of the history that may stay, from 1, the current question's among them;
            None keeps as many as fit.
        message_cap: a number from 200 lets long texts of the last exchanges be shortened when these do not
            fit, and of older steps and exchanges before these are dropped; None never shortens.
        shorten_question: cuts a question that does not fit to what is free; otherwise it raises.
        model: the model's name, for its tokenizer.
        max_output: the longest answer in tokens the model can give; caps a reserve given as a share.
        preset: "rag" swaps the ranks of history and knowledge and grants knowledge all it wants first.

    Raises:
        BudgetConfigError: values that cannot work, all of them in one message.

    Example:
        >>> TokenBudget(context_window=8192, reserve=2000, safety=0).available
        6192
        >>> budget = TokenBudget(context_window=32768)
        >>> budget.reserve_tokens(300), budget.room(fixed=300)
        (9740, 22728)
    """

    context_window: int = 8192
    reserve: float = DEFAULT_RESERVE
    ratios: Mapping[str, float] = field(default_factory=lambda: DEFAULT_RATIOS)
    sizes: Mapping[str, int] = field(default_factory=FrozenDict)
    ranks: Mapping[str, int] = field(default_factory=FrozenDict)
    surplus: Surplus = "waterfall"
    safety: float | None = None
    keep_band: bool = False
    max_system_ratio: float | None = 0.25
    min_exchanges: int = 3
    last_turns: int | None = None
    message_cap: int | None = 1000
    shorten_question: bool = False
    model: str | None = None
    max_output: int | None = None
    preset: Preset | None = None

    def __post_init__(self) -> None:
        problems: list[str] = []
        for name, value in checked_fields(self, problems).items():
            object.__setattr__(self, name, value)
        problems = problems or self._contradictions()
        if problems:
            raise BudgetConfigError.of(problems)

    def _contradictions(self) -> list[str]:
        """Returns what is wrong between fields that are each allowed."""
        problems = ratio_problems(self.ratios, self.sizes, self.reserve)
        window, reserve = self.context_window, f"{self.reserve:g}"
        if self.reserve == 1 or self.reserve >= window:
            problems.append(f"reserve must leave room for a prompt in a window of {window:,} (got {reserve})")
        elif self.safety is not None and self.limit() <= 0:
            said = f"(got {reserve} and {self.safety:g})"
            problems.append(f"reserve and safety must leave room in a window of {window:,} {said}")
        elif self.sizes and self.grand_total > window:
            said = f"(got {self.grand_total:,})"
            problems.append(f"sizes, reserve and safety must be at most the window, {window:,} {said}")
        return problems

    @classmethod
    def for_model(
        cls, model: Any, *, default: int | None = None, base_url: str | None = None, **fields: Any
    ) -> TokenBudget:
        """Returns a budget with the context window and the largest answer of a known model.

        Args:
            model: a model's name, or a host's model object that knows its own window.
            default: see `context_window_of`, as `base_url`.
            base_url: an Ollama, LM Studio or vLLM server that runs the model; it is asked first.
            fields: any other field of the budget.

        Raises:
            CounterUnavailableError: the window is unknown and there is no `default`.

        Example:
            >>> TokenBudget.for_model("gpt-4o").context_window
            128000
        """
        from .context_windows import context_window_of, max_output_of, name_of  # loads the tables of models

        if "context_window" not in fields:
            fields["context_window"] = context_window_of(model, default=default, base_url=base_url)
        return cls(**{"max_output": max_output_of(model), "model": name_of(model), **fields})

    @classmethod
    def five_blocks(cls, model: str = "gpt-4", **fields: Any) -> TokenBudget:
        """Returns the fixed sizes of the five-block form for a window of 4K, 8K or 128K; `fields` win.

        A model whose window is unknown gets the 8K table. Where counts of the model are estimates, their band
        is kept free and the blocks that are cut first shrink.

        Example:
            >>> budget = TokenBudget.five_blocks("gpt-4")
            >>> budget.blocks_total, budget.grand_total
            (5000, 8192)
        """
        from .context_windows import five_block_sizes  # loads the tables of models

        sizes = five_block_sizes(model)
        plain = {name: sizes.pop(name) for name in ("context_window", "reserve", "safety")}
        return cls(**{**plain, "keep_band": True, "ratios": {}, "sizes": sizes, "model": model, **fields})

    @classmethod
    @named_options
    def from_file(
        cls,
        path: str | PathLike[str],
        profile: str | None = None,
        *,
        defaults: str | PathLike[str] | None = None,
    ) -> TokenBudget:
        """Returns the budget of a YAML file: `llm` holds defaults, `preferred_llm` or a profile overrides.

        Args:
            path: the file.
            profile: a name under `profiles` or `characters`, or at the top of the file.
            defaults: another file whose `llm` section is read first.

        Raises:
            BudgetConfigError: with file, key, what was seen and what is allowed.

        Example:
            >>> from pathlib import Path
            >>> from tempfile import TemporaryDirectory
            >>> with TemporaryDirectory() as folder:
            ...     _ = Path(folder, "b.yaml").write_text("llm: {context_window: 32768, reserve: 2000}")
            ...     TokenBudget.from_file(f"{folder}/b.yaml").available
            30768
        """
        from .yaml_profiles import read_profile  # loads YAML

        values = read_profile(path, profile, defaults=defaults, fields=_names(cls))
        where = f"{path}" + (f" (profile {profile!r})" if profile else "")
        try:
            if values.get("context_window") is not None:
                return cls(**values)
            values.pop("context_window", None)
            return cls.for_model(values.pop("model", None), **values)
        except (BudgetConfigError, CounterUnavailableError) as error:
            msg = f"{where}: {error}"
            raise BudgetConfigError(msg) from error

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TokenBudget:
        """Returns the budget that `to_dict` wrote as `data`.

        Raises:
            BudgetConfigError: unknown fields, or values that cannot work.

        Example:
            >>> TokenBudget.from_dict({"context_window": 4096, "reserve": 500}).available
            3596
        """
        read: Any = data
        if not isinstance(read, Mapping):
            msg = f"budget must be a mapping of its fields (got {shown(read)})."
            raise BudgetConfigError(msg)
        check_options("TokenBudget", data, _names(cls))
        return cls(**data)

    def to_dict(self) -> dict[str, Any]:
        """Returns the budget as plain data that survives JSON."""
        values = {name: getattr(self, name) for name in _names(TokenBudget)}
        return {name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()}

    def replace(self, **fields: Any) -> TokenBudget:
        """Returns the same budget with some `fields` changed.

        Example:
            >>> TokenBudget(context_window=8192, reserve=2000).replace(reserve=1000).available
            7192
        """
        return TokenBudget.from_dict({**self.to_dict(), **fields})

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

    def reserve_tokens(self, system_tokens: int = 0) -> int:
        """Returns the tokens kept for the answer beside a system prompt of `system_tokens`."""
        return self.split(system_tokens=system_tokens)[0]

    def safety_tokens(self, *, system_tokens: int = 0, band: float = 0.0) -> int:
        """Returns the tokens kept empty beside `system_tokens`: a counter may be too low by the share `band`.

        Example:
            >>> TokenBudget(context_window=1000, reserve=100).safety_tokens(band=0.5)
            300
        """
        return self.split(system_tokens=system_tokens, band=band)[1]

    def limit(self, *, system_tokens: int = 0, band: float = 0.0, ceiling: int | None = None) -> int:
        """Returns the largest prompt: window - reserve - safety.

        Args:
            system_tokens: of the system prompt.
            band: by what share the counter may be too low.
            ceiling: most tokens of the prompt beside the budget, from which the band is kept free, too.

        Example:
            >>> TokenBudget(context_window=1000, reserve=100).limit(band=0.5, ceiling=300)
            200
        """
        return self.split(system_tokens=system_tokens, band=band, ceiling=ceiling)[2]

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

    def ceiling_for(self, limit: int, *, band: float) -> int:
        """Returns the `ceiling` that makes `limit` the largest prompt for a counter with this `band`.

        Example:
            >>> TokenBudget(context_window=1000, reserve=100).ceiling_for(200, band=0.5)
            300
        """
        return -(-limit * self._with_band(band) // PARTS)

    def _with_band(self, band: float) -> int:
        return PARTS + (round(band * PARTS) if self.safety is None or self.keep_band else 0)

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

    def rank_of(self, block: str) -> int:
        """Returns the rank of `block`, 1 = cut last.

        Example:
            >>> TokenBudget().rank_of("history") < TokenBudget().rank_of("knowledge")
            True
        """
        known = _RAG_RANKS if self.preset == "rag" else DEFAULT_RANKS
        name = block_named(block)
        return self.ranks.get(name, known.get(name, _UNKNOWN_RANK))

    def share_of(self, block: str) -> float:
        """Returns the share (0-1) of the room that is the own of `block`; 0 when it has none or a size.

        Example:
            >>> TokenBudget(ratios={"memory": .35, "history": .35}).share_of("history")
            0.5
        """
        total = sum(self.ratios.values())
        return self.ratios.get(block_named(block), 0.0) / total if total else 0.0

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema  # only pydantic calls this

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
            "properties": {name: {} for name in _names(cls)},
            "additionalProperties": False,
        }


def _names(cls: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(cls)]
