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


# ---- examples -----------------------------------------------------------------------------------------------------------------------
def test_the_specified_example_is_exact():
    """32,768 - 9,740 - 300 shared 3 to 4 is 9,740 and 12,987; the rounded-off token is unused."""
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


def test_blocks_without_a_ratio_draw_from_the_memory_share():
    """Of a memory share of 300, project takes its 100 and task its 50; memory and knowledge have half of the rest each."""
    found = grants(
        700,
        demand("knowledge", 500),
        demand("project", 100),
        demand("task", 50),
        demand("memory", 120),
        demand("history"),
    )
    assert found == {"knowledge": 75, "project": 100, "task": 50, "memory": 75, "history": 400}


@given(
    room=st.integers(0, 3000),
    wanted=st.fixed_dictionaries(
        {
            name: st.integers(0, 900)
            for name in ("project", "preferences", "memory", "examples", "knowledge", "wiki")
        }
    ),
    more=st.integers(0, 500),
)
def test_nothing_that_is_chosen_for_the_question_starves_beside_the_rest(room, wanted, more):
    """Each has what it wants or an equal part, from 64 tokens, of what project leaves; a larger room gives none less."""
    found, later = (
        grants(size, demand("history"), *[demand(*one) for one in wanted.items()])
        for size in (room, room + more)
    )
    share = room * 3 // 7 - found["project"]
    hungry = [
        name for name in sorted(wanted, key=TokenBudget().rank_of) if wanted[name] and name != "project"
    ]
    part = share // max(1, len(hungry))
    assert part < 64 or all(found[name] >= min(wanted[name], part) for name in hungry)
    assert all(found[name] >= min(wanted[name], 64) for name in hungry[: max(0, share) // 64])
    assert all(later[name] >= found[name] for name in wanted)


@given(
    room=st.integers(0, 3000),
    history=st.integers(0, 3000),
    wanted=st.fixed_dictionaries(
        {
            name: st.integers(0, 900)
            for name in ("task", "preferences", "memory", "examples", "knowledge", "wiki")
        }
    ),
    rule=st.sampled_from(["waterfall", "borrow"]),
)
def test_what_a_short_history_leaves_goes_in_equal_parts_too(room, history, wanted, rule):
    """Who is chosen for the question and still wants something has as much as any other, but for a token or the first 64."""
    first = dataclasses.replace(demand("history", min(history, room * 4 // 7)), rank=1)
    found = grants(room, first, *[demand(*one) for one in wanted.items()], surplus=rule)
    chosen = [name for name in sorted(wanted, key=TokenBudget().rank_of) if name != "task"]
    most = max(found[name] for name in chosen)
    assert most <= 64 or all(found[name] >= most - 1 for name in chosen if found[name] < wanted[name])
    short = [found[name] < min(wanted[name], 64) for name in chosen]
    behind = chosen[short.index(True) + 1 :] if any(short) else []
    assert all(found[name] == 0 for name in behind)


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
    """What the least important block leaves is unused."""
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


def test_keep_gives_no_block_more_than_its_share():
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


def test_a_minimum_above_what_is_wanted_is_not_met_with_unused_tokens():
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


def test_pinned_content_takes_what_is_beyond_a_minimum_before_the_minimum():
    """Of a history of 400 with a minimum of 300, pinned knowledge of 150 takes 100; the rest comes from the memories."""
    wants = [
        demand("memory"),
        demand("history", minimum=300),
        demand("knowledge", 150, ratio=0.0, pinned=150),
    ]
    assert grants(700, *wants) == {"memory": 250, "history": 300, "knowledge": 150}


def test_with_the_rag_preset_documents_have_all_they_want_before_the_history():
    """Knowledge takes 600 of 700 from a history that needs 100; without the preset it has the memories' 300."""
    rag = TokenBudget(preset="rag")
    wants = [demand("history", budget=rag, minimum=100), demand("knowledge", 650, budget=rag)]
    assert grants(700, *with_absent(rag, wants)) == {"history": 100, "knowledge": 600, "memory": 0}
    wants = [demand("history", budget=rag), demand("knowledge", 350, budget=rag)]
    assert grants(700, *with_absent(rag, wants)) == {"history": 350, "knowledge": 350, "memory": 0}
    chat = [demand("history", minimum=100), demand("knowledge", 650)]
    assert grants(700, *with_absent(TokenBudget(), chat)) == {"history": 400, "knowledge": 300, "memory": 0}


def test_a_knowledge_block_with_a_size_keeps_to_it_with_the_rag_preset():
    """A fixed size stays fixed."""
    rag = TokenBudget(preset="rag")
    knowledge = demand_for(rag, "knowledge", HUNGRY, block=Block(name="knowledge", size=100))
    assert grants(700, demand("history", budget=rag), knowledge, surplus="keep")["knowledge"] == 100


def test_without_ratios_no_block_starves():
    """With empty ratios a history of any length has as much as the memories; what they leave does not move it."""
    budget = TokenBudget(ratios={})
    wants = [demand(name, budget=budget) for name in ("memory", "history", "knowledge")]
    assert grants(700, *wants) == {"memory": 233, "history": 233, "knowledge": 233}
    alone = demand("history", budget=budget)
    assert grants(700, alone) == grants(700, alone, surplus="keep") == {"history": 700}


def test_the_shares_of_blocks_without_a_source_go_to_the_others():
    """A history alone has the whole room; knowledge, which draws from the memory share, keeps that share alive."""
    budget, history = TokenBudget(), demand("history")
    assert grants(700, *with_absent(budget, [history], sources=["history"])) == {"history": 700}
    assert grants(700, *with_absent(budget, [history], sources=["memory"]))["history"] == 400
    assert grants(700, *with_absent(budget, [history], sources=["system", "query"])) == {"history": 700}
    knowledge = with_absent(budget, [history], sources=["history", "knowledge"])
    assert {d.name: d.wanted for d in knowledge} == {"history": HUNGRY, "knowledge": 0, "memory": 0}


@pytest.mark.parametrize("ratios", [{"memory": 0.3, "history": 0.4}, {"history": 0.4, "knowledge": 0.3}, {}])
@given(wanted=st.dictionaries(st.sampled_from(["memory", "knowledge", "project"]), st.integers(1, 500)))
def test_a_source_that_is_empty_this_turn_does_not_move_the_history(ratios, wanted):
    """Whatever documents a turn has, the history's grant is the same; with no other source it has the whole room."""
    budget = TokenBudget(ratios=ratios)
    sources = ["history", "memory", "knowledge", "project"]
    present = [demand(name, tokens, budget) for name, tokens in wanted.items()]
    history = demand("history", budget=budget)
    some = grants(700, *with_absent(budget, [history, *present], sources=sources))["history"]
    none = grants(700, *with_absent(budget, [history], sources=sources))["history"]
    assert some == none < 700
    assert grants(700, *with_absent(budget, [history], sources=())) == {"history": 700}


def test_a_negative_room_is_refused():
    """A prompt that is already too large is an error, not a grant."""
    with pytest.raises(BudgetConfigError, match=r"room must be .*got -1"):
        allocate(-1, [demand("memory")])


def test_nothing_to_share_is_no_error():
    """No demands and no room give no grants."""
    assert allocate(0, []).grants == {}
    assert allocate(10, []).unused == 10
