"""Records in a text: which lines or sentences belong to one that says what was asked."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain, pairwise

from .corpus import TermIndex
from .long_lines import SHORT, is_keyed_list, is_table
from .named import Named
from .outline import ends_line
from .stopwords import STOP_WORDS
from .tree import ALIKE, NONE, Tree, above, joined, shapes_of, tree_of
from .words import content_terms, keys_in, numbered, raw_words, without_counts

_BEHIND, _LONGEST, _MOST_ABOVE = 3, 12, 8
"""Lines behind a line that belong to it without a mark; the most of a record, and of its headings."""
_FEWEST, _FEW, _ONE_IN = 6, 10, 4
"""Pieces of a text at least; one in so many may have a telling word; one in so many texts says the same."""
_STEP, _DEEPEST = 1e-6, 16
"""Between two lines of a record; levels of what a line is inside of, which comes before the next line."""
_FEW_TRACES = 3
"""So many exceptions in one text are worth as much as the best line of it."""

Traces = Sequence[tuple[list[int], range]]
"""Of a text the exception and the frames of each stack trace."""


def records_of(pieces: Sequence[str], tree: Tree | None = None) -> Callable[[int], list[int]]:
    """Returns what returns the positions of a record, that of the piece asked for first.

    A record is the largest short part of the tree that a piece is in, or a row of a table in columns; else a
    line with its neighbours, or a sentence with the next one. Behind it comes what it is inside of.
    """
    tree = tree or tree_of(pieces)
    return partial(_record_of, pieces, tree, _columns_of(pieces, tree))


def _record_of(pieces: Sequence[str], tree: Tree, columns: Mapping[int, list[int]], i: int) -> list[int]:
    if i in columns:
        return list(dict.fromkeys([i, *columns[i]]))
    over = list(above(tree.parents, i))
    short = [j for j in (i, *over) if 1 < tree.stops[j] - j <= _LONGEST]
    if short:
        part = range(short[-1], tree.stops[short[-1]])
    elif tree.stops[i] > i + 1:
        part = range(i, i + 1 + _LONGEST)
    elif not (ends_line(pieces[i]) and (not i or ends_line(pieces[i - 1]))):
        part = range(i, min(i + 2, len(pieces)))  # a sentence, be it the last one of its line
    elif len(pieces[i]) > SHORT // 2:  # a paragraph of its own
        part = range(i, i + 1)
    else:
        part = range(max(0, i - 1), min(i + 1 + _BEHIND, len(pieces)))
    return list(
        dict.fromkeys([i, *range(i + 1, part.stop), *over[:_MOST_ABOVE], *range(i - 1, part.start - 1, -1)])
    )


def _columns_of(pieces: Sequence[str], tree: Tree) -> dict[int, list[int]]:
    """Returns the cells of the row that a cell is in, behind them the first ones, which have the keys."""
    lists: dict[int, list[int]] = {}
    keyed = [i for i, piece in enumerate(pieces) if is_keyed_list(piece)]
    for i, following in pairwise([*keyed, len(pieces)]):
        cells = [j for j in range(i + 1, following) if tree.parents[j] == i and _says(pieces[j])]
        lists.setdefault(len(cells), []).append(i)
    found = {}
    for size, starts in lists.items():
        for cell in range(size + 1) if is_table(size, len(starts)) else ():
            row = [start + cell for start in starts]
            found.update({i: [*row[:_LONGEST], *starts[:_LONGEST]] for i in row})
    return found


def _says(piece: str) -> bool:
    return any(map(str.isalnum, piece))


def below_names(texts: Sequence[Sequence[str]], trees: Sequence[Tree]) -> list[Sequence[int]]:
    """Returns the owners in each text: a name that begins one owns the rest where others say the same."""
    made, openers = (
        [tree.owners for tree in trees],
        [{0, *tree.parents} - {NONE} if tree.parents else set() for tree in trees],
    )
    words = [{w for i in own for w in raw_words(text[i])} for text, own in zip(texts, openers, strict=True)]
    uses, least = Counter(chain.from_iterable(words)), max(2, len(texts) / _ONE_IN)
    for shapes in shapes_of(list(chain.from_iterable(texts))):
        each = [shapes[a:b] for a, b in pairwise(accumulate(map(len, texts), initial=0))]
        times = Counter(chain.from_iterable({*own[1:]} for own in each))
        same = {key for key, n in times.items() if n >= least and not STOP_WORDS.issuperset(key.split())}
        for n, (own, tree) in enumerate(zip(each, trees, strict=True)):
            names = (2 * uses[w] <= len(texts) and not (w.isdigit() and times[own[0]]) for w in words[n])
            if 0 < ALIKE * len(own[1:]) <= sum([key in same for key in own[1:]]) and any(names):
                made[n] = [NONE, *[max(0, i) for i in tree.parents[1:]]]
    return made


def with_records(
    query: str,
    texts: Sequence[tuple[str, ...]],
    trees: Sequence[Tree],
    names: Sequence[Sequence[int]],
    traces: Mapping[int, Traces],
    ratings: Sequence[Sequence[float]],
    index: TermIndex,
) -> list[list[float]]:
    """Returns ratings of the sentences of texts with those of one record behind the one that was asked for.

    What a record says belongs to its name: without it, the next record's value would be read as its own.
    What opens something is worth what is inside it. `index` is of all sentences; `trees` say what each one is
    inside of, and `names` what owns it among several texts; `traces` are those of the texts that have some.
    """
    starts = list(accumulate(map(len, texts), initial=0))
    own, pieces = list(chain.from_iterable(ratings)), list(chain.from_iterable(texts))
    parents, owners = joined([tree.parents for tree in trees]), joined([tree.owners for tree in trees])
    titles = {starts[n] for n, tree in enumerate(trees) if tree.stops and tree.stops[0] == len(texts[n]) > 1}
    named = Named(parents, _holders(query, pieces, index), own, titles)
    flat = _passed_down(own, pieces, parents, named)
    of_text = [i for i, text in enumerate(texts) for _ in text]
    record_at: dict[int, Callable[[int], list[int]]] = {}
    for record in named.records:
        text = of_text[record[0]]
        if len(texts[text]) >= _FEWEST:
            if text not in record_at:
                record_at[text] = records_of(texts[text], trees[text])
            start, best = starts[text], max([flat[i] for i in record])
            for step, k in enumerate(record_at[text](record[0] - start)):
                flat[start + k] = max(flat[start + k], best - _STEP * step)
    for text, found in traces.items():
        _rate_traces(flat, starts[text], starts[text + 1], found)
    if any(owner != NONE for owner in owners):
        of_record = set(owners).union([i for i, owner in enumerate(owners) if owner != NONE])
        order = [
            i
            for record in named.records
            for i in (record[0], *named.around(record[0]), *sorted(record, key=lambda i: -own[i]))
            if i in of_record
        ]
        _lift(flat, list(dict.fromkeys(order)), owners)
    owners = joined(names)
    for i in range(len(flat) - 1, -1, -1):  # what says whose one is comes above it
        if owners[i] != NONE:
            flat[owners[i]] = max(flat[owners[i]], math.nextafter(flat[i], math.inf))
    return [flat[start:stop] for start, stop in pairwise(starts)]


def _passed_down(
    ratings: Sequence[float], pieces: Sequence[str], parents: Sequence[int], named: Named
) -> list[float]:
    """Returns ratings with that of each opener given to what says most inside it, of equals to the first."""
    made, best, inside = list(ratings), dict[int, tuple[float, float, int]](), dict[int, list[int]]()
    for i in range(len(pieces) - 1, -1, -1):
        if parents[i] != NONE and (i in best or _says(pieces[i])):
            inside.setdefault(parents[i], []).append(i)
            own = best.get(i) or (named.weight(named.said(i)), named.weight(named.own[i]), -i)
            best[parents[i]] = max(own, best.get(parents[i], own))
    for opener, (*_, i) in sorted(best.items()):
        made[-i] = max(made[-i], made[opener])
    for i in sorted(best, reverse=True):
        made[i] = max([made[k] for k in inside[i]]) - _STEP / _DEEPEST
    return made


def _rate_traces(ratings: list[float], start: int, stop: int, traces: Traces) -> None:
    """Rates the exceptions of the traces of a text above their frames, of few of them as its best line."""
    for exception, frames in traces:
        best = max(ratings[start + frames.start : start + frames.stop]) + _STEP / 2
        if len(traces) <= _FEW_TRACES:
            best = max(best, max(ratings[start:stop]) - _STEP / 2)
        for i in exception:
            ratings[start + i] = max(ratings[start + i], best)


def _lift(ratings: list[float], first: Sequence[int], owners: Sequence[int]) -> None:
    """Rates some pieces of records above all others of records."""
    best = max([max(ratings[i], ratings[owner]) for i, owner in enumerate(owners) if owner != NONE])
    for rank, i in enumerate(reversed(first), start=1):
        ratings[i] = best + _STEP * rank


def _holders(query: str, pieces: Sequence[str], index: TermIndex) -> dict[str, list[int]]:
    """Returns which pieces hold each word and key of a question.

    A number belongs to the word before it, where a piece has both: 88 people are not department 88.
    """
    few = max(1, len(pieces) // _FEW)
    holders = {term: list(index.with_stem(term)) for term in content_terms(without_counts(query))}
    holders.update({key: list(index.with_key(key)) for key in keys_in(query)})
    for word, number in numbered(query):
        having = index.with_stem(number)
        both = [i for i in having if (word, number) in numbered(pieces[i])] if len(having) <= few else []
        if both:
            holders[number] = both
    return holders
