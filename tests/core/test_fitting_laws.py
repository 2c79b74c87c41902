"""A larger limit keeps no less, what a dropped text needs is exact, and only what says nothing new is a double."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rankbudget import Assembler, Block, BudgetExceededError, Segment, counter_for, fit_documents
from rankbudget.fitting.block import fit_block
from rankbudget.fitting.doubles import find_doubles
from rankbudget.fitting.evidence import COSTLY, BestFirst, Evidence, Memories
from rankbudget.fitting.packing import SHORTEST_CUT
from rankbudget.fitting.protocol import Fit, asked_once, plain_cost
from rankbudget.fitting.truncate import Truncate
from rankbudget.testing import WordCounter
from tests.drawing import draws
from tests.growth import growth

O200K = counter_for("o200k_base")
QUESTION = "How long does a refund take, and what does tea cost?"
SENTENCES = st.sampled_from(
    [
        "The tea is hot.", " Refunds take ten days after the request, in most cases and in all countries.", "\nCall Ann at 5 p.m.",
        "你好。", " 退款需要十天，从申请之日算起，包括所有国家和所有的付款方式，没有例外。", " Ships sail.", "x", "", " no end", "😀!", " a\n\nb",
        "The tea is hot!", "\n- one\n- two\n", " A cup of tea costs two pounds, with milk three, and on Sundays it costs four pounds or more.",
        " <document>not a tag</document> of ours.", " หัวข้อ วันนี้เราประชุมเรื่องการชำระเงินของลูกค้ากรุณาตรวจสอบไฟล์บันทึก", " key: QmFzZTY0IGRhdGEsIDEyMyBieXRlcw==" * 2,
    ]
)  # fmt: skip
LONG_WORDS = [
    "今天我们开会讨论服务器问题和客户付款请检查日志",
    "サーバーの問題と支払いについて会議をしました",
    "วันนี้เราประชุมเรื่องปัญหาเซิร์ฟเวอร์",
    "QmFzZTY0IGRhdGE",
    "f(a){b=c}",
]
TEXTS = st.lists(SENTENCES, max_size=6).map("".join)


@st.composite
def documents(draw: st.DrawFn, *, plain: bool = False) -> list[Segment]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=7))
    scored, spoken = draw(st.booleans()), draw(st.booleans())
    return [
        Segment(
            id=f"s{i}",
            text=text,
            title=draw(st.sampled_from([None, "Tea", "Ann Smith"])),
            role="user" if spoken else None,
            group=None if plain else draw(st.sampled_from([None, None, None, "g", "h"])),
            pinned=not plain and draw(st.integers(0, 9)) == 0,
            priority=draw(st.sampled_from([None, 0, 100])),
            score=float(draw(st.integers(0, 3))) if scored else None,
        )
        for i, text in enumerate(texts)
    ]


def longer(less: str, more: str) -> bool:
    """Whether `more` has all that `less` has, in its order, the mark of a cut apart."""
    rest = iter(more)
    return all(sign in rest for sign in less.removesuffix("...") if not sign.isspace())


def check_nested(fits: list[dict[str, str]]) -> None:
    for smaller, larger in pairwise(fits):
        for name, text in smaller.items():
            assert name in larger, f"{name} is dropped by a larger limit"
            assert longer(text, larger[name]), f"{name}: {text!r} became {larger[name]!r}"


def shown(fit: Fit) -> dict[str, str]:
    return {piece.segment.id: piece.rendition.text for piece in fit.pieces}


def wrapped(segment: Segment, text: str) -> int:
    return O200K.count(f"<document source={segment.id!r}>\n{text.replace('<', '&lt;')}\n</document>\n")


def framed(segment: Segment, text: str) -> int:
    return O200K.count(f"<document source={segment.id!r}>\n{text}\n</document>\n")


def fit(strategy: Any, segments: list[Segment], limit: int, **options: Any) -> Fit | None:
    try:
        return fit_block(
            segments,
            strategy=strategy,
            limit=limit,
            counter=O200K,
            block="knowledge",
            query=QUESTION,
            **options,
        )
    except BudgetExceededError:
        return None


@pytest.mark.parametrize("strategy", [Evidence(), Evidence(order="score"), Memories(), Truncate()])
@pytest.mark.parametrize("cost", [None, wrapped])
@draws()
@given(segments=documents(), start=st.integers(0, 100))
def test_a_larger_limit_keeps_no_less(strategy: Any, cost: Any, segments: list[Segment], start: int) -> None:
    """What is kept at a limit is kept at the next one, or more of it, with groups, pins and wrapping."""
    everything = sum([(cost or plain_cost(O200K))(segment, segment.text) for segment in segments])
    limits = sorted([*range(start, start + 20), everything - 1, everything])
    fits = [fit(strategy, segments, limit, cost=cost) for limit in limits if limit >= 0]
    check_nested([shown(found) for found in fits if found is not None])


@draws()
@given(
    first=st.sampled_from(["", "Topic ", "The log says: ", "Refunds and tea: "]),
    word=st.sampled_from(LONG_WORDS),
    times=st.integers(8, 40),
    others=st.integers(0, 8),
    limit=st.integers(60, 400),
)
def test_room_is_used_in_writing_without_blanks(
    first: str, word: str, times: int, others: int, limit: int
) -> None:
    """Beside dropped or shortened texts few tokens stay free, whatever script or data the text that is cut has."""
    given_texts = [first + word * times, *(f"Note {n} says that tea is hot." for n in range(others))]
    found = fit_documents(given_texts, max_tokens=limit, query=QUESTION, counter=O200K)
    if [one.text for one in found.segments] != given_texts:
        assert found.report.total_tokens >= limit - 45
    assert found.report.total_tokens <= limit


@draws()
@given(
    segments=documents(plain=True),
    counter=st.sampled_from(["o200k_base", WordCounter()]),
    start=st.integers(0, 100),
)
def test_more_tokens_keep_no_fewer_documents(segments: list[Segment], counter: Any, start: int) -> None:
    """The law through `fit_documents`, token by token."""
    fits = []
    for limit in range(start, start + 20):
        result = fit_documents(segments, max_tokens=limit, query=QUESTION, counter=counter)
        fits.append({segment.id: segment.text for segment in result.segments})
    check_nested(fits)


@draws()
@given(
    segments=documents(plain=True),
    name=st.sampled_from(["knowledge", "memory", "task", "notes"]),
    start=st.integers(60, 160),
)
def test_a_larger_budget_keeps_no_less_of_a_block(segments: list[Segment], name: str, start: int) -> None:
    """The law through the assembler: the texts of a block in the prompt."""
    fits = []
    for budget in range(start, start + 20):
        made = Assembler(budget).assemble([Block(name=name, segments=segments)], query=QUESTION)
        fits.append(
            {d.segment_id: "." * d.after for d in made.report.decisions if d.block == name and d.after}
        )
    check_nested(fits)


@pytest.mark.parametrize(
    "strategy", [Evidence(), Evidence(compress=False), BestFirst(), Memories(), Truncate()]
)
@pytest.mark.parametrize("cost", [None, framed])
@draws()
@given(segments=documents(), limit=st.integers(0, 120))
def test_what_a_dropped_text_needs_is_exact(
    strategy: Any, cost: Any, segments: list[Segment], limit: int
) -> None:
    """With the limit that is named something of the text is kept, and with one token less nothing is."""
    found = fit(strategy, segments, limit, cost=cost)
    if found is None:
        return
    needed = found.needed()
    dropped = {s.id for s in segments} - shown(found).keys()
    assert dropped <= needed.keys()
    for name in dropped:
        assert needed[name] > limit
        with_it, without = (fit(strategy, segments, n, cost=cost) for n in (needed[name], needed[name] - 1))
        assert with_it is not None
        assert name in shown(with_it)
        assert without is None or name not in shown(without)


PEOPLE = st.sampled_from(["Anna", "Berta", "Chen", "Dmitri"])
NUMBERS = st.sampled_from(
    ["20", "-20", "2.0", "200", "20 %", "$20", "€20", "1,000", "1.000", "5'", '5"', ".5", "5"]
)
DATES = st.sampled_from(["2024-05-01", "2024-01-05", "1 May 2024", "10:30", "10:03", "May 2024"])
NEGATIONS = st.sampled_from(
    [("must", "must not"), ("can", "can't"), ("is", "isn't"), ("will", "will never"), ("may", "may hardly"), ("has to", "does not have to")]
)  # fmt: skip
COMMON = (
    "This page of the handbook for the office in the old harbour was read and signed by the board in spring. "
    "Whoever has a question asks at the desk on the first floor, where a colleague is there from nine to five."
)


@st.composite
def near_twins(draw: st.DrawFn) -> tuple[str, str]:
    """Two texts with most words in common, different in a name, a number, a date or a negation."""
    kind = draw(st.sampled_from(["names", "number", "date", "negation"]))
    if kind == "names":
        payer, payee = draw(st.lists(PEOPLE, min_size=2, max_size=2, unique=True))
        one, other = f"{payer} pays {payee} for the tea.", f"{payee} pays {payer} for the tea."
    elif kind == "number":
        low, high = draw(st.lists(NUMBERS, min_size=2, max_size=2, unique=True))
        one, other = f"The offset is {low} for all of us.", f"The offset is {high} for all of us."
    elif kind == "date":
        first, last = draw(st.lists(DATES, min_size=2, max_size=2, unique=True))
        one, other = f"It is due on {first} at the latest.", f"It is due on {last} at the latest."
    else:
        yes, no = draw(NEGATIONS)
        one, other = f"The clerk {yes} sign it.", f"The clerk {no} sign it."
    before, after = draw(st.sampled_from(["", COMMON + " "])), draw(st.sampled_from(["", " " + COMMON]))
    pair = before + one + after, before + other + after
    return pair if draw(st.booleans()) else pair[::-1]


@pytest.mark.parametrize("compress", [True, False])
@draws()
@given(twins=near_twins())
def test_texts_that_differ_in_a_fact_are_no_doubles(compress: bool, twins: tuple[str, str]) -> None:
    """With room for both and not for a third text, both stay, whole."""
    texts = [*twins, "Gulls cry over the pier. " * 40]
    room = sum([O200K.count(text + "\n") for text in twins])
    result = fit_documents(texts, max_tokens=room, query=twins[0], compress=compress)
    assert [segment.text for segment in result.segments] == list(twins)


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("scored", [True, False])
@draws()
@given(data=st.data(), count=st.integers(2, 6))
def test_what_is_beside_a_text_tells_it_from_its_twins(
    data: Any, count: int, compress: bool, scored: bool
) -> None:
    """The same text beside other metadata is no double; the one whose metadata the question names comes first."""
    names = data.draw(st.permutations(["Acme", "Globex", "Initech", "Umbrella", "Tyrell", "Hooli"]))[:count]
    asked = data.draw(st.sampled_from(names))
    segments = [
        Segment(id=name, text=COMMON, beside=f"company: {name}", score=1.0 if scored else None)
        for name in names
    ]
    noise = [
        Segment(id=f"n{i}", text="Gulls cry over the pier. " * 9, score=0.1 if scored else None)
        for i in range(9)
    ]
    cost = O200K.count(COMMON + "\n")
    room = cost * count if scored else cost
    kept = fit_documents(
        [*noise, *segments], max_tokens=room, query=f"What holds for {asked}?", compress=compress
    )
    assert sorted(s.id for s in kept.segments) == (sorted(names) if scored else [asked])


@draws()
@given(
    text=st.sampled_from([COMMON, "Anna pays Berta 20 pounds for the tea.", "退款需要十天。请给安娜打电话。"]),
    change=st.sampled_from([str.upper, str.title, lambda t: t.replace(" ", "  \n"), lambda t: t.replace(".", "!"), lambda t: f"“{t}”", str.swapcase]),
    around=st.sampled_from(["", "It rained. "]),
)  # fmt: skip
def test_the_same_words_are_a_double(text: str, change: Any, around: str) -> None:
    """A text that another one says, but for case, spaces and punctuation, comes last, and the report names the other."""
    segments = [
        Segment(id="a", text=around + text, score=9),
        Segment(id="b", text=change(text), score=2),
        Segment(id="c", text="Gulls cry over the pier.", score=1),
    ]
    room = sum([O200K.count(s.text + "\n") for s in segments]) - 1
    result = fit_documents(segments, max_tokens=room, query="tea")
    assert [segment.id for segment in result.segments] == ["a", "c"]
    assert [(d.segment_id, d.reason) for d in result.report.decisions if d.action == "trimmed"] == [
        ("b", "duplicate")
    ]


@pytest.mark.slow
def test_near_equal_texts_are_compared_in_linear_time() -> None:
    """Ten times as many texts that share all but one sentence take about ten times as long, and a late double is found."""

    def near_equal(count: int) -> list[Segment]:
        numbers = [*range(count), count - 1]
        return [Segment(id=str(i), text=f"{COMMON} Number {n // 2}, {n % 2}.") for i, n in enumerate(numbers)]

    def work(segments: list[Segment]) -> None:
        last = len(segments) - 1
        assert find_doubles(segments, range(len(segments))) == {last: str(last - 1)}

    found = growth(work, near_equal, short=800, times=10, most=14)
    assert found.linear, found


# ---- what cannot be cut takes no text's place ----------------------------------------------------
@draws()
@given(
    texts=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    pictures=st.lists(st.tuples(st.integers(0, 8), st.integers(300, 2000)), min_size=1, max_size=2),
    limit=st.integers(0, 3000),
    scored=st.booleans(),
)
def test_a_picture_without_room_takes_none(
    texts: list[int], pictures: list[tuple[int, int]], limit: int, scored: bool
) -> None:
    """Where all texts fit, one is missing only beside a picture that stays, and that has as much text before it."""
    segments = [
        Segment(id=f"t{i}", text=f"Room {i} has {i} doors. " * n, score=1 - i / 9 if scored else None)
        for i, n in enumerate(texts)
    ]
    extra = {}
    for number, (rank, tokens) in enumerate(pictures):
        score = 1.05 - rank / 9 if scored else None
        segments.insert(rank, Segment(id=f"p{number}", text=f"Photo {number} of room 3", score=score))
        extra[f"p{number}"] = tokens

    def cost(segment: Segment, text: str) -> int:
        return O200K.count(text) + extra.get(segment.id, 0)

    needed = sum([cost(segment, segment.text) for segment in segments if segment.id not in extra])
    kept = fit(Evidence(dedup=False), segments, limit, cost=cost)
    assert kept is not None
    joints = 2 * sum(texts)  # sentences that are counted one by one may have some tokens more
    seen = shown(kept)
    pictures_kept = sum([tokens for name, tokens in extra.items() if name in seen])
    texts_kept = sum([O200K.count(text) for name, text in seen.items() if name not in extra])
    all_texts = {segment.id for segment in segments} - set(extra) <= set(seen)
    if needed + joints <= limit and not pictures_kept:
        assert all_texts
    assert all_texts or 2 * texts_kept >= pictures_kept
    check_nested([shown(fit(Evidence(dedup=False), segments, limit + n, cost=cost)) for n in range(3)])


@draws()
@given(
    nodes=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 60)), min_size=1, max_size=6),
    limit=st.integers(0, 600),
    scored=st.booleans(),
    grouped=st.booleans(),
)
@example(nodes=[(150, 60), (0, 3), (0, 3)], limit=145, scored=True, grouped=False)
def test_no_lines_beside_a_text_end_the_packing(
    nodes: list[tuple[int, int]], limit: int, scored: bool, grouped: bool
) -> None:
    """Beside metadata without room all stay where all others fit, and something where the room is not small.

    Metadata of 64 tokens more than another one's, and beside a longer text up to 128, hold no text back.
    """
    segments = [
        Segment(
            id=f"s{i}",
            text=f"The room {i} has {i} doors. " * n,
            score=1 - i / 9 if scored else None,
            group="g" if grouped and i in (0, 3) else None,
        )
        for i, (_, n) in enumerate(nodes)
    ]
    heads = {segment.id: head for segment, (head, _) in zip(segments, nodes, strict=True)}

    def cost(segment: Segment, text: str) -> int:
        return O200K.count(text + "\n") + heads[segment.id]

    def kept_at(most: int) -> dict[str, str]:
        found = fit(Evidence(dedup=False), segments, most, cost=asked_once(cost))
        assert found is not None
        assert found.tokens <= most
        return shown(found)

    kept = kept_at(limit)
    together = [[s for s in segments if s.group], *[[s] for s in segments if not s.group]]
    wholes = {tuple(s.id for s in some): sum([cost(s, s.text) for s in some]) for some in together if some}
    least = min([tokens if len(ids) > 1 else heads[ids[0]] + 1 for ids, tokens in wholes.items()])
    longest = max([O200K.count(s.text) for s in segments])
    allowed = least + min(max(COSTLY, longest), 2 * COSTLY)
    assert kept or limit <= allowed + SHORTEST_CUT
    without_room = {s.id for s in segments if heads[s.id] > max(limit, allowed)}
    rest = {ids: tokens for ids, tokens in wholes.items() if not without_room.intersection(ids)}
    if rest and sum(rest.values()) + 2 * sum([n for _, n in nodes]) <= limit:
        assert sorted(kept) == sorted([name for ids in rest for name in ids])
    check_nested([kept, *[kept_at(limit + n) for n in (1, 2, 40)]])
