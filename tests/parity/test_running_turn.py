"""While tools run for a question, what they returned stays before older exchanges, through every door and with every cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, convert_to_messages, convert_to_openai_messages
from llama_index.core.async_utils import asyncio_run
from llama_index.core.llms import ChatMessage

import langchain_budget as lc
import llamaindex_budget as li
from rankbudget import Assembler, BudgetSession, TokenBudget, fit_messages
from rankbudget.testing import RecordingCounter, WordCounter
from tests.drawing import draws
from tests.llamaindex.entries import LLM
from tests.llamaindex.models import PlayLLM

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows
COUNTER = WordCounter()
Thread = list[dict[str, Any]]


def thread(talk: list[int], steps: list[int]) -> tuple[Thread, Thread]:
    """Returns a system message with old talk, and a running turn; so many words in each answer and result."""
    old: Thread = [{"role": "system", "content": "Be kind."}]
    for n, size in enumerate(talk):
        old.append({"role": "user", "content": f"hello{n}"})
        old.append({"role": "assistant", "content": f"talk{n} " + "w " * size})
    turn: Thread = [{"role": "user", "content": "which code"}]
    for n, size in enumerate(steps):
        function = {"name": "read", "arguments": json.dumps({"n": n})}
        call = {"id": f"c{n}", "type": "function", "function": function}
        turn.append({"role": "assistant", "content": "", "tool_calls": [call]})
        turn.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"result{n} " + "w " * size})
    return old, turn


def _fitted(cut: Any) -> Callable[[Thread, int], Thread]:
    return lambda given, limit: fit_messages(given, max_tokens=limit, counter=COUNTER, cut=cut).messages


def _in_session(given: Thread, limit: int) -> Thread:
    return BudgetSession(limit, counter=COUNTER).fit(given).messages


def _in_growing_session(given: Thread, limit: int) -> Thread:
    """The thread as an agent sends it, after each step once more."""
    session = BudgetSession(limit, counter=COUNTER)
    first = max(i for i, message in enumerate(given) if message["role"] == "user")
    for end in range(first + 1, len(given), 2):
        session.fit(given[:end])
    return session.fit(given).messages


def _with_summary(given: Thread, limit: int) -> Thread:
    session = BudgetSession(limit, counter=COUNTER, summarizer=lambda text, max_tokens: "They talked.")
    return session.fit(given).messages


def _uncapped(given: Thread, limit: int) -> Thread:
    return fit_messages(given, max_tokens=limit, counter=COUNTER, message_cap=None).messages


def _trimmed(given: Thread, limit: int) -> Thread:
    return _neutral(lc.BudgetTrimmer(max_tokens=limit, counter=COUNTER).invoke(convert_to_messages(given)))


def _hooked(given: Thread, limit: int) -> Thread:
    hook: Any = lc.pre_model_hook(max_tokens=limit, counter=COUNTER)
    return _neutral(hook.invoke({"messages": convert_to_messages(given)})["llm_input_messages"])


def _sent_by_langchain(given: Thread, limit: int) -> Thread:
    sent: list[Any] = []

    class Model(GenericFakeChatModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            sent[:] = messages
            return super()._generate(messages, *args, **kwargs)

    model = lc.budget_model(Model(messages=iter([AIMessage("Yes.")])), max_tokens=limit, counter=COUNTER)
    model.invoke(convert_to_messages(given))
    return _neutral(sent)


def _sent_by_llamaindex(given: Thread, limit: int) -> Thread:
    llm = PlayLLM(requests=[], window=10**9)
    li.budget_model(llm, max_tokens=limit, counter=COUNTER).chat(_chat(given))
    return _from_chat(llm.requests[-1][0])


def _sent_by_agent(given: Thread, limit: int) -> Thread:
    budget = {"context_window": limit, "reserve": 0, "max_system_ratio": None}
    agent = li.BudgetFunctionAgent(llm=LLM, tools=[], budget=budget, counter=COUNTER)
    return _from_chat(asyncio_run(agent.fit(_chat(given))))


def _remembered(given: Thread, limit: int) -> Thread:
    memory = li.BudgetChatMemoryBuffer.from_defaults(token_limit=limit, counter=COUNTER)
    memory.set(_chat(given))
    return _from_chat(memory.get())


def _neutral(messages: Any) -> Thread:
    found: Any = convert_to_openai_messages(messages)
    return list(found)


def _chat(given: Thread) -> list[ChatMessage]:
    return [
        ChatMessage(
            role=message["role"],
            content=message["content"],
            additional_kwargs={k: v for k, v in message.items() if k not in ("role", "content")},
        )
        for message in given
    ]


def _from_chat(messages: list[ChatMessage]) -> Thread:
    return [{"role": m.role.value, "content": m.content, **m.additional_kwargs} for m in messages]


DOORS: dict[str, Callable[[Thread, int], Thread]] = {
    "fit_messages": _fitted("fill"),
    "fit_messages, stable": _fitted("stable"),
    "BudgetSession": _in_session,
    "BudgetTrimmer": _trimmed,
    "pre_model_hook": _hooked,
    "LangChain's budget_model": _sent_by_langchain,
    "LlamaIndex's budget_model": _sent_by_llamaindex,
    "BudgetFunctionAgent": _sent_by_agent,
    "BudgetChatMemoryBuffer": _remembered,
}
MORE: dict[str, Callable[[Thread, int], Thread]] = {
    "growing session": _in_growing_session,
    "summarizer": _with_summary,
    "message_cap=None": _uncapped,
}
"""What leaves room on purpose, or shortens nothing."""
TALK = st.lists(st.integers(1, 300), min_size=1, max_size=6)
STEPS = st.lists(st.integers(16, 400), min_size=2, max_size=6)


@pytest.mark.parametrize("door", [*DOORS, *MORE])
@draws(cases=len([*DOORS, *MORE]))
@given(talk=TALK, steps=STEPS, share=st.floats(0, 1))
def test_a_running_turn_that_fits_stays_whole(
    door: str, talk: list[int], steps: list[int], share: float
) -> None:
    """At every limit from the system message and the turn up, each of its messages is there as it was."""
    old, turn = thread(talk, steps)
    least, most = COUNTER.count_messages([old[0], *turn]), COUNTER.count_messages([*old, *turn])
    limit = least + int(share * (most - least))
    kept = (DOORS | MORE)[door]([*old, *turn], limit)
    assert [m["content"] for m in kept][-len(turn) :] == [m["content"] for m in turn]
    assert COUNTER.count_messages(kept) <= limit


@draws()
@given(talk=TALK, steps=STEPS, documents=st.integers(1, 30), share=st.floats(2, 5), own=st.floats(0.1, 0.6))
def test_documents_give_way_to_a_running_turn(
    talk: list[int], steps: list[int], documents: int, share: float, own: float
) -> None:
    """In twice the room of the conversation all of the turn is there as it was, whatever the history's share."""
    old, turn = thread(talk, steps)
    limit = int(share * COUNTER.count_messages([*old, *turn]))
    blocks = {"history": [*old, *turn], "knowledge": [f"page{n} " + "w " * 60 for n in range(documents)]}
    ratios = {"history": own, "knowledge": 1 - own}
    budget = TokenBudget(context_window=limit, reserve=0, ratios=ratios, max_system_ratio=None)
    kept = Assembler(budget, counter=COUNTER).assemble(blocks).messages
    assert [m["content"] for m in turn if m not in kept] == []


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(talk=TALK, steps=STEPS, share=st.floats(0, 1))
def test_no_step_is_dropped_beside_room_for_it(
    door: str, talk: list[int], steps: list[int], share: float
) -> None:
    """At every limit below that, no dropped step fits into what is free, and older talk is dropped first."""
    old, turn = thread(talk, steps)
    last = {**turn[-1], "content": "w " * 30}
    least = COUNTER.count_messages([old[0], turn[0], turn[-2], last])
    limit = least + int(share * (COUNTER.count_messages([old[0], *turn]) - 1 - least))
    kept = DOORS[door]([*old, *turn], limit)
    free = limit - COUNTER.count_messages(kept)
    called = {message["tool_call_id"] for message in kept if message["role"] == "tool"}
    pairs = [turn[i : i + 2] for i in range(1, len(turn), 2)]
    dropped = [step for step in pairs if step[1]["tool_call_id"] not in called]
    alone = COUNTER.count_messages([turn[0]])
    assert [step for step in dropped if COUNTER.count_messages([turn[0], *step]) - alone <= free] == []
    assert [m["content"] for m in kept[:2]] == ["Be kind.", "which code"]


