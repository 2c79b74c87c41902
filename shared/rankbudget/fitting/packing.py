"""Packs units in one fixed order into a limit: what is kept at a limit is kept at every larger one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from ..counting.protocol import TokenCounter
from ..errors import counted
from ..segment import Rendition, Segment
from .protocol import Cost, Piece, whole

Unit = tuple[int, int]
"""The positions of a segment and of a sentence in it; `WHOLE` for all of it."""
Units = Callable[[], Iterable[Unit]]
"""Yields units in their order, as far as somebody reads."""
WHOLE = -1
SHORTEST_CUT = 10
"""Tokens of room below which no sentence is cut: a shorter start says too little."""
_WORD = re.compile(r"\S+")
_LEADING = re.compile(r"\s+(\S+)")
_FULL_STOPS = ".…"
_LONG_WORD = 32
"""Tokens of a word from which it is cut inside: writing without blanks, or data; an address stays whole."""
_GUESSES = 4
"""How often a number of words is guessed before the range of it is halved."""
MOST_TRIES = 64
"""Lengths that are tried for a cut: its price differs from the count of its words by a few tokens at most."""


@dataclass(eq=False)
class Packing:
    """Takes the longest start of `units` that fits `limit`, and the start of the sentence behind it.

    The order never depends on the limit, so a larger limit takes a longer start of it. Sentences are counted
    one by one, which is exact at most joints; where the resulting texts cost more than the limit, the last
    units are taken back.

    Up to `skip` units at the start are skipped where they do not fit; a larger limit may then drop what a
    smaller one kept. `pieces` is what is kept, by position.
    """

    segments: Sequence[Segment]
    sentences: Sequence[Sequence[str]]  # of each segment; none where all go whole
    price: Cost
    counter: TokenCounter
    units: Units
    limit: int
    skip: int = 0
    pieces: dict[int, Piece] = field(default_factory=dict, init=False)
    _taken: dict[int, list[int]] = field(default_factory=dict, init=False)
    _stopped_at: Unit = field(default=(WHOLE, WHOLE), init=False)  # the first unit without room

    def __post_init__(self) -> None:
        stopped_at = self._take()
        if stopped_at is not None:
            self._stopped_at = stopped_at[0]
            self._take_start(*stopped_at)

    def needed(self) -> Mapping[str, int]:
        """Returns the smallest limit that keeps something of each dropped segment, by its id."""
        found: dict[str, int] = {}
        everything, used, most = sum(map(self._whole_price, range(len(self.segments)))), 0, 0
        for i, j, tokens in self._priced():
            name = self.segments[i].id
            if i not in self.pieces and name not in found:
                least = tokens if j == WHOLE else min(tokens, self._shortest(i, j))
                found[name] = min(everything, max(most, used + least))
            used += tokens
            most = max(most, used)
        return found

    def reasons(self) -> dict[str, tuple[str, str]]:
        """Returns how much is kept of shortened segments, and why others are dropped."""
        stopped, j = self._stopped_at
        own = f"{'Its group' if j == WHOLE else 'Its best sentence or a start of it'} has no room."
        behind = (
            f"It ranks behind text of {self.segments[stopped].id!r} that has no room: what comes later is "
            "not kept before that, so that a larger budget keeps no less."
        )
        found = {}
        for i, segment in enumerate(self.segments if self.sentences else ()):
            piece = self.pieces.get(i)
            if piece is None:
                found[segment.id] = "", own if i == stopped else behind
            elif not piece.whole:
                cut = ", the last one taken cut" if piece.rendition.kind == "truncated" else ""
                number = counted(len(self.sentences[i]), "sentence")
                found[segment.id] = "best_sentences", f"{len(self._taken[i])} of {number}{cut}"
        return found

    def _priced(self) -> Iterator[tuple[int, int, int]]:
        """Yields each unit with the tokens it adds; all sentences of a text add up to its price.

        One sentence begins its text, and may have more tokens there than behind another one: a text is priced
        as if it were the one with most of these.
        """
        spent: dict[int, tuple[int, int, int]] = {}
        for i, j in self.units():
            if j == WHOLE:
                yield i, j, self._whole_price(i)
                continue
            sentences = self.sentences[i]
            number, before, most = spent.get(i, (0, 0, 0))
            if number + 1 == len(sentences):
                after = self._whole_price(i)
            else:
                behind, more = self._forms(sentences, j)
                after = (
                    (before if number else self.price(self.segments[i], "")) + behind + max(0, more - most)
                )
                most = max(most, more)
            spent[i] = number + 1, after, most
            yield i, j, after - before

    def _forms(self, sentences: Sequence[str], j: int) -> tuple[int, int]:
        """Returns the tokens of a sentence behind another one, and how many more it has at the start."""
        text, count = sentences[j], self.counter.count
        if text[:1].isspace():
            # Tokens do not reach over the white space behind a word, so only the first word may differ.
            first = _LEADING.match(text)
            return count(text), count(first[1]) - count(first[0]) if first else 0
        return count(text if j == 0 or sentences[j - 1][-1:].isspace() else f" {text}"), 0

    def _take(self) -> tuple[Unit, int] | None:
        """Takes units while they fit; returns the first that does not, and the room left for it."""
        taken: list[tuple[int, int, int]] = []
        used = 0
        behind: Unit | None = None
        for number, (i, j, tokens) in enumerate(self._priced()):
            may_skip = number < self.skip
            if used + tokens <= self.limit and (may_skip or behind is None):
                used += tokens
                taken.append((i, j, tokens))
                self._taken.setdefault(i, []).append(j)
                continue
            behind = behind or (i, j)
            if not may_skip:
                break
        self.pieces = {i: self._piece(i) for i in self._taken}
        while (over := self._used() - self.limit) > 0:
            taken_back, changed = 0, set()
            while taken_back * 4 < over:  # a wrapping may make a text cost up to four times its words
                i, j, tokens = taken.pop()
                behind = i, j
                used -= tokens
                taken_back += max(tokens, 1)
                self._taken[i].pop()
                changed.add(i)
            for i in changed:
                del self.pieces[i]
                if self._taken[i]:
                    self.pieces[i] = self._piece(i)
                else:
                    del self._taken[i]
        return (behind, self.limit - used) if behind else None

    def _take_start(self, unit: Unit, room: int) -> None:
        """Takes as many words of a sentence as fit; nothing of what stays whole or goes whole."""
        i, j = unit
        if j == WHOLE:
            return
        segment, before, wrapping = self.segments[i], 0, self._wrapping(i)
        if i in self.pieces:
            before, wrapping = self.pieces[i].rendition.tokens, 0
        free = min(room, self.limit - self._used())
        for start in self._starts(i, j, room - wrapping):
            text = self._text(i, cut=(j, start))
            tokens = self.price(segment, text)
            if tokens - before <= free:
                self._taken.setdefault(i, []).append(j)
                self.pieces[i] = Piece(segment, Rendition(kind="truncated", text=text, tokens=tokens))
                return

    def _starts(self, i: int, j: int, most: int) -> Iterator[str]:
        """Yields the start of a sentence that has `most` tokens, then shorter ones that still say enough."""
        if most < SHORTEST_CUT:
            return
        sentence = self.sentences[i][j]
        ends = [word.end() for word in islice(_WORD.finditer(sentence), most)]
        words = self._words_within(i, sentence, ends, most)
        yield from self._inside_word(sentence, ends[words - 1] if words else 0, ends[words:][:1], most)
        for number in range(words, max(0, words - MOST_TRIES), -1):
            if number < SHORTEST_CUT and number < self._words_within(i, sentence, ends, SHORTEST_CUT):
                return
            if sentence[ends[number - 1] - 1] not in _FULL_STOPS:
                yield sentence[: ends[number - 1]]

    def _inside_word(self, sentence: str, start: int, ends: Sequence[int], most: int) -> Iterator[str]:
        """Yields starts of a sentence with at most `most` tokens, longest first, that end in a long word."""
        if not start or (ends and self.counter.count(sentence[start : ends[0]]) >= _LONG_WORD):
            for tokens in range(most, max(SHORTEST_CUT - 1, most - MOST_TRIES), -1):
                cut = self.counter.truncate(sentence, tokens)
                if sentence[len(cut) :][:1].isdigit():  # half a number would be another one
                    cut = cut.rstrip("0123456789.,")
                if len(cut.rstrip()) <= start:
                    return
                yield cut

    def _words_within(self, i: int, sentence: str, ends: Sequence[int], most: int) -> int:
        """Returns how many words at the start of a sentence have at most `most` tokens."""
        low, high = 0, len(ends) + 1
        guess = bisect_right(ends, most * len(self.segments[i].text) // max(1, self._whole_price(i)))
        attempt = 0
        while high - low > 1:
            margin = 1 if attempt < _GUESSES else (high - low) // 2
            guess = min(max(guess, low + margin), high - margin)
            tokens = self.counter.count(sentence[: ends[guess - 1]])
            low, high = (guess, high) if tokens <= most else (low, guess)
            if tokens == most:
                break
            attempt += 1
            guess += (most - tokens) * guess // max(1, tokens)
        while low and sentence[ends[low - 1] - 1] in _FULL_STOPS:  # "am 31." would look like a whole sentence
            low -= 1
        return low

    def _shortest(self, i: int, j: int) -> int:
        """Returns the tokens of the shortest start of a sentence that is kept of a segment."""
        text = next(self._starts(i, j, SHORTEST_CUT), "").strip()
        return max(SHORTEST_CUT + self._wrapping(i), self.price(self.segments[i], text))

    def _wrapping(self, i: int) -> int:
        """Returns the tokens around a text."""
        return max(0, self.price(self.segments[i], "a") - 1)

    def _whole_price(self, i: int) -> int:
        return self.price(self.segments[i], self.segments[i].text)

    def _used(self) -> int:
        return sum([piece.rendition.tokens for piece in self.pieces.values()])

    def _piece(self, i: int) -> Piece:
        segment, taken = self.segments[i], self._taken[i]
        if taken[0] == WHOLE or len(taken) == len(self.sentences[i]):
            return whole(segment, self._whole_price(i))
        text = self._text(i)
        return Piece(segment, Rendition(kind="compressed", text=text, tokens=self.price(segment, text)))

    def _text(self, i: int, cut: tuple[int, str] | None = None) -> str:
        """Returns the sentences that are taken of a segment, in their order, and the start of a cut one."""
        sentences = self.sentences[i]
        shown = {j: sentences[j] for j in self._taken.get(i, ())}
        if cut is not None:
            shown[cut[0]] = cut[1]
        text, before = "", -1
        for j in sorted(shown):
            whole_before = before == j - 1 and (cut is None or cut[0] != before)
            if text and not whole_before and not text.endswith("\n"):  # what is between has gone
                if any(one.endswith("\n") for one in sentences[before:j]):
                    text = text.rstrip() + "\n"
                elif not text[-1].isspace():
                    text += " " * (not shown[j][:1].isspace())
            text += shown[j]
            before = j
        return text.strip()
