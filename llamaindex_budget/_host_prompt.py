"""The prompt that a host puts around history and nodes, as far as the caller says it: `prompt=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.prompts import BasePromptTemplate

from rankbudget.adapters import JOINT, Fit, PromptRequest

from ._codec import PINNED
from ._parts import as_is

__all__ = ["QUESTIONS", "with_prompt"]

_CONTEXT = ("context_str", "context_msg")
QUESTIONS = ("query_str", "question")
"""What LlamaIndex's templates call the question."""


def with_prompt(
    request: PromptRequest, prompt: Any, question: str | None, extra_tokens: int, *, before: int = 0
) -> PromptRequest:
    """Returns a session's request with the host's prompt in its count.

    Args:
        request: the request.
        prompt: a prompt template, a text, which is a system prompt, or messages.
        question: what is asked now; None when it is stored.
        extra_tokens: tokens of the prompt that are neither here nor in the request.
        before: tokens that an engine counts before the history, those of this prompt included.
    """
    asks = isinstance(prompt, BasePromptTemplate) and any(name in prompt.template_vars for name in QUESTIONS)
    # The question's own tokens are in the rendering now, no more beside it.
    own = request.codec.make("user", question, origin="query") if question else None
    inner, seen = request.render, request.shown or as_is

    def render(kept: Mapping[str, Fit], history: list[Any]) -> Sequence[ChatMessage]:
        others = {name: fit for name, fit in kept.items() if name != "knowledge"}
        pieces = kept["knowledge"].pieces if "knowledge" in kept else ()
        context = JOINT.join(seen("knowledge", p.segment, p.rendition.text) for p in pieces)
        front = _filled(prompt, context, question or "")
        rules = sum(1 for m in front if m.role in PINNED)
        shown = history if inner is None else inner(others, history)
        return [*front[:rules], *shown, *front[rules:], *([] if asks or own is None else [own])]

    empty = render({}, [])
    if before and request.measure is not None:
        extra_tokens = max(extra_tokens, before - request.measure.total(empty))
    system = [message for message in empty if message.role in PINNED]
    return replace(request, render=render, system=system, extra_tokens=extra_tokens, question=own)


def _filled(prompt: Any, context: str, question: str) -> list[ChatMessage]:
    if isinstance(prompt, BasePromptTemplate):
        values = dict.fromkeys(prompt.template_vars, "")
        values |= {name: context for name in _CONTEXT if name in values}
        values |= {name: question for name in QUESTIONS if name in values}
        return list(prompt.format_messages(None, **values))
    texts = ([prompt] if isinstance(prompt, str) else []) + ([context] if context else [])
    given = [] if isinstance(prompt, str) else prompt
    return [*given, *(ChatMessage(role=MessageRole.SYSTEM, content=text) for text in texts)]
