"""Finding the moments of a conversation that later turns depend on, without a model.

A decision, a commitment, a correction, a preference, a name, a number: who forgets these seems not to have listened. Everything else,
thanks and small talk most of all, can be said shorter or not at all. Names and numbers are found in every language by their form; the
other moments by English phrases, which is a limit: bring a summarizer or a plan of your own for other languages.
"""

from __future__ import annotations

import math
import re
from typing import Literal

__all__ = ["Moment", "find_moments", "is_filler", "weigh"]

Moment = Literal["decision", "commitment", "correction", "preference", "name", "number", "quote"]

_PATTERNS: dict[Moment, re.Pattern[str]] = {
    "decision": re.compile(
        r"\b(?:(?:we|i|they|let's|lets|team|board|user)(?:'ve|'ll| have| will| had| has)? (?:just |finally |all |both )?"
        r"(?:chose|choose|chosen|pick(?:ed)?|settled?|go(?:ing)? with|went with|use|using|opt(?:ed)? for)"
        r"|deci(?:de[ds]?|ding|sions?)|agree[ds]?|approve[ds]?|rejected|confirmed|finali[sz]ed|concluded|conclusion|resolved|instead of)\b",
    ),
    "commitment": re.compile(
        r"\b(?:i(?:'ll| will| shall| promise| am going to|'m going to)|we(?:'ll| will| shall)|will (?:send|deliver|call|pay|fix|ship|finish|do)"
        r"|promised?|deadline|due (?:by|on)|by (?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|tomorrow|tonight|noon|eod|end of)"
        r"|to-?do|action items?|next steps?|remind(?:er)?|appointment|scheduled?|booked|must|have to|needs? to|require[ds]?)\b",
    ),
    "correction": re.compile(
        r"\b(?:actually|correction|i meant|i mean|not .{1,40}? but|wrong|mistake|mistaken|sorry, (?:it|i|that)|scratch that"
        r"|change[ds]? (?:it|that|my|to|from)|should(?:n't| not)? (?:be|have been))\b|^no[,.]",
        re.MULTILINE,
    ),
    "preference": re.compile(
        r"\b(?:i|we|she|he|they|user|customer)(?:'d| would| really| always| also){0,3} "
        r"(?:prefers?|likes?|loves?|hates?|dislikes?|wants?|can't stand|enjoys?|avoids?|never (?:eat|use|drink|buy|want))\b"
        r"|\b(?:favou?rite|allergic|vegetarian|vegan|(?:don't|do not) like|prefer(?:ence|red|s)?|my name is|call me|i am from|i'm from|i live|i work)\b",
    ),
    "number": re.compile(r"\d"),
    "quote": re.compile(r"[\"“«][^\"”»\n]{2,80}[\"”»]|`[^`\n]+`|https?://\S+"),
    # A capital inside a sentence, letters and digits in one word, a file, a handle.
    "name": re.compile(
        r"(?:(?<=[^\W\d_] )|(?<=[^\W\d_][,;:)] ))(?!I\b|I')[^\W\d_a-z]\w+|\b[A-Z]\w*[-_]?\d+\w*\b"
        r"|\b[\w-]+\.(?:py|js|ts|md|json|ya?ml|csv|pdf|txt)\b|[@#]\w+"
    ),
}
# A phrase is looked for only where one of its words stands: most sentences have none, and a look costs a hundred times a word.
_TRIGGERS: dict[Moment, frozenset[str]] = {
    "decision": frozenset(
        """chose choose chosen pick picked settle settled go going with use using opt opted decide decided decides deciding decision decisions agree
        agrees agreed approve approves approved rejected confirmed finalised finalized concluded conclusion resolved instead""".split()
    ),
    "commitment": frozenset(
        """i'll i'm will shall am promise promised deadline due by to todo action next remind reminder appointment schedule scheduled booked must have
        need needs require requires required we'll i""".split()
    ),
    "correction": frozenset(
        "actually correction meant mean but wrong mistake mistaken sorry scratch change changed changes should shouldn't no".split()
    ),
    "preference": frozenset(
        """prefer prefers preferred preference like likes love loves hate hates dislike dislikes want wants can't enjoy enjoys avoid avoids never
        favorite favourite allergic vegetarian vegan my call am i'm live work""".split()
    ),
}
_LOWER_WORD = re.compile(r"[a-z']+")
_WEIGHTS: dict[Moment, float] = {
    "decision": 3.0,
    "commitment": 2.0,
    "correction": 2.5,
    "preference": 2.5,
    "name": 1.0,
    "number": 1.0,
    "quote": 1.0,
}
_REST = r"[^.!?]*(?=[.!?]|$)"
_FILLER = re.compile(
    r"^\W*(?:(?:ok(?:ay)?|thanks?(?: you)?(?: so much| very much| a lot)?|great|good|nice|cool|sure(?: thing)?|perfect|awesome|got it|sounds good|yes|yeah|yep"
    r"|no problem|no worries|you(?:'re| are) (?:very )?welcome|hi|hello|hey|there|bye|goodbye|see you|haha|lol|hm+|i see|right|absolutely|of course|certainly"
    r"|alright|wonderful|excellent|fine|indeed|understood|good (?:morning|evening|afternoon|night|question|point)"
    r"|that(?:'s| is) (?:great|good|nice|interesting|fine|cool)|how are you(?: today| doing)?|happy to help"
    rf"|is there anything else{_REST}|let me know if {_REST}|(?:i )?hope (?:this|that|you){_REST}|glad (?:to|i){_REST}"
    rf"|have a (?:great|nice|good){_REST}|feel free to {_REST})[\s,.!?:;)(-]*)+$",
    re.IGNORECASE,
)
_LONGEST_FILLER = 300


def find_moments(text: str) -> frozenset[Moment]:
    """Returns which kinds of key moments a text holds.

    Example:
        >>> sorted(find_moments("We decided to meet Ada at 5."))
        ['decision', 'name', 'number']
        >>> sorted(find_moments("Sounds good, thanks!"))
        []
    """
    if is_filler(text):
        return frozenset()
    lower = text.lower().replace("’", "'")
    words = set(_LOWER_WORD.findall(lower))
    found: list[Moment] = []
    for kind, pattern in _PATTERNS.items():
        triggers = _TRIGGERS.get(kind)
        silent = triggers is not None and triggers.isdisjoint(words)
        hit = None if silent else pattern.search(text if triggers is None else lower)
        if hit:
            found.append(kind)
    return frozenset(found)


def weigh(text: str) -> float:
    """Returns how much later turns may depend on a text; 0 for filler.

    Example:
        >>> weigh("Thanks a lot!"), weigh("I prefer tea.")
        (0.0, 2.5)
    """
    return math.fsum(_WEIGHTS[kind] for kind in find_moments(text))


def is_filler(text: str) -> bool:
    """Returns whether a text only keeps a conversation polite.

    Example:
        >>> is_filler("Great, thank you so much!"), is_filler("Great, ship it on Friday.")
        (True, False)
    """
    text = text.strip()
    return not text or (len(text) <= _LONGEST_FILLER and bool(_FILLER.match(text)))
