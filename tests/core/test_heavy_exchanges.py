"""What nothing can shorten, as photos and long arguments of calls, keeps nothing else out of a prompt."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rankbudget import BudgetSession, counter_for, fit_messages

COUNTER = "gpt-4o"
PHOTO = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "detail": "high"}}

WEIGHT = counter_for(COUNTER).count_messages([{"role": "user", "content": [PHOTO]}])


def exchange(n: int, heavy: str) -> list[dict[str, Any]]:
    """A question and its answer; a heavy one has photos or a call with a long argument."""
    asked: Any = f"question {n} about pipes"
    if heavy == "photos":
        asked = [{"type": "text", "text": asked}, PHOTO]
    steps: list[dict[str, Any]] = []
    if heavy == "call":
        arguments = json.dumps({"content": f"line {n} " * 400})
        call = {"id": f"c{n}", "type": "function", "function": {"name": "write", "arguments": arguments}}
        steps = [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{n}", "content": "written"},
        ]
    return [{"role": "user", "content": asked}, *steps, {"role": "assistant", "content": f"answer {n}"}]


@st.composite
def chats(draw: st.DrawFn, light: int = 3) -> tuple[list[dict[str, Any]], set[int]]:
    """A chat of up to twenty exchanges, and which of them are heavy; the last ones may be `light`."""
    size = draw(st.integers(5, 20))
    places = st.integers(0, size - 1 - light)
    heavy = draw(st.dictionaries(places, st.sampled_from(["photos", "call"]), max_size=4))
    chat = [message for n in range(size) for message in exchange(n, heavy.get(n, ""))]
    return [*chat, {"role": "user", "content": "And now?"}], set(heavy)


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [m["content"] for m in messages if isinstance(m["content"], str)]


@given(chats())
def test_light_exchanges_stay_whatever_heavy_ones_are_between_them(case) -> None:
    """Where all light exchanges fit, each of them is in the prompt, in `fill` and in a new session."""
    chat, heavy = case
    size = (sum(m["role"] == "user" for m in chat)) - 1
    light = {f"answer {n}" for n in range(size) if n not in heavy}
    with_call = {n for n in heavy if any(f"c{n}" in str(m) for m in chat)}  # without its step it is light
    alone = [m for n in range(size) if n not in heavy - with_call for m in exchange(n, "")]
    room = fit_messages([*alone, chat[-1]], max_tokens=100_000, counter=COUNTER).report.total_tokens
    for kept in (
        fit_messages(chat, max_tokens=room, counter=COUNTER).messages,
        BudgetSession(room, counter=COUNTER).fit(chat).messages,
    ):
        assert light <= set(texts(kept))


@given(chats(light=0), st.integers(30, 3_000), st.sampled_from([1, 7, 100, 800]))
def test_a_larger_limit_keeps_no_less_with_heavy_exchanges(case, limit: int, more: int) -> None:
    """What is kept is kept at every larger limit: a heavy exchange has its place in one order."""
    chat, _ = case
    small = fit_messages(chat, max_tokens=limit, counter=COUNTER).messages
    large = fit_messages(chat, max_tokens=limit + more, counter=COUNTER).messages
    ids = {id(m) for m in large}
    assert [m for m in small if any(m is one for one in chat) and id(m) not in ids] == []


@given(
    st.integers(3, 20),
    st.sets(st.integers(0, 1), min_size=1),
    st.floats(0, 1),
    st.sampled_from(["", "stable", "session", "apart"]),
)
def test_heavy_last_exchanges_leave_the_others_and_older_texts(size, back, share, way) -> None:
    """Photos one or two exchanges back that have no room keep out no light one of the last three, and a few older texts stay."""
    heavy = {size - 1 - n for n in back}
    chat = [m for n in range(size) for m in exchange(n, "photos" if n in heavy else "")]
    asked = {"role": "user", "content": "And now?"}
    lasting = [m for n in range(max(0, size - 8), size) if n not in heavy for m in exchange(n, "")]
    least = fit_messages([*lasting, asked], max_tokens=100_000, counter=COUNTER).report.total_tokens
    limit = least + int(share * (WEIGHT - least))
    kept = {
        "": lambda: fit_messages([*chat, asked], max_tokens=limit, counter=COUNTER),
        "stable": lambda: fit_messages([*chat, asked], max_tokens=limit, counter=COUNTER, cut="stable"),
        "session": lambda: BudgetSession(limit, counter=COUNTER).fit([*chat, asked]),
        "apart": lambda: BudgetSession(limit, counter=COUNTER).fit(chat, question="And now?"),
    }[way]().messages
    assert {m["content"] for m in lasting if m["role"] == "assistant"} <= set(texts(kept))


def test_a_photo_of_the_last_exchange_stays_where_little_else_does() -> None:
    """It waits for a quarter of its tokens of older texts, as it is likely asked about."""
    chat = [m for n in range(200) for m in exchange(n, "photos" if n == 199 else "")]
    chat.append({"role": "user", "content": "And now?"})
    photo, weight = chat[199 * 2], counter_for(COUNTER).count_messages([chat[199 * 2]])
    kept = [
        any(m is photo for m in fit_messages(chat, max_tokens=limit, counter=COUNTER).messages)
        for limit in (weight - 10, weight * 3 // 2)
    ]
    assert kept == [False, True]


def test_heavy_steps_of_one_turn_wait_in_their_order() -> None:
    """Three calls of one older turn with equally long arguments: newest first, as many as fit, at every limit."""
    steps = [exchange(n, "call")[1:3] for n in range(3)]
    chat = [{"role": "user", "content": "Write."}, *(m for step in steps for m in step)]
    chat += [{"role": "assistant", "content": "Done."}, *(m for n in range(10, 14) for m in exchange(n, ""))]
    chat.append({"role": "user", "content": "And now?"})
    numbers = []
    for limit in range(100, 6_000, 200):
        kept = [id(m) for m in fit_messages(chat, max_tokens=limit, counter=COUNTER).messages]
        found = [n for n, (call, _) in enumerate(steps) if id(call) in kept]
        assert found == list(range(3 - len(found), 3))
        numbers.append(len(found))
    assert numbers == sorted(numbers)
    assert set(numbers) == {0, 1, 2, 3}


def test_a_photo_waits_for_as_much_of_the_older_rest_and_no_longer() -> None:
    """In a room for half of a long chat a photo a few exchanges back is kept, in a small one it is not."""
    chat = [m for n in range(200) for m in exchange(n, "photos" if n == 195 else "")]
    chat.append({"role": "user", "content": "And now?"})
    photo = chat[195 * 2]
    assert any(m is photo for m in fit_messages(chat, max_tokens=3_000, counter=COUNTER).messages)
    assert not any(m is photo for m in fit_messages(chat, max_tokens=500, counter=COUNTER).messages)
