"""`budget_model`: the LLM itself, whose requests are counted in their final form, fitted, or refused before anything is sent."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.llms.llm import LLM
from llama_index.core.llms.mock import (
    MockFunctionCallingLLM,
    MockFunctionCallingLLMWithChatMemoryOfLastCall,
)
from llama_index.core.llms.structured_llm import StructuredLLM
from llama_index.core.prompts import PromptTemplate
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai import OpenAI, OpenAIResponses
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, Field, create_model

from llamaindex_budget import BudgetPromptHelper, budget_model
from llamaindex_budget._request import FixedPrompt, StepCodec
from rankbudget import BudgetExceededError, TokenBudget
from rankbudget.errors import MessageError
from rankbudget.testing.server import Reply, StrictModelServer
from tests.llamaindex.models import PlayLLM, calls, exchanges, nodes, result, say, strict_llm, words

WINDOW, REPLY = 1000, 200
SHORTENS = TokenBudget(context_window=WINDOW, reserve=REPLY, shorten_question=True)
LONG = [say("system", "RULE"), *exchanges(60), say("user", "and now?")]
TOOL = FunctionTool.from_defaults(lambda q: q, name="search", description=words(90, "archive"))


class Answer(BaseModel):
    """What was found."""

    facts: list[str] = Field(default_factory=list, description=words(150, "fact"))


ANSWER = Reply(text="", tool_calls=[("Answer", {"facts": ["tea"]})])


@pytest.fixture
def server() -> Iterator[StrictModelServer]:
    """Serves one window for prompt and answer together."""
    with StrictModelServer(default=Reply(text="The answer."), context_window=WINDOW) as running:
        yield running


def _like(server: StrictModelServer | None = None, **fields: Any) -> OpenAILike:
    place = "http://127.0.0.1:9/v1" if server is None else server.base_url
    return strict_llm(place, **{"context_window": WINDOW, "max_tokens": REPLY, **fields})


def _bounded(server: StrictModelServer | None = None, **fields: Any) -> OpenAILike:
    return budget_model(_like(server, **fields), counter="o200k_base")


def _accepted(server: StrictModelServer, requests: int = 1) -> None:
    assert [r.problems for r in server.requests if r.problems] == []
    assert len(server.requests) == requests


# ---------------------------------------------------------------- the model itself
@pytest.mark.parametrize(
    "llm",
    [
        OpenAI("gpt-4o", api_key="none", additional_kwargs={"user": "me"}),
        OpenAILike(model="strict", api_key="none", is_chat_model=True),
        OpenAIResponses("gpt-4o", api_key="none"),
        MockLLM(is_chat_model=True),
        MockFunctionCallingLLM(is_chat_model=True),
        PlayLLM(requests=[]),
    ],
    ids=lambda llm: type(llm).__name__,
)
def test_it_is_the_model(llm: LLM) -> None:
    """It is of the model's own class, shares its fields, writes the same data, and survives copies and pickles with its limit."""
    made = budget_model(llm, max_tokens=100)
    assert isinstance(made, type(llm))
    assert made.to_dict() == llm.to_dict()
    assert made.class_name() == llm.class_name()
    assert type(made).__name__ == type(llm).__name__
    assert made.callback_manager is llm.callback_manager
    assert all(getattr(made, name) is getattr(llm, name) for name in type(llm).model_fields)
    own, seen = llm.metadata, made.metadata
    assert seen.model_copy(update={"context_window": own.context_window}) == own
    assert seen.context_window < own.context_window
    loaded = [copy.copy(made), made.model_copy(), pickle.loads(pickle.dumps(made))]
    if not isinstance(llm, OpenAIResponses):  # its clients cannot be copied, the model's own copy fails too
        loaded.append(copy.deepcopy(made))
    for other in loaded:
        assert type(other) is type(made)
        assert other.metadata == seen


def test_the_given_model_is_unchanged() -> None:
    """The model that was given has its own window and sends what it is given; a change of the made one does not reach it."""
    llm = PlayLLM(requests=[], window=WINDOW)
    made = budget_model(llm)
    made.callback_manager = CallbackManager([])
    assert made.callback_manager is not llm.callback_manager
    assert type(llm) is PlayLLM
    llm.chat(LONG)
    assert len(llm.requests[-1][0]) == len(LONG)


