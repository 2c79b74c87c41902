"""Values and files as people have them: other encodings, dates, nulls, ids beyond what a float holds."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, fit_messages
from rankbudget.batch import FitPrompt, fit_files
from tests.batch.rows import read_jsonl, run, write_jsonl


def test_half_a_surrogate_pair_does_not_stop_a_batch():
    """Messages that have no UTF-8 are escaped; in an error the half is replaced."""
    made = FitPrompt(100)({"question": ["half \ud800", None], "history": [None, '[{"role": "\\ud800"}]']})
    assert json.loads(made["messages"][0])[0]["content"] == "half \ud800"
    assert all(text.encode() for text in (made["messages"][0], made["budget_error"][1]))
    named = {"question": ["q", None], "history": ['[{"id": "\\ud800", "role": "user", "content": "y"}]', "5"]}
    assert FitPrompt(100)(named)["kept"][0] == ["\\ud800"]
    pa = pytest.importorskip("pyarrow")
    assert FitPrompt(100)(pa.table(named))["kept"].to_pylist()[0] == ["\\ud800"]


def test_a_document_without_an_id_is_named_by_its_position():
    """In nested values and in JSON alike, where null is no id."""
    documents = [{"id": None, "text": "Tea."}, {"text": "Ice."}]
    for either in (documents, json.dumps(documents)):
        made = FitPrompt(100).row({"question": "Why?", "documents": either})
        assert sorted(made["kept"]) == ["documents-0", "documents-1"]


def test_values_that_json_lacks_become_texts_or_go():
    """A chat log may hold dates, decimal numbers and NaN beside the text: the messages are JSON all the same."""
    odd = {
        "when": datetime(2020, 1, 2, 3, 4, tzinfo=timezone.utc),
        "day": date(2020, 1, 2),
        "price": Decimal("1.50"),
        "score": float("nan"),
    }
    made = FitPrompt(100)({"history": [[{"role": "user", "content": "x", **odd}]]})
    assert made["budget_error"] == [None]
    (message,) = json.loads(made["messages"][0], parse_constant=pytest.fail)
    texts = {"when": "2020-01-02 03:04:00+00:00", "day": "2020-01-02", "price": "1.50"}
    assert message == {"role": "user", "content": "x", **texts}


def test_nulls_of_tools_are_counted():
    """Tools are sent as the row has them, so nulls that pydantic writes for a default cost what they cost."""
    field = {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    function = {"name": "f", "parameters": {"type": "object", "properties": {"city": field, "date": field}}}
    tools = [{"type": "function", "function": function}]
    question = "And ice?"
    counted = fit_messages([{"role": "user", "content": question}], max_tokens=1000, tools=tools)
    for held in (tools, json.dumps(tools)):
        made = FitPrompt(1000).row({"question": question, "tools": held})
        assert made["prompt_tokens"] == counted.report.total_tokens


@pytest.mark.parametrize(
    "text", ['["Paris", "Rome"]', '{"role": "assistant", "content": "x"}', "[1]", '{"a": 1}']
)
def test_a_question_is_a_text_unless_it_is_a_user_message(text):
    """A question may be about JSON."""
    assert FitPrompt(100).row({"question": text})["messages"] == [{"role": "user", "content": text}]


def test_columns_of_a_batch_have_different_names():
    """Two columns of one name are an error of the whole batch."""
    pa = pytest.importorskip("pyarrow")
    pd = pytest.importorskip("pandas")
    names = ["question", "question"]
    for batch in (pa.table([["a"], ["b"]], names=names), pd.DataFrame([["a", "b"]], columns=names)):
        with pytest.raises(BudgetConfigError, match="columns of a batch must have different names"):
            FitPrompt(100)(batch)


# ---- files ----
@pytest.mark.parametrize("target", ["out.jsonl", "out.parquet"])
def test_lines_in_other_encodings_are_errors(target, tmp_path):
    """Every line is UTF-8 on its own, a byte order mark in front of it or not; what is written is UTF-8."""
    if target.endswith("parquet"):
        pq = pytest.importorskip("pyarrow.parquet")
    good = '{"question": "Why?"}'
    lines = [b"\xef\xbb\xbf" + good.encode()] * 2 + [good.encode(name) for name in ("utf-16", "utf-32-be")]
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"\n".join(lines))
    made, failed = tmp_path / target, run(source, tmp_path / target, workers=1).failed
    read = read_jsonl(made) if target.endswith("jsonl") else pq.read_table(made).to_pylist()
    assert [row["budget_error"] is None for row in read] == [True, True, *[False] * failed]
    assert failed >= 2


def test_a_first_shard_of_bad_lines_stops_nothing(tmp_path):
    """Columns are checked where the first objects are; a file without any is refused."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(b"bad\n" * 5 + b'{"question": "Why?"}\n')
    assert run(source, tmp_path / "out.jsonl", workers=1, shard_rows=2).failed == 5
    source.write_bytes(b"bad\n" * 5)
    with pytest.raises(BudgetConfigError, match="must have JSON objects"):
        run(source, tmp_path / "out.jsonl", workers=1, shard_rows=2)


