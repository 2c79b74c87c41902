"""The postprocessor: what the model sees is counted, kept nodes are the same objects, inputs stay as they are."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st
from llama_index.core import Settings
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.bridge.pydantic import Field
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers.base import BaseEventHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import (
    Document,
    ImageNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from llamaindex_budget import (
    BudgetChatMemoryBuffer,
    BudgetNodePostprocessor,
    BudgetPromptHelper,
    OfflineEmbedding,
    budget_model,
    use_session,
)
from llamaindex_budget._events import BudgetEvent
from rankbudget import BudgetSession, TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import RecordingCounter
from tests.drawing import draws
from tests.llamaindex.models import LetterEmbedding, nodes, say, tokens, words

COUNTER = counter_for("cl100k_base")


def seen(kept: list[NodeWithScore]) -> str:
    """Returns what a response synthesizer puts in front of the model."""
    return "\n\n".join(n.node.get_content(metadata_mode=MetadataMode.LLM) for n in kept)


def numbered(first: int = 0, **fields: Any) -> TextNode:
    text = " ".join(f"Sentence number {first + i} talks about topic {chr(97 + i) * 5}." for i in range(20))
    return TextNode(text=text, metadata={"file": "notes.txt"}, **fields)


def test_what_fits_comes_back_as_the_same_objects() -> None:
    """Nothing is copied, reordered or rescored when all nodes fit."""
    given = nodes(4)
    kept = BudgetNodePostprocessor(max_tokens=5000).postprocess_nodes(given, query_str="item")
    assert [a is b for a, b in zip(kept, given, strict=True)] == [True] * 4


@pytest.mark.parametrize("limit", [1, 20, 150, 600, 1500, 4000])
def test_the_text_the_model_sees_is_within_the_limit(limit: int) -> None:
    """Metadata and separators are counted; the nodes given stay as they were."""
    given = [NodeWithScore(node=numbered(100 * i), score=0.9 - i / 10) for i in range(5)]
    before = [n.model_dump_json() for n in given]
    kept = BudgetNodePostprocessor(max_tokens=limit, counter=COUNTER).postprocess_nodes(
        given, query_str="topic ccccc"
    )
    assert COUNTER.count(seen(kept)) <= limit
    assert [n.model_dump_json() for n in given] == before


def test_a_shortened_node_keeps_all_but_its_text() -> None:
    """Id, score, metadata and relationships of a compressed node are those of the original; its sentences stay in order."""
    source = numbered(id_="n1", relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")})
    [kept] = BudgetNodePostprocessor(max_tokens=120, counter=COUNTER).postprocess_nodes(
        [NodeWithScore(node=source, score=0.5)], query_str="topic ccccc"
    )
    assert kept.node is not source
    assert (kept.node_id, kept.score, kept.metadata, kept.node.ref_doc_id) == (
        "n1",
        0.5,
        {"file": "notes.txt"},
        "doc",
    )
    order = [int(n) for n in re.findall(r"number (\d+)", seen([kept]))]
    assert order == sorted(set(order))
    assert order
    assert type(kept.node) is TextNode


def test_metadata_the_model_does_not_see_is_not_counted() -> None:
    """Excluded keys cost nothing; included ones do."""
    open_, hidden = (
        NodeWithScore(
            node=TextNode(
                text="Tea is green.", metadata={"note": words(200)}, excluded_llm_metadata_keys=keys
            ),
            score=1.0,
        )
        for keys in ([], ["note"])
    )
    post = BudgetNodePostprocessor(max_tokens=50, counter=COUNTER)
    assert post.postprocess_nodes([hidden])[0] is hidden
    assert all(n is not open_ for n in post.postprocess_nodes([open_]))


def test_without_compression_nodes_are_kept_or_dropped_whole() -> None:
    """`compress=False` gives only original objects, best score first to be kept."""
    given = nodes(10)
    kept = BudgetNodePostprocessor(max_tokens=1000, counter=COUNTER, compress=False).postprocess_nodes(given)
    assert kept == given[: len(kept)]
    assert len(kept) >= 2


def test_two_nodes_that_say_the_same_are_one() -> None:
    """When not everything fits, a near-duplicate gives its place to the next; `dedup=False` keeps both."""
    twin = NodeWithScore(node=TextNode(id_="twin", text=nodes(1)[0].text), score=0.999)
    given = [nodes(1)[0], twin, *nodes(8)[1:]]
    ids = {
        d: [
            n.node_id
            for n in BudgetNodePostprocessor(max_tokens=2000, counter=COUNTER, dedup=d).postprocess_nodes(
                given
            )
        ]
        for d in (True, False)
    }
    assert "twin" not in ids[True]
    assert "twin" in ids[False]


def test_a_node_retrieved_twice_is_no_error() -> None:
    """The same node from two retrievers is told apart by its place."""
    given = nodes(1)
    kept = BudgetNodePostprocessor(max_tokens=5000).postprocess_nodes([given[0], given[0]])
    assert all(n is given[0] for n in kept)


def test_it_works_without_a_query_and_without_scores() -> None:
    """Neither a query nor scores are needed; the order given decides then."""
    given = [NodeWithScore(node=n.node) for n in nodes(6)]
    kept = BudgetNodePostprocessor(max_tokens=1200, counter=COUNTER).postprocess_nodes(given)
    assert kept
    assert COUNTER.count(seen(kept)) <= 1200
    with pytest.raises(ValueError, match="both query_str and query_bundle"):
        BudgetNodePostprocessor(max_tokens=9).postprocess_nodes(given, query_bundle=object(), query_str="x")  # type: ignore[arg-type]  # refused before it is looked at


def test_documents_are_nodes_too() -> None:
    """A `Document` is shortened through its own content setter."""
    document = Document(text=numbered().text, metadata={"title": "Notes"}, id_="d1")
    [kept] = BudgetNodePostprocessor(max_tokens=80, counter=COUNTER).postprocess_nodes(
        [NodeWithScore(node=document, score=1.0)], query_str="topic ccccc"
    )
    assert isinstance(kept.node, Document)
    assert COUNTER.count(seen([kept])) <= 80
    assert len(document.text) > len(kept.node.text)


@pytest.mark.parametrize("embedding", [LetterEmbedding(), OfflineEmbedding()])
def test_any_embedding_ranks_in_place_of_the_retriever(embedding: Any) -> None:
    """With an embedding the node that answers is kept although the retriever put it last."""
    given = [
        NodeWithScore(
            node=TextNode(id_=f"n{i}", text=f"Rain falls on town {i}, and the harbour is grey."), score=0.9
        )
        for i in range(20)
    ]
    given.append(
        NodeWithScore(node=TextNode(id_="answer", text="A zebra puzzles a buzzing lizard."), score=0.1)
    )
    post = BudgetNodePostprocessor(max_tokens=60, counter=COUNTER, embed_model=embedding)
    assert "answer" in [
        n.node_id for n in post.postprocess_nodes(given, query_str="zebra lizard puzzles buzzing")
    ]


def test_the_limit_comes_from_what_is_there() -> None:
    """A budget, a session, a memory or max_tokens; the smaller of two wins; none of them is a typed error."""
    budget = TokenBudget(context_window=2000, reserve=1000)
    session = BudgetSession(budget, counter="cl100k_base")
    memory = BudgetChatMemoryBuffer.from_defaults(session=BudgetSession(budget, counter="cl100k_base"))
    for part in ({"budget": budget}, {"session": session}, {"memory": memory}):
        size = COUNTER.count(
            seen(BudgetNodePostprocessor(**part).postprocess_nodes(nodes(20), query_str="item"))
        )
        assert 700 < size <= 1000
        assert (
            COUNTER.count(
                seen(
                    BudgetNodePostprocessor(**part, max_tokens=300).postprocess_nodes(
                        nodes(20), query_str="item"
                    )
                )
            )
            <= 300
        )
    with pytest.raises(BudgetConfigError, match="no limit: give"):
        BudgetNodePostprocessor().postprocess_nodes(nodes(2))
    with pytest.raises(BudgetConfigError, match="max_tokens must be a whole number from 1"):
        BudgetNodePostprocessor(max_tokens=0)
    assert BudgetNodePostprocessor(token_limit=7).max_tokens == 7


def test_it_is_plain_data_for_the_host() -> None:
    """It serializes its settings, has the host's base class, and lets the engine set its callback manager."""
    post = BudgetNodePostprocessor(
        max_tokens=7, budget=TokenBudget(context_window=4096), counter="o200k_base"
    )
    assert isinstance(post, BaseNodePostprocessor)
    again = BudgetNodePostprocessor.from_dict(post.to_dict())
    assert (again.max_tokens, again.budget, again.counter) == (
        7,
        TokenBudget(context_window=4096),
        "o200k_base",
    )


