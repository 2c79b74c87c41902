"""TokenBudget: arithmetic, validation, presets, plain data."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.budget.arithmetic import DEFAULT_RANKS
from rankbudget.budget.token_budget import TokenBudget
from rankbudget.errors import BudgetConfigError, BudgetError, BudgetExceededError, CounterUnavailableError


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
        BudgetExceededError, match=r"at most 6,192 tokens .* \(got 7,000, 500 of them the system prompt\)"
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
        match=r"the system prompt must have at most 2,048 tokens, 25% of the window of 8,192 \(got 2,049\)",
    ):
        budget.check_system(2_049)
    budget.replace(max_system_ratio=None).check_system(8_000)


def test_a_system_size_is_a_ceiling():
    """A five-block budget refuses a system prompt above its 500 tokens."""
    with pytest.raises(BudgetExceededError, match=r"at most 500 tokens, its size \(got 501\)") as caught:
        TokenBudget.five_blocks("gpt-4").check_system(501)
    assert caught.value.limit == 500


def test_default_ranks_cut_knowledge_then_history_then_task():
    """The order of cutting is knowledge, examples, history, memory, task, then project and preferences; system and query last."""
    budget = TokenBudget()
    order = sorted(DEFAULT_RANKS, key=lambda name: (-budget.rank_of(name), name))
    assert order[:5] == ["knowledge", "examples", "history", "memory", "task"]
    assert order[5:] == ["preferences", "project", "query", "system"]


def test_rank_one_is_cut_last():
    """A smaller rank is more important, in the numbers and in the words."""
    assert TokenBudget().rank_of("system") == 1 < TokenBudget().rank_of("knowledge") == 7


def test_the_rag_preset_swaps_history_and_knowledge():
    """Where the facts answer the question, history is cut first."""
    rag = TokenBudget(preset="rag")
    assert (rag.rank_of("knowledge"), rag.rank_of("history")) == (5, 7)
    assert rag.rank_of("examples") == 6


def test_given_ranks_come_before_presets_and_unknown_blocks_are_cut_with_the_knowledge():
    """A user's rank wins; a block of another name has the rank that knowledge has."""
    budget = TokenBudget(preset="rag", ranks={"history": 2})
    assert (budget.rank_of("history"), budget.rank_of("mood")) == (2, 5)
    for made in (budget, TokenBudget(), TokenBudget(ranks={"documents": 3})):
        assert made.rank_of("mood") == made.rank_of("knowledge")


def test_a_budget_without_a_window_has_that_of_its_model():
    """Window and largest answer are those of `for_model`; an unknown model's are asked for, as by a YAML file."""
    for name in ("gpt-4o", "gpt-4", "gpt-3.5-turbo-instruct"):
        assert (
            TokenBudget(model=name) == TokenBudget.for_model(name) == TokenBudget.from_dict({"model": name})
        )
    assert TokenBudget(model="gpt-4o", context_window=900).max_output is None
    assert TokenBudget(context_window=None).context_window == TokenBudget().context_window == 8192
    with pytest.raises(CounterUnavailableError, match=r"got acme-ultra.*Give context_window="):
        TokenBudget(model="acme-ultra")
    assert TokenBudget(model="acme-ultra", context_window=900).context_window == 900


# ---- validation ------------------------------------------------------------------------------------------------------------------
def test_ratios_that_do_not_sum_show_their_sum_and_terms():
    """The message carries the sum, every term and the allowed band."""
    message = refused(ratios={"memory": 0.5, "history": 0.6})
    assert (
        message
        == "ratios and reserve must sum to 0.95 to 1.05 (got 1.4: memory 0.5 + history 0.6 + reserve 0.3)"
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
    assert "must sum to 0.95 to 1.05" in refused(ratios=ratios)


@pytest.mark.parametrize("reserve", [0.05, 0.2, 0.5, 0.9])
def test_any_share_may_be_kept_for_the_answer(reserve):
    """The usual ratios share what a reserve leaves, whatever it is; those of a user are checked beside it."""
    budget = TokenBudget(context_window=1000, reserve=reserve)
    assert budget.available == 1000 - int(1000 * reserve)
    assert budget.share_of("memory") == pytest.approx(3 / 7)
    assert TokenBudget(context_window=1000).replace(reserve=reserve) == budget
    assert "must sum to" in refused(reserve=0.2, ratios={"memory": 0.2, "history": 0.4})


def test_a_reserve_in_tokens_leaves_the_ratios_free():
    """Beside tokens, ratios only need to be above 0 and at most about 1."""
    assert TokenBudget(reserve=1_000, ratios={"history": 0.2}).share_of("history") == 1
    assert "(got 1.5: history 0.8 + memory 0.7)" in refused(
        reserve=1_000, ratios={"history": 0.8, "memory": 0.7}
    )
    assert "(got 0: history 0)" in refused(reserve=1_000, ratios={"history": 0})


def test_reserve_may_be_named_among_the_ratios():
    """Profiles write the reserve beside the other ratios; two different reserves are an error."""
    assert TokenBudget(ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}).reserve == 0.2
    assert "reserve" not in TokenBudget(ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}).ratios
    assert "reserve must be given once" in refused(
        reserve=0.25, ratios={"memory": 0.4, "history": 0.4, "reserve": 0.2}
    )


