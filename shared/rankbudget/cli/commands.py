"""The commands with their options; what each does is in the file that it imports."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from .options import AS_JSON, CHAT, LIMITS, MAX_TOKENS, PROMPT, WINDOW, Options, budget_of

Run = Callable[[argparse.Namespace], int | None]
_MODEL: Options = {"--model": LIMITS["--model"]}


def _fit(options: argparse.Namespace) -> None:
    from .fitting import Task, show_fit

    show_fit(Task.of(options), budget_of(options), as_json=options.json, html=options.html)


def _inspect(options: argparse.Namespace) -> None:
    from .fitting import Task, write_page

    if not options.serve:
        task = Task.of(options)
        print(write_page(task, task.fit(budget_of(options)), options.output))
        return
    from .serving import serve_page  # loads a web server

    serve_page(Task.of(options), budget_of(options), options.port)


def _explain(options: argparse.Namespace) -> None:
    from .fitting import Task

    task = Task.of(options)
    report = task.fit(budget_of(options)).report
    print(report.explain(*task.piece(options.piece, report)))


def _check(options: argparse.Namespace) -> int:
    from .fitting import Task
    from .golden import compare_with, write_golden

    report = Task.of(options).fit(budget_of(options)).report
    return write_golden(report, options.golden) if options.update else compare_with(report, options.golden)


def _compare(options: argparse.Namespace) -> None:
    from .comparing import show_comparison
    from .fitting import Task

    show_comparison(Task.of(options), options)


def _count(options: argparse.Namespace) -> None:
    from .counts import show_counts

    show_counts(options.files, options.model, each=options.each)


def _compress(options: argparse.Namespace) -> None:
    from .counts import show_compressed

    show_compressed(options.file, options.max_tokens, options.model, options.question)


def _models(options: argparse.Namespace) -> None:
    from .counts import show_models

    show_models(options.part)


def _config(options: argparse.Namespace) -> None:
    from .configuration import show_budget

    show_budget(budget_of(options), as_json=options.json)


def _stats(options: argparse.Namespace) -> None:
    from .statistics import show_statistics

    show_statistics(options.files, as_json=options.json)


def _batch(options: argparse.Namespace) -> int:
    from .batch import run_batch

    return run_batch(options, budget_of(options))


def _demo(options: argparse.Namespace) -> int:
    from .demo import run_demo

    return run_demo(**{name: value for name, value in vars(options).items() if name != "run"})


_GOLDEN: Options = {
    "--golden": {"required": True, "metavar": "FILE", "help": "what became of every piece, as it should be"},
    "--update": {"action": "store_true", "help": "write that file instead"},
}
_BATCH: Options = {
    "source": {"metavar": "IN", "help": "prompts, one a row: a .jsonl or .parquet file"},
    "target": {"metavar": "OUT", "help": "the same rows with the fitted prompts: .jsonl or .parquet"},
    **LIMITS,
    "--workers": {"type": int, "metavar": "N", "help": "processes (default: one for each core)"},
    "--column": {"action": "append", "metavar": "INPUT=NAME", "help": "read an input from another column"},
    "--output": {"action": "append", "metavar": "OUTPUT=NAME", "help": "rename an output column"},
    "--by-question": {"action": "store_true", "help": "choose older messages by the question, not by age"},
    "--reasons": {"action": "store_true", "help": "add what became of each piece, and why"},
    "--strict": {"action": "store_true", "help": "a broken conversation is an error of its row"},
    "--shard-rows": {
        "type": int,
        "default": 250,
        "metavar": "N",
        "help": "rows a shard (default: %(default)s)",
    },
}
_DEMO: Options = {
    "--chat": {"metavar": "CHAT.json", "help": "a conversation (default: one that is shipped)"},
    "--docs": {"metavar": "DIR", "help": "texts to index (default: rankbudget's documentation)"},
    "--question": {"metavar": "TEXT", "help": "what to ask"},
    "--window": WINDOW,
}
COMMANDS: dict[str, tuple[Run, Options, str]] = {
    "fit": (
        _fit,
        {
            **CHAT,
            **PROMPT,
            **AS_JSON,
            "--html": {"metavar": "FILE", "help": "also write the report as a page"},
        },
        "fit a chat, and documents if given, into a model's window",
    ),
    "inspect": (
        _inspect,
        {
            **CHAT,
            **PROMPT,
            "-o --output": {
                "default": "report.html",
                "metavar": "FILE",
                "help": "the page (default: %(default)s)",
            },
            "--serve": {
                "action": "store_true",
                "help": "show the page with a slider for the window, on this machine, and write no file",
            },
            "--port": {"type": int, "default": 0, "metavar": "N", "help": "of --serve (default: a free one)"},
        },
        "write a page to look into the prompt with",
    ),
    "explain": (
        _explain,
        {
            "piece": {"metavar": "ID", "help": "an id of the report, or the number of a message, from 1"},
            **CHAT,
            **PROMPT,
        },
        "say why one piece is in the prompt or not, and what would bring it back",
    ),
    "check": (
        _check,
        {**CHAT, **_GOLDEN, **PROMPT},
        "compare what becomes of every piece with a golden file; 1 if anything differs",
    ),
    "compare": (
        _compare,
        {
            **CHAT,
            "budgets": {
                "nargs": "+",
                "metavar": "BUDGET",
                "help": "windows, as 8k, FILE.yaml, FILE.yaml:PROFILE",
            },
            **{
                name: how for name, how in PROMPT.items() if name not in ("--window", "--budget", "--profile")
            },
        },
        "fit one chat with several budgets, side by side",
    ),
    "count": (
        _count,
        {
            "files": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "chats (.json, .jsonl) and texts; - is a text",
            },
            **_MODEL,
            "--each": {"action": "store_true", "help": "one line for each message"},
        },
        "count the tokens of chats and texts",
    ),
    "compress": (
        _compress,
        {
            "file": {"metavar": "FILE", "help": "a text; - is standard input"},
            "--max-tokens": MAX_TOKENS,
            "--question": {"metavar": "TEXT", "help": "keep what answers it"},
            **_MODEL,
        },
        "shorten one text to a number of tokens and print it",
    ),
    "models": (
        _models,
        {"part": {"nargs": "?", "default": "", "metavar": "PART", "help": "only names that contain it"}},
        "list the models whose context window is known",
    ),
    "config": (
        _config,
        {**LIMITS, **AS_JSON},
        "print the budget that a file, a profile and options make, with every share in tokens",
    ),
    "stats": (
        _stats,
        {"files": {"nargs": "+", "metavar": "FILE", "help": "reports as JSON, one or one a line"}, **AS_JSON},
        "say how much each block used and how often it was cut, over many reports",
    ),
    "batch": (_batch, _BATCH, "fit every prompt of a file, in several processes"),
    "demo": (_demo, _DEMO, "one budget through a LangChain chain and a LlamaIndex engine"),
}
"""What to run, its arguments and options, and what the help says, by the name of the command."""
