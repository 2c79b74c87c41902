"""Older messages of a row chosen by its question, and why each piece is in the prompt or not."""

from __future__ import annotations

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, BudgetError, fit_messages
from rankbudget.batch import FitPrompt, fit_daft, fit_files
from rankbudget.cli.main import main
from rankbudget.messages.codec import DictCodec
from rankbudget.testing.strategies import conversations
from tests.batch.rows import COUNTER, read_jsonl, write_jsonl
from tests.drawing import draws

QUESTION = "What was the return number for my kettle?"
ASKED = {"role": "user", "content": QUESTION}
CHAT = [
    {"role": "user", "content": "I sent the broken kettle back."},
    {"role": "assistant", "content": "Thank you. The return number for your kettle is RMA-48213."},
]
for number in range(60):
    CHAT += [
        {"role": "user", "content": f"Is part {number} in stock?"},
        {"role": "assistant", "content": f"Part {number} is in stock. " * 12},
    ]


# ---- by question --------------------------------------------------------------------------------------------------------------
@draws()
@given(
    chat=conversations(user_results=True),
    apart=st.booleans(),
    asked=st.sampled_from([QUESTION, ASKED, {**ASKED, "id": "q"}]),
    eighths=st.integers(1, 10),
)
def test_a_question_chooses_what_it_chooses_of_one_conversation(chat, apart, asked, eighths):
    """In its own column or at the end of the history: the messages of `fit_messages`, each listed once, the question not."""
    message = asked if isinstance(asked, dict) else ASKED
    whole = [*chat, message]
    room = max(1, COUNTER.count_messages([DictCodec().to_dict(m) for m in whole]) * eighths // 8)
    row = {"history": list(chat), "question": asked} if apart and chat else {"history": whole}
    made = FitPrompt(room, by_question=True, reasons=True).row(row)
    if made["messages"] is None:
        with pytest.raises(BudgetError) as refused:
            fit_messages(whole, max_tokens=room, query=QUESTION)
        assert made["budget_error"].startswith(refused.typename)
        return
    fitted = fit_messages(whole, max_tokens=room, query=QUESTION)
    assert (made["messages"], made["prompt_tokens"]) == (fitted.messages, fitted.report.total_tokens)
    decisions = {d.segment_id: d for d in fitted.report.decisions if d.block == "history"}
    question = DictCodec().message_id(message) or f"history-{len(chat)}"
    expected = decisions.keys() - ({question} if row.get("question") else set())
    assert {*made["kept"], *made["dropped"]} == expected
    assert [(r["action"], r["reason"]) for r in made["reasons"]] == [
        (decisions[r["id"]].action, decisions[r["id"]].reason) for r in made["reasons"]
    ]
    if room >= 2 * COUNTER.count_messages([DictCodec().to_dict(m) for m in whole]):
        assert made == FitPrompt(room, reasons=True).row(row)


@pytest.mark.parametrize("beside", [{}, {"documents": ["Kettles are sold."], "system": "Be kind."}])
@pytest.mark.parametrize("apart", [True, False])
def test_an_old_answer_is_found_by_the_question(beside, apart):
    """By age it is dropped; the question alone stays in either way, and is the last message."""
    row = {"history": CHAT, "question": QUESTION} if apart else {"history": [*CHAT, ASKED]}
    found = [FitPrompt(500, by_question=flag).row({**row, **beside}) for flag in (False, True)]
    assert ["48213" in json.dumps(made["messages"]) for made in found] == [False, True]
    assert [made["messages"][-1] for made in found] == [ASKED, ASKED]
    assert ["history-1" in made["kept"] for made in found] == [False, True]
    alone = [FitPrompt(500, by_question=flag).row({"question": QUESTION, **beside}) for flag in (False, True)]
    assert alone[0] == alone[1]
    for empty in (" ", {"role": "user", "content": ""}):
        made = FitPrompt(500, by_question=True).row({"history": CHAT, "question": empty})
        assert made["messages"] is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"by_question": True, "cut": "stable"}, r"by_question must be False with cut=.stable."),
        ({"by_question": 1}, "by_question must be True or False"),
        ({"reasons": "yes"}, "reasons must be True or False"),
        ({"outputs": {"reasons": "why"}}, "outputs must name one of messages, .* 'reasons'"),
        ({"reasons": True, "outputs": {"reasons": "kept"}}, "different names"),
    ],
)
def test_options_that_do_not_go_together_raise(options, said):
    """Before any row is read, with the option that is wrong."""
    with pytest.raises(BudgetConfigError, match=said):
        FitPrompt(100, **options)


