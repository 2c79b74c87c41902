"""The laws hold through every entry point that returns messages or nodes; a failure names the law, and the way in."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import MetadataMode, NodeWithScore, TextNode
from llama_index.core.settings import Settings

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetMemory,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    ProjectMemoryBlock,
    budget_model,
    few_shot_function,
)
from llamaindex_budget._codec import CODEC, STORED
from rankbudget import BudgetSession
from rankbudget.errors import BudgetError
from rankbudget.testing import (
    AdapterConformance,
    Application,
    WordCounter,
    applications,
    pairing_errors,
    snapshot,
)
from tests.drawing import draws
from tests.entry_points import check_entry, check_entry_async, check_growth
from tests.llamaindex.entries import ENTRIES, check_unshared, to_host
from tests.llamaindex.models import FixedRetriever, ListStore, PlayLLM, tokens

pytestmark = pytest.mark.filterwarnings(
    "ignore::pydantic.warnings.PydanticDeprecationWarning"
)  # the host's own, of its workflows


def _drawn(app: Application) -> tuple[int, list[Any], Any]:
    """Returns the limit, the conversation as LlamaIndex messages, and what it looks like now."""
    host = to_host(app.messages)
    return app.limit(WordCounter()), host, snapshot(host)


def _codec(entry: Any) -> Any:
    """A memory defuses slots of templates, which is counted."""
    return STORED if entry.stored else CODEC


@draws()
@given(applications())
def test_the_laws_hold(app: Application) -> None:
    """Every drawn thread, through every entry point: within the limit, valid, twice the same, no less with a larger limit."""
    limit, host, before = _drawn(app)
    for entry in ENTRIES:
        with entry.named():
            check_entry(
                entry, app, host, limit=limit, codec=_codec(entry), before=before, check_host=check_unshared
            )


@draws(asynchronous=True)
@given(applications())
def test_the_laws_hold_async(app: Application) -> None:
    """The async form gives exactly what the sync form gives, or the same refusal."""
    limit, host, _ = _drawn(app)
    for entry in ENTRIES:
        with entry.named():
            check_entry_async(
                entry,
                app,
                host,
                limit=limit,
                codec=_codec(entry),
                run=asyncio.get_event_loop().run_until_complete,
            )


@draws(asynchronous=True)  # each draw is as many fits as it has messages
@given(applications(max_turns=5))
def test_a_memory_that_grows_keeps_the_laws_at_every_turn(app: Application) -> None:
    """Message after message, reading twice each time: always valid, within the limit and with a prefix that stays; what is stored is what was put."""
    limit, host, before = _drawn(app)
    for entry in ENTRIES:
        if entry.remembers:
            with entry.named():
                check_growth(entry, app, host, limit=limit, codec=_codec(entry), before=before)


@draws(asynchronous=True)  # three engines for each draw, each with a model call
@given(applications(max_turns=5))
def test_what_an_engine_sends_keeps_the_laws(app: Application) -> None:
    """Through real engines with default parts: the request fits, is valid, ends on the question, and no remembered text is filled in as a template."""
    host, window = to_host(app.messages), 1500 + app.tokens % 3000
    for kind in (SimpleChatEngine, ContextChatEngine, CondensePlusContextChatEngine):
        llm = budget_model(PlayLLM(requests=[], window=window, reply=256))
        memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, chat_history=host)
        options: dict[str, Any] = {"llm": llm, "memory": memory}
        if kind is not SimpleChatEngine:
            found = [
                NodeWithScore(node=TextNode(id_=f"n{i}", text=f"SECRET {text}"), score=1.0)
                for i, text in enumerate(app.documents)
            ]
            options |= {
                "retriever": FixedRetriever(found),
                "node_postprocessors": [BudgetNodePostprocessor(memory=memory)],
            }
        if kind is CondensePlusContextChatEngine:
            options["skip_condense"] = (
                True  # else the model is asked for a question of its own, by the host's own prompt
            )
        helper = Settings._prompt_helper
        Settings._prompt_helper = BudgetPromptHelper.from_llm_metadata(
            llm.metadata
        )  # the stock one may refuse
        try:
            kind.from_defaults(**options).chat("and what now?")
        except BudgetError:
            continue
        finally:
            Settings._prompt_helper = helper
        assert len(llm.requests) == (1 if kind is SimpleChatEngine or app.documents else 0)
        for sent, _ in llm.requests:
            assert tokens(sent) <= window - 256
            assert pairing_errors(sent, CODEC) == []
            assert sent[-1].content == "and what now?"
            assert not any("SECRET" in (m.content or "") for m in sent[1:])
        assert memory.get_all()[: len(host)] == host


@draws()
@given(applications())
def test_blocks_and_history_share_one_limit(app: Application) -> None:
    """With ranked blocks, whatever a `BudgetMemory` returns counts at most its limit."""
    counter = WordCounter()
    limit = app.limit(counter)
    parts = [
        ProjectMemoryBlock(name=f"note{i}", text=text, rank=2 + i, counter=counter)
        for i, text in enumerate(app.documents)
    ]
    memory = BudgetMemory.from_defaults(
        token_limit=limit, counter=counter, chat_store=ListStore(), memory_blocks=parts
    )

    async def read() -> Any:
        await memory.aset(to_host(app.messages))
        return await memory.aget(app.question)

    try:
        found = asyncio.run(read())
    except BudgetError:
        return
    asked = [ChatMessage(role="user", content=app.question)] if app.question else []
    assert counter.count_messages([CODEC.to_dict(m) for m in [*found, *asked]]) <= limit


@draws()
@given(applications())
def test_nodes_are_within_the_limit_in_order_and_unchanged(app: Application) -> None:
    """Whatever nodes come back count at most the limit as the model sees them, in their order, whole ones the same objects."""
    counter = WordCounter()
    given_nodes = [
        NodeWithScore(node=TextNode(id_=f"n{i}", text=text, metadata={"k": "v"}), score=1 - i / 9)
        for i, text in enumerate(app.documents)
    ]
    before = [n.model_dump_json() for n in given_nodes]
    limit = max(1, app.tokens if app.eighths is None else 20)
    post = BudgetNodePostprocessor(max_tokens=limit, counter=counter)
    kept = post.postprocess_nodes(given_nodes, query_str=app.question)
    shown = [n.node.get_content(metadata_mode=MetadataMode.LLM) for n in kept]
    assert counter.count("\n\n".join(shown)) <= limit
    assert bool(kept) == bool(given_nodes)
    assert [n.model_dump_json() for n in given_nodes] == before
    order = [n.node_id for n in kept]
    assert order == [n.node_id for n in given_nodes if n.node_id in order]
    whole = {n.node_id: n for n in given_nodes}
    assert all(
        n is whole[n.node_id]
        or len(n.node.get_content()) < len(whole[n.node_id].node.get_content(MetadataMode.LLM))
        for n in kept
    )
    again = post.postprocess_nodes(kept, query_str=app.question)
    assert [n.node.get_content(metadata_mode=MetadataMode.LLM) for n in again] == shown


@draws(asynchronous=True)
@given(applications())
def test_nodes_async(app: Application) -> None:
    """The async postprocessor keeps what the sync one keeps."""
    found = [
        NodeWithScore(node=TextNode(id_=f"n{i}", text=text), score=1.0)
        for i, text in enumerate(app.documents)
    ]
    post = BudgetNodePostprocessor(max_tokens=max(1, app.tokens), counter=WordCounter())
    sync = post.postprocess_nodes(found, query_str=app.question)
    later = asyncio.run(post.apostprocess_nodes(found, query_str=app.question))
    assert [n.node.get_content() for n in sync] == [n.node.get_content() for n in later]


@draws()
@given(applications())
def test_packed_chunks_fit_their_prompt(app: Application) -> None:
    """Whatever a prompt helper packs into one chunk, the finished prompt counts at most window less answer."""
    counter = WordCounter()
    helper = BudgetPromptHelper(context_window=max(20, app.tokens), num_output=5, counter=counter)
    prompt = PromptTemplate("Use this: {context_str} Now answer: {query_str}")
    prompt = prompt.partial_format(query_str=app.question)

    def sent(chunk: str) -> int:
        return counter.count_messages([{"role": "user", "content": prompt.format(context_str=chunk)}])

    limit = helper.context_window - helper.num_output
    try:
        packed = helper.repack(prompt, app.documents)
    except BudgetError:
        assert sent("") >= limit
        return
    assert len(packed) <= 1
    assert all(sent(chunk) <= limit for chunk in packed)


class TestBufferConformance(AdapterConformance):
    """The kit's own rules for adapters: the codec's four, and the laws."""

    codec = STORED
    identity = False
    stored = True
    examples = 60

    def test_codec_rule_4_everything_sent_is_seen(self) -> None:
        """The memory's own codec reads what the memory sends: texts without slots; the host's codec reads all."""
        plain = type("Plain", (type(self),), {"codec": CODEC})
        AdapterConformance.test_codec_rule_4_everything_sent_is_seen(plain())

    def to_host(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        return to_host(messages)

    def fit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        shared = BudgetSession(max_tokens, counter=counter, tools=tools)
        return BudgetChatMemoryBuffer.from_defaults(session=shared, chat_history=messages).get()

    async def afit(self, messages: list[Any], *, max_tokens: int, counter: Any, tools: Any) -> list[Any]:
        shared = BudgetSession(max_tokens, counter=counter, tools=tools)
        return await BudgetChatMemoryBuffer.from_defaults(session=shared, chat_history=messages).aget()


@draws()
@given(applications(), st.integers(0, 90))
def test_picked_examples_fit_and_are_picked_once(app: Application, limit: int) -> None:
    """Whatever `few_shot_function` writes counts at most its limit, the same each time, also without a question and from a copy."""
    counter = WordCounter()
    examples = [
        {"input": asked, "output": wanted} for asked, wanted in [*app.examples, ("a a", "b"), ("c", "d")]
    ]
    before = copy.deepcopy(examples)
    pick = few_shot_function(examples, max_tokens=limit, max_examples=9, counter=counter)
    for question in (app.question or "ok", ""):
        text = pick(query_str=question)
        assert counter.count(text) <= limit
        assert text == pick(query_str=question) == copy.deepcopy(pick)(query_str=question)
    assert examples == before
