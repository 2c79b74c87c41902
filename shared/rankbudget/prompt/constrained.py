"""System prompt, question, history and retrieved texts in one list that fits: `build_constrained_prompt`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._drivers import drive
from ..budget.token_budget import TokenBudget
from ..counting import counter_for
from ..errors import named_options, refuse
from ..fitting.protocol import Fit
from ..messages.codec import DictCodec
from ..messages.tags import NOTICE, escape_text
from ..segment import Block, Segment
from .request import Plan, PromptRequest
from .stages import plan_steps

_HEADER = "Here are relevant documents:\n"


@named_options
def build_constrained_prompt(
    system_prompt: str,
    user_question: str,
    conversation_history: Sequence[Mapping[str, Any]],
    rag_context: Sequence[str],
    max_tokens: int,
    model_name: str = "gpt-4o",
    output_reserve_tokens: int = 1500,
) -> list[Any]:
    """Returns messages that leave `output_reserve_tokens` of the window free, counted as the model sees them.

    In order of importance: system prompt and question always; the documents where all of them fit, else the
    last exchanges and then the documents, best first, each whole or not at all; then older history.
    `assemble_constrained_prompt` in this module takes the same arguments and also has the report.

    Args:
        system_prompt: always there, whole.
        user_question: always there, whole, last.
        conversation_history: earlier messages, oldest first; the newest that fit are kept, calls with their
            results.
        rag_context: retrieved texts, the most relevant first; oversized ones are skipped, later ones are
            still considered.
        max_tokens: the model's context window.
        model_name: whose tokenizer counts.
        output_reserve_tokens: kept for the answer.

    Raises:
        BudgetExceededError: system prompt and question alone do not fit.

    Example:
        >>> chat = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": "Hi there!"}]
        >>> asked = ("Be brief.", "Is tea hot?", chat, ["Tea is hot."])
        >>> [m["role"] for m in build_constrained_prompt(*asked, max_tokens=200, output_reserve_tokens=20)]
        ['system', 'system', 'user', 'assistant', 'user']
        >>> [m["role"] for m in build_constrained_prompt(*asked, max_tokens=40, output_reserve_tokens=20)]
        ['system', 'user']
    """
    given = (system_prompt, user_question, conversation_history, rag_context, max_tokens)
    return list(assemble_constrained_prompt(*given, model_name, output_reserve_tokens).messages)


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
) -> Plan:
    """Returns the same with the report; `notice` rewords or drops the sentence before the documents."""
    _check(user_question, conversation_history, rag_context)
    system = [{"role": "system", "content": system_prompt}] if system_prompt else []
    question = {"role": "user", "content": user_question}
    header = _HEADER if notice is None else f"{notice}\n{_HEADER}"

    def render(kept: Mapping[str, Fit], history: Sequence[Any]) -> list[Any]:
        pieces = [piece.rendition.text for piece in kept["knowledge"].pieces]
        text = (header + "\n".join(pieces)).rstrip("\n")
        documents = [{"role": "system", "content": text}] if pieces else []
        return [*system, *documents, *history, question]

    counter = counter_for(model_name)
    documents = [_document(i, text) for i, text in enumerate(rag_context)]
    request = PromptRequest(
        budget=TokenBudget(  # documents rank before history; what they leave is the history's
            context_window=max_tokens - 1 if output_reserve_tokens == 1 else max_tokens,
            reserve=0 if output_reserve_tokens == 1 else output_reserve_tokens,  # 1 would be a share
            ratios={"knowledge": 1.0},
            preset="rag",
            max_system_ratio=None,
            model=model_name,
        ),
        counter=counter,
        codec=DictCodec(),
        blocks=(Block(name="knowledge", segments=documents, strategy="best_first"),),
        system=system,
        history=conversation_history,
        question=question,
        question_text=user_question,
        sources=frozenset({"history", "knowledge"}),
        render=render,
        frames={"knowledge": counter.count_message({"role": "system", "content": header})},
    )
    return drive(plan_steps(request))


def _check(question: Any, history: Any, documents: Any) -> None:
    problems = []
    if not isinstance(question, str) or not question:
        problems.append(f"user_question must be a non-empty text (got {question!r:.80})")
    for name, value in (("rag_context", documents), ("conversation_history", history)):
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            problems.append(f"{name} must be a list (got {value!r:.80}). Give [] for none.")
    if not problems:
        odd = [i for i, text in enumerate(documents) if not isinstance(text, str)]
        problems += [f"rag_context[{i}] must be a text (got {documents[i]!r:.80})" for i in odd[:5]]
    refuse(problems)


def _document(position: int, text: str) -> Segment:
    """Returns a document in its tags, numbered as it was given; earlier ones are more relevant."""
    return Segment(
        id=f"document-{position + 1}",
        text=f'<document index="{position + 1}">\n{escape_text(text).rstrip(chr(10))}\n</document>\n',
        score=-float(position),
        source=text,
    )
