"""The page of a report: one file that loads nothing, in which every text is text."""

from __future__ import annotations

import functools
import re
from base64 import b64encode
from hashlib import sha256

import pytest
from hypothesis import given

from rankbudget import (
    Assembler,
    BlockTotal,
    BudgetReport,
    Decision,
    Segment,
    TokenBudget,
    fit_documents,
    fit_messages,
    save_html,
)
from rankbudget.errors import BudgetConfigError
from rankbudget.report.page import page, turn_of
from rankbudget.report.texts import texts_of
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.report.made import HOSTILE, Tags, data_of, drawn_by_hand, drawn_results

CHAT = [{"role": "user" if i % 2 == 0 else "assistant", "content": f"text {i} " * 4} for i in range(40)]
fit = functools.partial(fit_messages, counter=WordCounter())


def evil_report(evil: str) -> BudgetReport:
    """A report that has one text everywhere."""
    parts = [
        Decision(segment_id=evil, block=evil, action=action, reason=evil, before=3, after=after, detail=evil)
        for action, after in (("trimmed", 0), ("truncated", 2))
    ]
    blocks = [BlockTotal(name=evil, rank=1, granted=5, used=2)]
    made = BudgetReport(
        limit=9, total_tokens=2, blocks=blocks, parts=parts, warnings=[evil], counter=evil, model=evil
    )
    data = made.to_dict()
    data["blocks"][0]["rank"] = data["decisions"][1]["action"] = evil  # a report that somebody else wrote
    return BudgetReport.from_dict(data)


def test_the_page_is_one_well_formed_file_that_loads_nothing():
    """No element has an address but the link to the list, and no attribute is a script or a style."""
    made = fit(CHAT, max_tokens=60)
    html = made.report.to_html(before=CHAT, after=made.messages)
    tags = Tags(html)
    assert {"link", "img", "iframe", "object", "base", "form"}.isdisjoint(tags.names)
    keys = {(key, value) for _, attributes in tags.seen for key, value in attributes.items()}
    assert [value for key, value in keys if key in ("src", "href", "action")] == ["#pieces"]
    assert [key for key, _ in keys if key.startswith("on") or key == "style"] == []
    assert not re.search(
        r"url\(|@import|\bfetch\(|XMLHttpRequest|innerHTML|https?:", html.replace("&#x27;", "'")
    )


