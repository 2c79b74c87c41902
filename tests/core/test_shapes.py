"""Messages in the shapes of all providers: pairs stay pairs, empty answers go, everything is counted."""

from __future__ import annotations

import copy
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetConfigError, BudgetExceededError, counter_for, fit_messages
from rankbudget.counting.blocks import paired, results_in
from rankbudget.counting.profiles import PROFILES, apply_profile
from rankbudget.messages.codec import DictCodec
from rankbudget.messages.texts import content_text, replace_text
from rankbudget.testing.shapes import SHAPES
from rankbudget.testing.strategies import shapes
from tests.drawing import draws

COUNTER = counter_for(lambda text: len(text.split()))
Drawn = tuple[str, tuple[dict[str, Any], ...]]
NO_TEXT = {
    "id", "call_id", "tool_call_id", "tool_use_id", "approval_request_id", "type", "role", "status", "name",
    "url", "data", "image_url", "images", "media_type", "mimeType", "signature", "tool_name", "stderr", "$ref",
}  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yields where texts stand that a model reads."""
    if isinstance(value, str):
        yield path
    elif isinstance(value, Mapping):
        for key, held in value.items():
            if key not in NO_TEXT:
                yield from leaves(held, (*path, key))
    elif isinstance(value, (list, tuple)):
        for place, held in enumerate(value):
            yield from leaves(held, (*path, place))


def grown(message: Any, path: Sequence[Any]) -> Any:
    """Returns a copy with fifty words more at one place."""
    made = copy.deepcopy(message)
    *way, last = path
    holder = made
    for step in way:
        holder = holder[step]
    holder[last] += " more" * 50
    return made


def calls_and_results(name: str, messages: Sequence[Any]) -> tuple[int, int]:
    """Counts calls and results as the provider would, from the JSON it is sent."""
    marks = {
        "legacy": (['"function_call":'], ['"role": "function"']),
        "responses": (
            ['"type": "function_call"', '_call", "call_id"', '"type": "mcp_approval_request"'],
            ['_call_output"', '"type": "mcp_approval_response"'],
        ),
        "anthropic": (['"type": "tool_use"', '"type": "server_tool_use"'], ['tool_result", "tool_use_id"']),
        "gemini": (['"functionCall"'], ['"functionResponse"']),
    }
    calls, results = marks.get(name, (['"function": {', '"custom": {'], ['"role": "tool"']))
    text = json.dumps(list(messages))
    return sum(map(text.count, calls)), sum(map(text.count, results))


def empty_ones(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Returns the assistant's messages that a provider refuses for having nothing in them."""
    found = []
    for place, message in enumerate(messages):
        goes_on = "role" not in message and place + 1 < len(messages)
        if not (goes_on and DictCodec().role(messages[place + 1]) == "assistant") and _is_empty(message):
            found.append(message)
    return found


def _is_empty(message: Mapping[str, Any]) -> bool:
    if message.get("role") not in ("assistant", "model", None) or message.get("tool_calls"):
        return False
    said = {key: value for key, value in message.items() if key not in ("thinking", "summary")}
    texts = [_at(said, path) for path in leaves(said) if not _thought(said, path)]
    return not any(text.strip() for text in texts) and "call" not in str(said)


def _at(value: Any, path: Sequence[Any]) -> str:
    for step in path:
        value = value[step]
    return str(value)


def _thought(message: Any, path: Sequence[Any]) -> bool:
    holder = message
    for step in path[:-1]:
        holder = holder[step]
    if not isinstance(holder, Mapping):
        return False
    return holder.get("thought") is True or holder.get("type") in ("thinking", "reasoning")


@draws()
@given(shapes())
def test_what_fits_stays_but_for_empty_answers(drawn: Drawn) -> None:
    """No call and no result is an orphan; an answer that says nothing goes, and the report says so."""
    _, messages = drawn
    result = fit_messages(messages, max_tokens=1_000_000, counter=COUNTER)
    gone = {d.segment_id: d.reason for d in result.report.decisions if d.action != "kept"}
    assert set(gone.values()) <= {"empty_message"}
    assert len(result.messages) == len(messages) - len(gone)
    assert all(
        a is b for a, b in zip(result.messages, [m for m in messages if m in result.messages], strict=True)
    )
    assert len(gone) == len(empty_ones(messages))


