"""Few-shot examples: those most like the question, not all alike, within a number and a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, check_count, check_number, named_options, refuse
from ..prompt.kinds import check_kinds
from ..relevance.embedding import Embedder, EmbeddingScorer, default_embedder, missing_reason
from ..relevance.fusion import MANY, default_scorer
from ..relevance.labels import LabelScorer
from ..relevance.protocol import Scorer
from ..relevance.words import content_terms
from ..segment import Segment

E = TypeVar("E", bound=Mapping[str, Any])
Likeness = Callable[[int, list[int]], float]
"""Position of an example, those of others -> its likeness to the nearest of them."""
Worth = Callable[[int, float], float]
"""Position of an example, its likeness to those picked -> its rating."""

_INPUT_KEYS = ("input", "question", "query", "text", "prompt", "instruction")
_EMBED_METHODS = ("embed_documents", "get_text_embedding_batch", "embed", "encode")
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

    @named_options
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
            counter: what `counter_for` takes; None takes o200k_base.
            render: writes one example as the prompt shows it.
            join: what the prompt puts between two examples; the joined text is counted.
            cost: tokens of one example, where examples are messages; replaces `counter` and `render`.

        Raises:
            BudgetConfigError: a negative limit, or a diversity weight outside 0 to 1.
        """
        problems: list[str] = []
        for name, limit in (("max_examples", max_examples), ("max_tokens", max_tokens)):
            if limit is not None:
                check_count(name, limit, problems, instead=", or None")
        check_number("diversity_weight", diversity_weight, problems, high=1, allowed="a share from 0 to 1")
        refuse(problems)
        check_kinds({"examples": examples})
        if not examples:
            return []
        measured = counter_for("o200k_base" if counter is None else counter)
        room, texts = None, []
        if max_tokens is not None:
            texts = [] if cost else [render(e) for e in examples]
            costs = [cost(e) for e in examples] if cost else measured.count_many(texts)
            room = _Room(measured, texts, join, costs, max_tokens)
        worth = self._worth(query, examples, diversity_weight, room if max_examples is None else None)
        likeness = _likeness(examples, self._scorer) if diversity_weight else None
        number = len(examples) if max_examples is None else max_examples
        picked = _picked(worth, likeness, len(examples), number, room)
        while texts and measured.count(join.join([texts[i] for i in picked])) > (max_tokens or 0):
            picked.pop()
        return [examples[i] for i in picked]

    def _worth(
        self, query: str, examples: Sequence[Mapping[str, Any]], diversity: float, room: _Room | None
    ) -> Worth:
        """Returns what rates an example by its likeness to picked ones; with a `room`, by token too."""
        labels = _labels(examples)
        inputs = [
            Segment(id=str(i), text=_input_of(e), label=labels[i] or None) for i, e in enumerate(examples)
        ]
        if room and any(labels):
            chances = LabelScorer(self._scorer).probabilities(query, inputs)
            value = [chance / max(1, price) for chance, price in zip(chances, room.costs, strict=True)]
            return lambda i, alike: value[i] * (1 - diversity * alike)
        scores = (LabelScorer(self._scorer) if any(labels) else self._scorer).score(query, inputs)
        # Cosines have the range of likeness already; other scores are spread over 0 to 1.
        if any(labels) or not isinstance(self._scorer, EmbeddingScorer):
            low, spread = min(scores), max(scores) - min(scores)
            scores = [(score - low) / (spread or 1.0) for score in scores]
        return lambda i, alike: scores[i] - diversity * alike


@dataclass(slots=True)
class _Room:
    """Tokens that are left, and what each example costs alone; `texts` where what they join to is counted."""

    counter: TokenCounter
    texts: Sequence[str]
    join: str
    costs: Sequence[int]
    left: int

    def take(self, i: int, picked: list[int]) -> bool:
        """Returns whether an example fits, and takes its tokens."""
        added = self.costs[i]
        if added > self.left + 1:  # a joint saves one token at most
            return False
        if picked and self.texts:
            # Tokens merge at a joint only: counting two neighbours together gives what the second one adds.
            last = picked[-1]
            added = self.counter.count(f"{self.texts[last]}{self.join}{self.texts[i]}") - self.costs[last]
        if added > self.left:
            return False
        self.left -= added
        return True


