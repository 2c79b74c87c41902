"""The outline of a text: which lines are headings, as people and programs write them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise

_DEPTH = re.compile(
    r"(#{1,6})\s|(={2,6})[^=].*\2\s*\Z|\\(?:sub){0,2}section\b|(?:</\w+>\s?)*<h([1-6])\b", re.IGNORECASE
)
"""Headings of Markdown, MediaWiki, LaTeX and HTML."""
_RULE = re.compile(r"(?:([-=*_#+])(?: ?\1){2,}|<hr\b[^<>]*>)\s*", re.IGNORECASE)
_UNDERLINE = re.compile(r"([=~^*+\"'`-])\1{2,}\s*")
_STYLES = {
    "bold": re.compile(r"(\*\*|__)(?!\s)[^*_]+\1:?"),
    "between marks": re.compile(r"([-=*_~+#])\1{2,}(?!\1)\s?\S.*?\1{3,}"),
    "numbered": re.compile(
        r"(?:§+|(?:art(?:icle|ikel|ículo|icolo)?|section|clause|chapter|part|kapitel|abschnitt|cap[ií]tulo"
        r"|chapitre|titre|annex|appendix|step|schritt)\b\.?)\s*(?:\d|[ivx]+\b).*",
        re.IGNORECASE,
    ),
    "table": re.compile(r"\[[^\W\d][\w-]*\]|\[\[[^\W\d][\w-]*\]\]"),
    "inner table": re.compile(r"\[{1,2}[^\W\d][\w-]*(?:\.[\w-]+)+\]{1,2}"),
}
"""Lines that are headings wherever they stand."""
_CLAUSE = re.compile(r"\d{1,3}(?:\.\d{1,2}){0,3}[.)]?\s+[^\W\d].*")
_ITEM = re.compile(r"[-*•+>]|</|\|.*\|\s*\S")
_STOPS = ".,;?!…。，；？！"
_DOTTED = re.compile(r"(?!.*\b[a-z]{4})(?:.*\s)?(?:(?:\w{1,3}\.)+\w{1,3}|[A-Z]\w{1,3})\.")
"""A name whose last word is short for another one: "Berg and Moretti Inc.", "Alfa s.r.o."."""
_FIELD = re.compile(r"[^\W\d][\w .-]{0,23}:\s")
_CHANGES = re.compile(r"\b[0-9a-f]{7,}\b|\d+")
_LONGEST_HEADING, _MOST_WORDS = 100, 12
_RECURS, _HEADER_LINES = 3, 6
_COLUMNS, _CELLS = re.compile(r"\S(\s{2,})(?=\S)"), re.compile(r"[^\s,;|]+")
_HTML_CELL, _TAG = re.compile(r"<t[dh]\b", re.IGNORECASE), re.compile(r"<[^<>]*>")
_LEAST_ROWS, _MOST_ROWS = 3, 0.75
"""Rows that a table has at least, and the share of them that has the form of its head."""
OTHER = 10
"""Styles without a depth of their own are deeper than those with one, in the order of their first use."""


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a text: the positions of its lines, and how deep it is."""

    start: int
    stop: int
    level: float


def headings_of(pieces: Sequence[str], rules: AbstractSet[int]) -> dict[int, Heading]:
    """Returns the headings among the lines or sentences of a text by where they start.

    The order in which styles are used first tells which is under which, as in reStructuredText. Above the
    headings that records have in common are the titles of these, and as deep the rules that part them.
    """
    order: dict[str, int] = {}
    marked = [one for one in _marked(pieces, rules) if one[0] not in rules]
    times = Counter([pieces[i].strip() for i, *_ in marked])
    found = {
        i: Heading(i, stop, style if isinstance(style, int) else order.setdefault(style, OTHER + len(order)))
        for (i, stop, _), style in zip(marked, _with_repeated(pieces, marked), strict=True)
        # A line with a colon that comes once is no deeper than the next one.
        if style and (is_gap(pieces, i) or times[line := pieces[i].strip()] > 1 or not line.endswith(":"))
    }
    shared = {i: heading for i, heading in found.items() if times[pieces[i].strip()] > 1}
    for i, level in _titles(pieces, found, shared, rules):
        title = found.get(i, Heading(i, i + 1, level))
        found[i] = Heading(i, title.stop, min(title.level, level))
    return found