# ---- reasons ------------------------------------------------------------------------------------------------------------------
ROWS = [
    {"history": json.dumps(CHAT), "documents": json.dumps(["Kettles boil. " * 90]), "question": QUESTION},
    {"history": "[", "documents": "[]", "question": QUESTION},
]


def _in_batch(make, fit, _):
    return list(fit(make({name: [row[name] for row in ROWS] for name in ROWS[0]}))["why"])


def _in_daft(fit, _):
    daft = pytest.importorskip("daft")
    frame = daft.from_pydict({name: [row[name] for row in ROWS] for name in ROWS[0]})
    return [row["why"] for row in fit_daft(frame, fit, workers=1).to_pylist()]


def _in_files(source, target, fit, folder):
    if "parquet" in (source, target):
        pytest.importorskip("pyarrow")
    given, made = write_jsonl(folder / "in.jsonl", ROWS), folder / f"out.{target}"
    if source == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        given = folder / "in.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS), given)
    fit_files(given, made, fit, workers=1, shard_rows=1)
    if target == "jsonl":
        return [row["why"] for row in read_jsonl(made)]
    return pytest.importorskip("pyarrow.parquet").read_table(made)["why"].to_pylist()


KINDS = {
    "dict": partial(_in_batch, dict),
    "arrow": lambda *given: _in_batch(pytest.importorskip("pyarrow").table, *given),
    "pandas": lambda *given: _in_batch(pytest.importorskip("pandas").DataFrame, *given),
    "daft": _in_daft,
    "jsonl to jsonl": partial(_in_files, "jsonl", "jsonl"),
    "jsonl to parquet": partial(_in_files, "jsonl", "parquet"),
    "parquet to jsonl": partial(_in_files, "parquet", "jsonl"),
    "parquet to parquet": partial(_in_files, "parquet", "parquet"),
}


DAFT = pytest.param("daft", marks=[pytest.mark.slow, pytest.mark.filterwarnings("default")])


@pytest.mark.parametrize("kind", [DAFT if kind == "daft" else kind for kind in KINDS])
def test_every_kind_of_batch_has_the_same_reasons(kind, tmp_path):
    """JSON in columns and nested in lines, as the messages; null where the row has an error."""
    fit = FitPrompt(500, reasons=True, outputs={"reasons": "why"})
    expected = fit.row(ROWS[0])
    assert [r["id"] for r in expected["why"] if r["action"] != "trimmed"] == expected["kept"]
    assert [r["id"] for r in expected["why"] if r["action"] == "trimmed"] == expected["dropped"]
    found = [getattr(value, "as_py", lambda value=value: value)() for value in KINDS[kind](fit, tmp_path)]
    found = [json.loads(one) if isinstance(one, str) else one for one in found]
    assert found == [expected["why"], None]
    assert "reasons" not in FitPrompt(500).row(ROWS[0])


def test_the_command_has_both_options(tmp_path):
    """What `--by-question` and `--reasons` write is what the options of `FitPrompt` give."""
    source, target = write_jsonl(tmp_path / "in.jsonl", ROWS[:1]), tmp_path / "out.jsonl"
    limits = ["--window", "600", "--reserve", "100", "--workers", "1"]
    assert main(["batch", str(source), str(target), *limits, "--by-question", "--reasons"]) == 0
    made = read_jsonl(target)[0]
    budget = {"context_window": 600, "reserve": 100}
    assert made == {**ROWS[0], **FitPrompt(budget, by_question=True, reasons=True).row(ROWS[0])}
    assert "48213" in json.dumps(made["messages"])
