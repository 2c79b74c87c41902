"""TokenBudget: arithmetic, validation, presets, plain data."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from rankbudget.budget.token_budget import DEFAULT_RANKS, TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetError, BudgetExceededError
from rankbudget.budget.five_blocks import FIVE_BLOCKS


def refused(**fields):
    with pytest.raises(BudgetConfigError) as caught:
        TokenBudget(**fields)
    return str(caught.value)


def test_the_specified_example_is_exact():
    """At 32,768 tokens and a system prompt of 300 the reserve is 9,740 and 22,728 are shared 3 to 4."""
    budget = TokenBudget(context_window=32_768)
    assert budget.reserve_tokens(300) == 9_740
    assert budget.room(fixed=300) == 32_768 - 9_740 - 300 == 22_728
    assert (int(22_728 * budget.share_of("memory")), int(22_728 * budget.share_of("history"))) == (
        9_740,
        12_987,
    )


def test_a_reserve_above_one_is_tokens():
    """A reserve of 2,000 in a window of 8,192 leaves 6,192."""
    assert TokenBudget(context_window=8192, reserve=2000, safety=0).available == 6192


@pytest.mark.parametrize(
    ("ratio", "window", "tokens"),
    [(0.29, 100, 29), (0.57, 100, 57), (0.3, 10, 3), (0.07, 100, 7), (0.3, 1, 0)],
)
def test_shares_are_floored_without_float_error(ratio, window, tokens):
    """A reserve of 29 % of 100 is 29, although 100 * 0.29 is 28.999... in floats."""
    assert (
        TokenBudget(context_window=window, reserve=ratio, ratios={"history": 1 - ratio}).reserve_tokens()
        == tokens
    )


def test_the_largest_answer_caps_a_share_but_not_tokens():
    """A model that answers with at most 4,096 tokens needs no larger share; a reserve given in tokens is taken at its word."""
    assert TokenBudget(context_window=32_768, max_output=4_096).reserve_tokens(300) == 4_096
    assert TokenBudget(context_window=32_768, max_output=4_096, reserve=6_000).reserve_tokens(300) == 6_000
    assert TokenBudget(context_window=1_000, max_output=4_096).reserve_tokens(0) == 300


def test_a_system_prompt_beyond_the_window_leaves_no_negative_reserve():
    """The share of what is left is never negative."""
    assert TokenBudget(context_window=100).reserve_tokens(500) == 0


def test_room_says_by_how_much_fixed_content_is_too_large():
    """What always stays and does not fit is a typed error with limit, need and place."""
    with pytest.raises(
        BudgetExceededError, match=r"needs 7,000 tokens \(500 of them the system prompt\), allowed: 6,192"
    ) as caught:
        TokenBudget(context_window=8192, reserve=2000).room(fixed=7_000, system_tokens=500)
    assert (caught.value.limit, caught.value.needed, caught.value.blocks) == (
        6_192,
        7_000,
        {"system": 500, "other": 6_500},
    )


def test_fixed_content_may_fill_the_limit_exactly():
    """Room is 0, not an error, when what always stays fills the limit."""
    assert TokenBudget(context_window=8192, reserve=2000).room(fixed=6_192) == 0


def test_the_reserve_is_a_share_of_the_window_without_the_system_prompt_only():
    """Tools and question do not make the reserve smaller."""
    assert TokenBudget(context_window=1_100).room(fixed=400, system_tokens=100) == 1_100 - 300 - 400


@pytest.mark.parametrize(("safety", "tokens"), [(0, 0), (192, 192), (0.02, 163), (None, 0)])
def test_safety_is_tokens_or_a_share_of_the_window(safety, tokens):
    """192 is tokens, 0.02 is 2 % of the window, and an exact counter needs none."""
    assert TokenBudget(context_window=8192, safety=safety).safety_tokens() == tokens


@given(window=st.integers(1, 200_000), band=st.floats(0, 2), system=st.integers(0, 1000))
def test_the_counters_band_keeps_the_true_count_in_the_window(window, band, system):
    """However wrong a counter is inside its band, a prompt at the limit leaves the reserve free."""
    budget = TokenBudget(context_window=window)
    limit = budget.limit(system_tokens=system, band=band)
    assert math.ceil(round(limit * (1 + round(band, 9)), 6)) <= window - budget.reserve_tokens(system)


def test_an_explicit_safety_replaces_the_band():
    """Who names the safety decides it."""
    assert TokenBudget(context_window=1_000, reserve=100, safety=50).limit(band=0.5) == 850


def test_system_over_a_quarter_of_the_window_is_an_error():
    """2,048 of 8,192 is allowed, 2,049 is not, and None allows any."""
    budget = TokenBudget(context_window=8192)
    budget.check_system(2_048)
    with pytest.raises(
        BudgetExceededError,
        match=r"the system prompt has 2,049 tokens, allowed: 2,048 tokens, 25% of the window of 8,192",
    ):
        budget.check_system(2_049)
    budget.replace(max_system_ratio=None).check_system(8_000)


def test_a_system_size_is_a_ceiling():
    """A five-block budget refuses a system prompt above its 500 tokens."""
    with pytest.raises(BudgetExceededError, match=r"501 tokens, allowed: its size of 500 tokens") as caught:
        TokenBudget.five_blocks("gpt-4").check_system(501)
    assert caught.value.limit == 500


def test_default_ranks_cut_knowledge_then_history_then_task():
    """The order of cutting is knowledge, examples, history, memory, task, project; system and query last."""
    budget = TokenBudget()
    order = sorted(DEFAULT_RANKS, key=budget.rank_of, reverse=True)
    assert order == ["knowledge", "examples", "history", "memory", "task", "project", "system", "query"]


def test_rank_one_is_cut_last():
    """A smaller rank is more important, in the numbers and in the words."""
    assert TokenBudget().rank_of("system") == 1 < TokenBudget().rank_of("knowledge") == 7


def test_the_rag_preset_swaps_history_and_knowledge():
    """Where the facts answer the question, history is cut first."""
    rag = TokenBudget(preset="rag")
    assert (rag.rank_of("knowledge"), rag.rank_of("history")) == (5, 7)
    assert rag.rank_of("examples") == 6


def test_given_ranks_come_before_presets_and_unknown_blocks_are_cut_with_the_knowledge():
    """A user's rank wins; a block nobody ranked is cut first."""
    budget = TokenBudget(preset="rag", ranks={"history": 2})
    assert (budget.rank_of("history"), budget.rank_of("mood")) == (2, 7)


