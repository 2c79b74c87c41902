"""Counting texts with tiktoken's encodings: equal to `encode_ordinary` for everything, and never an exception."""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Iterator

import pytest
import regex

from rankbudget import counter_for
from rankbudget.counting import TokenCounter, base, tiktoken_counter
from rankbudget.counting.cutting import cut_text, grapheme_edges
from rankbudget.counting.tiktoken_counter import TiktokenCounter
from rankbudget.counting.vocabulary import load_encoding
from rankbudget.testing import CounterConformance

ENCODINGS = ("o200k_base", "cl100k_base")
ATOMS = (
    *(
        " ",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "\n\n",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\x00",
        "\x1c",
        "\x85",
        "\u200d",
        "\ufeff",
    ),
    *(
        "a",
        "B",
        "word",
        " the",
        "Hello",
        "don't",
        "'LL",
        "é",
        "e\u0301",
        "ß",
        "Ω",
        "Ж",
        "العربية",
        "שלום",
        "中文",
        "日本",
        "한국",
        "ไทย",
        "हिन्दी",
    ),
    *(
        "1",
        "12345",
        "3.14",
        "½",
        "ⅷ",
        "²",
        "!",
        "!!",
        "/",
        "//",
        "```",
        "<|endoftext|>",
        "<|im_start|>",
        "{}",
        "#",
        "_",
        "https://x.y/z",
        "<b>\n",
        "\n</b>",
    ),
    *(
        "😀",
        "👩‍👩‍👧",
        "🇩🇪",
        "👍🏽",
        "\u0301",
        "\ud800",
        "\udfff",
        "\ud83d\ude00",
        "\U0010ffff",
        "aGVsbG8=",
        "0x1F",
        "\\n",
    ),
)


def texts(seed: int, many: int, longest: int = 24) -> Iterator[str]:
    """Yields reproducible texts made of awkward pieces and of any characters."""
    rng = random.Random(seed)
    for index in range(many):
        if index % 4:
            yield "".join(rng.choices(ATOMS, k=rng.randint(1, longest)))
        else:
            yield "".join(
                chr(rng.choice((rng.randrange(128), rng.randrange(0x3000), rng.randrange(0x110000))))
                for _ in range(rng.randint(1, longest))
            )


class TestO200k(CounterConformance):
    def make(self) -> TokenCounter:
        return TiktokenCounter("o200k_base")


class TestCl100k(CounterConformance):
    def make(self) -> TokenCounter:
        return TiktokenCounter("cl100k_base")


class TestCallable(CounterConformance):
    def make(self) -> TokenCounter:
        return counter_for(lambda text: len(text.split()))


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
def test_20_000_fuzzed_texts_count_as_tiktoken_counts_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 fuzzed texts, counted by their parts, count what `encode_ordinary` says, first and second."""
    monkeypatch.setattr(tiktoken_counter, "_SHORT", 0)
    encoding = load_encoding(name)
    counter = TiktokenCounter(name)
    drawn = list(texts(7, 20_000))
    expected = [len(tokens) for tokens in encoding.encode_ordinary_batch(drawn)]
    assert counter.count_many(drawn) == expected
    assert [counter.count(text) for text in drawn] == expected
    assert sum(tiktoken_counter._LINE_START.search(text) is not None for text in drawn) > 2_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
def test_the_pieces_of_a_long_text_count_as_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a long text is parted, its tokens are those of the whole."""
    monkeypatch.setattr(tiktoken_counter, "LONG_TEXT", 2)
    monkeypatch.setattr(tiktoken_counter, "_PIECE", 1)
    encoding, counter, pieces = load_encoding(name), TiktokenCounter(name), 0
    for text in texts(17, 5_000):
        assert counter._measure(text) == len(encoding.encode_ordinary(text))
        pieces += len(list(counter._pieces(text)))
    assert pieces > 15_000


