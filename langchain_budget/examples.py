"""The budget in a few-shot prompt: examples like the question, not all alike, within a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, cast

from langchain_core.documents import Document
from langchain_core.example_selectors import BaseExampleSelector

from rankbudget import FewShotSelector
from rankbudget.adapters import JOINT, CodecMeasure
from rankbudget.errors import BudgetConfigError, named_fields, shown

from ._convert import example_messages, example_text
from ._limits import limits_for
from ._options import check_values


@named_fields
@dataclass(eq=False, repr=False)
class BudgetExampleSelector(BaseExampleSelector):
    """Selects examples by relevance, diversity and tokens, for both few-shot prompt templates.

    Args:
        examples: dicts; they come back as the same objects, best first.
        max_tokens: most tokens of all examples, as `example_prompt` shows them; None has no limit but `k`.
        k: most examples; None has no limit but the tokens.
        example_prompt: the few-shot prompt's own; None counts the fields of an example, one on a line.
        separator: joins two examples.
        input_keys: the input variables that make the question; None takes all but messages and documents.
        model: a chat model or a model's name; gives the tokenizer.
        counter: counts instead of the model's tokenizer.
        embeddings: rates by meaning: LangChain embeddings, or what `FewShotSelector` takes.
        diversity: how much likeness to a picked example costs, 0 = nothing, 1 = as much as relevance gives.
        double_braces: hands out copies with `{` and `}` doubled, for `FewShotPromptTemplate`, which fills
            examples in once more and raises KeyError for JSON.

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

    examples: Sequence[dict[str, Any]] = ()
    _: KW_ONLY
    max_tokens: int | None = None
    k: int | None = None
    example_prompt: Any = None
    separator: str = JOINT
    input_keys: Sequence[str] | None = None
    model: Any = None
    counter: Any = None
    embeddings: Any = None
    diversity: float = 0.2
    double_braces: bool = False

    def __post_init__(self) -> None:
        """Checks the options and makes what lives in one process only."""
        check_values(vars(self))
        self.examples = list(self.examples)
        self._selector = FewShotSelector(self.embeddings)
        limits = limits_for(model=self.model, counter=self.counter, max_tokens=self.max_tokens or 1)
        self._counter = limits.counter
        self._measure = limits.measure or CodecMeasure(limits.codec, limits.counter)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    def add_example(self, example: dict[str, str]) -> Any:
        """Adds an example; selections that are under way do not see it.

        Raises:
            BudgetConfigError: the example lacks a field of its prompt or, without one, of all others.
        """
        check_values({"example": example})
        example_text(example, self.example_prompt)  # raises now where the prompt needs other fields
        shared = set[str]().union(*self.examples[:1]).intersection(*self.examples).difference(example)
        if shared and self.example_prompt is None:  # then the few-shot prompt may need what all others have
            wanted = shown(sorted(shared, key=str))
            msg = f"example must have {wanted}, as all others (got {shown(list(example))})"
            raise BudgetConfigError(msg + ". Give example_prompt= where the few-shot prompt needs less.")
        cast("list[Any]", self.examples).append(example)

    def select_examples(self, input_variables: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the best examples for `input_variables`, best first.

        Raises:
            BudgetConfigError: `input_variables` is no dict.
        """
        given: Any = input_variables
        if not isinstance(given, Mapping):
            msg = f"input_variables must be a dict (got {shown(given)})"
            raise BudgetConfigError(msg)
        keys = self.input_keys
        if keys is None:  # a chat prompt hands over all its variables
            keys = [key for key, value in given.items() if not _is_content(value)]
        values = [input_variables[key] for key in keys if key in input_variables]
        query = "\n".join(str(getattr(value, "text", value)) for value in values)
        limits: dict[str, Any] = {"max_tokens": self.max_tokens}
        if hasattr(self.example_prompt, "format_messages"):
            limits["cost"] = lambda e: self._measure.group(example_messages(e, self.example_prompt))
            if self.max_tokens is not None:
                limits["max_tokens"] = max(0, self.max_tokens - self._measure.overhead)
        else:
            render = partial(example_text, prompt=self.example_prompt)
            limits |= {"counter": self._counter, "render": render, "join": self.separator}
        found = self._selector.select(query, list(self.examples), self.k, self.diversity, **limits)
        return [_doubled(example) for example in found] if self.double_braces else found


def _is_content(value: Any) -> bool:
    """Returns whether a variable holds a document, or a list of messages, documents or their dicts."""
    is_list = isinstance(value, (list, tuple)) and not (value and all(isinstance(one, str) for one in value))
    return is_list or isinstance(value, Document)


def _doubled(example: dict[str, Any]) -> dict[str, Any]:
    """Returns a copy that a template may be filled in with once more."""
    return {
        k: v.replace("{", "{{").replace("}", "}}") if isinstance(v, str) else v for k, v in example.items()
    }