def _picked(
    worth: Worth, likeness: Likeness | None, count: int, number: int, room: _Room | None
) -> list[int]:
    """Returns at most `number` positions, best first; `worth` rates one by its likeness to those picked."""
    ranked = [(-worth(i, 0.0), i) for i in range(count)]
    heapify(ranked)
    penalty, compared = [0.0] * count, [0] * count
    picked: list[int] = []
    while ranked and len(picked) < number:
        _, i = heappop(ranked)
        fresh = picked[compared[i] : _COMPARED] if likeness is not None else []
        if likeness is not None and fresh:
            # Its worth only falls as others like it are picked, so it is compared when its turn comes.
            penalty[i] = max(penalty[i], likeness(i, fresh))
            compared[i] += len(fresh)
            heappush(ranked, (-worth(i, penalty[i]), i))
        elif room is None or room.take(i, picked):
            picked.append(i)
    return picked


def _likeness(examples: Sequence[Mapping[str, Any]], scorer: Scorer) -> Likeness:
    """Returns how alike one example is to the nearest of some, 0 to 1: by vectors, else by shared words."""
    embedder = scorer.embedder if isinstance(scorer, EmbeddingScorer) else None
    if scorer is default_scorer() and missing_reason() is None:
        embedder = default_embedder()
    if embedder is None:
        terms = [frozenset(content_terms(_input_of(e))) for e in examples]
        return lambda one, others: max([_shared(terms[one], terms[i]) for i in others])
    vectors: Any = None
    room = MANY if len(examples) > MANY else 0  # so many are embedded when they are compared: few are

    def nearest(one: int, others: list[int]) -> float:
        nonlocal vectors, room
        room -= 1 + len(others)
        if room >= 0:
            few = embedder.vectors([_input_of(examples[i]) for i in (one, *others)])
            return max(0.0, float((few[1:] @ few[0]).max()))
        if vectors is None:
            vectors = embedder.vectors([_input_of(e) for e in examples])
        return max(0.0, float((vectors[others] @ vectors[one]).max()))

    return nearest


def _scorer_of(engine: Any) -> Scorer:
    if engine is None:
        return default_scorer()
    named = [getattr(engine, name, None) for name in _EMBED_METHODS]
    embed = engine if isinstance(engine, Embedder) else next(filter(callable, named), None)
    if embed is None and isinstance(engine, Scorer):
        return engine
    if embed is None and not callable(engine):
        kinds = "a scorer, an embedder or a function from texts to vectors"
        msg = f"embedding_engine must be {kinds} (got {type(engine).__name__})."
        raise BudgetConfigError(msg)
    return EmbeddingScorer(embed or engine)


def _input_of(example: Mapping[str, Any]) -> str:
    values = [example.get(key) for key in _INPUT_KEYS] + list(example.values())
    return next((value for value in values if isinstance(value, str)), "")


def _labels(examples: Sequence[Mapping[str, Any]]) -> list[str]:
    for key in _LABEL_KEYS:
        if any(isinstance(e.get(key), str) for e in examples):
            return [str(e.get(key) or "") for e in examples]
    outputs = [str(e.get("output") or "") for e in examples]
    # Short outputs that recur are classes; answers that occur once are not.
    distinct = {output for output in outputs if output}
    recur = len(outputs) >= _LABEL_REPEATS * len(distinct)
    short = all(len(output) <= _LONGEST_LABEL for output in distinct)
    return outputs if recur and short else [""] * len(examples)


def _shared(first: frozenset[str], second: frozenset[str]) -> float:
    """Returns the share of the words of two texts that both have."""
    both = 0 if first.isdisjoint(second) else len(first & second)
    return both / max(len(first) + len(second) - both, 1)
