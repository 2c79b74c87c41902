"""System prompt, question, history and retrieved texts into one message list that fits: `build_constrained_prompt`.

A thin face of the `Assembler`. In order of importance: system prompt and question always; then the documents, best first, each whole or not
at all; then the newest history. The messages stand in reading order: system prompt, documents, history, question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .assembler import Assembler
from .assembly import Assembly
from ..budget.token_budget import TokenBudget
from ..messages.codec import PINNED_ROLES, DictCodec
from ..counting import counter_for
from ..errors import BudgetConfigError, BudgetExceededError
from ..fitting.protocol import Fit
from ..messages.tags import NOTICE, escape_text
from ..segment import Block, Segment

__all__ = ["assemble_constrained_prompt", "build_constrained_prompt"]

_HEADER = "Here are relevant documents:\n"


def build_constrained_prompt(
    system_prompt: str,
    user_question: str,
    conversation_history: Sequence[Mapping[str, Any]],
    rag_context: Sequence[str],
    max_tokens: int,
    model_name: str = "gpt-4o",
    output_reserve_tokens: int = 1500,
) -> list[Any]:
    """Returns messages that leave `output_reserve_tokens` of the window free, counted as the model will see them.

    Args:
        system_prompt: always there, whole.
        user_question: always there, whole, last.
        conversation_history: earlier messages, oldest first; the newest that fit are kept, calls with their results.
        rag_context: retrieved texts, the most relevant first; one that does not fit is skipped, not the rest with it.
        max_tokens: the model's context window.
        model_name: whose tokenizer counts.
        output_reserve_tokens: kept for the answer.

    Raises:
        BudgetExceededError: system prompt and question alone do not fit.

    Example:
        >>> chat = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi there!"}]
        >>> prompt = build_constrained_prompt("Be brief.", "Is tea hot?", chat, ["Tea is hot."], max_tokens=200, output_reserve_tokens=20)
        >>> [m["role"] for m in prompt]
        ['system', 'system', 'user', 'assistant', 'user']
        >>> [m["role"] for m in build_constrained_prompt("Be brief.", "Is tea hot?", chat, ["Tea is hot."], 40, output_reserve_tokens=20)]
        ['system', 'user']
    """
    made = assemble_constrained_prompt(
        system_prompt,
        user_question,
        conversation_history,
        rag_context,
        max_tokens,
        model_name,
        output_reserve_tokens,
    )
    return made.messages


def assemble_constrained_prompt(
    system_prompt: str,
    user_question: str,
    conversation_history: Sequence[Mapping[str, Any]],
    rag_context: Sequence[str],
    max_tokens: int,
    model_name: str = "gpt-4o",
    output_reserve_tokens: int = 1500,
    *,
    notice: str | None = NOTICE,
) -> Assembly:
    """Returns the same messages with the report that says why each piece is there or not; `notice` rewords or drops the sentence before documents."""
    asked: Any = user_question
    if not isinstance(asked, str) or not asked:
        msg = f"user_question is {asked!r}, allowed: a text; the question is what the prompt is for"
        raise BudgetConfigError(msg)
    problems = [
        f"{name} is {value!r:.80}, allowed: {allowed}; give [] for none"
        for name, value, allowed in (
            ("rag_context", rag_context, "a list of texts"),
            ("conversation_history", conversation_history, "a list of messages"),
        )
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence)
    ]
    if not problems:
        texts: Sequence[Any] = rag_context
        problems = [
            f"rag_context[{i}] is {text!r:.80}, allowed: a text"
            for i, text in enumerate(texts)
            if not isinstance(text, str)
        ]
    if problems:
        raise BudgetConfigError.of(problems)
    budget = _budget(max_tokens, output_reserve_tokens, model_name)
    pinned = _pinned(conversation_history, model_name)
    if pinned and pinned < budget.available:
        budget = budget.replace(
            sizes={"history": pinned}
        )  # system messages in the history stay, however hungry the documents are
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    question = {"role": "user", "content": user_question}
    header = _HEADER if notice is None else f"{notice}\n{_HEADER}"
    blocks = [
        Block(name="system", messages=system),
        Block(name="history", messages=conversation_history),
        Block(
            name="knowledge",
            segments=tuple(_document(i, text) for i, text in enumerate(rag_context)),
            strategy="best_first",
        ),
    ]

    def assemble(limits: TokenBudget, *, framed: bool) -> Assembly:
        layout = _Layout(system, question, header, framed=framed)
        return Assembler(limits, notice=None).assemble(blocks, query=question, render=layout)

    framed = bool(rag_context)
    try:
        made = assemble(budget, framed=framed)
    except BudgetExceededError:
        if not framed:
            raise
        framed = False  # not even the frame of the documents fits, so none of them can
        made = assemble(
            budget.replace(ratios={}, sizes={"history": budget.available}, surplus="keep"), framed=framed
        )
    report = made.report
    free = report.limit - report.total_tokens
    if free <= 0 or len(made.history) == len(conversation_history):
        return made
    # A document too large for what was left leaves tokens that the history, granted before that was known, can still use.
    documents, history = report.block("knowledge").used, report.block("history").used
    sizes = {"knowledge": documents, "history": min(history + free, report.limit - documents)}
    return assemble(budget.replace(ratios={}, sizes=sizes, surplus="keep"), framed=framed and documents > 0)


def _budget(max_tokens: int, reserve: int, model: str) -> TokenBudget:
    """Returns limits in which documents come before history, and what they leave is the history's."""
    return TokenBudget(
        context_window=max_tokens - 1 if reserve == 1 else max_tokens,
        reserve=0 if reserve == 1 else reserve,  # a budget reads a reserve of 1 as a share
        ratios={"knowledge": 1.0},
        preset="rag",
        surplus="borrow",
        max_system_ratio=None,
        model=model,
    )


def _pinned(history: Sequence[Mapping[str, Any]], model: str) -> int:
    counter, roles = counter_for(model), DictCodec().roles(history)
    return sum(
        counter.count_message(message)
        for message, role in zip(history, roles, strict=True)
        if role in PINNED_ROLES
    )


def _document(position: int, text: str) -> Segment:
    """Returns a document in its tags, numbered as it was given; earlier ones are more relevant."""
    return Segment(
        id=f"document-{position + 1}",
        text=f'<document index="{position + 1}">\n{escape_text(text).rstrip(chr(10))}\n</document>\n',
        score=-float(position),
        source=text,
    )


class _Layout:
    """Places system prompt, documents, history and question."""

    def __init__(self, system: list[Any], question: Any, header: str, *, framed: bool) -> None:
        self._system = system
        self._question = question
        self._header = header
        self._framing = framed
        """The first rendering is the assembler's count of what always stays: it holds the frame the documents will stand in."""

    def __call__(self, kept: Mapping[str, Fit], history: Sequence[Any]) -> list[Any]:
        pieces = [piece.rendition.text for piece in kept["knowledge"].pieces]
        framed = bool(pieces) or self._framing
        self._framing = False
        documents = (
            [{"role": "system", "content": (self._header + "\n".join(pieces)).rstrip("\n")}] if framed else []
        )
        return [*self._system, *documents, *history, self._question]
