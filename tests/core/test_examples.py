"""Few-shot selection: relevance, diversity, labels, limits, and the objects that come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.optimizer.few_shot import FewShotSelector, example_text
from rankbudget.relevance.lexical import KeywordScorer
from rankbudget.testing import WordCounter

WORDS = WordCounter()
EXAMPLES = [
    {"input": "How do I reset my password?", "output": "Use the link below the sign-in form."},
    {"input": "I forgot my password, how do I reset it?", "output": "Use the link below the sign-in form."},
    {"input": "Where is my parcel?", "output": "Look at the tracking page."},
    {"input": "Can I pay by invoice?", "output": "Yes, within Europe."},
    {"input": "My account is locked after wrong passwords", "output": "An administrator unlocks it."},
]


def axis(*letters):
    """Returns an embedding with one axis a letter, whose cosines can be checked in the head."""
    return lambda texts: [[float(text.count(letter)) for letter in letters] for text in texts]


def test_the_most_relevant_come_first():
    """Examples about the question's subject are picked before others."""
    picked = FewShotSelector().select(
        "How can I reset a password?", EXAMPLES, max_examples=2, diversity_weight=0
    )
    assert {e["input"] for e in picked} == {EXAMPLES[0]["input"], EXAMPLES[1]["input"]}


def test_the_same_objects_come_back():
    """Nothing is copied and nothing is changed."""
    before = [dict(e) for e in EXAMPLES]
    picked = FewShotSelector().select("password", EXAMPLES)
    assert all(any(e is given_example for given_example in EXAMPLES) for e in picked)
    assert before == EXAMPLES


def test_diversity_prevents_near_doubles():
    """With a penalty the second pick is another subject, without one it is the double."""
    examples = [
        {"input": "aaab", "output": "1"},
        {"input": "aaab aaab", "output": "2"},
        {"input": "aac", "output": "3"},
    ]
    selector = FewShotSelector(axis("a", "b", "c"))
    assert [e["output"] for e in selector.select("aaaaab", examples, 2, 0.0)] == ["1", "2"]
    assert [e["output"] for e in selector.select("aaaaab", examples, 2, 1.0)] == ["1", "3"]


@given(count=st.integers(0, 12), limit=st.integers(0, 8), weight=st.sampled_from([0.0, 0.2, 1.0]))
def test_never_more_than_asked_for_and_none_twice(count, limit, weight):
    """The number is respected, each example stands once."""
    examples = [{"input": f"question {i} about topic {i % 3}", "output": str(i)} for i in range(count)]
    picked = FewShotSelector(KeywordScorer()).select("topic 1", examples, limit, weight)
    assert len(picked) == min(count, limit)
    assert len({id(e) for e in picked}) == len(picked)


@given(
    budget=st.integers(0, 120),
    join=st.sampled_from(["\n\n", "\n", " ", "", "\n---\n"]),
    weight=st.sampled_from([0.0, 0.2]),
    most=st.sampled_from([None, 1, 2, 4]),
    exact=st.booleans(),
)
def test_the_joined_text_of_the_picked_examples_fits(budget, join, weight, most, exact):
    """Counted as the prompt shows them, separators included, the picked examples fit, and no example left out would fit too."""
    counter = counter_for("o200k_base") if exact else WORDS
    render = lambda e: f"Q: {e['input']}\nA: {e['output']}"  # noqa: E731
    options = {"max_tokens": budget, "counter": counter, "render": render, "join": join}
    picked = FewShotSelector(KeywordScorer()).select("reset my password", EXAMPLES, most, weight, **options)
    texts = [render(e) for e in picked]
    assert not picked or counter.count(join.join(texts)) <= budget
    if len(picked) != most:
        for left in [e for e in EXAMPLES if e not in picked]:
            assert counter.count(join.join([*texts, render(left)])) > budget


def test_picking_is_the_same_each_time():
    """Equal calls pick equal examples, in one order, ties included."""
    twins = [{"input": "same words", "output": str(i)} for i in range(6)]
    picks = [
        FewShotSelector(KeywordScorer()).select("same", twins, None, max_tokens=12, counter=WORDS)
        for _ in range(3)
    ]
    assert picks[0] == picks[1] == picks[2] == twins[:2]


def test_an_example_too_long_is_skipped_not_the_end():
    """After one that does not fit a shorter one still gets its chance."""
    examples = [{"input": "reset password", "output": "word " * 40}, {"input": "reset", "output": "short"}]
    picked = FewShotSelector(KeywordScorer()).select(
        "reset password", examples, None, max_tokens=10, counter=WORDS
    )
    assert picked == [examples[1]]


