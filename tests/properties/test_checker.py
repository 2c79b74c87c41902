"""The checker is checked: it lets every repaired conversation pass and names the law each planted mistake breaks."""

from __future__ import annotations

import copy
import subprocess
import sys

import pytest
from hypothesis import given

from rankbudget.errors import BudgetConfigError, BudgetExceededError, MessageError
from rankbudget.segment import Scope
from rankbudget.testing import (
    Application,
    CounterConformance,
    LawBroken,
    MemoryItem,
    RecordingCounter,
    StoreConformance,
    WordCounter,
    applications,
    check_delimited,
    check_laws,
    check_prefix,
    check_refusal,
    check_same,
    check_scopes,
    check_superset,
    is_broken,
    pairing_errors,
    repaired,
    reproduction,
    snapshot,
)
from tests.drawing import draws

COUNTER = WordCounter()


def say(role: str, content: object = "some words", **fields: object) -> dict[str, object]:
    return {"role": role, "content": content, **fields}


def call(*ids: str, content: object = None) -> dict[str, object]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
    return say("assistant", content, tool_calls=calls)


def result(call_id: str, text: str = "found") -> dict[str, object]:
    return say("tool", text, tool_call_id=call_id)


THREAD = [
    say("system", "rules"),
    say("user", "first question"),
    call("a", "b"),
    result("b"),
    result("a"),
    say("assistant", "an answer"),
    say("developer", "later rules"),
    say("user", "last question"),
]
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


def law_of(
    kept: list[dict[str, object]],
    *,
    limit: int = 60,
    thread: list[dict[str, object]] = THREAD,
    **options: object,
) -> int | None:
    try:
        check_laws(thread, kept, limit=limit, counter=COUNTER, **options)  # type: ignore[arg-type]  # options are a test's own
    except LawBroken as broken:
        return broken.law
    return None


def pick(*positions: int) -> list[dict[str, object]]:
    return [THREAD[i] for i in positions]


@draws()
@given(applications())
def test_repaired_conversations_keep_all_laws(application: Application) -> None:
    """What the repair leaves is a valid conversation by the checker's own rules."""
    given_messages = application.fresh()
    kept = repaired(given_messages)
    check_laws(
        given_messages,
        kept,
        limit=1_000_000,
        counter=COUNTER,
        tools=application.tools,
        before=snapshot(given_messages),
    )
    assert not is_broken(kept)
    assert not pairing_errors(kept)


@draws()
@given(applications())
def test_a_reproduction_makes_the_same_application(application: Application) -> None:
    """The pasteable code of an application evaluates to an equal application."""
    space: dict[str, object] = {}
    exec(reproduction(application), space)
    assert space["application"] == application


@pytest.mark.parametrize(
    ("law", "kept", "options"),
    [
        (None, pick(0, 1, 2, 3, 4, 5, 6, 7), {}),
        (None, pick(0, 6, 7), {"limit": 20}),
        (1, pick(0, 6, 7), {"limit": 19}),
        (1, pick(0, 6, 7), {"limit": 23, "reported": 19}),
        (2, pick(0, 1, 3, 4, 6, 7), {"limit": 50}),
        (2, pick(0, 1, 2, 4, 5, 6, 7), {"limit": 55}),
        (2, pick(0, 1, 2, 5, 6, 7), {"limit": 50}),
        (3, pick(1, 5, 6, 7), {"limit": 40}),
        (3, pick(0, 1, 5, 7), {"limit": 40}),
        (3, pick(0, 5, 6, 7), {"limit": 40}),
        (4, pick(0, 1, 5, 6), {"limit": 40}),
        (4, [], {"limit": 40}),
        (5, pick(0, 6, 7, 7), {"limit": 40}),
        (5, [*pick(0, 6), copy.deepcopy(THREAD[7])], {"limit": 40}),
        (5, [*pick(0), say("user", "made up"), *pick(6, 7)], {"limit": 40}),
        (4, [*pick(0, 6), say("user", "last")], {"limit": 40}),
        (7, pick(0, 6, 7), {"limit": 60}),
    ],
)
def test_each_planted_mistake_breaks_its_law(
    law: int | None, kept: list[dict[str, object]], options: dict[str, object]
) -> None:
    """A result with one planted mistake breaks the law it should; a right result breaks none."""
    assert law_of(kept, **options) == law


