"""Template: repeated patterns and filler of a system prompt in fewer tokens; every instruction stays as it is written.

What may change is decided first and narrowly: a sentence that may be an instruction is copied. Of the rest, repeats and pleasantries go
and long-winded phrases become short ones.
"""

from __future__ import annotations

import re
from collections import Counter

from ..relevance.words import content_terms, raw_words
from .key_moments import is_filler
from .units import split_units

__all__ = ["compress_template", "is_instruction"]

_LIST_MARK = re.compile(r"^\s*(?:[-*•–]|\d+[.)]|\(?[a-z][.)]|#{1,6})?\s*(?:\*\*|__)?", re.IGNORECASE)
_STATEMENT_STARTS = frozenset(
    """the a an this that these those there here you we i he she it they our your my their his her its as in on at for with by from to of about
    since because while although though thank thanks welcome hello hi greetings dear also additionally furthermore moreover overall generally
    typically usually often sometimes today every each all most many some founded known""".split()
)
_DIRECTIVE = re.compile(
    r"\b(?:must|should|shall|never|always|do not|don't|cannot|can't|can not|won't|may|might|only|require[ds]?|avoid|ensure|make sure|need(?:s|ed)? to"
    r"|have to|has to|ought|supposed to|are to|is to|allowed|permitted|expected|forbidden|prohibited|instead|unless|except|if|when|whenever|before|after|until"
    r"|at most|at least|no more|no less|not|no|without|please|kindly|mandatory|important|responsible|your (?:task|job|role|goal|mission|duty|output|answer|response)"
    r"|(?:you|assistant|model|agent|bot|response|answer|output|reply|it|they)(?:'ll| will| can| could| would))\b|n't\b",
    re.IGNORECASE,
)
_PLEASANTRY = re.compile(
    r"^(?:(?:and|also|again|finally)[, ]+)?(?:thank(?:s| you)\b|welcome\b|(?:we|i)(?:'re| are| am|'m) (?:\w+ ){0,2}(?:excited|happy|proud|pleased|delighted|glad|thrilled|honou?red|grateful)\b"
    r"|(?:we|i) (?:\w+ )?(?:hope|appreciate|believe|know|trust|look forward)\b|it is (?:\w+ )?(?:a|our) (?:\w+ )?(?:pleasure|honou?r|privilege)\b"
    r"|(?:as|like) (?:you know|mentioned|stated|noted|we said|described)[^,]*[.!]|needless to say\b|it goes without saying\b|your (?:work|help|effort|contribution)s? (?:is|are|matters?|means?)\b"
    r"|this (?:is|will be) (?:going to be )?(?:a )?(?:\w+ )?(?:great|fun|wonderful|exciting|amazing)\b|have (?:a )?(?:fun|great|nice)\b|good luck\b|hello\b|hi\b|greetings\b)",
    re.IGNORECASE,
)
_SHORTER: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"\b{long}\b", re.IGNORECASE), short)
    for long, short in (
        (r"in order to", "to"),
        (
            r"due to the fact that|owing to the fact that|for the reason that|on account of the fact that",
            "because",
        ),
        (r"in the event that", "if"),
        (r"at this point in time|at the present time|at the current time", "now"),
        (r"for the purpose of", "for"),
        (r"with (?:regard|respect|reference) to|in (?:regard|relation|reference) to", "about"),
        (r"a (?:large|great|significant|vast) (?:number|amount|majority|quantity) of", "many"),
        (r"a wide (?:variety|range|array) of|a (?:broad|diverse) (?:variety|range|array) of", "many"),
        (r"(?:is|are) able to|(?:has|have) the (?:ability|capability|capacity) to", "can"),
        (r"in spite of the fact that|despite the fact that", "although"),
        (
            r"it is (?:worth|important) (?:noting|to note|to mention|mentioning|to remember|to understand) that ?",
            "",
        ),
        (r"(?:please )?(?:note|be aware|keep in mind|bear in mind|remember) that ?", ""),
        (
            r"as a matter of fact,? ?|needless to say,? ?|it goes without saying that ?|at the end of the day,? ?|to be honest,? ?|in other words,? ?",
            "",
        ),
        (r"(?:each and every|any and all)", "every"),
        (r"on a (daily|weekly|monthly|yearly) basis", r"\1"),
        (r"in (?:close )?(?:conjunction|combination) with", "with"),
        (r"such as,? for example,?", "such as"),
        (
            r"(?:very|really|extremely|incredibly|truly|highly|quite|absolutely|totally|completely|particularly|especially) (?=[a-z])",
            "",
        ),
        (r"basically,? |essentially,? |actually,? |literally,? |simply ", ""),
        (r"kind of|sort of", ""),
        (r"has been designed (?:in such a way )?(?:so )?(?:that it can|to)", "can"),
        (r"the (?:overall|main|primary|ultimate) (?:goal|purpose|aim|objective) of (\w+) is to", r"\1 must"),
    )
)[:-1]
_KEEP = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|`[^`\n]*`|https?://\S+|\{\{?[^{}\n]*\}\}?|<[^<>\n]*>")
_RULER = re.compile(r"^[ \t]*[-=*_#~+.]{4,}[ \t]*$\n?", re.MULTILINE)
_NAME = re.compile(
    r"\b(?!(?:The|A|An|Our|Your|This|That|In|At|For|From|Of|And)\b)[A-Z][\w&-]*(?: (?:of |and |for |the )?[A-Z][\w&-]*){2,}"
)
_FEWEST_MENTIONS = 3
_SAME_SHARE = 0.9
_FEWEST_TERMS = 3
_LOOK_BACK = 200


def compress_template(text: str, *, abbreviate_names: bool = True) -> str:
    """Returns a system prompt without its filler; every instruction in it is copied as it is.

    Repeated sentences stay once, pleasantries go, long-winded phrases in statements become short, rulers and empty lines go, and a name
    of three words or more that statements repeat gets an abbreviation where it first stands. Code, JSON, tables, quotes, URLs, template
    fields and numbers stay whole.

    Args:
        text: the system prompt.
        abbreviate_names: whether repeated long names become abbreviations in statements.

    Example:
        >>> compress_template("We are very happy to have you here. You are a really helpful bot. Always answer in order. Always answer in order.")
        'You are a helpful bot. Always answer in order.'
    """
    kept: list[tuple[str, bool]] = []
    seen: set[str] = set()
    said: list[frozenset[str]] = []
    dropped_break = ""
    for unit in split_units(text):
        if unit.kind in {"code", "json", "table"}:
            kept.append((unit.text, True))
            continue
        body, tail = _split_tail(_RULER.sub("", unit.text))
        plain = body.strip()
        repeated = plain in seen and len(raw_words(plain)) >= _FEWEST_TERMS
        if not plain or repeated:
            dropped_break = _longer_break(dropped_break, tail)
            continue
        seen.add(plain)
        if not is_instruction(plain):
            if _is_empty_talk(plain) or (unit.kind == "sentence" and _said_before(plain, said)):
                dropped_break = _longer_break(dropped_break, tail)
                continue
            body = _shorten(body)
        said.append(frozenset(content_terms(plain)))
        if dropped_break and kept:
            kept[-1] = (_with_break(kept[-1][0], dropped_break), kept[-1][1])
        dropped_break = ""
        kept.append((body + tail, is_instruction(plain)))
    if abbreviate_names:
        kept = _abbreviated(kept, text)
    return re.sub(r"\n{3,}", "\n\n", "".join(piece for piece, _ in kept)).strip()


def is_instruction(sentence: str) -> bool:
    """Returns whether a sentence may tell the model what to do; in doubt it does.

    Example:
        >>> is_instruction("- Cite your sources."), is_instruction("The company was founded by Ada.")
        (True, False)
    """
    plain = _LIST_MARK.sub("", sentence, count=1).strip()
    if _PLEASANTRY.match(plain) and not re.search(
        r"\b(?:must|never|always|do not|don't|only)\b", plain, re.IGNORECASE
    ):
        return False
    first = re.match(r"[\w']+", plain)
    if first is None:
        return bool(plain.strip(" \t\n-=*_#~+.:;,!?"))
    return first.group().lower() not in _STATEMENT_STARTS or bool(_DIRECTIVE.search(plain))


def _is_empty_talk(plain: str) -> bool:
    text = _LIST_MARK.sub("", plain, count=1).strip()
    return is_filler(text) or (
        bool(_PLEASANTRY.match(text)) and not re.search(r"\d", text) and not _KEEP.search(text)
    )


def _said_before(plain: str, said: list[frozenset[str]]) -> bool:
    if re.search(r"\d", plain) or _KEEP.search(plain):
        return False
    mine = frozenset(content_terms(plain))
    return len(mine) >= _FEWEST_TERMS and any(
        len(mine & other) >= _SAME_SHARE * len(mine) for other in said[-_LOOK_BACK:]
    )


def _shorten(text: str) -> str:
    # What must stay whole is lifted out, so that no pattern can reach into it; NULs mark the places.
    if "\x00" in text:
        return text
    held: list[str] = []

    def hold(match: re.Match[str]) -> str:
        held.append(match.group())
        return f"\x00{len(held) - 1}\x00"

    started_upper = text.lstrip()[:1].isupper()
    shorter = _KEEP.sub(hold, text)
    for pattern, short in _SHORTER:
        shorter = pattern.sub(short, shorter)
    shorter = re.sub(r"(?<=\S) {2,}", " ", shorter)
    lead = len(shorter) - len(shorter.lstrip())
    if started_upper and shorter[lead : lead + 1].islower():
        shorter = shorter[:lead] + shorter[lead].upper() + shorter[lead + 1 :]
    return re.sub(r"\x00(\d+)\x00", lambda match: held[int(match.group(1))], shorter)


def _split_tail(text: str) -> tuple[str, str]:
    body = text.rstrip()
    breaks = text[len(body) :].count("\n")
    return body, "\n" * min(breaks, 2) if breaks else text[len(body) :][:1]


def _longer_break(one: str, other: str) -> str:
    return max(one, other, key=lambda text: text.count("\n"))


def _with_break(text: str, line_break: str) -> str:
    have = len(text) - len(text.rstrip("\n"))
    return text + "\n" * max(line_break.count("\n") - have, 0)


def _abbreviated(kept: list[tuple[str, bool]], text: str) -> list[tuple[str, bool]]:
    mentions = Counter(match.group() for piece, fixed in kept if not fixed for match in _NAME.finditer(piece))
    out = list(kept)
    for name, count in mentions.items():
        short = "".join(word[0] for word in name.split() if word[0].isupper())
        if count < _FEWEST_MENTIONS or re.search(rf"\b{short}\b", text):
            continue
        first = True
        for i, (piece, fixed) in enumerate(out):
            if fixed or name not in piece or _KEEP.search(piece):
                continue
            pattern = re.compile(rf"\b{re.escape(name)}\b")
            if first:
                head = pattern.sub(f"{name} ({short})", piece, count=1)
                at = head.index(f"({short})")
                out[i] = (head[:at] + pattern.sub(short, head[at:]), fixed)
                first = False
            else:
                out[i] = (pattern.sub(short, piece), fixed)
    return out
