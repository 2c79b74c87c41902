"""What compression and the optimizer save, what they lose, and what they cost.

time      the specification's example (3,400 tokens) and 50 documents of 200 tokens, no text of them seen before
savings   the optimizer on its benchmark prompts, with the answers that are left
ratios    what each strategy takes away, beside the band of the token-optimization specification
public    prompts made of the documents of public questions: what is saved, and how much evidence is left beside what
          `fit_documents` keeps at equal tokens; needs QUALITY_DIR, the folder of the quality benchmark
"""

from __future__ import annotations

import importlib.util
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Contender, bundled_vocabulary, documents, race, table
from optimizer_prompts import PADDING, QUESTION, benchmark_prompts, spec_example

QUESTIONS = 40
SETS = (
    *(("dev", name) for name in ("hotpotqa", "2wiki", "musique", "covidqa", "xquad_en")),
    *(("wide", name) for name in ("chroma_docs", "policyqa", "pycode", "jsquad_ja")),
)
DOCUMENTS, WORDS = (
    50,
    95,
)  # about 200 tokens each: the words are made up, and cost more tokens than a language's


def _contenders() -> list[Contender]:
    from rankbudget import PromptCompressor, TokenOptimizer

    optimizer, compressor = TokenOptimizer(), PromptCompressor()

    def example(seed: str) -> Callable[[], Any]:
        given = dict(spec_example().arguments)
        given["prompt"] = given["prompt"].replace("Report", f"Note {seed}")  # texts not counted before
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
    """Prints all of it; what needs the data of the quality benchmark only where that is."""
    bundled_vocabulary()
    contenders = _contenders()
    race(contenders, rounds=rounds, seed="optimizer")
    print(table("overhead, no model calls", contenders, base=contenders[0], describe=_describe))
    print(_savings())
    print(_ratios())
    folder = os.environ.get("QUALITY_DIR")
    print(
        _public(Path(folder)) if folder else "public questions: not run, QUALITY_DIR must name their folder"
    )


def _public(folder: Path) -> str:
    """Returns a table of `QUESTIONS` questions of each set, each with ten documents and with all of them."""
    spec = importlib.util.spec_from_file_location("score", folder / "score.py")
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    lines = [f"public questions, {QUESTIONS} of each set{'':14}tokens   saved   evidence   at equal tokens"]
    for split, name in SETS:
        rows = list(judge.load(split, name, full=True, data=str(folder)))
        random.Random(0).shuffle(rows)
        for most in (10, None):
            figures = [
                _judged(judge, question, _some(question, items, most)) for question, items in rows[:QUESTIONS]
            ]
            tokens, saved, left, equal = (sum(column) / len(figures) for column in zip(*figures, strict=True))
            kind = "all documents" if most is None else f"{most} documents"
            lines.append(f"  {name:<14}{kind:<28}{tokens:>8,.0f}{saved:>7.1f}%{left:>11.3f}{equal:>18.3f}")
    return "\n".join(lines)


def _some(question: dict[str, Any], items: list[dict[str, Any]], most: int | None) -> list[dict[str, Any]]:
    """Returns the documents with the evidence, among others up to `most`, in their order."""
    if most is None:
        return items
    gold = {piece["item"] for piece in question["gold"]}
    others = [item["id"] for item in items if item["id"] not in gold]
    random.Random(question["id"]).shuffle(others)
    chosen = gold | set(others[: max(0, most - len(gold))])
    return [item for item in items if item["id"] in chosen]


def _judged(judge: Any, question: dict[str, Any], items: list[dict[str, Any]]) -> tuple[float, ...]:
    """Returns tokens, percent saved, evidence left, and the evidence `fit_documents` keeps at equal tokens."""
    from rankbudget import TokenOptimizer, counter_for, fit_documents

    texts = {item["id"]: item["text"] for item in items}
    prompt = "Context:\n" + "\n\n".join(texts.values()) + f"\n\nQuestion: {question['query']}"
    made = TokenOptimizer().optimize(prompt)
    context = made.optimized_prompt.rpartition("Question:")[0]
    room = counter_for("o200k_base").count(context)
    equal = fit_documents(list(texts.values()), max_tokens=room, query=question["query"]).text
    gold = [piece.get("text") or texts[piece["item"]] for piece in question["gold"]]
    shares = [
        sum(judge.cover(text, *judge.shingles(kept)) for text in gold) / len(gold)
        for kept in (context, equal)
    ]
    return (float(made.original_tokens), made.savings_percent, *shares)


if __name__ == "__main__":
    main()
