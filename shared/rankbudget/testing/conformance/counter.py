"""The rules of `TokenCounter`, one test each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import regex
from hypothesis import strategies as st

from ...counting.protocol import TokenCounter
from ..payloads import HOSTILE, WORDS
from ..strategies import conversations, texts, tools
from ._draws import for_all

__all__ = ["CounterConformance"]

_ANY_TEXT = st.one_of(
    texts(giant=True),
    st.text(max_size=60),
    st.lists(st.sampled_from(WORDS + HOSTILE), max_size=4).map("".join),
)


class CounterConformance(ABC):
    """Says how to test a token counter: subclass it and return a new counter from `make`."""

    examples = 60
    """Draws for each rule."""

    @abstractmethod
    def make(self) -> TokenCounter:
        """Returns the counter under test."""

    @cached_property
    def counter(self) -> TokenCounter:
        return self.make()

    def _for_all(self, *strategies: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], None]:
        return for_all(*strategies, examples=self.examples)

    def test_rule_0_it_is_a_counter(self) -> None:
        """It has every attribute of the protocol, of the right kind."""
        counter = self.counter
        assert isinstance(counter, TokenCounter)
        assert counter.name
        assert counter.exact in {True, False}
        assert counter.additive in {True, False}
        assert counter.band >= 0

    def test_rule_1_count_is_never_negative_and_never_raises(self) -> None:
        """Nothing counts 0, every other str counts 0 or more, lone surrogates and special tokens included."""
        assert self.counter.count("") == 0
        for text in (*HOSTILE, "\ud800", "\x00", "\udfff\ud800 pair", "a" * 20_000):
            assert self.counter.count(text) >= 0

        @self._for_all(_ANY_TEXT)
        def check(text: str) -> None:
            assert self.counter.count(text) >= 0

    def test_rule_2_count_many_equals_counting_each(self) -> None:
        """Counting many texts at once gives what counting them one by one gives."""
        assert self.counter.count_many([]) == []

        @self._for_all(st.lists(_ANY_TEXT, max_size=6))
        def check(drawn: list[str]) -> None:
            assert self.counter.count_many(drawn) == [self.counter.count(text) for text in drawn]

    def test_rule_3_truncate_keeps_the_bound_an_end_and_graphemes(self) -> None:
        """A truncated text counts at most the bound and is a start or an end, cut between two graphemes."""

        @self._for_all(_ANY_TEXT, st.integers(0, 40), st.sampled_from(("right", "left")))
        def check(text: str, bound: int, side: Any) -> None:
            cut = self.counter.truncate(text, bound, side=side)
            assert self.counter.count(cut) <= bound
            assert text.startswith(cut) if side == "right" else text.endswith(cut)
            if self.counter.count(text) <= bound:
                assert cut == text
            edges = {0}
            for match in regex.finditer(r"\X", text):
                edges.add(match.end())
            assert (len(cut) if side == "right" else len(text) - len(cut)) in edges

    def test_rule_4_messages_add_up_when_additive(self) -> None:
        """An additive counter's request is its overhead and its messages.

        Any counter's request counts no less than its tools alone.
        """

        @self._for_all(conversations(max_turns=4), tools())
        def check(messages: Any, schemas: Any) -> None:
            whole = self.counter.count_messages(messages, schemas or None)
            assert whole >= 0
            if self.counter.additive:
                assert whole == self.counter.overhead(schemas or None) + sum(
                    self.counter.count_message(m) for m in messages
                )

    def test_rule_5_an_estimate_says_why(self) -> None:
        """A counter that estimates says why and gives a band; an exact one has no band."""
        if self.counter.exact:
            assert self.counter.band == 0
        else:
            assert self.counter.why.strip()

    def test_rule_6_safe_from_many_threads(self) -> None:
        """Eight threads counting at once get the numbers one thread gets."""
        drawn = [f"{i}. {word}" for i, word in enumerate(WORDS * 20)]
        expected = [self.counter.count(text) for text in drawn]
        fresh = self.make()
        with ThreadPoolExecutor(8) as pool:
            rounds = list(pool.map(lambda _: [fresh.count(text) for text in drawn], range(8)))
        assert all(counts == expected for counts in rounds)