def test_dropped_and_changed_blocks_break_the_law_of_atoms() -> None:
    """Cut text beside an image passes; an image lost from a kept message, or content turned into a str, does not."""
    thread = [
        say("user", [{"type": "text", "text": "many words here in this one"}, IMAGE]),
        say("assistant", "yes"),
        say("user", "next"),
    ]
    text = {"type": "text", "text": "many words here"}
    assert law_of([say("user", [text, IMAGE]), *thread[1:]], thread=thread, limit=107) is None
    assert law_of([say("user", [text]), *thread[1:]], thread=thread, limit=107) == 5
    assert law_of([say("user", "many words here"), *thread[1:]], thread=thread, limit=107) == 5
    assert law_of([say("user", [text, IMAGE]), *thread[1:]], thread=thread, limit=107, edits=False) == 5


def test_a_call_waiting_at_the_end_must_stay() -> None:
    """A pending call may end a conversation, and dropping it breaks the law of pairing."""
    thread = [say("user", "old"), say("assistant", "answer"), say("user", "go"), call("a")]
    assert law_of(thread[2:], thread=thread, limit=17) is None
    assert law_of(thread[2:3], thread=thread, limit=17) == 2


def test_changed_inputs_are_found() -> None:
    """A call that edits the messages it was given breaks the law of order and identity."""
    thread = copy.deepcopy(THREAD)
    before = snapshot(thread)
    thread[1]["content"] = "changed"
    with pytest.raises(LawBroken, match="law 5"):
        check_laws(thread, thread, limit=60, counter=COUNTER, before=before)


def test_refusals_need_a_reason() -> None:
    """A refusal passes when system and question do not fit, and breaks law 1 when they do or when it is not typed."""
    error = BudgetExceededError("too much", limit=10, needed=20)
    check_refusal(THREAD, error, limit=19, counter=COUNTER)
    fits = BudgetExceededError("?", limit=10, needed=9)
    for wrong, limit in ((error, 20), (BudgetConfigError("no"), 19), (KeyError("x"), 19), (fits, 19)):
        with pytest.raises(LawBroken, match="law 1"):
            check_refusal(THREAD, wrong, limit=limit, counter=COUNTER)
    check_refusal([*THREAD, result("x")], MessageError("orphan"), limit=90, counter=COUNTER, strict=True)
    with pytest.raises(LawBroken, match="law 2"):
        check_refusal(THREAD, MessageError("orphan"), limit=90, counter=COUNTER, strict=True)


def test_the_other_checks_find_their_mistakes() -> None:
    """Results that differ, lose what a smaller limit kept, or rewrite a prefix for nothing are named."""
    check_same(pick(0, 6, 7), copy.deepcopy(pick(0, 6, 7)))
    with pytest.raises(LawBroken, match="law 7"):
        check_same(pick(0, 6, 7), pick(0, 7))
    check_superset(THREAD, pick(0, 6, 7), pick(0, 5, 6, 7))
    with pytest.raises(LawBroken, match="law 7"):
        check_superset(THREAD, pick(0, 5, 6, 7), pick(0, 6, 7))
    check_prefix(pick(0, 1), pick(0, 1, 5), fits=True)
    check_prefix(pick(0, 1), pick(0, 5), fits=False)
    with pytest.raises(LawBroken, match="law 9"):
        check_prefix(pick(0, 1), pick(0, 5), fits=True)


def test_open_delimiters_and_leaks_are_found() -> None:
    """A payload that closes its delimiter breaks law 10, a text of another user law 11."""
    check_delimited("<k>a &lt;/k&gt; b</k>", ["a </k> b"], tags=["k"])
    check_delimited("<k>\n<k source='1'>a</k>\n</k>", [], tags=["k"])
    for rendered in ("<k>a </k> b</k>", "<k>a < / K > b</k>", "<k>a", "<k><j></k></j>"):
        with pytest.raises(LawBroken, match="law 10"):
            check_delimited(rendered, ["a </k> b", "a < / K > b"], tags=["k", "j"])
    mine, hers = (
        MemoryItem(text="blue", scope=Scope(user="ann")),
        MemoryItem(text="green", scope=Scope(user="eve")),
    )
    check_scopes("the sky is blue", [mine, hers], Scope(user="ann"))
    with pytest.raises(LawBroken, match="law 11"):
        check_scopes("the sky is green", [mine, hers], Scope(user="ann"))


