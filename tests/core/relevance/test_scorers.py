"""Scorers: what every one promises, and what each is for."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankbudget import Segment
from rankbudget.relevance.corpus import BoundedCache, TermIndex, scored_texts
from rankbudget.relevance.embedding import EmbeddingScorer
from rankbudget.relevance.fusion import FusionScorer, default_scorer, normalised
from rankbudget.relevance.labels import LabelScorer
from rankbudget.relevance.lexical import Bm25Scorer, GramScorer, KeywordScorer, TfidfScorer
from rankbudget.relevance.memories import MemoryScorer
from rankbudget.relevance.protocol import Scorer
from rankbudget.relevance.turns import TurnScorer, passages


def letters(texts: list[str]) -> list[list[float]]:
    """A vector that counts letters: texts about the same letters are near."""
    return [[float(text.lower().count(letter)) for letter in "abcdefgh"] for text in texts]


SCORERS: list[Scorer] = [
    KeywordScorer(),
    TfidfScorer(),
    Bm25Scorer(),
    GramScorer(),
    EmbeddingScorer(letters),
    FusionScorer([(Bm25Scorer(), 1.0), (EmbeddingScorer(letters), 1.0)]),
    TurnScorer(Bm25Scorer()),
    LabelScorer(Bm25Scorer()),
    default_scorer(),
]
TEXTS = st.lists(st.text(alphabet="abc defgh.中文é\n", max_size=30), max_size=8)


def segments(*texts: str, **fields: object) -> list[Segment]:
    return [Segment(id=str(i), text=text, **fields) for i, text in enumerate(texts)]  # type: ignore[arg-type]


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: type(s).__name__)
@given(texts=TEXTS, query=st.text(alphabet="abc defgh中?", max_size=12))
@settings(max_examples=25, deadline=None)
def test_one_finite_score_each_and_the_same_again(scorer: Scorer, texts: list[str], query: str) -> None:
    """Every scorer gives one finite number per segment, the same on every call, and leaves segments as they are."""
    given_ = segments(*texts)
    before = list(given_)
    scores = scorer.score(query, given_)
    assert len(scores) == len(texts)
    assert all(math.isfinite(score) for score in scores)
    assert scorer.score(query, given_) == scores
    assert given_ == before


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("query", ["", "   "])
def test_an_empty_query_prefers_nothing(scorer: Scorer, query: str) -> None:
    """Without a question all segments score alike."""
    assert len(set(scorer.score(query, segments("alpha beta", "gamma", "beta beta beta delta")))) == 1


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda s: type(s).__name__)
def test_the_text_that_was_asked_for_wins(scorer: Scorer) -> None:
    """A text with the words of the question beats texts without any."""
    scores = scorer.score("cabbage feed", segments("hhhh ggg", "cabbage feed", "hg hg hg"))
    assert scores.index(max(scores)) == 1


def test_rare_words_weigh_more() -> None:
    """BM25 and tf-idf rate a rare shared word above one every text has."""
    texts = segments("red apple", "red pear", "red plum", "blue plum")
    for scorer in (Bm25Scorer(), TfidfScorer()):
        scores = scorer.score("red pear", texts)
        assert scores[1] == max(scores)
        assert scores[1] > scores[0] > scores[3]


def test_chinese_is_not_one_long_word() -> None:
    """A Chinese question finds the text that shares a part of it."""
    scores = Bm25Scorer().score(
        "能源国有化", segments("欧洲法院认为条约没有阻止能源国有化", "药剂师与医生分开管理", "今天天气很好")
    )
    assert scores[0] > scores[1] == scores[2] == 0


def test_pieces_find_compounds() -> None:
    """Word pieces match inside compounds, where whole words do not."""
    texts = segments("Energieversorgungspolitik", "Haushaltsfragen")
    assert Bm25Scorer().score("Energie", texts) == [0.0, 0.0]
    assert GramScorer().score("Energie", texts)[0] > GramScorer().score("Energie", texts)[1]


def test_a_title_counts_as_text() -> None:
    """A title the text does not open with is scored with it, and not twice when it does."""
    assert scored_texts([Segment(id="a", title="Refunds", text="Ten days.")]) == ("Refunds: Ten days.",)
    assert scored_texts([Segment(id="a", title="Refunds", text="Refunds: ten days.")]) == (
        "Refunds: ten days.",
    )


def test_mixing_is_on_one_scale() -> None:
    """In a mix, a scorer with a thousand times the range has no more say than another."""

    class Fixed:
        def __init__(self, *scores: float) -> None:
            self.scores = list(scores)

        def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
            return self.scores

    mixed = FusionScorer([(Fixed(0, 1, 0), 2.0), (Fixed(1000, 0, 0), 1.0)]).score(
        "q", segments("a", "b", "c")
    )
    assert mixed.index(max(mixed)) == 1
    assert normalised([2.0, 2.0, 2.0]) == [0.0, 0.0, 0.0]


def test_caches_are_bounded_and_correct() -> None:
    """A cache forgets what was used longest ago and never holds more than its size, one entry apart."""
    made: list[str] = []
    cache: BoundedCache[str, str] = BoundedCache(max_size=3, size=lambda _: 1)
    for key in "abcad":
        assert cache.get(key, lambda k: made.append(k) or k.upper()) == key.upper()  # type: ignore[func-returns-value]
    assert made == ["a", "b", "c", "d"]
    assert [key for key in "abcd" if cache.find(key)] == ["a", "c", "d"]
    sized: BoundedCache[str, str] = BoundedCache(max_size=7, size=lambda _: 1, value_size=len)
    for key, value in (("a", "1"), ("b", "1234"), ("b", "12"), ("c", "1"), ("d", "123456")):
        sized.keep(key, value)
        assert sized.find(key) == value
        assert (sized.find("a") is None) == (key == "d")
    assert [key for key in "abcd" if sized.find(key)] == ["d"]


def test_a_second_question_reads_no_text_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same segments are analysed once, whatever is asked of them."""
    texts = segments("one fresh text never seen", "another fresh text never seen")
    Bm25Scorer().score("fresh", texts)
    from rankbudget.relevance import corpus

    monkeypatch.setattr(corpus, "_analyse", lambda text: pytest.fail("read again"))
    assert Bm25Scorer().score("another question", texts)[1] > 0
    with pytest.raises(pytest.fail.Exception, match="read again"):
        Bm25Scorer().score("another question", segments("a text not read before"))


