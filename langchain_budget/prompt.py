r"""A chat prompt template whose slots are fitted together: what it formats never exceeds the budget.

prompt = BudgetChatPromptTemplate.from_messages(
    [("system", "Answer from the documents.\n{documents}"), MessagesPlaceholder("history"), ("human",
    "{question}")], model="gpt-4o"
)
chain = prompt | model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import BaseMessage, get_buffer_string
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_core.prompts import BaseChatPromptTemplate, ChatPromptTemplate
from pydantic import ConfigDict
from typing_extensions import Self, override

from rankbudget.adapters import NOTICE, PLACEHOLDERS, Steps, adrive, drive, render_block, wrapper_of
from rankbudget.errors import BudgetConfigError

from ._codec import CODEC
from ._convert import document_text, example_messages, example_text, to_segments
from ._slots import SlotSettings, Trimmed, asend_report, placeholders_in, render_prompt, send_report

__all__ = ["BudgetChatPromptTemplate"]


class BudgetChatPromptTemplate(SlotSettings, BaseChatPromptTemplate):
    """Formats a chat prompt that fits: history, documents, examples and memory give way in rank order.

    A variable that is a `MessagesPlaceholder` gets messages: a conversation as it is, examples as turns,
    documents and memories in one system message. One inside a text gets text. Inserted text stands in tags it
    cannot close and is announced as data.

    An `invoke` with callbacks sends the custom event `context_budget` with the report, as `BudgetTrimmer`
    does.

    Args:
        template: the prompt template; `from_messages` makes it.
        budget: the limits.
        model: a chat model or a model's name; gives window and tokenizer.
        max_tokens: tokens the prompt may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        tools: what is bound to the model; it is counted.
        cut: "fill" keeps as much as fits; "stable" keeps a prefix that rarely changes.
        summarizer: writes a summary of dropped history.
        scorer: ranks documents, examples and memories.
        notice: the sentence before inserted text; None leaves it out.
        history_key: the variable of the history. The next four name the other slots.

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

    model_config = ConfigDict(arbitrary_types_allowed=True, protected_namespaces=())

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
        """Returns a template of messages, tuples, strings and placeholders."""
        return cls(ChatPromptTemplate(messages, template_format=template_format), **options)

    @override
    def format_messages(self, **kwargs: Any) -> list[BaseMessage]:
        return list(self.fit(**kwargs).messages)

    @override
    async def aformat_messages(self, **kwargs: Any) -> list[BaseMessage]:
        return list((await self.afit(**kwargs)).messages)

    def fit(self, **kwargs: Any) -> Trimmed:
        """Returns the formatted messages, with the report that says why they look as they do."""
        return drive(self._steps(kwargs))

    async def afit(self, **kwargs: Any) -> Trimmed:
        """Returns what `fit` returns, without blocking the event loop while a summary is written."""
        return await adrive(self._steps(kwargs))

    @override
    def _format_prompt_with_error_handling(
        self, inner_input: dict[str, Any], run_manager: CallbackManagerForChainRun | None = None
    ) -> PromptValue:
        """Formats what `invoke` was given; LangChain hands the run manager to whoever asks for it."""
        done = self.fit(**self._validate_input(inner_input))
        send_report(done, run_manager)
        return ChatPromptValue(messages=list(done.messages))

    @override
    async def _aformat_prompt_with_error_handling(
        self, inner_input: dict[str, Any], run_manager: AsyncCallbackManagerForChainRun | None = None
    ) -> PromptValue:
        done = await self.afit(**self._validate_input(inner_input))
        await asend_report(done, run_manager)
        return ChatPromptValue(messages=list(done.messages))

    # ---- on the wire -------------------------------------------------------------------------------------
    @classmethod
    @override
    def get_lc_namespace(cls) -> list[str]:
        return cls.__module__.split(".")

    # ---- the work ----------------------------------------------------------------------------------------
    def _steps(self, kwargs: dict[str, Any]) -> Steps[Trimmed]:
        values = self._merge_partial_and_user_variables(**kwargs)
        template = self.template
        names = [*template.input_variables, *template.optional_variables, *template.partial_variables]
        slots = self._keys_in(names)[0]
        written = _Written(self, {key: block for block, key in slots.items()})
        return self._slots_steps(values, names, written.messages)

    @property
    @override
    def _prompt_type(self) -> str:
        return "budget-chat"

    @override
    def pretty_repr(self, html: bool = False) -> str:
        return self.template.pretty_repr(html=html)


class _Written:
    """The template with its slots written out, as text or messages; `blocks` is key -> block name."""

    def __init__(self, prompt: BudgetChatPromptTemplate, blocks: Mapping[str, str]) -> None:
        self._prompt = prompt
        self._as_messages = placeholders_in(prompt.template)
        self._blocks = blocks

    def messages(self, values: Mapping[str, Any]) -> list[BaseMessage]:
        written = {
            key: self._written(self._blocks[key], key, value) if key in self._blocks else value
            for key, value in values.items()
        }
        return render_prompt(self._prompt.template, written)

    def _written(self, block: str, key: str, value: Any) -> Any:
        if key in self._as_messages:
            return self._as_turns(block, value)
        if isinstance(value, str):
            return value
        if block == "history":
            return get_buffer_string(value) or PLACEHOLDERS["history"]
        return self._text(block, value) if value else PLACEHOLDERS.get(block, "")

    def _as_turns(self, block: str, value: Any) -> list[BaseMessage]:
        """Returns a slot as messages: a conversation as it is, examples as turns, else one message."""
        items: list[Any] = ([value] if value else []) if isinstance(value, str) else list(value)
        if all(isinstance(item, BaseMessage) for item in items):
            return items
        if block == "examples":
            return [message for item in items for message in self._turns(item)]
        return [CODEC.make("system", self._text(block, items), origin=block)]

    def _turns(self, example: Any) -> list[BaseMessage]:
        if isinstance(example, BaseMessage):
            return [example]
        if isinstance(example, Mapping):
            return example_messages(example, self._prompt.example_prompt)
        msg = (
            f"an example in the placeholder {self._prompt.examples_key!r} is a {type(example).__name__}; "
            "allowed: messages, or dicts with example_prompt="
        )
        raise BudgetConfigError(msg)

    def _text(self, block: str, items: Any) -> str:
        prompt = self._prompt
        text_of = {
            "knowledge": lambda item: (
                document_text(item, prompt.document_prompt) if hasattr(item, "page_content") else str(item)
            ),
            "examples": lambda item: example_text(item, prompt.example_prompt),
        }.get(block)
        wrap = wrapper_of(block)
        text = render_block(
            block, [wrap(s, s.text) for s in to_segments(items, prefix=block, text_of=text_of)]
        ).rstrip("\n")
        return f"{prompt.notice}\n{text}" if prompt.notice else text
