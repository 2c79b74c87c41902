"""Media of every kind, form and source in a stored conversation: what another framework's client sends of them."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    VideoBlock,
)
from llama_index.llms.openai_like import OpenAILike
from openai import OpenAI

from langchain_budget.stored_history import FORM as LANGCHAIN
from llamaindex_budget._stored import FORM as LLAMAINDEX
from rankbudget import Scope, counter_for
from rankbudget.memory import HistoryStore
from rankbudget.memory.forms import DICTS
from rankbudget.testing.server import Reply, StrictModelServer
from tests.drawing import draws

ANN = Scope(user="ann")
DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
BYTES = {
    "image/png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x40\0\0\0\x40",
    "image/webp": b"RIFF\x1a\0\0\0WEBPVP8L",
    "audio/wav": b"RIFF\x24\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0\x40\x1f\0\0\x80\x3e\0\0\2\0\x10\0",
    "audio/mp3": b"ID3\4\0\0\0\0",
    "video/mp4": b"\0\0\0\x18ftypmp42",
    "application/pdf": b"%PDF-1.4 /Type /Page\n%%EOF",
    "text/plain": b"plain words",
    "text/csv": "item;price\ntea;3 €\n".encode("utf-16"),
    "text/markdown": "# Größe\n".encode("cp1252"),
    "application/json": b'{"price": 3}',
    DOCX: b"PK\3\4\x14\0\xff",
}
SAYS = {
    "text/plain": "plain words",
    "text/csv": "tea;3 €",
    "text/markdown": "# Größe",
    "application/json": '{"price": 3}',
}
"""What the text files say."""


class Given(NamedTuple):
    """Media: their type, and where they are: "data", "url", "id", or "text" for a document given as one."""

    mime: str
    source: str

    @property
    def kind(self) -> str:
        return self.mime.split("/")[0] if self.mime.split("/")[0] in ("image", "audio", "video") else "file"

    @property
    def data(self) -> str:
        return base64.b64encode(BYTES[self.mime]).decode()

    @property
    def place(self) -> str:
        return f"https://a.example/a.{self.mime[-3:]}" if self.source == "url" else "file-123"

    @property
    def data_url(self) -> str:
        return f"data:{self.mime};base64,{self.data}" if self.source == "data" else self.place


# ---- written -------------------------------------------------------------------------------------
def _chat(given: Given) -> Any:
    """OpenAI's chat messages."""
    if given.kind == "image" and given.source != "id":
        return {"type": "image_url", "image_url": {"url": given.data_url}}
    if given.kind == "audio" and given.source == "data":
        return {"type": "input_audio", "input_audio": {"data": given.data, "format": given.mime[6:]}}
    if given.kind == "file" and given.source in ("data", "id"):
        held = (
            {"file_data": given.data_url, "filename": "a"}
            if given.source == "data"
            else {"file_id": given.place}
        )
        return {"type": "file", "file": held}
    return None


def _responses(given: Given) -> Any:
    """OpenAI's responses."""
    if given.kind not in ("image", "file"):
        return None
    key = "file_id" if given.source == "id" else "image_url" if given.kind == "image" else ""
    key = key or ("file_data" if given.source == "data" else "file_url")
    return {"type": f"input_{given.kind}", key: given.data_url}


def _claude(given: Given) -> Any:
    """Anthropic's messages."""
    if given.kind not in ("image", "file"):
        return None
    source = {
        "data": {"type": "base64", "media_type": given.mime, "data": given.data},
        "url": {"type": "url", "url": given.place},
        "id": {"type": "file", "file_id": given.place},
    }[given.source]
    if given.source == "data" and given.mime == "text/plain":
        source = {"type": "text", "media_type": given.mime, "data": SAYS[given.mime]}
    return {"type": "image" if given.kind == "image" else "document", "source": source}


