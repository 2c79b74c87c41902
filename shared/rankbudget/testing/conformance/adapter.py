"""The rules of an adapter: its codec's four, and the laws through its entry point."""

from __future__ import annotations

import asyncio
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ...counting.protocol import TokenCounter
from ...errors import BudgetError
from ...messages.codec import Codec
from ...messages.texts import content_text, texts_of
from ..application import Application
from ..fakes import WordCounter
from ..laws import check_outcome, check_same, check_superset
from ..snapshots import snapshot
from ..strategies import applications, conversations
from ._draws import for_all

if TYPE_CHECKING:
    from hypothesis import strategies as st

__all__ = ["AdapterConformance"]

_ROLES = {"system", "developer", "user", "assistant", "tool"}


class AdapterConformance(ABC):
    """Says how to test an adapter: subclass it and fill `codec`, `to_host` and `fit`.

    Fill `afit` as well where there is an async form.
    """

    examples = 100
    codec: Codec
    identity = True
    """Whether kept messages are the same objects; memories return copies."""
    stored = False
    """Whether it reads a stored thread.

    A finished thread waits for its next question. All of it may go where its last question does not fit.
    """
    afit: Any = None
    """`async def afit` with the arguments of `fit`, where the adapter has an async form."""

    @abstractmethod
    def to_host(self, messages: Sequence[dict[str, Any]]) -> list[Any]:
        """Returns OpenAI-style dicts as the host's own messages."""

    @abstractmethod
    def fit(
        self, messages: list[Any], *, max_tokens: int, counter: TokenCounter, tools: Sequence[Any] | None
    ) -> list[Any]:
        """Fits host messages through the adapter's entry point."""

    def _for_all(
        self, *strategies: st.SearchStrategy[Any], examples: int = 0
    ) -> Callable[[Callable[..., None]], None]:
        return for_all(*strategies, examples=examples or self.examples)

    def test_codec_rule_1_messages_are_never_changed(self) -> None:
        """`with_text`, `make` and `copy` leave the message they were given alone."""

        @self._for_all(conversations(max_turns=4))
        def check(messages: Any) -> None:
            for message in self.to_host(messages):
                before = copy.deepcopy(message)
                edited = self.codec.with_text(message, "shorter")
                self.codec.copy(message)
                assert message == before
                assert content_text(self.codec.to_dict(edited).get("content")) == "shorter"
                assert self.codec.call_ids(edited) == self.codec.call_ids(message)
                texts = texts_of(self.codec.to_dict(message).get("content"))
                edited = self.codec.with_text(message, ["s"] * len(texts))
                assert message == before
                assert texts_of(self.codec.to_dict(edited).get("content")) == ["s"] * len(texts)

    def test_codec_rule_2_roles_agree(self) -> None:
        """All roles in one pass are the roles one by one, and each is a known one."""

        @self._for_all(conversations(max_turns=4))
        def check(messages: Any) -> None:
            host = self.to_host(messages)
            assert self.codec.roles(host) == [self.codec.role(m) for m in host]
            assert set(self.codec.roles(host)) <= _ROLES
            assert self.codec.roles(host) == [m["role"] for m in messages]

    def test_codec_rule_3_calls_are_listed_once(self) -> None:
        """Call ids and result ids are those of the conversation, each once, in order."""

        @self._for_all(conversations(max_turns=4))
        def check(messages: Any) -> None:
            for message, host in zip(messages, self.to_host(messages), strict=True):
                assert list(self.codec.call_ids(host)) == [c["id"] for c in message.get("tool_calls", ())]
                if message["role"] == "tool":
                    assert self.codec.result_id(host) == message["tool_call_id"]

    def test_codec_rule_4_everything_sent_is_seen(self) -> None:
        """The neutral form has the text and the calls' arguments."""

        @self._for_all(conversations(max_turns=4, media=False))
        def check(messages: Any) -> None:
            for message, host in zip(messages, self.to_host(messages), strict=True):
                seen = self.codec.to_dict(host)
                assert content_text(seen.get("content")) == content_text(message.get("content"))
                assert len(seen.get("tool_calls") or ()) == len(message.get("tool_calls") or ())

    def test_laws(self) -> None:
        """Every drawn application comes back within the limit and valid, or is refused with a reason."""
        self._for_all(applications())(self._check)

    def test_laws_async(self) -> None:
        """The async form gives what the sync form gives."""
        if self.afit is None:
            pytest.skip("no async form: fill `afit`")

        @self._for_all(applications(), examples=max(20, self.examples // 5))
        def check(application: Application) -> None:
            host = self.to_host(application.messages)
            limit, counter = application.limit(WordCounter()), WordCounter()
            sync = self._run(host, limit, counter, application)
            try:
                found = asyncio.run(
                    self.afit(list(host), max_tokens=limit, counter=counter, tools=application.tools or None)
                )
            except BudgetError as error:
                if type(error) is not type(sync):
                    raise
                return
            assert not isinstance(sync, BudgetError)
            check_same(sync, found, codec=self.codec, what="the async form")

    def _run(self, host: list[Any], limit: int, counter: TokenCounter, application: Application) -> Any:
        try:
            return self.fit(list(host), max_tokens=limit, counter=counter, tools=application.tools or None)
        except BudgetError as error:
            return error

    def _check(self, application: Application) -> None:
        counter = WordCounter()
        limit, tools = application.limit(counter), application.tools or None
        host = self.to_host(application.messages)
        before = snapshot(host)
        found = self._run(host, limit, counter, application)
        rules: dict[str, Any] = {"before": before, "identity": self.identity, "stored": self.stored}
        check_outcome(host, found, limit=limit, counter=counter, codec=self.codec, tools=tools, **rules)
        if isinstance(found, BudgetError):
            return
        check_same(found, self._run(host, limit, counter, application), codec=self.codec)
        check_same(
            found, self._run(found, limit, counter, application), codec=self.codec, what="fitting twice"
        )
        larger = self._run(host, limit + 50, counter, application)
        assert not isinstance(larger, BudgetError)
        check_superset(host, found, larger, codec=self.codec)
