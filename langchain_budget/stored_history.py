"""A thread of a `HistoryStore` as LangChain's chat message history."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages

from rankbudget import Scope
from rankbudget.adapters import PDF, Media, as_block, media_of
from rankbudget.errors import BudgetConfigError, MessageError, shown
from rankbudget.memory import HistoryStore, HostForm, StoredThread, ThreadMessages
from rankbudget.memory.forms import NUMBERED

from ._codec import CODEC
from ._convert import as_messages
from ._options import checked

_AS_IT_IS = ("image_url", "image_generation_call", "computer_screenshot", "container_upload")
"""Media that LangChain's clients read in the provider's own form."""
_BESIDE = ("cache_control", "citations", "title", "context")
"""What Anthropic is sent beside media."""

_UNNAMED = "document.pdf"
"""OpenAI refuses a file without a name."""


def history_store(store: Any) -> HistoryStore:
    """Returns the store of conversations; raises BudgetConfigError for what is none."""
    if not isinstance(store, HistoryStore):
        msg = f"store must be a HistoryStore (got {shown(store)})."
        raise BudgetConfigError(msg)
    return store


class StoredMessageHistory(BaseChatMessageHistory):
    """A conversation in a database, which other hosts may have begun; only what a prompt needs is read.

    `BudgetMessageHistory(StoredMessageHistory(...))` reads it fitted. A message with an id that is stored
    already is not added again.

    Args:
        store: the `HistoryStore`.
        thread_id: the conversation's name.
        scope: whose it is.

    Raises:
        BudgetConfigError: an argument is wrong.

    Example:
        >>> from langchain_core.messages import HumanMessage
        >>> store = HistoryStore(":memory:")
        >>> history = StoredMessageHistory(store, "t1", scope=Scope(user="ann"))
        >>> history.add_messages([HumanMessage("Where do ferns grow?"), AIMessage("In the shade.")])
        >>> [message.content for message in history.messages]
        ['Where do ferns grow?', 'In the shade.']
        >>> store.thread("t1", scope=Scope(user="ann")).messages()[0]
        {'role': 'user', 'content': 'Where do ferns grow?'}
    """

    @checked
    def __init__(self, store: HistoryStore, thread_id: str, *, scope: Scope) -> None:
        super().__init__()
        self.thread: StoredThread = history_store(store).thread(thread_id, scope=scope, form=self._form())

    def _form(self) -> HostForm:
        return FORM

    @classmethod
    def of(cls, thread: StoredThread) -> StoredMessageHistory:
        """Returns the conversation `thread` as LangChain's messages."""
        return cls(thread.store, thread.name, scope=thread.scope)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # as its docs allow
        """All stored messages, each an object of its own."""
        return self.thread.messages()

    def conversation(self, tokens: int = 0) -> ThreadMessages:
        """Returns the messages as they are now; about so many newest `tokens` are read at once."""
        return self.thread.conversation(tokens)

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages, or what LangChain converts to them: all of them or none."""
        self.thread.append(as_messages(messages))

    def clear(self) -> None:
        """Removes the conversation with its summary."""
        self.thread.clear()


def plain_message(message: BaseMessage) -> dict[str, Any]:
    """Returns a message as plain data: the name of its class and its fields."""
    try:
        given = message.model_dump()
    except ValueError:  # an artifact that holds itself
        given = message.model_dump(exclude={"artifact"}) | {"artifact": getattr(message, "artifact", None)}
    fields = {name: value for name, value in given.items() if value is not None}
    return {"class": f"{type(message).__module__}:{type(message).__qualname__}", "fields": fields}


def restored(data: Mapping[str, Any]) -> BaseMessage:
    """Returns the message that `plain_message` wrote."""
    kind = _kinds().get(data["class"])
    if kind is None:  # grows: subclasses of subclasses follow, and a class may have been imported since
        _kinds.cache_clear()
        kind = _kinds().get(data["class"])
    if kind is None:
        msg = f"a stored message has the class {data['class']!r}, which is not loaded here. Import it first."
        raise MessageError(msg)
    return kind(**data["fields"])


def made(neutral: Mapping[str, Any], name: str | None) -> BaseMessage:
    """Returns a message from the neutral form that another host's codec wrote."""
    content: Any = neutral.get("content") or neutral.get("refusal")
    reasoning: dict[str, str] = {}
    if isinstance(content, list):
        content = [as_block(part) for part in content]  # Gemini's parts have no type
        thought = "".join(part.get("thinking") or "" for part in content if _is_unsigned(part))
        reasoning = {"reasoning_content": thought} if thought else {}
        content = [_block(part) for part in content if not _is_unsigned(part)]
    content = content or ""
    if neutral["role"] == "assistant":
        calls, broken = _calls(neutral.get("tool_calls") or ())
        named = {"name": neutral.get("name"), "id": name, "additional_kwargs": reasoning}
        return AIMessage(content, tool_calls=calls, invalid_tool_calls=broken, **named)
    given = {**neutral, "content": content}
    given.pop("tool_calls", None)  # only an assistant calls tools
    if neutral["role"] == "tool":
        given["tool_call_id"] = neutral.get("tool_call_id") or ""
    message = convert_to_messages([given])[0]
    message.id = name
    return message


