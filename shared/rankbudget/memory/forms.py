"""How a host's messages are written into rows and made of them again."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import __version__
from ..counting.blocks import arguments_of, block_text, blocks_of, function_of, kind_of
from ..counting.media_forms import PDF, Media, media_of
from ..counting.protocol import TokenCounter
from ..counting.resolve import COUNTERS
from ..errors import refuse
from ..messages.codec import Codec, DictCodec
from ..messages.measure import CodecMeasure, Measure
from ..messages.texts import texts_of
from .memory import check_storable
from .plain import digest_of_text, read, written, written_own

_TEXTS = ("name", "tool_call_id", "refusal")
_THOUGHTS = ("thinking", "reasoning", "redacted_thinking")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{24,}={0,2}\s*")
_SERVER_TOOLS = ("tool_use", "_tool_result", "_call")
"""Ends of the types of blocks that a provider wrote of its own tools, and can read alone."""
_MAY_SAY_NOTHING = ("user", "assistant")
NUMBERED = "rankbudget-message-"
"""Begins the id of a stored message that its host gave none; the number of its row follows."""


def _same(message: Any) -> Any:
    return message


def _openai(neutral: Mapping[str, Any], _: str | None) -> Any:
    """Returns a neutral dict as OpenAI's chat API takes it: no thinking, media in its own parts."""
    content, asked = neutral.get("content"), neutral["role"] == "user"
    if not isinstance(content, list):
        return neutral
    parts = [made for part in content if (made := _openai_part(part, asked=asked))]
    return {**neutral, "content": parts or (None if neutral.get("tool_calls") else "")}


def _openai_part(part: Any, *, asked: bool) -> dict[str, Any] | None:
    """Returns a part of a content, None for what is left out; only what a user asks may have media."""
    media = media_of(part)
    if media is None:
        kind, said = kind_of(part), block_text(part)
        if kind in _THOUGHTS or said == "" or kind.endswith(_SERVER_TOOLS):
            return None
        if kind == "refusal":
            return dict(part)
        held = texts_of(part.get("content")) if isinstance(part, Mapping) else []
        return {"type": "text", "text": said or "\n".join(held) or written(part)}
    said = media.written_text()
    if said is None and asked and (sent := _openai_media(media)):
        return sent
    note = f"{media.mime or 'unknown type'}, not sent" if media.data else ""
    return {"type": "text", "text": media.told(note) if said is None else said}


def _openai_media(media: Media) -> dict[str, Any] | None:
    """Returns media as a part of a request, None where OpenAI's chat API takes none of this kind."""
    if media.kind == "image" and media.address():
        return {"type": "image_url", "image_url": {"url": media.address(), "detail": media.detail or "auto"}}
    if media.kind == "audio" and media.data:
        form = media.mime.partition("/")[2]
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}
    if media.kind == "file" and media.mime == PDF and media.data:
        file = {"file_data": media.address(), "filename": media.name or "document.pdf"}
        return {"type": "file", "file": file}
    if media.kind == "file" and media.file_id and not media.data:
        return {"type": "file", "file": {"file_id": media.file_id}}
    return None


def _for_others(neutral: Mapping[str, Any], role: str) -> Mapping[str, Any]:
    """Returns what a host wrote with one word for each role, and one shape of content and calls."""
    content = neutral.get("content")
    if neutral.get("images"):  # beside the text, as Ollama takes them
        said = [{"type": "text", "text": content}] if isinstance(content, str) else blocks_of(content)
        content = [*said, *map(_image, neutral["images"])]
        neutral = {key: value for key, value in neutral.items() if key != "images"}
    if not isinstance(content, str):
        said = [_block_for_others(block) for block in blocks_of(content) if block is not None]
        content = said or (None if role in _MAY_SAY_NOTHING else "")
    named = {key: str(neutral[key]) for key in _TEXTS if neutral.get(key) is not None}
    calls = {"tool_calls": list(map(_call_for_others, found))} if (found := neutral.get("tool_calls")) else {}
    return {**neutral, **named, **calls, "role": role, "content": content}


def _image(held: Any) -> dict[str, Any]:
    """Returns an image of Ollama's, which is base64, bytes or a path, as a block."""
    data = base64.b64encode(held).decode("ascii") if isinstance(held, bytes) else str(held)
    if not _BASE64.fullmatch(data):
        return {"type": "text", "text": "[image: only on the machine that sent it]"}
    return {"type": "image", "source_type": "base64", "data": data}


def _block_for_others(block: Any) -> Any:
    """Returns a block with its thinking as a text, which is a list in Mistral's; texts have one type."""
    if kind_of(block) in ("input_text", "output_text"):  # of the Responses API, which others refuse
        return {**block, "type": "text"}
    thought = {key: block.get(key) for key in _THOUGHTS} if isinstance(block, Mapping) else {}
    odd = {key: blocks_of(said) for key, said in thought.items() if said and not isinstance(said, str)}
    told = {key: "".join(filter(None, map(block_text, said))) for key, said in odd.items()}
    return {**block, **told} if told else block


