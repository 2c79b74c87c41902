"""Thinking of another model costs room only where the client of the model at hand sends it."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import MessagesPlaceholder
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from pydantic import ConfigDict, create_model

from langchain_budget import (
    BudgetChatPromptTemplate,
    BudgetMemory,
    BudgetMessageHistory,
    BudgetMiddleware,
    BudgetTrimmer,
    budget_model,
    pre_model_hook,
    trim_messages,
)
from langchain_budget._codec import CODEC, codec_for
from langchain_budget.models import client_of
from rankbudget import counter_for

WORDS = "I count rooms. "
LIMIT = 600
COUNTER = counter_for("o200k_base")


def _openai(**options: Any) -> BaseChatModel:
    return ChatOpenAI(model="gpt-4o", api_key="none", **options)


CLIENTS: dict[str, Callable[[], Any]] = {
    "openai": _openai,
    "responses": lambda: _openai(use_responses_api=True),
    "responses that store": lambda: _openai(use_responses_api=True, store=True),
    "responses without a store": lambda: _openai(use_responses_api=True, store=False),
    "responses by model_kwargs": lambda: _openai(use_responses_api=True, model_kwargs={"store": False}),
    "openai with reasoning": lambda: _openai(reasoning={"effort": "low"}),
    "openai with a bound search": lambda: _openai().bind(tools=[{"type": "web_search"}]),
    "anthropic": lambda: ChatAnthropic(model="claude-haiku-4-5", api_key="none"),
    "google": lambda: ChatGoogleGenerativeAI(model="gemini-2.5-flash", api_key="none"),
    "ollama": lambda: ChatOllama(model="llama3.2"),
}


def _inside(block: dict[str, Any], author: str = "", **metadata: Any) -> AIMessage:
    given = {"model_provider": author, **metadata} if author else metadata
    return AIMessage([block, {"type": "text", "text": "Yes."}], response_metadata=given)


def _shapes(words: str) -> dict[str, AIMessage]:
    """Returns an answer with its thinking in all the places where LangChain's integrations leave it."""
    item = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": words}]}
    text = {"type": "text", "text": "Yes."}
    claude = {"type": "thinking", "thinking": words, "signature": "c2ln"}
    plain = {"type": "reasoning", "reasoning": words}
    signed = {**plain, "extras": {"signature": "c2ln"}}
    return {
        "ollama": AIMessage("Yes.", additional_kwargs={"reasoning_content": words}),
        "ollama in both": AIMessage(
            [plain, text],
            additional_kwargs={"reasoning_content": words},
            response_metadata={"model_provider": "ollama", "output_version": "v1"},
        ),
        "older openai": AIMessage([text], additional_kwargs={"reasoning": item}),
        "openai": _inside(item, "openai"),
        "sealed openai": _inside({**item, "encrypted_content": "c2ln"}, "openai"),
        "claude": _inside(claude, "anthropic"),
        "new claude": _inside(signed, "anthropic", output_version="v1"),
        "gemini": _inside(claude, "google_genai"),
        "new gemini": _inside(signed, "google_genai"),
        "new ollama": _inside(plain, "ollama"),
        "unknown": _inside(plain),
        "unknown thinking": _inside({"type": "thinking", "thinking": words}),
    }


OLDER_VERSIONS_SEND: dict[str | None, tuple[str, ...]] = {
    "google": tuple(name for name in _shapes("") if name != "ollama"),
    "openai-reasoning": tuple(
        name for name in _shapes("") if name not in ("ollama", "claude", "gemini", "unknown thinking")
    ),
}


def _sent(client: Any, messages: list[BaseMessage]) -> str:
    """Returns what a client would send of messages; "" where it refuses them."""
    model, asked = getattr(client, "bound", client), getattr(client, "kwargs", {})
    names = ("_get_request_payload", "_chat_params", "_prepare_request")
    make = next(getattr(model, name) for name in names if hasattr(model, name))
    try:
        return str(make(messages, **asked))
    except (ValueError, KeyError):
        return ""


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("shape", _shapes(""))
@pytest.mark.parametrize("name", CLIENTS)
def test_what_each_client_sends_is_counted(name: str, shape: str) -> None:
    """All that the installed client puts into its request, and else only what an older version of it does."""
    client, message = CLIENTS[name](), _shapes(WORDS)[shape]
    assert pickle.loads(pickle.dumps(codec_for(client_of(client)))) is codec_for(client_of(client))
    sent = _sent(client, [HumanMessage("Is it free?"), copy.deepcopy(message), HumanMessage("And now?")])
    read = str(codec_for(client_of(client)).to_dict(message))
    if WORDS in sent:
        assert WORDS in read
        assert client_of(client) is None or read.count(WORDS) == 1
    elif sent and shape not in OLDER_VERSIONS_SEND.get(client_of(client), ()):
        assert WORDS not in read


def _said(words: str, shape: str) -> list[BaseMessage]:
    said: list[BaseMessage] = [HumanMessage("My booking code is HX-4471.")]
    for number in range(8):
        said += [_shapes(words)[shape], HumanMessage(f"Is room {number} free?")]
    return said


