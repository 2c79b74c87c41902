"""Few-shot examples for LlamaIndex prompts: a function for `function_mappings` that picks what fits and suits the question."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding

from rankbudget import BudgetSession, FewShotSelector, TokenBudget, TokenCounter, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.few_shot import example_text

from ._convert import settings_counter
from .models import embedder

__all__ = ["few_shot_function"]

_REMEMBERED = 256


class few_shot_function:  # noqa: N801 - used as a function: function_mappings={"examples": few_shot_function(...)}
    """Picks the examples most like the question, within a number and a budget of tokens; give it to a prompt's `function_mappings`.

    One call per question is worked out, the others are remembered: a prompt is formatted several times for one query. Copies of the prompt share it,
    so that no index of examples is copied with every query. Without a question, as when a prompt helper measures the empty template, it answers
    with as many tokens as it may ever take.

    Args:
        examples: mappings with an input and an output.
        max_tokens: most tokens of all picked examples; None takes the "examples" share of `budget` or `session`, else 1,000.
        max_examples: most examples.
        budget: limits of the whole prompt.
        session: a session whose budget and counter are shared.
        counter: a model or encoding name, or what else `counter_for` takes.
        render: writes one example.
        embed_model: a LlamaIndex embedding, or whatever `FewShotSelector` takes; None takes the core's default.
        query_key: the template variable that holds the question.

    Example:
        >>> pick = few_shot_function([{"input": "2+2", "output": "4"}, {"input": "capital of France", "output": "Paris"}], max_examples=1)
        >>> print(pick(query_str="What is the capital of Spain?"))
        input: capital of France
        output: Paris
    """

    def __init__(
        self,
        examples: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        max_examples: int = 3,
        budget: TokenBudget | None = None,
        session: BudgetSession | None = None,
        counter: Any = None,
        render: Callable[[Mapping[str, Any]], str] = example_text,
        embed_model: Any = None,
        query_key: str = "query_str",
    ) -> None:
        if max_tokens is not None and max_tokens < 0:
            msg = f"max_tokens is {max_tokens}, allowed: 0 or more"
            raise BudgetConfigError(msg)
        self.examples = list(examples)
        self.max_tokens = (
            max_tokens
            if max_tokens is not None
            else _share(budget or (session.budget if session is not None else None))
        )
        self.max_examples = max_examples
        self.render = render
        self.query_key = query_key
        self._counter: TokenCounter = _counter(counter, session, budget)
        self._selector = FewShotSelector(
            embedder(embed_model) if isinstance(embed_model, BaseEmbedding) else embed_model
        )
        self._known: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, **kwargs: Any) -> str:
        query = str(kwargs.get(self.query_key) or "")
        with self._lock:
            known = self._known.get(query)
        if known is not None:
            return known
        text = self._pick(query) if query.strip() else self._largest()
        with self._lock:
            self._known[query] = text
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return text

    def __deepcopy__(self, memo: dict[int, Any]) -> few_shot_function:
        return self  # prompts copy themselves with every query; what is in here never changes

    def _pick(self, query: str) -> str:
        # Diverse and relevant first; the budget is filled with the texts as they will stand in the prompt.
        return self._within(
            [self.render(e) for e in self._selector.select(query, self.examples, max_examples=None)]
        )

    def _within(self, texts: Sequence[str]) -> str:
        kept: list[str] = []
        for text in texts:
            if len(kept) == self.max_examples:
                break
            if self._counter.count("\n\n".join([*kept, text])) <= self.max_tokens:
                kept.append(text)
        return "\n\n".join(kept)

    def _largest(self) -> str:
        """Returns a text with at least the tokens of any answer: the largest examples, cut where the budget ends."""
        texts = [self.render(e) for e in self.examples]
        order = sorted(texts, key=self._counter.count, reverse=True)[: self.max_examples]
        return self._counter.truncate("\n\n".join(order), self.max_tokens)


def _share(budget: TokenBudget | int | None) -> int:
    if budget is None:
        return 1000
    limits = (
        budget
        if isinstance(budget, TokenBudget)
        else TokenBudget(context_window=budget, reserve=0, ratios={"memory": 0.43, "history": 0.57})
    )
    if "examples" in limits.sizes:
        return limits.sizes["examples"]
    share = limits.share_of("examples") or limits.share_of("memory")
    return int(limits.limit() * share)


def _counter(counter: Any, session: BudgetSession | None, budget: TokenBudget | None) -> TokenCounter:
    if counter is not None:
        return counter_for(counter)
    if session is not None:
        return session.counter
    return counter_for(budget.model) if budget is not None and budget.model else settings_counter()
