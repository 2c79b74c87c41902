"""allocate: integers only, exact to the token, the laws of the three surplus rules."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget.budget.allocation import STEPS, Demand, allocate, demand_for, with_absent
from rankbudget.budget.token_budget import TokenBudget
from rankbudget.errors import BudgetConfigError
from rankbudget.segment import Block

HUNGRY = 10**9


def demand(name, wanted=HUNGRY, budget=None, **fields):
    """A demand with the default budget's rank and ratio."""
    return dataclasses.replace(demand_for(budget or TokenBudget(), name, wanted), **fields)


def grants(room, *demands, surplus="waterfall"):
    return dict(allocate(room, demands, surplus=surplus).grants)


@st.composite
def demands(draw, *, stable=True, minimums=True):
    """Up to seven blocks with ratios, sizes or neither, at ranks that may be equal."""
    names = draw(
        st.lists(
            st.sampled_from(["project", "task", "memory", "history", "examples", "knowledge", "mood"]),
            min_size=1,
            unique=True,
        )
    )
    made = []
    for name in names:
        form = draw(st.sampled_from(["ratio", "size", "neither"]))
        made.append(
            Demand(
                name=name,
                rank=draw(st.integers(1, 7)),
                wanted=draw(st.one_of(st.integers(0, 300), st.just(HUNGRY))),
                ratio=draw(st.sampled_from([0.0, 0.1, 0.25, 0.3, 0.4, 1 / 3])) if form == "ratio" else None,
                size=draw(st.integers(0, 200)) if form == "size" else None,
                minimum=draw(st.integers(0, 150)) if minimums and draw(st.booleans()) else 0,
                stable=stable and name == "history",
            )
        )
    return made


rooms = st.integers(0, 1_000)
rules = st.sampled_from(["waterfall", "borrow", "keep"])


# ---- examples -----------------------------------------------------------------------------------------------------------------------
def test_the_specified_example_is_exact():
    """32,768 - 9,740 - 300 shared 3 to 4 is 9,740 and 12,987; the rounded-off token is nobody's."""
    budget = TokenBudget(context_window=32_768)
    result = allocate(budget.room(fixed=300), [demand("memory"), demand("history")])
    assert (dict(result.grants), result.unused) == ({"memory": 9_740, "history": 12_987}, 1)
    assert budget.reserve_tokens(300) == 9_740


def test_a_wide_sum_of_ratios_is_normalised():
    """Ratios of 35 and 35 share a room of 100 in halves."""
    budget = TokenBudget(ratios={"memory": 0.35, "history": 0.35})
    assert grants(100, demand("memory", budget=budget), demand("history", budget=budget)) == {
        "memory": 50,
        "history": 50,
    }


def test_blocks_without_a_ratio_draw_from_the_memory_share_in_rank_order():
    """Of a memory share of 300, project takes its 100, task its 50, memory 120, and knowledge gets the 30 that are left."""
    found = grants(
        700,
        demand("knowledge", 500),
        demand("project", 100),
        demand("task", 50),
        demand("memory", 120),
        demand("history"),
    )
    assert found == {"knowledge": 30, "project": 100, "task": 50, "memory": 120, "history": 400}


def test_naming_a_block_in_ratios_gives_it_its_own_share():
    """Knowledge with a ratio of .2 no longer waits for the memories."""
    budget = TokenBudget(ratios={"memory": 0.1, "history": 0.4, "knowledge": 0.2})
    found = allocate(700, [demand(n, budget=budget) for n in ("memory", "history", "knowledge")])
    assert found.grants == {"memory": 100, "history": 400, "knowledge": 200}


def test_waterfall_gives_unused_tokens_to_the_next_hungry_lower_rank():
    """Memory leaves 250 of its 300: history, which is stable, does not take them; the examples do, then the knowledge."""
    budget = TokenBudget(ratios={"memory": 0.3, "history": 0.2, "examples": 0.1, "knowledge": 0.1})
    wants = [
        demand(n, w, budget)
        for n, w in (("memory", 50), ("history", HUNGRY), ("examples", 200), ("knowledge", HUNGRY))
    ]
    assert grants(700, *wants) == {"memory": 50, "history": 200, "examples": 200, "knowledge": 250}