def test_what_cannot_be_written_or_read_is_refused_before_the_work(tmp_path):
    """A folder, a missing folder, an output named as unread lines are, Parquet that is none."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "Why?"}])
    for target in (tmp_path / "d.jsonl", tmp_path / "none" / "out.jsonl"):
        (tmp_path / "d.jsonl").mkdir(exist_ok=True)
        with pytest.raises(BudgetConfigError, match="the output must be a file"):
            run(source, target, workers=1)
    with pytest.raises(BudgetConfigError, match="'line'"):
        fit_files(source, tmp_path / "out.jsonl", FitPrompt(100, outputs={"kept": "line"}), workers=1)
    pytest.importorskip("pyarrow")
    (tmp_path / "in.parquet").write_bytes(b"")
    with pytest.raises(BudgetConfigError, match="the input must be Parquet"):
        run(tmp_path / "in.parquet", tmp_path / "out.jsonl", workers=1)


@pytest.mark.parametrize("shard_rows", [1, 2, 250])
def test_a_column_of_parquet_does_not_depend_on_the_shards(shard_rows, tmp_path):
    """Whole numbers and fractions are floats where all are exact; else, and beside texts, cells are JSON texts, null if JSON has no such number."""
    pq = pytest.importorskip("pyarrow.parquet")
    given = [
        {"question": "A?", "id": 2**60 + 1, "mixed": 1.0, "number": 1},
        {"question": "B?", "id": 1.5, "mixed": "x", "number": 0.5},
        {"question": "C?", "id": None, "mixed": None, "number": None},
        {"question": "D?", "id": math.inf, "mixed": math.nan, "number": 2},
    ]
    source = write_jsonl(tmp_path / "in.jsonl", given)
    run(source, tmp_path / "out.parquet", workers=1, shard_rows=shard_rows)
    made = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert made["id"] == [str(2**60 + 1), "1.5", None, None]
    assert made["mixed"] == ["1.0", "x", None, None]
    assert made["number"] == [1.0, 0.5, None, 2.0]


def test_a_field_that_is_always_null_stays_null(tmp_path):
    """A chat log of an API has fields that are null in every message; Parquet keeps them with the type null."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    answer = {"role": "assistant", "content": "Yes?", "refusal": None}
    given = [{"history": [{"role": "user", "content": "Hi"}, answer], "note": None}] * 3
    pq.write_table(pa.Table.from_pylist(given), tmp_path / "in.parquet")
    assert run(tmp_path / "in.parquet", tmp_path / "out.parquet", workers=1, shard_rows=1).failed == 0
    made = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["history"][1] for row in made] == [answer] * 3


