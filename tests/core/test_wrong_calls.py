"""A wrong call of the values, the budget or the counters is a typed error that names the option."""

from __future__ import annotations

import asyncio
import itertools
import re
from types import SimpleNamespace
from typing import Any

import pytest

from rankbudget import (
    Assembler,
    Block,
    BlockAssembler,
    BudgetConfigError,
    BudgetError,
    BudgetReport,
    BudgetSession,
    ContextAnalyzer,
    EmbeddingIndex,
    FewShotSelector,
    PromptCompressor,
    Provenance,
    Scope,
    Segment,
    TokenBudget,
    TokenOptimizer,
    adapt_ratios,
    afit_messages,
    build_constrained_prompt,
    counter_for,
    fit_documents,
    fit_messages,
    fit_text,
    log_reports,
    ratio_changes,
    trace_reports,
    usage_of,
)
from rankbudget.adapters import limits_of
from rankbudget.budget.context_windows import context_window_of
from rankbudget.errors import CounterUnavailableError, misspelt, named_options
from rankbudget.testing import WordCounter

CHAT = [{"role": "user", "content": "hello"}]
GPT: Any = counter_for("gpt-4o")
REPORT = BudgetReport(limit=5, total_tokens=1)
MISSPELT: list[tuple[Any, dict[str, Any], str]] = [
    (TokenBudget, {"reserv": 5}, "reserve"),
    (TokenBudget.for_model, {"model": "gpt-4o", "reserv": 5}, "reserve"),
    (TokenBudget.five_blocks, {"safty": 5}, "safety"),
    (TokenBudget.from_file, {"path": "x", "profil": "a"}, "profile"),
    (TokenBudget().replace, {"context_windw": 5}, "context_window"),
    (lambda **fields: TokenBudget.from_dict(fields), {"min_exchange": 5}, "min_exchanges"),
    (Block, {"name": "a", "segmants": []}, "segments"),
    (lambda **fields: Block.of("a", "text", **fields), {"rnak": 1}, "rank"),
    (Segment, {"id": "a", "txt": "b"}, "text"),
    (Scope, {"usr": "a"}, "user"),
    (Provenance, {"source_id": "a", "confidance": 1}, "confidence"),
    (counter_for, {"medai": None}, "media"),
    (TokenBudget, {"surplus": "waterfal"}, "waterfall"),
    (TokenBudget, {"ratios": {"histroy": 0.4, "memory": 0.3}}, "history"),
    (TokenBudget, {"sizes": {"knowlege": 400}}, "knowledge"),
    (TokenBudget, {"ranks": {"taks": 4}}, "task"),
    (Block, {"name": "knowlege"}, "knowledge"),
    (Assembler(1000).assemble, {"blocks": {"knowlege": ["a"]}, "query": "x"}, "knowledge"),
    (counter_for, {"spec": "o200k_bas"}, "o200k_base"),
    (GPT.truncate, {"text": "a b", "max_tokens": 1, "side": "rigth"}, "right"),
    (fit_messages, {"messages": CHAT, "max_token": 99}, "max_tokens"),
    (lambda **options: asyncio.run(afit_messages(CHAT, **options)), {"max_token": 99}, "max_tokens"),
    (fit_documents, {"texts_or_segments": ["a"], "max_tokens": 9, "qeury": "b"}, "query"),
    (fit_text, {"text": "a", "max_token": 9}, "max_tokens"),
    (Assembler, {"budget": 99, "scop": None}, "scope"),
    (Assembler(99).assemble, {"blocks": {}, "querry": "x"}, "query"),
    (BudgetSession, {"budget": 99, "summariser": None}, "summarizer"),
    (BudgetSession(99).fit, {"messages": CHAT, "limits": 5}, "limit"),
    (BlockAssembler, {"budget": TokenBudget(), "scop": None}, "scope"),
    (BlockAssembler(TokenBudget()).assemble, {"system": "a", "taks": "b"}, "task"),
    (build_constrained_prompt, {"system_prompt": "a", "user_qestion": "b"}, "user_question"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "profile": "antropic"}, "anthropic"),
]
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (Segment, {"id": 5, "text": ""}, "id of the segment must be a str"),
    (Segment, {"id": "a", "text": "", "score": "high"}, "score of the segment"),
    (Segment, {"id": "a", "text": "", "tokens": 1.5}, "tokens of the segment"),
    (Segment, {"id": "a", "text": "", "priority": "high"}, "priority of the segment"),
    (Segment, {"id": "a", "text": "", "pinned": "no"}, "pinned of the segment"),
    (Segment, {"id": "a", "text": "", "provenance": "a.md"}, "provenance of the segment"),
    (Segment, {"id": "a", "text": "", "scope": "ann"}, "scope of the segment"),
    (Segment, {"id": "a", "text": "", "created_at": "2026-01-01"}, "created_at of the segment"),
    (Segment, {"id": "a", "text": "", "metadata": "x"}, "metadata of the segment"),
    (Segment, {"text": ""}, "Segment must be called as"),
    (Scope, {"user": 5}, "user of the scope"),
    (Provenance, {"source_id": 5}, "source_id of the provenance"),
    (Block, {"name": 5}, "name of a block"),
    (Block, {"name": ""}, "name of a block"),
    (Block, {"name": "a", "segments": "abc"}, "segments of block 'a'"),
    (Block, {"name": "a", "segments": ["abc"]}, "segments of block 'a'"),
    (Block, {"name": "a", "messages": "abc"}, "messages of block 'a'"),
    (Block, {"name": "a", "messages": CHAT[0]}, "messages of block 'a'"),
    (Block, {"name": "a", "pinned": "no"}, "pinned of the block"),
    (Block, {"name": "a", "query": 5}, "query of the block"),
    (TokenBudget, {"safety": "a"}, "safety"),
    (TokenBudget, {"keep_band": 1}, "keep_band"),
    (TokenBudget, {"sizes": {5: 1}}, "each key of sizes"),
    (TokenBudget.five_blocks, {"model": 5}, "model"),
    (TokenBudget.for_model, {"model": 5.5}, "context_window"),
    (TokenBudget.for_model, {"model": "acme", "default": "a"}, "default"),
    (TokenBudget.for_model, {"model": "acme", "base_url": 5}, "base_url"),
    (TokenBudget.from_file, {"path": 5}, "path of a YAML file"),
    (TokenBudget.from_file, {"path": "no\0file"}, "path of a YAML file"),
    (counter_for, {"media": 5}, "media"),
    (counter_for, {"spec": object(), "model": 5}, "model"),
    (GPT.count, {"text": None}, "must be a str"),
    (GPT.count, {"text": 5}, "must be a str"),
    (GPT.truncate, {"text": None, "max_tokens": 1}, "text must be a str"),
    (GPT.truncate, {"text": "a", "max_tokens": "1"}, "max_tokens"),
    (GPT.count_messages, {"messages": "abc"}, "messages"),
    (GPT.count_messages, {"messages": CHAT, "tools": "abc"}, "tools"),
    (GPT.count_messages, {"messages": CHAT, "tools": {"type": "function"}}, "tools"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "tools": "abc"}, "tools"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "tools": {"type": "function"}}, "tools"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "profile": "nonesuch"}, "profile"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "profile": 5}, "profile"),
    *[
        (fit_messages, {"messages": CHAT, "max_tokens": 99, "tools": [t]}, "each tool must be")
        for t in (len, int)
    ],
    (GPT.count_messages, {"messages": CHAT, "tools": [GPT.count]}, "each tool must be a schema"),
    (BudgetSession, {"budget": 99, "sources": ["knowlege"]}, "did you mean 'knowledge'"),
    (lambda: BudgetSession(99).share_with("memry"), {}, "did you mean 'memory'"),
    (trace_reports, {"tracer_provider": "http://localhost:4317"}, "tracer_provider must be"),
    *[
        (log_reports, {"path": path}, "path must be the path of a file")
        for path in (None, 5, b"a", ".", "/no/x/y")
    ],
    *[
        (usage_of, {"reports": given}, "reports must be a list")
        for given in (REPORT, REPORT.to_dict(), None, "a")
    ],
    *[
        (change, {"budget": given, "reports": TokenBudget()}, "budget must be a TokenBudget")
        for change in (adapt_ratios, ratio_changes)
        for given in ([REPORT], None, 5)
    ],
    (adapt_ratios, {"budget": TokenBudget(), "reports": REPORT}, "reports must be a list"),
    (Assembler(99).assemble, {"blocks": {"query": "a"}, "query": "b"}, "query must be given once"),
    (Assembler(99).assemble, {"blocks": {"knowledge": {"a": "b"}}}, "block 'knowledge' must be a text"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "summarizer": 5}, "summarizer must be a callable"),
    (fit_messages, {"messages": CHAT, "max_tokens": 99, "summarizer": lambda text: text}, "summarizer must"),
    (
        fit_documents,
        {"texts_or_segments": ["a"], "max_tokens": 9, "query": "b", "scorer": 5},
        "scorer must be",
    ),
    (Assembler, {"budget": 99, "summarizer": "x"}, "summarizer must be a callable"),
    (Assembler, {"budget": 99, "scope": "ann"}, "scope must be a Scope"),
    (
        fit_documents,
        {"texts_or_segments": ["a"], "max_tokens": 9, "query": "b", "scope": "ann"},
        "scope must be",
    ),
]
FIT: dict[str, Any] = {"messages": CHAT, "max_tokens": 99}
BLOCKS: dict[str, Any] = {"blocks": {"task": "a"}}
KINDS: list[tuple[Any, dict[str, Any], str, Any]] = [
    (fit_messages, FIT, "session", 5),
    (fit_messages, FIT, "session", BudgetSession),
    (fit_messages, FIT, "codec", 5),
    (fit_messages, FIT, "measure", 5),
    (Assembler, {"budget": 99}, "session", 5),
    (BudgetSession, {"budget": 99}, "codec", 5),
    (BudgetSession, {"budget": 99}, "measure", 5),
    (lambda **options: BudgetSession(99, **options).fit(CHAT), {}, "summarizer", 5),
    (BudgetSession, {"budget": 99}, "sources", "knowledge"),
    (BudgetSession, {"budget": 99}, "sources", [5]),
    (BudgetSession(99).fit, {"messages": CHAT}, "extra_tokens", -1),
    (BudgetSession(99).fit, {"messages": CHAT}, "extra_tokens", "1"),
    (lambda **options: Assembler(99, **options).assemble(**BLOCKS), {}, "shown", 3),
    (lambda **options: Assembler(99, **options).assemble(**BLOCKS), {}, "notice", 5),
    (BlockAssembler, {"budget": TokenBudget.five_blocks("gpt-4")}, "notice", 5),
    (FewShotSelector().select, {"query": "p"}, "examples", ["a"]),
    (FewShotSelector().select, {"query": "p"}, "examples", "a"),
    (TokenOptimizer().optimize, {}, "prompt", None),
    (TokenOptimizer().optimize, {"prompt": "p"}, "examples", ["a"]),
    (TokenOptimizer().optimize, {"prompt": "p"}, "history", "abc"),
    (TokenOptimizer().optimize, {"prompt": "p"}, "history", ["abc"]),
    (TokenOptimizer().optimize, {"prompt": "p"}, "history", {"role": "user"}),
    (TokenOptimizer().optimize, {"prompt": "p"}, "history", [SimpleNamespace(role="user", content="x")]),
    (TokenOptimizer().optimize, {"prompt": "p"}, "system_prompt", 5),
    (TokenOptimizer().optimize, {"prompt": "p"}, "system_prompt", ["a"]),
    (TokenOptimizer().optimize, {"prompt": "p"}, "task_type", None),
    (TokenOptimizer().optimize, {"prompt": "p"}, "task_type", ["critical"]),
    (TokenOptimizer().optimize, {"prompt": "p"}, "task_type", "critcal"),
    (BudgetReport.from_dict, {}, "data", "text"),
    (BudgetReport.from_dict, {}, "data", {}),
    (BudgetReport.from_dict, {}, "data", {"blocks": ["a"]}),
]


