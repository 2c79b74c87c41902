"""A chat prompt template whose slots are fitted together: what it formats never exceeds the budget."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage, get_buffer_string
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_core.prompts import BaseChatPromptTemplate, ChatPromptTemplate
from pydantic import BaseModel
from typing_extensions import Self, override

from rankbudget.adapters import (
    NO_CONTEXT,
    NOTICE,
    PLACEHOLDERS,
    Steps,
    adrive,
    drive,
    render_block,
    wrapper_of,
)
from rankbudget.errors import BudgetConfigError, refuse, shown

from ._codec import CODEC
from ._convert import document_text, example_messages, example_text, to_segments
from ._items import KeptItems
from ._placeholders import formats_in, in_order, placeholders_in
from ._slots import (
    SlotSettings,
    Trimmed,
    names_in,
    option_for,
    render_prompt,
    reported,
)

_EMPTY = {**PLACEHOLDERS, "knowledge": NO_CONTEXT}
"""What an empty slot says; here it is not known whether nothing was found or had room."""


class BudgetChatPromptTemplate(SlotSettings, BaseChatPromptTemplate):
    """Formats a chat prompt that fits: history, documents, examples and memory are cut in rank order.

    A variable that is a `MessagesPlaceholder` gets messages: a conversation as it is, examples as turns,
    documents and memories in one system message. One inside a text gets text. Inserted text is put in tags
    it cannot close and is announced as data. A template in jinja2 or mustache that loops over a variable gets
    its objects as they are, in mustache their fields. The event `context_budget` carries the report.

    Args:
        template: the prompt template; `from_messages` makes it.
        notice: the sentence before inserted text; None leaves it out.
        budget: the limits; this and every other option is as in `BudgetTrimmer`, which has no `template` and
            no `notice`.

    Example:
        >>> from langchain_core.prompts import MessagesPlaceholder
        >>> prompt = BudgetChatPromptTemplate.from_messages(
        ...     [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")],
        ...     max_tokens=8,
        ...     counter=lambda m: len(m.content.split()),
        ... )
        >>> thread = [("human", "one two three"), ("ai", "four five")]
        >>> messages = prompt.format_messages(history=thread, question="And you, who are you?")
        >>> [m.content for m in messages]
        ['Be brief.', 'And you, who are you?']
    """

    template: BaseChatPromptTemplate
    notice: str | None = NOTICE

    def __init__(self, template: Any = None, /, **kwargs: Any) -> None:
        if isinstance(template, BaseChatPromptTemplate):
            kwargs["template"] = template
        elif template is not None:
            kwargs["template"] = ChatPromptTemplate(
                template, template_format=kwargs.pop("template_format", "f-string")
            )
        made = kwargs.get("template")
        if isinstance(made, BaseChatPromptTemplate):
            bound = kwargs.get("partial_variables") or {}
            kwargs["input_variables"] = [name for name in made.input_variables if name not in bound]
            kwargs.setdefault("optional_variables", list(made.optional_variables))
            kwargs.setdefault("input_types", dict(made.input_types))
        super().__init__(**kwargs)

    @classmethod
    def from_messages(
        cls,
        messages: Sequence[Any],
        template_format: Literal["f-string", "mustache", "jinja2"] = "f-string",
        **options: Any,
    ) -> Self:
        """Returns a template of `messages` (tuples, strings, ...) in `template_format`, with `options`."""
        return cls(ChatPromptTemplate(messages, template_format=template_format), **options)

    @override
    def format_messages(self, **kwargs: Any) -> list[BaseMessage]:
        return list(self.fit(**kwargs).messages)

    @override
    async def aformat_messages(self, **kwargs: Any) -> list[BaseMessage]:
        return list((await self.afit(**kwargs)).messages)

    def fit(self, **kwargs: Any) -> Trimmed:
        """Returns the messages formatted with `kwargs`, and the report that says why they look so."""
        return drive(self._steps(kwargs))

    async def afit(self, **kwargs: Any) -> Trimmed:
        """Returns what `fit` returns, without blocking the event loop while a summary is written."""
        return await adrive(self._steps(kwargs))

    @override
    def _format_prompt_with_error_handling(
        self, inner_input: dict[str, Any], run_manager: CallbackManagerForChainRun | None = None
    ) -> PromptValue:
        """Formats what `invoke` was given; LangChain passes the run manager to a method that takes one."""
        steps = self._steps(self._validate_input(self._spelt(inner_input)))
        return ChatPromptValue(messages=list(drive(reported(steps, run_manager)).messages))

    @override
    async def _aformat_prompt_with_error_handling(
        self, inner_input: dict[str, Any], run_manager: AsyncCallbackManagerForChainRun | None = None
    ) -> PromptValue:
        steps = self._steps(self._validate_input(self._spelt(inner_input)))
        return ChatPromptValue(messages=list((await adrive(reported(steps, run_manager))).messages))

    @classmethod
    @override
    def get_lc_namespace(cls) -> list[str]:
        return cls.__module__.split(".")

    def _spelt(self, given: Any) -> Any:
        """Returns an input without a misspelt slot, before LangChain says that the right name is missing."""
        if isinstance(given, Mapping):
            values = self._merge_partial_and_user_variables(**given)
            # A variable of the template's own may be near a slot's name, but hardly hold messages, too.
            own = [name for name in names_in(self.template) if not option_for(values.get(name))]
            self._check_spelling(given, own)
        return given

    # ---- the work ----------------------------------------------------------------------------------------
    def _steps(self, kwargs: dict[str, Any]) -> Steps[Trimmed]:
        values = self._merge_partial_and_user_variables(**kwargs)
        template = self.template
        names = names_in(template)
        slots = {key: slot for slot, key in self._keys_in(names).items()}
        blocks = {key: slot for key, slot in slots.items() if slot != "query"}
        placeholders, formats = placeholders_in(template), formats_in(template)
        walked = not formats.isdisjoint(("jinja2", "mustache"))
        if not walked:
            _check_printed({name: values.get(name) for name in names if name not in slots}, placeholders)
        self._spelt(kwargs)

        def show(given: Mapping[str, Any]) -> list[BaseMessage]:
            written = dict(given)
            for key, slot in blocks.items():
                if key not in written:
                    continue
                items = written[key] or []
                items = [items] if isinstance(items, str) else items
                if key in placeholders:
                    written[key] = self._as_turns(slot, items)
                    continue
                write = partial(self._as_text, slot)
                written[key] = (
                    _Walked(items, write, as_fields="mustache" in formats) if walked else write(items)
                )
            return list(in_order(self.model, render_prompt(template, written)))

        return (yield from self._slots_steps(values, names, show))

    def _as_turns(self, block: str, items: list[Any]) -> list[BaseMessage]:
        """Returns a slot as messages: a conversation as it is, examples as turns, else one message."""
        if all(isinstance(item, BaseMessage) for item in items):
            return items
        if block != "examples":
            return [CODEC.make("system", self._tagged(block, items), origin=block)]
        turns: list[BaseMessage] = []
        for item in items:
            if not isinstance(item, (BaseMessage, Mapping)):
                msg = (
                    f"{self.examples_key} must be messages or dicts where the prompt has a placeholder for "
                    f"them (got a {type(item).__name__}). Give dicts, with example_prompt=."
                )
                raise BudgetConfigError(msg)
            turns += [item] if isinstance(item, BaseMessage) else example_messages(item, self.example_prompt)
        return turns

    def _as_text(self, block: str, items: list[Any]) -> str:
        if not items:
            return _EMPTY.get(block, "")
        return get_buffer_string(items) if block == "history" else self._tagged(block, items)

    def _tagged(self, block: str, items: Any) -> str:
        """Returns items as one text in tags, after the notice."""
        wrap = wrapper_of(block)
        segments = to_segments(items, prefix=block, text_of=partial(self._text_of, block))
        if isinstance(items, KeptItems):
            segments = [replace(s, id=name) for s, name in zip(segments, items.ids, strict=True)]
        text = render_block(block, [wrap(s, s.text) for s in segments]).rstrip("\n")
        return f"{self.notice}\n{text}" if self.notice else text

    def _text_of(self, block: str, item: Any) -> str:
        if isinstance(item, Document):
            return document_text(item, self.document_prompt if block == "knowledge" else None)
        return example_text(item, self.example_prompt if block == "examples" else None)

    @property
    @override
    def _prompt_type(self) -> str:
        return "budget-chat"

    @override
    def pretty_repr(self, html: bool = False) -> str:
        return self.template.pretty_repr(html=html)


def _check_printed(values: Mapping[str, Any], placeholders: Container[str]) -> None:
    """Raises for documents and messages that the prompt would show as Python writes them."""
    problems = [
        f"{name!r} must be a slot to hold {'documents' if option == 'documents_key' else 'messages'} "
        f"(got {shown(held)}). Name it with {option}={name!r}, or give a text"
        for name, held in values.items()
        if (option := option_for(held)) and not (option == "history_key" and name in placeholders)
    ]
    refuse(problems)


class _Walked(list[Any]):
    """A slot as jinja2 and mustache read it: text where it is printed, objects where it is looped over."""

    _CHEVRON_return_scope_when_falsy = True  # mustache prints the text of an empty slot, too

    def __init__(
        self, items: Sequence[Any], write: Callable[[list[Any]], str], *, as_fields: bool = False
    ) -> None:
        # Mustache reads the fields of dicts alone.
        super().__init__([dict(i) if as_fields and isinstance(i, BaseModel) else i for i in items])
        self._items: Any = items
        self._write = write

    @override
    def __str__(self) -> str:
        return self._write(self._items)

    __repr__ = __str__

    @override
    def __format__(self, spec: str) -> str:
        return format(str(self), spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(str(self), name)  # `{{ documents.strip() }}`

    @override
    def __getitem__(self, place: Any) -> Any:
        found = super().__getitem__(place)
        if not isinstance(place, slice):
            return found
        return _Walked(found, self._write) if found else ""  # of a slot that has others, no placeholder

    def __add__(self, other: Any) -> Any:
        return str(self) + other

    __iadd__ = __add__  # `{{ documents | indent }}`
