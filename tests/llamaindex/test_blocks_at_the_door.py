"""Memory blocks in a request that is too long are planned beside the conversation, as the core does with all parts known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage, CompletionResponse, ImageBlock
from llama_index.core.instrumentation import get_dispatcher  # type: ignore[attr-defined]  # not re-exported
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.tools import FunctionTool

from llamaindex_budget import (
    BudgetFunctionAgent,
    BudgetMemory,
    BudgetMemoryBlock,
    KnowledgeMemoryBlock,
    ProjectMemoryBlock,
    budget_model,
)
from llamaindex_budget._codec import CODEC
from rankbudget import Assembler, BudgetExceededError, TokenBudget
from rankbudget.testing import RecordingCounter
from tests.drawing import draws
from tests.llamaindex.models import CL100K, Heard, ListStore, PlayLLM, calls, result, say, tokens

QUESTION = "Who packs the order for the harbour?"
RULE = "You help the shop."
SLACK = 100
"""Tokens by which the forms of the two requests may differ: framing, tags, a template, what joined texts cost."""
pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")


def _text(number: int, size: int) -> str:
    """Returns a text of about `size` tokens; no two numbers give the same."""
    drawn = random.Random(number)
    crews = ["Ann", "Bob", "Dora", "Emil"]
    orders = [
        f"Order {drawn.randint(1, 999)} in note {number} is packed by {drawn.choice(crews)}."
        for _ in range(size // 16)
    ]
    return "\n".join([f"Note {number} is of the shop.", *orders])


class _Case:
    """One drawn chat: what an agent, its memory and the model say."""

    def __init__(self, drawn: random.Random, limit: int) -> None:
        self.limit = limit
        self.rule = f"{RULE} {_text(1, drawn.randint(0, limit // 5))}"
        sizes = [drawn.randint(10, limit // 6) for _ in range(drawn.randint(0, 3))]
        self.chat = [
            say(role, _text(100 + 2 * i + (role == "assistant"), size if role == "assistant" else 10))
            for i, size in enumerate(sizes)
            for role in ("user", "assistant")
        ]
        self.results = [_text(200 + i, drawn.randint(10, limit // 4)) for i in range(drawn.randint(0, 3))]
        size = drawn.randint(10, 150)
        self.documents = [_text(300 + i, size) for i in range(int(limit * drawn.uniform(0.3, 3)) // size)]
        self.project = drawn.choice(["", _text(299, limit // 20)])
        self.pictures = list[Any]()
        self.insert = drawn.choice(list(InsertMethod))
        self.agent: Any = drawn.choice([FunctionAgent, BudgetFunctionAgent])

    def conversation(self) -> list[ChatMessage]:
        made = [*self.chat, say("user", QUESTION)]
        for i, text in enumerate(self.results):
            made += [calls(f"c{i}"), result(f"c{i}", text)]
        return made

    def blocks(self) -> list[Any]:
        found: list[Any] = [KnowledgeMemoryBlock(read=lambda _: list(self.documents))]
        if self.pictures:
            found += [BudgetMemoryBlock(name="album", read=lambda _: [_text(298, 60), *self.pictures])]
        return [*found, ProjectMemoryBlock(text=self.project)] if self.project else found

    def memory(self, llm: Any) -> BudgetMemory:
        return BudgetMemory.from_defaults(
            llm=llm,
            memory_blocks=self.blocks(),
            insert_method=self.insert,
            chat_history=self.chat,
            chat_store=ListStore(),
        )

    async def sent(self, limit: int) -> list[ChatMessage]:
        """Returns the last request of an agent's run, within the limit like all before it."""
        steps = [calls(f"c{i}") for i in range(len(self.results))]
        played = PlayLLM(window=100_000, steps=steps)
        llm: Any = budget_model(played, max_tokens=limit, counter=CL100K)
        answers = iter(self.results)
        tool = FunctionTool.from_defaults(lambda q: next(answers), name="search", description="Searches.")
        agent = self.agent(llm=llm, tools=[tool], system_prompt=self.rule, streaming=False)
        await agent.run(user_msg=QUESTION, memory=self.memory(llm))
        assert len(played.requests) == len(steps) + 1
        assert max(played.sizes()) <= limit
        found: list[ChatMessage] = played.requests[-1][0]
        return found

    def kept_by_the_core(self, limit: int) -> set[str]:
        """Returns the texts of the conversation that the core keeps whole beside all other parts."""
        parts = {
            "system": self.rule,
            "history": [CODEC.to_dict(message) for message in self.conversation()],
            "project": self.project,
            "knowledge": self.documents,
        }
        budget = TokenBudget(context_window=limit + 100, reserve=100, safety=0, max_system_ratio=None)
        made = Assembler(budget, counter=CL100K).assemble(parts)
        return self.whole([str(message["content"]) for message in made.messages])

    def whole(self, sent: Sequence[str]) -> set[str]:
        """Returns the texts of the conversation that were sent whole."""
        texts = [str(m.content) for m in self.conversation() if m.content]
        return {text for text in texts if any(text in one for one in sent)}