def _titles(
    pieces: Sequence[str], headings: Container[int], shared: Mapping[int, Heading], rules: AbstractSet[int]
) -> Iterator[tuple[int, float]]:
    """Yields the titles of records and the rules between them with their depth.

    A title is the first line behind a rule, or one that is above most of the headings with the same text.
    """
    starts = [-1, *rules] if rules else []
    behind = {next((k for k in range(i + 1, len(pieces)) if pieces[k].strip()), i) for i in starts}
    firsts = behind.difference(rules, shared)
    times, above = Counter([pieces[i].strip() for i in shared]), dict[str, dict[int, float]]()
    for i, k in _above_shared(pieces, headings, shared, firsts):
        above.setdefault(pieces[k].strip(), {})[i] = min(shared[k].level, OTHER) - 0.5
    sure = [level for titles in above.values() for i, level in titles.items() if i in firsts]
    if len(sure) > 1:
        yield from [(i, min(sure)) for i in (*firsts, *rules)]
        return
    for line, titles in above.items():
        if len(titles) > max(1, 0.75 * times[line]):
            yield from titles.items()


def _above_shared(
    pieces: Sequence[str], headings: Container[int], shared: Container[int], firsts: Container[int]
) -> Iterator[tuple[int, int]]:
    """Yields the first line of what is right above a heading that records share, with that heading."""
    top, is_open = None, False
    for i, piece in enumerate(pieces):
        if i in shared:
            if top is not None:
                yield top, i
            top, is_open = None, True
        elif i in firsts:
            top = i
        elif top not in firsts and any(map(str.isalnum, piece)):
            names = i in headings or _may_name(pieces, i)
            if names and (not is_open or (top is None and is_gap(pieces, i - 1))):
                top = i
            is_open = names


def _may_name(pieces: Sequence[str], i: int) -> bool:
    """Returns whether a line may be a title: it is neither an item of a list nor a sentence."""
    line = pieces[i].strip()
    return _may_be_heading(pieces, i) and not _stops(line) and bool(_title(line))


def _marked(pieces: Sequence[str], rules: Container[int]) -> Iterator[tuple[int, int, int | str]]:
    """Yields the lines of each heading, and its depth or its style."""
    recurring, again = _recurring(pieces), _again(pieces)
    direct = _above_sentences(pieces, again)
    rows = {i for table in ruled_tables(pieces) for i in table}
    for i, piece in enumerate(pieces):
        line, begins = piece.strip("\r\n\f"), is_gap(pieces, i - 1)
        if i in rows or not _may_be_heading(pieces, i):
            continue
        depth = _DEPTH.match(line)
        if depth:
            yield i, i + 1, int(depth[3] or 0) or len(depth[1] or depth[2] or "") or depth[0].count("s")
        elif begins and _mask(line) in recurring and (stop := _header_end(pieces, i)):
            yield i, stop, f"header {_mask(line)}"  # a record's text may look like one, and is under its own
        elif style := _style(pieces, i, again, direct, underlined=i + 1 not in rules):
            yield i, i + 1, style


def _with_repeated(pieces: Sequence[str], marked: Sequence[tuple[int, int, int | str]]) -> list[int | str]:
    """Returns the styles with that of titles that records have in common, as "Data sheet" or "Status: new".

    A field that mostly comes right behind a heading is none: its style is "".
    """
    styles = [style for *_, style in marked]
    labels = [_label(pieces[i]) if style in {"title", "capitals"} else "" for i, _, style in marked]
    times = Counter(labels)
    behind = Counter(labels[n] for n in range(1, len(marked)) if marked[n - 1][1] == marked[n][0])
    for n, label in enumerate(labels):
        if label and times[label] > 1:
            is_field = label.endswith(":")
            styles[n] = f"title {label if is_field else ''}"
            if is_field and 2 * behind[label] > times[label]:
                styles[n] = ""
    return styles


def _label(line: str) -> str:
    """Returns the key of a field with its colon; another line as it is."""
    found = _FIELD.match(line)
    return found[0].rstrip() if found else line.strip()


def _may_be_heading(pieces: Sequence[str], i: int) -> bool:
    """Returns whether a piece is a line of its own that is not indented."""
    alone = (not i or ends_line(pieces[i - 1])) and ends_line(pieces[i])
    line = pieces[i].strip("\r\n\f")
    return alone and bool(line.strip()) and not line[0].isspace()


def ends_line(piece: str) -> bool:
    """Returns whether a line or a page ends with a piece of a text: in HTML with a tag."""
    return piece.endswith(("\n", ">", "\f"))


def stops(piece: str) -> bool:
    """Returns whether a sentence, a line or an item ends a piece: else it was parted for its length."""
    return piece.endswith("\n") or not piece.rstrip()[-1:].isalnum()


