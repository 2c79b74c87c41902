"""The same conversations through rankbudget and its peers, each as its own README uses it: `make peers` runs it.

chat    40 to 120 exchanges of an assistant's notes; the question asks for a code that one older answer has
tools   an agent with 4 to 16 steps; the code is in a tool result, the newest in half of the cases
RAG     12 exchanges and 20 passages with the retriever's scores; one passage has the code

The limit is a quarter of what was offered. Tokens are those of o200k_base with OpenAI's framing, whatever a peer
counts itself. "-" is a task for which a peer has no place.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from harness import bundled_vocabulary, commit

from rankbudget.testing import pairing_errors
from rankbudget.testing.server import request_tokens

Messages = list[dict[str, Any]]
PLACES = "harbour mill orchard quarry chapel depot foundry library garden tower bridge market".split()
WORDS = (
    "the crew checked every valve again before lunch and wrote a short note about pressure temperature oil rust "
    "paint bolts hoses belts filters switches lamps cables and the weather which was mild for most of the week"
).split()
SYSTEM = {
    "role": "system",
    "content": "You are the assistant of a maintenance crew. Answer from what you are given.",
}


@dataclass(frozen=True)
class Task:
    """One case: what is offered, what is asked, and the sentence that answers it."""

    kind: str
    history: Messages
    documents: Sequence[tuple[str, float]]
    question: str
    evidence: str
    limit: int = 0

    @property
    def asked(self) -> dict[str, Any]:
        return {"role": "user", "content": self.question}


def _note(draw: random.Random, size: int) -> str:
    return " ".join(draw.choices(WORDS, k=size)).capitalize() + "."


def _chat(draw: random.Random, turns: int, fact: str) -> Messages:
    made: Messages = []
    told = draw.randrange(turns // 2)
    for n in range(turns):
        made.append({"role": "user", "content": f"What about the {draw.choice(PLACES)}? {_note(draw, 8)}"})
        answer = [_note(draw, draw.randint(10, 60))]
        answer += [fact] if n == told and fact else []
        made.append({"role": "assistant", "content": " ".join(answer)})
    return made


def _steps(draw: random.Random, steps: int, fact: str, question: str) -> Messages:
    made: Messages = [{"role": "user", "content": question}]
    told = steps - 1 if draw.random() < 0.5 else draw.randrange(steps)
    for n in range(steps):
        call = {"name": "read_log", "arguments": f'{{"page": {n}}}'}
        made.append(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": call}],
            }
        )
        lines = [_note(draw, 12) for _ in range(draw.randint(5, 40))]
        if n == told:
            lines.insert(draw.randrange(len(lines)), fact)
        made.append({"role": "tool", "tool_call_id": f"c{n}", "content": "\n".join(lines)})
    return made


def task(kind: str, seed: int) -> Task:
    """Returns one case; the same for every peer."""
    draw = random.Random(f"{kind} {seed}")
    place, code = draw.choice(PLACES), f"{draw.choice('ABCDEFG')}{draw.randint(100, 999)}"
    fact, question = f"The access code of the {place} is {code}.", f"What is the access code of the {place}?"
    documents: list[tuple[str, float]] = []
    if kind == "chat":
        history = _chat(draw, draw.randint(40, 120), fact)
    elif kind == "tools":
        history = _steps(draw, draw.randint(4, 16), fact, question)
    else:
        history = _chat(draw, 12, "")
        for n in range(20):
            parts = [_note(draw, 14) for _ in range(draw.randint(4, 14))]
            if n == 0:
                parts.insert(draw.randrange(len(parts)), fact)
            documents.append(
                (" ".join(parts), round(draw.uniform(0.6, 0.8) if n == 0 else draw.uniform(0.2, 0.8), 3))
            )
        documents.sort(key=lambda found: -found[1])
    made = Task(kind, history, documents, question, fact)
    last = [] if kind == "tools" else [made.asked]
    context = [{"role": "system", "content": text} for text, _ in documents]
    return Task(
        kind, history, documents, question, fact, request_tokens([SYSTEM, *history, *context, *last]) // 4
    )


# ---- the peers, each by its own README ------------------------------------------------------------------------------------
Peer = Callable[[Task], Messages | None]
PEERS: dict[str, tuple[str, Peer]] = {}


def peer(name: str, package: str) -> Callable[[Peer], Peer]:
    """Registers a peer under its name and the package that has its version."""

    def register(run: Peer) -> Peer:
        PEERS[name] = package, run
        return run

    return register


@peer("rankbudget", "rankbudget")
def ours(case: Task) -> Messages | None:
    from rankbudget import Assembler, Block, Segment, fit_messages

    if case.kind != "RAG":
        last = [] if case.kind == "tools" else [case.asked]
        offered = [SYSTEM, *case.history, *last]
        return list(fit_messages(offered, max_tokens=case.limit, query=case.question).messages)
    found = [Segment(id=str(i), text=text, score=score) for i, (text, score) in enumerate(case.documents)]
    blocks = [
        Block(name="system", messages=[SYSTEM]),
        Block(name="history", messages=case.history),
        Block(name="knowledge", segments=found),
    ]
    return list(Assembler(case.limit).assemble(blocks, query=case.question).messages)


def _tokens(messages: Sequence[Any]) -> int:
    from langchain_core.messages import convert_to_openai_messages

    return request_tokens(convert_to_openai_messages(list(messages)))


@peer("LangChain trim_messages", "langchain-core")
def trim(case: Task) -> Messages | None:
    from langchain_core.messages import convert_to_messages, convert_to_openai_messages, trim_messages

    if case.documents:
        return None
    last = [] if case.kind == "tools" else [case.asked]
    kept = trim_messages(
        convert_to_messages([SYSTEM, *case.history, *last]),
        max_tokens=case.limit,
        token_counter=_tokens,
        strategy="last",
        start_on="human",
        include_system=True,
    )
    return list(convert_to_openai_messages(kept))


def _read(memory: Any, case: Task) -> Messages:
    """Returns what a chat engine with a LlamaIndex memory sends: system prompt, memory, question."""
    from llama_index.core.llms import ChatMessage

    for message in case.history:
        extra = {key: value for key, value in message.items() if key in ("tool_calls", "tool_call_id")}
        memory.put(ChatMessage(role=message["role"], content=message["content"], additional_kwargs=extra))
    kept = [{"role": m.role.value, "content": m.content, **m.additional_kwargs} for m in memory.get()]
    return [SYSTEM, *kept, *([] if case.kind == "tools" else [case.asked])]


def _room(case: Task) -> int:
    """Returns the tokens that the memory may have beside system prompt and question."""
    return case.limit - request_tokens([SYSTEM, *([] if case.kind == "tools" else [case.asked])])


@peer("LlamaIndex ChatMemoryBuffer", "llama-index-core")
def buffer(case: Task) -> Messages | None:
    from llama_index.core.memory import ChatMemoryBuffer

    return None if case.documents else _read(ChatMemoryBuffer.from_defaults(token_limit=_room(case)), case)


@peer("LlamaIndex Memory", "llama-index-core")
def memory(case: Task) -> Messages | None:
    from llama_index.core.memory import Memory

    return (
        None if case.documents else _read(Memory.from_defaults(session_id="s", token_limit=_room(case)), case)
    )


@peer("promptbudget", "promptbudget")
def promptbudget(case: Task) -> Messages | None:
    from promptbudget import Message, TiktokenTokenizer, pack_chat

    offered = [*case.history, *([] if case.kind == "tools" else [case.asked])]
    made = pack_chat(
        system=SYSTEM["content"],
        context=[Message("user", text, score=score) for text, score in case.documents],
        history=[{**m, "content": m["content"] or ""} for m in offered],  # it refuses None
        budget=case.limit,
        tokenizer=TiktokenTokenizer("o200k_base"),
        tokens_per_message=4,
    )
    return list(made.to_openai())


@peer("cendor-contextkit", "cendor-contextkit")
def contextkit(case: Task) -> Messages | None:
    from cendor.contextkit import Block, Context

    context = Context(budget_tokens=case.limit, model="gpt-4o")
    context.add(Block(SYSTEM["content"], priority=10, pin=True, role="system"))
    for text, score in case.documents:
        context.add(Block(text, priority=4 + score, evict="truncate"))
    context.add(Block(messages=case.history, priority=3, evict="drop_oldest"))
    if case.kind != "tools":
        context.add(Block(case.question, priority=9, pin=True, role="user"))
    return list(context.assemble())


@peer("vecr-compress", "vecr-compress")
def vecr(case: Task) -> Messages | None:
    from vecr_compress import compress

    found = [{"role": "user", "content": text} for text, _ in case.documents]
    last = [] if case.kind == "tools" else [case.asked]
    offered = [SYSTEM, *case.history, *found, *last]
    made = compress(offered, budget_tokens=case.limit, question=case.question, use_question_relevance=True)
    return list(made.messages)


@peer("ctxbudgeter", "ctxbudgeter")
def ctxbudgeter(case: Task) -> Messages | None:
    from ctxbudgeter import ContextPack
    from ctxbudgeter.adapters import to_openai_messages

    pack = ContextPack(model="gpt-4o", token_budget=case.limit, reserved_output_tokens=0)
    pack.add(name="system", content=SYSTEM["content"], kind="system", required=True)
    kinds = {"user": "user_message", "assistant": "assistant_message", "tool": "tool_result"}
    for n, message in enumerate(case.history):
        told = {"tool_call_id": message["tool_call_id"]} if message["role"] == "tool" else {}
        pack.add(
            name=f"turn-{n}",
            content=message["content"] or "",
            kind=kinds[message["role"]],
            freshness=(n + 1) / len(case.history),
            metadata=told,
        )
    for n, (text, score) in enumerate(case.documents):
        pack.add(name=f"document-{n}", content=text, kind="retrieval", relevance=score)
    made = pack.compile(task=case.question)
    return list(to_openai_messages(made, user_message=None if case.kind == "tools" else case.question))


@peer("astro-anchor", "astro-anchor")
def anchor(case: Task) -> Messages | None:
    from anchor import ContextPipeline, MemoryManager, OpenAIFormatter

    if case.kind != "chat":
        return None  # its memory takes no tool calls; its documents come from a retriever of its own
    manager = MemoryManager(conversation_tokens=case.limit)
    for message in case.history:
        add = manager.add_user_message if message["role"] == "user" else manager.add_assistant_message
        add(message["content"])
    pipeline = ContextPipeline(max_tokens=case.limit).with_memory(manager).with_formatter(OpenAIFormatter())
    made = pipeline.add_system_prompt(SYSTEM["content"]).build(case.question).formatted_output
    messages = list(made["messages"] if isinstance(made, Mapping) else made)
    return [*messages, case.asked]  # the pipeline ranks by the question and leaves it to the caller


# ---- what is looked at -----------------------------------------------------------------------------------------------------
def judge(case: Task, messages: Messages) -> dict[str, bool]:
    """Returns what is wrong with a prompt, and whether it has the evidence."""
    texts = [str(message.get("content") or "") for message in messages]
    roles = [message["role"] for message in messages if message["role"] != "system"]
    broken = bool(pairing_errors(messages)) or not roles or roles[0] != "user"
    return {
        "over": request_tokens(messages) > case.limit,
        "invalid": broken,
        "question lost": not any(case.question in text for text in texts),
        "evidence": any(case.evidence in text for text in texts),
    }


def row(run: Peer, kind: str, cases: int) -> str:
    """Returns the columns of one peer on one kind of task."""
    found: list[dict[str, bool]] = []
    times: list[float] = []
    refused = 0
    for seed in range(cases):
        case = task(kind, seed)
        begin = time.perf_counter()
        try:
            messages = run(case)
        except Exception:  # noqa: BLE001 - a peer may refuse in its own way; it is counted
            refused += 1
            continue
        times.append((time.perf_counter() - begin) * 1_000)
        if messages is None:
            return "- | - | - | - | - | -"
        found.append(judge(case, messages))
    shares = [
        sum(one[name] for one in found) / cases for name in ("over", "invalid", "question lost", "evidence")
    ]
    cells = [f"{share:.0%}" for share in (*shares[:3], refused / cases, shares[3])]
    return " | ".join([*cells, f"{statistics.median(times):.1f}" if times else "-"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", type=int, default=60, help="of each kind (default: %(default)s)")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    options = parser.parse_args()
    bundled_vocabulary()
    print(f"{options.cases} cases of each kind, commit {commit()}")
    for kind in ("chat", "tools", "RAG"):
        print(f"\n| {kind} | over the limit | invalid | question lost | refused | evidence kept | ms |")
        print("|---|---|---|---|---|---|---|")
        for name, (package, run) in PEERS.items():
            if options.only in name:
                print(f"| {name} {version(package)} | {row(run, kind, options.cases)} |", flush=True)


if __name__ == "__main__":
    main()
