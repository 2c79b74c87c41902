"""Prompts whose documents, task and question are marked in different ways, or not at all."""

from __future__ import annotations

import pytest

from rankbudget import TokenOptimizer


@pytest.mark.parametrize(
    "task",
    [
        "",
        "You are a clerk. Answer in one word.\n\n",
        "You are a clerk.\nAnswer in one word.\nNever guess.\n\n",
        "Answer only what the pages say.\n- Be short.\n- Name the office.\n\n",
    ],
)
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


@pytest.mark.parametrize(
    "question", ["Which office should answer for parking?", "Based on the pages: where is parking handled?"]
)
def test_a_question_that_sounds_like_a_task_is_still_asked(question):
    """Its words rate the documents, first or last in the prompt."""
    texts = [
        f"{topic} is handled in office {i}." + " It is open all day." * 6 for i, topic in enumerate("abcdef")
    ]
    parking = "Parking is handled in office 9." + " It is open all day." * 6
    for parts in ([*texts, parking, question], [question, *texts, parking, question]):
        result = TokenOptimizer().optimize("\n\n".join(parts))
        assert parking in result.optimized_prompt
        assert result.optimized_prompt.endswith(question)


def test_numbered_questions_of_a_page_are_no_question_of_the_user():
    """A page of questions and answers is one of the documents."""
    page = "\n".join(f"Question {i}: Where is part {i}?\nIt is in hall {i}." for i in range(1, 9))
    result = TokenOptimizer().optimize(f"Document: {page}\n\nQuestion: In which hall is part 7?")
    assert "It is in hall 7." in result.optimized_prompt
    assert result.optimized_prompt.endswith("Question: In which hall is part 7?")


@pytest.mark.parametrize("fence", ["```", "~~~"])
@pytest.mark.parametrize("tail", [" ends a block", ""])
def test_a_fence_within_a_line_or_without_an_end_is_text(fence, tail):
    """Paragraphs behind it are still told apart, so that those that do not answer can go."""
    opening = f"A line of {fence} in the middle{tail}." if tail else f"{fence} is never closed here."
    texts = [
        f"Topic {i} is handled in office {i}. " + f"People ask about it {i} times. " * 6 for i in range(8)
    ]
    result = TokenOptimizer().optimize("\n\n".join([opening, *texts, "In which office is topic 5 handled?"]))
    assert result.savings_percent >= 15
    assert "Topic 5 is handled in office 5" in result.optimized_prompt


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
