"""Every entry point that remembers something between calls, opened alike: give it a user's thread, get what is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankbudget import Assembler, BudgetSession, TokenBudget, fit_messages
from tests.properties import ways_langchain as lc
from tests.properties import ways_llamaindex as li
from tests.properties.ways import COUNTER, PerUser, Rows, Thread, Way, plain


def core_rows(found: Sequence[dict[str, Any]]) -> Rows:
    return [(m["role"], m["content"]) for m in found]


class CoreSession(PerUser):
    def read(self, user: str, thread: Thread) -> Rows:
        return core_rows(self.of(user).fit(plain(thread)).messages)


class CoreFitMessages(PerUser):
    def read(self, user: str, thread: Thread) -> Rows:
        fitted = fit_messages(
            plain(thread), max_tokens=self.limit, counter=COUNTER, session=self.of(user), **self.options
        )
        return core_rows(fitted.messages)


class CoreAssembler(PerUser):
    def make(self, user: str) -> Any:
        session = BudgetSession(self.limit, counter=COUNTER)
        budget = TokenBudget(
            context_window=self.limit, reserve=0, ratios={"history": 1.0}, max_system_ratio=None
        )
        return Assembler(budget, counter=COUNTER, session=session, **self.options)

    def read(self, user: str, thread: Thread) -> Rows:
        return core_rows(self.of(user).assemble({"history": plain(thread)}).messages)


WAYS = [
    Way("core BudgetSession", CoreSession),
    Way("core fit_messages session=", CoreFitMessages),
    Way("core Assembler session=", CoreAssembler),
    Way("LC BudgetTrimmer session=", lc.Trimmer),
    Way("LC BudgetMemory", lc.Memory),
    Way("LC BudgetMessageHistory", lc.History),
    Way("LC BudgetMessageHistory.around", lc.HistoryAround),
    Way("LC BudgetMiddleware thread_id", lc.Agent),
    Way("LC BudgetMiddleware", lc.AgentUnnamed, named=False),
    Way("LC pre_model_hook thread_id", lc.Hook),
    Way("LC pre_model_hook", lc.HookUnnamed, named=False),
    Way("LI BudgetChatMemoryBuffer", li.Buffer),
    Way("LI BudgetMemory with a block", li.BlockMemory, summarizes=False, whole=False),
    Way("LI BudgetFunctionAgent", li.FunctionAgent, summarizes=False, draws=10),
    Way("LI ContextChatEngine use_session", li.Engine, whole=False),
]
