"""How a host shows what is kept: memory blocks in its template, and its own prompt around it all."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from llama_index.core.base.llms.types import (
    BaseContentBlock,
    CachePoint,
    ChatMessage,
    MessageRole,
    TextBlock,
)
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.memory.memory import InsertMethod
from llama_index.core.prompts import BasePromptTemplate

from rankbudget import Block, BudgetSession, Segment, TokenCounter
from rankbudget.adapters import (
    JOINT,
    Fit,
    PromptRequest,
    Shown,
    escape_text,
    render_block,
    tag_name,
    wrapper_of,
)

from ._codec import PINNED, copy_message, defused
from ._convert import measured, media_cost
from ._inserted import Inserted, MadeOf
from .blocks import BudgetMemoryBlock, Found, question_of

_OWN_NAMES = ("system", "history", "query", "knowledge")  # the core's own blocks
_CONTEXT = ("context_str", "context_msg")
QUESTIONS = ("query_str", "question", "query")
"""What LlamaIndex's templates call the question."""
_PLACE = re.compile(r"\s*<content_block (\d+)>\s*")
"""Where a template shows the content block with this number; no text of a block can spell it."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one memory block says; of its segments, content blocks and messages are never shortened."""

    name: str
    block: Block
    media: Mapping[str, int]  # tokens of content blocks and messages by the id of their segment
    beside: Mapping[str, int]  # tokens of what the prompt adds to a text, the same way
    show: Callable[[Segment, str], str]  # a text as the prompt has it

    @classmethod
    def of(cls, memory_block: BaseMemoryBlock[Any], content: Any, session: BudgetSession) -> Part:
        """Returns the content of a memory block."""
        name, items = memory_block.name, [content] if isinstance(content, str) else content
        found = items if isinstance(items, Found) else Found(items)
        segments, media = [], {}
        for i, item in enumerate(found):
            segment, text = f"{name}-{i}", _text_of(item)
            if text is None:
                media[segment] = media_cost(item, session.counter)
                segments.append(Segment(id=segment, text="", source=item))
            elif text:
                segments.append(found.known.get(text) or Segment(id=segment, text=text))
        if media:  # a picture cannot be rated by the question
            segments = _by_position(segments)
        own = memory_block if isinstance(memory_block, BudgetMemoryBlock) else None
        usual = found.strategy or (None if len(segments) == 1 else "evidence")
        block = Block(
            name=name_in_plan(name),
            segments=tuple(segments),
            strategy="best_first" if media else usual,
            rank=max(1, memory_block.priority) if own is None else own.rank,
            pinned=memory_block.priority == 0 if own is None else own.pinned,
            size=None if own is None else own.size,
            notes=found.notes,
        )
        return cls(name, block, media, _shown_beside(segments, found, session.counter), found.show)


def _shown_beside(segments: Sequence[Segment], found: Found, counter: TokenCounter) -> dict[str, int]:
    """Returns the tokens of what the prompt adds to each text, by the id of its segment."""
    texts = [segment.text + JOINT for segment in segments]  # as they are counted: an end may be one token
    shown = [found.show(segment, segment.text) + JOINT for segment in segments]
    if shown == texts:
        return {}
    counts = zip(segments, counter.count_many(shown), counter.count_many(texts), strict=True)
    return {segment.id: max(0, more - less) for segment, more, less in counts}


def name_in_plan(name: str) -> str:
    """Returns what a plan calls a memory block: the names of the core's own blocks are taken."""
    return f"{name}-block" if name in _OWN_NAMES else name


