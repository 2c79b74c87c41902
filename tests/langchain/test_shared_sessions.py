"""One session for a trimmer and a compressor: whoever is called first, both parts together stay within its limit."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage

from langchain_budget import BudgetChatPromptTemplate, BudgetDocumentCompressor, BudgetTrimmer
from langchain_budget._codec import CODEC
from rankbudget import BudgetSession, TokenBudget, counter_for
from rankbudget.adapters import CodecMeasure
from rankbudget.errors import BudgetExceededError
from tests.drawing import draws

EXACT = counter_for("gpt-4o")
COUNT = CodecMeasure(CODEC, EXACT).total
TOPICS = ["the pump", "a refund", "the invoice", "Oslo", "the gasket"]
FRAME, TAGS = 40, 14
"""More tokens than the notice before documents has, and than the tags around each."""
SHAPES: list[dict[str, Any]] = [
    {},
    {"preset": "rag"},
    {"surplus": "borrow"},
    {"surplus": "keep"},
    {"ratios": {"history": 0.3, "knowledge": 0.5, "memory": 0.2}},
]


@dataclass
class Turn:
    """One question, how it is asked of the documents, what is found, and who is called in which order."""

    topic: str
    reworded: bool
    documents: list[int]
    calls: list[str]
    answer: int
    wordy: int


turns = st.builds(
    Turn,
    topic=st.sampled_from(TOPICS),
    reworded=st.booleans(),
    documents=st.lists(st.integers(1, 60), max_size=12),
    calls=st.sampled_from(
        [["trim", "find"], ["find", "trim"], ["find", "trim", "find"], ["trim", "find", "trim"]]
    ),
    answer=st.integers(1, 40),
    wordy=st.sampled_from([0, 0, 0, 60, 150]),
)


@dataclass
class Application:
    """A conversation with its session, and what the last call of each part returned for this turn."""

    limit: int
    shape: dict[str, Any]
    compress: bool = True
    system: bool = True
    thread: list[BaseMessage] = field(default_factory=list)
    found: int = 0

    def __post_init__(self) -> None:
        budget = TokenBudget(context_window=self.limit + 100, reserve=100, **self.shape)
        self.session = BudgetSession(budget, counter=EXACT, codec=CODEC)
        self.compressor = BudgetDocumentCompressor(session=self.session, compress=self.compress, dedup=False)
        self.trimmer = BudgetTrimmer(session=self.session)
        self.thread = [SystemMessage("Be brief.")] if self.system else []

    async def run(self, turn: Turn, *, asynchronous: bool) -> None:
        """Runs one turn, and checks that all that it returned stays within the limit together."""
        question = "Please. " * turn.wordy + f"What about {turn.topic} in turn {len(self.thread)}?"
        query = f"Tell me of {turn.topic}." if turn.reworded else question
        documents = [
            Document(f"Note {n} says: " + f"{turn.topic} was seen. " * size)
            for n, size in enumerate(turn.documents)
        ]
        asked = [*self.thread, HumanMessage(question)]
        kept: dict[str, int] = {}
        for call in turn.calls:
            part: Any = self.trimmer if call == "trim" else self.compressor
            names = ("ainvoke", "invoke") if call == "trim" else ("acompress_documents", "compress_documents")
            given = (asked,) if call == "trim" else (documents, query)
            try:
                made = getattr(part, names[not asynchronous])(*given)
                made = await made if asynchronous else made
            except BudgetExceededError:  # what must stay has no room, beside the documents returned last
                must = [*self.thread[: self.system], asked[-1]]
                assert COUNT(must) + self.found > self.limit
                return
            if call == "trim":
                assert made[-1] is asked[-1]
                kept[call] = COUNT(made)
            else:
                kept[call] = EXACT.count("\n\n".join(one.page_content for one in made))
                self.found = kept[call] + FRAME + TAGS * len(made)
            assert sum(kept.values()) <= self.limit, (kept, turn)
        self.thread = [*asked, AIMessage("It was seen. " * turn.answer)]


@draws()
@given(
    limits=st.lists(st.integers(200, 1500), min_size=2, max_size=2),
    shape=st.sampled_from(SHAPES),
    compress=st.booleans(),
    plan=st.lists(st.tuples(st.integers(0, 1), turns), min_size=1, max_size=6),
    asynchronous=st.booleans(),
)
def test_both_parts_stay_within_the_limit(
    limits: list[int],
    shape: dict[str, Any],
    compress: bool,
    plan: list[tuple[int, Turn]],
    asynchronous: bool,
) -> None:
    """In two conversations, turn by turn, messages and documents never exceed the limit together, whoever is first."""
    applications = [Application(limit, shape, compress, bool(n)) for n, limit in enumerate(limits)]

    async def run() -> None:
        for which, turn in plan:
            await applications[which].run(turn, asynchronous=asynchronous)

    asyncio.run(run())


@draws(cases=2)
@pytest.mark.parametrize("order", ["trim", "find"])
@given(
    limit=st.integers(200, 1500),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    answers=st.lists(st.integers(1, 40), min_size=1, max_size=20),
)
def test_nothing_is_left_out_that_fits(order: str, limit: int, sizes: list[int], answers: list[int]) -> None:
    """Whoever is second takes all that the other part left: neither a document nor an exchange more would fit."""
    made = Application(limit, {}, compress=False)
    for n, size in enumerate(answers):
        made.thread += [HumanMessage(f"Question {n}?"), AIMessage("It was seen. " * size)]
    question = "What about the pump?"
    asked = [*made.thread, HumanMessage(question)]
    documents = [Document(f"Note {n}: " + "The pump was seen. " * size) for n, size in enumerate(sizes)]
    messages = made.trimmer.invoke(asked) if order == "trim" else []
    found = made.compressor.fit(documents, question)
    if order == "trim":
        report = found.report
        assert report.limit == limit - COUNT(messages) + COUNT(asked[-1:])
        dropped = [one.before for one in report.decisions if one.action == "dropped"]
    else:
        fitted = made.trimmer.fit(asked)
        report = fitted.report
        assert limit - report.limit <= EXACT.count(found.text) + FRAME + TAGS * len(found.segments)
        older = asked[1 : len(asked) - len(fitted.messages) + 1]
        dropped = [COUNT(older[-2:])] if older else []
    assert all(report.limit - report.total_tokens < cost for cost in dropped)


@pytest.mark.parametrize("empty", [[], (), "", None])
@draws(cases=6)
@given(
    st.sampled_from([["trim", "find"], ["find", "trim"], ["trim"], ["trim", "find", "trim"]]),
    st.integers(200, 1500),
    st.lists(st.integers(1, 60), max_size=12),
    st.lists(st.integers(1, 40), max_size=12),
    st.sampled_from(SHAPES),
)
def test_an_empty_slot_takes_no_share_from_another_call(
    empty: Any, calls: list[str], limit: int, sizes: list[int], answers: list[int], shape: dict[str, Any]
) -> None:
    """A prompt needs a value for its variable; an empty one leaves to documents what no value leaves."""
    thread = [m for n in answers for m in (HumanMessage(f"{n}?"), AIMessage("It was seen. " * n))]
    documents = [Document(f"Note {n} says: " + "the pump was seen. " * size) for n, size in enumerate(sizes)]

    def kept(**slot: Any) -> list[Any]:
        budget = TokenBudget(context_window=limit + 100, reserve=100, **shape)
        session = BudgetSession(budget, counter=EXACT, sources=("knowledge",))
        compressor, trimmer = BudgetDocumentCompressor(session=session), BudgetTrimmer(session=session)
        value = {"history": thread, "question": "What about the pump?", **slot}
        return [
            trimmer.invoke(value)["history"]
            if call == "trim"
            else compressor.compress_documents(documents, value["question"])
            for call in calls
        ]

    assert kept(documents=empty) == kept()


def test_without_a_conversation_documents_get_their_share() -> None:
    """Where the session knows no conversation the history's share stays free, also for few documents, and with any preset."""
    for shape in SHAPES:
        made = Application(1000, shape)
        for count in (1, 8, 40):
            documents = [Document(f"Note {n}: " + "The pump was seen. " * 20) for n in range(count)]
            found = made.compressor.compress_documents(documents, "What about the pump?")
            share = made.session.budget.share_of("history")
            assert EXACT.count("\n\n".join(one.page_content for one in found)) <= 1000 * (1 - share)
            assert found


