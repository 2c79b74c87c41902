"""Blocks that a store fills: what it has for the question and the reader, asked for before a plan is made."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from .._drivers import Call, Steps
from ..errors import BudgetConfigError
from ..messages.texts import content_text
from ..segment import Block
from .layout import REMEMBERED
from .request import PromptRequest


def filled_steps(request: PromptRequest) -> Steps[PromptRequest]:
    """Returns the request with the memories that its blocks' stores have for the question and the reader.

    Raises:
        BudgetConfigError: a block has a store and nobody says who reads.
    """
    if all(block.store is None for block in request.blocks):
        return request
    if request.scope is None:
        msg = "scope must be given to read a block with a store, as Scope(user='ann') (got None)"
        raise BudgetConfigError(msg)
    blocks: dict[str, Block] = {block.name: replace(block, store=None) for block in request.blocks}
    for block in request.blocks:
        if block.store is None:
            continue
        asked = block.query or request.question_text or _last_question(request)
        found = yield Call(
            partial(block.store.blocks, asked, scope=request.scope),
            awaitable=partial(block.store.ablocks, asked, scope=request.scope),
        )
        for one in found:
            name = block.name if one.name == "memory" else one.name
            blocks[name] = _joined(blocks.get(name), replace(one, name=name))
    sources = request.sources
    return replace(
        request,
        blocks=tuple(blocks.values()),
        sources=None if sources is None else sources | {REMEMBERED},  # its share stays where nothing is found
    )


def _joined(block: Block | None, found: Block) -> Block:
    if block is None:
        return found
    segments, notes = (*block.segments, *found.segments), (*block.notes, *found.notes)
    return replace(block, segments=segments, strategy=block.strategy or found.strategy, notes=notes)


def _last_question(request: PromptRequest) -> str:
    codec = request.codec
    for message in reversed(request.history or ()):
        if codec.role(message) == "user":
            text = content_text(codec.to_dict(message).get("content"))
            if text.strip():
                return text
    return ""
