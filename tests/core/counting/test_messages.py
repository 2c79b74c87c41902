"""What messages and tools cost in OpenAI's format: the published formulas, written a second time here and compared."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import tiktoken

from rankbudget import counter_for
from rankbudget.counting.vocabulary import load_encoding

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Get the current weather in a given location.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA."},
                "unit": {
                    "type": "string",
                    "description": "The unit of temperature to return",
                    "enum": ["celsius", "fahrenheit"],
                },
            },
            "required": ["location"],
        },
    },
}
CLOCK: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "now",
        "description": "Tells the time",
        "parameters": {"type": "object", "properties": {}},
    },
}


def published_messages(encoding: tiktoken.Encoding, messages: list[dict[str, str]]) -> int:
    """Returns the formula of OpenAI's cookbook for gpt-3.5 and later."""
    total = 3
    for message in messages:
        total += 3
        for key, value in message.items():
            total += len(encoding.encode_ordinary(value)) + (key == "name")
    return total


def published_tools(encoding: tiktoken.Encoding, tools: list[dict[str, Any]], start: int) -> int:
    """Returns the formula of OpenAI's cookbook for functions of one level."""
    total = 0
    for tool in tools:
        function = tool["function"]
        total += start + len(
            encoding.encode_ordinary(f"{function['name']}:{function['description'].rstrip('.')}")
        )
        properties = function["parameters"]["properties"]
        total += 3 if properties else 0
        for name, value in properties.items():
            total += 3
            if "enum" in value:
                total += -3 + sum(3 + len(encoding.encode_ordinary(item)) for item in value["enum"])
            total += len(
                encoding.encode_ordinary(f"{name}:{value['type']}:{value['description'].rstrip('.')}")
            )
    return total + 12 if tools else total


@pytest.mark.parametrize(
    ("model", "encoding_name", "start"), [("gpt-4o", "o200k_base", 7), ("gpt-4", "cl100k_base", 10)]
)
def test_requests_follow_the_published_formula(model: str, encoding_name: str, start: int) -> None:
    """Roles, names, tool call ids, contents and tools cost what the formula says, in every combination."""
    encoding = load_encoding(encoding_name)
    rng = random.Random(37)
    words = ["", "Hello", "How are you?", "<|endoftext|>", "中文字", "a\n\nb ", "👩‍👩‍👧"]
    for _ in range(200):
        messages = []
        for _ in range(rng.randint(0, 6)):
            message = {
                "role": rng.choice(("system", "user", "assistant")),
                "content": " ".join(rng.choices(words, k=3)),
            }
            if rng.random() < 0.3:
                message["name"] = rng.choice(("alice", "Bob_2"))
            if rng.random() < 0.2:
                message |= {"role": "tool", "tool_call_id": "call_9pw1qnYScqvGrCH58HWCvFH6"}
            messages.append(message)
        tools = rng.choice(([], [WEATHER], [WEATHER, CLOCK]))
        expected = published_messages(encoding, messages) + published_tools(encoding, tools, start)
        assert counter_for(model).count_messages(messages, tools) == expected


def test_known_requests() -> None:
    """The numbers of OpenAI's own example hold: 124 tokens for its six messages, 101 for its tools and two messages."""
    example = [
        {
            "role": "system",
            "content": "You are a helpful, pattern-following assistant that translates corporate jargon into plain English.",
        },
        {
            "role": "system",
            "name": "example_user",
            "content": "New synergies will help drive top-line growth.",
        },
        {
            "role": "system",
            "name": "example_assistant",
            "content": "Things working well together will increase revenue.",
        },
        {
            "role": "system",
            "name": "example_user",
            "content": "Let's circle back when we have more bandwidth to touch base on opportunities for increased leverage.",
        },
        {
            "role": "system",
            "name": "example_assistant",
            "content": "Let's talk later when we're less busy about how to do better.",
        },
        {
            "role": "user",
            "content": "This late pivot means we don't have time to boil the ocean for the client deliverable.",
        },
    ]
    assert counter_for("gpt-4o").count_messages(example) == 124
    assert counter_for("gpt-4").count_messages(example) == 129
    asked = [
        {
            "role": "system",
            "content": "You are a helpful assistant that can answer to questions about the weather.",
        },
        {"role": "user", "content": "What's the weather like in San Francisco?"},
    ]
    assert counter_for("gpt-4o").count_messages(asked, [WEATHER]) == 101
    assert counter_for("gpt-4").count_messages(asked, [WEATHER]) == 105