def test_an_agents_turn_leaves_the_documents_where_they_are() -> None:
    """Each call of the trimmer while an answer grows leaves the documents their place; the next question does not."""
    made = Application(400, {})
    asked: list[BaseMessage] = [HumanMessage("What about the pump?")]
    documents = [Document(f"Note {n}: " + "The pump was seen. " * 20) for n in range(9)]
    made.trimmer.invoke(asked)
    found = made.compressor.compress_documents(documents, "What about the pump?")
    tokens = EXACT.count("\n\n".join(one.page_content for one in found))
    assert tokens > 200
    for n in range(9):
        asked = [*asked, AIMessage(f"Step {n}. " * 8)]
        assert COUNT(made.trimmer.invoke(asked)) + tokens <= 400
    longest = HumanMessage("And why? " * 70)
    assert COUNT(made.trimmer.invoke([*asked, longest])) > 400 - tokens


def test_what_must_stay_beside_the_documents_raises() -> None:
    """A system prompt that has no room beside documents returned before it raises; nothing is sent over the limit."""
    made = Application(400, {"max_system_ratio": None})
    asked = [SystemMessage("Be brief. " * 85), HumanMessage("Why? " * 60)]
    assert made.trimmer.invoke(asked) == asked
    made.session.forget()
    documents = [Document(f"In room {n} a pump was seen.") for n in range(40)]
    found = made.compressor.compress_documents(documents, asked[-1].text)
    assert COUNT(asked) + EXACT.count("\n\n".join(one.page_content for one in found)) > 400
    with pytest.raises(BudgetExceededError, match="what must stay"):
        made.trimmer.invoke(asked)


def test_documents_in_a_template_are_counted_once() -> None:
    """Documents that a compressor kept have the same room in a template of the same session, where they are a slot."""
    made = Application(600, {})
    documents = [Document(f"Note {n}: " + "The pump was seen. " * 12) for n in range(9)]
    found = made.compressor.compress_documents(documents, "What about the pump?")
    template = BudgetChatPromptTemplate.from_messages(
        [("system", "{documents}"), ("placeholder", "{history}"), ("human", "{question}")],
        session=made.session,
    )
    shown = template.invoke({"documents": found, "history": [], "question": "What about the pump?"})
    assert all(one.page_content in shown.to_messages()[0].text for one in found)
