"""Fitting long conversations, against LangChain's `trim_messages` with an exact counter and LlamaIndex's `ChatMemoryBuffer.get`.

    cold            the tokenizer is loaded, no text of this thread was counted before
    stateless warm  the same list again, no session
    session warm    the same thread plus two messages, after fits in a session; nine turns in a row, each a sample
    cold [fast]     cold with fastokens, where the extra is installed: the same counts

`trim_messages` is timed as LangChain documents it for exact counts, with the model as its `token_counter`, and with a counter written for this
benchmark that does no more than it must. Every run gets a thread of its own. All count the same way: 3 tokens around each message, its role and
content, 3 to prime the reply; `ChatMemoryBuffer` counts content only, which flatters it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

from harness import Contender, apart, bundled_vocabulary, chat, race, table

SIZES = (100, 1_000, 10_000)
LIMITS = (4_096, 32_768)
BUFFER_FINISHES = 1_000  # ChatMemoryBuffer.get recounts the rest per dropped message: 10,000 messages take it many minutes
TURNS = 9
NEW = ({"role": "assistant", "content": "A new answer that nobody has counted."}, {"role": "user", "content": "And a new question?"})


def _encoding() -> Any:
    import tiktoken

    return tiktoken.get_encoding("o200k_base")


def cold(size: int, limit: int, counter: str = "o200k_base", name: str = "cold") -> Contender:
    from rankbudget import fit_messages

    def prepare(seed: str) -> Callable[[], Any]:
        thread = chat(size, seed)
        return lambda: fit_messages(thread, max_tokens=limit, counter=counter).messages

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
            if number >= 2:  # the first fit fills, the turn after it cuts to half; what is timed are turns like most
                yield partial(_fitted, session, thread)
            else:
                session.fit(thread)
            thread += [{**message, "content": f"{message['content']} ({number})"} for message in NEW]

    return Contender("session warm", prepare)


def _fitted(session: Any, thread: list[dict[str, Any]]) -> list[Any]:
    return session.fit(thread).messages  # type: ignore[no-any-return]  # a session of plain dicts


def trim_messages(size: int, limit: int, *, model: bool = False) -> Contender:
    from langchain_core.messages import BaseMessage
    from langchain_core.messages import trim_messages as peer

    encode = _encoding().encode_ordinary
    counter = counting_model() if model else None
    roles = {"human": "user", "ai": "assistant", "system": "system"}

    def count(messages: list[BaseMessage]) -> int:
        return 3 + sum(3 + len(encode(roles[m.type])) + len(encode(m.content)) for m in messages)  # type: ignore[arg-type]  # plain text here

    def prepare(seed: str) -> Callable[[], Any]:
        thread = _langchain(chat(size, seed))
        return lambda: peer(thread, max_tokens=limit, token_counter=counter or count, strategy="last", include_system=True, start_on="human")

    return Contender("trim_messages, counted by ChatOpenAI" if model else "trim_messages, counter of our own", prepare)


def counting_model() -> Any:
    """Returns a model that counts, and is never called."""
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="gpt-4o", api_key="none")


def chat_memory_buffer(size: int, limit: int) -> Contender:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import ChatMemoryBuffer

    encode = _encoding().encode_ordinary

    def prepare(seed: str) -> Callable[[], Any]:
        thread = [ChatMessage(role=m["role"], content=m["content"]) for m in chat(size, seed)]
        memory = ChatMemoryBuffer.from_defaults(chat_history=thread, token_limit=limit, tokenizer_fn=encode)
        return memory.get

    # At 1,000 messages one call takes seconds: one round must do.
    return Contender("llama-index ChatMemoryBuffer.get", prepare, rounds=1 if size >= BUFFER_FINISHES else None)


def _langchain(thread: list[dict[str, Any]]) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage

    kinds = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
    return [kinds[m["role"]](m["content"]) for m in thread]


def alone(size: int, limit: int, rounds: int) -> None:
    """Prints what our own ways take, in a process where nothing else was trimmed."""
    bundled_vocabulary()
    contenders = [*_cold(size, limit), stateless_warm(size, limit), session_warm(size, limit)]
    race(contenders, rounds=rounds, seed=f"history-{size}-{limit}")
    _show(f"{size:,} messages to {limit:,} tokens, alone", contenders)


def beside(size: int, limit: int, rounds: int) -> None:
    """Prints what the peers take, and ours between them."""
    bundled_vocabulary()
    contenders = [*_cold(size, limit), trim_messages(size, limit)]
    if find_spec("langchain_openai") is not None:
        contenders.append(trim_messages(size, limit, model=True))
    if size <= BUFFER_FINISHES:
        contenders.append(chat_memory_buffer(size, limit))
    race(contenders, rounds=rounds, seed=f"history-{size}-{limit}")
    _show(f"{size:,} messages to {limit:,} tokens, beside the peers", contenders)
    if size > BUFFER_FINISHES:
        print("  llama-index ChatMemoryBuffer.get          left out: it recounts the rest for each message it drops\n", flush=True)


def _cold(size: int, limit: int) -> list[Contender]:
    ways = [cold(size, limit)]
    if find_spec("fastokens") is not None:
        ways.append(cold(size, limit, "o200k_base+fast", "cold [fast]"))
    return ways


def _show(title: str, contenders: list[Contender]) -> None:
    print(table(title, contenders, base=contenders[0], describe=lambda kept: f"keeps {len(kept):,}"), "\n", flush=True)


def main(*, rounds: int = 9) -> None:
    """Prints two tables for each size and limit."""
    for size in SIZES:
        for limit in LIMITS:
            apart(alone, size, limit, rounds)
            apart(beside, size, limit, rounds)


if __name__ == "__main__":
    main()
