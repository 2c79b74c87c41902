"""The slots of a prompt, fitted together: a dict's history, documents, examples, memory and question."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from langchain_core.callbacks import adispatch_custom_event, dispatch_custom_event
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, HumanMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from pydantic import BaseModel, Field, PrivateAttr
from typing_extensions import override

from rankbudget import Block, FitResult, MessageError, Segment
from rankbudget.adapters import (
    PINNED_ROLES,
    SUMMARY_TIMEOUT,
    Call,
    CodecMeasure,
    Fit,
    Plan,
    PromptRequest,
    Shown,
    Steps,
    refuse_empty_question,
    refuse_results,
)
from rankbudget.errors import BudgetConfigError, BudgetExceededError, misspelt

from ._codec import CODEC
from ._convert import as_messages, document_text, example_text, from_segment, last_question, to_segments
from ._counters import model_name
from ._items import KeptItems, Remembered
from ._limits import LimitSettings, planned
from ._placeholders import (
    asked_in,
    in_whole_turns,
    late_systems,
    listed,
    most_shown,
    never_cut,
    placeholders_in,
    refuse_cut_turn,
    unasked,
)

_OPTIONS = {
    "history": "history_key",
    "knowledge": "documents_key",
    "examples": "examples_key",
    "memory": "memory_key",
    "query": "question_key",
}
"""The option that names the key of each slot."""
ALIASES = {"history": "chat_history", "documents": "context", "question": "input"}
"""What LangChain's own chains call the slots; read where the usual key is not in the input."""
_COVERS: Any = {("history",): "history", ("knowledge",): "documents", ("examples",): "examples"}
"""What a report covers by the slots that are seen without a prompt; "blocks" for all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trimmed(FitResult):
    """What a trimmer kept, and the report; `value` is what the chain passes on."""

    value: Any = None


class SlotSettings(LimitSettings):
    """The options of what fits slots together: `BudgetTrimmer` and `BudgetChatPromptTemplate`."""

    tools: Any = None
    cut: Literal["fill", "stable"] = "fill"
    by_question: bool = False
    summarizer: Any = None
    summary_timeout: float | None = SUMMARY_TIMEOUT
    scorer: Any = None
    strict: bool = False
    session: Any = Field(default=None, exclude=True)
    min_exchanges: int | None = None
    last_turns: int | None = None
    history_key: str = "history"
    documents_key: str = "documents"
    examples_key: str = "examples"
    memory_key: str = "memory"
    question_key: str = "question"
    document_prompt: Any = None
    example_prompt: Any = None

    _fields: dict[str, Any] = PrivateAttr()
    _keys: dict[str, str] = PrivateAttr()  # by slot

    @override
    def _prepare(self) -> None:
        super()._prepare()
        self._keys = {slot: getattr(self, option) for slot, option in _OPTIONS.items()}
        if len({*self._keys.values()}) != len(self._keys):
            msg = f"each slot must have a key of its own (got {', '.join(self._keys.values())})."
            raise BudgetConfigError(msg)
        if self.by_question and (self.session is not None or self.cut == "stable"):
            msg = 'by_question must be False with a session or cut="stable", which cut by age (got True).'
            raise BudgetConfigError(msg)
        limits = self._limits
        measure = limits.measure or CodecMeasure(limits.codec, limits.counter, limits.tools)
        own = {"scorer": self.scorer, "cut": self.cut, "strict": self.strict, "measure": measure}
        self._fields = {**limits.fields(), **own, "shown": shown_by(self.document_prompt)}
        for name in ("min_exchanges", "last_turns"):
            if getattr(self, name) is not None:
                self._fields[name] = getattr(self, name)

    def _keys_in(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the keys among `names` by slot; aliases are read where the usual key is missing."""
        known = set(names)
        found = {slot: key if key in known else ALIASES.get(key, key) for slot, key in self._keys.items()}
        return {slot: key for slot, key in found.items() if key in known}

    def _check_spelling(self, given: Iterable[str], own: Container[str]) -> None:
        """Raises for a key that is surely a misspelt slot, and no variable of the prompt's own."""
        given = list(map(str, given))
        slots = [*self._keys.values(), *ALIASES.values()]
        missing = [key for key in slots if key not in given]
        for key in given:
            # "content" is a name of its own, however near to "context".
            meant = misspelt(key, missing) if key not in own and key not in {*slots, "content"} else ""
            if meant and abs(len(meant) - len(key)) <= 1:
                msg = f"the input has the key {key!r}, which no slot reads. Did you mean {meant!r}?"
                raise BudgetConfigError(msg)

    # ---- one request -------------------------------------------------------------------------------------
    def _slots_steps(
        self, value: Mapping[Any, Any], names: Collection[str], show: Any = None, **fields: Any
    ) -> Steps[Trimmed]:
        """Plans the slots of a dict; `show` renders them by the variables `names`, unknown where it is empty.

        A slot that is not shown gets no room; a question then only ranks what is kept.
        """
        keys, hidden, warnings = self._slots_in(value, names or self._names_shown(value, show), show)
        question = self._question(value.get({**hidden, **keys}.get("query", "")), show)
        found = {slot: key for slot, key in keys.items() if slot != "query" and value.get(key) is not None}
        messages = listed(value.get(history := found.pop("history", None)))
        warnings += unasked(value.get(found.get("knowledge")), messages, question or self.session)

        def fitted(kept: Mapping[str, Fit], kept_history: Sequence[Any]) -> dict[str, Any]:
            """Returns the value with its slots fitted, in the form they came in."""
            out = dict(value) if history is None else {**value, history: list(kept_history)}
            for slot, key in found.items():
                items = KeptItems(kept[slot].pieces if slot in kept else ())
                out[key] = (items[0] if items else "") if isinstance(value[key], str) else items
            return out

        if show is not None:
            fields["render"] = lambda kept, history: show(fitted(kept, history))
            fields["system"] = system_of(show(fitted({}, [])))
        request = PromptRequest(
            **{**self._fields, **fields},
            history=messages,
            blocks=self._blocks(found, value),
            question=question if "query" in keys else None,
            question_text=question.text if question is not None else "",
            query=last_question(messages, question) if self.by_question else None,
            sources=getattr(self.session, "sources", frozenset[str]()).union(keys) - {"query"},
            covers=covered(found, history, show),
        )
        others = () if show is None else set(names).intersection(value).difference(keys.values())
        plan = yield from self._plan_steps(request, history, {key: value[key] for key in others})
        if show is not None:
            refuse_empty_question(CODEC, plan.messages, keys.get("query", self.question_key))
            warnings += late_systems(self.model, plan.messages)
        made = fitted(plan.kept, plan.history).items()
        return Trimmed(
            value={key: list(one) if isinstance(one, KeptItems) else one for key, one in made},
            messages=plan.messages,
            segments=tuple(piece.segment for fit in plan.kept.values() for piece in fit.pieces),
            text="\n".join([m.text for m in plan.messages]),
            report=plan.report.noting(*warnings),
        )

    def _plan_steps(
        self, request: PromptRequest, history: str | None, others: Mapping[str, Any]
    ) -> Steps[Plan]:
        """Makes the plan; an error names the `others`: variables of the prompt that hold messages."""
        template = self._template()
        # A prompt that is given a list instead of a dict has one variable, of any name.
        named = history if history in names_in(template) else None
        most = None if history is None else most_shown(template, named)
        try:
            plan = yield from planned(in_whole_turns(request, most), self.session)
        except BudgetExceededError as error:
            raise never_cut(error, others) from error
        refuse_cut_turn(plan.history, most, history)
        return plan

    def _template(self) -> Any:
        """Returns the template that shows the slots; None where it is unknown."""
        prompt: Any = getattr(self, "template", getattr(self, "prompt", None))
        while getattr(prompt, "steps", ()):  # of a chain, what it ends in
            prompt = prompt.steps[-1]
        return prompt

    def _slots_in(
        self, value: Mapping[Any, Any], names: Collection[str], show: Any
    ) -> tuple[dict[str, str], dict[str, str], list[str]]:
        """Returns the keys of the slots that are shown and of those that are not, with a warning for each."""
        keys = self._keys_in(names)
        seen = self._keys_in(value).items()
        hidden = {slot: key for slot, key in seen if slot not in keys and not _is_empty(value[key])}
        asked = None if "query" in {**keys, **hidden} else asked_in(self._template(), keys.values())
        if isinstance(value.get(asked), str):
            keys["query"] = str(asked)
        return keys, hidden, unread(value, keys.values(), hidden.values(), None if show is None else names)

    def _names_shown(self, value: Mapping[str, Any], show: Any) -> list[str]:
        """Returns the keys of a dict but those of slots that change nothing in what `show` renders."""
        whole, names = show(value), [*value]
        for slot, key in self._keys_in(value).items():
            if slot == "query" or _is_empty(value[key]):
                continue
            if show({**value, key: "" if isinstance(value[key], str) else []}) == whole:
                names.remove(key)
        return names

    def _question(self, given: Any, show: Any) -> BaseMessage | None:
        """Returns the question as one message; several are only counted where a prompt shows them."""
        if given is None or given in ("", []):
            return None
        if isinstance(given, str):
            given = CODEC.make("user", given, origin="query")
        elif isinstance(given, list) and isinstance(given[0], dict) and "type" in given[0]:
            given = HumanMessage(given)  # content blocks
        messages = as_messages(given)
        if len(messages) > 1 and show is None:
            msg = (
                f"{self.question_key} must be a text or one message (got {len(messages)} messages). "
                f"Put the earlier ones into {self.history_key}, or give prompt=, which counts all it shows."
            )
            raise BudgetConfigError(msg)
        if len(messages) == 1:  # of several, the others may hold the call
            refuse_results(CODEC, messages[0], self.question_key, self.history_key)
        return messages[-1] if messages else None

    def _blocks(self, keys: Mapping[str, str], value: Mapping[str, Any]) -> tuple[Block, ...]:
        """Returns the blocks of slots; another call brings those of the session's sources that are empty."""
        sources = getattr(self.session, "sources", ())
        given = {slot: value[key] for slot, key in keys.items()}
        brought = [slot for slot in given if slot not in sources or not _is_empty(given[slot])]
        return tuple([self._block(slot, keys[slot], given[slot]) for slot in brought])

    def _block(self, name: str, key: str, value: Any) -> Block:
        one = isinstance(value, (str, Mapping, BaseModel)) or not isinstance(value, Iterable)
        prompt = self.example_prompt if name == "examples" else None
        text_of = None if prompt is None else partial(example_text, prompt=prompt)
        shown = shown_by(self.document_prompt) if name == "knowledge" else None
        try:
            segments = tuple(
                to_segments([value] if one else value, prefix=name, text_of=text_of, shown=shown)
            )
        except MessageError as error:
            msg = f"the input's {key!r} cannot be read: {error}"
            raise MessageError(msg) from error
        if name == "memory" and isinstance(value, Remembered) and self.scorer is None:
            return value.block_of(segments)
        # A dict is kept whole: which of its fields could be shortened is unknown.
        whole = any(isinstance(segment.source, Mapping) for segment in segments)
        return Block(name=name, segments=segments, strategy="best_first" if whole else None)

    # ---- LangChain's JSON --------------------------------------------------------------------------------
    @property
    def lc_attributes(self) -> dict[str, Any]:
        """A budget is written as plain data; a model as its window and its name."""
        plain: dict[str, Any] = {}
        if self.budget is not None or self.model is not None:
            plain = {"budget": self._limits.budget.to_dict(), "context_window": None}
        if self.model is not None:
            plain["model"] = model_name(self.model)
        if self._limits.tools:
            plain["tools"] = list(self._limits.tools)
        return plain

    def to_json(self) -> Any:
        """Writes "not implemented" for settings that hold a session or a callable."""
        held = (self.counter, self.summarizer, self.scorer)
        lost = any(callable(value) and not hasattr(value, "to_json") for value in held)
        whole: Any = super()
        return whole.to_json_not_implemented() if lost or self.session is not None else whole.to_json()


