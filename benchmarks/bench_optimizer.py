"""What compression and the optimizer save, what they lose, and what they cost.

    time      the specification's example (3,400 tokens) and 50 documents of 200 tokens, no text of them seen before
    savings   the optimizer on its benchmark prompts, with the answers that are left
    ratios    what each strategy takes away, beside the band of the token-optimization specification

`python benchmarks/bench_optimizer.py --answers` measures on public questions how often the answer survives, where QUALITY_DIR (or `--data`) names the folder
of the quality benchmark; with `--model NAME --base-url URL` a model answers from the compressed text and is judged from 1 to 5.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import Contender, bundled_vocabulary, documents, race, table
from optimizer_prompts import PADDING, QUESTION, benchmark_prompts, spec_example

SETS = ("covidqa", "xquad_en")
SHARES = (0.5, 0.2)
DOCUMENTS, WORDS = (
    50,
    95,
)  # about 200 tokens each: the words are made up, and cost more tokens than a language's


def _contenders() -> list[Contender]:
    from rankbudget import PromptCompressor, TokenOptimizer

    optimizer, compressor = TokenOptimizer(), PromptCompressor()

    def example(seed: str) -> Callable[[], Any]:
        given = dict(spec_example().arguments)
        given["prompt"] = given["prompt"].replace("Report", f"Note {seed}")  # texts nobody has counted
        given["history"] = [
            {**message, "content": f"{message['content']} {seed}"} for message in given["history"]
        ]
        return lambda: optimizer.optimize(**given)

    def many(seed: str) -> Callable[[], Any]:
        texts = documents(DOCUMENTS, seed, words=WORDS)
        question = " ".join(texts[7].split()[3:12])
        prompt = "Context:\n" + "\n\n".join(texts) + f"\n\nQuestion: {question}"
        return lambda: optimizer.optimize(prompt)

    def extract(seed: str) -> Callable[[], Any]:
        texts = documents(DOCUMENTS, seed, words=WORDS)
        question = " ".join(texts[7].split()[3:12])
        return lambda: compressor.compress("\n\n".join(texts), 2_000, query=question)

    return [
        Contender("optimize the specification's example", example),
        Contender("optimize 50 documents of 200 tokens", many),
        Contender("extract 2,000 of these 10,000 tokens", extract),
    ]


def _describe(result: Any) -> str:
    after = getattr(result, "optimized_tokens", None) or result.compressed_tokens
    return f"{result.original_tokens:,} -> {after:,} tokens"


def _savings() -> str:
    from rankbudget import OptimizerConfig, TokenOptimizer

    optimizer = TokenOptimizer()
    saved, left = [], 0
    samples = benchmark_prompts()
    for sample in samples:
        result = optimizer.optimize(**sample.arguments)
        saved.append(result.savings_percent)
        left += all(answer in result.optimized_prompt for answer in sample.answers)
    sample = spec_example()
    result = TokenOptimizer(config=OptimizerConfig(compress_system_prompt=True)).optimize(**sample.arguments)
    whole = all(text in result.optimized_prompt for text in (*sample.kept, *sample.answers))
    return (
        f"savings\n  {len(samples)} prompts of unrelated passages: {sum(saved) / len(saved):.1f} % saved on average, {left} of {len(samples)} answers left\n"
        f"  the specification's example: {result.original_tokens:,} -> {result.optimized_tokens:,} tokens, {result.savings_percent:.1f} % saved "
        f"(specified: 80), everything relevant left: {'yes' if whole else 'NO'}"
    )


def _ratios() -> str:
    from rankbudget import PromptCompressor

    compressor = PromptCompressor()
    given = spec_example().arguments
    document = "\n\n".join(paragraph for paragraph in given["prompt"].split("\n\n")[:-1])
    chat = "\n".join(f"{message['role']}: {message['content']}" for message in given["history"])
    plain = (
        "You are the assistant of a travel agency. Answer in two sentences. Never book anything. Ask for the date when it is missing. "
        + PADDING[0]
    )
    rows = [
        ("extractive", "50-70 %", "documents", compressor.compress_document(document, QUESTION)),
        (
            "abstractive, no model",
            "70-85 %",
            "a conversation",
            compressor.compress(chat, strategy="abstractive"),
        ),
        (
            "template",
            "60-80 %",
            "a padded system prompt",
            compressor.compress_system_prompt(given["system_prompt"]),
        ),
        ("template", "60-80 %", "a lean system prompt", compressor.compress_system_prompt(plain)),
    ]
    lines = [
        f"  {name:<24}{text:<26}{result.compression_ratio:>7.1%}   specified {band}"
        for name, band, text, result in rows
    ]
    return "\n".join(["ratios: share of the tokens taken away", *lines])


def main(*, rounds: int = 15) -> None:
    """Runs all of it that needs no data."""
    bundled_vocabulary()
    contenders = _contenders()
    race(contenders, rounds=rounds, seed="optimizer")
    print(table("overhead, no model calls", contenders, base=contenders[0], describe=_describe))
    print(_savings())
    print(_ratios())


def _questions(folder: Path, name: str) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    texts = {row["doc_id"]: row["items"] for row in rows if row["kind"] == "doc"}
    for row in rows:
        items = texts[row["doc_id"]]
        if (
            row["kind"] != "doc"
            and row.get("answers")
            and _holds("\n\n".join(item["text"] for item in items), row["answers"])
        ):
            yield row, items


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")


def _holds(text: str, answers: list[str]) -> bool:
    plain = f" {' '.join(_WORD.findall(text.lower()))} "
    return any(f" {' '.join(_WORD.findall(answer.lower()))} " in plain for answer in answers)


def answers(folder: Path, *, limit: int | None, judge: Callable[[str, str, list[str]], float] | None) -> None:
    """Prints how many answers survive compression of all a question's documents, and the optimizer on retrieved passages."""
    from rankbudget import PromptCompressor, TokenOptimizer, counter_for

    compressor, optimizer, counter = PromptCompressor(), TokenOptimizer(), counter_for("o200k_base")
    for name in SETS:
        found = list(_questions(folder, name))
        random.Random(0).shuffle(found)
        found = found[:limit]
        for share in SHARES:
            left, marks = 0, []
            for row, items in found:
                text = "\n\n".join(item["text"] for item in items)
                result = compressor.compress(text, int(share * counter.count(text)), query=row["query"])
                left += _holds(result.compressed_text, row["answers"])
                if judge:
                    marks.append(judge(row["query"], result.compressed_text, row["answers"]))
            mark = f", judged {sum(marks) / len(marks):.2f} of 5" if marks else ""
            print(
                f"  {name:<10} extractive to {share:>4.0%}: {left} of {len(found)} answers left ({left / len(found):.1%}){mark}",
                flush=True,
            )
        for passages in (5, 10):
            print(
                f"  {name:<10} optimizer, {passages:>2} passages: {_retrieved(found, passages, optimizer)}",
                flush=True,
            )