def is_gap(pieces: Sequence[str], i: int) -> bool:
    """Returns whether a blank line, a new page or an end of the text is behind a line or sentence."""
    if i < 0 or i + 1 >= len(pieces) or not pieces[i].strip() or not pieces[i + 1].strip():
        return True
    own, following = pieces[i], pieces[i + 1]
    between = own[len(own.rstrip()) :] + following[: len(following) - len(following.lstrip())]
    return between.count("\n") > 1 or "\f" in between


def _again(pieces: Sequence[str]) -> set[int]:
    """Returns where lines are that come several times, but fields, rows and those above indented ones."""
    times = Counter([piece.strip() for piece in pieces])
    pairs = enumerate(pairwise([*pieces, ""]))
    found = [i for i, (line, below) in pairs if times[line.strip()] > 1 and not below[:1].isspace()]
    return {i for i in found if not _FIELD.match(pieces[i].rstrip()) and not _COLUMNS.search(pieces[i])}


def _style(
    pieces: Sequence[str], i: int, again: Container[int], direct: Mapping[int, str], *, underlined: bool
) -> str:
    """Returns the style of a heading that is one line without a mark of its depth; "" for any other line."""
    line, begins = pieces[i].strip(), is_gap(pieces, i - 1)
    if len(line) > _LONGEST_HEADING or not any(map(str.isalnum, line)):
        return ""
    if underlined and (rule := _rule_below(pieces, i)):
        return rule
    for name, form in _STYLES.items():
        if form.fullmatch(line):
            return name
    if line[-1] == ":" and (begins or i in again):
        return "colon"
    if not begins or _stops(line):
        return direct.get(i, "")
    return _clause(line) or (_title(line) if i in again or is_gap(pieces, i) else direct.get(i, ""))


def _clause(line: str) -> str:
    """Returns how deep a title with a number is; "" for any other line."""
    is_clause = _CLAUSE.fullmatch(line)
    return f"clause {line.split(maxsplit=1)[0].rstrip('.)').count('.')}" if is_clause else ""


def _stops(line: str) -> bool:
    """Returns whether a line ends as sentences do, and not with a short form as "Ltd."."""
    return line[-1] in _STOPS and not _DOTTED.fullmatch(line)


def _above_sentences(pieces: Sequence[str], again: Container[int]) -> dict[int, str]:
    """Returns the styles of the titles right above sentences, of several the first; in wrapped text none."""
    pairs = list(pairwise([i for i, piece in enumerate(pieces) if piece.strip()]))
    found, wrapped = set[int](), 0
    for i, below in reversed(pairs):
        if _may_be_heading(pieces, i) and not _stops(line := pieces[i].strip()):
            wrapped += pieces[below].lstrip()[0].islower()
            if _title(line) and (below in found or _stops(pieces[below].strip())):
                found.add(i)
    more = {k for i, k in pairs if {i, k} <= found and not _CLAUSE.match(pieces[k])}
    found -= more if len(more) > 1 else set()  # one may be the first title below that of the text
    is_sure = len(found) > max(1, wrapped)
    return {i: _clause(pieces[i].strip()) or ("title" if i in again else "direct") for i in found if is_sure}


def _rule_below(pieces: Sequence[str], i: int) -> str:
    """Returns the sign of the rule that underlines a line; "" where none does."""
    rule, line = None if is_gap(pieces, i) else _UNDERLINE.fullmatch(pieces[i + 1]), pieces[i].rstrip()
    return rule[1] if rule and 2 * len(rule[0].strip()) >= len(line) and not _FIELD.match(line) else ""


def rules_of(pieces: Sequence[str]) -> set[int]:
    """Returns the rules that part records, as "---": they come several times, and underline no title."""
    lines = {i: piece.strip() for i, piece in enumerate(pieces) if _RULE.fullmatch(piece)}
    found = [i for i in lines if not _is_of_title(pieces, lines, i)]
    # Without a blank line before a title, only its length tells that a rule underlines it.
    sure = [i for i in found if is_gap(pieces, i - 1) or len(pieces[i - 1].strip()) != len(lines[i])]
    times = Counter([lines[i] for i in sure])
    return {i for i in found if times[lines[i]] > 1}


def _is_of_title(pieces: Sequence[str], rules: Mapping[int, str], i: int) -> bool:
    """Returns whether a rule is below the first line of a paragraph, as below a title, or above one."""
    if is_gap(pieces, i - 1):
        return rules.get(i + 2) == rules[i] and not is_gap(pieces, i)
    begins = i == 1 or i - 2 in rules or is_gap(pieces, i - 2)
    return begins and not _stops(pieces[i - 1].rstrip()) and bool(_rule_below(pieces, i - 1))


