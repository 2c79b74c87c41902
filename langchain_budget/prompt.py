r"""A chat prompt template whose slots are fitted together: what it formats never exceeds the budget.

prompt = BudgetChatPromptTemplate.from_messages(
    [("system", "Answer from the documents.\n{documents}"), MessagesPlaceholder("history"), ("human", "{question}")], model="gpt-4o"
)
chain = prompt | model
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, get_buffer_string
from langchain_core.prompts import BaseChatPromptTemplate, ChatPromptTemplate, MessagesPlaceholder
from pydantic import ConfigDict, PrivateAttr
from typing_extensions import Self, override

from rankbudget import TokenBudget
from rankbudget.effects import Steps, adrive, drive
from rankbudget.rendering import NOTICE, PLACEHOLDERS, render_block, wrapper_of

from ._convert import as_tools, document_text, example_text, to_segments
from ._limits import Limits, limits_of
from ._settings import Settings
from ._slots import Slots, Trimmed, fit_slots_steps, render_prompt
from .models import as_summarizer

__all__ = ["BudgetChatPromptTemplate"]


class BudgetChatPromptTemplate(Settings, BaseChatPromptTemplate):
    """Formats a chat prompt that fits: history, documents, examples and memory give way in rank order, the rest stays as it is.

    A variable that is a `MessagesPlaceholder` gets messages; one inside a text gets text, in tags it cannot close and announced as data.

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
            kwargs["template"] = ChatPromptTemplate(template, template_format=kwargs.pop("template_format", "f-string"))
        made = kwargs.get("template")
        if isinstance(made, BaseChatPromptTemplate):
            bound = kwargs.get("partial_variables") or {}
            kwargs["input_variables"] = [name for name in made.input_variables if name not in bound]
            kwargs.setdefault("optional_variables", list(made.optional_variables))
        super().__init__(**kwargs)

    @classmethod
    def from_messages(
        cls, messages: Sequence[Any], template_format: Literal["f-string", "mustache", "jinja2"] = "f-string", **options: Any
    ) -> Self:
        """Returns a template of messages, tuples, strings and placeholders, as `ChatPromptTemplate` takes them."""
        return cls(ChatPromptTemplate(messages, template_format=template_format), **options)

    @override
    def _settle(self) -> None:
        self._limits = limits_of(
            budget=self.budget, model=self.model, max_tokens=self.max_tokens, counter=self.counter, tools=as_tools(self.tools)
        )
        keys = {"history": self.history_key, "knowledge": self.documents_key, "examples": self.examples_key, "memory": self.memory_key}
        self._slots = Slots(
            keys={block: key for block, key in keys.items() if key in self._variables()},
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

    def _steps(self, kwargs: dict[str, Any]) -> Steps[Trimmed]:
        return fit_slots_steps(self._merge_partial_and_user_variables(**kwargs), self._slots, self._limits, None)

    def _variables(self) -> set[str]:
        return {*self.template.input_variables, *self.template.optional_variables, *self.template.partial_variables}

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
        parts = getattr(prompt.template, "messages", [])
        self._as_messages = {part.variable_name for part in parts if isinstance(part, MessagesPlaceholder)}

    def invoke(self, values: Mapping[str, Any], config: Any = None) -> list[BaseMessage]:  # noqa: ARG002 - as a Runnable has it
        written = {key: self._written(key, value) for key, value in values.items()}
        return render_prompt(self._prompt.template, written)

    def _written(self, key: str, value: Any) -> Any:
        prompt = self._prompt
        if isinstance(value, str) or key not in prompt._slots.keys.values():  # noqa: SLF001 - its own half
            return value
        if key in self._as_messages:
            return [m for item in value for m in self._example_messages(item)] if key == prompt.examples_key else value
        if key == prompt.history_key:
            return get_buffer_string(value) or PLACEHOLDERS["history"]
        block = next(name for name, slot in prompt._slots.keys.items() if slot == key)  # noqa: SLF001 - its own half
        if not value:
            return PLACEHOLDERS.get(block, "")
        text_of = {
            "knowledge": lambda item: document_text(item, prompt.document_prompt) if hasattr(item, "page_content") else str(item),
            "examples": lambda item: example_text(item, prompt.example_prompt),
        }.get(block)
        wrap = wrapper_of(block)
        text = render_block(block, [wrap(s, s.text) for s in to_segments(value, prefix=block, text_of=text_of)]).rstrip("\n")
        return f"{prompt.notice}\n{text}" if prompt.notice else text

    def _example_messages(self, example: Any) -> list[BaseMessage]:
        if isinstance(example, BaseMessage):
            return [example]
        shown = self._prompt.example_prompt
        if hasattr(shown, "format_messages"):
            return list(shown.format_messages(**example))
        texts = [str(value) for value in example.values()]
        return [HumanMessage("\n".join(texts[:-1])), AIMessage(texts[-1])]
