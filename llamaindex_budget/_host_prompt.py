"""The prompt that a host puts around history and nodes, as far as the caller says it: `prompt=`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
from llama_index.core.prompts import BasePromptTemplate

from rankbudget.adapters import JOINT, Fit, PromptRequest
from rankbudget.errors import BudgetConfigError

from ._codec import PINNED
from ._parts import as_is

__all__ = ["QUESTIONS", "HostPrompt"]

_CONTEXT = ("context_str", "context_msg")
QUESTIONS = ("query_str", "question")
"""What LlamaIndex's templates call the question."""


class HostPrompt:
    """What a host sends around history, nodes and question.

    Args:
        prompt: a prompt template, with `{context_str}` for nodes and `{query_str}` for the question;
            a text, which is a system prompt; or messages.

    Raises:
        BudgetConfigError: it is none of these.
    """

    def __init__(self, prompt: Any) -> None:
        if isinstance(prompt, str):
            prompt = [ChatMessage(role=MessageRole.SYSTEM, content=prompt)]
        elif not isinstance(prompt, (BasePromptTemplate, list, tuple)):
            kinds = "a LlamaIndex prompt template, a text or a list of messages"
            msg = f"prompt must be {kinds} (got a {type(prompt).__name__})."
            raise BudgetConfigError(msg)
        self.prompt = prompt

    def around(
        self, request: PromptRequest, question: str | None, extra_tokens: int, *, before: int = 0
    ) -> PromptRequest:
        """Returns a session's request with this prompt in its count.

        Args:
            request: the request.
            question: what is asked now; None when it is stored.
            extra_tokens: tokens of the prompt that are neither here nor in the request.
            before: tokens that an engine counts before the history, those of this prompt included.
        """
        variables = self.prompt.template_vars if isinstance(self.prompt, BasePromptTemplate) else ()
        asks = any(name in variables for name in QUESTIONS)

        inner, seen = request.render, request.shown or as_is

        def render(kept: Mapping[str, Fit], history: list[Any]) -> Sequence[ChatMessage]:
            pieces = kept["knowledge"].pieces if "knowledge" in kept else ()
            if inner is not None:
                history = list(
                    inner({name: fit for name, fit in kept.items() if name != "knowledge"}, history)
                )
            texts = JOINT.join(seen("knowledge", p.segment, p.rendition.text) for p in pieces)
            front = self._filled(variables, texts, question or "")
            rules = sum(1 for m in front if m.role in PINNED)
            asked = [] if asks or not question else [request.codec.make("user", question, origin="query")]
            return [*front[:rules], *history, *front[rules:], *asked]

        empty = render({}, [])
        system = [message for message in empty if message.role in PINNED]
        if before and request.measure is not None:
            extra_tokens = max(extra_tokens, before - request.measure.total(empty))
        # The question's own tokens are in the rendering now, no more beside it.
        own = request.codec.make("user", question, origin="query") if question else None
        return replace(request, render=render, system=system, extra_tokens=extra_tokens, question=own)

    def _filled(self, variables: Sequence[str], context: str, question: str) -> list[ChatMessage]:
        if not isinstance(self.prompt, BasePromptTemplate):
            shown = [TextBlock(text=context)] if context else []
            return [*self.prompt, *([ChatMessage(role=MessageRole.SYSTEM, blocks=shown)] if shown else [])]
        values = dict.fromkeys(variables, "")
        values |= {name: context for name in _CONTEXT if name in values}
        values |= {name: question for name in QUESTIONS if name in values}
        return list(self.prompt.format_messages(None, **values))
