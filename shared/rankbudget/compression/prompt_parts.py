"""Reading a finished prompt back into its parts: instructions, documents, history, examples, the question."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Category = Literal["system", "document", "history", "query", "example"]

_NAMES: dict[Category, str] = {
    "system": "system(?: prompt)?|instructions?",
    "document": "contexts?|documents?|docs?|background|sources?|knowledge|passages?|references?"
    "|search results|retrieved(?: documents| context)?",
    "history": "(?:chat |conversation )?history|conversation|previous messages",
    "query": "(?:user |current )?question|query|user(?: query| message)?|task|request",
    "example": "(?:few-shot )?examples?",
}
_TAG_NAMES = "|".join(_NAMES.values()).replace(" ", "[ _]")
_TAG = re.compile(
    rf"<(?P<open>{_TAG_NAMES})(?:[ _][^<>\n]*)?>\n?|\n?</(?P<close>{_TAG_NAMES})>\n*", re.IGNORECASE
)
_NUMBER = r"(?:[ #]{1,2}\d{1,4})?"
"""Documents are numbered; a numbered question is one of several that the prompt quotes."""
_ANY = "|".join(f"(?P<{name}>{words}){'' if name == 'query' else _NUMBER}" for name, words in _NAMES.items())
_LABEL = re.compile(
    rf"^[ \t]*(?:#{{1,6}} +)?(?:\*\*)?(?:{_ANY})(?:\*\*)?[ \t]*(?::(?:\*\*)?[ \t]*\n?|\n(?=\S))",
    re.IGNORECASE | re.MULTILINE,
)
_INSTRUCTS = re.compile(
    r"\b(?:you are|you must|you should|your (?:task|job)|based on|use only)\b"
    r"|(?:^|[.!?:;]\s|\n)\s*(?:please )?(?:answer|respond|reply|never|always|do not|don't|be|use|keep|give"
    r"|write|list|translate|summari[sz]e|act|follow|mention|quote|cite|return)\b",
    re.IGNORECASE,
)
"""What a first paragraph says that tells the model what to do."""
_LONGEST_TASK = 2_000
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One part of a prompt: its label or opening tag, its text, and what closes and separates it."""

    category: Category
    before: str
    text: str
    after: str

    def render(self) -> str:
        """Returns the part as it was in the prompt."""
        return f"{self.before}{self.text}{self.after}"


def parse_prompt(prompt: str) -> list[PromptPart]:
    """Returns the parts of a prompt, in order; joining their `render()` gives the prompt."""
    if not prompt.strip():
        return [PromptPart("query", "", prompt, "")] if prompt else []
    parts: list[PromptPart] = []
    end = 0
    for opening, closing in _tag_pairs(prompt):
        parts.extend(_labelled(prompt[end : opening.start()]))
        before, text = opening.group(), prompt[opening.end() : closing.start()]
        parts.append(PromptPart(_category(opening.group("open")), before, text, closing.group()))
        end = closing.end()
    parts.extend(_labelled(prompt[end:]))
    return parts if any(part.category == "query" for part in parts) else _with_question(parts)


def split_paragraphs(text: str) -> list[tuple[str, str]]:
    """Returns the paragraphs of a text and the space after each; an indented one continues the last.

    A block of code between fences is in one paragraph.
    """
    found: list[tuple[str, str]] = []
    fences = [match.start() for match in _FENCE.finditer(text)]
    start = 0
    for match in _PARAGRAPH.finditer(text):
        behind = bisect_right(fences, match.start())
        in_code = behind % 2 == 1 and behind < len(fences)  # a fence that is never closed is a text
        if match.start() > start and match.group()[-1] == "\n" and not in_code:
            found.append((text[start : match.start()], match.group()))
            start = match.end()
    if start < len(text):
        found.append((text[start:], ""))
    return found


def _tag_pairs(prompt: str) -> Iterator[tuple[re.Match[str], re.Match[str]]]:
    """Yields each outermost opening tag with the first closing tag of its name after it."""
    tags = list(_TAG.finditer(prompt))
    last_end = {tag["close"].lower(): tag.start() for tag in tags if tag["close"]}
    opening: re.Match[str] | None = None
    for tag in tags:
        name = (tag["open"] or tag["close"]).lower()
        if opening is None:
            if tag["open"] and last_end.get(name, -1) >= tag.end():
                opening = tag
        elif tag["close"] and name == opening["open"].lower():
            yield opening, tag
            opening = None


def _labelled(text: str) -> list[PromptPart]:
    labels = list(_LABEL.finditer(text))
    ends = [*[label.start() for label in labels], len(text)]
    categories = [next(name for name in _NAMES if label.group(name) is not None) for label in labels]
    # Before a question alone there is what it asks about; before other parts there are instructions.
    leading: Category = "system" if {*categories} - {"query"} else "document"
    start = _end_of_task(text[: ends[0]]) if leading == "document" else 0
    parts = [_part("system", "", text[:start])] if start else []
    parts += [_part(leading, "", text[start : ends[0]])] if ends[0] > start else []
    for label, category, end in zip(labels, categories, ends[1:], strict=True):
        parts.append(_part(category, label.group(), text[label.end() : end]))
    return parts


def _end_of_task(text: str) -> int:
    """Returns where a first paragraph that tells the model what to do ends; 0 where there is none."""
    [(first, gap), *_] = split_paragraphs(text[: 2 * _LONGEST_TASK]) or [("", "")]
    is_task = len(first) <= _LONGEST_TASK and not first.rstrip().endswith("?")
    return len(first) + len(gap) if is_task and _INSTRUCTS.search(first) else 0


def _part(category: Category, before: str, text: str) -> PromptPart:
    body = text.rstrip()
    return PromptPart(category, before, body, text[len(body) :])


def _category(tag: str) -> Category:
    plain = tag.replace("_", " ")
    return next(name for name, words in _NAMES.items() if re.fullmatch(words, plain, re.IGNORECASE))


def _with_question(parts: list[PromptPart]) -> list[PromptPart]:
    """Returns the parts with the last paragraph as the question; behind a label it must end as one."""
    last = parts[-1]
    paragraphs = split_paragraphs(last.text)
    cut = len(last.text) - len(paragraphs[-1][0]) if paragraphs else 0
    is_task = last.category == "system" and not last.before  # the last text says what is asked
    if not is_task and last.category != "document":
        return parts
    if last.before and not (cut and last.text.endswith("?")):
        return parts
    before = [_part(last.category, last.before, last.text[:cut])] if cut else []
    return [*parts[:-1], *before, PromptPart("query", "", last.text[cut:], last.after)]