BLOCK_TEXT = BlockAssembler(TokenBudget.five_blocks("gpt-4"))
INDEX = EmbeddingIndex(lambda texts: [[1.0] for _ in texts])
PARTS = ContextAnalyzer().analyze
TEXT, ONE, NONE, NUMBER, ODD = "text", {"a": 5}, None, 5, [5, object()]
TAKES: list[tuple[Any, dict[str, Any], str, tuple[Any, ...]]] = [
    # what takes a list
    *[
        (call, {"system": "s"}, name, (TEXT, ONE, NONE, NUMBER, ODD))
        for call in (BLOCK_TEXT.assemble, BLOCK_TEXT.assemble_with_report)
        for name in ("history", "knowledge")
    ],
    (fit_messages, {"max_tokens": 99}, "messages", (TEXT, ONE, NONE, NUMBER)),
    (fit_documents, {"max_tokens": 9, "query": "b"}, "texts_or_segments", (TEXT, ONE, NONE, NUMBER, ODD)),
    (GPT.count_many, {}, "texts", (TEXT, ONE, NONE, NUMBER)),
    (GPT.count_messages, {}, "messages", (TEXT, ONE, NONE, NUMBER)),
    (INDEX.add, {}, "texts", (TEXT, ONE, NONE, NUMBER)),
    (BudgetSession, {"budget": 99}, "sources", (TEXT, ONE, NONE, NUMBER, ODD)),
    (lambda sources: BudgetSession(99).share_with(*sources), {}, "sources", (ODD, [None])),
    (FewShotSelector().select, {"query": "p"}, "examples", (TEXT, ONE, NUMBER, ODD)),
    (PromptCompressor().compress_history, {}, "history", (TEXT, ONE, NONE, NUMBER, ODD)),
    (ContextAnalyzer().filter_by_relevance, {}, "segments", (TEXT, ONE, NONE, NUMBER, ODD)),
    *[
        (ContextAnalyzer().estimate_token_savings, {other: []}, name, (TEXT, ONE, NONE, NUMBER, ODD))
        for name, other in itertools.permutations(("original_segments", "filtered_segments"))
    ],
    (PARTS, {"query": "q"}, "prompt_parts", (TEXT, ONE, NONE, NUMBER, ODD)),
    # what takes a text
    *[
        (BLOCK_TEXT.assemble, {"system": "s"}, n, (ONE, NONE, NUMBER, ODD))
        for n in ("system", "project", "task")
    ],
    (PARTS, {"prompt_parts": {}}, "query", (ONE, NONE, NUMBER, ODD)),
    (FewShotSelector().select, {"examples": []}, "query", (ONE, NONE, NUMBER, ODD)),
    (PromptCompressor().compress, {}, "text", (ONE, NONE, NUMBER, ODD)),
    (PromptCompressor().compress, {"text": "a"}, "query", (ONE, NUMBER, ODD)),
    (fit_messages, FIT, "query", (ONE, NUMBER, ODD)),
    (GPT.count, {}, "text", (ONE, NONE, NUMBER, ODD)),
    (TokenBudget.five_blocks, {}, "model", (ONE, NUMBER, ODD)),
    # what takes either
    (Assembler(99).assemble, {}, "blocks", (TEXT, NONE, NUMBER, ODD)),
    *[
        (lambda **block: Assembler(99).assemble(block, query="q"), {}, name, (ONE, NUMBER, b"ab"))
        for name in ("knowledge", "memory", "examples", "task")
    ],
    (lambda message: Assembler(99).assemble({"system": message}), {}, "message", (NUMBER, ODD, [None], ONE)),
    (lambda message: Assembler(99).assemble({}, query=message), {}, "message", (NUMBER, ODD, ONE)),
]