def test_a_long_text_is_counted_without_much_memory() -> None:
    """Counting takes a fraction of a long text's own memory."""
    counter = TiktokenCounter("o200k_base")
    text = " ".join([f"Sentence {i} is one of many." for i in range(100_000)])
    tracemalloc.start()
    assert counter.count(text) > 500_000
    assert tracemalloc.get_traced_memory()[1] < len(text) / 4
    tracemalloc.stop()


HOSTILE = {
    "a million spaces": " " * 1_000_000,
    "a million spaces inside": "hi " + " " * 1_000_000 + "x",
    "many tabs after a line break": "!\n" + "\t" * 300_000 + "\n" + " " * 60_000 + ".",
    "many line breaks": "\n" * 300_000,
    "many wide spaces": "\u3000" * 300_000,
    "much of one letter": "a" * 300_000,
    "much of carets": "^" * 300_000,
    "much of combining marks": "a" + "\u0301" * 150_000,
    "much of joiners": "\u200d" * 150_000,
    "much of zeros": "\x00" * 300_000,
    "surrogates": "\ud800" * 10_000 + "\udc00 \ud83d\ude00",
}


@pytest.mark.slow
@pytest.mark.parametrize("label", HOSTILE)
def test_hostile_texts_are_counted(label: str) -> None:
    """Much of anything is counted: exactly where tiktoken can be asked, else in slices, a few tokens too high."""
    text = HOSTILE[label]
    for name in ENCODINGS:
        counted = TiktokenCounter(name).count(text)
        try:
            expected = len(load_encoding(name).encode_ordinary(text))
        except BaseException as error:  # the panic is none of Exception
            if type(error).__name__ != "PanicException":
                raise
            expected = len(load_encoding(name)._encode_single_piece(text.strip("hix")))
        assert expected <= counted <= expected + 3 * (len(text) // tiktoken_counter.LONG_TEXT + 1)
        if len(text) < tiktoken_counter._PANIC_RUN:
            assert counted == expected


@pytest.mark.parametrize("name", ENCODINGS)
def test_slices_are_never_too_low(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in slices, where tiktoken would panic, a text has at least its tokens, and at most three more a slice."""
    counter, encoding = TiktokenCounter(name), load_encoding(name)
    monkeypatch.setattr(tiktoken_counter, "LONG_TEXT", 40)
    monkeypatch.setattr(tiktoken_counter, "_PANIC_RUN", 20)
    rng = random.Random(11)
    for text in texts(11, 2_000):
        spaced = text + rng.choice(" \t\n\u3000") * rng.randint(41, 200) + text[:1]
        expected = len(encoding.encode_ordinary(spaced))
        assert expected <= counter._measure_long(spaced) <= expected + 3 * (len(spaced) // 40 + 1)


@pytest.mark.slow
def test_hostile_texts_are_cut() -> None:
    """A giant text is cut to the bound, from both sides."""
    counter = TiktokenCounter("o200k_base")
    for text in HOSTILE.values():
        assert counter.count(counter.truncate(text, 100)) <= 100
        assert text.endswith(counter.truncate(text, 100, side="left"))
    assert len(counter.truncate(" " * 1_000_000, 100)) == 100 * 128


def longest(text: str, most: int, side: str, count: object) -> str:
    """Returns the longest start or end by trying every one."""
    edges = [0, *(match.end() for match in regex.finditer(r"\X", text))]
    ends = [text[:edge] if side == "right" else text[edge:] for edge in edges]
    return max((end for end in ends if count(end) <= most), key=len)  # type: ignore[operator]


@pytest.mark.slow
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("piece", [1, tiktoken_counter._PIECE])
def test_truncate_finds_the_longest_that_fits(name: str, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left is the longest start or end that fits, as trying every one finds it; of long texts, too."""
    monkeypatch.setattr(tiktoken_counter, "LONG_TEXT", tiktoken_counter.LONG_TEXT if piece > 1 else 2)
    monkeypatch.setattr(tiktoken_counter, "_PIECE", piece)
    counter = TiktokenCounter(name)
    rng = random.Random(3)
    for text in texts(13, 1_500, longest=14):
        most, side = rng.randint(0, 14), rng.choice(("right", "left"))
        assert counter.truncate(text, most, side=side) == longest(text, most, side, counter._measure)


def test_truncate_of_a_long_text_counts_little() -> None:
    """Cutting a long text to little counts little: the work goes with the bound, not with the text."""
    counted = 0

    def count(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return len(text) // 4 + 1

    assert len(cut_text("word " * 200_000, 50, count, guess=200)) == 199
    assert counted < 30_000


def test_truncate_never_splits_a_grapheme() -> None:
    """A family of emoji that does not fit is left out whole."""
    family = "👩‍👩‍👧‍👦"
    counter = counter_for("o200k_base")
    whole = counter.count("a" + family)
    assert counter.truncate("a" + family, whole) == "a" + family
    assert counter.truncate("a" + family, whole - 1) == "a"
    assert counter.truncate(family + "a", whole - 1, side="left") == "a"
    assert counter.truncate(family, 1) == ""


def test_grapheme_edges_agree_with_segmenting_from_the_start() -> None:
    """Segmentation that starts near a place finds what segmentation from the start finds there."""
    for text in texts(17, 800, longest=40):
        edges = {0, *(match.end() for match in regex.finditer(r"\X", text))}
        middle = len(text) // 2
        assert set(grapheme_edges(text, middle, len(text))) == {edge for edge in edges if edge >= middle}


def test_counts_are_remembered_by_text_and_forgotten_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text is measured once while it is remembered; what is remembered stays bounded; giants are remembered by digest."""
    monkeypatch.setattr(base, "MOST_TEXTS", 100)
    counter = TiktokenCounter("o200k_base")
    measured: list[str] = []
    measure = counter._measure
    monkeypatch.setattr(counter, "_measure", lambda text: measured.append(text) or measure(text))
    for index in range(1_000):
        assert counter.count(f"text {index}") == counter.count("text " + str(index))
    assert len(measured) == 1_000
    assert len(counter._recent) + len(counter._older) <= 201
    giant = "word " * 20_000
    assert counter.count(giant) == counter.count("word " * 20_000) == counter.count_many([giant])[0]
    assert measured.count(giant) == 1
    assert giant not in counter._recent


def test_the_memory_of_counts_is_bounded_in_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long texts push older ones out before they fill the memory."""
    monkeypatch.setattr(base, "_GENERATION_CHARACTERS", 10_000)
    counter = TiktokenCounter("o200k_base")
    for index in range(50):
        counter.count(f"{index} " + "x" * 1_000)
    assert sum(len(key) for key in (*counter._recent, *counter._older)) <= 22_000


def test_threads_count_alike() -> None:
    """Four threads that count the same texts at once, while the memory turns over, get what one thread gets."""
    drawn = list(texts(19, 400))
    expected = [len(load_encoding("o200k_base").encode_ordinary(text)) for text in drawn]
    counter = TiktokenCounter("o200k_base")
    counter._room = 500
    results: list[list[int]] = []

    def work() -> None:
        results.extend([counter.count(text) for text in drawn] for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 20


@pytest.mark.slow
def test_an_encoding_of_ones_own_is_counted_in_pieces_when_it_panics() -> None:
    """An encoding with an unknown pattern counts a run it panics on piece by piece, too much rather than nothing."""
    import tiktoken

    known = load_encoding("o200k_base")
    own = tiktoken.Encoding(
        "own", pat_str=known._pat_str, mergeable_ranks=known._mergeable_ranks, special_tokens={}
    )
    counter = counter_for(own)
    assert counter.count("Hello, world!") == 4
    assert counter_for(own) is counter
    assert 7_813 <= counter.count(" " * 1_000_000) <= 7_813 + 60