# ---- validation ------------------------------------------------------------------------------------------------------------------
def test_ratios_that_do_not_sum_show_their_sum_and_terms():
    """The message carries the sum, every term and the allowed band."""
    message = refused(ratios={"memory": 0.5, "history": 0.6})
    assert (
        message
        == "ratios and reserve sum to 1.4 (memory 0.5 + history 0.6 + reserve 0.3), allowed: 0.95 to 1.05"
    )


@pytest.mark.parametrize(
    "ratios",
    [{"memory": 0.25, "history": 0.40}, {"memory": 0.35, "history": 0.40}, {"memory": 0.3, "history": 0.4}],
)
def test_sums_from_095_to_105_are_normalised(ratios):
    """Both ends of the band are allowed, and shares are always shares of 1."""
    budget = TokenBudget(ratios=ratios)
    assert budget.share_of("memory") + budget.share_of("history") == pytest.approx(1)


@pytest.mark.parametrize("ratios", [{"memory": 0.24, "history": 0.40}, {"memory": 0.36, "history": 0.40}])
def test_sums_outside_the_band_are_refused(ratios):
    """0.94 and 1.06 are not 1."""
    assert "allowed: 0.95 to 1.05" in refused(ratios=ratios)


def test_a_reserve_in_tokens_leaves_the_ratios_free():
    """Beside tokens, ratios only need to be above 0 and at most about 1."""
    assert TokenBudget(reserve=1_000, ratios={"history": 0.2}).share_of("history") == 1
    assert "ratios sum to 1.5" in refused(reserve=1_000, ratios={"history": 0.8, "memory": 0.7})
    assert "ratios sum to 0 " in refused(reserve=1_000, ratios={"history": 0})


def test_reserve_may_be_named_among_the_ratios():
    """Profiles write the reserve beside the other ratios; two different reserves are an error."""
    assert TokenBudget(ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}).reserve == 0.2
    assert "reserve" not in TokenBudget(ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}).ratios
    assert "allowed: one of them" in refused(
        reserve=0.25, ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}
    )


