"""Prompts that a bounded model makes of a template: what a variable may hold, and what is cut first."""

from __future__ import annotations

import json
import pickle
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ToolCallBlock
from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata, MockLLM
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate, RichPromptTemplate
from llama_index.llms.ollama import Ollama
from pydantic import BaseModel, Field, create_model

from llamaindex_budget import RequestExceededError, budget_model
from llamaindex_budget._codec import CODEC
from rankbudget import counter_for
from rankbudget.testing import RecordingCounter
from tests.drawing import draws
from tests.llamaindex.models import PlayLLM, say

COUNTER = counter_for("gpt-4o")
FRAMES = [
    "- {{d}}\n",
    "<doc id='{{loop.index}}'>{{d}}</doc>\n",
    "### Text {{loop.index}} of many\n\n{{d}}\n\n",
]
QUESTION = "How many windows has room 7?"


def sent(template: Any, limit: int, **values: Any) -> tuple[str, int]:
    """Returns the prompt that the model got, and its tokens."""
    reports: list[Any] = []
    llm = budget_model(
        MockLLM(is_chat_model=True), max_tokens=limit, counter="gpt-4o", on_report=reports.append
    )
    return str(llm.predict(template, query_str=QUESTION, **values)), reports[-1].total_tokens


@draws()
@given(
    frame=st.sampled_from(FRAMES),
    count=st.integers(8, 120),
    tail=st.integers(0, 12),
    limit=st.integers(150, 1200),
)
def test_texts_of_a_list_stay_apart_and_fill_the_room(frame: str, count: int, tail: int, limit: int) -> None:
    """Each kept text is in the template's own frame, the asked one among them, and no room for another is left."""
    template = RichPromptTemplate("{% for d in docs %}" + frame + "{% endfor %}{{query_str}}")
    docs = [f"Room {i} has {i + 1} windows." + " It is very old." * tail for i in range(count)]
    prompt, tokens = sent(template, limit, docs=docs)
    assert tokens <= limit
    assert "Room 7 has 8 windows." in prompt
    framed = max(COUNTER.count(frame.replace("{{d}}", doc).replace("{{loop.index}}", "99")) for doc in docs)
    rooms = re.findall(r"Room (\d+) ", prompt)
    # What is around a text is priced as the mean, rounded up: at most a token too much for each.
    assert len(rooms) == count or tokens > limit - 2 * framed - len(rooms)
    if "loop.index" in frame:
        assert [int(n) for n in re.findall(r"(?:id='|Text )(\d+)", prompt)] == list(range(1, len(rooms) + 1))


@draws()
@given(limit=st.integers(60, 400), mark=st.sampled_from(["'", '"', "\n", "é", "\t"]))
def test_a_text_in_a_list_is_cut_until_it_fits(limit: int, mark: str) -> None:
    """Where a template writes a list as Python does, with quotes and escapes, the prompt keeps to the limit as well."""
    text = "\n".join(f"Room {i} has {i + 1} windows.{mark} It is old. It is wide." for i in range(40))
    prompt, tokens = sent(PromptTemplate("Facts: {context_str}\nQ: {query_str}"), limit, context_str=[text])
    assert tokens <= limit
    assert "Room 7 has 8 windows" in prompt


@pytest.mark.parametrize("limit", [120, 200, 300, 400])
@pytest.mark.parametrize("facts", ["Room 7 has 8 windows.", "Room 7 has 8 windows. " + "Cats sleep. " * 200])
def test_old_messages_of_a_template_give_way_to_facts(limit: int, facts: str) -> None:
    """They are cut later, so until then they take at most half of the room."""
    old = [say(("user", "assistant")[i % 2], f"old {i} " * 5) for i in range(20)]
    template = ChatPromptTemplate(
        message_templates=[say("system", "Facts: {context_str}"), *old, say("user", "{query_str}")]
    )
    prompt, tokens = sent(template, limit, context_str=facts)
    assert tokens <= limit
    assert "Room 7 has 8 windows." in prompt
    assert QUESTION in prompt
    assert "old 19" in prompt


@pytest.mark.parametrize("chat", [True, False])
@draws()
@given(
    host=st.integers(0, 199), customer=st.integers(0, 119), limit=st.integers(300, 1600), first=st.booleans()
)
def test_long_variables_compete_by_the_question(
    chat: bool, host: int, customer: int, limit: int, first: bool
) -> None:
    """What the question names stays, whichever variable has it; a short one, as a rule, stays whole."""
    log = "\n".join(f"host-{i} status OK latency {i * 3}ms and all is fine today" for i in range(200))
    notes = "\n".join(f"Note {i}: customer {i} asked about invoice {1000 + i}." for i in range(120))
    template = PromptTemplate("{rule}\nLog:\n{log}\n\nNotes:\n{notes}\n\nQuestion: {query_str}\nAnswer:")
    asked = f"What latency did host-{host} have?" if first else f"What did customer {customer} ask about?"
    llm = budget_model(MockLLM(is_chat_model=chat), max_tokens=limit, counter="gpt-4o")
    prompt = str(llm.predict(template, rule="Be short.", log=log, notes=notes, query_str=asked))
    assert "Be short." in prompt
    assert (f"latency {host * 3}ms" if first else f"invoice {1000 + customer}.") in prompt


