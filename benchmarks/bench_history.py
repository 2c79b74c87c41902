"""Fitting long conversations, against LangChain's `trim_messages` with exact counters and LlamaIndex's `ChatMemoryBuffer.get`.

    cold            the tokenizer is loaded, no text of this thread was counted before; thread after thread, as on a server
    cold at first   the same for one thread after other work, which took the caches of the processor
    stateless warm  the same list again, no session
    session warm    the same thread plus two messages, after fits in a session; nine turns in a row, each a sample
    [fast]          with fastokens, where the extra is installed: the same counts

The counters `trim_messages` is given are in peers.py. All count alike: 3 tokens around each message, its role and content, 3 to prime the reply;
`ChatMemoryBuffer` counts content only, which flatters it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from harness import Contender, apart, bundled_vocabulary, chat, race, ratios, table
from peers import COUNTERS, langchain_thread

SIZES = (100, 1_000, 10_000)
LIMITS = (4_096, 32_768)
BUFFER_FINISHES = (
    1_000  # ChatMemoryBuffer.get recounts the rest per dropped message: 10,000 messages take it many minutes
)
TURNS = 9
IN_A_ROW, OTHERS = 5, 5  # threads not counted before, one after another, after so many others
NEW = (
    {"role": "assistant", "content": "A new answer that nobody has counted."},
    {"role": "user", "content": "And a new question?"},
)


def cold(
    size: int, limit: int, counter: str = "o200k_base", name: str = "cold", *, busy: bool = True
) -> Contender:
    from rankbudget import fit_messages

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        threads = [chat(size, f"{seed}-{number}") for number in range(IN_A_ROW if busy else 1)]
        for number in range(OTHERS if busy else 0):
            fit_messages(chat(limit // 20, f"{seed}-other-{number}"), max_tokens=limit, counter=counter)
        return (
            lambda thread=thread: fit_messages(thread, max_tokens=limit, counter=counter).messages
            for thread in threads
        )

    return Contender(name, prepare)


def stateless_warm(size: int, limit: int) -> Contender:
    from rankbudget import fit_messages

    def prepare(seed: str) -> Callable[[], Any]:
        thread = chat(size, seed)
        fit_messages(thread, max_tokens=limit)
        return lambda: fit_messages(thread, max_tokens=limit).messages

    return Contender("stateless warm", prepare)


def session_warm(size: int, limit: int) -> Contender:
    from rankbudget import BudgetSession

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        thread = chat(size, seed)
        session = BudgetSession(limit, counter="o200k_base")
        for number in range(TURNS + 2):
            if (
                number >= 2
            ):  # the first fit fills, the turn after it cuts to half; what is timed are turns like most
                yield partial(_fitted, session, thread)
            else:
                session.fit(thread)
            thread += [{**message, "content": f"{message['content']} ({number})"} for message in NEW]

    return Contender("session warm", prepare)


def _fitted(session: Any, thread: list[dict[str, Any]]) -> list[Any]:
    return session.fit(thread).messages  # type: ignore[no-any-return]  # a session of plain dicts


def trim_messages(size: int, limit: int, counter: str) -> Contender:
    from langchain_core.messages import trim_messages as peer

    count = COUNTERS[counter]()

    def prepare(seed: str) -> Callable[[], Any]:
        thread = langchain_thread(size, seed)
        return lambda: peer(
            thread,
            max_tokens=limit,
            token_counter=count,
            strategy="last",
            include_system=True,
            start_on="human",
        )

    return Contender(f"trim_messages, counted {counter}", prepare)


def chat_memory_buffer(size: int, limit: int) -> Contender:
    import tiktoken
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    encode = tiktoken.get_encoding("o200k_base").encode_ordinary

    def prepare(seed: str) -> Callable[[], Any]:
        thread = [ChatMessage(role=m["role"], content=m["content"]) for m in chat(size, seed)]
        memory = ChatMemoryBuffer.from_defaults(chat_history=thread, token_limit=limit, tokenizer_fn=encode)
        return memory.get

    # At 1,000 messages one call takes seconds: one round must do.
    return Contender(
        "llama-index ChatMemoryBuffer.get", prepare, rounds=1 if size >= BUFFER_FINISHES else None
    )


def alone(size: int, limit: int, rounds: int) -> None:
    """Prints what our own ways take, in a process where nothing else was trimmed."""
    bundled_vocabulary()
    contenders = [*_cold(size, limit), stateless_warm(size, limit), session_warm(size, limit)]
    race(contenders, rounds=rounds, seed=f"history-{size}-{limit}")
    _show(f"{size:,} messages to {limit:,} tokens, alone", contenders)


def beside(size: int, limit: int, rounds: int) -> None:
    """Prints what the peers take, and ours between them."""
    bundled_vocabulary()
    ours = _cold(size, limit)
    contenders = [*ours, *[trim_messages(size, limit, counter) for counter in COUNTERS]]
    if size <= BUFFER_FINISHES:
        contenders.append(chat_memory_buffer(size, limit))
    race(contenders, rounds=rounds, seed=f"history-{size}-{limit}")
    _show(f"{size:,} messages to {limit:,} tokens, beside the peers", contenders)
    if size > BUFFER_FINISHES:
        print(
            "  llama-index ChatMemoryBuffer.get          left out: it recounts the rest for each message it drops"
        )
    print(ratios(contenders[len(ours) :], ours), "\n", flush=True)


def _cold(size: int, limit: int) -> list[Contender]:
    ways = [cold(size, limit), cold(size, limit, name="cold at first", busy=False)]
    if find_spec("fastokens") is not None:
        fast = "o200k_base+fast"
        ways += [
            cold(size, limit, fast, "cold [fast]"),
            cold(size, limit, fast, "cold at first [fast]", busy=False),
        ]
    return ways


def _show(title: str, contenders: list[Contender]) -> None:
    print(
        table(title, contenders, base=contenders[0], describe=lambda kept: f"keeps {len(kept):,}"),
        "\n",
        flush=True,
    )


def main(*, rounds: int = 9) -> None:
    """Prints two tables for each size and limit."""
    for size in SIZES:
        for limit in LIMITS:
            apart(alone, size, limit, rounds)
            apart(beside, size, limit, rounds)


if __name__ == "__main__":
    main()