@pytest.mark.parametrize(
    ("call", "options", "name", "value"),
    [(call, options, name, value) for call, options, name, values in TAKES for value in values],
)
def test_a_text_a_list_or_nothing_in_the_wrong_place_is_named(
    call: Any, options: dict[str, Any], name: str, value: Any
) -> None:
    """No text is read letter by letter, no mapping by its keys; the error names what was given wrongly."""
    with pytest.raises(BudgetError, match=name):
        call(**{**options, name: value})


@pytest.mark.parametrize(("call", "options", "name", "value"), KINDS)
def test_an_option_of_a_wrong_kind_is_named_with_its_value(
    call: Any, options: dict[str, Any], name: str, value: Any
) -> None:
    """Whatever an entry point takes, one error says what the option must be and what was seen."""
    with pytest.raises(BudgetConfigError, match=rf"^{name} must be .*\(got {re.escape(repr(value))}\)"):
        call(**options, **{name: value})


@pytest.mark.parametrize(("call", "options", "nearest"), MISSPELT)
def test_a_misspelt_option_is_named_with_the_nearest(
    call: Any, options: dict[str, Any], nearest: str
) -> None:
    """Options, fields, block names and words that are slightly wrong."""
    with pytest.raises(BudgetConfigError, match=f"did you mean '{nearest}'"):
        call(**options)


