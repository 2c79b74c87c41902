"""What a prompt's form asks of its messages: whole turns at a placeholder of the newest, systems first."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.prompts import HumanMessagePromptTemplate, MessagesPlaceholder

from rankbudget.adapters import PINNED_ROLES, Client, PromptRequest, Timeline
from rankbudget.errors import BudgetConfigError, BudgetExceededError

from ._codec import CODEC, NeedsConversionError
from ._convert import as_messages
from ._counters import model_name
from .models import client_of, unwrapped


def placeholders_in(template: Any) -> set[str]:
    """Returns the variables that take messages, those of templates inside a template included."""
    found: set[str] = set()
    for part in getattr(template, "messages", ()):
        found |= {part.variable_name} if isinstance(part, MessagesPlaceholder) else placeholders_in(part)
    return found


def formats_in(template: Any) -> set[str]:
    """Returns the formats of a template's texts, those of templates inside it included."""
    prompt = getattr(template, "prompt", [])
    parts = [*getattr(template, "messages", ()), *(prompt if isinstance(prompt, list) else [prompt])]
    return {getattr(template, "template_format", "")}.union(*map(formats_in, parts))


def most_shown(template: Any, name: str | None) -> int | None:
    """Returns how many messages a template shows of a variable, or of any; None for all of them."""
    if isinstance(template, MessagesPlaceholder):
        return template.n_messages if name in (None, template.variable_name) else None
    found = [most_shown(part, name) for part in getattr(template, "messages", ())]
    return min([most for most in found if most is not None], default=None)


def listed(history: Any) -> Any:
    """Returns a history as a list; None without one."""
    return history if history is None or isinstance(history, list) else as_messages(history)


def asked_in(template: Any, others: Container[str]) -> str | None:
    """Returns the variable of a template's last user message, beside the `others`; None for several."""
    for part in reversed(getattr(template, "messages", ())):
        if isinstance(part, HumanMessagePromptTemplate):
            names = [name for name in part.input_variables if name not in others]
            return names[0] if len(names) == 1 else None
    return None


def unasked(documents: Any, history: Sequence[Any] | None, known: Any) -> list[str]:
    """Returns the warning for documents that no question ranks: none is `known`, nor last in the history."""
    if known is not None:
        return []
    last = as_messages(list(history[-1:])) if history else []
    if not documents or (last and CODEC.role(last[-1]) != "assistant"):
        return []
    return ["no question is known to rank the documents by. Name its key with question_key='...'"]


def in_whole_turns(request: PromptRequest, most: int | None) -> PromptRequest:
    """Returns a request whose history has at most so many messages: a placeholder would cut inside a turn."""
    if most is None:
        return request
    history = as_messages(request.history)
    assert request.measure is not None
    timeline = Timeline(history, CODEC, request.measure)
    left = most - len(timeline.pinned) - (request.summarizer is not None)
    stop, turns = len(history), int(request.question is not None)
    for turn in timeline.turns():
        left -= stop - turn.start - sum([turn.start <= place < stop for place in timeline.pinned])
        if left < 0:
            break
        stop, turns = turn.start, turns + 1
    given = request.budget.last_turns if request.last_turns is None else request.last_turns
    bounds = [max(1, turns), *([] if given is None else [given])]
    return replace(request, history=history, last_turns=min(bounds))


def refuse_cut_turn(kept: Sequence[Any], most: int | None, name: str | None) -> None:
    """Raises where the current turn alone has more messages than the placeholder `name` shows."""
    if most is not None and len(kept) > most:
        msg = (
            f"n_messages of the placeholder {name!r} must be at least {len(kept)}, the messages of this turn "
            f"(got {most}). Leave it out: the budget bounds the history."
        )
        raise BudgetConfigError(msg)


def never_cut(error: BudgetExceededError, others: Mapping[str, Any]) -> BudgetExceededError:
    """Returns an error that also names those of the prompt's variables that hold messages and are no slot."""
    lists = [key for key in sorted(others) if isinstance(others[key], list)]
    held = [key for key in lists if any(isinstance(one, BaseMessage) for one in others[key])]
    hints = [f"{key!r} is never cut; name its slot with history_key={key!r}." for key in held]
    own: dict[str, Any] = {name: getattr(error, name) for name in ("limit", "needed", "blocks")}
    return BudgetExceededError(" ".join([str(error), *hints]), **own)


def in_order(model: Any, messages: Sequence[Any]) -> Sequence[Any]:
    """Returns a request with late system messages at the front where the model's client does not send them.

    Anthropic takes them beside the messages; Google's client leaves out late ones where none is first.
    """
    own = unwrapped(model)[0]
    leaves_out = client_of(own) == Client.GOOGLE
    if not leaves_out and "claude" not in (model_name(own) or ""):
        return messages
    try:
        pinned = [role in PINNED_ROLES for role in CODEC.roles(messages)]
    except NeedsConversionError:
        return in_order(model, as_messages(messages))
    if pinned == sorted(pinned, reverse=True) or (leaves_out and pinned[0]):
        return messages
    return sorted(messages, key=lambda message: CODEC.role(message) not in PINNED_ROLES)


def late_systems(model: Any, messages: Sequence[Any]) -> list[str]:
    """Returns the warning for a prompt that the model's client does not send; `budget_model` reorders it."""
    if hasattr(model, "context_budget") or in_order(model, messages) is messages:
        return []
    name = model_name(unwrapped(model)[0])
    advice = "Put them in front of the history, or send the prompt with budget_model(..)"
    return [f"the client of {name!r} refuses or leaves out system messages behind others. {advice}"]