@dataclass(frozen=True, slots=True)
class Rendering:
    """Puts kept blocks and history together as the host's template does, static text first."""

    memory: Any
    parts: Sequence[Part]
    pending: bool  # the question is not stored yet
    shown: Shown
    request: PromptRequest | None = None  # of the turn, for what is handed out; None while it is planned

    def __call__(self, kept: Mapping[str, Fit], history: list[Any]) -> list[ChatMessage]:
        content, front = self._content(kept)
        messages = list(history)
        leading = next((i for i, m in enumerate(messages) if m.role not in PINNED), len(messages))
        messages[leading:leading] = front
        if content:
            self._insert(messages, content, leading)
        nodes = kept["knowledge"].pieces if "knowledge" in kept else ()
        if nodes:  # another part of the host shows them: here they are counted in the usual form
            wrap = wrapper_of("knowledge", ())
            texts = [wrap(p.segment, self.shown("knowledge", p.segment, p.rendition.text)) for p in nodes]
            text = render_block("knowledge", texts)
            messages.append(ChatMessage(role=MessageRole.SYSTEM, content=text))
        return messages

    def _content(self, kept: Mapping[str, Fit]) -> tuple[list[Any], list[ChatMessage]]:
        """Returns the blocks in their template, and messages that a block gave."""
        shown: list[tuple[str, list[Any]]] = []
        front: list[ChatMessage] = []
        for part in self.parts:
            tag = tag_name(part.name)
            pieces = kept[part.block.name].pieces if part.block.name in kept else ()
            content: list[Any] = []
            for piece in pieces:
                item = piece.segment.source
                if isinstance(item, ChatMessage):
                    front.append(copy_message(item))
                elif isinstance(item, BaseContentBlock):
                    content.append(item)
                else:
                    content.append(TextBlock(text=_safe(part.show(piece.segment, piece.rendition.text), tag)))
            if content:
                shown.append((tag, content))
        if not shown:
            return [], front
        notice, written = self.memory.notice, _written(self.memory.memory_blocks_template, shown)
        if self.request is not None and isinstance(written[0], TextBlock):
            written[0].text = self._made_again(written, kept, self.request)
        return [*([TextBlock(text=notice)] if notice else ()), *written], front

    def _made_again(
        self, written: Sequence[Any], kept: Mapping[str, Fit], request: PromptRequest
    ) -> Inserted:
        """Returns the blocks' first text, by which a request without room for all of it shows less."""
        asked = request.question_text or question_of(request.history)
        blocks = [block for block in map(_left_of, self.parts, repeat(kept), repeat(asked)) if block.segments]

        def show(kept: Mapping[str, Fit]) -> list[Any]:
            content, _ = self._content(kept)
            shown = content[1:] if self.memory.notice else content
            return for_engines(ChatMessage(role=MessageRole.USER, blocks=shown), request.counter).blocks

        made_of = MadeOf(
            blocks=blocks,
            beside=request.beside,
            frames=request.frames,
            budget=request.budget,
            notice=self.memory.notice,
            are_texts=[isinstance(block, TextBlock) for block in written],
            show=show,
        )
        return Inserted.of(defused(written[0].text), made_of)

    def _insert(self, messages: list[ChatMessage], content: list[Any], leading: int) -> None:
        # Providers take media in user messages only; OpenAI's integration leaves them out of others.
        plain = all(isinstance(block, (TextBlock, CachePoint)) for block in content)
        if plain and self.memory.insert_method == InsertMethod.SYSTEM:
            if leading:  # after the static text, so that a provider's prompt cache keeps it
                messages[leading - 1] = _with_blocks(messages[leading - 1], after=content)
            else:
                messages.insert(0, ChatMessage(role=MessageRole.SYSTEM, blocks=content))
            return
        at = next((i for i in range(len(messages) - 1, -1, -1) if messages[i].role == MessageRole.USER), None)
        if at is None or self.pending:  # the latest user message is an earlier turn's: it stays as it was
            messages.append(ChatMessage(role=MessageRole.USER, blocks=content))
        else:
            messages[at] = _with_blocks(messages[at], before=content)


def _left_of(part: Part, kept: Mapping[str, Fit], asked: str) -> Block:
    """Returns a block with what is shown of it: no text of another conversation may come in its place."""
    pieces = kept[part.block.name].pieces if part.block.name in kept else ()
    shown = [p for p in pieces if not isinstance(p.segment.source, ChatMessage)]
    segments = tuple(replace(p.segment, text=p.rendition.text) for p in shown)
    return replace(part.block, segments=segments, query=asked or None)