def reported(steps: Steps[Trimmed], run_manager: Any) -> Steps[Trimmed]:
    """Sends the report as a custom event, to `astream_events` and callback handlers, where one listens."""
    done = yield from steps
    if run_manager is not None and run_manager.handlers:
        report = done.report
        figures = {"total_tokens": report.total_tokens, "limit": report.limit}
        event = {**figures, "warnings": list(report.warnings), "report": report}
        config: Any = {"callbacks": run_manager.get_child()}
        send = partial(dispatch_custom_event, config=config)
        yield Call(send, ("context_budget", event), partial(adispatch_custom_event, config=config))
    return done


def covered(found: Iterable[str], history: str | None, show: Any) -> Any:
    """Returns what a report covers: without a prompt, the slots that were given."""
    slots = (*found, *(["history"] if history else []))
    return "prompt" if show is not None else _COVERS.get(slots, "blocks")


def _is_empty(held: Any) -> bool:
    return held is None or (isinstance(held, Sized) and not len(held))


def unread(
    value: Mapping[str, Any], slots: Container[str], hidden: Container[str], shown: Container[str] | None
) -> list[str]:
    """Returns a warning for each hidden slot, and for documents and messages that no slot reads.

    `shown` are the variables of the prompt, None without one; messages may be meant to stay in it.
    """
    warnings = []
    for key, held in value.items():
        option = option_for(held)
        if key in slots or not (option or key in hidden):
            continue
        hint = f"name its slot with {option or 'history_key'}={key!r}"
        if shown is None:
            warnings.append(f"{key!r} is neither counted nor fitted; {hint}")
        elif key not in shown or key in hidden:
            warnings.append(not_shown(key))
        elif option == "documents_key":
            warnings.append(f"{key!r} is counted, but not fitted; {hint}")
    return warnings


