"""What a cell may hold, and of which input: bytes, and the forms of a system prompt in other blocks."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError
from rankbudget.batch import FitPrompt
from rankbudget.messages.codec import DictCodec, holds_results
from rankbudget.messages.texts import content_text
from rankbudget.testing.strategies import conversations
from tests.batch.rows import COUNTER, read_jsonl, run, write_jsonl
from tests.drawing import draws

RULE: dict[str, object] = {"type": "text", "text": "Rule one."}


@pytest.mark.parametrize("name", ["system", "project", "task"])
@pytest.mark.parametrize(
    "given",
    [
        "Rule one.",
        ["Rule one."],
        [None, "Rule one."],
        {"role": "system", "content": "Rule one."},
        [{"role": "developer", "content": "Rule one."}],
        [{"role": "system", "content": [RULE]}, {"role": "system", "content": None}],
        [RULE],
        RULE,
        {"parts": [{"text": "Rule one."}]},
        [{"role": None, "parts": [{"text": "Rule one."}]}],
    ],
)
def test_project_and_task_are_read_as_the_system_prompt(given: object, name: str) -> None:
    """A text, a message, content blocks, or a list of them, nested or as JSON, say the same in each block."""
    fit = FitPrompt(90, columns={"project": "project", "task": "task"})
    tag = "" if name == "system" else f"<{name}>\nRule one.\n</{name}>"
    cells = [given] if isinstance(given, str) or None in given else [given, json.dumps(given)]  # type: ignore[operator]
    for cell in cells:
        said = fit.row({"question": "q", name: cell})["messages"][0]["content"]
        assert content_text(said) == (tag or "Rule one.")


TEA = {"role": "user", "content": "Is tea hot? 你好"}
CELLS = {
    "history": [TEA],
    "documents": ["Tea is hot. 你好"],
    "question": "Is tea hot?",
    "system": "Be brief. 你好",
}


@given(
    st.sets(st.sampled_from(sorted(CELLS))), st.sampled_from([bytes, bytearray, memoryview]), st.booleans()
)
@draws()
def test_a_cell_of_bytes_is_the_text_that_it_holds(names, kind, marked):
    """Parquet's type BINARY holds texts or JSON in UTF-8, with a byte order mark or without."""
    texts = {name: cell if isinstance(cell, str) else json.dumps(cell) for name, cell in CELLS.items()}
    fit = FitPrompt(300)
    held = {name: kind(texts[name].encode("utf-8-sig" if marked else "utf-8")) for name in names}
    assert fit.row({**texts, **held}) == fit.row(texts)
    assert fit.row({**texts, "documents": [b"Tea is hot."]}) == fit.row(
        {**texts, "documents": ["Tea is hot."]}
    )


def test_a_cell_of_bytes_that_are_no_text_is_an_error_of_its_row():
    """The error names the input."""
    made = FitPrompt(300).row({"question": b"\xff\xfe"})
    assert made["budget_error"].startswith("RowError: question must be UTF-8 text (got ")


def test_a_column_is_one_input():
    """Two inputs of one column are refused; a usual input does not read a column that is named for another."""
    with pytest.raises(BudgetConfigError, match="got 'a' for memory and examples"):
        FitPrompt(300, columns={"memory": "a", "examples": "a"})
    fit = FitPrompt(300, columns={"memory": "documents"})
    assert fit.row({"question": "Is tea hot?", "documents": ["Tea is hot."]})["kept"] == ["memory-0"]


@pytest.mark.parametrize("nothing", ["[]", " [ ] ", "[null]"])
def test_the_json_of_an_empty_list_is_no_text(nothing):
    """Rows without a system prompt may have the JSON of none; a question may be about such a list."""
    said = {"question": nothing}
    assert FitPrompt(100).row({"system": nothing, **said}) == FitPrompt(100).row(said)
    assert FitPrompt(100).row(said)["messages"] == [{"role": "user", "content": nothing}]


