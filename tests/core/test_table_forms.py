"""Tables in every form: the named row stays whole with the names of its columns, and no row has another's cells."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankbudget import Segment, counter_for, fit_documents
from rankbudget.compression.structured import compress_structured
from rankbudget.relevance.sentences import MOST, split_sentences
from tests.drawing import draws

EXACT = counter_for("o200k_base")
HEAD = ("City", "Address", "Hours", "Phone")
CITIES = (
    "Berlin Hamburg Munich Cologne Leipzig Bremen Dresden Essen Mainz Kiel Bonn Ulm Trier Aachen Jena Gera Celle Fulda"
    " Worms Passau"
).split()
QUESTIONS = (
    "When is the {} service point open?",
    "What is the phone number of the shop in {}?",
    "address of {}",
)
Row = Sequence[str]


def row_of(n: int) -> Row:
    return CITIES[n], f"{CITIES[n][:3]}str. {n + 3}", f"{8 + n % 3}-{16 + n % 5}", f"0{30 + n} 5550{100 + n}"


def _html(row: Row, tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{cell}</{tag}>" for cell in row) + "</tr>"


def _nested(row: Row, tag: str, indent: str) -> str:
    cells = "".join(f"{indent * 3}<{tag}>{cell}</{tag}>\n" for cell in row)
    return f"{indent * 2}<tr>\n{cells}{indent * 2}</tr>\n"


def _lines(rows: Sequence[Row], tag: str) -> str:
    return (
        f"<table>\n{_html(rows[0], tag)}\n"
        + "".join(f"{_html(row, 'td')}\n" for row in rows[1:])
        + "</table>\n"
    )


def _of_cells(rows: Sequence[Row], indent: str) -> str:
    body = "".join(_nested(row, "td", indent) for row in rows[1:])
    opening = f"<table>\n{indent}<thead>\n{_nested(rows[0], 'th', indent)}{indent}</thead>\n{indent}<tbody>\n"
    return f"{opening}{body}{indent}</tbody>\n</table>\n"


FORMS: dict[str, Callable[[Sequence[Row]], str]] = {
    "HTML, a row a line": lambda rows: _lines(rows, "th"),
    "HTML without th": lambda rows: _lines(rows, "td"),
    "HTML, a cell a line": lambda rows: _of_cells(rows, ""),
    "HTML, indented": lambda rows: _of_cells(rows, "  "),
    "HTML, tabs": lambda rows: _of_cells(rows, "\t"),
    "HTML, one line": lambda rows: _lines(rows, "th").replace("\n", ""),
    "CSV": lambda rows: "".join(f"{','.join(row)}\n" for row in rows),
    "TSV": lambda rows: "".join("\t".join(row) + "\n" for row in rows),
    "Markdown": lambda rows: "".join(
        f"| {' | '.join(row)} |\n" + ("|---|---|---|---|\n" if n == 0 else "") for n, row in enumerate(rows)
    ),
}
TITLES = ("", "Service points\n", "## Service points\n", "<h2>Service points</h2>\n", "Service points\n\n")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@draws(cases=len(FORMS))
@given(
    size=st.integers(6, 20),
    place=st.integers(0, 19),
    title=st.sampled_from(TITLES),
    question=st.sampled_from(QUESTIONS),
    more=st.integers(0, 150),
    is_result=st.booleans(),
)
def test_a_named_row_stays_whole_with_its_head(
    form: str, size: int, place: int, title: str, question: str, more: int, *, is_result: bool
) -> None:
    """Whatever the form of the table and of the line above it, in the room for the two and no more."""
    rows, place = [HEAD, *map(row_of, range(size))], place % size
    text, asked = title + FORMS[form](rows), question.format(CITIES[place])
    least = title + FORMS[form]([HEAD, rows[place + 1]])
    room = EXACT.count(least) + (60 if is_result else 4) + more
    if is_result:
        kept = compress_structured(text, room, EXACT, asked)
    else:
        fitted = fit_documents([Segment(id="a", text=text)], query=asked, max_tokens=room, counter=EXACT)
        kept = "".join(segment.text for segment in fitted.segments)
    assert all(cell in kept for cell in rows[place + 1])
    assert all(name in kept for name in HEAD)
    _check_cells(kept, rows, form)


def _check_cells(kept: str, rows: Sequence[Row], form: str) -> None:
    """No cell is behind the start of a row that is not its own."""
    if not form.startswith("HTML"):
        return
    of_row = {cell: n for n, row in enumerate(rows) for cell in (row[0], row[3])}  # the other cells recur
    for part in kept.split("<tr>"):
        assert len({of_row[cell] for cell in re.findall(r">([^<>]+)<", part) if cell in of_row}) <= 1


def test_rows_of_a_very_long_table_are_told_apart_up_to_a_bound() -> None:
    """As sentences are: behind these a piece has several, so that time and memory grow with the length alone."""
    text = FORMS["HTML, a row a line"]([HEAD, *(row_of(n % 20) for n in range(MOST + 5_000))])
    pieces = split_sentences(text)
    assert "".join(pieces) == text
    assert MOST < len(pieces) < MOST + 1_000
