"""Weights under which the choice that holds most worth keeps most of what is needed.

First a logistic regression: is this value an argument of the next call? What the library keeps is chosen by the sum of those probabilities, so the
regression is only where the second step begins: for each conversation and budget some choices are listed, made by the library's own search for
slightly other worths and for the truth; the better choices have to hold more worth than the others. That is smooth in the weights, so it is climbed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rankbudget.conversation.coverage import cover

Array = NDArray[np.float64]
NOISE = (0.25, 0.5, 0.75)
"""How far the weights of a trial lie from the regression's, in units of what a sign does to the odds."""
PRESSED = 5.0
"""What the values of a piece are worth that is pressed into a choice."""
TRIALS = 4
"""Trials at each distance."""
SHARPNESS = 6.0
"""How much more a choice counts that holds one more value: the larger, the more only the best counts."""
TETHER = 0.02
"""What holds the weights near the regression's."""
STEPS, STEP = 70, 0.1
RIDGE = 1.0
"""What holds the regression's weights near zero."""


@dataclass(frozen=True, slots=True)
class Case:
    """What there is to choose from in a conversation at one budget, as `cover` is given it, and how much the budget counts."""

    prices: Sequence[int]
    holds: Sequence[Sequence[int]]
    opens: Sequence[int]
    kept: Sequence[int]
    room: int
    counts: float

    def choose(self, worth: Array) -> frozenset[int]:
        """Returns the pieces the library keeps if this is what the values are worth."""
        return frozenset(
            [*self.kept, *cover(self.prices, self.holds, worth.tolist(), self.opens, self.kept, self.room)]
        )


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question's task, the signs of each value, whether it is needed, which piece holds which argument, and the cases."""

    task: str
    signs: Array
    needed: Array
    evidence: Array
    cases: Sequence[Case]
    known: dict[int, set[frozenset[int]]] = field(default_factory=dict)
    """Choices that need no weights, listed once for all fits."""


@dataclass(frozen=True, slots=True)
class _Listed:
    """The choices of a case: the values each holds, the evidence each keeps."""

    conversation: int
    holds: Array
    keeps: Array
    counts: float


def fit(conversations: Sequence[Conversation]) -> Array:
    """Returns the weight of each sign; the first sign is 1 for every value."""
    start = _regression(conversations)
    signs = np.concatenate([conversation.signs for conversation in conversations])
    scale = np.where(signs.std(axis=0) > 0, signs.std(axis=0), 1.0)
    return _climb(start, scale, conversations, _listed(conversations, start, scale))


def _regression(conversations: Sequence[Conversation]) -> Array:
    """Returns the weights of a logistic regression in which every conversation counts alike, by Newton's steps."""
    signs = np.concatenate([conversation.signs for conversation in conversations])
    needed = np.concatenate([conversation.needed for conversation in conversations])
    arguments = [conversation.evidence.shape[1] for conversation in conversations]
    counts = np.concatenate(
        [
            np.full(len(one.needed), np.mean(arguments) / many)
            for one, many in zip(conversations, arguments, strict=True)
        ]
    )
    ridge = np.full(signs.shape[1], RIDGE)
    ridge[0] = 1e-6
    weights = np.zeros(signs.shape[1])
    for _ in range(30):
        share = _share(signs @ weights)
        slope = signs.T @ (counts * (needed - share)) - ridge * weights
        bend = (signs * (counts * share * (1 - share))[:, None]).T @ signs + np.diag(ridge)
        step = np.linalg.solve(bend, slope)
        weights += step
        if np.abs(step).max() < 1e-6:
            break
    return weights


def _listed(conversations: Sequence[Conversation], start: Array, scale: Array) -> list[_Listed]:
    """Lists the choices of every case: for the regression's worths, for worths some noise away, and those that know the truth."""
    noise = np.random.default_rng(1)
    trials = [
        start,
        *[start + noise.normal(0, size, len(start)) / scale for size in NOISE for _ in range(TRIALS)],
    ]
    found = []
    for at, conversation in enumerate(conversations):
        worths = [_share(conversation.signs @ trial) for trial in trials]
        for number, case in enumerate(conversation.cases):
            if number not in conversation.known:
                conversation.known[number] = _known(case, conversation.needed)
            choices = sorted({*conversation.known[number], *map(case.choose, worths)}, key=sorted)
            holds = np.zeros((len(choices), len(conversation.needed)))
            for row, choice in zip(holds, choices, strict=True):
                row[[value for piece in choice for value in case.holds[piece]]] = 1
            keeps = np.array([conversation.evidence[sorted(choice)].any(axis=0).mean() for choice in choices])
            found.append(_Listed(at, holds, keeps, case.counts))
    return found


def _known(case: Case, needed: Array) -> set[frozenset[int]]:
    """Returns the choices for the truth, and for the truth with one piece pressed in, each piece that may fit in turn."""
    worths = [needed]
    for piece, price in enumerate(case.prices):
        if price <= case.room and piece not in case.kept:
            worths.append(needed.copy())
            worths[-1][list(case.holds[piece])] = PRESSED
    return {case.choose(worth) for worth in worths}


def _climb(
    start: Array, scale: Array, conversations: Sequence[Conversation], listed: Sequence[_Listed]
) -> Array:
    """Returns the weights after a number of steps (Adam's) towards choices that keep more; the last ones are smaller."""
    weights: Array = start
    mean, square = np.zeros(len(start)), np.zeros(len(start))
    for step in range(1, STEPS + 1):
        slope = _slope(weights, conversations, listed) - TETHER * (weights - start) * scale**2
        mean = 0.9 * mean + 0.1 * slope
        square = 0.99 * square + 0.01 * slope**2
        size = STEP if step < STEPS * 0.6 else STEP * 0.3
        weights = weights + size * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return weights


def _slope(weights: Array, conversations: Sequence[Conversation], listed: Sequence[_Listed]) -> Array:
    """Returns how the evidence that is kept on average grows with each weight, where choices are taken the likelier the more worth they hold."""
    shares = [_share(conversation.signs @ weights) for conversation in conversations]
    pulls = [np.zeros(len(share)) for share in shares]
    for case in listed:
        worth = SHARPNESS * (case.holds @ shares[case.conversation])
        taken = np.exp(worth - worth.max())
        taken /= taken.sum()
        pull = taken * (case.keeps - taken @ case.keeps)
        pulls[case.conversation] += case.counts * SHARPNESS * (case.holds.T @ pull)
    slopes = [
        one.signs.T @ (pull * share * (1 - share))
        for one, pull, share in zip(conversations, pulls, shares, strict=True)
    ]
    slope: Array = np.sum(slopes, axis=0) / len(listed)
    return slope


def _share(odds: Array) -> Array:
    found: Array = 1 / (1 + np.exp(-odds))
    return found
