"""The `rankbudget` command: `fit` does the job on your own chat, `demo` shows it through LangChain and LlamaIndex."""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError, BudgetError, CounterUnavailableError
from .progress import step
from .reading import Chat, read_chat, read_passages

if TYPE_CHECKING:
    from ..report.report import BudgetReport
    from ..segment import Segment

__all__ = ["main"]

_RETRIEVED = 50


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; 0 is success, 2 is a mistake in what was given, told in one line."""
    options = _parser().parse_args(arguments)
    for chatty in ("faiss", "wordllama", "httpx", "openai"):
        logging.getLogger(chatty).setLevel(
            logging.WARNING
        )  # one of them switches everybody's notes on when imported
    notes = logging.StreamHandler(sys.stderr)
    notes.setFormatter(logging.Formatter("rankbudget: note: %(message)s"))
    logging.getLogger("rankbudget").addHandler(notes)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except (BudgetError, ImportError, OSError) as error:
        if isinstance(error, BrokenPipeError):  # the reader (head, less) has what it wants
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        print(f"rankbudget: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rankbudget: stopped", file=sys.stderr)
        return 130
    finally:
        logging.getLogger("rankbudget").removeHandler(notes)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rankbudget", description="One context budget: never over the window, a reason for every piece."
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    fit = commands.add_parser(
        "fit", help="fit a chat of OpenAI-style messages, and documents if given, into a model's window"
    )
    fit.add_argument(
        "chat",
        metavar="CHAT.json",
        help='a list of messages, {"messages": [..], "tools": [..]}, or one message a line; - reads standard input',
    )
    fit.add_argument("--window", type=int, metavar="TOKENS", help="the context window; default: the model's")
    fit.add_argument("--model", default="gpt-4o", help="whose tokenizer counts (default: %(default)s)")
    fit.add_argument(
        "--reserve",
        type=float,
        metavar="TOKENS|SHARE",
        help="kept for the answer: tokens above 1, else a share (default: 0.3)",
    )
    fit.add_argument("--budget", metavar="FILE.yaml", help="take the budget from a file instead")
    fit.add_argument("--profile", metavar="NAME", help="a profile of that file")
    fit.add_argument("--docs", metavar="DIR", help="texts to take the best passages from (.md, .rst, .txt)")
    fit.add_argument(
        "--question", metavar="TEXT", help="the current question, when it is not the last message of the chat"
    )
    fit.add_argument("--json", action="store_true", help="print messages and report as JSON")
    fit.add_argument("--html", metavar="FILE", help="also write the report as a page")
    fit.set_defaults(run=_fit)
    demo = commands.add_parser("demo", help="one budget through a LangChain chain and a LlamaIndex engine")
    demo.add_argument(
        "--chat", metavar="CHAT.json", help="a conversation (default: the one shipped with the package)"
    )
    demo.add_argument(
        "--docs", metavar="DIR", help="texts to index (default: the documentation of rankbudget)"
    )
    demo.add_argument("--question", metavar="TEXT", help="what to ask")
    demo.add_argument(
        "--window", type=int, default=4096, metavar="TOKENS", help="the context window (default: %(default)s)"
    )
    demo.add_argument(
        "--model",
        metavar="NAME",
        help="answer with this model; default: quote the best matching kept passage",
    )
    demo.add_argument(
        "--base-url",
        metavar="URL",
        help="an OpenAI-compatible server (default: OPENAI_BASE_URL, then OpenAI)",
    )
    demo.set_defaults(run=_demo)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo  # frameworks are only needed here

    return run_demo(
        chat=options.chat,
        docs=options.docs,
        question=options.question,
        window=options.window,
        model=options.model,
        base_url=options.base_url,
    )


def _fit(options: argparse.Namespace) -> int:
    budget = _budget(options)
    chat = read_chat(options.chat)
    passages = read_passages(options.docs) if options.docs else []
    with step(
        f"fitting {len(chat.messages):,} messages" + (f" and {len(passages):,} passages" if passages else "")
    ):
        messages, report = _fitted(budget, chat, passages, options.question)
    if options.html:
        Path(options.html).write_text(report.to_html(), encoding="utf-8")
    if options.json:
        print(_json({"messages": messages, "report": report.to_dict()}))
        return 0
    print(report.table())
    print(_kept(chat, messages))
    if passages:
        kept = report.kept_ids("knowledge")
        print(f"{len(kept)} passages of {len(passages):,} in the prompt: {', '.join(kept) or 'none'}")
    return 0


def _json(data: Any) -> str:
    """Returns data as JSON that the terminal or pipe can take: letters as they are where it knows them all, else as escapes."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, indent=2)
    return text


