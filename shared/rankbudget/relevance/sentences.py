"""Texts to sentences, cut where the token counts of the pieces add up to the count of the whole."""

from __future__ import annotations

import re
from itertools import pairwise

from .corpus import BoundedCache
from .long_lines import LONGEST, SHORT, breaths_in, items_in, records_in, with_rows

_STOPS, _EAST_ASIAN = ".!?…؟۔।።։།။។", "。！？｡"
_END = re.compile(  # one set of characters first: ten times faster; no lower case follows a full stop
    rf"[{_STOPS}{_EAST_ASIAN}\n](?!(?<=\.) {{1,79}}[a-z])(?:"
    rf"(?<=[{_STOPS}])[{_STOPS}]*[\"'”’»)\]]*|(?<=[{_EAST_ASIAN}])[{_EAST_ASIAN}]*[」』”’）]*|(?<=\n)[\r\n]*)"
)
_ABBREVIATIONS = frozenset(  # written before capitals; what the rules of `_is_inner` find is not listed
    """abb abs abschn abt adj adm akad al allg anh anm ap approx apr aprox aufl aug ausg av avda ave avv
    bes boul brig bros bspw ca cad capt chap co col corp cía dec dep dept dez dipl dir doc dott doña dra
    dña ed edif eds ee eg ej eks eng esim esp est etc ett evt evtl ex excl exkl exmo feb fig figs geb
    gem gen ggf godz gov gral hab hon ie im inc incl ing inkl insb insp inż ir jan jul jun kap lic lt
    mag mah maj mar max med messrs mevr mill mind mio např nat nov nám násl núm obs oct okt orig os osv
    ott pag par pos pow pres prof pág ref refs rel rep rer resp rev sen sep sept seq sig soc sog sok
    spez sra srta sta ste sto tab tabl tel temp tit tys ud uds ul univ urb usf usw uu verf vgl viz vol
    vols vors woj ziff zit zool zzgl акад алл англ бул вул гос ед им наб напр обл оз пер пл пос просп
    проф рис руб сокр соч ст тел тов тыс ул ім डॉ पं रु श्री सं""".split()
)
_TOKEN = re.compile(r"[^\s\"'“”„’«»‹›()\[\]{}*_/–—]*\Z")
_WINDOW = 24
"""Characters before a dot that are read; a longer word is no abbreviation."""
_NUMBER_BEFORE = re.compile(r"\d\s*\Z")
_LONGEST_UNIT = 3
_ORDINAL = re.compile(r"(?:\d{1,2}\.?-)?\d{1,3}|\d{1,2}\.(?:0?[1-9]|1[0-2])|[IVX]{2,}")
_CARDINAL = re.compile(
    r"\b(?:the|of|this|that|from|with|are|were|which|been|after|said|says|their|you|your|what|les|une"
    r"|was|is|has|had|and|its|at|took|takes|lasted|cost|costs|weighs"
    r"|pour|qui|avec|sont|est|que|por|con|fue|una|uma|não|foi|che|della|nel|gli|het|een)\b"
    r"(?![^.!?…\n]*\b(?:am|im|vom|zum|zur|der|die|das|dem|den|des|bis|ab|seit|und|für)\b)[^.!?…\n]*\Z",
    re.IGNORECASE,
)
"""Words of languages that write no dot after an ordinal number, and behind them none of German."""
_NO_NAME = (
    "The|This|These|Those|That|It|Its|We|They|There|When|While|After|Before|If|But|His|Her|Our|Your|Each"
    "|Der|Die|Es|Wir|Ich|Wenn|Aber|Dann|Danach|Eine"
)
_OPENING = re.compile(
    rf"[\s\"'“„«‹(\[]+(?:(?P<no_name>{_NO_NAME})|He|She|You|A|An|My|In|On|At|For|All"
    r"|Das|Dem|Den|Ein|Er|Sie|Im|Am|Bei|Nach|Und|Le|Les|Il|Elle|El|Los|Las|Una|Lo|Gli|Os|As|Het|Een|De)\s"
)
"""Words that are capitals only where they start a sentence: no ordinal number belongs to them.

Some are surnames, too, to which a title or an initial before them may belong: "Mr. He", "J. Das".
"""
_BEGINS = re.compile(r"(?:\A|[.!?…:;(\[\n])\s*\Z")
"""What is before "Cf. The Times" at the start of a sentence, the mark of a list, and the B of "z. B."."""
_LAST, _LEADING, _CLOCK = ("etc", "ecc", "usw", "osv", "itd"), ("vs", "ft", "feat"), ("am", "pm")
"""Abbreviations that end a list; that stand before titles of works, as in "Ft. The Roots"; times of day."""
_UNITS = frozenset(
    """bar psi pa kpa hpa mpa eur usd gbp chf min sec hr hrs h s ms ns m mm cm km nm g kg mg t l ml ft lb lbs
    mph kmh hz khz mhz ghz kb mb gb tb w kw mw kwh v kv a ma db rpm""".split()
)
"""What may follow a number and is written without a dot; elsewhere some of them are abbreviations."""
_NEAR = 60
"""Characters before a number that are read for such words."""
_LIST_START = re.compile(r"(?:\A|[^\w,\s]|\n)[^\S\n]*\Z")
_LETTER = r"[^\W\d_]"
_SHORT = re.compile(  # one letter, letters with dots, no vowels
    rf"{_LETTER}|(?:{_LETTER}{{1,3}}\.-?)+{_LETTER}{{1,3}}"
    r"|(?![A-ZА-Я]{3})(?i:[bcdfghjklmnpqrstvwxzßçćčďłńňñřśšťźżžбвгджзйклмнпрстфхцчшщъь]{2,5})"
)
_ITEM = re.compile(r"\s+\d{1,2}[.)]\s")
_LONGEST_SHORT = 5
"""Letters of a word that is an abbreviation even before what looks like the number of a list."""
_FUNCTION = re.compile(r"^([ \t]*)(?:async )?def \w+\(.*(?:\n(?:\1[ \t]+\S.*|\1\).*|[ \t]*$))*", re.MULTILINE)
"""A function of Python: without its body it says nothing, so that all of it is one piece."""
_NOT_SPACE = re.compile(r"\S")
_FIRST = re.compile(r"[^\s\"'“”„’«‹(\[]")
_SHORTEST = re.compile(r"[^\W_](?=\n)|\S\s*\S")
"""A sentence has two characters at least, or is all of a line, as an answer of one digit."""
_SMALL_END, _FEWEST_SMALL = re.compile(r"(?<=[^\W\d_]{2})\.(?= {1,79}[a-z])"), 2
"""A full stop before a small letter, and how many show that it is no abbreviation that is not known."""
_LINE_END = re.compile(r"[ \t\r]*\n")
_LINE = re.compile(r"[^\n]+\n*|\n+")
MOST = 20_000
"""Sentences that are told apart in one text; behind these a piece has several, up to `LONGEST` characters."""