@pytest.mark.parametrize("score", [0.5, "0.5", Decimal("0.5000"), 1, None])
def test_a_score_is_a_number(score):
    """Of a database it may be a decimal; what is none is an error of its row that names the input."""
    fit, document = FitPrompt(100), {"text": "Tea."}
    row = {"question": "Why?", "documents": [{**document, "score": score}]}
    assert fit.row(row) == fit.row({"question": "Why?", "documents": [document]})
    for wrong in ("high", True, [1]):
        row["documents"] = [{**document, "score": wrong}]
        assert "documents must be objects whose score is a number" in fit.row(row)["budget_error"]


@draws()
@given(
    conversations(broken=False, media=False, user_results=True),
    st.integers(1, 10),
    st.booleans(),
    st.data(),
)
def test_results_as_question_are_the_end_of_the_history(chat, eighths, strict, data):
    """Anthropic and Gemini give results as the user: behind their call they are fitted as in the history, else refused."""
    codec = DictCodec()
    found = [n for n, m in enumerate(chat) if m["role"] == "user" and holds_results(codec, m)]
    if not found:
        return
    at = data.draw(st.sampled_from(found))
    given = list(chat[: at + 1])
    fit = FitPrompt(max(1, COUNTER.count_messages(given) * eighths // 8), strict=strict)
    whole = fit.row({"history": given, "documents": ["Tea."]})
    made = fit.row({"history": given[:-1], "question": given[-1], "documents": ["Tea."]})
    name = codec.message_id(given[-1]) or f"history-{at}"
    if "MessageError" in (error := made["budget_error"] or ""):  # in a history it would be repaired
        assert strict or "orphan_result" in error or "unanswered_call" in error
        assert whole["messages"] is None or name in whole["dropped"] + whole["shortened"]
    elif whole["messages"] is None or name in whole["dropped"]:
        kind = (whole["budget_error"] or "").partition(":")[0]
        assert error.partition(":")[0] in ({kind} & {"RowError"} or {"BudgetExceededError"})
    else:
        assert made == whole


def test_results_of_gemini_as_question_need_their_call():
    """A result whose call is missing, or one of two results, would be refused by every provider."""
    call = {"functionCall": {"name": "w", "args": {"city": "Kiel"}}}
    result = {"role": "user", "parts": [{"functionResponse": {"name": "w", "response": {"sky": "blue"}}}]}
    asked = {"role": "user", "parts": [{"text": "Weather?"}]}
    fit = FitPrompt(300)
    chat = [asked, {"role": "model", "parts": [call]}, result]
    assert fit.row({"history": chat[:-1], "question": result})["messages"] == chat
    for history, why in (([asked], "orphan_result"), ([], "orphan_result")):
        assert why in fit.row({"history": history, "question": result})["budget_error"]
    half = [asked, {"role": "model", "parts": [call, {"functionCall": {"name": "v", "args": {}}}]}]
    error = fit.row({"history": half, "question": result})["budget_error"]
    assert error.startswith("MessageError: ")
    assert "message 2: unanswered_call" in error


NULLS = st.none() | st.booleans() | st.sampled_from(["NaN", "null", ""])
ARGUMENTS = st.dictionaries(
    st.sampled_from("abc"),
    NULLS | st.lists(NULLS, max_size=2) | st.dictionaries(st.sampled_from("de"), NULLS),
)


def calls_with(arguments, said):
    """A conversation with a call in the forms of Anthropic, Ollama and Gemini."""
    return [
        {"role": "user", "content": said},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": arguments}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": arguments}}],
        },
        {"role": "tool", "tool_name": "f", "content": "ok"},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": arguments}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"said": "ok"}}}]},
    ]


