"""Files that LlamaIndex names by a path, in a stored conversation that another framework goes on with."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from llama_index.core.base.llms.types import (
    AudioBlock,
    ChatMessage,
    CitableBlock,
    CitationBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    VideoBlock,
)

from langchain_budget import BudgetMessageHistory, StoredMessageHistory
from llamaindex_budget import BudgetChatMemoryBuffer, StoredChatStore
from rankbudget import Scope, StoreError
from rankbudget.memory import HistoryStore
from rankbudget.testing import WordCounter
from rankbudget.testing.server import Reply, StrictModelServer

ANN = Scope(user="ann")
WORDS = WordCounter()
KINDS = {"image": ImageBlock, "audio": AudioBlock, "video": VideoBlock, "document": DocumentBlock}


def _file(kind: str, place: Any) -> Any:
    return KINDS[kind].model_construct(path=place, url=None)


def _blocks(folder: Path) -> dict[str, tuple[list[Any], str]]:
    """Returns forms of a file on this machine, and what another framework is told of each."""
    here = {kind: folder / f"{kind}.bin" for kind in KINDS}
    told = {kind: f"[{kind} {kind}.bin: only on the machine that sent it]" for kind in KINDS}
    forms = {kind: ([_file(kind, here[kind])], told[kind]) for kind in KINDS}
    return {
        **forms,
        "as text": ([_file("document", str(here["document"]))], told["document"]),
        "of Windows": ([_file("image", r"C:\secret-folder\image.bin")], told["image"]),
        "cited": (
            [CitableBlock(title="t", source="s", content=[_file("document", here["document"])])],
            told["document"],
        ),
        "citation": (
            [
                CitationBlock.model_construct(
                    cited_content=_file("image", here["image"]), title="t", source="s"
                )
            ],
            told["image"],
        ),
        "sound on an address": (
            [AudioBlock(url="https://a.example/s.wav")],  # type: ignore[arg-type]  # as its docs show
            "[audio: https://a.example/s.wav]",
        ),
        "document on an address": (
            [DocumentBlock(url="https://a.example/d.pdf")],
            "[document: https://a.example/d.pdf]",
        ),
        "nowhere": ([_file("image", None)], "[image: only on the machine that sent it]"),
    }


FORMS = list(_blocks(Path()))


@pytest.fixture(scope="module")
def server() -> Iterator[StrictModelServer]:
    with StrictModelServer(default=Reply(text="ok"), context_window=10**6) as running:
        yield running


@pytest.mark.parametrize("form", FORMS)
def test_another_framework_is_told_a_files_name_and_no_path(
    tmp_path: Path, server: StrictModelServer, form: str
) -> None:
    """Its model gets a text, which counts as one; LlamaIndex reads the very block, also when the other wrote it back."""
    blocks, told = _blocks(tmp_path / "secret-folder")[form]
    said = [
        ChatMessage(role="user", blocks=[TextBlock(text="What is this?"), *blocks]),
        ChatMessage("It is a pixel.", role="assistant"),
    ]
    database = HistoryStore(":memory:", counters={"words": WORDS})
    chats = StoredChatStore(store=database, user="ann")
    chats.set_messages("t", said)
    history = StoredMessageHistory(database, "t", scope=ANN)
    seen = history.messages
    history.thread.replace(seen)
    assert chats.get_messages("t") == said
    history.add_messages([HumanMessage("Which colour?")])
    fitted = BudgetMessageHistory(history, max_tokens=10**5, counter=WORDS)
    server.forget()
    model = ChatOpenAI(model="openai", base_url=server.base_url, api_key="none", max_retries=0)  # type: ignore[arg-type]
    model.invoke(fitted.messages)
    [sent] = server.requests
    assert not sent.problems
    assert told in json.dumps(sent.body)
    assert not re.search("secret-folder|image_url|input_audio|file_data", json.dumps(sent.body))
    assert fitted.report.total_tokens == WORDS.count_messages(sent.body["messages"])
    database.close()


def test_what_has_data_or_an_address_is_sent_as_it_is() -> None:
    """Only a file that nothing but its path finds is replaced by its name; beside it the others stay."""
    blocks = [
        ImageBlock(url="https://a.example/b.png"),
        ImageBlock(image=b"pixel", image_mimetype="image/png"),
        _file("image", "/secret-folder/image.bin"),
    ]
    database = HistoryStore(":memory:")
    StoredChatStore(store=database, user="ann").add_message("t", ChatMessage(role="user", blocks=blocks))
    [seen] = StoredMessageHistory(database, "t", scope=ANN).messages
    urls = [part["image_url"]["url"] for part in seen.content if part["type"] == "image_url"]  # type: ignore[index]
    assert urls == [
        "https://a.example/b.png",
        f"data:image/png;base64,{base64.b64encode(b'pixel').decode()}",
    ]
    assert seen.content[-1] == {"type": "text", "text": "[image image.bin: only on the machine that sent it]"}
    database.close()


@pytest.mark.parametrize(
    "write",
    [
        pickle.dumps,
        copy.deepcopy,
        BudgetChatMemoryBuffer.to_dict,
        BudgetChatMemoryBuffer.to_string,
        lambda memory: pickle.dumps(memory.chat_store),
    ],
)
@pytest.mark.parametrize("is_file", [True, False])
def test_a_memory_is_not_written_without_its_conversation(
    write: Callable[[BudgetChatMemoryBuffer], object], is_file: bool, tmp_path: Path
) -> None:
    """A database in memory cannot be opened again: to write it is an error, else its messages would be gone."""
    store = StoredChatStore(place=str(tmp_path / "chats.db") if is_file else ":memory:", user="ann")
    memory = BudgetChatMemoryBuffer.from_defaults(token_limit=500, chat_store=store, chat_store_key="t")
    memory.put(ChatMessage("hi"))
    with nullcontext() if is_file else pytest.raises(StoreError, match="Use a file"):
        write(memory)