def _parts(given: Given) -> Any:
    """Gemini's parts."""
    if given.source == "data":
        return {"inlineData": {"mimeType": given.mime, "data": given.data}}
    return {"fileData": {"mimeType": given.mime, "fileUri": given.place}} if given.source == "url" else None


def _media(given: Given) -> Any:
    """Gemini's in LangChain."""
    held = {"data": {"data": given.data}, "url": {"file_uri": given.place}}.get(given.source)
    return held and {"type": "media", "mime_type": given.mime, **held}


def _standard(given: Given) -> Any:
    """LangChain's own."""
    if given.source == "data" and given.mime == "text/plain":
        return {"type": "text-plain", "text": SAYS[given.mime], "mime_type": given.mime}
    key = {"data": "base64", "url": "url", "id": "file_id"}[given.source]
    held = given.data if given.source == "data" else given.place
    return {"type": given.kind, key: held, "mime_type": given.mime, "extras": {"filename": "a"}}


def _older(given: Given) -> Any:
    """LangChain's of before."""
    if given.kind == "video":
        return None
    key = {"data": "data", "url": "url", "id": "id"}[given.source]
    kind = {"data": "base64"}.get(given.source, given.source)
    held = given.data if given.source == "data" else given.place
    return {"type": given.kind, "source_type": kind, key: held, "mime_type": given.mime}


def _block(given: Given) -> Any:
    """LlamaIndex's blocks."""
    if given.source == "id":
        return None
    raw = BYTES[given.mime] if given.source == "data" else None
    place: Any = {} if raw else {"url": given.place}
    if given.kind == "image":
        return ImageBlock(image=raw, image_mimetype=given.mime, **place)
    if given.kind == "audio":
        return AudioBlock(audio=raw, format=given.mime[6:], **place)
    if given.kind == "video":
        return VideoBlock(video=raw, video_mimetype=given.mime, **place)
    return DocumentBlock(data=raw, title="a", document_mimetype=given.mime, **place)


def _dicts(part: Any) -> Any:
    key = "parts" if "type" not in part else "content"
    return {
        "role": "user",
        key: [{"text": "look"} if key == "parts" else {"type": "text", "text": "look"}, part],
    }


WRITERS: dict[str, tuple[Any, Callable[[Given], Any], Callable[[Any], Any]]] = {
    "OpenAI chat": (DICTS, _chat, _dicts),
    "OpenAI responses": (DICTS, _responses, _dicts),
    "Anthropic": (DICTS, _claude, _dicts),
    "Gemini": (DICTS, _parts, _dicts),
    **{
        name: (LANGCHAIN, write, lambda part: HumanMessage([{"type": "text", "text": "look"}, part]))
        for name, write in (("LangChain media", _media), ("LangChain", _standard), ("LangChain v0", _older))
    },
    "LlamaIndex": (LLAMAINDEX, _block, lambda part: ChatMessage(blocks=[TextBlock(text="look"), part])),
}
CASES = [
    (name, given)
    for name, (_, write, _message) in WRITERS.items()
    for given in itertools.starmap(Given, itertools.product(BYTES, ("data", "url", "id")))
    if write(given) is not None
]


# ---- sent ----------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(default=Reply(text="ok"), context_window=10**6) as running:
        yield running


