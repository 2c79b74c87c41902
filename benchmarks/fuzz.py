"""Coverage-guided fuzzing of what reads and writes text: a fuzzer mutates bytes towards code that no input has reached yet.

    make fuzz SECONDS=3600                       # every target in turn, an equal share of the time each
    python benchmarks/fuzz.py cut --seconds 60   # one target; needs the package `atheris`

Each target turns bytes into an input and asserts what must hold for every input; typed errors are fine, anything else stops the run with status 1
and leaves the bytes behind in a file named crash-*. The table that the last run printed is in docs/proof.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Target = Callable[[Any], None]
TARGETS: dict[str, Target] = {}
COUNTER = "o200k_base"


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


JSON = '{ } [ ] , : " \\" \\u12 null true 1e9 -0.5 "id" "a8f3-77c1" "role" "user" "tool" "content" "messages" "tools" "tool_calls" "function" NaN \n'.split(
    " "
)
YAML = "defaults profiles nova context_window ratios memory history reserve max_response_tokens model : - & * !! | > { } [ ] , # ' \" 0.3 8192 -1 .inf ~ \n \t".split(
    " "
)

TAGS = "< > / </ <knowledge </knowledge > <KNOWLEDGE </system> <|im_start|> &lt; { } {{ }} user: system: \n \r \u2028".split(
    " "
)


def text_of(data: Any, most: int) -> str:
    """Returns text as files hold it: mostly what the seeds say, mutated; broken UTF-8 becomes lone surrogates."""
    return str(data.ConsumeBytes(data.ConsumeIntInRange(0, most)).decode("utf-8", "surrogateescape"))


def built_of(data: Any, fragments: list[str]) -> str:
    """Returns a text of a language's own words and a little else, which bytes alone would hardly ever spell."""
    made = []
    for _ in range(data.ConsumeIntInRange(0, 60)):
        made.append(data.PickValueInList(fragments) if data.ConsumeIntInRange(0, 9) else text_of(data, 12))
        made.append(data.PickValueInList(["", "", " ", "\n  "]))
    return "".join(made)


@target
def count(data: Any) -> None:
    """A count is tiktoken's own, long runs of white space included."""
    from rankbudget import counter_for

    name = ("o200k_base", "cl100k_base")[data.ConsumeIntInRange(0, 1)]
    text = text_of(data, 200) + data.PickValueInList(
        [" ", "\n", "\t", "\u3000", "a", "é"]
    ) * data.ConsumeIntInRange(0, 60_000)
    text += data.ConsumeUnicode(200)
    counter = counter_for(name)
    assert counter.count(text) == len(counter.encoding.encode_ordinary(text))  # type: ignore[attr-defined]  # both are tiktoken's


@target
def cut(data: Any) -> None:
    """A cut text is a start or an end of it, within the bound, and one more grapheme would not fit or is not there."""
    from rankbudget import counter_for

    limit, side = data.ConsumeIntInRange(0, 40), data.PickValueInList(["left", "right"])
    text = text_of(data, 4000) if data.ConsumeBool() else data.ConsumeUnicode(4000)
    counter = counter_for(COUNTER)
    kept = counter.truncate(text, limit, side=side)
    assert counter.count(kept) <= limit
    assert text.startswith(kept) if side == "right" else text.endswith(kept)
    assert kept == text or counter.count(text) > limit


@target
def inserted_text(data: Any) -> None:
    """A retrieved text never closes its delimiter, and the prompt stays within the limit."""
    from rankbudget import Assembler, Block, BudgetError, TokenBudget
    from rankbudget.testing import check_delimited

    budget = TokenBudget(
        context_window=data.ConsumeIntInRange(60, 500), reserve=0, ratios={"memory": 0.5, "history": 0.5}
    )
    texts = [built_of(data, TAGS) for _ in range(data.ConsumeIntInRange(1, 3))]
    try:
        made = Assembler(budget, counter=COUNTER).assemble(
            [Block.of("system", "s"), Block.of("knowledge", *texts)], query="q"
        )
    except BudgetError:
        return
    assert made.report.total_tokens <= made.report.limit
    check_delimited(made.text, texts, tags=["knowledge"])


@target
def structured(data: Any) -> None:
    """Compressed tool output is within its bound, and JSON is still JSON."""
    from rankbudget import counter_for
    from rankbudget.compression.structured import compress_structured

    limit = data.ConsumeIntInRange(0, 60)
    text = built_of(data, JSON) if data.ConsumeBool() else text_of(data, 4000)
    counter = counter_for(COUNTER)
    kept = compress_structured(text, limit, counter)
    assert counter.count(kept) <= limit
    if not isinstance(parsed(text), (dict, list)):
        return
    assert not kept.strip() or isinstance(parsed(kept), (dict, list)) or limit < 16, (text, kept)


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


@target
def pieces(data: Any) -> None:
    """Sentences, units and parts of a prompt put together are the text they were taken from."""
    from rankbudget.compression.prompt_parts import parse_prompt
    from rankbudget.compression.units import split_units
    from rankbudget.relevance.sentences import split_sentences

    text = text_of(data, 4000) if data.ConsumeBool() else data.ConsumeUnicode(2000)
    assert "".join(split_sentences(text)) == text
    assert "".join(unit.text for unit in split_units(text)) == text
    assert "".join(part.render() for part in parse_prompt(text)) == text


