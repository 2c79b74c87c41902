"""The core's own entry point to a plan: all blocks of a prompt in one budget."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from .._drivers import Steps, awaiting, blocking
from ..budget.token_budget import TokenBudget
from ..conversation.refusals import refuse_results
from ..conversation.stored import StoredMessages
from ..conversation.thread import SUMMARY_TIMEOUT, CutMode, Summarizer
from ..counting import counter_for
from ..counting.profiles import RenderingProfile
from ..counting.protocol import TokenCounter, Tool
from ..errors import BudgetConfigError, adapter_hint, check_choice, named_options, refuse
from ..messages.codec import Codec, DictCodec, holds_results, make_among
from ..messages.measure import Measure
from ..messages.tags import NOTICE
from ..messages.texts import content_text
from ..relevance.protocol import Scorer
from ..segment import Block, Decision, Scope, Segment
from .fit_messages import check_timeout, read_profile
from .grants import for_reader
from .kinds import check_kinds
from .request import Plan, PromptRequest, Render, Shown
from .session import BudgetSession
from .stages import plain_budget, plan_steps

_MESSAGES = ("system", "history", "query")
"""Blocks that may be made of host messages."""

Blocks = Sequence[Block] | Mapping[str, Any]
"""Blocks; or names with a text, texts, segments, a `MemoryStore`, or (history) messages."""


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
        BudgetConfigError: an option that is not allowed.

    Example:
        >>> made = Assembler(TokenBudget(context_window=200, reserve=50)).assemble(
        ...     {"system": "Be brief.", "knowledge": ["Tea is hot.", "Ice is cold."]}, query="Is tea hot?"
        ... )
        >>> [m["role"] for m in made.messages], made.report.total_tokens <= 150
        (['system', 'system', 'user'], True)
    """

    _sent = False  # whether the model is asked next: then no call at the end waits for its results

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
        refuse(problems)
        check_kinds({"codec": codec, "measure": measure, "summarizer": summarizer, "shown": shown})
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
            "sent": self._sent,
            "notice": notice,
            "text": text,
            "summary_timeout": summary_timeout,
            "shown": shown,
            "profile": read_profile(profile, self.codec, self.counter),
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
                the history. One with results of tool calls is read as the history's last message.
            tools: tool schemas sent along; they are counted.
            include_memories: False leaves the memory block out.
            memory_query: ranks memories by another text than the question.
            render: makes the final host messages; None takes the usual order and tags.

        Raises:
            BudgetExceededError: what must stay does not fit.
            BudgetConfigError: blocks that cannot be read.
        """
        by_name = {b.name: b for b in _read_blocks(blocks) if include_memories or b.name != "memory"}
        hidden: list[Decision] = []
        for name in _MESSAGES:  # the plan reads the other blocks for their reader
            if name in by_name:
                by_name[name], unseen = for_reader(by_name[name], self.scope)
                hidden += unseen
        if memory_query and "memory" in by_name:
            memory = by_name["memory"]
            by_name["memory"] = replace(memory, query=memory.query or memory_query)
        asked = self._asked(by_name, query, render)
        among = asked["history"] or [asked.get("question")]
        request = PromptRequest(
            **self._fields,
            tools=tools,
            blocks=[b for b in by_name.values() if b.name not in _MESSAGES],
            system=self._messages(by_name.get("system"), "system", among),
            **asked,
            history_block=by_name.get("history"),
            sources=frozenset(by_name) - {"system", "query"},
            render=render,
            hidden=tuple(hidden),
            task_turns=self._task_turns(by_name.get("task"), asked["history"]),
        )
        steps = plan_steps if self.session is None else self.session.plan_steps
        plan: Plan = yield from steps(request)
        last = self.codec.role(plan.messages[-1]) if plan.messages and render is None else "user"
        if asked.get("question") is not None or last in ("user", "tool"):
            return plan
        noted = plan.report.noting(f"nothing is asked: the prompt ends with a message of the role {last}")
        return replace(plan, report=noted)

    aassemble = awaiting(assemble)

    def _asked(self, blocks: Mapping[str, Block], query: Any, render: Render | None) -> dict[str, Any]:
        """Returns the fields of a request for history and question; results end the history."""
        messages = self._history(blocks.get("history"))
        question, text = self._question(blocks.get("query"), query, messages)
        if question is None or not holds_results(self.codec, question):
            return {"history": messages, "question": question, "question_text": text}
        if render is not None:  # it shows the question itself
            refuse_results(self.codec, question, "query", "the history")
        return {"history": [*(messages or ()), question], "asked_last": True}

    def _question(self, block: Block | None, query: Any, history: Sequence[Any] | None) -> tuple[Any, str]:
        """Returns the question as a host message and as text; None and "" when it is in the history."""
        among = history or ()
        asked = self._messages(block, "user", among)[-1:]
        if asked and query:
            msg = "query must be given once (got a block and query=). Leave one of them out."
            raise BudgetConfigError(msg)
        question = asked[0] if asked else query
        if isinstance(question, (list, tuple)):
            msg = f"query must be a text or one message (got {question!r:.80})."
            raise BudgetConfigError(msg)
        if question is None or question == "":
            return None, ""
        if isinstance(question, str):
            return make_among(self.codec, among, "user", question, origin="query"), question
        self._check(question)
        return question, content_text(self.codec.to_dict(question).get("content"))

    def _messages(self, block: Block | None, role: str, among: Sequence[Any]) -> list[Any]:
        if block is None:
            return []
        if block.messages is not None:
            for position, message in enumerate(block.messages):
                self._check(message, position)
            return list(block.messages)
        text = "\n\n".join(s.text for s in block.segments if s.text)
        return [make_among(self.codec, among, role, text, origin=block.name)] if text else []

    def _check(self, message: Any, position: int = 0) -> None:
        """Refuses what is no message, and content that no provider reads; the history's is read later."""
        self.codec.role(message)
        check = getattr(self.codec, "check", None)
        if check is not None:
            check(message, position)

    def _history(self, block: Block | None) -> Sequence[Any] | None:
        """Returns the history as host messages."""
        if block is None:
            return None
        _check_history(block)
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


