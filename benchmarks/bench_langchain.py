"""The LangChain entry points, through `invoke`, against langchain-core's `trim_messages` with the exact counters of peers.py.

trimmer cold      BudgetTrimmer.invoke on a thread not counted before; thread after thread, as on a server
cold at first     the same for one thread after other work, which took the caches of the processor
trimmer again     the same list once more: stateless, counts are in the caches
trim_messages cold  ours, with "approximate", which counts exactly
memory again      BudgetMemory.load_memory_variables after two more messages were saved
middleware cold   one model call, the handler returning at once, on a thread not counted before
middleware warm   the next model call of the same thread, two messages later
[fast]            counting with fastokens, where the extra is installed

Whatever remembers (a session, the memory, the middleware) is timed for nine turns in a row, each a sample, after the two calls in which it first
fills the limit and then cuts to half.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import copy_context
from importlib.util import find_spec
from typing import Any

from harness import Contender, apart, bundled_vocabulary, race, ratios, table
from peers import COUNTERS, langchain_thread

SIZES = (100, 1_000, 10_000)
LIMIT = 4_096
TURNS = 9
IN_A_ROW, OTHERS = 5, 5  # threads not counted before, one after another, after so many others


def _new(seed: str) -> list[Any]:
    from langchain_core.messages import AIMessage, HumanMessage

    return [
        AIMessage("A new answer that nobody has counted.", id=f"{seed}-n1"),
        HumanMessage("And a new question?", id=f"{seed}-n2"),
    ]


def _stock(size: int, counter: str) -> Contender:
    from langchain_core.messages import trim_messages

    trimmer = trim_messages(
        max_tokens=LIMIT, token_counter=COUNTERS[counter](), include_system=True, start_on="human"
    )

    def prepare(seed: str) -> Callable[[], Any]:
        thread = langchain_thread(size, seed)
        return lambda: trimmer.invoke(thread)

    return Contender(f"trim_messages, counted {counter}", prepare)


def _cold(
    size: int, counter: str = "o200k_base", name: str = "trimmer cold", *, busy: bool = True
) -> Contender:
    from langchain_budget import BudgetTrimmer

    trimmer = BudgetTrimmer(max_tokens=LIMIT, counter=counter)

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        threads = [langchain_thread(size, f"{seed}-{number}") for number in range(IN_A_ROW if busy else 1)]
        for number in range(OTHERS if busy else 0):
            trimmer.invoke(langchain_thread(LIMIT // 20, f"{seed}-other-{number}"))
        return (lambda thread=thread: trimmer.invoke(thread) for thread in threads)

    return Contender(name, prepare)


def _again(size: int) -> Contender:
    from langchain_budget import BudgetTrimmer

    trimmer = BudgetTrimmer(max_tokens=LIMIT)

    def prepare(seed: str) -> Callable[[], Any]:
        thread = langchain_thread(size, seed)
        trimmer.invoke(thread)
        return lambda: trimmer.invoke(thread)

    return Contender("trimmer again", prepare)


def _warm(size: int) -> Contender:
    from langchain_budget import BudgetTrimmer
    from rankbudget import BudgetSession

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        thread = langchain_thread(size, seed)
        trimmer = BudgetTrimmer(max_tokens=LIMIT, session=BudgetSession(LIMIT))
        return _turns(lambda: trimmer.invoke(thread), lambda number: thread.extend(_new(f"{seed}-{number}")))

    return Contender("trimmer warm in a session", prepare)


def _turns(call: Callable[[], Any], say: Callable[[int], None]) -> Iterator[Callable[[], Any]]:
    """Yields one call for each turn like most; between them, untimed, two messages are said."""
    for number in range(TURNS + 2):
        if number >= 2:  # the first call fills the limit, the second cuts to half
            yield call
        else:
            call()
        say(number)


def _drop_in(size: int) -> Contender:
    from langchain_budget import trim_messages

    trimmer = trim_messages(max_tokens=LIMIT, token_counter="approximate", include_system=True)  # noqa: S106 - no secret

    def prepare(seed: str) -> Callable[[], Any]:
        thread = langchain_thread(size, seed)
        return lambda: trimmer.invoke(thread)

    return Contender("trim_messages cold", prepare)


def _memory(size: int) -> Contender:
    from langchain_budget import BudgetMemory

    def prepare(seed: str) -> Iterator[Callable[[], Any]]:
        memory = BudgetMemory(max_tokens=LIMIT, return_messages=True)
        memory.chat_memory.add_messages(langchain_thread(size, seed))
        return _turns(
            lambda: memory.load_memory_variables({})["history"],
            lambda number: memory.chat_memory.add_messages(_new(f"{seed}-{number}")),
        )

    return Contender("memory again", prepare)


def _middleware(size: int, *, warm: bool) -> Contender:
    from langchain.agents.middleware import ModelRequest, ModelResponse
    from langchain_core.language_models.fake_chat_models import FakeListChatModel
    from langchain_core.runnables.config import var_child_runnable_config

    from langchain_budget import BudgetMiddleware

    model, response = FakeListChatModel(responses=[""]), ModelResponse(result=[])
    middleware = BudgetMiddleware(max_tokens=LIMIT)

    def prepare(seed: str) -> Callable[[], Any] | Iterator[Callable[[], Any]]:
        thread = langchain_thread(size, seed)
        asked: list[Any] = []
        context = copy_context()
        context.run(var_child_runnable_config.set, {"configurable": {"thread_id": seed}})  # as in an agent

        def handler(request: Any) -> Any:
            asked[:] = request.messages
            return response

        def call() -> Any:
            request = ModelRequest(model=model, messages=thread[1:], system_message=thread[0])
            context.run(middleware.wrap_model_call, request, handler)
            return asked

        return _turns(call, lambda number: thread.extend(_new(f"{seed}-{number}"))) if warm else call

    return Contender(f"middleware {'warm' if warm else 'cold'}", prepare)


def alone(size: int, rounds: int) -> None:
    """Prints what our entry points take, in a process where nothing else was trimmed."""
    bundled_vocabulary()
    contenders = [
        *_colds(size), _again(size), _warm(size), _drop_in(size), _memory(size), _middleware(size, warm=False), _middleware(size, warm=True),
    ]  # fmt: skip
    race(contenders, rounds=rounds, seed=f"langchain-{size}")
    _show(f"{size:,} messages to {LIMIT:,} tokens, alone", contenders)


def beside(size: int, rounds: int) -> None:
    """Prints what langchain-core's `trim_messages` takes, and our trimmer between its runs."""
    bundled_vocabulary()
    ours = _colds(size)
    contenders = [*ours, *[_stock(size, counter) for counter in COUNTERS]]
    race(contenders, rounds=rounds, seed=f"langchain-{size}")
    _show(f"{size:,} messages to {LIMIT:,} tokens, beside trim_messages", contenders)
    print(ratios(contenders[len(ours) :], ours), "\n", flush=True)


def _colds(size: int) -> list[Contender]:
    ways = [_cold(size), _cold(size, name="cold at first", busy=False)]
    if find_spec("fastokens") is not None:
        fast = "o200k_base+fast"
        ways += [
            _cold(size, fast, "trimmer cold [fast]"),
            _cold(size, fast, "cold at first [fast]", busy=False),
        ]
    return ways


def _show(title: str, contenders: list[Contender]) -> None:
    print(
        table(title, contenders, base=contenders[0], describe=lambda kept: f"{len(kept)} messages kept"),
        "\n",
        flush=True,
    )


def main(*, rounds: int = 9) -> None:
    """Prints two tables for each size."""
    for size in SIZES:
        apart(alone, size, rounds)
        apart(beside, size, rounds)


if __name__ == "__main__":
    main()
