"""fit_documents in special cases: costs, orders, arguments and what a strategy must not do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for, fit_documents, fit_messages
from rankbudget.conversation.next_call import Said, values_of
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.relevance.lexical import Bm25Scorer
from rankbudget.relevance.sentences import MOST, split_sentences
from rankbudget.testing import WordCounter
from tests.drawing import draws

O200K = counter_for("o200k_base")


def test_a_cost_with_wrapping_holds() -> None:
    """With a cost of one's own, wrapping included, the sum of costs stays within the bound."""

    def cost(segment: Segment, text: str) -> int:
        return O200K.count(f"<document source={segment.id!r}>\n{text}\n</document>\n")

    texts = [f"Sentence {i} one. Sentence {i} two about tea. Sentence {i} three." for i in range(12)]
    result = fit_documents(texts, max_tokens=90, query="tea 7", cost=cost)
    assert 0 < sum(cost(s, s.text) for s in result.segments) == result.report.total_tokens <= 90


def test_everything_that_fits_comes_back_untouched() -> None:
    """With room for all, all come back: the same objects, in order; an empty list gives an empty result."""
    segments = [Segment(id=str(i), text=f"text {i}") for i in range(4)]
    result = fit_documents(segments, max_tokens=100, query="q")
    assert all(a is b for a, b in zip(result.segments, segments, strict=True))
    assert fit_documents([], max_tokens=10, query="q").segments == ()
    assert fit_documents(["a b c"], max_tokens=0, query="q").text == ""


def test_bad_arguments() -> None:
    """Negative room, a text for a list, repeated ids and unknown orders are typed errors."""
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be .*got -1"):
        fit_documents(["a"], max_tokens=-1, query="q")
    with pytest.raises(BudgetConfigError, match="list"):
        fit_documents("a", max_tokens=1, query="q")
    with pytest.raises(BudgetConfigError, match=r"\['a'\]"):
        fit_documents([Segment(id="a", text="x"), Segment(id="a", text="y")], max_tokens=5, query="q")
    with pytest.raises(BudgetConfigError, match="original, edges, score"):
        fit_documents(["a"], max_tokens=5, query="q", order="random")  # type: ignore[arg-type]
    with pytest.raises(BudgetExceededError, match="unpin"):
        fit_documents([Segment(id="p", text="one two three", pinned=True)], max_tokens=1, query="q")


def test_many_sentences_stay_quick_to_pack() -> None:
    """Sixty thousand tiny sentences are counted once each at most, not once per round."""
    counted = 0

    class Recording(WordCounter):
        def count(self, text: str) -> int:
            nonlocal counted
            counted += 1
            return super().count(text)

    fit_documents(
        [". " * 30_000, "a plain document"],
        max_tokens=20,
        query="plain document",
        counter=Recording(),
        scorer=Bm25Scorer(),
    )
    assert counted < 120_000


def call(name: str, arguments: str, number: int) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        ],
    }


def test_a_query_keeps_what_the_next_call_needs() -> None:
    """With a query, an early turn that holds the user's id outlives newer small talk, call and result stay together."""
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "I am mia_li_3668."},
        call("get_user", '{"user_id": "mia_li_3668"}', 1),
        {"role": "tool", "tool_call_id": "c1", "content": '{"payment": "card_77", "user_id": "mia_li_3668"}'},
        {"role": "assistant", "content": "Hello Mia."},
    ]
    for _ in range(12):
        chat += [
            {
                "role": "user",
                "content": f"Tell me more, please, about the weather and the sea {'and so on ' * 3}",
            },
            {"role": "assistant", "content": "It is mild and " * 6},
        ]
    chat.append({"role": "user", "content": "Book it with my card."})
    plain = fit_messages(chat, max_tokens=150)
    asked = fit_messages(chat, max_tokens=150, query="Book it with my card.")
    assert chat[1] not in plain.messages
    assert [m for m in asked.messages if m in chat[:3]] == chat[:3]
    assert asked.messages[-1] is chat[-1]
    assert asked.report.total_tokens <= 150
    assert [chat.index(m) for m in asked.messages] == sorted(chat.index(m) for m in asked.messages)