def test_term_index_counts() -> None:
    """An index knows how often any of several words occurs in each text."""
    assert TermIndex(("a b a", "b", "c")).counts(["a", "b"]) == {0: 3, 1: 1}


def test_turns_near_the_answer_beat_turns_far_away() -> None:
    """An answer without the words of the question ranks above small talk far from it."""
    chat = segments(
        *["So so.", "Fine."] * 30,
        "When does the ferry to Dover leave?",
        "At seven.",
        *["Nice day.", "Yes."] * 30,
    )
    scores = TurnScorer(Bm25Scorer()).score("ferry to Dover", chat)
    assert scores[61] > max(scores[:40])
    assert scores[61] > max(scores[90:])


def test_passages_keep_their_place_when_turns_are_added() -> None:
    """A turn added at the end changes only the last passages."""
    texts = ("one two three",) * 20
    before, after = passages(texts, 12), passages((*texts, "one two three"), 12)
    assert [span[:2] for span in before[:-2]] == [span[:2] for span in after[: len(before) - 2]]
    assert {i for start, end, _ in after for i in range(start, end)} == set(range(21))


def test_a_label_lifts_its_examples() -> None:
    """An example whose label fits the question beats one with another label that matches no better alone."""
    examples = [
        Segment(id="1", text="card lost abroad", label="lost_card"),
        Segment(id="2", text="i lost my card", label="lost_card"),
        Segment(id="3", text="lost card, help", label="lost_card"),
        Segment(id="4", text="lost my way to the bank", label="directions"),
        Segment(id="5", text="where is the bank", label="directions"),
    ]
    scores = LabelScorer(Bm25Scorer()).score("i lost it, my card", examples)
    assert min(scores[:3]) > max(scores[3:])


@pytest.mark.parametrize("without_vectors", [False, True])
def test_labels_are_as_likely_as_the_question_fits_them(
    monkeypatch: pytest.MonkeyPatch, without_vectors: bool
) -> None:
    """Probabilities are one per label, sum to 1 over the labels, and an example without a label counts as of a middling one."""
    if without_vectors:
        monkeypatch.setattr("rankbudget.relevance.labels.missing_reason", lambda: "not installed")
    texts = {
        "lost_card": ["i lost my card", "card lost abroad"],
        "rates": ["what is the rate of the euro"],
        "pin": ["change my pin"],
    }
    examples = [
        Segment(id=f"{label}{i}", text=text, label=label)
        for label, known in texts.items()
        for i, text in enumerate(known)
    ]
    plain = Segment(id="plain", text="good morning")
    likely = LabelScorer(Bm25Scorer()).probabilities("lost card", [*examples, plain])
    assert likely[0] == likely[1] > likely[4] > min(likely[2:4])
    assert sum([likely[0], *likely[2:4]]) == pytest.approx(1.0)
    assert LabelScorer(Bm25Scorer()).probabilities("", examples) == [1.0] * 4


def test_memory_scorer_is_a_scorer() -> None:
    """The memory formula plugs in wherever a scorer does."""
    assert isinstance(MemoryScorer(), Scorer)


def test_a_broken_character_does_not_break_the_ranking() -> None:
    """A lone surrogate, as a badly decoded file leaves it, has no UTF-8 form; tokenizers of embeddings raise at it."""
    segments = [
        Segment(id="1", text="cats \udcff sleep \U0001f600"),
        Segment(id="2", text="a refund takes ten days"),
    ]
    first, second = FusionScorer().score("how long does a refund take \ud800?", segments)
    assert second > first
    seen: list[str] = []
    EmbeddingScorer(lambda texts: [seen.append(text) or [1.0] for text in texts]).score("q", segments)
    assert "cats ? sleep \U0001f600" in seen