def ruled_tables(pieces: Sequence[str]) -> list[range]:
    """Returns where tables are whose head is underlined as a heading is: the head, its rule and the rows."""
    found = []
    for rule in [i for i, piece in enumerate(pieces) if i and _UNDERLINE.fullmatch(piece)]:
        stop = rule + 1
        while stop < len(pieces) and not is_gap(pieces, stop - 1) and not _UNDERLINE.fullmatch(pieces[stop]):
            stop += 1
        rows, head = pieces[rule + 1 : stop], pieces[rule - 1].rstrip()
        if len(rows) < _LEAST_ROWS or not _rule_below(pieces, rule - 1):
            continue
        gaps = [match.span(1) for match in _COLUMNS.finditer(head[:_LONGEST_HEADING])]
        cells = len(_CELLS.findall(head))
        alike = [_in_columns(row, gaps) or len(_CELLS.findall(row)) == cells > 1 for row in rows]
        if sum(alike) >= _MOST_ROWS * len(rows):
            found.append(range(rule - 1, stop))
    return found


def tables_of(pieces: Sequence[str]) -> Iterator[tuple[range, range]]:
    """Yields where the head of each table is, and its rows.

    They are lines of as many cells below a head without digits, or what is below one with a rule.
    """
    for table in ruled_tables(pieces):
        yield range(table.start, table.start + 2), range(table.start + 2, table.stop)
    start, cells = 0, _cells(pieces[0]) if pieces else (0, 0)
    for j in range(1, len(pieces) + 1):
        is_last = j + 1 == len(pieces)  # its line may end with the text
        following = _cells(pieces[j] + "\n" * is_last) if j < len(pieces) else (0, 0)
        if following == cells and not (any(cells) and is_gap(pieces, j - 1)):
            continue
        behind = start + 1 + (start + 1 < j and not any(map(str.isalnum, pieces[start + 1])))
        if (
            any(cells)
            and j - behind >= _LEAST_ROWS
            and not any(map(str.isdigit, _TAG.sub("", pieces[start])))
        ):
            yield range(start, behind), range(behind, j)
        start, cells = j, following


def _cells(line: str) -> tuple[int, int]:
    """Returns how many bars, tabs or cells of HTML a line has, and of commas or semicolons if several."""
    if cells := len(_HTML_CELL.findall(line)):
        return cells, 0
    if not line.endswith("\n"):
        return 0, 0
    bars, commas = line.count("|") + line.count("\t"), line.count(",") + line.count(";")
    return (bars, 0) if bars else (0, commas if commas > 1 else 0)


def _in_columns(row: str, gaps: Sequence[tuple[int, int]]) -> bool:
    """Returns whether a row is blank at an end of each gap: its cells are aligned left or right."""
    return bool(gaps) and all(not row[a : a + 1].strip() or not row[b - 1 : b].strip() for a, b in gaps)


def _title(line: str) -> str:
    """Returns the style of a line that stands alone; "" where it is an item or too long for a title."""
    if _ITEM.match(line) or line[0].islower() or len(line.split()) > _MOST_WORDS:
        return ""
    return "capitals" if line.isupper() else "title"


def _recurring(pieces: Sequence[str]) -> set[str]:
    """Returns how the first lines of the paragraphs begin that may be the headers of records."""
    starts = (i for i in range(len(pieces)) if is_gap(pieces, i - 1))
    counts = Counter(_mask(pieces[i]) for i in starts if pieces[i].strip() and _header_end(pieces, i))
    return {mask for mask, count in counts.items() if count >= _RECURS}


def _mask(line: str) -> str:
    """Returns the first word of a line, with one sign for its numbers and hashes."""
    return _CHANGES.sub("0", line.split(maxsplit=1)[0]) if line.strip() else ""


def _header_end(pieces: Sequence[str], i: int) -> int:
    """Returns where the paragraph ends that begins with a line, if it has fields as "Date: today"; else 0."""
    if not pieces[i].endswith("\n") or pieces[i][0].isspace():
        return 0
    stop = i
    while stop < len(pieces) and stop - i < _HEADER_LINES and pieces[stop].strip():
        stop += 1
        if is_gap(pieces, stop - 1) or _RULE.fullmatch(pieces[stop]):
            break
    fields = sum(bool(_FIELD.match(piece.rstrip())) for piece in pieces[i:stop])
    return stop if stop - i > 1 and fields * 2 >= stop - i else 0