@target
def profile(data: Any) -> None:
    """A profile is a budget or a typed error, whatever the file says."""
    from rankbudget import BudgetError, TokenBudget

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "b.yaml"
        path.write_bytes(built_of(data, YAML).encode("utf-8", "surrogateescape"))
        try:
            TokenBudget.from_file(path, profile=data.PickValueInList([None, "nova"]))
        except BudgetError:
            return


@target
def chat_file(data: Any) -> None:
    """A chat file is fitted within the limit, or refused with a typed error."""
    from rankbudget import BudgetError, fit_messages
    from rankbudget.cli.reading import read_chat

    limit = data.ConsumeIntInRange(1, 400)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "chat.json"
        path.write_bytes(built_of(data, JSON).encode("utf-8", "surrogateescape"))
        try:
            chat = read_chat(path)
            fitted = fit_messages(chat.messages, max_tokens=limit, counter=COUNTER, tools=chat.tools)
        except BudgetError:
            return
        assert fitted.report.total_tokens <= limit


@target
def conversation(data: Any) -> None:
    """A conversation of any roles, calls and results keeps the laws."""
    from rankbudget import BudgetError, counter_for, fit_messages
    from rankbudget.testing import check_laws, check_refusal

    messages = []
    for _ in range(data.ConsumeIntInRange(1, 12)):
        message: dict[str, Any] = {
            "role": data.PickValueInList(["system", "user", "assistant", "tool", "developer"])
        }
        message["content"] = data.ConsumeUnicode(60)
        ids = [data.PickValueInList(["a", "b", "c"]) for _ in range(data.ConsumeIntInRange(0, 2))]
        if message["role"] == "tool":
            message["tool_call_id"] = data.PickValueInList(["a", "b", "c"])
        elif message["role"] == "assistant" and ids:
            message["tool_calls"] = [
                {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}}
                for i in dict.fromkeys(ids)
            ]
        messages.append(message)
    limit, counter = data.ConsumeIntInRange(1, 200), counter_for(COUNTER)
    try:
        fitted = fit_messages(
            messages, max_tokens=limit, counter=counter, cut=data.PickValueInList(["fill", "stable"])
        )
    except BudgetError as error:
        check_refusal(messages, error, limit=limit, counter=counter)
        return
    check_laws(messages, fitted.messages, limit=limit, counter=counter, reported=fitted.report.total_tokens)


@target
def compressed(data: Any) -> None:
    """A compressed prompt is within its bound, whatever the strategy."""
    from rankbudget import PromptCompressor, counter_for

    limit, text = data.ConsumeIntInRange(1, 60), text_of(data, 3000)
    result = PromptCompressor(counter=COUNTER).compress(
        text, limit, data.PickValueInList(["extractive", "template", "abstractive"])
    )
    assert result.compressed_tokens == counter_for(COUNTER).count(result.compressed_text) <= limit


def run(name: str, seconds: int) -> None:
    """Fuzzes one target in this process; libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["rankbudget"]):
        import rankbudget

        for module in pkgutil.walk_packages(rankbudget.__path__, "rankbudget."):
            if not module.name.endswith("__main__"):
                with suppress(ImportError):  # the parts of extras that are not installed
                    importlib.import_module(module.name)

    rankbudget.counter_for(COUNTER).count("load")

    def one(data: bytes) -> None:
        TARGETS[name](atheris.FuzzedDataProvider(data))

    seeds = Path(__file__).parent.parent / "docs"
    with tempfile.TemporaryDirectory() as found:  # what is new goes into the first folder
        flags = [f"-max_total_time={seconds}", "-timeout=25", "-max_len=6000", "-print_final_stats=1"]
        atheris.Setup([sys.argv[0], *flags, found, str(seeds)], one)
        atheris.Fuzz()


def every(seconds: int) -> int:
    """Fuzzes all targets, each in a process of its own, and prints one table."""
    rows, failed = [], 0
    for name, function in TARGETS.items():
        begin = time.monotonic()
        share = max(1, seconds // len(TARGETS))
        command = [sys.executable, __file__, name, "--seconds", str(share)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - this very file
        runs = re.search(r"number_of_executed_units: (\d+)", done.stderr)
        reached = re.findall(r"cov: (\d+)", done.stderr)
        fine = done.returncode == 0
        failed += not fine
        outcome = "no failure" if fine else "FAILED"
        inputs = f"{int(runs[1]):,}" if runs else "?"
        rows.append(
            f"| {name} | {function.__doc__} | {inputs} | {reached[-1] if reached else '?'} | {outcome} |"
        )
        print(rows[-1], f"{time.monotonic() - begin:.0f} s", flush=True)
        if not fine:
            print(done.stderr[-3000:], flush=True)
    print(
        "\n| target | what must hold | inputs | branches reached | outcome |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
    )
    return 1 if failed else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?", choices=TARGETS, help="one target; all of them without it")
    parser.add_argument("--seconds", type=int, default=60, help="how long, in all")
    given = parser.parse_args()
    if given.target is None:
        return every(given.seconds)
    run(given.target, given.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