# ---- what an assembler takes ----------------------------------------------------------------------
def _read_blocks(blocks: Blocks) -> list[Block]:
    """Returns blocks, each name once.

    Raises:
        BudgetConfigError: a name twice, or a value that is not a block.
    """
    given: Any = blocks  # callers without type checks give anything
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        msg = (
            f"blocks must be Block objects or a mapping (got a {type(given).__name__}). "
            "Give {'system': 'Be kind.', 'history': messages}, for example."
        )
        raise BudgetConfigError(msg)
    found: list[Any] = list(given)
    if isinstance(given, Mapping):
        found = [_block(name, value) for name, value in given.items()]
    others: list[Any] = [b for b in found if not isinstance(b, Block)]
    if others:
        raise BudgetConfigError.of([f"blocks must be Block objects (got {other!r:.80})" for other in others])
    problems = [
        f"block {name!r} must be given once (got {n} times)" for name, n in _repeated(b.name for b in found)
    ]
    for block in found:
        if block.messages is not None and block.name not in _MESSAGES:
            names = ", ".join(map(repr, _MESSAGES))
            problems.append(
                f"block {block.name!r} must have segments (got messages). Only {names} take messages."
            )
        for name, n in _repeated(s.id for s in block.segments):
            problems.append(f"ids in block {block.name!r} must be unique (got {name!r} {n} times)")
    refuse(problems)
    return found


def _check_history(block: Block) -> None:
    """Refuses what a conversation cannot promise: it is cut by age, in turns."""
    pinned = [s.id for s in block.segments if s.pinned][:5]
    grouped = [s.id for s in block.segments if s.group][:5]
    asked = [f"pinned segments {pinned!r}"] if pinned else []
    asked += ["pinned=True"] if block.pinned else []
    asked += [f"strategy={block.strategy!r}"] if block.strategy is not None else []
    asked += [f"groups for {grouped!r}"] if grouped else []
    if asked:
        msg = (
            f"the history block must have no pins, groups or strategy (got {', '.join(asked)}). It is kept "
            "from its newest turn on; put what must stay into a memory block or a system message, and set "
            "cut= and min_exchanges= for the rest."
        )
        raise BudgetConfigError(msg)


def _block(name: Any, value: Any) -> Block:
    if not isinstance(name, str) or not name:
        msg = f"a block's name must be a non-empty text (got {name!r})"
        raise BudgetConfigError(msg)
    if isinstance(value, Block):
        return value if value.name == name else replace(value, name=name)
    if value is None or value == "":
        return Block(name=name)
    if isinstance(value, str):
        return Block.of(name, value)
    if isinstance(value, Segment):
        return Block(name=name, segments=(value,))
    if hasattr(value, "ablocks"):
        return Block(name=name, store=value)
    if isinstance(value, Mapping) and name in _MESSAGES and "role" in value:
        return Block(name=name, messages=[value])
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping)):
        msg = f"block {name!r} must be a text, a list of texts or segments, or messages (got {value!r:.80})"
        raise BudgetConfigError(msg)
    return _block_of_items(name, value)


def _block_of_items(name: str, given: Iterable[Any]) -> Block:
    if name == "history" and isinstance(given, StoredMessages):  # read only as far as it fits
        return Block(name=name, messages=given)
    items = list(given)
    kinds = set(map(type, items))
    if any(issubclass(kind, Block) for kind in kinds):
        msg = (
            f"block {name!r} must hold texts, segments or messages (got blocks). Give the blocks themselves."
        )
        raise BudgetConfigError(msg)
    if items and all(issubclass(kind, Segment) for kind in kinds):
        return Block(name=name, segments=tuple(items))
    texts = all(issubclass(kind, str) for kind in kinds)
    if name in _MESSAGES and not (items and texts and name != "history"):
        return Block(name=name, messages=items)
    if not texts:
        _check_items(name, items)
    made = [
        item
        if isinstance(item, Segment)
        else Segment(id=f"{name}-{i}", text=str(item), source=None if isinstance(item, str) else item)
        for i, item in enumerate(items)
    ]
    return Block(name=name, segments=tuple(made))


def _check_items(name: str, items: list[Any]) -> None:
    """Refuses messages, objects of a framework and None among texts, segments and objects of a block."""
    if any("role" in item for item in items if isinstance(item, Mapping)):
        msg = f"block {name!r} must hold texts, segments or objects (got messages). Give them as 'history'."
        raise BudgetConfigError(msg)
    hint = next(filter(None, map(adapter_hint, items)), "")
    if hint:
        msg = f"block {name!r} must hold texts or segments (got {items[0]!r:.80}).{hint}"
        raise BudgetConfigError(msg)
    if None in items:
        msg = f"block {name!r} must hold texts, segments or objects (got None at {items.index(None)})."
        raise BudgetConfigError(msg)


def _repeated(names: Iterable[str]) -> list[tuple[str, int]]:
    held = list(names)
    if len(set(held)) == len(held):  # nearly always
        return []
    return [(name, times) for name, times in Counter(held).items() if times > 1]
