"""Reports as one self-contained HTML page to look into: nothing is loaded, all text is escaped.

The head is HTML. The pieces are JSON, and `page.js` draws as many of them as are looked at. The page's own
policy allows that one script and that one style by their hashes, and no request.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from ..errors import BudgetConfigError, named_file, named_options, shown
from ..segment import Decision
from .bar import safe, summary_html
from .order import in_order
from .reasons import MEANINGS
from .rows import rows_of
from .texts import Given, Texts, Words, kept_in, texts_of

if TYPE_CHECKING:
    from os import PathLike

    from .report import BudgetReport

_MOST_EXPLAINED, _MOST_SECONDS = 200, 2.0
"""Dropped pieces for which a page says what brings them back, and the time that may take."""
_STAYS = ("system", "project", "task", "history")
"""Blocks that may be the same in the next turn; in others the same id may be another text."""


def save_html(path: str | PathLike[str], turns: Sequence[Any], *, before: Given = None) -> Path:
    """Writes one self-contained page with a timeline of several turns, and returns its path.

    Args:
        path: the file to write; one that is there is replaced.
        turns: reports, or what `fit_messages`, `Assembler` and their kin returned, which hold the texts that
            were kept too; oldest first.
        before: what the last turn offered, as a list of messages, or lists by block; the texts of what was
            dropped are read from it. None: the page has ids and figures of dropped pieces.

    Returns:
        The path that was written.

    Raises:
        BudgetConfigError: `turns` is empty or holds something else.

    Example:
        >>> import tempfile
        >>> from rankbudget import fit_messages
        >>> chat = [{"role": "user", "content": f"question {i}"} for i in range(9)]
        >>> turns = [fit_messages(chat[:n], max_tokens=24) for n in (5, 7, 9)]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_html(f"{folder}/turns.html", turns, before=chat).name
        'turns.html'
    """
    return written(path, page([turn_of(one, before) for one in _checked(turns)]))


@named_options
def written(path: str | PathLike[str], html: str) -> Path:
    """Writes a page and returns its path."""
    target = Path(path)
    with named_file(target):
        target.write_text(html, encoding="utf-8")
    return target


@dataclass(frozen=True, slots=True)
class Turn:
    """One report and the texts of its pieces."""

    report: BudgetReport
    texts: Texts = field(default_factory=Texts)


def turn_of(one: Any, before: Given = None, after: Given = None) -> Turn:
    """Returns a report, or a result that has one, with its texts."""
    report = getattr(one, "report", one)
    kept = after if after is not None or report is one else kept_in(one)
    if before is None and kept is None:
        return Turn(report)
    return Turn(report, texts_of(report, before=before, after=kept))


def page(turns: Sequence[Turn]) -> str:
    """Returns the whole page."""
    style, script = _part("page.css"), _part("difference.js") + _part("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    last = turns[-1].report
    title = f"Budget report: {last.total_tokens:,} of {last.limit:,} tokens"
    heads = "\n".join(
        f'<section class="turn" data-turn="{i}"{"" if turn is turns[-1] else " hidden"}>'
        f"{summary_html(turn.report)}</section>"
        for i, turn in enumerate(turns)
    )
    parts = {
        "%POLICY%": policy,
        "%TITLE%": safe(title),
        "%STYLE%": style,
        "%HEADS%": heads,
        "%DATA%": _json(_data(turns)),
        "%SCRIPT%": script,
    }
    return _filled(_part("page.html"), parts)


def _filled(template: str, parts: Mapping[str, str]) -> str:
    """Returns the template with each part in its place; a part's own text is not searched for others."""
    made = []
    for mark, part in parts.items():
        ahead, template = template.split(mark, 1)
        made += [ahead, part]
    return "".join([*made, template])


@cache
def _part(name: str) -> str:
    from importlib.resources import files  # few reports become a page

    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


def _json(data: Any) -> str:
    """Returns data as JSON that cannot end the element it stands in: no "<", and ASCII alone."""
    plain = json.dumps(data, separators=(",", ":"))
    return plain.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