@pytest.mark.parametrize(("call", "options", "words"), WRONG)
def test_a_value_of_a_wrong_type_is_named(call: Any, options: dict[str, Any], words: str) -> None:
    """Values that cannot work, where they are given."""
    with pytest.raises(BudgetConfigError, match=re.escape(words)):
        call(**options)


def test_names_of_ones_own_are_allowed() -> None:
    """Only a name that is nearly one of ours is taken for a slip of the pen."""
    names = ("system", "query", "project", "task", "memory", "history", "examples", "knowledge")
    own = ["rules", "tasks", "example", "memories", "my_history", "task_2", "history2", "notes", "style"]
    assert [misspelt(name, names) for name in own] == [""] * len(own)
    assert [Block(name=name).name for name in own] == own


def test_an_error_inside_a_function_is_not_taken_for_a_wrong_call() -> None:
    """Only arguments that Python refuses become the typed error."""

    @named_options
    def broken(value: int) -> int:
        raise TypeError(str(value))

    with pytest.raises(TypeError, match=r"^5$"):
        broken(5)


def test_a_counter_that_raises_is_typed() -> None:
    """A callable's own error is said with its name."""
    with pytest.raises(CounterUnavailableError, match="ZeroDivisionError"):
        counter_for(lambda text: 1 // 0).count("x")


def test_an_embedding_that_raises_is_typed() -> None:
    """The failure of a function from outside says which one it was, with its cause."""

    def broken(texts: list[str]) -> list[list[float]]:
        raise ZeroDivisionError(texts[0])

    with pytest.raises(
        BudgetError, match=r"the embedding 'broken' must not raise \(got ZeroDivisionError"
    ) as caught:
        EmbeddingIndex(broken).add(["a"])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("option", ["cost", "scorer"])
def test_what_fails_while_a_block_is_fitted_is_typed(option: str) -> None:
    """A cost, or a scorer, that raises is said with the block it was asked for."""

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    given = broken if option == "cost" else SimpleNamespace(score=broken)
    with pytest.raises(
        BudgetError, match=r"fitting the block 'knowledge' must not raise \(got ZeroDivisionError"
    ):
        fit_documents(["a b c", "d e f " * 20], max_tokens=9, query="a", **{option: given})


@pytest.mark.parametrize(("given", "got"), [([1.0], "1"), (None, "None"), ([1.0] * 9, "9")])
def test_a_scorer_that_misses_a_text_is_named(given: Any, got: str) -> None:
    """There is one score for each text, or an error that says how many there were."""
    scorer = SimpleNamespace(score=lambda query, segments: given)
    with pytest.raises(BudgetError, match=rf"must return 2 scores \(got {got}\)"):
        fit_documents(["a b c", "d e f " * 20], max_tokens=9, query="a", scorer=scorer)


def test_a_name_for_a_model_that_is_nearly_known_is_hinted() -> None:
    """An unknown window says which known model has nearly that name."""
    with pytest.raises(CounterUnavailableError, match=r"did you mean 'gemini-2\.5'"):
        context_window_of("gemni-2.5")


def test_what_a_model_is_run_with_is_its_window() -> None:
    """Ollama's num_ctx and llama.cpp's n_ctx come before what the model could read, and so does the smallest fallback."""
    for name in ("num_ctx", "n_ctx"):
        assert context_window_of(SimpleNamespace(model="llama3.1", **{name: 8_192})) == 8_192
    small = SimpleNamespace(model="gpt-4")
    assert context_window_of(SimpleNamespace(model="gpt-4o", fallbacks=[small])) == 8_192


def test_a_limit_is_the_same_through_every_door() -> None:
    """1,000 tokens with a Claude name keep the band free, however the model is told."""
    most = {
        limits_of(max_tokens=1000, counter="claude-sonnet-4-5").most,
        limits_of(max_tokens=1000, model="claude-sonnet-4-5").most,
        fit_messages(CHAT, max_tokens=1000, counter="claude-sonnet-4-5").report.limit,
        Assembler(1000, counter="claude-sonnet-4-5").assemble({}, query="Hi").report.limit,
    }
    assert most == {769}


def test_five_blocks_keep_the_band_of_an_estimate() -> None:
    """Where the band is more than the table's safety, the blocks that are cut first shrink."""
    counter = WordCounter()
    counter.band = 0.3
    history = [{"role": role, "content": "word " * 300} for _ in range(20) for role in ("user", "assistant")]
    blocks = BlockAssembler(TokenBudget.five_blocks("claude-3-sonnet"), counter=counter)
    made = blocks.assemble_with_report("Be brief.", "p " * 3000, "t " * 3000, history, ["k " * 100] * 50)
    assert made.report.total_tokens * 1.3 <= 8_192 - 2_000 - 1_000
    assert TokenBudget.five_blocks("claude-3-sonnet").limit() == 8_192 - 2_000 - 192
