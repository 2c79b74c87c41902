"""Texts of a template or a request that compete by the question, so that all of it fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, TextBlock
from llama_index.core.llms.llm import LLM
from llama_index.core.prompts import BasePromptTemplate, SelectorPromptTemplate

from rankbudget import BudgetReport, Segment, TokenCounter, fit_documents
from rankbudget.adapters import JOINT, CodecMeasure

from ._clear_calls import with_clear_calls
from ._codec import CODEC, copy_message

_NUMBER = re.compile(r"(?:Document|Source) \d+:\n|\[\d+\] ")
"""How LlamaIndex numbers the texts that a model is to choose from."""
_NUMBERED = r"\n\n(?=(?:Document|Source) \d+:\n)"
_CHOICE = re.compile(r"Each document has a number|^Document \d+:$", re.MULTILINE)
"""What a reranker writes that asks for the numbers of documents."""
_TAKEN = "Received passage ["
"""What `RankGPTRerank` has the model answer to each passage."""


class Texts:
    """A template's variable, a text or a list of texts or messages, as the texts that are kept or not.

    A host that joins its texts gives a list of one. Of any other the template writes something around each. A
    number before a text, by which the model answers, stays with it. Of messages, which the template numbers,
    all stay, some without their text.
    """

    def __init__(self, value: Any) -> None:
        self.given = value
        self.in_messages = isinstance(value[0], ChatMessage)
        parts = [value] if isinstance(value, str) else list(value)
        if self.in_messages:
            parts = [block.text for block in _text_blocks(value)]
        self.joined = len(parts) == 1 and not self.in_messages
        if self.joined:
            from rankbudget.adapters import sections_of  # ranking is only loaded where texts compete

            parts = re.split(_NUMBERED, parts[0]) if _NUMBER.match(parts[0]) else sections_of(parts[0])
        numbers = [_NUMBER.match(text) for text in parts]
        self.numbers = ["" if found is None else found[0] for found in numbers]
        self.texts = [text[len(number) :] for text, number in zip(parts, self.numbers, strict=True)]

    def value(self, kept: Mapping[int, str]) -> Any:
        """Returns the variable with these texts, by their positions."""
        if self.in_messages:
            made = [copy_message(m) for m in self.given]
            for place, block in enumerate(_text_blocks(made)):
                block.text = self.numbers[place] + kept.get(place, "")
            return made
        parts = [self.numbers[place] + text for place, text in kept.items()]
        if not self.joined:
            return parts
        return JOINT.join(parts) if isinstance(self.given, str) else [JOINT.join(parts)]


class UnrenderedError(Exception):
    """Says that a template cannot be rendered with the values `made` of some variables."""

    def __init__(self, made: Mapping[str, Any]) -> None:
        super().__init__(f"the template cannot be rendered with other values of {', '.join(made)}")
        self.made = made


class Filled:
    """A template with its variables, and what it says with other values of some of them.

    Its functions and filters may need a value as it was: JSON, a path, the address of a picture.
    """

    def __init__(self, prompt: BasePromptTemplate, llm: LLM, given: Mapping[str, Any]) -> None:
        chosen = prompt.select(llm=llm) if isinstance(prompt, SelectorPromptTemplate) else prompt
        self._prompt, self._llm, self.values = chosen, llm, {**chosen.kwargs, **given}
        self._media: list[Any] | None = None

    def messages(self, made: Mapping[str, Any]) -> list[ChatMessage]:
        """Returns its messages as the LLM's client sends them.

        Raises:
            UnrenderedError: it cannot be rendered so, or its media are others.
        """
        messages: list[ChatMessage] = self._rendered(self._prompt.format_messages, made)
        media = [b for message in messages for b in message.blocks if not isinstance(b, TextBlock)]
        if not made:
            self._media = media
        elif self._media is None:
            self.messages({})
        if media != self._media:
            raise UnrenderedError(made)
        return list(with_clear_calls(self._llm, messages))

    def text(self, made: Mapping[str, Any]) -> str:
        """Returns its text; raises as `messages` does."""
        return str(self._rendered(self._prompt.format, made))

    def _rendered(self, render: Callable[..., Any], made: Mapping[str, Any]) -> Any:
        try:
            return render(self._llm, **{**self.values, **made})
        except Exception as error:  # of any kind, from the user's own functions
            if not made:
                raise
            raise UnrenderedError(made) from error

    def refused(self, made: Mapping[str, Any]) -> list[str]:
        """Returns which of these values it cannot be rendered with; one where each alone would do."""
        return [name for name in made if not self._takes(name, made[name])] or list(made)[:1]

    def _takes(self, name: str, value: Any) -> bool:
        try:
            self.messages({name: value})
        except UnrenderedError:
            return False
        return True


def passages_in(messages: Sequence[ChatMessage]) -> list[int]:
    """Returns the positions of passages that a request asks to rank, each in a message of its own."""
    if not any(str(m.content).startswith(_TAKEN) for m in messages[-2:-1]):
        return []
    return [i for i, m in enumerate(messages[1:]) if str(m.content).startswith(_TAKEN)]


def asks_for_numbers(message: ChatMessage) -> bool:
    """Returns whether a message is a reranker's, which may ask about fewer documents at a time."""
    return _CHOICE.search(message.content or "") is not None