def test_waterfall_never_flows_up():
    """What the least important block leaves is nobody's."""
    budget = TokenBudget(ratios={"memory": 0.4, "knowledge": 0.3})
    result = allocate(700, [demand("memory", budget=budget), demand("knowledge", 10, budget)])
    assert (dict(result.grants), result.unused) == ({"memory": 400, "knowledge": 10}, 290)


def test_borrow_flows_both_ways():
    """Memory takes what the knowledge below it leaves."""
    budget = TokenBudget(ratios={"memory": 0.4, "knowledge": 0.3})
    assert grants(
        700, demand("memory", budget=budget), demand("knowledge", 10, budget), surplus="borrow"
    ) == {
        "memory": 690,
        "knowledge": 10,
    }


def test_keep_gives_nobody_more_than_its_share():
    """What is unused stays unused."""
    result = allocate(700, [demand("memory", 10), demand("history")], surplus="keep")
    assert (dict(result.grants), result.unused) == ({"memory": 10, "history": 400}, 290)


def test_history_takes_the_surplus_of_others_only_when_it_borrows():
    """With waterfall a history of any length has its 400; absent memories do not move its limit."""
    absent = with_absent(TokenBudget(), [demand("history")])
    assert grants(700, *absent) == {"history": 400, "memory": 0}
    assert grants(700, *absent, surplus="borrow") == {"history": 700, "memory": 0}


def test_history_borrows_in_eighths_of_its_share():
    """From a share of 400 the steps are 50: a surplus of 149 lends 100, whatever the memories use within a step."""
    limits = {
        grants(700, demand("memory", 300 - spare), demand("history"), surplus="borrow")["history"]
        for spare in range(100, 150)
    }
    assert limits == {500}
    assert 400 // STEPS == 50


def test_an_absent_block_leaves_its_share():
    """Without memories their 300 go to the hungry block below; the history keeps its own."""
    found = grants(700, *with_absent(TokenBudget(), [demand("history"), demand("knowledge")]))
    assert found == {"history": 400, "knowledge": 300, "memory": 0}


def test_sizes_are_set_aside_before_ratios_share_the_rest():
    """A project of 100 leaves 700 of 800 to be shared 3 to 4."""
    budget = TokenBudget(sizes={"project": 100})
    found = grants(
        800,
        demand("project", budget=budget),
        demand("memory", budget=budget),
        demand("history", budget=budget),
    )
    assert found == {"project": 100, "memory": 300, "history": 400}


def test_sizes_that_do_not_all_fit_are_served_in_rank_order():
    """In 120 tokens the project has its 100, the task 20, and the knowledge nothing."""
    wants = [
        Demand(name=n, rank=r, wanted=HUNGRY, size=100)
        for n, r in (("knowledge", 7), ("project", 2), ("task", 3))
    ]
    assert grants(120, *wants) == {"knowledge": 0, "project": 100, "task": 20}


def test_five_blocks_spread_the_rest_down_the_ranks():
    """System and query are fixed; of 5,192 - 1,200 a short task leaves tokens to the knowledge, not to the stable history."""
    budget = TokenBudget.five_blocks("gpt-4")
    room = budget.room(fixed=1_000)
    found = grants(
        room,
        *(
            demand(n, w, budget)
            for n, w in (("project", 900), ("task", 100), ("history", HUNGRY), ("knowledge", HUNGRY))
        ),
    )
    assert found == {"project": 900, "task": 100, "history": 1_000, "knowledge": room - 2_000}


def test_a_minimum_takes_surplus_before_it_takes_from_lower_ranks():
    """History needs 450: the memories' spare 50 come first and the knowledge keeps its share."""
    budget = TokenBudget(ratios={"memory": 0.2, "history": 0.4, "knowledge": 0.1})
    wants = [
        demand("memory", 150, budget),
        demand("history", 2_000, budget, minimum=450),
        demand("knowledge", 100, budget),
    ]
    assert grants(700, *wants) == {"memory": 150, "history": 450, "knowledge": 100}


