"""Relevance by meaning: cosines of wordllama's static vectors, or of vectors of your own; owns wordllama."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache, partial
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from ..budget.context_windows import name_of
from ..errors import BudgetConfigError, CounterUnavailableError, named_failure
from ..segment import Segment
from .corpus import BoundedCache, scored_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vectors = NDArray[np.float32]

EmbedFunction = Callable[[list[str]], Any]
"""Texts in, one vector each out: lists of floats or an array."""


READS = 4_000
"""Characters of a text that are embedded: a static vector of more is a mean of everything."""
_MOST_TEXTS = 50_000
"""Vectors kept in memory; one of 256 numbers takes 1 KB."""
_SAME = 0.99
"""The least cosine of two vectors of one text: remote models do not return quite the same each time."""
_MARK = "\u2581"
"""What wordllama's vocabulary writes for the space in front of a word."""
_MOST_WORDS, _LONGEST = 100_000, 40
"""Words whose tokens are remembered, and the characters of the longest of them."""


class Embedder:
    """Turns texts into unit vectors and remembers them.

    Args:
        embed: texts in, one vector each out; None takes wordllama's static embedding.
        name: what stores and saved indexes call it; defaults to the function's own name, of a method to its
            class and model, as "OpenAIEmbeddings(text-embedding-3-large)".
    """

    def __init__(self, embed: EmbedFunction | None = None, *, name: str | None = None) -> None:
        self._given = embed
        self._embed = embed or _WordVectors().embed
        self.name = name or ("wordllama" if embed is None else _name_of(embed))
        self._forget()

    def _forget(self, length: int | None = None) -> None:
        """Remembers no text; vectors of another model, as one that takes over for it, are not comparable."""
        self._length = length
        self._one: BoundedCache[str, Vectors] = BoundedCache(max_size=_MOST_TEXTS, size=lambda _: 1)
        self._many: BoundedCache[tuple[str, ...], Vectors] = BoundedCache(max_size=_MOST_TEXTS, size=len)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Embedder, name=self.name), (self._given,)

    def vectors(self, texts: Sequence[str]) -> Vectors:
        """Returns one unit vector per text, as the rows of an array; one that is no number becomes zeros."""
        import numpy as np

        found = self.raw(texts)
        known = np.isfinite(found).all(axis=1, keepdims=True)
        return found if known.all() else np.where(known, found, np.float32(0.0))

    def raw(self, texts: Sequence[str]) -> Vectors:
        """Returns the same with those that are no numbers; a text is embedded once."""
        import numpy as np

        found = self._many.find(tuple(texts))
        if found is not None:
            return found
        rows: dict[str, Any] = {text: self._one.find(text) for text in texts}
        missing = [text for text, row in rows.items() if row is None]
        new = self._embedded(missing) if missing else np.zeros((0, 0), dtype=np.float32)
        rows.update(zip(missing, new, strict=True))
        lengths = set(map(len, rows.values()))
        if missing and lengths != {self._length}:
            self._forget(new.shape[1])
        if len(lengths) > 1:
            return self.raw(texts)
        found = new if len(missing) == len(texts) else np.stack([rows[text] for text in texts])
        if np.isfinite(found).all():  # an embedder that failed once is asked again
            self._many.keep(tuple(texts), found)
            for text in missing:
                self._one.keep(text, rows[text])
        return found

    def gives(self, text: str, stored: Vectors) -> bool:
        """Returns whether a stored vector of a text may be its own; another length is known by that."""
        here = self.vectors((text,))[0]
        return len(here) != len(stored) or not here.any() or float(here @ stored) >= _SAME

    def _embedded(self, texts: list[str]) -> Vectors:
        import numpy as np

        # A lone surrogate, at which models fail, becomes a question mark.
        readable = [
            text[:READS] if text.isascii() else text[:READS].encode("utf-8", "replace").decode("utf-8")
            for text in texts
        ]
        with named_failure(f"the embedding {self.name!r}"):
            found = np.asarray(self._embed(readable), dtype=np.float32)
        if found.ndim != 2 or len(found) != len(texts):  # noqa: PLR2004 - rows and columns
            msg = (
                f"the embedding {self.name!r} must give one vector per text "
                f"(got an array of shape {found.shape} for {len(texts)} texts)"
            )
            raise BudgetConfigError(msg)
        lengths = np.linalg.norm(found, axis=1, keepdims=True)
        with np.errstate(invalid="ignore"):  # of what is infinite
            return np.asarray(found / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


class EmbeddingScorer:
    """Rates a segment by the cosine between its vector and the query's, -1 to 1.

    Args:
        embed: an `Embedder`, a function from texts to vectors, or None for the embedded default.

    Example:
        >>> from rankbudget import Segment
        >>> scorer = EmbeddingScorer(lambda texts: [[text.count("a"), text.count("b")] for text in texts])
        >>> scorer.score("aa", [Segment(id="1", text="a"), Segment(id="2", text="b")])
        [1.0, 0.0]
    """

    def __init__(self, embed: Embedder | EmbedFunction | None = None) -> None:
        self._embed = embed

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder, made on first use: loading the default takes a third of a second."""
        if isinstance(self._embed, Embedder):
            return self._embed
        return Embedder(self._embed) if self._embed else default_embedder()

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        """Returns one score for each segment."""
        if not segments or not query.strip():
            return [0.0] * len(segments)
        asked = self.embedder.vectors((query,))[0]
        found: list[float] = (self.embedder.vectors(scored_texts(segments)) @ asked).tolist()
        return found


def missing_reason() -> str | None:
    """Returns why the embedded default cannot be used, None when it can."""
    missing = [name for name in ("wordllama", "numpy") if importlib.util.find_spec(name) is None]
    if not missing:
        return None
    names = " and ".join(missing)
    install = 'pip install "rankbudget[embed]"'
    return f"{names} not installed; relevance is by words only. To compare meanings: {install}"


@lru_cache(maxsize=1)
def default_embedder() -> Embedder:
    """Returns the shared embedder over wordllama's vectors; an ImportError says what to install."""
    return Embedder()


@lru_cache(maxsize=1)
def common_words() -> frozenset[str]:
    """Returns common words in lower case: those wordllama has a token for."""
    tokens = _model().tokenizer.get_vocab() if missing_reason() is None else ()
    return frozenset([token[1:].lower() for token in tokens if token[0] == _MARK and token[1:].isalpha()])


class _WordVectors:
    """Embeds a text as the mean of its tokens' vectors; each word is tokenized once."""

    def __init__(self) -> None:
        if reason := missing_reason():
            raise CounterUnavailableError(reason)
        model = _model()
        self._vectors: Vectors = model.embedding
        self._tokenizer = model.tokenizer
        self._known = _Tokens(self._tokenizer)

    def embed(self, texts: list[str]) -> Vectors:
        """Returns one vector per text; zeros for a text without words."""
        import numpy as np

        found = np.zeros((len(texts), self._vectors.shape[1]), dtype=np.float32)
        sizes = np.ones((len(texts), 1), dtype=np.float32)
        known = self._known.__getitem__
        for row, text in enumerate(texts):
            tokens = np.frombuffer(b"".join(map(known, text.split())), dtype=np.intp)
            if len(tokens):
                np.add.reduce(self._vectors.take(tokens, axis=0), axis=0, out=found[row])
                sizes[row] = len(tokens)
        found /= sizes
        return found


class _Tokens(dict[str, bytes]):
    """The tokens of each word as numpy reads them, made when asked for first; not kept of long words."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, word: str) -> bytes:
        import numpy as np

        ids = np.array(self._tokenizer.encode(word, add_special_tokens=False).ids, dtype=np.intp).tobytes()
        if len(word) <= _LONGEST:
            if len(self) >= _MOST_WORDS:
                self.clear()
            self[word] = ids
        return ids


_LOADING = RLock()
"""Threads that ask for the embedding at once load it once."""


def _model() -> Any:
    with _LOADING:
        return _loaded()


@lru_cache(maxsize=1)
def _loaded() -> Any:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    try:
        import wordllama
    finally:  # importing it sets the root logger to INFO with a handler on stderr
        root.setLevel(level)
        root.handlers[:] = handlers
    # Its own default folder lacks an "s" that the wheel has; with the package as cache nothing is downloaded.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)


def _name_of(embed: EmbedFunction) -> str:
    """Returns the name of a function, of a method its class with the model that its object names."""
    owner = getattr(embed, "__self__", None)
    if owner is None:
        return getattr(embed, "__name__", type(embed).__name__)
    kind, model = type(owner).__name__, name_of(owner)
    return f"{kind}({model})" if model else kind
