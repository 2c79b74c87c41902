"""How turns of a conversation are rated: by what is asked about, by whom, and by how people talk."""

from __future__ import annotations

from collections.abc import Sequence

from rankbudget import Segment, fit_documents
from rankbudget.relevance.lexical import Bm25Scorer
from rankbudget.relevance.speakers import named_in, speakers, without
from rankbudget.relevance.turns import TurnScorer


def turns(*texts: str, names: Sequence[str] = ()) -> list[Segment]:
    return [
        Segment(id=str(i), role="user", text=text, metadata={"name": names[i]} if names else {})
        for i, text in enumerate(texts)
    ]


def test_speakers_come_from_metadata_or_from_the_opening() -> None:
    """Names are read from metadata first, then from before a colon; a chat that names few speakers names none."""
    assert speakers(turns("Hi.", "Hi.", "Hm.", names=("Ann", "Ann", ""))) == ["Ann", "Ann", ""]
    assert speakers(
        turns("Kirsty Williams AM: Yes.", "Chair: No.", "Chair: Yes.", "Kirsty Williams AM: No.")
    ) == [
        "Kirsty Williams AM",
        "Chair",
        "Chair",
        "Kirsty Williams AM",
    ]
    assert (
        speakers(turns("Note: tea", "see https://a.b", "10:30: tea", "Dear all, one thing: tea", "Note: tea"))
        == [""] * 5
    )
    assert speakers([]) == []


def test_half_of_a_name_names_somebody() -> None:
    """Titles are left out of questions, and a name is found in another form; one word of three is no name."""
    assert named_in("What does Kirsty Williams want?", ["Kirsty Williams AM", "Chair"]) == [True, False]
    assert named_in("What did the marketing's people want?", ["Marketing"]) == [True]
    assert named_in("Who is Ann?", ["Ann Mary Lee", "", "ANN"]) == [False, False, True]


def test_whom_the_question_names_said_it() -> None:
    """Of two people who say the same, the one the question names is rated higher; without names they are equal but for their place."""
    chat = turns(
        "Ann: I like tea a lot.", "Bo: I like tea a lot.", "Ann: Well now then.", "Bo: Well now then."
    )
    scores = TurnScorer(Bm25Scorer()).score("What does Bo like?", chat)
    assert scores[1] > scores[0]
    assert TurnScorer(Bm25Scorer()).score("What does Ann like?", chat)[0] > scores[0]


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


def test_a_name_does_not_bring_those_who_address_it() -> None:
    """Between two people, calling somebody by name says nothing about what was asked of them."""
    chat = turns(
        "Ann: Bo, Bo, Bo!", "Bo: The boat is blue.", "Ann: Well, Bo.", "Bo: Yes.", "Ann: Bo?", "Bo: No."
    )
    scores = TurnScorer(Bm25Scorer()).score("What colour is the boat of Bo?", chat)
    assert scores.index(max(scores)) == 1
    assert without("What did Ann Lee's brother cook?", ["Ann Lee", "Bo"]) == "What did brother cook?"
    assert without("Who is Ann?", ["Ann"]) == "Who is Ann?"
    assert without("As  it is", []) == "As  it is"
