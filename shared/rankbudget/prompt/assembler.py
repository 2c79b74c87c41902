"""The core's own entry point to a plan: all blocks of a prompt in one budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

from .._drivers import Steps, awaiting, blocking
from .._kinds import check_kinds
from ..budget.token_budget import TokenBudget
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting import counter_for
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetConfigError, check_choice, named_options
from ..messages.codec import Codec, DictCodec, content_text
from ..messages.measure import Measure
from ..messages.tags import NOTICE
from ..relevance.protocol import Scorer
from ..segment import Block, Decision, Scope
from .blocks import for_reader
from .fit_messages import check_timeout, read_profile
from .plan import Plan
from .read_blocks import Blocks, check_history, read_blocks
from .request import PromptRequest, Render, Shown
from .session import BudgetSession
from .stages import plain_budget, plan_steps

_MESSAGES = ("system", "history", "query")
"""Blocks that are host messages."""


class Assembler:
    """Fits all blocks of a prompt into one budget.

    Args:
        budget: the limits; a number is the room for a prompt, with no reserve.
        counter: what `counter_for` takes; None takes the budget's model, else o200k_base.
        codec: reads and makes host messages; None takes OpenAI-style dicts.
        measure: counts host messages in the host's own way.
        scorer: rates what competes for room; None takes the default fusion.
        summarizer: `(text, max_tokens) -> str` for the history that is dropped.
        cut: "fill" or "stable", see `fit_messages`.
        session: remembers cut and summary between calls; its counter, codec, measure, summarizer and timeout
            are taken where none is given.
        scope: who the prompt is for; segments of others are left out.
        strict: refuses a broken conversation instead of repairing it.
        notice: the sentence before inserted text; None leaves it out.
        profile: what the provider demands of a conversation, see `fit_messages`.
        text: the prompt is also used as text (`Assembly.text`), which has to fit, too.
        summary_timeout: seconds a summary may take, see `fit_messages`.
        shown: `(block, segment, text) -> str`, how a host shows a kept piece: under a heading with its
            source, translated. Pieces cost what is shown; what is kept of them is their own text.

    Raises:
        BudgetConfigError: an invalid budget, cut or timeout.

    Example:
        >>> made = Assembler(TokenBudget(context_window=200, reserve=50)).assemble(
        ...     {"system": "Be brief.", "knowledge": ["Tea is hot.", "Ice is cold."]}, query="Is tea hot?"
        ... )
        >>> [m["role"] for m in made.messages], made.report.total_tokens <= 150
        (['system', 'system', 'user'], True)
    """

    @named_options
    def __init__(
        self,
        budget: TokenBudget | int,
        *,
        counter: Any = None,
        codec: Codec | None = None,
        measure: Measure | None = None,
        scorer: Scorer | None = None,
        summarizer: Summarizer | None = None,
        cut: CutMode = "fill",
        session: BudgetSession | None = None,
        scope: Scope | None = None,
        strict: bool = False,
        notice: str | None = NOTICE,
        profile: RenderingProfile | str | None = None,
        text: bool = False,
        summary_timeout: float | None = SUMMARY_TIMEOUT,
        shown: Shown | None = None,
    ) -> None:
        problems: list[str] = []
        check_choice("cut", cut, problems, get_args(CutMode))
        check_timeout(summary_timeout, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        check_kinds({"session": session})
        self.budget = plain_budget(budget) if not isinstance(budget, TokenBudget) else budget
        own = session.counter if session is not None else self.budget.model or "o200k_base"
        self.counter: TokenCounter = counter_for(own if counter is None else counter)
        self.codec: Codec = codec or (DictCodec() if session is None else session.codec)
        self.session = session
        self.scope = scope
        self._fields: dict[str, Any] = {
            "budget": self.budget,
            "counter": self.counter,
            "codec": self.codec,
            "measure": session.measure if measure is None and session is not None else measure,
            "scorer": scorer,
            "summarizer": summarizer,
            "cut": cut,
            "scope": scope,
            "strict": strict,
            "notice": notice,
            "text": text,
            "summary_timeout": summary_timeout,
            "shown": shown,
            "profile": None if profile is None else read_profile(profile, self.codec),
            "shorten_question": self.budget.shorten_question,
        }

    @blocking
    def assemble(
        self,
        blocks: Blocks,
        *,
        query: Any = None,
        tools: Sequence[Tool] | None = None,
        include_memories: bool = True,
        memory_query: str | None = None,
        render: Render | None = None,
    ) -> Steps[Plan]:
        """Returns a prompt that fits, is valid, and says why it looks as it does.

        Args:
            blocks: `Block` objects, or a mapping as {"system": "..", "history": messages, "knowledge":
                texts}.
            query: the current question, a text or a host message; None when it is the last user message of
                the history.
            tools: tool schemas sent along; they are counted.
            include_memories: False leaves the memory block out.
            memory_query: ranks memories by another text than the question.
            render: makes the final host messages; None takes the usual order and tags.

        Raises:
            BudgetExceededError: what must stay does not fit.
            BudgetConfigError: blocks that cannot be read.
        """
        by_name = {b.name: b for b in read_blocks(blocks) if include_memories or b.name != "memory"}
        hidden: list[Decision] = []
        for name in _MESSAGES:  # the plan reads the other blocks for their reader
            if name in by_name:
                by_name[name], unseen = for_reader(by_name[name], self.scope)
                hidden += unseen
        if memory_query and "memory" in by_name:
            memory = by_name["memory"]
            by_name["memory"] = replace(memory, query=memory.query or memory_query)
        question, text = self._question(by_name.get("query"), query)
        messages = self._history(by_name.get("history"))
        request = PromptRequest(
            **self._fields,
            tools=tools,
            blocks=[b for b in by_name.values() if b.name not in _MESSAGES],
            system=self._messages(by_name["system"], "system") if "system" in by_name else (),
            history=messages,
            history_block=by_name.get("history"),
            question=question,
            question_text=text,
            sources=frozenset(by_name) - {"system", "query"},
            render=render,
            hidden=tuple(hidden),
            task_turns=self._task_turns(by_name.get("task"), messages),
        )
        steps = plan_steps if self.session is None else self.session.plan_steps
        return (yield from steps(request))

    aassemble = awaiting(assemble)

    def _question(self, block: Block | None, query: Any) -> tuple[Any, str]:
        """Returns the question as a host message and as text; None and "" when it is in the history."""
        asked = self._messages(block, "user")[-1:] if block is not None else []
        if asked and query:
            msg = "query must be given once (got a block and query=). Leave one of them out."
            raise BudgetConfigError(msg)
        question = asked[0] if asked else query
        if question is None or question == "":
            return None, ""
        if isinstance(question, str):
            return self.codec.make("user", question, origin="query"), question
        self.codec.role(question)  # refuses what is no message
        return question, content_text(self.codec.to_dict(question).get("content"))

    def _messages(self, block: Block, role: str) -> list[Any]:
        if block.messages is not None:
            for message in block.messages:
                self.codec.role(message)  # refuses what is no message
            return list(block.messages)
        text = "\n\n".join(s.text for s in block.segments if s.text)
        return [self.codec.make(role, text, origin=block.name)] if text else []

    def _history(self, block: Block | None) -> Sequence[Any] | None:
        """Returns the history as host messages."""
        if block is None:
            return None
        check_history(block)
        if block.messages is not None:
            return block.messages
        return [
            s.source if s.source is not None else self.codec.make(s.role or "user", s.text, origin="history")
            for s in block.segments
        ]

    def _task_turns(self, task: Block | None, history: Sequence[Any] | None) -> int:
        if self.session is None or task is None or history is None:
            return 0
        text = "\n".join([s.text for s in task.segments])
        return self.session.task_turns(text, history)