@draws()
@given(shapes(), st.integers(1, 8), st.sampled_from(("fill", "stable")))
def test_what_a_provider_refuses_never_leaves(drawn: Drawn, eighths: int, cut: Any) -> None:
    """At any limit: as many results as calls, no empty answer, a question first, the last question there."""
    name, messages = drawn
    codec = DictCodec()
    limit = max(1, COUNTER.count_messages([codec.to_dict(m) for m in messages]) * eighths // 8)
    try:
        found = fit_messages(messages, max_tokens=limit, counter=COUNTER, cut=cut)
    except BudgetExceededError:  # the laws say when it may be raised
        return
    assert COUNTER.count_messages([codec.to_dict(m) for m in found.messages]) <= limit
    assert found.report.total_tokens <= limit
    calls, results = calls_and_results(name, found.messages)
    assert calls == results
    assert {id(m) for m in found.messages}.isdisjoint(map(id, empty_ones(messages)))
    assert codec.role(found.messages[0]) == "user"
    assert not codec.answers(found.messages[0])
    open_calls: list[str] = []
    for message in found.messages:
        answered = codec.answers(message) or (
            (codec.result_id(message),) if codec.role(message) == "tool" else ()
        )
        left, belong = paired(open_calls, answered)
        assert all(belong)
        open_calls = [*left, *codec.call_ids(message)]


@draws()
@given(shapes())
def test_every_text_is_counted(drawn: Drawn) -> None:
    """Fifty words more anywhere in a message cost tokens, read as they are or through the codec."""
    codec = DictCodec()
    for message in drawn[1]:
        for path in leaves(message):
            more = grown(message, path)
            assert COUNTER.count_message(more) >= COUNTER.count_message(message) + 45, path
            assert COUNTER.count_message(codec.to_dict(more)) > COUNTER.count_message(codec.to_dict(message))


ADDED = st.lists(
    st.tuples(st.sampled_from(("system", "user", "human")), st.booleans(), st.integers(0, 40)), max_size=5
)


@draws()
@given(shapes(), ADDED, st.sampled_from(sorted(PROFILES)))
def test_profiles_keep_one_form_of_a_message(drawn: Drawn, added: Any, profile: str) -> None:
    """Rules and questions in another form than the conversation are in its form, once, and counted; turns alternate."""
    codec, messages = DictCodec(), list(drawn[1])
    for n, (role, in_parts, place) in enumerate(added):
        said = (
            {"parts": [{"text": f"added n9{n}", "thoughtSignature": "c2ln"}]}
            if in_parts
            else {"content": f"added n9{n}"}
        )
        messages.insert(place, {"role": role, **said})
    made = apply_profile(messages, PROFILES[profile])
    words = [Counter(re.findall(r"n\d+|iVBOR|c2ln", json.dumps(each))) for each in (messages, made)]
    assert words[0] == words[1]
    said = [message for message in made if message.get("role") is not None]
    for message in said:
        assert message.get("content") is None or message.get("parts") is None
        assert COUNTER.count_message(codec.to_dict(message)) == COUNTER.count_message(message)
    if PROFILES[profile].alternate and said == made:
        open_turn = {"tool_calls", "function_call"}
        for one, other in pairwise(made):
            role = codec.role(one)
            assert role != codec.role(other) or role in ("system", "tool") or open_turn & one.keys()


@draws()
@given(shapes(), st.sampled_from(sorted(PROFILES)))
def test_profiles_lose_nothing_of_any_shape(drawn: Drawn, profile: str) -> None:
    """Whatever a provider demands, every text, call and image is still there."""
    messages = list(drawn[1])
    words = Counter(re.findall(r"n\d+|iVBOR", json.dumps(messages)))
    assert Counter(re.findall(r"n\d+|iVBOR", json.dumps(apply_profile(messages, PROFILES[profile])))) == words


@draws()
@given(shapes())
def test_media_and_pairs_are_counted_in_every_shape(drawn: Drawn) -> None:
    """A picture costs what its model charges for one, wherever a provider keeps it."""
    counter = counter_for("gpt-4o")
    for message in drawn[1]:
        if "iVBOR" in json.dumps(message):
            without = json.loads(json.dumps(message).replace("iVBOR", "jVBOR"))
            assert 200 < counter.count_message(message) < 2_000
            assert counter.count_message(without) >= 200


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_parallel_results_are_as_many_as_their_calls(name: str) -> None:
    """Two calls of one tool keep two results, and a third result is one too many."""
    shape = SHAPES[name]()
    shape.ask("q")
    shape.call([("find", {"a": 1}), ("find", {"a": 2})], "hm")
    shape.results([("find", "one"), ("find", "two")])
    shape.answer("done")
    shape.ask("q2")
    kept = fit_messages(shape.messages, max_tokens=10_000, counter=COUNTER, strict=True).messages
    assert kept == shape.messages
    if name not in ("legacy", "anthropic", "gemini"):
        broken = [*shape.messages[:-2], shape.messages[-3], *shape.messages[-2:]]
        assert fit_messages(broken, max_tokens=10_000, counter=COUNTER).messages == shape.messages


class Block:
    """A content block as a provider's library has it."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.fields


def test_objects_of_a_library_are_read_as_their_dicts() -> None:
    """Blocks and calls that are objects pair with their results and cost what their dicts cost."""
    use = {"type": "tool_use", "id": "a", "name": "find", "input": {"query": "words " * 30}}
    said = {"type": "text", "text": "let me look"}
    asked = {"role": "user", "content": "q"}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "42"}]}
    as_objects = {"role": "assistant", "content": [Block(**said), Block(**use)]}
    assert COUNTER.count_message(as_objects) == COUNTER.count_message(
        {"role": "assistant", "content": [said, use]}
    )
    chat = [asked, as_objects, result]
    assert fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True).messages == chat
    call = {"id": "b", "type": "function", "function": {"name": "find", "arguments": "{}"}}
    beside = {"role": "assistant", "content": None, "tool_calls": [Block(**call)]}
    chat = [asked, beside, {"role": "tool", "tool_call_id": "b", "content": "42"}]
    assert fit_messages(chat, max_tokens=1_000, counter=COUNTER, strict=True).messages == chat


def test_texts_are_cut_where_they_stand() -> None:
    """A shortened text keeps the order of blocks: captions stay beside images, cited text its citations."""
    image = {"type": "image_url", "image_url": {"url": "x"}}
    content = [
        {"type": "text", "text": "First picture:"},
        image,
        {"type": "text", "text": "word " * 50, "citations": [{"cited_text": "word"}]},
        image,
        {"type": "text", "text": "Which of both?"},
    ]
    whole = content_text(content)
    cut = replace_text(content, whole[:40] + " ... " + whole[-30:])
    assert [b["type"] for b in cut] == ["text", "image_url", "text", "image_url", "text"]
    assert cut[0] == content[0]
    assert cut[-1] == content[-1]
    assert cut[2]["citations"] == content[2]["citations"]
    assert len(cut[2]["text"]) < 100
    assert content_text(replace_text(content, "shorter")) == "shorter"


@draws()
@given(
    st.lists(st.text(max_size=12), min_size=1, max_size=5),
    st.integers(0, 30),
    st.integers(0, 30),
    st.text(max_size=4),
)
def test_a_cut_keeps_all_that_is_left_of_a_text(texts: list[str], start: int, end: int, marker: str) -> None:
    """No character of the start, the marker and the end is lost or moved before an earlier one."""
    whole = "\n".join(texts)
    text = whole[:start] + marker + whole[max(start, len(whole) - end) :]
    blocks = [{"type": "text", "text": t} for t in texts]
    found = content_text(replace_text(blocks, text))
    assert found.replace("\n", "") == text.replace("\n", "")


def test_answers_name_their_calls_or_come_in_order() -> None:
    """An id decides, then a name, then the order; two names or two ids that differ, or an id and nothing, are no pair."""
    assert paired(["function:f", "function:g"], ["g"]) == (["function:f"], [True])
    assert paired(["c1", "function:f"], ["function:"]) == (["c1"], [True])
    assert paired(["c1", "c2"], ["function:"]) == (["c1", "c2"], [False])
    assert paired(["function:f"], ["call_7"]) == ([], [True])
    assert paired(["function:f"], ["function:g"]) == (["function:f"], [False])
    assert paired(["c1"], ["c2"]) == (["c1"], [False])
    assert results_in([{"type": "web_search_tool_result", "tool_use_id": "x", "content": []}]) == ("x",)


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), "12", None])
def test_a_callable_over_messages_that_returns_no_count_is_refused(answer: Any) -> None:
    """A host's counter that returns nonsense is a typed error, whatever it is called with."""
    from rankbudget.messages.measure import ListMeasure

    with pytest.raises(BudgetConfigError, match="must return a whole number from 0"):
        fit_messages([{"role": "user", "content": "hi"}], max_tokens=9, measure=ListMeasure(lambda _: answer))


TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Books a room.",
            "parameters": {
                "type": "object",
                "description": "a booking",
                "properties": {
                    "room": {
                        "anyOf": [{"type": "string", "description": "its name"}, {"type": "null"}],
                        "default": "any",
                    },
                    "kind": {"const": "double", "title": "Kind of room"},
                    "guests": {"type": "array", "items": {"$ref": "#/$defs/Guest"}, "examples": ["ann"]},
                    "when": {"not": {"enum": ["never"], "description": "no date"}},
                },
                "$defs": {
                    "Guest": {
                        "type": "object",
                        "description": "who",
                        "properties": {"age": {"type": "integer", "format": "years"}},
                    },
                    "Unused": {"description": "left over"},
                },
            },
        },
    },
    {
        "type": "custom",
        "custom": {
            "name": "shell",
            "description": "runs",
            "format": {"type": "grammar", "definition": "start: x"},
        },
    },
    {"type": "web_search_20250305", "name": "web_search", "allowed_domains": ["example.org"]},
]