def test_no_limit_takes_all():
    """Without a number and a budget every example comes back, best first."""
    picked = FewShotSelector().select("Where is my parcel?", EXAMPLES, None, 0.0)
    assert len(picked) == len(EXAMPLES)
    assert picked[0] is EXAMPLES[2]


def test_labels_are_rated_by_their_best_examples():
    """One lucky match of a wrong label does not beat a label with many good ones."""
    examples = [
        {"input": "card card card pay", "label": "lucky"},
        {"input": "sofa", "label": "lucky"},
        {"input": "lamp", "label": "lucky"},
        {"input": "card pay lost", "label": "card"},
        {"input": "card pay stolen", "label": "card"},
        {"input": "card pay gone", "label": "card"},
    ]
    picked = FewShotSelector(KeywordScorer()).select("card pay card", examples, 3, 0.0)
    assert [e["label"] for e in picked] == ["card", "card", "card"]


def test_tokens_buy_the_most_examples_of_the_likely_label():
    """With tokens as the only limit, short examples of the likely label come before one long example that matches best."""
    examples = [
        {
            "input": "my card is lost and I do not know where I lost my card or who has my lost card",
            "label": "lost",
        },
        {"input": "lost my card", "label": "lost"},
        {"input": "card lost", "label": "lost"},
        {"input": "rate of the euro", "label": "rate"},
        {"input": "euro rate", "label": "rate"},
    ]
    picked = FewShotSelector().select(
        "where is my lost card", examples, None, max_tokens=12, cost=lambda e: len(e["input"].split())
    )
    assert picked[:2] == [examples[2], examples[1]]
    assert examples[0] not in picked


def test_likeness_to_picked_examples_costs_labelled_ones_too():
    """Of two equally short examples of a label, the one that repeats a picked one word for word comes last."""
    examples = [
        {"input": "card lost", "label": "lost"},
        {"input": "card lost", "label": "lost"},
        {"input": "wallet gone", "label": "lost"},
        {"input": "euro rate", "label": "rate"},
        {"input": "dollar rate", "label": "rate"},
    ]
    words = {"max_tokens": 4, "cost": lambda e: len(e["input"].split())}
    assert FewShotSelector().select("card lost", examples, None, 1.0, **words) == [examples[0], examples[2]]
    assert FewShotSelector().select("card lost", examples, None, 0.0, **words) == examples[:2]


def test_short_outputs_that_recur_are_labels():
    """Classes are recognised without a label key; answers that stand once are not classes."""
    classes = [{"input": f"parcel {i}", "output": "shipping"} for i in range(3)] + [
        {"input": f"money {i}", "output": "refund"} for i in range(3)
    ]
    selector = FewShotSelector(KeywordScorer())
    assert [e["output"] for e in selector.select("parcel", classes, 3, 0.0)] == ["shipping"] * 3
    words = KeywordScorer().score("reset my password", [Segment(id="x", text=e["input"]) for e in EXAMPLES])
    ranked = sorted(range(len(EXAMPLES)), key=lambda i: -words[i])
    assert selector.select("reset my password", EXAMPLES, None, 0.0) == [EXAMPLES[i] for i in ranked]


@pytest.mark.parametrize("name", ["embed_documents", "get_text_embedding_batch", "embed"])
def test_embedding_engines_of_hosts_plug_in(name):
    """Objects with a host's embedding method are used through it."""
    engine = type("Engine", (), {name: staticmethod(axis("a", "b"))})()
    picked = FewShotSelector(engine).select("aa", [{"input": "b"}, {"input": "a"}], 1)
    assert picked == [{"input": "a"}]


def test_nothing_to_choose_from():
    """No examples, or none wanted, is an empty list."""
    assert FewShotSelector().select("q", []) == []
    assert FewShotSelector().select("q", EXAMPLES, 0) == []


def test_wrong_arguments_are_named_together():
    """Every problem of a call is in one error."""
    with pytest.raises(
        BudgetConfigError, match=r"max_examples .*got -1.*max_tokens .*got -5.*diversity_weight .*got 2"
    ):
        FewShotSelector().select("q", EXAMPLES, -1, 2, max_tokens=-5)
    with pytest.raises(BudgetConfigError, match=r"embedding_engine must be .*got int"):
        FewShotSelector(7)


def test_counts_are_real_by_default():
    """Without a counter the budget is counted in o200k tokens."""
    budget = counter_for("o200k_base").count(example_text(EXAMPLES[2]))
    assert FewShotSelector().select("Where is my parcel?", EXAMPLES, 1, max_tokens=budget) == [EXAMPLES[2]]
    assert FewShotSelector().select("Where is my parcel?", EXAMPLES[2:3], 1, max_tokens=budget - 1) == []
