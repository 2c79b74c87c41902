"""The five-block form: system, project, task, history and knowledge as one tagged text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from .._drivers import drive
from ..budget.token_budget import TokenBudget
from ..conversation.summary import SUMMARY_TITLE, spoken_text
from ..counting import counter_for
from ..counting.protocol import TokenCounter
from ..errors import BudgetConfigError, check_list, named_options
from ..fitting.protocol import Fit
from ..messages.codec import DictCodec
from ..messages.tags import NOTICE, escape_text, one_turn, placeholder, render_block, role_line
from ..messages.texts import content_text
from ..report.report import FitResult
from ..segment import Block, Provenance, Scope, Segment
from .request import PromptRequest
from .stages import plan_steps


class BlockAssembler:
    """Puts five blocks into one text that fits, the least important shortened first.

    The system block is never cut: larger than its size (or a quarter of the window) it is an error. Project
    and task are cut at the end of a sentence. History keeps its newest exchanges, and of the rest a summary
    in at most 30 % of its room. Knowledge keeps what fits, in the order given, which is taken to be the order
    of relevance. Empty history and knowledge say so.

    Args:
        budget: the limits, as `TokenBudget.five_blocks("gpt-4")`; its size for "query" is left free for the
            question.
        counter: what `counter_for` takes; None takes the budget's model.
        summarizer: `(text, max_tokens) -> str`; None takes the offline one, False writes no summary.
        notice: the sentence that says knowledge is data; None leaves it out.
        scope: who reads; segments of other users or projects are left out.

    Example:
        >>> blocks = BlockAssembler(TokenBudget.five_blocks("gpt-4"))
        >>> asked = [{"role": "user", "content": "JWT or sessions?"}]
        >>> text = blocks.assemble("You review code.", "Python 3.12", "Add a login.", asked, [])
        >>> print(text[text.index("<history>") :])
        <history>
        [user]: JWT or sessions?
        </history>
        <BLANKLINE>
        <knowledge>
        No relevant context found.
        </knowledge>
    """

    @named_options
    def __init__(
        self,
        budget: TokenBudget,
        *,
        counter: Any = None,
        summarizer: Any = None,
        notice: str | None = NOTICE,
        scope: Scope | None = None,
    ) -> None:
        self.budget = budget
        self.counter: TokenCounter = counter_for(
            counter if counter is not None else budget.model or "o200k_base"
        )
        self.summarizer = _offline(self.counter) if summarizer is None else summarizer or None
        self.notice = notice
        self.scope = scope

    @named_options
    def assemble(
        self,
        system: str,
        project: str = "",
        task: str = "",
        history: Sequence[Any] = (),
        knowledge: Sequence[Any] = (),
    ) -> str:
        """Returns the text of all five blocks.

        Args:
            system: what the model is; never cut.
            project: conventions that hold for every task.
            task: the goal and its constraints.
            history: earlier messages, oldest first: dicts, or objects with `role` and `content`; the question
                is not among them.
            knowledge: texts, segments, or objects or dicts with `content`, `confidence` and a `source` or
                `provenance`, best first.

        Raises:
            BudgetExceededError: the system block is larger than it may be, or nothing but it fits.
        """
        return self.assemble_with_report(system, project, task, history, knowledge).text

    @named_options
    def assemble_with_report(
        self,
        system: str,
        project: str = "",
        task: str = "",
        history: Sequence[Any] = (),
        knowledge: Sequence[Any] = (),
    ) -> FitResult:
        """Returns the text, what it kept, and the report that says why; arguments are as in `assemble`."""
        budget, counter = self.budget, self.counter
        check_list("history", history, "messages")
        check_list("knowledge", knowledge, "texts")
        system_tokens = counter.count(system)
        budget.check_system(system_tokens)
        sizes, reserve = dict(budget.sizes), budget.reserve
        question = sizes.pop("query", 0)
        if question:
            reserve = max(2, budget.reserve_tokens(system_tokens) + question)
        look = _Look(counter, system=system, notice=self.notice)
        memories = [_memory(item, i) for i, item in enumerate(knowledge)]
        request = PromptRequest(
            budget=budget.replace(sizes=sizes, reserve=reserve),
            counter=counter,
            codec=_Codec(),
            measure=look,
            blocks=(
                _text_block("project", project),
                _text_block("task", task),
                Block(name="knowledge", segments=memories, strategy="best_first"),
            ),
            system=[_System(role="system", content=system)] if system else (),
            history=[_message(m, i) for i, m in enumerate(history)],
            asked_elsewhere=True,
            sources=frozenset({"project", "task", "history", "knowledge"}),
            render=look.render,
            frames={"knowledge": sum(counter.count_many(look.announced))},
            scope=self.scope,
            summarizer=self.summarizer,
        )
        made = drive(plan_steps(request))
        return FitResult(
            text=made.messages[0].text,
            messages=made.history,
            segments=tuple([piece.segment for piece in made.kept["knowledge"].pieces]),
            report=made.report,
        )


@dataclass(frozen=True, slots=True)
class _Text:
    """The finished prompt where the plan expects host messages."""

    text: str


class _Summary(dict[str, Any]):
    """A summary that the plan wrote; a message that only looks like one is a message."""


class _System(dict[str, Any]):
    """The text of the system block; a system message of the history is a turn like any other."""


class _Codec(DictCodec):
    def make(self, role: str, text: str, *, origin: str) -> Any:
        made = super().make(role, text, origin=origin)
        return _Summary(made) if origin == "summary" else made


class _Look:
    """How the text looks, and what its parts cost: the plan's `measure` and `render`."""

    additive = False  # lines end in a newline and mostly add up, but only the finished text is the truth
    overhead = 0

    def __init__(self, counter: TokenCounter, *, system: str, notice: str | None) -> None:
        self._counter = counter
        self._system = [system.rstrip("\n") + "\n"] if system else []
        self.announced = [notice + "\n"] if notice else []

    def render(self, kept: Mapping[str, Fit], history: Sequence[Any]) -> list[_Text]:
        """Returns one text with all five blocks, so that what is counted without contents is their tags."""
        knowledge = _pieces(kept, "knowledge")
        parts = {
            "system": self._system,
            "project": _pieces(kept, "project"),
            "task": _pieces(kept, "task"),
            "history": [_line(message) for message in history] or [placeholder("history") or ""],
            "knowledge": [*self.announced, *knowledge]
            if knowledge
            else [placeholder("knowledge", kept["knowledge"].decisions if "knowledge" in kept else ()) or ""],
        }
        return [_Text("\n".join(render_block(name, pieces) for name, pieces in parts.items()).rstrip("\n"))]

    def group(self, messages: Sequence[Any]) -> int:
        """Returns what a run of messages adds to the history block; for the system message, what it has."""
        return sum(self._counter.count_many([_line(message) for message in messages]))

    def total(self, messages: Sequence[Any]) -> int:
        if len(messages) == 1 and isinstance(messages[0], _Text):
            return self._counter.count(messages[0].text)
        return self._counter.count("".join(_line(message) for message in messages))