class _Listener(BaseEventHandler):
    seen: list[Any] = Field(default_factory=list)

    def handle(self, event: Any, **_: Any) -> None:
        self.seen.append(event)


@pytest.mark.parametrize("is_async", [False, True])
async def test_one_span_and_three_events_on_both_paths(is_async: bool) -> None:
    """Handlers see a span of the class, the start, the report with a reason for every node, and the end."""
    spans, listener, root = SimpleSpanHandler(), _Listener(), get_dispatcher()
    root.add_span_handler(spans)
    root.add_event_handler(listener)
    post = BudgetNodePostprocessor(max_tokens=700, counter=COUNTER)
    try:
        given = nodes(5)
        kept = (
            await post.apostprocess_nodes(given, query_str="item")
            if is_async
            else post.postprocess_nodes(given, query_str="item")
        )
    finally:
        root.span_handlers.remove(spans)
        root.event_handlers.remove(listener)
    assert sum(s.id_.startswith("BudgetNodePostprocessor.") for s in spans.completed_spans) == 1
    start, report, end = (
        e for e in listener.seen if isinstance(e, (ReRankStartEvent, BudgetEvent, ReRankEndEvent))
    )
    assert (start.nodes, end.nodes) == (given, kept)
    assert {d.segment_id for d in report.report.decisions} == {n.node_id for n in given}