@draws()
@given(talk=TALK, steps=STEPS, share=st.floats(0, 1), more=st.integers(1, 300))
def test_a_larger_limit_keeps_no_less_of_a_running_turn(
    talk: list[int], steps: list[int], share: float, more: int
) -> None:
    """Where the turn begins to fit whole, where an exchange before it does, and everywhere between."""
    old, turn = thread(talk, steps)
    given, least = [*old, *turn], COUNTER.count_messages([old[0], turn[0], *turn[-2:]])
    limit = least + int(share * (COUNTER.count_messages(given) - least))
    small, large = (
        {message["content"].split(" ")[0] + str(message.get("tool_calls")) for message in kept}
        for kept in (DOORS["fit_messages"](given, limit), DOORS["fit_messages"](given, limit + more))
    )
    assert small <= large


@pytest.mark.parametrize("door", DOORS)
@draws(cases=len(DOORS))
@given(talk=TALK, sizes=st.tuples(st.integers(210, 400), st.integers(400, 900)), share=st.floats(0, 1))
def test_the_step_before_the_newest_has_a_quarter_of_the_room(
    door: str, talk: list[int], sizes: tuple[int, int], share: float
) -> None:
    """It is there with sixteen tokens of its result at every limit of which a quarter holds that, the rest the newest."""
    old, turn = thread(talk, list(sizes))
    short, newest = {**turn[2], "content": "w " * 20}, {**turn[4], "content": "w " * 200}
    needed = 5 * COUNTER.count_messages([turn[1], short]), 2 * COUNTER.count_messages([turn[3], newest])
    least = COUNTER.count_messages([old[0], turn[0]]) + max(needed)
    limit = least + int(share * (COUNTER.count_messages([old[0], *turn]) - 1 - least))
    kept = DOORS[door]([*old, *turn], limit)
    found = [m["content"] for m in kept if m.get("tool_call_id") == "c0"]
    assert len(found) == 1
    assert len(found[0].split()) >= 16