@draws()
@given(ARGUMENTS, st.sampled_from(["Why is it zero?", "Why is it NaN?"]))
def test_nulls_in_arguments_that_were_written_stay(tmp_path_factory, arguments, said):
    """JSON adds no nulls: what a line or a text has in the arguments of a call is what the call asked for."""
    chat, folder = calls_with(arguments, said), tmp_path_factory.mktemp("lines")
    lines = [{"history": [{**m, "refusal": None} for m in chat]}, {"history": json.dumps(chat)}]
    fit = FitPrompt(1000, strict=True)
    run(write_jsonl(folder / "in.jsonl", lines), folder / "out.jsonl", fit=fit, workers=1)
    assert [row["messages"] for row in read_jsonl(folder / "out.jsonl")] == [chat, chat]


def answered_with(payload, title):
    """A conversation whose results, searches and citations hold null, as Gemini and Anthropic write them."""
    cited = {"type": "char_location", "cited_text": "In 1997.", "document_index": 0, "document_title": title}
    found = {
        "type": "web_search_result",
        "url": "u",
        "title": "t",
        "encrypted_content": "A",
        "page_age": title,
    }
    return [
        {"role": "user", "parts": [{"text": "Price of 7?"}]},
        {"role": "model", "parts": [{"function_call": {"name": "price", "args": payload}}]},
        {"role": "user", "parts": [{"function_response": {"name": "price", "response": payload}}]},
        {"role": "model", "parts": [{"text": "It has none."}]},
        {"role": "user", "content": "When was it made?"},
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "7"}},
                {"type": "web_search_tool_result", "tool_use_id": "s", "content": [found]},
                {"type": "text", "text": "1997", "citations": [cited]},
            ],
        },
    ]


@draws()
@given(ARGUMENTS, st.none() | st.just("Part 7"))
def test_nulls_in_results_and_citations_stay(tmp_path_factory, payload, title):
    """Without them a result says something else, and Anthropic refuses a citation without `document_title`."""
    chat, folder = answered_with(payload, title), tmp_path_factory.mktemp("lines")
    fit, row = FitPrompt(1000, strict=True), {"history": chat, "question": "And now?"}
    lines = [row, {**row, "history": json.dumps(chat)}]
    run(write_jsonl(folder / "in.jsonl", lines), folder / "out.jsonl", fit=fit, workers=1)
    made = [*read_jsonl(folder / "out.jsonl"), fit.row(row)]
    made = [{name: row[name] for name in ("messages", "prompt_tokens", "budget_error")} for row in made]
    assert made[0]["messages"] == [*chat, {"role": "user", "content": "And now?"}]
    assert made[0] == made[1] == made[2]


def test_blocks_of_a_line_stay_as_they_were_written(tmp_path):
    """No table was involved: OpenAI requires `code` of such an item, null where there was none."""
    item = {"type": "code_interpreter_call", "id": "i", "code": None, "outputs": None, "container_id": "c"}
    text = {"type": "input_text", "text": "Go.", "cache_control": None}
    chat = [{"role": "user", "content": [text]}, item]
    row = {"history": chat, "question": "And now?"}
    run(write_jsonl(tmp_path / "in.jsonl", [row]), tmp_path / "o.jsonl", fit=FitPrompt(500), workers=1)
    assert read_jsonl(tmp_path / "o.jsonl")[0]["messages"][:2] == chat


@pytest.mark.parametrize("is_arrow", [False, True])
def test_items_of_the_responses_api_get_no_content(is_arrow):
    """OpenAI refuses `content` in a call; Arrow gives it one where another item of the column has it."""
    call = {"type": "function_call", "call_id": "f", "name": "w", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "f", "output": "Sun."}
    history = [
        {"role": "user", "content": "Weather?"},
        call,
        output,
        {"role": "assistant", "content": "Sun."},
    ]
    every = dict.fromkeys(("role", "content", "type", "call_id", "name", "arguments", "output"))
    given, fit = [{**every, **one} for one in history], FitPrompt(300, strict=True)
    if is_arrow:
        pa = pytest.importorskip("pyarrow")
        table = fit(pa.table({"history": [history], "question": ["And now?"]}))
        made = json.loads(table.column("messages").to_pylist()[0])
    else:
        made = fit.row({"history": given, "question": "And now?"})["messages"]
    assert made[:-1] == history


