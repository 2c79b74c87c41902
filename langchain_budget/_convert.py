"""LangChain objects as the core reads them, and back: messages, tools, documents and examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, RemoveMessage, convert_to_messages
from langchain_core.prompt_values import PromptValue

from rankbudget import Segment
from rankbudget.adapters import Shown, is_text, segment_signals
from rankbudget.errors import BudgetConfigError, MessageError, shown

from ._codec import CODEC

if TYPE_CHECKING:
    from langchain_core.prompts import BasePromptTemplate

_OWN = {"function", "json_schema"}
"""A tool or a response format in the form of OpenAI, which stays as it is."""
_ASKED = ("input", "question", "query", "text", "prompt", "instruction")
_ANSWERED = ("output", "answer", "response", "completion", "label")


def as_messages(given: Any) -> list[BaseMessage]:
    """Returns messages from what LangChain takes for them; removals are carried out as in a graph's state."""
    if isinstance(given, PromptValue):
        given = given.to_messages()
    elif isinstance(given, (str, BaseMessage)):
        given = [given]
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        msg = f"messages must be a list of messages, tuples, dicts or strings (got a {type(given).__name__})"
        raise MessageError(msg)
    kept: list[BaseMessage] = []
    for item in given:
        message = item if isinstance(item, BaseMessage) else _convert(item)
        if not isinstance(message, RemoveMessage):
            kept.append(message)
        elif message.id == "__remove_all__":
            kept.clear()
        else:
            kept = [m for m in kept if m.id != message.id]
    return kept


def last_question(messages: Sequence[Any] | None, question: BaseMessage | None = None) -> str | None:
    """Returns the text of the question, or of the last message of a user; None without any."""
    asked = [] if question is None else [question]
    newest_first = chain(asked, (m for one in reversed(messages or ()) for m in as_messages([one])))
    return next((m.text for m in newest_first if CODEC.role(m) == "user" and m.text.strip()), None)


def as_tools(tools: Any) -> list[dict[str, Any]] | None:
    """Returns tools as the model will see them; takes whatever `bind_tools` takes."""
    if isinstance(tools, (str, Mapping)) or not (tools is None or isinstance(tools, Iterable)):
        msg = f"tools must be a list of tools, functions, models or schemas (got a {type(tools).__name__})"
        raise BudgetConfigError(msg)
    given = tools or ()
    return [dict(t) if isinstance(t, Mapping) and _OWN & t.keys() else _tool(t) for t in given] or None


def document_text(document: Document, prompt: BasePromptTemplate[str] | None = None) -> str:
    """Returns a document's text as the prompt will show it: its content, or what a prompt makes of it."""
    if prompt is None:
        return document.page_content
    from langchain_core.prompts import format_document

    try:
        return format_document(document, prompt)
    except ValueError as error:
        msg = f"document_prompt must find its variables here (got {shown(document.metadata)}): {error}"
        raise BudgetConfigError(msg) from error


def example_text(example: Mapping[str, Any], prompt: Any = None) -> str:
    """Returns an example's text: what an example prompt makes of it, or its fields, one on a line."""
    if prompt is None:
        return "\n".join(f"{key}: {value}" for key, value in example.items())
    if hasattr(prompt, "format_messages"):
        return "\n".join(m.text for m in example_messages(example, prompt))
    return str(_filled(prompt.format, example))


def example_messages(example: Mapping[str, Any], prompt: Any = None) -> list[BaseMessage]:
    """Returns an example as messages: by a prompt, or by the names of its two fields."""
    if hasattr(prompt, "format_messages"):
        return list(_filled(prompt.format_messages, example))
    asked = [name for name in _ASKED if name in example]
    answered = [name for name in _ANSWERED if name in example]
    if len(example) == 2 and len(asked) == len(answered) == 1:  # noqa: PLR2004 - a question and its answer
        return [HumanMessage(str(example[asked[0]])), AIMessage(str(example[answered[0]]))]
    msg = (
        f"an example must say which field is the question (got {', '.join(map(str, example)) or 'none'}). "
        "Give example_prompt=, as ChatPromptTemplate([('human', '{..}'), ('ai', '{..}')])"
    )
    raise BudgetConfigError(msg)


