"""Runs the stations: counts what is fixed, grants what is left, fits every block, renders, and verifies what it returns.

The only place that knows all stations. Whatever it returns was counted in its final form; when that is too much, because counts did not
add up or a host's own template added something, the lowest rank gives up the excess and the new form is counted, a few rounds at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from .assembly import Assembly
from .blocks import Blocks
from ..budget.token_budget import TokenBudget
from ..messages.codec import Codec, DictCodec
from ..conversation.fit import CutMode, Summarizer
from ..counting import counter_for
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter, Tool
from .._drivers import Steps, adrive, drive
from ..errors import BudgetConfigError
from ..conversation.arguments import check_timeout
from ..messages.measure import Measure
from .fit_messages import read_profile
from .stages import Render, Run
from ..relevance.protocol import Scorer
from ..messages.tags import NOTICE
from ..conversation.summary import SUMMARY_TIMEOUT
from ..segment import Scope, Segment
from .session import BudgetSession

__all__ = ["Assembler", "Assembly", "Render", "Shown"]

Shown = Callable[[str, Segment, str], str]
"""How a text that stands for a segment of a block reads in the prompt."""


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
        session: remembers cut and summary between calls.
        scope: who the prompt is for; segments of others are left out.
        strict: refuses a broken conversation instead of repairing it.
        notice: the sentence before inserted text; None leaves it out.
        profile: what the provider demands of a conversation, see `fit_messages`.
        text: the prompt is also used as text (`Assembly.text`), which has to fit, too.
        summary_timeout: seconds a summary may take, see `fit_messages`.
        shown: `(block, segment, text) -> str`, how a host shows a piece that stays as it reads: a heading with its source, a translation. Pieces
            cost what is shown; what is kept of them is their own text.

    Raises:
        BudgetConfigError: a budget, a cut or a timeout that is none.

    Example:
        >>> made = Assembler(TokenBudget(context_window=200, reserve=50)).assemble(
        ...     {"system": "Be brief.", "knowledge": ["Tea is hot.", "Ice is cold."]}, query="Is tea hot?"
        ... )
        >>> [m["role"] for m in made.messages], made.report.total_tokens <= 150
        (['system', 'system', 'user'], True)
    """

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
        problems = (
            []
            if cut in get_args(CutMode)
            else [f"cut is {cut!r}, allowed: {' or '.join(map(repr, get_args(CutMode)))}"]
        )
        check_timeout(summary_timeout, problems)
        if problems:
            raise BudgetConfigError.of(problems)
        self.budget = plain_budget(budget) if not isinstance(budget, TokenBudget) else budget
        self.counter: TokenCounter = counter_for(
            counter if counter is not None else self.budget.model or "o200k_base"
        )
        self.codec: Codec = codec or DictCodec()
        self.measure = measure
        self.scorer = scorer
        self.summarizer = summarizer
        self.cut = cut
        self.session = session
        self.scope = scope
        self.strict = strict
        self.notice = notice
        self.text = text
        self.summary_timeout = summary_timeout
        self.shown = shown
        self.profile = read_profile(profile, self.codec)

    def assemble(
        self,
        blocks: Blocks,
        *,
        query: Any = None,
        tools: Sequence[Tool] | None = None,
        include_memories: bool = True,
        memory_query: str | None = None,
        render: Render | None = None,
    ) -> Assembly:
        """Returns a prompt that fits, is valid, and says why it looks as it does.

        Args:
            blocks: `Block` objects, or a mapping as {"system": "..", "history": messages, "knowledge": texts}.
            query: the current question, a text or a host message; None when it is the last user message of the history.
            tools: tool schemas sent along; they are counted.
            include_memories: False leaves the memory block out.
            memory_query: ranks memories by another text than the question.
            render: makes the final host messages; None takes the usual order and tags.

        Raises:
            BudgetExceededError: what must stay does not fit.
            BudgetConfigError: blocks that cannot be read.
        """
        return drive(
            self._steps(
                Run(self, tools, render), blocks, query, memory_query, include_memories=include_memories
            )
        )

    async def aassemble(
        self,
        blocks: Blocks,
        *,
        query: Any = None,
        tools: Sequence[Tool] | None = None,
        include_memories: bool = True,
        memory_query: str | None = None,
        render: Render | None = None,
    ) -> Assembly:
        """Returns what `assemble` returns, without blocking the event loop while a summary is written."""
        return await adrive(
            self._steps(
                Run(self, tools, render), blocks, query, memory_query, include_memories=include_memories
            )
        )

    def _steps(
        self, run: Run, blocks: Blocks, query: Any, memory_query: str | None, *, include_memories: bool
    ) -> Steps[Assembly]:
        run.read(blocks, query, include_memories=include_memories, memory_query=memory_query)
        run.fix()
        yield from run.grant()
        run.verify()
        return run.assembly()


def plain_budget(tokens: Any) -> TokenBudget:
    """Returns the budget that a bare number of prompt tokens stands for: no reserve, memory to history 3 : 4, a system prompt of any size."""
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 1:
        msg = f"budget is {tokens!r}, allowed: a TokenBudget, or the tokens the prompt may have (1 or more)"
        raise BudgetConfigError(msg)
    return TokenBudget(
        context_window=tokens, reserve=0, ratios={"memory": 0.43, "history": 0.57}, max_system_ratio=None
    )
