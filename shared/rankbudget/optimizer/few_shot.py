"""Few-shot examples: those most like the question, not all alike, within a number and a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ..counting import counter_for
from ..errors import BudgetConfigError, check_count, check_number
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
_COMPARED = 100
"""Examples are compared with the first 100 picked: comparing all with all takes quadratic time."""


def example_text(example: Mapping[str, Any]) -> str:
    r"""Returns an example as it is shown where no other rendering is given: one `key: value` a line.

    Example:
        >>> example_text({"input": "2+2", "output": "4"})
        'input: 2+2\noutput: 4'
    """
    return "\n".join(f"{key}: {value}" for key, value in example.items())


class FewShotSelector:
    """Picks few-shot examples greedily by relevance, less what they repeat of those already picked.

    Examples with a label (`label`, `class`, `category`, `intent`, or short outputs that recur) are rated by
    how likely their label is, then by themselves, so that one lucky match does not decide. Where tokens are
    the only limit, examples are rated by the likelihood of their label for each token they cost.

    Args:
        embedding_engine: rates by meaning: a `Scorer`, an `Embedder`, a function from texts to vectors, or an
            object with `embed`, `embed_documents` or `get_text_embedding_batch`. None mixes words, word
            pieces and, where installed, the embedded default.

    Example:
        >>> examples = [
        ...     {"input": "Where is my parcel?", "output": "shipping"},
        ...     {"input": "I want my money back", "output": "refund"},
        ...     {"input": "Is my parcel late?", "output": "shipping"},
        ... ]
        >>> [e["output"] for e in FewShotSelector().select("When will the parcel come?", examples, 1)]
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
        render: Callable[[Mapping[str, Any]], str] = example_text,
        join: str = "\n\n",
        cost: Callable[[Mapping[str, Any]], int] | None = None,
    ) -> list[E]:
        """Returns the best examples, best first: the same objects that were given.

        Args:
            query: the question to answer.
            examples: mappings with an input and an output.
            max_examples: most examples; None has no limit but `max_tokens`.
            diversity_weight: how much likeness to a picked example costs, 0 to 1: as much as relevance gives.
            max_tokens: most tokens of the picked examples; one that does not fit is skipped.
            counter: counts; None takes o200k_base. Anything `counter_for` takes.
            render: writes one example as the prompt shows it.
            join: what the prompt puts between two examples; the joined text is counted.
            cost: tokens of one example, where examples are messages; replaces `counter` and `render`.

        Raises:
            BudgetConfigError: a negative limit, or a diversity weight outside 0 to 1.
        """
        _check(max_examples, diversity_weight, max_tokens)
        if not examples or max_examples == 0:
            return []
        measured = counter_for("o200k_base" if counter is None else counter)
        texts = [render(e) for e in examples] if max_tokens is not None and cost is None else []
        costs = measured.count_many(texts)
        if max_tokens is not None and cost is not None:
            costs = [cost(e) for e in examples]

        def adds(i: int, picked: list[int]) -> int:
            if not picked or not texts:
                return costs[i]
            # Tokens merge at a joint only: counting two neighbours together gives what the second one adds.
            last = picked[-1]
            return measured.count(f"{texts[last]}{join}{texts[i]}") - costs[last]

        worth = self._worth(query, examples, diversity_weight, costs if max_examples is None else [])
        likeness = _Likeness(examples, self._scorer) if diversity_weight else None
        number = len(examples) if max_examples is None else max_examples
        room = None if max_tokens is None else _Room(costs, adds, max_tokens)
        picked = _picked(worth, likeness, len(examples), number, room)
        while (
            max_tokens is not None
            and texts
            and measured.count(join.join([texts[i] for i in picked])) > max_tokens
        ):
            picked.pop()
        return [examples[i] for i in picked]

    def score(self, query: str, examples: Sequence[Mapping[str, Any]]) -> list[float]:
        """Returns the relevance of each example, its label's included; any range, higher is better."""
        labels = _labels(examples)
        scorer = LabelScorer(self._scorer) if any(labels) else self._scorer
        return scorer.score(query, _segments(examples, labels))

    def _worth(
        self, query: str, examples: Sequence[Mapping[str, Any]], diversity: float, costs: list[int]
    ) -> Callable[[int, float], float]:
        """Returns what rates an example by its likeness to picked ones; with `costs`, by token too."""
        labels = _labels(examples)
        if costs and any(labels):
            chances = LabelScorer(self._scorer).probabilities(query, _segments(examples, labels))
            value = [chance / max(1, price) for chance, price in zip(chances, costs, strict=True)]
            return lambda i, alike: value[i] * (1 - diversity * alike)
        relevance = self.score(query, examples)
        # Cosines have the range of likeness already; other scores are brought to it.
        cosines = isinstance(self._scorer, EmbeddingScorer) and not any(labels)
        shown = relevance if cosines else _unit(relevance)
        return lambda i, alike: shown[i] - diversity * alike


