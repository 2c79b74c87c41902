"""The recipes of the page about batches: what they take of a prompt is what the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rankbudget.batch import FitPrompt
from rankbudget.messages.codec import PINNED_ROLES, DictCodec
from rankbudget.testing.strategies import conversations
from tests.batch.rows import COUNTER
from tests.drawing import draws


def recipe():
    """The function of the page that makes samples for fine-tuning."""
    page = (Path(__file__).parents[2] / "docs" / "batch.md").read_text(encoding="utf-8")
    (code,) = (
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "def whole_turns" in block
    )
    names = {}
    exec(compile(code, "batch.md", "exec"), names)
    return names["whole_turns"]


WHOLE_TURNS = recipe()


def with_nulls(chat):
    """The messages with the fields of all of them, as Arrow gives them and clients of providers log them."""
    names = dict.fromkeys(name for message in chat for name in (*message, "refusal", "id"))
    return [{name: message.get(name) for name in names} for message in chat]


def bare(message):
    """The message as a provider takes it: without nulls, its id a text."""
    given = {name: value for name, value in message.items() if value is not None or name == "content"}
    return given | ({"id": str(given["id"])} if "id" in given else {})


@draws()
@given(
    conversations(broken=False, media=False, user_results=True),
    st.integers(1, 8),
    st.integers(0, 3),
    st.sampled_from([None, "m{}".format, int]),
    st.sampled_from([list, with_nulls, lambda chat: json.dumps(with_nulls(chat))]),
)
def test_samples_for_fine_tuning_have_whole_turns(chat, eighths, exchanges, named, written):
    """What the page's recipe takes of a cut conversation is its end from a question on, behind all of its rules."""
    chat = [{**m, "id": named(n)} for n, m in enumerate(chat)] if named else list(chat)
    limit = max(1, COUNTER.count_messages(chat) * eighths // 8)
    fit = FitPrompt({"context_window": limit, "reserve": 0, "message_cap": None, "min_exchanges": exchanges})
    given = written(chat)
    row = fit.row({"history": given})
    messages = json.loads(given) if isinstance(given, str) else given
    sample = [bare(m) for m in WHOLE_TURNS(row["messages"] or [], row["dropped"] or [], messages)]
    chat = [bare(m) for m in chat]
    assert sample or row["dropped"] or row["messages"] is None
    rules, said = ([m for m in chat if (m["role"] in PINNED_ROLES) == pinned] for pinned in (True, False))
    turns = sample[len(rules) :]
    assert not sample or sample[: len(rules)] == rules
    assert not sample or turns == said[-len(turns) :]
    assert not sample or (turns[0]["role"] == "user" and not DictCodec().answers(turns[0]))