def test_a_recording_counter_knows_its_work() -> None:
    """It counts calls, texts, messages and characters, and counts what the wrapped counter counts."""
    counter = RecordingCounter(COUNTER)
    assert counter.count_messages(THREAD) == COUNTER.count_messages(THREAD)
    assert (counter.calls, counter.messages, counter.texts) == (1, 8, 0)
    assert counter.characters > 60
    counter.reset()
    assert counter.characters == 0


def test_the_kit_loads_no_framework_and_no_hypothesis() -> None:
    """Importing the kit and its checker loads neither hypothesis nor a framework."""
    code = (
        "import sys; from rankbudget.testing import check_laws, WordCounter, repaired;"
        "print([m for m in ('hypothesis', 'pytest', 'langchain_core', 'llama_index') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class TestWordCounter(CounterConformance):
    """The word counter keeps the counter rules."""

    def make(self) -> WordCounter:
        return WordCounter()


class TestRecordingCounter(CounterConformance):
    """A recording counter keeps the rules of the counter it wraps."""

    def make(self) -> RecordingCounter:
        return RecordingCounter(WordCounter())


class CopyingStore:
    """The smallest store that keeps the rules."""

    def __init__(self) -> None:
        self.rows: dict[str, list[dict[str, object]]] = {}

    def append(self, key: str, messages: list[dict[str, object]]) -> None:
        self.rows.setdefault(key, []).extend(copy.deepcopy(messages))


class TestStore(StoreConformance):
    """A small third-party store keeps the store rules."""

    def make(self) -> CopyingStore:
        return CopyingStore()

    def append(self, store: CopyingStore, key: str, messages: list[dict[str, object]]) -> None:
        store.append(key, messages)

    def read(self, store: CopyingStore, key: str) -> list[dict[str, object]]:
        return copy.deepcopy(store.rows.get(key, []))

    def clear(self, store: CopyingStore, key: str) -> None:
        store.rows.pop(key, None)


def answered(*ids: str, more: str = "") -> dict[str, object]:
    blocks: list[object] = [{"type": "tool_result", "tool_use_id": i, "content": "found"} for i in ids]
    return say("user", [*blocks, {"type": "text", "text": more}] if more else blocks)


def test_a_step_at_the_end_must_stay_and_may_be_a_reason_to_refuse() -> None:
    """Results that are not answered yet may not be dropped; where they do not fit, a refusal is right."""
    for end in (result("a", "many words " * 9), answered("a", more="many words " * 9)):
        thread = [say("user", "old"), say("assistant", "answer"), say("user", "go"), call("a"), end]
        limit = COUNTER.count_messages(thread[2:])  # type: ignore[arg-type]  # a thread of dicts
        assert law_of(thread[2:], thread=thread, limit=limit) is None
        assert law_of(thread[2:3], thread=thread, limit=limit) == 2
        error = BudgetExceededError("too much", limit=20, needed=70)
        check_refusal(thread, error, limit=20, counter=COUNTER)
        with pytest.raises(LawBroken, match="law 1"):
            check_refusal([*thread, say("assistant", "done")], error, limit=20, counter=COUNTER)


def test_results_in_user_messages_are_results() -> None:
    """A user message with tool results pairs, breaks and repairs as tool messages do, and asks nothing."""
    thread = [
        say("user", "first"),
        call("a", "b"),
        answered("b", "a", more="go on"),
        say("assistant", "answer"),
        say("user", "last"),
    ]
    assert law_of(thread, thread=thread, limit=200) is None
    assert law_of([thread[0], *thread[2:]], thread=thread, limit=60) == 2
    assert law_of([*thread[:2], *thread[3:]], thread=thread, limit=60) == 2
    assert law_of(thread[2:], thread=thread, limit=60) == 2
    assert repaired([*thread, answered("x")]) == thread
    batch = [thread[0], call("a"), answered("a"), thread[4]]
    for results in (answered("a", "x"), answered("a", "a")):
        assert repaired([*batch[:2], results, batch[3]]) == batch
    asks = [{"type": "text", "text": "go on"}]
    assert repaired([thread[0], call("a", "b"), answered("a", more="go on"), *thread[3:]])[1] == say(
        "user", asks
    )
    asked = [say("user", "the question"), call("a"), answered("a")]
    assert law_of(asked[1:], thread=asked, limit=60) == 3
