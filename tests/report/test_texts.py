"""Which text belongs to which piece: read from what the caller passes, and left out where it is not certain."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.schema import NodeWithScore, TextNode

import langchain_budget
import llamaindex_budget
from rankbudget import Assembler, BudgetReport, Scope, Segment, TokenBudget, fit_documents, fit_messages
from rankbudget.errors import BudgetConfigError
from rankbudget.report.order import in_order
from rankbudget.report.texts import kept_in, texts_of, words_of
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.report.made import drawn_results, words

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"in":"box"}'}}


@pytest.mark.parametrize(
    ("item", "text", "role", "score"),
    [
        ("tea", "tea", "", None),
        ({"role": "user", "content": "tea"}, "tea", "user", None),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, '[calls look({"in":"box"})]', "assistant", None),
        (
            {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url"}]},
            "see\n[image_url]", "user", None,
        ),
        ({"role": "model", "parts": [{"text": "tea"}]}, "tea", "model", None),
        (HumanMessage("tea"), "tea", "human", None),
        (
            AIMessage("", tool_calls=[{"id": "c", "name": "look", "args": {"in": "box"}}]),
            "[calls look({'in': 'box'})]", "ai", None,
        ),
        (Document("tea"), "tea", "", None),
        (ChatMessage("tea", role="assistant"), "tea", "assistant", None),
        (NodeWithScore(node=TextNode(text="tea"), score=0.5), "tea", "", 0.5),
        (Segment(id="a", text="tea", score=2.5), "tea", "", 2.5),
        (Segment(id="a", text="tea", score=float("nan")), "tea", "", None),
        (7, "", "", None),
    ],
)  # fmt: skip
def test_what_a_host_calls_a_text_is_read(item, text, role, score):
    """Messages, documents, nodes and segments of every host have their text, role and score."""
    words = words_of(item)
    assert (words.text, words.role, words.score) == (text, role, score)


def by_id(report):
    return {(one.block, one.segment_id): one for one in report.decisions}


@draws()
@given(drawn_results())
def test_a_text_is_that_of_its_piece(made):
    """The tokens of each text that is found are those its decision counted, before and after the fitting."""
    result, given = made
    counter, report = WordCounter(), result.report
    found = texts_of(report, before=given, after=kept_in(result))
    for key, one in by_id(report).items():
        if key in found.before and key in found.after and one.action == "kept":
            assert found.after[key].text == found.before[key].text
        if one.action == "truncated" and key in found.after:
            assert counter.count(found.after[key].text) <= one.after
    ids = {key for key, one in by_id(report).items() if one.block in {"history", "knowledge"}}
    assert ids - {("history", "history-summary")} <= found.before.keys()
    kept = {key for key in ids if by_id(report)[key].action != "trimmed"}
    assert kept <= found.after.keys()
    assert {key for key in found.after if by_id(report)[key].action == "trimmed"} == set()


def test_a_summary_is_paired_with_its_own_message():
    """What was kept whole is found by identity; the summary is what is left."""
    chat = [{"role": "system", "content": "Be brief."}]
    for n in range(20):
        chat += [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "yes " * 9}]
    made = fit_messages(
        chat, max_tokens=120, counter=WordCounter(), summarizer=lambda text, max_tokens: "All was fine."
    )
    found = texts_of(made.report, before=chat, after=kept_in(made)).after
    assert "All was fine." in found["history", "history-summary"].text
    assert found["history", "history-0"].text == "Be brief."
    alone = texts_of(made.report, after=kept_in(made)).after
    assert alone == found


def test_messages_are_found_by_the_ids_of_their_host():
    """A LangChain message with an id has that id in the report; one without has its position."""
    thread = [HumanMessage(f"question {n}", id=f"m{n}" if n % 2 else None) for n in range(6)]
    plain = [{"role": "user", "content": m.text, "id": m.id} for m in thread]
    made = fit_messages(plain, max_tokens=10, counter=WordCounter())
    ids = [one.segment_id for one in made.report.decisions]
    found = texts_of(made.report, before=thread).before
    assert sorted(found) == sorted(("history", one) for one in ids)
    assert all(found["history", m.id or f"history-{i}"].text == m.text for i, m in enumerate(thread))


def test_a_shortened_text_is_that_of_the_prompt():
    """A compressed document has its own words before, and fewer of them after."""
    text = "Beds need water. Tea is dry. Roses need shade. Ferns like moss."
    made = fit_documents([text], max_tokens=6, query="what do roses need?", counter=WordCounter())
    [one] = made.report.decisions
    found = texts_of(made.report, before=[text], after=kept_in(made))
    key = (one.block, one.segment_id)
    assert one.action == "compressed"
    assert found.before[key].text == text
    assert found.after[key].text == made.segments[0].text != text


def test_the_parts_of_an_assembled_prompt_are_all_found():
    """System prompt, blocks, history and question of an Assembly have their texts without more help."""
    blocks = {
        "system": "Be brief.",
        "history": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}],
        "documents": ["one tea", "two teas"],
    }
    made = Assembler(TokenBudget(context_window=400, reserve=50), counter=WordCounter()).assemble(
        blocks, query="which?"
    )
    after = texts_of(made.report, after=kept_in(made)).after
    assert {key: words.text for key, words in after.items()} == {
        ("system", "system"): "Be brief.",
        ("history", "history-0"): "hi",
        ("history", "history-1"): "hello",
        ("documents", "documents-0"): "one tea",
        ("documents", "documents-1"): "two teas",
        ("query", "query"): "which?",
    }
    assert ("documents", "documents-1") in texts_of(made.report, before=blocks).before


def test_no_text_is_better_than_a_wrong_one():
    """A conversation of the same roles and lengths that was not fitted has no text in the page."""
    chat = [{"role": "user", "content": f"question {n}"} for n in range(4)]
    report = fit_messages(chat, max_tokens=1_000, counter=WordCounter()).report
    copies = [dict(message) for message in chat]
    assert len(texts_of(report, after=copies).after) == 4
    assert len(texts_of(report, after=copies[1:]).after) == 3
    others = [{"role": "user", "content": f"reply {n}"} for n in range(4)]
    found = texts_of(report, before=others, after=others)
    assert found.before == found.after == {}


@st.composite
def lists_like(draw, given_):
    """A list with items left out, doubled, moved, or of others, before and after; or the same by block."""
    if isinstance(given_, dict):
        return {name: draw(lists_like(items)) for name, items in given_.items()}
    others = [{"role": "user", "content": draw(words)} for _ in range(draw(st.integers(0, 3)))]
    kept = (
        draw(st.lists(st.sampled_from(given_), max_size=2 * len(given_))) if draw(st.booleans()) else given_
    )
    copies = [dict(one) if isinstance(one, dict) else one for one in kept[draw(st.integers(0, 4)) :]]
    return [*others, *copies] if draw(st.booleans()) else [*copies, *others]


@draws()
@given(st.data())
def test_a_shown_text_is_the_pieces_own_whatever_list_was_passed(data):
    """Messages put in front, left out, moved or of another conversation never move a text to another piece."""
    result, given_ = data.draw(drawn_results())
    report, passed = result.report, data.draw(lists_like(given_))
    alone = "history" if result.messages else "knowledge"
    lists = passed if isinstance(passed, dict) else {alone: passed}
    own = {}
    for block, items in (given_ if isinstance(given_, dict) else {alone: given_}).items():
        prefix = "" if block == "knowledge" and not isinstance(given_, dict) else f"{block}-"
        own |= {(block, f"{prefix}{i}"): words_of(item).text for i, item in enumerate(items)}
    assert own.keys() <= by_id(report).keys()
    said = {block: {words_of(item).text for item in items} for block, items in lists.items()}
    found = texts_of(report, before=passed, after=passed)
    shown = {key: one.text for key, one in found.before.items()}
    assert shown == {key: text for key, text in own.items() if text in said[key[0]]}
    for key, one in found.after.items():
        assert by_id(report)[key].action != "trimmed"
        assert one.text == own[key] or by_id(report)[key].action != "kept"


@pytest.mark.parametrize("framework", ["langchain", "llamaindex"])
def test_a_prompt_put_in_front_moves_no_text(framework):
    """The report of a bounded model shows each message of the thread that was passed under its own piece."""
    reports = []
    options = {"max_tokens": 120, "counter": WordCounter(), "on_report": reports.append}
    turns = [(f"question {n}", f"answer {n} is fine") for n in range(20)]
    if framework == "langchain":
        thread = [m for ask, say in turns for m in (HumanMessage(ask), AIMessage(say))]
        model = langchain_budget.budget_model(FakeListChatModel(responses=["x"]), **options)
        model.invoke([SystemMessage("You help."), *thread, HumanMessage("the last")])
    else:
        roles = ("user", "assistant")
        thread = [ChatMessage(t, role=r) for turn in turns for r, t in zip(roles, turn, strict=True)]
        model = llamaindex_budget.budget_model(MockLLM(), **options)
        model.chat([ChatMessage("You help.", role="system"), *thread, ChatMessage("the last", role="user")])
    found = texts_of(reports[-1], before=thread).before
    assert {key: one.text for key, one in found.items()} == {
        ("history", f"history-{i + 1}"): words_of(message).text for i, message in enumerate(thread)
    }


def test_two_pieces_of_one_id_have_no_text():
    """Where a host gave one id twice, the page cannot say which of two texts is whose."""
    chat = [
        {"role": "user", "content": text, "id": name}
        for text, name in (("tea", "a"), ("ice", "a"), ("sun", "b"))
    ]
    report = fit_messages(chat, max_tokens=100, counter=WordCounter()).report
    for one in (report, BudgetReport.from_dict(report.to_dict())):
        assert {key[1]: words.text for key, words in texts_of(one, before=chat).before.items()} == {
            "b": "sun"
        }


def test_a_plan_passes_what_its_blocks_kept():
    """`after=plan.kept` shows the texts of all blocks as they are in the prompt."""
    blocks = {"documents": ["one tea", "two teas"], "memory": ["Ann likes tea."]}
    made = Assembler(400, counter=WordCounter()).assemble(blocks, query="which?")
    found = texts_of(made.report, after=made.kept).after
    assert sorted(words.text for words in found.values()) == ["Ann likes tea.", "one tea", "two teas"]


def test_what_a_reader_may_not_see_is_in_no_page():
    """A memory of another user has no id in the report, and its text is not in the page, although it was passed."""
    memories = [
        Segment(id="memory-1", text="ann likes tea", scope=Scope(user="ann")),
        Segment(id="b", text="bob likes ice", scope=Scope(user="bob")),
        Segment(id="c", text="all like cake"),
        "no scope at all",
    ]
    made = Assembler(
        TokenBudget(context_window=400, reserve=50), counter=WordCounter(), scope=Scope(user="ann")
    ).assemble({"memory": memories}, query="which?")
    html = made.report.to_html(before={"memory": memories})
    assert "bob likes ice" not in html
    assert all(text in html for text in ("ann likes tea", "all like cake", "no scope at all"))


@pytest.mark.parametrize("wrong", ["a text", b"bytes", 7])
def test_what_is_no_list_is_refused(wrong):
    """One text or one number is neither a list nor a dict of lists."""
    with pytest.raises(BudgetConfigError, match=r"before must be a list, or a dict of lists by block \(got"):
        BudgetReport(limit=1, total_tokens=0).to_html(before=wrong)


def test_pieces_stand_in_the_order_of_the_prompt():
    """A conversation decides on shortened and dropped messages last; they are shown at their places."""
    chat = []
    for n in range(12):
        chat += [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "long " * 60}]
    report = fit_messages(chat, max_tokens=320, counter=WordCounter(), message_cap=200).report
    shown = in_order(report.decisions, ["history"], {})
    assert [one.segment_id for one in shown] == [f"history-{i}" for i in range(24)]
    assert [one.segment_id for one in report.decisions] != [one.segment_id for one in shown]


def test_pieces_keep_their_order_where_only_some_were_passed():
    """The places that more pieces have are taken: those of the list that was passed, or the numbers of ids."""
    report = fit_messages(
        [{"role": "user", "content": f"question {n}"} for n in range(8)], max_tokens=12, counter=WordCounter()
    ).report
    shown = in_order(
        report.decisions, ["history"], {("history", "history-3"): "", ("history", "history-1"): ""}
    )
    assert [one.segment_id for one in shown] == [f"history-{i}" for i in range(8)]
    backwards = {("history", f"history-{i}"): "" for i in reversed(range(8))}
    assert [one.segment_id for one in in_order(report.decisions, ["history"], backwards)] == [
        f"history-{i}" for i in reversed(range(8))
    ]
