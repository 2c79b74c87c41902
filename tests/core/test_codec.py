"""Plain dicts as the core reads them: what cannot be read is named, never a crash."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, BudgetSession, MessageError, counter_for, fit_messages
from rankbudget.counting.blocks import results_in
from rankbudget.messages.codec import DictCodec, answers_of
from rankbudget.messages.texts import content_text
from rankbudget.testing import WordCounter
from tests.drawing import draws

USER = {"role": "user", "content": "hi"}
MALFORMED = [
    {"role": "assistant", "tool_calls": "x"},
    {"role": "assistant", "tool_calls": ["x"]},
    {"role": "assistant", "tool_calls": {"id": "x"}},
    {"role": "assistant", "content": None, "tool_calls": 7},
    {"role": ["user"], "content": "x"},
    {"role": {"name": "user"}, "content": "x"},
]


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
@pytest.mark.parametrize("content", [5, True, b"text", [5], ["a", []]])
def test_content_that_is_no_text_is_refused_by_position(role: str, content: Any) -> None:
    """A number, bytes or a list of them is named with its place, by a call and by a session that goes on."""
    chat: list[Any] = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
    session = BudgetSession(500)
    session.fit(chat)
    chat += [{"role": role, "content": content, "tool_call_id": "c"}, {"role": "user", "content": "and?"}]
    with pytest.raises(MessageError, match=r"content must be .* in message 2"):
        fit_messages(chat, max_tokens=500)
    with pytest.raises(MessageError, match=r"content must be .* in message 2"):
        session.fit(chat)


@pytest.mark.parametrize("role", ["system", "developer", "tool", "user"])
@pytest.mark.parametrize("content", [None, [], {"a": 1}], ids=repr)
def test_content_that_providers_refuse_is_refused(role: str, content: Any) -> None:
    """Null, no block or an object that is no block: only an empty question may be dropped instead."""
    call = {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}
    odd = {"role": role, "content": content, "tool_call_id": "c"}
    for chat in (
        [USER, call, odd, USER],
        [USER, call, {**USER, "role": "tool", "tool_call_id": "c"}, odd, USER],
    ):
        if role == "user" and not content:
            assert odd not in fit_messages(chat, max_tokens=500).messages
            continue
        with pytest.raises(
            MessageError, match=rf"content must be .* in message {chat.index(odd)}, role {role}"
        ):
            fit_messages(chat, max_tokens=500)


@pytest.mark.parametrize("content", [None, [], {"a": 1}, 5], ids=repr)
def test_content_beside_the_history_is_checked_too(content: Any) -> None:
    """A system message of its own block, and a question that is a message."""
    assembler = Assembler(500)
    with pytest.raises(MessageError, match=r"content must be .* in message 1, role system"):
        assembler.assemble(
            {"system": [{"role": "system", "content": "s"}, {"role": "system", "content": content}]},
            query="hi",
        )
    with pytest.raises(MessageError, match="must"):
        assembler.assemble({}, query={"role": "user", "content": content})


def test_content_under_another_key_is_no_null() -> None:
    """Gemini's parts, an item of the Responses API, and a function's result, which may be null."""
    named = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    part = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    for step in (
        [named, {"role": "function", "name": "f", "content": None}],
        [item, {"type": "function_call_output", "call_id": "c", "output": "x"}],
        [part, {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}],
    ):
        chat = [USER, *step, USER]
        assert fit_messages(chat, max_tokens=500, strict=True).messages == chat


@pytest.mark.parametrize(
    ("called", "answer"),
    [
        (
            {"content": None, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]},
            {"role": "tool", "content": "Sun."},
        ),
        (
            {"content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "content": "Sun."}]},
        ),
    ],
    ids=["openai", "anthropic"],
)
def test_an_answer_that_names_nothing_answers_no_call_with_an_id(called: Any, answer: Any) -> None:
    """Providers refuse it, so its step goes with a reason, or is named where that is asked for."""
    chat = [USER, {"role": "assistant", **called}, answer, {"role": "user", "content": "and?"}]
    found = fit_messages(chat, max_tokens=500)
    assert found.messages == [chat[0], chat[3]]
    reasons = {d.segment_id: d.reason for d in found.report.decisions if d.action == "trimmed"}
    assert reasons == {"history-1": "unanswered_call", "history-2": "orphan_result"}
    with pytest.raises(MessageError, match=r"message 1: unanswered_call .*, message 2: orphan_result"):
        fit_messages(chat, max_tokens=500, strict=True)


@pytest.mark.parametrize("message", MALFORMED, ids=repr)
@pytest.mark.parametrize("before", [[], [USER]], ids=["alone", "second"])
def test_what_cannot_be_read_is_named(message: Any, before: list[Any]) -> None:
    """A message with calls or a role of the wrong kind is a MessageError that shows them."""
    named = "tool_calls" if "tool_calls" in message else "role"
    for options in ({}, {"cut": "stable"}, {"query": "hi"}, {"session": BudgetSession(100)}):
        with pytest.raises(MessageError, match=named):
            fit_messages([*before, message], max_tokens=100, **options)
    session = BudgetSession(100)
    with pytest.raises(MessageError, match=named):
        session.fit([*before, message])
    if before:
        session = BudgetSession(100)
        session.fit(before)
        with pytest.raises(MessageError, match=named):
            session.fit([*before, message])
        assert (
            session.fit([*before, {"role": "assistant", "content": "hello"}]).messages[-1]["content"]
            == "hello"
        )


@pytest.mark.parametrize(
    "content",
    [
        {"type": {}},
        {"type": "text", "text": "one"},
        [{"type": ["x"]}],
        [None, "a"],
        ({"type": "text", "text": "a"},),
    ],
)
def test_odd_content_is_counted_as_it_is(content: Any) -> None:
    """Texts and blocks of any kind are counted, whole or not, and never a crash."""
    message = {"role": "user", "content": content}
    assert fit_messages([message], max_tokens=100).messages == [message]
    chat = [message, {"role": "assistant", "content": "word " * 900}, message]
    assert fit_messages(chat, max_tokens=700).messages[-1] == message


def test_the_text_of_a_single_block_is_its_text() -> None:
    """Content that is one block and no list has the block's text."""
    assert (
        content_text({"type": "text", "text": "one"}),
        content_text({"type": "image_url"}),
        content_text(5),
    ) == ("one", "", "")