def _recording(client: Any) -> tuple[Any, list[list[BaseMessage]]]:
    """Returns a client of the same package that notes the messages it is given."""
    seen: list[list[BaseMessage]] = []

    def generate(self: Any, messages: Any, *args: Any, **options: Any) -> ChatResult:
        seen.append(list(messages))
        return ChatResult(generations=[ChatGeneration(message=AIMessage("Fine."))])

    kind = type(client)
    made = create_model(kind.__name__, __base__=kind, __module__=kind.__module__)
    made._generate = generate  # type: ignore[attr-defined, method-assign]  # of a chat model
    made.model_config = ConfigDict(**kind.model_config)
    twin = copy.copy(client)
    object.__setattr__(twin, "__class__", made)
    return twin, seen


def _of_agent(client: Any, said: list[BaseMessage]) -> list[BaseMessage]:
    model, seen = _recording(client)
    agent = create_agent(model, middleware=[BudgetMiddleware(max_tokens=LIMIT, counter=COUNTER)])
    agent.invoke({"messages": said})
    return seen[0]


def _of_model(client: Any, said: list[BaseMessage]) -> list[BaseMessage]:
    model, seen = _recording(client)
    budget_model(model, max_tokens=LIMIT, counter=COUNTER).invoke(said)
    return seen[0]


def _of_history(client: Any, said: list[BaseMessage]) -> list[BaseMessage]:
    history = BudgetMessageHistory(model=client, max_tokens=LIMIT, counter=COUNTER)
    history.add_messages(said[:-1])
    return copy.deepcopy(history).messages


def _of_memory(client: Any, said: list[BaseMessage]) -> list[BaseMessage]:
    memory = BudgetMemory(model=client, max_tokens=LIMIT, counter=COUNTER, return_messages=True)
    memory.chat_memory.add_messages(said[:-1])
    return list(memory.load_memory_variables({})["history"])


def _of_template(client: Any, said: list[BaseMessage]) -> list[BaseMessage]:
    prompt = BudgetChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), ("human", "{question}")], model=client, max_tokens=LIMIT
    )
    return prompt.invoke({"history": said[:-1], "question": said[-1].text}).to_messages()


DOORS: dict[str, Callable[[Any, list[BaseMessage]], Any]] = {
    "trimmer": lambda client, said: BudgetTrimmer(model=client, max_tokens=LIMIT).invoke(said),
    "trim_messages": lambda client, said: trim_messages(said, max_tokens=LIMIT, token_counter=client),
    "hook": lambda client, said: pre_model_hook(model=client, max_tokens=LIMIT).invoke({"messages": said})[
        "llm_input_messages"
    ],
    "agent": _of_agent,
    "model": _of_model,
    "history": _of_history,
    "memory": _of_memory,
    "template": _of_template,
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("shape", ["ollama", "claude", "openai", "new ollama"])
@pytest.mark.parametrize("door", DOORS)
def test_no_door_drops_messages_for_thinking_that_is_not_sent(door: str, shape: str) -> None:
    """OpenAI's chat client sends none of it: as many messages stay as without it, and each has its thinking."""
    kept = [DOORS[door](_openai(), _said(words, shape)) for words in (WORDS * 60, "")]
    assert [m.text for m in kept[0]] == [m.text for m in kept[1]]
    assert "HX-4471" in str(kept[0])
    assert WORDS in str(kept[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("door", DOORS)
def test_thinking_that_is_sent_is_counted_at_every_door(door: str) -> None:
    """Ollama's client sends back what its models thought, so older messages make room for it."""
    kept = DOORS[door](CLIENTS["ollama"](), _said(WORDS * 60, "ollama"))
    assert "HX-4471" not in str(kept)
    assert sum([COUNTER.count_message(CODEC.to_dict(m)) for m in kept]) <= LIMIT


@given(thinking=st.integers(0, 80), limit=st.integers(60, 2000), shape=st.sampled_from(list(_shapes(""))))
def test_no_client_is_sent_more_than_the_limit(thinking: int, limit: int, shape: str) -> None:
    """Whatever the model is, its request with all that it sends of the thinking is within the limit."""
    for name in ("openai", "responses", "anthropic", "google"):
        client = CLIENTS[name]()
        kept = BudgetTrimmer(model=client, max_tokens=limit, counter=COUNTER).invoke(
            _said(WORDS * thinking, shape)
        )
        sent = _sent(client, copy.deepcopy(kept))
        read = [codec_for(client_of(client)).to_dict(m) for m in kept]
        assert COUNTER.count_messages(read) <= limit
        assert sent.count(WORDS) <= str(read).count(WORDS)


@pytest.mark.parametrize("how", ["none", "name", "fallback", "own class"])
def test_thinking_counts_where_the_client_is_unknown(how: str) -> None:
    """No model, a name, a fallback that may send it and a class of the user's own: all of it may be sent."""

    class Gateway(ChatOpenAI):
        """May pass reasoning on."""

    options: dict[str, Any] = {
        "none": {},
        "name": {"model": "gpt-4o"},
        "fallback": {"model": _openai().with_fallbacks([CLIENTS["ollama"]()])},
        "own class": {"model": Gateway(model="gpt-4o", api_key="none")},
    }[how]
    kept = BudgetTrimmer(max_tokens=LIMIT, counter=COUNTER, **options).invoke(_said(WORDS * 60, "ollama"))
    assert "HX-4471" not in str(kept)
