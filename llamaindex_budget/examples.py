"""Few-shot examples for LlamaIndex prompts: a function for `function_mappings`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding

from rankbudget import BudgetSession, FewShotSelector, TokenBudget
from rankbudget.adapters import example_text
from rankbudget.errors import check_count, named_options, refuse, shown

from ._counters import counter_of
from ._options import check_values
from ._sharing import shared_budget
from .models import embedder

_REMEMBERED = 256


class few_shot_function:  # noqa: N801 - used as a function
    """Picks the examples most like the question, within a number and a budget of tokens.

    Give it to a prompt's `function_mappings`. Answers are remembered: a prompt is formatted several times for
    one query. Copies of the prompt share it. Without a question, as when a prompt helper measures the empty
    template, it answers with as many tokens as it may ever take.

    Args:
        examples: mappings with an input and an output.
        max_tokens: most tokens of all picked examples; None takes a share of the budget, else 1,000.
        max_examples: most examples; None has no limit but `max_tokens`.
        budget: limits of the whole prompt.
        session: a session whose budget and counter are shared.
        counter: a model or encoding name, or what else `counter_for` takes.
        render: writes one example.
        embed_model: a LlamaIndex embedding, or what `FewShotSelector` takes; None takes its default.
        query_key: the template variable that holds the question.

    Raises:
        BudgetConfigError: an option is wrong.

    Example:
        >>> known = [{"input": "2+2", "output": "4"}, {"input": "capital of France", "output": "Paris"}]
        >>> pick = few_shot_function(known, max_examples=1)
        >>> print(pick(query_str="What is the capital of Spain?"))
        input: capital of France
        output: Paris
    """

    @named_options
    def __init__(
        self,
        examples: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int | None = None,
        max_examples: int | None = 3,
        budget: TokenBudget | None = None,
        session: BudgetSession | None = None,
        counter: Any = None,
        render: Callable[[Mapping[str, Any]], str] = example_text,
        embed_model: Any = None,
        query_key: str = "query_str",
    ) -> None:
        check_values({"budget": budget, "session": session, "render": render})
        problems: list[str] = []
        for name, value in (("max_tokens", max_tokens), ("max_examples", max_examples)):
            if value is not None:
                check_count(name, value, problems)
        listed = not isinstance(examples, (str, Mapping)) and isinstance(examples, Iterable)
        self.examples: list[Any] = list(examples) if listed else []
        wrong = [e for e in self.examples if not isinstance(e, Mapping)] if listed else [examples]
        if wrong:
            problems.append(f"examples must be a list of mappings (got {shown(wrong[0])})")
        refuse(problems)
        self.max_tokens = _share(shared_budget(budget, session)) if max_tokens is None else max_tokens
        self.max_examples = max_examples
        self.render = render
        self.query_key = query_key
        if counter is None and session is not None:
            counter = session.counter
        self._counter = counter_of(None, counter, budget=budget)
        model = embedder(embed_model) if isinstance(embed_model, BaseEmbedding) else embed_model
        self._selector = FewShotSelector(model)
        self._answer = functools.lru_cache(_REMEMBERED)(self._pick)

    def __call__(self, **kwargs: Any) -> str:
        return self._answer(str(kwargs.get(self.query_key) or ""))

    def __deepcopy__(self, memo: dict[int, Any]) -> few_shot_function:
        return self  # prompts copy themselves with every query; what is in here never changes

    def __getstate__(self) -> dict[str, Any]:
        """Returns all but the remembered answers: prompts of some templates pickle what they show."""
        return {name: value for name, value in self.__dict__.items() if name != "_answer"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._answer = functools.lru_cache(_REMEMBERED)(self._pick)

    def _pick(self, query: str) -> str:
        if not query.strip():  # at least as many tokens as any answer: the largest examples, cut
            texts = sorted(map(self.render, self.examples), key=self._counter.count, reverse=True)
            return self._counter.truncate("\n\n".join(texts[: self.max_examples]), self.max_tokens)
        kept = self._selector.select(
            query,
            self.examples,
            self.max_examples,
            max_tokens=self.max_tokens,
            counter=self._counter,
            render=self.render,
        )
        return "\n\n".join(map(self.render, kept))


def _share(limits: TokenBudget | None) -> int:
    if limits is None:
        return 1000
    if "examples" in limits.sizes:
        return limits.sizes["examples"]
    share = limits.share_of("examples") or limits.share_of("memory")
    return int(limits.limit() * share)
