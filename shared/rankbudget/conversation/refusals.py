"""What is refused of a conversation: a broken one where that was asked for, and one that asks nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import MessageError
from ..messages.codec import Codec, holds_results, says_nothing
from ..report.reasons import MEANINGS
from .timeline import Timeline
from .units import Broken, Turn


def refuse_invalid(timeline: Timeline, *, asked_last: bool = False) -> None:
    """Raises MessageError for a conversation that asks nothing, or that needs a repair while `strict`.

    Where its last message is what was `asked_last`, no repair may drop that.
    """
    newest = timeline.newest
    if timeline.thread.strict:
        _refuse_broken(timeline)
    if newest is not None and newest.broken:
        _refuse_nothing(timeline, newest)
    broken = [*(newest.broken if newest is not None else ()), *_stripped(timeline)]
    if asked_last and broken:
        last = max(broken)
        if last[0] == len(timeline.messages) - 1:
            msg = (
                f"a question with results must answer all calls before it (got {_listed([last])}). "
                "Give the message with the calls, and all of their results, in the history."
            )
            raise MessageError(msg)


def refuse_empty(messages: Sequence[Any]) -> None:
    """Raises MessageError for a request without messages, which every provider refuses."""
    if not messages:
        msg = "messages must hold a message (got none). No model answers an empty request."
        raise MessageError(msg)


def refuse_empty_question(codec: Codec, messages: Sequence[Any], where: str) -> None:
    """Raises MessageError where messages end in a user message without content; `where` names their place."""
    last = messages[-1] if messages else None
    if last is not None and codec.role(last) == "user" and says_nothing(codec.to_dict(last)):
        msg = f"the newest question must not be empty (got an empty user message). Give {where} a text."
        raise MessageError(msg)


def refuse_results(codec: Codec, question: Any, where: str, history: str) -> None:
    """Raises MessageError for a question that holds results of calls; `where` names its place."""
    if holds_results(codec, question):
        advice = f"Put them at the end of {history}."
        msg = f"{where} must be asked by the user (got results of tool calls). {advice}"
        raise MessageError(msg)


def _refuse_nothing(timeline: Timeline, newest: Turn) -> None:
    """Raises MessageError where nothing is asked; a session may read such a thread, not send it."""
    read_only = timeline.thread.remembers and not timeline.thread.sent
    if read_only or timeline.ended:
        return
    last = max(newest.broken)[0]
    is_users = timeline.codec.role(timeline.messages[last]) == "user"
    asks_nothing = is_users and timeline.is_empty(last) and not (newest.body and newest.body[-1].stop > last)
    if asks_nothing and not (newest.question and not newest.body) and not timeline.pending_step(newest):
        msg = f"the newest question must not be empty (got message {last}: empty_message). Give it a text."
        raise MessageError(msg)
    if newest.units:
        return
    msg = (
        f"messages must hold a question or an answer (got {_listed(newest.broken)}). Give the "
        "messages that come before them (the host's memory may have cut them); where the provider stores "
        "these, name its id (previous_response_id) to the model."
    )
    raise MessageError(msg)


def _refuse_broken(timeline: Timeline) -> None:
    """Raises MessageError where a repair would be needed."""
    broken = timeline.leftovers() + [b for turn in timeline.turns() for b in turn.broken]
    broken += _stripped(timeline)
    if broken:
        found = _listed(sorted(broken))
        msg = f"messages must be a valid conversation (got {found}). Repair it, or pass strict=False."
        raise MessageError(msg)


def _stripped(timeline: Timeline) -> list[Broken]:
    return list(timeline.repairs.items())


def _listed(broken: Sequence[Broken]) -> str:
    meant = [(position, reason, MEANINGS[reason].partition(";")[0]) for position, reason in broken[:10]]
    return ", ".join([f"message {position}: {reason} ({words})" for position, reason, words in meant])