def test_the_calls_a_user_message_answers_are_read_with_or_without_a_way_of_the_codecs_own() -> None:
    """A codec that says nothing about answers is read through its neutral form."""

    class Silent:
        def to_dict(self, message: Any) -> Any:
            return message

    message = {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "a"},
            "text",
            {"type": "tool_result", "tool_use_id": "b"},
        ],
    }
    assert answers_of(DictCodec())(message) == answers_of(Silent())(message) == ("a", "b")  # type: ignore[arg-type]  # only what is asked for
    assert answers_of(DictCodec())(USER) == answers_of(Silent())(USER) == ()  # type: ignore[arg-type]  # the same
    assert results_in(None) == results_in("tool_result") == ()


def test_an_odd_block_costs_its_text() -> None:
    """A block whose type is no word is counted as the JSON it is."""
    assert WordCounter().count_message({"role": "user", "content": [{"type": ["x"]}]}) >= 5


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "What is the time in Kiel?"},
        {"role": "assistant", "content": "It is noon."},
        {"role": "user", "parts": [{"text": "What is the time?"}]},
        {"type": "function_call", "call_id": "f", "name": "w", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "f", "output": "Sun."},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Kiel is in Germany."}]},
    ],
)
def test_a_null_field_is_read_as_absent(message: dict[str, Any]) -> None:
    """A table gives every message the fields of all, with null; the text under another field is still there."""
    codec, nulls = DictCodec(), dict.fromkeys(("role", "content", "parts", "output", "tool_calls"))
    padded = {**nulls, **message}
    for read in (codec.role, codec.call_ids, codec.answers, codec.goes_on):
        assert read(padded) == read(message)
    shown = [codec.to_dict(one).get("content") for one in (padded, message)]
    assert content_text(shown[0]) == content_text(shown[1])
    codec.check(padded, 0)
    if codec.role(message) == "tool":
        assert codec.result_id(padded) == codec.result_id(message)
    assert WordCounter().count_messages([padded]) == WordCounter().count_messages([message])


BLANKS = st.sampled_from(["", " ", "\n\n"])
_ASKED = {"role": "user", "content": "Look."}
_USE = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
_USED = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
_ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "42"}
_GEMINI_CALL = {"functionCall": {"name": "look", "args": {}}}
_GEMINI_RESULT = {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"r": "42"}}}]}


def _with_blanks(blank: str) -> dict[str, tuple[dict[str, Any], list[dict[str, Any]], Any]]:
    """By shape: a message with blank texts, what follows it, and the content without them."""
    text, image = {"type": "text", "text": blank}, {"type": "image_url", "image_url": {"url": "https://x/y"}}
    thought = {"type": "thinking", "thinking": "", "signature": "s"}
    signed = {"text": blank, "thoughtSignature": "s"}
    return {
        "anthropic": ({"content": [thought, text, _USE]}, [_USED], [thought, _USE]),
        "anthropic, cached": (
            {"content": [{**text, "cache_control": {"type": "ephemeral"}}, _USE]},
            [_USED],
            [_USE],
        ),
        "openai": ({"content": [text, {"type": "text", "text": "Yes."}]}, [], [{"type": "text", "text": "Yes."}]),
        "openai, calls": ({"content": [text], "tool_calls": [_CALL]}, [_ANSWERED], ""),
        "openai, user": ({"role": "user", "content": [image, text]}, [], [image]),
        "gemini": ({"role": "model", "parts": [{"text": blank}, _GEMINI_CALL]}, [_GEMINI_RESULT], [_GEMINI_CALL]),
        "gemini, signed": ({"role": "model", "parts": [signed, _GEMINI_CALL]}, [_GEMINI_RESULT], None),
        "responses": (
            {"content": [{"type": "output_text", "text": blank, "annotations": []}, {"type": "refusal", "refusal": "No."}]},
            [],
            [{"type": "refusal", "refusal": "No."}],
        ),
    }  # fmt: skip