def test_fields_without_a_value_go_though_arguments_keep_theirs(tmp_path):
    """What pandas wrote as NaN is no value in either; explicit nulls of a text stay, whatever else it holds."""
    call = {"function": {"name": "f", "arguments": {"due": None, "task": float("nan")}}}
    given = {"role": "assistant", "content": "", "tool_calls": [call], "name": float("nan"), "audio": None}
    chat = [{"role": "user", "content": "Go."}, given, {"role": "tool", "tool_name": "f", "content": "ok"}]
    lines = [{"history": chat}, {"history": json.dumps(chat)}]
    run(write_jsonl(tmp_path / "in.jsonl", lines), tmp_path / "o.jsonl", fit=FitPrompt(500), workers=1)
    made = [row["messages"][1] for row in read_jsonl(tmp_path / "o.jsonl")]
    kept = [{"function": {"name": "f", "arguments": {"due": None}}}]
    expected = {"role": "assistant", "content": "", "tool_calls": kept}
    assert made == [expected, {**expected, "audio": None}]


BLANKS = st.sampled_from(["", " ", "\n\t", None])


@draws()
@given(
    st.lists(BLANKS | st.fixed_dictionaries({"text": BLANKS}, optional={"content": BLANKS})), st.booleans()
)
def test_what_has_no_text_is_left_out(blanks, as_json):
    """Documents, and texts of lists, of nothing but blanks are in no prompt; the others keep their numbers."""
    fit = FitPrompt(300, columns={"memory": "memory", "project": "project"})
    texts = [one for one in blanks if not isinstance(one, dict)]
    given = {"documents": [*blanks, "Tea is hot."], "memory": blanks, "system": texts, "project": texts}
    cells = {name: json.dumps(cell) if as_json else cell for name, cell in given.items()}
    made = fit.row({**cells, "question": "Is tea hot?"})
    expected = fit.row(
        {"documents": [{"id": f"documents-{len(blanks)}", "text": "Tea is hot."}], "question": "Is tea hot?"}
    )
    assert made == expected


@pytest.mark.parametrize("name", ["system", "history", "documents", "tools"])
def test_a_cell_of_blanks_is_empty(name):
    """A system message of blanks is one that providers refuse."""
    made = FitPrompt(100).row({"question": "Why?", name: " \n"})
    assert made["messages"] == [{"role": "user", "content": "Why?"}]


@pytest.mark.parametrize("as_json", [False, True])
def test_the_role_of_a_question_is_read_as_in_a_history(as_json):
    """LangChain's word for the user's role is no other role."""
    asked = {"role": "human", "content": "Why?"}
    made = FitPrompt(100).row({"question": json.dumps(asked) if as_json else asked})
    assert made["messages"] == [{"role": "user", "content": "Why?"}]


USERS, ANSWERS = st.sampled_from(["human", "user"]), st.sampled_from(["ai", "assistant", "chatbot", "model"])


@draws()
@given(st.lists(st.tuples(USERS, ANSWERS), min_size=1, max_size=4), USERS, st.booleans(), st.booleans())
def test_roles_of_a_prompt_are_a_providers(turns, asks, in_parts, as_json):
    """Words of LangChain, Cohere and Gemini become roles that are taken, and what is kept is named as before."""
    roles = [role for turn in turns for role in turn] + [asks]
    said = (lambda n: {"parts": [{"text": f"n{n}"}]}) if in_parts else (lambda n: {"content": f"n{n}"})
    history = [{"role": role, **said(n)} for n, role in enumerate(roles)]
    made = FitPrompt(500, strict=True).row({"history": json.dumps(history) if as_json else history})
    answers = {"model", "assistant"} if in_parts else {"assistant"}
    assert [{**m, "role": None} for m in made["messages"]] == [{**m, "role": None} for m in history]
    assert all(m["role"] in ({"user"}, answers)[n % 2] for n, m in enumerate(made["messages"]))
    assert made["kept"] == [f"history-{n}" for n in range(len(history))]


