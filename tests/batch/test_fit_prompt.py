"""FitPrompt: batches in, the same batches with outputs out; a bad row stops nothing."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, RowError, TokenBudget
from rankbudget.batch import FitPrompt
from tests.batch.rows import (
    BUDGET,
    COUNTER,
    INPUTS,
    OUTPUTS,
    check_promise,
    columns,
    fit_prompt,
    good_row,
    plain,
    rows,
)
from tests.drawing import draws

KEYS = (
    "role",
    "content",
    "text",
    "id",
    "score",
    "title",
    "tool_calls",
    "tool_call_id",
    "function",
    "name",
    "type",
)


@pytest.fixture(scope="module")
def fitted():
    return fit_prompt()(columns(rows()))


def test_a_thousand_rows_with_fifty_broken_ones(fitted):
    """950 rows are fitted within the budget, 50 have their typed error, in order."""
    check_promise(rows(), fitted)
    assert sum(error is not None for error in fitted["budget_error"]) == 50


def test_the_input_stays_as_it_is(fitted):
    """The batch columns come back as the same objects, and the batch dict gets no new ones."""
    batch = columns(rows(40))
    made = fit_prompt()(batch)
    assert list(made) == [*batch, *OUTPUTS]
    assert all(made[name] is batch[name] for name in batch)
    assert "messages" not in batch


@pytest.mark.parametrize("kind", ["table", "record batch", "pandas", "numpy"])
def test_every_kind_of_batch_gives_the_same(kind, fitted):
    """Arrow and pandas come back as what they were, with the outputs of a dict of lists."""
    batch = columns(rows())
    if kind == "pandas":
        pd = pytest.importorskip("pandas")
        frame = pd.DataFrame(batch, index=range(7, 1007))
        made = fit_prompt()(frame)
        assert isinstance(made, pd.DataFrame)
        assert list(made.index) == list(frame.index)
        made = {name: [None if v is pd.NA else v for v in made[name]] for name in made.columns}
    elif kind == "numpy":
        np = pytest.importorskip("numpy")
        made = fit_prompt()({name: np.array(column, dtype=object) for name, column in batch.items()})
    else:
        pa = pytest.importorskip("pyarrow")
        table = pa.table(batch) if kind == "table" else pa.record_batch(batch)
        made = fit_prompt()(table)
        assert type(made) is type(table)
        made = made.to_pydict()
    assert plain(made) == plain(fitted)


def test_nested_values_are_read_as_their_json(fitted):
    """Lists of dicts, and Arrow's structs with nulls for fields that a message lacks, give what JSON gives."""
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    histories = [
        [
            {"role": "user", "content": "Open it."},
            call,
            {"role": "tool", "content": "done", "tool_call_id": "c1"},
        ],
        [{"role": "user", "content": "And now?"}, {"role": "assistant", "content": "It is open."}],
    ]
    documents = [[{"id": "a", "text": "Valves open.", "score": 0.5}], ["Valves close."]]
    fit = FitPrompt(BUDGET)
    texts = fit(
        {
            "question": ["Why?", "How?"],
            "history": list(map(json.dumps, histories)),
            "documents": list(map(json.dumps, documents)),
        }
    )
    assert (
        fit({"question": ["Why?", "How?"], "history": histories, "documents": documents})["messages"]
        == texts["messages"]
    )
    assert json.loads(texts["messages"][0])[:3] == histories[0]
    assert [sorted(kept) for kept in texts["kept"]] == [
        ["a", "history-0", "history-1", "history-2"],
        ["documents-0", "history-0", "history-1"],
    ]
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {
            "question": ["Why?", "How?"],
            "history": histories,
            "documents": [["Valves open."], ["Valves close."]],
        }
    )
    assert [json.loads(m)[:2] for m in fit(table)["messages"].to_pylist()] == [h[:2] for h in histories]


