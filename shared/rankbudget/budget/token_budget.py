"""The limits of one prompt: plain immutable data, which `allocation.py` turns into grants."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal

from ..errors import (
    BudgetConfigError,
    CounterUnavailableError,
    check_count,
    check_options,
    named_fields,
    named_only,
    refuse,
    shown,
)
from .arithmetic import BudgetArithmetic
from .validation import DEFAULT_RATIOS, DEFAULT_RESERVE, FrozenDict, checked_fields, ratio_problems

Surplus = Literal["waterfall", "borrow", "keep"]
"""Where unused tokens go: down the ranks, to any hungry block, or nowhere."""
Preset = Literal["chat", "rag"]
"""What is cut first: knowledge ("chat"), or history ("rag")."""
_DEFAULT_WINDOW = 8192


@named_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBudget(BudgetArithmetic):
    """Immutable limits for one prompt; one budget may serve all users, threads and frameworks.

    Without a window and a model the window is 8,192 tokens.

    Args:
        context_window: tokens the model can read and write together, by default those of `model`.
        reserve: kept for the answer: tokens if above 1, else a share (0-1) of the window without the system
            prompt. The default grows to the answer that the requests of a model beside the budget ask for.
        ratios: shares (0-1) of the room by block; "documents" is another name of "knowledge". A block without
            one draws from the "memory" share; with an empty mapping, all blocks without a size share equally.
        sizes: fixed tokens by block, instead of a share. "system" is a ceiling, "query" is kept for the
            question.
        ranks: importance by block, 1 = cut last; others keep `DEFAULT_RANKS`, unknown names are cut with
            knowledge.
        surplus: where unused tokens go.
        safety: kept empty because counts may be too low: tokens if above 1, else a share of the window; None
            takes the counter's own band.
        keep_band: the counter's band is kept empty, too, where it is more than `safety`.
        max_system_ratio: largest share of the window for the system prompt; None allows any.
        min_exchanges: question-and-answer pairs of the history that stay when anything of it stays; a
            question that waits for its answer is one of them.
        last_turns: the newest turns of the history that may stay, from 1, the current question's among them;
            None keeps as many as fit.
        message_cap: a number from 200 lets long texts of the last exchanges be shortened when these do not
            fit, and of older steps and exchanges before these are dropped; None never shortens.
        shorten_question: cuts a question that does not fit to what is free; otherwise it raises.
        model: the model's name, for its tokenizer, and for window and answer where no window is given.
        max_output: the longest answer in tokens the model can give; caps a reserve given as a share.
        preset: "rag" swaps the ranks of history and knowledge and grants knowledge, and blocks of other
            names, all they want first.

    Raises:
        BudgetConfigError: values that cannot work, all of them in one message.
        CounterUnavailableError: no window is given, and that of `model` is unknown.

    Example:
        >>> TokenBudget(context_window=8192, reserve=2000, safety=0).available
        6192
        >>> budget = TokenBudget(context_window=32768)
        >>> budget.reserve_tokens(300), budget.room(fixed=300)
        (9740, 22728)
    """

    context_window: int = None  # type: ignore[assignment]  # `__post_init__` makes it a number
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
        window: int | None = self.context_window
        if window is None:
            self._take_window()
        problems: list[str] = []
        for name, value in checked_fields(self, problems).items():
            object.__setattr__(self, name, value)
        problems = problems or self._contradictions()
        refuse(problems)

    def _take_window(self) -> None:
        """Sets the window that was not given, and the model's largest answer."""
        found: dict[str, Any] = {"context_window": _DEFAULT_WINDOW}
        if isinstance(self.model, str):
            from .context_windows import context_window_of, max_output_of  # loads the tables of models

            found["context_window"] = context_window_of(self.model)
            if self.max_output is None:
                found["max_output"] = max_output_of(self.model)
        for name, value in found.items():
            object.__setattr__(self, name, value)

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
    def of_blocks(
        cls,
        *,
        system: int = 0,
        project: int = 0,
        task: int = 0,
        history: int = 0,
        knowledge: int = 0,
        user_query: int = 0,
        response: int = 0,
        safety_buffer: int = 0,
        **fields: Any,
    ) -> TokenBudget:
        """Returns the budget whose blocks have fixed sizes in tokens; its window is their sum.

        Args:
            system: the most tokens of the system prompt; 0 sets no size, as for each block.
            project: tokens of the project block.
            task: of the task block.
            history: of the conversation.
            knowledge: of the retrieved texts.
            user_query: kept for the question.
            response: kept for the answer.
            safety_buffer: kept empty because counts may be too low; the counter's band is kept, too.
            fields: any other field of the budget, as a larger `context_window`, or `sizes` of other blocks.

        Raises:
            BudgetConfigError: a size is no whole number from 0, or there is nothing to fit into.

        Example:
            >>> budget = TokenBudget.of_blocks(system=500, history=1000, user_query=300, response=700)
            >>> budget.context_window, budget.blocks_total, budget.available
            (2500, 1500, 1800)
        """
        named = {"system": system, "project": project, "task": task, "history": history}
        named |= {"knowledge": knowledge, "query": user_query}
        given = {**named, "response": response, "safety_buffer": safety_buffer, **fields.pop("sizes", {})}
        problems: list[str] = []
        tokens = {name: check_count(name, size, problems) for name, size in given.items()}
        refuse(problems)
        plain: dict[str, Any] = {
            "context_window": sum(tokens.values()),
            "reserve": tokens.pop("response"),
            "safety": tokens.pop("safety_buffer"),
            "keep_band": True,
            "ratios": {},
        }
        if system:  # its size is its limit, in a small window, too
            plain["max_system_ratio"] = None
        return cls(**{**plain, "sizes": {name: size for name, size in tokens.items() if size}, **fields})

    @classmethod
    def five_blocks(cls, model: str = "gpt-4", **fields: Any) -> TokenBudget:
        """Returns the fixed sizes of the five-block form for a window of 4K, 8K or 128K; `fields` win.

        A model whose window is unknown gets the 8K table. Where counts of the model are estimates, their band
        is kept free and the blocks that are cut first shrink. `fields` are as in `of_blocks`.

        Example:
            >>> budget = TokenBudget.five_blocks("gpt-4")
            >>> budget.blocks_total, budget.grand_total
            (5000, 8192)
        """
        from .context_windows import five_block_sizes  # loads the tables of models

        return cls.of_blocks(**{**five_block_sizes(model), "model": model, **fields})

    @classmethod
    @named_only
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
