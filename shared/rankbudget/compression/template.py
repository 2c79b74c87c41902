"""Template: filler and repeated patterns of a system prompt in fewer tokens; instructions stay as written."""

from __future__ import annotations

import re

from ..relevance.words import raw_words
from .key_moments import is_filler
from .units import split_units

_LIST_MARK = re.compile(r"\s*(?:[-*•–]|\d+[.)]|\(?[a-z][.)]|#{1,6})?\s*(?:\*\*|__)?", re.IGNORECASE)
_STATEMENT_STARTS = frozenset(
    """the a an this that these those there here you we i he she it they our your my their his her its
    as in on at for with by from to of about since because while although though thank thanks
    welcome hello hi greetings dear also additionally furthermore moreover overall generally
    typically usually often sometimes today every each all most many some founded known""".split()
)
_DIRECTIVE = re.compile(
    r"\b(?:must|should|shall|never|always|do not|cannot|can not|may|might|only|require[ds]?|avoid|ensure"
    r"|make sure|need(?:s|ed)? to|have to|has to|ought|supposed to|are to|is to|allowed|permitted|expected"
    r"|forbidden|prohibited|instead|unless|except|if|when|whenever|before|after|until|at most|at least"
    r"|no more|no less|not|no|without|please|kindly|mandatory|important|responsible|your (?:task|job|role"
    r"|goal|mission|duty|output|answer|response)|(?:you|assistant|model|agent|bot|response|answer|output"
    r"|reply|it|they)(?:'ll| will| can| could| would))\b|n't\b",
    re.IGNORECASE,
)
_PLEASANTRY = re.compile(
    r"(?:(?:and|also|again|finally)[, ]+)?(?:thank(?:s| you)\b|welcome\b|hello\b|hi\b|greetings\b"
    r"|good luck\b|(?:we|i)(?:'re| are| am|'m) (?:\w+ ){0,2}(?:excited|happy|proud|pleased|delighted|glad"
    r"|thrilled|honou?red|grateful)\b|(?:we|i) (?:\w+ )?(?:hope|appreciate|believe|know|trust"
    r"|look forward)\b|it is (?:\w+ )?(?:a|our) (?:\w+ )?(?:pleasure|honou?r|privilege)\b"
    r"|needless to say\b|it goes without saying\b|(?:as|like) (?:you know|mentioned|stated|noted|we said"
    r"|described)[^,]*[.!]|have (?:a )?(?:fun|great|nice)\b|your (?:work|help|effort|contribution)s? (?:is"
    r"|are|matters?|means?)\b|this (?:is|will be) (?:going to be )?(?:a )?(?:\w+ )?(?:great|fun|wonderful"
    r"|exciting|amazing)\b)",
    re.IGNORECASE,
)
_BINDING = re.compile(r"\b(?:must|never|always|do not|don't|only)\b", re.IGNORECASE)
_PHRASES = r"""
in order to => to
(?:due to|owing to|on account of) the fact that|for the reason that => because
in the event that => if
at (?:this point in|the present|the current) time => now
for the purpose of => for
with (?:regard|respect|reference) to|in (?:regard|relation|reference) to => about
a (?:large|great|significant|vast) (?:number|amount|majority|quantity) of => many
a (?:wide|broad|diverse) (?:variety|range|array) of => many
(?:is|are) able to|(?:has|have) the (?:ability|capability|capacity) to => can
(?:in spite of|despite) the fact that => although
it is (?:worth|important) (?:noting|to note|to mention|mentioning|to remember|to understand) that ? =>
(?:please )?(?:note|be aware|keep in mind|bear in mind|remember) that ? =>
(?:as a matter of fact|needless to say|at the end of the day|to be honest|in other words),? ? =>
it goes without saying that ? =>
each and every|any and all => every
on a (daily|weekly|monthly|yearly) basis => \1
in (?:close )?(?:conjunction|combination) with => with
(?:very|really|extremely|incredibly|truly|highly|quite) (?=[a-z]) =>
(?:absolutely|totally|completely|particularly|especially) (?=[a-z]) =>
(?:basically|essentially|actually|literally),? |simply  =>
"""
_SHORTER = tuple(
    (re.compile(rf"\b(?:{long})\b", re.IGNORECASE), short.strip())
    for long, _, short in (line.partition(" =>") for line in _PHRASES.strip().splitlines())
)
_KEEP = re.compile(r"(\"[^\"\n]*\"|“[^“”\n]*”|`[^`\n]*`|https?://\S+|\{\{?[^{}\n]*\}\}?|<[^<>\n]*>)")
_RULER = re.compile(r"^[ \t]*[-=*_#~+.]{4,}[ \t]*$\n?", re.MULTILINE)
_FEWEST_WORDS = 3


def compress_template(text: str) -> str:
    """Returns a system prompt without its filler; every instruction in it is copied as it is.

    Repeated sentences stay once, pleasantries and rulers go, long-winded phrases in statements become short.
    Code, JSON, tables, quotes, URLs, template fields and numbers stay whole.

    Example:
        >>> compress_template("We are happy to have you. You are a really helpful bot. Cite it.")
        'You are a helpful bot. Cite it.'
    """
    kept: list[str] = []
    seen: set[str] = set()
    for unit in split_units(text):
        if unit.fixed:
            kept.append(unit.text)
            continue
        written = _RULER.sub("", unit.text)
        body, plain = written.rstrip(), written.strip()
        after = written[len(body) :]
        breaks = min(after.count("\n"), 2)
        instruction = is_instruction(plain)
        repeated = plain in seen and len(raw_words(plain)) >= _FEWEST_WORDS
        if not plain or repeated or (not instruction and _is_empty_talk(plain)):
            if kept:  # what stays before and after it stays apart
                kept[-1] += "\n" * (breaks - (len(kept[-1]) - len(kept[-1].rstrip("\n"))))
            continue
        seen.add(plain)
        kept.append((body if instruction else _shorten(body)) + ("\n" * breaks or after[:1]))
    return re.sub(r"\n{3,}", "\n\n", "".join(kept)).strip()


def is_instruction(sentence: str) -> bool:
    """Returns whether a sentence may tell the model what to do; in doubt it does."""
    plain = _LIST_MARK.sub("", sentence, count=1).strip()
    if _PLEASANTRY.match(plain) and not _BINDING.search(plain):
        return False
    first = re.match(r"[\w']+", plain)
    if first is None:
        return bool(plain.strip(" \t\n-=*_#~+.:;,!?"))
    return first.group().lower() not in _STATEMENT_STARTS or bool(_DIRECTIVE.search(plain))


def _is_empty_talk(plain: str) -> bool:
    text = _LIST_MARK.sub("", plain, count=1).strip()
    polite = _PLEASANTRY.match(text) and not re.search(r"\d", text) and not _KEEP.search(text)
    return bool(polite) or is_filler(text)


def _shorten(text: str) -> str:
    """Returns a statement in fewer words; quotes, code, URLs and fields in it are copied."""
    parts = _KEEP.split(text)
    for i in range(0, len(parts), 2):
        for pattern, short in _SHORTER:
            parts[i] = pattern.sub(short, parts[i])
        parts[i] = re.sub(r"(?<=\S) {2,}", " ", parts[i])
    shorter = "".join(parts)
    lead = len(shorter) - len(shorter.lstrip())
    first = shorter[lead : lead + 1]
    return shorter[:lead] + (first.upper() if text.lstrip()[:1].isupper() else first) + shorter[lead + 1 :]
