"""allocate: the laws of grants, pins, minimums and the three surplus rules, on drawn demands."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from rankbudget.budget.allocation import STEPS, Demand, allocate

HUNGRY = 10**9


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


def drawing(demand: Demand) -> bool:
    """Whether a block draws from the share of the memories."""
    return demand.shareless or (demand.name == "memory" and demand.size is None)


rooms = st.integers(0, 1_000)
rules = st.sampled_from(["waterfall", "borrow", "keep"])


@given(rooms, demands(), rules)
def test_grants_never_exceed_room_or_wish(room, wants, rule):
    """The grants and what is unused are the room to the token, and no block holds more than it wants."""
    result = allocate(room, wants, surplus=rule)
    assert sum(result.grants.values()) + result.unused == room
    assert result.unused >= 0
    assert [d.name for d in wants] == list(result.grants)
    assert all(0 <= result.grants[d.name] <= d.wanted for d in wants)


@given(rooms, demands(), rules)
def test_no_block_has_less_than_its_share_unless_a_minimum_took_it(room, wants, rule):
    """A share is lost only to the minimum of a more important block; a size is honoured while the sizes fit."""
    result = allocate(room, wants, surplus=rule)
    for d in wants:
        taken = any(o.minimum and o.rank < d.rank for o in wants)
        assert taken or result.grants[d.name] >= min(d.wanted, result.shares[d.name])
    sizes = sum(d.size or 0 for d in wants)
    if sizes <= room:
        assert all(result.shares[d.name] == d.size for d in wants if d.size is not None)


@st.composite
def needy(draw):
    """Demands of which any may have pinned content, a minimum and the right to go first."""
    return [
        dataclasses.replace(
            d,
            pinned=draw(st.one_of(st.just(0), st.integers(0, 200))),
            first=d.size is None and draw(st.booleans()),
        )
        for d in draw(demands())
    ]


def pinned_of(d):
    return min(d.pinned, d.wanted)


def needed_of(d):
    return min(max(d.pinned, d.minimum), d.wanted)


@given(rooms, needy(), rules)
def test_pinned_content_is_met_wherever_it_fits(room, wants, rule):
    """All pinned content is granted when its sum fits; the grants stay within room and wishes."""
    result = allocate(room, wants, surplus=rule)
    assert sum(result.grants.values()) + result.unused == room
    assert all(0 <= result.grants[d.name] <= d.wanted for d in wants)
    if sum(map(pinned_of, wants)) <= room:
        assert all(result.grants[d.name] >= pinned_of(d) for d in wants)


@given(rooms, needy(), rules)
def test_a_minimum_is_missed_only_when_no_lower_rank_can_give(room, wants, rule):
    """A block below its minimum leaves lower ranks pinned content and fixed sizes alone, and no block too much."""
    result = allocate(room, wants, surplus=rule)
    if sum(map(pinned_of, wants)) > room:
        return
    for d in wants:
        if result.grants[d.name] < needed_of(d):
            assert result.unused == 0
            lower = [o for o in wants if o.rank > d.rank]
            assert all(result.grants[o.name] <= max(pinned_of(o), o.size or 0) for o in lower)


@given(rooms, needy(), rules)
def test_a_minimum_is_lost_only_to_pins_and_to_minimums_of_higher_ranks(room, wants, rule):
    """Where pins and minimums together fit, no block that its own share serves falls below its minimum."""
    result = allocate(room, wants, surplus=rule)
    if sum(map(needed_of, wants)) > room:
        return
    for d in wants:
        others_ask = any(
            pinned_of(o) > result.shares[o.name] or (o.rank < d.rank and needed_of(o) > result.shares[o.name])
            for o in wants
            if o is not d
        )
        if result.shares[d.name] >= needed_of(d) and not others_ask:
            assert result.grants[d.name] >= needed_of(d)


@given(rooms, needy(), rules)
def test_a_block_that_goes_first_leaves_lower_ranks_their_minimum(room, wants, rule):
    """While it wants more, lower ranks have what they need or their fixed size; a minimum they had is theirs."""
    result = allocate(room, wants, surplus=rule)
    plain = allocate(room, [dataclasses.replace(d, first=False) for d in wants], surplus="keep")
    for d in wants:
        if d.first and result.grants[d.name] < d.wanted:
            assert result.unused == 0
            lower = [o for o in wants if o.rank > d.rank]
            assert all(result.grants[o.name] <= max(needed_of(o), o.size or 0) for o in lower)
        assert result.grants[d.name] >= min(plain.grants[d.name], needed_of(d))


@given(rooms, demands(stable=False))
def test_no_block_starves_while_a_lower_rank_holds_surplus(room, wants):
    """With waterfall, when a block stays below its wish, nothing that it and those above it left has passed to less important blocks of another share."""
    ranked = sorted((dataclasses.replace(d, minimum=0) for d in wants), key=lambda d: d.rank)
    result = allocate(room, ranked, surplus="waterfall")
    for i, hungry in enumerate(ranked):
        if result.grants[hungry.name] < hungry.wanted:
            alike = [d for d in ranked[i + 1 :] if drawing(hungry) and drawing(d)]
            above = [d.name for d in [*ranked[: i + 1], *alike]]
            assert sum(map(result.grants.get, above)) >= sum(map(result.shares.get, above))


@given(rooms, st.integers(0, 300), demands(minimums=False), st.sampled_from(["waterfall", "keep"]))
def test_a_larger_room_never_grants_anybody_less(room, more, wants, rule):
    """With waterfall and keep every single grant grows or stays."""
    small, large = allocate(room, wants, surplus=rule), allocate(room + more, wants, surplus=rule)
    assert all(large.grants[d.name] >= small.grants[d.name] for d in wants)


@given(rooms, st.integers(0, 300), demands(), st.sampled_from(["waterfall", "keep"]))
def test_minimums_move_no_more_than_what_rounding_leaves_over(room, more, wants, rule):
    """Where a minimum takes the rounded-off tokens, of which there are fewer than shares, another block may have that many fewer in a larger room."""
    small, large = allocate(room, wants, surplus=rule), allocate(room + more, wants, surplus=rule)
    parted = [d for d in wants if d.ratio] or [d for d in wants if d.shareless]
    rounded = max(0, len(parted) - 1)
    assert all(large.grants[d.name] >= small.grants[d.name] - rounded for d in wants)
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
    hungry = [d for d in wants if result.grants[d.name] < d.wanted]
    if hungry and result.unused:
        assert {d.name for d in hungry} == {"history"}
        assert result.unused < max(1, result.shares["history"] // STEPS)


@given(rooms, demands(), rules)
def test_the_order_of_demands_does_not_matter_between_ranks(room, wants, rule):
    """Only ranks decide; blocks of one rank are in the order given."""
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