def test_tool_calls_cost_their_name_and_arguments() -> None:
    """A call costs three tokens, its name and its arguments, as a text or as an object; its id is not shown to a model."""
    counter = counter_for("gpt-4o")
    arguments = json.dumps({"city": "Rome"})
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    expected = 3 + counter.count("assistant") + 3 + counter.count("weather") + counter.count(arguments)
    assert counter.count_message(message) == expected
    assert (
        counter.count_message(
            {
                **message,
                "tool_calls": [{**call, "function": {"name": "weather", "arguments": {"city": "Rome"}}}],
            }
        )
        == expected
    )
    assert counter.count_message({**message, "tool_calls": [call, call]}) == 2 * expected - 3 - counter.count(
        "assistant"
    )
    blocks = [{"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}}]
    assert counter.count_message({"role": "assistant", "content": blocks}) == expected


def test_blocks_cost_their_text() -> None:
    """Text, thinking and tool results in blocks cost their text; a signature and an encrypted thought are the provider's."""
    counter = counter_for("gpt-4o")
    base = counter.count_message({"role": "user", "content": ""})

    def cost(*blocks: Any) -> int:
        return counter.count_message({"role": "user", "content": list(blocks)}) - base

    assert cost({"type": "text", "text": "two words"}) == cost("two words") == counter.count("two words")
    assert cost(
        {"type": "input_text", "text": "two words"}, {"type": "text", "text": "more"}
    ) == counter.count("two words") + counter.count("more")
    assert cost({"type": "thinking", "thinking": "two words", "signature": "x" * 500}) == 3 + counter.count(
        "two words"
    )
    assert cost(
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "two words"}]}
    ) == 3 + counter.count("two words")
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "two words"}]}
    assert cost(result) == 3 + counter.count("c1") + counter.count("two words")
    assert cost({"type": "unheard_of", "data": "something"}) == counter.count(
        '{"type": "unheard_of", "data": "something"}'
    )


ODD: list[Any] = [
    *(
        {},
        {"role": None, "content": None},
        {"content": 5},
        {"role": "user", "content": 2.5},
        {"role": 7, "content": "x"},
        {"role": "user"},
    ),
    *(
        {"role": "user", "content": b"bytes"},
        {"role": "user", "content": object()},
        {"role": "user", "content": {"type": "text", "text": "x"}},
    ),
    {
        "role": "user",
        "content": [
            1,
            None,
            "x",
            [],
            {},
            {"type": "text"},
            {"type": None},
            {"type": "image_url", "image_url": None},
            {"type": "image"},
        ],
    },
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [None, 3, {"function": None}, {"function": {"name": None, "arguments": 5}}],
    },
    {"role": "assistant", "tool_calls": "no list"},
    *(
        {"role": "assistant", "function_call": {"name": "f", "arguments": None}},
        {"role": "tool", "content": ["x"], "tool_call_id": 5},
    ),
    *(None, 5, "text", ["list"]),
]


@pytest.mark.parametrize("message", ODD, ids=[repr(message)[:40] for message in ODD])
def test_odd_messages_are_counted_and_never_refused(message: Any) -> None:
    """Whatever a host puts into a message, it has a count, and the same one twice."""
    counter = counter_for("gpt-4o")
    assert counter.count_message(message) == counter.count_message(message) >= 3


def test_recursive_and_broken_values_are_counted() -> None:
    """Cycles, keys no JSON has and objects that cannot be shown are counted as what they can show."""

    class Silent:
        def __repr__(self) -> str:
            msg = "no words"
            raise RuntimeError(msg)

    cycle: dict[str, Any] = {"type": "custom"}
    cycle["self"] = cycle
    nested: dict[str, Any] = {"type": "tool_result", "content": []}
    for _ in range(100):
        nested = {"type": "tool_result", "content": [nested]}
    for block in (
        cycle,
        {"type": "custom", ("tuple",): 1},
        {"type": "custom", "value": Silent()},
        Silent(),
        nested,
    ):
        assert counter_for("gpt-4o").count_message({"role": "user", "content": [block]}) > 3


@pytest.mark.parametrize(
    "tool",
    [
        {},
        None,
        5,
        {"type": "web_search"},
        {"name": "bare", "input_schema": {"type": "object", "properties": {"x": {"type": "integer"}}}},
        {"type": "function", "function": {"name": "f"}},
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": None,
                "parameters": {"properties": {"x": None, "y": {"enum": "no"}}},
            },
        },
        {
            "type": "json_schema",
            "json_schema": {
                "name": "answer",
                "schema": {"type": "object", "properties": {"x": {"type": "integer"}}},
            },
        },
    ],
)
def test_odd_tools_are_counted(tool: Any) -> None:
    """A tool in any shape, a structured-output schema included, has a count."""
    counter = counter_for("gpt-4o")
    assert counter.overhead([tool]) > counter.overhead()
    assert counter.overhead([]) == counter.overhead(None) == 3