def test_all_problems_come_in_one_message():
    """Four mistakes are four sentences of one error."""
    message = refused(context_window=0, reserve=-1, surplus="share", min_exchanges=-3)
    assert message.split("; ") == [
        "context_window is 0, allowed: a whole number from 1",
        "reserve is -1, allowed: tokens above 1, or a share from 0 to 1",
        "min_exchanges is -3, allowed: a whole number from 0",
        "surplus is 'share', allowed: 'waterfall', 'borrow', 'keep'",
    ]


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"context_window": -8192}, "context_window is -8192"),
        ({"context_window": "8192"}, "context_window is '8192'"),
        ({"context_window": 8192.0}, "context_window is 8192.0"),
        ({"context_window": True}, "context_window is True"),
        ({"context_window": None}, "context_window is None"),
        ({"reserve": math.nan}, "reserve is nan"),
        ({"reserve": math.inf}, "reserve is inf"),
        ({"reserve": "0.3"}, "reserve is '0.3'"),
        ({"reserve": True}, "reserve is True"),
        ({"reserve": 9_000}, "reserve is 9000, the whole window of 8,192"),
        ({"reserve": 8_192}, "reserve is 8192, the whole window of 8,192"),
        ({"reserve": 1.0, "ratios": {}}, "reserve is 1, the whole window of 8,192"),
        ({"reserve": 10**400}, "reserve is 1000"),
        ({"ratios": {"memory": -0.1, "history": 0.8}}, "ratio of 'memory' is -0.1"),
        ({"ratios": {"memory": 1.5}}, "ratio of 'memory' is 1.5"),
        ({"ratios": {"memory": math.nan}}, "ratio of 'memory' is nan"),
        ({"ratios": [0.3, 0.4]}, "ratios is [0.3, 0.4]"),
        ({"ratios": {3: 0.7}}, "ratios has the key 3"),
        ({"ratios": {"": 0.7}}, "ratios has the key ''"),
        ({"ratios": {"system": 0.1, "history": 0.6}}, "ratios name 'system'"),
        ({"sizes": {"project": -5}}, "size of 'project' is -5"),
        ({"sizes": {"project": 0.5}}, "size of 'project' is 0.5"),
        ({"sizes": {"memory": 500}}, "ratios and sizes both name 'memory'"),
        ({"sizes": {"reserve": 500}}, "sizes name 'reserve'"),
        ({"sizes": {"project": 6_000}}, "sizes, reserve and safety need 8,457 tokens, the window has 8,192"),
        ({"ranks": {"history": 0}}, "rank of 'history' is 0"),
        ({"safety": -0.1}, "safety is -0.1"),
        ({"safety": 8_000}, "leave nothing of the window"),
        ({"surplus": None}, "surplus is None"),
        ({"surplus": "keep", "ratios": {}}, "no block would get a token"),
        ({"preset": "agent"}, "preset is 'agent'"),
        ({"max_system_ratio": 0}, "max_system_ratio is 0"),
        ({"max_system_ratio": 1.5}, "max_system_ratio is 1.5"),
        ({"min_exchanges": 2.5}, "min_exchanges is 2.5"),
        ({"message_cap": 0}, "message_cap is 0"),
        ({"message_cap": 199}, "message_cap is 199, allowed: a whole number from 200, or None"),
        ({"max_output": -1}, "max_output is -1"),
        ({"model": 4}, "model is 4"),
    ],
)
def test_impossible_values_are_refused_with_what_was_seen(fields, seen):
    """Every value that cannot work is named with what was seen."""
    assert seen in refused(**fields)


def test_a_config_error_is_a_value_error_of_this_library():
    """Callers may catch ValueError or BudgetError."""
    assert issubclass(BudgetConfigError, BudgetError)
    assert issubclass(BudgetError, ValueError)


def test_messages_stay_short_for_huge_values():
    """A value of a million characters does not make a message of a million characters."""
    assert len(refused(surplus="x" * 1_000_000, ratios={"a" * 1_000_000: -1})) < 500


# ---- plain data -------------------------------------------------------------------------------------------------------------------
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
    with pytest.raises(BudgetConfigError, match=r"no field 'windw'; allowed: context_window, reserve"):
        TokenBudget().replace(windw=5)
    with pytest.raises(BudgetConfigError, match="a budget is 5"):
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
    with pytest.raises(ValidationError, match="context_window is -1"):
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


def test_five_blocks_take_the_table_of_the_models_window():
    """A 128K model gets the 128K table, and a model nobody knows the 8K one."""
    assert TokenBudget.five_blocks("gpt-4o").context_window == 128_000
    assert TokenBudget.five_blocks("nobody-knows-this-model").context_window == 8_192


def test_for_model_knows_window_and_largest_answer():
    """gpt-4o reads 128,000 tokens and answers with at most 16,384."""
    budget = TokenBudget.for_model("gpt-4o")
    assert (budget.context_window, budget.max_output, budget.model) == (128_000, 16_384, "gpt-4o")
    assert budget.reserve_tokens(1_000) == 16_384
    assert TokenBudget.for_model("gpt-4o", reserve=500).reserve_tokens() == 500


def test_an_unknown_model_is_an_error_unless_a_window_is_given():
    """The way out is in the call: a default, or the window itself."""
    with pytest.raises(ImportError, match="nobody-knows-this-model"):
        TokenBudget.for_model("nobody-knows-this-model")
    assert TokenBudget.for_model("nobody-knows-this-model", default=8192).context_window == 8192
    assert TokenBudget.for_model("nobody-knows-this-model", context_window=999, reserve=99).available == 900


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
        assert "the whole window" in refused(context_window=window, reserve=reserve, ratios=ratios)
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