@draws(asynchronous=True, cases=5)
@given(seed=st.integers(0, 10**6), limit=st.sampled_from([1000, 2000, 4000, 8000, 16_000]))
async def test_the_conversation_comes_before_lower_ranks(seed: int, limit: int) -> None:
    """What the core keeps whole of the last exchanges and the running turn beside system prompt and blocks, an agent's request has whole, too."""
    case = _Case(random.Random(seed), limit)
    sent = await case.sent(limit)
    assert case.kept_by_the_core(limit - SLACK) <= case.whole([str(m.content) for m in sent])


@draws(asynchronous=True, cases=5)
@given(
    seed=st.integers(0, 10**6),
    limit=st.sampled_from([1000, 2000, 4000]),
    pictures=st.integers(0, 2),
    more=st.floats(0.1, 2),
)
async def test_a_larger_limit_keeps_no_less_of_the_conversation(
    seed: int, limit: int, pictures: int, more: float
) -> None:
    """What is whole in a request of one limit is whole with a larger one, however much more the memory shows then, pictures between its texts or not."""
    case = _Case(random.Random(seed), limit)
    if limit > 1000:  # in less, pictures of a block and a long system prompt have no room
        case.pictures = [
            ImageBlock(url=f"https://example.org/{i}.png", detail="low") for i in range(pictures)
        ]
    small = case.whole([str(m.content) for m in await case.sent(limit)])
    sent = await case.sent(int(limit * (1 + more)))
    assert small <= case.whole([str(m.content) for m in sent])
    addresses = {str(b.url) for m in sent for b in m.blocks if isinstance(b, ImageBlock)}
    assert addresses <= {str(picture.url) for picture in case.pictures}