async def test_an_empty_request_is_refused_before_it_is_sent() -> None:
    """No provider answers one."""
    made = budget_model(PlayLLM(requests=[]))
    with pytest.raises(MessageError, match="must hold a message"):
        made.chat([])
    with pytest.raises(MessageError, match="must hold a message"):
        await made.achat([])
    assert made.requests == []


def test_a_model_bounded_twice_keeps_to_the_smaller_limit() -> None:
    """Bounded again, the smaller of both limits holds; its class stays the same."""
    for first, second in ((50, 500), (500, 50)):
        once = budget_model(PlayLLM(requests=[]), max_tokens=first)
        twice = budget_model(once, max_tokens=second)
        assert type(once) is type(twice)
        twice.chat(LONG)
        assert twice.sizes()[-1] <= 50


def test_spans_are_the_models_own() -> None:
    """A call opens as many spans as a call of the model, under the same names."""
    names = []
    for made in (PlayLLM(requests=[]), budget_model(PlayLLM(requests=[]))):
        spans = SimpleSpanHandler()
        get_dispatcher().add_span_handler(spans)
        made.chat([say("user", "hi")])
        get_dispatcher().span_handlers.remove(spans)
        names.append([span.id_.partition("-")[0] for span in spans.completed_spans])
    assert names[0] == names[1] == ["PlayLLM.chat"]


# ---------------------------------------------------------------- what passes, what is fitted, what is refused
def test_what_fits_is_sent_as_it_is() -> None:
    """The LLM gets the very sequence with the very messages; tool calls and their results included."""
    llm = budget_model(MockFunctionCallingLLMWithChatMemoryOfLastCall(is_chat_model=True))
    sent = [say("system", "RULE"), say("user", "q"), calls("c1"), result("c1", "r")]
    llm.chat(sent)
    assert llm.last_chat_messages is sent


def test_what_does_not_fit_is_fitted_with_the_same_objects() -> None:
    """System message and newest turns stay, the same objects; the report tells why the others went."""
    reports: list[Any] = []
    llm = budget_model(
        MockFunctionCallingLLMWithChatMemoryOfLastCall(is_chat_model=True),
        max_tokens=500,
        on_report=reports.append,
    )
    llm.chat(LONG)
    sent = llm.last_chat_messages or []
    assert sent[0] is LONG[0]
    assert list(sent[1:]) == LONG[-len(sent) + 1 :]
    assert all(any(m is given for given in LONG) for m in sent)
    assert reports[0].total_tokens <= 500
    assert {d.reason for d in reports[0].decisions} == {"fits", "pinned", "older_than_cut"}


async def _everything(llm: Any) -> None:
    llm.chat(LONG)
    list(llm.stream_chat(LONG))
    await llm.achat(LONG)
    [part async for part in await llm.astream_chat(LONG)]
    llm.chat_with_tools([TOOL], user_msg="and now?", chat_history=LONG[:-1])
    list(llm.stream_chat_with_tools([TOOL], chat_history=list(LONG)))
    await llm.achat_with_tools([TOOL], chat_history=list(LONG))
    [part async for part in await llm.astream_chat_with_tools([TOOL], chat_history=list(LONG))]
    llm.chat(LONG, tools=[TOOL.metadata.to_openai_tool()])
    llm.predict(PromptTemplate("{text}"), text=words(2000))
    await llm.apredict(PromptTemplate("{text}"), text=words(2000))
    llm.complete(words(2000))
    await llm.acomplete(words(2000))
    list(llm.stream_complete(words(2000)))
    [part async for part in await llm.astream_complete(words(2000))]


async def test_every_way_to_ask_over_http(server: StrictModelServer) -> None:
    """Blocking, streaming and async, with and without tools, by messages, template or prompt: no request is refused."""
    reports: list[Any] = []
    llm = _like(server, system_prompt=words(100))
    await _everything(budget_model(llm, SHORTENS, counter="o200k_base", on_report=reports.append))
    _accepted(server, 15)
    assert len(reports) == 17  # each request is fitted once, and the variables of two templates
    assert [len(r.body.get("tools") or ()) for r in server.requests] == [0] * 4 + [1] * 5 + [0] * 6
    assert min(r.prompt_tokens for r in server.requests) > 300


