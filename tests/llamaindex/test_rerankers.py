"""Postprocessors that ask a bounded model to choose among nodes: it is shown something of them, each under its own number."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.postprocessor import LLMRerank, StructuredLLMRerank
from llama_index.core.postprocessor.rankGPT_rerank import RankGPTRerank
from llama_index.core.prompts import PromptTemplate, RichPromptTemplate
from llama_index.core.schema import QueryBundle

from llamaindex_budget import RequestExceededError, budget_model
from tests.llamaindex.models import PlayLLM, nodes, say, tokens, words

QUESTION = "What does item 205 weigh?"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ANSWER = "Doc: 3, Relevance: 9"
RERANKERS: dict[str, Callable[[Any, int], Any]] = {
    "chat": lambda llm, batch: LLMRerank(llm=llm, choice_batch_size=batch, top_n=99),
    "structured": lambda llm, batch: StructuredLLMRerank(llm=llm, choice_batch_size=batch, top_n=99),
    "ranks": lambda llm, _: RankGPTRerank(llm=llm, top_n=99),
}
_NUMBER = re.compile(r"(?:Document (\d+):|^\[(\d+)\])", re.MULTILINE)


def _llm(window: int) -> PlayLLM:
    chosen = {"documents": [{"document_number": 3, "relevance": 9}]}
    call = ToolCallBlock(tool_call_id="s", tool_name="DocumentRelevanceList", tool_kwargs=chosen)
    return PlayLLM(
        requests=[], window=window, reply=256, answer=ANSWER, steps=[say("assistant", ANSWER, c=call)]
    )


def _structured(llm: PlayLLM) -> None:
    call = llm.steps[0].additional_kwargs.pop("c")
    llm.steps[0].blocks = [TextBlock(text=ANSWER), call]


def _shown(messages: list[ChatMessage]) -> dict[int, str]:
    """Returns what a request shows under each number."""
    text = "\n".join(str(m.content) for m in messages if m.role == "user").rpartition("Let's try this now")[2]
    parts = _NUMBER.split(re.split(r"\nQuestion: |\nSearch Query: ", text)[0])
    return {
        int(parts[i] or parts[i + 1]): parts[i + 2].replace("Document", "") for i in range(1, len(parts), 3)
    }


@given(
    kind=st.sampled_from(sorted(RERANKERS)),
    count=st.integers(3, 20),
    size=st.integers(20, 400),
    window=st.integers(1200, 6000),
    metadata=st.booleans(),
    paragraphs=st.booleans(),
)
def test_what_is_shown_of_a_node_stands_under_its_number(
    kind: str, count: int, size: int, window: int, metadata: bool, paragraphs: bool
) -> None:
    """Nothing is refused, each request fits, all text under a number is that node's, and the choice is the right node."""
    found = nodes(count, size)
    for item in found:
        if paragraphs:
            item.node.set_content(item.text.replace(". Node", ".\n\nNode"))
        if metadata:
            item.node.metadata = {"file": f"of {item.node_id}.pdf"}
    llm = _llm(window)
    _structured(llm)
    kept = RERANKERS[kind](budget_model(llm), count).postprocess_nodes(found, QueryBundle(QUESTION))
    [(messages, schemas)] = llm.requests
    assert tokens(messages, schemas) <= window - 256
    assert QUESTION in str(messages[-1].content)
    shown = _shown(messages)
    assert any(f"Node {n - 1} " in text for n, text in shown.items())
    for number, text in shown.items():
        assert set(re.findall(r"Node (\d+)", text)) <= {str(number - 1)}
        assert set(re.findall(r"of n(\d+)\.pdf", text)) <= {str(number - 1)}
    if kind != "structured":  # whose template takes one text, of which dropped nodes are gone
        assert set(shown) == set(range(1, count + 1))
    assert kept[0].node_id == "n2"


@pytest.mark.parametrize("kind", ["chat", "structured"])
def test_a_batch_without_any_room_says_how_to_ask_about_fewer(kind: str) -> None:
    """Where not even empty documents fit, nothing is sent, and the error names the option of the reranker."""
    llm = _llm(500)
    question = QueryBundle(words(600))
    with pytest.raises(RequestExceededError, match="choice_batch_size="):
        RERANKERS[kind](budget_model(llm), 12).postprocess_nodes(nodes(12), question)
    assert llm.requests == []


def test_messages_of_a_template_keep_their_pictures() -> None:
    """Of messages in a template's variable texts are shortened; pictures stay, and the given messages are not changed."""
    template = RichPromptTemplate(
        "{% chat role='user' %}{% for m in context_messages %}{% for b in m.blocks %}"
        "{% if b.block_type == 'text' %}{{ b.text }}{% else %}{{ b.inline_url() | image }}{% endif %}"
        "{% endfor %}{% endfor %}\n{{ query_str }}{% endchat %}"
    )
    picture = ImageBlock(image=b64decode(PIXEL))
    given_ones = [ChatMessage(role="user", blocks=[TextBlock(text=words(900, "tea")), picture])]
    before = [m.model_copy(deep=True) for m in given_ones]
    llm = _llm(2600)
    llm.steps.clear()
    assert budget_model(llm).predict(template, context_messages=given_ones, query_str=QUESTION) == ANSWER
    [(messages, _)] = llm.requests
    assert [type(b) for b in messages[0].blocks].count(ImageBlock) == 1
    assert "tea" in str(messages[0].content)
    assert given_ones == before


@given(word=st.sampled_from(["Document", "Source"]), count=st.integers(3, 15), window=st.integers(900, 4000))
def test_a_number_stays_with_its_text(word: str, count: int, window: int) -> None:
    """Of numbered texts in one variable, as a citation engine writes them, none stands under another's number."""
    texts = [f"file_name: n{i}.pdf\n\n{item.text}" for i, item in enumerate(nodes(count, 200))]
    context = "\n\n".join(f"{word} {i + 1}:\n{text}" for i, text in enumerate(texts))
    llm = PlayLLM(requests=[], window=window, reply=256)
    template = PromptTemplate("{context_str}\nQuestion: {query_str}")
    budget_model(llm).predict(template, context_str=context, query_str=QUESTION)
    [(messages, _)] = llm.requests
    assert tokens(messages) <= window - 256
    parts = re.split(rf"{word} (\d+):\n", str(messages[0].content))
    assert parts[0] == ""
    for number, text in zip(parts[1::2], parts[2::2], strict=True):
        assert set(re.findall(r"(?:Node |n)(\d+)(?: fact|\.pdf)", text)) <= {str(int(number) - 1)}
