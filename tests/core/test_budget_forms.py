"""TokenBudget: plain data, pydantic, the five-block form, budgets of models."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from rankbudget.budget.allocation import demand_for
from rankbudget.budget.context_windows import FIVE_BLOCKS
from rankbudget.budget.token_budget import TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetExceededError
from rankbudget.prompt.assembler import Assembler

BUDGETS = [
    TokenBudget(),
    TokenBudget(context_window=1),
    TokenBudget(
        preset="rag",
        surplus="borrow",
        safety=0.02,
        ranks={"mood": 2},
        sizes={"project": 300},
        max_system_ratio=None,
        message_cap=None,
    ),
    TokenBudget.five_blocks("gpt-4"),
]


@pytest.mark.parametrize("budget", BUDGETS)
def test_a_budget_survives_json_pickle_and_copy(budget):
    """Every way of moving a budget gives an equal one with an equal hash."""
    for moved in (
        TokenBudget.from_dict(json.loads(json.dumps(budget.to_dict()))),
        pickle.loads(pickle.dumps(budget)),
        copy.deepcopy(budget),
        copy.copy(budget),
        budget.replace(),
    ):
        assert moved == budget
        assert hash(moved) == hash(budget)


def test_a_budget_cannot_change():
    """Neither its fields nor its mappings can be set, and the caller's dict is not its dict."""
    ratios = {"memory": 0.3, "history": 0.4}
    budget = TokenBudget(ratios=ratios)
    ratios["memory"] = 0.9
    assert budget.ratios["memory"] == 0.3
    with pytest.raises(dataclasses.FrozenInstanceError):
        budget.reserve = 0.5
    for change in (
        lambda: budget.ratios.update(memory=1),
        lambda: budget.ratios.__setitem__("x", 1),
        budget.ranks.clear,
    ):
        with pytest.raises(TypeError, match=r"budget.replace"):
            change()


def test_replace_and_from_dict_refuse_unknown_fields():
    """A slip in a field's name shows the names that exist."""
    with pytest.raises(BudgetConfigError, match="no option 'windw'; allowed: context_window, reserve"):
        TokenBudget().replace(windw=5)
    with pytest.raises(BudgetConfigError, match=r"budget must be a mapping.*got 5"):
        TokenBudget.from_dict(5)


def test_equal_budgets_are_one_key():
    """A budget can key a cache; the order of its ratios does not matter."""
    one, two = (
        TokenBudget(ratios={"memory": 0.3, "history": 0.4}),
        TokenBudget(ratios={"history": 0.4, "memory": 0.3}),
    )
    assert {one: "x"}[two] == "x"


class Settings(BaseModel):
    budget: TokenBudget


def test_a_budget_is_a_pydantic_field_and_plain_data_on_the_wire():
    """Instances and mappings are accepted, dumps are plain, a wrong mapping is a validation error."""
    settings = Settings(budget={"context_window": 4096, "reserve": 500})
    assert settings.budget.available == 3596
    assert Settings.model_validate_json(settings.model_dump_json()) == settings
    assert settings.model_dump()["budget"] == settings.budget.to_dict()
    assert Settings(budget=settings.budget).budget is settings.budget
    assert Settings.model_json_schema()["properties"]["budget"]["title"] == "TokenBudget"
    with pytest.raises(ValidationError, match=r"context_window must be .*got -1"):
        Settings(budget={"context_window": -1})
    with pytest.raises(ValidationError, match="instance of TokenBudget"):
        Settings(budget=5)


# ---- presets ----------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("model", "total", "window", "system"),
    [
        ("gpt-3.5-turbo", 4_000, 4_096, 300),
        ("gpt-4", 8_192, 8_192, 500),
        ("gpt-4-turbo", 29_000, 128_000, 1_000),
        ("claude-3-opus", 29_000, 128_000, 1_000),
    ],
)
def test_five_blocks_are_the_specified_tables(model, total, window, system):
    """The grand totals are 4,000, 8,192 and 29,000 tokens."""
    budget = TokenBudget.five_blocks(model)
    assert (budget.grand_total, budget.context_window, budget.sizes["system"], budget.surplus) == (
        total,
        window,
        system,
        "waterfall",
    )
    assert budget.blocks_total == total - budget.reserve - budget.safety - budget.sizes["query"]