def test_wrong_types_are_errors_of_their_rows():
    """Whatever Python object is in a cell, its row gets an error and the others are fitted."""
    wrong = [
        5,
        object(),
        [5],
        [{"no": "role"}],
        b"bytes",
        {"role": 5},
        [[]],
        "5",
        "true",
        [{"role": "user", "content": object()}],
        "[" * 10_000,
    ]
    made = FitPrompt(100)({"question": ["Why?"] * (len(wrong) + 1), "history": [*wrong, []]})
    assert [error is not None for error in made["budget_error"]] == [True] * len(wrong) + [False]
    assert all(error.partition(":")[0].endswith("Error") for error in made["budget_error"][:-1])
    documents = [
        5,
        [5],
        [{"title": "no text"}],
        [{"text": 5}],
        [{"text": "a", "id": 1}, {"text": "b", "id": 1}],
    ]
    made = FitPrompt(100)({"question": ["Why?"] * len(documents), "documents": documents})
    assert None not in made["budget_error"]
    made = FitPrompt(100)(
        {"question": [5, ["Why?"], {"role": "stranger"}, "Why?"], "tools": [None, None, None, "[5]"]}
    )
    assert None not in made["budget_error"]


def test_empty_cells_are_no_inputs():
    """None, an empty text and NaN mean that a row has no such input; a row with nothing to ask is an error."""
    fit = FitPrompt(100)
    made = fit({"question": ["Why?"] * 4, "documents": [None, "", float("nan"), "[]"]})
    assert made["messages"] == ['[{"role": "user", "content": "Why?"}]'] * 4
    assert fit({"question": [None], "documents": ['["a"]']})["budget_error"][0].startswith("RowError: ")
    assert fit({"question": []})["messages"] == []
    for empty in ([None], [{"text": None}], [{"id": "d", "page_content": None, "score": 1}], "[null]"):
        assert fit.row({"question": "Why?", "documents": empty}) == fit.row({"question": "Why?"})
    beside = fit.row({"question": "Why?", "documents": [None, {"text": None, "content": "Tea."}, "Ice."]})
    assert sorted(beside["kept"]) == ["documents-1", "documents-2"]
    with pytest.raises(RowError, match="title"):
        FitPrompt(100, on_error="raise").row({"question": "Why?", "documents": [{"title": "a", "text": 5}]})


def test_raise_names_the_row():
    """With on_error="raise" the first bad row stops the batch, and the error names it."""
    with pytest.raises(RowError, match="row 7 of its batch: RowError: history must be JSON"):
        fit_prompt(on_error="raise")(columns(rows(40)))


def test_columns_and_outputs_have_other_names():
    """Inputs are read from the named columns, outputs written to the named ones; `row` does the same."""
    fit = FitPrompt(100, columns={"history": "messages", "task": "goal"}, outputs={"messages": "prompt"})
    chat = [{"role": "user", "content": "Why?"}]
    made = fit({"messages": [chat], "goal": ["Explain."]})
    assert made["messages"] == [chat]
    assert "Explain." in made["prompt"][0]
    assert fit.row({"messages": chat, "goal": "Explain."})["prompt"] == json.loads(made["prompt"][0])


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"quest": ["Why?"]}, {}, "question"),
        ({"question": ["Why?"]}, {"columns": {"history": "chat"}}, "'chat'"),
        ({"question": ["Why?"], "messages": ["x"]}, {}, "'messages' already"),
        ({"question": [], "kept": [], "messages": []}, {}, "must not have .*'messages', 'kept' already.*=$"),
        ({"question": ["Why?"], "documents": []}, {}, "one length"),
        ({"question": ["Why?"], "documents": None}, {}, "'documents' .* must be a list"),
        ([{"question": "Why?"}], {}, "a list"),
    ],
)
def test_a_batch_that_cannot_be_read_raises(columns, options, said):
    """Missing columns, outputs that would replace a column, and what is no batch are errors of the whole batch."""
    with pytest.raises(BudgetConfigError, match=said):
        FitPrompt(100, **options)(columns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"budget": 0}, "budget"),
        ({"budget": {"window": 5}}, "window"),
        ({"on_error": "skip"}, "on_error"),
        ({"columns": {"docs": "x"}}, "documents"),
        ({"outputs": {"message": "x"}}, "messages"),
        ({"outputs": {"kept": "dropped"}}, "different names"),
        ({"cut": "best"}, "cut"),
        ({"strict": "yes"}, "strict"),
        ({"counters": "x"}, "counter"),
        ({"counter": 5}, "counter"),
        ({"scorer": 5}, "scorer must be"),
        ({"notice": 5}, "notice"),
    ],
)
def test_wrong_options_raise_before_any_row(options, said):
    """An option is checked where it is written, not in a worker."""
    with pytest.raises(BudgetConfigError, match=said):
        FitPrompt(**{"budget": 100, **options})