def _budget(options: argparse.Namespace) -> TokenBudget:
    if options.profile and not options.budget:
        msg = "--profile names a profile of a file, and no --budget FILE.yaml is given"
        raise BudgetConfigError(msg)
    if options.budget:
        budget = TokenBudget.from_file(options.budget, options.profile)
        changed: dict[str, Any] = {"model": budget.model or options.model}
    else:
        budget, changed = TokenBudget(), {"model": options.model}
        if options.window is None:
            try:
                budget = TokenBudget.for_model(options.model)
            except CounterUnavailableError as error:
                msg = f"the context window of {options.model!r} is unknown; say it: --window TOKENS"
                raise BudgetConfigError(msg) from error
    if options.window is not None:
        changed["context_window"] = options.window
    if options.reserve is not None:
        changed["reserve"] = options.reserve
        if 0 <= options.reserve <= 1:  # else it is not the ratios that are wrong
            changed["ratios"] = {
                name: budget.share_of(name) * (1 - options.reserve) for name in budget.ratios
            }
    return budget.replace(**changed)


def _fitted(
    budget: TokenBudget, chat: Chat, passages: list[Segment], question: str | None
) -> tuple[list[Any], BudgetReport]:
    """Returns the prompt and its report: a chat alone may use the whole room, beside documents it has its share."""
    from ..counting import counter_for

    counter = counter_for(budget.model)
    system, history = chat.split()
    if not passages:
        from ..messages.codec import content_text
        from ..prompt.fit_messages import fit_messages

        budget.check_system(sum(counter.count(content_text(message.get("content"))) for message in system))
        limit = budget.limit(
            system_tokens=sum(counter.count_message(message) for message in system), band=counter.band
        )
        fitted = fit_messages(
            chat.messages if question is None else [*chat.messages, {"role": "user", "content": question}],
            max_tokens=limit,
            counter=counter,
            tools=chat.tools,
            min_exchanges=budget.min_exchanges,
            message_cap=budget.message_cap,
        )
        return list(fitted.messages), fitted.report
    from ..prompt.assembler import Assembler
    from ..segment import Block

    asked = question or next(
        (
            m["content"]
            for m in reversed(history)
            if m["role"] == "user" and isinstance(m.get("content"), str)
        ),
        "",
    )
    blocks = [
        Block(name="system", messages=system),
        Block(name="history", messages=history),
        Block(name="knowledge", segments=_near(passages, asked)),
    ]
    made = Assembler(budget, counter=counter).assemble(blocks, query=question, tools=chat.tools)
    return made.messages, made.report


def _near(passages: list[Segment], question: str) -> tuple[Segment, ...]:
    """Returns the passages worth ranking: all of a few, the nearest in meaning of many; the assembler ranks and packs them."""
    if len(passages) <= _RETRIEVED or not question:
        return tuple(passages)
    from ..relevance.index import EmbeddingIndex

    try:
        index = EmbeddingIndex()
        index.add(passages)
    except ImportError:  # without the embed extra, words decide among all of them
        return tuple(passages)
    return tuple(dataclasses.replace(segment, score=None) for segment in index.search(question, k=_RETRIEVED))


def _kept(chat: Chat, messages: list[Any]) -> str:
    kept = {id(message) for message in messages}
    there = [i for i, message in enumerate(chat.messages) if id(message) in kept]
    first = next((i for i in there if chat.messages[i]["role"] not in ("system", "developer")), None)
    since = "" if first is None else f", the conversation from message {first + 1} on"
    return f"{len(there)} of {len(chat.messages):,} messages kept whole{since}"


if __name__ == "__main__":
    sys.exit(main())
