"""What every agent entry point needs: one remembered cut for each conversation, tools as the model sees them, and a counter that learns.

Used by the middleware and by the hook for graphs; both only hand over what LangChain gives them.
"""

from __future__ import annotations

import copy
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import BaseMessage

from rankbudget import BudgetSession, TokenBudget, counter_for
from rankbudget.counting.protocol import TokenCounter
from rankbudget._drivers import Call, Steps
from rankbudget.messages.measure import CodecMeasure
from rankbudget.report.result import FitResult

from ._asked import answer_tokens, bound_tools, unwrapped
from ._codec import CODEC, NeedsConversionError
from ._convert import as_messages
from ._limits import Limits, limits_of, tool_schemas
from .models import as_summarizer, model_name

__all__ = ["AgentBudget", "Prompt"]

_STEP = 64
_MOST_CORRECTION = 2.0
_TIGHTER = 0.75


@dataclass(frozen=True, slots=True)
class Prompt:
    """A fitted request.

    Args:
        messages: what is sent, the system message apart.
        result: the fit, with its report.
        limit: tokens that were allowed.
        model: the model's name, for calibration.
    """

    messages: list[Any]
    result: FitResult
    limit: int
    model: str


class AgentBudget:
    """Fits the prompts of agents; one object serves all threads.

    Args:
        budget: the limits; without any, each model's own profile or name says its window.
        model: gives window and tokenizer instead of the model that is called.
        max_tokens: tokens a prompt may have; beside a budget the smaller wins.
        counter: counts instead of the model's tokenizer.
        summarizer: keeps a running summary of what is cut.
        calibrate: learns from the usage a model reports when the counts are too low.
        keep: for how many conversations the cut is remembered; the one not used for longest is forgotten.
    """

    def __init__(
        self,
        *,
        budget: TokenBudget | None = None,
        model: Any = None,
        max_tokens: int | None = None,
        counter: Any = None,
        summarizer: Any = None,
        calibrate: bool = True,
        keep: int = 1000,
    ) -> None:
        self._given: dict[str, Any] = {"budget": budget, "max_tokens": max_tokens, "counter": counter}
        self._model = model
        self._summarizer = as_summarizer(summarizer)
        self._calibrate = calibrate
        self._keep = keep
        self._sessions: OrderedDict[Any, BudgetSession] = OrderedDict()
        self._limits: dict[Any, Limits] = {}
        self._corrections: dict[str, float] = {}
        self._tools: tuple[tuple[Any, ...], list[dict[str, Any]] | None] = ((), None)
        self._latest: TokenCounter | None = None
        self._lock = threading.Lock()
        if budget is not None or max_tokens is not None or model is not None:
            limits_of(**self._given, model=model)  # says at once what cannot work

    def __getstate__(self) -> dict[str, Any]:
        """Returns what travels: how prompts are fitted and what was learned; the cuts of conversations under way stay here."""
        fresh: dict[str, Any] = {
            "_sessions": OrderedDict(),
            "_limits": {},
            "_latest": None,
            "_tools": ((), None),
            "_lock": None,
        }
        with self._lock:
            return {**self.__dict__, **fresh, "_corrections": dict(self._corrections)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentBudget:
        """Returns one of its own that starts from the cuts this one remembers; models are shared."""
        twin = memo[id(self)] = object.__new__(type(self))
        twin.__setstate__(self.__getstate__())
        with self._lock:
            sessions = list(self._sessions.items())
        twin._sessions = OrderedDict((thread, copy.deepcopy(session, memo)) for thread, session in sessions)
        return twin

    def text_counter(self) -> TokenCounter:
        """Returns what counts texts: the given counter, or the tokenizer of the given model, or of the one that was called last."""
        budget = self._given["budget"]
        if (
            self._given["counter"] is not None
            or self._model is not None
            or (budget is not None and budget.model is not None)
        ):
            return self._limits_for(self._model).counter
        return self._latest if self._latest is not None else counter_for("o200k_base")

    def steps(
        self,
        messages: Sequence[BaseMessage],
        *,
        model: Any = None,
        system: BaseMessage | None = None,
        tools: Sequence[Any] | None = None,
        thread: Any = None,
        refused: Prompt | None = None,
    ) -> Steps[Prompt]:
        """Fits one request.

        Args:
            messages: the conversation, without `system`.
            model: the model that will be called.
            system: the system message that will be sent before it.
            tools: what is bound to the model; None takes what the model itself has bound.
            thread: what the conversation is known by; None goes by its first message.
            refused: what the model said was too much; the next one has at most three quarters of its tokens.
        """
        own = self._model if self._model is not None else model
        limits = self._limits_for(own).with_tools(bound_tools(own) if tools is None else self._schemas(tools))
        self._latest = limits.counter
        whole = [system, *messages] if system is not None else list(messages)
        measure = limits.measure()
        allowed = limits.ceiling(whole, measure)
        name = str(model_name(model) or type(unwrapped(model)[0]).__name__)
        limit = max(1, int(allowed / self._corrections.get(name, 1.0)))
        if (
            refused is not None
        ):  # of what was sent, not of what might have been: else the same prompt may go out again
            limit = max(1, int(min(limit, refused.result.report.total_tokens) * _TIGHTER))
        session = self._session(limits, thread if thread is not None else _thread_of(messages))
        result = yield from self._fit(session, whole, limit, limits)
        kept = list(result.messages)
        if system is not None and kept and kept[0] is system:
            kept = kept[1:]
        return Prompt(messages=kept, result=result, limit=limit, model=name)

    def learn(self, prompt: Prompt, answer: Any) -> None:
        """Compares what a model says it read with what was counted; when the counts were too low, later limits are that much lower.

        The correction only grows, in steps of 1/64 and to twice the count at most, so that it does not move the cut every turn.
        """
        usage = getattr(answer, "usage_metadata", None)
        seen = usage.get("input_tokens") if usage else None
        counted = prompt.result.report.total_tokens
        if not self._calibrate or not isinstance(seen, int) or counted < 1 or seen <= counted:
            return
        factor = min(_MOST_CORRECTION, -(-seen * _STEP // counted) / _STEP)
        with self._lock:
            self._corrections[prompt.model] = max(self._corrections.get(prompt.model, 1.0), factor)

    def _fit(
        self, session: BudgetSession, messages: list[Any], limit: int, limits: Limits
    ) -> Steps[FitResult]:
        options: dict[str, Any] = {"limit": limit, "tools": limits.tools}
        try:
            result = yield Call(
                lambda: session.fit(messages, **options), (), lambda: session.afit(messages, **options)
            )
        except NeedsConversionError:
            converted = as_messages(messages)
            result = yield Call(
                lambda: session.fit(converted, **options), (), lambda: session.afit(converted, **options)
            )
        return result  # type: ignore[no-any-return]  # a driver's answer is untyped

    def _limits_for(self, own: Any) -> Limits:
        name = model_name(own)
        key = (name or id(unwrapped(own)[0]), *_window(own), answer_tokens(own))
        found = self._limits.get(key)
        if found is None:
            given: dict[str, Any] = {**self._given, "tools": []}
            if given["budget"] is None and given["max_tokens"] is None:
                found = limits_of(**given, model=own)
            else:  # the window is given: of the model only its tokenizer is asked
                stated = given["budget"].model if given["budget"] is not None else None
                found = limits_of(
                    **{
                        **given,
                        "counter": given["counter"] if given["counter"] is not None else stated or name,
                    }
                )
            with self._lock:
                if len(self._limits) >= self._keep:
                    self._limits.clear()
                self._limits[key] = found
        return found

    def _session(self, limits: Limits, thread: Any) -> BudgetSession:
        with self._lock:
            session = self._sessions.get(thread)
            if session is None or session.counter is not limits.counter:
                budget = limits.budget if limits.budget is not None else limits.max_tokens
                assert budget is not None
                measure = None if isinstance(limits.measure(), CodecMeasure) else limits.measure()
                session = BudgetSession(
                    budget, counter=limits.counter, codec=CODEC, measure=measure, summarizer=self._summarizer
                )
                self._sessions[thread] = session
            self._sessions.move_to_end(thread)
            while len(self._sessions) > self._keep:
                self._sessions.popitem(last=False)
            return session

    def _schemas(self, tools: Sequence[Any] | None) -> list[dict[str, Any]] | None:
        """Returns the tools' schemas; the same tools as last time are not read again."""
        key = tuple(tools or ())
        known, schemas = self._tools
        if len(key) == len(known) and all(a is b for a, b in zip(key, known, strict=True)):
            return schemas
        schemas = tool_schemas(key)
        self._tools = (key, schemas)
        return schemas


def _window(model: Any) -> tuple[Any, Any]:
    profile = getattr(model, "profile", None)
    return (
        (profile.get("max_input_tokens"), profile.get("max_output_tokens"))
        if isinstance(profile, dict)
        else (None, None)
    )


def _thread_of(messages: Sequence[BaseMessage]) -> Any:
    """Returns what a conversation is known by where the host does not say: its first message."""
    return messages[0].id or id(messages[0]) if messages else None
