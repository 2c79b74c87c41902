"""Reading a finished prompt back into its parts: instructions, documents, history, examples and the question.

Parts are found by tags (`<context>...</context>`) or by labels at the start of a line (`Context:`, `Question:`). Without either, the last
paragraph is the question and what stands before it are documents. All parts put together are the prompt again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["Category", "PromptPart", "parse_prompt", "split_paragraphs"]

Category = Literal["system", "document", "history", "query", "example"]

_NAMES: dict[Category, str] = {
    "system": "system(?: prompt)?|instructions?",
    "document": "contexts?|documents?|docs?|background|sources?|knowledge|passages?|references?|search results|retrieved(?: documents| context)?",
    "history": "(?:chat |conversation )?history|conversation|previous messages",
    "query": "(?:user |current )?question|query|user(?: query| message)?|task|request",
    "example": "(?:few-shot )?examples?",
}
_ANY = "|".join(f"(?P<{name}>{words})" for name, words in _NAMES.items())
_TAG = re.compile(
    rf"<(?P<tag>{'|'.join(_NAMES.values())})(?: [^<>\n]*)?>\n?(?P<body>.*?)(?P<end>\n?</(?P=tag)>\n*)".replace(
        " ", "[ _]"
    ),
    re.IGNORECASE | re.DOTALL,
)
_LABEL = re.compile(
    rf"^[ \t]*(?:#{{1,6}} +)?(?:\*\*)?(?:{_ANY})(?:\*\*)?[ \t]*(?::(?:\*\*)?[ \t]*\n?|\n(?=\S))",
    re.IGNORECASE | re.MULTILINE,
)
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_LAST_QUESTION = re.compile(r"(?:(?<=[.!?])\s+|^)([^.!?\n]{3,400}\?)\s*$")


@dataclass(frozen=True, slots=True)
class PromptPart:
    """One part of a prompt.

    Args:
        category: what it is.
        before: its label or opening tag.
        text: what stands in it.
        after: its closing tag and what separates it from the next part.
    """

    category: Category
    before: str
    text: str
    after: str

    def render(self, text: str | None = None) -> str:
        """Returns the part as it stands in the prompt, with other text where some is given."""
        return f"{self.before}{self.text if text is None else text}{self.after}"


def parse_prompt(prompt: str) -> list[PromptPart]:
    r"""Returns the parts of a prompt, in order; joining their `render()` gives the prompt.

    Example:
        >>> [(p.category, p.text) for p in parse_prompt("Context:\nThe sky is blue.\n\nQuestion: What colour is it?")]
        [('document', 'The sky is blue.'), ('query', 'What colour is it?')]
        >>> [(p.category, p.text) for p in parse_prompt("The sky is blue.\n\nWhat colour is it?")]
        [('document', 'The sky is blue.'), ('query', 'What colour is it?')]
    """
    if not prompt.strip():
        return [PromptPart("query", "", prompt, "")] if prompt else []
    parts: list[PromptPart] = []
    start = 0
    for match in _TAG.finditer(prompt):
        parts.extend(_labelled(prompt[start : match.start()]))
        body = match.start("body")
        parts.append(
            PromptPart(
                _category(match.group("tag")),
                prompt[match.start() : body],
                match.group("body"),
                match.group("end"),
            )
        )
        start = match.end()
    parts.extend(_labelled(prompt[start:]))
    return parts if any(part.category == "query" for part in parts) else _with_question(parts)


def split_paragraphs(text: str) -> list[tuple[str, str]]:
    r"""Returns the paragraphs of a text, each with the white space that follows it.

    Example:
        >>> split_paragraphs("one\n\ntwo")
        [('one', '\n\n'), ('two', '')]
    """
    found: list[tuple[str, str]] = []
    start = 0
    for match in _PARAGRAPH.finditer(text):
        if match.start() > start:
            found.append((text[start : match.start()], match.group()))
            start = match.end()
    if start < len(text):
        found.append((text[start:], ""))
    return found


def _labelled(text: str) -> list[PromptPart]:
    if not text:
        return []
    labels = list(_LABEL.finditer(text))
    if not labels:
        return [_part("document", "", text)]
    parts: list[PromptPart] = []
    if labels[0].start() > 0:
        parts.append(_part("system", "", text[: labels[0].start()]))
    for label, following in zip(labels, [*labels[1:], None], strict=True):
        end = following.start() if following else len(text)
        category = next(name for name in _NAMES if label.group(name) is not None)
        parts.append(_part(category, label.group(), text[label.end() : end]))
    return parts


def _part(category: Category, before: str, text: str) -> PromptPart:
    body = text.rstrip()
    return PromptPart(category, before, body, text[len(body) :])


def _category(word: str) -> Category:
    plain = word.replace("_", " ")
    return next(name for name, words in _NAMES.items() if re.fullmatch(words, plain, re.IGNORECASE))


def _with_question(parts: list[PromptPart]) -> list[PromptPart]:
    last = parts[-1]
    if last.category != "document" or last.before:
        return parts
    paragraphs = list(_PARAGRAPH.finditer(last.text))
    cut = paragraphs[-1].end() if paragraphs else 0
    if not cut:
        question = _LAST_QUESTION.search(last.text)
        cut = question.start(1) if question else 0
    if not cut:
        return [*parts[:-1], PromptPart("query", "", last.text, last.after)]
    return [
        *parts[:-1],
        _part("document", "", last.text[:cut]),
        PromptPart("query", "", last.text[cut:], last.after),
    ]
