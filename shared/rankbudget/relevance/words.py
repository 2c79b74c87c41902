"""Text to terms: words folded and stemmed, scripts without spaces in overlapping character pairs."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import regex

from .stopwords import STOP_WORDS

_NO_SPACES = (
    r"\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    r"\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_ANY_WORD = regex.compile(rf"[{_NO_SPACES}]+|[[\p{{L}}\p{{N}}\p{{M}}]--[{_NO_SPACES}]]+", regex.VERSION1)
PAIRED = re.compile(rf"[{_NO_SPACES}]")
_SYLLABLES = "\u3400"
"""The first of the Chinese characters and Korean syllables: each may be a name, as no letter of Thai is."""
# Combining marks, Arabic vowel marks and the Arabic stretching stroke carry no word of their own.
_DROP = dict.fromkeys(
    [*range(0x300, 0x370), *range(0x64B, 0x660), 0x670, 0x640, 0xAD, 0x200C, 0x200D, 0x200E, 0x200F]
)
_ARABIC = {ord("ى"): "ي", ord("ة"): "ه", ord("ٱ"): "ا"}
_FOLD = {**_DROP, **_ARABIC, ord("’"): "'", ord("ß"): "ss"}
GRAM = 4
"""Length of the character pieces of a word: 4 beat 3 and 5 in the quality benchmark."""


def fold(text: str) -> str:
    """Returns the text without case, accents and vowel marks."""
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFKD", text.casefold()).translate(_FOLD))


def raw_words(text: str) -> list[str]:
    """Returns the folded, unstemmed words of a text; scripts without spaces come as character pairs.

    Each Chinese character and Korean syllable comes by itself, too: "松" is a name in "松の間" and "松".
    """
    folded = fold(text)
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    found: list[str] = []
    for run in _ANY_WORD.findall(folded):
        if len(run) > 1 and PAIRED.match(run):
            found.extend(run[i : i + 2] for i in range(len(run) - 1))
            found.extend([sign for sign in run if sign >= _SYLLABLES])
        else:
            found.append(run)
    return found


def content_terms(text: str) -> list[str]:
    """Returns the stemmed terms of a query without function words; all of them when nothing else is left."""
    return [stem(word) for word in content_words(text)]


def content_words(text: str) -> list[str]:
    """Returns the unstemmed words of a query without function words; all when nothing else is left."""
    words = raw_words(text)
    return [word for word in words if word not in STOP_WORDS] or words


def keys_in(text: str) -> list[str]:
    """Returns the folded keys in a text, made of several words or with an underscore before them.

    Example:
        >>> keys_in("Did ann@corp.com call _format_usage() of v1.10.2 on 2025-10-25? No.")
        ['ann@corp.com', '_format_usage', '1.10.2', '2025-10-25']
    """
    return _KEY.findall(fold(text))


def names_one(term: str) -> bool:
    """Returns whether a term names one thing: letters and digits, or more digits than a year has.

    Short ones begin with their letters: "2nd" and "5g" count or measure.

    Example:
        >>> [term for term in ("e15", "2nd", "a77x", "12345", "2024", "pump") if names_one(term)]
        ['e15', 'a77x', '12345']
    """
    return _NAMES_ONE.fullmatch(term) is not None


def times_of_key(key: str, text: str) -> int:
    """Returns how often a key of `keys_in` is in a text, not as a part of a longer number, word or key.

    Example:
        >>> [times_of_key("10.0.0.4", text) for text in ("10.0.0.4:80", "10.0.0.41", "1.10.0.0.4")]
        [1, 0, 0]
    """
    return len(_whole(key).findall(fold(text)))


@lru_cache(maxsize=1 << 10)
def _whole(key: str) -> re.Pattern[str]:
    """Returns the pattern of a key: a v is before a version, and a T between a date and a time."""
    before, behind = rf"(?<!{_LETTER})(?<!_)(?<!{_LETTER}-)", rf"(?![_-]?{_LETTER})"
    if key[0].isdigit():
        before = rf"(?<!\d)(?<!\d[-./:])(?:(?<!{_LETTER})|(?<=v)(?<!{_LETTER}v))"
    if key[-1].isdigit():
        behind = rf"(?![-./]?\d|(?!t\d){_LETTER})"
    return re.compile(f"{before}{re.escape(key)}{behind}")


def numbered(text: str) -> list[tuple[str, str]]:
    """Returns the numbers that stand right beside a word, with its stem: ("depart", "88") of "depart #88".

    Example:
        >>> numbered('room 12, {"order_id": 4411}, 88 people')
        [('room', '12'), ('order', '4411'), ('peopl', '88')]
    """
    if not any(map(str.isdigit, text)):
        return []
    folded = fold(text)
    found = [*_NUMBERED.findall(folded), *[(word, number) for number, word in _COUNTED.findall(folded)]]
    return [(stem(word), number) for word, number in found if word not in STOP_WORDS]


def without_counts(question: str) -> str:
    """Returns a question without its times of day, and without short numbers that count the word behind them.

    Example:
        >>> without_counts("I tried 3 times at 9:30. Who is in room 12?")
        'I tried  times at . Who is in room 12?'
    """

    def kept(found: re.Match[str]) -> str:
        before = _ASKED_OF.search(question, 0, found.start()) if len(found[1]) == _LONGEST_COUNT else None
        is_name = before is not None and before[1].lower() not in STOP_WORDS  # "when did employee 128 start"
        counts = len(found[1]) <= _LONGEST_COUNT and fold(found[2]) not in STOP_WORDS and not is_name
        return found[0].removeprefix(found[1]) if counts else found[0]

    made = _COUNTED.sub(kept, _TIME.sub("", question))
    return made if raw_words(made) else question


_NAMES_ONE = regex.compile(r"(?=.*\d)(?=.*\p{L}).{4,}|\p{L}{1,2}\d{1,2}|\d{5,}")
_LETTER = rf"[^\W_{_NO_SPACES}]"
_JOINT = "(?:_+|[-./:@#]_*)"
_KEY = re.compile(
    rf"(?<!{_LETTER})(?<!_)(?:v(?=\d+\.\d))?"
    rf"((?:_+{_LETTER}+|{_LETTER}+{_JOINT}{_LETTER}+)(?:{_JOINT}{_LETTER}+)*_*)"
)
"""It starts at the start of a word alone: a long run of letters is read once, not from each of them."""
_NUMBERED = re.compile(
    r"(?<![^\W_])([^\W\d_]{2,40})(?:[\s_.-]{0,2}(?:id|no|nr|num|number|key|code)\b\.?)?"
    r"(?:[^\w\n,;.!?]|_){1,4}"
    r"(?<![.,\d])(\d{1,20})(?![.,:]?\d|[^\W_])"
)
_COUNTED = re.compile(r"(?<![\w.,:/-])(\d{1,20})[ -]([^\W\d_]{2,40})")
_LONGEST_COUNT = 3
_ASKED_OF = regex.compile(r"(\p{L}{3,40}+) \Z")
_TIME = re.compile(r"(?<![\w.,:])\d{1,2}[:.]\d\d(?![\w:.]*\w)")


@lru_cache(maxsize=1 << 16)
def grams(word: str) -> tuple[str, ...]:
    """Returns the overlapping 4-character pieces of a word, its edges marked."""
    marked = f"_{word}_"
    if len(marked) <= GRAM:
        return (marked,)
    return tuple(marked[i : i + GRAM] for i in range(len(marked) - GRAM + 1))


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """Returns the word without its inflection, where it is in Latin letters; never under three of them."""
    if len(word) <= _SHORTEST or word[0].isdigit() or word[0] > "\u024f":
        return word
    word = _present(_singular(word))
    if word.endswith("e") and len(word) > _SHORTEST:
        word = word[:-1]
    if word.endswith("y") and len(word) > _SHORTEST:
        word = word[:-1] + "i"
    return word


_SHORTEST = 3
_DOUBLED = frozenset("bdfgmnprt")
_ENDINGS = ("ingly", "edly", "ing", "ed")
_VOWEL = re.compile("[aeiouy]")


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > _SHORTEST + 1:
        return word[:-3] + "y"
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _present(word: str) -> str:
    if not word.endswith(_ENDINGS):  # most words
        return word
    base = word.removesuffix(next(ending for ending in _ENDINGS if word.endswith(ending)))
    if len(base) < _SHORTEST - 1 or not _VOWEL.search(base):
        return word
    return base[:-1] if len(base) > _SHORTEST and base[-1] == base[-2] and base[-1] in _DOUBLED else base
