"""A thousand prompts, fifty of them broken in four ways, and what must become of them."""

from __future__ import annotations

import json
import os

from rankbudget import TokenBudget, counter_for
from rankbudget.batch import FitPrompt, fit_files

BUDGET = TokenBudget(context_window=500, reserve=150)
COUNTER = counter_for("o200k_base")
INPUTS = ("system", "history", "documents", "question", "tools")
OUTPUTS = (
    *("messages", "prompt_tokens", "kept", "shortened", "dropped"),
    *("max_completion_tokens", "budget_error"),
)
TOOLS = json.dumps([{"type": "function", "function": {"name": "valve", "parameters": {"type": "object"}}}])
ORPHAN = json.dumps(
    [{"role": "user", "content": "Hi."}, {"role": "tool", "content": "7", "tool_call_id": "c1"}]
)
BROKEN = (
    ({"history": '[{"role": "user", '}, "RowError: history must be JSON"),
    ({"history": ORPHAN}, "MessageError: messages must be a valid conversation"),
    ({"question": "Which valve is open? " * 200}, "BudgetExceededError: "),
    ({"documents": '{"text": "alone"}'}, "RowError: documents must be a list"),
)


def fit_prompt(**options):
    return FitPrompt(BUDGET, **{"strict": True, **options})


def good_row(i):
    history = [
        {"role": role, "content": f"{role} {n} of {i}: " + "the valve is open " * (i % 5)}
        for n in range(i % 4)
        for role in ("user", "assistant")
    ]
    documents = [f"Page {n} of {i}. Valve {n * i} opens at {n} bar. " * 3 for n in range(i % 9)]
    return {
        "id": i,
        "system": "You are a mechanic." if i % 3 else None,
        "history": json.dumps(history),
        "documents": json.dumps(documents),
        "question": f"At which pressure does valve {i} open?",
        "tools": TOOLS if i % 10 == 0 else None,
    }


def is_broken(i):
    return i % 20 == 7


def expected_error(i):
    """How the error of a row begins; None for a row that can be fitted."""
    return BROKEN[i // 20 % 4][1] if is_broken(i) else None


def rows(size=1000):
    return [good_row(i) | (BROKEN[i // 20 % 4][0] if is_broken(i) else {}) for i in range(size)]


def columns(given):
    return {name: [row[name] for row in given] for name in given[0]}


def write_jsonl(path, given):
    path.write_text("".join([json.dumps(row) + "\n" for row in given]))
    return path


def read_jsonl(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def plain(made):
    """The outputs of a batch or of rows, by output; messages read where they are JSON."""
    made = columns(made) if isinstance(made, list) else made
    outputs = {name: list(made[name]) for name in OUTPUTS}
    outputs["messages"] = [json.loads(m) if isinstance(m, str) else m for m in outputs["messages"]]
    return outputs


def check_promise(given, made):
    """Every row once and in order: 95 of 100 fitted within the budget, the others with their own error."""
    outputs = plain(made)
    ids = [row["id"] for row in made] if isinstance(made, list) else list(made["id"])
    assert ids == [row["id"] for row in given]
    for i, row in enumerate(given):
        messages, tokens, kept, shortened, dropped, answer, error = (outputs[name][i] for name in OUTPUTS)
        expected = expected_error(row["id"])
        if expected is not None:
            assert error.startswith(expected), error
            assert messages is tokens is kept is dropped is answer is None
            continue
        assert error is None
        tools = json.loads(row["tools"]) if row["tools"] else None
        assert COUNTER.count_messages(messages, tools) == tokens <= 350
        assert answer == 500 - tokens >= 150
        assert messages[-1] == {"role": "user", "content": row["question"]}
        pieces = len(json.loads(row["history"])) + len(json.loads(row["documents"]))
        assert len({*kept, *dropped}) == len(kept) + len(dropped) == pieces
        assert {*shortened} <= {*kept}


def count_or_die(text):
    """Counts characters; the text "poison" ends the process as a segmentation fault would."""
    if "poison" in text:
        os._exit(11)
    return len(text)


def run(source, target, **options):
    """Fits a file in shards of a hundred rows."""
    fit = options.pop("fit", None) or fit_prompt()
    return fit_files(source, target, fit, **{"shard_rows": 100, **options})
