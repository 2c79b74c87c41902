"""The `rankbudget` command: its parser, and one place for errors, notes and exit codes."""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib.util import find_spec
from typing import Any

from .. import __version__
from ..errors import BudgetError, named_file
from .commands import COMMANDS


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command.

    Returns:
        0; 1 if pieces differ from a golden file, or between the frameworks of the demonstration; 2 for an
        error; 3 if rows of a batch have errors; 130 if it was stopped.
    """
    options = _options(arguments)
    for library in ("faiss", "wordllama", "httpx", "openai"):
        logging.getLogger(library).setLevel(logging.WARNING)  # some switch on everybody's notes when imported
    notes = logging.StreamHandler(sys.stderr)
    notes.setFormatter(logging.Formatter("rankbudget: note: %(message)s"))
    logging.getLogger("rankbudget").addHandler(notes)
    if hasattr(sys.stdout, "reconfigure"):  # a letter that a terminal or pipe lacks is escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with redirect_stdout(_Output(sys.stdout)):
            status: int = options.run(options) or 0
            sys.stdout.flush()
    except (BudgetError, ImportError, OSError) as error:
        told = str(error)
        if isinstance(error, OSError) and error.filename is not None:
            told = f"{error.filename} must be a file that can be read or written (got {error.strerror})."
        print(f"rankbudget: error: {' '.join(_as_typed(told, options).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("rankbudget: stopped", file=sys.stderr)
        return 130
    finally:
        logging.getLogger("rankbudget").removeHandler(notes)
    return status


_PYTHONS = {"window": "context_window", "model": "counter", "column": "columns", "output": "outputs"}


def _as_typed(told: str, options: argparse.Namespace) -> str:
    """Returns an error of Python's functions with the command's names of options."""
    own = next(own for run, own, _ in COMMANDS.values() if run is options.run)
    for flag in [names.split()[-1] for names in own if names.startswith("-")]:
        name = flag[2:].replace("-", "_")
        theirs = f"(?:{name}|{_PYTHONS.get(name, name)})"
        told = re.sub(rf"\b{theirs}=(?=[\s.]|$)", flag, told)
        if getattr(options, name) is not None:  # else a file may have set it, under Python's name
            told = re.sub(rf"(^|; ){theirs}(?=:| must)", rf"\1{flag}", told)
    return told


class _Output:
    """Standard output: when its reader, as head, has enough, the command goes on to its exit code."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        held = getattr(self._stream, name)
        return partial(self._until_closed, held) if name in ("write", "flush") else held

    def _until_closed(self, call: Callable[..., Any], *given: str) -> Any:
        try:
            with named_file("standard output"):
                return call(*given)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            return None


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    about = "One context budget: never over the window, a reason for every piece."
    parser = argparse.ArgumentParser(prog="rankbudget", description=about)
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (run, options, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
        command.set_defaults(run=run)
        for option, settings in options.items():
            command.add_argument(*option.split(), **settings)
    if "_ARGCOMPLETE" in os.environ and find_spec("argcomplete"):  # the shell asks what may come next
        import argcomplete  # type: ignore[import-not-found,unused-ignore]  # may not be installed

        argcomplete.autocomplete(parser)
    return parser.parse_args(arguments)
