"""Dates and abbreviations end no sentence: what is kept of a text are whole sentences, or a cut that is marked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import ToolMessage
from llama_index.core.schema import NodeWithScore, TextNode

from langchain_budget import BudgetMiddleware
from llamaindex_budget import BudgetNodePostprocessor
from rankbudget import PromptCompressor, fit_documents, fit_messages, fit_text
from rankbudget.relevance.sentences import split_sentences
from rankbudget.testing import WordCounter
from tests.drawing import draws

WORDS = WordCounter()
TEMPLATES = """
Der Vertrag {} beginnt am {d}. März 2023 und endet am 31. Dezember 2025 bei der {d}. Filiale in Hamburg.
Für {} gilt laut Kap. {d} und Abs. {d} nicht die Regel, z. B. Kinder zahlen mind. 5 Mio. Euro weniger.
Frau {} nimmt im {d}. Quartal max. 5 mg, d. h. Tabletten nach Tel. Absprache mit Prof. Dr. Meyer ein.
Call {} at ext. {d} only, as Sec. 4.2 and Eq. {d} of the manual by Dr. Smith say about Temp. 40 here.
The fee of {} is Rs. 500 or approx. {d} percent, e.g. Monday at 5 p.m. London time with Mrs. Jones.
Volgens {} woont Dhr. Jansen niet op nr. {d} maar bij Mevr. Smit in de buurt.
Firma {} mieści się przy Ul. Długa {d} od dn. {d} maja, tzw. Stary Dom, nie przy innej ulicy.
По ст. {d} закона г. Москва и ул. Ленина {} не отвечает за 5 тыс. Рублей долга.
Kokous {} pidetään {d}. lokakuuta 2024 eikä esim. Helsingissä klo {d} illalla.
Schůze {} začíná {d}. října 2024 v ul. Dlouhá, např. Praha tam není nikdy.
El Sr. {} no paga los {d} euros a la Sra. López de la Av. Colón en los EE. UU. Unidos.
Heute startet The Voice of {} am {d}. Oktober im Fernsehen und nicht im Radio.
In the report by {} it says that step {d} comes after step {d}.
Møtet {} er den {d}. oktober og ikke den {d}. Divisjon bestemmer noe.
""".strip().splitlines()
NAMES = "Alba Bruno Clara Diego Elena Fabio Greta Hanno Irene Julia".split()
QUESTION = "Alba Filiale Quartal Москва Helsinki Vertrag"


@st.composite
def sentences(draw: st.DrawFn) -> list[str]:
    made = []
    for name in NAMES[: draw(st.integers(2, len(NAMES)))]:
        template = draw(st.sampled_from(TEMPLATES))
        made.append(re.sub(r"\{d\}", lambda _: str(draw(st.integers(1, 31))), template).format(name))
    return made


def of_result(text: str, limit: int) -> str:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": text},
    ]
    return str(fit_messages(messages, max_tokens=limit + 40, counter=WORDS).messages[-1]["content"])


def of_question(text: str, limit: int) -> str:
    messages = [{"role": "user", "content": text}]
    fitted = fit_messages(messages, max_tokens=limit + 20, counter=WORDS, shorten_question=True)
    return str(fitted.messages[-1]["content"])


def of_tool(text: str, limit: int) -> str:
    middleware = BudgetMiddleware(max_tokens=5000, counter=WORDS, tool_result_tokens=limit)
    return str(middleware.wrap_tool_call(None, lambda _: ToolMessage(text, tool_call_id="c")).content)


def of_nodes(text: str, limit: int) -> str:
    fitter = BudgetNodePostprocessor(max_tokens=limit, counter=WORDS)
    nodes = [NodeWithScore(node=TextNode(text=text), score=1.0)]
    return "".join(n.node.get_content() for n in fitter.postprocess_nodes(nodes, query_str=QUESTION))


FACES = {
    "text": lambda text, limit: fit_text(text, max_tokens=limit, counter=WORDS).text,
    "text for a question": lambda text, limit: (
        fit_text(text, max_tokens=limit, counter=WORDS, query=QUESTION).text
    ),
    "documents": lambda text, limit: (
        fit_documents([text], max_tokens=limit, counter=WORDS, query=QUESTION).text
    ),
    "compressor": lambda text, limit: (
        PromptCompressor(counter=WORDS).compress(text, limit, query=QUESTION).compressed_text
    ),
    "question": of_question,
    "tool result": of_result,
    "capped tool": of_tool,
    "nodes": of_nodes,
}


def begun(words: list[str], made: list[list[str]]) -> int:
    """Returns how many of these words are the start of a sentence, of the one that has most of them."""
    return max(sum(1 for n in range(1, len(words) + 1) if words[:n] == sentence[:n]) for sentence in made)


def _is_inside(words: list[str], made: list[list[str]]) -> bool:
    """Returns whether these words are in one sentence, and end like no sentence."""
    size = len(words)
    return not words[-1].endswith(".") and any(words == s[n : n + size] for s in made for n in range(len(s)))


def check_kept(kept: str, made: list[str]) -> None:
    """Only a mark stands before the end of a sentence; only a mark, or one cut start, is without its end.

    What has marks on both sides is from one sentence.
    """
    split, cuts = [sentence.split() for sentence in made], 0
    parts = re.split(r"\[\.\.\. [\d,]+ (?:line|part)s? \.\.\.\]|\.{3}(?!\.)", kept)
    for number, part in enumerate(parts):
        words = part.split()
        while words:
            taken = begun(words, split)
            if words[:taken] in split:
                words = words[taken:]
                continue
            if number and number < len(parts) - 1 and _is_inside(words, split):
                break  # marked on both sides
            if taken == 0 and number:  # the end of a sentence behind the mark, up to where one ends
                taken = next(n for n in range(len(words), 0, -1) if any(words[:n] == s[-n:] for s in split))
                words = words[taken:]
                continue
            assert taken, (kept, words)
            assert not words[taken - 1].endswith("."), (kept, words)
            cuts += taken < len(words) or number == len(parts) - 1
            words = words[taken:]
    assert cuts <= 1, kept


@pytest.mark.parametrize("face", FACES)
@draws(asynchronous=True)
@given(made=sentences(), share=st.floats(0.1, 0.95))
def test_no_half_of_a_sentence_is_kept_as_a_whole_one(face: str, made: list[str], share: float) -> None:
    """Of each text that is shortened, no tail of a sentence stays without the mark, and no start that looks whole."""
    text = " ".join(made)
    check_kept(FACES[face](text, max(2, int(WORDS.count(text) * share))), made)


@draws()
@given(made=sentences())
def test_sentences_with_abbreviations_are_told_apart(made: list[str]) -> None:
    """The pieces of a text are its sentences."""
    pieces = [piece.strip() for piece in split_sentences(" ".join(made))]
    assert pieces == made


TERSE = """
Pressure was {d}. | Temperature was {d} bar. | Weight was {d} kg. | Cost was {d} EUR. | Sensor check at pier {d}. | It took {d} min.
The level is {d}. | There are {d} MB. | Das Ventil hat {d} bar. Die Leitung hat mehr. | Er kam am {d}. Mai. | Es war der {d}. Versuch.
La presión fue {d}. | Er nahm ca. {d} kg. Mehl mit. | He left at {d} p.m. London time. | See No. {d} of the list.
Verbrennungen {d}. Grades heilen.
""".replace("\n", "|").split("|")


@draws()
@given(
    st.lists(
        st.tuples(st.sampled_from([t.strip() for t in TERSE if t.strip()]), st.integers(2, 99)), min_size=1
    )
)
def test_short_numbers_and_units_end_terse_sentences(drawn: list[tuple[str, int]]) -> None:
    """Logs say "Pressure was 3. Temperature was 21 bar."; a German ordinal number still ends nothing."""
    made = [template.replace("{d}", str(number)) for template, number in drawn]
    whole = [part for one in made for part in one.replace("bar. Die", "bar.|Die").split("|")]
    assert [piece.strip() for piece in split_sentences(" ".join(made))] == whole


ENDS = """
The spa of {} closes at 5 pm. | {} left at 5 p.m. | A box of {} holds 40 pcs. | {} is 34 yrs. | {} bought a TV. | {} runs Mill Ltd.
{} works for Acme, Inc. | The line of {} has 10 Gbps. | {} sells pens, paper, etc. | {} writes by SMS. | {} has a PhD.
{} moved to the U.S. | {} needs vitamin C. | {} lives on Main St. | {} leitet die Mill GmbH. | {} verkauft Stifte usw.
{} saw Dr. He and Mr. Das on TV. | {} met Prof. Le and J. De Niro, e.g. The Boss, in Rome. | {} reads z. B. Die Zeit vs. The Times.
""".replace("\n", "|").split("|")
OPENERS = "The house is old.", "It was built in May.", "They like it.", "Die Firma ist alt."
NO_SURNAMES = re.compile(r"(?:TV|SMS|PhD|etc|usw|\d [a-z]\S*)\.\Z")
"""What a sentence ends with before a pronoun that is a surname, too."""


@draws()
@given(
    st.lists(
        st.tuples(
            st.sampled_from([end.strip() for end in ENDS if end.strip()]),
            st.sampled_from(OPENERS),
            st.sampled_from(["He knows.", "Das ist gut.", "A man knows."]),
        ),
        min_size=1,
    )
)
def test_a_sentence_starts_behind_an_abbreviation(drawn: list[tuple[str, str, str]]) -> None:
    """An article or a pronoun starts one, but no title, initial or "e.g." is parted from what it belongs to."""
    made = []
    for end, opener, other in drawn:
        said = end.format("Alba")
        made += [said, opener, said, other] if NO_SURNAMES.search(end) else [said, opener]
    assert [piece.strip() for piece in split_sentences(" ".join(made))] == made