def _is_unsigned(part: Any) -> bool:
    """Tells whether a part is thinking that no provider signed: clients keep it beside the content."""
    return isinstance(part, dict) and part.get("type") == "thinking" and not part.get("signature")


def _block(part: Any) -> Any:
    """Returns a content block; of signed thinking LlamaIndex keeps text and signature, or the signature."""
    if not isinstance(part, dict) or part.get("type") in _AS_IT_IS:
        return part
    if part.get("type") == "thinking":
        return part if part.get("thinking") else {"type": "redacted_thinking", "data": part["signature"]}
    if part.get("type") == "refusal":
        return {"type": "text", "text": part.get("refusal") or ""}
    return _media(part)


def _media(part: dict[str, Any]) -> dict[str, Any]:
    """Returns media as LangChain's standard block, which its clients send with the media type.

    A text file, and what no provider takes as a file, is a text.
    """
    media = media_of(part)
    if media is None:
        return part
    said = _instead(media)
    if said is not None:
        return {"type": "text", "text": said}
    if media.detail and media.address():  # only OpenAI's own form has a place for it
        return {"type": "image_url", "image_url": {"url": media.address(), "detail": media.detail}}
    name = media.name or (_UNNAMED if media.mime == PDF and media.data else "")
    told = {"mime_type": media.mime, "filename": name}
    beside = {key: part[key] for key in _BESIDE if key in part}
    return {"type": media.kind, **media.source(), **{k: v for k, v in told.items() if v}, **beside}


def _instead(media: Media) -> str | None:
    """Returns the text that is sent in the place of media, None where they are sent themselves."""
    said = media.written_text()
    if said is not None or not media.source():
        return media.told() if said is None else said
    refused = media.kind == "file" and media.data and media.mime != PDF
    return media.told(f"{media.mime or 'unknown type'}, not sent") if refused else None


def _calls(given: Sequence[Mapping[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Returns calls in LangChain's form, and those whose arguments are no JSON object."""
    calls: list[Any] = []
    broken: list[Any] = []
    for call in given:
        function = call["function"]
        own = {"name": function["name"], "id": call.get("id")}
        try:
            arguments, told = json.loads(function["arguments"] or "{}"), "no object"
        except ValueError as error:
            arguments, told = None, str(error)
        if isinstance(arguments, dict):
            calls.append({**own, "args": arguments, "type": "tool_call"})
        else:
            broken.append({**own, "args": function["arguments"], "error": told})
    return calls, broken


@cache
def _kinds() -> dict[str, type[BaseMessage]]:
    known: list[type[BaseMessage]] = [BaseMessage]
    for kind in known:
        known += kind.__subclasses__()
    return {f"{kind.__module__}:{kind.__qualname__}": kind for kind in known}


FORM = HostForm(name="langchain", codec=CODEC, plain=plain_message, restore=restored, make=made)
"""LangChain's messages in a `HistoryStore`."""


class _Named(HostForm):
    """Each message has an id by which its row is found, so that an agent's state can edit and remove it."""

    def message(self, row: Any) -> BaseMessage:
        made: BaseMessage = super().message(row)
        made.id = made.id or f"{NUMBERED}{row.seq}"
        return made


_NAMED_FORM = _Named(**{field.name: getattr(FORM, field.name) for field in dataclasses.fields(FORM)})


class NamedMessageHistory(StoredMessageHistory):
    """A stored conversation whose messages all have ids."""

    def _form(self) -> HostForm:
        return _NAMED_FORM
