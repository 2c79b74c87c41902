"""What an LLM says about itself, and the limit of one of its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, LLMMetadata
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate

from rankbudget import BudgetReport, BudgetSession, TokenBudget, TokenCounter
from rankbudget.adapters import (
    CodecMeasure,
    ListMeasure,
    Measure,
    PromptRequest,
    Steps,
    answer_notes,
    fair_level,
    holds,
    plain_budget,
    plan_steps,
    refuse_empty,
    window_notes,
    within_window,
)
from rankbudget.errors import BudgetExceededError, MessageError

from ._clear_calls import with_clear_calls
from ._codec import CODEC, check_messages
from ._counters import ANSWERS, answer_in, answer_of, counter_of, facts_of, known_window
from ._events import send_report
from ._inserted import budget_within, with_blocks
from ._render import QUESTIONS
from ._request import FlatConversation, StepCodec, schemas_in
from ._sharing import budget_for
from ._texts import (
    Filled,
    Texts,
    UnrenderedError,
    as_text,
    asks_for_numbers,
    fitted,
    is_texts,
    passages_in,
    room_for_texts,
)

_HELPER_SPARE = 2048
"""More than LlamaIndex's synthesizers keep free beside nodes; and its tokenizer may count twice as much."""
_TEMPLATE_SPARE = 32
"""Tokens of framing that LlamaIndex's `PromptHelper` does not count."""
_SMALLEST = 1024
"""In a smaller window `PromptHelper` finds no room beside its templates: "Chunk size ... is not positive"."""
_ROUNDS = 4
_FEWER = " Have the reranker ask about fewer nodes (choice_batch_size=)."
_ONCE = "the system prompt is sent once; a second copy, in the conversation, was left out"


class _NoValueError(type):
    """Leaves ValueError out of the bases of a class of errors.

    LlamaIndex's `Refine` catches each ValueError and answers "Empty Response", as if the model had answered.
    """

    def mro(cls) -> list[type]:
        return [base for base in super().mro() if base is not ValueError]


class RequestExceededError(BudgetExceededError, metaclass=_NoValueError):
    """Says that a request to a bounded model cannot fit; a BudgetExceededError that engines let pass.

    It is no ValueError: LlamaIndex's synthesizers swallow those. `limit`, `needed` and `blocks` are as in
    `BudgetExceededError`.

    Example:
        >>> isinstance(RequestExceededError("too long", limit=9, needed=12), ValueError)
        False
    """


class RequestMessageError(MessageError, metaclass=_NoValueError):
    """Says what is wrong with the messages of a request to a bounded model; engines let it pass.

    It is a `MessageError`, but no ValueError: LlamaIndex's synthesizers swallow those.
    """


class _LastLimit:
    """What a limit was computed from, and the limit; a pickled copy computes it again."""

    found: tuple[Any, int] = (None, 0)

    def __reduce__(self) -> tuple[Any, ...]:
        return _LastLimit, ()


@dataclass(frozen=True)
class Limits:
    """The limits of every request of an LLM, as `budget_model` takes them; copies of the LLM share them."""

    budget: TokenBudget | None
    max_tokens: int | None
    counter: Any
    on_report: Callable[[BudgetReport], Any] | None
    session: BudgetSession | None
    inner: Limits | None  # of an LLM that was bounded before; the smaller limit wins
    last: _LastLimit = field(default_factory=_LastLimit, compare=False)

    @property
    def given(self) -> TokenBudget | None:
        """The last budget that was given; None where there was none."""
        return self.budget if self.budget is not None or self.inner is None else self.inner.given

    def __deepcopy__(self, memo: Any) -> Limits:
        return self