def _call_for_others(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a call with its arguments as a text: Ollama's are a dict, and LangChain's beside its name.

    The free text that a custom tool of OpenAI's takes is one argument: others' clients send objects only.
    """
    function = function_of(call)
    given = arguments_of(function)
    given = "{}" if given is None else given
    is_custom = isinstance(call.get("custom"), Mapping) and isinstance(given, str)
    given = {"input": given} if is_custom else given
    arguments = given if isinstance(given, str) else written(given)
    told = {"name": str(function.get("name") or ""), "arguments": arguments}
    named = {"id": str(call["id"])} if call.get("id") else {}
    others = {key: held for key, held in call.items() if key not in ("id", "custom")}
    return {**others, **named, "type": "function", "function": told}


@dataclass(frozen=True, slots=True, kw_only=True)
class HostForm:
    """The messages of one host.

    Rules:
        1. `restore(plain(m))` equals `m`, where `plain` gives what JSON can hold, and bytes. Dates and
           decimal numbers come back as texts; other objects that no model reads do not come back.
        2. `make` gives a message of this host from the neutral form that any other host's codec made, with
           its texts, calls, results, media and thinking.

    Args:
        name: the host.
        codec: reads its messages.
        plain: a message as plain data.
        restore: plain data as the message again.
        make: a neutral dict and an id, or None, as a message.
        reader: the codec by which a prompt's messages are counted, where it is another one.
    """

    name: str
    codec: Codec
    plain: Callable[[Any], Any] = _same
    restore: Callable[[Any], Any] = _same
    make: Callable[[Mapping[str, Any], str | None], Any] = _openai
    reader: Codec | None = None

    def row(self, message: Any, position: int = 0) -> dict[str, Any]:
        """Returns a message as a row, without its place in the conversation.

        Args:
            message: of this host.
            position: where it is in what is stored with it, for the error.

        Raises:
            MessageError: it is no message, or has content that no reader could make a message of.
            BudgetConfigError: its id is none.
        """
        role = self.codec.role(message)  # raises MessageError for what is no message
        name, problems = self.codec.message_id(message) or "", list[str]()
        check_storable("the id of a message", name, problems)
        refuse(problems)
        neutral = self.codec.to_dict(message)
        if neutral.get("content") or isinstance(self.codec, DictCodec):  # other hosts have empty results
            DictCodec().check(neutral, position)
        text, own = written(neutral), self.plain(message)
        return {
            "role": role,
            "name": name or None,
            "neutral": text,
            "form": self.name,
            "host": None if own is neutral else written_own(own),
            "digest": digest_of_text(text),
            "counts": "{}",
        }

    def message(self, row: Any) -> Any:
        """Returns the message of a row; another host's is made anew from its neutral form."""
        if row.form != self.name:
            return self.make(_for_others(read(row.neutral), row.role), row.name)
        return self.restore(read(row.neutral if row.host is None else row.host))

    def sent(self, row: Any) -> Any:
        """Returns the message of a row as a prompt has it."""
        return self.message(row)

    def measure(self, counter: TokenCounter) -> Measure:
        """Returns what counts its messages with a counter."""
        return CodecMeasure(self.reader or self.codec, counter)

    def counted_by(self, measure: Measure) -> bool:
        """Returns whether a measure counts this host's messages as rows say."""
        codec, own = getattr(measure, "codec", None), self.reader or self.codec
        same = codec is own or type(codec) is type(own) is DictCodec
        return isinstance(measure, CodecMeasure) and same


DICTS = HostForm(name="dicts", codec=DictCodec())
"""Dicts of any provider as they were stored; what other hosts stored, as OpenAI's chat API takes it."""


@dataclass(slots=True)
class Counts:
    """Which counters' tokens are stored, and by what name.

    A counter that `counter_for` finds by its name has that name; others have the one they are `given` by.
    """

    given: Mapping[str, TokenCounter] = field(default_factory=dict)

    def key(self, form: HostForm, counter: TokenCounter) -> str | None:
        """Returns the name in a row of a counter's tokens; None where none is safe to store."""
        own = next((name for name, one in self.given.items() if one is counter), None)
        if own is None and COUNTERS.get(counter.name) is counter:
            own = counter.name
        return None if own is None else f"{form.name}/{own}/{__version__}"

    def of(self, form: HostForm, messages: Sequence[Any]) -> list[dict[str, int]]:
        """Returns the tokens of new messages by the counters that were given."""
        found: list[dict[str, int]] = [{} for _ in messages]
        for counter in self.given.values():
            key, measure = self.key(form, counter), form.measure(counter)
            for counts, message in zip(found, messages, strict=True):
                counts[str(key)] = measure.group([message])
        return found