async def test_a_model_that_sends_requests_with_tools_itself() -> None:
    """Where a class wrote `achat_with_tools` itself, past `chat`, its requests fit as well, schemas included."""
    llm = budget_model(PlayLLM(requests=[], window=WINDOW, reply=REPLY))
    await llm.achat_with_tools([TOOL], user_msg="and now?", chat_history=LONG[:-1])
    [part async for part in await llm.astream_chat_with_tools([TOOL], chat_history=LONG)]
    assert len(llm.requests) == 2
    assert max(llm.sizes()) <= WINDOW - REPLY
    assert all(messages[-1].content == "and now?" for messages, _ in llm.requests)


@pytest.mark.parametrize("native", [False, True])
async def test_structured_answers(server: StrictModelServer, native: bool) -> None:
    """The schema of an output class is counted, whether it is sent as a tool or as a response format."""
    llm = budget_model(_like(server, should_use_structured_outputs=native), SHORTENS, counter="o200k_base")
    answer = Reply(text='{"facts": ["tea"]}') if native else ANSWER
    server.script(*[answer] * 4)
    whole = budget_model(
        _like(server, should_use_structured_outputs=native).as_structured_llm(Answer),
        SHORTENS,
        counter="o200k_base",
    )
    prompt = PromptTemplate("{text}")
    assert llm.structured_predict(Answer, prompt, text=words(2000)).facts == ["tea"]
    assert (await llm.astructured_predict(Answer, prompt, text=words(2000))).facts == ["tea"]
    assert llm.as_structured_llm(Answer).chat(LONG).raw.facts == ["tea"]
    assert (await whole.achat(LONG)).raw.facts
    schema = 150
    assert max(r.prompt_tokens + (schema if native else 0) for r in server.requests) <= WINDOW - REPLY
    _accepted(server, 4)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("fields", [1, 6, 12])
@pytest.mark.parametrize("way", ["compact", "tree_summarize", "simple_summarize", "stream"])
async def test_nodes_fit_beside_the_schema_of_an_answer(
    server: StrictModelServer, native: bool, fields: int, way: str
) -> None:
    """The helper sees no `output_cls`: the nodes are shortened beside its schema, nothing is refused."""
    names = [f"a_rather_long_field_name_number_{i}" for i in range(fields)]
    made: Any = create_model("Made", **dict.fromkeys(names, (str, ...)))
    values = dict.fromkeys(names, "tea")
    server.default = (
        Reply(text=json.dumps(values)) if native else Reply(text="", tool_calls=[("Made", values)])
    )
    llm = _bounded(server, should_use_structured_outputs=native)
    helper = BudgetPromptHelper.from_llm_metadata(llm.metadata)
    given = [f"Fact {i}. " + "Some words here. " * 30 for i in range(9)]
    if way == "stream":
        prompt = PromptTemplate("Use {context_str} for {query_str}")
        asked: dict[str, Any] = {"context_str": "\n\n".join(given), "query_str": "What is it?"}
        assert list(llm.stream_structured_predict(made, prompt, **asked))
        assert [part async for part in await llm.astream_structured_predict(made, prompt, **asked)]
    else:
        synthesizer = get_response_synthesizer(
            llm=llm, prompt_helper=helper, response_mode=ResponseMode(way), output_cls=made
        )
        synthesizer.get_response("What is it?", given)
        await synthesizer.aget_response("What is it?", given)
    _accepted(server, 2)


class _Talkative(PlayLLM):
    """Adds messages of its own to each request."""

    def chat(self, messages: Any, **kwargs: Any) -> Any:
        asked = [*messages[:-1], *exchanges(60), messages[-1]]
        return self.chat(asked) if len(messages) == 2 else super().chat(messages)


def test_what_a_model_adds_on_its_way_is_fitted() -> None:
    """A method that calls another with a larger request does not slip past the limit."""
    llm = budget_model(_Talkative(requests=[], window=WINDOW, reply=REPLY))
    llm.chat([say("system", "RULE"), say("user", "and now?")])
    [size] = llm.sizes()
    assert WINDOW / 3 < size <= WINDOW - REPLY