def split_sentences(text: str) -> tuple[str, ...]:
    """Returns the sentences of a text with the white space between them: joined, they are the text."""
    return _SENTENCES.get(text, _split)


def parts_of(text: str) -> tuple[str, ...]:
    """Returns the sentences of a document, and of speech without full stops parts about as long."""
    return tuple([part for sentence in split_sentences(text) for part in breaths_in(sentence)])


_SENTENCES: BoundedCache[str, tuple[str, ...]] = BoundedCache(
    max_size=4_000_000, size=lambda text: 2 * len(text) + 64
)


def _split(text: str) -> tuple[str, ...]:
    pieces = with_rows(text, _records)
    if len(pieces) > MOST:
        pieces[MOST:] = _joined(pieces[MOST:])
    return tuple(pieces) or (text,)


def _records(text: str) -> list[str]:
    """Returns the records of lines of data, and the sentences of what is between them."""
    pieces: list[str] = []
    start = end = 0
    has_data = "</" in text or (len(text) > SHORT and max(map(len, text.split("\n"))) > SHORT)
    for line in _LINE.findall(text) if has_data else ():
        end += len(line)
        records = records_in(line)
        if records:
            pieces += _sentences(text[start : end - len(line)])
            for record in records:
                is_short = len(record) <= (SHORT if "</" in record else LONGEST)
                pieces += [record] if is_short else _sentences(record)
            start = end
    return [*pieces, *_sentences(text[start:])]


def _joined(pieces: list[str]) -> list[str]:
    """Returns neighbours as one piece, up to `LONGEST` characters: few prompts have room for more."""
    joined = pieces[:1]
    for piece in pieces[1:]:
        if len(joined[-1]) + len(piece) <= LONGEST:
            joined[-1] += piece
        else:
            joined.append(piece)
    return joined


def _sentences(text: str) -> list[str]:
    pieces: list[str] = []
    start = 0
    shortest = _SHORTEST.search(text)
    functions = [found.span() for found in _FUNCTION.finditer(text)][::-1] if "def " in text else []
    for match in _END.finditer(text):
        end = match.end()
        if end <= start or not _ends_sentence(text, match):
            continue
        if _LINE_END.match(text, end) or _is_inside(functions, end):
            continue  # the line break that follows ends the piece
        if shortest and shortest.end() <= end:
            pieces.append(text[start:end])
            start = end
            shortest = _SHORTEST.search(text, start)
    if start < len(text) and (text[start:].strip() or not pieces):
        pieces.append(text[start:])
    elif start < len(text):
        pieces[-1] += text[start:]
    return [item for piece in pieces for part in _written_small(piece) for item in items_in(part)]