@pytest.mark.parametrize("tool", TOOLS, ids=["function", "custom", "hosted"])
def test_every_text_of_a_tool_is_counted(tool: dict[str, Any]) -> None:
    """Fifty words more anywhere in a schema cost tokens: definitions, defaults, examples, constants."""
    before = COUNTER.overhead([tool])
    for path in leaves(tool):
        assert COUNTER.overhead([grown(tool, path)]) >= before + 45, path


def test_a_schema_from_outside_is_counted_in_time() -> None:
    """Definitions that refer to each other many times are read once each."""
    names = [f"d{i}" for i in range(40)]
    held = {"type": "object", "properties": {n: {"$ref": f"#/$defs/{n}"} for n in names}}
    schema = {"$defs": dict.fromkeys(names, held), "type": "object", "properties": held["properties"]}
    assert COUNTER.overhead([{"name": "f", "input_schema": schema}]) > 1_000


def test_files_cost_their_text_or_their_pages() -> None:
    """Text in a file counts as text, a PDF by its pages, and a reference what the table says."""
    import base64

    counter = counter_for("gpt-4o")
    text = base64.b64encode(b"word " * 10_000).decode()
    inline = {"type": "file", "file": {"filename": "a.txt", "file_data": f"data:text/plain;base64,{text}"}}
    assert counter.count_message({"role": "user", "content": [inline]}) > 10_000
    pdf = base64.b64encode(b"%PDF-1.4 " + b"<</Type /Page>>" * 20).decode()
    paged = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}
    assert counter.count_message({"role": "user", "content": [paged]}) >= 20 * 1_500
    film = {"type": "media", "mime_type": "video/mp4", "file_uri": "gs://a/b.mp4"}
    assert counter.count_message({"role": "user", "content": [film]}) >= 18_000
    sealed = {"type": "reasoning", "encrypted_content": "x" * 40_000, "summary": []}
    assert counter.count_message({"role": "assistant", "content": [sealed]}) >= 10_000
    assert counter.count_message({"role": "assistant", "content": None, "audio": {"id": "audio_1"}}) >= 600