def _retrieved(
    found: list[tuple[dict[str, Any], list[dict[str, Any]]]], passages: int, optimizer: Any
) -> str:
    from rankbudget import Segment
    from rankbudget.relevance.bm25 import Bm25Scorer

    left, saved = 0, []
    for row, items in found:
        scores = Bm25Scorer().score(
            row["query"], [Segment(id=item["id"], text=item["text"]) for item in items]
        )
        gold = {piece["item"] for piece in row["gold"]}
        best = sorted(range(len(items)), key=lambda i: (items[i]["id"] not in gold, -scores[i]))[:passages]
        text = "\n\n".join(items[i]["text"] for i in sorted(best))
        result = optimizer.optimize(f"Context:\n{text}\n\nQuestion: {row['query']}")
        left += _holds(result.optimized_prompt, row["answers"]) or not _holds(text, row["answers"])
        saved.append(result.savings_percent)
    return f"{sum(saved) / len(saved):.1f} % saved on average, {left} of {len(found)} answers left ({left / len(found):.1%})"


def _judge(model: str, base_url: str) -> Callable[[str, str, list[str]], float]:
    def ask(prompt: str) -> str:
        body = json.dumps(
            {"model": model, "temperature": 0, "messages": [{"role": "user", "content": prompt}]}
        ).encode()
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {os.environ.get('OPENAI_API_KEY', 'none')}",
        }
        request = urllib.request.Request(f"{base_url.rstrip('/')}/chat/completions", body, headers)  # noqa: S310 - the user's own address
        with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310 - see above
            return str(json.load(answer)["choices"][0]["message"]["content"])

    def judge(question: str, text: str, right: list[str]) -> float:
        answer = ask(f"Answer from the text only.\n\nText:\n{text}\n\nQuestion: {question}")
        verdict = ask(
            f"Question: {question}\nRight answers: {right}\nGiven answer: {answer}\nHow good is the given answer, 1 to 5? Say one digit."
        )
        digit = re.search(r"[1-5]", verdict)
        return float(digit.group()) if digit else 1.0

    return judge


def _command_line() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--answers", action="store_true", help="measure how many answers survive, on the quality data"
    )
    parser.add_argument(
        "--data",
        default=os.environ.get("QUALITY_DIR"),
        help="folder of the quality benchmark; default QUALITY_DIR",
    )
    parser.add_argument("--limit", type=int, help="questions of each set; default all")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--model", help="an OpenAI-compatible model that answers and judges")
    parser.add_argument("--base-url", default="https://api.openai.com/v1")
    given = parser.parse_args()
    bundled_vocabulary()
    if not given.answers:
        main(rounds=given.rounds)
        return
    folder = Path(given.data or "") / "dev"
    if not given.data or not folder.is_dir():
        print("no quality data: set QUALITY_DIR or --data to its folder")
        return
    answers(folder, limit=given.limit, judge=_judge(given.model, given.base_url) if given.model else None)


if __name__ == "__main__":
    _command_line()
