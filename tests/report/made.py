"""Reports to draw: made by hand with hostile names, and made by the library from drawn applications."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from hypothesis import strategies as st

from rankbudget import Assembler, BudgetReport, TokenBudget, fit_documents, fit_messages
from rankbudget.errors import BudgetExceededError
from rankbudget.report.totals import BlockTotal
from rankbudget.segment import Decision
from rankbudget.testing import WordCounter

HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>",
    "<!--<script>",
    "\u2028\u2029 line ends",
    "half of a pair \ud83d",
    "\x00 &lt;b&gt; \x7f",
    "%DATA% %STYLE% %SCRIPT%",
)
words = st.lists(st.sampled_from("tea ice row box key sun".split()), min_size=1, max_size=30).map(" ".join)
texts = st.one_of(words, st.sampled_from(HOSTILE), st.text(st.characters(), max_size=12))
"""Plain and hostile texts, lone surrogates among them."""


@st.composite
def drawn_by_hand(draw: st.DrawFn) -> BudgetReport:
    """A report with any names and figures that add up, as a file somebody sent may hold."""
    names = draw(st.lists(st.one_of(texts, st.sampled_from(["system", "history"])), max_size=4, unique=True))
    counts = st.integers(0, 10_000)
    totals, decisions = [], []
    for name in names:
        used = draw(counts)
        granted = draw(st.one_of(st.none(), counts))
        totals.append(BlockTotal(name=name, rank=draw(st.integers(1, 9)), granted=granted, used=used))
        for _ in range(draw(st.integers(0, 4))):
            action = draw(st.sampled_from(["kept", "trimmed", "truncated", "compressed", "summarized"]))
            decisions.append(
                Decision(
                    segment_id=draw(texts),
                    block=name,
                    action=action,
                    reason=draw(st.one_of(texts, st.sampled_from(["fits", "orphan_result"]))),
                    before=draw(counts),
                    after=0 if action == "trimmed" else draw(counts),
                    detail=draw(texts),
                )
            )
    overhead, free, reserve, safety, capped = (draw(counts) for _ in range(5))
    total = sum(one.used for one in totals) + overhead
    known = draw(st.booleans())
    return BudgetReport(
        limit=total + free,
        total_tokens=total,
        window=total + free + reserve + safety + capped if known else None,
        reserve=reserve if known else 0,
        safety=safety if known else 0,
        overhead=overhead,
        blocks=totals,
        parts=decisions,
        warnings=draw(st.lists(texts, max_size=2)),
        counter=draw(texts),
        model=draw(st.one_of(st.none(), texts)),
    )


@st.composite
def drawn_results(draw: st.DrawFn):
    """What the library returned for a drawn chat, documents or blocks, and what it was given."""
    chat = [{"role": "system", "content": draw(texts)}] * draw(st.integers(0, 1))
    for _ in range(draw(st.integers(1, 8))):
        chat += [{"role": "user", "content": draw(words)}, {"role": "assistant", "content": draw(texts)}]
    chat.append({"role": "user", "content": draw(words)})
    documents = draw(st.lists(texts, min_size=1, max_size=5))
    limit, counter = draw(st.integers(40, 300)), WordCounter()
    try:
        kind = draw(st.sampled_from(["chat", "documents", "blocks"]))
        if kind == "chat":
            return fit_messages(chat, max_tokens=limit, counter=counter), chat
        if kind == "documents":
            return fit_documents(documents, max_tokens=limit // 4, query="tea", counter=counter), documents
        given = {"history": chat[:-1], "knowledge": documents}
        budget = TokenBudget(context_window=limit + 60, reserve=50, safety=10, max_system_ratio=None)
        return Assembler(budget, counter=counter).assemble(given, query=chat[-1]["content"]), given
    except BudgetExceededError:
        return fit_messages(chat, max_tokens=10_000, counter=counter), chat


class Tags(HTMLParser):
    """The elements and the text of a page; each element that is opened must be closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open, self.seen, self.text = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)

    @property
    def names(self) -> list[str]:
        return [tag for tag, _ in self.seen]


def data_of(page: str):
    """What the script of a page reads."""
    [found] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(found)
