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
