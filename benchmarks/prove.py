"""Runs the proof: N random applications through every entry point into a strict model server, the same ones through the peers, and one table.

    python benchmarks/prove.py 2000                # the table on the screen
    python benchmarks/prove.py 2000 --write        # and in docs/proof.md
    python benchmarks/prove.py 200 --only agent --no-peers

The server counts every request in a way of its own and answers 400 when it is too long or no provider would take it. Every failing case of the
product is shrunk and printed as code to paste. Ends with status 1 when there is one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import platform
import re
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import prove_parts as _more_ways  # noqa: F401 - registers them
from harness import commit
from prove_cases import Case, draw, shrink
from prove_peers import LONGEST, PEERS
from prove_ways import COUNTER, SYSTEM, WAYS, Lab, Way, lab

from rankbudget import counter_for
from rankbudget.errors import BudgetError
from rankbudget.testing import reproduction

FAILURES = ("overflow", "invalid", "question lost", "leak", "refused needlessly", "miscounted", "crash")
SLACK = {
    "core Assembler": 120,
    "core build_constrained_prompt": 120,
    "BlockAssembler": 120,
    "RetrieverQueryEngine": 200,
    "BudgetPromptHelper": 200,
    "ContextChatEngine": 850,
    "retrieval chain": 40,
    "ContextualCompression": 40,
    "fit_documents": 40,
    "few_shot_function": 40,
}
"""Tokens of templates, notices and tags that are beside the conversation: a refusal within them is not called needless."""


@dataclass
class Outcome:
    """What became of one case on one way."""

    kind: str
    detail: str
    seconds: float
    requests: int = 0
    exact: int = 0


def run(name: str, way: Way, case: Case, lab: Lab, *, ours: bool = True) -> Outcome:
    """Sends one case one way and judges what the server saw."""
    lab.server.forget()
    lab.reported.clear()
    start = time.perf_counter()
    failure: BaseException | None = None
    try:
        way(case, lab)
    except Exception as error:  # noqa: BLE001 - whatever a part raises is an outcome
        failure = error
    seconds = time.perf_counter() - start
    kind, detail = judge(name, case, lab, failure, ours=ours)
    sent = [r.prompt_tokens for r in lab.server.requests]
    exact = sum(total in sent for total, _ in lab.reported)
    return Outcome(kind, detail, seconds, len(sent), exact)


def judge(name: str, case: Case, lab: Lab, failure: BaseException | None, *, ours: bool) -> tuple[str, str]:
    """Returns what happened in one word, and the evidence."""
    requests = lab.server.requests
    for received in requests:
        if any("maximum context length" in problem for problem in received.problems):
            return "overflow", f"{received.prompt_tokens} tokens > {received.window}"
        if received.problems:
            return "invalid", received.problems[0]
    refusal = find(failure, BudgetError)
    if refusal is not None:
        return ("refused", str(refusal)) if not feasible(name, case) else ("refused needlessly", str(refusal))
    if failure is not None:
        known = not ours and isinstance(failure, ValueError)
        return (
            "refused" if known and not feasible(name, case) else "crash"
        ), f"{type(failure).__name__}: {failure}"
    if not requests and "QueryEngine" in name:
        return "refused", "no document fits: the engine answers without a call"
    if not requests:
        return "crash", "nothing was sent"
    if any(not asked(case, received.messages) for received in requests):
        return (
            "question lost",
            f"the last user message is not the question in {[m['role'] for m in requests[-1].messages][-4:]}",
        )
    text = json.dumps([received.body for received in requests], ensure_ascii=False)
    for item in case.application.memories:
        if (
            not item.scope.visible_to(case.application.reader)
            and json.dumps(item.text, ensure_ascii=False)[1:-1] in text
        ):
            return "leak", f"{item.text!r} reached {case.application.reader}"
    wrong = miscounted(lab) if ours else ""
    return ("miscounted", wrong) if wrong else ("fine", "")


def miscounted(lab: Lab) -> str:
    """Returns where our counter or a report says otherwise than the server, request by request."""
    sent = [r.prompt_tokens for r in lab.server.requests]
    for received in lab.server.requests:
        counted = counter_for(COUNTER).count_messages(received.messages, received.body.get("tools"))
        if counted != received.prompt_tokens:
            return (
                f"our counter says {counted}, the server counts {received.prompt_tokens} in the same request"
            )
    return next(
        (
            f"reported {total}, the server counts {sent}"
            for total, counts in lab.reported
            if counts and total not in sent
        ),
        "",
    )


def feasible(name: str, case: Case) -> bool:
    """Returns whether system messages, question and tools fit; where the host adds text of its own, with room for that."""
    slack = next((tokens for part, tokens in SLACK.items() if part in name), 0)
    frame = [{"role": "system", "content": SYSTEM}] if "list" in name or slack == 0 else []
    if " agent" in name or "Agent" in name:
        slack += 400
    elif "prompt" in name or "Template" in name or "Chain" in name:
        slack += 60
    return case.least(frame=frame) + slack <= case.limit


def asked(case: Case, messages: Iterable[dict[str, object]]) -> bool:
    """Returns whether the last user message begins the question or holds it."""
    last = next((m for m in reversed(list(messages)) if m["role"] == "user"), None)
    content = last["content"] if last else ""
    text = content if isinstance(content, str) else "".join(str(b.get("text", "")) for b in content or ())  # type: ignore[attr-defined]  # content blocks are dicts
    return letters(case.question)[:24] in letters(text)


def letters(text: str) -> str:
    """Returns the letters and digits of a text: hosts escape braces and tags."""
    return re.sub(r"\W", "", text)


def find(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Returns the first error of a kind in a chain of causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None


@dataclass
class Row:
    """What became of all cases on one way."""

    name: str
    outcomes: list[Outcome]
    feasible: int

    def cells(self) -> list[str]:
        kinds = Counter(o.kind for o in self.outcomes)
        total = len(self.outcomes)
        millis = statistics.median(o.seconds for o in self.outcomes) * 1000 if self.outcomes else 0.0
        shares = [
            f"{100 * kinds[k] / total:.1f}" if kinds[k] else "0"
            for k in ("overflow", "invalid", "question lost", "leak")
        ]
        other = sum(kinds[k] for k in ("refused needlessly", "miscounted", "crash"))
        return [
            self.name.replace("|", "\\|"),
            str(total),
            *shares,
            f"{100 * other / total:.1f}" if other else "0",
            str(kinds["refused"]),
            f"{millis:.1f}",
        ]


HEADER = [
    "through",
    "cases",
    "overflow %",
    "invalid %",
    "question lost %",
    "leak %",
    "crash or wrong %",
    "refused rightly",
    "median ms",
]


def campaign(
    cases: list[Case], ways: dict[str, Way], lab: Lab, *, ours: bool, spread: bool
) -> tuple[list[Row], list[tuple[str, Case, Outcome]]]:
    """Runs the cases; `spread` deals them out over the ways, else every way gets all of them."""
    rows, failed = [], []
    for position, (name, way) in enumerate(ways.items()):
        mine = cases[position :: len(ways)] if spread else cases
        if not ours:
            mine = [c for c in mine if len(c.past) < LONGEST]
        outcomes = []
        for case in mine:
            outcome = run(name, way, case, lab, ours=ours)
            outcomes.append(outcome)
            if outcome.kind in FAILURES:
                failed.append((name, case, outcome))
        rows.append(Row(name, outcomes, 0))
        bad = Counter(o.kind for o in outcomes if o.kind in FAILURES)
        print(f"  {name}: {len(outcomes)} cases, {dict(bad) or 'no failures'}", flush=True)
    return rows, failed


def show(name: str, way: Way, case: Case, outcome: Outcome, lab: Lab) -> str:
    """Returns a failing case, shrunk, as code to paste."""
    small = shrink(case, lambda candidate: run(name, way, candidate, lab).kind == outcome.kind)
    again = run(name, way, small, lab)
    return (
        f"# {name}: {again.kind}: {again.detail[:300]}\n{reproduction(small.application)}\n"
        f"# case {small.number}, window {small.limit}: prove_ways.WAYS[{name!r}](prove_cases.prepare(application, {small.number}), lab)\n"
    )


def available(ways: dict[str, Way], only: str) -> dict[str, Way]:
    """Leaves out what the pattern or a missing library leaves out."""
    found = {name: way for name, way in ways.items() if only in name}
    if importlib.util.find_spec("promptbudget") is None:
        found.pop("promptbudget pack_chat", None)
    return found


def table(rows: list[Row]) -> str:
    lines = ["| " + " | ".join(HEADER) + " |", "|---" * len(HEADER) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="?", type=int, default=2000, help="how many applications are drawn")
    parser.add_argument("--seed", type=int, default=0, help="draws other applications")
    parser.add_argument("--only", default="", help="only the ways whose name holds this")
    parser.add_argument("--no-peers", action="store_true", help="leaves the peers out")
    parser.add_argument(
        "--every", action="store_true", help="sends every case every way instead of dealing them out"
    )
    parser.add_argument("--write", action="store_true", help="writes docs/proof.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    start = time.perf_counter()
    cases = draw(options.cases, options.seed)
    print(f"{len(cases)} applications drawn in {time.perf_counter() - start:.0f} s")
    with lab() as running:
        rows, failed = campaign(
            cases, available(WAYS, options.only), running, ours=True, spread=not options.every
        )
        shown: Counter[tuple[str, str]] = Counter()
        for name, case, outcome in failed:
            shown[name, outcome.kind] += 1
            if shown[name, outcome.kind] == 1:
                print(show(name, WAYS[name], case, outcome, running), flush=True)
        peers: list[Row] = []
        if not options.no_peers:
            solvable = [c for c in cases if c.least() + 8 <= c.limit][: max(20, options.cases // 10)]
            print(f"peers, on {len(solvable)} of the cases that can be solved:")
            peers, _ = campaign(solvable, available(PEERS, options.only), running, ours=False, spread=False)
    text = table([*rows, *peers])
    print(text)
    print(f"{len(cases)} cases, {len(failed)} failures, {time.perf_counter() - start:.0f} s")
    if options.write:
        write(options, text, len(failed), time.perf_counter() - start)
    return 1 if failed else 0


def write(options: argparse.Namespace, text: str, failed: int, seconds: float) -> None:
    """Puts the table between the markers of docs/proof.md."""
    path = Path(__file__).parent.parent / "docs" / "proof.md"
    command = f"make prove N={options.cases}" + (f" (seed {options.seed})" if options.seed else "")
    found = f"{failed} failures, {seconds:.0f} s, CPython {platform.python_version()}"
    made = f"`{command}` at commit `{commit()}`: {found}.\n\n{text}\n"
    page = path.read_text(encoding="utf-8")
    head, _, rest = page.partition("<!-- table -->")
    tail = rest.partition("<!-- end -->")[2]
    path.write_text(f"{head}<!-- table -->\n{made}<!-- end -->{tail}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