def test_a_template_that_fits_is_counted_once() -> None:
    """However many variables and old messages it has: once for its variables, once as the request that it becomes."""
    counter = RecordingCounter(counter_for("gpt-4o"))
    old = [say(("user", "assistant")[i % 2], f"old {i}") for i in range(40)]
    template = ChatPromptTemplate(
        message_templates=[say("system", "{a} {b} {c}"), *old, say("user", "{query_str}")]
    )
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=4000, counter=counter)
    llm.predict(template, a="one", b="two", c="three", query_str=QUESTION)
    assert 42 <= counter.messages <= 2 * 42


@pytest.mark.parametrize(
    "form", ["{notes}\nQuestion: {q}", "{q}\n\n{notes}", "How many windows has Room 77? {notes}"]
)
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("limit", [120, 400])
def test_a_question_is_found_whatever_it_is_called(form: str, chat: bool, limit: int) -> None:
    """Templates have names of their own, or ask in their own text; what is asked stays."""
    notes = "\n".join(f"Room {i} has {i + 3} windows." for i in range(300))
    llm = budget_model(MockLLM(is_chat_model=chat), max_tokens=limit, counter="gpt-4o")
    variables = {"q": "How many windows has Room 77?"} if "{q}" in form else {}
    prompt = str(llm.predict(PromptTemplate(f"Answer by these notes.\n{form}"), notes=notes, **variables))
    assert "Room 77 has 80 windows." in prompt


class Room(BaseModel):
    """A room."""

    windows: int


@pytest.mark.parametrize("limit", [800, 3000])
def test_a_schema_is_counted_as_ollama_is_sent_it(limit: int) -> None:
    """The long variable is shortened beside it, so that the request fits when it is sent."""
    asked: list[Any] = []

    class Client(Ollama):
        def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
            asked.append(messages)
            return ChatResponse(message=say("assistant", '{"windows": 10}'))

    llm = budget_model(Client(model="llama3.1", context_window=8000), max_tokens=limit, counter="gpt-4o")
    notes = "\n".join(f"Room {i} has {i + 3} windows." for i in range(900))
    template = PromptTemplate("Facts: {context_str}\nQ: {query_str}")
    found = llm.structured_predict(Room, template, context_str=notes, query_str=QUESTION)
    assert found == Room(windows=10)
    assert "Room 7 has 10 windows." in str(asked[-1][-1].content)


def _rows(data: str, **_: Any) -> str:
    """Reads a variable as a template's own function does: it needs all of it."""
    return ", ".join(row["n"] for row in json.loads(data))


PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = "{% chat role='user' %}{{ notes }}\n{{ value | image }}\n{{ query_str }}{% endchat %}"
NEEDED: list[tuple[Any, str, str]] = [
    (RichPromptTemplate(PICTURE), "http://x/y.png", "http://x/y.png"),
    (RichPromptTemplate(PICTURE), PIXEL, "iVBORw0KGgo"),
    (RichPromptTemplate(PICTURE.replace("value | image }}", "value | image if value }}")), PIXEL, "iVBORw0KGgo"),
    (
        PromptTemplate(
            "{notes}\\nRows: {rows}\\n{query_str}", function_mappings={"rows": lambda **k: _rows(k["value"])}
        ),
        json.dumps([{"n": f"K{i}"} for i in range(40)]),
        "K0, K1, K2, K3",
    ),
]  # fmt: skip
METHODS = ["predict", "stream", "structured_predict", "apredict", "astream", "astructured_predict"]


@pytest.mark.parametrize("method", METHODS)
@given(needed=st.sampled_from(NEEDED), count=st.integers(1, 300), limit=st.integers(60, 2500))
async def test_a_value_that_a_template_needs_whole_stays_whole(
    method: str, needed: tuple[Any, str, str], count: int, limit: int
) -> None:
    """A function or filter of a template is never called with less than it was given; other texts are shortened, or the error is typed."""
    template, value, shown = needed
    notes = "\n\n".join(f"Room {i} has {i + 1} windows." for i in range(count))
    made = ToolCallBlock(tool_call_id="a", tool_name="Room", tool_kwargs={"windows": 8})
    plain = PlayLLM(steps=[ChatMessage(role="assistant", blocks=[made])] if "structured" in method else [])
    llm = budget_model(plain, max_tokens=limit, counter="gpt-4o")
    before = [Room] if "structured" in method else []
    tokens = COUNTER.count_message(
        CODEC.to_dict(template.format_messages(notes="", value=value, query_str=QUESTION)[0])
    )
    try:
        answer = getattr(llm, method)(*before, template, notes=notes, value=value, query_str=QUESTION)
        answer = await answer if method.startswith("a") else answer
        if "stream" in method:
            _ = [part async for part in answer] if method.startswith("a") else list(answer)
    except RequestExceededError:
        assert limit < tokens + 150  # a schema's and the framing
        return
    (messages, _tools) = llm.requests[-1]
    prompt = str(messages[-1].model_dump(mode="json"))
    assert shown in prompt
    assert QUESTION in prompt
    assert COUNTER.count_messages([CODEC.to_dict(m) for m in messages]) <= limit


