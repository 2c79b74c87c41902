"""What stays of a sequence that is given anew: in order, and untouched in a database."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from llama_index.core.base.llms.types import ChatMessage

from langchain_budget import StoredMessageHistory
from llamaindex_budget import StoredChatStore
from rankbudget import Scope
from rankbudget.memory import HistoryStore
from rankbudget.memory.matching import matched
from tests.drawing import draws

ANN = Scope(user="ann")
ITEMS = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@draws()
@given(old=ITEMS, new=ITEMS)
def test_what_stayed_is_equal_and_in_order(old: list[str], new: list[str]) -> None:
    """No item is matched twice, and those that both lists begin or end with all stayed."""
    stayed = matched(old, new)
    assert [old[o] for o in stayed.values()] == [new[n] for n in stayed]
    assert [stayed[n] for n in sorted(stayed)] == sorted({*stayed.values()})
    assert matched(old, old) == dict(enumerate([*range(len(old))]))


@draws()
@given(size=st.integers(0, 40), data=st.data())
def test_all_that_was_not_changed_stayed(size: int, data: Any) -> None:
    """Items that are told apart stay, whatever is removed and added among them."""
    old, new, wanted = list(range(size)), [], 0
    for item in old:
        kind = data.draw(st.sampled_from(("kept", "removed", "changed", "new before")))
        new += [-item - 1] if kind in ("changed", "new before") else []
        new += [item] if kind in ("kept", "new before") else []
        wanted += kind in ("kept", "new before")
    assert len(matched(old, new)) == wanted


def said(number: int) -> list[BaseMessage]:
    """Returns an exchange with what only LangChain has a place for."""
    call = {"name": "look", "args": {"at": number}, "id": f"c{number}"}
    usage: Any = {"input_tokens": number, "output_tokens": 1, "total_tokens": number + 1}
    thinking = [
        {"type": "thinking", "thinking": f"hm {number}", "signature": "s"},
        {"type": "text", "text": "ok"},
    ]
    return [
        HumanMessage(f"question {number}", id=f"q{number}"),
        AIMessage("", tool_calls=[call], id=f"a{number}"),
        ToolMessage("none", tool_call_id=f"c{number}", status="error", artifact=[number], id=f"t{number}"),
        AIMessage(thinking, usage_metadata=usage, id=f"e{number}"),
    ]


@draws(cases=4)
@pytest.mark.parametrize("way", ["window", "edit first", "edit some", "summary first"])
@given(turns=st.integers(2, 5), data=st.data())
def test_another_host_leaves_what_it_does_not_change(way: str, turns: int, data: Any) -> None:
    """LlamaIndex sets the messages that it read, with others among them; LangChain reads its own as they were."""
    store = HistoryStore(":memory:")
    history = StoredMessageHistory(store, "t", scope=ANN)
    history.add_messages([message for number in range(turns) for message in said(number)])
    before = history.messages
    chats = StoredChatStore(store=store, user="ann")
    read = chats.get_messages("t")
    places = range(0, len(read), 4)
    changed = (
        {0}
        if way == "edit first"
        else data.draw(st.sets(st.sampled_from(places)))
        if way == "edit some"
        else ()
    )
    start = 4 if way == "window" else 0
    made = [ChatMessage("[redacted]") if i in changed else m for i, m in enumerate(read)][start:]
    first = [ChatMessage("So far: hello.")] if way == "summary first" else []
    chats.set_messages("t", [*first, *made, ChatMessage("And now?")])
    after = history.messages
    assert len(after) == len(first) + len(made) + 1
    for old, new in zip(before[start:], after[len(first) : -1], strict=True):
        assert new == old or new.content == "[redacted]"
    assert [new.content for new in after].count("[redacted]") == len(changed)
    store.close()