def test_it_pickles_small_and_loads_late():
    """The object has less than 2,000 bytes before and after use, and a new one has loaded no tokenizer."""
    fit = FitPrompt(TokenBudget.for_model("gpt-4o"), counter="gpt-4o")
    fit({"question": ["Why?"]})
    written = pickle.dumps(fit)
    assert len(written) < 2000
    assert pickle.loads(written)({"question": ["Why?"]}) == fit({"question": ["Why?"]})
    assert len(pickle.dumps(FitPrompt(100, counter=COUNTER))) < 2000
    program = (
        "import sys; from rankbudget.batch import FitPrompt; FitPrompt(100);"
        "print([m for m in ('tiktoken', 'wordllama', 'numpy', 'pyarrow', 'pandas', 'ray') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_answer_may_be_as_long_as_the_window_and_the_model_allow():
    """What the prompt leaves of the window, at most the model's largest answer; unknown for a bare number."""
    question = {"question": "Why?"}
    tokens = FitPrompt(100).row(question)["prompt_tokens"]
    assert FitPrompt(100).row(question)["max_completion_tokens"] is None
    budget = {"context_window": 1000, "reserve": 100}
    assert FitPrompt(budget).row(question)["max_completion_tokens"] == 1000 - tokens
    assert FitPrompt({**budget, "max_output": 50}).row(question)["max_completion_tokens"] == 50
    assert FitPrompt({**budget, "safety": 30}).row(question)["max_completion_tokens"] == 970 - tokens
    of_model = {"model": "gpt-4o", "context_window": 128_000}
    assert FitPrompt(of_model).row(question)["max_completion_tokens"] == 16_384


TEXTS = st.text(st.characters(exclude_categories=()), max_size=9)
"""Among them with halves of surrogate pairs."""
CELLS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=3)
    ),
    max_leaves=9,
)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS, CELLS), max_size=4), st.booleans(), st.booleans())
def test_no_cell_stops_a_batch(cells, as_json, strict):
    """Whatever the cells hold, nested or as JSON, each row ends within the budget or with an error, and never both."""
    given_columns = {
        name: [json.dumps(row[i], default=str) if as_json else row[i] for row in cells]
        for i, name in enumerate(INPUTS)
    }
    made = FitPrompt(60, strict=strict)(given_columns)
    for messages, tokens, error, kept, dropped in zip(
        *(made[output] for output in ("messages", "prompt_tokens", "budget_error", "kept", "dropped")),
        strict=True,
    ):
        assert all(
            text is None or text.encode() for text in (messages, error, *(kept or ()), *(dropped or ()))
        )
        assert (messages is None) == (tokens is None) == (error is not None)
        assert tokens is None or 0 < tokens <= 60
        assert error is None or error.partition(":")[0].isidentifier()


def test_a_row_is_fitted_alone():
    """What is beside a row does not change what becomes of it."""
    fit = FitPrompt(BUDGET)
    batch = [good_row(i) for i in range(30)]
    made = plain(fit(columns(batch)))
    for i in (0, 13, 29):
        assert plain([fit.row(batch[i])]) == {name: [values[i]] for name, values in made.items()}


@pytest.mark.parametrize("given", [["Rule one.", "Rule two."], [{"role": "system", "content": "Rule one."}]])
def test_a_system_prompt_may_be_the_json_of_a_list(given: list[object]) -> None:
    """Nested or as its JSON it is the same prompt; any other text is itself."""
    fit = FitPrompt(300)
    nested = fit.row({"question": "q", "system": given})
    assert fit.row({"question": "q", "system": json.dumps(given)}) == nested
    rules = [{"role": "system", "content": "Rule one."}, {"role": "system", "content": "Rule two."}]
    mixed = fit.row({"question": "q", "system": [rules[0], "Rule two."]})
    assert mixed == fit.row({"question": "q", "system": rules})
    for text in ("[1, 2]", "[see the rules]", '{"a": 1}'):
        assert fit.row({"question": "q", "system": text})["messages"][0]["content"] == text


