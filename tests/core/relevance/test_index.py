"""EmbeddingIndex: finds, saves, loads, and refuses what is damaged."""

from __future__ import annotations

import hashlib
import json
import pickle
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import EmbeddingIndex, Provenance, Scope, Segment
from rankbudget.errors import BudgetConfigError, CounterUnavailableError, EmbeddingIndexError
from rankbudget.relevance import embedding
from rankbudget.relevance.embedding import Embedder
from rankbudget.relevance.index_files import INDEX_FILE


def letters(texts: list[str]) -> list[list[float]]:
    return [[float(text.count(letter)) for letter in "abcd"] for text in texts]


def numbers(texts: list[str]) -> np.ndarray:
    """Vectors drawn from the text itself: 16 numbers, the same for the same text."""
    return np.stack(
        [np.random.default_rng(sum(map(ord, t)) * 31 + len(t)).normal(size=16) for t in texts]
    ).astype(np.float32)


def test_nearest_first_with_metadata_and_score() -> None:
    """Search gives the nearest segments first, their own fields kept and the cosine as score."""
    index = EmbeddingIndex(letters)
    index.add(
        [Segment(id="x", text="aab", metadata={"page": 1}), Segment(id="y", text="d")],
        metadata=[{"part": 2}, {}],
    )
    index.add(["a"])
    found = index.search("a", k=2)
    assert [(s.id, s.metadata) for s in found] == [("2", {}), ("x", {"page": 1, "part": 2})]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx(2 / 5**0.5)
    assert (len(index), index.dimension) == (3, 4)


def test_equal_ones_stand_in_the_order_they_were_added() -> None:
    """Ties at the edge of k fall the same way every time: first added, first found."""
    index = EmbeddingIndex(letters)
    index.add(["ab", "a", "a", "a", "a"])
    assert [s.id for s in index.search("a", k=2)] == ["1", "2"]


@pytest.mark.parametrize("query", ["", "  "])
def test_nothing_is_near_an_empty_query(query: str) -> None:
    """An empty query, an empty index and k=0 find nothing."""
    index = EmbeddingIndex(letters)
    assert index.search("a") == []
    index.add(["a"])
    assert index.search(query) == []
    assert index.search("a", k=0) == []


def test_scopes_do_not_leak() -> None:
    """A search finds only what its reader may see, and nothing scoped when no reader is named."""
    index = EmbeddingIndex(letters)
    index.add(
        [
            Segment(id="ann", text="a", scope=Scope(user="ann")),
            Segment(id="bob", text="a", scope=Scope(user="bob")),
            Segment(id="all", text="a"),
        ]
    )
    assert [s.id for s in index.search("a", scope=Scope(user="ann"))] == ["ann", "all"]
    assert [s.id for s in index.search("a")] == ["all"]


def test_faiss_and_numpy_find_the_same() -> None:
    """FAISS, when asked for, gives the ids and scores numpy gives, with scopes too."""
    pytest.importorskip("faiss")
    texts = [
        Segment(
            id=f"t{i}", text=f"text number {i} " * (i % 7 + 1), scope=Scope(user="ann") if i % 3 else None
        )
        for i in range(200)
    ]
    found = {}
    for backend in ("numpy", "faiss"):
        index = EmbeddingIndex(numbers, backend=backend)  # type: ignore[arg-type]
        index.add(texts[:150])
        index.search("warm", k=3)
        index.add(texts[150:])
        found[backend] = [
            [(s.id, round(s.score or 0, 4)) for s in index.search("text 5", k=9, scope=scope)]
            for scope in (None, Scope(user="ann"))
        ]
    assert found["numpy"] == found["faiss"]


def test_auto_takes_faiss_above_the_threshold() -> None:
    """The backend "auto" stays with numpy up to the threshold and changes over above it."""
    pytest.importorskip("faiss")
    index = EmbeddingIndex(numbers, faiss_above=2)
    index.add(["a", "b"])
    assert not index.uses_faiss
    index.add(["c"])
    assert index.uses_faiss
    assert [s.text for s in index.search("b", k=1)] == ["b"]


def test_saved_and_loaded_is_the_same(tmp_path: Path) -> None:
    """A loaded index holds the same segments, all fields of them, and finds the same."""
    full = Segment(
        id="f", text="ab\nä", role="user", tokens=3, group="g", pinned=True, title="T", label="l", kind="core", priority=9.0,
        provenance=Provenance(source_id="s", confidence=0.5, created_at=datetime(2025, 1, 2, tzinfo=timezone.utc)),
        scope=Scope(user="ann"), created_at=datetime(2025, 3, 4, tzinfo=timezone.utc), metadata={"k": [1, "x"]},
    )  # fmt: skip
    index = EmbeddingIndex(letters)
    index.add([full, Segment(id="g", text="bbb")])
    index.save(tmp_path / "i")
    loaded = EmbeddingIndex.load(tmp_path / "i", letters)
    assert loaded.segments == index.segments
    assert loaded.search("a", scope=Scope(user="ann")) == index.search("a", scope=Scope(user="ann"))
    loaded.add(["cd"])
    loaded.save(tmp_path / "i")
    assert len(EmbeddingIndex.load(tmp_path / "i", letters)) == 3
    assert len(list((tmp_path / "i").iterdir())) == 1