def test_a_named_column_may_be_left_out_of_the_first_lines(tmp_path):
    """Writers of JSONL leave out what is empty; a column that no line has is still an error."""
    rows = [{"question": "q?"} for _ in range(30)] + [
        {
            "question": "q?",
            "chat": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}],
        }
    ]
    source, target = write_jsonl(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    result = fit_files(source, target, FitPrompt(100, columns={"history": "chat"}), workers=1, shard_rows=10)
    assert (result.rows, result.failed) == (31, 0)
    assert len(read_jsonl(target)[30]["messages"]) == 3
    with pytest.raises(BudgetConfigError, match="history must be a column"):
        fit_files(source, target, FitPrompt(100, columns={"history": "thread"}), workers=1, shard_rows=10)


def test_what_is_not_whole_is_told():
    """A row whose answer was cut can be left out of a training set, one whose document was cut out of a test set."""
    answer = " ".join(f"Sentence {i} explains step {i} of the repair." for i in range(600))
    history = [{"role": "user", "content": "How?"}, {"role": "assistant", "content": answer}]
    made = FitPrompt(500, strict=True).row({"history": history})
    assert (made["kept"], made["shortened"]) == (["history-0", "history-1"], ["history-1"])
    pages = ["Tea is hot.", " ".join(f"Ice {i} is cold." for i in range(90))]
    made = FitPrompt(100).row({"documents": pages, "question": "Is ice 7 cold?"})
    assert made["shortened"] == ["documents-1"]
    assert FitPrompt(500).row({"history": history[:1]})["shortened"] == []


def test_settings_that_no_worker_can_read_raise_before_anything_is_written(tmp_path):
    """A counter that cannot be pickled is named at once, and leaves no folder."""
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "q?"}] * 3)
    fit = FitPrompt(100, counter=lambda text: len(text.split()))
    with pytest.raises(BudgetConfigError, match="counter and scorer must be picklable"):
        fit_files(source, tmp_path / "out.jsonl", fit, workers=2)
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


@pytest.mark.parametrize("column", ["documents", "memory"])
def test_a_text_of_one_user_is_in_no_prompt(column):
    """A batch has no reader, so a text with a scope is left out; a scope that cannot be read is an error."""
    fit = FitPrompt(200, columns={column: column})
    texts = [{"id": "b", "text": "Bob's PIN is 4711.", "scope": {"user": "bob"}}, {"id": "a", "text": "Hi."}]
    for either in (texts, json.dumps(texts)):
        made = fit.row({"question": "What is the PIN?", column: either})
        assert made["kept"] == ["a"]
        assert made["dropped"] == ["b"]
        assert "4711" not in json.dumps(made["messages"])
    for scope in ("bob", {"usr": "bob"}, ["bob"]):
        made = fit.row({"question": "q?", column: [{"text": "x", "scope": scope}]})
        assert made["messages"] is None
        assert "scope" in made["budget_error"].lower()


def test_blocks_of_arrow_have_no_keys_that_others_have():
    """Anthropic refuses a block with a key of another kind; a message's own null content stays."""
    pa = pytest.importorskip("pyarrow")
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "w", "input": {"city": "Kiel"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Sun."}]},
    ]
    made = FitPrompt(300)(pa.table({"history": [history]}))
    assert json.loads(made.column("messages").to_pylist()[0]) == history
    call = {"id": "t", "type": "function", "function": {"name": "w", "arguments": "{}"}}
    called = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "t", "content": "Sun."},
    ]
    assert FitPrompt(300).row({"history": called})["messages"] == called


@pytest.mark.parametrize("name", ["history", "documents", "tools", "system", "project", "task"])
def test_null_written_as_json_is_an_empty_cell(name):
    """`df[name].map(json.dumps)` makes it of an empty one."""
    made = FitPrompt(200, columns={name: name}).row({"question": "q?", name: "null"})
    assert made["messages"] == [{"role": "user", "content": "q?"}]