def test_a_row_may_lack_a_named_column() -> None:
    """As a line of a file may; a misspelt one is named."""
    fit = FitPrompt(300, columns={"memory": "memories"})
    assert fit.row({"question": "q?"}) == FitPrompt(300).row({"question": "q?"})
    with pytest.raises(BudgetConfigError, match="memory must be a column of the batch"):
        fit.row({"question": "q?", "memroies": ["a"]})


def test_an_id_of_two_pieces_is_an_error_of_its_row() -> None:
    """So an id is in `kept` or in `dropped`, never in both."""
    history = [{"role": "user", "content": "old " * 200}, {"role": "assistant", "content": "y"}]
    row = {"question": "q?", "history": history, "documents": [{"id": "history-0", "text": "Ferns."}]}
    made = FitPrompt(120)({name: [value] for name, value in row.items()})
    assert "must differ (got 'history-0' twice)" in made["budget_error"][0]


@pytest.mark.parametrize("batch", [{"question": "abc"}, {"question": {"0": "abc"}}, ["abc"], None])
def test_what_is_no_batch_and_no_row_is_named(batch: object) -> None:
    """A text is no column of letters, and one row is given to `row`."""
    with pytest.raises(BudgetConfigError, match="must be a"):
        FitPrompt(300)(batch)
    with pytest.raises(BudgetConfigError, match="row must be a dict"):
        FitPrompt(300).row([batch])  # type: ignore[arg-type]


@draws()
@given(
    sizes=st.lists(st.integers(1, 90), max_size=24),
    named=st.booleans(),
    places=st.sets(st.sampled_from(["documents", "memory", "examples", "project", "task"])),
    window=st.integers(150, 900),
    ranks=st.dictionaries(
        st.sampled_from(["knowledge", "memory", "examples", "project"]), st.integers(2, 9), max_size=3
    ),
    preset=st.sampled_from([None, "rag"]),
)
def test_ids_are_in_the_order_of_the_prompt(sizes, named, places, window, ranks, preset):
    """`kept` lists pieces as the prompt has them, whatever the ranks, shortened messages of the history at their places."""
    history = [
        {"role": ("user", "assistant")[i % 2], "content": f"<h{i}> " + "It was replaced again. " * size}
        for i, size in enumerate(sizes)
    ]
    if named:
        history = [{**message, "id": f"own{i}"} for i, message in enumerate(history)]
    said = {f"own{i}" if named else f"history-{i}": f"<h{i}>" for i in range(len(sizes))}
    row = {"history": history, "question": "When was it replaced?"}
    for name in places:
        row[name] = [f"{{{name}{i}}} Part {i} was replaced in {1990 + i}." for i in range(3)]
        said |= {f"{name}-{i}": f"{{{name}{i}}}" for i in range(3)}
    budget = {"context_window": window, "reserve": 0, "ranks": ranks, "preset": preset}
    made = FitPrompt(budget, columns={name: name for name in places}).row(row)
    if made["messages"] is None:
        return
    prompt = "\n".join(message["content"] for message in made["messages"])
    seen = [prompt.find(said[name]) for name in made["kept"] if said[name] in prompt]
    assert seen == sorted(seen)
    assert {*made["kept"], *made["dropped"]} == {*said}


def test_an_array_without_rows_is_no_column():
    """A text that numpy holds has no rows; the error names its column."""
    numpy = pytest.importorskip("numpy")
    with pytest.raises(BudgetConfigError, match="'question' of a batch must be a list"):
        FitPrompt(100)({"question": numpy.array("Why?")})


@pytest.mark.parametrize("title", [7, 7.0, "7"])
@pytest.mark.parametrize("key", ["title", "id", "label"])
def test_a_number_is_a_text_where_documents_have_texts(key: str, title: object) -> None:
    """As an id, a number of a database is read as its text."""
    made = FitPrompt(300).row({"question": "Is tea hot?", "documents": [{"text": "Tea is hot.", key: title}]})
    assert made == FitPrompt(300).row(
        {"question": "Is tea hot?", "documents": [{"text": "Tea is hot.", key: "7"}]}
    )
    assert made["budget_error"] is None


def test_a_file_as_the_budget_names_what_reads_it() -> None:
    """A path is no number of tokens."""
    with pytest.raises(BudgetConfigError, match=r"TokenBudget\.from_file"):
        FitPrompt("budget.yaml")  # type: ignore[arg-type]