def _offline(counter: TokenCounter) -> Any:
    from ..compression.extractive import extractive_summary

    return lambda text, max_tokens: extractive_summary(text, max_tokens, counter)


def _pieces(kept: Mapping[str, Fit], name: str) -> list[str]:
    return [piece.rendition.text.rstrip("\n") + "\n" for piece in kept[name].pieces] if name in kept else []


def _text_block(name: str, text: str) -> Block:
    return Block(
        name=name,
        segments=(Segment(id=name, text=escape_text(text).rstrip("\n")),) if text.strip() else (),
        strategy="truncate",
    )


def _line(message: Mapping[str, Any]) -> str:
    """Returns a message as one line of the history, or the system text, or a summary."""
    text = content_text(message.get("content"))
    if isinstance(message, _System):
        return text.rstrip("\n") + "\n"
    if isinstance(message, _Summary):
        summary = text.partition("<summary>\n")[2].rpartition("\n</summary>")[0]
        return f"{SUMMARY_TITLE}]:\n{one_turn(chr(10) + summary)[1:]}\n\n"
    return role_line(message["role"], spoken_text(message))


def _message(item: Any, position: int) -> Mapping[str, Any]:
    if isinstance(item, Mapping):
        return item
    role, content = getattr(item, "role", None), getattr(item, "content", None)
    if role is None or content is None:
        kind = type(item).__name__
        msg = f"history[{position}] must be a dict, or an object with 'role' and 'content' (got a {kind})"
        raise BudgetConfigError(msg)
    return {"role": str(getattr(role, "value", role)), "content": content}


def _memory(item: Any, position: int) -> Segment:
    """Returns a memory in its tags; earlier ones are more relevant."""
    text = item if isinstance(item, str) else _field(item, "content", "text", "page_content")
    if not isinstance(text, str):
        kind = type(item).__name__
        msg = f"knowledge[{position}] must be a text, or have 'content' or 'text' (got a {kind})"
        raise BudgetConfigError(msg)
    provenance = _field(item, "provenance")
    source = _field(provenance, "source_id") or _field(item, "source_id", "source", "id")
    source = source if isinstance(source, str) else f"knowledge-{position}"
    confidence = _field(item, "confidence")
    confidence = _field(provenance, "confidence") if confidence is None else confidence
    shown = f"{confidence:.2f}" if isinstance(confidence, (int, float)) else escape(str(confidence))
    trust = "" if confidence is None else f' confidence="{shown}"'
    tag = f'<memory source="{escape(" ".join(source.split()))}"{trust}>'
    tagged = f"{tag}\n{escape_text(text).rstrip(chr(10))}\n</memory>"
    fields: dict[str, Any] = {
        "text": tagged,
        "score": -float(position),
        "id": f"knowledge-{position}",
        "source": item,
    }
    if isinstance(item, Segment):  # its scope, its group and its pin hold
        return Segment(
            **fields, provenance=item.provenance, scope=item.scope, group=item.group, pinned=item.pinned
        )
    return Segment(**fields, provenance=provenance if isinstance(provenance, Provenance) else None)


def _field(item: Any, *names: str) -> Any:
    """Returns the first of some fields an item has, whether it is a mapping or an object; a text has none."""
    for name in names if not isinstance(item, str) else ():
        value = item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)
        if value is not None:
            return value
    return None