CLIENTS: dict[str, Callable[[StrictModelServer], Any]] = {
    "openai": lambda s: ChatOpenAI(model="openai", base_url=s.base_url, api_key="none", max_retries=0),  # type: ignore[arg-type]
    "anthropic": lambda s: ChatAnthropic(  # type: ignore[call-arg]  # aliases
        model="claude-haiku-4-5", base_url=s.root_url, api_key="none", max_retries=0, max_tokens=9
    ),
    "gemini": lambda s: ChatGoogleGenerativeAI(
        model="gemini-2.5-flash", base_url=s.root_url, api_key="none", max_retries=1
    ),
    "ollama": lambda s: ChatOllama(model="llama3.2", base_url=s.root_url),
    "llamaindex": lambda s: OpenAILike(
        model="openai", api_base=s.base_url, api_key="none", is_chat_model=True, max_retries=0
    ),
    "dicts": lambda s: OpenAI(base_url=s.base_url, api_key="none", max_retries=0),
}
READERS = {"llamaindex": LLAMAINDEX, "dicts": DICTS}
TAKES = {
    "openai": {"image": ("data", "url"), "audio": ("data",), "file": ("data", "id")},
    "anthropic": {"image": ("data", "url", "id"), "file": ("data", "url", "id")},
    "gemini": dict.fromkeys(("image", "audio", "video", "file"), ("data",)),
    "ollama": {"image": ("data",)},
    "llamaindex": {"image": ("data", "url"), "audio": ("data",), "file": ("data",)},
    "dicts": {"image": ("data", "url"), "audio": ("data",), "file": ("data", "id")},
}
"""What each client sends without a request of its own to an address; at the rest it raises, also for its own blocks."""


def _sent(body: Mapping[str, Any]) -> tuple[list[tuple[str, str]], str]:
    """Returns each media in a request as its type and data or place, and the texts beside them."""
    [message] = body.get("messages") or body["contents"]
    content = message.get("content") or message["parts"]
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    parts += [{"image": raw} for raw in message.get("images") or ()]
    texts = [part["text"] for part in parts if "text" in part]
    return [_wire(part) for part in parts if "text" not in part], "\n".join(texts)


def _wire(part: Any) -> tuple[str, str]:
    if "image" in part:  # Ollama
        return "", part["image"]
    if "inlineData" in part:
        return part["inlineData"]["mime_type"], part["inlineData"]["data"].replace("-", "+").replace("_", "/")
    source = part.get("source") or part.get("image_url") or part.get("file") or part["input_audio"]
    if "format" in source:
        return f"audio/{source['format']}", source["data"]
    held = source.get("data") or source.get("url") or source.get("file_data") or source["file_id"]
    if held.startswith("data:"):
        head, _, held = held.partition(";base64,")
        return head[5:], held
    return source.get("media_type", ""), held


@pytest.mark.parametrize("client", CLIENTS)
@draws(asynchronous=True)
@given(case=st.sampled_from(CASES))
def test_another_frameworks_client_sends_the_media_with_their_type(
    server: StrictModelServer, client: str, case: tuple[str, Given]
) -> None:
    """It sends the very data with their media type, or a text: what a text file says, else a few words; it counts as that."""
    name, media = case
    writer, write, message = WRITERS[name]
    reader = READERS.get(client, LANGCHAIN)
    if writer is reader:
        return
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=writer).append([message(write(media))])
    [seen] = database.thread("t", scope=ANN, form=reader).messages()
    database.close()
    neutral = (reader.reader or reader.codec).to_dict(seen)
    found = any(part["type"] != "text" for part in _neutral_parts(neutral))
    if found and media.source not in TAKES[client].get(media.kind, ()):
        return
    server.forget()
    model = CLIENTS[client](server)
    _ask(model, seen)
    [request] = server.requests
    assert not request.problems
    sent, texts = _sent(request.body)
    assert len(sent) == found
    if found:
        mime = media.mime if media.source == "data" and client != "ollama" else ""
        assert sent == [(mime, media.data if media.source == "data" else media.place)]
        assert texts.strip() == "look"
        assert media.mime not in SAYS or media.source != "data" or client in READERS
    else:
        document = media.kind == "file" or media.kind not in TAKES[client]
        assert document or media.source != "data", "what is sent by others has a text instead"
        told = SAYS.get(media.mime) if media.source == "data" else media.place
        assert (told or media.mime) in texts
        assert media.data not in texts
        assert len(texts) < 200
    if "messages" in request.body and client in ("openai", "llamaindex", "dicts"):
        counter = counter_for("gpt-4o")
        expected = counter.count_messages(request.body["messages"])
        assert expected <= counter.count_messages([neutral]) <= expected + 1  # the line between two texts


