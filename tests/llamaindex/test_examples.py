"""Few-shot examples in LlamaIndex prompts."""

from __future__ import annotations

import copy
import pickle

import pytest
from llama_index.core.prompts import PromptTemplate, RichPromptTemplate

from llamaindex_budget import OfflineEmbedding, few_shot_function
from rankbudget import TokenBudget, counter_for
from rankbudget.errors import BudgetConfigError
from rankbudget.testing import RecordingCounter
from tests.llamaindex.models import LetterEmbedding, words

EXAMPLES = [
    {"input": "Where is my parcel?", "output": "shipping"},
    {"input": "I want my money back", "output": "refund"},
    {"input": "The parcel is broken", "output": "damage"},
    {"input": f"Long one {words(80)}", "output": "other"},
]
COUNTER = counter_for("cl100k_base")


def test_it_fills_a_templates_variable() -> None:
    """Both template classes call it with the current variables and show what it picked."""
    pick = few_shot_function(EXAMPLES, max_examples=1)
    rich = RichPromptTemplate("{{ examples }}\nQ: {{ query_str }}", function_mappings={"examples": pick})
    plain = PromptTemplate("{examples}\nQ: {query_str}", function_mappings={"examples": pick})
    wanted = "input: Where is my parcel?\noutput: shipping\nQ: Where is the parcel?"
    assert (
        rich.format(query_str="Where is the parcel?")
        == plain.format(query_str="Where is the parcel?")
        == wanted
    )


def test_what_is_picked_is_within_its_tokens() -> None:
    """A large example that does not fit is skipped, smaller ones after it stay."""
    for limit in (0, 5, 15, 30, 60, 200):
        pick = few_shot_function(EXAMPLES, max_tokens=limit, max_examples=4, counter=COUNTER)
        assert COUNTER.count(pick(query_str="Long one about a parcel")) <= limit


@pytest.mark.parametrize("limit", [10, 25, 60, 1000])
def test_an_empty_query_takes_as_much_as_any_other(limit: int) -> None:
    """A prompt helper that measures the empty template sees at least what any question will take, and no more than allowed."""
    pick = few_shot_function(EXAMPLES, max_tokens=limit, max_examples=2, counter=COUNTER)
    largest = COUNTER.count(pick(query_str=""))
    assert largest <= limit
    assert all(
        COUNTER.count(pick(query_str=q)) <= largest
        for q in ("parcel", "money", "Long one word word", "broken")
    )


def test_one_question_is_worked_out_once() -> None:
    """The second format of one query counts nothing, and a copy of the prompt shares the function."""
    counter = RecordingCounter(COUNTER)
    pick = few_shot_function(EXAMPLES, counter=counter)
    template = RichPromptTemplate("{{ examples }} {{ query_str }}", function_mappings={"examples": pick})
    first = template.format(query_str="parcel")
    counted = counter.calls
    partial = template.partial_format(query_str="parcel")
    assert partial.format() == first
    assert counter.calls == counted
    assert copy.deepcopy(pick) is pick


def test_any_embedding_rates_the_examples() -> None:
    """A LlamaIndex embedding decides what is alike; the offline one knows meanings."""
    for model in (LetterEmbedding(), OfflineEmbedding()):
        assert "money" in few_shot_function(EXAMPLES, max_examples=1, embed_model=model)(
            query_str="I want my money back now"
        )


def test_a_budget_sets_the_share() -> None:
    """Without max_tokens the examples take their size or share of a budget."""
    assert (
        few_shot_function(
            EXAMPLES,
            budget=TokenBudget(context_window=2000, reserve=1000, ratios={"memory": 0.5, "history": 0.5}),
        ).max_tokens
        == 500
    )
    assert few_shot_function(EXAMPLES, budget=TokenBudget(sizes={"examples": 77})).max_tokens == 77
    with pytest.raises(BudgetConfigError, match=r"max_tokens must be a whole number from 0 \(got -1\)"):
        few_shot_function(EXAMPLES, max_tokens=-1)


def test_a_copy_by_pickle_answers_alike() -> None:
    """Synthesizers that ask about each node pickle the variables of a rich template."""
    pick = few_shot_function(
        [{"input": "2+2", "output": "4"}, {"input": "France", "output": "Paris"}], max_examples=1
    )
    assert pickle.loads(pickle.dumps(pick))(query_str="3+3") == pick(query_str="3+3")