@dataclass(frozen=True)
class Door:
    """An LLM as it was given, with the limits of its requests; `arguments` are those of one call."""

    llm: LLM
    limits: Limits
    around: Any = None  # the `StructuredLLM` that asks it

    @property
    def counter(self) -> TokenCounter:
        own, budget, inner = self.limits.counter, self.limits.budget, self.limits.inner
        if own is None and budget is not None:
            own = budget.model
        if own is None and inner is not None:
            return Door(self.llm, inner).counter
        return counter_of(None, own, llm=self.llm)

    @property
    def _name(self) -> str:
        return type(self.llm).__name__

    def limit(self, arguments: Mapping[str, Any]) -> int:
        """Returns the most tokens of a request, what its counter may be too low by left free.

        Where the window is known, the answer fits beside the request.
        """
        asked = (answer_in(arguments) or 0, facts_of(self.llm))
        found = self.limits.last.found
        if found[0] != asked:
            found = self.limits.last.found = (asked, self._limit(asked[0]))
        return found[1]

    def _limit(self, answer: int) -> int:
        given, window = self.limits, known_window(self.llm)
        limits = [] if given.inner is None else [Door(self.llm, given.inner)._limit(answer)]  # noqa: SLF001
        if given.max_tokens is not None:
            limits.append(plain_budget(given.max_tokens).limit(band=self.counter.band))
        budget = given.budget
        if budget is None and given.max_tokens is None:
            budget = budget_for(self.llm)
        elif budget is not None or window is not None:
            budget = budget or budget_for(self.llm, context_window=window)
            budget = within_window(budget, window, self._name, answer_of(self.llm))
        if budget is not None:
            beside = None if window is None else max(1, window - (answer_of(self.llm) or 0))
            longer = max(0, answer - budget.reserve_tokens())
            limits.append(budget.limit(band=self.counter.band, ceiling=beside) - longer)
        return min(limits)

    def metadata(self) -> LLMMetadata:
        """Returns the LLM's metadata with the window that leaves the limit once the answer is taken off."""
        own: LLMMetadata = self.llm.metadata
        answer = own.num_output if own.num_output > 0 else DEFAULT_NUM_OUTPUTS
        # Where a session plans history and nodes, the host's own helper must neither split nor refuse them.
        limit = self.limit({})
        spare = -_TEMPLATE_SPARE if self.limits.session is None else max(_HELPER_SPARE, limit)
        return own.model_copy(update={"context_window": max(_SMALLEST, limit + spare) + answer})

    def fit_steps(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Steps[Sequence[ChatMessage]]:
        """Returns what of a request fits in the form the model reads; the same sequence where all does."""
        try:
            check_messages(messages)
            refuse_empty(messages)
            messages = with_clear_calls(self.llm, messages, arguments)
            kept = yield from self._fit_steps(messages, arguments)
        except MessageError as error:
            raise RequestMessageError(str(error)) from error
        self._learn(messages, arguments)
        return kept

    def _learn(self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]) -> None:
        """Tells the session what the host adds: a turn's first request; later ones hold an agent's steps."""
        session, codec = self.limits.session, StepCodec(messages)
        if session is not None and messages and codec.role(messages[-1]) == "user":
            tools = schemas_in(self.llm, arguments) or None
            session.learn(CodecMeasure(codec, session.counter, tools).total(messages))

    def _fit_steps(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Steps[Sequence[ChatMessage]]:
        limit = self.limit(arguments)
        given = self._with_passages(messages, arguments)
        messages = self._without_copies(given, arguments)
        whole = self._request(messages, arguments)
        if messages is not given:
            whole = replace(whole, notes=(*whole.notes, _ONCE))
        needed = room = limit
        for _ in range(_ROUNDS):
            # System messages of a finished request hold nodes, too; the limit leaves the band free.
            request = replace(whole, budget=budget_within(room, whole))
            try:
                plan = yield from plan_steps(request)
            except BudgetExceededError as error:
                hint = _FEWER if error.blocks.get("question") and asks_for_numbers(messages[-1]) else ""
                msg, blocks = f"{error}{hint}{self._asked_answer(arguments)}", error.blocks
                raise RequestExceededError(msg, limit=limit, needed=error.needed, blocks=blocks) from error
            if not self.llm.metadata.is_chat_model:
                needed = self._text_tokens(plan.messages, whole.tools)
            if needed <= limit:
                send_report(plan.report, self.limits.on_report)
                kept = list(map(id, plan.history))
                all_kept = not whole.blocks and kept == list(map(id, whole.history or ()))
                return messages if all_kept else list(plan.messages)
            room -= needed - limit
        raise _too_long(limit, needed, self._asked_answer(arguments))

    def _with_passages(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Sequence[ChatMessage]:
        """Returns a request with what of each passage that it asks to rank fits; all stay in their places."""
        passages, limit = {place: messages[place] for place in passages_in(messages)}, self.limit(arguments)
        measure = CodecMeasure(CODEC, self.counter, (passages and schemas_in(self.llm, arguments)) or None)
        if not passages or measure.total(messages) <= limit:
            return messages

        def put(made: Mapping[str, Any]) -> list[ChatMessage]:
            found = passages | dict(zip(passages, made.get("passage", ()), strict=False))
            return [found.get(place, message) for place, message in enumerate(messages)]

        held, query = {"passage": Texts(list(passages.values()))}, str(messages[-1].content)
        made, report = fitted(held, lambda made: measure.total(put(made)), limit, query, self.counter)
        send_report(report, self.limits.on_report)
        return put(made)

    def _without_copies(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Sequence[ChatMessage]:
        """Returns a request for a structured answer; one that is too long without what it says twice."""
        flat = FlatConversation.read(messages)
        once = None if flat is None else flat.once()
        if once is None:
            return messages
        measure = CodecMeasure(CODEC, self.counter, schemas_in(self.llm, arguments) or None)
        return messages if measure.total(messages) <= self.limit(arguments) else once

    def _request(self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]) -> PromptRequest:
        flat = FlatConversation.read(messages)
        history = messages if flat is None else flat.messages
        budget, own = self.limits.budget or TokenBudget(), known_window(self.llm)
        limit, notes = self.limit(arguments), tuple[str, ...]()
        if self.limits.budget is not None:
            given = budget.context_window
            notes = window_notes(given, own or given, self._name)
            notes += answer_notes(limit, answer_of(self.llm), own or given, self._name)
        request = PromptRequest(
            budget=budget,
            notes=notes,
            counter=self.counter,
            codec=StepCodec(history, flat=flat is not None),
            tools=schemas_in(self.llm, arguments) or None,
            history=history,
            render=None if flat is None else flat.render,
            sources=frozenset({"history"}),
            cut=None,
            sent=True,
            held=holds(self.llm, arguments),
            min_exchanges=budget.min_exchanges,
            message_cap=budget.message_cap,
            summarizer=None if self.limits.session is None else self.limits.session.summarizer,
            shorten_question=budget.shorten_question,
        )

        def fits(measure: Measure) -> bool:
            if self.llm.metadata.is_chat_model:
                return measure.total(messages) <= limit
            return self._text_tokens(messages, request.tools) <= limit

        return with_blocks(request, fits, lambda others: StepCodec(others, flat=flat is not None))

    def text_steps(
        self, messages: Sequence[ChatMessage], arguments: Mapping[str, Any]
    ) -> Steps[Sequence[ChatMessage]]:
        """Returns a prompt that fits; of one that is too long only its author knows what may be cut."""
        limit, tools = self.limit(arguments), schemas_in(self.llm, arguments) or None

        def tokens(given: Sequence[ChatMessage]) -> int:
            return self._text_tokens("\n".join([message.content or "" for message in given]), tools)

        needed = tokens(messages)
        if needed <= limit:
            return messages
        request = PromptRequest(
            budget=TokenBudget(),
            counter=self.counter,
            codec=CODEC,
            measure=ListMeasure(tokens),
            history=messages,
        )
        request = with_blocks(request, lambda _: False, lambda _: CODEC)
        if request.blocks:
            try:
                plan = yield from plan_steps(replace(request, budget=budget_within(limit, request)))
            except BudgetExceededError as error:
                needed = error.needed
            else:
                send_report(plan.report, self.limits.on_report)
                return plan.messages
        raise _too_long(limit, needed, self._asked_answer(arguments))

    def _asked_answer(self, arguments: Mapping[str, Any]) -> str:
        """Returns what an error says of the answer that a request asks for, "" where it takes no room."""
        answer, limit = answer_in(arguments), self.limit({})
        if answer is None or self.limit(arguments) == limit:
            return ""
        name = next(name for name in ANSWERS if arguments.get(name) == answer)
        return f" {name}={answer} keeps room for the answer (without it, the limit is {limit}). Lower it."

    def variables(
        self, prompt: BasePromptTemplate, given: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns a template's variables; the long ones, but never the question, are shortened to fit.

        They are rated by the variable that LlamaIndex's templates call the question, else by what the last
        message says. One with less than its equal share of the room stays whole; the others compete. Older
        messages of the template, which the request gives up later, take at most half of the room. A variable
        that the template needs whole stays so, as do all where nothing fits and none is the question.
        """
        template = Filled(prompt, self.llm, given)
        held = {n: Texts(v) for n, v in template.values.items() if n not in QUESTIONS and is_texts(v)}
        return {**given, **self._shortened(held, template, arguments)}

    def _shortened(
        self, held: Mapping[str, Texts], template: Filled, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Returns what is left of the texts `held`; those that the template needs whole are left out."""
        try:
            return self._fitted(held, template, arguments) if held else {}
        except UnrenderedError as error:
            needed = template.refused(error.made)
        return self._shortened({n: held[n] for n in held if n not in needed}, template, arguments)

    def _fitted(
        self, held: Mapping[str, Texts], template: Filled, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        def tokens_with(made: Mapping[str, Any]) -> int:
            return self._prompt_tokens(template, made, arguments)

        limit, full = self.limit(arguments), tokens_with({})
        if full <= limit:
            return {}
        bare = {name: one.value({}) for name, one in held.items()}
        sizes, least = {n: full - tokens_with({n: bare[n]}) for n in held}, tokens_with(bare)
        if self.llm.metadata.is_chat_model:
            limit = least + room_for_texts(limit - least, template.messages(bare), self.counter)
        level = fair_level(list(sizes.values()), limit - least)
        long = {name: held[name] for name in held if sizes[name] > level} or held
        if full <= limit:
            return {}
        emptied = {name: bare[name] for name in long}
        asked = next((str(template.values[name]) for name in QUESTIONS if template.values.get(name)), "")
        query = asked or str(template.messages(emptied)[-1].content)  # with its own names it asks in its text
        made, report = fitted(long, tokens_with, limit, query, self.counter)
        if made == emptied and not asked:
            return {}  # nothing to ask about is left: the error of the whole request says what takes the room
        send_report(report, self.limits.on_report)
        return made

    def _prompt_tokens(self, template: Filled, made: Mapping[str, Any], arguments: Mapping[str, Any]) -> int:
        llm = self.llm
        tools = schemas_in(llm, {**arguments, "system_prompt": llm.system_prompt}) or None
        if llm.metadata.is_chat_model:
            return CodecMeasure(CODEC, self.counter, tools).total(template.messages(made))
        to_prompt: Any = llm.messages_to_prompt
        text = template.text(made)
        if self.around is not None:  # it sends a prompt as a message
            text = str(to_prompt([ChatMessage(role="user", content=text)]))
        return self._text_tokens(as_text(llm, text), tools)

    def _text_tokens(self, prompt: str | Sequence[ChatMessage], tools: Sequence[Any] | None) -> int:
        to_prompt: Any = self.llm.messages_to_prompt
        counter, text = self.counter, prompt if isinstance(prompt, str) else str(to_prompt(prompt))
        return counter.count(text) + (counter.count_messages([], tools) if tools else 0)


def _too_long(limit: int, needed: int, more: str) -> RequestExceededError:
    msg = f"The prompt must have at most {limit} tokens (got {needed}). Shorten its parts.{more}"
    return RequestExceededError(msg, limit=limit, needed=needed, blocks={"prompt": needed})