@pytest.mark.parametrize("size", [1_000, 10_000])
@pytest.mark.parametrize("cut", ["fill", "stable"])
def test_a_long_run_is_read_as_far_as_it_fits(size: int, cut: str) -> None:
    """Of a running turn of thousands of steps no more is counted than of one of a few hundred."""

    def read(steps: int) -> int:
        old, turn = thread([20], [80] * steps)
        counter = RecordingCounter(COUNTER)
        fit_messages([*old, *turn], max_tokens=4096, counter=counter, cut=cut)
        return counter.characters

    assert read(size) <= 1.2 * read(300)


# ---- beside a summary ------------------------------------------------------------------------------------
TOLD = "The town is LISBON."
SHORT_TURN = st.lists(st.integers(1, 900), min_size=1, max_size=6)


def _summed(text: str, max_tokens: int) -> str:
    return TOLD


def _with_session(session: BudgetSession, given: Thread, limit: int) -> Any:
    return session.fit(given)


def _call_with_session(session: BudgetSession, given: Thread, limit: int) -> Any:
    return fit_messages(given, max_tokens=limit, session=session, counter=COUNTER, summarizer=_summed)


def _assembled_with_session(session: BudgetSession, given: Thread, limit: int) -> Any:
    assembler = Assembler(limit, session=session, counter=COUNTER, summarizer=_summed)
    return assembler.assemble({"history": given})


@pytest.mark.parametrize("read", [_with_session, _call_with_session, _assembled_with_session])
@draws(asynchronous=True, cases=3)
@given(talk=st.integers(3, 8), steps=SHORT_TURN, later=SHORT_TURN, limit=st.integers(130, 1500))
def test_a_running_summary_stays_while_tools_run(
    read: Any, talk: int, steps: list[int], later: list[int], limit: int
) -> None:
    """It is in each request of a turn with results of any size, and whoever reads the request again gets the same."""
    old, turn = thread([limit // 3] * talk, steps)
    _, second = thread([], later)
    given: Thread = [*old, turn[0]]
    session = BudgetSession(limit, counter=COUNTER, summarizer=_summed)
    rest = [*turn[1:], {"role": "assistant", "content": "Done."}, *second]
    for message in [None, *rest]:
        given = given if message is None else [*given, message]
        if given[-1].get("tool_calls") or given[-1]["content"] == "Done.":
            continue
        first, again = (read(session, given, limit) for _ in range(2))
        assert first.messages == again.messages
        assert TOLD in str(first.messages)
        assert COUNTER.count_messages(first.messages) <= limit


@pytest.mark.parametrize("cut", ["fill", "stable"])
@draws(cases=2)
@given(talk=st.integers(3, 8), steps=SHORT_TURN, limit=st.integers(130, 1500))
def test_a_summary_stands_beside_a_turn_that_is_shortened(
    cut: Any, talk: int, steps: list[int], limit: int
) -> None:
    """Without a session, too; a turn that fits whole may leave it no room, and then a warning says so."""
    old, turn = thread([limit // 3] * talk, steps)
    found = fit_messages([*old, *turn], max_tokens=limit, counter=COUNTER, summarizer=_summed, cut=cut)
    left_out = [w for w in found.report.warnings if w.startswith("summary_")]
    assert (TOLD in str(found.messages)) != bool(left_out)
    whole = [m["content"] for m in found.messages][-len(turn) :] == [m["content"] for m in turn]
    assert whole or not left_out
