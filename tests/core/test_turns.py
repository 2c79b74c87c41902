"""One plan a turn: whoever asks first, history and documents keep what one request for both would keep."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from rankbudget import Assembler, Block, BudgetSession, DictCodec, Segment, TokenBudget, fit_messages
from rankbudget.adapters import PromptRequest, drive, plain_budget, plan_steps
from rankbudget.testing import WordCounter

COUNTER = WordCounter()
QUESTION = "what about seven"


def chat(turns: int) -> list[dict[str, Any]]:
    """A conversation of questions and answers."""
    made: list[dict[str, Any]] = []
    for n in range(turns):
        made.append({"role": "user", "content": f"question {n} " + "q " * 9})
        made.append({"role": "assistant", "content": f"answer {n} " + "a " * 14})
    return made


def documents(count: int) -> Block:
    """Documents, the best first."""
    texts = [f"document {n} says seven things " + "word " * 12 for n in range(count)]
    segments = [Segment(id=str(n), text=text, score=1 - n / 100) for n, text in enumerate(texts)]
    return Block(name="knowledge", segments=segments)


def kept_of(plan: Any) -> tuple[list[str], list[str]]:
    """The texts of history and documents in a plan."""
    pieces = plan.kept["knowledge"].pieces if "knowledge" in plan.kept else ()
    return [m["content"] for m in plan.history], [p.rendition.text for p in pieces]


BUDGETS = [
    TokenBudget(context_window=window, reserve=50, surplus=surplus, preset=preset)
    for window, surplus, preset in product((400, 900), ("waterfall", "borrow", "keep"), (None, "rag"))
]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: f"{b.context_window}-{b.surplus}-{b.preset}")
def test_documents_first_then_history_is_one_plan(budget: TokenBudget) -> None:
    """Where documents are fitted first, history and documents are those of one request for both, on every turn."""
    together = BudgetSession(budget, counter=COUNTER, sources=["knowledge"])
    apart = BudgetSession(budget, counter=COUNTER, sources=["knowledge"])
    for turns in (6, 7, 8, 20):
        thread, found = chat(turns), documents(12)
        whole = drive(together.plan_steps(together.request(thread, blocks=[found], question=QUESTION)))
        apart.attach(lambda thread=thread: thread)
        knowledge = drive(apart.plan_steps(apart.request(blocks=[found], question=QUESTION)))
        history = drive(apart.plan_steps(apart.request(thread, question=QUESTION)))
        again = drive(apart.plan_steps(apart.request(thread, question=QUESTION)))
        assert kept_of(knowledge)[1] == kept_of(whole)[1]
        assert kept_of(history)[0] == kept_of(again)[0] == kept_of(whole)[0]


@pytest.mark.parametrize("budget", BUDGETS, ids=lambda b: f"{b.context_window}-{b.surplus}-{b.preset}")
def test_history_first_leaves_the_documents_their_share(budget: TokenBudget) -> None:
    """Where the history is read first, both parts together stay within the limit, and reading it again changes nothing."""
    session = BudgetSession(budget, counter=COUNTER, sources=["knowledge"])
    for turns in (6, 7, 20):
        thread, found = chat(turns), documents(12)
        history = drive(session.plan_steps(session.request(thread, question=QUESTION)))
        both = drive(session.plan_steps(session.request(thread, blocks=[found], question=QUESTION)))
        again = drive(session.plan_steps(session.request(thread, question=QUESTION)))
        assert kept_of(both)[0] == kept_of(history)[0] == kept_of(again)[0]
        assert kept_of(both)[1], "the share of the documents stays free for them"
        assert both.report.total_tokens <= both.report.limit


def test_a_changed_question_makes_a_new_plan() -> None:
    """The grant of a turn holds for its question and its messages alone."""
    budget = TokenBudget(context_window=600, reserve=50, surplus="borrow")
    session = BudgetSession(budget, counter=COUNTER, sources=["knowledge"])
    thread = chat(20)
    first = drive(session.plan_steps(session.request(thread, question="short")))
    longer = drive(session.plan_steps(session.request(thread, question="long " * 200)))
    assert longer.report.total_tokens <= longer.report.limit
    assert len(longer.history) < len(first.history)


def test_one_odd_report_does_not_take_the_room() -> None:
    """A single large request counts for a quarter of the window at most; a second one in a row is believed."""
    session = BudgetSession(1_000, counter=COUNTER)
    planned = session.fit(chat(2)).report.total_tokens
    learned = []
    for added in (40, 900, 50, 900, 880, 0):
        session.learn(planned + added)
        learned.append(session.host_tokens)
    assert learned == [40, 250, 50, 250, 880, 0]


def test_media_count_beside_a_text_that_a_template_renders() -> None:
    """A host's template shows the text of a document; the tokens of its picture are in the total all the same."""
    segments = tuple([Segment(id=f"d{i}", text=f"a b {i}") for i in range(5)])
    request = PromptRequest(
        budget=plain_budget(100),
        counter=COUNTER,
        codec=DictCodec(),
        blocks=(Block(name="knowledge", segments=segments),),
        beside={s.id: 30 for s in segments},
        render=lambda kept, _: [
            {"role": "user", "content": " ".join(p.rendition.text for p in kept["knowledge"].pieces)}
        ],
    )
    plan = drive(plan_steps(request))
    kept = plan.kept["knowledge"].pieces
    assert len(kept) == 2
    assert plan.report.total_tokens == COUNTER.count_messages(plan.messages) + 60
    assert plan.report.block("knowledge").used >= 60


@pytest.mark.parametrize("own", [True, False])
def test_a_calls_own_summarizer_comes_before_the_sessions(own: bool) -> None:
    """Every core door takes the summarizer it is given, else the session's."""
    asked: list[str] = []

    def writer(name: str) -> Any:
        return lambda text, most: asked.append(name) or name

    def session() -> BudgetSession:
        return BudgetSession(120, counter=COUNTER, summarizer=writer("session"))

    given = writer("call") if own else None
    fit_messages(chat(20), max_tokens=120, session=session(), summarizer=given)
    Assembler(120, session=session(), summarizer=given).assemble({"history": chat(20)})
    assert set(asked) == {"call" if own else "session"}
    assert len(asked) >= 2
