"""What a chain passes along, as one request: a list of messages, or the slots of a dict together.

Translation only: slots become blocks, the core plans, pieces become the host's objects again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate, MessagesPlaceholder
from pydantic import BaseModel, Field, PrivateAttr

from rankbudget import Block, BudgetSession, FitResult, MessageError, Segment, TokenBudget
from rankbudget.adapters import Fit, Limits, Plan, PromptRequest, Steps, plan_steps
from rankbudget.errors import BudgetConfigError

from ._codec import CODEC, NeedsConversionError
from ._convert import as_messages, document_text, example_text, from_segment, to_segments
from ._limits import limits_for
from ._serialize import Settings, plain_fields, travels
from .models import as_summarizer

__all__ = [
    "SlotSettings",
    "Trimmed",
    "asend_report",
    "placeholders_in",
    "plan_of",
    "render_prompt",
    "send_report",
    "system_of",
]

EVENT = "context_budget"
"""The name of the custom event that carries the report to `astream_events` and callback handlers."""
_ALIASES = {"history": "chat_history", "documents": "context", "question": "input"}
"""What LangChain's own chains call the slots; read where the usual key is not in the input."""


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
        figures = {"total_tokens": report.total_tokens, "limit": report.limit}
        return {**figures, "warnings": list(report.warnings), "report": report}