def to_segments(
    items: Iterable[Any],
    *,
    prefix: str = "document",
    text_of: Callable[[Any], str] | None = None,
    shown: Shown | None = None,
) -> list[Segment]:
    """Returns documents, example dicts, messages or plain texts as segments; each carries its host object.

    An item's own id names its segment; without one, or for the second of the same id, its place in the list
    does. A document's metadata gives score and title, and what only memories are ranked by or tags show;
    `shown`, how it reads in the prompt, what is beside its text.
    """
    if isinstance(items, (str, Mapping)) or not isinstance(items, Iterable):
        msg = f"{prefix}s must be a list (got a {type(items).__name__})"
        raise MessageError(msg)
    segments: list[Segment] = []
    seen: set[str] = set()
    for place, item in enumerate(items):
        segment = item if isinstance(item, Segment) else _segment(item, place, prefix, text_of)
        if segment.id in seen:
            segment = dataclasses.replace(segment, id=f"{segment.id}#{place}")
        if shown is not None and not segment.beside:
            segment = dataclasses.replace(segment, beside=shown("knowledge", segment, "").strip())
        seen.add(segment.id)
        segments.append(segment)
    return segments


def from_segment(segment: Segment, text: str | None = None) -> Any:
    """Returns a segment's host object: the same one when whole, else a copy that holds `text`."""
    source = segment.source
    if source is None:
        return segment.text if text is None else text
    if text is None or isinstance(source, Mapping):
        return source
    if isinstance(source, Document):
        return source.model_copy(update={"page_content": text, "metadata": _own(source.metadata)})
    if isinstance(source, BaseMessage):
        return CODEC.with_text(source, text)
    return text


def _filled(write: Callable[..., Any], example: Mapping[str, Any]) -> Any:
    try:
        return write(**example)
    except KeyError as error:
        fields = ", ".join(map(str, example)) or "no fields"
        msg = f"each example must have {error} for the example prompt (got {fields})"
        raise BudgetConfigError(msg) from error


def _segment(item: Any, place: int, prefix: str, text_of: Callable[[Any], str] | None) -> Segment:
    name = getattr(item, "id", None) or f"{prefix}-{place}"
    fields: dict[str, Any] = {}
    if isinstance(item, str):
        text = item
    elif isinstance(item, BaseMessage):
        text, fields = item.text, {"role": CODEC.role(item)}
    elif isinstance(item, Document):
        text = (text_of or document_text)(item)
        signals = segment_signals(item.metadata, name=name) if item.metadata else {}
        fields = {"metadata": item.metadata, **signals}
    elif isinstance(item, Mapping):
        text, label = (text_of or example_text)(item), item.get("label")
        fields = {"label": label if isinstance(label, str) else None}
    else:
        kinds = "a Document, a dict, a message, a text or a Segment"
        msg = f"{prefix} must be {kinds} (got a {type(item).__name__})"
        raise MessageError(msg)
    return Segment(id=name, text=text, source=item, **fields)


def _own(value: Any) -> Any:
    """Returns containers as new ones, all the way down, with what they hold as it is."""
    if type(value) is dict:
        return {key: _own(held) for key, held in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_own(held) for held in value)
    return value


def _convert(item: Any) -> BaseMessage:
    try:
        return convert_to_messages([item])[0]
    except (NotImplementedError, ValueError, KeyError) as error:
        msg = f"a message must be a message, a tuple, a dict or a text (got {item!r:.120}): {error}"
        raise MessageError(msg) from error


def _with_rest(made: dict[str, Any], tool: Any) -> dict[str, Any]:
    """Returns a converted tool with what only some providers are sent of it, as examples of its input."""
    given = tool if isinstance(tool, Mapping) and "name" in tool else getattr(tool, "extras", None)
    known = {"name", "description", "parameters", "input_schema", *made, *made.get("function", ())}
    rest = {n: v for n, v in (given or {}).items() if n not in known and is_text(v)}
    return {**made, "function": {**made["function"], **rest}} if rest and "function" in made else made


def _tool(tool: Any) -> dict[str, Any]:
    from langchain_core.utils.function_calling import convert_to_openai_tool

    try:
        return _with_rest(convert_to_openai_tool(tool), tool)
    except (ValueError, TypeError) as error:
        if isinstance(tool, Mapping):  # a provider's own tool, as {"type": "web_search"}
            return {
                "type": "function",
                "function": {"name": str(tool.get("type", "")), "parameters": dict(tool)},
            }
        msg = (
            f"each tool must be a tool, a function, a class or a schema (got {tool!r:.80}), as for bind_tools"
        )
        raise BudgetConfigError(msg) from error