def test_the_8k_table_is_the_one_drawn_in_the_specification():
    """500 + 1,000 + 500 + 1,000 + 2,000 blocks, 1,000 question, 2,000 answer, 192 safety."""
    budget = TokenBudget.five_blocks("gpt-4")
    assert dict(budget.sizes) == {
        "system": 500,
        "project": 1000,
        "task": 500,
        "history": 1000,
        "knowledge": 2000,
        "query": 1000,
    }
    assert (budget.blocks_total, budget.reserve, budget.safety) == (5000, 2000, 192)
    assert set(FIVE_BLOCKS) == {"4K", "8K", "128K"}


def test_blocks_by_keyword_are_the_specified_budget():
    """The specification's own eight numbers make its 8K budget, and that of `five_blocks` but for the model's name."""
    budget = TokenBudget.of_blocks(
        system=500,
        project=1000,
        task=500,
        history=1000,
        knowledge=2000,
        user_query=1000,
        response=2000,
        safety_buffer=192,
    )
    assert (budget.blocks_total, budget.grand_total, budget.context_window) == (5_000, 8_192, 8_192)
    assert budget.replace(model="gpt-4") == TokenBudget.five_blocks("gpt-4")


def test_the_size_of_the_system_block_is_its_limit():
    """Where it is more than a quarter of a small window, too; without a size the quarter holds."""
    budget = TokenBudget.of_blocks(system=500, history=500, response=200)
    budget.check_system(500)
    with pytest.raises(BudgetExceededError, match="at most 500 tokens, its size"):
        budget.check_system(501)
    with pytest.raises(BudgetExceededError, match="25% of the window of 700"):
        TokenBudget.of_blocks(history=500, response=200).check_system(176)


def test_blocks_by_keyword_take_other_fields_and_other_blocks():
    """A larger window leaves a rest that flows down the ranks; a block of 0 tokens has no size."""
    budget = TokenBudget.of_blocks(
        history=1000, response=500, sizes={"memory": 300}, context_window=4096, surplus="keep", last_turns=4
    )
    assert (dict(budget.sizes), budget.reserve, budget.safety) == ({"history": 1000, "memory": 300}, 500, 0)
    assert (budget.context_window, budget.surplus, budget.last_turns) == (4096, "keep", 4)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"history": 0.4, "response": -1}, r"history must be a whole number.*0\.4(.|\n)*response must be"),
        ({"histry": 100}, "has no option 'histry'"),
        ({}, "context_window must be a whole number from 1"),
        ({"history": 100, "context_window": 50}, "at most the window, 50"),
        ({"sizes": {"memory": "many"}}, "memory must be a whole number"),
    ],
)
def test_blocks_by_keyword_are_checked(given, words):
    """Shares, typing errors and sizes that do not fit are refused, each by its own name."""
    with pytest.raises(BudgetConfigError, match=words):
        TokenBudget.of_blocks(**given)


def test_five_blocks_take_the_table_of_the_models_window():
    """A 128K model gets the 128K table, and an unknown model the 8K one."""
    assert TokenBudget.five_blocks("gpt-4o").context_window == 128_000
    assert TokenBudget.five_blocks("unheard-of-model-name").context_window == 8_192


def test_for_model_knows_window_and_largest_answer():
    """gpt-4o reads 128,000 tokens and answers with at most 16,384."""
    budget = TokenBudget.for_model("gpt-4o")
    assert (budget.context_window, budget.max_output, budget.model) == (128_000, 16_384, "gpt-4o")
    assert budget.reserve_tokens(1_000) == 16_384
    assert TokenBudget.for_model("gpt-4o", reserve=500).reserve_tokens() == 500


