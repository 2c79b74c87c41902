"""The plain text of a message: its text blocks, and the texts of tool results among its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, takewhile
from operator import itemgetter
from typing import Any

from ..counting.blocks import as_block, block_text, blocks_of, kind_of


def content_text(content: Any) -> str:
    """Returns the plain text of a message's content; atomic blocks have none."""
    return content if isinstance(content, str) else "\n".join(texts_of(content))


def texts_of(content: Any) -> list[str]:
    """Returns the text of each text block of a message's content, and the texts of each tool result in it."""
    return [text for block in blocks_of(content) for text in _texts_in(block)]


def result_content(block: Mapping[str, Any]) -> Any:
    """Returns what the block of a result holds: a text, content blocks, an object with several, or None."""
    held = block.get(_key_of(block))
    texts = list(held.values()) if isinstance(held, Mapping) else []
    if len(texts) == 1 and isinstance(texts[0], str):  # Gemini's response, which must be an object
        return texts[0]
    return held


def parts_of(content: Any) -> list[list[str]]:
    """Returns `texts_of` a content in parts: those of each tool result, and what is said beside results."""
    texts = [(block_text(block) is None, _texts_in(block)) for block in blocks_of(content)]
    parts = groupby(filter(itemgetter(1), texts), lambda held: id(held) if held[0] else 0)
    return [[text for _, part in held for text in part] for _, held in parts]


def replace_text(content: Any, text: str | Sequence[str]) -> Any:
    """Returns content whose plain text is `text`; atomic blocks keep their places, a list stays a list."""
    if not isinstance(content, (list, tuple)):
        return text if isinstance(text, str) else "\n".join(text)
    texts = iter(spread_text(texts_of(content), text))
    blocks: list[Any] = []
    for block in content:
        if block_text(block) is None:
            blocks.append(_with_texts(block, texts) if _texts_in(block) else block)
        elif part := next(texts):
            held = block if isinstance(block, (str, Mapping)) else as_block(block)
            blocks.append(part if isinstance(held, str) else {**held, "text": part})
    rest = next(texts, "")
    return [*blocks, {"type": "text", "text": rest}] if rest else blocks


def _texts_in(block: Any) -> list[str]:
    """Returns the texts of one block: its own, or those of the result that it holds."""
    text = block_text(block)
    if text is not None:
        return [text]
    held = as_block(block)
    kind = kind_of(held)
    if kind != "tool_result" and not kind.endswith("_call_output"):
        return []
    inner = held.get(_key_of(held))
    if isinstance(inner, Mapping):  # Gemini's response: an object, whose own texts may be shortened
        return [value for value in inner.values() if isinstance(value, str)]
    return texts_of(inner) if isinstance(inner, (str, list, tuple)) else []


def _with_texts(block: Any, texts: Iterator[str]) -> Any:
    """Returns a block with a result whose texts are the next ones."""
    held = block if isinstance(block, Mapping) else as_block(block)
    if "type" not in held:  # Gemini names the kind of a part by its only key
        part = next(key for key, value in held.items() if isinstance(value, Mapping))
        edited = _with_texts({"type": "tool_result", **held[part]}, texts)
        return {**held, part: {key: edited[key] for key in held[part]}}
    key = _key_of(held)
    inner = held[key]
    if isinstance(inner, Mapping):
        own = {name: next(texts) if isinstance(value, str) else value for name, value in inner.items()}
        return {**held, key: own}
    if isinstance(inner, str):
        return {**held, key: next(texts)}
    return {**held, key: replace_text(inner, [next(texts) for _ in texts_of(inner)])}


def _key_of(result: Mapping[str, Any]) -> str:
    """Returns under which key a block keeps what a tool returned."""
    return next((key for key in ("content", "output", "response") if key in result), "content")


def spread_text(texts: Sequence[str], text: str | Sequence[str]) -> list[str]:
    """Returns what of a shortened text belongs to each of the texts it was made of; "" where nothing does.

    As many texts are given as they are; of another number, as a host may show several as one, all count.
    What is left of the start and of the end goes back to where it was, so that a caption stays beside its
    image; anything else goes to the text in which the start was cut.
    """
    if not isinstance(text, str):
        if len(text) == len(texts):
            return list(text)
        text = "\n".join(text)
    if len(texts) < 2:  # noqa: PLR2004 - nothing to divide
        return [text]
    whole = "\n".join(texts)
    head = _alike(whole, text)
    tail = _alike(whole[head:][::-1], text[head:][::-1])
    if (gap := text.find("...", max(0, head - 2))) >= 0:  # the mark is of one piece
        tail = min(tail, len(text) - gap - 3)
    middle = text[head : len(text) - tail]
    parts: list[str] = []
    at = 0
    for own in texts:
        stop = at + len(own)
        part = own[: max(0, head - at)]
        if at <= head <= stop:
            part, middle = part + middle, ""
        if head < stop:
            part += own[max(0, len(whole) - tail - at) :]
        parts.append(part)
        at = stop + 1
    return parts


def _alike(first: str, second: str) -> int:
    """Returns how many characters two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
