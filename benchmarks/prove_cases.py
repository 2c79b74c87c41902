"""The applications of a proof campaign: drawn once, prepared as a host would send them, and shrunk when one fails."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from rankbudget.testing import Application, applications, repaired, waiting_from
from rankbudget.testing.repairs import least_messages
from rankbudget.testing.server import request_tokens

SENT = ("text", "image_url", "input_audio", "file")
"""Content blocks that chat completions take; hosts' clients leave the others out."""


@dataclass(frozen=True)
class Case:
    """One application, ready to be asked: a past conversation and a question.

    Args:
        number: its place in the campaign.
        application: what was drawn.
        past: the conversation before the question, whatever its faults.
        question: what the user asks now.
        limit: tokens of the model's window.
    """

    number: int
    application: Application
    past: list[dict[str, Any]]
    question: str
    limit: int

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The whole conversation in new objects, the question last."""
        return copy.deepcopy([*self.past, {"role": "user", "content": self.question}])

    @property
    def tools(self) -> list[dict[str, Any]]:
        return copy.deepcopy(list(self.application.tools))

    def least(self, *, tools: bool = True, frame: list[dict[str, Any]] | None = None) -> int:
        """Returns the tokens of what must be sent whatever is cut: system messages, the question, tools, and what the host adds."""
        kept = [as_sent(dict(m)) for m in least_messages(repaired(self.messages))]
        return request_tokens([*(frame or []), *kept], self.tools if tools else None)


def draw(number_of_cases: int, number: int = 0) -> list[Case]:
    """Returns the cases of a campaign; the same number draws the same cases."""
    drawn: list[Application] = []

    @seed(number)
    @settings(
        max_examples=number_of_cases,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(applications())
    def collect(application: Application) -> None:
        drawn.append(application)

    collect()
    return [prepare(application, i) for i, application in enumerate(drawn)]


def prepare(application: Application, number: int = 0) -> Case:
    """Returns an application as a case: a call still waiting at the end cannot be sent by anybody, so it is left out; null text becomes empty."""
    valid = repaired(application.messages)
    waiting = waiting_from(valid)
    pending = {id(m) for m in valid[waiting:]}
    past = [copy.deepcopy(m) for m in application.messages if id(m) not in pending]
    for message in past:
        if message["content"] is None and not message.get("tool_calls"):
            message["content"] = ""
    question = f"{application.question or 'Which is it?'} (asked as number {number})"
    case = Case(number, application, past, question, 1)
    whole = request_tokens([as_sent(m) for m in case.messages], case.tools or None)
    limit = (
        application.tokens
        if application.eighths is None
        else whole * application.eighths // 8 + application.tokens
    )
    if number % 4:  # three cases in four can be solved: what must stay fits, often by a token or two
        limit = max(limit, case.least() + (0, 1, 2, 40, 300, 900)[number % 6])
    return replace(case, limit=max(8, limit))


def as_sent(message: dict[str, Any]) -> dict[str, Any]:
    """Returns a message without the content blocks that clients of chat completions leave out."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    blocks = [block for block in content if block["type"] in SENT]
    return {**message, "content": blocks or ""}


def shrink(case: Case, fails: Callable[[Case], bool], *, seconds: float = 20) -> Case:
    """Returns a small case that still fails: fewer messages, documents, examples, memories and tools, shorter texts."""
    fixed = prepare(replace(case.application, eighths=None, tokens=case.limit), case.number)
    best = fixed if fails(fixed) else case
    until = time.monotonic() + seconds
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(best.application):
            candidate = prepare(smaller, case.number)
            if time.monotonic() > until:
                return best
            if fails(candidate):
                best, progress = candidate, True
                break
    return best


def _smaller(application: Application) -> Iterator[Application]:
    for name in ("messages", "documents", "examples", "memories", "tools"):
        items = getattr(application, name)
        size = len(items)
        while size:
            for start in range(0, len(items), size):
                yield replace(application, **{name: items[:start] + items[start + size :]})
            size //= 2
    for i, message in enumerate(application.messages):
        content = message["content"]
        if isinstance(content, str) and len(content) > 3:
            shorter = {**message, "content": content[: len(content) // 2]}
            yield replace(
                application, messages=(*application.messages[:i], shorter, *application.messages[i + 1 :])
            )
    for i, text in enumerate(application.documents):
        if len(text) > 3:
            yield replace(
                application,
                documents=(
                    *application.documents[:i],
                    text[: len(text) // 2],
                    *application.documents[i + 1 :],
                ),
            )