def test_an_unknown_model_is_an_error_unless_a_window_is_given():
    """The way out is in the call: a default, or the window itself."""
    with pytest.raises(ImportError, match="unheard-of-model-name"):
        TokenBudget.for_model("unheard-of-model-name")
    assert TokenBudget.for_model("unheard-of-model-name", default=8192).context_window == 8192
    assert TokenBudget.for_model("unheard-of-model-name", context_window=999, reserve=99).available == 900


@given(
    window=st.integers(1, 10**6),
    reserve=st.one_of(st.floats(0, 0.9), st.integers(2, 10**6)),
    fixed=st.integers(0, 10**6),
)
def test_limit_reserve_and_safety_always_make_the_window(window, reserve, fixed):
    """Whatever is accepted, room + fixed + reserve + safety is the window to the token."""
    ratios = (
        {"memory": 0.4 * (1 - reserve), "history": 0.6 * (1 - reserve)}
        if reserve <= 1
        else {"memory": 0.3, "history": 0.4}
    )
    if reserve >= window:
        with pytest.raises(BudgetConfigError, match="reserve must leave room"):
            TokenBudget(context_window=window, reserve=reserve, ratios=ratios)
        return
    budget = TokenBudget(context_window=window, reserve=reserve, ratios=ratios)
    if fixed > budget.limit(system_tokens=fixed):
        with pytest.raises(BudgetExceededError):
            budget.room(fixed=fixed)
        return
    assert (
        budget.room(fixed=fixed)
        + fixed
        + budget.reserve_tokens(fixed)
        + budget.safety_tokens(system_tokens=fixed)
        == window
    )


LIMITS = {
    "ratios": lambda name: {"history": 0.2, name: 0.5},
    "sizes": lambda name: {name: 150},
    "ranks": lambda name: {name: 2},
}


@pytest.mark.parametrize("option", LIMITS)
@pytest.mark.parametrize("preset", [None, "rag"])
def test_documents_is_another_name_of_knowledge(option, preset, tmp_path):
    """In every form of a budget and for blocks of either name; a block has one limit."""
    named = LIMITS[option]
    own = {"context_window": 400, "reserve": 0.3, "preset": preset}
    budget = TokenBudget(**own, **{option: named("knowledge")})
    assert TokenBudget(**own, **{option: named("documents")}) == budget
    assert TokenBudget(**own).replace(**{option: named("documents")}) == budget
    written = tmp_path / "b.yaml"
    written.write_text(json.dumps({"llm": {**own, option: named("documents")}}))
    assert TokenBudget.from_file(written) == TokenBudget.from_dict({**own, option: named("knowledge")})
    one, other = (demand_for(budget, name, 500) for name in ("knowledge", "documents"))
    assert dataclasses.replace(other, name="knowledge") == one
    assert budget.share_of("documents") == budget.share_of("knowledge")
    twice = named("documents") | named("knowledge")
    for make in (lambda: TokenBudget(**own, **{option: twice}), lambda: TokenBudget.from_file(written)):
        written.write_text(json.dumps({"llm": {**own, option: twice}}))
        with pytest.raises(BudgetConfigError, match=r"'documents' and 'knowledge'"):
            make()


def test_a_share_that_no_block_of_the_prompt_has_is_warned_about():
    """With the nearest name; where the prompt is a conversation alone the budget may be another prompt's."""
    budget = TokenBudget(context_window=400, reserve=100, ratios={"history": 0.2, "docs": 0.8})
    warned = ("the budget names 'docs', which is no block of this prompt; did you mean 'documents'?",)
    chat = [{"role": "user", "content": "Is it red?"}]
    assemble = Assembler(budget).assemble
    assert assemble({"history": chat, "documents": ["It is red."]}).report.warnings == warned
    assert assemble({"history": chat, "docs": ["It is red."]}).report.warnings == ()
    assert assemble({"history": chat}).report.warnings == ()
