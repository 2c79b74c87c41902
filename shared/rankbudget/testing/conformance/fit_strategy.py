"""The rules of `FitStrategy`, one test each, through `fit_block` as a prompt uses a strategy."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import strategies as st

from ...counting.protocol import TokenCounter
from ...errors import BudgetExceededError
from ...fitting.block import fit_block
from ...fitting.protocol import Fit, FitStrategy, plain_cost
from ...segment import Decision, DecisionRange, Segment
from ..fakes import WordCounter
from ..strategies import texts
from ._draws import for_all

__all__ = ["FitStrategyConformance", "segments"]


def segments(*, max_size: int = 8) -> st.SearchStrategy[list[Segment]]:
    """Draws segments with scores, groups and pins."""
    drawn = st.tuples(
        texts(),
        st.sampled_from((None, 0.1, 0.5, 0.5, 0.9)),
        st.sampled_from((None, None, "a", "b")),
        st.sampled_from((False,) * 5 + (True,)),
    )
    return st.lists(drawn, max_size=max_size).map(
        lambda many: [
            Segment(id=f"s{i}", text=f"{i} {text}", score=score, group=group, pinned=pin)
            for i, (text, score, group, pin) in enumerate(many)
        ]
    )


class FitStrategyConformance(ABC):
    """Says how to test a fitting strategy: subclass it and return a new strategy from `make`."""

    examples = 100
    ordered = True
    """Whether the strategy promises the original order."""
    query = "What did we decide about the release?"

    @abstractmethod
    def make(self) -> FitStrategy:
        """Returns the strategy under test."""

    def counter(self) -> TokenCounter:
        """Returns the counter the segments are counted with."""
        return WordCounter()

    def _for_all(self, *strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
        return for_all(*strategies, examples=self.examples)

    def _fit(self, given_segments: Sequence[Segment], limit: int) -> Fit | None:
        try:
            return fit_block(
                given_segments,
                strategy=self.make(),
                limit=limit,
                counter=self.counter(),
                block="knowledge",
                query=self.query,
            )
        except BudgetExceededError:
            assert any(s.pinned for s in given_segments), "only pinned segments may be too much"
            return None

    def test_rule_1_never_over_the_limit(self) -> None:
        """The pieces cost at most the limit, as the cost function counts; if nothing fits, it is empty."""

        @self._for_all(segments(), st.integers(0, 120))
        def check(drawn: list[Segment], limit: int) -> None:
            fit = self._fit(drawn, limit)
            if fit is None:
                return
            cost = plain_cost(self.counter())
            assert fit.tokens <= limit
            assert sum(cost(p.segment, p.rendition.text) for p in fit.pieces) <= limit

        assert self.make().fit([], limit=0, counter=self.counter(), block="knowledge").pieces == ()

    def test_rule_2_one_decision_for_each_segment(self) -> None:
        """Every segment has exactly one decision, and pinned segments are kept."""

        @self._for_all(segments(), st.integers(0, 120))
        def check(drawn: list[Segment], limit: int) -> None:
            fit = self._fit(drawn, limit)
            if fit is None:
                return
            decided = [d.segment_id for d in _decisions(fit.decisions)]
            assert sorted(decided) == sorted(s.id for s in drawn)
            kept = {p.segment.id for p in fit.pieces}
            assert {s.id for s in drawn if s.pinned} <= kept
            assert kept == {
                d.segment_id for d in _decisions(fit.decisions) if d.after > 0 or d.action == "kept"
            }

    def test_rule_2_pinned_segments_that_cannot_fit_are_an_error(self) -> None:
        """A pinned segment larger than the limit raises the typed error."""
        pinned = Segment(id="p", text="one two three four", pinned=True)
        with pytest.raises(BudgetExceededError):
            fit_block([pinned], strategy=self.make(), limit=1, counter=self.counter(), block="knowledge")

    def test_rule_3_groups_are_whole(self) -> None:
        """The segments of one group are all kept, each as it is, or all dropped."""

        @self._for_all(segments(), st.integers(0, 120))
        def check(drawn: list[Segment], limit: int) -> None:
            fit = self._fit(drawn, limit)
            if fit is None:
                return
            kept = {p.segment.id for p in fit.pieces}
            for name in ("a", "b"):
                members = {s.id for s in drawn if s.group == name}
                assert not members & kept or members <= kept
                if len(members) > 1:
                    assert all(p.whole for p in fit.pieces if p.segment.id in members)

    def test_rule_4_order_and_no_repeats(self) -> None:
        """No segment stands twice, and the order is the promised one."""

        @self._for_all(segments(), st.integers(0, 120))
        def check(drawn: list[Segment], limit: int) -> None:
            fit = self._fit(drawn, limit)
            if fit is None:
                return
            ids = [p.segment.id for p in fit.pieces]
            assert len(ids) == len(set(ids))
            if self.ordered:
                places = [next(i for i, s in enumerate(drawn) if s.id == one) for one in ids]
                assert places == sorted(places)

    def test_rule_5_what_fits_comes_back_untouched(self) -> None:
        """With room for all, all are kept whole."""

        @self._for_all(segments())
        def check(drawn: list[Segment]) -> None:
            fit = self._fit(drawn, 1_000_000)
            assert fit is not None
            assert [p.segment.id for p in fit.pieces] == [s.id for s in drawn] or not self.ordered
            assert len(fit.pieces) == len(drawn)
            assert all(p.whole and p.rendition.text == p.segment.text for p in fit.pieces)

    def test_rule_6_inputs_stay_as_they_are(self) -> None:
        """The list and its segments are not changed, and a second fit gives the same."""

        @self._for_all(segments(), st.integers(0, 60))
        def check(drawn: list[Segment], limit: int) -> None:
            before = copy.deepcopy(drawn)
            fit = self._fit(drawn, limit)
            assert drawn == before
            assert self._fit(drawn, limit) == fit


def _decisions(many: Sequence[Decision | DecisionRange]) -> list[Decision]:
    return [d for one in many for d in (one.expand() if isinstance(one, DecisionRange) else (one,))]