def test_a_minimum_takes_from_the_least_important_first_and_never_from_above():
    """History needs 540: 100 from the knowledge, 40 from the examples, nothing from the memories."""
    budget = TokenBudget(ratios={"memory": 0.1, "history": 0.4, "examples": 0.1, "knowledge": 0.1})
    wants = [demand(n, budget=budget) for n in ("memory", "examples", "knowledge")]
    history = demand("history", budget=budget, minimum=540)
    assert grants(700, *wants, history) == {"memory": 100, "examples": 60, "knowledge": 0, "history": 540}


def test_a_minimum_that_cannot_be_met_takes_what_it_may():
    """History needs 5,000 and gets all but what the memories above it hold."""
    assert grants(700, demand("memory"), demand("history", minimum=5_000)) == {"memory": 300, "history": 400}
    assert grants(700, demand("memory", 0), demand("knowledge"), demand("history", minimum=5_000)) == {
        "memory": 0,
        "knowledge": 0,
        "history": 700,
    }


def test_a_minimum_above_what_is_wanted_is_not_met_with_tokens_nobody_uses():
    """A minimum of 500 for a history of 100 tokens takes nothing from others."""
    assert grants(700, demand("memory"), demand("history", 100, minimum=500)) == {
        "memory": 300,
        "history": 100,
    }


def test_a_block_may_bring_its_own_rank_ratio_or_size():
    """What a block says comes before what the budget says."""
    budget = TokenBudget()
    made = demand_for(budget, "history", 9, block=Block(name="history", rank=2, size=50))
    assert (made.rank, made.ratio, made.size, made.stable) == (2, None, 50, True)
    assert demand_for(budget, "mood", 9, block=Block(name="mood", ratio=0.2)).ratio == 0.2


@pytest.mark.parametrize(
    ("room", "wants", "rule", "seen"),
    [
        (-1, [demand("memory")], "keep", "room is -1"),
        (1, [demand("memory"), demand("memory")], "keep", "'memory' are there twice"),
        (1, [demand("memory", -5)], "keep", "wanted of 'memory' is -5"),
        (1, [demand("memory", ratio=float("nan"))], "keep", "ratio of 'memory' is nan"),
        (1, [demand("memory", size=5)], "keep", "'memory' has a ratio and a size"),
        (1, [demand("memory")], "flood", "surplus is 'flood'"),
    ],
)
def test_impossible_demands_are_refused(room, wants, rule, seen):
    """A wrong demand is named, not served."""
    with pytest.raises(BudgetConfigError, match=seen):
        allocate(room, wants, surplus=rule)


def test_nothing_to_share_is_no_error():
    """No demands and no room give no grants."""
    assert allocate(0, []).grants == {}
    assert allocate(10, []).unused == 10


# ---- laws ---------------------------------------------------------------------------------------------------------------------------
@given(rooms, demands(), rules)
def test_grants_never_exceed_room_or_wish(room, wants, rule):
    """The grants and what is unused are the room to the token, and nobody holds more than it wants."""
    result = allocate(room, wants, surplus=rule)
    assert sum(result.grants.values()) + result.unused == room
    assert result.unused >= 0
    assert [d.name for d in wants] == list(result.grants)
    assert all(0 <= result[d.name] <= d.wanted for d in wants)


@given(rooms, demands(), rules)
def test_nobody_has_less_than_its_share_unless_a_minimum_took_it(room, wants, rule):
    """A share is lost only to the minimum of a more important block; a size is honoured while the sizes fit."""
    result = allocate(room, wants, surplus=rule)
    for d in wants:
        taken = any(o.minimum and o.rank < d.rank for o in wants)
        assert taken or result[d.name] >= min(d.wanted, result.shares[d.name])
    sizes = sum(d.size or 0 for d in wants)
    if sizes <= room:
        assert all(result.shares[d.name] == d.size for d in wants if d.size is not None)