@pytest.mark.parametrize("documents", [None, [], "[]", [""], ["A short one."]])
def test_what_documents_leave_goes_to_the_history(documents):
    """A row stands alone: an empty or short list of documents does not drop an exchange that fits."""
    chat = []
    for n in range(14):
        told = "My locker code is 4411. " if n == 3 else ""
        chat.append({"role": "user", "content": f"What about item {n}? {told}" + "word " * 60})
        chat.append({"role": "assistant", "content": f"Item {n} is fine. " + "word " * 60})
    fit = FitPrompt({"context_window": 3000, "reserve": 1000}, counter="gpt-4o")
    row = fit.row({"history": chat, "documents": documents, "question": "What is my locker code?"})
    assert "4411" in str(row["messages"])
    assert row["prompt_tokens"] > 1_700


def test_a_list_that_was_encoded_twice_is_read():
    """Some exports write JSON of JSON; a text that is no list in the end is an error of its row."""
    fit = FitPrompt(500, counter="gpt-4o")
    chat = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "y"},
        {"role": "user", "content": "z"},
    ]
    assert fit.row({"history": json.dumps(json.dumps(chat))})["messages"] == chat
    assert "RowError: history must be JSON" in fit.row({"history": json.dumps("hello")})["budget_error"]


@pytest.mark.parametrize("empty", ["nan", "NaT", "NA"])
@pytest.mark.parametrize("key", ["id", "title", "score", "kind", "priority", "label", "scope", "content"])
def test_an_empty_cell_of_pandas_is_null_inside_a_record(empty, key):
    """`df.to_dict("records")` and its JSON give what null gives, in documents, their texts and messages."""
    if empty != "nan":
        pd = pytest.importorskip("pandas")
    value = float("nan") if empty == "nan" else getattr(pd, empty)
    fit = FitPrompt(300)
    for text in ("Tea is hot.", None, value):
        given, plain = (
            [{"text": text, key: value}, "Ice."],
            [{"text": None if text is value else text, key: None}, "Ice."],
        )
        expected = fit.row({"question": "Why?", "documents": plain})
        assert expected["budget_error"] is None
        assert fit.row({"question": "Why?", "documents": given}) == expected
        if empty == "nan":
            assert fit.row({"question": "Why?", "documents": json.dumps(given)}) == expected
    chat = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": "So.", "name": value},
    ]
    for either in (chat, json.dumps(chat)) if empty == "nan" else (chat,):
        assert fit.row({"history": either})["messages"][1] == {"role": "assistant", "content": "So."}


@given(st.integers(-(2**70), 2**70) | st.integers(-5, 5))
def test_a_whole_number_is_one_id_in_every_notation(number):
    """Pandas makes floats of a list of ids in which one is missing; where that may be another number, the row says so."""
    fit = FitPrompt(100)
    whole = fit.row({"question": "Why?", "documents": [{"id": number, "text": "Tea."}]})
    assert whole["kept"] == [str(number)]
    for documents in (
        [{"id": float(number), "text": "Tea."}],
        json.dumps([{"id": float(number), "text": "Tea."}]),
    ):
        made = fit.row({"question": "Why?", "documents": documents})
        if abs(number) < 2**53:
            assert made == whole
        else:
            assert "exact ids" in made["budget_error"]
    assert fit.row({"question": "Why?", "documents": [{"id": 1.5, "text": "Tea.", "priority": 50.0}]})[
        "kept"
    ] == ["1.5"]