def _written_small(text: str) -> list[str]:
    """Returns the sentences of a text that starts them without capitals, as many write in chats."""
    if text.count(". ") < _FEWEST_SMALL:
        return [text]
    cuts = [
        found.end()
        for found in _SMALL_END.finditer(text)
        if not _is_inner(text, found.start(), found.end(), "a")
    ]
    edges = [0, *cuts, len(text)] if len(cuts) >= _FEWEST_SMALL else [0, len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


def _is_inside(functions: list[tuple[int, int]], position: int) -> bool:
    """Returns whether a position is inside a function; those before it are taken from the end of the list."""
    while functions and functions[-1][1] <= position:
        functions.pop()
    return bool(functions) and functions[-1][0] < position


def last_end(text: str, most: int, least: int) -> int:
    """Returns where the last sentence ends that ends after `least` and by `most`, 0 where none does."""
    for match in reversed(list(_END.finditer(text, least, most + 1))):
        end = match.end()
        if match.group()[0] == "\n":
            end = len(text[: match.start()].rstrip())
        if end <= least:
            break
        if end <= most and _ends_sentence(text, match):
            return end
    return 0


def first_start(text: str, least: int, most: int) -> int | None:
    """Returns where the first sentence starts that starts from `least` on and by `most`."""
    start = 0
    for match in _END.finditer(text, max(0, least - 2), most):
        if match.end() < start or not _ends_sentence(text, match):
            continue
        found = _NOT_SPACE.search(text, match.end(), most + 1)
        if found is None:
            return None
        start = found.start()
        if start >= least:
            return start
    return None


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Returns whether a mark ends a sentence. In doubt it does not: half a sentence may say what is false."""
    mark, start, end = match.group(), match.start(), match.end()
    if mark[0] in _STOPS and not text[end : end + 1].isspace():
        return False  # a full stop counts where a space follows, the East Asian one always
    if mark[0] not in ".…":
        return True
    first = _FIRST.search(text, end, end + 80)
    following = first.group() if first else ""
    if following.islower():
        return False
    is_ellipsis = mark[0] == "…" or (len(mark) > 1 and mark[1] in _STOPS)
    return is_ellipsis or not _is_inner(text, start, end, following)


def _is_inner(text: str, start: int, end: int, following: str) -> bool:
    """Returns whether the dot may belong to the number or the word before it."""
    found = _TOKEN.search(text, max(0, start - _WINDOW), start)
    token = found.group() if found else ""
    if not token:
        return False
    before = start - len(token)
    near = max(0, before - _NEAR)
    if _ORDINAL.fullmatch(token):
        return bool(_LIST_START.search(text, near, before)) or not _is_cardinal(text, near, before, end)
    if token[-1].isdigit():
        return False
    name = token.rpartition("-")[2]
    if following.isdigit() and (len(name) <= _LONGEST_SHORT or not _ITEM.match(text, end)):
        return True
    is_numbered = bool(_NUMBER_BEFORE.search(text, near, before))
    if is_numbered and len(name) <= _LONGEST_UNIT and name.isalpha():
        is_short = name.lower() not in _UNITS or not _is_cardinal(text, near, before, end)
    else:
        is_short = name.lower() in _ABBREVIATIONS or bool(_SHORT.fullmatch(name))
    return is_short and not _starts_anew(text, end, name, is_numbered=is_numbered, before=text[near:before])


def _is_cardinal(text: str, near: int, before: int, end: int) -> bool:
    """Returns whether a number with a dot behind it is no ordinal one, by the words on both sides."""
    return bool(_OPENING.match(text, end) or _CARDINAL.search(text, near, before))


def _starts_anew(text: str, end: int, name: str, *, is_numbered: bool, before: str) -> bool:
    """Returns whether a sentence starts behind a possible abbreviation with a word that belongs to no name.

    Small letters may be what leads on, as "e.g.", unless they follow a number: "5 p.m. The" and "3 pcs. It".
    """
    opening = _OPENING.match(text, end)
    if not name or not opening or name.lower() in _LEADING:
        return False
    if name.lower() in _LAST:
        return True
    if name[0].islower():
        return is_numbered and (name.isalpha() or name.replace(".", "") in _CLOCK)
    is_acronym = name.isalpha() and sum(map(str.isupper, name)) > 1
    return not _BEGINS.search(before) and (is_acronym or bool(opening["no_name"]))