def test_the_page_allows_its_own_script_and_style_only():
    """Its policy forbids all requests, and names the hash of the one script and the one style."""
    html = fit(CHAT, max_tokens=60).report.to_html()
    [policy] = [a["content"] for t, a in Tags(html).seen if a.get("http-equiv") == "Content-Security-Policy"]
    [style] = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    [script] = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)

    def hashed(text):
        return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules == {
        "default-src": "'none'",
        "style-src": hashed(style),
        "script-src": hashed(script),
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@pytest.mark.parametrize("evil", HOSTILE)
def test_every_name_of_a_report_is_text_in_the_page(evil):
    """No id, block, reason, detail, warning, counter or action opens an element, in the head or in the data."""
    plain, hostile = evil_report("plain").to_html(), evil_report(evil).to_html()
    assert Tags(hostile).names == Tags(plain).names
    assert "onerror" not in {key for _, attributes in Tags(hostile).seen for key in attributes}
    hostile.encode()  # it can be written as a file
    assert evil in data_of(hostile)["strings"]
    written = "".join(Tags(hostile).text)
    assert evil.replace("\ud83d", "\ufffd") in written.split("Budget report", 1)[1]


@draws()
@given(drawn_by_hand())
def test_the_page_of_any_report_is_well_formed_and_holds_its_texts(report):
    """Drawn names leave the elements of a page as they are, and come out of its data as they went in."""
    html = report.to_html()
    html.encode()
    tags = Tags(html)
    assert tags.names.count("script") == 2
    data = data_of(html)
    strings, [turn] = data["strings"], data["turns"]
    assert "<" not in html.split('id="data">')[1].split("</script>")[0]
    assert html.split('id="data">')[1].split("</script>")[0].isascii()
    shown = [(strings[p[0]], strings[p[1]], strings[p[2]], strings[p[4]], p[5], p[6]) for p in turn["pieces"]]
    told = [(d.segment_id, d.block, d.action, d.detail, d.before, d.after) for d in report.decisions]
    assert sorted(shown, key=repr) == sorted(told, key=repr)


@draws()
@given(drawn_by_hand())
def test_a_report_that_was_written_and_read_has_the_same_page(report):
    """`from_dict` of `to_dict` makes the same page, byte for byte."""
    assert BudgetReport.from_dict(report.to_dict()).to_html() == report.to_html()


@draws()
@given(drawn_results())
def test_a_written_report_lacks_only_what_the_plan_knows(made):
    """The way through plain data loses what brings a piece back, and whose a text without an id is."""
    result, given_ = made
    again = BudgetReport.from_dict(result.report.to_dict())
    first, second = (data_of(one.to_html()) for one in (result.report, again))
    for data in (first, second):
        for piece in data["turns"][0]["pieces"]:
            piece[-1] = None
    assert first == second
    assert texts_of(again, before=given_).before == {}


def test_a_page_without_texts_has_ids_and_figures():
    """Nothing of a message is in the page of a report alone; with the messages all of it is."""
    made = fit(CHAT, max_tokens=60)
    alone, given_, whole = (
        made.report.to_html(),
        made.report.to_html(before=CHAT),
        made.report.to_html(before=CHAT, after=made.messages),
    )
    assert "text 39" not in alone
    assert all(f"history-{i}" in data_of(alone)["strings"] for i in range(40))
    assert {m["content"] for m in CHAT} <= set(data_of(given_)["strings"]) <= set(data_of(whole)["strings"])


def columns(html, turn=-1):
    """The pieces of a page by id, as they are in its data."""
    data = data_of(html)
    return {data["strings"][piece[0]]: piece for piece in data["turns"][turn]["pieces"]}


def test_a_page_says_what_brings_back_the_pieces_that_are_nearest():
    """At most 200 dropped pieces have a number, the newest messages first; it is the number that `explain` gives."""
    chat = [{"role": "user", "content": f"question {n}"} for n in range(700)]
    report = fit(chat, max_tokens=60).report
    more = {name: piece[-1] for name, piece in columns(report.to_html()).items()}
    dropped = [one.segment_id for one in report.decisions if one.action == "trimmed"]
    asked = [name for name in dropped if more[name] != -1]
    assert len(dropped) > 600
    assert asked == dropped[-200:]
    assert all(f"{more[name]:,} more tokens" in report.explain(name) for name in asked[-20:])


def test_the_nearest_documents_are_those_with_the_best_scores():
    """Where scores are given, they say which dropped documents come first; blocks take turns."""
    segments = [Segment(id=f"s{i}", text="tea " * 9, score=float(i % 50)) for i in range(300)]
    report = fit_documents(segments, max_tokens=30, query="tea", counter=WordCounter()).report
    asked = []
    spied = BudgetReport(
        limit=30, total_tokens=0, parts=report.parts, needs=lambda _: lambda *piece: asked.append(piece) or 1
    )
    page([turn_of(spied, segments)])
    scores = [float(int(name[1:]) % 50) for _, name in asked]
    assert 100 < len(asked) <= 200
    assert scores == sorted(scores, reverse=True)


def test_several_turns_share_a_page_and_its_texts():
    """Each turn has its head, the last is shown, and a text that many turns have is in the file once."""
    turns = [fit(CHAT[:n], max_tokens=60) for n in (10, 20, 40)]
    html = page([turn_of(one, CHAT) for one in turns])
    heads = [attributes for tag, attributes in Tags(html).seen if attributes.get("class") == "turn"]
    assert [("hidden" in one, one["data-turn"]) for one in heads] == [(True, "0"), (True, "1"), (False, "2")]
    data = data_of(html)
    assert [turn["total"] for turn in data["turns"]] == [one.report.total_tokens for one in turns]
    assert len(data["strings"]) == len(set(data["strings"]))


def test_the_boundary_of_a_prompt_cache_is_where_two_turns_begin_to_differ():
    """A stable start is counted, a moved cut ends it, and blocks that change every turn are not compared."""
    assembler = Assembler(TokenBudget(context_window=400, reserve=50), counter=WordCounter())

    def turn(n, system="Be brief."):
        given_ = {"system": system, "history": CHAT[:n], "knowledge": ["one tea"]}
        return assembler.assemble(given_, query="which?")

    turns = [turn(4), turn(6), turn(8, "Be kind."), BudgetReport(limit=1, total_tokens=0)]
    same = [one["same"] for one in data_of(page([turn_of(one) for one in turns]))["turns"]]
    assert same == [None, 5, 0, 0]


@pytest.mark.parametrize("wrong", [[], [7], "report", None, [None]])
def test_what_is_no_list_of_reports_is_refused(wrong, tmp_path):
    """Without a report there is no page, and no file."""
    with pytest.raises(
        BudgetConfigError, match=r"turns must be a list of reports or results, oldest first \("
    ):
        save_html(tmp_path / "page.html", wrong)
    assert list(tmp_path.iterdir()) == []


def test_three_ways_write_the_same_page(tmp_path):
    """A report with its texts, a result, and a list of one result make one file; the path comes back."""
    made = fit(CHAT, max_tokens=60)
    first = made.report.save_html(tmp_path / "a.html", before=CHAT, after=made.messages)
    second = made.save_html(str(tmp_path / "b.html"), before=CHAT)
    third = save_html(tmp_path / "c.html", [made], before=CHAT)
    assert [path.name for path in (first, second, third)] == ["a.html", "b.html", "c.html"]
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()


@pytest.mark.parametrize("covers", ["history", "documents", "examples", "blocks"])
def test_a_page_says_what_its_report_covers(covers):
    """The head names the part of the prompt that the report covers."""
    assert f"covers the {covers} only" in BudgetReport(limit=1, total_tokens=0, covers=covers).to_html()
    assert "covers the whole prompt" in BudgetReport(limit=1, total_tokens=0).to_html()


def test_ten_thousand_pieces_are_figures_and_few_elements():
    """The script draws pieces when they are looked at: the file has no element for each."""
    chat = [{"role": "user", "content": f"question {n}"} for n in range(10_000)]
    html = fit(chat, max_tokens=60).report.to_html()
    assert len(Tags(html).names) < 200
    assert len(columns(html)) == 10_000


@pytest.mark.parametrize("evil", HOSTILE)
def test_a_cell_of_a_notebook_is_small_and_escaped(evil):
    """A notebook shows a bar and a table without a script; hostile names are text."""
    cell = evil_report(evil)._repr_html_()
    tags = Tags(cell)
    assert tags.names == Tags(evil_report("plain")._repr_html_()).names
    assert {"script", "img", "style", "link"}.isdisjoint(tags.names)
    assert len(cell) < 8_000
    cell.encode()