# ---- what the script reads -----------------------------------------------------------------------
class _Strings:
    """Texts by number: most are in a page many times."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def __call__(self, text: Any) -> int:
        return self.numbers.setdefault(str(text), len(self.numbers))


def _data(turns: Sequence[Turn]) -> dict[str, Any]:
    """Returns all that the script draws; `page.js` names the columns of a piece."""
    number = _Strings()
    made = []
    earlier: list[tuple[Any, ...]] | None = None
    for turn in turns:
        report = turn.report
        pieces = in_order(report.decisions, [block.name for block in report.blocks], turn.texts.before)
        prefix = [_seen(turn, one) for one in pieces if one.action != "trimmed"]
        more = _more(turn) if turn is turns[-1] else {}
        made.append(
            {
                "total": report.total_tokens,
                "limit": report.limit,
                "rows": [[number(row.name), row.title, row.hue, row.used] for row in rows_of(report)],
                "blocks": {block.name: [block.granted, block.used, block.rank] for block in report.blocks},
                "pieces": [_piece(turn, one, number, more) for one in pieces],
                "same": None if earlier is None else _common(earlier, prefix),
            }
        )
        earlier = prefix
    return {"turns": made, "meanings": MEANINGS, "strings": list(number.numbers)}


def _piece(
    turn: Turn, one: Decision, number: _Strings, more: Mapping[tuple[str, str], int | None]
) -> list[Any]:
    key = (one.block, one.segment_id)
    offered, kept = turn.texts.before.get(key), turn.texts.after.get(key)
    whole = offered if offered is not None or one.action != "kept" else kept
    reads = kept if kept is not None or one.action != "kept" else offered
    about = whole or reads or Words("")
    return [
        number(one.segment_id),
        number(one.block),
        number(one.action),
        number(one.reason),
        number(one.detail),
        one.before,
        one.after,
        None if whole is None else number(whole.text),
        None if reads is None or one.action == "trimmed" else number(reads.text),
        number(about.role),
        about.score,
        more.get(key, -1),  # -1: not asked
    ]


def _seen(turn: Turn, one: Decision) -> tuple[Any, ...]:
    """Returns what tells a piece of a prompt from one of another turn."""
    words = turn.texts.after.get((one.block, one.segment_id))
    return one.block, one.segment_id, one.action, one.after, None if words is None else words.text


def _common(earlier: list[tuple[Any, ...]], later: list[tuple[Any, ...]]) -> int:
    """Returns how many pieces the prompts of two turns start with alike."""
    count = 0
    for one, other in zip(earlier, later, strict=False):
        if one != other or one[0] not in _STAYS:
            break
        count += 1
    return count


def _more(turn: Turn) -> dict[tuple[str, str], int | None]:
    """Returns how many more tokens bring back the dropped pieces that are nearest to being kept."""
    of_block: dict[str, list[Decision]] = {}
    for one in turn.report.decisions:
        if one.action == "trimmed":
            of_block.setdefault(one.block, []).append(one)
    for name, dropped in of_block.items():
        if name == "history":
            dropped.reverse()  # the newest comes back first
        else:
            scores = {one.segment_id: turn.texts.before.get((name, one.segment_id)) for one in dropped}
            dropped.sort(key=lambda one: -(_score(scores[one.segment_id])))
    found: dict[tuple[str, str], int | None] = {}
    end = monotonic() + _MOST_SECONDS
    nearest = [one for level in zip_longest(*of_block.values()) for one in level if one is not None]
    for one in nearest[:_MOST_EXPLAINED]:
        if monotonic() > end:
            break
        found[one.block, one.segment_id] = turn.report.more_tokens(one.segment_id, one.block)
    return found


def _score(words: Words | None) -> float:
    return 0.0 if words is None or words.score is None else words.score


def _checked(turns: Any) -> Sequence[Any]:
    """Returns the turns; raises BudgetConfigError where one has no report."""
    held = list(turns) if isinstance(turns, Sequence) else []
    wrong = [one for one in held if not hasattr(getattr(one, "report", one), "decisions")]
    if wrong or not held:
        msg = (
            "turns must be a list of reports or results, oldest first "
            f"(got {shown(wrong[0] if wrong else turns)}). "
            "Give what on_report received, or what fit_messages or an Assembler returned."
        )
        raise BudgetConfigError(msg)
    return held
