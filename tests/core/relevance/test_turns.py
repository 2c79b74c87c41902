"""How turns of a conversation are rated: by what is asked about, by whom, and by how people talk."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rankbudget import Segment, fit_documents
from rankbudget.relevance.lexical import Bm25Scorer
from rankbudget.relevance.turns import TurnScorer


class Nothing:
    """Rates all texts alike."""

    def score(self, query: str, segments: Sequence[Segment]) -> list[float]:
        return [0.0] * len(segments)


def turns(*texts: str, names: Sequence[str] = ()) -> list[Segment]:
    return [
        Segment(id=str(i), role="user", text=text, metadata={"name": names[i]} if names else {})
        for i, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("query", "texts", "names", "asked"),
    [
        ("Who is Ann?", ["Hi.", "Hi.", "Hm."], ["Ann", "Ann", "Bo"], [0, 1]),
        ("What does Kirsty Williams want?", ["Kirsty Williams AM: Yes.", "Chair: No."] * 2, (), [0, 2]),
        ("What did the marketing's people want?", ["Marketing: Tea."] * 2, (), [0, 1]),
        ("Who is Ann?", ["Ann Mary Lee: Tea."] * 2, (), []),
        ("Which note is for all?", ["Note: tea", "see https://a.b", "10:30: tea", "Friends all, one thing: tea", "Note: tea"], (), []),
    ],
)  # fmt: skip
def test_speakers_come_from_metadata_or_from_the_opening(
    query: str, texts: list[str], names: Sequence[str], asked: list[int]
) -> None:
    """Half of a name, in another form or without its title, names somebody who speaks more than once."""
    chat = turns(*texts, names=names)
    scores = TurnScorer(Nothing()).score(query, chat)
    assert [i for i, score in enumerate(scores) if score > 0] == asked


def test_whom_the_question_names_said_it() -> None:
    """Of two people who say the same, the one the question names is rated higher; without names they are equal but for their place."""
    chat = turns(
        "Ann: I like tea a lot.", "Bo: I like tea a lot.", "Ann: Well now then.", "Bo: Well now then."
    )
    scores = TurnScorer(Bm25Scorer()).score("What does Bo like?", chat)
    assert scores[1] > scores[0]
    assert TurnScorer(Bm25Scorer()).score("What does Ann like?", chat)[0] > scores[0]


def test_a_name_does_not_bring_those_who_address_it() -> None:
    """Between two people, calling somebody by name says nothing about what was asked of them."""
    chat = turns(
        "Ann: Bo, Bo, Bo!", "Bo: The boat is blue.", "Ann: Well, Bo.", "Bo: Yes.", "Ann: Bo?", "Bo: No."
    )
    scores = TurnScorer(Bm25Scorer()).score("What colour is the boat of Bo?", chat)
    assert scores.index(max(scores)) == 1


def test_an_empty_question_prefers_no_turn() -> None:
    """Without a question every turn is worth the same, however long it is."""
    assert TurnScorer().score(" ", turns("a long turn of many words", "short")) == [0.0, 0.0]
    assert TurnScorer().score("tea", []) == []


def test_a_named_speaker_decides_what_is_kept() -> None:
    """`fit_documents` keeps the turn of the person who was asked about."""
    small_talk = [
        f"{name}: {text}"
        for text in ("Nice day today.", "See you soon then.", "How are you?")
        for name in ("Ann", "Bo")
    ]
    chat = turns(
        *small_talk, "Ann: I moved to a house in Oslo.", "Bo: I moved to a house in Rome.", *small_talk
    )
    kept = fit_documents(chat, max_tokens=13, query="Where did Bo move?", dedup=False).text
    assert "Rome" in kept
    assert "Oslo" not in kept