@pytest.mark.parametrize("column", ["history", "system", "question"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_message_of_one_user_is_in_no_prompt(column, as_json):
    """A batch has no reader; a scope that is open to all goes, as no provider has such a key."""
    fit = FitPrompt(300)

    def row(scope):
        message = {
            "role": "system" if column == "system" else "user",
            "content": "The PIN is 4711.",
            "scope": scope,
        }
        value = message if column == "question" else [message, {"role": message["role"], "content": "Hi."}]
        return fit.row({"question": "Why?", column: json.dumps(value) if as_json else value})

    for scope in ({"user": "bob"}, {"project": "x", "user": None}, "bob", {"usr": "bob"}):
        made = row(scope)
        assert made["messages"] is None
        assert "4711" not in made["budget_error"]
    for scope in (None, {}, {"user": None, "project": None}):
        made = row(scope)
        assert made["budget_error"] is None
        assert "scope" not in json.dumps(made["messages"])
        assert "4711" in json.dumps(made["messages"])


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ASKED = [
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
]


@pytest.mark.parametrize("after", [[], [{"role": "tool", "content": "Sun."}]], ids=["no result", "no id"])
def test_a_row_that_ends_in_a_call_is_repaired_or_refused(after):
    """Providers refuse a prompt whose last call has no result, and a result that does not say whose it is."""
    made = FitPrompt(300).row({"history": ASKED + after})
    assert made["messages"] == ASKED[:1]
    assert sorted(made["dropped"]) == [f"history-{n}" for n in range(1, 2 + len(after))]
    assert (
        "message 1: unanswered_call"
        in FitPrompt(300, strict=True).row({"history": ASKED + after})["budget_error"]
    )
    answered = [*ASKED, {"role": "tool", "content": "Sun.", "tool_call_id": "c"}]
    assert FitPrompt(300, strict=True).row({"history": answered})["messages"] == answered


def test_system_messages_without_content_are_left_out():
    """As documents without a text are; a late one, in the history, is an error of its row."""
    fit = FitPrompt(300)
    rule = {"role": "system", "content": "Be brief."}
    for empty in (None, [], " ", float("nan")):
        made = fit.row({"question": "Why?", "system": [rule, {"role": "system", "content": empty}, None]})
        assert made == fit.row({"question": "Why?", "system": [rule]})
    late = [{"role": "user", "content": "Why?"}, {"role": "system", "content": None}]
    assert "message 1, role system" in fit.row({"history": late})["budget_error"]


def test_every_error_of_a_row_has_a_type_of_the_library():
    """Python writes no integer of more than 4,300 digits; whoever reads `budget_error` needs one list of names."""
    row = {"question": "Why?", "documents": [{"id": 10**5000, "text": "Tea."}]}
    assert (
        FitPrompt(100)
        .row(row)["budget_error"]
        .startswith("RowError: the row could not be fitted (got ValueError")
    )


def test_half_a_surrogate_pair_is_seen_in_parquet(tmp_path):
    """Arrow has no text with one, so its escape is written, and no question mark."""
    pq = pytest.importorskip("pyarrow.parquet")
    source = write_jsonl(tmp_path / "in.jsonl", [{"question": "Why?", "note": "a \ud83d"}])
    run(source, tmp_path / "out.parquet", workers=1)
    assert pq.read_table(tmp_path / "out.parquet").to_pylist()[0]["note"] == "a \\ud83d"


ANSWERS = [{"type": "tool_result", "tool_use_id": "t", "content": "Sun."}]


@pytest.mark.parametrize("content", [None, "", " ", [], ANSWERS])
@pytest.mark.parametrize("role", ["assistant", "system", "user"])
def test_a_row_that_asks_nothing_is_an_error(role, content):
    """A prompt that begins with an answer is none; with a question beside it, the answer at the start goes."""
    fit = FitPrompt(300)
    first = {"role": role, "content": content if role == "user" else "Hi."}
    row = {"history": [first, {"role": "assistant", "content": "So."}], "documents": ["Tea."]}
    assert "with a user message" in fit.row(row)["budget_error"]
    asked = fit.row({**row, "question": "Why?"})["messages"]
    assert [m["role"] for m in asked if m["role"] != "system"] == ["user"]