@draws()
@given(BLANKS, st.sampled_from(sorted(_with_blanks(""))), st.booleans())
def test_blank_texts_beside_other_content_go(blank: str, shape: str, strict: bool) -> None:
    """Anthropic answers 400 to a blank text; what has a signature or is thought stays as it came."""
    message, following, left = _with_blanks(blank)[shape]
    message = {"role": "assistant", **message}
    given = copy.deepcopy(message)
    chat = [_ASKED, message, *following, {"role": "user", "content": "Why?"}]
    if strict and left is not None:
        with pytest.raises(MessageError, match="message 1: blank_text"):
            fit_messages(chat, max_tokens=9_000, strict=True)
        return
    made = fit_messages(chat, max_tokens=9_000, strict=strict)
    again = fit_messages(made.messages, max_tokens=9_000, strict=True)
    assert again.messages == made.messages
    assert message == given
    key = "parts" if "parts" in message else "content"
    assert made.messages == [_ASKED, message if left is None else {**message, key: left}, *chat[2:]]
    assert made.report.total_tokens == counter_for("o200k_base").count_messages(made.messages)
    assert ("blank_text" in {d.reason for d in made.report.decisions}) == (left is not None)


@draws()
@given(st.lists(st.tuples(st.sampled_from("fg"), st.booleans()), min_size=1, max_size=4), st.booleans())
def test_a_call_without_an_id_gets_that_of_its_result(calls: list[tuple[str, bool]], strict: bool) -> None:
    """OpenAI answers 400 where a result has an id and its call has none; pairs are as the calls are."""
    made_calls = [{"type": "function", "function": {"name": name, "arguments": "{}"}} for name, _ in calls]
    expected = [{**call, "id": f"c{n}"} for n, call in enumerate(made_calls)]
    given = [
        expected[n] if has else call for n, ((_, has), call) in enumerate(zip(calls, made_calls, strict=True))
    ]
    results = [{"role": "tool", "tool_call_id": f"c{n}", "content": str(n)} for n in range(len(calls))]
    asks = {"role": "assistant", "content": None}
    chat = [_ASKED, {**asks, "tool_calls": given}, *results, {"role": "user", "content": "Why?"}]
    lacks = not all(has for _, has in calls)
    if strict and lacks:
        with pytest.raises(MessageError, match="message 1: call_without_id"):
            fit_messages(chat, max_tokens=9_000, strict=True)
        return
    made = fit_messages(chat, max_tokens=9_000, strict=strict)
    assert made.messages == [_ASKED, {**asks, "tool_calls": expected}, *chat[2:]]
    assert (made.messages[1] is chat[1]) == (not lacks)
    assert ("call_without_id" in {d.reason for d in made.report.decisions}) == lacks
    plain = [
        {**result, "tool_call_id": None, "name": name}
        for result, (name, _) in zip(results, calls, strict=True)
    ]
    ollama = [_ASKED, {**asks, "tool_calls": made_calls}, *plain, chat[-1]]
    assert fit_messages(ollama, max_tokens=9_000).messages == ollama


@draws()
@given(
    st.lists(
        st.tuples(st.sampled_from(["system", "developer", "user", "assistant"]), st.booleans()), max_size=6
    ),
    BLANKS | st.none(),
    st.booleans(),
)
def test_a_system_message_without_content_goes(
    said: list[tuple[str, bool]], blank: str | None, strict: bool
) -> None:
    """As any other message that says nothing, wherever it is; the others stay as they are without it."""
    systems = ("system", "developer")
    content = "" if blank is None else [{"type": "text", "text": blank}]
    chat = [
        {"role": role, "content": content if empty and role in systems else "Hi."} for role, empty in said
    ]
    chat = [_ASKED, *chat] if said and said[0][0] == "assistant" else chat
    chat.append({"role": "user", "content": "Why?"})
    rest = [message for message in chat if message["content"] != content]
    if strict and rest != chat:
        with pytest.raises(MessageError, match="empty_message"):
            fit_messages(chat, max_tokens=9_000, strict=True)
        return
    expected = fit_messages(rest, max_tokens=9_000)
    made = fit_messages(chat, max_tokens=9_000)
    assert made.messages == expected.messages
    assert made.report.total_tokens == expected.report.total_tokens
    session = BudgetSession(9_000, counter="o200k_base")
    assert [session.fit(chat).messages for _ in range(2)] == [expected.messages] * 2
    session.fit([*chat, {"role": "assistant", "content": "So."}, {"role": "system", "content": content}])
