r"""A chat prompt template whose slots are fitted together: what it formats never exceeds the budget.

prompt = BudgetChatPromptTemplate.from_messages(
    [("system", "Answer from the documents.\n{documents}"), MessagesPlaceholder("history"), ("human", "{question}")], model="gpt-4o"
)
chain = prompt | model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForChainRun, CallbackManagerForChainRun
from langchain_core.messages import BaseMessage, get_buffer_string
from langchain_core.prompt_values import ChatPromptValue, PromptValue
from langchain_core.prompts import BaseChatPromptTemplate, ChatPromptTemplate, MessagesPlaceholder
from pydantic import ConfigDict, PrivateAttr
from typing_extensions import Self, override

from rankbudget import TokenBudget
from rankbudget._drivers import Steps, adrive, drive
from rankbudget.errors import BudgetConfigError
from rankbudget.messages.tags import NOTICE, PLACEHOLDERS, render_block, wrapper_of

from ._convert import CODEC, document_text, example_messages, example_text, to_segments
from ._limits import Limits, limits_of
from ._settings import Settings
from ._slots import Slots, Trimmed, fit_slots_steps, render_prompt
from ._wire import asend_report, plain_fields, send_report, travels
from .models import as_summarizer

__all__ = ["BudgetChatPromptTemplate"]


class BudgetChatPromptTemplate(Settings, BaseChatPromptTemplate):
    """Formats a chat prompt that fits: history, documents, examples and memory give way in rank order, the rest stays as it is.

    A variable that is a `MessagesPlaceholder` gets messages: a conversation as it is, examples as turns, documents and memories in one system
    message. One inside a text gets text. Inserted text stands in tags it cannot close and is announced as data.

    An `invoke` with callbacks sends the custom event `context_budget` with the report, as `BudgetTrimmer` does.

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
        >>> prompt = BudgetChatPromptTemplate.from_messages(
        ...     [("system", "Be brief."), MessagesPlaceholder("history"), ("human", "{question}")], max_tokens=8, counter=lambda m: len(m.content.split())
        ... )
        >>> messages = prompt.format_messages(history=[("human", "one two three"), ("ai", "four five")], question="And you, who are you?")
        >>> [m.content for m in messages]
        ['Be brief.', 'And you, who are you?']
    """

    template: BaseChatPromptTemplate
    budget: TokenBudget | None = None
    model: Any = None
    max_tokens: int | None = None
    counter: Any = None
    tools: Any = None
    cut: Literal["fill", "stable"] = "fill"
    summarizer: Any = None
    scorer: Any = None
    strict: bool = False
    notice: str | None = NOTICE
    history_key: str = "history"
    documents_key: str = "documents"
    examples_key: str = "examples"
    memory_key: str = "memory"
    question_key: str = "question"
    document_prompt: Any = None
    example_prompt: Any = None

    _limits: Limits = PrivateAttr()
    _slots: Slots = PrivateAttr()

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
        super().__init__(**kwargs)

    @classmethod
    def from_messages(
        cls,
        messages: Sequence[Any],
        template_format: Literal["f-string", "mustache", "jinja2"] = "f-string",
        **options: Any,
    ) -> Self:
        """Returns a template of messages, tuples, strings and placeholders, as `ChatPromptTemplate` takes them."""
        return cls(ChatPromptTemplate(messages, template_format=template_format), **options)

    @override
    def _settle(self) -> None:
        self._limits = limits_of(
            budget=self.budget,
            model=self.model,
            max_tokens=self.max_tokens,
            counter=self.counter,
            tools=self.tools,
        )
        self._slots = Slots(
            keys=self._slots_keys(),
            question=self.question_key,
            prompt=_Filled(self),
            document_prompt=self.document_prompt,
            example_prompt=self.example_prompt,
            cut=self.cut,
            strict=self.strict,
            summarizer=as_summarizer(self.summarizer),
            scorer=self.scorer,
        )

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

    # ---- on the wire ------------------------------------------------------------------------------------------------------------
    @classmethod
    @override
    def get_lc_namespace(cls) -> list[str]:
        return cls.__module__.split(".")

    @property
    @override
    def lc_attributes(self) -> dict[str, Any]:
        """A budget is plain data on the wire; a model is its window and its name."""
        return plain_fields(self, self._limits)

    @override
    def to_json(self) -> Any:
        """Says "not implemented" where a callable would have to travel: a template that counts otherwise is another template."""
        return super().to_json() if travels(self) else self.to_json_not_implemented()

    # ---- the work ---------------------------------------------------------------------------------------------------------------
    def _steps(self, kwargs: dict[str, Any]) -> Steps[Trimmed]:
        return fit_slots_steps(
            self._merge_partial_and_user_variables(**kwargs), self._slots, self._limits, None
        )

    def _slots_keys(self) -> dict[str, str]:
        """Returns the slots that the template has, block name -> key."""
        keys = {
            "history": self.history_key,
            "knowledge": self.documents_key,
            "examples": self.examples_key,
            "memory": self.memory_key,
        }
        known = {
            *self.template.input_variables,
            *self.template.optional_variables,
            *self.template.partial_variables,
        }
        return {block: key for block, key in keys.items() if key in known}

    @property
    @override
    def _prompt_type(self) -> str:
        return "budget-chat"

    @override
    def pretty_repr(self, html: bool = False) -> str:
        return self.template.pretty_repr(html=html)


class _Filled:
    """The template with its fitted slots written out, as text or as messages."""

    def __init__(self, prompt: BudgetChatPromptTemplate) -> None:
        self._prompt = prompt
        self._as_messages = _placeholders(prompt.template)
        self._blocks = {key: block for block, key in prompt._slots_keys().items()}  # noqa: SLF001 - its own half

    def invoke(self, values: Mapping[str, Any], config: Any = None) -> list[BaseMessage]:  # noqa: ARG002 - as a Runnable has it
        written = {
            key: self._written(self._blocks[key], key, value) if key in self._blocks else value
            for key, value in values.items()
        }
        return render_prompt(self._prompt.template, written)

    def _written(self, block: str, key: str, value: Any) -> Any:
        if key in self._as_messages:
            return self._messages(block, value)
        if isinstance(value, str):
            return value
        if block == "history":
            return get_buffer_string(value) or PLACEHOLDERS["history"]
        return self._text(block, value) if value else PLACEHOLDERS.get(block, "")

    def _messages(self, block: str, value: Any) -> list[BaseMessage]:
        """Returns a slot as messages: a conversation as it is, examples as turns, anything else as one message that says it is data."""
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
            f"an example is a {type(example).__name__}, and {self._prompt.examples_key!r} is a placeholder for messages; "
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


def _placeholders(template: Any) -> set[str]:
    """Returns the variables that take messages, those of templates inside a template included."""
    found: set[str] = set()
    for part in getattr(template, "messages", ()):
        found |= {part.variable_name} if isinstance(part, MessagesPlaceholder) else _placeholders(part)
    return found