NOTE = "Part K17 was replaced in 1987 by Olga, and that is all that we know of it."
TASKS: list[Any] = [
    PromptTemplate("Extract the year from this note: {note}"),
    PromptTemplate("{note}"),
    ChatPromptTemplate([say("system", "Extract the year."), say("user", "{note}")]),
]


@given(
    template=st.sampled_from(TASKS),
    schema=st.integers(0, 60),
    limit=st.integers(40, 400),
    times=st.integers(1, 9),
)
def test_a_text_without_a_question_is_never_all_cut(
    template: Any, schema: int, limit: int, times: int
) -> None:
    """Where a schema leaves it no room, the error says so and blames no empty question; what is sent holds something of it."""
    told = create_model("Told", year=(int, Field(description="the long text of a schema " * schema)))
    made = ToolCallBlock(tool_call_id="a", tool_name="Told", tool_kwargs={"year": 1987})
    llm = budget_model(
        PlayLLM(steps=[ChatMessage(role="assistant", blocks=[made])]), max_tokens=limit, counter="gpt-4o"
    )
    note = "\n\n".join([f"{NOTE} Copy {i}." for i in range(times)])
    try:
        llm.structured_predict(told, template, note=note)
        said, needed = str(llm.requests[-1][0][-1].content), None
    except RequestExceededError as error:
        said, needed = str(error), error.needed
    if needed is None:
        assert re.search(r"Part|replaced|Olga|Copy", said)
    else:
        assert re.search(r"needs [\d,]+ tokens .*question \d", said)
        assert needed > limit


class _Schema(PlayLLM):
    """Answers each class with its fields; asked for one as a tool, an instruction or a completion."""

    way: str = "tool"
    holds: dict[str, str] = Field(default_factory=dict)

    @property
    def metadata(self) -> LLMMetadata:
        given: LLMMetadata = super().metadata
        chat, tool = self.way != "completion", self.way == "tool"
        return given.model_copy(update={"is_chat_model": chat, "is_function_calling_model": tool})

    def _play(self, messages: Any, tools: Any = ()) -> ChatResponse:
        self.answer = json.dumps(self.holds)
        if tools:
            made = ToolCallBlock(tool_call_id="c", tool_name="Made", tool_kwargs=self.holds)
            self.steps = [ChatMessage(role="assistant", blocks=[made])]
        return super()._play(messages, tools)


@draws(asynchronous=True)
@given(
    way=st.sampled_from(["tool", "instruction", "completion"]),
    fields=st.integers(1, 9),
    limit=st.integers(800, 1300),
    rule=st.sampled_from([None, "Be brief and kind. " * 9]),
    made=st.sampled_from(["as_structured_llm", "budget_model", "pickle"]),
    facts=st.integers(0, 90),
)
async def test_a_structured_llm_shortens_variables_beside_its_schema(
    way: str, fields: int, limit: int, rule: str | None, made: str, facts: int
) -> None:
    """As `structured_predict` does: no request is refused or too large, and the asked text stays; what fits is whole."""
    names = [f"a_rather_long_field_name_number_{i}" for i in range(fields)]
    output: Any = create_model("Made", **dict.fromkeys(names, (str, ...)))
    own = _Schema(requests=[], way=way, holds=dict.fromkeys(names, "tea"), window=9999, system_prompt=rule)
    if made == "budget_model":
        llm = budget_model(StructuredLLM(llm=own, output_cls=output, system_prompt=rule), max_tokens=limit)
    else:
        llm = budget_model(own, max_tokens=limit).as_structured_llm(output, system_prompt=rule)
    assert isinstance(llm, StructuredLLM)
    if made == "pickle":
        llm.output_cls = BaseModel  # a class of this function cannot be pickled
        llm = pickle.loads(pickle.dumps(llm))
        llm.output_cls = output
    text = "\n\n".join(f"Room {i} has {i + 1} windows. It is very old." for i in [*range(facts), 7])
    template, asked = PromptTemplate("Facts: {context_str}\nQ: {query_str}"), {"query_str": QUESTION}
    assert "tea" in llm.predict(template, context_str=text, **asked)
    assert "tea" in await llm.apredict(template, context_str=text, **asked)
    inner: Any = llm.llm
    for messages, schemas in inner.requests:
        said = "\n".join(str(m.content) for m in messages)
        assert COUNTER.count(said) <= limit
        assert "Room 7 has 8 windows." in said
        assert said.count("Room") >= min(facts, 3)
        assert bool(schemas) == (way == "tool")
