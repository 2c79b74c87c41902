"""Drawn applications for the parity tests: a conversation, documents, examples, questions, and one budget for all.

Every text starts with a marker of its own, so that a kept piece is recognised by its text in any host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rankbudget import TokenBudget

__all__ = ["Case", "Piece", "cases", "draws_of"]

_WORDS = (
    "river bridge winter garden copper engine letter harbor mirror planet forest window silver market doctor "
    "pencil castle summer basket thunder camera island pepper museum rocket violin ladder canyon blanket orchard"
).split()
_SIZES = (1, 4, 4, 9, 9, 20, 20, 45, 120, 260)
_DRAWS = {"fast": 20, "dev": 50, "ci": 400}
_LABELS = ("shipping", "refund", "account")


@dataclass(frozen=True)
class Piece:
    """A retrieved text: its place in the list and the score of its retriever, None without one."""

    id: str
    text: str
    score: float | None


@dataclass(frozen=True)
class Case:
    """One application.

    Args:
        history: a finished conversation, as OpenAI-style dicts.
        questions: what the user asks, one for each turn.
        answers: what the model answers to each of them.
        documents: what each retrieval returns.
        examples: few-shot examples.
        system: the host's own system prompt.
        budget: a TokenBudget, or a bare number of prompt tokens.
        counter: the name of the counter.
        k: most few-shot examples; None has no limit but the tokens.
    """

    history: tuple[dict[str, Any], ...]
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    documents: tuple[Piece, ...]
    examples: tuple[dict[str, str], ...]
    system: str
    budget: TokenBudget | int
    counter: str
    k: int | None

    @property
    def bare(self) -> bool:
        """Whether the budget is a bare number."""
        return isinstance(self.budget, int)

    def thread(self, turn: int, *, asked: bool = False) -> list[dict[str, Any]]:
        """Returns what is stored before the question of a turn; `asked` puts that question at its end."""
        messages = [json.loads(json.dumps(m)) for m in self.history]
        for question, answer in zip(self.questions[:turn], self.answers[:turn], strict=True):
            messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        if asked:
            messages.append({"role": "user", "content": self.questions[turn]})
        return messages

    def tags(self) -> set[str]:
        """Returns what may explain a difference: what kind of budget, history and documents this is."""
        roles = [m["role"] for m in self.history]
        found = {f"counter {self.counter}", f"{len(self.questions)} turns"}
        found |= {"bare max_tokens"} if self.bare else set(_budget_tags(self.budget))
        found |= {"tools"} if "tool" in roles else {"no tools"}
        found |= {"late system"} if "system" in roles[1:] else set()
        found |= {"system in history"} if "system" in roles else {"no system in history"}
        scored = {d.score is not None for d in self.documents}
        names = {frozenset(): "no documents", frozenset({True}): "scores", frozenset({False}): "no scores"}
        found.add(names.get(frozenset(scored), "some scores"))
        return found

    def size(self) -> int:
        """Returns how much there is to read in a case, to show the smallest one."""
        return len(repr(self))


def _budget_tags(budget: Any) -> list[str]:
    return [
        "TokenBudget",
        f"surplus {budget.surplus}",
        f"preset {budget.preset}",
        f"max_system_ratio {budget.max_system_ratio}",
        "reserve as a share" if budget.reserve <= 1 else "reserve in tokens",
        f"message_cap {budget.message_cap}",
        f"min_exchanges {budget.min_exchanges}",
        f"last_turns {budget.last_turns}",
        f"ratios of {' '.join(sorted(budget.ratios))}",
    ]


class _Writer:
    """Writes texts that begin with a marker that no other text has."""

    def __init__(self) -> None:
        self.written = 0

    def text(self, drawn: tuple[int, int], kind: str = "m") -> str:
        seed, size = drawn
        self.written += 1
        words = [_WORDS[(seed * 7 + i * (seed % 5 + 1)) % len(_WORDS)] for i in range(size)]
        words[0] = f"{kind}{self.written}x{seed}"
        return " ".join(w + ("." if i % 9 == 8 else "") for i, w in enumerate(words)) + "."

    def message(self, role: str, drawn: tuple[int, int], **fields: Any) -> dict[str, Any]:
        return {"role": role, "content": self.text(drawn), **fields}

    def turn(self, kind: str, texts: list[tuple[int, int]], calls: int) -> list[dict[str, Any]]:
        """Returns the messages of one turn; one with tools has an answer after its results."""
        first, second, third, *_ = texts
        if kind == "system":
            return [self.message("system", first)]
        if kind == "user twice":
            return [
                self.message(role, t) for role, t in zip(("user", "user", "assistant"), texts, strict=False)
            ]
        if kind == "plain":
            return [self.message("user", first), self.message("assistant", second)]
        made = [self.message("user", first)]
        ids = [f"call{self.written}n{i}" for i in range(calls)]
        asked = [_call(i, self.text((second[0], 2))) for i in ids]
        made.append({"role": "assistant", "content": "", "tool_calls": asked})
        made += [self.message("tool", (third[0] + i, third[1]), tool_call_id=n) for i, n in enumerate(ids)]
        return [*made, self.message("assistant", second)]


def _call(name: str, query: str) -> dict[str, Any]:
    return {
        "id": name,
        "type": "function",
        "function": {"name": "search", "arguments": json.dumps({"q": query})},
    }


def _case(drawn: dict[str, Any]) -> Case:
    writer = _Writer()
    history = [m for kind, texts, calls in drawn["turns"] for m in writer.turn(kind, texts, calls)]
    if history and history[-1]["role"] == "system":  # a finished conversation ends on an answer
        history += writer.turn("plain", [(1, 4), (2, 4), (3, 4)], 1)
    documents = [
        Piece(f"d{i}", writer.text((seed, size), "d"), _score(score, drawn["scores"], i))
        for i, (seed, size, score) in enumerate(drawn["documents"])
    ]
    examples = [
        {"input": writer.text((seed, size), "e"), "output": _answer(seed, labels=drawn["labels"])}
        for seed, size in drawn["examples"]
    ]
    questions = tuple(writer.text(q, "q") for q in drawn["questions"])
    answers = tuple(writer.text(a, "a") for a in drawn["answers"][: len(questions)])
    system = writer.text(drawn["system"], "s")
    texts = [system, questions[0], *(json.dumps(m) for m in history), *(d.text for d in documents)]
    whole = sum(5 + len(text) // 5 for text in texts)
    room = max(30, whole * drawn["eighths"] // 8 + drawn["spare"])
    return Case(
        history=tuple(history),
        questions=questions,
        answers=answers,
        documents=tuple(documents),
        examples=tuple(examples),
        system=system,
        budget=_budget(room, drawn["budget"]),
        counter=drawn["counter"],
        k=drawn["k"],
    )


def _answer(seed: int, *, labels: bool) -> str:
    """Returns one of few labels, or an answer that no other example has."""
    return (
        _LABELS[seed % 3]
        if labels
        else f"The {_WORDS[seed % len(_WORDS)]} is behind the {_WORDS[seed // 3]}."
    )


def _score(score: int, which: str, place: int) -> float | None:
    if which == "none" or (which == "some" and place % 2):
        return None
    return score / 20


def _budget(room: int, drawn: dict[str, Any] | None) -> TokenBudget | int:
    if drawn is None:
        return room
    reserve = drawn["reserve"]
    window = room + reserve if reserve > 1 else int(room / (1 - reserve))
    return TokenBudget(**{**drawn, "context_window": window})


def _budgets() -> st.SearchStrategy[dict[str, Any]]:
    shares = st.sampled_from(
        (
            {"memory": 0.3, "history": 0.4},
            {"memory": 0.3, "history": 0.4},
            {"history": 0.5, "knowledge": 0.2},
            {"memory": 0.1, "history": 0.2, "knowledge": 0.4},
        )
    )
    return st.fixed_dictionaries(
        {
            "reserve": st.sampled_from((0.3, 60, 200)),
            "ratios": shares,
            "surplus": st.sampled_from(("waterfall", "waterfall", "borrow", "keep")),
            "preset": st.sampled_from((None, None, "rag")),
            "max_system_ratio": st.sampled_from((None, None, None, 0.25)),
            "min_exchanges": st.sampled_from((3, 3, 1)),
            "last_turns": st.sampled_from((None, None, 2, 4)),
            "message_cap": st.sampled_from((1000, 1000, 200, None)),
        }
    )


def _drawn() -> st.SearchStrategy[Case]:
    text = st.tuples(st.integers(0, 60), st.sampled_from(_SIZES))
    short = st.tuples(st.integers(0, 60), st.sampled_from((4, 9, 20)))
    kinds = st.sampled_from(("plain", "plain", "plain", "tool", "tool", "system", "user twice"))
    turn = st.tuples(kinds, st.lists(text, min_size=3, max_size=3), st.integers(1, 3))
    document = st.tuples(st.integers(0, 60), st.sampled_from(_SIZES), st.integers(0, 20))
    return st.fixed_dictionaries(
        {
            "turns": st.lists(turn, max_size=9),
            "documents": st.lists(document, max_size=7),
            "scores": st.sampled_from(("all", "all", "none", "none", "some")),
            "examples": st.lists(st.tuples(st.integers(0, 60), st.sampled_from((4, 9, 20))), max_size=6),
            "questions": st.lists(short, min_size=1, max_size=3),
            "answers": st.lists(text, min_size=3, max_size=3),
            "system": short,
            "eighths": st.sampled_from((1, 2, 3, 4, 4, 5, 6, 8)),
            "spare": st.integers(-20, 60),
            "budget": st.one_of(st.none(), _budgets(), _budgets()),
            "counter": st.sampled_from(("o200k_base", "gpt-4o")),
            "k": st.sampled_from((1, 2, 3, None, None)),
            "labels": st.booleans(),
        }
    ).map(_case)


def draws_of() -> int:
    """Returns how many cases the current hypothesis profile asks for."""
    return _DRAWS.get(settings.get_current_profile_name(), _DRAWS["dev"])


@lru_cache(maxsize=4)
def cases(count: int) -> tuple[Case, ...]:
    """Returns `count` drawn cases, the same ones in every run."""
    found: list[Case] = []

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(_drawn())
    def collect(case: Case) -> None:
        found.append(case)

    collect()
    return tuple(found[:count])