def test_threads_that_save_at_once_leave_a_whole_index(tmp_path: Path) -> None:
    """The file is one of those written, never a mixture, and no part of one is left."""
    made = []
    for size in range(1, 9):
        index = EmbeddingIndex(letters)
        index.add(["abcd"[i % 4] * 200 for i in range(size * 20)])
        made.append(index)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda index: [index.save(tmp_path) for _ in range(10)], made))
    assert len(EmbeddingIndex.load(tmp_path, letters)) in range(20, 161, 20)
    assert [path.name for path in tmp_path.iterdir()] == [INDEX_FILE]


def test_an_empty_index_can_be_saved(tmp_path: Path) -> None:
    """An index without texts comes back without texts."""
    EmbeddingIndex(letters).save(tmp_path)
    assert len(EmbeddingIndex.load(tmp_path, letters)) == 0


def rewritten(change: Callable[[list[bytes]], None]) -> Callable[[Path], None]:
    """Returns what changes the lines of a saved index and makes its checksum right again."""

    def edit(folder: Path) -> None:
        path = folder / INDEX_FILE
        lines = path.read_bytes().split(b"\n", 1)[1].split(b"\n", 2)
        change(lines)
        body = b"\n".join(lines)
        path.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)

    return edit


def head(**fields: object) -> Callable[[Path], None]:
    """Returns what changes the first line of a saved index."""

    def change(lines: list[bytes]) -> None:
        lines[0] = json.dumps({**json.loads(lines[0]), **fields}).encode()

    return rewritten(change)


def line(at: int, data: bytes) -> Callable[[Path], None]:
    """Returns what replaces the first line, the first segment or the vectors of an index of one segment."""
    return rewritten(lambda lines: lines.__setitem__(at, data))


def flip(folder: Path) -> None:
    path = folder / INDEX_FILE
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (flip, "checksum"),
        (head(format=99), "got 99"),
        (head(embedding="numbers"), r"'numbers' \(got 'letters'\)"),
        (lambda folder: (folder / INDEX_FILE).write_text("{"), "cannot be read"),
        (lambda folder: (folder / INDEX_FILE).unlink(), "no saved index"),
    ],
)
def test_a_damaged_index_is_a_typed_error(tmp_path: Path, harm: object, said: str) -> None:
    """Whatever part of a saved index is changed or missing, loading says so and loads nothing."""
    index = EmbeddingIndex(letters)
    index.add(["aa", "b"])
    index.save(tmp_path)
    harm(tmp_path)  # type: ignore[operator]
    with pytest.raises(EmbeddingIndexError, match=said):
        EmbeddingIndex.load(tmp_path, letters)


def test_another_embedding_is_refused(tmp_path: Path) -> None:
    """An index loads only with the embedding it was built with, and searches only with vectors of its size."""
    index = EmbeddingIndex(letters)
    index.add(["aa"])
    index.save(tmp_path)
    with pytest.raises(EmbeddingIndexError, match=r"'letters' \(got 'numbers'\)"):
        EmbeddingIndex.load(tmp_path, numbers)
    with pytest.raises(EmbeddingIndexError, match="got another 'letters'"):
        EmbeddingIndex.load(
            tmp_path, Embedder(lambda texts: [v[::-1] for v in letters(texts)], name="letters")
        )
    loaded = EmbeddingIndex.load(tmp_path, Embedder(numbers, name="letters"))
    with pytest.raises(EmbeddingIndexError, match=r"must have 4 numbers \(got 16\)"):
        loaded.search("a")
    with pytest.raises(EmbeddingIndexError, match=r"must have 4 numbers \(got 16\)"):
        loaded.add(["x"])
    assert len(loaded) == 1


