"""Reads a chat as OpenAI-style messages, and a folder of texts as passages."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import BudgetConfigError, shown
from ..messages.codec import PINNED_ROLES, DictCodec
from ..segment import Provenance, Segment

SUFFIXES = (".md", ".markdown", ".rst", ".txt")
_READ = ("'messages'", "'system'", "'tools'", "'functions'", "'response_format'")
_UNREAD = ("instructions", "input", "contents", "systemInstruction", "system_instruction", "toolConfig")
"""Where requests of other APIs have what a model reads: uncounted, it would make every figure wrong."""
_LARGEST_FILE = 20_000_000
_PASSAGE = 1_200  # characters, about 300 tokens: large enough to answer, small enough that several fit


# ---- a chat --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A conversation from a file, oldest message first.

    Args:
        messages: those of the file.
        tools: schemas that are sent along, of tools and of the answer.
        system: the message that a system prompt beside the messages means.
    """

    messages: list[Mapping[str, Any]]
    tools: list[Mapping[str, Any]] | None = None
    system: Mapping[str, Any] | None = None

    @property
    def prompt(self) -> list[Mapping[str, Any]]:
        """All messages, the system prompt first."""
        return self.messages if self.system is None else [self.system, *self.messages]

    def split(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Returns the leading system messages, and the rest."""
        prompt = self.prompt
        others = (i for i, m in enumerate(prompt) if m["role"] not in PINNED_ROLES)
        at = next(others, len(prompt))
        return prompt[:at], prompt[at:]


def read_chat(path: str | Path) -> Chat:
    """Returns the conversation of a JSON file; "-" is standard input.

    The file holds a list of messages, one message a line, or a request with `messages` and, beside them,
    `system`, `tools`, `functions` and `response_format`.

    Raises:
        BudgetConfigError: the file cannot be read or holds something else.
        MessageError: a message has no role.
    """
    data = _parsed(read_text(path), path)
    if isinstance(data, list) and len(data) > 1 and all(_is_request(one) for one in data):
        msg = f"{path} must hold one chat (got {len(data):,}). Fit a file of chats with `rankbudget batch`."
        raise BudgetConfigError(msg)
    if isinstance(data, Mapping) and "role" in data:
        data = [data]
    chat = data if isinstance(data, Mapping) else {"messages": data}
    messages = chat.get("messages")
    if not isinstance(messages, list) or not messages:
        msg = f"{path} must hold a list of messages, or an object with 'messages' (got {shown(data)})"
        raise BudgetConfigError(msg)
    if unread := [key for key in _UNREAD if chat.get(key)]:
        msg = f"{path} must have its prompt in {', '.join(_READ)} (got {unread[0]!r}). Move it there."
        raise BudgetConfigError(msg)
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            msg = f"message {position} of {path} must be an object with 'role' (got {shown(message)})"
            raise BudgetConfigError(msg)
    DictCodec().roles(messages)
    return Chat(messages=messages, tools=_schemas(chat, path) or None, system=_system(chat, path))


def _is_request(data: Any) -> bool:
    return isinstance(data, Mapping) and "messages" in data and "role" not in data


def _system(chat: Mapping[str, Any], path: str | Path) -> Mapping[str, Any] | None:
    """Returns the system prompt of a request as a message; its content stays as it is."""
    given = chat.get("system")
    if not given:
        return None
    blocks = isinstance(given, list) and all(isinstance(block, Mapping) for block in given)
    if not blocks and not isinstance(given, str):
        msg = f"'system' of {path} must be a text or a list of content blocks (got {shown(given)})"
        raise BudgetConfigError(msg)
    return {"role": "system", "content": given}


def _schemas(chat: Mapping[str, Any], path: str | Path) -> list[Mapping[str, Any]]:
    """Returns the schemas of a request: tools, what they were called before, and the form of the answer."""
    found: list[Mapping[str, Any]] = []
    for key in ("tools", "functions"):
        tools = chat.get(key) or []
        if not (isinstance(tools, list) and all(isinstance(tool, Mapping) for tool in tools)):
            msg = f"{key!r} of {path} must be a list of tool schemas (got {shown(tools)})"
            raise BudgetConfigError(msg)
        found += tools
    answer = chat.get("response_format") or {}
    if not isinstance(answer, Mapping):
        msg = f"'response_format' of {path} must be an object (got {shown(answer)})"
        raise BudgetConfigError(msg)
    return [*found, answer] if "json_schema" in answer else found


def read_text(path: str | Path) -> str:
    """Returns the text of a file; "-" is standard input.

    Raises:
        BudgetConfigError: the file cannot be read, or is not UTF-8.
    """
    return _standard_input() if str(path) == "-" else _text(Path(path))


def _parsed(text: str, path: str | Path) -> Any:
    """Returns the JSON of a file, or of its lines; once a line was read, an error names the wrong one."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        whole = f"{path} is not JSON ({error})"
    found: list[Any] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            msg = f"line {number} of {path} must be JSON (got {error})" if found else whole
            raise BudgetConfigError(msg) from error
    if not found:
        raise BudgetConfigError(whole)
    return found


def _standard_input() -> str:
    """Returns standard input as a file would be read, whatever encoding the terminal has."""
    buffer = getattr(sys.stdin, "buffer", None)
    return sys.stdin.read() if buffer is None else _decoded(buffer.read(), "-")


def _text(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _LARGEST_FILE:
            msg = f"{path} must have at most {_LARGEST_FILE:,} bytes (got {size:,})"
            raise BudgetConfigError(msg)
        return _decoded(path.read_bytes(), path)
    except OSError as error:
        msg = f"{path} must be readable (got {error.strerror or error})"
        raise BudgetConfigError(msg) from error


def _decoded(data: bytes, path: str | Path) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        msg = f"{path} must be UTF-8 text (got {data[error.start]:#04x} at byte {error.start:,}). Convert it."
        raise BudgetConfigError(msg) from error


# ---- passages ------------------------------------------------------------------------------------
def read_passages(folder: str | Path) -> list[Segment]:
    """Returns the texts of a folder or file, cut at headings and blank lines into passages of 300 tokens.

    Raises:
        BudgetConfigError: there is no such folder, or no text in it.
    """
    root = Path(folder)
    if not root.exists():
        msg = f"{folder} must be a folder with {', '.join(SUFFIXES)} files (got no folder)"
        raise BudgetConfigError(msg)
    files = {root.name: root} if root.is_file() else {}
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        hidden = any(part.startswith(".") for part in parts)
        if path.suffix.lower() in SUFFIXES and path.is_file() and not hidden:
            files["/".join(parts)] = path
    passages = [passage for name, path in files.items() for passage in _passages(_text(path), name)]
    if not passages:
        msg = f"{folder} must hold a text in {', '.join(SUFFIXES)} files (got none)"
        raise BudgetConfigError(msg)
    return passages


def _passages(text: str, name: str) -> Iterator[Segment]:
    title, number = name, 0
    source = Provenance(source_id=name, source_type="document")
    for heading, body in _sections(text):
        title = heading or title
        for part in _packed(body):
            number += 1
            yield Segment(id=f"{name}#{number}", text=part, title=title, provenance=source)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yields each heading with the text below it, the heading included."""
    # The "#" of a comment in fenced code is no heading.
    plain = re.sub(
        r"^```.*?^```", lambda m: m.group().replace("#", " "), text, flags=re.MULTILINE | re.DOTALL
    )
    starts = [m.start() for m in re.finditer(r"^#{1,6} .+$", plain, re.MULTILINE)]
    for start, stop in pairwise([0, *starts, len(text)]):
        body = text[start:stop].strip()
        if body:
            first = body.partition("\n")[0]
            yield (first.lstrip("# ").strip() if first.startswith("#") else ""), body


def _packed(body: str) -> Iterator[str]:
    """Yields runs of whole paragraphs; one that is too long is cut at the end of a line or sentence."""
    run = ""
    for paragraph in (piece for p in re.split(r"\n\s*\n", body) for piece in _cut(p)):
        if run and len(run) + len(paragraph) > _PASSAGE:
            yield run
            run = ""
        run = f"{run}\n\n{paragraph}" if run else paragraph
    if run:
        yield run


def _cut(paragraph: str) -> Iterator[str]:
    while len(paragraph) > 2 * _PASSAGE:
        ends = [paragraph.rfind(mark, _PASSAGE // 2, _PASSAGE) for mark in ("\n", ". ", " ")]
        at = next((end + 1 for end in ends if end > 0), _PASSAGE)
        yield paragraph[:at].rstrip()
        paragraph = paragraph[at:].lstrip()
    if paragraph.strip():
        yield paragraph
