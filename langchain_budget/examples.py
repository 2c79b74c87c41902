"""The budget in a few-shot prompt: the examples most like the question, not all alike, within a number of tokens."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.example_selectors import BaseExampleSelector
from langchain_core.runnables import run_in_executor

from rankbudget.optimizer.few_shot import FewShotSelector
from rankbudget.messages.tags import JOINT

from ._convert import example_messages, example_text
from ._limits import check_number, limits_of
from .models import embedder

__all__ = ["BudgetExampleSelector"]


class BudgetExampleSelector(BaseExampleSelector):
    """Selects examples by relevance, diversity and tokens; for `FewShotPromptTemplate` and `FewShotChatMessagePromptTemplate`.

    Args:
        examples: dicts; they come back as the same objects, best first.
        max_tokens: most tokens of all examples, as `example_prompt` shows them, as a text or as messages with their roles; None has no limit
            but `k`.
        k: most examples; None has no limit but the tokens.
        example_prompt: the few-shot prompt's own; None counts the fields of an example, one on a line.
        separator: stands between two examples.
        input_keys: the input variables that make the question; None takes all.
        model: a chat model or a model's name; gives the tokenizer.
        counter: counts instead of the model's tokenizer.
        embeddings: rates by meaning: LangChain embeddings, or whatever `FewShotSelector` takes; None takes its default.
        diversity: how much likeness to a picked example costs, 0 = nothing, 1 = as much as relevance gives.
        double_braces: hands out copies with `{` and `}` doubled, for `FewShotPromptTemplate`: it puts the examples into a template and fills that
            in once more, which raises KeyError for JSON. `FewShotChatMessagePromptTemplate` and other template formats need no doubling.

    Example:
        >>> examples = [
        ...     {"input": "Where is my parcel?", "output": "shipping"},
        ...     {"input": "I want my money back", "output": "refund"},
        ...     {"input": "Is my parcel late?", "output": "shipping"},
        ... ]
        >>> selector = BudgetExampleSelector(examples, k=1)
        >>> [e["output"] for e in selector.select_examples({"question": "When does the parcel arrive?"})]
        ['shipping']
    """

    def __init__(
        self,
        examples: Sequence[Mapping[str, Any]] = (),
        *,
        max_tokens: int | None = None,
        k: int | None = None,
        example_prompt: Any = None,
        separator: str = JOINT,
        input_keys: Sequence[str] | None = None,
        model: Any = None,
        counter: Any = None,
        embeddings: Any = None,
        diversity: float = 0.2,
        double_braces: bool = False,
    ) -> None:
        check_number("max_tokens", max_tokens, "or None for no limit but k")
        check_number("k", k, "or None for no limit but the tokens")
        self.examples: list[dict[str, Any]] = list(examples)  # type: ignore[arg-type]  # LangChain's examples are dicts, ours any mapping
        self.max_tokens = max_tokens
        self.k = k
        self.example_prompt = example_prompt
        self.separator = separator
        self.input_keys = input_keys
        self.diversity = diversity
        self.double_braces = double_braces
        limits = limits_of(model=model, counter=counter, max_tokens=max_tokens or 1)
        self._limits = limits
        self.embeddings = embeddings
        self._start()

    def _start(self) -> None:
        """Makes what lives in one process only."""
        given = self.embeddings
        self._selector = FewShotSelector(embedder(given) if hasattr(given, "aembed_documents") else given)
        self._measure = self._limits.measure()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in vars(self).items()
            if name not in {"_selector", "_measure", "_lock"}
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start()

    def add_example(self, example: dict[str, str]) -> Any:
        """Adds an example; selections that are under way do not see it."""
        with self._lock:
            self.examples = [*self.examples, example]

    async def aadd_example(self, example: dict[str, str]) -> Any:
        """Adds an example."""
        self.add_example(example)

    def select_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the best examples for the input, best first."""
        keys = self.input_keys if self.input_keys is not None else list(input_variables)
        query = "\n".join(_text(input_variables[key]) for key in keys if key in input_variables)
        room = self.max_tokens
        if room is not None and self._as_messages():
            room = max(0, room - self._measure.overhead)
        found = self._selector.select(
            query, self.examples, self.k, self.diversity, max_tokens=room, cost=self._cost
        )
        return (
            [{key: _doubled(value) for key, value in example.items()} for example in found]
            if self.double_braces
            else found
        )

    async def aselect_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns what `select_examples` returns; rating runs in a thread."""
        return await run_in_executor(None, self.select_examples, input_variables)

    def _as_messages(self) -> bool:
        return hasattr(self.example_prompt, "format_messages")

    def _cost(self, example: Mapping[str, Any]) -> int:
        if self._as_messages():
            return self._measure.group(example_messages(example, self.example_prompt))
        return self._limits.counter.count(example_text(example, self.example_prompt) + self.separator)


def _doubled(value: Any) -> Any:
    return value.replace("{", "{{").replace("}", "}}") if isinstance(value, str) else value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(getattr(value, "text", value))