@dataclass(slots=True)
class _Room:
    """Tokens that are left: what each example costs alone, and what it adds to those picked before."""

    costs: Sequence[int]
    adds: Callable[[int, list[int]], int]
    left: int

    def take(self, i: int, picked: list[int]) -> bool:
        """Returns whether an example fits, and takes its tokens."""
        if self.costs[i] > self.left + 1:  # a joint saves one token at most
            return False
        added = self.adds(i, picked)
        if added > self.left:
            return False
        self.left -= added
        return True


class _Likeness:
    """How alike two examples are, 0 to 1: by the scorer's vectors, else by the words they share."""

    def __init__(self, examples: Sequence[Mapping[str, Any]], scorer: Scorer) -> None:
        texts = [_input_of(e) for e in examples]
        self._terms: list[frozenset[str]] = []
        self._vectors: Any = None
        if isinstance(scorer, EmbeddingScorer):
            self._vectors = scorer.embedder.vectors(texts)
        elif scorer is default_scorer() and missing_reason() is None:
            self._vectors = default_embedder().vectors(texts)
        else:
            self._terms = [frozenset(content_terms(text)) for text in texts]

    def to(self, picked: int, others: Sequence[int]) -> list[float]:
        if self._vectors is not None:
            row = (self._vectors @ self._vectors[picked]).tolist()
            return [max(row[i], 0.0) for i in others]
        mine = self._terms[picked]
        return [len(mine & self._terms[i]) / max(len(mine | self._terms[i]), 1) for i in others]


def _picked(
    worth: Callable[[int, float], float],
    likeness: _Likeness | None,
    count: int,
    number: int,
    room: _Room | None,
) -> list[int]:
    """Returns at most `number` positions, best first; `worth` rates one by its likeness to those picked."""
    penalty = [0.0] * count
    waiting = list(range(count))
    picked: list[int] = []
    while waiting and len(picked) < number:
        waiting.sort(key=lambda i: (-worth(i, penalty[i]), i))
        compared = likeness is not None and len(picked) < _COMPARED
        rest = iter(waiting)
        for i in rest:
            if room is None or room.take(i, picked):
                picked.append(i)
                if compared or len(picked) == number:
                    break
        waiting = list(rest)
        if likeness is not None and waiting:
            for other, alike in zip(waiting, likeness.to(picked[-1], waiting), strict=True):
                penalty[other] = max(penalty[other], alike)
    return picked


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
    kinds = "a scorer, an embedder or a function from texts to vectors"
    msg = f"embedding_engine must be {kinds} (got {type(engine).__name__})."
    raise BudgetConfigError(msg)


def _check(max_examples: int | None, diversity_weight: float, max_tokens: int | None) -> None:
    problems: list[str] = []
    if max_examples is not None:
        check_count("max_examples", max_examples, problems, instead=", or None")
    check_number("diversity_weight", diversity_weight, problems, high=1, allowed="a share from 0 to 1")
    if max_tokens is not None:
        check_count("max_tokens", max_tokens, problems, instead=", or None")
    if problems:
        raise BudgetConfigError.of(problems)


def _input_of(example: Mapping[str, Any]) -> str:
    values = [example.get(key) for key in _INPUT_KEYS] + list(example.values())
    return next((value for value in values if isinstance(value, str)), "")


def _segments(examples: Sequence[Mapping[str, Any]], labels: Sequence[str]) -> list[Segment]:
    return [Segment(id=str(i), text=_input_of(e), label=labels[i] or None) for i, e in enumerate(examples)]


def _labels(examples: Sequence[Mapping[str, Any]]) -> list[str]:
    for key in _LABEL_KEYS:
        if any(isinstance(e.get(key), str) for e in examples):
            return [str(e.get(key) or "") for e in examples]
    outputs = [str(e.get("output") or "") for e in examples]
    # Short outputs that recur are classes; answers that occur once are not.
    distinct = {output for output in outputs if output}
    recur = bool(distinct) and len(outputs) >= _LABEL_REPEATS * len(distinct)
    if recur and all(len(output) <= _LONGEST_LABEL for output in distinct):
        return outputs
    return [""] * len(examples)


def _unit(scores: Sequence[float]) -> list[float]:
    """Returns scores spread over 0 to 1, the range of likeness."""
    low, high = min(scores), max(scores)
    return [(score - low) / (high - low) for score in scores] if high > low else [0.0] * len(scores)