@given(rooms, demands(stable=False))
def test_nobody_starves_while_a_lower_rank_holds_surplus(room, wants):
    """With waterfall, when a block stays below its wish, nothing that it and those above it left has passed to less important blocks."""
    ranked = sorted((dataclasses.replace(d, minimum=0) for d in wants), key=lambda d: d.rank)
    result = allocate(room, ranked, surplus="waterfall")
    for i, hungry in enumerate(ranked):
        if result[hungry.name] < hungry.wanted:
            assert sum(result[d.name] for d in ranked[: i + 1]) >= sum(
                result.shares[d.name] for d in ranked[: i + 1]
            )


@given(rooms, st.integers(0, 300), demands(minimums=False), st.sampled_from(["waterfall", "keep"]))
def test_a_larger_room_never_grants_anybody_less(room, more, wants, rule):
    """With waterfall and keep every single grant grows or stays."""
    small, large = allocate(room, wants, surplus=rule), allocate(room + more, wants, surplus=rule)
    assert all(large[d.name] >= small[d.name] for d in wants)


@given(rooms, st.integers(0, 300), demands(), st.sampled_from(["waterfall", "keep"]))
def test_minimums_move_no_more_than_what_rounding_leaves_over(room, more, wants, rule):
    """Where a minimum takes the rounded-off tokens, of which there are fewer than shares, another block may have that many fewer in a larger room."""
    small, large = allocate(room, wants, surplus=rule), allocate(room + more, wants, surplus=rule)
    rounded = max(0, sum(1 for d in wants if d.ratio) - 1)
    assert all(large[d.name] >= small[d.name] - rounded for d in wants)
    assert sum(large.grants.values()) >= sum(small.grants.values()) - rounded


@given(rooms, st.integers(0, 300), demands(stable=False))
def test_a_larger_room_never_grants_less_in_total_when_blocks_borrow(room, more, wants):
    """With borrow the sum grows or stays; a rounded-off token may change hands."""
    small, large = allocate(room, wants, surplus="borrow"), allocate(room + more, wants, surplus="borrow")
    assert sum(large.grants.values()) >= sum(small.grants.values())


@given(rooms, demands(stable=False))
def test_borrow_leaves_no_token_while_anybody_is_hungry(room, wants):
    """The sum of the grants is the smaller of room and wishes."""
    assert sum(allocate(room, wants, surplus="borrow").grants.values()) == min(
        room, sum(d.wanted for d in wants)
    )


@given(rooms, demands())
def test_a_stable_block_leaves_less_than_one_step_when_it_borrows(room, wants):
    """Only a hungry history may leave tokens unused, and fewer than an eighth of its share (at least one)."""
    result = allocate(room, wants, surplus="borrow")
    hungry = [d for d in wants if result[d.name] < d.wanted]
    if hungry and result.unused:
        assert {d.name for d in hungry} == {"history"}
        assert result.unused < max(1, result.shares["history"] // STEPS)


@given(rooms, demands(), rules)
def test_the_order_of_demands_does_not_matter_between_ranks(room, wants, rule):
    """Only ranks decide; blocks of one rank stand in the order given."""
    wants = [dataclasses.replace(d, rank=i + 1) for i, d in enumerate(wants)]
    assert allocate(room, wants, surplus=rule).grants == dict(
        reversed(allocate(room, wants[::-1], surplus=rule).grants.items())
    )


@given(rooms, demands(minimums=False), st.integers(0, 200))
def test_waterfall_moves_a_stable_grant_only_with_its_own_share(room, wants, other):
    """What others want never moves the history's limit."""
    before = allocate(room, wants).grants.get("history")
    unpooled = [d for d in wants if d.name == "history" and d.ratio is None and d.size is None]
    changed = [d if d.name == "history" else dataclasses.replace(d, wanted=other) for d in wants]
    assert unpooled or allocate(room, changed).grants.get("history") == before


def test_a_minimum_takes_what_rounding_left_over() -> None:
    """Shares are rounded down; the token that is left over still belongs to whoever needs it most."""
    demands = [
        Demand(name="memory", rank=4, wanted=0, ratio=0.3),
        Demand(name="history", rank=5, wanted=73, ratio=0.7, minimum=73),
    ]
    assert allocate(73, demands).grants["history"] == 73