class _Direct(PlayLLM):
    """Sends a structured request past `chat`, as `OpenAIResponses` does."""

    def structured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **arguments: Any
    ) -> Any:
        return self._play(prompt.format_messages(**arguments))

    async def astructured_predict(
        self, output_cls: Any, prompt: Any, llm_kwargs: Any = None, **arguments: Any
    ) -> Any:
        return self._play(prompt.format_messages(**arguments))


async def test_structured_requests_past_chat() -> None:
    """They are fitted beside the schema and the system prompt; a brace in what is kept is no template."""
    llm = budget_model(_Direct(requests=[], window=WINDOW, reply=REPLY), SHORTENS)
    prompt = PromptTemplate("{text} {{x}}")
    llm.structured_predict(Answer, prompt, text=words(2000))
    await llm.astructured_predict(Answer, prompt, text=words(2000))
    assert max(llm.sizes()) <= WINDOW - REPLY - 150
    assert all((messages[0].content or "").endswith("word {{x}}") for messages, _ in llm.requests)
    assert FixedPrompt([say("user", "{x}")]).format_messages()[0].content == "{x}"


def test_a_structured_model_is_bounded_inside() -> None:
    """Of a `StructuredLLM` the LLM inside is bounded, which sees the schema."""
    made = budget_model(StructuredLLM(llm=MockLLM(), output_cls=Answer), max_tokens=100)
    assert isinstance(made, StructuredLLM)
    assert made.output_cls is Answer
    assert made.llm.request_limit == 100


async def test_what_cannot_fit_raises_before_anything_is_sent(server: StrictModelServer) -> None:
    """A system message larger than the window, on every path: a typed error with numbers, and no request."""
    llm = _bounded(server)
    messages = [say("system", words(2000)), say("user", "hi")]
    for ask in (llm.chat, llm.stream_chat):
        with pytest.raises(BudgetExceededError) as caught:
            ask(messages)
        assert caught.value.limit == WINDOW - REPLY
    for aask in (llm.achat, llm.astream_chat):
        with pytest.raises(BudgetExceededError):
            await aask(messages)
    with pytest.raises(BudgetExceededError):
        await llm.achat_with_tools([TOOL] * 9, user_msg="hi")
    assert server.requests == []


# ---------------------------------------------------------------- agents that write results as text
def test_steps_written_as_text_do_not_take_the_place_of_the_question() -> None:
    """The question of a ReAct run stays; old steps go first, and a step keeps its result."""
    steps = [
        m
        for i in range(8)
        for m in (
            say("assistant", f"Thought: I look.\nAction: search {i}"),
            say("user", f"Observation: {i} {words(300)}"),
        )
    ]
    llm = budget_model(PlayLLM(requests=[], window=WINDOW, reply=REPLY))
    llm.chat([say("system", "RULE"), say("user", "what is in the archive?"), *steps])
    [(sent, _)] = llm.requests
    texts = [m.content or "" for m in sent]
    assert texts[1] == "what is in the archive?"
    assert [m.role.value for m in sent] == ["system", "user", *["assistant", "user"] * ((len(sent) - 2) // 2)]
    assert texts[-1].startswith("Observation: 7")
    assert StepCodec(steps).roles(steps[:2]) == ["assistant", "tool"]


def test_a_user_who_writes_observation_is_a_user() -> None:
    """Without a step before it the text is a question."""
    asked = [say("user", "Observation: it rains"), say("assistant", "indeed")]
    assert StepCodec(asked).roles(asked) == ["user", "assistant"]


def test_nodes_of_a_template_are_shortened_never_its_question() -> None:
    """Of a template the longest variable but the question is shortened; a question that does not fit is refused."""
    llm = budget_model(PlayLLM(requests=[], window=WINDOW, reply=REPLY))
    template = PromptTemplate("Facts: {facts}\nQuestion: {query_str}")
    llm.predict(template, facts="\n".join(n.text for n in nodes(9)), query_str="What does item 305 weigh?")
    sent = str(llm.requests[0][0][0].content)
    assert sent.endswith("Question: What does item 305 weigh?")
    assert "item 305 weighs" in sent
    with pytest.raises(BudgetExceededError, match="shorten_question=True"):
        llm.predict(template, facts="none", query_str=words(2000))
    assert len(llm.requests) == 1