def test_a_query_keeps_relevant_turns_of_a_plain_chat() -> None:
    """Without tools, half of the room stays with the newest turns and the rest goes to what the query is about."""
    chat = [
        {"role": ("user", "assistant")[i % 2], "content": f"line {i} about gardens and roses and soil"}
        for i in range(80)
    ]
    chat[10] = {"role": "user", "content": "My ferry to Dover leaves at seven."}
    chat.append({"role": "user", "content": "When does my ferry leave?"})
    asked = fit_messages(chat, max_tokens=200, query="When does my ferry leave?")
    assert chat[10] in asked.messages
    assert asked.messages[-4:] == chat[-4:]
    assert asked.report.total_tokens <= 200


def test_values_are_read_from_calls_results_and_words() -> None:
    """Arguments of calls and words that look like codes are values; prose is not."""
    found = values_of(
        [
            Said("see HAT136 on 2024-05-20, thanks", ['{"cabin": "economy"}']),
            Said("economy is fine"),
        ]
    )
    assert {"HAT136", "2024-05-20", "economy"} <= found.keys()
    assert not {"see", "thanks", "fine"} & found.keys()
    assert found["economy"].units == {0, 1}


def test_a_function_stays_with_its_body() -> None:
    """Of Python source whole functions stay, with the lines of their signature and of their body."""
    functions = [
        "def load(\n    path: str,\n) -> Rows:\n    with open(path) as file:\n        return parse(file)\n",
        "def save(self, key):\n    self.rows[key] = 1\n\n    self.flush()\n",
        "async def close(self):\n    # Ends it. Waits. Then goes.\n    await self.flush()\n",
    ]
    source = "\n\n".join(functions)
    for question, function in (("load a path", functions[0]), ("save a key", functions[1])):
        limit = O200K.count(function) + 2
        assert function.strip() in fit_documents([source], max_tokens=limit, query=question).text
    assert split_sentences(source) == (f"{functions[0]}\n\n", f"{functions[1]}\n\n", functions[2])


SENTENCES = st.lists(st.integers(2, 40), min_size=1, max_size=5)


@draws()
@given(st.lists(SENTENCES, min_size=2, max_size=6), st.integers(5, 150))
def test_a_dropped_document_says_why_free_tokens_are_not_used(lengths: list[list[int]], limit: int) -> None:
    """The reason is its own sentence without room, or a text before it that is not whole either."""
    texts = [
        " ".join(f"River{i} bridge{n}{' stone' * (words - 2)}." for n, words in enumerate(row))
        for i, row in enumerate(lengths)
    ]
    fitted = fit_documents(texts, max_tokens=limit, query="river3 bridge1 stone", counter=WordCounter())
    decided = {d.segment_id: d for d in fitted.report.decisions}
    for decision in decided.values():
        if decision.action == "trimmed" and decision.reason != "duplicate":
            own = decision.detail == "Its best sentence or a start of it has no room."
            named = decision.detail.removeprefix("It ranks behind text of ").partition(" that has no room: ")[
                0
            ]
            assert own or decided[named.strip("'")].action != "kept", decision


LINES = {
    "lines": ("The {} of hall {} was read {} times.", "\n"),
    "prose": ("The {} of hall {} was read {} times.", " "),
    "rows": ("{},hall {},{}", "\n"),
    "records": ('{{"part": "{}", "hall": {}, "reads": {}}},', " "),
}
"""A line of a long document and what is between two of them."""


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("share", [0.5, 0.9, 1.0])
def test_the_answer_stays_wherever_it_is_in_a_very_long_document(kind: str, share: float) -> None:
    """Behind the sentences that are told apart, too; what is kept of the document is more than that line."""
    form, between = LINES[kind]
    parts = ("valve", "pump", "belt", "motor")
    lines = [form.format(parts[n % 4], n * 7919 % 9973, n) for n in range(MOST * 6 // 5)]
    lines.insert(int(len(lines) * share), form.format("QX-4471", "blue", 5))
    made = fit_documents(
        [between.join(lines)], max_tokens=800, query="How often was QX-4471 read?", counter=WordCounter()
    )
    assert lines[int((len(lines) - 1) * share)] in made.text
    assert made.report.total_tokens > 400