@pytest.mark.parametrize(
    "harm",
    [
        *[head(count=count) for count in (0, "x", 9**20)],
        *[head(dimension=dimension) for dimension in (0, 3, "x", 9**20)],
        *[line(0, data) for data in (b"[]", b"{}", b"{", b"\xff", b"[" * 100_000)],
        *[
            line(1, data)
            for data in (
                b"[" * 100_000, b"[1]", b"\xff", b'{"id": "a", "text": 5}', b'{"id": ["a"], "text": "a"}',
                b'{"id": "a", "text": "a", "scope": 3}', b'{"id": "a", "text": "a", "created_at": 1e999}',
            )
        ],
        *[line(2, data) for data in (b"", b"x", pickle.dumps([1.0]), np.full(4, np.nan, dtype="<f4").tobytes())],
    ],
)  # fmt: skip
def test_a_forged_index_is_a_typed_error(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    """A file that no save wrote raises an EmbeddingIndexError, however it vouches for itself."""
    index = EmbeddingIndex(letters)
    index.add(["aa"])
    index.save(tmp_path)
    harm(tmp_path)
    with pytest.raises(EmbeddingIndexError):
        EmbeddingIndex.load(tmp_path, letters)


@given(st.lists(st.text(st.characters(categories=None), max_size=8), max_size=4))
def test_every_text_comes_back(texts: list[str]) -> None:
    """All characters survive a save: line separators of Unicode, control characters and lone surrogates too."""
    drawn = [*texts, "a\u2028b\u2029c\u0085d", "\ud800", "\x00\r\n"]
    index = EmbeddingIndex(letters)
    index.add(drawn, metadata=[{"note": text} for text in drawn])
    with tempfile.TemporaryDirectory() as folder:
        index.save(folder)
        index.save(folder)
        assert EmbeddingIndex.load(folder, letters).segments == index.segments


def test_wrong_arguments() -> None:
    """Repeated ids, one text instead of a list, missing metadata, an unknown backend and broken vectors are typed errors."""
    index = EmbeddingIndex(letters)
    index.add([Segment(id="a", text="a")])
    with pytest.raises(EmbeddingIndexError, match=r"\['a'\]"):
        index.add([Segment(id="a", text="b")])
    with pytest.raises(EmbeddingIndexError, match="list"):
        index.add("one text")
    with pytest.raises(EmbeddingIndexError, match="1 entries for 2 texts"):
        index.add(["x", "y"], metadata=[{}])
    with pytest.raises(BudgetConfigError, match="auto, numpy, faiss"):
        EmbeddingIndex(letters, backend="annoy")  # type: ignore[arg-type]
    with pytest.raises(BudgetConfigError, match="one vector per text"):
        EmbeddingIndex(lambda texts: [[1.0]]).add(["a", "b"])
    assert len(index) == 1


def test_what_json_cannot_hold_is_said_before_anything_is_written(tmp_path: Path) -> None:
    """Metadata that is no JSON stops the save and leaves the saved index as it was."""
    index = EmbeddingIndex(letters)
    index.add(["a"])
    index.save(tmp_path)
    index.add([Segment(id="o", text="b", metadata={"x": object()})])
    with pytest.raises(EmbeddingIndexError, match="'o'"):
        index.save(tmp_path)
    assert len(EmbeddingIndex.load(tmp_path, letters)) == 1


def test_a_text_is_embedded_once() -> None:
    """The embedding sees each text once, however often it is searched for or added."""
    seen: list[str] = []

    def embed(texts: list[str]) -> list[list[float]]:
        seen.extend(texts)
        return letters(texts)

    index = EmbeddingIndex(embed)
    index.add(["ab", "cd"])
    index.search("ab")
    index.search("ab", k=1)
    assert sorted(seen) == ["ab", "cd"]


def test_without_wordllama_words_alone_decide_and_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the embedded default is missing, the mix goes by words and says how to get meaning; asking for it is an ImportError."""
    monkeypatch.setattr(embedding.importlib.util, "find_spec", lambda name: None)
    from rankbudget.relevance.fusion import FusionScorer

    scorer = FusionScorer()
    assert len(scorer.parts) == 2
    assert 'pip install "rankbudget[embed]"' in str(embedding.missing_reason())
    with pytest.raises(CounterUnavailableError, match=r"rankbudget\[embed\]"):
        Embedder()
    with pytest.raises(CounterUnavailableError, match=r"rankbudget\[faiss\]"):
        EmbeddingIndex(letters, backend="faiss")


def test_default_embedding_knows_synonyms() -> None:
    """The embedded default finds a text that shares no word with the question, and leaves logging as it was."""
    pytest.importorskip("wordllama")
    import logging

    before = (logging.getLogger().level, logging.getLogger().handlers[:])
    index = EmbeddingIndex()
    index.add(["The automobile needs fuel.", "Bake the bread for an hour.", "Rain is expected tomorrow."])
    assert index.search("gasoline for my car", k=1)[0].id == "0"
    assert (logging.getLogger().level, logging.getLogger().handlers[:]) == before


def test_a_text_has_one_vector_whatever_stands_beside_it() -> None:
    """The embedded default gives wordllama's vectors, alone or beside others; zeros for a text without words."""
    wordllama = pytest.importorskip("wordllama")
    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    texts = ["Paris is a city.", "café 北京 x", "y" * 60 + " tea", "  \n"]
    found = Embedder().vectors(texts)
    expected = np.concatenate([model.embed([text]) for text in texts[:3]])
    assert np.allclose(found[:3], expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    assert not found[3].any()
    assert (found[0] == Embedder().vectors(texts[:1])[0]).all()
