"""wordllama's vectors of texts, its tokens remembered word by word.

A text's vector is the mean of its tokens' vectors. The tokenizer merges within words only: no token spans the
start of a word or a line break. So each word's tokens are found once, and a new text of known words is looked
up instead of tokenized: several times faster, with the tokens it would have as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MARK", "WordVectors", "merges_within_words"]

_PIECE = re.compile(r"\n| *[^ \n]+| +")
MARK = "\u2581"
"""What the tokenizer writes for the space in front of a word, and in front of every text."""
_MOST_WORDS = 100_000
_LONGEST = 40
"""Characters of a word worth remembering."""
_PROBES = (
    "a b",
    "a  b c ",
    "One.\nTwo three\n\n four \nfive",
    "caf\u00e9 \u5317\u4eac x",
    "tab\there, (so) \U0001f600!",
    " \n",
    "</s> x",
)


class WordVectors:
    """Embeds texts as a wordllama model does.

    Args:
        model: a loaded model for which `merges_within_words` holds.
    """

    def __init__(self, model: Any) -> None:
        self._vectors: NDArray[np.float32] = model.embedding
        self._tokenizer = model.tokenizer
        self._special = tuple(token.content for token in model.tokenizer.get_added_tokens_decoder().values())
        self._words: dict[str, tuple[int, ...]] = {"": (model.tokenizer.token_to_id(MARK),)}

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Returns the mean of each text's token vectors as a row; zeros for a text without tokens."""
        import numpy as np

        found = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        for row, ids in enumerate(self.tokens(texts)):
            if ids:
                found[row] = self._vectors.take(ids, axis=0).mean(axis=0)
        return found

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns each text's tokens."""
        pieces = [self._pieces(text) for text in texts]
        words = self._look_up(chain.from_iterable(found for found in pieces if found is not None))
        return [
            self._encoded(text) if found is None else list(chain.from_iterable([words[p] for p in found]))
            for text, found in zip(texts, pieces, strict=True)
        ]

    def _pieces(self, text: str) -> list[str] | None:
        """Cuts a text where no token can span; None for one that must be tokenized as a whole.

        The space in front of a piece goes: the tokenizer puts one there. What follows a line break keeps it
        in front, for there is no space.
        """
        if not text or text[0] in " \n" or MARK in text or any(special in text for special in self._special):
            return None
        if "\n" not in text and "  " not in text:
            return text.split(" ")
        pieces: list[str] = _PIECE.findall(text)
        for at, piece in enumerate(pieces):
            if piece[0] == " ":
                pieces[at] = piece[1:]
            elif at and piece != "\n":
                pieces[at] = f"\n{piece}"
        return pieces

    def _encoded(self, text: str) -> list[int]:
        """Returns the tokens of one text; one by one nothing is padded."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _look_up(self, pieces: Iterable[str]) -> dict[str, tuple[int, ...]]:
        """Returns the tokens of every piece; those nobody asked for before are tokenized."""
        words = self._words
        wanted = set(pieces)
        new = list(wanted.difference(words))
        if not new:
            return words
        fresh = {piece: tuple(self._encoded(piece)[_in_front(piece) :]) for piece in new}
        found = {**{piece: words[piece] for piece in wanted.intersection(words)}, **fresh}
        if len(words) + len(fresh) > _MOST_WORDS:
            words = self._words = {"": words[""]}
        words.update({piece: ids for piece, ids in fresh.items() if len(piece) <= _LONGEST})
        return found


def _in_front(piece: str) -> int:
    """Returns how many tokens in front are not the piece's own: a space, and the line break before it."""
    return 0 if piece[0] != "\n" else 1 if piece == "\n" else 2


def merges_within_words(model: Any) -> bool:
    """Says whether a model's tokens can be found word by word, by a few texts tokenized both ways."""
    tokenizer = model.tokenizer
    vocabulary = tokenizer.get_vocab()
    if (
        tokenizer.truncation is not None
        or getattr(model, "binary", False)
        or max(vocabulary.values()) >= model.embedding.shape[0]
    ):
        return False
    if MARK not in vocabulary or any("\n" in word or MARK in word.lstrip(MARK) for word in vocabulary):
        return False
    whole = [tokenizer.encode(text, add_special_tokens=False).ids for text in _PROBES]
    return WordVectors(model).tokens(_PROBES) == whole
