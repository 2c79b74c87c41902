"""`FitPrompt`: a function over batches of rows, for Ray, Daft, and the pool of this package."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from ..budget.context_windows import max_output_of
from ..budget.token_budget import TokenBudget
from ..conversation.refusals import refuse_empty_question
from ..conversation.thread import CutMode
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter
from ..counting.tokenizer_counter import TokenizerCounter
from ..errors import (
    BudgetConfigError,
    BudgetError,
    MessageError,
    RowError,
    check_choice,
    did_you_mean,
    misspelt,
    named_options,
    refuse,
    shown,
)
from ..fitting.block import strategy_for
from ..messages.tags import NOTICE
from ..messages.texts import content_text
from ..prompt.assembler import Assembler
from ..prompt.kinds import check_kinds
from ..prompt.request import Plan, Render
from ..prompt.stages import plain_budget
from ..relevance.protocol import Scorer
from ..report.order import in_order
from ..segment import Block, Decision
from .reading import INPUTS, USUAL_INPUTS, PromptParts, asks, names_of, read_row
from .tables import OUTPUTS, REASONS, as_json, in_columns, in_utf8, table_of

_STAYS = frozenset({"system", "query"})
"""Blocks that are always kept, so `kept` does not list them."""
_BEFORE = ("project", "task", "history")
"""Blocks that a prompt has before the others, which are in the order of their ranks."""


class _RowAssembler(Assembler):
    """Makes prompts that are sent; with `by_question`, older messages are those that serve the question."""

    _sent = True

    def __init__(self, budget: TokenBudget, *, by_question: bool, **options: Any) -> None:
        super().__init__(budget, **options)
        self._by_question = by_question

    def _asked(self, blocks: Mapping[str, Block], query: Any, render: Render | None) -> dict[str, Any]:
        """Returns the fields of a request; a question that chooses messages is the last of them."""
        asked = super()._asked(blocks, query, render)
        if not (self._by_question and asked["history"]):
            return asked
        question = asked.get("question")
        own = [] if question is None else [question]
        refuse_empty_question(self.codec, own, "the question")
        messages = [*asked["history"], *own]
        last: Any = next((m for m in reversed(messages) if asks(m)), None)
        text = content_text(self.codec.to_dict(last).get("content")) if last is not None else ""
        return {"history": messages, "asked_last": bool(own) or "asked_last" in asked, "query": text}


class FitPrompt:
    """Fits the prompt of each row into one budget; a bad row gets a typed error and stops nothing.

    It pickles small: it holds settings and names. The tokenizer and the relevance model are loaded at the
    first batch, once in each process.

    Args:
        budget: a `TokenBudget`, its fields as a mapping, or the tokens of a prompt, 1 or more.
        counter: what `counter_for` takes; None takes the budget's model, else o200k_base.
        columns: names of input columns, as {"history": "chat"}. Without it, columns named "system",
            "history", "documents", "question" and "tools" are read; "memory", "examples", "project" and
            "task" only where they are named here. A column that is named here is read as that input only.
        outputs: other names for output columns, as {"messages": "prompt"}.
        on_error: "row" writes the error of a row into its `budget_error`; "raise" raises it.
        cut: see `fit_messages`, as `profile`.
        by_question: older messages of the history are chosen by what the question asks, as with `query` of
            `fit_messages`, instead of by age; needs `cut="fill"`.
        reasons: adds the output "reasons", which says of each id what became of it and why.
        strict: a broken conversation is an error of its row instead of being repaired.
        notice: the sentence before inserted text; None leaves it out.
        scorer: rates documents; it is pickled with the settings.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> fit = FitPrompt(100)
        >>> made = fit({"question": ["Is tea hot?", None], "documents": ['["Tea is hot."]', "[]"]})
        >>> made["prompt_tokens"][0] <= 100, made["kept"][0]
        (True, ['documents-0'])
        >>> made["budget_error"]
        [None, 'RowError: a row must have a question or a history with a user message (got neither).']
    """

    @named_options
    def __init__(
        self,
        budget: TokenBudget | Mapping[str, Any] | int,
        *,
        counter: Any = None,
        columns: Mapping[str, str] | None = None,
        outputs: Mapping[str, str] | None = None,
        on_error: Literal["row", "raise"] = "row",
        cut: CutMode = "fill",
        by_question: bool = False,
        reasons: bool = False,
        strict: bool = False,
        notice: str | None = NOTICE,
        profile: RenderingProfile | str | None = None,
        scorer: Scorer | None = None,
    ) -> None:
        made = (*OUTPUTS, REASONS) if reasons is True else OUTPUTS
        names = {"columns": (columns, INPUTS), "outputs": (outputs, made)}
        _check(on_error, names, by_age=by_question and cut == "stable")
        given = TokenBudget.from_dict(budget) if isinstance(budget, Mapping) else budget
        budget_given = given if isinstance(given, TokenBudget) else plain_budget(given)
        # Each row is a prompt of its own: no later turn profits from a history whose share stays as it is.
        alone = budget_given.surplus == "waterfall"
        self.budget = budget_given.replace(surplus="borrow") if alone else budget_given
        later = sorted(("examples", "knowledge", "memory"), key=self.budget.rank_of)
        self._in_prompt = (*_BEFORE, *later)
        self._has_window = isinstance(given, TokenBudget)
        self._largest = self.budget.max_output or max_output_of(self.budget.model)
        self.counter = counter
        self.columns = dict(columns or {})
        _check_once(self.columns)
        usual = {name: name for name in USUAL_INPUTS if name not in self.columns.values()}
        self._sources = {**usual, **self.columns}
        self.outputs = {name: (outputs or {}).get(name, name) for name in made}
        if len(set(self.outputs.values())) < len(made):
            msg = f"outputs must have different names (got {shown(self.outputs)})."
            raise BudgetConfigError(msg)
        self.on_error = on_error
        self._options: dict[str, Any] = {
            "cut": cut, "by_question": by_question, "strict": strict, "notice": notice, "profile": profile,
            "scorer": scorer,
        }  # fmt: skip
        # Wrong options raise here, not in a worker. A name is looked up there: its tokenizer is large.
        given_object = counter is not None and not isinstance(counter, str)
        _RowAssembler(self.budget, counter=counter if given_object else len, **self._options)
        strategy_for("knowledge", scorer=scorer)
        self._assembler: Assembler | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_assembler": None}

    def __call__(self, batch: Any) -> Any:
        """Returns the batch with the output columns added, its rows in order, and of the same kind.

        Args:
            batch: a dict of lists or numpy arrays, a pyarrow Table or RecordBatch, a pandas DataFrame.

        Raises:
            BudgetConfigError: it is no batch, has none of the columns, or has an output column already.
            RowError: a row cannot be fitted, and `on_error` is "raise".
        """
        return self.fit_batch(batch)

    def fit_batch(self, batch: Any, *, first: int | None = None) -> Any:
        """Returns what a call does; `first` is the number of its first row, for errors, where it is known."""
        table = table_of(batch)
        used = self.input_columns(table.names)
        cells = zip(*[table.values(column) for column in used.values()], strict=True)
        of_what = " of its batch" if first is None else ""
        rows = (dict(zip(used, row, strict=True)) for row in cells)
        named = ((f"row {i}{of_what}", row) for i, row in enumerate(rows, start=first or 0))
        fitted = list(self.fit_rows(named))
        return table.with_columns(in_columns(fitted, self.outputs))

    def row(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the outputs for one row; here `messages` is a list of dicts, not its JSON.

        Args:
            row: values by the names of the columns.

        Example:
            >>> made = FitPrompt(50).row({"question": "Is tea hot?"})
            >>> made["messages"], made["prompt_tokens"]
            ([{'role': 'user', 'content': 'Is tea hot?'}], 11)
        """
        check_kinds({"row": row})
        self.input_columns(row, may_miss=True)
        (made,) = self.fit_rows([("the row", self.inputs_of(row))])
        return {self.outputs[output]: value for output, value in made.items()}

    def fit_rows(self, rows: Iterable[tuple[str, Mapping[str, Any] | RowError]]) -> Iterator[dict[str, Any]]:
        """Yields the outputs of rows; each is given with its name, as values by input, or is unreadable."""
        assembler = self._assembler = self._assembler or _RowAssembler(
            self.budget, counter=self.counter, **self._options
        )
        for name, row in rows:
            try:
                if isinstance(row, RowError):
                    raise row  # noqa: TRY301 - it becomes an output like every other error
                parts = read_row(row)
                plan = assembler.assemble(parts.blocks, query=parts.question, tools=parts.tools)
                _check_template(assembler.counter, plan, parts.tools)
                made = self._outputs(plan, parts)
            except Exception as error:  # whatever a row holds, the next ones are fitted
                told = in_utf8(f"{type(error).__name__}: {' '.join(str(error).split())}")
                if not isinstance(error, BudgetError):
                    told = f"RowError: the row could not be fitted (got {told})."
                if self.on_error == "raise":
                    msg = f"{name}: {told}"
                    raise RowError(msg) from error
                made = {**dict.fromkeys(self.outputs), "budget_error": told}
            yield made

    def inputs_of(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the values that are read of a row, by input."""
        return {name: row[column] for name, column in self._sources.items() if column in row}

    def taken(self, names: Collection[str]) -> list[str]:
        """Returns the output columns that are among the given names."""
        return [column for column in self.outputs.values() if column in names]

    def input_columns(self, names: Collection[str], *, may_miss: bool = False) -> dict[str, str]:
        """Returns the columns that are read, by input; a row of its own `may_miss` one of them.

        Raises:
            BudgetConfigError: a named column is missing, there is none to read, or an output exists already.
        """
        problems = [
            f"columns: {name} must be a column of the batch (got {column!r}){did_you_mean(column, names)}"
            for name, column in self.columns.items()
            if column not in names and (not may_miss or misspelt(column, list(names)))
        ]
        used = {name: column for name, column in self._sources.items() if column in names}
        if not used:
            usual = ", ".join(USUAL_INPUTS)
            seen = shown(sorted(names))
            problems.append(
                f"a batch must have one of the columns {usual} (got {seen}). Set columns= for others"
            )
        if taken := self.taken(names):
            seen = f"{', '.join(map(repr, taken))} already"
            problems.append(
                f"a batch must not have output columns (got {seen}). Rename the outputs with outputs="
            )
        refuse(problems)
        return used

    def _listed(self, plan: Plan, parts: PromptParts) -> list[Decision]:
        """Returns what became of the pieces that outputs name, in the order of the prompt."""
        history = list(parts.blocks.get("history", ()))
        asked = [parts.question] if isinstance(parts.question, Mapping) else []
        names = names_of([*history, *asked])
        places = {("history", name): i for i, name in enumerate(names)}
        found = in_order(_named(plan.report.decisions, parts), self._in_prompt, places)
        found = [one for one in found if one.block not in _STAYS]
        if self._options["by_question"] and history and parts.question and all(map(asks, asked)):
            own = names[-1] if asked else f"history-{len(history)}"
            found.pop(max(i for i, d in enumerate(found) if (d.block, d.segment_id) == ("history", own)))
        return found

    def _outputs(self, plan: Plan, parts: PromptParts) -> dict[str, Any]:
        report = plan.report
        kept: list[str] = []
        shortened: list[str] = []
        dropped: list[str] = []
        reasons: list[dict[str, str]] = []
        for decision in self._listed(plan, parts):
            name = in_utf8(decision.segment_id)
            (dropped if decision.action == "trimmed" else kept).append(name)
            if decision.action not in ("kept", "trimmed"):
                shortened.append(name)
            reasons.append({"id": name, "action": decision.action, "reason": decision.reason})
        if len({*kept, *dropped}) < len(kept) + len(dropped):
            twice = sorted(name for name, times in Counter([*kept, *dropped]).items() if times > 1)
            msg = f"ids of documents, messages and memories of a row must differ (got {twice[0]!r} twice)."
            raise BudgetConfigError(msg)
        free = self.budget.context_window - report.total_tokens - report.safety
        messages = list(plan.messages)
        as_json(messages)  # what JSON cannot hold is an error of this row
        return {
            "messages": messages,
            "prompt_tokens": report.total_tokens,
            "kept": kept,
            "shortened": shortened,
            "dropped": dropped,
            "max_completion_tokens": (free if self._largest is None else min(free, self._largest))
            if self._has_window
            else None,
            "budget_error": None,
            **({REASONS: reasons} if REASONS in self.outputs else {}),
        }


def _check(on_error: Any, names: Mapping[str, tuple[Any, tuple[str, ...]]], *, by_age: bool) -> None:
    """Raises BudgetConfigError that names every option that is not allowed."""
    problems: list[str] = []
    check_choice("on_error", on_error, problems, ("row", "raise"))
    if by_age:
        problems.append('by_question must be False with cut="stable", which cuts by age (got True)')
    for option, (given, allowed) in names.items():
        _check_names(option, given, allowed, problems)
    refuse(problems)


def _named(decisions: Iterable[Decision], parts: PromptParts) -> list[Decision]:
    """Returns decisions with the row's ids of what none may see: reports leave them out for other readers."""
    ids: dict[str, str] = {}
    for block in parts.blocks.values():
        held = block.segments if isinstance(block, Block) else ()
        unseen = [one for one in held if one.scope is not None and not one.scope.visible_to(None)]
        ids |= {f"{block.name}-hidden-{n}": one.id for n, one in enumerate(unseen, start=1)}
    return [
        replace(one, segment_id=ids.get(one.segment_id, one.segment_id)) if ids else one for one in decisions
    ]


def _check_template(counter: TokenCounter, plan: Plan, tools: Sequence[Any] | None) -> None:
    """Refuses messages that the chat template does not render: an engine would stop at them."""
    if isinstance(counter, TokenizerCounter) and (why := counter.refusal(plan.messages, tools)):
        advice = "Give texts in 'content' and calls in 'tool_calls', as OpenAI's, or leave them out."
        msg = f"the chat template must render the messages (got {why}). {advice}"
        raise MessageError(msg)


def _check_once(columns: Mapping[str, str]) -> None:
    """Refuses one column for two inputs: its texts would be in the prompt twice."""
    for name, column in columns.items():
        others = [other for other, one in columns.items() if one == column and other != name]
        if others:
            got = f"{column!r} for {name} and {others[0]}"
            msg = f"columns must name another column for each input (got {got})."
            raise BudgetConfigError(msg)


def _check_names(option: str, given: Any, known: tuple[str, ...], problems: list[str]) -> None:
    if given is None:
        return
    if not isinstance(given, Mapping) or not all(isinstance(v, str) and v for v in given.values()):
        problems.append(f"{option} must be a mapping to names of columns (got {shown(given)})")
        return
    problems += [
        f"{option} must name one of {', '.join(known)} (got {name!r}){did_you_mean(name, known)}"
        for name in given
        if name not in known
    ]
