"""Few-shot examples: the ones most like the question, not all alike, within a number and a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..counting import counter_for
from ..errors import BudgetConfigError
from ..relevance.embedding import Embedder, EmbeddingScorer, default_embedder, missing_reason
from ..relevance.fusion import default_scorer
from ..relevance.labels import LabelScorer
from ..relevance.protocol import Scorer
from ..relevance.words import content_terms
from ..segment import Segment

__all__ = ["FewShotSelector", "example_text"]

E = TypeVar("E", bound=Mapping[str, Any])

_INPUT_KEYS = ("input", "question", "query", "text", "prompt", "instruction")
_LABEL_KEYS = ("label", "class", "category", "intent")
_LABEL_REPEATS = 2
_LONGEST_LABEL = 60


class FewShotSelector:
    """Picks few-shot examples greedily by relevance, less what they repeat of those already picked.

    Examples that carry a label (`label`, `class`, `category`, `intent`, or short outputs that recur) are rated by how likely their label is,
    then by themselves, so that one lucky match does not decide. Where tokens are the only limit, the most examples of the likely labels for
    the tokens are picked: by the likelihood of the label for each token an example costs.

    Args:
        embedding_engine: rates by meaning: a `Scorer`, an `Embedder`, a function from texts to vectors, or an object with `embed`,
            `embed_documents` or `get_text_embedding_batch`. None mixes words, word pieces and, where installed, the embedded default.

    Example:
        >>> examples = [
        ...     {"input": "Where is my parcel?", "output": "shipping"},
        ...     {"input": "I want my money back", "output": "refund"},
        ...     {"input": "Is my parcel late?", "output": "shipping"},
        ... ]
        >>> [e["output"] for e in FewShotSelector().select("When does the parcel arrive?", examples, max_examples=1)]
        ['shipping']
    """

    def __init__(self, embedding_engine: Any = None) -> None:
        self.engine = embedding_engine
        self._scorer = _scorer_of(embedding_engine)

    def select(
        self,
        query: str,
        examples: Sequence[E],
        max_examples: int | None = 3,
        diversity_weight: float = 0.2,
        *,
        max_tokens: int | None = None,
        counter: Any = None,
        cost: Callable[[Mapping[str, Any]], int] | None = None,
    ) -> list[E]:
        """Returns the best examples, best first: the same objects that were given.

        Args:
            query: the question to answer.
            examples: mappings with an input and an output.
            max_examples: most examples; None has no limit but `max_tokens`.
            diversity_weight: how much likeness to a picked example costs, 0 = nothing, 1 = as much as relevance gives.
            max_tokens: most tokens of all picked examples, each counted as `example_text` shows it on a line of its own; one that does not
                fit is skipped, a shorter one after it may still fit.
            counter: counts; None takes o200k_base. Anything `counter_for` takes.
            cost: tokens one example adds to the prompt, asked instead of `counter` where a prompt of the host's shows examples otherwise.

        Raises:
            BudgetConfigError: a negative limit, or a diversity weight outside 0 to 1.
        """
        _check(max_examples, diversity_weight, max_tokens)
        if not examples or max_examples == 0:
            return []
        costs: list[int] = []
        if max_tokens is not None and cost is not None:
            costs = [cost(e) for e in examples]
        elif max_tokens is not None:
            costs = counter_for("o200k_base" if counter is None else counter).count_many(
                [example_text(e) + "\n" for e in examples]
            )
        labels = _labels(examples)
        if costs and max_examples is None and any(labels):
            chances = LabelScorer(self._scorer).probabilities(query, _segments(examples, labels))
            relevance = [chance / max(1, price) for chance, price in zip(chances, costs, strict=True)]

            def worth(i: int, alike: float) -> float:
                return relevance[i] * (1 - diversity_weight * alike)
        else:
            relevance = self.score(query, examples)
            # Cosines are on one scale with likeness already; other scores are brought there.
            shown = (
                relevance
                if isinstance(self._scorer, EmbeddingScorer) and not any(labels)
                else _unit(relevance)
            )

            def worth(i: int, alike: float) -> float:
                return shown[i] - diversity_weight * alike

        likeness = _Likeness(examples, self._scorer) if diversity_weight else None
        return [examples[i] for i in _picked(relevance, worth, likeness, costs, max_examples, max_tokens)]

    def score(self, query: str, examples: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the relevance of each example, its label's included; any range, higher is better."""
        labels = _labels(examples)
        scorer = LabelScorer(self._scorer) if any(labels) else self._scorer
        return scorer.score(query, _segments(examples, labels))


