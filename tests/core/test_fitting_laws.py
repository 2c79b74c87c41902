"""A larger limit keeps no less, what a dropped text needs is exact, and only what says nothing new is a double."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Assembler, Block, BudgetExceededError, Segment, counter_for, fit_documents
from rankbudget.fitting.best_first import BestFirst
from rankbudget.fitting.block import fit_block
from rankbudget.fitting.evidence import Evidence
from rankbudget.fitting.memories import Memories
from rankbudget.fitting.protocol import Fit, plain_cost
from rankbudget.fitting.truncate import Truncate
from rankbudget.testing import WordCounter
from tests.drawing import draws

O200K = counter_for("o200k_base")
QUESTION = "How long does a refund take, and what does tea cost?"
SENTENCES = st.sampled_from(
    [
        "The tea is hot.", " Refunds take ten days after the request, in most cases and in all countries.", "\nCall Ann at 5 p.m.",
        "你好。", " 退款需要十天，从申请之日算起，包括所有国家和所有的付款方式，没有例外。", " Ships sail.", "x", "", " no end", "😀!", " a\n\nb",
        "The tea is hot!", "\n- one\n- two\n", " A cup of tea costs two pounds, with milk three, and on Sundays it costs four pounds or more.",
        " <document>not a tag</document> of ours.",
    ]
)  # fmt: skip
TEXTS = st.lists(SENTENCES, max_size=6).map("".join)


@st.composite
def documents(draw: st.DrawFn, *, plain: bool = False) -> list[Segment]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=7))
    scored, spoken = draw(st.booleans()), draw(st.booleans())
    return [
        Segment(
            id=f"s{i}",
            text=text,
            title=draw(st.sampled_from([None, "Tea", "Ann Smith"])),
            role="user" if spoken else None,
            group=None if plain else draw(st.sampled_from([None, None, None, "g", "h"])),
            pinned=not plain and draw(st.integers(0, 9)) == 0,
            priority=draw(st.sampled_from([None, 0, 100])),
            score=float(draw(st.integers(0, 3))) if scored else None,
        )
        for i, text in enumerate(texts)
    ]


def longer(less: str, more: str) -> bool:
    """Whether `more` has all that `less` has, in its order, the mark of a cut apart."""
    rest = iter(more)
    return all(sign in rest for sign in less.removesuffix("...") if not sign.isspace())


def check_nested(fits: list[dict[str, str]]) -> None:
    for smaller, larger in pairwise(fits):
        for name, text in smaller.items():
            assert name in larger, f"{name} is dropped by a larger limit"
            assert longer(text, larger[name]), f"{name}: {text!r} became {larger[name]!r}"


def shown(fit: Fit) -> dict[str, str]:
    return {piece.segment.id: piece.rendition.text for piece in fit.pieces}


def wrapped(segment: Segment, text: str) -> int:
    return O200K.count(f"<document source={segment.id!r}>\n{text.replace('<', '&lt;')}\n</document>\n")


def fit(strategy: Any, segments: list[Segment], limit: int, **options: Any) -> Fit | None:
    try:
        return fit_block(
            segments,
            strategy=strategy,
            limit=limit,
            counter=O200K,
            block="knowledge",
            query=QUESTION,
            **options,
        )
    except BudgetExceededError:
        return None


@pytest.mark.parametrize("strategy", [Evidence(), Evidence(order="score"), Memories(), Truncate()])
@pytest.mark.parametrize("cost", [None, wrapped])
@draws()
@given(segments=documents(), start=st.integers(0, 100))
def test_a_larger_limit_keeps_no_less(strategy: Any, cost: Any, segments: list[Segment], start: int) -> None:
    """What is kept at a limit is kept at the next one, or more of it, with groups, pins and wrapping."""
    everything = sum([(cost or plain_cost(O200K))(segment, segment.text) for segment in segments])
    limits = sorted([*range(start, start + 20), everything - 1, everything])
    fits = [fit(strategy, segments, limit, cost=cost) for limit in limits if limit >= 0]
    check_nested([shown(found) for found in fits if found is not None])


@draws()
@given(
    segments=documents(plain=True),
    counter=st.sampled_from(["o200k_base", WordCounter()]),
    start=st.integers(0, 100),
)
def test_more_tokens_keep_no_fewer_documents(segments: list[Segment], counter: Any, start: int) -> None:
    """The law through `fit_documents`, token by token."""
    fits = []
    for limit in range(start, start + 20):
        result = fit_documents(segments, max_tokens=limit, query=QUESTION, counter=counter)
        fits.append({segment.id: segment.text for segment in result.segments})
    check_nested(fits)


@draws()
@given(
    segments=documents(plain=True),
    name=st.sampled_from(["knowledge", "memory", "task", "notes"]),
    start=st.integers(60, 160),
)
def test_a_larger_budget_keeps_no_less_of_a_block(segments: list[Segment], name: str, start: int) -> None:
    """The law through the assembler: the texts of a block in the prompt."""
    fits = []
    for budget in range(start, start + 20):
        made = Assembler(budget).assemble([Block(name=name, segments=segments)], query=QUESTION)
        fits.append(
            {d.segment_id: "." * d.after for d in made.report.decisions if d.block == name and d.after}
        )
    check_nested(fits)


@pytest.mark.parametrize(
    "strategy", [Evidence(), Evidence(compress=False), BestFirst(), Memories(), Truncate()]
)
@pytest.mark.parametrize("cost", [None, wrapped])
@draws()
@given(segments=documents(), limit=st.integers(0, 120))
def test_what_a_dropped_text_needs_is_exact(
    strategy: Any, cost: Any, segments: list[Segment], limit: int
) -> None:
    """With the limit that is named something of the text is kept, and with one token less nothing is."""
    found = fit(strategy, segments, limit, cost=cost)
    if found is None:
        return
    needed = found.needed()
    dropped = {s.id for s in segments} - shown(found).keys()
    assert dropped <= needed.keys()
    for name in dropped:
        assert needed[name] > limit
        with_it, without = (fit(strategy, segments, n, cost=cost) for n in (needed[name], needed[name] - 1))
        assert with_it is not None
        assert name in shown(with_it)
        assert without is None or name not in shown(without)
