"""Prompts whose documents, task and question are marked in different ways, or not at all."""

from __future__ import annotations

import pytest

from rankbudget import TokenOptimizer


@pytest.mark.parametrize("task", ["", "You are a clerk. Answer in one word.\n\n"])
@pytest.mark.parametrize("asked", ["", "Question: "])
@pytest.mark.parametrize(
    "written",
    [
        lambda i, text: f"<document>\n{text}\n</document>",
        lambda i, text: f"Document {i}: {text}",
        lambda i, text: f"Source #{i}:\n{text}",
        lambda i, text: f"[{i}] {text}",
        lambda i, text: text,
    ],
)
def test_documents_are_found_however_they_are_written(written, asked, task):
    """A quarter of them goes, whatever stands around them; the one that answers, the task and the question stay."""
    topics = ["invoices", "tea", "tyres", "holidays", "parking", "printers", "bread", "mail"]
    texts = [
        f"{t} is handled in office {i}. " + f"People ask about {t} often. " * 5 for i, t in enumerate(topics)
    ]
    question = f"{asked}In which office is parking handled?"
    prompt = task + "\n\n".join([*(written(i, text) for i, text in enumerate(texts, 1)), question])
    result = TokenOptimizer().optimize(prompt)
    assert result.savings_percent >= 20
    assert result.optimized_prompt.startswith(task)
    assert result.optimized_prompt.endswith(question)
    assert "parking is handled in office 4" in result.optimized_prompt


def test_a_block_of_code_is_one_document():
    """What stands between fences goes or stays together."""
    code = "```python\nRATE = 7\n\ndef refund(days):\n    return days * RATE\n\ndef roses():\n    return 'red'\n```"
    result = TokenOptimizer().optimize(f"Code:\n\n{code}\n\nWhat does refund(3) return?")
    assert code in result.optimized_prompt


@pytest.mark.parametrize("age", [2, 6, 12])
def test_the_turn_that_answers_stays_however_old(age):
    """Only turns that share nothing with the question go."""
    turns = [("I live in Lyon and my order number is 4711.", "Thanks, noted.")]
    turns += [(f"Do you sell item {i}?", "Yes.") for i in range(age)]
    history = [
        {"role": role, "content": text}
        for turn in turns
        for role, text in zip(("user", "assistant"), turn, strict=True)
    ]
    result = TokenOptimizer().optimize("What is my order number?", history=history)
    assert "4711" in result.optimized_prompt
    assert result.savings_percent > 0