class _Likeness:
    """How alike two examples are, 0 to 1: by their vectors where the scorer has some, else by the words they share."""

    def __init__(self, examples: Sequence[Mapping[str, Any]], scorer: Scorer) -> None:
        self._texts = [_input_of(e) for e in examples]
        self._terms: list[frozenset[str]] = []
        self._vectors: Any = None
        if isinstance(scorer, EmbeddingScorer):
            self._vectors = scorer.embedder.vectors(self._texts)
        elif scorer is default_scorer() and missing_reason() is None:
            self._vectors = default_embedder().vectors(self._texts)
        else:
            self._terms = [frozenset(content_terms(text)) for text in self._texts]

    def to(self, picked: int, others: Sequence[int]) -> list[tuple[int, float]]:
        if self._vectors is not None:
            row = (self._vectors @ self._vectors[picked]).tolist()
            return [(i, max(row[i], 0.0)) for i in others]
        mine = self._terms[picked]
        return [(i, len(mine & self._terms[i]) / max(len(mine | self._terms[i]), 1)) for i in others]


def _picked(
    relevance: Sequence[float],
    worth: Callable[[int, float], float],
    likeness: _Likeness | None,
    costs: Sequence[int],
    max_examples: int | None,
    max_tokens: int | None,
) -> list[int]:
    """Returns the picked positions, best first; `worth` rates one by its likeness to what is picked."""
    penalty = [0.0] * len(relevance)
    left = sorted(range(len(relevance)), key=lambda i: (-relevance[i], i))
    room = max_tokens
    picked: list[int] = []
    while left and (max_examples is None or len(picked) < max_examples):
        if room is not None:
            left = [i for i in left if costs[i] <= room]
            if not left:
                break
        best = max(left, key=lambda i: (worth(i, penalty[i]), -i)) if likeness else left[0]
        left.remove(best)
        picked.append(best)
        if room is not None:
            room -= costs[best]
        if likeness:
            for i, alike in likeness.to(best, left):
                penalty[i] = max(penalty[i], alike)
    return picked


def example_text(example: Mapping[str, Any]) -> str:
    r"""Returns an example as the optimizer and the token budget read it: one `key: value` a line.

    Example:
        >>> example_text({"input": "2+2", "output": "4"})
        'input: 2+2\noutput: 4'
    """
    return "\n".join(f"{key}: {value}" for key, value in example.items())


def _scorer_of(engine: Any) -> Scorer:
    if engine is None:
        return default_scorer()
    if isinstance(engine, Embedder):
        return EmbeddingScorer(engine)
    for name in ("embed_documents", "get_text_embedding_batch", "embed", "encode"):
        embed = getattr(engine, name, None)
        if callable(embed):
            return EmbeddingScorer(embed)
    if isinstance(engine, Scorer):
        return engine
    if callable(engine):
        return EmbeddingScorer(engine)
    raise BudgetConfigError.of(
        [
            f"embedding_engine is {type(engine).__name__}, allowed: a scorer, an embedder or a function from texts to vectors"
        ]
    )


def _check(max_examples: int | None, diversity_weight: float, max_tokens: int | None) -> None:
    problems = []
    if max_examples is not None and max_examples < 0:
        problems.append(f"max_examples is {max_examples}, allowed: 0 or more, or None")
    if not 0 <= diversity_weight <= 1:
        problems.append(f"diversity_weight is {diversity_weight}, allowed: 0 to 1")
    if max_tokens is not None and max_tokens < 0:
        problems.append(f"max_tokens is {max_tokens}, allowed: 0 or more, or None")
    if problems:
        raise BudgetConfigError.of(problems)


def _input_of(example: Mapping[str, Any]) -> str:
    for key in _INPUT_KEYS:
        if isinstance(example.get(key), str):
            return str(example[key])
    return str(next((value for value in example.values() if isinstance(value, str)), ""))


def _segments(examples: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Segment]:
    return [Segment(id=str(i), text=_input_of(e), label=labels[i] or None) for i, e in enumerate(examples)]


def _labels(examples: Sequence[Mapping[str, Any]]) -> list[str]:
    for key in _LABEL_KEYS:
        if any(isinstance(e.get(key), str) for e in examples):
            return [str(e.get(key) or "") for e in examples]
    outputs = [str(e.get("output") or "") for e in examples]
    # Short outputs that come again are classes; answers that stand once are not.
    distinct = {output for output in outputs if output}
    if (
        distinct
        and len(outputs) >= _LABEL_REPEATS * len(distinct)
        and all(len(output) <= _LONGEST_LABEL for output in distinct)
    ):
        return outputs
    return [""] * len(examples)


def _unit(scores: Sequence[float]) -> list[float]:
    """Returns scores on one scale with likeness: spread over 0 to 1."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) for score in scores] if high > low else [0.0] * len(scores)