def test_each_node_is_counted_about_once() -> None:
    """Packing 200 nodes counts each text once and some sentences, not each node against each other."""
    counter = RecordingCounter(COUNTER)
    given = nodes(200)
    BudgetNodePostprocessor(max_tokens=8000, counter=counter).postprocess_nodes(given, query_str="item 105")
    assert counter.characters <= 2.5 * sum(len(n.text) for n in given)


def _pictures(n: int) -> list[NodeWithScore]:
    links = [MediaResource(url=f"https://example.com/{i}.png", mimetype="image/png") for i in range(n)]
    made = [
        ImageNode(text=f"Picture {i}.", image_url=f"https://example.com/{i}.png")
        if i % 2
        else Node(text_resource=MediaResource(text=f"Picture {i}."), image_resource=links[i])
        for i in range(n)
    ]
    return [NodeWithScore(node=node, score=1 - i / 100) for i, node in enumerate(made)]


@pytest.mark.parametrize("limit", [100, 5000, 12_000])
def test_pictures_cost_what_they_cost_in_a_message(limit: int) -> None:
    """Of nodes with pictures as many are kept as fit as content blocks, best first; nothing is opened."""
    found = _pictures(20)
    kept = BudgetNodePostprocessor(max_tokens=limit, counter="cl100k_base").postprocess_nodes(found)
    blocks = [
        [
            TextBlock(text=n.node.get_content(MetadataMode.LLM)),
            ImageBlock(url=f"https://example.com/{n.node.get_content()[8:-1]}.png"),
        ]
        for n in kept
        if n.node.get_content()
    ]
    framing = tokens([ChatMessage(role="user", content="")]) - tokens([])
    assert sum(tokens([ChatMessage(role="user", blocks=b)]) - tokens([]) - framing for b in blocks) <= limit
    assert len(kept) < 20
    assert [bool(n.node.get_content()) for n in kept] == ([True] * len(kept) if limit >= 5000 else [False])


# ---- what a synthesizer keeps free -----------------------------------------------------------------


