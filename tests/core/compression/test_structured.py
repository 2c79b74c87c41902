"""Tool output by structure: JSON stays JSON, logs keep what stands out, gaps are counted."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession, Segment, counter_for, fit_documents, fit_messages
from rankbudget.compression.extractive import extract
from rankbudget.compression.json_values import dump, parse
from rankbudget.compression.structured import compress_structured
from rankbudget.testing import RecordingCounter
from tests.drawing import draws

EXACT = counter_for("o200k_base")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=80),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=12), inner, max_size=8),
    max_leaves=40,
)


def rows(count: int = 200) -> list[dict[str, object]]:
    made: list[dict[str, object]] = [
        {
            "id": f"FL{i:04d}",
            "price": 100 + i % 7,
            "status": "ok",
            "note": "a seat by the window, when asked early " * 2,
        }
        for i in range(count)
    ]
    made[count // 2]["status"] = "error: no such flight"
    made[count // 3]["price"] = 99_999
    return made


@given(
    value=st.lists(VALUES, max_size=8) | st.dictionaries(st.text(max_size=12), VALUES, max_size=8),
    limit=st.integers(1, 120),
    indent=st.sampled_from([None, 2]),
)
def test_json_stays_json_within_the_limit(value, limit, indent):
    """Whatever the value and the limit, the result parses as the same kind of JSON and fits."""
    text = json.dumps(value, indent=indent)
    short = compress_structured(text, limit, EXACT)
    assert EXACT.count(short) <= limit
    assert type(json.loads(short)) is type(value)


def test_white_space_goes_before_any_content():
    """Pretty-printed JSON that fits once it is dense loses nothing."""
    value = {"total": 1.50, "rows": [[i, i + 1] for i in range(40)]}
    text = json.dumps(value, indent=4)
    dense = json.dumps(value, separators=(",", ":"))
    assert json.loads(compress_structured(text, EXACT.count(dense), EXACT)) == value


def test_numbers_keep_their_digits():
    """A price of 1.50 stays 1.50, and large integers are not rounded."""
    assert (
        dump(parse('{"price": 1.50, "id": 12345678901234567890}'))
        == '{"price":1.50,"id":12345678901234567890}'
    )


def test_errors_survive_when_most_rows_go():
    """The failing row stays, the count of the missing rows is said."""
    short = compress_structured(json.dumps(rows()), 400, EXACT)
    assert "error: no such flight" in short
    assert "FL0000" in short
    kept = [row for row in json.loads(short) if isinstance(row, dict)]
    assert f"{200 - len(kept)} more items" in short


def test_ids_are_never_torn():
    """Every id that is left is one of the ids that were given."""
    ids = {row["id"] for row in rows()}
    for limit in (60, 150, 500):
        found = json.loads(compress_structured(json.dumps(rows()), limit, EXACT))
        assert {row["id"] for row in found if isinstance(row, dict) and "id" in row} <= ids


def test_one_json_value_a_line_stays_so():
    """JSON lines lose lines, never their form."""
    text = "\n".join(json.dumps(row) for row in rows(60))
    short = compress_structured(text, 300, EXACT)
    assert EXACT.count(short) <= 300
    parsed = [json.loads(line) for line in short.splitlines()]
    assert any("omitted" in row for row in parsed)
    assert any(row.get("status") == "error: no such flight" for row in parsed)


def test_a_log_keeps_its_error_and_its_ends():
    """Five hundred lines of one kind become a few, and the one that differs is among them."""
    lines = [f"2026-01-01 12:00:{i % 60:02d} INFO request {i} served in {i % 13} ms" for i in range(500)]
    lines[200] = "2026-01-01 12:03:20 ERROR database is gone"
    short = compress_structured("\n".join(lines), 120, EXACT)
    assert EXACT.count(short) <= 120
    assert lines[0] in short
    assert lines[-1] in short
    assert lines[200] in short
    assert "lines ...]" in short


def test_search_results_keep_whole_lines():
    """A result list loses whole lines, in order."""
    random.seed(4)
    lines = [f"src/module_{i}.py:{random.randrange(400)}: def handler_{i}(request):" for i in range(80)]
    short = compress_structured("\n".join(lines), 200, EXACT).splitlines()
    kept = [line for line in short if not line.startswith("[...")]
    assert kept == [line for line in lines if line in kept]
    assert len(kept) >= 3


def test_prose_in_one_line_keeps_its_start():
    """Its end could be read as a sentence of what the start tells of."""
    short = compress_structured("It begins here. " + "And on it goes. " * 300 + "It ends there.", 30, EXACT)
    assert short.startswith("It begins here.")
    assert short.endswith("And on it goes. ...")


def test_what_fits_comes_back_as_it_is():
    """Nothing is reformatted without need."""
    text = '{ "a" : 1 }'
    assert compress_structured(text, 50, EXACT) is text
    assert compress_structured(text, 0, EXACT) == ""


@pytest.mark.parametrize("limit", [100, 1000])
def test_work_is_bounded(limit):
    """A large result is tokenized about once; the search for its short form counts short forms only."""
    recorder = RecordingCounter(EXACT)
    text = json.dumps(rows(600), indent=2)
    compress_structured(text, limit, recorder)
    assert recorder.characters <= 1.5 * len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[" * 400 + "]" * 400 + " " * 300,
        json.dumps({"a" * 40: [[[["x" * 90] * 30] * 3]]}),
        "{\n" * 3000,
        "    indented\n" * 3000,
        "[INFO] line\n" * 3000,
        "| a | b\n" * 3000,
    ],
)
def test_hostile_shapes_are_handled(text):
    """Deep nesting, brackets that never close and endless runs neither raise nor overflow nor take for ever."""
    short = compress_structured(text, 20, EXACT)
    assert EXACT.count(short) <= 20
    assert EXACT.count(extract(text, 20, EXACT)) <= 20


# ---- what the question names ---------------------------------------------------------------------
FORMS = {
    "lines": lambda rows: "\n".join(f"{mail} has phone {phone}" for mail, phone in rows),
    "json": lambda rows: json.dumps([{"mail": mail, "phone": phone} for mail, phone in rows]),
    "nested": lambda rows: json.dumps({"rows": [{"mail": m, "phone": p} for m, p in rows]}, indent=1),
    "by id": lambda rows: json.dumps({"data": {mail: {"phone": phone} for mail, phone in rows}}),
    "jsonl": lambda rows: "\n".join(json.dumps({"mail": mail, "phone": phone}) for mail, phone in rows),
    "records": lambda rows: "\n".join(f"- mail: {mail}\n  phone: {phone}" for mail, phone in rows),
    "csv": lambda rows: "\n".join(f"{mail},{phone},x" for mail, phone in rows),
    "html": lambda rows: "".join(f"<tr><td>{m}</td><td>{p}</td></tr>" for m, p in rows),
    "one line": lambda rows: "; ".join(f"{mail} has phone {phone}" for mail, phone in rows),
    "with bars": lambda rows: " | ".join(f"{mail}: {phone}" for mail, phone in rows),
    "with commas": lambda rows: ", ".join(f"{mail}: {phone}" for mail, phone in rows),
    "tuples": str,
    "prose": lambda rows: " ".join(f"The phone of {mail} is {phone}." for mail, phone in rows),
    "xml": lambda rows: (
        f"<all>{''.join(f'<one><mail>{m}</mail><phone>{p}</phone></one>' for m, p in rows)}</all>"
    ),
    "sections": lambda rows: "\n\n".join(
        f"## {m}\n\n- City: Bonn\n- Level: 3\n- Team: 8\n- Phone: {p}" for m, p in rows
    ),
    "blocks": lambda rows: "\n\n".join(
        f"Phone: {p}\nCity: Bonn\nLevel: 3\nTeam: 8\nMail: {m}" for m, p in rows
    ),
    "yaml": lambda rows: "\n".join(
        f"{m}:\n  city: Bonn\n  level: 3\n  team: 8\n  phone: {p}" for m, p in rows
    ),
    "columns": lambda rows: json.dumps(
        {"mail": [m for m, _ in rows], "phone": [p for _, p in rows], "ok": True}
    ),
    "columns by key": lambda rows: json.dumps(
        {"mail": {i: m for i, (m, _) in enumerate(rows)}, "phone": {i: p for i, (_, p) in enumerate(rows)}}
    ),
    "json string": lambda rows: json.dumps(FORMS["lines"](rows)),
    "file": lambda rows: json.dumps({"path": "phones.txt", "content": FORMS["lines"](rows)}),
    "shell": lambda rows: json.dumps({"exit_code": 0, "stdout": FORMS["csv"](rows), "stderr": "x y " * 300}),
    "mcp": lambda rows: json.dumps([{"type": "text", "text": FORMS["prose"](rows)}]),
    "json in json": lambda rows: json.dumps({"result": FORMS["json"](rows)}),
    "search": lambda rows: json.dumps(
        {"results": [{"url": f"http://x/{k}", "content": FORMS["lines"](rows[k::5])} for k in range(5)]}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@draws(cases=2)
@given(count=st.integers(60, 400), place=st.integers(0, 10_000), limit=st.integers(120, 1500))
def test_what_the_question_names_stays_whatever_the_form(
    form: str, count: int, place: int, limit: int
) -> None:
    """The one row, line or sentence that has what the question names is there, within the limit."""
    rows = [(f"ann{i}@corp.com", 70_000 + 3 * i) for i in range(count)]
    mail, phone = rows[place % count]
    text = FORMS[form](rows)
    short = compress_structured(text, limit, EXACT, f"What is the phone of {mail}?")
    assert EXACT.count(short) <= limit
    assert str(phone) in short
    assert mail in short


TURNS = {
    "a tool result": lambda text, asked: [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": text},
    ],
    "a paste": lambda text, asked: [{"role": "user", "content": f"{text}\n{asked}"}],
    "an answer": lambda text, asked: [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": text},
    ],
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lines", "records", "prose", "jsonl"])
@pytest.mark.parametrize("turn", TURNS)
@draws()
@given(own=st.integers(10, 290), later=st.integers(10, 290), between=st.booleans())
def test_a_long_text_keeps_what_questions_about_it_name(
    turn: str, form: str, own: int, later: int, between: bool
) -> None:
    """Whoever said it, what its own turn asks for stays, and what is asked now; exchanges in between change nothing."""
    rows = [(f"ann{i}@corp.com", 70_000 + 3 * i) for i in range(300)]
    said = TURNS[turn](FORMS[form](rows), f"What is the phone of ann{own}@corp.com?")
    if turn != "an answer":
        said.append({"role": "assistant", "content": "I see."})
    if between:
        said += [{"role": "user", "content": "Thanks."}, {"role": "assistant", "content": "Welcome."}]
    said.append({"role": "user", "content": f"And the phone of ann{later}@corp.com?"})
    kept = fit_messages(said, max_tokens=700, shorten_question=True).messages
    (long,) = [m["content"] for m in kept if len(m["content"]) > 600]
    assert all(str(70_000 + 3 * i) in long for i in (own, later))


@pytest.mark.slow
@pytest.mark.parametrize(
    "row",
    ["2026-01-{:02d} {:02d}:{:02d} INFO service K-{} took {} ms", "2026-01-{:02d};{:02d}:{:02d};K-{};{}"],
)
@pytest.mark.parametrize("closing", ["", "\n\nThat is all."])
@draws()
@given(place=st.integers(0, 1999), limit=st.integers(400, 3000))
def test_a_paste_keeps_the_row_that_the_next_question_names(
    row: str, closing: str, place: int, limit: int
) -> None:
    """Dates and times that its last row shares with others do not take its place."""
    rows = [row.format(j // 1440 + 1, j // 60 % 24, j % 60, j, 7_000 + 13 * j) for j in range(2000)]
    said = ["Here it is:\n" + "\n".join(rows) + closing, "Got it.", f"How long did service K-{place} take?"]
    messages = [
        {"role": role, "content": text}
        for role, text in zip(("user", "assistant", "user"), said, strict=True)
    ]
    assert rows[place] in fit_messages(messages, max_tokens=limit).messages[0]["content"]


def test_a_session_cuts_a_tool_result_by_the_question_of_its_own_turn() -> None:
    """A later question changes what an earlier turn's result was cut to only where it names a row that is not there.

    So a prompt cache still holds, and what is named is answered.
    """
    text = FORMS["json"]([(f"ann{i}@corp.com", 70_000 + 3 * i) for i in range(300)])
    session = BudgetSession(660)
    turn = TURNS["a tool result"](text, "What is the phone of ann150@corp.com?")
    first = session.fit(turn).messages
    said = [
        {"role": "assistant", "content": "70450"},
        {"role": "user", "content": "Is that a phone of ours?"},
    ]
    second = session.fit([*turn, *said]).messages
    assert "ann150@" in first[-1]["content"]
    assert second[2] == first[2]
    said += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And ann99@corp.com?"}]
    third = session.fit([*turn, *said]).messages
    assert {"ann150@", "ann99@"} <= set(re.findall(r"ann\d+@", third[2]["content"]))


TROUBLE = {
    "access log": ("[{:03d}] GET /api/item/{} 200", "ERROR disk full on sdb3"),
    "pytest": ("tests/test_a{:03d}.py::test_{} PASSED", "tests/test_sdb3.py::test_7 FAILED"),
    "build": ("[{:03d}/400] Building CXX object src/f{}.o", "src/sdb3.cc:31: error: expected ';'"),
    "logfmt": ('level=info id={:03d} msg="worker {} ok"', 'level=error id=7 msg="sdb3 is full"'),
    "short": ("12:{:03d} INFO worker {} ok", "12:07 ERROR sdb3 is full"),
}


@pytest.mark.parametrize("form", TROUBLE)
@draws()
@given(count=st.integers(100, 400), place=st.integers(5, 90), limit=st.integers(120, 1200))
def test_the_line_that_tells_of_an_error_stays(form: str, count: int, place: int, limit: int) -> None:
    """Whatever the other lines look like, and whatever words the question has."""
    usual, trouble = TROUBLE[form]
    lines = [usual.format(i, i) for i in range(count)]
    lines[place] = trouble
    short = compress_structured("\n".join(lines), limit, EXACT, "Why did it not work?")
    assert EXACT.count(short) <= limit
    assert trouble in short


def test_a_paste_in_one_line_keeps_the_row_that_the_next_question_names() -> None:
    """A line without a full stop is no question, however it starts and ends."""
    rows = [{"pump": f"ZX-{i * 37}", "place": f"hall {i % 9}"} for i in range(400)]
    texts = [sign.join(f"{row['pump']}: {row['place']}" for row in rows) for sign in (" | ", " and ")]
    for text in (json.dumps(rows), *texts):
        said = [text, "Got it.", "Where is pump ZX-8029?"]
        roles = ("user", "assistant", "user")
        messages = [{"role": role, "content": one} for role, one in zip(roles, said, strict=True)]
        assert "ZX-8029" in fit_messages(messages, max_tokens=400).messages[0]["content"]


@pytest.mark.parametrize("behind", ["", " Please answer in one word.", "\nThanks,\nAnn", "\n\nThanks!"])
def test_the_question_of_a_paste_is_found_before_what_is_polite(behind: str) -> None:
    """Of a paste that is shortened the line stays that its own question names, whatever is behind the question."""
    orders = "\n".join(f"Order A-{i} has color c{i}." for i in range(400))
    paste = {"role": "user", "content": f"{orders}\n\nWhat color has order A-177?{behind}"}
    found = fit_messages([paste], max_tokens=1200, shorten_question=True, counter=EXACT)
    assert "Order A-177 has color c177." in found.messages[0]["content"]


@draws()
@given(
    size=st.integers(20, 300),
    place=st.integers(2, 297),
    row=st.sampled_from(["2026-01-02 10:{:02d} INFO order {} {}", "{:02d}: order {} was {}", "{:02d};{};{}"]),
    asks=st.sampled_from(["Which bank refused order {}?\n{}", "{1}\n\nWhich bank refused order {0}?"]),
    polite=st.sampled_from(["", "\nAnswer in one word.", "\nThanks,\nAnn"]),
    spare=st.integers(0, 60),
)
def test_a_pasted_question_keeps_the_named_line_before_its_other_ends(
    size: int, place: int, row: str, asks: str, polite: str, spare: int
) -> None:
    """Where question, named line, first and last line and two markers fit, the line that the question names stays."""
    rows = [row.format(i % 60, f"AB{1000 + i}", f"done in {i * 7 % 97} ms") for i in range(size)]
    place = 2 + place % (size - 4)
    rows[place] = row.format(place % 60, "ZX7890", "refused by bank 17")
    gap = "[... 100 lines ...]"
    short = [rows[0], gap, rows[place], gap, rows[-1]]
    least = EXACT.count(asks.format("ZX7890", "\n".join(short)) + polite)
    said = {"role": "user", "content": asks.format("ZX7890", "\n".join(rows)) + polite}
    found = fit_messages([said], max_tokens=least + 20 + spare, shorten_question=True, counter=EXACT)
    text = found.messages[0]["content"]
    assert rows[place] in text
    assert "Which bank refused order ZX7890?" in text


def test_speech_without_full_stops_keeps_what_was_asked() -> None:
    """A long text without full stops, in a document or a result, is more than its start."""
    words = " ".join(f"and then we talked about topic{i} for a while" for i in range(300))
    text = f"{words} the password of the garden gate is tulip {words}"
    question = "What is the password of the garden gate?"
    assert "is tulip" in compress_structured(text, 300, EXACT, question)
    found = fit_documents([text, words], max_tokens=300, query=question, counter=EXACT)
    assert any("is tulip" in segment.text for segment in found.segments)


def test_scores_that_are_all_equal_say_nothing() -> None:
    """A retriever that gives every text the same score leaves the choice to the question."""
    texts = [f"Text {i} is here." for i in range(30)]
    for score in (0.0, 0.5, 1.0, None):
        given = [Segment(id=str(i), text=text, score=score) for i, text in enumerate(texts)]
        found = fit_documents(given, max_tokens=20, query="What of Text 17?", counter=EXACT)
        assert "17" in [segment.id for segment in found.segments]