def _shown(limit: int, insert: InsertMethod) -> list[ChatMessage]:
    """Returns two exchanges with what a memory shows of 99 texts, which fill a limit."""
    memory = BudgetMemory.from_defaults(
        budget=TokenBudget(context_window=limit, reserve=0, safety=0, max_system_ratio=None),
        counter=CL100K,
        memory_blocks=[KnowledgeMemoryBlock(read=lambda _: [_text(300 + i, 60) for i in range(99)])],
        insert_method=insert,
        chat_history=[say(role, _text(i, limit // 12)) for i, role in enumerate(["user", "assistant"] * 2)],
        chat_store=ListStore(),
    )
    return memory.get(QUESTION)


@pytest.mark.parametrize("insert", list(InsertMethod))
def test_what_is_left_out_of_a_block_is_reported(insert: InsertMethod) -> None:
    """Callback and event say of each text of a block whether it was sent; without saying which limit would bring it back."""
    limit, told = 3000, list[Any]()
    heard = Heard()
    given_back = _shown(limit, insert)
    played = PlayLLM(window=100_000)
    llm = budget_model(played, max_tokens=limit, counter=CL100K, on_report=told.append)
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(heard)
    try:
        llm.chat([say("system", _text(1, limit // 6)), *given_back, say("user", QUESTION)])
    finally:
        dispatcher.event_handlers.remove(heard)
    [report], [event], [(sent, _)] = told, heard.reports, played.requests
    assert event is report
    assert report.total_tokens == tokens(sent) <= limit
    shown = "\n".join(str(m.content) for m in sent)
    before = "\n".join(str(m.content) for m in given_back)
    texts = {f"knowledge-{i}": f"ote {300 + i} is" for i in range(99)}
    offered = {name for name, text in texts.items() if text in before}
    found = {d.segment_id: d for d in report.decisions if d.block == "knowledge-block"}
    assert found.keys() == offered
    dropped = {name for name, decision in found.items() if decision.action == "trimmed"}
    assert dropped == {name for name in offered if texts[name] not in shown} != set()
    assert all(report.more_tokens(name) is None for name in dropped)
    assert "more tokens" not in report.explain(min(dropped))


@pytest.mark.parametrize("insert", list(InsertMethod))
def test_a_request_that_fits_is_counted_once(insert: InsertMethod) -> None:
    """Whether a request has memory blocks or the same texts without them, the door counts each message once."""
    given_back = _shown(2000, insert)
    request = [say("system", RULE), *given_back, say("user", QUESTION)]
    plain = [ChatMessage.model_validate_json(m.model_dump_json()) for m in request]
    for messages in (request, plain):
        counter, played = RecordingCounter(CL100K), PlayLLM(window=100_000)
        budget_model(played, max_tokens=4000, counter=counter).chat(messages)
        assert counter.messages == len(request)
        assert [m.content for m in played.requests[-1][0]] == [m.content for m in request]


class _Completes(PlayLLM):
    """Plays a completion model."""

    @property
    def metadata(self) -> Any:
        return super().metadata.model_copy(update={"is_chat_model": False})

    def complete(self, prompt: str, formatted: bool = False, **_: Any) -> CompletionResponse:
        self.requests.append(([say("user", prompt)], []))
        return CompletionResponse(text="done")


@pytest.mark.parametrize("insert", list(InsertMethod))
def test_a_prompt_that_is_one_text_gives_up_blocks_only(insert: InsertMethod) -> None:
    """In the text of a completion model the blocks are cut, all else stays; where that is not enough, the error says so."""
    given_back = _shown(2000, insert)
    told: list[Any] = []
    played = _Completes(window=100_000)
    llm = budget_model(played, max_tokens=1400, counter=CL100K, on_report=told.append)
    text = "\n\n".join([str(m.content) for m in given_back] + [QUESTION])
    assert CL100K.count(text) > 1400
    llm.complete(text)
    [([sent], _)] = played.requests
    assert CL100K.count(str(sent.content)) == told[-1].total_tokens <= 1400
    others = [str(m.content) for m in given_back if "<memory>" not in str(m.content)]
    assert len(others) >= 3
    assert all(other in str(sent.content) for other in [*others, QUESTION])
    assert any(d.action == "trimmed" for d in told[-1].decisions)
    small: Any = budget_model(played, max_tokens=100, counter=CL100K)
    with pytest.raises(BudgetExceededError, match="at most 100 tokens"):
        small.complete(text)


@pytest.mark.parametrize("agent", [FunctionAgent, BudgetFunctionAgent])
async def test_a_callback_is_told_what_any_agent_cuts(agent: Any) -> None:
    """Whether the agent or the bounded LLM cuts a request, `on_report` is told of each message that was cut."""
    told: list[Any] = []
    case = _Case(random.Random(5), 3000)
    case.agent, case.documents, case.project, case.chat = agent, [_text(300, 20)], "", []
    case.results = [_text(200, 1400), _text(201, 1400), _text(202, 1400)]
    steps, answers = [calls(f"c{i}") for i in range(3)], iter(case.results)
    played = PlayLLM(window=100_000, steps=steps)
    llm: Any = budget_model(played, max_tokens=3000, counter=CL100K, on_report=told.append)
    tool = FunctionTool.from_defaults(lambda q: next(answers), name="search", description="Searches.")
    made = agent(llm=llm, tools=[tool], system_prompt=RULE, streaming=False)
    await made.run(user_msg=QUESTION, memory=case.memory(llm))
    shortened = {d.before for report in told for d in report.decisions if d.action == "truncated"}
    assert {size for size in shortened if size > 1000}