def _ask(model: Any, message: Any) -> None:
    if isinstance(model, OpenAI):
        model.chat.completions.create(model="openai", messages=[message])
    elif isinstance(message, ChatMessage):
        model.chat([message])
    else:
        model.invoke([message])


def _neutral_parts(neutral: Mapping[str, Any]) -> list[Any]:
    content = neutral["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


@pytest.mark.parametrize("name", WRITERS)
def test_the_writer_gets_its_media_back(name: str) -> None:
    """The round trip through the database changes nothing, also after the other framework wrote it back."""
    form, write, message = WRITERS[name]
    database = HistoryStore(":memory:")
    thread = database.thread("t", scope=ANN, form=form)
    written = [message(write(given)) for own, given in CASES if own == name]
    thread.append(written)
    for other in (LANGCHAIN, LLAMAINDEX):
        seen = database.thread("t", scope=ANN, form=other)
        seen.replace(seen.messages())
        assert thread.messages() == written
    database.close()


@pytest.mark.parametrize("form", [LANGCHAIN, LLAMAINDEX], ids=["langchain", "llamaindex"])
def test_a_refusal_is_its_words(form: Any) -> None:
    """A refusal of OpenAI's, in the content or beside it, is the assistant's text in the other framework."""
    written = [
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]},
        {"role": "assistant", "content": None, "refusal": "I cannot."},
    ]
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN).append(written)
    beside = AIMessage("", additional_kwargs={"refusal": "I cannot."})
    database.thread("t", scope=ANN, form=LANGCHAIN).append([beside])
    seen = database.thread("t", scope=ANN, form=form).messages()
    texts = [m.text if form is LANGCHAIN else m.content for m in seen[: 2 if form is LANGCHAIN else 3]]
    assert set(texts) == {"I cannot."}
    database.close()


def test_a_documents_name_is_found_where_langchain_puts_it() -> None:
    """LangChain keeps a file's name among its extras; LlamaIndex gets it as the title."""
    part = {
        "type": "file",
        "base64": "JVBERi0x",
        "mime_type": "application/pdf",
        "extras": {"filename": "b.pdf"},
    }
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN, form=LANGCHAIN).append([HumanMessage([part])])
    [[block]] = [m.blocks for m in database.thread("t", scope=ANN, form=LLAMAINDEX).messages()]
    assert (block.title, block.document_mimetype) == ("b.pdf", "application/pdf")
    database.close()


@pytest.mark.parametrize("form", [LANGCHAIN, LLAMAINDEX], ids=["langchain", "llamaindex"])
def test_thinking_among_geminis_parts_is_thinking(form: Any) -> None:
    """Gemini's parts have no type: a thought stays one, and is not said."""
    parts = [{"text": "A capital is asked for.", "thought": True}, {"text": "Paris."}]
    database = HistoryStore(":memory:")
    database.thread("t", scope=ANN).append([{"role": "model", "parts": parts}])
    [seen] = database.thread("t", scope=ANN, form=form).messages()
    assert (seen.text if form is LANGCHAIN else seen.content) == "Paris."
    database.close()


def test_other_data_addresses_are_read() -> None:
    """An address may hold its data percent-encoded, with a charset, or without a media type."""
    urls = {
        "data:text/csv;charset=utf-8;base64,YSxi": "a,b",
        "data:text/csv,a%2Cb": "a,b",
        "data:,a": "a",
        f"data:application/octet-stream;base64,{json.dumps('YQ==')[1:-1]}": "a",
    }
    database = HistoryStore(":memory:")
    blocks = [DocumentBlock.model_construct(url=url, title="n.txt", data=None, path=None) for url in urls]
    database.thread("t", scope=ANN, form=LLAMAINDEX).append([ChatMessage(blocks=blocks)])
    [seen] = database.thread("t", scope=ANN, form=LANGCHAIN).messages()
    assert [part["text"].partition("\n")[2] for part in seen.content] == list(urls.values())
    database.close()