class SlotSettings(Settings):
    """The options of what fits slots together: `BudgetTrimmer` and `BudgetChatPromptTemplate`."""

    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    context_window: int | None = None
    counter: Any = None
    tools: Any = None
    cut: Literal["fill", "stable"] = "fill"
    summarizer: Any = None
    scorer: Any = None
    strict: bool = False
    session: Any = Field(default=None, exclude=True)
    min_exchanges: int | None = None
    history_key: str = "history"
    documents_key: str = "documents"
    examples_key: str = "examples"
    memory_key: str = "memory"
    question_key: str = "question"
    document_prompt: Any = Field(
        default=None, description="renders one document; what a document costs is what this makes of it"
    )
    example_prompt: Any = Field(
        default=None, description="renders one example; what an example costs is what this makes of it"
    )

    _limits: Limits = PrivateAttr()

    def _prepare(self) -> None:
        options = ("budget", "model", "max_tokens", "context_window", "counter", "tools", "session")
        self._limits = limits_for(**{name: getattr(self, name) for name in options})
        as_summarizer(self.summarizer)
        keys = [*self._keys().values(), self.question_key]
        if len({*keys}) != len(keys):
            msg = f"each slot must have a key of its own (got {', '.join(keys)})"
            raise BudgetConfigError(msg)

    def _keys(self) -> dict[str, str]:
        """Returns the keys of the slots, block name -> key."""
        return {
            "history": self.history_key,
            "knowledge": self.documents_key,
            "examples": self.examples_key,
            "memory": self.memory_key,
        }

    def _keys_in(self, names: Iterable[str]) -> tuple[dict[str, str], str]:
        """Returns the keys of the slots that are among `names`, and the question's; aliases count."""
        known = set(names)

        def found(key: str) -> str:
            alias = _ALIASES.get(key)
            return alias if key not in known and alias is not None and alias in known else key

        keys = {block: found(key) for block, key in self._keys().items()}
        return {block: key for block, key in keys.items() if key in known}, found(self.question_key)

    # ---- one request -------------------------------------------------------------------------------------
    def _request(self, **fields: Any) -> PromptRequest:
        own: dict[str, Any] = {
            **self._limits.fields(),
            "codec": CODEC,
            "scorer": self.scorer,
            "cut": self.cut,
            "strict": self.strict,
            "summarizer": as_summarizer(self.summarizer),
        }
        if self.min_exchanges is not None:
            own["min_exchanges"] = self.min_exchanges
        if self.session is not None and own["summarizer"] is None:
            own["summarizer"] = self.session.summarizer
        return PromptRequest(**{**own, **fields})

    def _list_steps(self, value: Any, prompt: Any = None) -> Steps[Plan]:
        """Plans a list of messages, or what converts to one."""
        fields: dict[str, Any] = {"covers": "history" if prompt is None else "prompt"}
        if prompt is not None:
            fields["render"] = lambda kept, history: render_prompt(prompt, history)
            fields["system"] = system_of(render_prompt(prompt, []))
        given = value if isinstance(value, list) else as_messages(value)
        alone = None if self.session is not None else frozenset({"history"})
        request = self._request(history=Block(name="history", messages=given), sources=alone, **fields)
        return plan_of(request, self.session)

    def _slots_steps(
        self, value: Mapping[str, Any], names: Iterable[str], show: Callable[[Any], list[BaseMessage]] | None
    ) -> Steps[Trimmed]:
        """Plans the slots of a dict together; other keys pass.

        Args:
            value: the dict.
            names: the keys that the prompt may ever have.
            show: the prompt of the values; None where nobody renders it here.
        """
        slots, question_key = self._keys_in([*names, *value])
        found = {block: key for block, key in slots.items() if value.get(key) is not None}
        question = self._question(value.get(question_key), found.get("history", self.history_key), show)
        if not found and question is None and show is None:
            allowed = ", ".join([*self._keys().values(), self.question_key])
            given = ", ".join(map(str, value)) or "(none)"
            msg = f"the input must have a key of {allowed} (got {given}); name yours with history_key= etc."
            raise BudgetConfigError(msg)
        blocks = [self._block(block, key, value[key]) for block, key in found.items()]
        fields: dict[str, Any] = {}
        if show is not None:

            def render(kept: Mapping[str, Fit], history: Sequence[Any]) -> list[Any]:
                return show({**value, **_values(value, found, kept, history)})

            fields = {"render": render, "system": system_of(render({}, []))}
        sources = frozenset(slots) | (self.session.sources if self.session is not None else frozenset())
        request = self._request(
            blocks=[block for block in blocks if block.name != "history"],
            history=next((block for block in blocks if block.name == "history"), None),
            question=question,
            question_text=question.text if question is not None else "",
            sources=sources,
            shown=None if self.document_prompt is None else self._shown,
            **fields,
        )
        plan = yield from plan_of(request, self.session)
        out = {**value, **_values(value, found, plan.kept, plan.history)}
        unread = [] if show is not None else _unread(value, {*slots.values(), question_key})
        return trimmed(plan, out, unread)

    def _question(self, given: Any, history_key: str, show: Any) -> BaseMessage | None:
        """Returns the question as one message; several are only counted where a prompt shows them."""
        if given is None or given in ("", []):
            return None
        if isinstance(given, BaseMessage):
            return given
        if isinstance(given, str):
            made: BaseMessage = CODEC.make("user", given, origin="query")
            return made
        if isinstance(given, list) and isinstance(given[0], dict) and "type" in given[0]:
            return HumanMessage(given)  # content blocks
        messages = as_messages(given)
        if len(messages) > 1 and show is None:
            msg = (
                f"{self.question_key} must be a text or one message (got {len(messages)} messages); "
                f"put the earlier ones into {history_key}, or give prompt=, which counts all that it shows"
            )
            raise BudgetConfigError(msg)
        return messages[-1] if messages else None

    def _block(self, name: str, key: str, value: Any) -> Block:
        if name == "history":
            return Block(name=name, messages=value if isinstance(value, list) else as_messages(value))
        one = isinstance(value, (str, Mapping, BaseModel)) or not isinstance(value, Iterable)
        text_of = None
        if name == "examples" and self.example_prompt is not None:

            def text_of(item: Any) -> str:
                return example_text(item, self.example_prompt)

        try:
            segments = tuple(to_segments([value] if one else value, prefix=name, text_of=text_of))
        except MessageError as error:
            msg = f"the input's {key!r} cannot be read: {error}"
            raise MessageError(msg) from error
        # Nobody knows which field of a dict could be shortened.
        whole = any(isinstance(segment.source, Mapping) for segment in segments)
        return Block(name=name, segments=segments, strategy="best_first" if whole else None)

    def _shown(self, block: str, segment: Segment, text: str) -> str:
        """Returns how a text that stands for a segment reads in the prompt."""
        if block != "knowledge" or not isinstance(segment.source, Document):
            return text
        whole = text == segment.text
        return document_text(from_segment(segment, None if whole else text), self.document_prompt)

    # ---- on the wire -------------------------------------------------------------------------------------
    @property
    def lc_attributes(self) -> dict[str, Any]:
        """A budget is plain data on the wire; a model is its window and its name."""
        return plain_fields(self, self._limits)

    def to_json(self) -> Any:
        """Says "not implemented" where a callable would have to travel."""
        whole: Any = super()
        return whole.to_json() if self.session is None and travels(self) else whole.to_json_not_implemented()