def option_for(held: Any) -> str:
    """Returns the option that names the slot of documents or of messages; "" for all else."""
    first = held[0] if isinstance(held, (list, tuple)) and held else held
    if isinstance(first, Document):
        return "documents_key"
    return "history_key" if isinstance(first, BaseMessage) else ""


def not_shown(key: str) -> str:
    """Returns the warning for an input that the prompt does not show."""
    return f"{key!r} is neither counted nor fitted; the prompt does not show it"


def names_in(prompt: Any) -> list[str]:
    """Returns the variables of a prompt; none where it is no template, so that they are unknown."""
    kinds = ("input_variables", "optional_variables", "partial_variables")
    named = [name for names in kinds for name in getattr(prompt, names, ())]
    return [*named, *placeholders_in(prompt).difference(named)]  # optional ones of templates inside it


def shown_by(prompt: Any) -> Shown | None:
    """Returns how a document reads in the prompt that a document prompt makes; None without one."""
    if prompt is None:
        return None

    def shown(block: str, segment: Segment, text: str) -> str:
        if block != "knowledge" or not isinstance(segment.source, Document):
            return text
        return document_text(from_segment(segment, None if text == segment.text else text), prompt)

    return shown


def render_prompt(prompt: Any, values: Any) -> list[BaseMessage]:
    """Returns the messages a prompt, or a chain that ends in one, makes of its values."""
    try:
        if isinstance(prompt, BasePromptTemplate):
            if not isinstance(values, Mapping):
                values = {prompt.input_variables[0]: values}
            made: Any = prompt.format_prompt(**values)
        else:
            made = prompt.invoke(values, config={"callbacks": []})
    except Exception as error:
        if type(error).__name__ == "UndefinedError":  # jinja2's, which may not be installed
            msg = (
                f"the prompt cannot be rendered: {error}. A slot may be empty: test it, {{% if documents %}}"
            )
            raise BudgetConfigError(msg) from error
        if not isinstance(error, (KeyError, IndexError)):
            raise
        known = ", ".join(map(str, values)) if isinstance(values, Mapping) else type(values).__name__
        msg = f"the prompt must get {error} (got {known}). Pass it, or bind it with prompt.partial(..)."
        raise BudgetConfigError(msg) from error
    return made.to_messages() if isinstance(made, PromptValue) else as_messages(made)


def system_of(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Returns the system messages of a prompt."""
    return [message for message in messages if CODEC.role(message) in PINNED_ROLES]


def readable_twice(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """Returns a dict with lists in the place of iterators: what a prompt shows is rendered several times."""
    return {key: list(one) if isinstance(one, Iterator) else one for key, one in value.items()}
