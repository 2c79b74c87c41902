"""What a chain passes along, fitted: a list of messages, or the slots of a dict together.

Translation only: slots become blocks, the core fits them, pieces become the host's objects again, and the chain's own prompt is what is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, ChatPromptTemplate, MessagesPlaceholder
from pydantic import BaseModel

from rankbudget import Assembler, TokenBudget, afit_messages, fit_messages
from rankbudget._drivers import Call, Steps
from rankbudget.errors import BudgetConfigError, MessageError
from rankbudget.fitting.protocol import Fit
from rankbudget.messages.measure import Measure
from rankbudget.report.result import FitResult
from rankbudget.segment import Block, Segment

from ._codec import CODEC, NeedsConversionError
from ._convert import as_messages, document_text, example_text, from_segment, to_segments
from ._limits import Limits

__all__ = ["Slots", "Trimmed", "fit_list_steps", "fit_slots_steps", "render_prompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed(FitResult):
    """What a trimmer kept, and the report that says why.

    Args:
        value: what the chain passes on: messages, or the dict with its slots fitted.
    """

    value: Any = None

    def event(self) -> dict[str, Any]:
        """Returns the payload of the custom event: the figures, and the report itself."""
        report = self.report
        return {
            "total_tokens": report.total_tokens,
            "limit": report.limit,
            "warnings": list(report.warnings),
            "report": report,
        }


@dataclass(frozen=True, kw_only=True)
class Slots:
    """Which keys hold what, and how the chain renders them.

    Args:
        keys: block name -> key.
        question: the key of the question.
        prompt: renders the prompt later in the chain.
        document_prompt: renders one document.
        example_prompt: renders one example.
    """

    keys: Mapping[str, str]
    question: str = "question"
    prompt: Any = None
    document_prompt: BasePromptTemplate[str] | None = None
    example_prompt: Any = None
    cut: Any = "fill"
    strict: bool = False
    summarizer: Any = None
    scorer: Any = None
    min_exchanges: int | None = None
    session: Any = None

    def text_of(self, block: str) -> Callable[[Any], str] | None:
        """Returns how an item of a block reads in the prompt; a document is its content, which is what may be cut."""
        if block == "examples" and self.example_prompt is not None:
            return lambda item: example_text(item, self.example_prompt)
        return None

    def shown(self, block: str, segment: Segment, text: str) -> str:
        """Returns how a text that stands for a segment reads in the prompt."""
        if block != "knowledge" or not isinstance(segment.source, Document):
            return text
        return document_text(
            from_segment(segment, None if text == segment.text else text), self.document_prompt
        )


class _Rendered:
    """Counts messages as the prompt will hold them."""

    def __init__(self, inner: Measure, render: Callable[[list[Any]], list[Any]], *, adds_up: bool) -> None:
        self._inner = inner
        self._render = render
        self.additive = inner.additive and adds_up
        self.overhead = inner.total(render([]))
        self.group = inner.group

    def total(self, messages: Sequence[Any]) -> int:
        return self._inner.total(self._render(list(messages)))


def fit_list_steps(value: Any, slots: Slots, limits: Limits, report_key: str | None) -> Steps[Trimmed]:
    """Fits a list of messages, or what converts to one."""
    given = value if isinstance(value, list) else as_messages(value)
    try:
        result = yield _list_call(given, slots, limits)
    except NeedsConversionError:
        result = yield _list_call(as_messages(given), slots, limits)
    kept = list(result.messages)
    out: Any = kept if report_key is None else {slots.keys["history"]: kept, report_key: result.report}
    return Trimmed(value=out, messages=kept, segments=result.segments, text=result.text, report=result.report)


def fit_slots_steps(
    value: Mapping[str, Any], slots: Slots, limits: Limits, report_key: str | None
) -> Steps[Trimmed]:
    """Fits the slots of a dict together; other keys pass."""
    found = {block: key for block, key in slots.keys.items() if value.get(key) is not None}
    question = _question(value.get(slots.question), slots)
    if not found and question is None and slots.prompt is None:
        allowed = ", ".join([*slots.keys.values(), slots.question])
        msg = f"the input has the keys {', '.join(map(str, value)) or '(none)'}; allowed are one or more of {allowed}, or name yours with history_key= etc."
        raise BudgetConfigError(msg)
    blocks = [_block(block, value[key], slots) for block, key in found.items()]
    render = None
    if slots.prompt is not None:
        prompt = slots.prompt

        def render(kept: Mapping[str, Fit], history: list[Any]) -> list[Any]:
            return render_prompt(prompt, {**value, **_values(value, found, kept, history)})

        fixed = render({}, [])
        system = [
            m for m, role in zip(fixed, CODEC.roles(fixed), strict=True) if role in {"system", "developer"}
        ]
        blocks = [Block(name="system", messages=system), *blocks] if system else blocks
    options: dict[str, Any] = {
        "counter": limits.counter,
        "codec": CODEC,
        "measure": limits.measure(),
        "scorer": slots.scorer,
        "summarizer": slots.summarizer,
        "cut": slots.cut,
        "strict": slots.strict,
        "session": slots.session,
    }
    plain = slots.document_prompt is None
    budget = _budget(slots, limits)
    assembler = Assembler(budget, shown=None if plain else slots.shown, **options)
    given = {"query": question, "render": render}
    assembly = yield Call(
        partial(assembler.assemble, blocks, **given), (), partial(assembler.aassemble, blocks, **given)
    )
    out = {**value, **_values(value, found, assembly.kept, assembly.history)}
    if report_key is not None:
        out[report_key] = assembly.report
    segments = tuple(piece.segment for fit in assembly.kept.values() for piece in fit.pieces)
    text = "\n".join(
        [m.text for m in assembly.messages]
    )  # what was counted: as tagged text it would be another prompt
    return Trimmed(
        value=out, messages=assembly.messages, segments=segments, text=text, report=assembly.report
    )


def _budget(slots: Slots, limits: Limits) -> TokenBudget:
    """Returns the budget of the slots; where history is the only one that can ever be filled, nobody else needs a share."""
    whole = limits.whole()
    if set(slots.keys) != {"history"}:
        return whole
    reserve = whole.reserve_tokens()
    return whole.replace(ratios={"history": 1.0}, reserve=reserve if reserve > 1 else 0)


def render_prompt(prompt: Any, values: Any) -> list[BaseMessage]:
    """Returns the messages a prompt makes of its values; a template is formatted without callbacks, any other chain is run."""
    try:
        if isinstance(prompt, BasePromptTemplate):
            if not isinstance(values, Mapping):
                values = {prompt.input_variables[0]: values}
            made: Any = prompt.format_prompt(**values)
        else:
            made = prompt.invoke(values, config={"callbacks": []})
    except (KeyError, IndexError) as error:
        known = ", ".join(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        msg = f"the prompt cannot be rendered: {error} is missing; the input has {known}. Pass the missing variable, or bind it with prompt.partial(..)"
        raise BudgetConfigError(msg) from error
    return made.to_messages() if isinstance(made, PromptValue) else as_messages(made)


def _list_call(messages: list[Any], slots: Slots, limits: Limits) -> Call:
    measure = limits.measure()
    if slots.prompt is not None:
        measure = _Rendered(measure, partial(render_prompt, slots.prompt), adds_up=_adds_up(slots.prompt))
    arguments: dict[str, Any] = {
        "max_tokens": limits.ceiling(messages, measure),
        "counter": limits.counter,
        "codec": CODEC,
        "measure": measure,
        "cut": slots.cut,
        "summarizer": slots.summarizer,
        "strict": slots.strict,
        "session": slots.session,
    }
    exchanges = (
        slots.min_exchanges
        if slots.min_exchanges is not None
        else limits.budget.min_exchanges
        if limits.budget
        else None
    )
    if exchanges is not None:
        arguments["min_exchanges"] = exchanges
    if limits.budget is not None:
        arguments["message_cap"] = limits.budget.message_cap
    return Call(
        partial(fit_messages, messages, **arguments), (), partial(afit_messages, messages, **arguments)
    )


def _adds_up(prompt: Any) -> bool:
    """Says whether a prompt holds the messages as they are, so that their counts may be added to its own."""
    return isinstance(prompt, ChatPromptTemplate) and any(
        isinstance(part, MessagesPlaceholder) and part.variable_name in prompt.input_variables
        for part in prompt.messages
    )


def _question(given: Any, slots: Slots) -> Any:
    """Returns the question as a text or one message; an empty one is none. Several are only counted where a prompt shows them."""
    if given is None or given in ("", []):
        return None
    if isinstance(given, (str, BaseMessage)):
        return given
    if isinstance(given, list) and given and isinstance(given[0], dict) and "type" in given[0]:
        return HumanMessage(given)  # content blocks
    messages = as_messages(given)
    if len(messages) > 1 and slots.prompt is None:
        msg = (
            f"{slots.question} holds {len(messages)} messages, allowed: a text or one message; put the earlier ones into {slots.keys['history']}, "
            "or give prompt=, which counts all that it shows"
        )
        raise BudgetConfigError(msg)
    return messages[-1] if messages else None


def _block(name: str, value: Any, slots: Slots) -> Block:
    if name == "history":
        return Block(name=name, messages=_thread(value))
    one = isinstance(value, (str, Mapping, BaseModel)) or not isinstance(value, Iterable)
    try:
        segments = tuple(to_segments([value] if one else value, prefix=name, text_of=slots.text_of(name)))
    except MessageError as error:
        msg = f"the input's {slots.keys[name]!r} cannot be read: {error}"
        raise MessageError(msg) from error
    whole = any(
        isinstance(segment.source, Mapping) for segment in segments
    )  # nobody knows which field of a dict could be shortened
    return Block(name=name, segments=segments, strategy="best_first" if whole else None)


def _thread(value: Any) -> list[Any]:
    messages = value if isinstance(value, list) else as_messages(value)
    try:
        CODEC.roles(messages)
    except NeedsConversionError:
        return as_messages(messages)
    return messages


def _values(
    value: Mapping[str, Any], found: Mapping[str, str], kept: Mapping[str, Fit], history: list[Any]
) -> dict[str, Any]:
    """Returns the fitted slots under their keys, in the form they came in."""
    values: dict[str, Any] = {}
    for block, key in found.items():
        if block == "history":
            values[key] = list(history)
            continue
        pieces = kept[block].pieces if block in kept else ()
        items = [from_segment(p.segment, None if p.whole else p.rendition.text) for p in pieces]
        values[key] = (items[0] if items else "") if isinstance(value[key], str) else items
    return values