def plan_of(request: PromptRequest, session: BudgetSession | None) -> Steps[Plan]:
    """Makes the plan; a history of tuples, dicts or removals is converted first."""
    plan = plan_steps if session is None else session.plan_steps
    try:
        return (yield from plan(request))
    except NeedsConversionError:
        assert request.history is not None
        converted = as_messages(request.history.messages)
        return (yield from plan(replace(request, history=Block(name="history", messages=converted))))


def trimmed(plan: Plan, value: Any, warnings: Sequence[str] = ()) -> Trimmed:
    """Returns a plan's parts as a result; its text is what was counted."""
    report = plan.report
    if warnings:
        report = report.replace(warnings=[*report.warnings, *warnings])
    return Trimmed(
        value=value,
        messages=plan.messages,
        segments=tuple(piece.segment for fit in plan.kept.values() for piece in fit.pieces),
        text="\n".join([m.text for m in plan.messages]),
        report=report,
    )


def render_prompt(prompt: Any, values: Any) -> list[BaseMessage]:
    """Returns the messages a prompt, or a chain that ends in one, makes of its values."""
    try:
        if isinstance(prompt, BasePromptTemplate):
            if not isinstance(values, Mapping):
                values = {prompt.input_variables[0]: values}
            made: Any = prompt.format_prompt(**values)
        else:
            made = prompt.invoke(values, config={"callbacks": []})
    except (KeyError, IndexError) as error:
        known = ", ".join(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        msg = f"the prompt needs {error} (got {known}); pass it, or bind it with prompt.partial(..)"
        raise BudgetConfigError(msg) from error
    return made.to_messages() if isinstance(made, PromptValue) else as_messages(made)


def placeholders_in(template: Any) -> set[str]:
    """Returns the variables that take messages, those of templates inside a template included."""
    found: set[str] = set()
    for part in getattr(template, "messages", ()):
        found |= {part.variable_name} if isinstance(part, MessagesPlaceholder) else placeholders_in(part)
    return found


def system_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Returns the system messages of a prompt."""
    roles = CODEC.roles(messages)
    return [m for m, role in zip(messages, roles, strict=True) if role in {"system", "developer"}]


def send_report(done: Trimmed, run_manager: Any) -> None:
    """Sends the report as a custom event where somebody listens."""
    if run_manager is not None and run_manager.handlers:
        dispatch_custom_event(EVENT, done.event(), config={"callbacks": run_manager.get_child()})


async def asend_report(done: Trimmed, run_manager: Any) -> None:
    """Sends what `send_report` sends."""
    if run_manager is not None and run_manager.handlers:
        await adispatch_custom_event(EVENT, done.event(), config={"callbacks": run_manager.get_child()})


def _values(
    value: Mapping[str, Any], found: Mapping[str, str], kept: Mapping[str, Fit], history: Sequence[Any]
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


def _unread(value: Mapping[str, Any], read: set[str]) -> list[str]:
    """Returns a warning for each key with documents or messages that no slot reads."""
    return [
        f"unread: {key!r} is neither counted nor fitted; name its slot, as documents_key={key!r}"
        for key, held in value.items()
        if key not in read
        and isinstance(held, list)
        and held
        and isinstance(held[0], (Document, BaseMessage))
    ]