def _chat_turns(postprocessor: BudgetNodePostprocessor, limit: int, turns: int) -> list[list[NodeWithScore]]:
    """Returns the nodes of each turn of a chat whose history is read first."""
    facts = [
        NodeWithScore(node=TextNode(text=f"Fact {i} for ann. " * 9), score=1 - i / 50) for i in range(20)
    ]
    session = BudgetSession(TokenBudget(context_window=limit + 128, reserve=128), counter=COUNTER)
    memory, found = BudgetChatMemoryBuffer.from_defaults(session=session), []
    for turn in range(turns):
        question = f"ann asks {turn} " + "secret " * 20
        with use_session(session):
            memory.get(question)
            found.append(postprocessor.postprocess_nodes(facts, query_str=question))
        memory.put(say("user", question))
        memory.put(say("assistant", "ok " * 60))
    return found


@draws(asynchronous=True)  # each draw is up to twenty-four turns
@drawn(limit=st.integers(500, 4000), turns=st.integers(1, 12))
def test_room_for_one_call_gives_way_to_nodes(limit: int, turns: int) -> None:
    """With `llm=` nodes keep 200 tokens, or two thirds of what they have without it, and none is empty."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=limit, counter=COUNTER)
    for kept, most in zip(
        _chat_turns(BudgetNodePostprocessor(llm=llm), limit, turns),
        _chat_turns(BudgetNodePostprocessor(), limit, turns),
        strict=True,
    ):
        assert COUNTER.count(seen(kept)) >= min(200, COUNTER.count(seen(most)) * 2 // 3)
        assert all(n.text for n in kept) or not any(n.text for n in most)


def test_whole_nodes_take_the_room_for_one_call_rather_than_none() -> None:
    """A node that may not be shortened is kept where it fits the window, though nothing is then kept free."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=1500, counter=COUNTER)
    big = NodeWithScore(node=TextNode(text=words(1200)), score=1.0)
    kept = BudgetNodePostprocessor(llm=llm, compress=False).postprocess_nodes([big], query_str="what?")
    assert kept == [big]


def test_a_question_that_needs_the_room_for_one_call_has_it() -> None:
    """What only fits without room for an answer to refine is no error."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=1500, counter=COUNTER)
    postprocessor = BudgetNodePostprocessor(llm=llm, prompt=words(1200))
    assert postprocessor.postprocess_nodes(nodes(1), query_str="what?")[0].text


def test_a_budget_prompt_helper_needs_no_room_for_a_second_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a `BudgetPromptHelper` in Settings the nodes have all of the window, for `llm=` and a memory with one."""
    llm = budget_model(MockLLM(is_chat_model=True), max_tokens=3000, counter=COUNTER)

    def kept(**options: Any) -> int:
        found = BudgetNodePostprocessor(**options).postprocess_nodes(nodes(40), query_str="what?")
        return COUNTER.count(seen(found))

    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm)
    assert max(kept(llm=llm), kept(memory=memory)) <= 3000 - 500
    monkeypatch.setattr(Settings, "_prompt_helper", BudgetPromptHelper.from_llm_metadata(llm.metadata))
    assert min(kept(llm=llm), kept(memory=memory)) > 3000 - 500


@pytest.mark.parametrize("part", ["memory", "llm"])
def test_random_ids_and_tags_take_no_room_where_the_llm_is_known(part: str) -> None:
    """Eighty short nodes that fit the model's window all stay: an engine writes neither their ids nor tags."""
    llm = budget_model(MockLLM(is_chat_model=True), counter="cl100k_base")
    found = [
        NodeWithScore(
            node=TextNode(text=f"Invoice {4000 + i} for customer {i} is due on {i % 28 + 1} May."), score=0.9
        )
        for i in range(80)
    ]
    memory = BudgetChatMemoryBuffer.from_defaults(llm=llm, counter="cl100k_base")
    shared = {"memory": memory} if part == "memory" else {"llm": llm, "counter": "cl100k_base"}
    kept = BudgetNodePostprocessor(**shared).postprocess_nodes(
        found, query_str="Which invoice is due on 9 May?"
    )
    assert kept == found
