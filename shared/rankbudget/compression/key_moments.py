"""Finding the moments of a conversation that later turns depend on, by names, numbers and English phrases."""

from __future__ import annotations

import re
from typing import Literal

Moment = Literal[
    "decision", "commitment", "correction", "preference", "fact", "feeling", "name", "number", "quote"
]


def _phrases(*phrases: str) -> re.Pattern[str]:
    """Returns a pattern of whole words; "@" is the one who speaks, "~" what may stand after it."""
    who = r"(?:i|we|he|she|they|the (?:user|customer|team|board))"
    after = (
        r"(?:'m|'re|'ve|'ll|'d| am| are| is| was| were| have| has| had| will| would)?"
        r"(?: \w+ly| just| also| all| both| so| very| a bit)?"
    )
    words = "|".join(phrases).replace("@", who).replace("~", after)
    return re.compile(rf"(?:\b|(?<=\s)|^)(?:{words})\b", re.MULTILINE)


_PATTERNS: dict[Moment, re.Pattern[str]] = {
    "decision": _phrases(
        r"deci(?:de[ds]?|ding|sions?)|agree[ds]?(?: on| to| that)?|approve[ds]?|rejected|confirmed"
        r"|finali[sz]ed",
        r"concluded|conclusion|resolved|settled?|instead of|(?:made|make) up (?:my|our) minds?",
        r"@~ (?:chose|choose|chosen|pick(?:ed|ing)?|go(?:ing)? with|went with|us(?:e|ed|ing)|opt(?:ed"
        r"|ing)? for|stick(?:ing)? (?:to|with)|went for|choosing|voted|going ahead",
        r"end(?:ed)? up|take the|took the|not \w+ing the)",
        r"let(?:'s|s| us)(?: just)? (?!me\b|see\b|say\b|look\b|talk\b)(?:do|go|meet|book|buy|use|take"
        r"|pick|keep|drop|scrap|skip|stick|make|try|start|stop|move)",
        r"\w+ it is(?=[ .!]*$)|(?:do|go) with (?:that|this|the)",
    ),
    "commitment": _phrases(
        r"(?:i|we)(?:'ll| will| shall|(?:'m|'re| am| are) going to)|gonna|promised?"
        r"|deadlines?",
        r"will (?:send|deliver|call|pay|fix|ship|finish|do|get|let|be|check|bring|write)|due (?:by|on"
        r"|mon|tue|wed|thu|fri|sat|sun|tomorrow|next)\w*|to-?do|let me forget",
        r"action items?|next steps?|remind(?:er)?|appointments?|scheduled?|booked|must|have to"
        r"|needs? to|require[ds]?",
        r"(?:by|before|until|next|this) (?:mon|tues|wednes|thurs|fri|satur|sun)day|by (?:tomorrow"
        r"|tonight|noon|eod|end of)",
        r"(?:meeting|call|flight|interview|exam|surgery|wedding|party|trip) (?:is |with .{1,30} )?(?:on"
        r"|at|next|in|tomorrow)",
    ),
    "correction": _phrases(
        r"actually|correction|@ mea?nt?(?! to)|not .{1,40}? but|it's .{1,40}?,? not|wrong|mistake[ns]?"
        r"|mistaken|oops",
        r"sorry,? (?:it|i|that)|scra(?:tch|p) (?:that|what)|change[ds]? (?:it|that|my|to|from)|no,? wait",
        r"should(?:n't| not)? (?:be|have been|say|read)|(?:that's|that is|it's|this is|is) not (?:what"
        r"|how|right|true|correct)",
        r"(?:is|was) spelled|misspelled|typo|not what @|never said|@ said|mixed .{0,20}up|my bad"
        r"|incorrect|ignore (?:that|the)|^no,? (?:that's|it's|i|the|not)",
    ),
    "preference": _phrases(
        r"@~(?: would| always| never| usually| don't| do not| really){0,3} (?:prefers?|likes?|loves?"
        r"|hates?|dislikes?",
        r"wants?|enjoys?|avoids?|eat|drink|shop|rather|can't stand|more of an?|into"
        r"|an? .{1,20} (?:person|fan))",
        r"(?:can't|cannot) stand|favou?rites?|vegetarian|vegan|(?:don't|do not|not) (?:really )?like",
        r"prefer(?:ence|red|s)?|rather .{1,40}? than|not (?:a|my) (?:big )?(?:fan|thing)|call me"
        r"|address me",
        r"from now on|(?:please )?(?:always|never|don't ever) (?!mind\b)\w+|keep (?:your |the )?answers"
        r"|stop \w+ing|please (?:write|use|answer|reply|call) (?!the\b|a\b)|@ only|not into",
    ),
    "fact": _phrases(
        r"my (?:\w+ )?(?:wife|husband|partner|son|daughter|kids?|child(?:ren)?|mom|mum|dad|mother"
        r"|father|parents?|brother|sister",
        r"(?:girl|boy)?friend|dog|cat|boss|job|name|birthday|house|flat|apartment|car|doctor|team"
        r"|company|school|age)(?:'s)?",
        r"our (?:son|daughter|kids?|baby|house|flat|dog|cat|company|team)|@(?:'m| am| was) an? (?!bit\b"
        r"|little\b|fan\b|lot\b|big\b|sorry\b|more\b|good\b)\w+",
        r"@~ (?:live[sd]?|moved?|born|grew up|work(?:s|ed)? (?:at|as|for|in)|study(?:ing)?|studied"
        r"|bought|sold|broke my|originally|got married|married|divorced|pregnant|retired",
        r"allergic|diabetic|years old)|i(?:'m| am) (?:from|\d\d)|@ have (?:an?|two|three|four|\d+) \w+"
        r"|allergic|live alone",
    ),
    "feeling": _phrases(
        r"(?:worr(?:ied|ying)|anxious|nervous|scared|afraid|terrified|frightened|depressed|lonely|alone"
        r"|sad|upset|angry|furious|mad at",
        r"frustrat(?:ed|ing)|annoy(?:ed|ing)|overwhelmed|exhausted|stressed|ashamed|guilty|embarrassed"
        r"|jealous|hurt|heartbroken",
        r"devastated|disappointed|hopeless|excited|happy|thrilled|proud|grateful|relieved|in love"
        r"|delighted)(?! to (?:help|assist))",
        r"@~ feel(?:ing|s)?|felt|crying|cried|tears|miss(?:ed)? (?:her|him|them|you|my|home)|scares? me"
        r"|made my (?:day|week)",
        r"passed away|died|funeral|grie(?:f|ving)|ugh|can't (?:cope|take it|sleep|believe)|love (?:her"
        r"|him|them|you)|breaks? my heart",
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
    return sum([1.0 if kind in _IN_EVERY_LANGUAGE else 2.5 for kind in find_moments(text)])


def is_filler(text: str) -> bool:
    """Returns whether a text only keeps a conversation polite."""
    text = text.strip()
    if not text or len(text) > _LONGEST_FILLER:
        return not text
    found = _LEADING_MARKS.match(text)
    while found and found.end() < len(text):
        found = _PHRASE.match(text, found.end())
    return found is not None and found.re is _PHRASE