def _text_blocks(messages: Sequence[ChatMessage]) -> list[TextBlock]:
    return [block for message in messages for block in message.blocks if isinstance(block, TextBlock)]


def room_for_texts(left: int, messages: Sequence[ChatMessage], counter: TokenCounter) -> int:
    """Returns the tokens of a template's texts, where `messages` without them leave so many of a request.

    Older messages, which the request gives up later, take at most half of what they share with the texts.
    """
    older = CodecMeasure(CODEC, counter).group([m for m in messages[:-1] if CODEC.role(m) != "system"])
    room = left + older
    return room - min(older, max(0, room // 2))


def fitted(
    held: Mapping[str, Texts],
    tokens_with: Callable[[Mapping[str, Any]], int],
    limit: int,
    query: str,
    counter: TokenCounter,
) -> tuple[dict[str, Any], BudgetReport]:
    """Returns variables of a template with those of their texts that answer the question, so that it fits."""
    parts = [(name, i, text) for name, one in held.items() for i, text in enumerate(one.texts)]
    ids, texts = [f"{name}[{i}]" for name, i, _ in parts], [text for _, _, text in parts]
    rest = tokens_with({name: one.value({}) for name, one in held.items()})
    around = tokens_with({}) - rest - sum(counter.count_many([text + JOINT for text in texts]))
    framed = not all(one.joined and not any(one.numbers) for one in held.values())
    frame = max(0, -(-around // len(parts))) if framed else 0
    room = limit - rest
    while True:
        kept, report = fit_texts(texts, max(1, room), query, counter, frame=frame, ids=ids)
        made = {
            n: one.value({parts[i][1]: text for i, text in kept.items() if parts[i][0] == n})
            for n, one in held.items()
        }
        over = tokens_with(made) - limit
        if over <= 0 or room <= 1:
            return made, report
        room = max(1, room - over)


def fit_texts(
    texts: Sequence[str],
    most: int,
    query: str,
    counter: TokenCounter,
    scorer: Any = None,
    *,
    frame: int = 0,
    ids: Sequence[str] = (),
) -> tuple[dict[int, str], BudgetReport]:
    """Returns by position what of some texts answers the question, within `most` tokens when joined.

    What the counter may be too low by is left free already, where `most` comes from. Each text costs `frame`
    tokens more; the report calls them by `ids`.
    """
    ids = ids or [str(i) for i in range(len(texts))]
    segments = [Segment(id=name, text=text) for name, text in zip(ids, texts, strict=True) if text.strip()]
    places = {name: i for i, name in enumerate(ids)}
    room = most
    while True:
        result = fit_documents(
            segments,
            max_tokens=room + int(room * counter.band),
            query=query,
            counter=counter,
            scorer=scorer,
            cost=lambda _, text: counter.count(text + JOINT) + frame,
            dedup=False,
        )
        kept = {places[segment.id]: segment.text for segment in result.segments}
        # An estimate may be more than those of parts.
        over = counter.count(JOINT.join(kept.values())) + frame * len(kept) - most
        if over <= 0:
            return kept, result.report
        room = max(1, room - over)


def as_text(llm: LLM, prompt: str, *, formatted: bool = False) -> str:
    """Returns a prompt as the LLM writes it around."""
    to_prompt: Any = llm.completion_to_prompt
    return prompt if formatted or to_prompt is None else str(to_prompt(prompt))


def is_texts(value: Any) -> bool:
    """Returns whether a variable is a text, or a list of texts or messages, and not empty."""
    parts = [value] if isinstance(value, str) else value if isinstance(value, (list, tuple)) else ()
    return any(parts) and any(all(isinstance(p, kind) for p in parts) for kind in (str, ChatMessage))
