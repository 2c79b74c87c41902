"""Strategies by name and by object, and what `fit_block` does around them: pins, groups, decisions, broken rules."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rankbudget import Assembler, Block, BudgetConfigError, Segment
from rankbudget.fitting.block import fit_block, strategy_for
from rankbudget.fitting.protocol import Fit, FitStrategy, Piece, plain_cost, whole
from rankbudget.segment import Decision, Rendition
from rankbudget.testing import FitStrategyConformance, RecordingCounter, WordCounter


class Newest:
    """Keeps the newest segments; knows nothing of pins, groups and decisions."""

    def fit(self, segments: Any, *, limit: int, counter: Any, cost: Any = None, **_: Any) -> Fit:
        price = cost or plain_cost(counter)
        kept: list[Piece] = []
        for segment in reversed(segments):
            tokens = price(segment, segment.text)
            if tokens > limit:
                break
            kept.insert(0, whole(segment, tokens))
            limit -= tokens
        return Fit(pieces=tuple(kept), tokens=sum(p.rendition.tokens for p in kept))


class Deciding(Newest):
    """Makes its own decisions, as strategies once had to."""

    def fit(self, segments: Any, *, limit: int, counter: Any, cost: Any = None, **more: Any) -> Fit:
        fit = super().fit(segments, limit=limit, counter=counter, cost=cost, **more)
        made = [
            Decision(segment_id=s.id, block="old", action="kept", reason="fits", before=1, after=1)
            for s in segments
        ]
        return dataclasses.replace(fit, decisions=tuple(made))


class TestNewest(FitStrategyConformance):
    """A strategy of a few lines keeps every rule."""

    def make(self) -> FitStrategy:
        return Newest()


SEGMENTS = [
    Segment(id="a", text="one two", group="g"),
    Segment(id="b", text="three", pinned=True),
    Segment(id="c", text="four", group="g"),
    Segment(id="d", text="five six"),
]


@pytest.mark.parametrize("strategy", [Newest(), Deciding()])
def test_pins_and_groups_are_kept_around_any_strategy(strategy: FitStrategy) -> None:
    """The pinned segment is paid for first, the group goes as one, and every segment has one decision."""
    fit = fit_block(SEGMENTS, strategy=strategy, limit=5, counter=WordCounter(), block="notes")
    assert [piece.segment.id for piece in fit.pieces] == ["b", "d"]
    assert [(d.segment_id, d.action, d.reason) for d in fit.decisions if isinstance(d, Decision)] == [
        ("a", "trimmed", "no_room"),
        ("b", "kept", "pinned"),
        ("c", "trimmed", "no_room"),
        ("d", "kept", "fits"),
    ]
    fit = fit_block(SEGMENTS, strategy=strategy, limit=6, counter=WordCounter(), block="notes")
    assert [piece.segment for piece in fit.pieces] == SEGMENTS
    assert all(piece.segment is segment for piece, segment in zip(fit.pieces, SEGMENTS, strict=True))


def test_a_block_takes_an_object() -> None:
    """`Block(strategy=...)` takes an object; its pieces are in the prompt and its decisions in the report."""
    block = Block.of("notes", "alpha " * 50, "beta", strategy=Newest())
    made = Assembler(40).assemble([block], query="What?")
    decisions = {d.segment_id: d.action for d in made.report.decisions if d.block == "notes"}
    assert decisions == {"notes-0": "trimmed", "notes-1": "kept"}
    assert "beta" in made.text


@pytest.mark.parametrize("given", ["clever", 7, Newest])
def test_what_is_no_strategy_is_refused(given: Any) -> None:
    """Unknown names, other objects and classes are errors that name the block and what was given."""
    with pytest.raises(BudgetConfigError, match=r"strategy of block 'notes' must be.*got"):
        strategy_for("notes", given)


@pytest.mark.parametrize("rule", ["over", "unknown", "twice", "part"])
def test_a_broken_rule_is_an_error(rule: str) -> None:
    """A strategy that keeps too much, something else, a segment twice or part of a group is named, not believed."""

    class Broken:
        def fit(self, segments: Any, *, limit: int, **_: Any) -> Fit:
            pieces = {
                "over": [whole(segments[0], limit + 1)],
                "unknown": [whole(Segment(id="x", text="x"), 1)],
                "twice": [whole(segments[1], 1), whole(segments[1], 1)],
                "part": [Piece(segments[0], Rendition(kind="truncated", text="one", tokens=1))],
            }[rule]
            return Fit(pieces=tuple(pieces), tokens=1)

    with pytest.raises(BudgetConfigError, match="Broken of block 'notes' must keep"):
        fit_block(SEGMENTS, strategy=Broken(), limit=5, counter=WordCounter(), block="notes")


def test_whole_segments_are_counted_once() -> None:
    """What `fit_block` counted is not counted again by the strategy."""
    counter = RecordingCounter(WordCounter())
    fit_block(SEGMENTS, strategy=Newest(), limit=5, counter=counter, block="notes")
    assert counter.characters == sum(len(segment.text) + 1 for segment in SEGMENTS)
