"""One chat, and documents if given, into a window: what `fit`, `inspect`, `explain` and `check` share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..budget.token_budget import TokenBudget
from ..counting import counter_for
from ..errors import BudgetError, counted
from ..messages.codec import PINNED_ROLES, DictCodec
from ..prompt.assembler import Assembler
from ..prompt.request import Assembly
from ..report.report import BudgetReport
from ..segment import Block, Segment
from .reading import Chat, read_chat, read_passages


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a command was given to fit."""

    chat: Chat
    passages: Sequence[Segment] = ()
    question: str | None = None

    @classmethod
    def of(cls, options: argparse.Namespace) -> Task:
        """Returns the task that options describe, with its files read."""
        passages = read_passages(options.docs) if options.docs else ()
        return cls(chat=read_chat(options.chat), passages=passages, question=options.question)

    def fit(self, budget: TokenBudget) -> Assembly:
        """Returns the fitted prompt; without documents the chat has all of the room."""
        if not self.passages:
            share = 1 - budget.reserve if budget.reserve <= 1 else 1.0
            budget = budget.replace(ratios={"history": share})
        elif budget.surplus == "waterfall":  # one prompt: what documents leave goes to the chat
            budget = budget.replace(surplus="borrow")
        assembler = Assembler(budget, counter=counter_for(budget.model))
        return assembler.assemble(self._blocks(), query=self.question, tools=self.chat.tools)

    def offered(self) -> dict[str, Sequence[Any]]:
        """Returns all that the prompt could have, by block."""
        return {block.name: block.messages or block.segments for block in self._blocks()}

    def piece(self, asked: str, report: BudgetReport) -> tuple[str, str]:
        """Returns the id and the block of the piece that is called so, or of the message with this number.

        Raises:
            BudgetError: there is no such piece.
        """
        known = {(decision.segment_id, decision.block) for decision in report.decisions}
        number, messages = int(asked) if asked.isdecimal() else 0, self.chat.messages
        names = sorted(one for one in known if one[0] == asked)
        leading = len(self.chat.split()[0])
        at = number - 1 + len(self.chat.prompt) - len(messages)
        if 1 <= number <= len(messages) and at < leading:
            names += [(f"system-{at}", "system"), ("system", "system")]
        elif 1 <= number <= len(messages):
            own = DictCodec().message_id(messages[number - 1]) or ""
            names += [(own, "history"), (f"history-{at - leading}", "history")]
        found = next((name for name in names if name in known), None)
        if found is None:
            msg = (
                f"ID must be an id of the report, or the number of a message from 1 to {len(messages)} "
                f"(got {asked!r}). `rankbudget fit --json` lists the ids."
            )
            raise BudgetError(msg)
        return found

    def _blocks(self) -> list[Block]:
        system, history = self.chat.split()
        blocks = [Block(name="system", messages=system), Block(name="history", messages=history)]
        return [*blocks, Block(name="knowledge", segments=self.passages)] if self.passages else blocks


def show_fit(task: Task, budget: TokenBudget, *, as_json: bool, html: str | None) -> None:
    """Prints what `fit` says: the report and what was kept, or messages and report as JSON."""
    made = task.fit(budget)
    if html:
        write_page(task, made, html)
    if as_json:
        beside = {} if task.chat.system is None else {"system": task.chat.system["content"]}
        messages = [message for message in made.messages if message is not task.chat.system]
        print_json({**beside, "messages": messages, "report": made.report.to_dict()})
        return
    if sys.stdout.isatty() and find_spec("rich"):
        made.report.print()  # a picture
    else:
        print(made.report.table())
    print(_kept(task.chat, made.messages))
    if task.passages:
        print(f"passages in the prompt: {', '.join(made.report.kept_ids('knowledge')) or 'none'}")


def print_json(data: Mapping[str, Any]) -> None:
    """Prints JSON with letters as they are, with escapes where the terminal or pipe cannot take one."""
    text = json.dumps(data, ensure_ascii=False, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(data, indent=2)
    print(text)


def write_page(task: Task, made: Assembly, target: str) -> Path:
    """Writes the page to look into the prompt with, and returns its path."""
    from ..report.page import save_html  # only a page needs it

    return save_html(target, [made], before=task.offered())


def _kept(chat: Chat, messages: Sequence[Any]) -> str:
    kept = {id(message) for message in messages}
    places = [i for i, message in enumerate(chat.messages, start=1) if id(message) in kept]
    first = next((i for i in places if chat.messages[i - 1]["role"] not in PINNED_ROLES), None)
    since = "" if first is None else f", the conversation from message {first} on"
    return f"{len(places):,} of {counted(len(chat.messages), 'message')} kept whole{since}"