@draws()
@given(
    st.lists(st.sampled_from(["Hi", "Tea?"]), min_size=2, max_size=9),
    st.sampled_from([None, "Be brief.", ["Be brief.", "Be kind."], {"parts": [{"text": "Be brief."}]}]),
    st.sampled_from([None, "Is tea hot?", {"role": "user", "parts": [{"text": "Is tea hot?"}]}]),
    st.lists(st.just("Tea is hot."), max_size=2),
    st.sampled_from([None, "google"]),
)
def test_what_is_added_to_a_chat_of_geminis_has_parts(said, system, question, documents, profile):
    """Gemini's client takes no other key; what is sent costs what the row says."""
    chat = [{"role": ("user", "model")[n % 2], "parts": [{"text": text}]} for n, text in enumerate(said)]
    row = {"system": system, "history": chat, "question": question, "documents": documents}
    made = FitPrompt(120, profile=profile).row(row)
    assert all(m.keys() == {"role", "parts"} and m["parts"] for m in made["messages"])
    assert all(part.keys() == {"text"} for m in made["messages"] for part in m["parts"])
    assert {m["role"] for m in made["messages"]} <= {"system", "user", "model"}
    neutral = [DictCodec().to_dict(m) for m in made["messages"]]
    assert COUNTER.count_messages(neutral) == made["prompt_tokens"]


@draws()
@given(st.lists(st.integers(0, 2**52), min_size=2, max_size=6, unique=True), st.sampled_from([int, float]))
def test_whole_numbers_are_ids_of_messages_as_of_documents(ids, kind):
    """They become texts, in either notation of a table; a float that may be another number is an error of its row."""
    chat = [
        {"id": kind(n), "role": ("user", "assistant")[i % 2], "content": f"n{i}"} for i, n in enumerate(ids)
    ]
    rows = [{"history": chat, "question": "Why?"}, {"history": json.dumps(chat), "question": "Why?"}]
    for row in rows:
        made = FitPrompt(500).row(row)
        assert made["kept"] == [m["id"] for m in made["messages"][:-1]] == [str(n) for n in ids]
    chat[0]["id"] = 2.0**53
    assert "exact ids" in FitPrompt(500).row(rows[0])["budget_error"]


@pytest.mark.parametrize("kind", ["a table", "a line", "Arrow"])
def test_a_message_without_calls_has_no_empty_list_of_them(tmp_path, kind):
    """OpenAI answers 400 when `tool_calls` is empty, and many templates refuse null."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "ok", "tool_call_id": "c"}
    chat = [{"role": "user", "content": "Go."}, called, result, {"role": "assistant", "content": "Done."}]
    given, fit = [{"tool_calls": [], **one} for one in chat], FitPrompt(500, strict=True)
    row = {"history": given, "question": "And now?"}
    if kind == "a line":
        run(write_jsonl(tmp_path / "in.jsonl", [row]), tmp_path / "o.jsonl", fit=fit, workers=1)
        made = read_jsonl(tmp_path / "o.jsonl")[0]["messages"]
    elif kind == "Arrow":
        pa = pytest.importorskip("pyarrow")
        table = fit(pa.table({name: [cell] for name, cell in row.items()}))
        made = json.loads(table.column("messages").to_pylist()[0])
    else:
        made = fit.row(row)["messages"]
    assert made[:-1] == chat
    for empty in ([], None):
        texts = json.dumps([{"tool_calls": empty, **one} for one in chat])
        assert fit.row({**row, "history": texts})["messages"][:-1] == chat


def test_json_of_a_text_is_no_list():
    """The error of a text that is JSON, though of no list, says so."""
    assert (
        "a text, no list" in FitPrompt(100).row({"question": "Why?", "documents": '"Tea."'})["budget_error"]
    )