def for_engines(message: ChatMessage, counter: TokenCounter) -> ChatMessage:
    """Returns a copy for any engine: no text is a slot of its templates, media cost what we count."""
    made = copy_message(message)
    for place, block in enumerate(made.blocks):
        if not isinstance(block, TextBlock):
            made.blocks[place] = measured(block, counter)
        elif (text := defused(block.text)) != block.text:
            block.text = text
    return made


def _written(template: Any, shown: Sequence[tuple[str, list[Any]]]) -> list[Any]:
    """Returns the template's text with the blocks' media in their places."""
    # The stock template drops media without a URL: it is given a text that marks the place of each.
    media: list[Any] = []
    texts: list[tuple[str, list[TextBlock]]] = []
    for tag, content in shown:
        marked = []
        for item in content:
            if isinstance(item, TextBlock):
                marked.append(item)
            else:
                marked.append(TextBlock(text=f"<content_block {len(media)}>"))
                media.append(item)
        texts.append((tag, marked))
    written: list[Any] = []
    for block in template.format_messages(memory_blocks=texts)[0].blocks:
        if not isinstance(block, TextBlock):
            written.append(block)
            continue
        for i, part in enumerate(_PLACE.split(block.text)):
            if i % 2:
                written.append(media[int(part)])
            elif part:
                written.append(TextBlock(text=part))
    placed = {id(block) for block in written}
    return [*written, *(item for item in media if id(item) not in placed)]


def _by_position(segments: Sequence[Segment]) -> list[Segment]:
    last = len(segments) + 1
    return [replace(segment, score=1.0 - i / last) for i, segment in enumerate(segments)]


def _text_of(item: Any) -> str | None:
    """Returns the text of a block's item, None for media and messages."""
    return item.text if isinstance(item, TextBlock) else item if isinstance(item, str) else None


def as_is(_: str, __: Segment, text: str) -> str:
    """Shows a text of a block as it is."""
    return text


def with_prompt(
    request: PromptRequest, prompt: Any, question: str | None, extra_tokens: int, *, before: int = 0
) -> PromptRequest:
    """Returns a session's request with the host's prompt in its count.

    `extra_tokens` are in neither; `before` are those an engine counts before the history, the prompt's too.
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
    found = replace(request, render=render, system=system, extra_tokens=extra_tokens, question=own)
    # With an empty prompt, what the host writes around has its own room.
    return replace(found, covers="prompt") if prompt != "" and request.covers == "blocks" else found


def _filled(prompt: Any, context: str, question: str) -> list[ChatMessage]:
    """Returns the prompt; nodes it has no place for get a message, since the host shows them elsewhere."""
    shown = False
    if isinstance(prompt, BasePromptTemplate):
        values = dict.fromkeys(prompt.template_vars, "")
        shown = any(name in values for name in _CONTEXT)
        values |= {name: context for name in _CONTEXT if name in values}
        values |= {name: question for name in QUESTIONS if name in values}
        given = list(prompt.format_messages(None, **values))
    else:
        given = [ChatMessage(role=MessageRole.SYSTEM, content=prompt)] if isinstance(prompt, str) else prompt
    around = [ChatMessage(role=MessageRole.SYSTEM, content=context)] if context and not shown else []
    return [*given, *around]


def _with_blocks(message: ChatMessage, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> ChatMessage:
    blocks = [*before, *message.blocks, *after]
    return ChatMessage(role=message.role, blocks=blocks, additional_kwargs=message.additional_kwargs)


def _safe(text: str, name: str) -> str:
    """Returns a text that closes neither its own tag nor the template's, nor opens a content block."""
    tag = rf"<(?=\s*/?\s*(?:{re.escape(name)}|memory|content_block)\b)"
    return re.sub(tag, "&lt;", escape_text(text), flags=re.IGNORECASE)
