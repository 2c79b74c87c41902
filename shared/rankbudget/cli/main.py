"""The `rankbudget` command: `fit` fits a chat, `batch` a file of prompts, `demo` shows both frameworks."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import __version__
from ..budget.token_budget import TokenBudget
from ..errors import BudgetConfigError, BudgetError, CounterUnavailableError
from ..messages.codec import PINNED_ROLES
from .reading import Chat, read_chat, read_passages

_CHAT = 'a list of messages, {"messages": [..], "tools": [..]}, or one message a line; - is standard input'
_RESERVE = "kept for the answer: tokens above 1, else a share (default: 0.3)"
_LIMITS: dict[str, dict[str, Any]] = {
    "--window": {"type": int, "metavar": "TOKENS", "help": "the context window (default: the model's)"},
    "--model": {"default": "gpt-4o", "help": "whose tokenizer counts (default: %(default)s)"},
    "--reserve": {"type": float, "metavar": "TOKENS|SHARE", "help": _RESERVE},
    "--budget": {"metavar": "FILE.yaml", "help": "take the budget from a file instead"},
    "--profile": {"metavar": "NAME", "help": "a profile of that file"},
}
_FIT: dict[str, dict[str, Any]] = {
    "chat": {"metavar": "CHAT.json", "help": _CHAT},
    **_LIMITS,
    "--docs": {"metavar": "DIR", "help": "texts to take the best passages from (.md, .rst, .txt)"},
    "--question": {"metavar": "TEXT", "help": "the question, when it is not the chat's last message"},
    "--json": {"action": "store_true", "help": "print messages and report as JSON"},
    "--html": {"metavar": "FILE", "help": "also write the report as a page"},
}
_BATCH: dict[str, dict[str, Any]] = {
    "source": {"metavar": "IN", "help": "prompts, one a row: a .jsonl or .parquet file"},
    "target": {"metavar": "OUT", "help": "the same rows with the fitted prompts: .jsonl or .parquet"},
    **_LIMITS,
    "--workers": {"type": int, "metavar": "N", "help": "processes (default: one for each core)"},
    "--column": {"action": "append", "metavar": "INPUT=NAME", "help": "read an input from another column"},
    "--output": {"action": "append", "metavar": "OUTPUT=NAME", "help": "rename an output column"},
    "--strict": {"action": "store_true", "help": "a broken conversation is an error of its row"},
    "--shard-rows": {
        "type": int,
        "default": 250,
        "metavar": "N",
        "help": "rows a shard (default: %(default)s)",
    },
}
_DEMO: dict[str, dict[str, Any]] = {
    "--chat": {"metavar": "CHAT.json", "help": "a conversation (default: one that is shipped)"},
    "--docs": {"metavar": "DIR", "help": "texts to index (default: rankbudget's documentation)"},
    "--question": {"metavar": "TEXT", "help": "what to ask"},
    "--window": {"type": int, "default": 4096, "help": "tokens of the context window (default: %(default)s)"},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0; 1 if the demonstration finds a difference; 2 for an error; 3 if rows of a batch have errors.
    """
    options = _parser().parse_args(arguments)
    for library in ("faiss", "wordllama", "httpx", "openai"):
        logging.getLogger(library).setLevel(logging.WARNING)  # some switch on everybody's notes when imported
    notes = logging.StreamHandler(sys.stderr)
    notes.setFormatter(logging.Formatter("rankbudget: note: %(message)s"))
    logging.getLogger("rankbudget").addHandler(notes)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has what it wants
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (BudgetError, ImportError, OSError) as error:
        print(f"rankbudget: error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rankbudget: stopped", file=sys.stderr)
        return 130
    finally:
        logging.getLogger("rankbudget").removeHandler(notes)
    return status


def _parser() -> argparse.ArgumentParser:
    about = "One context budget: never over the window, a reason for every piece."
    parser = argparse.ArgumentParser(prog="rankbudget", description=about)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, run, options, text in (
        ("fit", _fit, _FIT, "fit a chat, and documents if given, into a model's window"),
        ("batch", _batch, _BATCH, "fit every prompt of a file, in several processes"),
        ("demo", _demo, _DEMO, "one budget through a LangChain chain and a LlamaIndex engine"),
    ):
        command = commands.add_parser(name, help=text)
        command.set_defaults(run=run)
        for option, settings in options.items():
            command.add_argument(option, **settings)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo  # the frameworks are only needed here

    return run_demo(**{name: value for name, value in vars(options).items() if name != "run"})


def _batch(options: argparse.Namespace) -> int:
    from .batch import run_batch  # only this command needs it

    return run_batch(options, _budget(options))


def _fit(options: argparse.Namespace) -> int:
    from ..counting import counter_for
    from ..prompt.assembler import Assembler
    from ..segment import Block

    budget, chat = _budget(options), read_chat(options.chat)
    system, history = chat.split()
    blocks = [Block(name="system", messages=system), Block(name="history", messages=history)]
    if options.docs:
        blocks.append(Block(name="knowledge", segments=read_passages(options.docs)))
    else:
        share = 1 - budget.reserve if budget.reserve <= 1 else 1.0
        budget = budget.replace(ratios={"history": share})  # nothing else is there to share with
    assembler = Assembler(budget, counter=counter_for(budget.model))
    made = assembler.assemble(blocks, query=options.question, tools=chat.tools)
    if options.html:
        Path(options.html).write_text(made.report.to_html(), encoding="utf-8")
    if options.json:
        print(_json({"messages": made.messages, "report": made.report.to_dict()}))
        return 0
    print(made.report.table())
    print(_kept(chat, made.messages))
    if options.docs:
        print(f"passages in the prompt: {', '.join(made.report.kept_ids('knowledge')) or 'none'}")
    return 0


def _budget(options: argparse.Namespace) -> TokenBudget:
    if options.profile and not options.budget:
        msg = "--profile must come with --budget FILE.yaml, the file that has the profile"
        raise BudgetConfigError(msg)
    if options.budget:
        budget = TokenBudget.from_file(options.budget, options.profile)
    elif options.window is not None:
        budget = TokenBudget()
    else:
        try:
            budget = TokenBudget.for_model(options.model)
        except CounterUnavailableError as error:
            msg = f"the context window of {options.model!r} is unknown; pass --window TOKENS"
            raise BudgetConfigError(msg) from error
    changes: dict[str, Any] = {"model": budget.model or options.model}
    if options.window is not None:
        changes["context_window"] = options.window
    if options.reserve is not None:
        changes["reserve"] = options.reserve
        if 0 <= options.reserve <= 1:  # the other shares make room for it
            shares = {name: budget.share_of(name) for name in budget.ratios}
            changes["ratios"] = {name: share * (1 - options.reserve) for name, share in shares.items()}
    return budget.replace(**changes)


def _json(data: Mapping[str, Any]) -> str:
    """Returns JSON with letters as they are, with escapes where the terminal or pipe cannot take one."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(data, indent=2)
    return text


def _kept(chat: Chat, messages: Sequence[Any]) -> str:
    kept = {id(message) for message in messages}
    places = [i for i, message in enumerate(chat.messages, start=1) if id(message) in kept]
    first = next((i for i in places if chat.messages[i - 1]["role"] not in PINNED_ROLES), None)
    since = "" if first is None else f", the conversation from message {first} on"
    return f"{len(places):,} of {len(chat.messages):,} messages kept whole{since}"


if __name__ == "__main__":
    sys.exit(main())