@pytest.mark.parametrize("kind", [{"pattern": r"^\d{5}$"}, {"enum": [*"abcdefghij"]}])
def test_a_response_format_costs_the_larger_of_its_json_and_the_formula(kind: dict[str, Any]) -> None:
    """However a provider bills it, the count is no less; a pattern costs more as JSON, short choices as a tool."""
    counter = counter_for("gpt-4o")
    schema = {"type": "object", "properties": {"x": {"type": "string", **kind}}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    tool = {"type": "function", "function": {"name": "answer", "parameters": schema}}
    formula, sent = counter.overhead([tool]), counter.count(json.dumps(form, separators=(",", ":")))
    assert formula != sent
    assert counter.overhead([form]) >= max(formula, sent + counter.overhead())
    assert counter.overhead([tool]) == formula


def test_nested_schemas_are_counted_level_by_level() -> None:
    """Objects in objects, arrays, alternatives and references cost their properties; a schema that holds itself ends."""

    def cost(parameters: dict[str, Any]) -> int:
        return counter_for("gpt-4o").overhead(
            [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        )

    inner = {"type": "object", "properties": {"street": {"type": "string", "description": "with number"}}}
    flat = cost({"type": "object", "properties": {"home": {"type": "object"}}})
    extra = cost({"type": "object", "properties": {"home": inner}}) - flat
    assert extra > 6
    assert (
        cost({"type": "object", "properties": {"home": {"type": "object", "anyOf": [inner]}}}) - flat == extra
    )
    assert (
        cost({"$defs": {"home": inner}, "type": "object", "properties": {"home": {"$ref": "#/$defs/home"}}})
        - flat
        == extra
    )
    loop = {
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
        "properties": {"first": {"$ref": "#/$defs/node"}},
    }
    assert cost(loop) < 1_000


def test_counts_follow_edits() -> None:
    """Message counts added up equal the whole, after any edit."""
    counter = counter_for("gpt-4o")
    rng = random.Random(41)
    messages = [{"role": "user", "content": f"message {index}"} for index in range(30)]
    counts = [counter.count_message(message) for message in messages]
    for index in range(300):
        place = rng.randrange(len(messages))
        messages[place] = {
            "role": rng.choice(("user", "assistant")),
            "content": "changed " * rng.randint(0, 4) + str(index),
        }
        counts[place] = counter.count_message(messages[place])
        assert counter.overhead() + sum(counts) == counter.count_messages(messages)


def test_gpt_oss_covers_its_own_format() -> None:
    """A request to gpt-oss is never counted lower than harmony renders it, system text, calls and results included."""
    head = (
        "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
        "Knowledge cutoff: 2024-06\nCurrent date: 2026-11-22\n\nReasoning: medium\n\n"
        "# Valid channels: analysis, commentary, final. Channel must be included for every message."
    )
    plain = f"{head}<|end|><|start|>user<|message|>Hello<|end|><|start|>assistant"
    full = (
        f"{head}\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>"
        "<|start|>developer<|message|># Instructions\n\nBe brief.\n\n# Tools\n\n## functions\n\n"
        "namespace functions {\n\n// Tells it.\ntype weather = (_: {\n// where\ncity: string,\n}) => any;\n\n"
        "} // namespace functions<|end|><|start|>user<|message|>Hello<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
        '{"city": "Rome"}<|call|>'
        "<|start|>functions.weather to=assistant<|channel|>commentary<|message|>sunny<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is sunny.<|end|><|start|>assistant"
    )
    encoding = load_encoding("o200k_harmony")
    counter = counter_for("openai/gpt-oss-20b")
    city = {"type": "object", "properties": {"city": {"type": "string", "description": "where"}}}
    function = {"name": "weather", "description": "Tells it.", "parameters": city}
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "It is sunny."},
    ]
    for rendered, given, tools in ((plain, messages[1:2], None), (full, messages, [{"function": function}])):
        true = len(encoding.encode(rendered, allowed_special="all"))
        counted = counter.count_messages(given, tools)
        assert true <= counted <= true + 60
        assert counted == counter.overhead(tools) + sum(map(counter.count_message, given))
    assert not counter.exact
    assert counter_for("o200k_harmony").exact
