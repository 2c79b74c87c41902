"""`python benchmarks/leave_one_out.py`: what is kept when the weights were chosen without the domain that is judged.

Every weight of the rankings is tried at half and at twice its value on a few questions of each set it matters
to. For each domain, the value that is best on the sets of all other domains is taken, all weights together,
and the sets of the domain are judged with them. A weight that only this domain wants shows as a loss.

The data is that of `make quality`. With 6 questions of each set it takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import Any, NamedTuple

from harness import commit
from quality import judged_data, select

FACTORS = (0.5, 2.0)
MATTERS = 0.002
"""A value is taken when it keeps so much more on the other domains: fewer questions tell less."""
DOMAINS: Mapping[str, Sequence[str]] = {
    "encyclopedia": (
        *("hotpotqa", "2wiki", "musique", "jsquad_ja"),
        *("xquad_en", "xquad_es", "xquad_de", "xquad_zh", "xquad_ar", "xquad_ru"),
    ),
    "medicine": ("covidqa",),
    "reports and policies": ("chroma_docs", "policyqa"),
    "program code": ("pycode",),
    "private talks": ("locomo", "chroma_chat"),
    "meetings": ("qmsum",),
    "technical support": ("molweni",),
    "memories": ("bfcl_memory",),
    "airline agents": ("tau_airline",),
    "service agents": ("sgd",),
    "coding agents": ("swe_agent",),
    "bank intents": ("banking77",),
    "assistant intents": ("clinc150", "hwu64"),
}
WIDE = {
    "chroma_docs",
    "policyqa",
    "pycode",
    "jsquad_ja",
    "chroma_chat",
    "molweni",
    "sgd",
    "swe_agent",
    "hwu64",
}


class Weight(NamedTuple):
    """A number in the code: its module, its name, and its key where it is one of several."""

    module: str
    name: str
    key: Any = None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}" + ("" if self.key is None else f"[{self.key}]")

    def value(self) -> float:
        """Returns the number as it is now."""
        found = getattr(importlib.import_module(f"rankbudget.{self.module}"), self.name)
        return float(found if self.key is None else found[self.key])

    def set_to(self, value: float) -> None:
        """Changes the number."""
        module = importlib.import_module(f"rankbudget.{self.module}")
        held = getattr(module, self.name)
        if self.key is None:
            setattr(module, self.name, value)
        else:
            held[self.key] = value


def _weights(module: str, *names: str | tuple[str, Any]) -> list[Weight]:
    return [Weight(module, name) if isinstance(name, str) else Weight(module, *name) for name in names]


READERS = ("encyclopedia", "medicine", "reports and policies", "program code")
TALKS = ("private talks", "meetings", "technical support", "memories")
AGENTS = ("airline agents", "service agents", "coding agents")
INTENTS = ("bank intents", "assistant intents")
WEIGHTS: Mapping[Sequence[str], Sequence[Weight]] = {
    READERS: _weights(
        "relevance.evidence",
        "NEAR",
        "STRENGTH",
        "BRIDGED",
        "TITLED",
        "NEARNESS",
        "LEADS_ON",
        "WORDS",
        "DOCUMENT",
    ),
    TALKS: [
        *_weights("relevance.turns", "NEAR", "FURTHER", "SPEAKER"),
        *_weights("fitting.evidence", "SENTENCE_SLOPE"),
    ],
    AGENTS: [
        *_weights(
            "conversation.next_call", *[("WEIGHTS", key) for key in ("base", "attempt", "digit", "amount")]
        ),
        *_weights("conversation.coverage", "POWER", "NEWEST"),
        *_weights("conversation.steps", "NEWEST_STEPS"),
    ],
    INTENTS: _weights("relevance.labels", "NEAREST", "MIDDLE", "NAME", "LIFT"),
}
"""Weights, by the domains they matter to."""


@contextmanager
def changed(values: Mapping[Weight, float]) -> Iterator[None]:
    """Lets weights have other values for a while."""
    before = {weight: weight.value() for weight in values}
    try:
        for weight, value in values.items():
            weight.set_to(value)
        yield
    finally:
        for weight, value in before.items():
            weight.set_to(value)


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--questions", type=int, default=12, help="questions of each set to choose weights on"
    )
    groups = {"readers": READERS, "talks": TALKS, "agents": AGENTS, "intents": INTENTS}
    parser.add_argument("--only", choices=groups, help="one group of domains")
    given = parser.parse_args()
    found = judged_data()
    if found is None:
        return 0
    judge, folder = found
    begin = time.monotonic()

    def kept(name: str, questions: int | None = None) -> float:
        split = "wide" if name in WIDE else "dev"
        return fmean(judge.evaluate(select, split, [name], questions, False, str(folder))[name]["ev"])

    gains = {
        domains: _gains(
            kept, weights, [name for domain in domains for name in DOMAINS[domain]], given.questions
        )
        for domains, weights in WEIGHTS.items()
        if given.only is None or domains is groups[given.only]
    }
    text = _table(kept, gains)
    print(f"\n{text}\n{time.monotonic() - begin:.0f} s")
    return 0


Gains = Mapping[tuple[Weight, float], Mapping[str, float]]
"""What each changed weight brings each set."""


def _gains(kept: Any, weights: Sequence[Weight], sets: Sequence[str], questions: int) -> Gains:
    shipped = {name: kept(name, questions) for name in sets}
    gains: dict[tuple[Weight, float], dict[str, float]] = {}
    for weight in weights:
        for factor in FACTORS:
            with changed({weight: weight.value() * factor}):
                found = {name: kept(name, questions) - shipped[name] for name in sets}
            gains[weight, factor] = found
            print(f"{weight} x {factor}: {fmean(found.values()):+.4f}", flush=True)
    return gains


def _table(kept: Any, gains: Mapping[Sequence[str], Gains]) -> str:
    lines = [
        f"Commit `{commit()}`.\n",
        "| domain | as shipped | chosen without it | difference | changed weights |",
        "|---|---|---|---|---|",
    ]
    for domains, group in gains.items():
        for domain in domains:
            values = _chosen(group, DOMAINS[domain])
            shipped = fmean(map(kept, DOMAINS[domain]))
            with changed(values):
                without = fmean(map(kept, DOMAINS[domain]))
            names = ", ".join(f"{weight.name} {value:g}" for weight, value in values.items()) or "none"
            lines.append(f"| {domain} | {shipped:.3f} | {without:.3f} | {without - shipped:+.3f} | {names} |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def _chosen(gains: Gains, left_out: Sequence[str]) -> dict[Weight, float]:
    """Returns the weights that another value suits better on all sets but those left out."""
    best: dict[Weight, tuple[float, float]] = {}
    for (weight, factor), found in gains.items():
        gain = fmean([gain for name, gain in found.items() if name not in left_out])
        if gain > max(MATTERS, best.get(weight, (0.0, 0.0))[0]):
            best[weight] = (gain, weight.value() * factor)
    return {weight: value for weight, (_, value) in best.items()}


if __name__ == "__main__":
    raise SystemExit(main())
