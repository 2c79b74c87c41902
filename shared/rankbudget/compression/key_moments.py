"""Finding the moments of a conversation that later turns depend on, without a model.

A decision, a commitment, a correction, a preference, a name, a number. Everything else, thanks and small talk
most of all, can be shortened or dropped. Names and numbers are found in every language by their form; the
other moments by English phrases: for other languages, pass a summarizer or a plan of your own.
"""

from __future__ import annotations

import math
import re
from typing import Literal

__all__ = ["Moment", "find_moments", "is_filler", "weigh"]

Moment = Literal["decision", "commitment", "correction", "preference", "name", "number", "quote"]

_PATTERNS: dict[Moment, re.Pattern[str]] = {
    "decision": re.compile(
        r"\b(?:(?:we|i|they|let's|lets|team|board|user)(?:'ve|'ll| have| will| had| has)? (?:just "
        r"|finally |all |both )?(?:chose|choose|chosen|pick(?:ed)?|settled?|go(?:ing)? with|went with|use"
        r"|using|opt(?:ed)? for)|deci(?:de[ds]?|ding|sions?)|agree[ds]?|approve[ds]?|rejected|confirmed"
        r"|finali[sz]ed|concluded|conclusion|resolved|instead of)\b"
    ),
    "commitment": re.compile(
        r"\b(?:i(?:'ll| will| shall| promise| am going to|'m going to)|we(?:'ll| will| shall)|promised?"
        r"|deadline|will (?:send|deliver|call|pay|fix|ship|finish|do)|due (?:by|on)|to-?do|action items?"
        r"|next steps?|by (?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|tonight"
        r"|noon|eod|end of)|remind(?:er)?|appointment|scheduled?|booked|must|have to|needs? to"
        r"|require[ds]?)\b"
    ),
    "correction": re.compile(
        r"\b(?:actually|correction|i meant|i mean|not .{1,40}? but|wrong|mistake|mistaken|sorry, (?:it|i"
        r"|that)|scratch that|change[ds]? (?:it|that|my|to|from)|should(?:n't| not)? (?:be|have been))\b"
        r"|^no[,.]",
        re.MULTILINE,
    ),
    "preference": re.compile(
        r"\b(?:i|we|she|he|they|user|customer)(?:'d| would| really| always| also){0,3} (?:prefers?|likes?"
        r"|loves?|hates?|dislikes?|wants?|can't stand|enjoys?|avoids?|never (?:eat|use|drink|buy|want))\b"
        r"|\b(?:favou?rite|allergic|vegetarian|vegan|(?:don't|do not) like|prefer(?:ence|red|s)?"
        r"|my name is|call me|i am from|i'm from|i live|i work)\b"
    ),
    "number": re.compile(r"\d"),
    "quote": re.compile(r"[\"“«][^\"”»\n]{2,80}[\"”»]|`[^`\n]+`|https?://\S+"),
    # A capital inside a sentence, letters and digits in one word, a file, a handle.
    "name": re.compile(
        r"(?:(?<=[^\W\d_] )|(?<=[^\W\d_][,;:)] ))(?!I\b|I')[^\W\d_a-z]\w+|\b[A-Z]\w*[-_]?\d+\w*\b"
        r"|(?<![\w-])[\w-]+\.(?:py|js|ts|md|json|ya?ml|csv|pdf|txt)\b|[@#]\w+"
    ),
}
_IN_EVERY_LANGUAGE = ("name", "number", "quote")
_WEIGHTS: dict[Moment, float] = {
    "decision": 3.0,
    "commitment": 2.0,
    "correction": 2.5,
    "preference": 2.5,
    "name": 1.0,
    "number": 1.0,
    "quote": 1.0,
}
# One polite phrase and the marks after it; longer phrases first, because the first match counts.
_PHRASE = re.compile(
    r"(?:(?:is there anything else|let me know if |(?:i )?hope (?:this|that|you)|glad (?:to|i)"
    r"|have a (?:great|nice|good)|feel free to )[^.!?]*|(?:thank(?:s| you)?(?: so much| very much| a lot)?"
    r"|good (?:morning|evening|afternoon|night|question|point)|ok(?:ay)?|great|good(?:bye)?|nice|cool"
    r"|sure(?: thing)?|perfect|awesome|got it|sounds good|yes|yeah|yep|no problem|no worries|you(?:'re"
    r"| are) (?:very )?welcome|hi|hello|hey|there|bye|see you|haha|lol|hm+|i see|right|absolutely"
    r"|of course|certainly|alright|wonderful|excellent|fine|indeed|understood|happy to help|that(?:'s"
    r"| is) (?:great|good|nice|interesting|fine|cool)|how are you(?: today| doing)?)(?!\w))[\s,.!?:;)(-]*",
    re.IGNORECASE,
)
_LEADING_MARKS = re.compile(r"\W*")
_LONGEST_FILLER = 300


def find_moments(text: str) -> frozenset[Moment]:
    """Returns which kinds of key moments a text holds.

    Example:
        >>> sorted(find_moments("We decided to meet Ada at 5."))
        ['decision', 'name', 'number']
    """
    if is_filler(text):
        return frozenset()
    lower = text.lower().replace("’", "'")
    return frozenset(
        kind
        for kind, pattern in _PATTERNS.items()
        if pattern.search(text if kind in _IN_EVERY_LANGUAGE else lower)
    )


def weigh(text: str) -> float:
    """Returns how much later turns may depend on a text; 0 for filler."""
    return math.fsum(_WEIGHTS[kind] for kind in find_moments(text))


def is_filler(text: str) -> bool:
    """Returns whether a text only keeps a conversation polite."""
    text = text.strip()
    if not text or len(text) > _LONGEST_FILLER:
        return not text
    marks = _LEADING_MARKS.match(text)
    position = marks.end() if marks else 0
    if position == len(text):
        return False
    while position < len(text):
        phrase = _PHRASE.match(text, position)
        if phrase is None:
            return False
        position = phrase.end()
    return True
