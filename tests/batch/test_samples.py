"""Samples for fine-tuning hold whole turns of a conversation, in the form of every provider."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import RowError, counter_for, fit_messages
from rankbudget.batch import FitPrompt, whole_turns
from rankbudget.messages.codec import PINNED_ROLES, DictCodec
from rankbudget.testing.shapes import SHAPES
from rankbudget.testing.strategies import conversations, shaped_turns
from tests.batch.rows import COUNTER
from tests.drawing import draws


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
    """What is taken of a cut conversation is its end from a question on, repaired, behind all of its rules."""
    chat = [{**m, "id": named(n)} for n, m in enumerate(chat)] if named else list(chat)
    limit = max(1, COUNTER.count_messages(chat) * eighths // 8)
    fit = FitPrompt({"context_window": limit, "reserve": 0, "message_cap": None, "min_exchanges": exchanges})
    given = written(chat)
    row = fit.row({"history": given})
    messages = json.loads(given) if isinstance(given, str) else given
    sample = [bare(m) for m in whole_turns(row["messages"], row["dropped"], messages)]
    repaired = FitPrompt(10**6).row({"history": chat})["messages"] or []  # a result without its call goes
    chat = [bare(m) for m in repaired]
    assert sample or row["dropped"] or row["messages"] is None
    rules, said = ([m for m in chat if (m["role"] in PINNED_ROLES) == pinned] for pinned in (True, False))
    turns = sample[len(rules) :]
    assert not sample or sample[: len(rules)] == rules
    assert not sample or turns == said[-len(turns) :]
    assert not sample or (turns[0]["role"] == "user" and not DictCodec().answers(turns[0]))


WORDS = counter_for(lambda text: len(text.split()))
HOSTS = {"user": "human", "assistant": "ai"}


def written_as(name, turns):
    """A conversation in the form of a provider, or with a host's roles, and where its turns begin."""
    shape, starts = SHAPES["openai" if name == "roles" else name](), []
    for turn in turns:
        starts.append(len(shape.messages))
        shape.write(*turn)
    if name != "roles":
        return shape.messages, starts
    return [{**m, "role": HOSTS.get(m["role"], m["role"])} for m in shape.messages], starts


@pytest.mark.parametrize("name", [*SHAPES, "roles"])
@draws(cases=len(SHAPES) + 1)
@given(
    turns=shaped_turns(),
    eighths=st.integers(1, 8),
    exchanges=st.integers(0, 2),
    rules=st.booleans(),
    form=st.sampled_from([list, with_nulls, json.dumps]),
)
def test_samples_begin_at_a_question_in_every_form(name, turns, eighths, exchanges, rules, form):
    """A sample is the turns behind all that was dropped, from their question on, and nothing in it needs a repair."""
    said, starts = written_as(name, turns)
    system = [{"role": "system", "content": "Be brief."}] if rules else []
    history = [*system, *said]
    whole = fit_messages(history, max_tokens=10**6, counter=WORDS).report.total_tokens
    budget = {"context_window": max(1, whole * eighths // 8), "reserve": 0, "message_cap": None}
    fit = FitPrompt({**budget, "min_exchanges": exchanges}, counter=WORDS)
    row = fit.row({"history": form(history)})
    sample = whole_turns(row["messages"], row["dropped"], form(history))
    assert sample == whole_turns(json.dumps(row["messages"]), row["dropped"], form(history))
    if row["budget_error"] is not None:
        assert sample == []
        return
    ids = [m["id"] if isinstance(m.get("id"), str) else f"history-{n}" for n, m in enumerate(history)]
    behind = max((n for n, one in enumerate(ids, start=1) if one in row["dropped"]), default=0)
    first = next((at for at in starts if at + len(system) >= behind), None)
    back = {"human": "user", "ai": "assistant"} if name == "roles" else {}
    expected = [bare({**m, "role": back.get(m["role"], m["role"])}) if "role" in m else bare(m) for m in said]
    assert [bare(m) for m in sample] == ([*system, *expected[first:]] if first is not None else [])
    if sample:
        fit_messages(sample, max_tokens=10**6, counter=WORDS, strict=True)


def test_samples_are_of_one_row():
    """What another row had, or a profile has joined, is an error that says what to do."""
    chat = [{"role": "user", "content": "A?"}, {"role": "user", "content": "B?"}]
    row = FitPrompt(100, profile="anthropic").row({"history": chat})
    with pytest.raises(RowError, match=r"not dropped \(got 1 of 2\).*RenderingProfile"):
        whole_turns(row["messages"], row["dropped"], chat)


def test_broken_json_is_a_typed_error():
    """It names what was broken, as every error of a row does."""
    with pytest.raises(RowError, match="cut must be JSON"):
        whole_turns("[{", [], [])
