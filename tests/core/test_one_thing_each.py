"""Short documents about one thing each that say the same kinds of things: the one that is named comes first."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import counter_for, fit_documents
from tests.drawing import draws

COUNTER = counter_for("gpt-4o")
Words = tuple[list[str], str, str, list[str]]
LANGUAGES: dict[str, Words] = {
    "Arabic": (
        ["مركب النورس", "زورق المرجان", "عبارة الفنار", "يخت الياسمين", "قارب الدلفين", "سفينة الزمرد"],
        "في أي رصيف ترسو {} ليلا؟",
        "ترسو {} ليلا في رصيف {}.",
        ["دهن الطاقم {} في الربيع.", "يحب السياح التقاط صور {}.", "صوت محرك {} هادئ جدا.", "اشترى التاجر {} قديما."],
    ),
    "English": (
        ["Seagull barge", "Coral boat", "Beacon ferry", "Jasmine yacht", "Dolphin dinghy", "Emerald ship"],
        "At which quay is the {} moored at night?",
        "The {} is moored at night at quay {}.",
        ["The crew painted the {}.", "Tourists photograph the {}.", "The engine of the {} is quiet.", "A trader bought the {}."],
    ),
    "Turkish": (
        ["Martı mavnası", "Mercan sandalı", "Fener feribotu", "Yasemin yatı", "Yunus botu", "Zümrüt gemisi"],
        "{} gece hangi iskeleye bağlanır?",
        "{} gece {} numaralı iskeleye bağlanır.",
        ["{} ilkbaharda boyandı.", "Turistler {} için fotoğraf çeker.", "{} sessiz bir motorla gider.", "{} eski bir tüccarındı."],
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
@draws(cases=len(LANGUAGES))
@given(seed=st.integers(0, 10_000), share=st.floats(0.12, 0.3))
def test_the_document_of_what_is_named_comes_first(language: str, seed: int, share: float) -> None:
    """What a sentence of another document shares with the question does not weigh more than the name."""
    drawn = random.Random(seed)
    names, question, fact, more = LANGUAGES[language]
    quays = {name: str(drawn.randint(100, 999)) for name in names}
    texts = []
    for name in names:
        first = [drawn.choice(more).format(name) for _ in range(5)]
        first.insert(drawn.randrange(6), fact.format(name, quays[name]))
        texts += [" ".join(first), " ".join([drawn.choice(more).format(name) for _ in range(5)])]
    drawn.shuffle(texts)
    asked = drawn.choice(names)
    limit = round(share * sum(map(COUNTER.count, texts)))
    shown = fit_documents(texts, max_tokens=limit, query=question.format(asked), counter=COUNTER).text
    assert fact.format(asked, quays[asked]) in shown
