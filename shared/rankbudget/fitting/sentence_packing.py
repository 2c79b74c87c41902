"""Packs segments and sentences of segments into a limit, exact to the token in the end."""

from __future__ import annotations

from collections.abc import Sequence

from ..counting.protocol import TokenCounter
from ..relevance.sentences import split_sentences
from ..segment import Rendition, RenditionKind, Segment
from .packing import Doubles
from .protocol import Cost, Fit, Piece, whole

__all__ = ["SHORTEST_CUT", "SentencePacking"]

SHORTEST_CUT = 10
"""Tokens of room below which no sentence is cut: a shorter start says too little."""


class SentencePacking:
    """Takes whole segments and single sentences while there is room.

    Sentences are counted one by one, which is exact at most joints; `shrink` counts the texts that came of
    them and takes back what is too much.

    Attributes:
        room: tokens left.
        settled: segments nothing more can be taken of: whole, or repeating a kept one.
        partial: the sentences taken of a segment.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        costs: Sequence[int],
        price: Cost,
        counter: TokenCounter,
        limit: int,
        *,
        dedup: bool,
    ) -> None:
        self.segments = segments
        self.limit = limit
        self.room = limit
        self.settled: set[int] = set()
        self.partial: dict[int, set[int]] = {}
        self._costs = costs
        self._price = price
        self._counter = counter
        self._whole: set[int] = set()
        self._spent: dict[int, int] = {}
        self._texts: dict[int, tuple[str, ...]] = {}
        self._cut: tuple[int, int, str] | None = None
        self._doubles = Doubles() if dedup else None
        self._twins: dict[int, str] = {}

    def few_fit(self, number: int) -> bool:
        """Returns whether fewer than `number` segments of average size would fit."""
        return self.room * len(self.segments) < number * sum(self._costs)

    def fits(self, i: int) -> bool:
        """Returns whether a whole segment fits into the room left."""
        return self._costs[i] <= self.room

    def keep_whole(self, i: int) -> None:
        """Keeps a segment as it is."""
        self.room += self._spent.get(i, 0) - self._costs[i]
        self._remember(i)
        self._spent[i] = self._costs[i]
        self.partial.pop(i, None)
        self._whole.add(i)
        self.settled.add(i)

    def repeats(self, i: int) -> bool:
        """Returns whether a segment repeats a kept one; then nothing is taken of it."""
        if self._doubles is None or i in self.partial:
            return False
        twin = self._doubles.of(self.segments[i])
        if twin is None:
            return False
        self._twins[i] = twin
        self.settled.add(i)
        return True

    def take(self, i: int, j: int) -> None:
        """Takes sentence `j` of segment `i`, or its start when it is the first that does not fit."""
        if i in self.settled:
            return
        texts = self._texts.get(i) or self._texts.setdefault(i, split_sentences(self.segments[i].text))
        opened = i in self.partial
        need = self._counter.count(texts[j]) if opened else self._price(self.segments[i], texts[j].strip())
        fits = need <= self.room
        if not (fits or (self._cut is None and self.room >= SHORTEST_CUT)) or (
            not opened and self.repeats(i)
        ):
            return
        if fits:
            self.partial.setdefault(i, set()).add(j)
            self._spend(i, need)
            if len(self.partial[i]) == len(texts) and self._costs[i] <= self.room + self._spent[i]:
                self.keep_whole(i)
        else:
            self._take_start(i, j)

    def shrink(self, ratings: Sequence[Sequence[float]]) -> None:
        """Counts the resulting texts and takes sentences back, the least likely first, until they fit."""
        changed = set(self.partial)
        while True:
            for i in changed & set(self.partial):
                self._spent[i] = self._price(self.segments[i], self._text(i))
            self.room = self.limit - sum(self._spent.values())
            if self.room >= 0:
                return
            least = sorted((ratings[i][j], i, j) for i, taken in self.partial.items() for j in taken)
            if self._cut is not None:
                least = [(0.0, *self._cut[:2])] + [piece for piece in least if piece[1:] != self._cut[:2]]
            over, changed = -self.room, set()
            for _, i, j in least:
                if over <= 0:
                    break
                text = self._cut[2] if self._cut and self._cut[:2] == (i, j) else self._texts[i][j]
                over -= max(1, self._counter.count(text))
                self._take_back(i, j)
                changed.add(i)

    def used(self) -> list[int]:
        """Returns the segments that are in, whole or in part."""
        return [*self._whole, *self.partial]

    def holds(self, i: int, j: int) -> bool:
        """Returns whether a sentence is in, alone or with its whole segment."""
        return i in self._whole or j in self.partial.get(i, ())

    def kept_of(self, i: int, weights: Sequence[float]) -> float:
        """Returns the weights of those sentences of a segment that are in."""
        return (
            sum(weights) if i in self._whole else sum([weights[j] for j in sorted(self.partial.get(i, ()))])
        )

    def result(self, order: Sequence[int], rest: tuple[str, str] | None, share: float) -> Fit:
        """Returns the fit; `rest` is the reason and detail of segments that were not needed."""
        reasons: dict[str, tuple[str, str]] = {}
        for i, segment in enumerate(self.segments):
            if i in self.partial:
                detail = f"{len(self.partial[i])} of {len(self._texts[i])} sentences"
                cut = ", the last one taken cut" if self._cut is not None and self._cut[0] == i else ""
                reasons[segment.id] = "best_sentences", detail + cut
            elif i in self._twins:
                reasons[segment.id] = "duplicate", f"says what {self._twins[i]!r} says"
            elif rest is not None and i not in self._whole:
                reasons[segment.id] = rest
        pieces = tuple([self._piece(i) for i in order])
        return Fit(pieces=pieces, tokens=sum(self._spent[i] for i in order), reasons=reasons, share=share)

    def _remember(self, i: int) -> None:
        if self._doubles is not None and i not in self._spent:
            self._doubles.keep(self.segments[i])

    def _spend(self, i: int, tokens: int) -> None:
        self._remember(i)
        self._spent[i] = self._spent.get(i, 0) + tokens
        self.room -= tokens

    def _take_start(self, i: int, j: int) -> None:
        sentence = self._texts[i][j]
        available = self.room + self._spent.get(i, 0)
        start = _at_word_end(sentence, self._counter.truncate(sentence, self.room))
        taken = self.partial.setdefault(i, set())
        taken.add(j)
        while len(start.strip()) > 1:
            self._cut = (i, j, start)
            need = self._price(self.segments[i], self._text(i))
            if need <= available:
                self._spend(i, need - self._spent.get(i, 0))
                return
            # Over by a token or two: what follows a cut counts otherwise than what followed the sentence.
            start = _at_word_end(sentence, start.rstrip()[: -max(1, len(start) // 20)])
        self._take_back(i, j)

    def _take_back(self, i: int, j: int) -> None:
        if self._cut is not None and self._cut[:2] == (i, j):
            self._cut = None
        self.partial[i].discard(j)
        if not self.partial[i]:
            del self.partial[i]
            self._spent.pop(i, None)

    def _text(self, i: int) -> str:
        cut = self._cut
        text, before = "", -1  # `before` is the last sentence that stands to its end
        for j in sorted(self.partial[i]):
            if text and before != j - 1 and not text[-1].isspace():
                text += " "  # the sentence between, with its space, is not there
            is_cut = cut is not None and cut[:2] == (i, j)
            text += cut[2] if cut is not None and is_cut else self._texts[i][j]
            before = -1 if is_cut else j
        return text.strip()

    def _piece(self, i: int) -> Piece:
        segment, tokens = self.segments[i], self._spent[i]
        if i in self._whole:
            return whole(segment, tokens)
        cut = self._cut is not None and self._cut[0] == i
        kind: RenditionKind = "truncated" if cut else "compressed"
        return Piece(segment, Rendition(kind=kind, text=self._text(i), tokens=tokens))


def _at_word_end(sentence: str, start: str) -> str:
    """Returns a start of a sentence without its last word where that is cut in two."""
    if len(start) >= len(sentence) or sentence[len(start)].isspace() or " " not in start.strip():
        return start
    return start[: start.rstrip().rfind(" ")]
