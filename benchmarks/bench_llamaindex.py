"""The LlamaIndex parts against the host's own: reading long memories, packing nodes and chunks.

cold       the tokenizer is loaded, no text of this thread was counted before
warm       the same memory, two messages later: a session remembers cut and counts; nine turns in a row, each a sample
stateless  a new memory over the same stored messages
turn       put a question, get, put an answer, in a `Memory` whose messages are in SQLite; nine turns in a row
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from harness import Contender, apart, bundled_vocabulary, chat, documents, race, table

LIMITS = (4_096, 32_768)
STOCK_FINISHES = 1_000  # the stock buffer recounts the rest for each message it drops: 10,000 messages take it some 20 minutes
TURNS = 9
NODES, NODE_LIMIT = 200, 8_192


def _messages(size: int, seed: str) -> list[Any]:
    from llama_index.core.base.llms.types import ChatMessage

    return [ChatMessage(role=m["role"], content=m["content"]) for m in chat(size, seed)]


def _memory(messages: list[Any], limit: int) -> Any:
    from llama_index.core.storage.chat_store import SimpleChatStore

    from llamaindex_budget import BudgetChatMemoryBuffer

    store = SimpleChatStore(store={"chat_history": messages})
    return BudgetChatMemoryBuffer.from_defaults(token_limit=limit, chat_store=store, counter="o200k_base")


def cold(size: int, limit: int) -> Contender:
    def prepare(seed: str) -> Callable[[], Any]:
        memory = _memory(_messages(size, seed), limit)
        return memory.get

    return Contender("cold", prepare)


def warm(size: int, limit: int) -> Contender:
    from llama_index.core.base.llms.types import ChatMessage

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        memory = _memory(_messages(size, seed), limit)
        for turn in range(
            TURNS + 2
        ):  # a fresh session fills the limit, the next turn cuts to half; then it stays for many turns
            if turn >= 2:
                yield memory.get
            else:
                memory.get()
            memory.put(ChatMessage(role="assistant", content=f"A new answer {turn} that nobody has counted."))
            memory.put(ChatMessage(role="user", content=f"And a new question {turn}?"))

    return Contender("warm", prepare)


def stateless(size: int, limit: int) -> Contender:
    def prepare(seed: str) -> Callable[[], Any]:
        messages = _messages(size, seed)
        _memory(messages, limit).get()
        memory = _memory(messages, limit)
        return memory.get

    return Contender("stateless", prepare)


def stock(size: int, limit: int) -> Contender:
    import tiktoken
    from llama_index.core.memory import ChatMemoryBuffer
    from llama_index.core.storage.chat_store import SimpleChatStore

    def prepare(seed: str) -> Callable[[], Any]:
        store = SimpleChatStore(store={"chat_history": _messages(size, seed)})
        memory = ChatMemoryBuffer.from_defaults(
            token_limit=limit,
            chat_store=store,
            tokenizer_fn=tiktoken.get_encoding("o200k_base").encode_ordinary,
        )
        return memory.get

    return Contender("ChatMemoryBuffer.get", prepare, rounds=1)


def turn(size: int, kind: str, block: str = "") -> Contender:
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import Memory

    from llamaindex_budget import BudgetMemory, HistorySummaryMemoryBlock

    blocks: dict[str, Callable[[], list[Any]]] = {
        "": list,
        "a summary": lambda: [
            HistorySummaryMemoryBlock(summarizer=lambda text, _: text[-400:], max_tokens=400)
        ],
    }
    made = {"Memory": Memory, "BudgetMemory": BudgetMemory}[kind]

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        loop = asyncio.new_event_loop()
        memory = made.from_defaults(
            token_limit=LIMITS[0], chat_history=_messages(size, seed), memory_blocks=blocks[block]()
        )

        async def one(number: int) -> Any:
            await memory.aput(ChatMessage(role="user", content=f"And a new question {number}?"))
            found = await memory.aget()
            await memory.aput(ChatMessage(role="assistant", content=f"A new answer {number}."))
            return found

        for number in range(TURNS + 2):
            if number >= 2:
                yield lambda number=number: loop.run_until_complete(one(number))
            else:
                loop.run_until_complete(one(number))
        loop.close()

    return Contender(f"{kind}, a turn" + (f", {block}" if block else ""), prepare)


def _nodes(seed: str) -> list[Any]:
    from llama_index.core.schema import NodeWithScore, TextNode

    return [
        NodeWithScore(node=TextNode(text=text), score=1 - i / NODES)
        for i, text in enumerate(documents(NODES, seed))
    ]


def counting() -> Contender:
    from rankbudget import counter_for

    def prepare(seed: str) -> Callable[[], Any]:
        texts = [n.node.get_content() + "\n\n" for n in _nodes(seed)]
        return lambda: counter_for("o200k_base").count_many(texts)

    return Contender("one count each", prepare)


def packing(*, compress: bool) -> Contender:
    from llamaindex_budget import BudgetNodePostprocessor

    post = BudgetNodePostprocessor(max_tokens=NODE_LIMIT, counter="o200k_base", compress=compress)

    def prepare(seed: str) -> Callable[[], Any]:
        given = _nodes(seed)
        return lambda: post.postprocess_nodes(given, query_str="What was decided about this?")

    return Contender("postprocessor" + ("" if compress else ", whole nodes"), prepare)


def repacking(*, ours: bool) -> Contender:
    import tiktoken
    from llama_index.core.indices.prompt_helper import PromptHelper
    from llama_index.core.prompts import PromptTemplate

    from llamaindex_budget import BudgetPromptHelper

    encode = tiktoken.get_encoding("o200k_base").encode_ordinary
    helper = (BudgetPromptHelper if ours else PromptHelper)(NODE_LIMIT, 256, tokenizer=encode)
    prompt = PromptTemplate("Use this:\n{context_str}\nAnswer: {query_str}").partial_format(
        query_str="What was decided about this?"
    )

    def prepare(seed: str) -> Callable[[], Any]:
        texts = [n.node.get_content() for n in _nodes(seed)]
        return lambda: helper.repack(prompt, texts)

    return Contender("BudgetPromptHelper.repack" if ours else "PromptHelper.repack", prepare)


def histories(size: int, limit: int, rounds: int) -> None:
    """Prints the table of one size and limit."""
    bundled_vocabulary()
    contenders = [cold(size, limit), warm(size, limit), stateless(size, limit)]
    if size <= STOCK_FINISHES:
        contenders.append(stock(size, limit))
    race(contenders, rounds=rounds, seed=f"llamaindex-{size}-{limit}")
    title = f"{size:,} messages at {limit:,}"
    print(
        table(title, contenders, base=contenders[0], describe=lambda kept: f"{len(kept)} messages"),
        "\n",
        flush=True,
    )


def turns(size: int, rounds: int) -> None:
    """Prints the table of memories with blocks."""
    bundled_vocabulary()
    contenders = [
        turn(size, kind, block) for block in ("", "a summary") for kind in ("Memory", "BudgetMemory")
    ]
    race(contenders, rounds=rounds, seed=f"llamaindex-turns-{size}")
    title = f"a turn over {size:,} stored messages at {LIMITS[0]:,}"
    print(table(title, contenders, base=contenders[0], describe=lambda kept: f"{len(kept)} messages"), "\n")


def nodes(rounds: int) -> None:
    """Prints the table of retrieved nodes."""
    bundled_vocabulary()
    contenders = [
        counting(),
        packing(compress=False),
        packing(compress=True),
        repacking(ours=True),
        repacking(ours=False),
    ]
    race(contenders, rounds=rounds, seed="llamaindex-nodes")
    print(
        table(
            f"{NODES} nodes at {NODE_LIMIT:,}",
            contenders,
            base=contenders[0],
            describe=lambda kept: f"{len(kept)} returned",
        )
    )


def main(rounds: int = 7) -> None:
    """Prints the tables."""
    for size in (1_000, 10_000):
        for limit in LIMITS:
            apart(histories, size, limit, rounds)
    for size in (1_000, 4_000):
        apart(turns, size, 1)  # each round stores them all anew
    apart(nodes, rounds)


if __name__ == "__main__":
    main()