def test_all_problems_come_in_one_message():
    """Four mistakes are four sentences of one error."""
    message = refused(context_window=0, reserve=-1, surplus="share", min_exchanges=-3)
    assert message.split("; ") == [
        "context_window must be a whole number from 1 (got 0)",
        "reserve must be tokens above 1, or a share from 0 to 1 (got -1)",
        "min_exchanges must be a whole number from 0 (got -3)",
        "surplus must be one of 'waterfall', 'borrow', 'keep' (got 'share')",
    ]


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"context_window": -8192}, "context_window is -8192"),
        ({"context_window": "8192"}, "context_window is '8192'"),
        ({"context_window": 8192.0}, "context_window is 8192.0"),
        ({"context_window": True}, "context_window is True"),
        ({"reserve": math.nan}, "reserve is nan"),
        ({"reserve": math.inf}, "reserve is inf"),
        ({"reserve": "0.3"}, "reserve is '0.3'"),
        ({"reserve": True}, "reserve is True"),
        ({"reserve": 9_000}, "reserve is 9000"),
        ({"reserve": 8_192}, "reserve is 8192"),
        ({"reserve": 1.0, "ratios": {}}, "reserve is 1"),
        ({"reserve": 10**400}, "reserve is 1000"),
        ({"ratios": {"memory": -0.1, "history": 0.8}}, "ratio of 'memory' is -0.1"),
        ({"ratios": {"memory": 1.5}}, "ratio of 'memory' is 1.5"),
        ({"ratios": {"memory": math.nan}}, "ratio of 'memory' is nan"),
        ({"ratios": [0.3, 0.4]}, "ratios is [0.3, 0.4]"),
        ({"ratios": {3: 0.7}}, "ratios is 3"),
        ({"ratios": {"": 0.7}}, "ratios is ''"),
        ({"ratios": {"system": 0.1, "history": 0.6}}, "ratios must not name 'system'"),
        ({"sizes": {"project": -5}}, "size of 'project' is -5"),
        ({"sizes": {"project": 0.5}}, "size of 'project' is 0.5"),
        ({"sizes": {"memory": 500}}, "got both for 'memory'"),
        ({"sizes": {"reserve": 500}}, "sizes must not name 'reserve'"),
        ({"sizes": {"project": 6_000}}, "sizes, reserve and safety is 8,457"),
        ({"ranks": {"history": 0}}, "rank of 'history' is 0"),
        ({"safety": -0.1}, "safety is -0.1"),
        ({"safety": 8_000}, "reserve and safety is 0.3 and 8000"),
        ({"surplus": None}, "surplus is None"),
        ({"preset": "agent"}, "preset is 'agent'"),
        ({"max_system_ratio": 0}, "max_system_ratio is 0"),
        ({"max_system_ratio": 1.5}, "max_system_ratio is 1.5"),
        ({"min_exchanges": 2.5}, "min_exchanges is 2.5"),
        ({"message_cap": 0}, "message_cap is 0"),
        ({"message_cap": 199}, "message_cap is 199"),
        ({"max_output": -1}, "max_output is -1"),
        ({"model": 4}, "model is 4"),
    ],
)
def test_impossible_values_are_refused_with_what_was_seen(fields, seen):
    """Every value that cannot work is named with what was seen."""
    message = refused(**fields)
    what, _, value = seen.partition(" is ")
    assert what in message
    assert f"(got {value}" in message or not value


def test_a_config_error_is_a_value_error_of_this_library():
    """Callers may catch ValueError or BudgetError."""
    assert issubclass(BudgetConfigError, BudgetError)
    assert issubclass(BudgetError, ValueError)


def test_messages_stay_short_for_huge_values():
    """A value of a million characters does not make a message of a million characters."""
    assert len(refused(surplus="x" * 1_000_000, ratios={"a" * 1_000_000: -1})) < 500
