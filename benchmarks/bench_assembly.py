"""Whole prompts: a system prompt, 200 messages and 50 documents (about 12,000 and 16,000 tokens) into a window of 8,192.

cold   the tokenizer and the embedding are loaded, no text of this conversation was counted or embedded before
known  cold, but the documents' vectors are cached, as where the same documents were ranked for another conversation
again  the same call once more, no session: counts, vectors and ratings are in the caches
warm   the same conversation plus two messages, and the same documents, in a session
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness import Contender, bundled_vocabulary, chat, documents, race, table

MESSAGES, DOCUMENTS, WINDOW = 200, 50, 8_192
NEW = (
    {"role": "assistant", "content": "A new answer that nobody has counted."},
    {"role": "user", "content": "And a new question?"},
)


def _blocks(seed: str) -> dict[str, Any]:
    conversation = chat(MESSAGES, seed)
    return {
        "system": conversation[0]["content"],
        "history": conversation[1:],
        "knowledge": documents(DOCUMENTS, seed),
    }


def _question(blocks: dict[str, Any]) -> str:
    return " ".join(
        blocks["knowledge"][7].split()[3:12]
    )  # words of one document: a question that has an answer


def _contenders() -> list[Contender]:
    from rankbudget import Assembler, BudgetSession, TokenBudget

    budget = TokenBudget(context_window=WINDOW, reserve=1_000)

    def cold(seed: str) -> Callable[[], Any]:
        blocks, assembler = _blocks(seed), Assembler(budget, counter="o200k_base")
        question = _question(blocks)
        return lambda: assembler.assemble(blocks, query=question)

    def known(seed: str) -> Callable[[], Any]:
        from rankbudget.relevance.embedding import default_embedder

        call = cold(seed)
        default_embedder().vectors(tuple(documents(DOCUMENTS, seed)))
        return call

    def again(seed: str) -> Callable[[], Any]:
        blocks, assembler = _blocks(seed), Assembler(budget, counter="o200k_base")
        question = _question(blocks)
        assembler.assemble(blocks, query=question)
        return lambda: assembler.assemble(blocks, query=question)

    def warm(seed: str) -> Callable[[], Any]:
        blocks = _blocks(seed)
        question = _question(blocks)
        assembler = Assembler(
            budget, counter="o200k_base", session=BudgetSession(budget, counter="o200k_base")
        )
        assembler.assemble(blocks, query=question)
        blocks["history"] = [*blocks["history"], *(dict(message) for message in NEW)]
        return lambda: assembler.assemble(blocks, query=question)

    return [
        Contender("cold", cold),
        Contender("known", known),
        Contender("again", again),
        Contender("warm", warm),
    ]


def main(*, rounds: int = 15) -> None:
    """Runs all of it and prints one table."""
    bundled_vocabulary()
    contenders = _contenders()
    race(contenders, rounds=rounds, seed="assembly")
    title = f"{MESSAGES} messages and {DOCUMENTS} documents into {WINDOW:,}"
    print(
        table(
            title,
            contenders,
            base=contenders[0],
            describe=lambda a: f"{a.report.total_tokens:,} of {a.report.limit:,} tokens",
        )
    )


if __name__ == "__main__":
    main()
